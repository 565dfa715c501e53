"""The pages of a record: its fields, what it is joined to, what became of it, what cites it, and what is like it."""

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
"""Edges of a page."""
_PIECE = 10 * LONGEST
_MOST_DRAWN = 500
UNCOMMITTED = "uncommitted"
"""In an address, in place of a commit: the version in the files."""
_SHORTEST = 7
"""Digits of a commit that name it."""


class LinkedRecord(Struct, frozen=True):
    """A record as a line of a list: how it is called, and of the edge that led to it the type, the way, and the fields beside its
    ends."""

    type: str
    identity: str
    title: str
    edge: str = ""
    way: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    score: float | None = None
    depth: int = 1


async def page(visit: Visit) -> Response:
    """The record with the type and identity that the address names."""
    known = await kinds(visit)
    record = await _record(visit)
    kind = known[record["_type"]]
    schema = await visit.ask("schema", type=kind.name)
    named = identity_of(record, kind.identity)
    return visit.shown(
        "record.html",
        record=record,
        kind=kind,
        identity=named,
        title=title_of(record, named, kind.display),
        fields=await asyncio.to_thread(fields_of, record, schema, tuple(kind.identity)),
        edges=_labels(known, kind.name),
        ends=_ends(record, kind),
        command=shlex.join(["duckkb", "get", *(["--at", visit.at] if visit.at else []), "--", kind.name, named]),
    )


async def edges(visit: Visit) -> Response:
    """The records one edge away, a page at a time."""
    known, (type, identity) = await kinds(visit), _named(visit)
    label, way = visit.given("label"), visit.given("way")
    answer = await visit.ask(
        "neighbors",
        type=type,
        identity=identity,
        label=label,
        direction=way if way in ("in", "out") else "both",
        after=visit.given("after"),
        limit=EDGES,
    )
    records = [_line(one, known) for one in answer["records"]]
    return _shown(visit, "edges", records=records, next=answer["next"], labels=_labels(known, type))


async def picture(visit: Visit) -> Response:
    """The neighbourhood as nodes and edges, for the script that draws it: at most 500 nodes, those nearest to the record."""
    known, (type, identity) = await kinds(visit), _named(visit)
    limit = visit.number("limit", 60, _MOST_DRAWN)
    answer = await visit.ask("neighbors", type=type, identity=identity, depth=visit.number("depth", 1, 3), limit=limit)
    record = await _record(visit)
    nodes = {(record["_type"], _key(record, known)): _line(record, known)}
    for one in answer["records"]:
        nodes.setdefault((one["_type"], _key(one, known)), _line(one, known))
    places = {name: place for place, name in enumerate(nodes)}
    joined = [edge for one in answer["records"] if (edge := _joined(one, known, places)) is not None]
    drawn = [
        {"type": one.type, "id": one.identity, "title": one.title, "depth": one.depth, "link": _link(visit, one)}
        for one in nodes.values()
    ]
    return JSONResponse({"nodes": drawn, "edges": joined, "cut": answer["truncated"]})


def _link(visit: Visit, one: LinkedRecord) -> str:
    return visit.link("record", type=one.type, id=one.identity)


def _joined(
    record: Mapping[str, Any], known: Mapping[str, Kind], places: Mapping[tuple[str, str], int]
) -> dict[str, Any] | None:
    """The edge that led to a record: its type, and the places of its `from` and its `to` among the nodes."""
    edge, here = record["_edge"], places[record["_type"], _key(record, known)]
    is_out, kind = edge["_direction"] == "out", known[edge["_type"]]
    other, types = (edge["from"], kind.sources) if is_out else (edge["to"], kind.targets)
    if isinstance(other, dict):
        other, types = other["id"], [other["type"]]
    text = identity_of({"": other}, [""]) if not isinstance(other, list) else _array(other)
    before = next((places[type, text] for type in types if (type, text) in places), None)
    if before is None:
        return None
    return {"type": edge["_type"], "from": before if is_out else here, "to": here if is_out else before}


async def history(visit: Visit) -> Response:
    """What became of the record, commit by commit."""
    type, identity = _named(visit)
    changes = (await visit.ask("log", type=type, identity=identity))["changes"]
    fields = (await visit.ask("blame", type=type, identity=identity))["fields"] if changes[0]["op"] != "delete" else []
    return _shown(visit, "history", changes=changes, fields=fields)


async def compare(visit: Visit) -> Response:
    """Two versions of the record side by side, each by the commit that made it, the older one on the left; without commits the newest,
    and without `old` the one before it. Raises `errors.NotFound`."""
    type, identity = _named(visit)
    changes = (await visit.ask("log", type=type, identity=identity))["changes"]
    new = _place_of(changes, visit.given("new"), 0)
    old = _place_of(changes, visit.given("old"), min(new + 1, len(changes) - 1))
    new, old = sorted((new, old))
    versions = [differing.version(changes, number) for number in (old, new)]
    differences, same = await asyncio.to_thread(differing.compare, *versions)
    sides = {"old": changes[old], "new": changes[new]}
    return visit.shown("compare.html", type=type, identity=identity, differences=differences, same=same, **sides)


def _place_of(changes: Sequence[Mapping[str, Any]], commit: str, otherwise: int) -> int:
    """Where the change of a commit stands, whose name may be cut; of what is not committed for `UNCOMMITTED`."""
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
    """Where a hit is from: the commit that changed it last, who made it, and the line of the file."""
    type, identity = _named(visit)
    fields = (await visit.ask("blame", type=type, identity=identity))["fields"]
    last = max(fields, key=lambda one: (one["commit"] is None, one.get("date", "")))
    return _shown(visit, "origin", last=last)


async def citing(visit: Visit) -> Response:
    """The records that cite this one."""
    return await _listed(visit, "citing", limit=100)


async def near(visit: Visit) -> Response:
    """The records that mean what this one means."""
    return await _listed(visit, "near", limit=10)


async def field(visit: Visit) -> Response:
    """One field as it stands, a piece at a time."""
    record, name = await _record(visit), visit.given("name")
    if name not in record or name.startswith("_"):
        raise NotFound("the record has no such field", suggestion="see its page")
    value = record[name]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    pieces = max(1, -(-len(text) // _PIECE))
    number = min(visit.number("piece", 1, 1_000_000), pieces)
    piece = text[(number - 1) * _PIECE : number * _PIECE]
    return visit.shown("field.html", name=name, piece=piece, number=number, pieces=pieces, size=len(text))


async def _listed(visit: Visit, action: str, limit: int) -> Response:
    known, (type, identity) = await kinds(visit), _named(visit)
    answer = await visit.ask(action, type=type, identity=identity, limit=limit)
    return _shown(
        visit, action, records=[_line(one, known) for one in answer["records"]], cut=answer.get("truncated", False)
    )


def _shown(visit: Visit, name: str, **values: Any) -> Response:
    """A part of the page of a record, alone or in a page of its own for those without scripts."""
    type, identity = _named(visit)
    values |= {"part": f"record_{name}.html", "name": name, "type": type, "identity": identity}
    return visit.shown(f"record_{name}.html" if visit.is_part else "part.html", **values)


def _named(visit: Visit) -> tuple[str, str]:
    """Raises `errors.UsageError`."""
    type, identity = visit.given("type"), visit.request.query_params.get("id", "")
    if not type or not identity:
        raise UsageError("no record is named", "E_ARGUMENT", "follow a link of a search")
    return type, identity


async def _record(visit: Visit) -> dict[str, Any]:
    type, identity = _named(visit)
    return await visit.ask("get", type=type, identity=identity)


def _line(record: Mapping[str, Any], known: Mapping[str, Kind]) -> LinkedRecord:
    identity = _key(record, known)
    edge = record.get("_edge", {})
    own = ((name, value) for name, value in edge.items() if not name.startswith("_") and name not in ("from", "to"))
    facts = tuple((name, str(value)[:200]) for name, value in own)
    return LinkedRecord(
        record["_type"],
        identity,
        title_of(record, identity, known[record["_type"]].display),
        edge.get("_type", ""),
        edge.get("_direction", ""),
        facts,
        record.get("_score"),
        record.get("_depth", 0),
    )


def _key(record: Mapping[str, Any], known: Mapping[str, Kind]) -> str:
    return identity_of(record, known[record["_type"]].identity)


def _ends(record: Mapping[str, Any], kind: Kind) -> list[tuple[str, str, str]]:
    """Of an edge its ends: the field, and of the node type and identity, where the type allows no doubt."""
    found = []
    for name, types in (("from", kind.sources), ("to", kind.targets)) if kind.kind == "edge" else ():
        value = record[name]
        if isinstance(value, dict):
            value, types = value["id"], [value["type"]]
        if len(types) == 1:
            found.append(
                (name, types[0], identity_of({"": value}, [""]) if not isinstance(value, list) else _array(value))
            )
    return found


def _array(parts: list[Any]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _labels(known: Mapping[str, Kind], type: str) -> list[str]:
    return [one.name for one in known.values() if one.kind == "edge" and type in (*one.sources, *one.targets)]
