"""The codec of truth: converts a record to a canonical line and back.

A line is canonical when `encode(decode(line).values) == line`. Reading is fast for canonical lines: parse,
write again, compare the bytes. Equal bytes prove nothing about order, nulls, ranges, depth, identities and code
points that a reviewer could not see, so those are checked as well; every doubtful line goes to
`duckkb.storage.strict_lines`.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from duckkb.fast_json import orjson
from duckkb.storage import strict_lines
from duckkb.storage.strict_lines import (
    INT64_MAX,
    INT64_MIN,
    MAX_ID,
    Limits,
    LineError,
    LineShape,
    identity_findings,
    is_time,
    name_findings,
)
from duckkb.types.errors import Finding
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, Record

__all__ = [
    "Decoded",
    "Limits",
    "LineError",
    "LineShape",
    "are_compact",
    "canonical_values",
    "decode",
    "decode_all",
    "encode",
    "etag",
    "parse_json",
    "parse_objects",
    "record_line",
    "record_lines",
]

# U+007F, U+0085, U+2028, U+2029 and the bidirectional controls, as UTF-8. (orjson escapes the C0 controls itself.)
_GENERAL = re.compile(rb"\xe2\x80[\x8e\x8f\xa8-\xae]")
_ISOLATES = re.compile(rb"\xe2\x81[\xa6-\xa9]")
_UNSEEN = re.compile(b"|".join([rb"\x7f|\xc2\x85|\xd8\x9c", _GENERAL.pattern, _ISOLATES.pattern]))
_NO_TIME = object()
_BLANKS = b" \t"
_TEXTS = {str}
_BETWEEN = os.urandom(16).hex()
"""The separator of lines that are read together. It is unpredictable, so no line can contain it."""
_TOGETHER, _TOGETHER_BYTES = 1_000, 1 << 20
"""The most lines that are read together, and the most bytes."""


class Decoded(NamedTuple):
    """A line's values without top-level nulls, and whether the line equals what `encode` makes of them, byte for
    byte.
    """

    values: dict[str, Any]
    canonical: bool


def decode(raw: bytes, shape: LineShape, limits: Limits) -> Decoded:
    """Decode a stored line without its LF. Raises `LineError` with everything that is wrong with it."""
    if len(raw) <= limits.max_record_bytes:
        try:
            values = orjson.loads(raw)
        except orjson.JSONDecodeError:
            values = None
        if type(values) is dict and not _has_unseen(raw) and _is_canonical(raw, values, shape, limits.depth):
            return Decoded(values, True)
    values = strict_lines.parse(raw, shape, limits)
    return Decoded(values, encode(values, shape, limits.depth) == raw)


def are_compact(lines: Sequence[bytes], limits: Limits) -> bool:
    """Return whether lines, without their LFs, are certainly JSON as written here: each a single value, without
    blanks or invisible characters. Checks all lines together, in a third of the time that decoding them would
    take.
    """
    return _compact(lines, limits) is not None


def canonical_values(lines: Sequence[bytes], shape: LineShape, limits: Limits) -> list[dict[str, Any]] | None:
    """Return the values of canonical lines, without their LFs, as `decode` does, but faster. Returns None unless
    all lines are certainly canonical.
    """
    values, depth = _compact(lines, limits), limits.depth
    return (
        values if values is not None and all(_is_sound(line_values, shape, depth) for line_values in values) else None
    )


def decode_all(lines: Sequence[bytes], shape: LineShape, limits: Limits) -> Iterator[Decoded | LineError]:
    """Yield for each line what `decode` returns or raises."""
    for some in _split_slabs(lines):
        values = canonical_values(some, shape, limits)
        if values is not None:
            yield from (Decoded(line_values, True) for line_values in values)
            continue
        for line in some:
            try:
                yield decode(line, shape, limits)
            except LineError as error:
                yield error


def _split_slabs(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split lines into groups to be checked together, because checking takes several times their memory."""
    start = size = 0
    for at, line in enumerate(lines):
        size += len(line)
        if size >= _TOGETHER_BYTES or at - start >= _TOGETHER:
            yield lines[start : at + 1]
            start, size = at + 1, 0
    if start < len(lines):
        yield lines[start:]


def _compact(lines: Sequence[bytes], limits: Limits) -> list[Any] | None:
    """Return the values of lines that are JSON as written here; None unless that is certain of all."""
    if not lines:
        return []
    try:
        text, values = _parse_together(lines, limits)
        return values[::2] if orjson.dumps(values) == text and not _has_unseen(text) else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, _Uncertain):
        return None


class _Uncertain(Exception):
    """Parsing lines together cannot tell whether each of them is a single value."""


def _parse_together(lines: Sequence[bytes], limits: Limits) -> tuple[bytes, list[Any]]:
    """Join lines to a text and parse it; return both. `_BETWEEN` stands between the values of any two lines. Lines
    that are values only together do not pass: the separators would not be values. Raises `_Uncertain`, and what
    orjson raises.
    """
    if not lines or max(map(len, lines)) > limits.max_record_bytes:
        raise _Uncertain
    text = b"[%b]" % (b',"%b",' % _BETWEEN.encode()).join(lines)
    values: list[Any] = orjson.loads(text)
    if len(values) != 2 * len(lines) - 1 or values[1::2] != [_BETWEEN] * (len(lines) - 1):
        raise _Uncertain
    return text, values


def encode(values: Mapping[str, Any], shape: LineShape, max_depth: int = strict_lines.HARD_DEPTH) -> bytes:
    """Return the canonical line, without its LF, of the given `__id`, times and business fields.

    Top-level nulls are left out. Raises ValueError for values that a line cannot hold: a non-JSON value, a
    number that is not finite or past int64, half of a surrogate pair, more than `max_depth` levels (by default
    the most that any base allows).
    """
    fields = {
        name: value if type(value) is str else _normalize_value(value, max_depth - 1, name)
        for name in _order(shape.identity, tuple(values))
        if (value := values[name]) is not None
    }
    try:
        # A copy: orjson makes room for eight times as much, and what it gives back behind each line is too short for the next.
        return _escape_controls(bytes(memoryview(orjson.dumps(fields))))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the record cannot be written as JSON: {error}") from error


def record_line(record: Record, shape: LineShape, max_depth: int = strict_lines.HARD_DEPTH) -> bytes:
    """Return the canonical line of a record."""
    values = {ID: record.id, **record.fields, CREATED_AT: record.created_at, UPDATED_AT: record.updated_at}
    return encode(values, shape, max_depth)


def record_lines(records: Sequence[Record], shape: LineShape, limits: Limits) -> list[bytes] | None:
    """Return the canonical lines of records, encoded and decoded together, as `record_line` and `decode` would.
    Returns None if a value is invalid or orjson writes it differently; then the caller encodes records
    separately.
    """
    values = [_arrange_fields(record, shape.identity) for record in records]
    try:
        if not all(_has_plain_values(fields.values(), limits.depth - 1) for fields in values):
            return None
        # Copies: orjson makes room for eight times as much, and what it gives back behind each line is too short for the next.
        lines = [bytes(memoryview(orjson.dumps(fields))) for fields in values]
    except TypeError:  # keys that are not texts, half a character
        return None
    are_canonical = all(canonical_values(some, shape, limits) is not None for some in _split_slabs(lines))
    return lines if are_canonical else None


def _arrange_fields(record: Record, identity: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a record's line in their order."""
    values = {ID: record.id, **record.fields, CREATED_AT: record.created_at, UPDATED_AT: record.updated_at}
    names, values_of = _order_of_all(identity, tuple(values))
    return dict(zip(names, values_of(values), strict=True))


@lru_cache(maxsize=4096)
def _order_of_all(
    identity: tuple[str, ...], names: tuple[str, ...]
) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    """Return the names in a whole record's line, at least three, in order, and a function that takes their values."""
    ordered_names = _order(identity, names)
    return ordered_names, itemgetter(*ordered_names)


def etag(line: bytes) -> str:
    """Return the version of a record: 16 hex digits of the SHA-256 of its canonical line."""
    return hashlib.sha256(line).hexdigest()[:16]


def parse_json(raw: bytes, limits: Limits) -> Any:
    """Parse a JSON value of a caller strictly; raises `LineError` with everything that is wrong with it."""
    return strict_lines.parse_value(raw, limits)


def parse_objects(raw: bytes | Iterable[bytes], limits: Limits) -> Iterator[tuple[int, dict[str, Any] | LineError]]:
    """Parse JSON Lines of a caller, whole or as a stream of pieces; yield the number of each line and its object
    or error.

    Blank lines are skipped and CR LF is taken for LF; a byte order mark is an error of the first line. A line
    over the limit is an error and never held in memory whole.
    """
    pieces = [raw] if isinstance(raw, bytes) else raw
    some: list[tuple[int, bytes | LineError]] = []
    size = 0
    for number, line in enumerate(_split_lines(pieces, limits.max_record_bytes), 1):
        if isinstance(line, LineError):
            some.append((number, line))
        elif content := line.strip(b" \t\r"):
            some.append((number, content))
            size += len(content)
        if len(some) >= _TOGETHER or size >= _TOGETHER_BYTES:
            yield from _read_objects(some, limits)
            some, size = [], 0
    yield from _read_objects(some, limits)


def _is_canonical(raw: bytes, values: dict[str, Any], shape: LineShape, depth: int) -> bool:
    """Return whether a line that orjson could read, without invisible characters, is certainly canonical; False
    also if only the strict parser can tell.
    """
    try:
        same = orjson.dumps(values) == raw
    except orjson.JSONEncodeError:
        return False
    return same and _is_sound(values, shape, depth)


def _is_sound(values: Any, shape: LineShape, depth: int) -> bool:
    """Return whether the values of a line that round-trips as JSON are those of a canonical line."""
    return (
        type(values) is dict
        and _is_orderly(shape.identity, tuple(values))
        and None not in values.values()
        and _has_plain_values(values.values(), depth - 1)
        and not identity_findings(shape.identity, values, edge=shape.edge)
        and _has_sound_id_and_times(values)
    )


@lru_cache(maxsize=4096)
def _is_orderly(identity: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Return whether the names are valid and in order. Cached, because a table has few sets of names."""
    is_in_order = list(names) == LineShape(identity).order(names)
    return is_in_order and set(identity) <= set(names) and not name_findings(names)


@lru_cache(maxsize=4096)
def _order(identity: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return the names in the order of a line."""
    return LineShape(identity).order(names)


def _has_unseen(raw: bytes) -> bool:
    if raw.isascii():
        return b"\x7f" in raw
    # Looking for single bytes first is far faster than a pattern, and most lines have none of them. Curly quotes are
    # frequent and start like the controls, so the patterns have as long a literal beginning as they can.
    return (
        b"\x7f" in raw
        or (b"\xc2" in raw and b"\xc2\x85" in raw)
        or (b"\xd8" in raw and b"\xd8\x9c" in raw)
        or (b"\xe2" in raw and (_GENERAL.search(raw) is not None or _ISOLATES.search(raw) is not None))
    )


def _has_plain_values(values: Iterable[Any], depth: int, *, in_order: bool = True) -> bool:
    """Return whether values have nothing that orjson accepts but a canonical line forbids: integers past int64,
    floats of another form, unsorted keys (unless `in_order` is False), more than `depth` levels below.
    """
    for value in values:
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is int:
            if not INT64_MIN <= value <= INT64_MAX:
                return False
        elif kind is float:
            if not _has_common_form(value):
                return False
        elif kind is dict:
            if depth <= 0 or (in_order and len(value) > 1 and list(value) != sorted(value)):
                return False
            if not _has_plain_values(value.values(), depth - 1, in_order=in_order):
                return False
        elif kind is not list or depth <= 0 or not _has_plain_values(value, depth - 1, in_order=in_order):
            return False
    return True


def _has_sound_id_and_times(values: dict[str, Any]) -> bool:
    record_id = values.get(ID, 1)
    return (
        type(record_id) is int
        and 1 <= record_id <= MAX_ID
        and ((created_at := values.get(CREATED_AT, _NO_TIME)) is _NO_TIME or is_time(created_at))
        and (
            (updated_at := values.get(UPDATED_AT, _NO_TIME)) is _NO_TIME
            or updated_at == created_at
            or is_time(updated_at)
        )
    )


def _normalize_value(value: Any, depth: int, name: str) -> Any:
    """Return a value as orjson must write it: nested keys sorted, unusual floats in canonical form. Raises
    ValueError naming the field.
    """
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        return _normalize_number(value, name)
    if not isinstance(value, (list, tuple, dict, Mapping)):
        raise ValueError(f"{name}: a {type(value).__name__} is not a JSON value")
    if depth <= 0:
        raise ValueError(f"{name}: values are nested too deep")
    if isinstance(value, (dict, Mapping)):
        if {*map(type, value)} != _TEXTS and not all(isinstance(key, str) for key in value):
            raise ValueError(f"{name}: a key that is not text")
        return {key: _normalize_value(value[key], depth - 1, name) for key in sorted(value)}
    return [_normalize_value(each, depth - 1, name) for each in value]


def _normalize_number(value: int | float, name: str) -> Any:
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{name}: an integer past int64")
        return value
    if not math.isfinite(value):
        raise ValueError(f"{name}: {value} is not a finite number")
    return value if _has_common_form(value) else orjson.Fragment(_format_float(value))


def _has_common_form(value: float) -> bool:
    """Return whether a float is written without exponent, which all versions of orjson do alike."""
    return value == 0 or 1e-5 <= abs(value) < 1e16


def _format_float(value: float) -> str:
    """Format a finite float with an exponent as ryu does: the shortest digits that read back, `1e16`, `1.5e-7`.

    orjson 3.12 and older print this; 3.13 writes `1e+16`. Lines must not depend on a library's version.
    """
    digits, exponent = repr(value).split("e")
    return f"{digits}e{int(exponent)}"


def _escape_controls(data: bytes) -> bytes:
    if not _has_unseen(data):
        return data
    return _UNSEEN.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), data)


def _split_lines(pieces: Iterable[bytes], longest: int) -> Iterator[bytes | LineError]:
    """Yield lines without LF. Of a line over `longest` bytes it keeps only what proves the excess."""
    buffer = b""
    over = False
    for piece in pieces:
        *whole_lines, buffer = (buffer + piece).split(b"\n")
        for line in whole_lines:
            yield _build_length_error(longest) if over or len(line) > longest + 1 else line
            over = False
        if len(buffer) > longest + 1:
            buffer, over = b"", True
    if over:
        yield _build_length_error(longest)
    elif buffer:
        yield buffer


def _build_length_error(longest: int) -> LineError:
    return LineError([Finding("E_TOO_LARGE", f"the line is longer than limits.max_record_bytes ({longest:,})")])


def _read_objects(
    lines: Sequence[tuple[int, bytes | LineError]], limits: Limits
) -> Iterator[tuple[int, dict[str, Any] | LineError]]:
    raw = [line for _, line in lines if not isinstance(line, LineError)]
    together = _parse_batch(raw, limits)
    objects = iter((_parse_object(line, limits) for line in raw) if together is None else together)
    return ((number, line if isinstance(line, LineError) else next(objects)) for number, line in lines)


def _parse_batch(lines: Sequence[bytes], limits: Limits) -> list[dict[str, Any]] | None:
    """Return the objects of lines that all round-trip exactly, parsed together; None unless that is certain."""
    try:
        text, values = _parse_together(lines, limits)
        objects = values[::2]
        if {*map(type, objects)} != {dict} or not _has_plain_values(objects, limits.depth, in_order=False):
            return None
        return objects if _is_round_trip(values, text) else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError, _Uncertain):
        return None


def _parse_object(raw: bytes, limits: Limits) -> dict[str, Any] | LineError:
    """Parse an object. An object that round-trips exactly needs only checks of ranges and depth; others are parsed
    strictly.
    """
    try:
        values = orjson.loads(raw) if len(raw) <= limits.max_record_bytes else None
        if (
            type(values) is dict
            and _has_plain_values((values,), limits.depth, in_order=False)
            and _is_round_trip(values, raw)
        ):
            return values
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
        pass
    try:
        return strict_lines.parse_object(raw, limits)
    except LineError as error:
        return error


def _is_round_trip(values: Any, raw: bytes) -> bool:
    """Return whether a text that orjson could read equals, apart from blanks, what orjson or `json.dumps` writes
    of its values.

    Blanks do not matter here: the rest has the same tokens in the same order on both sides, because a quote or
    a comma separates any two that could run together. So no key is repeated, which would leave fewer of them,
    and no number or text was written in another way.
    """
    dump = orjson.dumps(values)
    if dump == raw or dump.translate(None, _BLANKS) == (bare := raw.translate(None, _BLANKS)):
        return True
    return b"\\u" in raw and json.dumps(values).encode().translate(None, _BLANKS) == bare
