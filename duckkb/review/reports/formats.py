"""The formats of reports, by the names that `--format` takes.

To add one, add a line here and the function that it names.
A writer makes lines of text, and escapes what must not act where it is shown.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct


class ReportFormat(Struct, frozen=True):
    """A format of a report.

    `writer` is the module below `duckkb.review` and its function, which are imported on demand. `budget` is the
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
        yield from getattr(import_module(f"duckkb.review.{module}"), name)(*given)


_BUDGET = 1_000_000
_OF_A_COMMENT = 60_000
"""Bytes of a comment; a forge accepts 65,536."""

DIFF: Mapping[str, ReportFormat] = {
    "text": ReportFormat("diff.text:render", _BUDGET),
    "patch": ReportFormat("diff.patch:render"),
    "markdown": ReportFormat("diff.markdown:render", _OF_A_COMMENT, is_judged=True),
    "html": ReportFormat("diff.html:render", 100_000_000, is_judged=True),
    "github": ReportFormat("diff.text:annotations", is_judged=True),
    "json": ReportFormat("diff.report:iter_json", _BUDGET),
    "jsonl": ReportFormat("diff.report:iter_lines", _BUDGET),
}
"""Formats of a difference; a writer gets it and the options."""
ROWS_BUDGET = _BUDGET
"""Budget of a difference as rows."""

CHECK: Mapping[str, ReportFormat] = {
    "text": ReportFormat("reports.findings:lines"),
    "github": ReportFormat("reports.findings:commands"),
    "sarif": ReportFormat("reports.sarif:lines"),
}
"""Formats of findings; a writer gets them and the folder of the base inside its repository."""

IMPACT: Mapping[str, ReportFormat] = {
    "text": ReportFormat("impact.impact_report:iter_text"),
    "markdown": ReportFormat("impact.impact_report:iter_markdown", 30_000),
}
"""Formats of an impact; a writer gets it and the budget of a comment, which also has the differing records."""

REVIEW: Mapping[str, ReportFormat] = {
    "markdown": ReportFormat("verdict:iter_comment", _OF_A_COMMENT),
    "html": ReportFormat("verdict:iter_review_page", 100_000_000),
    "github": ReportFormat("verdict:iter_workflow_commands"),
    "sarif": ReportFormat("verdict:iter_sarif"),
    "json": ReportFormat("verdict:iter_json", _BUDGET),
}
"""Formats of a review; a writer gets it and the options of its difference."""

STOPPED: Mapping[str, ReportFormat] = {
    "github": ReportFormat("reports.findings:iter_stop_commands"),
    "markdown": ReportFormat("reports.findings:iter_stop_markdown"),
    "md": ReportFormat("reports.findings:iter_stop_markdown"),
    "sarif": ReportFormat("reports.sarif:build_stop_log"),
}
"""Formats of the error that stopped a command that judges, for readers who do not see stderr.

A writer gets the error and the folder of the base inside its repository (`md` is for verbs that print a table by it).
"""
