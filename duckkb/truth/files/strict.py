"""The slow reader of lines: it accepts exactly what truth may hold, and reports everything that is wrong with
other lines.

`duckkb.truth.files.line` passes on each doubtful line, and the JSON that callers give.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from duckkb.errors import Finding, InvalidRecord
from duckkb.ontology.model import Generated
from duckkb.records import CREATED_AT, FROM, ID, TO, UPDATED_AT
from duckkb.truth.files.ids import INT64_MAX, INT64_MIN, MAX_ID, identity_findings, is_time, with_key

# The parsers below recurse, and orjson refuses to write more than 254 levels.
HARD_DEPTH = 200
# The most findings of a line; nobody fixes more at once, and 8 MB can hold a million.
MOST_FINDINGS = 100

_BOM = b"\xef\xbb\xbf"
_MARKER = re.compile(rb"(?:<{7}|\|{7}|={7}|>{7})(?:[ \r]|$)")
_POINTER = b"version https://git-lfs"
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_SPACE = " \t\n\r"


class Limits(Struct, frozen=True):
    """The settings `limits.*`. The record itself is the first level of depth; more than 200 levels count as 200."""

    max_record_bytes: int = 8_388_608
    max_depth: int = 64

    @property
    def depth(self) -> int:
        return min(self.max_depth, HARD_DEPTH)


class LineShape(Struct, frozen=True):
    """The order of a type's keys: its identity fields (`kind.identity_fields`) stand between `__id` and the rest.
    `generated` gives a stored line its missing identity if that follows from its fields.
    """

    identity: tuple[str, ...]
    generated: Generated | None = None

    @property
    def edge(self) -> bool:
        return self.identity[:2] == (FROM, TO)

    def order(self, names: Sequence[str]) -> list[str]:
        """Return the names in the order of a canonical line."""
        name_set = set(names)
        business_names = sorted(name_set.difference(self.identity, (ID, CREATED_AT, UPDATED_AT)))
        key_order = [ID, *self.identity, *business_names, CREATED_AT, UPDATED_AT]
        return [name for name in key_order if name in name_set]


class LineError(InvalidRecord):
    """An unreadable line or JSON text. The findings carry no path and line 0: the caller adds them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the text cannot be read as a record", findings=tuple(findings[:MOST_FINDINGS]))


def parse(raw: bytes, shape: LineShape, limits: Limits) -> dict[str, Any]:
    """Parse a stored line, without its LF, to a mapping without top-level nulls; raises `LineError` with all that
    is wrong.
    """
    if damage := _find_damage(raw):
        raise LineError([damage])
    findings = [Finding("E_CR", "the line contains a carriage return (CR)")] if b"\r" in raw else []
    value = _read_value(raw.rstrip(b"\r"), limits, findings)
    if isinstance(value, dict):
        value = with_key(value, shape.identity, shape.generated)
        findings += record_findings(value, shape)
    elif not findings:
        findings.append(_report_non_object(value))
    if findings:
        raise LineError(findings)
    return {name: each for name, each in value.items() if each is not None}


def parse_value(raw: bytes, limits: Limits) -> Any:
    """Parse a JSON value of a caller, with surrounding space; raises `LineError` with all that is wrong."""
    value, findings = parse_whole(raw, limits)
    if findings:
        raise LineError(findings)
    return value


def parse_whole(raw: bytes, limits: Limits) -> tuple[Any, list[Finding]]:
    """Parse as `parse_value` does; return the value, with null in place of numbers that cannot be held, and all
    that is wrong. The value is None if parsing is impossible.
    """
    findings: list[Finding] = []
    return _read_value(raw, limits, findings), findings


def parse_object(raw: bytes, limits: Limits) -> dict[str, Any]:
    """Parse as `parse_value` does, for a line that must hold an object."""
    value = parse_value(raw, limits)
    if not isinstance(value, dict):
        raise LineError([_report_non_object(value)])
    return value


def record_findings(values: dict[str, Any], shape: LineShape) -> list[Finding]:
    """Return the problems of names, `__id`, times and identity in a mapping whose values are valid JSON."""
    findings = name_findings(list(values))
    if ID in values and not (type(values[ID]) is int and 1 <= values[ID] <= MAX_ID):
        findings.append(Finding("E_ID", f"__id is not an integer from 1 to {MAX_ID}", field=f"/{ID}"))
    findings += [
        Finding("E_TIME", f"{name} is not a time of the form YYYY-MM-DDTHH:MM:SS.ffffffZ", field=f"/{name}")
        for name in (CREATED_AT, UPDATED_AT)
        if name in values and not is_time(values[name])
    ]
    return findings + identity_findings(shape.identity, values, edge=shape.edge)


def name_findings(names: Sequence[str]) -> list[Finding]:
    """Return a finding for each field name that is reserved, or that differs from another only in case."""
    reserved_findings = [
        Finding("E_NAME", f"the field name {name!r} is reserved: it starts with _", field=_extend_pointer("", name))
        for name in names
        if name.startswith("_") and name not in (ID, CREATED_AT, UPDATED_AT)
    ]
    first: dict[str, str] = {}
    alike = [
        Finding("E_NAME", f"the field names {twin!r} and {name!r} differ only in case", field=_extend_pointer("", name))
        for name in names
        if (twin := first.setdefault(name.casefold(), name)) != name
    ]
    return reserved_findings + alike


def _find_damage(raw: bytes) -> Finding | None:
    """Find the mark of a file that is not a part at all; other findings of such a line do not matter."""
    if is_marker(raw):
        return Finding("E_MARKERS", "the line is a conflict marker of git")
    if raw.startswith(_POINTER):
        return Finding("E_POINTER", "the line belongs to a Git LFS pointer")
    return None


def is_marker(raw: bytes) -> bool:
    """Return whether a line is one of git's four conflict markers."""
    return _MARKER.match(raw) is not None


def _read_value(raw: bytes, limits: Limits, findings: list[Finding]) -> Any:
    """Read the JSON value of a text. Every problem goes to `findings`; the result counts only if there are none."""
    text = _decode_text(raw, limits, findings)
    if text is None:
        return None
    depth = _depth(text)
    if depth > limits.depth:
        findings.append(Finding("E_DEPTH", f"values are nested {depth} levels deep; {limits.depth} are allowed"))
        return None
    return _parse_text(text, findings)


def _decode_text(raw: bytes, limits: Limits, findings: list[Finding]) -> str | None:
    if len(raw) > limits.max_record_bytes:
        message = f"the text has {len(raw):,} bytes; limits.max_record_bytes is {limits.max_record_bytes:,}"
        findings.append(Finding("E_TOO_LARGE", message))
        return None
    if raw.startswith(_BOM):
        findings.append(Finding("E_BOM", "the text starts with a byte order mark"))
        raw = raw.removeprefix(_BOM)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        message = f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8"
        findings.append(Finding("E_UTF8", message))
        text = None
    if b"\0" in raw:
        findings.append(Finding("E_NUL", f"byte {raw.index(0) + 1} is NUL"))
        text = None
    return text


def _depth(text: str) -> int:
    """Count how deep the brackets nest, without recursion: 100,000 of them must not end the process."""
    if text.count("[") + text.count("{") <= 1:
        return 1
    level = deepest = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        level += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, level)
    return deepest


class _Wrong(Struct, frozen=True):
    """A placeholder in the tree for a number that cannot be held, until the walk knows its place."""

    message: str


class _Pairs(list[tuple[str, Any]]):
    """An object as its keys and values in order, so that a repeated key is detected."""


def _parse_integer(text: str) -> int | _Wrong:
    # Check the length first: Python refuses to convert more than 4,300 digits.
    if len(text) <= 20 and INT64_MIN <= (value := int(text)) <= INT64_MAX:
        return value
    return _Wrong(f"the integer {_trim_text(text)} is past int64")


def _parse_float(text: str) -> float | _Wrong:
    value = float(text)
    return value if math.isfinite(value) else _Wrong(f"the number {_trim_text(text)} is too large for a double")


def _refuse_constant(text: str) -> _Wrong:
    return _Wrong(f"{text} is not a number that JSON has")


def _trim_text(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}... ({len(text):,} characters)"


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
    strict=True,
)


def _parse_text(text: str, findings: list[Finding]) -> Any:
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        findings.append(Finding("E_JSON", f"column {error.pos + 1}: {error.msg[:1].lower()}{error.msg[1:]}"))
        return None
    value = _StrictWalk(findings).clean(value, "")
    if text[end:].strip(_JSON_SPACE):
        findings.append(Finding("E_JSON", f"column {end + 1}: something follows the first JSON value"))
    return value


class _StrictWalk(Struct, frozen=True):
    """A walk that turns a parsed tree into plain values and collects its problems, each with its JSON pointer."""

    findings: list[Finding]

    def clean(self, value: Any, pointer: str) -> Any:
        match value:
            case _Wrong(message=message):
                self.findings.append(Finding("E_NUMBER", message, field=pointer))
                return None
            case str():
                self._check_surrogates(value, pointer)
                return value
            case _Pairs():
                return self._clean_object(value, pointer)
            case list():
                return [self.clean(each, f"{pointer}/{index}") for index, each in enumerate(value)]
            case _:
                return value

    def _clean_object(self, pairs: _Pairs, pointer: str) -> dict[str, Any]:
        for key, times in Counter(key for key, _ in pairs).items():
            place = _extend_pointer(pointer, key)
            self._check_surrogates(key, place)
            if times > 1:
                self.findings.append(Finding("E_DUP_KEY", f"the key {key!r} appears {times} times", field=place))
        return {key: self.clean(value, _extend_pointer(pointer, key)) for key, value in pairs}

    def _check_surrogates(self, text: str, pointer: str) -> None:
        if not text.isascii() and _SURROGATE.search(text):
            self.findings.append(Finding("E_SURROGATE", "the text contains half of a surrogate pair", field=pointer))


def _extend_pointer(parent: str, key: str) -> str:
    # A pointer is printed and encoded, which half a surrogate pair in a key must not break.
    key_text = key.encode("utf-8", "backslashreplace").decode()
    return f"{parent}/{key_text.replace('~', '~0').replace('/', '~1')}"


def _report_non_object(value: Any) -> Finding:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return Finding("E_JSON", f"the text is {names.get(type(value), 'a number')}, not an object")
