"""Findings as SARIF 2.1.0, the format of code scanning on forges and in editors (OASIS, sarif-v2.1.0)."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from duckkb.codes import CODES
from duckkb.errors import DuckkbError, Finding
from duckkb.review.reports.findings import group_findings, summarize_groups
from duckkb.review.reports.markup import dumps
from duckkb.rules.invisible import visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_CONFIG = "config.yaml"
_ROOT = "%SRCROOT%"
_RELATED = 20
_CODE_SPAN = re.compile("`([^`]*)`")


def lines(findings: Iterable[Finding], prefix: str) -> Iterator[str]:
    """Yield the log of a run on one line."""
    yield _format_log(build_log(findings, version("duckkb"), prefix))


def build_stop_log(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """Yield the log of a run that was not carried out."""
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
