"""Records and index entries as Arrow tables, which DuckDB scans in place."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from duckkb.entries import IndexEntry
from duckkb.lanes.sql.columns import EXTRA, FROM_ID, TO_ID, Columns
from duckkb.lanes.sql.kinds import element, is_list, parse_date, parse_timestamp
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Record

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

# one encoder for all values: json.dumps with options of its own makes a new one each time
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "json": pa.json_(),
}


def record_table(columns: Columns, records: Sequence[Record], ends: Ends | None = None) -> pa.Table:
    """One row per record, in the columns' order and kinds; every value must fit its column."""
    arrays = {ID: pa.array([record.id for record in records], pa.int64())}
    if columns.has_ends:
        pairs = [ends(record) if ends else (None, None) for record in records]
        arrays[FROM_ID] = pa.array([pair[0] for pair in pairs], pa.int64())
        arrays[TO_ID] = pa.array([pair[1] for pair in pairs], pa.int64())
    for column in columns.business:
        arrays[column.sql_name] = _array(column.kind, [record.fields.get(column.name) for record in records])
    arrays[CREATED_AT] = _canonical_times([record.created_at for record in records])
    arrays[UPDATED_AT] = _canonical_times([record.updated_at for record in records])
    arrays[EXTRA] = _array("json", _undeclared(columns, records))
    return pa.table(arrays)


def arrow_file(source: "pa.Buffer | Path") -> pa.Table:
    """What statements see of an Arrow file, which is mapped or lies in memory already: all but its last column."""
    data = source if isinstance(source, pa.Buffer) else pa.memory_map(str(source)).read_buffer()
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    return table.remove_column(table.num_columns - 1)


def _undeclared(columns: Columns, records: Sequence[Record]) -> list[dict[str, Any] | None]:
    if not columns.extra:
        return [None] * len(records)
    declared = {column.name for column in columns.business}
    rests = ({name: value for name, value in record.fields.items() if name not in declared} for record in records)
    return [rest or None for rest in rests]


def _array(kind: str, values: list[Any]) -> pa.Array:
    if set(map(type, values)) <= {type(None)}:
        return pa.nulls(len(values), _arrow_type(kind))
    if kind == "json":
        texts = [None if value is None else _encode(value) for value in values]
        return pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts, pa.string()))
    if kind == "json[]":
        texts = pa.array(
            [None if value is None else [_encode(one) for one in value] for value in values], pa.list_(pa.string())
        )
        items = pa.ExtensionArray.from_storage(pa.json_(), texts.values)
        return pa.ListArray.from_arrays(texts.offsets, items, mask=texts.is_null())
    if is_list(kind):
        return pa.array([_converted_list(element(kind), value) for value in values], _arrow_type(kind))
    convert = _CONVERSIONS.get(kind)
    if convert:
        values = _converted(convert, values)
    return pa.array(values, _arrow_type(kind))


def _arrow_type(kind: str) -> pa.DataType:
    return pa.list_(_TYPES[element(kind)]) if is_list(kind) else _TYPES[kind]


def _converted_list(kind: str, values: list[Any] | None) -> list[Any] | None:
    convert = _CONVERSIONS.get(kind)
    return values if values is None or convert is None else _converted(convert, values)


def _converted(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _canonical_times(texts: list[str]) -> pa.Array:
    """Times in the one form that truth has; Arrow parses a column of them at once."""
    return pa.array(texts, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "number": float,
    "date": parse_date,
    "timestamp": parse_timestamp,
}


def entry_table(rows: Iterable[tuple[str, int, IndexEntry]]) -> pa.Table:
    """`search_index`: one row per chunk from (table, record id, entry); `vector` is null while it is pending."""
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
            "vector": _vectors([entry.vector for entry in entries]),
        }
    )


def _vectors(vectors: Sequence["np.ndarray | None"]) -> pa.Array:
    """Arrays of one length where they all have it, as DuckDB's functions of arrays want them; else lists."""
    present = [np.asarray(vector, np.float32) for vector in vectors if vector is not None]
    if len({len(vector) for vector in present}) == 1:
        blank = np.zeros_like(present[0])
        whole = np.concatenate([blank if vector is None else np.asarray(vector, np.float32) for vector in vectors])
        gaps = pa.array([vector is None for vector in vectors], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(pa.array(whole, pa.float32()), len(blank), mask=gaps)
    flat = np.concatenate(present) if present else np.zeros(0, np.float32)
    sizes = np.array([0 if vector is None else len(vector) for vector in vectors], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    missing = pa.array([vector is None for vector in vectors], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat, pa.float32()), mask=missing)
