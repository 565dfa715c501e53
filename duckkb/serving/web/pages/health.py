"""The health of a base: what `check` finds, what is still to be done, how large it is, and how it has grown."""

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
"""Types that have a colour of their own in a plot; the others are one."""


class FindingGroup(Struct, frozen=True):
    """Findings of one rule about records of one type (empty: about no record)."""

    code: str
    type: str
    count: int


async def page(visit: Visit) -> Response:
    """What `status` says; the rest comes when it is there."""
    status = await visit.ask("status")
    sizes = [(name, plots.sized(status[name]["bytes"])) for name in ("store", "cache", "sealed") if status.get(name)]
    return visit.shown(
        "health.html",
        state=status,
        sizes=sizes,
        records=sum(status["records"].values()),
        command=_command(visit, "status"),
    )


async def findings(visit: Visit) -> Response:
    """What `check` reports: how many of each rule and type, and a page of those that are asked for."""
    report = await visit.ask("check")
    code, of = visit.given("code"), visit.request.query_params.get("type")
    counts = Counter((one["code"], one.get("type", "")) for one in report["findings"])
    groups = [
        FindingGroup(*key, count)
        for key, count in sorted(counts.items(), key=lambda one: (one[0][0][0] != "E", -one[1], one[0]))
    ]
    chosen = [
        one
        for one in report["findings"]
        if (not code or one["code"] == code) and (of is None or one.get("type", "") == of)
    ]
    pages = max(1, -(-len(chosen) // SIZE))
    number = min(visit.number("page", 1, 1_000_000), pages)
    shown = chosen[(number - 1) * SIZE : number * SIZE]
    values = {
        "report": report,
        "groups": groups,
        "shown": shown,
        "code": code,
        "of": of,
        "page": number,
        "pages": pages,
    }
    return _part(visit, "findings", **values, command=_command(visit, "check"))


async def growth(visit: Visit) -> Response:
    """Sizes now, and over the history."""
    answer = await visit.ask("growth", limit=50, timeout=8)
    commits = answer["commits"] or []
    labels = [one["date"][:10] for one in commits]
    names = _largest(answer["types"], commits)
    found = {
        what: plots.areas(_series(names, commits, what, visit.words("health.others")), labels)
        for what in ("records", "bytes")
        if commits
    }
    totals = [
        (one, *(sum(type[what] for type in one["types"].values()) for what in ("records", "bytes")))
        for one in reversed(commits)
    ]
    values = {"answer": answer, "plots": found, "totals": totals, "sized": plots.sized}
    return _part(visit, "growth", **values, command=_command(visit, "growth"))


def _largest(types: Sequence[Mapping[str, Any]], commits: Sequence[Mapping[str, Any]]) -> list[str]:
    """The types in the order of their records: the most that they had."""
    most: Counter[str] = Counter({one["name"]: one["records"] for one in types})
    for one in commits:
        for name, sizes in one["types"].items():
            most[name] = max(most[name], sizes["records"])
    return [name for name, count in most.most_common() if count]


def _series(names: Sequence[str], commits: Sequence[Mapping[str, Any]], what: str, others: str) -> list[Series]:
    def of(some: Sequence[str]) -> list[int]:
        return [sum(one["types"].get(name, {what: 0})[what] for name in some) for one in commits]

    named = [Series(name, of([name]), hue) for hue, name in enumerate(names[:_NAMED])]
    rest = names[_NAMED:]
    return [*named, Series(others, of(rest), _NAMED)] if rest else named


def _part(visit: Visit, name: str, **values: Any) -> Response:
    values |= {"part": f"health_{name}.html", "name": name}
    return visit.shown(f"health_{name}.html" if visit.is_part else "health_part.html", **values)


def _command(visit: Visit, *words: str) -> str:
    return shlex.join(["duckkb", *words, *(["--at", visit.at] if visit.at and words[0] == "growth" else [])])
