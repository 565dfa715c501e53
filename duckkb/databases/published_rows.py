"""Filters and statements over a publication.

A filter runs in the target if its result there is certainly the same as in DuckDB. Any other filter, and every
statement, runs in DuckDB as in a clone, over the records of the types that it names, which are fetched once for
each commit.

Vectors over a publication: the target names candidates, and their exact cosines are computed here.

Tracks which publication a thread reads.

Defines which fields filters can use in a target: all but texts that are searched and may be long.

Encodes identities, ends of edges and terms as bytes that a database can compare: equal exactly if they are, and
in their order.

Errors that all targets share: about a publication, and about what would follow it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from hashlib import blake2b
from threading import local
from typing import Any, Generic, Self, TypeVar

import numpy as np

from duckkb.databases.published_words import PublishedLane
from duckkb.id_set import IdSet
from duckkb.index.cosine import DOUBT, exact_cosines, unit_query
from duckkb.ontology.model import EVERY, Ontology, RecordType
from duckkb.ports import SqlLimits, Watermark, best_first
from duckkb.sql.columns import Columns, Observation
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import Conflict, StateError, UsageError, shell_word
from duckkb.types.queries import LaneHit, SqlResult
from duckkb.types.records import Component, Identity, TypedEnd
from duckkb.types.settings import VectorSettings

_MOST_ANSWERS = 64


class PublishedTables(ABC):
    """Implements `ports.Sql` for a commit; `inner` answers what the target does not."""

    def __init__(self, inner: Tables) -> None:
        self._inner = inner
        self._answers: dict[tuple[str, str], IdSet] = {}

    def where(self, kind: RecordType, condition: str) -> IdSet:
        key = kind.name, condition
        cached_ids = self._answers.get(key)
        if cached_ids is not None:
            return cached_ids
        ids = self._query_target(kind, condition)
        if ids is None:
            return self._inner.where(kind, condition)
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[key] = ids
        return ids

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        return self._inner.sql(statement, limits)

    def narrow(self, ontology: Ontology) -> Self:
        tables = copy(self)
        tables._inner = self._inner.narrow(ontology)
        return tables

    def close(self) -> None:
        self._inner.close()

    @abstractmethod
    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        """Return the target's answer; None if the target cannot answer."""


def columns_of(kind: RecordType, said: Mapping[str, int]) -> Columns:
    """Return the columns of a type for its published records."""
    return Observation(kind, said).columns()


_MARGIN, _MORE = 16, 4
_FEW = 1 / 20  # share of the records up to which all are compared without the graph

Row = tuple[int, str, int, int, Any, float]
"""Id, field, number of the chunk, place among the record's chunks, vector, product with the query."""


class PublishedVectors(PublishedLane, ABC):
    """Implements `ports.VectorLane` except for the target's own steps. Exact, unless the settings want a graph.
    With a graph, a filtered query continues until enough is found, and compares everything that passes the
    filter if that fails.
    """

    graph = "hnsw"

    def __init__(self, kind: RecordType, settings: VectorSettings) -> None:
        self._kind = kind
        self._settings = settings

    def ask(self, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        query = unit_query(vector)
        records, vectors = self._counts()
        if not vectors or depth <= 0 or (allowed is not None and not allowed):
            return []
        self._refuse_other(len(query))
        allowed_ids = None if allowed is None else IdSet.from_ids(allowed)
        depth = min(depth, records if allowed_ids is None else len(allowed_ids))
        is_few = allowed_ids is not None and len(allowed_ids) <= records * _FEW
        fetch = -(-depth * vectors // max(records, 1)) + _MARGIN
        if self._settings.wants_graph(vectors) and not is_few:
            hits = self._rank_hits(self._graph_candidates(query, fetch, allowed_ids), query, depth)
            if len(hits) == depth:
                return hits
        while True:
            rows = self._nearest(query, fetch, allowed_ids)
            hits = self._rank_hits(rows, query, depth)
            if len(rows) < fetch or (len(hits) == depth and hits[-1].score > rows[-1][-1] + DOUBT):
                return hits
            fetch *= _MORE

    def list_missing_texts(self) -> list[tuple[bytes, str]]:
        """Return nothing: vectors that were missing at publication are reported (`ports.Publication.pending`), not
        computed here.
        """
        return []

    def account(self) -> Mapping[str, Any] | None:
        _, vectors = self._counts()
        if not vectors:
            return None
        ann = self.graph if self._settings.wants_graph(vectors) else "exact"
        return {"rows": vectors, "dimension": self._dimension(), "ann": ann}

    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """Return the numbers of published records and vectors of the type."""

    @abstractmethod
    def _dimension(self) -> int: ...

    @abstractmethod
    def _nearest(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        """Return the chunks with the greatest products, falling; fewer than `fetch` if there are no more."""

    @abstractmethod
    def _graph_candidates(self, query: Any, fetch: int, allowed: IdSet | None) -> list[Row]:
        """Return chunks as `_nearest` does, but those that a graph leads to."""

    @abstractmethod
    def _order(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return the sort key of each record's identity, by id."""

    def _refuse_other(self, length: int) -> None:
        dimension = self._dimension()
        if dimension != length:
            raise UsageError(
                f"The query vector has {length} dimensions, the stored ones have {dimension}.",
                suggestion="Give a vector of the model that the records were embedded with.",
            )

    def _rank_hits(self, rows: Sequence[Row], query: Any, depth: int) -> list[LaneHit]:
        """Return the first records by the exact cosines of their best chunks; of chunks with the same score the
        first in the record.
        """
        if not rows:
            return []
        scores = exact_cosines(np.array([row[4] for row in rows]), query).tolist()
        best: dict[int, tuple[float, int, str, int]] = {}
        for (record_id, field, seq, at, *_), score in zip(rows, scores, strict=True):
            if record_id not in best or (score, -at) > (best[record_id][0], -best[record_id][1]):
                best[record_id] = score, at, field, seq
        scored_ids = sorted(((chunk[0], record_id) for record_id, chunk in best.items()), reverse=True)
        places = self._order([*best])
        return [
            LaneHit(record_id, score, *best[record_id][2:])
            for score, record_id in best_first(scored_ids, depth, places.__getitem__, slack=0.0)
        ]


Read = TypeVar("Read")


class Readings(Generic[Read]):
    """The publications being read, each by a single thread; queries may be nested."""

    def __init__(self) -> None:
        self._of_thread = local()

    @property
    def now(self) -> Read:
        """Return the publication that this thread reads."""
        publication: Read = self._stack[-1]
        return publication

    @contextmanager
    def use(self, publication: Read) -> Iterator[Read]:
        """Let this thread read a publication during the block."""
        stack = self._stack
        stack.append(publication)
        try:
            yield publication
        finally:
            stack.remove(publication)

    @property
    def _stack(self) -> list[Read]:
        if not hasattr(self._of_thread, "stack"):
            self._of_thread.stack = []
        stack: list[Read] = self._of_thread.stack
        return stack


def is_fact(kind: RecordType, name: str) -> bool:
    """Return whether filters can use a field in a target."""
    searched_names = {search_field.name for search_field in (*kind.full_text, *kind.vectors)}
    return name in kind.identity_fields or EVERY in searched_names or name not in searched_names


_INT, _TEXT, _TUPLE, _TYPED = b"\x01", b"\x02", b"\x03", b"\x04"
_END, _ESCAPED = b"\x00\x01", b"\x00\xff"
_LONGEST_TERM = 1_000


def place_of(identity: Identity) -> bytes:
    """Encode an identity so that bytes sort as `records.identity_key` does.

    >>> place_of((2,)) < place_of((10,)) < place_of(("1",)) < place_of(("10",)) < place_of(("a", 1))
    True
    """
    return b"".join(map(end_of, identity))


def end_of(component: Component) -> bytes:
    """Encode a component so that no encoding is a prefix of another."""
    match component:
        case str():
            return _encode_text(component)
        case int():
            return _INT + (component + (1 << 63)).to_bytes(8, "big")
        case TypedEnd(type=name, id=parts):
            return _TYPED + _encode_text(name)[1:] + b"".join(map(end_of, parts)) + b"\x00"
        case _:
            return _TUPLE + b"".join(map(end_of, component)) + b"\x00"


def _encode_text(value: str) -> bytes:
    return _TEXT + value.encode("utf-8", "surrogatepass").replace(b"\x00", _ESCAPED) + _END


def term_key(token: str) -> bytes:
    """Return the key of a token: the token itself, or for a token too long for an index its beginning and a hash
    of all of it.
    """
    raw = token.encode("utf-8", "surrogatepass")
    return raw if len(raw) <= _LONGEST_TERM else raw[:_LONGEST_TERM] + b"\xff" + blake2b(raw, digest_size=16).digest()


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return a half-open range of keys that covers all tokens with this prefix; for a prefix longer than
    unabridged keys it also covers others.
    """
    first = prefix.encode("utf-8", "surrogatepass")[:_LONGEST_TERM]
    return first, first + b"\xff" * 2  # no byte of UTF-8 is that


def make_unpublished_error(name: str, url: str) -> StateError:
    """Return the error for a query if nothing is published; `url` is the whole address."""
    return StateError(
        f"nothing is published at {name}", code="E_NOT_PUBLISHED", suggestion=f"duckkb publish --to {shell_word(url)}"
    )


def make_behind_error(name: str, expected: Watermark | None, found: Watermark | None) -> Conflict:
    """Return the error for a delta that does not follow the present publication."""
    is_there = f"{found.commit[:12]} is published at {name}" if found else f"nothing is published at {name}"
    expectation = f"not {expected.commit[:12]}, on which this follows" if expected else "where nothing was before"
    if expected and found and expected.commit == found.commit:
        expectation = "made ready in another way (another ontology, tokenizer or model)"
    return Conflict(
        f"{is_there}, {expectation}: another publisher was faster",
        code="E_BEHIND",
        suggestion="publish again: it continues from the current state",
    )
