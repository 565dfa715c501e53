"""The Lance tables of a published base.

`publication` has a single row, which names a version of each other table: replacing the row publishes. Each
type has up to three other tables: `record` (lines, and their columns for order, edges and filters), `posting`
(a term in a record) and `vector`. Bytes that are looked up are stored as hexadecimal text, which has the same
order and which an index supports.
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import Struct

from duckkb.lanes.sql.columns import list_declared_columns
from duckkb.lanes.targets.facts import is_fact
from duckkb.lanes.targets.keys import term_key
from duckkb.ontology.model import RecordType

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
