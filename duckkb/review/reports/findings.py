"""Findings in reports: grouped, as lines of text, as GitHub's workflow commands, and as objects.

Workflow commands are lines in a job's log that GitHub shows beside the lines of files. It also holds the
outcome of a command that judges: a command that could not run says so in place of the answer, so that nobody
takes silence, or an earlier answer, for it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import DuckkbError, Finding
from duckkb.review.reports.markup import cut, finding_line, many, span
from duckkb.rules.invisible import visible

Outcome = Literal["passed", "findings", "limits", "not_judged", "could_not_run"]
COULD_NOT_RUN: Outcome = "could_not_run"
_MOST = 20
_LONGEST = 400
_NAMED, _FEW = 5, 3
_NUMBER = re.compile("[0-9]+")
_INDEX = re.compile("/[0-9]+(?=/|$)")


def group_findings(findings: Iterable[Finding]) -> list[tuple[Finding, ...]]:
    """Group the findings of one rule about one field of one type, in the order of their first ones.

    Findings about no record are grouped where their messages differ in numbers alone. Three and fewer are not
    grouped.
    """
    groups_by_key: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        subject = finding.type or _NUMBER.sub("0", finding.message)
        groups_by_key.setdefault((finding.code, subject, _INDEX.sub("/0", finding.field)), []).append(finding)
    few = ([(finding,) for finding in some] if len(some) <= _FEW else [tuple(some)] for some in groups_by_key.values())
    return [group for groups in few for group in groups]


def count_findings(findings: Iterable[Finding]) -> list[str]:
    """Return the number of errors and warnings, in words; empty where there are none.

    >>> count_findings([Finding("W_GUARD", "x"), Finding("W_GUARD", "y")])
    ['2 warnings']
    """
    errors = [finding.is_error for finding in findings]
    numbers = ((sum(errors), "error"), (len(errors) - sum(errors), "warning"))
    return [many(number, noun) for number, noun in numbers if number]


def summarize_groups(findings: Iterable[Finding], prefix: str = "") -> list[Finding]:
    """Return one finding a group: the first, with the number of the others and the next places.

    `prefix` is set before their paths.

    >>> findings = [Finding("E_SCHEMA", "is no text", "a", line, type="T") for line in (1, 2, 3, 4)]
    >>> [finding.message for finding in summarize_groups(findings)]
    ['is no text; 3 more like it: a:2, a:3, a:4']
    """
    return [_merge_group(some, prefix) for some in group_findings(findings)]


def lines(findings: Iterable[Finding], prefix: str) -> Iterator[str]:
    """Yield one line a group, with paths as they are in the base."""
    return map(str, summarize_groups(findings))


def list_group_objects(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the groups of more than one finding as plain data; programs find each among the findings."""
    return [
        {
            "code": some[0].code,
            "count": len(some),
            **{name: value for name in ("type", "field", "message") if (value := getattr(some[0], name))},
            "places": [finding.place for finding in some[:_NAMED]],
        }
        for some in group_findings(findings)
        if len(some) > 1
    ]


def _merge_group(some: Sequence[Finding], prefix: str) -> Finding:
    if len(some) == 1:
        return some[0]
    places = [
        finding.prefix_path(prefix).place if finding.path else finding.identity for finding in some[1 : 1 + _NAMED]
    ]
    dots = ", …" if len(some) > 1 + _NAMED else ""
    return replace(some[0], message=f"{some[0].message}; {len(some) - 1:,} more like it: {', '.join(places)}{dots}")


def commands(findings: Iterable[Finding], prefix: str = "") -> Iterator[str]:
    """Yield one command a group, errors first, since GitHub shows only the first ten of each kind in a step.

    `prefix` is the folder of the knowledge base inside its repository, empty or with `/` at its end.
    """
    for finding in sorted(summarize_groups(findings, prefix), key=lambda item: not item.is_error):
        where = {"file": finding.prefix_path(prefix).path, "line": str(finding.line or 1)} if finding.path else {}
        title = " ".join(part for part in (finding.code, finding.type, finding.identity) if part)
        message = f"{finding.field}: {finding.message}" if finding.field else finding.message
        tail = f"\n{finding.remedy}" if finding.remedy else ""
        yield command("error" if finding.is_error else "warning", message + tail, **where, title=title)


def command(kind: str, message: str, **properties: str) -> str:
    r"""Return one workflow command, escaped as GitHub reads it.

    >>> command("notice", "50 %\nof all", title="a,b:c")
    '::notice title=a%2Cb%3Ac::50 %25%0Aof all'
    """
    escaped_properties = {
        name: _escape_data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items()
    }
    listing = ",".join(f"{name}={value}" for name, value in escaped_properties.items())
    return f"::{kind}{' ' if listing else ''}{listing}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    lines = (visible(line) for line in text.split("\n"))
    return "%0A".join(line.replace("%", "%25").replace("\r", "%0D") for line in lines)


def judge_findings(errors: int, warnings: int = 0, *, fail_on: str | None = "error", is_judged: bool = True) -> Outcome:
    """Return `findings` where there are errors, or warnings where `fail_on` is `warning`.

    Return `not_judged` where there are none, but not every rule was checked.
    """
    if errors or (fail_on == "warning" and warnings):
        return "findings"
    return "passed" if is_judged else "not_judged"


def iter_stop_commands(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """Yield the error that stopped a command as GitHub's workflow commands: its findings, then the whole."""
    yield from commands(problem.findings, prefix)
    yield command("error", f"could not run: {problem.message}\n{_find_remedy(problem)}", title=problem.code)


def iter_stop_markdown(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """Yield the error that stopped a command as a section of a comment, all data in code spans."""
    yield "### Could not run"
    yield ""
    yield f"The change was not judged. `{problem.code}`: {span(cut(problem.message, _LONGEST))}"
    if remedy := _find_remedy(problem):
        yield from ("", f"Remedy: {span(cut(remedy, _LONGEST))}")
    if problem.findings:
        yield ""
        findings = [finding.prefix_path(prefix) for finding in summarize_groups(problem.findings, prefix)]
        yield from map(finding_line, findings[:_MOST])
        if len(findings) > _MOST:
            yield f"- {len(findings) - _MOST:,} more"


def _find_remedy(problem: DuckkbError) -> str:
    return problem.suggestion or (CODES[problem.code].remedy if problem.code in CODES else "")
