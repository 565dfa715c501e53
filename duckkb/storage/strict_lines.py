"""The slow reader of lines: it accepts exactly what truth may hold, and reports everything that is wrong with
other lines.

`duckkb.storage.line` passes on each doubtful line, and the JSON that callers give.

Computes the identity of a record, the `__id` that follows from it, and its times."""

import hashlib
import json
import math
import re
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct

from duckkb.fast_json import orjson
from duckkb.ontology.model import Generated, RecordType
from duckkb.types.errors import Finding, InvalidRecord
from duckkb.types.records import CREATED_AT, FROM, ID, TO, UPDATED_AT, Identity, component_of, component_value

MAX_ID = 2**53 - 1
# a shared encoder: `json.dumps` with options creates an encoder for each call
_spelled = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_IDENTITY_BYTES = 1024

# Controls, line separators and bidirectional controls could hide or reorder text from a reviewer.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z")


class IdentityError(InvalidRecord):
    """An invalid identity; `findings` names every wrong field."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the record has no usable identity", findings=tuple(findings))


def hash_id(kind: str, table: str, identity: Identity, salt: int = 0) -> int:
    """Return the `__id` of an identity: 53 bits of SHA-256 over `["duckkb/1", kind, table, [components], salt]`,
    never zero.

    `kind` is `node` or `edge`. A salt whose value is zero is skipped.
    """
    return free_id(kind, table, identity, lambda value: False, salt)


def free_id(kind: str, table: str, identity: Identity, taken: Callable[[int], bool], salt: int = 0) -> int:
    """Return the id with the smallest salt, from `salt` on, that is neither zero nor `taken` in the table."""
    while not (value := _digest(kind, table, identity, salt)) or taken(value):
        salt += 1
    return value


def _digest(kind: str, table: str, identity: Identity, salt: int) -> int:
    if len(identity) == 1 and type(identity[0]) is str:  # writes the same bytes in a fifth of the time
        data = orjson.dumps(["duckkb/1", kind, table, identity, salt])
    else:
        parts = ["duckkb/1", kind, table, [component_value(component) for component in identity], salt]
        data = _spelled(parts).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 11


def with_key(fields: dict[str, Any], identity: Sequence[str], generated: Generated | None) -> dict[str, Any]:
    """Add the identity that follows from the fields (`uuid5`) to a record without an identity; otherwise return it
    unchanged.

    >>> from duckkb.ontology.model import Generated
    >>> with_key({"text": "a"}, ["key"], Generated("uuid5", "text", "6ba7b811-9dad-11d1-80b4-00c04fd430c8"))["key"]
    'e1407479-3136-56c0-9908-bb02fb0339e2'
    """
    if generated is None or generated.method != "uuid5" or fields.get(identity[0]) is not None:
        return fields
    text = fields.get(generated.of)
    if not isinstance(text, str) or not text:
        return fields
    namespace = uuid.UUID(generated.namespace) if generated.namespace else uuid.NAMESPACE_OID
    try:
        return fields | {identity[0]: str(uuid.uuid5(namespace, text))}
    except UnicodeEncodeError:  # half of a surrogate pair; reading the line reports it
        return fields


def identity_of(kind: RecordType, fields: Mapping[str, Any]) -> Identity:
    """Return the identity in a record's fields; raises `IdentityError` naming every wrong field."""
    names = kind.identity_fields
    if len(names) == 1 and type(only := fields.get(names[0])) is str and not scalar_problem(only):
        return (only,)
    findings = identity_findings(names, fields, edge=kind.kind == "edge")
    if findings:
        raise IdentityError(findings)
    return tuple(component_of(fields[name]) for name in names)


def identity_findings(names: Sequence[str], fields: Mapping[str, Any], *, edge: bool) -> list[Finding]:
    """Return the problems of the identity fields, a finding (E_IDENTITY) for each wrong field."""
    if len(names) == 1 and type(only := fields.get(names[0])) is str and not scalar_problem(only):
        return []  # the most frequent case among millions
    findings = []
    for name in names:
        problem = _end_problem(fields.get(name)) if edge and name in (FROM, TO) else scalar_problem(fields.get(name))
        if problem:
            findings.append(Finding("E_IDENTITY", f"the identity field {name!r} {problem}", field=f"/{name}"))
    return findings


def _end_problem(value: Any) -> str:
    """Check the end of an edge as `scalar_problem` does; also accept an array of scalars and `{"type", "id"}`."""
    if isinstance(value, Mapping):
        if set(value) != {"type", "id"} or not isinstance(value["type"], str) or isinstance(value["id"], Mapping):
            return 'is an object other than {"type": TYPE, "id": IDENTITY}'
        return scalar_problem(value["type"]) or _end_problem(value["id"])
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(scalar_problem, value)), "") if value else "is an empty array"
    return scalar_problem(value)


def scalar_problem(value: Any) -> str:
    """Return why a value cannot be a component of an identity, as the rest of a sentence; empty if it can.

    A component is an int64 or a string: not empty, NFC, at most 1,024 bytes of UTF-8, without control
    characters, line separators and bidirectional controls.
    """
    if type(value) is int:
        return "" if INT64_MIN <= value <= INT64_MAX else "is an integer past int64"
    if value is None:
        return "is missing"
    if type(value) is not str:
        return f"is {_describe_type(value)}, not a string or an integer"
    if not value:
        return "is empty"
    if value.isascii() and value.isprintable():
        return "" if len(value) <= MAX_IDENTITY_BYTES else _TOO_LONG
    if _UNSEEN.search(value):
        return "contains a control character"
    if not unicodedata.is_normalized("NFC", value):
        return "is not in Unicode's form NFC"
    return "" if len(value.encode()) <= MAX_IDENTITY_BYTES else _TOO_LONG


_TOO_LONG = f"is longer than {MAX_IDENTITY_BYTES:,} bytes"


def _describe_type(value: Any) -> str:
    names = {bool: "a boolean", float: "a number with a fraction or an exponent", list: "an array", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def is_time(value: Any) -> bool:
    """Return whether a value is a canonical time: text of the form `YYYY-MM-DDTHH:MM:SS.ffffffZ` that exists."""
    return type(value) is str and canonical_time(value)


@lru_cache(maxsize=4096)
def canonical_time(text: str) -> bool:
    """Return whether a text is `YYYY-MM-DDTHH:MM:SS.ffffffZ` and an existing time. Cached, because an import has a
    single time.

    >>> canonical_time("2026-02-28T23:59:59.000001Z"), canonical_time("2026-02-30T00:00:00.000000Z")
    (True, False)
    """
    if not _TIME.fullmatch(text):
        return False
    try:
        _parse_moment(text)
    except ValueError:
        return False
    return True


def day_of(created_at: str) -> str:
    """Return the UTC day of a canonical time in the form of a folder's name.

    >>> day_of("2026-01-31T23:59:59.000001Z")
    '20260131'
    """
    return created_at[:4] + created_at[5:7] + created_at[8:10]


def day_start(day: str) -> str:
    """Return the first moment of a day folder's day.

    >>> day_start("20260131")
    '2026-01-31T00:00:00.000000Z'
    """
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00.000000Z"


def next_time(now: str, old: str) -> str:
    """Return the `__updated_at` of a change: `now`, but at least one microsecond after `old`, so that no clock
    goes backwards.

    The last microsecond of the year 9999 stays as it is.

    >>> next_time("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.999999Z")
    '2026-01-01T00:00:01.000000Z'
    """
    try:
        after = _parse_moment(old) + timedelta(microseconds=1)
    except OverflowError:
        return old
    return max(now, after.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))


def _parse_moment(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)


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


_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
    strict=True,
)


def _parse_text(text: str, findings: list[Finding]) -> Any:
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    try:
        value, end = _STRICT_DECODER.raw_decode(text, start)
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
