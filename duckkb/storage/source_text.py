"""Reads a record as source text: splits a line into its fields, unconverted, and joins fields to a line.

Values are copied, never formatted anew, so that numbers and texts stay as they are. It needs only the standard
library: git starts a merge once per file.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_ID, _CREATED_AT, _UPDATED_AT = "__id", "__created_at", "__updated_at"
_HEAD = re.compile(rb'\{"__id":([1-9][0-9]{0,15})[,}]')
_SPACE = re.compile(r"[ \t\n\r]*")

# Only the extent of a value is needed; numbers stay text, because Python refuses to convert very long ones.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
_SCAN: Callable[[str, int], tuple[Any, int]] = vars(_DECODER)["scan_once"]


Field = tuple[str, str]
"""A key and a value, both as source text."""


def split(line: bytes) -> dict[str, Field]:
    """Return the fields of an object by name, each as the source text of its key and of its value.

    >>> split(b'{"a":1.50,"b":[1, 2]}')
    {'a': ('"a"', '1.50'), 'b': ('"b"', '[1, 2]')}
    """
    text = line.decode()
    if (compact := _split_compact(text)) is not None:
        return compact
    fields: dict[str, Field] = {}
    at = _skip_mark(text, _skip(text, 0), "{")
    if text[at : at + 1] != "}":
        while True:
            name, end = _read(text, at)
            start = _skip_mark(text, _skip(text, end), ":")
            stop = _read(text, start)[1]
            if text[at] != '"' or name in fields:
                raise ValueError(f"the key {name!r} is not a text, or appears twice")
            fields[name] = (text[at:end], text[start:stop])
            at = _skip(text, stop)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
    if text[_skip(text, _skip_mark(text, at, "}")) :]:
        raise ValueError("something follows the object")
    return fields


def elements(text: str) -> list[str] | None:
    """Return the elements of an array as source text, None for another value."""
    if not text.startswith("["):
        return None
    items = []
    at = _skip(text, 1)
    while text[at] != "]":
        end = _read(text, at)[1]
        items.append(text[at:end])
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return items


def join(fields: Mapping[str, Field], identity: Sequence[str]) -> bytes:
    """Join fields, as `split` returns them, to a line in canonical order."""
    business_names = sorted(fields.keys() - {_ID, *identity, _CREATED_AT, _UPDATED_AT})
    names = [_ID, *identity, *business_names, _CREATED_AT, _UPDATED_AT]
    body = ",".join(f"{fields[name][0]}:{fields[name][1]}" for name in names if name in fields)
    return f"{{{body}}}".encode()


def merge_duplicates(lines: Sequence[bytes], identity: Sequence[str]) -> bytes:
    """Merge several lines of the same record, in any order, to a single line.

    If a field differs, the line with the latest `__updated_at` that has the field wins (equal times: the
    greater bytes). Names that differ only in case are the same field, because no line may have both. `__id` and
    `__created_at` are the smallest, `__updated_at` the latest.
    """
    versions = sorted(
        ((split(line), line) for line in lines), key=lambda each: (text_of(each[0], _UPDATED_AT), each[1])
    )
    fields: dict[str, Field] = {}
    spelling: dict[str, str] = {}
    for version, _ in versions:
        for name, field_text in version.items():
            fields.pop(spelling.get(name.casefold(), name), None)
            spelling[name.casefold()] = name
            fields[name] = field_text
    for name in (_ID, _CREATED_AT):
        values = [version[name] for version, _ in versions if name in version]
        if values:
            fields[name] = min(values, key=lambda each: (len(each[1]), each[1]))
    return join(fields, identity)


def id_of(line: bytes) -> str:
    """Return the `__id` of a line as source text; empty if it has none or is not a record."""
    if (match := _HEAD.match(line)) is not None:
        return match[1].decode()
    try:
        return split(line).get(_ID, ("", ""))[1] if line.startswith(b"{") else ""
    except ValueError:
        return ""


def text_of(fields: Mapping[str, Field], name: str) -> str:
    """Return the source text of a value; empty if there is none."""
    return fields[name][1] if name in fields else ""


def _split_compact(text: str) -> dict[str, Field] | None:
    """Split an object without blanks around its keys and values, several times as fast as `split`; None for any
    other.
    """
    fields: dict[str, Field] = {}
    at, stop = 1, 0
    try:
        while text[stop] == (",{"[stop == 0]):
            name, end = _SCAN(text, at)
            stop = _SCAN(text, end + 1)[1]
            if text[at] != '"' or text[end] != ":" or name in fields:
                return None
            fields[name] = (text[at:end], text[end + 1 : stop])
            at = stop + 1
    except (StopIteration, IndexError, ValueError, RecursionError):
        return None
    return fields if text[stop:] == "}" else None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _skip_mark(text: str, at: int, mark: str) -> int:
    """Return the place after a required mark and the space that follows it."""
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} expected at column {at + 1}")
    return _skip(text, at + 1)


def _read(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value that starts here, and the place after it."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise ValueError("values are nested too deep") from error
