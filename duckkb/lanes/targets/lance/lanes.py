"""The lanes of one type over Lance tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from duckkb.id_set import IdSet
from duckkb.lanes.lexical.fields import SEQUENCE
from duckkb.lanes.targets.keys import prefix_range
from duckkb.lanes.targets.lance.publication import LancePublication, matrix
from duckkb.lanes.targets.lance.schema import term_of
from duckkb.lanes.targets.lance.store import AT_ONCE, one_of
from duckkb.lanes.targets.vectors import PublishedVectors, Row
from duckkb.lanes.targets.words import Ids, PublishedStatistics, PublishedWords, Scores, Term
from duckkb.ontology.model import RecordType
from duckkb.ports import Publication, Rows, Tokenizer
from duckkb.settings import Settings, VectorSettings

if TYPE_CHECKING:
    from duckkb.lanes.targets.lance.target import LanceTarget

_PROBES = 20  # parts of an index that are looked at, of about the root of the vectors' number
_AHEAD = 1.3  # more than enough of all, where a filter lets so many through


class LanceLanes:
    """Implements `ports.Lanes`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings, target: "LanceTarget"
    ) -> None:
        self.words = LanceWords(kind, rows, tokenizer, settings.language, target)
        self.vectors = LanceVectors(kind, kind.settings(settings).vectors, target)

    def discard(self) -> None:
        """Nothing of it is kept here."""


class LanceStatistics(PublishedStatistics):
    """In how many records a term is, is how many postings it has."""

    def __init__(self, kind: RecordType, numbers: Mapping[str, int], now: LancePublication) -> None:
        known = now.kind(kind)
        self._kind, self._numbers, self._now = kind, numbers, now
        self.documents = known.count if known else 0
        self._lengths = known.lengths if known else []
        self._counts: dict[str, int] = {}

    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        wanted = [key for field, token in terms if (key := self.term(field, token)) not in self._counts]
        found = self._now.postings(self._kind, wanted)
        self._counts |= {key: len(found[key].ids) if key in found else 0 for key in wanted}

    def term(self, field: str, token: str) -> str:
        return term_of(self._numbers[field], token)

    def frequency(self, field: str, token: str) -> int:
        key = self.term(field, token)
        if key not in self._counts:
            self.know([(field, token)])
        return self._counts[key]

    def average(self, field: str) -> float:
        return self._lengths[self._numbers[field]] / self.documents

    def beginning(self, prefix: str) -> Sequence[str]:
        return [bytes.fromhex(key[4:]).decode("utf-8", "replace") for key in self.terms_beginning(prefix)]

    def terms_beginning(self, prefix: str) -> Sequence[str]:
        start = term_of(self._numbers[SEQUENCE], "")
        first, behind = (f"{start}{bound.hex()}" for bound in prefix_range(prefix))
        found = self._now.postings_from(self._kind, first, behind)
        self._counts |= {key: len(postings.ids) for key, postings in found.items()}
        return [*found]


class LanceWords(PublishedWords):
    """Implements `ports.WordLane`: the postings of what is asked are fetched, and scored here as everywhere."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str, target: "LanceTarget"
    ) -> None:
        super().__init__(kind, rows, tokenizer, language)
        self._target = target

    @property
    def _now(self) -> Publication:
        return self._target.now

    def _counted(self) -> PublishedStatistics:
        return LanceStatistics(self._kind, self._numbers, self._target.now)

    def _postings_of(self, term: Term, allowed: IdSet | None) -> tuple[Ids, Scores, Ids]:
        found = self._target.now.postings(self._kind, [str(term)]).get(str(term))
        if found is None:
            return np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
        ids, times, lengths = found
        kept = slice(None) if allowed is None else allowed.holds(ids)
        return ids[kept], times[kept].astype(np.float64), lengths[kept].astype(np.int64)

    def _ids_with(self, terms: Sequence[Term], allowed: IdSet | None) -> Ids:
        found = [held.ids for held in self._target.now.postings(self._kind, [*map(str, terms)]).values()]
        ids = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return ids if allowed is None else ids[allowed.holds(ids)]

    def _places_of(self, terms: Sequence[Term], allowed: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        few = "" if allowed is None or len(allowed) > AT_ONCE else f" AND {one_of('id', allowed)}"
        rows = self._target.now.some(self._kind, "posting", "term", terms, ["id", "term", "length", "positions"], few)
        if allowed is not None and not few:
            rows = rows.filter(allowed.holds(rows["id"].to_numpy()))
        return zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def _others(self, gone: IdSet, depth: int, allowed: IdSet | None) -> list[int]:
        order = self._target.now.order(self._kind)
        kept = ~gone.holds(order)
        if allowed is not None:
            kept &= allowed.holds(order)
        found: list[int] = order[kept][:depth].tolist()
        return found

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)


class LanceVectors(PublishedVectors):
    """Implements `ports.VectorLane`: exact by a scan, or led to by LanceDB's IVF index, whose vectors are kept as they are."""

    graph = "ivf"

    def __init__(self, kind: RecordType, settings: VectorSettings, target: "LanceTarget") -> None:
        super().__init__(kind, settings)
        self._target = target

    def _counts(self) -> tuple[int, int]:
        known = self._target.now.kind(self._kind)
        return (known.count, known.vectors) if known else (0, 0)

    def _dimension(self) -> int:
        known = self._target.now.kind(self._kind)
        return known.dimension if known else 0

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)

    def _nearest(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed, 0)

    def _graph_candidates(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed, _PROBES)

    def _rows(self, query: Any, fetch: int, allowed: IdSet | None, probes: int) -> list[Row]:
        """A filter that lets few through is asked with the question; of one that lets many through enough is fetched to cut it here."""
        now, asked = self._target.now, query.astype(np.float32)
        keys = ["id", "field", "seq", "at"]
        if allowed is None or len(allowed) <= AT_ONCE:
            where = None if allowed is None else one_of("id", allowed)
            rows = now.nearest(self._kind, asked, fetch, [*keys, "vector"], where, probes)
            vectors: Iterable[Any] = matrix(rows["vector"])
        else:
            _, total = self._counts()
            more = int(fetch * _AHEAD * self._counts()[0] / len(allowed)) + fetch
            while True:
                rows = now.nearest(self._kind, asked, min(more, total), keys, None, probes)
                kept = rows.filter(allowed.holds(rows["id"].to_numpy()))
                if len(kept) >= fetch or more >= total or len(rows) < more:
                    break
                more *= 4
            rows = kept[:fetch]
            held = now.vectors(self._kind, {*rows["id"].to_pylist()})
            named = zip(*(rows[name].to_pylist() for name in ("id", "field", "seq")), strict=True)
            vectors = [held[one][field, seq] for one, field, seq in named]
        columns = [rows[name].to_pylist() for name in keys]
        products = (1.0 - rows["_distance"].to_numpy()).tolist()
        return [*zip(*columns, vectors, products, strict=True)]
