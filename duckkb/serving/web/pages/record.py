"""The pages of a record: its fields, its links, its history, records that cite it, and similar records."""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from duckkb.errors import NotFound, UsageError
from duckkb.serving.web import differing
from duckkb.serving.web.kinds import Kind, kinds
from duckkb.serving.web.naming import identity_of, title_of
from duckkb.serving.web.values import LONGEST, fields_of
from duckkb.serving.web.visit import Visit

EDGES = 25
"""Edges on a page."""
_PIECE = 10 * LONGEST
_MOST_DRAWN = 500
UNCOMMITTED = "uncommitted"
"""The version in the files, in place of a commit in an address."""
_SHORTEST = 7
"""Least digits that name a commit."""


class LinkedRecord(Struct, frozen=True):
    """A record as a line of a list: its title, and the edge that led to it by type, direction and own fields."""

    type: str
    identity: str
    title: str
    edge: str = ""
    way: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    score: float | None = None
    depth: int = 1


async def page(visit: Visit) -> Response:
    """Show the record with the type and identity of the address."""
    record_types = await kinds(visit)
    record = await _record(visit)
    kind = record_types[record["_type"]]
    schema = await visit.ask("schema", type=kind.name)
    identity = identity_of(record, kind.identity)
    return visit.render_page(
        "record.html",
        record=record,
        kind=kind,
        identity=identity,
        title=title_of(record, identity, kind.display),
        fields=await asyncio.to_thread(fields_of, record, schema, tuple(kind.identity)),
        edges=_list_labels(record_types, kind.name),
        ends=_list_ends(record, kind),
        command=shlex.join(["duckkb", "get", *(["--at", visit.at] if visit.at else []), "--", kind.name, identity]),
    )


async def edges(visit: Visit) -> Response:
    """Show the records one edge away, a page at a time."""
    record_types, (type, identity) = await kinds(visit), _read_reference(visit)
    label, way = visit.get_parameter("label"), visit.get_parameter("way")
    answer = await visit.ask(
        "neighbors",
        type=type,
        identity=identity,
        label=label,
        direction=way if way in ("in", "out") else "both",
        after=visit.get_parameter("after"),
        limit=EDGES,
    )
    records = [_line(record, record_types) for record in answer["records"]]
    return _render_part(visit, "edges", records=records, next=answer["next"], labels=_list_labels(record_types, type))


async def picture(visit: Visit) -> Response:
    """Return the neighbourhood as nodes and edges, for the script that draws it: the nearest 500 nodes at most."""
    record_types, (type, identity) = await kinds(visit), _read_reference(visit)
    limit = visit.number("limit", 60, _MOST_DRAWN)
    answer = await visit.ask("neighbors", type=type, identity=identity, depth=visit.number("depth", 1, 3), limit=limit)
    record = await _record(visit)
    nodes = {(record["_type"], _find_identity(record, record_types)): _line(record, record_types)}
    for item in answer["records"]:
        nodes.setdefault((item["_type"], _find_identity(item, record_types)), _line(item, record_types))
    places = {name: place for place, name in enumerate(nodes)}
    edge_entries = [edge for item in answer["records"] if (edge := _find_edge(item, record_types, places)) is not None]
    node_entries = [
        {"type": item.type, "id": item.identity, "title": item.title, "depth": item.depth, "link": _link(visit, item)}
        for item in nodes.values()
    ]
    return JSONResponse({"nodes": node_entries, "edges": edge_entries, "cut": answer["truncated"]})


def _link(visit: Visit, linked_record: LinkedRecord) -> str:
    return visit.link("record", type=linked_record.type, id=linked_record.identity)


def _find_edge(
    record: Mapping[str, Any], record_types: Mapping[str, Kind], places: Mapping[tuple[str, str], int]
) -> dict[str, Any] | None:
    """Return the edge that led to a record: its type, and the places of its `from` and its `to` among the nodes."""
    edge, here = record["_edge"], places[record["_type"], _find_identity(record, record_types)]
    is_out, kind = edge["_direction"] == "out", record_types[edge["_type"]]
    end, types = (edge["from"], kind.sources) if is_out else (edge["to"], kind.targets)
    if isinstance(end, dict):
        end, types = end["id"], [end["type"]]
    text = identity_of({"": end}, [""]) if not isinstance(end, list) else _array(end)
    before = next((places[type, text] for type in types if (type, text) in places), None)
    if before is None:
        return None
    return {"type": edge["_type"], "from": before if is_out else here, "to": here if is_out else before}


async def history(visit: Visit) -> Response:
    """Show the changes of the record, commit by commit."""
    type, identity = _read_reference(visit)
    changes = (await visit.ask("log", type=type, identity=identity))["changes"]
    fields = (await visit.ask("blame", type=type, identity=identity))["fields"] if changes[0]["op"] != "delete" else []
    return _render_part(visit, "history", changes=changes, fields=fields)


async def compare(visit: Visit) -> Response:
    """Show two versions of the record side by side, each by the commit that made it, the older one on the left.

    By default the newest version, and without `old` the one before it. Raises `errors.NotFound`.
    """
    type, identity = _read_reference(visit)
    changes = (await visit.ask("log", type=type, identity=identity))["changes"]
    new = _place_of(changes, visit.get_parameter("new"), 0)
    old = _place_of(changes, visit.get_parameter("old"), min(new + 1, len(changes) - 1))
    new, old = sorted((new, old))
    versions = [differing.version(changes, number) for number in (old, new)]
    differences, same = await asyncio.to_thread(differing.compare, *versions)
    sides = {"old": changes[old], "new": changes[new]}
    return visit.render_page("compare.html", type=type, identity=identity, differences=differences, same=same, **sides)


def _place_of(changes: Sequence[Mapping[str, Any]], commit: str, otherwise: int) -> int:
    """Return the index of the change of a commit, whose name may be cut; `UNCOMMITTED` names the uncommitted
    change.
    """
    if not commit:
        return otherwise
    names = [change["commit"] or UNCOMMITTED for change in changes]
    place = next((at for at, name in enumerate(names) if len(commit) >= _SHORTEST and name.startswith(commit)), None)
    if place is None:
        raise NotFound(
            f"no version of this record is from the commit {commit[:64]!r}",
            suggestion="choose two versions in the history of the record",
        )
    return place


async def origin(visit: Visit) -> Response:
    """Show the origin of a hit: the last commit that changed it, its author, and the line of the file."""
    type, identity = _read_reference(visit)
    fields = (await visit.ask("blame", type=type, identity=identity))["fields"]
    last = max(fields, key=lambda entry: (entry["commit"] is None, entry.get("date", "")))
    return _render_part(visit, "origin", last=last)


async def list_citing_records(visit: Visit) -> Response:
    """Show the records that cite this one."""
    return await _list_records(visit, "citing", limit=100)


async def near(visit: Visit) -> Response:
    """Show the records with a similar meaning."""
    return await _list_records(visit, "near", limit=10)


async def field(visit: Visit) -> Response:
    """Show one field unchanged, a piece at a time."""
    record, name = await _record(visit), visit.get_parameter("name")
    if name not in record or name.startswith("_"):
        raise NotFound("the record does not have this field", suggestion="see its page")
    value = record[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    pieces = max(1, -(-len(text) // _PIECE))
    number = min(visit.number("piece", 1, 1_000_000), pieces)
    piece = text[(number - 1) * _PIECE : number * _PIECE]
    return visit.render_page("field.html", name=name, piece=piece, number=number, pieces=pieces, size=len(text))


async def _list_records(visit: Visit, action: str, limit: int) -> Response:
    record_types, (type, identity) = await kinds(visit), _read_reference(visit)
    answer = await visit.ask(action, type=type, identity=identity, limit=limit)
    return _render_part(
        visit,
        action,
        records=[_line(record, record_types) for record in answer["records"]],
        cut=answer.get("truncated", False),
    )


def _render_part(visit: Visit, name: str, **values: Any) -> Response:
    """Render a part of a record's page, alone or as a page of its own for browsers without scripts."""
    type, identity = _read_reference(visit)
    values |= {"part": f"record_{name}.html", "name": name, "type": type, "identity": identity}
    return visit.render_page(f"record_{name}.html" if visit.is_part else "part.html", **values)


def _read_reference(visit: Visit) -> tuple[str, str]:
    """Return type and identity from the address. Raises `errors.UsageError`."""
    type, identity = visit.get_parameter("type"), visit.request.query_params.get("id", "")
    if not type or not identity:
        raise UsageError("the address names no record", "E_ARGUMENT", "follow a link of a search")
    return type, identity


async def _record(visit: Visit) -> dict[str, Any]:
    type, identity = _read_reference(visit)
    return await visit.ask("get", type=type, identity=identity)


def _line(record: Mapping[str, Any], record_types: Mapping[str, Kind]) -> LinkedRecord:
    identity = _find_identity(record, record_types)
    edge = record.get("_edge", {})
    edge_fields = (
        (name, value) for name, value in edge.items() if not name.startswith("_") and name not in ("from", "to")
    )
    facts = tuple((name, str(value)[:200]) for name, value in edge_fields)
    return LinkedRecord(
        record["_type"],
        identity,
        title_of(record, identity, record_types[record["_type"]].display),
        edge.get("_type", ""),
        edge.get("_direction", ""),
        facts,
        record.get("_score"),
        record.get("_depth", 0),
    )


def _find_identity(record: Mapping[str, Any], record_types: Mapping[str, Kind]) -> str:
    return identity_of(record, record_types[record["_type"]].identity)


def _list_ends(record: Mapping[str, Any], kind: Kind) -> list[tuple[str, str, str]]:
    """Return the ends of an edge with an unambiguous node type: the field, the type, and the identity."""
    ends = []
    for name, types in (("from", kind.sources), ("to", kind.targets)) if kind.kind == "edge" else ():
        value = record[name]
        if isinstance(value, dict):
            value, types = value["id"], [value["type"]]
        if len(types) == 1:
            ends.append(
                (name, types[0], identity_of({"": value}, [""]) if not isinstance(value, list) else _array(value))
            )
    return ends


def _array(parts: list[Any]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _list_labels(record_types: Mapping[str, Kind], type: str) -> list[str]:
    return [
        record_type.name
        for record_type in record_types.values()
        if record_type.kind == "edge" and type in (*record_type.sources, *record_type.targets)
    ]
