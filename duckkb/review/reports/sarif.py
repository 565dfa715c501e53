"""Findings as SARIF 2.1.0, which code scanning on forges and editors reads (OASIS, sarif-v2.1.0)."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from duckkb.codes import CODES
from duckkb.errors import DuckkbError, Finding
from duckkb.review.reports.findings import grouped, told
from duckkb.review.reports.markup import dumps
from duckkb.rules.invisible import visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_CONFIG = "config.yaml"
_ROOT = "%SRCROOT%"
_RELATED = 20
_CODE_SPAN = re.compile("`([^`]*)`")


def lines(findings: Iterable[Finding], prefix: str) -> Iterator[str]:
    """The log of a run on one line."""
    yield _text(as_sarif(findings, version("duckkb"), prefix))


def stopped(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """The log of a run that was not carried out."""
    yield _text(as_sarif(problem.findings, version("duckkb"), prefix, stopped=problem))


def _text(log: Mapping[str, Any]) -> str:
    """In the log of a job nothing of it is a command."""
    return dumps(log).replace("##[", "#\\u0023[")


def as_sarif(
    findings: Iterable[Finding], version: str, prefix: str = "", *, stopped: DuckkbError | None = None
) -> dict[str, Any]:
    """One log with one run. `version` is duckkb's; `prefix` the folder of the base inside its repository, empty or with a
    final `/`: paths are told from the root of the repository, percent-encoded. What has no path is told of config.yaml. `stopped` is what kept duckkb from
    judging: the run did not succeed then, and says why.

    Findings that say the same are one result, of whose `occurrenceCount` the first are `relatedLocations`.
    A finding's fingerprint names rule, record and field, so that it is known again when its line has moved.
    """
    findings = list(findings)
    found = list(zip(told(findings, prefix), grouped(findings), strict=True))
    names = sorted({one.code for one, _ in found})
    driver: dict[str, Any] = {"name": "duckkb", "version": version, "semanticVersion": version}
    driver |= {"rules": [_rule(name) for name in names]}
    results = [_result(one, some, names.index(one.code), prefix) for one, some in found]
    # Where the repository lies differs from machine to machine; a reader of the log knows it.
    root = {_ROOT: {"description": {"text": "The root of the repository."}}}
    run = {"tool": {"driver": driver}, "invocations": [_invocation(stopped)], "originalUriBaseIds": root}
    run |= {"columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(stopped: DuckkbError | None) -> dict[str, Any]:
    if stopped is None:
        return {"executionSuccessful": True}
    text = visible(f"{stopped.message} ({stopped.suggestion})" if stopped.suggestion else stopped.message)
    notice = {"descriptor": {"id": stopped.code}, "level": "error", "message": {"text": _literal(text)}}
    return {
        "executionSuccessful": False,
        "exitCode": stopped.exit_code,
        "toolExecutionNotifications": [notice],
    }


def _rule(name: str) -> dict[str, Any]:
    code = CODES[name]
    return {
        "id": name,
        "shortDescription": {"text": _plain(code.meaning)},
        "help": {"text": _plain(code.remedy), "markdown": code.remedy},
        "defaultConfiguration": {"level": _level(name)},
    }


def _result(finding: Finding, alike: Sequence[Finding], rule: int, prefix: str) -> dict[str, Any]:
    """`alike` are all that say the same, the finding itself first."""
    field = f"{finding.field}: " if finding.field else ""
    remedy = f" ({_plain(finding.remedy)})" if finding.remedy else ""
    more = {"occurrenceCount": len(alike), "relatedLocations": [_location(one, prefix) for one in alike[1:_RELATED]]}
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _level(finding.code),
        # Brackets would make a link, braces a placeholder.
        "message": {"text": _literal(visible(f"{field}{finding.message}{remedy}"))},
        "locations": [_location(finding, prefix)],
        "partialFingerprints": {"duckkb/v1": _fingerprint(finding)},
        **(more if len(alike) > 1 else {}),
    }


def _location(finding: Finding, prefix: str) -> dict[str, Any]:
    uri = quote(finding.rooted(prefix).path or prefix + _CONFIG, safe="/")
    place: dict[str, Any] = {"artifactLocation": {"uri": uri, "uriBaseId": _ROOT}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.type:
        name = f"{finding.type}:{finding.identity}"
        location["logicalLocations"] = [{"fullyQualifiedName": visible(name), "kind": "member"}]
    return location


def _fingerprint(finding: Finding) -> str:
    said = (finding.type, finding.identity) if finding.type else (finding.path, finding.message)
    return hashlib.sha256("\0".join((finding.code, *said, finding.field)).encode("utf-8", "replace")).hexdigest()


def _level(code: str) -> str:
    return "error" if code.startswith("E_") else "warning"


def _plain(text: str) -> str:
    return _CODE_SPAN.sub(r"\1", text)


def _literal(text: str) -> str:
    r"""A message of plain text in which nothing is a link or a placeholder (SARIF 3.11).

    >>> _literal("[a](b) {0} [c]")
    '\\[a\\](b) {{0}} \\[c\\]'
    """
    if "](" in text:
        text = text.replace("[", "\\[").replace("]", "\\]")
    return text.replace("{", "{{").replace("}", "}}")
