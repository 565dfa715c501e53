"""A publication in Lance tables, each read at the version that the publication names.

The lanes of one type over Lance tables."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duckkb.databases.lance_tables import AT_ONCE, Head, KindState, Store, Table, one_of, schema_of, term_of
from duckkb.databases.published_rows import PublishedVectors, Row, end_of, place_of, prefix_range
from duckkb.databases.published_words import Ids, PublishedStatistics, PublishedWords, Scores, Term
from duckkb.id_set import IdSet
from duckkb.index.word_fields import SEQUENCE
from duckkb.ontology.model import RecordType
from duckkb.ports import EdgeSide, Publication, Rows, Tokenizer, Watermark
from duckkb.storage.part import etag
from duckkb.types.records import Component, Identity
from duckkb.types.settings import Settings, VectorSettings

if TYPE_CHECKING:
    from duckkb.databases.lance_target import LanceTarget

_PAGE = 500  # lines that are fetched at a time
_KEPT_POSTINGS = 8_000_000  # cached postings of recent terms: 16 bytes each


class Postings(NamedTuple):
    """The records with a term, ascending; how often each has it; and the stored length of its field."""

    ids: NDArray[np.int64]
    times: NDArray[np.int32]
    lengths: NDArray[np.int32]


class LancePublication:
    """Implements `ports.Publication`. It caches what it looked up, because a publication never changes."""

    def __init__(self, store: Store, head: Head) -> None:
        self._store, self._head = store, head
        self._tables: dict[str, Table] = {}
        self._orders: dict[str, NDArray[np.int64]] = {}
        self._pending: dict[str, list[int]] = {}
        self._postings: OrderedDict[tuple[str, str], Postings] = OrderedDict()
        self._turn = Lock()

    @property
    def watermark(self) -> Watermark:
        return self._head.watermark

    @property
    def head(self) -> Head:
        return self._head

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._head.kinds)

    def configuration(self) -> Mapping[str, bytes]:
        return self._head.configuration

    def notes(self, kind: RecordType) -> Mapping[str, Any]:
        state = self.kind(kind)
        return state.notes if state else {}

    def count(self, kind: RecordType) -> int:
        state = self.kind(kind)
        return state.count if state else 0

    def ids(self, kind: RecordType) -> list[int]:
        record_ids: list[int] = self.order(kind).tolist()
        return record_ids

    def lines(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, bytes]:
        return self._fetch_by_id(kind, "line", ids)

    def find_ids(self, kind: RecordType, identities: Collection[Identity]) -> Mapping[Identity, int]:
        by_place = {place_of(identity).hex(): identity for identity in identities}
        rows = self.some(kind, "record", "place", [*by_place], ["place", "id"])
        return {by_place[place]: record_id for place, record_id in _iter_pairs(rows)}

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[bytes]:
        order = self.order(kind)
        start = 0 if behind is None else self._find_position(kind, order, place_of(behind))
        for at in range(start, len(order), _PAGE):
            ids = order[at : at + _PAGE].tolist()
            lines_by_id = self.lines(kind, ids)
            yield from (lines_by_id[record_id] for record_id in ids)

    def find_edge_ids(self, kind: RecordType, side: EdgeSide, ends: Collection[Component]) -> Sequence[int]:
        column = "source" if side == "out" else "target"
        rows = self.some(kind, "record", column, [end_of(end).hex() for end in ends], ["id"])
        record_ids: list[int] = rows["id"].to_pylist()
        return record_ids

    def etags(self, kind: RecordType) -> Mapping[int, bytes]:
        return dict(_iter_pairs(self.rows(kind, "record", None, ["id", "etag"])))

    def vectors(
        self, kind: RecordType, ids: Collection[int]
    ) -> Mapping[int, Mapping[tuple[str, int], NDArray[np.float32]]]:
        rows = self.some(kind, "vector", "id", ids, ["id", "field", "seq", "vector"])
        vectors_by_id: dict[int, dict[tuple[str, int], NDArray[np.float32]]] = {}
        keys = zip(*(rows[name].to_pylist() for name in ("id", "field", "seq")), strict=True)
        for (record_id, field, seq), vector in zip(keys, matrix(rows["vector"]), strict=True):
            vectors_by_id.setdefault(record_id, {})[field, seq] = vector
        return vectors_by_id

    def list_pending_ids(self, kind: RecordType) -> Sequence[int]:
        if kind.name not in self._pending:
            self._pending[kind.name] = self.rows(kind, "record", "pending > 0", ["id"])["id"].to_pylist()
        return self._pending[kind.name]

    def faults(self, kind: RecordType) -> Sequence[str]:
        state = self.kind(kind)
        if state is None:
            return ["it is not published"]
        ids = self.rows(kind, "record", None, ["id"])["id"].to_numpy()
        messages = []
        if len(ids) != state.count or len(np.unique(ids)) != state.count:
            messages.append("the records are not as many as are counted")
        if any(_is_other(page) for page in self._iter_pages(kind, ["line", "etag"])):
            messages.append("a line is not what its etag was taken of")
        postings = self.rows(kind, "posting", None, ["id", "term", "times"])
        if self._count_tokens(postings) != {at: length for at, length in enumerate(state.lengths) if length}:
            messages.append("the terms are not as many as the records have")
        vectors = self.rows(kind, "vector", None, ["id"])["id"].to_numpy()
        if len(vectors) != state.vectors:
            messages.append("the vectors are not as many as are counted")
        if not np.isin(np.concatenate([np.unique(postings["id"].to_numpy()), vectors]), ids).all():
            messages.append("words or vectors are there of a record that is not")
        return messages

    # For the lanes and tables of this target.

    def kind(self, kind: RecordType) -> KindState | None:
        """Return the state of a type; None if it is not published."""
        return self._head.kinds.get(kind.name)

    def order(self, kind: RecordType) -> NDArray[np.int64]:
        """Return the ids of all records in the order of their identities."""
        if kind.name not in self._orders:
            rows = self.rows(kind, "record", None, ["id", "place"])
            at = pc.sort_indices(rows["place"])
            self._orders[kind.name] = rows["id"].take(at).to_numpy()
        return self._orders[kind.name]

    def places(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, str]:
        """Return the sort key of each record's identity, by id."""
        return self._fetch_by_id(kind, "place", ids)

    def postings(self, kind: RecordType, terms: Sequence[str]) -> dict[str, Postings]:
        """Return the postings of these terms; leave out terms without records."""
        with self._turn:
            cached_postings = {
                term: self._postings[kind.name, term] for term in terms if (kind.name, term) in self._postings
            }
        lacking = [term for term in dict.fromkeys(terms) if term not in cached_postings]
        if lacking:
            cached_postings |= self._cache_postings(
                kind, self.some(kind, "posting", "term", lacking, ["term", "id", "times", "length"])
            )
        return cached_postings

    def postings_from(self, kind: RecordType, first: str, behind: str) -> dict[str, Postings]:
        """Return the postings of the terms from `first` up to, but without, `behind`, in order."""
        where = f"term >= '{first}' AND term < '{behind}'"
        postings_by_term = self._cache_postings(
            kind, self.rows(kind, "posting", where, ["term", "id", "times", "length"])
        )
        return dict(sorted(postings_by_term.items()))

    def some(
        self, kind: RecordType, table: str, column: str, values: Collection[Any], columns: Sequence[str], more: str = ""
    ) -> pa.Table:
        """Return the rows whose column has any of some values."""
        value_list = [*values]
        parts = [
            self.rows(kind, table, f"{one_of(column, value_list[at : at + AT_ONCE])}{more}", columns)
            for at in range(0, len(value_list), AT_ONCE)
        ]
        return pa.concat_tables(parts) if parts else self._build_empty_table(kind, table).select(columns)

    def rows(self, kind: RecordType, table: str, where: str | None, columns: Sequence[str]) -> pa.Table:
        """Return the rows that satisfy a condition."""
        lance_table = self.table(kind, table)
        if lance_table is None:
            return self._build_empty_table(kind, table).select(columns)
        with self._store.translate_errors():
            query = lance_table.search().select([*columns])
            return (query if where is None else query.where(where)).to_arrow().select([*columns])

    def nearest(
        self, kind: RecordType, query: Any, fetch: int, columns: Sequence[str], where: str | None, probes: int
    ) -> pa.Table:
        """Return the chunks with the greatest products, falling, with `_distance` (1 - product): of all, or of
        `probes` parts of the index.
        """
        lance_table = self.table(kind, "vector")
        assert lance_table is not None, "there are vectors"
        with self._store.translate_errors():
            vector_query = (
                lance_table.search(query, vector_column_name="vector")
                .distance_type("dot")
                .select([*columns, "_distance"])
            )
            vector_query = vector_query.nprobes(probes) if probes else vector_query.bypass_vector_index()
            return (vector_query.where(where, prefilter=True) if where else vector_query).limit(fetch).to_arrow()

    def table(self, kind: RecordType, table: str) -> Table | None:
        """Return a table of a type; None if it never had rows."""
        state = self.kind(kind)
        if state is None or table not in state.tables:
            return None
        name, version, _ = state.tables[table]
        with self._turn:
            if name not in self._tables:
                self._tables[name] = self._store.open_version(name, version)
            return self._tables[name]

    def _build_empty_table(self, kind: RecordType, table: str) -> pa.Table:
        state = self.kind(kind)
        return schema_of(kind, table, state.dimension if state else 0).empty_table()

    def _fetch_by_id(self, kind: RecordType, column: str, ids: Collection[int]) -> dict[int, Any]:
        return dict(_iter_pairs(self.some(kind, "record", "id", ids, ["id", column])))

    def _find_position(self, kind: RecordType, order: NDArray[np.int64], place: bytes) -> int:
        """Return the position of the first record after a place in the order of records."""
        low, high, target_key = 0, len(order), place.hex()
        while low < high:
            middle = (low + high) // 2
            record_id = int(order[middle])
            if self.places(kind, [record_id])[record_id] > target_key:
                high = middle
            else:
                low = middle + 1
        return low

    def _cache_postings(self, kind: RecordType, rows: pa.Table) -> dict[str, Postings]:
        """Return postings by term; cache those of recent requests."""
        if not len(rows):
            return {}
        rows = rows.combine_chunks().sort_by([("term", "ascending"), ("id", "ascending")])
        terms = rows["term"].combine_chunks().dictionary_encode()
        columns = [rows[name].to_numpy() for name in ("id", "times", "length")]
        codes = terms.indices.to_numpy()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        ends = np.append(starts[1:], len(codes))
        names = terms.dictionary.to_pylist()
        postings_by_term = {
            names[codes[start]]: Postings(*(column[start:end] for column in columns))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }
        with self._turn:
            for term, postings in postings_by_term.items():
                self._postings[kind.name, term] = postings
            cached_count = sum(len(postings.ids) for postings in self._postings.values())
            while cached_count > _KEPT_POSTINGS:
                cached_count -= len(self._postings.popitem(last=False)[1].ids)
        return postings_by_term

    def _iter_pages(self, kind: RecordType, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        lance_table = self.table(kind, "record")
        if lance_table is not None:
            with self._store.translate_errors():
                yield from lance_table.search().select([*columns]).to_batches(1_024)

    def _count_tokens(self, postings: pa.Table) -> dict[int, int]:
        """Count the tokens by the number of the field."""
        fields = pc.utf8_slice_codeunits(postings["term"], 0, 4)
        token_counts = (
            pa.table({"field": fields, "times": postings["times"]}).group_by("field").aggregate([("times", "sum")])
        )
        return {int(field, 16): times for field, times in _iter_pairs(token_counts.select(["field", "times_sum"]))}


def matrix(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Return vectors of the same length as a matrix."""
    parts = [part.flatten().to_numpy().reshape(len(part), part.type.list_size) for part in column.chunks if len(part)]
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def _iter_pairs(rows: pa.Table) -> Iterator[tuple[Any, Any]]:
    first, second = rows.columns
    return zip(first.to_pylist(), second.to_pylist(), strict=True)


def _is_other(page: pa.RecordBatch) -> bool:
    lines, tags = page.column("line").to_pylist(), page.column("etag").to_pylist()
    return any(etag(line) != tag for line, tag in zip(lines, tags, strict=True))


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
