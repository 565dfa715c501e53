"""The lanes over the rows of a record type. Each is created, with its libraries, at its first use.

Tests of the engines by themselves: DuckDB answers and opens no files, and Tantivy finds indexed records.

Each test raises AssertionError with the problem, by `raise`, which `python -O` keeps.

Rows in memory, for callers that already have them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from duckkb.ontology.model import NodeType, RecordType, SearchField
from duckkb.ports import Row, Rows, Tokenizer, TypeState
from duckkb.sql.confined import Confined
from duckkb.sql.sql_process import Rejected
from duckkb.store.mirrored_files import LaneFiles
from duckkb.types.queries import Lane, LexicalQuery
from duckkb.types.records import Identity, IndexEntry, Record
from duckkb.types.settings import Settings

if TYPE_CHECKING:
    from duckkb.index.vector_index import CosineLane
    from duckkb.index.word_index import Lexical


class TypeLanes:
    """Implements `ports.Lanes`."""

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._settings = settings
        self._words: Lexical | None = None
        self._vectors: CosineLane | None = None
        self._turn = Lock()  # a single thread creates a lane that several request

    @property
    def words(self) -> "Lexical":
        from duckkb.index.word_index import Lexical

        with self._turn:
            if self._words is None:
                self._words = Lexical(self._kind, self._rows, self._tokenizer, self._settings.language)
            return self._words

    @property
    def vectors(self) -> "CosineLane":
        from duckkb.index.vector_index import CosineLane

        with self._turn:
            if self._vectors is None:
                self._vectors = CosineLane(self._rows, self._kind.settings(self._settings).vectors)
            return self._vectors

    def discard(self) -> None:
        """Forget everything derived from entries, on disk too, because the entries were wrong."""
        with self._turn:
            self._words = self._vectors = None
        folder = self._rows.state.folder
        if folder is not None:
            for name in ("lexical", "vectors", "graph"):
                LaneFiles(folder / name, "").discard()


_NUMBERS = count()


class MemoryRows:
    """Implements `ports.Rows` over a dict, which only `change` may change. Each row is a part, whose digest is the
    number of its change. Every lane sees everything.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = {row.record.id: row for row in rows}
        self._digests: dict[str, str] = {}
        self._number(self._rows)

    @property
    def state(self) -> TypeState:
        return TypeState(self._digest, self._digests, self._read_row)

    def change(self, new: Mapping[int, Row], dropped: Iterable[int] = ()) -> None:
        """Remove the `dropped` rows, then add or replace the `new` ones."""
        for record_id in set(dropped):
            self._rows.pop(record_id, None)
            self._digests.pop(str(record_id), None)
        self._rows.update(new)
        self._number(new)

    def _number(self, ids: Iterable[int]) -> None:
        self._digest = f"{next(_NUMBERS):08x}"
        self._digests = {**self._digests, **{str(record_id): self._digest for record_id in ids}}

    def _read_row(self, path: str) -> Iterable[tuple[int, bytes]]:
        return [(int(path), self._digests[path].encode())]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._rows

    def __getitem__(self, record_id: int) -> Row:
        return self._rows[record_id]

    def record(self, record_id: int) -> Record:
        return self._rows[record_id].record

    def identity(self, record_id: int) -> Identity:
        return self._rows[record_id].record.identity

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        return [entry for entry in self._rows[record_id].entries if entry.tokens is not None]

    def records(self) -> Iterator[Record]:
        return (row.record for row in self._rows.values())

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        yield list(self._rows.values())

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        return [self._rows[record_id] for record_id in ids if record_id in self._rows]


_TIME = "2026-01-01T00:00:00.000000Z"
_KIND = NodeType("Trial", "trial", ("id",), {"properties": {"text": {"type": "string"}}}, (SearchField("text"),))
_TEXTS = {1: "a journal is sealed before files change", 2: "备份是数据在另一处的副本"}
_SECONDS = 10.0


def check_confinement() -> None:
    """Check that DuckDB computes, and neither reads a file nor changes a setting even without duckkb's own guards."""
    engine = Confined()
    try:
        if list(engine.ids("SELECT 40 + 2", _SECONDS)) != [42]:
            raise AssertionError("DuckDB does not compute")
        here = str(Path(__file__)).replace("'", "''")
        for action, statement in (
            ("read a file", f"SELECT * FROM read_text('{here}')"),
            ("took a setting", "SET threads=1"),
        ):
            try:
                engine.define(statement)
            except Rejected:
                continue
            raise AssertionError(f"DuckDB is not confined: it {action}")
    finally:
        engine.drop()


def lexical(tokenizer: Tokenizer) -> None:
    """Check that Tantivy finds an English and a Chinese record by their words, and nothing by an unknown word."""
    # imported here, so that DuckDB is tested even if Tantivy cannot be loaded
    from duckkb.index.word_index import Lexical

    rows = MemoryRows(_build_row(number, text, tokenizer) for number, text in _TEXTS.items())
    lane = Lexical(_KIND, rows, tokenizer, Settings().language)
    for expected_id, words in ((1, "journal"), (2, "数据"), (None, "banana")):
        if [hit.id for hit in lane.ask(LexicalQuery(words), 10)] != ([expected_id] if expected_id else []):
            raise AssertionError(f"Tantivy does not find records by their words: asked for {words}")


def _build_row(number: int, text: str, tokenizer: Tokenizer) -> Row:
    record = Record(_KIND.name, number, (str(number),), {"id": str(number), "text": text}, _TIME, _TIME)
    return Row(record, (IndexEntry("text", 0, text, tokenizer.tokenize([text])[0]),))
