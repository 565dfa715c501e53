"""A change as one judgement: its findings, its differences and its effect on search under one headline.

The comment, the page, the log for code scanning and the annotations are made from one such value.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.errors import DuckkbError, Finding
from duckkb.review.diff import html, markdown
from duckkb.review.diff.model import Diff, DiffOptions
from duckkb.review.diff.report import iter_json as diff_json
from duckkb.review.impact import impact_report
from duckkb.review.impact.impact import ImpactReport
from duckkb.review.reports import findings as reported
from duckkb.review.reports import sarif
from duckkb.review.reports.markup import dumps, many

_HEADLINE = 600
"""Bytes of a headline and the limits below it, at most."""
_MOST_CODES = 6
_IMPACT_SHARE = 0.45


class Review(Struct, frozen=True, dict=True):
    """The results of `diff` and `impact` for one change, or the errors that prevented them.

    `diff` is judged as a whole.
    """

    diff: Diff | DuckkbError
    impact: ImpactReport | DuckkbError
    prefix: str = ""

    @property
    def problems(self) -> dict[str, DuckkbError]:
        """The errors of what could not run, by name."""
        both = {"diff": self.diff, "impact": self.impact}
        return {name: part for name, part in both.items() if isinstance(part, DuckkbError)}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of the change, once: those of the difference, or of the error that prevented it."""
        return tuple(self.diff.findings)

    @property
    def left_out(self) -> tuple[Finding, ...]:
        """The findings of what the impact left out, which are no findings of the change."""
        if isinstance(self.impact, DuckkbError):
            return ()
        known_keys = {(finding.code, finding.path, finding.field) for finding in self.findings}
        known_keys |= {(finding.code, "", "") for finding in self.findings if finding.code == "W_BASE_CONFIG"}
        return tuple(
            finding for finding in self.impact.findings if (finding.code, finding.path, finding.field) not in known_keys
        )

    @property
    def outcome(self) -> reported.Outcome:
        if self.problems:
            return reported.COULD_NOT_RUN
        errors = sum(finding.is_error for finding in self.findings)
        limits = isinstance(self.impact, ImpactReport) and self.impact.crossed
        return "findings" if errors else "limits" if limits else "passed"

    def headline(self, not_shown: int = 0) -> str:
        """Return the outcome in one line.

        It names what could not run, what crossed a limit, errors and warnings with their codes, and what was
        not judged or left out; `not_shown` records have no room. It is `passed` where there is nothing else.
        """
        impact = self.impact if isinstance(self.impact, ImpactReport) else None
        clauses = [f"{name} could not run" for name in self.problems]
        clauses += ["limits crossed"] if impact and impact.crossed else []
        grades = reported.count_findings(self.findings)
        if self.outcome == "passed":
            clauses, grades = [" with ".join(["passed", *grades])], []
        codes = Counter(finding.code for finding in self.findings).most_common()
        counts = [f"{count:,} {code}" for code, count in codes[:_MOST_CODES]]
        counts += ["…"] if len(codes) > _MOST_CODES else []
        head = ", ".join([*clauses, *grades]) + (f" ({', '.join(counts)})" if counts else "")
        return "; ".join([head, *self._list_caveats(impact, not_shown)])

    def _list_caveats(self, impact: ImpactReport | None, not_shown: int) -> Iterator[str]:
        if isinstance(self.diff, Diff) and self.diff.is_empty:
            yield "no record differs"
        if impact and not impact.rows:
            yield "no question judges what this does to search"
        elif impact and not impact.limits and not (isinstance(self.diff, Diff) and self.diff.is_empty):
            yield "no limit was set on what this does to search (--fail-on, as the workflows have it)"
        if impact and impact.degraded:
            yield "search was compared by words alone"
        if self.left_out:
            yield f"{many(len(self.left_out), 'note')} on what the impact left out"
        if not_shown:
            yield f"{many(not_shown, 'record')} without room here"


def iter_comment(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the comment, of at most `options.budget` bytes: the headline, findings and records, then the impact."""
    impact = _render_impact(review, int(options.budget * _IMPACT_SHARE))
    room = options.budget - len(impact.encode()) - _HEADLINE
    if isinstance(review.diff, DuckkbError):
        body, overflow = "\n".join(reported.iter_stop_markdown(review.diff, review.prefix)), 0
    else:
        body, overflow = markdown.fit(review.diff, replace(options, budget=max(2_000, room)))
    yield f"**{review.headline(overflow)}**\n"
    yield f"{body}\n"
    yield impact


def _render_impact(review: Review, budget: int) -> str:
    if isinstance(review.impact, DuckkbError):
        return "\n".join(reported.iter_stop_markdown(review.impact, review.prefix))
    report = replace(review.impact, findings=review.left_out)
    return "\n".join(impact_report.iter_markdown(report, budget))


def iter_review_page(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the page of the difference with the headline and the impact.

    Raises the error that prevented the difference.
    """
    if isinstance(review.diff, DuckkbError):
        raise review.diff
    if isinstance(review.impact, DuckkbError):
        lines = [f"Could not run: {review.impact.message}"]
    else:
        lines = list(impact_report.iter_text(replace(review.impact, findings=review.left_out), options.budget))
    yield from html.render(review.diff, options, (review.headline(), lines))


def iter_sarif(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the log for code scanning; where the difference failed, it says so."""
    if isinstance(review.diff, DuckkbError):
        yield from sarif.build_stop_log(review.diff, review.prefix)
    else:
        yield from sarif.lines(review.findings, review.prefix)


def iter_workflow_commands(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the workflow commands of a job's log."""
    for problem in review.problems.values():
        yield from reported.iter_stop_commands(problem, review.prefix)
    yield from reported.commands(review.findings, review.prefix)


def iter_json(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield one object: `diff` and `impact` as these verbs print them, null where one could not run."""
    head = {"version": 1, "outcome": review.outcome, "headline": review.headline()}
    problems: dict[str, Any] = {
        name: {"code": problem.code, "message": problem.message, "suggestion": problem.suggestion}
        for name, problem in review.problems.items()
    }
    diff = "null" if isinstance(review.diff, DuckkbError) else "".join(diff_json(review.diff, options))
    impact = None if isinstance(review.impact, DuckkbError) else impact_report.convert_report_to_object(review.impact)
    yield f'{dumps(head | {"problems": problems})[:-1]},"diff":{diff},"impact":{dumps(impact)}}}'
