"""Fuzzing of the codec: lines that grow from valid ones, held against what the book says of each."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from duckkb.storage import strict_lines
from duckkb.storage.line import (
    Decoded,
    Limits,
    LineError,
    LineShape,
    decode,
    decode_all,
    encode,
    parse_objects,
    record_line,
    record_lines,
)
from duckkb.types.codes import CODES
from duckkb.types.records import Record
from tests.harness import oracle
from tests.harness.fuzz.book import canonical_line, judged, judged_json, same
from tests.harness.fuzz.mutate import ODD_CHARACTERS, Mutator

SHAPES = (("id",), ("country", "number"), ("from", "to"), ("from", "to", "role"))
TOKENS = (
    b'"', b",", b":", b"{", b"}", b"[", b"]", b"\\", b"null", b"true", b"false", b'""', b"{}", b"[]", b"[[", b"0", b" ",
    b"\t", b"\r", b"\n", b"\\u2028", b"\\ud83d", b"\\ude00", b"\\u0000", b"\\/", b"\\n", b'"__id":1,', b'"__id":1.0,',
    b'"_x":1,', b'"id":"a",', b'"ID":1,', b'"a":1,', b'"a":null,', b"\xef\xbb\xbf", b"<<<<<<< ours", b"=======",
    b"version https://git-lfs", b'{"type":"Note","id":"n"}', b'["a",1]', b'{"b":1,"a":2}',
)  # fmt: skip
WORDS = (
    "note",
    "Ann",
    "\u5185\u5b58",
    "caf\u00e9",
    "a b",
    "it's",
    "x" * 40,
    "2026-05-06",
    "\U0001f44d",
    "",
    "a/b",
    "\\",
)
NAMES = ("title", "text", "size", "tags", "a", "b", "Zeta", "\u00e9t\u00e9", "\u4e2d", "a-b", "nested", "ratio")


class CodecTarget:
    """Lines of all shapes under small and large limits, and JSON Lines as callers give them. `read` is what is judged."""

    name = "codec"
    modules = ("duckkb/storage/line.py", "duckkb/storage/strict_lines.py", "duckkb/storage/strict_lines.py")

    def __init__(self, read: Callable[[bytes, LineShape, Limits], Decoded] = decode) -> None:
        self._read = read

    def inputs(self, chance: Random) -> Iterator[bytes]:
        mutator = Mutator(chance, TOKENS)
        pool = [valid_line(chance) for _ in range(200)]
        while True:
            pool[chance.randrange(len(pool))] = valid_line(chance)
            for _ in range(20):
                yield mutator.mutate(chance.choice(pool), chance.choice(pool))

    def check(self, value: bytes) -> bool:
        past = False
        for identity, limits in ((SHAPES[len(value) % 4], Limits()), (SHAPES[0], Limits(1_024, 4))):
            past |= check_line(value, identity, limits, self._read)
        check_given(value)
        return past


def valid_line(chance: Random) -> bytes:
    """A canonical line of one of the shapes, complete or as a person would write it."""
    identity = chance.choice(SHAPES)
    record: dict[str, Any] = {name: _component(chance, name in ("from", "to")) for name in identity}
    record |= {chance.choice(NAMES): _value(chance, 0) for _ in range(chance.randrange(6))}
    if chance.random() < 0.8:
        created = f"20{chance.randrange(10, 99)}-0{chance.randrange(1, 10)}-1{chance.randrange(10)}T00:00:0{chance.randrange(10)}.000001Z"
        record |= {"__id": chance.randint(1, 2**53 - 1), "__created_at": created, "__updated_at": created}
    return canonical_line(record, identity)


def _component(chance: Random, is_end: bool) -> Any:
    scalar = chance.choice([chance.randint(-(2**63), 2**63 - 1), chance.randrange(100), *WORDS[:4], "z"])
    if is_end and chance.random() < 0.3:
        return chance.choice([[scalar, "b"], {"id": scalar, "type": "Note"}, {"id": [1, "a"], "type": "Person"}])
    return scalar


def _value(chance: Random, depth: int) -> Any:
    match chance.randrange(9 if depth < 3 else 7):
        case 0:
            return chance.choice((True, False)) if depth else True
        case 1:
            return chance.randint(-(10**6), 10**6)
        case 2:
            return chance.choice((0.5, -0.0, 1e16, 1.5e-7, 180.0, 3.14, 1e22, 5e-324, 0.00002))
        case 7:
            return [_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        case 8:
            return {chance.choice(NAMES): _value(chance, depth + 1) for _ in range(chance.randrange(4))}
        case _:
            return chance.choice(WORDS) + chance.choice(("", "", *ODD_CHARACTERS))


def check_line(raw: bytes, identity: tuple[str, ...], limits: Limits, read: Any = decode) -> bool:
    """Holds duckkb's verdict on one line against the book's; returns whether it is a JSON object at all."""
    shape = LineShape(identity)
    wanted = judged(raw, identity, limits)
    slow, slow_codes = _verdict(lambda: strict_lines.parse(raw, shape, limits))
    fast, codes = _verdict(lambda: read(raw, shape, limits))
    assert (fast is None) == (slow is None) == (wanted.record is None), (codes, slow_codes, wanted)
    assert codes == slow_codes and set(codes) <= set(CODES), (codes, slow_codes)
    check_together(raw, shape, limits, read)
    if fast is not None:
        assert same(fast.values, slow) and same(fast.values, wanted.record), (fast, slow, wanted)
        line = encode(fast.values, shape, limits.depth)
        assert line == canonical_line(fast.values, identity), line
        assert fast.canonical == (line == raw), (fast, line)
        if fast.canonical and len(fast.values.keys() & {"__id", "__created_at", "__updated_at"}) == 3:
            assert oracle.canonical(raw.decode()), raw
        again = decode(line, shape, Limits(2**30, limits.max_depth))
        assert again.canonical and same(again.values, fast.values), again
    return wanted.is_object


_BESIDE = b'{"country":"fr","from":"a","id":"a","number":1,"role":"r","to":"b"}'


def check_together(raw: bytes, shape: LineShape, limits: Limits, read: Any) -> None:
    """Many lines are decoded as each alone, and records written together have the lines of each."""
    for some in ([raw], [_BESIDE, raw, _BESIDE]):
        told = [
            item if isinstance(item, LineError) else (item.values, item.canonical)
            for item in decode_all(some, shape, limits)
        ]
        for line, item in zip(some, told, strict=True):
            alone, codes = _verdict(lambda line=line: read(line, shape, limits))
            if isinstance(item, LineError):
                assert [one.code for one in item.findings] == codes, (line, codes)
            else:
                assert alone is not None and same(item[0], alone.values) and item[1] == alone.canonical, (line, item)
        held = [item[0] for item in told if not isinstance(item, LineError)]
        records = [Record("Note", 7, ("n",), _business(values), _TIME, _TIME) for values in held]
        lines = record_lines(records, shape, limits)
        assert lines is None or lines == [record_line(one, shape, limits.max_depth) for one in records]


_TIME = "2026-05-06T00:00:00.000001Z"


def _business(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("__id", "__created_at", "__updated_at")}


def _verdict(read: Any) -> tuple[Any, list[str]]:
    try:
        return read(), []
    except LineError as error:
        assert error.findings and all(one.message.isprintable() for one in error.findings), error
        return None, [finding.code for finding in error.findings]


def check_given(raw: bytes) -> None:
    """JSON Lines are read alike whole and in pieces, line by line as the book says, and nothing is passed over."""
    limits = Limits(2_000, 8)
    whole = list(parse_objects(raw, limits))
    cut = [raw[at : at + 7] for at in range(0, len(raw), 7)]
    assert [_told(item) for item in whole] == [_told(item) for item in parse_objects(cut, limits)]
    lines = [(number, line.strip(b" \t\r")) for number, line in enumerate(raw.split(b"\n"), 1)]
    assert [number for number, _ in whole] == [number for number, line in lines if line]
    for (_, item), line in zip(whole, [line for _, line in lines if line], strict=True):
        wanted = judged_json(line, limits)
        is_refused = isinstance(item, LineError)
        assert is_refused == (not isinstance(wanted, dict)), (line, item, wanted)
        assert is_refused or same(item, wanted), (line, item, wanted)


def _told(item: tuple[int, Any]) -> tuple[int, object]:
    number, value = item
    return number, [str(one) for one in value.findings] if isinstance(value, LineError) else value
