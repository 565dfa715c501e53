"""The codec of truth: one record, one canonical line.

A line is canonical when `encode(decode(line).values) == line`. Reading is fast where that holds: parse, write again,
compare the bytes. Equal bytes prove nothing about order, nulls, ranges, depth, identities and code points that a reviewer
could not see, so those are checked as well; every line in doubt goes to `duckkb.truth.files.strict`.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from duckkb.errors import Finding
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Record
from duckkb.truth.files import strict
from duckkb.truth.files.ids import INT64_MAX, INT64_MIN, MAX_ID, identity_findings, is_time
from duckkb.truth.files.strict import Limits, LineError, LineShape, name_findings

__all__ = [
    "Decoded",
    "Limits",
    "LineError",
    "LineShape",
    "are_canonical",
    "are_compact",
    "decode",
    "encode",
    "etag",
    "parse_json",
    "parse_objects",
    "record_line",
]

# U+007F, U+0085, U+2028, U+2029 and the bidirectional controls, as UTF-8. (orjson escapes the C0 controls itself.)
_GENERAL = re.compile(rb"\xe2\x80[\x8e\x8f\xa8-\xae]")
_ISOLATES = re.compile(rb"\xe2\x81[\xa6-\xa9]")
_UNSEEN = re.compile(b"|".join([rb"\x7f|\xc2\x85|\xd8\x9c", _GENERAL.pattern, _ISOLATES.pattern]))
_NO_TIME = object()
_BLANKS = b" \t"
_TEXTS = {str}


class Decoded(NamedTuple):
    """A line's values without top-level nulls, and whether the line is byte for byte what `encode` makes of them."""

    values: dict[str, Any]
    canonical: bool


def decode(raw: bytes, shape: LineShape, limits: Limits) -> Decoded:
    """One stored line, without its LF. Raises `LineError` with everything that is wrong with it."""
    if len(raw) <= limits.max_record_bytes:
        try:
            values = orjson.loads(raw)
        except orjson.JSONDecodeError:
            values = None
        if type(values) is dict and not _has_unseen(raw) and _is_canonical(raw, values, shape, limits.depth):
            return Decoded(values, True)
    values = strict.parse(raw, shape, limits)
    return Decoded(values, encode(values, shape, limits.depth) == raw)


def are_compact(lines: Sequence[bytes], limits: Limits) -> bool:
    """Whether lines, without their LFs, are for certain JSON as it is written here: each value once, without blanks, and
    nothing unseen in them. All are looked at together, in a third of the time that their records would take."""
    return not lines or _compact(lines, limits) is not None


def are_canonical(lines: Sequence[bytes], shape: LineShape, limits: Limits) -> bool:
    """Whether lines that `encode` wrote are for certain canonical: what `decode` would say of each, in less time than it takes."""
    values, depth = _compact(lines, limits) if lines else [], limits.depth
    return values is not None and all(_is_sound(one, shape, depth) for one in values)


def _compact(lines: Sequence[bytes], limits: Limits) -> list[Any] | None:
    """The values of lines that are JSON as it is written here; None where it is not certain that all are."""
    array = b"[%b]" % b",".join(lines)
    if max(map(len, lines)) > limits.max_record_bytes or _has_unseen(array):
        return None
    try:
        values: list[Any] = orjson.loads(array)
        return values if len(values) == len(lines) and orjson.dumps(values) == array else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None


def encode(values: Mapping[str, Any], shape: LineShape, max_depth: int = strict.HARD_DEPTH) -> bytes:
    """The canonical line, without its LF, of `__id`, the times and the business fields, as far as they are given.

    Top-level nulls are left out. Raises ValueError for what a line cannot hold: a value that JSON has not, a number that
    is not finite or past int64, half of a surrogate pair, more than `max_depth` levels (by default any that a base may allow).
    """
    ordered = {
        name: value if type(value) is str else _held(value, max_depth - 1, name)
        for name in _order(shape.identity, tuple(values))
        if (value := values[name]) is not None
    }
    try:
        # A copy: orjson makes room for eight times as much, and what it gives back behind each line is too short for the next.
        return _escaped(bytes(memoryview(orjson.dumps(ordered))))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the record cannot be written as JSON: {error}") from error


def record_line(record: Record, shape: LineShape, max_depth: int = strict.HARD_DEPTH) -> bytes:
    """The canonical line of a record."""
    values = {ID: record.id, **record.fields, CREATED_AT: record.created_at, UPDATED_AT: record.updated_at}
    return encode(values, shape, max_depth)


def etag(line: bytes) -> str:
    """The version of a record: 16 hex digits of the SHA-256 of its canonical line."""
    return hashlib.sha256(line).hexdigest()[:16]


def parse_json(raw: bytes, limits: Limits) -> Any:
    """One JSON value as a caller gives it, strictly; raises `LineError` with everything that is wrong with it."""
    return strict.parse_value(raw, limits)


def parse_objects(raw: bytes | Iterable[bytes], limits: Limits) -> Iterator[tuple[int, dict[str, Any] | LineError]]:
    """JSON Lines as a caller gives them, whole or as a stream of pieces: the number of each line and its object or error.

    Blank lines are skipped and CR LF is taken for LF; a byte order mark is an error of the first line. A line over the
    limit is an error and never held in memory whole.
    """
    pieces = [raw] if isinstance(raw, bytes) else raw
    for number, line in enumerate(_lines(pieces, limits.max_record_bytes), 1):
        if isinstance(line, LineError):
            yield number, line
        elif stripped := line.strip(b" \t\r"):
            yield number, _object(stripped, limits)


def _is_canonical(raw: bytes, values: dict[str, Any], shape: LineShape, depth: int) -> bool:
    """Whether a line that orjson could read, in which nothing is unseen, is certainly canonical; False also where only the
    strict parser can tell."""
    try:
        same = orjson.dumps(values) == raw
    except orjson.JSONEncodeError:
        return False
    return same and _is_sound(values, shape, depth)


def _is_sound(values: Any, shape: LineShape, depth: int) -> bool:
    """Whether the values of a line that JSON would write again as it is are those of a canonical one."""
    return (
        type(values) is dict
        and _is_orderly(shape.identity, tuple(values))
        and None not in values.values()
        and _are_plain(values.values(), depth - 1)
        and not identity_findings(shape.identity, values, edge=shape.edge)
        and _has_sound_id_and_times(values)
    )


@lru_cache(maxsize=4096)
def _is_orderly(identity: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Right names in the right order. Few sets of names occur in a table, so this is nearly always remembered."""
    is_ordered = list(names) == LineShape(identity).order(names)
    return is_ordered and set(identity) <= set(names) and not name_findings(names)


@lru_cache(maxsize=4096)
def _order(identity: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """The names as a line has them."""
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


def _are_plain(values: Iterable[Any], depth: int, *, in_order: bool = True) -> bool:
    """Nothing that orjson takes but a canonical line has not: integers past int64, floats of another form, keys without
    order (unless that is asked of nobody), more than `depth` levels below."""
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
        elif (
            depth <= 0
            or (in_order and kind is dict and len(value) > 1 and list(value) != sorted(value))
            or not _are_plain(value if kind is list else value.values(), depth - 1, in_order=in_order)
        ):
            return False
    return True


def _has_sound_id_and_times(values: dict[str, Any]) -> bool:
    record_id = values.get(ID, 1)
    if type(record_id) is not int or not 1 <= record_id <= MAX_ID:
        return False
    created_at, updated_at = values.get(CREATED_AT, _NO_TIME), values.get(UPDATED_AT, _NO_TIME)
    return (created_at is _NO_TIME or is_time(created_at)) and (updated_at is _NO_TIME or is_time(updated_at))


def _held(value: Any, depth: int, name: str) -> Any:
    """A value as orjson must write it: nested keys sorted, unusual floats in our form. Raises ValueError naming the field."""
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        return _held_number(value, name)
    if not isinstance(value, (list, tuple, dict, Mapping)):
        raise ValueError(f"{name}: a {type(value).__name__} is not a JSON value")
    if depth <= 0:
        raise ValueError(f"{name}: values are nested too deep")
    if isinstance(value, (dict, Mapping)):
        if {*map(type, value)} != _TEXTS and not all(isinstance(key, str) for key in value):
            raise ValueError(f"{name}: a key that is not text")
        return {key: _held(value[key], depth - 1, name) for key in sorted(value)}
    return [_held(each, depth - 1, name) for each in value]


def _held_number(value: int | float, name: str) -> Any:
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"{name}: an integer past int64")
        return value
    if not math.isfinite(value):
        raise ValueError(f"{name}: {value} is not a finite number")
    return value if _has_common_form(value) else orjson.Fragment(_float_text(value))


def _has_common_form(value: float) -> bool:
    """Whether a float is written without exponent, which all versions of orjson do alike."""
    return value == 0 or 1e-5 <= abs(value) < 1e16


def _float_text(value: float) -> str:
    """A finite float with an exponent, as ryu prints it: the shortest digits that read back, `1e16`, `1.5e-7`.

    orjson 3.12 and older print this; 3.13 writes `1e+16`. Lines must not depend on a library's version.
    """
    digits, exponent = repr(value).split("e")
    return f"{digits}e{int(exponent)}"


def _escaped(dumped: bytes) -> bytes:
    if not _has_unseen(dumped):
        return dumped
    return _UNSEEN.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), dumped)


def _lines(pieces: Iterable[bytes], longest: int) -> Iterator[bytes | LineError]:
    """Lines without LF. Of a line over `longest` bytes no more is kept than it takes to know that."""
    held = b""
    over = False
    for piece in pieces:
        *ended, held = (held + piece).split(b"\n")
        for line in ended:
            yield _too_long(longest) if over or len(line) > longest + 1 else line
            over = False
        if len(held) > longest + 1:
            held, over = b"", True
    if over:
        yield _too_long(longest)
    elif held:
        yield held


def _too_long(longest: int) -> LineError:
    return LineError([Finding("E_TOO_LARGE", f"the line is longer than limits.max_record_bytes ({longest:,})")])


def _object(raw: bytes, limits: Limits) -> dict[str, Any] | LineError:
    """An object that is written back as it was given is sound but for ranges and depth; others are read strictly."""
    try:
        values = orjson.loads(raw) if len(raw) <= limits.max_record_bytes else None
        if type(values) is dict and _are_plain((values,), limits.depth, in_order=False) and _is_as_given(values, raw):
            return values
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
        pass
    try:
        return strict.parse_object(raw, limits)
    except LineError as error:
        return error


def _is_as_given(values: dict[str, Any], raw: bytes) -> bool:
    """Whether a text that orjson could read is, but for blanks, what orjson or `json.dumps` writes of its values.

    Blanks count for nothing here: what is left has the same tokens in the same order on both sides, as a quote or a comma
    stands between any two that could run into each other. So no key was given twice, which would leave fewer of them, and
    no number or text was written in another way.
    """
    written = orjson.dumps(values)
    if written == raw or written.translate(None, _BLANKS) == (bare := raw.translate(None, _BLANKS)):
        return True
    return b"\\u" in raw and json.dumps(values).encode().translate(None, _BLANKS) == bare
