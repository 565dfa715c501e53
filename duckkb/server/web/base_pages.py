"""The health of a base: findings of `check`, pending work, its size and its growth.

The ontology: its types as a picture and as a table, with the number of their records, and a page for each.

The quality of each lane's answers to the judged questions: at present, by question, and at commits of the
history.

Plots as shapes that a template draws: points in a frame of `WIDTH` by `HEIGHT` units, with the numbers of the
axes.

The series of a plot share the points of the horizontal axis, which are commits in their order; `None` is a gap."""

import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, RedirectResponse, Response

from duckkb.server.web.form_fields import Kind, kinds
from duckkb.server.web.page_request import Visit

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


async def ontology_page(visit: Visit) -> Response:
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


WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 12, 30
"""Margins around the field in which series are drawn."""
Value = float | int | None


class Series(Struct, frozen=True):
    """A named row of values; `hue` is the number of its colour."""

    name: str
    values: Sequence[Value]
    hue: int


class PlottedValue(Struct, frozen=True):
    """A value at its drawn position."""

    x: float
    y: float
    value: float


class Drawn(Struct, frozen=True):
    """A series as it is drawn: `path` is an SVG line or area, `marks` are the values that stand alone or end it."""

    name: str
    hue: int
    path: str
    marks: tuple[PlottedValue, ...]


class Plot(Struct, frozen=True):
    """A plot: `ticks` are numbers with their height.

    `labels` are texts with their horizontal place, and their alignment to it (start, middle, end).
    """

    series: tuple[Drawn, ...]
    ticks: tuple[tuple[float, float], ...]
    labels: tuple[tuple[str, float, str], ...]
    is_area: bool


def lines(series: Sequence[Series], labels: Sequence[str], most: float) -> Plot:
    """Draw each series as a line, from 0 to `most`."""
    places = _place_columns(len(labels))
    shapes = []
    for row in series:
        marks = [
            PlottedValue(x, _place_height(value, most), value)
            for x, value in zip(places, row.values, strict=True)
            if value is not None
        ]
        runs = _split_runs(row.values, places, most)
        path = " ".join("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs if len(run) > 1)
        shapes.append(Drawn(row.name, row.hue, path, tuple(marks)))
    return Plot(tuple(shapes), _build_ticks(most, most / 4), _place_labels(labels, places), False)


def areas(series: Sequence[Series], labels: Sequence[str]) -> Plot:
    """Draw stacked series, the first one at the bottom; their height is the sum."""
    places = _place_columns(len(labels))
    sums = [0.0] * len(labels)
    layers = []
    for row in series:
        floor, sums = sums, [below + (value or 0) for below, value in zip(sums, row.values, strict=True)]
        layers.append((row, floor, sums))
    step = _choose_step(max(sums, default=0.0))
    most = max(step, math.ceil(max(sums, default=0.0) / step) * step)
    shapes = []
    for row, floor, top in layers:
        edge, back = (
            _widen_edge([(x, _place_height(value, most)) for x, value in zip(places, side, strict=True)])
            for side in (top, floor)
        )
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in (*edge, *reversed(back))) + " Z"
        shapes.append(Drawn(row.name, row.hue, path, ()))
    return Plot(tuple(shapes), _build_ticks(most, step), _place_labels(labels, places), True)


def _split_runs(values: Sequence[Value], places: Sequence[float], most: float) -> list[list[tuple[float, float]]]:
    """Return the points between gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, value in zip(places, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x, _place_height(value, most)))
    return runs


def _widen_edge(edge: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Widen a single point, which has no width, to the whole field."""
    if len(edge) != 1:
        return edge
    return [(LEFT, edge[0][1]), (WIDTH - RIGHT, edge[0][1])]


def _place_columns(count: int) -> list[float]:
    field = WIDTH - LEFT - RIGHT
    return [LEFT + (field * at / (count - 1) if count > 1 else field / 2) for at in range(count)]


def _place_height(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / most if most else 0)


def _choose_step(most: float) -> int:
    """Return the distance of about four ticks: 1, 2 or 5 and zeros.

    >>> _choose_step(1310), _choose_step(7), _choose_step(0)
    (500, 2, 1)
    """
    target = most / 4
    if target <= 1:
        return 1
    power = int(10 ** math.floor(math.log10(target)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= target)


def _build_ticks(most: float, step: float) -> tuple[tuple[float, float], ...]:
    return tuple((number * step, _place_height(number * step, most)) for number in range(round(most / step) + 1))


def _place_labels(labels: Sequence[str], places: Sequence[float]) -> tuple[tuple[str, float, str], ...]:
    """Return the first, the middle and the last label, with their places."""
    last = len(labels) - 1
    indexes = dict.fromkeys([0, last // 2, last] if last > 3 else [0, last] if last > 0 else [0] if last == 0 else [])
    return tuple(
        (labels[at], places[at], "middle" if last == 0 or 0 < at < last else "start" if at == 0 else "end")
        for at in indexes
    )


def format_size(count: float) -> str:
    """Return a readable size in bytes.

    >>> format_size(999), format_size(230_578), format_size(4_000_000_000)
    ('999 B', '231 kB', '4.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes any number")


SIZE = 50
_NAMED = 7
"""Types with a colour of their own in a plot; the others share one."""


class FindingGroup(Struct, frozen=True):
    """The findings of one rule about records of one type (empty: about no record)."""

    code: str
    type: str
    count: int


async def health_page(visit: Visit) -> Response:
    """Show the answer of `status`; the other parts are loaded later."""
    status = await visit.ask("status")
    sizes = [(name, format_size(status[name]["bytes"])) for name in ("store", "cache", "sealed") if status.get(name)]
    return visit.render_page(
        "health.html",
        state=status,
        sizes=sizes,
        records=sum(status["records"].values()),
        command=_format_command(visit, "status"),
    )


async def findings(visit: Visit) -> Response:
    """Show the report of `check`: counts by rule and type, and a page of the selected findings."""
    report = await visit.ask("check")
    code, of = visit.get_parameter("code"), visit.request.query_params.get("type")
    counts = Counter((entry["code"], entry.get("type", "")) for entry in report["findings"])
    groups = [
        FindingGroup(*key, count)
        for key, count in sorted(counts.items(), key=lambda entry: (entry[0][0][0] != "E", -entry[1], entry[0]))
    ]
    matches = [
        entry
        for entry in report["findings"]
        if (not code or entry["code"] == code) and (of is None or entry.get("type", "") == of)
    ]
    pages = max(1, -(-len(matches) // SIZE))
    number = min(visit.number("page", 1, 1_000_000), pages)
    visible_findings = matches[(number - 1) * SIZE : number * SIZE]
    values = {
        "report": report,
        "groups": groups,
        "shown": visible_findings,
        "code": code,
        "of": of,
        "page": number,
        "pages": pages,
    }
    return _render_part(visit, "findings", **values, command=_format_command(visit, "check"))


async def growth(visit: Visit) -> Response:
    """Show sizes now, and over the history."""
    answer = await visit.ask("growth", limit=50, timeout=8)
    commits = answer["commits"] or []
    labels = [commit["date"][:10] for commit in commits]
    names = _rank_types(answer["types"], commits)
    charts = {
        measure: areas(_build_series(names, commits, measure, visit.words("health.others")), labels)
        for measure in ("records", "bytes")
        if commits
    }
    totals = [
        (commit, *(sum(type[measure] for type in commit["types"].values()) for measure in ("records", "bytes")))
        for commit in reversed(commits)
    ]
    values = {"answer": answer, "plots": charts, "totals": totals, "sized": format_size}
    return _render_part(visit, "growth", **values, command=_format_command(visit, "growth"))


def _rank_types(types: Sequence[Mapping[str, Any]], commits: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the types in the order of their highest number of records."""
    most: Counter[str] = Counter({entry["name"]: entry["records"] for entry in types})
    for entry in commits:
        for name, sizes in entry["types"].items():
            most[name] = max(most[name], sizes["records"])
    return [name for name, count in most.most_common() if count]


def _build_series(
    names: Sequence[str], commits: Sequence[Mapping[str, Any]], measure: str, other_label: str
) -> list[Series]:
    def sum_types(some: Sequence[str]) -> list[int]:
        return [sum(commit["types"].get(name, {measure: 0})[measure] for name in some) for commit in commits]

    series = [Series(name, sum_types([name]), hue) for hue, name in enumerate(names[:_NAMED])]
    remaining_names = names[_NAMED:]
    return [*series, Series(other_label, sum_types(remaining_names), _NAMED)] if remaining_names else series


def _render_part(visit: Visit, name: str, **values: Any) -> Response:
    values |= {"part": f"health_{name}.html", "name": name}
    return visit.render_page(f"health_{name}.html" if visit.is_part else "health_part.html", **values)


def _format_command(visit: Visit, *words: str) -> str:
    return shlex.join(["duckkb", *words, *(["--at", visit.at] if visit.at and words[0] == "growth" else [])])


PLOT_SIZE = 25
LANES = ("hybrid", "similar", "match")
"""The lanes in the order in which they are shown."""
_SECONDS = 15
"""Seconds for which one call of a page asks questions; the next call asks the others."""


async def quality_page(visit: Visit) -> Response:
    """Show the frame, as unanswered questions take a while. A form with its proof evaluates one more commit."""
    if visit.request.method == "POST":
        await visit.ask("quality", evaluate=1, timeout=_SECONDS)
        return RedirectResponse(visit.link("quality"), 303)
    return visit.render_page("quality.html")


async def report(visit: Visit) -> Response:
    """Show means, their history, and a page of questions, those that the first lane answers worst first."""
    answer = await visit.ask("quality", timeout=_SECONDS)
    by = visit.get_parameter("by") if visit.get_parameter("by") in LANES else "hybrid"
    questions = sorted(
        (item for item in answer["questions"] if item["lanes"]), key=lambda item: _score_question(item, by)
    )
    pages = max(1, -(-len(questions) // PLOT_SIZE))
    number = min(visit.number("page", 1, 1_000_000), pages)
    commits = answer["commits"] or []
    series = [
        Series(visit.words(f"search.mode.{lane}"), [item["ndcg"][lane] for item in commits], hue)
        for hue, lane in enumerate(LANES)
    ]
    values: dict[str, Any] = {
        "answer": answer,
        "lanes": LANES,
        "by": by,
        "questions": questions[(number - 1) * PLOT_SIZE : number * PLOT_SIZE],
        "page": number,
        "pages": pages,
        "plot_of": lines(series, [item["date"][:10] for item in commits], 1.0) if commits else None,
        "may": visit.caller.may("admin") and not visit.at,
        "command": shlex.join(["duckkb", "quality", *(["--at", visit.at] if visit.at else [])]),
        "part": "quality_report.html",
    }
    return visit.render_page("quality_report.html" if visit.is_part else "quality_part.html", **values)


def _score_question(question: Mapping[str, Any], lane: str) -> tuple[bool, float]:
    """Return the sort key of a question; those that a lane cannot be asked come last."""
    score = question["lanes"][lane]["ndcg"]
    return score is None, score or 0.0
