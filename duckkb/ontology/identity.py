"""Turns the value by which a caller names a record into an identity, typed by the schema.

The fields that represent a record to people: its title first, then a few others."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from duckkb.ontology.model import EdgeType, NodeType, Ontology, RecordType
from duckkb.ontology.names import did_you_mean, show_value
from duckkb.ontology.schema_kinds import ScalarKind, identity_kind
from duckkb.types.errors import UsageError
from duckkb.types.records import FROM, TO, Component, Identity, Scalar, TypedEnd, component_value

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_LONGEST_INTEGER = 20


class _Unfit(ValueError):
    """A value that cannot be an identity, or a part of one; the text says why."""


def coerce(kind: RecordType, ontology: Ontology, value: Any) -> Identity:
    """Return the identity that a value names: text of the command line, or a scalar, list or tuple of the API.

    Several components come as a sequence or as the text of a JSON array. An edge is `[from, to, ...]`; an end
    that needs its type is `{"type": TYPE, "id": IDENTITY}`. Raises `UsageError` (`E_INVALID`).
    """
    try:
        if isinstance(kind, EdgeType):
            return _edge(kind, ontology, value)
        return _parse_node_identity(kind, value)
    except _Unfit as error:
        message = f"{show_value(value)} does not name a {kind.name}: {error}"
        raise UsageError(message, "E_INVALID", f"name it as {_describe_form(kind, ontology)}") from error


def coerce_ends(kind: RecordType, ontology: Ontology, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with an edge's ends as files have them, typed by the schemas of the end types.

    An end that names no record of an allowed type stays as it was given; validation then reports the fault.
    """
    if not isinstance(kind, EdgeType):
        return fields if isinstance(fields, dict) else dict(fields)
    typed_fields = dict(fields)
    for key, names in ((FROM, kind.from_types), (TO, kind.to_types)):
        with suppress(_Unfit, KeyError):
            typed_fields[key] = component_value(_end(names, ontology, fields[key]))
    return typed_fields


def fits(kind: NodeType, component: Component) -> bool:
    """Return whether a bare end has the number and kinds of components that records of this type have."""
    if isinstance(component, TypedEnd):
        return False
    parts = component if isinstance(component, tuple) else (component,)
    scalar_kinds = identity_kinds(kind)
    return len(parts) == len(scalar_kinds) and all(map(_has_kind, parts, scalar_kinds))


def identity_kinds(kind: RecordType) -> tuple[ScalarKind, ...]:
    """Return the scalar kind of each identity field by the type's own schema, in order."""
    return tuple(identity_kind(kind.schema, kind.properties.get(name)) or "string" for name in kind.identity)


def _parse_node_identity(kind: NodeType, value: Any) -> tuple[Scalar, ...]:
    scalar_kinds = identity_kinds(kind)
    if len(scalar_kinds) == 1 and not isinstance(value, (list, tuple)):
        return (_parse_scalar(value, scalar_kinds[0]),)
    parts = _parse_sequence(value)
    if len(parts) != len(scalar_kinds):
        raise _Unfit(f"it takes {_count(len(scalar_kinds))}, not {len(parts)}")
    return tuple(map(_parse_scalar, parts, scalar_kinds))


def _edge(kind: EdgeType, ontology: Ontology, value: Any) -> Identity:
    scalar_kinds = identity_kinds(kind)
    parts = _parse_sequence(value)
    if len(parts) != 2 + len(scalar_kinds):
        raise _Unfit(f"it takes {_count(2 + len(scalar_kinds))}, not {len(parts)}")
    source, sink = _end(kind.from_types, ontology, parts[0]), _end(kind.to_types, ontology, parts[1])
    return (source, sink, *map(_parse_scalar, parts[2:], scalar_kinds))


def _end(names: Sequence[str], ontology: Ontology, value: Any) -> Component:
    if isinstance(value, TypedEnd):
        value = {"type": value.type, "id": value.id}
    if isinstance(value, Mapping):
        return _parse_typed_end(names, ontology, value)
    components: dict[Component, None] = {}
    reasons: list[str] = []
    for name in names:
        try:
            components[_make_component(_parse_node_identity(ontology.nodes[name], value))] = None
        except _Unfit as error:
            reasons.append(f"no {name}: {error}")
    as_given = tuple(value) if isinstance(value, (list, tuple)) else value
    exact = [component for component in components if component == as_given and type(component) is type(as_given)]
    if len(components) == 1 or exact:
        return exact[0] if exact else next(iter(components))
    if components:
        raise _Unfit(f'{show_value(value)} fits several types; write {{"type": TYPE, "id": IDENTITY}}')
    raise _Unfit(f"the end {show_value(value)} is {'; '.join(reasons)}")


def _parse_typed_end(names: Sequence[str], ontology: Ontology, value: Mapping[str, Any]) -> Component:
    if set(value) != {"type", "id"}:
        raise _Unfit('an end with its type is {"type": TYPE, "id": IDENTITY}')
    name = value["type"]
    if not isinstance(name, str) or name not in names:
        hint = did_you_mean(name, names) if isinstance(name, str) else ""
        raise _Unfit(f"{show_value(name)} is not among {', '.join(names)}" + (f"; {hint}" if hint else ""))
    parts = _parse_node_identity(ontology.nodes[name], value["id"])
    # Where only one type is allowed, files carry the bare form.
    return _make_component(parts) if len(names) == 1 else TypedEnd(name, parts)


def _make_component(parts: tuple[Scalar, ...]) -> Component:
    return parts if len(parts) > 1 else parts[0]


def _parse_sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _Unfit("it is not a JSON array") from None
    if not isinstance(value, (list, tuple)):
        raise _Unfit("it is not a list")
    return value


def _parse_scalar(value: Any, scalar_kind: ScalarKind) -> Scalar:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _Unfit(f"{show_value(value)} is no string or integer")
    if scalar_kind == "string":
        return str(value)
    text = str(value) if isinstance(value, int) and abs(value) < 2**64 else value
    is_integer = isinstance(text, str) and len(text) <= _LONGEST_INTEGER and _INTEGER.fullmatch(text)
    if not is_integer or not -(2**63) <= int(text) < 2**63:
        raise _Unfit(f"{show_value(value) if isinstance(value, str) else 'it'} is no integer of 64 bits")
    return int(text)


def _has_kind(value: Scalar, scalar_kind: ScalarKind) -> bool:
    return type(value) is (int if scalar_kind == "integer" else str)


def _count(number: int) -> str:
    return f"{number} values" if number > 1 else "one value"


def _describe_form(kind: RecordType, ontology: Ontology) -> str:
    """Describe the form of an identity of this type on the command line."""
    if isinstance(kind, EdgeType):
        ends = [_end_form(names, ontology) for names in (kind.from_types, kind.to_types)]
        return "'[" + ",".join([*ends, *map(_format_example, kind.identity, identity_kinds(kind))]) + "]'"
    if len(kind.identity) == 1:
        return kind.identity[0].upper()
    return "'[" + ",".join(map(_format_example, kind.identity, identity_kinds(kind))) + "]'"


def _end_form(names: Sequence[str], ontology: Ontology) -> str:
    kind = ontology.nodes.get(names[0]) if names else None
    if kind is None:
        return '"END"'
    parts = list(map(_format_example, kind.identity, identity_kinds(kind)))
    return parts[0] if len(parts) == 1 else "[" + ",".join(parts) + "]"


def _format_example(name: str, kind: ScalarKind) -> str:
    return json.dumps(name.upper(), ensure_ascii=False) if kind == "string" else name.upper()


TITLES = ("title", "name", "label", "subject", "heading", "question")
"""Names of title fields; the first one that a record has is its title."""
_CONTEXT = 2
_SHORT = 60


def display_names(record: Mapping[str, Any], declared: Sequence[str], identity: str) -> list[str]:
    """Name the fields to show of a record, its title first.

    These are the fields that its type has `declared` (`display`). Without a declaration: a field with the name
    of a title or the first text, and two short values. The `identity` is left out, since it is shown beside
    them.

    >>> display_names({"id": "n1", "size": 3, "text": "A storm.", "name": "Storm"}, (), "n1")
    ['name', 'size', 'text']
    >>> display_names({"id": "q1", "answer": "Here.", "question": "Where?"}, (), "q1")
    ['question', 'answer']
    """
    if declared:
        return [name for name in declared if record.get(name) not in (None, "")]
    candidates = {
        name: value
        for name, value in record.items()
        if not name.startswith("__") and name not in (FROM, TO) and str(value) != identity
    }
    texts = [name for name, value in candidates.items() if isinstance(value, str) and value.strip()]
    title = next((name for name in TITLES if name in texts), texts[0] if texts else None)
    short = [name for name, value in candidates.items() if name != title and _is_short(value)]
    return ([title] if title else []) + short[:_CONTEXT]


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and len(value) <= _SHORT
    return isinstance(value, int | float)
