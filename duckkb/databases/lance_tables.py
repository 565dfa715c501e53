"""The tables in a folder or a bucket: opens them at a version, changes them on top of a version, and keeps the
versions of publications.

Several publishers may write to a table concurrently without a lock. Each begins by restoring the version that
it follows, which Lance makes conflict with every concurrent commit. A publisher that is disturbed starts over,
and a version has the changes of a single publisher. The only row of `publication` decides which version is
published.

The Lance tables of a published base.

`publication` has a single row, which names a version of each other table: replacing the row publishes. Each
type has up to three other tables: `record` (lines, and their columns for order, edges and filters), `posting`
(a term in a record) and `vector`. Bytes that are looked up are stored as hexadecimal text, which has the same
order and which an index supports."""

import json
import random
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from duckkb.databases.published_rows import is_fact, term_key
from duckkb.ontology.model import RecordType
from duckkb.ports import Watermark
from duckkb.sql.columns import list_declared_columns
from duckkb.types.database_urls import LanceAddress
from duckkb.types.errors import Unavailable

FORMAT = 1
"""Increases when the tables change: publications of another version of duckkb are rebuilt."""

PUBLICATION = "publication"
PUBLICATION_SCHEMA = pa.schema(
    [("number", pa.int64()), ("commit", pa.string()), ("fingerprint", pa.string()), ("document", pa.string())]
)
POSTING = pa.schema(
    [("term", pa.string()), ("id", pa.int64()), ("times", pa.int32()), ("length", pa.int32()), ("positions", pa.binary())]
)  # fmt: skip
INDICES = {"record": ("id", "place", "source", "target"), "posting": ("id", "term"), "vector": ("id",)}
_RECORD = [
    ("id", pa.int64()), ("place", pa.string()), ("etag", pa.binary()), ("line", pa.binary()), ("source", pa.string()),
    ("target", pa.string()), ("pending", pa.int32()), ("lengths", pa.list_(pa.int32())),
]  # fmt: skip
_KINDS = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class KindState(Struct):
    """The state of a type in a publication: the number of its records, tokens by field of the index, vectors and
    their dimension, what its records say of columns, and what the publisher noted. `tables` has for each kind
    of table its name, its published version, and the number of changes since it was last compacted.
    """

    count: int = 0
    lengths: list[int] = []
    vectors: int = 0
    dimension: int = 0
    said: dict[str, int] = {}
    notes: dict[str, Any] = {}
    tables: dict[str, tuple[str, int, int]] = {}


def facts(kind: RecordType) -> dict[str, tuple[str, str]]:
    """Return the fields that are columns for filters: by name the column, and the kind of its values."""
    fact_columns = [
        declaration
        for declaration in list_declared_columns(kind)
        if len(declaration.candidates) == 1 and declaration.candidates[0] in _KINDS
    ]
    return {
        declaration.name: (f"f{at}", declaration.candidates[0])
        for at, declaration in enumerate(fact_columns)
        if is_fact(kind, declaration.name)
    }


def record_schema(kind: RecordType) -> pa.Schema:
    return pa.schema([*_RECORD, *((column, _KINDS[values]) for column, values in facts(kind).values())])


def vector_schema(dimension: int) -> pa.Schema:
    return pa.schema(
        [
            ("id", pa.int64()), ("field", pa.string()), ("seq", pa.int32()), ("at", pa.int32()),
            ("vector", pa.list_(pa.float32(), dimension)),
        ]
    )  # fmt: skip


def schema_of(kind: RecordType, table: str, dimension: int) -> pa.Schema:
    """Return the schema of a type's table."""
    return {"record": record_schema(kind), "posting": POSTING, "vector": vector_schema(dimension)}[table]


@lru_cache(1 << 16)
def term_of(field_number: int, token: str) -> str:
    """Return the key of a token in a field of the index."""
    return f"{field_number:04x}{term_key(token).hex()}"


def literal(value: Any) -> str:
    """Format a value for a condition of LanceDB."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return repr(value + 0.0)  # Arrow tells -0.0 from 0.0
    return str(value)


AT_ONCE = 1_000  # values that a condition lists
_ATTEMPTS, _LONGEST_WAIT = 60, 0.25  # seconds
_CHANGES = 32  # changes of a table, after which its small files are compacted
_SPARE = timedelta(hours=1)  # the margin of time for which everything is kept longer
_SOURCE = re.compile(r", /\S+\.rs:.*")  # the place in the library's own source
_QUERY = re.compile(r"\?[^\s)]*")  # the query of a requested URL, which may hold a signature
_NAME = re.compile(r"(?P<number>\d{8,})-[0-9a-f]{8}-(record|posting|vector)-.+")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_TAG = re.compile(r"[0-9a-f]{40,64}\.(?P<number>\d+)")
_CONFLICTS = ("ncompatible transaction", "onflict", "oncurrent")

Table = Any
"""A table of LanceDB at a version; the library has no types for this."""


class Disturbed(Unavailable):
    """Another publisher has changed a table meanwhile: starting over may help."""


class Head(Struct, frozen=True):
    """The row of `publication`: the publication's number, from 1, and its content."""

    number: int
    watermark: Watermark
    kinds: Mapping[str, KindState]
    configuration: Mapping[str, bytes]

    @property
    def document(self) -> str:
        files = {path: b64encode(data).decode() for path, data in self.configuration.items()}
        kinds = {name: asdict(state) for name, state in self.kinds.items()}
        return json.dumps({"format": FORMAT, "kinds": kinds, "configuration": files})

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Head | None":
        """Parse the row; return None if nothing was published yet, or in another format."""
        document = json.loads(row["document"]) if row["document"] else {}
        if document.get("format") != FORMAT:
            return None
        kinds = {name: KindState(**state) for name, state in document["kinds"].items()}
        files = {path: b64decode(data) for path, data in document["configuration"].items()}
        return cls(row["number"], Watermark(row["commit"], row["fingerprint"]), kinds, files)

    @property
    def tables(self) -> dict[str, int]:
        """Return the version of each table that it names."""
        return {name: version for state in self.kinds.values() for name, version, _ in state.tables.values()}


class Store:
    """The tables at an address. Its methods raise `errors.Unavailable` (E_DATABASE)."""

    def __init__(self, address: LanceAddress) -> None:
        self.address = address
        self._open: Any = None

    def head(self) -> Head | None:
        """Return the present publication."""
        return self.read_number_and_head()[1]

    def read_number_and_head(self) -> tuple[int, Head | None]:
        """Return the number of publications so far and the present one, read at the same moment."""
        with self.translate_errors():
            table = self._open_publication()
            row = _read_row(table) if table is not None else None
            return (row["number"], Head.from_row(row)) if row else (0, None)

    def earlier(self, commit: str) -> tuple[Head | None, Sequence[str]]:
        """Return the publication of a commit, if it is kept, and the commits of all kept publications."""
        with self.translate_errors():
            table = self._open_publication()
            tags = _read_tags(table) if table is not None else {}
            matches = [name for name in tags if name.startswith(commit)]
            if table is None or len(matches) != 1:
                return None, [*tags]
            table.checkout(tags[matches[0]])
            return self._read_head(table), [*tags]

    def open_version(self, name: str, version: int) -> Table:
        """Return a table as it was at a version."""
        with self.translate_errors():
            table = self._connection.open_table(name)
            table.checkout(version)
            return table

    def make(self, name: str, schema: pa.Schema) -> Table:
        """Create a table."""
        with self.translate_errors():
            return self._connection.create_table(name, schema=schema)

    def index(self, table: Table, kind: str, *, by_vector: bool) -> None:
        """Index the columns that are looked up, and with `by_vector` the vectors (IVF, stored unchanged)."""
        from lancedb.index import BTree, IvfFlat

        with self.translate_errors():
            for column in INDICES[kind]:
                table.create_index(column, config=BTree())
            if by_vector:
                table.create_index("vector", config=IvfFlat(distance_type="dot"))

    def change(
        self,
        held: tuple[str, int, int],
        gone: Sequence[int],
        added: Callable[[], Iterable[pa.Table]],
        goes_on: Callable[[], None],
    ) -> tuple[str, int, int]:
        """Remove the rows of some records and add others, on top of the published version; return the table's new
        state. `goes_on` raises if that is no longer useful.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self.translate_errors():
                    return self._apply_change(held, gone, added)
            except Disturbed:
                goes_on()
                time.sleep(random.random() * min(_LONGEST_WAIT, 0.01 * 2**attempt))
        raise self._build_error("other publishers change it all the time")

    def swap(self, number: int, head: Head) -> bool:
        """Publish atomically if the present publication has this number; return whether it did."""
        with self.translate_errors():
            table: Table = self._open_publication(make=True)
            values = {
                "number": head.number,
                "commit": head.watermark.commit,
                "fingerprint": head.watermark.fingerprint,
                "document": head.document,
            }
            for _ in range(_ATTEMPTS):
                try:
                    return bool(table.update(where=f"number = {number}", values=values).rows_updated == 1)
                except RuntimeError as problem:
                    if not _is_conflict(problem):
                        raise
                table = self._open_publication()
                if table is None or _read_row(table)["number"] != number:
                    return False
            raise self._build_error("other publishers change it all the time")

    def settle(self, head: Head, before: Head | None) -> None:
        """Tag the changed tables of a publication with its commit, and remove what no kept publication needs. If
        the process dies here, the next publisher does this.
        """
        with suppress(Unavailable), self.translate_errors():
            self._tag(head, before)
            self._retire(head, before)

    def mend(self, head: Head) -> None:
        """Complete what the publisher of `head` left undone."""
        with suppress(Unavailable), self.translate_errors():
            table = self._open_publication()
            if table is not None and head.watermark.commit not in _read_tags(table):
                self._tag(head, None)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate the library's errors to ours: the first line, without possible keys."""
        try:
            yield
        except (RuntimeError, OSError, ValueError) as problem:
            message = _QUERY.sub("", _SOURCE.sub("", str(problem).partition("\n")[0]))
            raise self._build_error(message[:300], Disturbed if _is_conflict(problem) else Unavailable) from problem

    def _build_error(self, message: str, kind: type[Unavailable] = Unavailable) -> Unavailable:
        return kind(
            f"{self.address.name} cannot be asked: {message}",
            code="E_DATABASE",
            suggestion="check that the folder or bucket exists, and that the environment has its keys",
        )

    @property
    def _connection(self) -> Any:
        if self._open is None:
            import lancedb  # imported on demand, because it starts threads

            self._open = lancedb.connect(self.address.place)
        return self._open

    def _open_publication(self, *, make: bool = False) -> Table | None:
        if not make and self.address.is_folder and not Path(self.address.place).exists():
            return None  # the library would make it
        if PUBLICATION not in self._list_names():
            if not make:
                return None
            first = pa.table({"number": [0], "commit": [""], "fingerprint": [""], "document": [""]}, PUBLICATION_SCHEMA)
            try:
                return self._connection.create_table(PUBLICATION, first)
            except (RuntimeError, OSError, ValueError):
                if PUBLICATION not in self._list_names():
                    raise
        return self._connection.open_table(PUBLICATION)

    def _list_names(self) -> list[str]:
        names: list[str] = []
        page = None
        while True:
            answer = self._connection.list_tables(page_token=page, limit=AT_ONCE)
            names += answer.tables
            page = answer.page_token
            if not page:
                return names

    def _read_head(self, table: Table | None) -> Head | None:
        return Head.from_row(_read_row(table)) if table is not None else None

    def _apply_change(
        self,
        table_version: tuple[str, int, int],
        removed_ids: Sequence[int],
        new_tables: Callable[[], Iterable[pa.Table]],
    ) -> tuple[str, int, int]:
        name, version, changes = table_version
        table = self._connection.open_table(name)
        table.checkout(version)
        table.restore()
        at = table.version
        for start in range(0, len(removed_ids), AT_ONCE):
            at = _check_version(at, table.delete(one_of("id", removed_ids[start : start + AT_ONCE])).version)
        for rows in new_tables():
            at = _check_version(at, table.add(rows).version)
        if changes + 1 < _CHANGES:
            return name, at, changes + 1
        table.optimize(cleanup_older_than=self._find_oldest_age(table))
        return name, table.version, 0

    def _find_oldest_age(self, table: Table) -> timedelta:
        """Return how old the kept versions of a table may be."""
        tagged_versions = {*_read_tags(table).values()}
        times = [item["timestamp"] for item in table.list_versions() if item["version"] in tagged_versions]
        oldest = min((_convert_to_utc(item) for item in times), default=datetime.now(UTC))
        return datetime.now(UTC) - oldest + _SPARE

    def _tag(self, head: Head, before: Head | None) -> None:
        commit, previous_tables = head.watermark.commit, before.tables if before else {}
        for name, version in head.tables.items():
            if previous_tables.get(name) != version:
                _set_tag(self._connection.open_table(name), f"{commit}.{head.number}", version)
        table = self._open_publication()
        if table is not None and _read_row(table)["number"] == head.number:
            _set_tag(table, commit, table.version)

    def _retire(self, head: Head, before: Head | None) -> None:
        """Remove the tags of publications beyond those to keep, and what only they named. Keeps the previous
        publication, which somebody may be reading.
        """
        table = self._open_publication()
        if table is None:
            return
        commits = [(name, version) for name, version in _read_tags(table).items() if _COMMIT.fullmatch(name)]
        tags = sorted(commits, key=lambda item: -item[1])
        dropped_names = [name for name, _ in tags[self.address.kept :]]
        readable_heads = [
            head,
            *([before] if before else []),
            *self._iter_heads([version for _, version in tags[: self.address.kept]]),
        ]
        needed_versions = {(name, version) for item in readable_heads for name, version in item.tables.items()}
        names = {name for name, _ in needed_versions}
        for name in self._list_names():
            match = _NAME.fullmatch(name)  # others may keep tables and tags of their own here
            if match and name not in names and int(match["number"]) <= head.number:
                self._connection.drop_table(name)
        if not dropped_names:
            return
        for name in names:
            type_table = self._connection.open_table(name)
            for tag, version in _read_tags(type_table).items():
                match = _TAG.fullmatch(tag)
                if match and (name, version) not in needed_versions and int(match["number"]) <= head.number:
                    type_table.tags.delete(tag)
        for tag in dropped_names:
            table.tags.delete(tag)
        if head.number % _CHANGES == 0:
            table.optimize(cleanup_older_than=self._find_oldest_age(table))

    def _iter_heads(self, versions: Sequence[int]) -> Iterator[Head]:
        for version in versions:
            table = self._connection.open_table(PUBLICATION)
            table.checkout(version)
            head = self._read_head(table)
            if head is not None:
                yield head


def name_for(number: int, nonce: str, table: str, kind: str) -> str:
    """Return the name of a new table of a type, for the publication that will have this number."""
    return f"{number:08}-{nonce}-{table}-{kind}"


def one_of(column: str, values: Iterable[Any]) -> str:
    """Return the condition that a column has any of some values."""
    return f"{column} IN ({', '.join(map(literal, values))})"


def _check_version(before: int, after: int) -> int:
    if after != before + 1:
        raise Disturbed("a table has changes of others", code="E_DATABASE")
    return after


def _read_row(table: Table) -> dict[str, Any]:
    (row,) = table.search().limit(2).to_arrow().to_pylist()
    typed_row: dict[str, Any] = row
    return typed_row


def _read_tags(table: Table) -> dict[str, int]:
    return {name: details["version"] for name, details in table.tags.list().items()}


def _set_tag(table: Table, name: str, version: int) -> None:
    tags = _read_tags(table)
    if name not in tags:
        table.tags.create(name, version)
    elif tags[name] != version:
        table.tags.update(name, version)


def _convert_to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)  # the library gives local times without a zone


def _is_conflict(problem: Exception) -> bool:
    return any(sign in str(problem) for sign in _CONFLICTS)
