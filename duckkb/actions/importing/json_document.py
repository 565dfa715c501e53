"""Reading of a JSON document with records: an array of them, or an object that contains such an array."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckkb.actions.importing.field_map import KeyCandidates
from duckkb.actions.importing.request import ImportRequest
from duckkb.errors import Finding, UsageError
from duckkb.truth.files.line import Limits, LineError, parse_json

_BLANKS = re.compile(r"[ \t\r\n]*")
_ENDS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""A decoder that finds the end of a value; numbers are parsed later."""
_DEEPEST = 3  # levels searched for arrays of records

Element = tuple[int, Mapping[str, Any] | LineError]
"""The line at which a value begins, and the value."""


def read_document(
    name: str, text: str, request: ImportRequest, limits: Limits, identity: Sequence[str] = ()
) -> Iterator[Element]:
    """Yield the records of a document: the elements of the array at `request.records`, or of the document itself.

    The object itself is the record where it contains no array of objects, has the fields of an `identity`, or
    the path is `.`. Raises `errors.UsageError` where the path leads nowhere or is missing.
    """
    try:
        at = _find_position(text, 0)
        steps = [] if request.records in (None, "", ".") else str(request.records).split(".")
        for step in steps:
            at = dict(_iter_members(text, at)).get(step, -1) if text[at : at + 1] == "{" else -1
            if at < 0:
                raise _report_missing_array(text, request, identity, f"{name} has no {request.records!r}")
        if text[at : at + 1] == "[":
            yield from _iter_elements(text, at, limits)
        elif request.records is None and not _is_record(text, at, identity) and _find_arrays(text):
            raise _report_missing_array(
                text, request, identity, f"{name} is one JSON object; give the path of its records"
            )
        else:
            yield _read_element(text, at, 1 + text.count("\n", 0, at), limits)[0]
            _refuse_more(text, at, steps)
    except json.JSONDecodeError as error:
        yield (
            error.lineno,
            LineError([Finding("E_JSON", f"column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}")]),
        )
    except RecursionError:
        yield 1, LineError([Finding("E_DEPTH", "values are nested too deep")])


def _iter_elements(text: str, at: int, limits: Limits) -> Iterator[Element]:
    line = 1 + text.count("\n", 0, at)
    before, at = at, _find_position(text, at + 1)
    while text[at : at + 1] != "]":
        line += text.count("\n", before, at)
        element, end = _read_element(text, at, line, limits)
        yield element
        before, at = at, _find_position(text, end)
        if text[at : at + 1] == ",":
            at = _find_position(text, at + 1)
            if text[at : at + 1] == "]":
                raise json.JSONDecodeError("A comma before the end of the array", text, at)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _read_element(text: str, at: int, line: int, limits: Limits) -> tuple[Element, int]:
    """Parse a value strictly, and return it with its end."""
    _, end = _ENDS.raw_decode(text, at)
    raw = text[at:end].encode("utf-8", "surrogatepass")
    try:
        value = parse_json(raw, limits)
    except LineError as error:
        return (line, error), end
    if isinstance(value, dict):
        return (line, value), end
    return (line, LineError([Finding("E_JSON", "the element of the array is not an object")])), end


def _iter_members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of an object with the places of their values."""
    at = _find_position(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, end = _ENDS.raw_decode(text, at)
        at = _find_position(text, end)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _find_position(text, at + 1)
        yield key, at
        _, end = _ENDS.raw_decode(text, at)
        at = _find_position(text, end)
        if text[at : at + 1] == ",":
            at = _find_position(text, at + 1)
        elif text[at : at + 1] != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _is_record(text: str, at: int, identity: Sequence[str]) -> bool:
    """Return whether an object has the identity's fields, so that it is a record and not a document of records."""
    heads = {name.partition(".")[0] for name in identity}
    return bool(heads) and text[at : at + 1] == "{" and heads <= dict(_iter_members(text, at)).keys()


def _find_position(text: str, at: int) -> int:
    """Return the place of the next value or sign."""
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _refuse_more(text: str, at: int, steps: list[str]) -> None:
    if not steps:
        _, end = _ENDS.raw_decode(text, at)
        if (more := _find_position(text, end)) < len(text):
            raise json.JSONDecodeError("Something follows the JSON value", text, more)


def _find_arrays(text: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the arrays of objects in a document by their paths; numbers are texts."""
    arrays: dict[str, list[Mapping[str, Any]]] = {}

    def look(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            arrays[".".join(path)] = value
        elif isinstance(value, dict) and len(path) < _DEEPEST:
            for key, inner in value.items():
                look(inner, (*path, key))

    look(_ENDS.raw_decode(text, _find_position(text, 0))[0], ())
    return arrays


def _report_missing_array(text: str, request: ImportRequest, identity: Sequence[str], message: str) -> UsageError:
    """Return the error with the command that names the longest array.

    It also names the field that identifies its records, where these lack the `identity`.
    """
    arrays = sorted(_find_arrays(text).items(), key=lambda item: -len(item[1]))
    array_list = ", ".join(f"{path or '.'} ({len(records):,} records)" for path, records in arrays[:5])
    changes: dict[str, Any] = {"records": arrays[0][0] or "." if arrays else "."}
    if arrays and not request.id_fields and len(identity) == 1 and (key := _find_key(arrays[0][1], identity[0])):
        changes["id_fields"] = (key,)
    return UsageError(f"{message}{f': {array_list}' if array_list else ''}", suggestion=request.command(**changes))


def _find_key(records: Sequence[Mapping[str, Any]], identity: str) -> str:
    """Return the field that tells records apart; empty where there is none, or some records have the identity."""
    keys = KeyCandidates()
    for record in records:
        if identity.partition(".")[0] in record:
            return ""
        keys.note(record)
    return keys.best()
