"""Findings as SARIF and as GitHub's workflow commands, read back as those who read them do."""

import re
from urllib.parse import unquote

import jsonschema
import pytest

from duckkb.review.report_formats import build_log, command, commands
from duckkb.types.errors import Finding

HOSTILE = [
    "plain",
    "100 % of a, b: c = d",
    "line\nline\r\n::error::injected",
    "::add-mask::x",
    "%0A%25",
    "\u202ereversed \x1b[31m",
    "[link](https://example.org) {0} {{1}}",
    "知识",
    "",
]
FINDINGS = [
    Finding("W_RENAMED", text, f"data/nodes/{text}.jsonl", 7, f"/{text}", text, "Note", text) for text in HOSTILE
] + [
    Finding("E_JSON", "not exactly one JSON object", "data/nodes/note/20260101/part_001.jsonl", 3),
    Finding("W_MASS_DELETE", "the change removes 40 of 60 records", type="Note"),
    Finding("E_JSON", "no line", "data/nodes/a b#c?.jsonl"),
]

_TEXT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string"}},
}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_RULE = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "shortDescription": _TEXT,
        "help": {**_TEXT, "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}}},
        "defaultConfiguration": {"type": "object", "additionalProperties": False, "properties": {"level": _LEVEL}},
    },
}
_LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "additionalProperties": False,
                    # A relative reference (RFC 3986): no scheme, nothing unescaped that must be escaped.
                    "properties": {
                        "uri": {"type": "string", "pattern": r"^(?:[A-Za-z0-9._~!$&'()*+,;=@/-]|%[0-9A-F]{2})+$"},
                        "uriBaseId": {"type": "string"},
                    },
                },
                "region": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
        "logicalLocations": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"fullyQualifiedName": {"type": "string"}, "kind": {"type": "string"}},
            },
        },
    },
}
_RESULT = {
    "type": "object",
    "required": ["message"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": _LEVEL,
        "message": _TEXT,
        "locations": {"type": "array", "items": _LOCATION},
        "occurrenceCount": {"type": "integer", "minimum": 1},
        "relatedLocations": {"type": "array", "items": _LOCATION},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
# What sarif-schema-2.1.0.json asks of the properties that are written.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "invocations": {"type": "array", "items": {"required": ["executionSuccessful"]}},
                    "originalUriBaseIds": {
                        "type": "object",
                        "additionalProperties": {"properties": {"uri": {"type": "string"}}},
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                                    "rules": {"type": "array", "uniqueItems": True, "items": _RULE},
                                },
                            }
                        },
                    },
                    "results": {"type": "array", "items": _RESULT},
                },
            },
        },
    },
}


def test_sarif_keeps_to_its_schema_and_its_rules_are_where_results_say() -> None:
    log = build_log(FINDINGS, "0.1.0", "docs/kb/")
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(FINDINGS)
    for result, finding in zip(run["results"], FINDINGS, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["level"] == rules[result["ruleIndex"]]["defaultConfiguration"]["level"]
        place = result["locations"][0]["physicalLocation"]
        assert unquote(place["artifactLocation"]["uri"]) == "docs/kb/" + (finding.path or "config.yaml")
        assert place.get("region") == ({"startLine": finding.line} if finding.line else None)


def test_messages_of_sarif_hold_no_link_and_no_placeholder() -> None:
    for result in build_log(FINDINGS, "0.1.0")["runs"][0]["results"]:
        text = result["message"]["text"]
        assert re.search(r"(?<!\\)\]\(", text) is None
        assert re.search(r"(?<!\{)(?:\{\{)*\{\d", text) is None
        assert re.search("[\u202a-\u202e\x1b]", text) is None


def test_a_finding_keeps_its_fingerprint_when_its_line_moves_and_no_two_share_one() -> None:
    def prints(findings: list[Finding]) -> list[str]:
        results = build_log(findings, "0.1.0")["runs"][0]["results"]
        return [result["partialFingerprints"]["duckkb/v1"] for result in results]

    here = Finding("E_SCHEMA", "is not a string", "data/a.jsonl", 3, "/title", "", "Note", "n1")
    there = Finding("E_SCHEMA", "is not a string", "data/b.jsonl", 9, "/title", "", "Note", "n1")
    assert prints([here]) == prints([there])
    assert len(set(prints(FINDINGS))) == len(FINDINGS)


def _read(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner reads it (ActionCommand.TryParseV2)."""
    assert line.startswith("::") and "\n" not in line and "\r" not in line
    head, _, data = line[2:].partition("::")
    kind, _, told = head.partition(" ")
    properties = dict(one.split("=", 1) for one in told.split(",") if one)

    def unescaped(text: str, codes: dict[str, str]) -> str:
        for code, character in codes.items():
            text = text.replace(code, character)
        return text

    data_codes = {"%0D": "\r", "%0A": "\n"}
    all_codes = data_codes | {"%3A": ":", "%2C": ","}
    values = {name: unescaped(value, all_codes | {"%25": "%"}) for name, value in properties.items()}
    return kind, values, unescaped(data, data_codes | {"%25": "%"})


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_command_says_what_it_was_given_on_one_line(text: str) -> None:
    kind, properties, message = _read(command("warning", text, file=text, title=text))
    shown = text.replace("\r", "\\u000d").replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    assert (kind, properties, message) == ("warning", {"file": shown, "title": shown}, shown)


def test_commands_name_the_file_in_the_repository_and_errors_come_first() -> None:
    told = [_read(line) for line in commands(FINDINGS, "docs/kb/")]
    assert [kind for kind, _, _ in told] == ["error"] * 2 + ["warning"] * (len(FINDINGS) - 2)
    _, properties, message = told[0]
    assert properties == {"file": "docs/kb/data/nodes/note/20260101/part_001.jsonl", "line": "3", "title": "E_JSON"}
    assert message == "not exactly one JSON object"
    assert told[-1][1] == {"title": "W_MASS_DELETE Note"}


def test_what_one_edit_of_a_schema_breaks_everywhere_is_told_once_with_a_count() -> None:
    broken = [
        Finding("E_SCHEMA", f'is "{n}", no number', "data/a.jsonl", n, f"/sizes/{n % 4}", "", "Note", f"n{n}")
        for n in range(1, 45)
    ]
    told = [_read(line) for line in commands([*FINDINGS, *broken], "docs/kb/")]
    assert len(told) == len(FINDINGS) + 1
    ((kind, properties, message),) = [one for one in told if "E_SCHEMA" in one[1]["title"]]
    assert (kind, properties["line"]) == ("error", "1")
    assert "; 43 more like it: docs/kb/data/a.jsonl:2, docs/kb/data/a.jsonl:3, " in message
    log = build_log([*FINDINGS, *broken], "0.1.0", "docs/kb/")
    jsonschema.validate(log, SARIF)
    (result,) = [one for one in log["runs"][0]["results"] if one["ruleId"] == "E_SCHEMA"]
    assert (result["occurrenceCount"], result["relatedLocations"][0]["physicalLocation"]["region"]) == (
        44,
        {"startLine": 2},
    )
    assert len(list(commands(broken[:3]))) == 3
