"""Lance tables in a folder or a bucket as a target: reads publications, and publishes a delta.

Filters that LanceDB answers: comparisons of fields with constants, joined by AND.

Writes records as rows of Lance tables: a full build into new tables, a small delta on top of the published
tables.

The counts of a type (records, tokens, vectors, what the records say of columns) are updated with each delta. So
at every commit they equal the counts of a full build of that commit."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from duckkb.databases.lance_publication import LancePublication
from duckkb.databases.lance_tables import (
    POSTING,
    Head,
    KindState,
    Store,
    facts,
    literal,
    name_for,
    record_schema,
    schema_of,
    term_of,
    vector_schema,
)
from duckkb.databases.published_rows import (
    PublishedTables,
    Readings,
    columns_of,
    end_of,
    make_behind_error,
    make_unpublished_error,
    place_of,
)
from duckkb.databases.published_words import RecordTerms
from duckkb.id_set import IdSet
from duckkb.index.cosine import make_unit
from duckkb.index.word_fields import words_fields
from duckkb.ontology.model import RecordType
from duckkb.ports import Delta, Lanes, PublishedRow, Rows, Sql, Tokenizer, TypeDelta, Watermark
from duckkb.sql import row_table
from duckkb.sql.columns import Observation, make_fit_test
from duckkb.sql.runtime_tables import Tables
from duckkb.storage.part import etag, row_in
from duckkb.types.database_urls import LanceAddress
from duckkb.types.errors import Conflict, StateError, UsageError
from duckkb.types.records import ID, Record
from duckkb.types.settings import Settings

_OPERATORS = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


class LanceTables(PublishedTables):
    """Implements `ports.Sql`."""

    def __init__(self, inner: Tables, target: "LanceTarget") -> None:
        super().__init__(inner)
        self._target = target

    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        now = self._target.now
        state = now.kind(kind)
        tests = row_table.simple_tests(condition, columns_of(kind, state.said)) if state else ()
        fact_columns = facts(kind)
        comparisons = [_format_comparison(test, fact_columns) for test in tests]
        if not comparisons or None in comparisons:
            return None
        rows = now.rows(kind, "record", " AND ".join(map(str, comparisons)), ["id"])
        return IdSet.from_ids(rows["id"].to_pylist())


def _format_comparison(test: row_table.Test, fact_columns: dict[str, tuple[str, str]]) -> str | None:
    """Format a comparison for LanceDB; None if the field is not a column there, or has another kind."""
    column, values = ("id", "integer") if test.column.name == ID else fact_columns.get(test.column.name, ("", ""))
    if values != test.column.kind:
        return None
    constants = [float(constant) if values == "number" else constant for constant in test.constants]
    if test.operator == "in":
        return f"{column} IN ({', '.join(map(literal, constants))})"
    return f"{column} {_OPERATORS[test.operator]} {literal(constants[0])}"


_BYTES_AT_ONCE = 64 * 1024 * 1024  # bytes of rows in memory before they are written
Held = tuple[str, int, int]


class RowSink(Protocol):
    """Takes the rows of a table."""

    def put(self, rows: pa.Table) -> None: ...

    def finish(self, gone: Sequence[int]) -> Held | None:
        """Finish after all rows were added, and remove those of some records; return the table and its version,
        None if there is none.
        """
        ...


class LanceLoading:
    """The loading of a delta into a store, to become the publication with this number. `goes_on` raises once
    another publication has it.
    """

    def __init__(self, store: Store, delta: Delta, number: int, nonce: str, goes_on: Callable[[], None]) -> None:
        self._store, self._delta = store, delta
        self._number, self._nonce, self._goes_on = number, nonce, goes_on

    def build(self) -> dict[str, KindState]:
        """Write everything in the delta to new tables; return the state of each type."""
        return {type_delta.kind.name: self._load_type(type_delta, KindState(), []) for type_delta in self._delta.types}

    def follow(self, before: LancePublication) -> dict[str, KindState]:
        """Apply the delta to the published tables; return the state of each type."""
        states = dict(before.head.kinds)
        for type_delta in self._delta.types:
            state = states[type_delta.kind.name]
            removed_ids = [*type_delta.gone]
            states[type_delta.kind.name] = self._load_type(
                type_delta, _subtract_records(before, type_delta.kind, state, removed_ids), removed_ids
            )
        return states

    def _load_type(self, delta: TypeDelta, state: KindState, removed_ids: list[int]) -> KindState:
        kind, observation = delta.kind, Observation(delta.kind, state.said)
        fields = words_fields(kind, self._delta.settings.language)
        state.lengths = state.lengths or [0] * (len(fields) + 1)
        with TemporaryDirectory(prefix="duckkb-publish-") as folder:
            into = {table: self._rows(kind, table, state, Path(folder)) for table in ("record", "posting", "vector")}
            for rows in delta.puts:
                observation.add([published_row.row.record for published_row in rows])
                record_terms = [RecordTerms(published_row.row, fields) for published_row in rows]
                state.count += len(rows)
                for terms in record_terms:
                    state.lengths = [all + length for all, length in zip(state.lengths, terms.lengths, strict=True)]
                into["record"].put(_build_record_table(kind, rows, record_terms))
                into["posting"].put(_build_posting_table(rows, record_terms))
                self._put_vectors(into["vector"], rows, state)
            table_versions = {table: rows.finish(removed_ids) for table, rows in into.items()}
        state.tables = {
            table: table_version for table, table_version in table_versions.items() if table_version is not None
        }
        state.said = {remark: count for remark, count in sorted(observation.counts.items()) if count}
        state.notes = dict(delta.notes)
        return state

    def _rows(self, kind: RecordType, table: str, state: KindState, folder: Path) -> RowSink:
        table_version = state.tables.get(table)
        if table_version is not None:
            return _Added(self._store, table_version, folder / table, self._goes_on)
        return _Made(self._store, self._name(kind, table), table, lambda: self._schema(kind, table, state))

    def _name(self, kind: RecordType, table: str) -> str:
        return name_for(self._number, self._nonce, table, f"{kind.kind}_{kind.table}")

    def _schema(self, kind: RecordType, table: str, state: KindState) -> "tuple[pa.Schema, bool]":
        """Return the schema of a new table, and whether its vectors get an index."""
        by_vector = table == "vector" and kind.settings(self._delta.settings).vectors.wants_graph(state.vectors)
        return schema_of(kind, table, state.dimension), by_vector

    def _put_vectors(self, into: RowSink, rows: Sequence[PublishedRow], state: KindState) -> None:
        vector_rows = [
            (published_row.row.record.id, entry.field, entry.seq, at, entry.vector)
            for published_row in rows
            for at, entry in enumerate(published_row.row.entries)
            if entry.vector is not None
        ]
        if not vector_rows:
            return
        *keys, vectors = zip(*vector_rows, strict=True)
        unit = np.array(vectors, np.float32)
        make_unit(unit)
        state.dimension = state.dimension or unit.shape[1]
        state.vectors += len(unit)
        schema = vector_schema(state.dimension)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(unit.ravel()), state.dimension)
        columns = [pa.array(values, field.type) for values, field in zip(keys, schema, strict=False)]
        into.put(pa.table([*columns, lists], schema=schema))


class _Made:
    """The rows of a new table, which no other publisher uses: they are written as they come."""

    def __init__(self, store: Store, name: str, kind: str, schema: "Callable[[], tuple[pa.Schema, bool]]") -> None:
        self._store, self._name, self._kind, self._schema = store, name, kind, schema
        self._table: Any = None
        self._waiting: list[pa.Table] = []

    def put(self, rows: pa.Table) -> None:
        if len(rows):
            self._waiting.append(rows)
        if sum(table.nbytes for table in self._waiting) >= _BYTES_AT_ONCE:
            self._write()

    def finish(self, gone: Sequence[int]) -> Held | None:
        self._write()
        if self._table is None:
            return None
        self._store.index(self._table, self._kind, by_vector=self._schema()[1])
        return self._name, self._table.version, 0

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._table is None:
            self._table = self._store.make(self._name, self._schema()[0])
        with self._store.translate_errors():
            self._table.add(_sort_by_term(pa.concat_tables(self._waiting)))
        self._waiting = []


class _Added:
    """New rows of a table that other publishers may change too. All of them are at hand, many of them in files,
    before the first is written; after a disturbance they are written again.
    """

    def __init__(self, store: Store, held: Held, folder: Path, goes_on: Callable[[], None]) -> None:
        self._store, self._held, self._folder, self._goes_on = store, held, folder, goes_on
        self._waiting: list[pa.Table] = []
        self._files: list[Path] = []

    def put(self, rows: pa.Table) -> None:
        if len(rows):
            self._waiting.append(rows)
        if sum(table.nbytes for table in self._waiting) < _BYTES_AT_ONCE:
            return
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{len(self._files)}.arrow"
        whole = _sort_by_term(pa.concat_tables(self._waiting))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
            writer.write_table(whole)
        self._files.append(path)
        self._waiting = []

    def finish(self, gone: Sequence[int]) -> Held | None:
        if not (gone or self._waiting or self._files):
            return self._held
        return self._store.change(self._held, gone, self._iter_pieces, self._goes_on)

    def _iter_pieces(self) -> Iterator[pa.Table]:
        for path in self._files:
            with pa.memory_map(str(path)) as file:
                yield pa.ipc.open_file(file).read_all()
        if self._waiting:
            yield _sort_by_term(pa.concat_tables(self._waiting))


def _subtract_records(
    before: LancePublication, kind: RecordType, state: KindState, removed_ids: list[int]
) -> KindState:
    """Return the counts of a type without some records."""
    removed_rows = before.some(kind, "record", "id", removed_ids, ["line", "lengths"])
    observation = Observation(kind, state.said)
    observation.counts.subtract(
        observation.list_remarks([row_in(kind, line).record for line in removed_rows["line"].to_pylist()])
    )
    lengths = np.array(state.lengths, np.int64) - np.array(
        [state.lengths, *removed_rows["lengths"].to_pylist()], np.int64
    )[1:].sum(0)
    vectors = len(before.some(kind, "vector", "id", removed_ids, ["id"]))
    return KindState(
        state.count - len(removed_rows), lengths.tolist(), state.vectors - vectors, state.dimension, dict(observation.counts), {}, dict(state.tables)
    )  # fmt: skip


def _build_record_table(
    kind: RecordType, rows: Sequence[PublishedRow], record_terms: Sequence[RecordTerms]
) -> pa.Table:
    fact_columns = facts(kind)
    record_rows = []
    for published_row, terms in zip(rows, record_terms, strict=True):
        record = published_row.row.record
        source, target = map(_encode_end, record.identity[:2]) if kind.kind == "edge" else (None, None)
        pending = sum(entry.vector_key is not None and entry.vector is None for entry in published_row.row.entries)
        place = place_of(record.identity).hex()
        fact_values = [_extract_fact(record, name, values) for name, (_, values) in fact_columns.items()]
        record_rows.append(
            (
                record.id,
                place,
                etag(published_row.line),
                published_row.line,
                source,
                target,
                pending,
                terms.lengths,
                *fact_values,
            )
        )
    schema = record_schema(kind)
    columns = zip(*record_rows, strict=True) if record_rows else [()] * len(schema)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _encode_end(end: Any) -> str:
    return end_of(end).hex()


def _extract_fact(record: Record, name: str, values: str) -> Any:
    """Return a field's value for its column; None if it is of another kind, which the type's columns record."""
    value = record.fields.get(name)
    if value is None or not make_fit_test(values)(value):
        return None
    return float(value) + 0.0 if values == "number" else value


def _build_posting_table(rows: Sequence[PublishedRow], record_terms: Sequence[RecordTerms]) -> pa.Table:
    posting_rows = [
        (term_of(*term), published_row.row.record.id, times, length, positions)
        for published_row, terms in zip(rows, record_terms, strict=True)
        for term, times, length, positions in terms.postings()
    ]
    columns = zip(*posting_rows, strict=True) if posting_rows else [()] * len(POSTING)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, POSTING, strict=True)], schema=POSTING
    )


def _sort_by_term(rows: pa.Table) -> pa.Table:
    """Sort postings by term, because postings of the same term are requested together."""
    return rows.sort_by([("term", "ascending"), ("id", "ascending")]) if "term" in rows.column_names else rows


_MOST_OPEN = 2  # the present publication and the previous one


class LanceTarget:
    """Implements `ports.Target`."""

    def __init__(self, url: str) -> None:
        self._address, self._url = LanceAddress.parse(url), url
        self._store = Store(self._address)
        self._open: dict[int, LancePublication] = {}
        self._turn = Lock()
        self._readings: Readings[LancePublication] = Readings()

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def now(self) -> LancePublication:
        return self._readings.now

    @contextmanager
    def open_publication(self) -> Iterator[LancePublication]:
        publication = self._load_publication(self._find_head())
        with self._readings.use(publication):
            yield publication

    def watermark(self) -> Watermark | None:
        head = self._store.head() if self._address.at is None else self._find_head()
        return head.watermark if head else None

    def publish(self, delta: Delta) -> None:
        if self._address.at is not None:
            raise UsageError(
                "an address with ?at= reads an earlier publication; you cannot publish to it",
                code="E_URL",
                suggestion="leave ?at= out",
            )
        number, before = self._store.read_number_and_head()
        if (before.watermark if before else None) != delta.parent:
            raise self._build_conflict(delta)
        if before is not None:
            self._store.mend(before)
        loading = LanceLoading(
            self._store, delta, number + 1, os.urandom(4).hex(), lambda: self._check_number(delta, number)
        )
        if delta.is_whole:
            kinds = loading.build()
        else:
            assert before is not None, "what follows has something before it"
            kinds = loading.follow(LancePublication(self._store, before))
        files = {path: file.data for path, file in delta.configuration.items()}
        head = Head(number + 1, delta.watermark, kinds, files)
        if not self._store.swap(number, head):
            raise self._build_conflict(delta)
        self._store.settle(head, before)

    def grant(self, role: str, types: Collection[str]) -> None:
        raise UsageError(
            "Lance tables are files without roles: every reader sees every type",
            code="E_ROLE",
            suggestion="publish to PostgreSQL, or use `duckkb serve`, whose tenants see only their types",
        )

    def lanes(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> Lanes:
        from duckkb.databases.lance_publication import LanceLanes

        return LanceLanes(kind, rows, tokenizer, settings, self)

    def sql(self, inner: Sql) -> Sql:
        from duckkb.sql.runtime_tables import Tables

        assert isinstance(inner, Tables), "which reads conditions"
        return LanceTables(inner, self)

    def close(self) -> None:
        self._open.clear()

    def _find_head(self) -> Head:
        """Return the publication that the address requests."""
        commit = self._address.at
        if commit is None:
            head = self._store.head()
            if head is None:
                raise make_unpublished_error(self.name, self._url)
            return head
        head, commits = self._store.earlier(commit)
        if head is None:
            raise StateError(
                f"{commit} is not among the commits kept at {self._address.place}",
                code="E_NOT_PUBLISHED",
                suggestion=f"kept are {', '.join(commit_name[:12] for commit_name in commits) or 'none'}",
            )
        return head

    def _load_publication(self, head: Head) -> LancePublication:
        with self._turn:
            if head.number not in self._open:
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[head.number] = LancePublication(self._store, head)
            return self._open[head.number]

    def _check_number(self, delta: Delta, number: int) -> None:
        """Raise if another publisher has published meanwhile."""
        if self._store.read_number_and_head()[0] != number:
            raise self._build_conflict(delta)

    def _build_conflict(self, delta: Delta) -> Conflict:
        head = self._store.head()
        return make_behind_error(self.name, delta.parent, head.watermark if head else None)
