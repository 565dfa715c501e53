"""Encodes and decodes a team's cache file: a Parquet table of token and vector rows, each verified when it is
read.

Columns: `kind` (`tokens` or `vector`), `key` (16 bytes over fingerprint and text), `content_hash` (16 bytes
over the text), `fts_content` (words, and the sequence behind a line feed where it differs), `vector` (float32,
unit length), `fingerprint`, `checksum` (8 bytes over the rest of the row). Rows are sorted by kind and key, a
row group holds 4,096 of one kind, nothing depends on the time or the machine: equal rows give equal bytes under
one pyarrow version.

Parquet itself detects few flipped bits, hence the checksum. Files of others are read only in a separate process
(`foreign`): their claims may demand any amount of memory, and some claims abort the process.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duckkb.index.cache_database import KINDS, Batch, CacheRow, Damaged, Kind, checksums

KEY_BYTES = 16
GROUP_ROWS = 4096
MOST_GROUPS = 4096
MOST_GROUP_ROWS = 65_536
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.binary(KEY_BYTES)),
        pa.field("content_hash", pa.binary(KEY_BYTES)),
        pa.field("fts_content", pa.string()),
        pa.field("vector", pa.list_(pa.float32())),
        pa.field("fingerprint", pa.string()),
        pa.field("checksum", pa.binary(8)),
    ]
)
_PAYLOAD: dict[Kind, str] = {"tokens": "fts_content", "vector": "vector"}
_OFF_UNIT = 1e-3
_TORN = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, IndexError, ValueError)
"""The errors of reading a torn file."""


def encode(tokens: Iterable[CacheRow], vectors: Iterable[CacheRow]) -> bytes:
    """Encode rows, in any order, as a file; keys are unique within a kind."""
    sink = pa.BufferOutputStream()
    options = {"use_dictionary": ["kind", "fingerprint"], "write_statistics": False, "compression": "zstd"}
    with pq.ParquetWriter(sink, SCHEMA, store_schema=False, version="2.6", **options) as writer:
        for table in (_build_table("tokens", tokens), _build_table("vector", vectors)):
            if table.num_rows:
                writer.write_table(table, row_group_size=GROUP_ROWS)
    return bytes(sink.getvalue())


def table_of(rows: Mapping[Kind, Iterable[CacheRow]]) -> pa.Table:
    """Return the rows as a table, sorted by kind and key."""
    return pa.concat_tables([_build_table(kind, rows[kind]) for kind in KINDS])


def decode(data: bytes) -> Iterator[Batch]:
    """Decode the rows group by group, so that few are in memory at once; raises `Damaged`."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        _refuse_shape(file)
        for group in range(file.num_row_groups):
            # Without threads: a thread that is alive when Python ends would abort the process, and threads gain
            # nothing here.
            table = file.read_row_groups([group], use_threads=False).combine_chunks()
            table.validate(full=True)
            for kind in KINDS:
                kind_table = table.filter(pc.equal(table["kind"], kind)).combine_chunks()
                if kind_table.num_rows:
                    yield _check_rows(kind, kind_table)
    except Damaged:
        raise
    except _TORN as problem:
        raise Damaged("it is torn or not Parquet") from problem


def _refuse_shape(file: pq.ParquetFile) -> None:
    if not _has_same_columns(file.schema_arrow):
        raise Damaged("it has other columns than a cache")
    groups = [file.metadata.row_group(at).num_rows for at in range(min(file.num_row_groups, MOST_GROUPS + 1))]
    if len(groups) > MOST_GROUPS or max(groups, default=0) > MOST_GROUP_ROWS:
        raise Damaged("it has more rows, or groups of them, than a cache")


def _build_table(kind: Kind, cache_rows: Iterable[CacheRow]) -> pa.Table:
    rows = sorted(cache_rows, key=lambda row: row[0])
    keys, hashes, fingerprints, payloads = zip(*rows, strict=True) if rows else ((), (), (), ())
    nothing = pa.nulls(len(rows), SCHEMA.field("vector" if kind == "tokens" else "fts_content").type)
    if kind == "tokens":
        texts, vectors = pa.array([payload.decode() for payload in payloads], pa.string()), nothing
    else:
        ends = np.cumsum([0, *(len(payload) // 4 for payload in payloads)], dtype=np.int32)
        values = np.frombuffer(b"".join(payloads), "<f4").astype(np.float32, copy=False)
        texts, vectors = nothing, pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
    columns = [[kind] * len(rows), keys, hashes, texts, vectors, fingerprints, checksums(kind, rows)]
    return pa.table(
        [_build_column(column, field) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _build_column(values: Any, field: pa.Field) -> pa.Array:
    return values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)


def _has_same_columns(schema: pa.Schema) -> bool:
    """Compare the columns; ignore the name of a list's items, because Parquet chooses it freely."""
    if schema.names != SCHEMA.names:
        return False
    return all(
        pa.types.is_list(field.type) and field.type.value_type == pa.float32()
        if schema_field.name == "vector"
        else field.type == schema_field.type
        for field, schema_field in zip(schema, SCHEMA, strict=True)
    )


def _check_rows(kind: Kind, table: pa.Table) -> Batch:
    required_columns = [table[name] for name in ("key", "content_hash", "fingerprint", "checksum", _PAYLOAD[kind])]
    whole = np.logical_and.reduce([column.is_valid().to_numpy() for column in required_columns])
    left_out = Counter({"a value is missing": int(len(whole) - whole.sum())})
    if not whole.all():
        table = table.filter(pa.array(whole)).combine_chunks()
    fingerprints, payload = table["fingerprint"].to_pylist(), table[_PAYLOAD[kind]].combine_chunks()
    wrong: dict[int, str] = {}
    if kind == "tokens":
        payloads = payload.cast(pa.binary()).to_pylist()
    else:
        payloads, wrong = _check_vectors(payload, fingerprints)
    rows = list(zip(table["key"].to_pylist(), table["content_hash"].to_pylist(), fingerprints, payloads, strict=True))
    fitting = zip(checksums(kind, rows), table["checksum"].to_pylist(), strict=True)
    wrong |= {
        row: "the checksum does not fit"
        for row, (computed_checksum, stored_checksum) in enumerate(fitting)
        if computed_checksum != stored_checksum
    }
    good = [row for at, row in enumerate(rows) if at not in wrong]
    return Batch(kind, good, +(left_out + Counter(wrong.values())))


def _check_vectors(column: pa.ListArray, fingerprints: Sequence[str]) -> tuple[list[bytes], dict[int, str]]:
    """Return the bytes of each vector, and the problem of each faulty row by its number."""
    values, offsets = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy().tolist()
    vectors = [values[offsets[at] : offsets[at + 1]].astype("<f4", copy=False) for at in range(len(column))]
    usual = {
        name: Counter(
            len(vector) for fingerprint, vector in zip(fingerprints, vectors, strict=True) if fingerprint == name
        )
        for name in set(fingerprints)
    }
    wrong = {}
    for at, (name, vector) in enumerate(zip(fingerprints, vectors, strict=True)):
        if len(vector) != (_parse_dimension(name) or usual[name].most_common(1)[0][0]) or not len(vector):
            wrong[at] = "the vector has another dimension than its model"
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            if not abs(float(np.sqrt(vector @ vector)) - 1.0) <= _OFF_UNIT:
                wrong[at] = "the vector is not a finite one of unit length"
    return [vector.tobytes() for vector in vectors], wrong


def _parse_dimension(fingerprint: str) -> int:
    """Return the dimension in a model's fingerprint (`name/dimension/digest`), or 0 if it names none; then the
    dimension of most vectors here counts.
    """
    parts = fingerprint.rsplit("/", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0
