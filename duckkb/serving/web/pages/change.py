"""The pages of changes: the branches to review, and one change by records, with its findings and its effect on
search.
"""

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from duckkb.review.diff.model import OPS
from duckkb.serving.web.differing import build_changed_record
from duckkb.serving.web.kinds import kinds
from duckkb.serving.web.visit import Visit

VIEWS = ("joined", "beside")
_BUDGET = 80_000
"""Bytes of changes on a page, as the action gives them; at least one record."""
_MOST_FINDINGS, _MOST_QUESTIONS = 200, 50
_LEAST = 2_000


async def branches(visit: Visit) -> Response:
    """Show what is to be reviewed: the changes of the files since the last commit, and those of branches."""
    answer = await visit.ask("branches", limit=20, after=visit.get_parameter("after"))
    is_ready = answer["operation"] is None  # while records are in conflict, types are unknown
    record_types = await kinds(visit) if visit.edits and is_ready and visit.caller.may("editor") else {}
    return visit.render_page("changes.html", found=answer, kinds=record_types, totals=_sum_counts)


async def page(visit: Visit) -> Response:
    """Show one change from a cursor on, as many records as fit."""
    target, op, type = _read_target(visit), visit.get_parameter("op"), visit.get_parameter("type")
    ops = [op] if op in OPS else list(OPS)
    answer = await visit.ask(
        "diff", **target, ops=ops, only=[type] if type else None, budget=_BUDGET, after=visit.get_parameter("after")
    )
    tip = await _find_tip(visit, target)
    has_filter = bool(type) or len(ops) == 1
    counts = tip["records"] if tip else (await visit.ask("diff", **target, ops=list(OPS), budget=_LEAST))["types"]
    changes = await asyncio.to_thread(lambda: list(map(build_changed_record, answer["changes"])))
    return visit.render_page(
        "change.html",
        what=target,
        name=target.get("branch") or target.get("range", ""),
        answer=answer,
        tip=tip,
        changes=changes,
        counts=counts or answer["types"],
        total=sum(answer["summary"][name] for name in OPS),
        is_filtered=has_filter,
        op=op,
        type=type,
        view=visit.get_parameter("view") if visit.get_parameter("view") in VIEWS else VIEWS[0],
        ops=OPS,
        views=VIEWS,
        command=_command("diff", target),
        sees_all=visit.caller.types is None,
    )


async def findings(visit: Visit) -> Response:
    """Show the findings of a change: all of them, or for callers without that right, those of the touched files."""
    target = _read_target(visit)
    command = ["check", "--since", _build_range(target) or "HEAD"]
    if "branch" in target:
        report = await visit.ask("check", branch=target["branch"])
    elif visit.caller.types is None and visit.caller.may("admin"):
        report = await visit.ask("check", since=target.get("range", "HEAD"))
    else:
        report, command = await visit.ask("diff", **target), ["diff"]
    blank = dict.fromkeys(("type", "identity", "field", "path", "line", "remedy"), "")
    entries = [
        blank | finding
        for finding in sorted(report["findings"], key=lambda finding: not finding["code"].startswith("E_"))
    ]
    return visit.render_page(
        "change_findings.html",
        findings=entries[:_MOST_FINDINGS],
        rest=max(0, len(entries) - _MOST_FINDINGS),
        errors=sum(finding["code"].startswith("E_") for finding in entries),
        total=len(entries),
        is_judged=report["outcome"] != "not_judged",
        command=shlex.join(["duckkb", *command]),
        back=visit.link("change", **target),
    )


async def impact(visit: Visit) -> Response:
    """Show the effect of a change on the judged questions, largest losses first."""
    target = _read_target(visit)
    report = await visit.ask("impact", **target)
    rows = [row for row in report["results"] if _has_change(row)]
    rows.sort(key=lambda row: (row["ndcg"]["after"] or 0) - (row["ndcg"]["before"] or 0))
    return visit.render_page(
        "change_impact.html",
        report=report,
        rows=rows[:_MOST_QUESTIONS],
        rest=max(0, len(rows) - _MOST_QUESTIONS),
        command=_command("impact", target),
        back=visit.link("change", **target),
    )


def _read_target(visit: Visit) -> dict[str, str]:
    """Return what is compared, as actions take it: a branch, a range, or nothing for the files on disk."""
    return {name: value for name in ("branch", "range") if (value := visit.get_parameter(name))}


def _build_range(target: Mapping[str, str]) -> str:
    return f"HEAD...{target['branch']}" if "branch" in target else target.get("range", "")


def _command(verb: str, target: Mapping[str, str]) -> str:
    return shlex.join(["duckkb", verb, *filter(None, [_build_range(target)])])


async def _find_tip(visit: Visit, target: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "branch" not in target:
        return None
    return next(iter((await visit.ask("branches", branch=target["branch"]))["branches"]), None)


def _sum_counts(counts: Mapping[str, Mapping[str, int]] | None) -> dict[str, int] | None:
    """Return the number of records of each kind of change, over all types."""
    return None if counts is None else {op: sum(type_counts[op] for type_counts in counts.values()) for op in OPS}


def _has_change(row: Mapping[str, Any]) -> bool:
    return row["before"] != row["after"] or bool(row["faded"]) or "problem" in row
