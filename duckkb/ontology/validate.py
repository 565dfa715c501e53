"""Checks whether a record's fields fit its type, and explains why not.

Two validators share the work: a fast one decides, a slow one explains (`reasons`). The slow one uses the fast
one's patterns and formats, so the two agree there. Where they still differ, the decision stands and the fast
one's own words are used.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.identity import coerce, coerce_ends, fits
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.names import did_you_mean
from duckkb.ontology.reasons import MOST, Reasons
from duckkb.ontology.rules import show_value
from duckkb.ontology.schema import pattern_options, refuse_remote
from duckkb.ontology.source import pointer
from duckkb.records import FROM, TO, Identity, TypedEnd, component_of


class Validator:
    """A check of records of one type against its schema; compiled at the first use, then kept."""

    def __init__(self, kind: RecordType, ontology: Ontology) -> None:
        self.kind = kind
        self._ontology = ontology

    def is_valid(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the fields fit; an edge's `from` and `to` by their own rule, the rest by the schema."""
        schema_fields = self._select_schema_fields(fields)
        return (
            self._is_schema_valid(schema_fields)
            and not any(self._end_problems(fields))
            and not any(self._iter_vector_problems(schema_fields))
        )

    def findings(self, fields: Mapping[str, Any]) -> list[Finding]:
        """Return what does not fit: `E_SCHEMA` with a JSON pointer each; empty exactly where `is_valid` is true."""
        schema_fields = self._select_schema_fields(fields)
        problems = [] if self._is_schema_valid(schema_fields) else self._list_problems(schema_fields)
        if schema_fields is fields and not problems and not self.kind.given_vectors:
            return []  # the fields of a node, the common case
        problems += self._end_problems(fields)
        problems += self._iter_vector_problems(schema_fields)
        return [Finding("E_SCHEMA", message, field=place, type=self.kind.name) for place, message in problems]

    def coerce_identity(self, values: Any) -> Identity:
        """Return the identity that a caller's value names; raises `errors.UsageError` (`E_INVALID`)."""
        return coerce(self.kind, self._ontology, values)

    def coerce_ends(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with an edge's ends in the form that files have; a node's fields are unchanged."""
        return coerce_ends(self.kind, self._ontology, fields)

    def _select_schema_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the type's schema describes."""
        if isinstance(self.kind, EdgeType):
            return {name: value for name, value in fields.items() if name not in (FROM, TO)}
        return fields if isinstance(fields, dict) else dict(fields)

    def _is_schema_valid(self, schema_fields: dict[str, Any]) -> bool:
        try:
            return bool(self._fast.is_valid(schema_fields))
        except ValueError:
            # A value that JSON does not have, such as a date, or text that is not Unicode.
            return False

    def _list_problems(self, schema_fields: dict[str, Any]) -> list[tuple[str, str]]:
        return list(islice(foreign(schema_fields, ""), MOST)) or self._reasons.list_reasons(schema_fields)

    def _end_problems(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if isinstance(self.kind, EdgeType):
            for key, names in ((FROM, self.kind.from_types), (TO, self.kind.to_types)):
                problem = self._end_problem(fields.get(key), names)
                if problem:
                    yield pointer(key), problem

    def _iter_vector_problems(self, schema_fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, field in self.kind.given_vectors.items():
            problem = (
                vector_problem(schema_fields[name], field.dimension) if schema_fields.get(name) is not None else ""
            )
            if problem:
                yield pointer(name), f"{problem} (rule: vector)"

    def _end_problem(self, value: Any, names: tuple[str, ...]) -> str | None:
        if value is None:
            return "is required: the identity of a record (rule: end)"
        try:
            component = component_of(value)
        except ValueError as error:
            return f"{error} (rule: end)"
        type_names = names
        if isinstance(component, TypedEnd):
            if component.type not in names:
                hint = did_you_mean(component.type, names)
                return f"type {show_value(component.type)} is not among {', '.join(names)}; {hint or 'see the ontology'} (rule: end)"
            type_names, component = (component.type,), component.id
            component = component if len(component) > 1 else component[0]
        if any(fits(self._ontology.nodes[name], component) for name in type_names):
            return None
        return f"{show_value(value)} cannot name a {' or '.join(type_names)} (rule: end)"

    @cached_property
    def _fast(self) -> Any:
        import jsonschema_rs

        return jsonschema_rs.Draft202012Validator(
            dict(self.kind.schema),
            validate_formats=True,
            retriever=refuse_remote,
            pattern_options=pattern_options(),
            mask="the value",
        )

    @cached_property
    def _reasons(self) -> Reasons:
        return Reasons(self.kind.schema)


def foreign(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the pointers of values that JSON does not have, with a message each."""
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    yield place, f"the key {key!r} is not text (rule: JSON)"
                elif not _is_unicode(key):
                    yield place, f"the key {key!r} holds a lone surrogate (rule: JSON)"
                else:
                    yield from foreign(item, place + pointer(key))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from foreign(item, place + pointer(index))
        case str():
            if not _is_unicode(value):
                yield place, "holds a lone surrogate (rule: JSON)"
        case float():
            if not math.isfinite(value):
                yield place, "is not a finite number (rule: JSON)"
        case None | bool() | int():
            return
        case _:
            yield place, f"is a {type(value).__name__}, which JSON does not have (rule: JSON)"


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


LONGEST = 16_384
_HEX = re.compile(r"[0-9a-fA-F]{8}")


def vector_problem(value: Any, dimension: int | None) -> str:
    """Return why a value is no vector, as the rest of a sentence; empty where it is one.

    A vector is an array of 1 to 16,384 finite numbers, or of as many texts of 8 hex digits (float32,
    big-endian, as `duckkb embed` prints them). It has the length `dimension` where that is given, and is not
    all zero.
    """
    if not isinstance(value, list) or not value:
        return "is not an array of numbers"
    if len(value) > LONGEST:
        return f"has {len(value):,} numbers, more than {LONGEST:,}"
    if dimension and len(value) != dimension:
        return f"has {len(value)} numbers, not {dimension}"
    is_hex = isinstance(value[0], str)
    for at, item in enumerate(value):
        if problem := _check_hex(item) if is_hex else _check_number(item):
            return f"{problem} at place {at}"
    if all(int(item, 16) & 0x7FFFFFFF == 0 for item in value) if is_hex else not any(value):
        return "is all zeros, which points nowhere"
    return ""


def _check_number(value: Any) -> str:
    if type(value) not in (int, float):
        return "has something other than a number"
    if not math.isfinite(value) or abs(value) > 3.4e38:
        return "has a number that float32 cannot hold"
    return ""


def _check_hex(value: Any) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return "has something other than 8 hex digits"
    (number,) = struct.unpack(">f", bytes.fromhex(value))
    return "" if math.isfinite(number) else "has a number that is not finite"
