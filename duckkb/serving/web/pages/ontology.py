"""The ontology: its types as a picture and as a table, with the number of their records, and a page for each."""

import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from duckkb.serving.web.kinds import Kind, kinds
from duckkb.serving.web.visit import Visit

_MOST_SAID = 400


class SchemaField(Struct, frozen=True):
    """A field by its schema: `form` is its type and range, `said` its description, `rules` other rules
    (`x-merge`).
    """

    name: str
    form: str
    said: str
    is_required: bool
    is_identity: bool
    words: float | None
    has_vectors: bool
    rules: tuple[str, ...] = ()


async def page(visit: Visit) -> Response:
    """Show all types."""
    record_types = await kinds(visit)
    nodes, edges = (
        [record_type for record_type in record_types.values() if record_type.kind == kind] for kind in ("node", "edge")
    )
    return visit.render_page(
        "ontology.html",
        nodes=nodes,
        edges=edges,
        records=[sum(record_type.records for record_type in some) for some in (nodes, edges)],
    )


async def picture(visit: Visit) -> Response:
    """Return node types as nodes and edge types as edges, for the script that draws the neighborhood of records."""
    record_types, say = await kinds(visit), visit.words
    between: defaultdict[tuple[str, str], list[Kind]] = defaultdict(list)
    degree: Counter[str] = Counter()
    for edge in (record_type for record_type in record_types.values() if record_type.kind == "edge"):
        for ends in ((source, target) for source in edge.sources for target in edge.targets):
            between[ends].append(edge)
            degree.update(ends)
    nodes = sorted(
        (record_type for record_type in record_types.values() if record_type.kind == "node"),
        key=lambda record_type: -degree[record_type.name],
    )
    most = max((record_type.records for record_type in nodes), default=0) or 1
    node_entries = [
        {
            "type": say("ontology.node"),
            "id": record_type.name,
            "title": f"{record_type.name} {record_type.records:,}",
            "depth": 1,
            "size": 7 + 13 * math.sqrt(record_type.records / most),
            "link": visit.link("ontology/type", type=record_type.name),
        }
        for record_type in nodes
    ]
    places = {record_type.name: place for place, record_type in enumerate(nodes)}
    edge_entries = [
        {
            "type": ", ".join(f"{record_type.name} {record_type.records:,}" for record_type in some),
            "label": _label(some),
            "from": places[a],
            "to": places[b],
        }
        for (a, b), some in between.items()
    ]
    edges = sum(record_type.kind == "edge" for record_type in record_types.values())
    return JSONResponse(
        {
            "nodes": node_entries,
            "edges": edge_entries,
            "cut": False,
            "said": say("ontology.drawn", nodes=len(nodes), edges=edges),
        }
    )


async def type(visit: Visit) -> Response:
    """Show one type: identity, fields, how it is searched, and its settings."""
    type_name = visit.get_parameter("type")
    schema, settings = await visit.ask("schema", type=type_name), await visit.ask("settings", type=type_name)
    kind = (await kinds(visit))[settings["type"]]
    name = ["--", kind.name] if kind.name.startswith("-") else [kind.name]
    values: dict[str, Any] = {
        "kind": kind,
        "fields": _list_fields(schema, settings, kind),
        "others": [
            entry
            for entry in (*settings["full_text"], *settings["vectors"])
            if entry["field"] not in schema.get("properties", {})
        ],
        "held": settings,
        "schema": json.dumps(schema, ensure_ascii=False, indent=1),
        "commands": [shlex.join(["duckkb", "schema", *more, *name]) for more in ([], ["--settings"])],
    }
    return visit.render_page("ontology_type.html", **values)


def _label(edges: list[Kind]) -> str:
    return edges[0].name if len(edges) == 1 else f"{edges[0].name} +{len(edges) - 1}"


def _list_fields(schema: Mapping[str, Any], settings: Mapping[str, Any], kind: Kind) -> list[SchemaField]:
    """Return the fields that the schema declares, those of the identity first."""
    weights = {entry["field"]: entry["weight"] for entry in settings["full_text"]}
    vector_fields = {entry["field"] for entry in settings["vectors"]}
    rules: dict[str, Any] = {name: {} for name in kind.identity} | dict(schema.get("properties", {}))
    required_names = {*schema.get("required", ()), *kind.identity}
    return [
        SchemaField(
            name,
            _describe_form(rule)
            or (", ".join(kind.sources if name == "from" else kind.targets) if name in ("from", "to") else ""),
            str(rule.get("description", ""))[:_MOST_SAID],
            name in required_names,
            name in kind.identity,
            weights.get(name),
            name in vector_fields,
            tuple(f"{key}: {rule[key]}" for key in rule if key.startswith("x-")),
        )
        for name, rule in ((name, rule if isinstance(rule, Mapping) else {}) for name, rule in rules.items())
    ]


def _describe_form(rule: Mapping[str, Any]) -> str:
    """Describe the values of a field, in the words of JSON Schema.

    >>> _describe_form({"type": "array", "items": {"type": "string"}}), _describe_form({"enum": ["a", 1]})
    ('array of string', '"a" | 1')
    >>> _describe_form({"type": "integer", "minimum": 0})
    'integer, minimum 0'
    """
    if "enum" in rule or "const" in rule:
        return " | ".join(json.dumps(option, ensure_ascii=False) for option in rule.get("enum", [rule.get("const")]))[
            :_MOST_SAID
        ]
    type_names = rule.get("type", "")
    form = " or ".join(map(str, type_names)) if isinstance(type_names, list) else str(type_names)
    inner = rule.get("items")
    if form == "array" and isinstance(inner, Mapping) and _describe_form(inner):
        form = (
            f"array of {_describe_form(inner)}"
            if "," not in _describe_form(inner)
            else f"array of ({_describe_form(inner)})"
        )
    limits = [
        f"{key} {rule[key]}"
        for key in (
            "format",
            "contentMediaType",
            "pattern",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
        )
        if key in rule
    ]
    return ", ".join(filter(None, (form, *limits)))
