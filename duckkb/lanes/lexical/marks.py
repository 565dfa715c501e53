"""Marks: short texts of a record's fields as terms of a lexical index, so that a condition on them narrows a search at once.

A condition that other records satisfy is then one list of documents to walk along, instead of thousands of results out of
which those of some ids are picked.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.id_set import IdSet
from duckkb.lanes.sql.columns import declared_columns
from duckkb.ontology.model import EVERY, RecordType

_MOST_FIELDS = 16
_LONGEST = 64  # bytes of a text; longer ones are hardly what a condition compares with


def marked_fields(kind: RecordType) -> tuple[str, ...]:
    """The fields of a type whose texts are marks: those that the schema declares to be text, but for the identity and what is
    searched by words or vectors; not more than sixteen."""
    searched = {one.name for one in (*kind.full_text, *kind.vectors)} | set(kind.identity_fields)
    declared = [one.name for one in declared_columns(kind) if one.candidates == ("text",)]
    return tuple(name for name in declared if name not in searched and EVERY not in searched)[:_MOST_FIELDS]


def marks_of(fields: Mapping[str, Any], marked: tuple[str, ...]) -> Iterator[str]:
    """The marks of a record with these fields."""
    for name in marked:
        value = fields.get(name)
        if type(value) is str and (mark := _mark(name, value)):
            yield mark


def marks_for(allowed: IdSet, marked: tuple[str, ...]) -> list[str]:
    """Marks that the records of a set have in common, and no others; none where it is not known by such."""
    found = [_mark(name, value) if name in marked else "" for name, value in allowed.texts]
    return found if all(found) else []


def _mark(name: str, value: str) -> str:
    is_short = len(value) <= _LONGEST and (value.isascii() or len(value.encode()) <= _LONGEST)
    return f"{name}\0{value}" if is_short else ""
