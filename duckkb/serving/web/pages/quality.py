"""The quality of each lane's answers to the judged questions: at present, by question, and at commits of the
history.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from duckkb.serving.web import plots
from duckkb.serving.web.plots import Series
from duckkb.serving.web.visit import Visit

SIZE = 25
LANES = ("hybrid", "similar", "match")
"""The lanes in the order in which they are shown."""
_SECONDS = 15
"""Seconds for which one call of a page asks questions; the next call asks the others."""


async def page(visit: Visit) -> Response:
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
    pages = max(1, -(-len(questions) // SIZE))
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
        "questions": questions[(number - 1) * SIZE : number * SIZE],
        "page": number,
        "pages": pages,
        "plot_of": plots.lines(series, [item["date"][:10] for item in commits], 1.0) if commits else None,
        "may": visit.caller.may("admin") and not visit.at,
        "command": shlex.join(["duckkb", "quality", *(["--at", visit.at] if visit.at else [])]),
        "part": "quality_report.html",
    }
    return visit.render_page("quality_report.html" if visit.is_part else "quality_part.html", **values)


def _score_question(question: Mapping[str, Any], lane: str) -> tuple[bool, float]:
    """Return the sort key of a question; those that a lane cannot be asked come last."""
    score = question["lanes"][lane]["ndcg"]
    return score is None, score or 0.0
