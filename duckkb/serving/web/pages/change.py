"""The pages of changes: the branches that are to be reviewed, and what one of them does, record by record, with what is wrong with it
and what it does to search."""

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from duckkb.review.diff.model import OPS
from duckkb.serving.web.differing import changed
from duckkb.serving.web.kinds import kinds
from duckkb.serving.web.visit import Visit

VIEWS = ("joined", "beside")
_BUDGET = 80_000
"""Bytes of changes, as the action gives them, that are a page; one record at least."""
_MOST_FINDINGS, _MOST_QUESTIONS = 200, 50
_LEAST = 2_000


async def branches(visit: Visit) -> Response:
    """What is to be reviewed: what the files hold beyond the last commit, and what branches do."""
    found = await visit.ask("branches", limit=20, after=visit.given("after"))
    is_ready = found["operation"] is None  # while records are in conflict no type is told
    known = await kinds(visit) if visit.edits and is_ready and visit.caller.may("editor") else {}
    return visit.shown("changes.html", found=found, kinds=known, totals=_totals)


async def page(visit: Visit) -> Response:
    """One change, as many records as have room, from a cursor on."""
    what, op, type = _what(visit), visit.given("op"), visit.given("type")
    ops = [op] if op in OPS else list(OPS)
    answer = await visit.ask(
        "diff", **what, ops=ops, only=[type] if type else None, budget=_BUDGET, after=visit.given("after")
    )
    tip = await _tip(visit, what)
    is_filtered = bool(type) or len(ops) == 1
    counts = tip["records"] if tip else (await visit.ask("diff", **what, ops=list(OPS), budget=_LEAST))["types"]
    changes = await asyncio.to_thread(lambda: list(map(changed, answer["changes"])))
    return visit.shown(
        "change.html",
        what=what,
        name=what.get("branch") or what.get("range", ""),
        answer=answer,
        tip=tip,
        changes=changes,
        counts=counts or answer["types"],
        total=sum(answer["summary"][name] for name in OPS),
        is_filtered=is_filtered,
        op=op,
        type=type,
        view=visit.given("view") if visit.given("view") in VIEWS else VIEWS[0],
        ops=OPS,
        views=VIEWS,
        command=_command("diff", what),
        sees_all=visit.caller.types is None,
    )


async def findings(visit: Visit) -> Response:
    """What is wrong with a change: all that it brings, or, for who may not ask for that, what the files tell that it touches."""
    what = _what(visit)
    command = ["check", "--since", _range(what) or "HEAD"]
    if "branch" in what:
        report = await visit.ask("check", branch=what["branch"])
    elif visit.caller.types is None and visit.caller.may("admin"):
        report = await visit.ask("check", since=what.get("range", "HEAD"))
    else:
        report, command = await visit.ask("diff", **what), ["diff"]
    blank = dict.fromkeys(("type", "identity", "field", "path", "line", "remedy"), "")
    ordered = [blank | one for one in sorted(report["findings"], key=lambda one: not one["code"].startswith("E_"))]
    return visit.shown(
        "change_findings.html",
        findings=ordered[:_MOST_FINDINGS],
        rest=max(0, len(ordered) - _MOST_FINDINGS),
        errors=sum(one["code"].startswith("E_") for one in ordered),
        total=len(ordered),
        is_judged=report["outcome"] != "not_judged",
        command=shlex.join(["duckkb", *command]),
        back=visit.link("change", **what),
    )


async def impact(visit: Visit) -> Response:
    """What a change does to the answers of the judged questions, those that lost most first."""
    what = _what(visit)
    report = await visit.ask("impact", **what)
    rows = [one for one in report["results"] if _is_changed(one)]
    rows.sort(key=lambda one: (one["ndcg"]["after"] or 0) - (one["ndcg"]["before"] or 0))
    return visit.shown(
        "change_impact.html",
        report=report,
        rows=rows[:_MOST_QUESTIONS],
        rest=max(0, len(rows) - _MOST_QUESTIONS),
        command=_command("impact", what),
        back=visit.link("change", **what),
    )


def _what(visit: Visit) -> dict[str, str]:
    """What is compared, as actions take it: a branch, a range, or nothing for the files as they are."""
    return {name: value for name in ("branch", "range") if (value := visit.given(name))}


def _range(what: Mapping[str, str]) -> str:
    return f"HEAD...{what['branch']}" if "branch" in what else what.get("range", "")


def _command(verb: str, what: Mapping[str, str]) -> str:
    return shlex.join(["duckkb", verb, *filter(None, [_range(what)])])


async def _tip(visit: Visit, what: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "branch" not in what:
        return None
    return next(iter((await visit.ask("branches", branch=what["branch"]))["branches"]), None)


def _totals(counts: Mapping[str, Mapping[str, int]] | None) -> dict[str, int] | None:
    """How many records of each kind of change, over all types."""
    return None if counts is None else {op: sum(one[op] for one in counts.values()) for op in OPS}


def _is_changed(row: Mapping[str, Any]) -> bool:
    return row["before"] != row["after"] or bool(row["faded"]) or "problem" in row
