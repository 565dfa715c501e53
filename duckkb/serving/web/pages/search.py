"""The page of search: the action `find`, with a form by the ontology."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct
from starlette.responses import Response

from duckkb.actions.registry.run import failure
from duckkb.errors import DuckkbError
from duckkb.indexing.chunk import read_value_at
from duckkb.queries import Mode
from duckkb.serving.statuses import status_of
from duckkb.serving.telemetry.noted import get_notes
from duckkb.serving.web.filters import condition, controls
from duckkb.serving.web.kinds import Kind, kinds
from duckkb.serving.web.marking import excerpt, mark_terms, place_of, terms_of
from duckkb.serving.web.naming import identity_of, title_of
from duckkb.serving.web.visit import Visit

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


async def page(visit: Visit) -> Response:
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
