"""What every lane is tested with: small types, rows made of texts, and the lanes over them, real and fake."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from duckkb.app.retrievers import MemoryRows
from duckkb.id_set import IdSet
from duckkb.index.text_chunks import chunk
from duckkb.index.tokens import JiebaTokenizer
from duckkb.index.vector_index import CosineLane
from duckkb.index.word_index import Lexical
from duckkb.ontology.model import NodeType, Ontology, RecordType, SearchField
from duckkb.ports import Row, Rows, Sql, SqlLimits, TypeState, VectorLane, WordLane
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import Engine
from duckkb.types.queries import LaneHit, LexicalQuery, SqlResult
from duckkb.types.records import IndexEntry, Record
from tests.fakes import FakeSql, FakeVectors, FakeWords, HashEmbedder

TIME = "2024-05-01T10:00:00.000000Z"
TOKENIZER = JiebaTokenizer()
EMBEDDER = HashEmbedder()

STRING = {"type": "string"}
NOTE = NodeType(
    "Note",
    "note",
    ("name",),
    {"properties": {"name": STRING, "title": STRING, "body": STRING, "year": {"type": "integer"}}},
    full_text=(SearchField("title"), SearchField("body")),
    vectors=(SearchField("body"),),
)
WEIGHED = NodeType(
    "Weighed",
    "weighed",
    ("name",),
    {"properties": {"name": STRING, "title": STRING, "body": STRING, "exact": STRING}},
    full_text=(SearchField("title", weight=3.0), SearchField("body"), SearchField("exact", language="none")),
)
SILENT = NodeType("Silent", "silent", ("name",), {"properties": {"name": STRING}})

ONTOLOGY = Ontology({kind.name: kind for kind in (NOTE, WEIGHED, SILENT)})


class Parts(Struct, frozen=True):
    """What makes the lanes of a type over its rows, and the tables of all."""

    words: Callable[[RecordType, Rows], WordLane]
    vectors: Callable[[Rows], VectorLane]
    sql: Callable[[Ontology, Callable[[RecordType], Rows]], Sql]


REAL = Parts(lambda kind, rows: Lexical(kind, rows, TOKENIZER, "english"), CosineLane, Tables)
FAKE = Parts(FakeWords, FakeVectors, FakeSql)


class StatedRows(MemoryRows):
    """Rows that a test keeps, at a state that it names."""

    def __init__(self, rows: dict[int, Row], state: Callable[[], TypeState]) -> None:
        super().__init__()
        self._rows = rows
        self._named = state

    @property
    def state(self) -> TypeState:
        return self._named()


class Numbered:
    """States of rows that change: each row is a part, whose digest is the number of the change that put it."""

    def __init__(self) -> None:
        self.number = 0
        self.digests: dict[str, str] = {}

    def change(self, put: Iterable[int], gone: Iterable[int] = ()) -> None:
        self.number += 1
        lost = {str(record_id) for record_id in gone}
        kept = {path: digest for path, digest in self.digests.items() if path not in lost}
        self.digests = kept | {str(record_id): f"{self.number:08}" for record_id in put}

    def state(self, folder: Path | None) -> TypeState:
        digests = self.digests
        return TypeState(
            repr(sorted(digests.items())), digests, lambda path: [(int(path), digests[path].encode())], folder
        )


class Held:
    """Records of several types in memory, with the lanes over them."""

    def __init__(self, parts: Parts = REAL, ontology: Ontology = ONTOLOGY, engine: Engine | None = None) -> None:
        self._parts = parts
        self._rows: dict[str, MemoryRows] = {kind.name: MemoryRows() for kind in ontology}
        self._words: dict[str, WordLane] = {}
        self._vectors: dict[str, VectorLane] = {}
        self._sql = parts.sql(ontology, self.rows) if engine is None else Tables(ontology, self.rows, engine=engine)

    def rows(self, kind: RecordType) -> MemoryRows:
        return self._rows[kind.name]

    def load(self, kind: RecordType, rows: "Iterable[Row] | MemoryRows") -> None:
        """Replace everything of one type."""
        self._rows[kind.name] = rows if isinstance(rows, MemoryRows) else MemoryRows(rows)
        self._words.pop(kind.name, None)
        self._vectors.pop(kind.name, None)

    def apply(self, kind: RecordType, upserts: Iterable[Row], gone: Iterable[int]) -> None:
        self.rows(kind).change({row.record.id: row for row in upserts}, gone)

    def words(self, kind: RecordType) -> WordLane:
        if kind.name not in self._words:
            self._words[kind.name] = self._parts.words(kind, self.rows(kind))
        return self._words[kind.name]

    def vectors(self, kind: RecordType) -> VectorLane:
        if kind.name not in self._vectors:
            self._vectors[kind.name] = self._parts.vectors(self.rows(kind))
        return self._vectors[kind.name]

    def where(self, kind: RecordType, condition: str) -> IdSet:
        return self._sql.where(kind, condition)

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        return self._sql.sql(statement, limits)

    def match(
        self, kind: RecordType, query: LexicalQuery, depth: int, allowed: Set[int] | None = None
    ) -> list[LaneHit]:
        return self.words(kind).ask(query, depth, allowed)

    def chunks(self, kind: RecordType, query: LexicalQuery, ids: Sequence[int]) -> list[tuple[str, int]]:
        return [self.words(kind).chunk(query, record_id) for record_id in ids]

    def find_excluded_ids(self, kind: RecordType, query: LexicalQuery) -> IdSet:
        return self.words(kind).find_excluded_ids(query)

    def explain(self, kind: RecordType, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        return self.words(kind).explain(query, record_id)

    def similar(
        self, kind: RecordType, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None
    ) -> list[LaneHit]:
        return self.vectors(kind).ask(vector, depth, allowed)

    def list_missing_texts(self, kind: RecordType) -> list[tuple[bytes, str]]:
        return self.vectors(kind).list_missing_texts()

    def fill(self, kind: RecordType, made: Mapping[bytes, np.ndarray]) -> None:
        """The rows have these vectors from now on, as where a cache got them."""
        rows = self.rows(kind)
        for record_id in rows:
            rows._rows[record_id] = with_vectors(rows[record_id], made)
        self.vectors(kind).on_vectors_available(made)

    def entries(self, kind: RecordType, record_id: int) -> tuple[IndexEntry, ...]:
        return self.rows(kind)[record_id].entries

    def close(self) -> None:
        self._sql.close()


def with_vectors(found: Row, made: Mapping[bytes, np.ndarray]) -> Row:
    """The row with the vectors that it lacks and that were made."""
    entries = (
        replace(entry, vector=made[entry.vector_key])
        if entry.vector is None and entry.vector_key is not None and entry.vector_key in made
        else entry
        for entry in found.entries
    )
    return replace(found, entries=tuple(entries))


MakeLanes = Callable[[], Held]
LANES: Mapping[str, MakeLanes] = {"real": Held, "fake": lambda: Held(FAKE)}


def _postgres() -> "Held":
    from tests.harness.publishing.lanes import postgres

    return postgres()


def _lance() -> "Held":
    from tests.harness.publishing.lanes import lance

    return lance()


_PUBLISHED = [
    pytest.param(_postgres, id="postgres", marks=pytest.mark.long),
    pytest.param(_lance, id="lance", marks=pytest.mark.long),
]
every_lane = pytest.mark.parametrize("make", [Held, LANES["fake"], *_PUBLISHED], ids=["real", "fake", None, None])
"""What a lane promises, whatever it is made of."""
real_lanes = pytest.mark.parametrize("make", [Held, *_PUBLISHED], ids=["real", None, None])
"""What words mean and how they rank."""
waiting_lanes = pytest.mark.parametrize("make", LANES.values(), ids=LANES)
"""What a lane promises that knows which vectors are still to come; nothing comes to what is published."""


def row(
    record_id: int,
    kind: NodeType = NOTE,
    *,
    name: str | None = None,
    embedded: bool = True,
    size: int = 800,
    **fields: Any,
) -> Row:
    """A record of `kind` with its chunks; its vectors are missing where `embedded` is false."""
    identity = f"n{record_id:05d}" if name is None else name
    searched = dict.fromkeys(field.name for field in (*kind.full_text, *kind.vectors))
    entries = [
        entry
        for field in searched
        if fields.get(field)
        for entry in _entries(kind, field, fields[field], size, embedded)
    ]
    record = Record(kind.name, record_id, (identity,), {"name": identity, **fields}, TIME, TIME)
    return Row(record, tuple(entries))


def notes(bodies: Iterable[str]) -> list[Row]:
    """Notes 1, 2, 3, ... with these bodies."""
    return [row(number, body=body) for number, body in enumerate(bodies, 1)]


def vector(text: str) -> np.ndarray:
    """The vector that a text is found by."""
    found: np.ndarray = EMBEDDER.embed_queries([text])[0]
    return found


def ids(hits: Sequence[LaneHit]) -> list[int]:
    return [hit.id for hit in hits]


def _entries(kind: NodeType, field: str, text: str, size: int, embedded: bool) -> Iterable[IndexEntry]:
    pieces = chunk(text, size)
    lexical = any(searched.name == field for searched in kind.full_text)
    has_vectors = any(searched.name == field for searched in kind.vectors)
    tokens = TOKENIZER.tokenize([piece.text for piece in pieces])
    vectors = EMBEDDER.embed_passages([piece.text for piece in pieces])
    for piece, found, made in zip(pieces, tokens, vectors, strict=True):
        yield IndexEntry(
            field,
            piece.seq,
            piece.text,
            found if lexical else None,
            piece.text.encode() if has_vectors else None,
            made if has_vectors and embedded else None,
        )
