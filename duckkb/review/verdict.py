"""A change as one judgement: its findings, its differences and its effect on search under one headline.

The comment, the page, the log for code scanning and the annotations are made from one such value.

The destination of a proposal: its branch, and how its pull request is opened."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from duckkb.review import diff_report, diff_text, impact_report, report_formats
from duckkb.review.diff_model import Diff, DiffOptions
from duckkb.review.diff_report import iter_json as diff_json
from duckkb.review.impact_report import ImpactReport
from duckkb.review.report_markup import dumps, many
from duckkb.storage import git_process, repository
from duckkb.types.errors import DuckkbError, Finding

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
    def outcome(self) -> report_formats.Outcome:
        if self.problems:
            return report_formats.COULD_NOT_RUN
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
        grades = report_formats.count_findings(self.findings)
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
        body, overflow = "\n".join(report_formats.iter_stop_markdown(review.diff, review.prefix)), 0
    else:
        body, overflow = diff_text.fit(review.diff, replace(options, budget=max(2_000, room)))
    yield f"**{review.headline(overflow)}**\n"
    yield f"{body}\n"
    yield impact


def _render_impact(review: Review, budget: int) -> str:
    if isinstance(review.impact, DuckkbError):
        return "\n".join(report_formats.iter_stop_markdown(review.impact, review.prefix))
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
    yield from diff_report.render(review.diff, options, (review.headline(), lines))


def iter_sarif(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the log for code scanning; where the difference failed, it says so."""
    if isinstance(review.diff, DuckkbError):
        yield from report_formats.build_stop_log(review.diff, review.prefix)
    else:
        yield from report_formats.sarif_lines(review.findings, review.prefix)


def iter_workflow_commands(review: Review, options: DiffOptions) -> Iterator[str]:
    """Yield the workflow commands of a job's log."""
    for problem in review.problems.values():
        yield from report_formats.iter_stop_commands(problem, review.prefix)
    yield from report_formats.commands(review.findings, review.prefix)


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


_SCP = re.compile(r"(?:[^@/:]+@)?([^/:]+):(?!//)(.+)")


class Remote(Struct, frozen=True):
    """A remote by its name, its forge's host and the path of the repository there; both empty for a folder."""

    name: str
    host: str = ""
    path: str = ""


class Opening(Struct, frozen=True):
    """The steps that open a pull request: the command that pushes the branch, and the page that then opens it.

    The command is empty without a remote, the page where the forge is unknown.
    """

    push: str = ""
    url: str = ""


def branch_name(verb: str, what: str, unique: str) -> str:
    """Return the name of a proposal's branch.

    >>> branch_name("put", "Note Book", "1f3a9c")
    'propose/put-note-book-1f3a9c'
    """
    words = re.sub(r"[^a-z0-9]+", "-", f"{verb} {what}".lower()).strip("-")
    return f"propose/{words[:60]}-{unique}"


def remote(root: Path) -> Remote | None:
    """Return the remote of the current branch, else `origin`, else the only one."""
    names = (git_process.text(root, ["remote"]) or "").split("\n")
    upstream = git_process.text(root, ["config", "--get", f"branch.{repository.branch(root)}.remote"])
    for name in (upstream, "origin", names[0] if len(names) == 1 else None):
        if name and name in names:
            address = git_process.text(root, ["config", "--get", f"remote.{name}.url"]) or ""
            return Remote(name, *_parse_address(address))
    return None


def build_opening(where: Remote | None, branch: str, onto: str) -> Opening:
    """Return the steps from a branch to a pull request onto another."""
    if where is None:
        return Opening()
    push = f"git push -u {where.name} {branch}"
    page, source = f"https://{where.host}/{quote(where.path)}", quote(branch, safe="")
    if "github" in where.host:
        return Opening(push, f"{page}/compare/{quote(onto, safe='')}...{source}?expand=1")
    if "gitlab" in where.host:
        parameters = (
            f"merge_request%5Bsource_branch%5D={source}&merge_request%5Btarget_branch%5D={quote(onto, safe='')}"
        )
        return Opening(push, f"{page}/-/merge_requests/new?{parameters}")
    return Opening(push)


def _parse_address(address: str) -> tuple[str, str]:
    """Return host and path of a repository's address, without user names and passwords.

    >>> _parse_address("git@github.com:team/kb.git"), _parse_address("/srv/kb.git")
    (('github.com', 'team/kb'), ('', ''))
    >>> _parse_address("https://me:secret@gitlab.com/a/b/kb")
    ('gitlab.com', 'a/b/kb')
    """
    if "://" in address:
        parts = urlsplit(address)
        host, path = (parts.hostname or "", parts.path) if parts.scheme != "file" else ("", "")
    elif match := _SCP.fullmatch(address):
        host, path = match[1], match[2]
    else:
        host, path = "", ""
    path = path.strip("/").removesuffix(".git")
    return (host.lower(), path) if host and path and re.fullmatch(r"[A-Za-z0-9.-]+", host) else ("", "")
