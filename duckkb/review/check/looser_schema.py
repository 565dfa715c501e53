"""Finds where a newer JSON Schema accepts records that the older one refused.

Both are brought into normal form, so that another spelling of the same rule is no loss. Then values at their
borders are checked against both: a record that only the newer one accepts is a loss, wherever it comes from.
Where the forms differ, a weaker part counts unless the newer schema still refuses everything that this part
alone had refused.

A list of values or types that grew is no loss, and neither is a new field of a closed type.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from duckkb.ontology.reasons import compile_rule
from duckkb.ontology.source import pointer
from duckkb.review.check.normal_schema import LEAST, MOST, OPAQUE, Schema, element_rule, member_rule, normal_schema
from duckkb.review.check.schema_samples import Samples

_CLOSING = ("additionalProperties", "items", "unevaluatedItems", "unevaluatedProperties")
_OPAQUE_KEYS = frozenset(key for group in OPAQUE for key in group) - {"unevaluatedItems", "unevaluatedProperties"}
_MOST_TOLD = 20

Path = tuple[Any, ...]


class Looser(Struct, frozen=True):
    """A weakened part of the older schema: its JSON pointer in normal form, a description, and a sample record.

    The record was refused and is accepted now (None where none was found).
    """

    at: str
    said: str
    record: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return (
            self.said if self.record is None else f"{self.said}; it takes {short(self.record, 120)}, which it refused"
        )


class _Suspicion(Struct, frozen=True):
    """A part of the older schema that may be weaker now.

    `path` leads to the keyword in the older schema; `name` is a field that `required` names. For an `opaque`
    suspicion no record can show that the newer schema is as strict.
    """

    path: Path
    said: str
    name: str = ""
    opaque: bool = False

    @property
    def at(self) -> str:
        return pointer(*self.path, *([self.name] if self.name else []))


def looser_parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Looser]:
    """Return the parts of a record type's schema that ask less than before, in the order of the schema.

    >>> [str(one) for one in looser_parts({"required": ["id"], "properties": {"id": {"maxLength": 1}}}, {"properties": {"id": {"maxLength": 2}}})]
    ['id is required no longer; it takes {}, which it refused', 'maxLength was 1, is 2; it takes {"id": "a1"}, which it refused']
    """
    before, after = normal_schema(old), normal_schema(new)
    if before == after:
        return []
    before = _extend_schema(before, after)
    is_old, is_new = _judge(before), _judge(after)
    records = [record for record in Samples(before, after).records if not is_old(record)]
    accepted_records = [record for record in records if is_new(record)]
    losses = []
    for suspicion in _find_suspicions(before, after, ()):
        is_without = _judge(_remove_part(before, suspicion.path, suspicion.name))
        by_it = [record for record in records if is_without(record)]
        record = next((record for record in by_it if is_new(record)), None)
        if record is not None or suspicion.opaque or not by_it:
            if record is None and accepted_records and not by_it:
                record = accepted_records[0]
            losses.append(Looser(suspicion.at, suspicion.said, record))
            accepted_records = [record for record in accepted_records if not is_without(record)]
    if accepted_records and not losses:
        error = next(compile_rule(_wrap_false_schema(before)).iter_errors(accepted_records[0]))
        losses.append(Looser(pointer(*error.schema_path), "asks less than it did", accepted_records[0]))
    return losses[:_MOST_TOLD]


def short(value: Any, most: int) -> str:
    """Return a value as JSON, cut to `most` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


def _judge(schema: Schema) -> Callable[[Any], bool]:
    validator = compile_rule(_wrap_false_schema(schema))
    return lambda value: bool(validator.is_valid(value))


def _wrap_false_schema(schema: Schema) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {"not": {}}


def _extend_schema(old: Schema, new: Schema) -> Schema:
    """Return the older schema with the longer lists of values and types, and the new fields of closed types, of
    the newer one.
    """
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return old
    wider_schema = dict(old)
    for key in ("type", "enum"):
        if key in old and key in new:
            wider_schema[key] = [*old[key], *(value for value in new[key] if value not in old[key])]
    names = {*old.get("properties", {}), *new.get("properties", {})}
    members = {
        name: _extend_schema(rule, new["properties"][name]) if name in new.get("properties", {}) else rule
        for name, rule in old.get("properties", {}).items()
    }
    if False in (old.get("additionalProperties"), old.get("unevaluatedProperties")):
        members |= {name: new["properties"][name] for name in names if name not in old.get("properties", {})}
    wider_schema |= {"properties": members} if members else {}
    for key in ("items", "additionalProperties"):
        if key in old and key in new:
            wider_schema[key] = _extend_schema(old[key], new[key])
    if "prefixItems" in old:
        first = old["prefixItems"]
        wider_schema["prefixItems"] = [
            _extend_schema(rule, element_rule(new, place)) for place, rule in enumerate(first)
        ]
    return wider_schema


def _find_suspicions(old: Schema, new: Schema, path: Path) -> Iterator[_Suspicion]:
    """Yield the parts of the older schema's form that the newer one's lacks."""
    if old == new or new is False:
        return
    if old is False:
        yield _Suspicion(path, "nothing was allowed, now something is")
        return
    for name in old.get("required", ()):
        if name not in new.get("required", ()):
            yield _Suspicion((*path, "required"), f"{name} is required no longer", name)
    for key, before in old.items():
        if key != "$defs" and _find_leader(key) in (key, *new) and _is_weaker(key, before, new):
            message = f"{key} was {short(before, 80)}, is {short(new[key], 80) if key in new else 'gone'}"
            yield _Suspicion((*path, key), message, opaque=key in _OPAQUE_KEYS)
    for name, rule in old.get("properties", {}).items():
        place = (*path, "properties", name)
        if name in new.get("properties", {}):
            yield from _find_suspicions(rule, new["properties"][name], place)
        elif next(_find_suspicions(rule, member_rule(new, name), place), None):
            yield _Suspicion(place, f"the rules of {name} are gone")
    for number, rule in enumerate(old.get("prefixItems", ())):
        yield from _find_suspicions(rule, element_rule(new, number), (*path, "prefixItems", number))
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), Mapping) and key in new:
            yield from _find_suspicions(old[key], new[key], (*path, key))
    if old.get("$defs") != new.get("$defs"):
        yield _Suspicion((*path, "$defs"), "definitions that refer to themselves are others", opaque=True)


def _find_leader(key: str) -> str:
    """Return the keyword without which this keyword has no effect, and with which it is reported."""
    return {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}.get(key, key)


def _is_weaker(key: str, before: Any, new: Mapping[str, Any]) -> bool:
    after = new.get(key)
    if key in MOST or key in LEAST or key == "maxContains":
        return key not in new or (after < before if key in LEAST else after > before)
    if key in ("type", "enum", "uniqueItems"):
        return key not in new
    if key == "minContains":
        return bool(new.get(key, 1) < before)
    if key in _CLOSING:
        return key not in new or (before is False and after is not False) or (key[0] == "u" and before != after)
    if key == "dependentRequired":
        return any(not {*names} <= {*new.get(key, {}).get(name, ())} for name, names in before.items())
    if key == "allOf":
        return any(part not in new.get(key, ()) for part in before)
    return key in _OPAQUE_KEYS and before != after


def _remove_part(schema: Schema, path: Path, name: str) -> Schema:
    """Return the schema without the part at a path, or without one name of the list there."""
    if not path:
        return {}
    step, inner_path = path[0], path[1:]
    if step == "$defs":  # references to them would be invalid
        return {}
    if isinstance(schema, list):
        return [*schema[:step], _remove_part(schema[step], inner_path, name), *schema[step + 1 :]]
    if inner_path:
        return {**schema, step: _remove_part(schema[step], inner_path, name)}
    if name:
        return {**schema, step: [entry for entry in schema[step] if entry != name]}
    return {key: value for key, value in schema.items() if key != step}
