"""The health of a base: findings of `check`, pending work, its size and its growth."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from duckkb.serving.web import plots
from duckkb.serving.web.plots import Series
from duckkb.serving.web.visit import Visit

SIZE = 50
_NAMED = 7
"""Types with a colour of their own in a plot; the others share one."""


class FindingGroup(Struct, frozen=True):
    """The findings of one rule about records of one type (empty: about no record)."""

    code: str
    type: str
    count: int


async def page(visit: Visit) -> Response:
    """Show the answer of `status`; the other parts are loaded later."""
    status = await visit.ask("status")
    sizes = [
        (name, plots.format_size(status[name]["bytes"])) for name in ("store", "cache", "sealed") if status.get(name)
    ]
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
        measure: plots.areas(_build_series(names, commits, measure, visit.words("health.others")), labels)
        for measure in ("records", "bytes")
        if commits
    }
    totals = [
        (commit, *(sum(type[measure] for type in commit["types"].values()) for measure in ("records", "bytes")))
        for commit in reversed(commits)
    ]
    values = {"answer": answer, "plots": charts, "totals": totals, "sized": plots.format_size}
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
