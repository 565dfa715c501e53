"""How well the judged questions are answered by each lane: now, question by question, and at commits of the history."""

import shlex
from collections.abc import Mapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from duckkb.serving.web import plots
from duckkb.serving.web.plots import Series
from duckkb.serving.web.visit import Visit

SIZE = 25
LANES = ("hybrid", "similar", "match")
"""In the order in which they are shown."""
_SECONDS = 15
"""So long one call of a page asks questions; those that are left are the next one's."""


async def page(visit: Visit) -> Response:
    """The frame, as questions that nobody has asked yet take a while. Sent with its proof: evaluate one more commit."""
    if visit.request.method == "POST":
        await visit.ask("quality", evaluate=1, timeout=_SECONDS)
        return RedirectResponse(visit.link("quality"), 303)
    return visit.shown("quality.html")


async def report(visit: Visit) -> Response:
    """Means, their history, and a page of questions, those that the first lane answers worst first."""
    answer = await visit.ask("quality", timeout=_SECONDS)
    by = visit.given("by") if visit.given("by") in LANES else "hybrid"
    asked = sorted((one for one in answer["questions"] if one["lanes"]), key=lambda one: _worst(one, by))
    pages = max(1, -(-len(asked) // SIZE))
    number = min(visit.number("page", 1, 1_000_000), pages)
    commits = answer["commits"] or []
    series = [
        Series(visit.words(f"search.mode.{lane}"), [one["ndcg"][lane] for one in commits], hue)
        for hue, lane in enumerate(LANES)
    ]
    values: dict[str, Any] = {
        "answer": answer,
        "lanes": LANES,
        "by": by,
        "questions": asked[(number - 1) * SIZE : number * SIZE],
        "page": number,
        "pages": pages,
        "plot_of": plots.lines(series, [one["date"][:10] for one in commits], 1.0) if commits else None,
        "may": visit.caller.may("admin") and not visit.at,
        "command": shlex.join(["duckkb", "quality", *(["--at", visit.at] if visit.at else [])]),
        "part": "quality_report.html",
    }
    return visit.shown("quality_report.html" if visit.is_part else "quality_part.html", **values)


def _worst(question: Mapping[str, Any], lane: str) -> tuple[bool, float]:
    """Those that a lane cannot be asked come last."""
    found = question["lanes"][lane]["ndcg"]
    return found is None, found or 0.0
