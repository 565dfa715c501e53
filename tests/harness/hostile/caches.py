"""Damaged and forged caches, and a program that asks questions over them: `caches.py BASE` reads names of files of
caches from stdin, lays each into BASE and answers with what a search said, a JSON object a line.

What makes them knows the format as well as an attacker would: it may use duckkb's own writer. What judges does not.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import duckkb
from duckkb.index.cache_database import KINDS, CacheRow, vector_of
from duckkb.index.cache_parquet import decode, encode
from tests.fakes import HashEmbedder

TEAM = "data/indices/search_cache.parquet"
CONFIG = """\
global: {embedding_model: some-model, embedding: {base_url: "http://127.0.0.1:9/v1", dimensions: 64}}
nodes:
  Note:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}
    search: {full_text: [text], vectors: [text]}
  Page:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}
    search: {full_text: [text], vectors: [text]}
"""
WORDS = [
    "fox",
    "hare",
    "river",
    "stone",
    "lamp",
    "狐狸",
    "河流",
    "石头",
    "灯",
    "知识",
    "cache",
    "vector",
    "search",
    "index",
    "truth",
    "record",
    "merge",
    "write",
]
QUESTIONS = (("Note", "fox river", "hybrid"), ("Page", "石头 lamp", "hybrid"), ("Note", "知识", "match"))
SECONDS, MEGABYTES = 60, 600


def text_of(number: int) -> str:
    chance = random.Random(number)
    return " ".join(chance.choice(WORDS) for _ in range(12)) + f" {number}"


def records(count: int) -> list[dict[str, str]]:
    return [{"id": f"r{number}", "text": text_of(number)} for number in range(count)]


def answers(base: Path, state: Path) -> dict[str, Any]:
    """What the questions are answered by a user whose folder is `state`: hits with scores, and codes of notices."""
    os.environ["XDG_STATE_HOME"] = str(state)
    os.environ["DUCKKB_CACHE_HOME"] = str(state / "cache")
    hits, codes = [], set()
    with duckkb.open(base, embedder=HashEmbedder()) as kb:
        for kind, question, mode in QUESTIONS:
            found = kb.find(kind, question, mode=mode, limit=8)
            hits.append([[hit.identity, hit.score, hit.chunk.text if hit.chunk else None] for hit in found])
            codes |= {notice.code for notice in found.notices}
    return {"hits": hits, "codes": sorted(codes)}


# --- damage: bytes


def damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """One file of many that are no cache any more, or hardly one. `other` is an honest cache of another base."""
    return chance.choice(_DAMAGE)(bytearray(data), other, chance)


def _flip(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _flip_in_footer(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    size = int.from_bytes(data[-8:-4], "little") + 8
    for _ in range(chance.choice((1, 1, 2, 4))):
        data[-chance.randint(5, size)] = chance.randrange(256)
    return bytes(data)


def _flip_in_headers(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    """Near the beginnings of pages, where sizes and counts stand."""
    starts = [at for at in range(4, len(data) - 3) if data[at : at + 2] == b"\x15\x00"]
    at = chance.choice(starts) + chance.randint(1, 12)
    data[min(at, len(data) - 1)] = chance.randrange(256)
    return bytes(data)


def _cut(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    at, end = sorted(chance.randrange(len(data)) for _ in range(2))
    return bytes(chance.choice((data[:at], data[at:], data[:at] + data[end:], data[:at] + data[-8:])))


def _spliced(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    size = int.from_bytes(other[-8:-4], "little") + 8
    return bytes(chance.choice((data[:at] + other[at:], data + other, data[: -size or None] + other[-size:])))


def _blanked(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data)), chance.choice((1, 16, 512))
    data[at : at + size] = bytes([chance.choice((0, 255))]) * len(data[at : at + size])
    return bytes(data)


def _no_cache(data: bytearray, other: bytes, chance: random.Random) -> bytes:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%064x\nsize 1\n" % chance.getrandbits(256)
    marked = b"<<<<<<< ours\n" + data + b"=======\n" + other + b">>>>>>> theirs\n"
    noise = b"PAR1" + chance.randbytes(chance.randrange(4000)) + b"PAR1"
    claims = b"PAR1" + chance.randbytes(64) + (2**32 - 1 - chance.randrange(9)).to_bytes(4, "little") + b"PAR1"
    return chance.choice(
        (pointer, marked, noise, claims, b"", b"PAR1", b"PAR1PAR1", bytes(data).replace(b"\n", b"\r\n"))
    )


_DAMAGE = (_flip, _flip, _flip_in_footer, _flip_in_footer, _flip_in_headers, _cut, _spliced, _blanked, _no_cache)


# --- other tables, written by Parquet's own means


def rewritten(data: bytes, chance: random.Random) -> bytes:
    """The honest rows with something else about them."""
    table = pq.read_table(pa.BufferReader(data))
    return chance.choice(_REWRITTEN)(table, chance)


def _written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def _columns(table: pa.Table, chance: random.Random) -> bytes:
    name = chance.choice(table.column_names)
    at = table.column_names.index(name)
    return _written(
        chance.choice(
            (
                table.drop_columns([name]),
                table.append_column("extra", pa.array([1] * table.num_rows)),
                table.rename_columns([f"{one}x" if one == name else one for one in table.column_names]),
                table.set_column(at, name, pa.array([None] * table.num_rows, table.schema.field(name).type)),
                table.set_column(at, name, pa.array(range(table.num_rows))),
                table.select(list(reversed(table.column_names))),
            )
        )
    )


def _values(table: pa.Table, chance: random.Random) -> bytes:
    """Values changed or exchanged without their checksums."""
    name = chance.choice(("key", "content_hash", "fts_content", "vector", "fingerprint", "checksum", "kind"))
    values = table[name].to_pylist()
    one, other = chance.sample(range(len(values)), 2)
    values[one], values[other] = values[other], chance.choice((values[one], None))
    return _written(table.set_column(table.column_names.index(name), table.schema.field(name), pa.array(values, table.schema.field(name).type)))  # fmt: skip


def _order(table: pa.Table, chance: random.Random) -> bytes:
    rows = list(range(table.num_rows))
    chance.shuffle(rows)
    return _written(table.take(rows + rows[:7]), row_group_size=chance.choice((1, 7, 4096)), compression="snappy")


def _bomb(table: pa.Table, chance: random.Random) -> bytes:
    """A few kilobytes that are gigabytes once they are read."""
    many = chance.choice((20_000, 100_000))
    row = {name: table[name][0].as_py() for name in table.column_names}
    if chance.random() < 0.5:
        row["fts_content"] = "fox " * 250_000
        column = pa.DictionaryArray.from_arrays(pa.array([0] * many, pa.int32()), pa.array([row["fts_content"]]))
        whole = pa.table([column if name == "fts_content" else pa.array([row[name]] * many, table.schema.field(name).type) for name in table.column_names], names=table.column_names)  # fmt: skip
        return _written(whole, use_dictionary=True, dictionary_pagesize_limit=8 << 20, store_schema=False)
    zeros = pa.ListArray.from_arrays(pa.array([0, 40_000_000], pa.int32()), pa.array(np.zeros(40_000_000, np.float32)))
    one = table.slice(0, 1)
    return _written(one.set_column(table.column_names.index("vector"), "vector", zeros), compression="zstd")


_REWRITTEN = (_columns, _columns, _values, _values, _values, _order, _bomb)


# --- forgeries: every checksum fits


def rows_of(data: bytes) -> tuple[list[CacheRow], list[CacheRow]]:
    """Token rows and vector rows."""
    batches = list(decode(data))
    tokens, vectors = ([row for batch in batches if batch.kind == kind for row in batch.rows] for kind in KINDS)
    return tokens, vectors


def forged(data: bytes, chance: random.Random) -> bytes:
    """The honest cache with some of its rows, or all, changed by someone who knows the format."""
    tokens, vectors = rows_of(data)
    share = chance.choice((0.0, 0.01, 0.1, 0.5, 1.0))
    count = max(1, round(share * len(tokens)))
    if chance.random() < 0.5:
        chosen = set(chance.sample(range(len(tokens)), count))
        change: Callable[..., CacheRow] = chance.choice(_TOKENS)
        tokens = [change(row, chance, tokens) if at in chosen else row for at, row in enumerate(tokens)]
    else:
        chosen = set(chance.sample(range(len(vectors)), count))
        change = chance.choice(_VECTORS)
        vectors = [change(row, chance, vectors) if at in chosen else row for at, row in enumerate(vectors)]
    return encode(_once(tokens), _once(vectors))


def _once(rows: list[CacheRow]) -> list[CacheRow]:
    return list({row[0]: row for row in rows}.values())


def _with(payload: Callable[[CacheRow, random.Random, list[CacheRow]], Any]) -> Callable[..., CacheRow]:
    return lambda row, chance, rows: (*row[:3], payload(row, chance, rows))


def _unit(values: Any) -> bytes:
    vector = np.asarray(values, np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32).tobytes()


def _other_dimension(row: CacheRow, chance: random.Random, rows: list[CacheRow]) -> CacheRow:
    size = chance.choice((1, 8, 63, 65, 4096))
    return row[0], row[1], f"some-model/{size}/x", _unit(np.ones(size))


_TOKENS = (
    _with(lambda row, chance, rows: "fox river fox river 知识".encode()),
    _with(lambda row, chance, rows: b""),
    _with(lambda row, chance, rows: chance.choice(rows)[3] + b" fox"),
    _with(lambda row, chance, rows: b"fox\nriver\nlamp"),
    _with(lambda row, chance, rows: ("fox \0 \u202e \x1b[2J " + "x" * 100_000).encode()),
    _with(lambda row, chance, rows: b"fox " * 50_000),
    _with(lambda row, chance, rows: b"  fox   river  \n  "),
    lambda row, chance, rows: (chance.choice(rows)[0], *row[1:3], b"fox"),
)
_VECTORS = (
    _with(lambda row, chance, rows: _unit(-vector_of(row[3]))),
    _with(lambda row, chance, rows: _unit([chance.gauss(0, 1) for _ in vector_of(row[3])])),
    _with(lambda row, chance, rows: _unit(np.eye(len(row[3]) // 4)[chance.randrange(len(row[3]) // 4)])),
    _with(lambda row, chance, rows: _unit(-vector_of(chance.choice([one for one in rows if one is not row])[3]))),
    _other_dimension,
    lambda row, chance, rows: (chance.choice(rows)[0], *row[1:3], _unit(-vector_of(row[3]))),
)


# --- the program


def serve(base: Path) -> Iterator[dict[str, Any]]:
    """For each line `STATE PATH` of stdin, the answers with that file as the team's cache and that state."""
    for line in sys.stdin:
        wanted = json.loads(line)
        signal.alarm(SECONDS)
        shutil.rmtree(base / ".duckkb", ignore_errors=True)
        target = base / wanted.get("place", TEAM)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(wanted["file"]).read_bytes())
        with tempfile.TemporaryDirectory() as fresh:
            try:
                said = answers(base, Path(wanted.get("state") or fresh))
            except duckkb.DuckkbError as problem:
                said = {"hits": None, "codes": [problem.code], "error": str(problem)}
        target.unlink(missing_ok=True)
        yield said | {"megabytes": _peak()}


def _peak() -> int:
    """Most memory that this process ever had, where Linux tells (`ru_maxrss` counts what its parent had, too)."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    for said in serve(Path(sys.argv[1])):
        print(json.dumps(said), flush=True)
