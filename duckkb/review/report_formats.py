"""Findings in reports: grouped, as lines of text, as GitHub's workflow commands, and as objects.

Workflow commands are lines in a job's log that GitHub shows beside the lines of files. It also holds the
outcome of a command that judges: a command that could not run says so in place of the answer, so that nobody
takes silence, or an earlier answer, for it.

Reports of limited size: the pieces of sections that are shown, and the lines about those left out.

The formats of reports, by the names that `--format` takes.

To add one, add a line here and the function that it names.
A writer makes lines of text, and escapes what must not act where it is shown.

Findings as SARIF 2.1.0, the format of code scanning on forges and in editors (OASIS, sarif-v2.1.0)."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from duckkb.review.report_markup import cut, dumps, finding_line, many, span
from duckkb.types.codes import CODES
from duckkb.types.errors import DuckkbError, Finding
from duckkb.types.invisible_characters import visible

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


_NAMED_SECTIONS = 8


class ReportSection(Struct, frozen=True):
    """Pieces of text of one sort, the most important first.

    `share` (0 to 1) is the part of the budget that the section may have even where others want it; `of` names
    the type of each piece.
    """

    head: str
    pieces: Callable[[], Iterable[str]]
    of: Sequence[str]
    share: float
    foot: str = ""


def fit_sections(
    start: str,
    sections: Sequence[ReportSection],
    budget: int,
    end: Callable[[Sequence[int]], str] = lambda shown_pieces: "",
    room: int = 0,
) -> str:
    """Return `start`, the sections with as many pieces as fit into `budget` bytes, and `end`.

    `end` gets the number of shown pieces of each section, and returns at most `room` bytes.

    Where pieces are left out, a line counts them by type. A section without pieces is left out. What a section
    does not need of its share goes to the others, first ones first. `start`, `end`, heads and these lines are
    always shown.
    """
    there = [section for section in sections if section.of]
    free_bytes = max(0, budget - size(start) - room - sum(map(_measure_frame, there)))
    pieces_by_section = [_take_pieces(section.pieces(), free_bytes) for section in there]
    rooms = _divide_room([sum(map(size, pieces)) for pieces in pieces_by_section], there, free_bytes)
    shown_pieces = [
        _take_pieces(some[: len(report_section.of)], wide)
        for report_section, some, wide in zip(there, pieces_by_section, rooms, strict=True)
    ]
    parts = [_format_section(section, some) for section, some in zip(there, shown_pieces, strict=True)]
    counts = iter(map(len, shown_pieces))
    return "".join([start, *parts, end([next(counts) if section.of else 0 for section in sections])])


def size(text: str) -> int:
    """Return the bytes of a line, with its LF."""
    return len(text.encode("utf-8", "replace")) + 1


def more(of: Sequence[str]) -> str:
    """Return a count of what is left out, by type.

    >>> more(["Note", "Character", "Note"])
    '3 more (2 `Note`, 1 `Character`)'
    """
    counts = sorted(Counter(of).items(), key=lambda item: (-item[1], item[0]))
    phrases = [f"{count:,} {span(name)}" for name, count in counts[:_NAMED_SECTIONS]]
    other_count = sum(count for _, count in counts[_NAMED_SECTIONS:])
    phrases += [f"{other_count:,} of {len(counts) - _NAMED_SECTIONS} others"] if other_count else []
    return f"{len(of):,} more ({', '.join(phrases)})"


def _measure_frame(section: ReportSection) -> int:
    """Return the bytes that a section takes at most without its pieces."""
    names = sorted(map(size, set(section.of)), reverse=True)[: _NAMED_SECTIONS + 1]
    tail = sum(names) + (len(names) + 1) * (len(f"{len(section.of):,}") + 12) + 12
    return size(section.head) + size(section.foot) + tail


def _take_pieces(pieces: Iterable[str], room: int) -> list[str]:
    """Return the pieces that would fit if there were nothing else."""
    selection = []
    for piece in pieces:
        room -= size(piece)
        if room < 0:
            break
        selection.append(piece)
    return selection


def _divide_room(needs: Sequence[int], sections: Sequence[ReportSection], free_bytes: int) -> Iterator[int]:
    rooms = [min(want, int(section.share * free_bytes)) for want, section in zip(needs, sections, strict=True)]
    spare = free_bytes - sum(rooms)
    for want, room in zip(needs, rooms, strict=True):
        more_of_it = min(want - room, max(0, spare))
        spare -= more_of_it
        yield room + more_of_it


def _format_section(section: ReportSection, pieces: Sequence[str]) -> str:
    body = "".join(f"{piece}\n" for piece in pieces)
    omitted_types = section.of[len(pieces) :]
    tail = f"\n_{more(omitted_types)}_\n" if omitted_types else ""
    return f"{section.head}\n{body}{tail}{section.foot}\n"


class ReportFormat(Struct, frozen=True):
    """A format of a report.

    `writer` is the module below `duckkb` and its function, which are imported on demand. `budget` is the
    default limit in bytes, None for a whole report.
    `is_judged`: its readers take it for the complete judgement of a change, so that it always has all findings;
    other formats have them on request.
    """

    writer: str
    budget: int | None = None
    is_judged: bool = False

    def lines(self, *given: Any) -> Iterator[str]:
        """Yield pieces of text, each without its final LF."""
        module, _, name = self.writer.partition(":")
        yield from getattr(import_module(f"duckkb.{module}"), name)(*given)


_BUDGET = 1_000_000
_OF_A_COMMENT = 60_000
"""Bytes of a comment; a forge accepts 65,536."""

DIFF: Mapping[str, ReportFormat] = {
    "text": ReportFormat("review.diff_text:render_text", _BUDGET),
    "patch": ReportFormat("review.diff_model:render"),
    "markdown": ReportFormat("review.diff_text:render_markdown", _OF_A_COMMENT, is_judged=True),
    "html": ReportFormat("review.diff_report:render", 100_000_000, is_judged=True),
    "github": ReportFormat("review.diff_text:annotations", is_judged=True),
    "json": ReportFormat("review.diff_report:iter_json", _BUDGET),
    "jsonl": ReportFormat("review.diff_report:iter_lines", _BUDGET),
}
"""Formats of a difference; a writer gets it and the options."""
ROWS_BUDGET = _BUDGET
"""Budget of a difference as rows."""

CHECK: Mapping[str, ReportFormat] = {
    "text": ReportFormat("review.report_formats:lines"),
    "github": ReportFormat("review.report_formats:commands"),
    "sarif": ReportFormat("review.report_formats:sarif_lines"),
}
"""Formats of findings; a writer gets them and the folder of the base inside its repository."""

IMPACT: Mapping[str, ReportFormat] = {
    "text": ReportFormat("review.impact_report:iter_text"),
    "markdown": ReportFormat("review.impact_report:iter_markdown", 30_000),
}
"""Formats of an impact; a writer gets it and the budget of a comment, which also has the differing records."""

REVIEW: Mapping[str, ReportFormat] = {
    "markdown": ReportFormat("review.verdict:iter_comment", _OF_A_COMMENT),
    "html": ReportFormat("review.verdict:iter_review_page", 100_000_000),
    "github": ReportFormat("review.verdict:iter_workflow_commands"),
    "sarif": ReportFormat("review.verdict:iter_sarif"),
    "json": ReportFormat("review.verdict:iter_json", _BUDGET),
}
"""Formats of a review; a writer gets it and the options of its difference."""

STOPPED: Mapping[str, ReportFormat] = {
    "github": ReportFormat("review.report_formats:iter_stop_commands"),
    "markdown": ReportFormat("review.report_formats:iter_stop_markdown"),
    "md": ReportFormat("review.report_formats:iter_stop_markdown"),
    "sarif": ReportFormat("review.report_formats:build_stop_log"),
}
"""Formats of the error that stopped a command that judges, for readers who do not see stderr.

A writer gets the error and the folder of the base inside its repository (`md` is for verbs that print a table by it).
"""


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_CONFIG = "config.yaml"
_ROOT = "%SRCROOT%"
_RELATED = 20
_CODE_SPAN = re.compile("`([^`]*)`")


def sarif_lines(findings: Iterable[Finding], prefix: str) -> Iterator[str]:
    """Yield the log of a run on one line."""
    from importlib.metadata import version

    yield _format_log(build_log(findings, version("duckkb"), prefix))


def build_stop_log(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """Yield the log of a run that was not carried out."""
    from importlib.metadata import version

    yield _format_log(build_log(problem.findings, version("duckkb"), prefix, stopped=problem))


def _format_log(log: Mapping[str, Any]) -> str:
    """Return the log as JSON, in which the log of a CI job finds no workflow command."""
    return dumps(log).replace("##[", "#\\u0023[")


def build_log(
    findings: Iterable[Finding], version: str, prefix: str = "", *, stopped: DuckkbError | None = None
) -> dict[str, Any]:
    """Return one log with one run.

    `version` is duckkb's; `prefix` the folder of the base inside its repository, empty or with a final `/`.
    Paths are relative to the root of the repository, percent-encoded; a finding without a path is placed at
    config.yaml. `stopped` is the error that kept duckkb from judging: then the run failed, and says why.

    Findings that say the same are one result: `occurrenceCount` is their number, and the first are
    `relatedLocations`. A finding's fingerprint names rule, record and field, so that it is recognized when its
    line has moved.
    """
    findings = list(findings)
    groups = list(zip(summarize_groups(findings, prefix), group_findings(findings), strict=True))
    names = sorted({finding.code for finding, _ in groups})
    driver: dict[str, Any] = {"name": "duckkb", "version": version, "semanticVersion": version}
    driver |= {"rules": [_describe_rule(name) for name in names]}
    results = [_build_result(finding, some, names.index(finding.code), prefix) for finding, some in groups]
    # The repository's location differs between machines; a reader of the log knows it.
    root = {_ROOT: {"description": {"text": "The root of the repository."}}}
    run = {"tool": {"driver": driver}, "invocations": [_describe_run(stopped)], "originalUriBaseIds": root}
    run |= {"columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _describe_run(problem: DuckkbError | None) -> dict[str, Any]:
    if problem is None:
        return {"executionSuccessful": True}
    text = visible(f"{problem.message} ({problem.suggestion})" if problem.suggestion else problem.message)
    notice = {"descriptor": {"id": problem.code}, "level": "error", "message": {"text": _escape_text(text)}}
    return {
        "executionSuccessful": False,
        "exitCode": problem.exit_code,
        "toolExecutionNotifications": [notice],
    }


def _describe_rule(name: str) -> dict[str, Any]:
    code = CODES[name]
    return {
        "id": name,
        "shortDescription": {"text": _strip_code_spans(code.meaning)},
        "help": {"text": _strip_code_spans(code.remedy), "markdown": code.remedy},
        "defaultConfiguration": {"level": _choose_level(name)},
    }


def _build_result(finding: Finding, alike: Sequence[Finding], rule: int, prefix: str) -> dict[str, Any]:
    """Return the result of a group; `alike` are all its findings, the first itself included."""
    field = f"{finding.field}: " if finding.field else ""
    remedy = f" ({_strip_code_spans(finding.remedy)})" if finding.remedy else ""
    more = {
        "occurrenceCount": len(alike),
        "relatedLocations": [_describe_location(sibling, prefix) for sibling in alike[1:_RELATED]],
    }
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _choose_level(finding.code),
        # Brackets would make a link, braces a placeholder.
        "message": {"text": _escape_text(visible(f"{field}{finding.message}{remedy}"))},
        "locations": [_describe_location(finding, prefix)],
        "partialFingerprints": {"duckkb/v1": _hash_finding(finding)},
        **(more if len(alike) > 1 else {}),
    }


def _describe_location(finding: Finding, prefix: str) -> dict[str, Any]:
    uri = quote(finding.prefix_path(prefix).path or prefix + _CONFIG, safe="/")
    place: dict[str, Any] = {"artifactLocation": {"uri": uri, "uriBaseId": _ROOT}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.type:
        name = f"{finding.type}:{finding.identity}"
        location["logicalLocations"] = [{"fullyQualifiedName": visible(name), "kind": "member"}]
    return location


def _hash_finding(finding: Finding) -> str:
    key = (finding.type, finding.identity) if finding.type else (finding.path, finding.message)
    return hashlib.sha256("\0".join((finding.code, *key, finding.field)).encode("utf-8", "replace")).hexdigest()


def _choose_level(code: str) -> str:
    return "error" if code.startswith("E_") else "warning"


def _strip_code_spans(text: str) -> str:
    return _CODE_SPAN.sub(r"\1", text)


def _escape_text(text: str) -> str:
    r"""Return a message of plain text in which nothing is a link or a placeholder (SARIF 3.11).

    >>> _escape_text("[a](b) {0} [c]")
    '\\[a\\](b) {{0}} \\[c\\]'
    """
    if "](" in text:
        text = text.replace("[", "\\[").replace("]", "\\]")
    return text.replace("{", "{{").replace("}", "}}")
