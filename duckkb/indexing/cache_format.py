"""The bytes of a cache file: a Parquet table of token and vector rows, checked row by row when it is read.

Columns: `kind` (`tokens` or `vector`), `key` (16 bytes over fingerprint and text), `content_hash` (16 bytes over the
text), `fts_content` (words, and the sequence behind a line feed where it differs), `vector` (float32, unit length),
`fingerprint`, `checksum` (8 bytes over the rest of the row). Rows are sorted by kind and key, a row group holds 4,096 of
one kind, nothing depends on the time or the machine: equal rows give equal bytes under one pyarrow version.

Parquet notices few flipped bytes by itself, hence the checksum; it is no protection from a forger (see `sample`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duckkb.indexing.cache_files import KINDS, Damaged, Kind
from duckkb.indexing.cache_rows import CacheRow
from duckkb.indexing.parquet_pages import refuse_bombs
from duckkb.values import dataclass

KEY_BYTES = 16
GROUP_ROWS = 4096
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
_PAYLOAD = {"tokens": "fts_content", "vector": "vector"}
_OFF_UNIT = 1e-3
_TORN = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What reading a torn file raises."""


@dataclass(frozen=True)
class Segment:
    """The good rows of one kind in one file. `left_out` counts the others by what is wrong with them."""

    kind: Kind
    table: pa.Table
    index: dict[bytes, int]
    left_out: Counter[str]

    @property
    def payload_column(self) -> str:
        return _PAYLOAD[self.kind]

    def payloads(self, keys: Sequence[bytes]) -> list[Any]:
        """The payload of each key, all of which stand in `index`."""
        return self._payloads([self.index[key] for key in keys])

    @property
    def fingerprints(self) -> Counter[str]:
        """Rows by the tokenizer or model that made them."""
        return Counter(_few_texts(self.table["fingerprint"]))

    def rows(self, keys: Sequence[bytes]) -> Iterator[CacheRow]:
        """The rows of these keys, in their order."""
        at = [self.index[key] for key in keys]
        picked = self.table.select(["content_hash", "fingerprint"]).take(pa.array(at, pa.int64()))
        hashes, fingerprints = (picked[name].to_pylist() for name in picked.column_names)
        return zip(keys, hashes, fingerprints, self._payloads(at), strict=True)

    def _payloads(self, at: list[int]) -> list[Any]:
        column = self.table[self.payload_column].combine_chunks()
        if self.kind == "tokens":
            texts: list[Any] = column.take(pa.array(at, pa.int64())).to_pylist()
            return texts
        values, offsets = flat(column)
        return [values[offsets[row] : offsets[row + 1]] for row in at]


def encode(tokens: Iterable[CacheRow], vectors: Iterable[CacheRow], *, packed: bool = True) -> bytes:
    """A file of these rows, whatever their order; keys are unique within a kind. One that is not `packed` is larger, and
    single rows of it can be read without the rest (`places`)."""
    return _written([_table("tokens", tokens), _table("vector", vectors)], packed)


def encode_local(kind: Kind, rows: Iterable[CacheRow]) -> tuple[bytes, Segment]:
    """A file of rows of one kind that is not packed, and what reading it would give."""
    table = _table(kind, rows)
    index = {key: row for row, key in enumerate(fixed(table["key"]))}
    return _written([table], packed=False), Segment(kind, table, index, Counter())


def _written(tables: Sequence[pa.Table], packed: bool) -> bytes:
    sink = pa.BufferOutputStream()
    compression = "zstd" if packed else "none"
    options = {"use_dictionary": ["kind", "fingerprint"], "write_statistics": False, "compression": compression}
    with pq.ParquetWriter(sink, SCHEMA, store_schema=False, version="2.6", **options) as writer:
        for table in tables:
            if table.num_rows:
                writer.write_table(table, row_group_size=GROUP_ROWS)
    return bytes(sink.getvalue())


def table_of(rows: Mapping[Kind, Iterable[CacheRow]]) -> pa.Table:
    """The rows as one table, by kind and key."""
    return pa.concat_tables([_table(kind, rows[kind]) for kind in KINDS])


def decode(data: bytes, kind: Kind) -> Segment:
    """The rows of one kind; raises `Damaged` where nothing can be read. Reads no payload of the other kind."""
    try:
        file = _parquet(data)
        table = _read(file, _groups(file, kind), kind)
    except _TORN as problem:
        raise Damaged("it is torn or not Parquet") from problem
    return _checked(kind, table)


def salvage(data: bytes, kind: Kind) -> Segment:
    """The good rows of the row groups that can still be read; raises `Damaged` where none can."""
    good = []
    try:
        file = _parquet(data)
        for group in range(file.num_row_groups):
            with suppress(*_TORN):
                good.append(_read(file, [group], kind))
    except _TORN as problem:
        raise Damaged("it is torn or not Parquet") from problem
    if not good:
        raise Damaged("none of its rows can be read")
    return _checked(kind, pa.concat_tables(good).combine_chunks())


def _parquet(data: bytes) -> pq.ParquetFile:
    refuse_bombs(data)
    file = pq.ParquetFile(pa.BufferReader(data))
    if not _same_columns(file.schema_arrow):
        raise Damaged("it has other columns than a cache")
    return file


def _read(file: pq.ParquetFile, groups: list[int], kind: Kind) -> pa.Table:
    """The rows of one kind in these row groups, without the other kind's payload."""
    columns = [name for name in SCHEMA.names if name not in _PAYLOAD.values() or name == _PAYLOAD[kind]]
    # Without threads: one that lives on when Python ends would abort the process, and they gain nothing here.
    table = file.read_row_groups(groups, columns=columns, use_threads=False).combine_chunks()
    table = table.filter(pc.equal(table["kind"], kind)).combine_chunks()
    table.validate(full=True)
    return table


def _table(kind: Kind, unsorted: Iterable[CacheRow]) -> pa.Table:
    rows = sorted(unsorted, key=lambda row: row[0])
    keys, hashes, fingerprints, payloads = zip(*rows, strict=True) if rows else ((), (), (), ())
    nothing = pa.nulls(len(rows), SCHEMA.field("vector" if kind == "tokens" else "fts_content").type)
    if kind == "tokens":
        texts, vectors = pa.array(payloads, pa.string()), nothing
        binary: Iterable[Any] = (text.encode() for text in payloads)
    else:
        ends = np.cumsum([0, *map(len, payloads)], dtype=np.int32)
        values = np.concatenate(payloads).astype(np.float32) if payloads else np.zeros(0, np.float32)
        texts, vectors = nothing, pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
        binary = _vector_bytes(values, ends)
    sums = _checksums(kind, keys, hashes, fingerprints, binary)
    columns = [[kind] * len(rows), keys, hashes, texts, vectors, fingerprints, sums]
    return pa.table([_column(column, field) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _column(values: Any, field: pa.Field) -> pa.Array:
    return values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)


def _checksums(
    kind: Kind, keys: Sequence[bytes], hashes: Sequence[bytes], fingerprints: Sequence[str], payloads: Iterable[Any]
) -> list[bytes]:
    """One per row, over every other column of it."""
    heads = {fingerprint: f"{kind}\0{fingerprint}\0".encode() for fingerprint in set(fingerprints)}
    rows = zip(keys, hashes, fingerprints, payloads, strict=True)
    return [
        blake2b(b"".join((heads[name], key, content, payload)), digest_size=8).digest()
        for key, content, name, payload in rows
    ]


def _same_columns(schema: pa.Schema) -> bool:
    """Parquet names the inside of a list as it likes, so that is not compared."""
    if schema.names != SCHEMA.names:
        return False
    return all(
        pa.types.is_list(found.type) and found.type.value_type == pa.float32()
        if wanted.name == "vector"
        else found.type == wanted.type
        for found, wanted in zip(schema, SCHEMA, strict=True)
    )


def _groups(file: pq.ParquetFile, kind: Kind) -> list[int]:
    """The row groups of this kind, by their first row: a torn footer aborts the process that asks for its statistics."""
    firsts = (
        file.read_row_group(group, columns=["kind"], use_threads=False)["kind"] for group in range(file.num_row_groups)
    )
    return [group for group, kinds in enumerate(firsts) if len(kinds) and kinds[0].as_py() == kind]


def _checked(kind: Kind, table: pa.Table) -> Segment:
    wrong = _wrong_rows(kind, table)
    if wrong:
        good = np.ones(table.num_rows, dtype=bool)
        good[list(wrong)] = False
        table = table.filter(pa.array(good)).combine_chunks()
    index = {key: row for row, key in enumerate(fixed(table["key"]))}
    return Segment(kind, table, index, Counter(wrong.values()))


def _wrong_rows(kind: Kind, table: pa.Table) -> dict[int, str]:
    """Row -> what is wrong with it."""
    required = [table[name] for name in ("key", "content_hash", "fingerprint", "checksum", _PAYLOAD[kind])]
    if any(column.null_count for column in required):
        whole = np.logical_and.reduce([column.is_valid().to_numpy() for column in required])
        gaps = {int(row): "a value is missing" for row in np.flatnonzero(~whole)}
        rest = np.flatnonzero(whole)
        return gaps | {int(rest[row]): why for row, why in _wrong_rows(kind, table.take(rest)).items()}
    keys, hashes, sums = (fixed(table[name]) for name in ("key", "content_hash", "checksum"))
    fingerprints = _few_texts(table["fingerprint"])
    payload = required[-1].combine_chunks()
    wrong: dict[int, str] = {}
    if kind == "tokens":
        binary = _slices(payload.cast(pa.binary()))
    else:
        values, offsets = flat(payload)
        wrong = _wrong_vectors(values, offsets, fingerprints)
        binary = _vector_bytes(values, offsets)
    found = zip(_checksums(kind, keys, hashes, fingerprints, binary), sums, strict=True)
    return wrong | {row: "the checksum does not fit" for row, (made, stored) in enumerate(found) if made != stored}


def _wrong_vectors(values: np.ndarray, offsets: np.ndarray, fingerprints: list[str]) -> dict[int, str]:
    lengths = np.diff(offsets)
    expected = _expected_lengths(lengths, fingerprints)
    fitting = (lengths == expected) & (lengths > 0)
    wrong = {int(row): "the vector has another dimension than its model" for row in np.flatnonzero(~fitting)}
    for length in np.unique(lengths[fitting]):
        rows = np.flatnonzero(fitting & (lengths == length))
        if len(rows) == len(lengths):
            matrix = values[offsets[0] : offsets[-1]].reshape(-1, length)
        else:
            matrix = values[offsets[rows][:, None] + np.arange(length)]
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
            odd = ~(np.abs(norms - 1.0) <= _OFF_UNIT)
        wrong |= {int(row): "the vector is not a finite one of unit length" for row in rows[odd]}
    return wrong


def _expected_lengths(lengths: np.ndarray, fingerprints: list[str]) -> np.ndarray:
    """What each vector's fingerprint names; where it names none (an endpoint that was asked for no dimension), what most
    vectors of that model have here."""
    names = np.array(fingerprints, dtype=object)
    expected = np.zeros(len(lengths), dtype=np.int64)
    for name in set(fingerprints):
        rows = np.flatnonzero(names == name)
        expected[rows] = _dimension(name) or np.bincount(lengths[rows]).argmax()
    return expected


def _dimension(fingerprint: str) -> int:
    """The dimension that a model's fingerprint names (`name/dimension/digest`), 0 where it names none."""
    parts = fingerprint.rsplit("/", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def flat(column: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """All values in a row, and where each list starts and the last one ends."""
    return column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()


def _vector_bytes(values: np.ndarray, offsets: np.ndarray) -> Iterator[memoryview]:
    """Each vector as little-endian bytes."""
    whole = values.astype("<f4", copy=False).view(np.uint8).data
    ends = (4 * offsets.astype(np.int64)).tolist()
    return (whole[start:end] for start, end in pairwise(ends))


# Arrow's own to_pylist() takes 0.3 microseconds a value, which these go around


def fixed(column: pa.ChunkedArray) -> list[bytes]:
    """The values of a column of fixed width without nulls."""
    array = column.combine_chunks()
    width = array.type.byte_width
    whole = array.buffers()[1].to_pybytes() if len(array) else b""
    first = array.offset * width
    return [whole[at : at + width] for at in range(first, first + len(array) * width, width)]


def _slices(array: pa.BinaryArray) -> Iterator[memoryview]:
    """The values of a column of bytes without nulls, not copied."""
    if not len(array):
        return iter(())
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1].tolist()
    whole = memoryview(data or b"")
    return (whole[start:end] for start, end in pairwise(offsets))


def _few_texts(column: pa.ChunkedArray) -> list[str]:
    """The values of a column of few different texts."""
    array = column.combine_chunks().dictionary_encode()
    names = array.dictionary.to_pylist()
    return [names[code] for code in array.indices.to_numpy().tolist()]
