"""What every backend is tested with: small types, rows made of texts, and one backend of each kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from duckkb.entries import IndexEntry
from duckkb.indexing.chunk import chunk
from duckkb.indexing.tokens import JiebaTokenizer
from duckkb.lanes.backend import DuckdbBackend
from duckkb.ontology.model import NodeType, Ontology, SearchField
from duckkb.ports import Backend, Row
from duckkb.queries import LaneHit
from duckkb.records import Record
from duckkb.settings import Settings
from tests.fakes import HashEmbedder

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

MakeBackend = Callable[[], Backend]
BACKENDS: Mapping[str, MakeBackend] = {
    "duckdb": lambda: DuckdbBackend(
        Ontology({kind.name: kind for kind in (NOTE, WEIGHED, SILENT)}), Settings(), TOKENIZER
    )
}
every_backend = pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)


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
