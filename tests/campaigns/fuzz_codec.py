"""Fuzzing of the codec: lines that grow from valid ones, and a judge of lines that is written by the book alone.

The judge parses JSON by hand and knows the rules of a stored line; it shares nothing with duckkb or with `json`.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from random import Random
from typing import Any

from duckkb.codes import CODES
from duckkb.truth import strict
from duckkb.truth.line import Decoded, Limits, LineError, Shape, decode, encode, parse_objects
from tests.campaigns import oracle
from tests.campaigns.fuzz_mutate import ODD_CHARACTERS, Mutator

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
    modules = ("duckkb/truth/line.py", "duckkb/truth/strict.py", "duckkb/truth/ids.py")

    def __init__(self, read: Callable[[bytes, Shape, Limits], Decoded] = decode) -> None:
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
    shape = Shape(identity)
    wanted = judged(raw, identity, limits)
    slow, slow_codes = _verdict(lambda: strict.parse(raw, shape, limits))
    fast, codes = _verdict(lambda: read(raw, shape, limits))
    assert (fast is None) == (slow is None) == (wanted.record is None), (codes, slow_codes, wanted)
    assert codes == slow_codes and set(codes) <= set(CODES), (codes, slow_codes)
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


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types; -0.0 is not 0.0, 1 is not 1.0 and True is not 1."""
    return repr(one) == repr(other) or _sorted(one) == _sorted(other)


def _sorted(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name!r}:{_sorted(value[name])}" for name in sorted(value)) + "}"
    return "[" + ",".join(map(_sorted, value)) + "]" if isinstance(value, list) else repr(value)


class Refused(Exception):
    """The book does not allow this."""


class Judged:
    """A line's record without nulls, or None where the book refuses it; whether it is a JSON object in any case."""

    def __init__(self, record: dict[str, Any] | None, is_object: bool) -> None:
        self.record = record
        self.is_object = is_object

    def __repr__(self) -> str:
        return f"Judged({self.record!r})"


def judged(raw: bytes, identity: tuple[str, ...], limits: Limits) -> Judged:
    value = judged_json(raw, limits)
    if not isinstance(value, dict):
        return Judged(None, isinstance(value, _Unsound))
    is_marker = re.match(rb"(<{7}|\|{7}|={7}|>{7})([ \r]|$)", raw)
    if b"\r" in raw or is_marker or not _sound(value, identity):
        return Judged(None, True)
    return Judged({name: each for name, each in value.items() if each is not None}, True)


class _Unsound:
    """An object by the grammar, with something in it that no line may hold."""


def judged_json(raw: bytes, limits: Limits) -> Any:
    """The value of a JSON text, `_Unsound` for an object that breaks a rule, None for all else that is refused."""
    if len(raw) > limits.max_record_bytes:
        return None
    try:
        text = raw.decode("utf-8")
        reader = _Reader(text, min(limits.max_depth, 200))
        value = reader.whole()
    except (UnicodeDecodeError, Refused):
        return None
    if reader.broken_rules:
        return _Unsound() if isinstance(value, dict) else None
    return value


def _sound(record: dict[str, Any], identity: tuple[str, ...]) -> bool:
    own = ("__id", "__created_at", "__updated_at")
    if any(name.startswith("_") and name not in own for name in record):
        return False
    if len({name.casefold() for name in record}) != len(record):
        return False
    if "__id" in record and not (type(record["__id"]) is int and 1 <= record["__id"] < 2**53):
        return False
    if not all(_is_time(record[name]) for name in own[1:] if name in record):
        return False
    ends = identity[:2] == ("from", "to")
    return all((_is_end if ends and name in ("from", "to") else _is_component)(record.get(name)) for name in identity)


def _is_time(value: Any) -> bool:
    if type(value) is not str or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value, re.ASCII):
        return False
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ").second == int(value[17:19])
    except ValueError:
        return False


def _is_component(value: Any) -> bool:
    if type(value) is not str:
        return type(value) is int
    kinds = {unicodedata.category(sign) for sign in value}
    directed = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return (
        0 < len(value.encode()) <= 1_024
        and kinds.isdisjoint({"Cc", "Zl", "Zp", "Cs"})
        and not any(sign in directed for sign in value)
        and unicodedata.normalize("NFC", value) == value
    )


def _is_end(value: Any) -> bool:
    if isinstance(value, dict):
        is_named = value.keys() == {"type", "id"} and type(value["type"]) is str and _is_component(value["type"])
        return is_named and not isinstance(value["id"], dict) and _is_end(value["id"])
    if isinstance(value, list):
        return bool(value) and all(map(_is_component, value))
    return _is_component(value)


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Reader:
    """RFC 8259 by hand. `broken_rules` counts what the grammar allows and truth does not."""

    _SPACE = re.compile(r"[ \t\n\r]*")
    _NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
    _PLAIN = re.compile(r'[^"\\\x00-\x1f]*')

    def __init__(self, text: str, depth: int) -> None:
        self._text, self._at, self._depth = text, 0, depth
        self.broken_rules = 0

    def whole(self) -> Any:
        value = self._value(1)
        self._skip()
        if self._at != len(self._text):
            raise Refused("more than one value")
        return value

    def _skip(self) -> str:
        found = self._SPACE.match(self._text, self._at)
        assert found
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        sign = self._skip()
        if sign in ("{", "["):
            if depth > self._depth:
                raise Refused("too deep")
            self._at += 1
            return self._object(depth) if sign == "{" else self._array(depth)
        if sign == '"':
            self._at += 1
            return self._string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._number()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._skip() == "}":
            self._at += 1
            return found
        while True:
            if self._skip() != '"':
                raise Refused("a key is no text")
            self._at += 1
            key = self._string()
            self.broken_rules += key in found
            self._expect(":")
            found[key] = self._value(depth + 1)
            if self._expect(",}") == "}":
                return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        if self._skip() == "]":
            self._at += 1
            return found
        while True:
            found.append(self._value(depth + 1))
            if self._expect(",]") == "]":
                return found

    def _expect(self, signs: str) -> str:
        sign = self._skip()
        if not sign or sign not in signs:
            raise Refused(f"none of {signs}")
        self._at += 1
        return sign

    def _string(self) -> str:
        units: list[str] = []
        while True:
            found = self._PLAIN.match(self._text, self._at)
            assert found
            units.append(found[0])
            self._at = found.end() + 1
            match self._text[self._at - 1 : self._at]:
                case '"':
                    break
                case "\\":
                    units.append(self._escape())
                case _:
                    raise Refused("a control character, or no end")
        joined = "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        self.broken_rules += any("\ud800" <= sign <= "\udfff" for sign in joined)
        return joined

    def _escape(self) -> str:
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        if sign == "u":
            digits = self._text[self._at : self._at + 4]
            if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                raise Refused("no four digits")
            self._at += 4
            return chr(int(digits, 16))
        if sign not in _ESCAPES:
            raise Refused("no such escape")
        return _ESCAPES[sign]

    def _number(self) -> int | float:
        found = self._NUMBER.match(self._text, self._at)
        if not found:
            raise Refused("no value")
        self._at = found.end()
        if found[1] or found[2]:
            number = float(found[0])
            self.broken_rules += math.isinf(number)
            return number
        is_long = len(found[0]) > 20
        integer = 0 if is_long else int(found[0])
        self.broken_rules += is_long or not -(2**63) <= integer < 2**63
        return integer


def canonical_line(record: Mapping[str, Any], identity: tuple[str, ...]) -> bytes:
    """The one line of a record, by the book."""
    rest = sorted(name for name in record if not name.startswith("__") and name not in identity)
    names = ["__id", *identity, *rest, "__created_at", "__updated_at"]
    fields = (f"{spelled(name)}:{spelled(record[name])}" for name in names if record.get(name) is not None)
    return ("{" + ",".join(fields) + "}").encode()


def spelled(value: Any) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return '"' + "".join(map(_sign, value)) + '"'
        case list():
            return "[" + ",".join(map(spelled, value)) + "]"
        case _:
            return "{" + ",".join(f"{spelled(name)}:{spelled(value[name])}" for name in sorted(value)) + "}"


def _sign(sign: str) -> str:
    short = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\"}
    if sign in short:
        return "\\" + short[sign]
    hidden = "\x7f\x85\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return f"\\u{ord(sign):04x}" if sign < " " or sign in hidden else sign


def _float(value: float) -> str:
    """The shortest digits that read back; an exponent from 1e16 on and below 1e-5, without plus or leading zero."""
    mantissa, _, power = f"{value!r}".partition("e")
    if not power:
        return mantissa
    if value and 1e-5 <= abs(value) < 1:
        digits = mantissa.lstrip("-").replace(".", "")
        return ("-" if value < 0 else "") + "0." + "0" * (-int(power) - 1) + digits
    return f"{mantissa}e{int(power)}"
