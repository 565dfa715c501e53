"""What the caller of a write must know of the fields that were given: nothing here keeps a record from being stored."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from duckkb.engine.base import Base
from duckkb.engine.draft import Draft, Request, Upsert
from duckkb.ontology.model import RecordType
from duckkb.queries import Notice
from duckkb.records import Record, identity_text

_NEAR = 0.75
_MOST_NAMED = 5


def field_notices(base: Base, request: Request, drafted: Draft) -> tuple[Notice, ...]:
    """Nulls that are not stored, names that nearly are those of other fields, and values of another type than so far."""
    if isinstance(request, Upsert):
        return (*_nulls(request), *_misspelt(base, request), *_strange(base, drafted))
    return tuple(_strange(base, drafted))


def _nulls(request: Upsert) -> Iterator[Notice]:
    """A field that is null is a field that is absent. Whoever merges says by null that a field is to go."""
    if request.merge:
        return
    names: dict[str, None] = {}
    records = 0
    for given in request.given:
        if None in given.fields.values():
            records += 1
            names |= dict.fromkeys(name for name, value in given.fields.items() if value is None)
    if records:
        where = identity_text(request.given[0].identity) if len(request.given) == 1 else _counted(records)
        said = f"{request.kind.name} {where}: {_listed(list(names))} given as null, which is not stored: absent is null"
        yield Notice("W_NULL", said, 'leave such fields out, or give "" where an empty text is meant')


def _misspelt(base: Base, request: Upsert) -> Iterator[Notice]:
    """Fields that are new to the type, next to one that it has and the record lacks."""
    kind = request.kind
    declared = {*kind.properties, *kind.identity_fields}
    found: dict[str, str] = {}
    known: set[str] | None = None
    for given in request.given:
        if given.fields.keys() <= declared:
            continue
        if known is None:
            known = declared | _stored(base, kind)
        for name in given.fields.keys() - known - found.keys():
            if near := _near(name, known - given.fields.keys()):
                found[name] = near
    if not found:
        return
    records = [given.identity for given in request.given if not found.keys().isdisjoint(given.fields)]
    where = identity_text(records[0]) if len(records) == 1 else _counted(len(records))
    names = _listed(list(found))
    nears = _listed(list(dict.fromkeys(found.values()))).rpartition(" ")[0]
    said = f"{kind.name} {where}: {names} stored, but so far there is no such field; did you mean {nears}?"
    shown = f"duckkb col show {kind.name}" if kind.is_collection else f"duckkb schema {kind.name}"
    record = "it" if len(records) == 1 else "them"
    yield Notice("W_FIELD", said, f"put {record} again with {nears}, if that is meant; `{shown}` names the fields")


def _stored(base: Base, kind: RecordType) -> set[str]:
    """The fields that records of a type without a schema have."""
    return set(base.observed(kind).types()) if kind.is_collection else set()


def _near(name: str, known: set[str]) -> str:
    """The field that this name is a slip of; `name2` is none of `name1`."""
    folded = {
        re.sub(r"\d+", "0", other.casefold()): other for other in sorted(known) if abs(len(other) - len(name)) < 2
    }
    near = get_close_matches(own := re.sub(r"\d+", "0", name.casefold()), folded, 1, _NEAR)
    return folded[near[0]] if near and (near[0] != own or folded[near[0]].casefold() == name.casefold()) else ""


def _strange(base: Base, drafted: Draft) -> Iterator[Notice]:
    """Values of another type than their field has had, in collections, where no schema forbids them."""
    new: list[Record] = [change.new for change in drafted.changeset.changes if change.new is not None]
    for name in dict.fromkeys(record.type for record in new):
        kind = base.ontology.nodes.get(name)
        if kind is None or not kind.is_collection:
            continue
        found = base.observed(kind).strange(record for record in new if record.type == name)
        for (field, word), (before, record) in found.items():
            said = (
                f"{name} {identity_text(record.identity)}: {field} is {word}, so far it was {before}; stored as it is"
            )
            yield Notice("W_TYPE", said, f"filters compare {field} only with values of one type")


def _counted(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more + (" were" if len(names) > 1 else " was")
