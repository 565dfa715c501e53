"""What a stored line may be, by the book alone: a judge that parses JSON by hand, and a writer of the one canonical line.

Nothing here is shared with duckkb or with `json`.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol


class Bounds(Protocol):
    """How long and how deep a line may be."""

    @property
    def max_record_bytes(self) -> int: ...

    @property
    def max_depth(self) -> int: ...


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


def judged(raw: bytes, identity: tuple[str, ...], limits: Bounds) -> Judged:
    value = judged_json(raw, limits)
    if not isinstance(value, dict):
        return Judged(None, isinstance(value, _Unsound))
    is_marker = re.match(rb"(<{7}|\|{7}|={7}|>{7})([ \r]|$)", raw)
    if b"\r" in raw or is_marker or not _sound(value, identity):
        return Judged(None, True)
    return Judged({name: each for name, each in value.items() if each is not None}, True)


class _Unsound:
    """An object by the grammar, with something in it that no line may hold."""


def judged_json(raw: bytes, limits: Bounds) -> Any:
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
