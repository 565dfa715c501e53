"""Records and index entries as Arrow tables, which DuckDB scans in place."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from duckkb.fast_json import orjson
from duckkb.sql.columns import EXTRA, FROM_ID, TO_ID, Columns, element, is_list, parse_date, parse_timestamp
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, IndexEntry, Record

Ends = Callable[[Record], tuple[int | None, int | None]]

CACHE_SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "key": pa.binary(),
        "content_hash": pa.binary(),
        "fts_content": pa.string(),
        "vector": pa.binary(),
        "fingerprint": pa.string(),
        "checksum": pa.binary(),
    }
)

# a shared encoder: json.dumps with options creates an encoder for each call
_slow_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_has_odd_float = re.compile(rb"[0-9]e|0\.0000").search
"""Returns a match if a text may hold a float that orjson and Python write differently."""

_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}


def record_table(columns: Columns, records: Sequence[Record], ends: Ends | None = None) -> pa.Table:
    """Return a row per record, in the columns' order and kinds; every value must fit its column."""
    arrays = {ID: pa.array([record.id for record in records], pa.int64())}
    if columns.has_ends:
        pairs = [ends(record) if ends else (None, None) for record in records]
        arrays[FROM_ID] = pa.array([pair[0] for pair in pairs], pa.int64())
        arrays[TO_ID] = pa.array([pair[1] for pair in pairs], pa.int64())
    for column in columns.business:
        arrays[column.sql_name] = _build_array(column.kind, [record.fields.get(column.name) for record in records])
    arrays[CREATED_AT] = _convert_times([record.created_at for record in records])
    arrays[UPDATED_AT] = _convert_times([record.updated_at for record in records])
    arrays[EXTRA] = _build_array("json", _collect_extra_fields(columns, records))
    return pa.table(arrays)


def arrow_file(source: "pa.Buffer | Path") -> pa.Table:
    """Read an Arrow file, mapped or already in memory, as statements see it: without its last column. Raises
    OSError and ValueError if it is not an Arrow file.
    """
    table = pa.ipc.open_file(source if isinstance(source, pa.Buffer) else pa.memory_map(str(source))).read_all()
    return table.remove_column(table.num_columns - 1)


def _collect_extra_fields(columns: Columns, records: Sequence[Record]) -> list[dict[str, Any] | None]:
    if not columns.extra:
        return [None] * len(records)
    declared_names = {column.name for column in columns.business}
    rests = ({name: value for name, value in record.fields.items() if name not in declared_names} for record in records)
    return [extra_fields or None for extra_fields in rests]


def _build_array(kind: str, values: list[Any]) -> pa.Array:
    convert = _CONVERSIONS.get(element(kind))
    if convert is not None and is_list(kind):
        values = [None if value is None else [convert(member) for member in value] for value in values]
    elif convert is not None:
        values = [None if value is None else convert(value) for value in values]
    if kind == "json":
        return pa.ExtensionArray.from_storage(pa.json_(), pa.array(values, pa.string()))
    if kind == "json[]":
        texts = pa.array(values, pa.list_(pa.string()))
        items = pa.ExtensionArray.from_storage(pa.json_(), texts.values)
        return pa.ListArray.from_arrays(texts.offsets, items, mask=texts.is_null())
    return pa.array(values, pa.list_(_TYPES[element(kind)]) if is_list(kind) else _TYPES[kind])


def _convert_times(texts: list[str]) -> pa.Array:
    """Convert times from the only form in truth; Arrow parses a whole column at once."""
    return pa.array(texts, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def _encode(value: Any) -> str:
    """Encode a value as Python's JSON does, independent of the version of orjson."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # an integer past 64 bits, half a character
        return _slow_encode(value)
    return _slow_encode(value) if _has_odd_float(text) else text.decode()


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "integer": lambda value: None if value is None else int(value),
    "number": lambda value: None if value is None else float(value),
    "date": lambda value: None if value is None else parse_date(value),
    "timestamp": lambda value: None if value is None else parse_timestamp(value),
    "json": _encode,
}
"""Conversions of a value, and of each member of a list: None is a missing member, and a value of JSON."""


def entry_table(rows: Iterable[tuple[str, int, IndexEntry]]) -> pa.Table:
    """Return `search_index`: a row per chunk from (table, record id, entry); `vector` is null while it is pending."""
    rows = list(rows)
    entries = [entry for _, _, entry in rows]
    return pa.table(
        {
            "source_table": pa.array([table for table, _, _ in rows], pa.string()),
            "source_id": pa.array([record_id for _, record_id, _ in rows], pa.int64()),
            "source_field": pa.array([entry.field for entry in entries], pa.string()),
            "chunk_seq": pa.array([entry.seq for entry in entries], pa.int64()),
            "content": pa.array([entry.content for entry in entries], pa.string()),
            "fts_content": pa.array([entry.tokens.words if entry.tokens else None for entry in entries], pa.string()),
            "vector": _build_vector_array([entry.vector for entry in entries]),
        }
    )


def _build_vector_array(vectors: Sequence["np.ndarray | None"]) -> pa.Array:
    """Build fixed-size arrays if all vectors have the same length, as DuckDB's array functions require; else
    lists.
    """
    lengths = {len(vector) for vector in vectors if vector is not None}
    kind = pa.list_(pa.float32(), lengths.pop()) if len(lengths) == 1 else pa.large_list(pa.float32())
    return pa.array([None if vector is None else vector.astype(np.float32, copy=False) for vector in vectors], kind)
