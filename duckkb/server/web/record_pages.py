"""The pages of a record: its fields, its links, its history, records that cite it, and similar records.

The page of all records of a type, in the order of their identities, a page at a time.

The page of search: the action `find`, with a form by the ontology."""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from duckkb.index.text_chunks import read_value_at
from duckkb.operations.dispatch import failure
from duckkb.server.authentication import get_notes
from duckkb.server.http_statuses import status_of
from duckkb.server.web import diff_view
from duckkb.server.web.form_fields import LONGEST_VALUE, Kind, condition, controls, fields_of, kinds
from duckkb.server.web.page_request import Visit
from duckkb.server.web.templates import excerpt, identity_of, mark_terms, place_of, terms_of, title_of
from duckkb.types.errors import DuckkbError, NotFound, UsageError
from duckkb.types.queries import Mode

EDGES = 25
"""Edges on a page."""
_PIECE = 10 * LONGEST_VALUE
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


async def record_page(visit: Visit) -> Response:
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
    versions = [diff_view.version(changes, number) for number in (old, new)]
    differences, same = await asyncio.to_thread(diff_view.compare, *versions)
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


SIZE = 50


async def records_page(visit: Visit) -> Response:
    """Show the types with their counts; with a type in the address, its records."""
    record_types, type_name = await kinds(visit), visit.get_parameter("type")
    if not type_name:
        return visit.render_page("records.html", kinds=record_types, kind=None, records=(), total=0, next=None)
    answer = await visit.ask("list", type=type_name, after=visit.request.query_params.get("after", ""), limit=SIZE)
    kind = next((item for item in record_types.values() if item.name.casefold() == type_name.casefold()), None)
    entries = []
    for item in answer["records"]:
        kind = record_types[item["_type"]]
        identity = identity_of(item, kind.identity)
        entries.append((identity, title_of(item, identity, kind.display)))
    return visit.render_page(
        "records.html", kinds=record_types, kind=kind, records=entries, total=answer["total"], next=answer["next"]
    )


SIZES = (10, 20, 50, 100)
DEEPEST = 1_000
"""Results up to which pages go; a more specific question, or a filter, finds later ones sooner."""
MODES: tuple[str, ...] = get_args(Mode)


class ShownHit(Struct, frozen=True):
    """A result as the page shows it: `rank` counts from 1, `scores` and `lanes` explain it."""

    rank: int
    type: str
    identity: str
    title: str
    excerpt: Any
    field: str
    score: float | None
    lanes: Mapping[str, Mapping[str, Any]]
    terms: Sequence[Mapping[str, Any]]
    etag: str
    is_filled: bool


async def search_page(visit: Visit) -> Response:
    """Show the form, which keeps what was typed, and the results or the error."""
    record_types = await kinds(visit)
    type_name = visit.get_parameter("type")
    fields = controls(await visit.ask("schema", type=type_name)) if type_name and type_name != "all" else ()
    where, results, problem, status = visit.get_parameter("where"), None, None, 200
    try:
        where = condition(fields, visit.request.query_params, where)
        results = await _run_search(visit, record_types, where) if visit.get_parameter("q") or where else None
    except DuckkbError as error:
        problem, status = failure(error)["error"], status_of(error)
        get_notes(visit.request.scope).code = error.code
    values: dict[str, Any] = {
        "kinds": record_types,
        "type": type_name or "all",
        "fields": fields,
        "is_filtered": bool(where or problem),
        "problem": problem,
        "modes": [mode for mode in MODES if mode != "where"],
        "sizes": SIZES,
        "found": results,
    }
    template = "results.html" if visit.is_part else "search.html"
    return visit.render_page(template, status, **values)


async def _run_search(visit: Visit, record_types: Mapping[str, Kind], where: str) -> dict[str, Any]:
    question, size, number = visit.get_parameter("q"), visit.number("limit", 10, 100), visit.number("page", 1, DEEPEST)
    start = min((number - 1) * size, DEEPEST - size)
    mode = visit.get_parameter("mode") if question else ""
    arguments = {"type": visit.get_parameter("type") or "all", "query": question, "mode": mode, "where": where}
    answer = await visit.ask("find", **arguments, limit=start + size, explain=bool(question), full=True)
    hits = [
        _build_hit(line, record_types, rank, question) for rank, line in enumerate(answer["results"][start:], start + 1)
    ]
    is_more = len(answer["results"]) == start + size and start + size < DEEPEST
    return {
        "hits": hits,
        "answer": answer,
        "start": start,
        "page": start // size + 1,
        "is_more": is_more,
        "command": _command(visit, arguments, start + size),
    }


def _build_hit(line: Mapping[str, Any], record_types: Mapping[str, Kind], rank: int, question: str) -> ShownHit:
    kind = record_types[line["_type"]]
    identity, trace = identity_of(line, kind.identity), line.get("_explain", {})
    matches = trace.get("terms") or ()  # empty where the lexical lane did not match
    terms = terms_of(question, (entry["token"] for entry in matches))
    span = trace.get("span")
    if span is not None and isinstance(line.get(span["field"]), str):
        field, text = span["field"], excerpt(line[span["field"]], span["start"])
    else:
        field, text = _find_text(line, kind, terms)
        text = excerpt(text, place_of(text, terms))
    return ShownHit(
        rank,
        kind.name,
        identity,
        title_of(line, identity, kind.display),
        mark_terms(text, terms),
        field,
        line.get("_score"),
        {name: place for name, place in trace.get("lanes", {}).items() if place["rank"]},
        matches,
        line["_etag"],
        "_filled" in line,
    )


def _find_text(line: Mapping[str, Any], kind: Kind, terms: Sequence[str]) -> tuple[str, str]:
    """Return the field and the text that matched: the best chunk.

    Where that is a whole field, the first field with a term, else the first field.
    """
    chunk = line.get("_chunk")
    if chunk is not None:
        value = read_value_at(line, chunk["field"])
        return chunk["field"], chunk.get("text") or (value if isinstance(value, str) else "")
    texts = [
        (name, _join_value(line[name])) for name in kind.texts or line if name in line and not name.startswith("_")
    ]
    texts = [pair for pair in texts if pair[1]] or [("", "")]
    with_terms = [pair for pair in texts if any(term in pair[1].casefold() for term in terms)]
    return max(with_terms or texts[:1], key=lambda pair: len(pair[1]))


def _join_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_join_value(item) for item in value[:50])
    return value if isinstance(value, str) else ""


def _command(visit: Visit, arguments: Mapping[str, str], limit: int) -> str:
    """Return the command line that prints what the page shows."""
    words = ["duckkb", *(["--at", visit.at] if visit.at else []), "find", arguments["type"]]
    words += [arguments["query"]] if arguments["query"] else []
    for name in ("mode", "where"):
        words += [f"--{name}", arguments[name]] if arguments[name] else []
    return shlex.join([*words, "--limit", str(limit), *(["--explain"] if arguments["query"] else [])])
