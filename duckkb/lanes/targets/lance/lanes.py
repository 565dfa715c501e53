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

_PROBES = 20  # examined parts of an index, which has about as many parts as the root of the number of vectors
_AHEAD = 1.3  # the margin of an unfiltered fetch, over the share that the filter passes


class LanceLanes:
    """Implements `ports.Lanes`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings, target: "LanceTarget"
    ) -> None:
        self.words = LanceWords(kind, rows, tokenizer, settings.language, target)
        self.vectors = LanceVectors(kind, kind.settings(settings).vectors, target)

    def discard(self) -> None:
        """Do nothing: this process keeps no files of these lanes."""


class LanceStatistics(PublishedStatistics):
    """Statistics over Lance tables: the number of a term's postings is the number of its records."""

    def __init__(self, kind: RecordType, numbers: Mapping[str, int], now: LancePublication) -> None:
        state = now.kind(kind)
        self._kind, self._numbers, self._now = kind, numbers, now
        self.documents = state.count if state else 0
        self._lengths = state.lengths if state else []
        self._counts: dict[str, int] = {}

    def know(self, terms: Iterable[tuple[str, str]]) -> None:
        missing_keys = [key for field, token in terms if (key := self.term(field, token)) not in self._counts]
        postings_by_key = self._now.postings(self._kind, missing_keys)
        self._counts |= {key: len(postings_by_key[key].ids) if key in postings_by_key else 0 for key in missing_keys}

    def term(self, field: str, token: str) -> str:
        return term_of(self._numbers[field], token)

    def frequency(self, field: str, token: str) -> int:
        key = self.term(field, token)
        if key not in self._counts:
            self.know([(field, token)])
        return self._counts[key]

    def average(self, field: str) -> float:
        return self._lengths[self._numbers[field]] / self.documents

    def list_tokens_by_prefix(self, prefix: str) -> Sequence[str]:
        return [bytes.fromhex(key[4:]).decode("utf-8", "replace") for key in self.list_terms_by_prefix(prefix)]

    def list_terms_by_prefix(self, prefix: str) -> Sequence[str]:
        start = term_of(self._numbers[SEQUENCE], "")
        first, behind = (f"{start}{border.hex()}" for border in prefix_range(prefix))
        postings_by_key = self._now.postings_from(self._kind, first, behind)
        self._counts |= {key: len(postings.ids) for key, postings in postings_by_key.items()}
        return [*postings_by_key]


class LanceWords(PublishedWords):
    """Implements `ports.WordLane`: fetches the postings of a query and scores them here like every lane."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, language: str, target: "LanceTarget"
    ) -> None:
        super().__init__(kind, rows, tokenizer, language)
        self._target = target

    @property
    def _now(self) -> Publication:
        return self._target.now

    def _build_statistics(self) -> PublishedStatistics:
        return LanceStatistics(self._kind, self._numbers, self._target.now)

    def _postings_of(self, term: Term, allowed_ids: IdSet | None) -> tuple[Ids, Scores, Ids]:
        postings = self._target.now.postings(self._kind, [str(term)]).get(str(term))
        if postings is None:
            return np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
        ids, times, lengths = postings
        selection = slice(None) if allowed_ids is None else allowed_ids.holds(ids)
        return ids[selection], times[selection].astype(np.float64), lengths[selection].astype(np.int64)

    def _ids_with(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Ids:
        id_arrays = [postings.ids for postings in self._target.now.postings(self._kind, [*map(str, terms)]).values()]
        ids = np.unique(np.concatenate(id_arrays)) if id_arrays else np.empty(0, np.int64)
        return ids if allowed_ids is None else ids[allowed_ids.holds(ids)]

    def _places_of(self, terms: Sequence[Term], allowed_ids: IdSet | None) -> Iterable[tuple[int, Term, int, bytes]]:
        few = "" if allowed_ids is None or len(allowed_ids) > AT_ONCE else f" AND {one_of('id', allowed_ids)}"
        rows = self._target.now.some(self._kind, "posting", "term", terms, ["id", "term", "length", "positions"], few)
        if allowed_ids is not None and not few:
            rows = rows.filter(allowed_ids.holds(rows["id"].to_numpy()))
        return zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def _others(self, excluded_ids: IdSet, depth: int, allowed_ids: IdSet | None) -> list[int]:
        order = self._target.now.order(self._kind)
        mask = ~excluded_ids.holds(order)
        if allowed_ids is not None:
            mask &= allowed_ids.holds(order)
        record_ids: list[int] = order[mask][:depth].tolist()
        return record_ids

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)


class LanceVectors(PublishedVectors):
    """Implements `ports.VectorLane`: exact by a scan, or by LanceDB's IVF index, which stores vectors unchanged."""

    graph = "ivf"

    def __init__(self, kind: RecordType, settings: VectorSettings, target: "LanceTarget") -> None:
        super().__init__(kind, settings)
        self._target = target

    def _counts(self) -> tuple[int, int]:
        state = self._target.now.kind(self._kind)
        return (state.count, state.vectors) if state else (0, 0)

    def _dimension(self) -> int:
        state = self._target.now.kind(self._kind)
        return state.dimension if state else 0

    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        return self._target.now.places(self._kind, ids)

    def _nearest(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed_ids, 0)

    def _graph_candidates(self, query: Any, fetch: int, allowed_ids: IdSet | None) -> list[Row]:
        return self._rows(query, fetch, allowed_ids, _PROBES)

    def _rows(self, query: Any, fetch: int, allowed_ids: IdSet | None, probes: int) -> list[Row]:
        """Fetch candidates. A selective filter is part of the query; for other filters enough rows are fetched and
        filtered here.
        """
        now, query_vector = self._target.now, query.astype(np.float32)
        keys = ["id", "field", "seq", "at"]
        if allowed_ids is None or len(allowed_ids) <= AT_ONCE:
            where = None if allowed_ids is None else one_of("id", allowed_ids)
            rows = now.nearest(self._kind, query_vector, fetch, [*keys, "vector"], where, probes)
            vectors: Iterable[Any] = matrix(rows["vector"])
        else:
            _, total = self._counts()
            more = int(fetch * _AHEAD * self._counts()[0] / len(allowed_ids)) + fetch
            while True:
                rows = now.nearest(self._kind, query_vector, min(more, total), keys, None, probes)
                allowed_rows = rows.filter(allowed_ids.holds(rows["id"].to_numpy()))
                if len(allowed_rows) >= fetch or more >= total or len(rows) < more:
                    break
                more *= 4
            rows = allowed_rows[:fetch]
            vectors_by_id = now.vectors(self._kind, {*rows["id"].to_pylist()})
            chunk_keys = zip(*(rows[name].to_pylist() for name in ("id", "field", "seq")), strict=True)
            vectors = [vectors_by_id[record_id][field, seq] for record_id, field, seq in chunk_keys]
        columns = [rows[name].to_pylist() for name in keys]
        products = (1.0 - rows["_distance"].to_numpy()).tolist()
        return [*zip(*columns, vectors, products, strict=True)]
