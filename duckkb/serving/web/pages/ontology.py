"""The ontology: its types as a picture and as a table, with how many records they have, and each of them by itself."""

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
    """A field as its schema has it: `form` is its type with what it may be, `said` what it means, `rules` what else holds (`x-merge`)."""

    name: str
    form: str
    said: str
    is_required: bool
    is_identity: bool
    words: float | None
    has_vectors: bool
    rules: tuple[str, ...] = ()


async def page(visit: Visit) -> Response:
    """All types."""
    known = await kinds(visit)
    nodes, edges = ([one for one in known.values() if one.kind == kind] for kind in ("node", "edge"))
    return visit.shown(
        "ontology.html", nodes=nodes, edges=edges, records=[sum(one.records for one in some) for some in (nodes, edges)]
    )


async def picture(visit: Visit) -> Response:
    """Node types as nodes and edge types as edges between them, for the script that draws the neighborhood of records."""
    known, say = await kinds(visit), visit.words
    between: defaultdict[tuple[str, str], list[Kind]] = defaultdict(list)
    degree: Counter[str] = Counter()
    for edge in (one for one in known.values() if one.kind == "edge"):
        for ends in ((source, target) for source in edge.sources for target in edge.targets):
            between[ends].append(edge)
            degree.update(ends)
    nodes = sorted((one for one in known.values() if one.kind == "node"), key=lambda one: -degree[one.name])
    most = max((one.records for one in nodes), default=0) or 1
    drawn = [
        {
            "type": say("ontology.node"),
            "id": one.name,
            "title": f"{one.name} {one.records:,}",
            "depth": 1,
            "size": 7 + 13 * math.sqrt(one.records / most),
            "link": visit.link("ontology/type", type=one.name),
        }
        for one in nodes
    ]
    places = {one.name: place for place, one in enumerate(nodes)}
    joined = [
        {
            "type": ", ".join(f"{one.name} {one.records:,}" for one in some),
            "label": _label(some),
            "from": places[a],
            "to": places[b],
        }
        for (a, b), some in between.items()
    ]
    edges = sum(one.kind == "edge" for one in known.values())
    return JSONResponse(
        {"nodes": drawn, "edges": joined, "cut": False, "said": say("ontology.drawn", nodes=len(nodes), edges=edges)}
    )


async def type(visit: Visit) -> Response:
    """One type: identity, fields, how it is searched, and the settings that hold for it."""
    wanted = visit.given("type")
    schema, held = await visit.ask("schema", type=wanted), await visit.ask("settings", type=wanted)
    kind = (await kinds(visit))[held["type"]]
    name = ["--", kind.name] if kind.name.startswith("-") else [kind.name]
    values: dict[str, Any] = {
        "kind": kind,
        "fields": _fields(schema, held, kind),
        "others": [
            one for one in (*held["full_text"], *held["vectors"]) if one["field"] not in schema.get("properties", {})
        ],
        "held": held,
        "schema": json.dumps(schema, ensure_ascii=False, indent=1),
        "commands": [shlex.join(["duckkb", "schema", *more, *name]) for more in ([], ["--settings"])],
    }
    return visit.shown("ontology_type.html", **values)


def _label(edges: list[Kind]) -> str:
    return edges[0].name if len(edges) == 1 else f"{edges[0].name} +{len(edges) - 1}"


def _fields(schema: Mapping[str, Any], held: Mapping[str, Any], kind: Kind) -> list[SchemaField]:
    """The fields that the schema declares, those of the identity first."""
    weights = {one["field"]: one["weight"] for one in held["full_text"]}
    meant = {one["field"] for one in held["vectors"]}
    rules: dict[str, Any] = {name: {} for name in kind.identity} | dict(schema.get("properties", {}))
    required = {*schema.get("required", ()), *kind.identity}
    return [
        SchemaField(
            name,
            _form(rule)
            or (", ".join(kind.sources if name == "from" else kind.targets) if name in ("from", "to") else ""),
            str(rule.get("description", ""))[:_MOST_SAID],
            name in required,
            name in kind.identity,
            weights.get(name),
            name in meant,
            tuple(f"{key}: {rule[key]}" for key in rule if key.startswith("x-")),
        )
        for name, rule in ((name, rule if isinstance(rule, Mapping) else {}) for name, rule in rules.items())
    ]


def _form(rule: Mapping[str, Any]) -> str:
    """What a value may be, in the words of JSON Schema.

    >>> _form({"type": "array", "items": {"type": "string"}}), _form({"enum": ["a", 1]}), _form({"type": "integer", "minimum": 0})
    ('array of string', '"a" | 1', 'integer, minimum 0')
    """
    if "enum" in rule or "const" in rule:
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in rule.get("enum", [rule.get("const")]))[
            :_MOST_SAID
        ]
    found = rule.get("type", "")
    form = " or ".join(map(str, found)) if isinstance(found, list) else str(found)
    inner = rule.get("items")
    if form == "array" and isinstance(inner, Mapping) and _form(inner):
        form = f"array of {_form(inner)}" if "," not in _form(inner) else f"array of ({_form(inner)})"
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
