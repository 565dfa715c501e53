"""Findings as GitHub's workflow commands: lines in a job's log that GitHub shows beside the lines of files."""

from collections.abc import Iterable, Iterator

from duckkb.errors import Finding
from duckkb.review.alike import told
from duckkb.review.invisible import visible


def commands(findings: Iterable[Finding], prefix: str = "") -> Iterator[str]:
    """A command for the findings that say the same, errors first, as GitHub shows only the first ten of each kind in a
    step. `prefix` is the folder of the knowledge base inside its repository, empty or with `/` at its end."""
    for finding in sorted(told(findings, prefix), key=lambda one: not one.is_error):
        where = {"file": finding.rooted(prefix).path, "line": str(finding.line or 1)} if finding.path else {}
        title = " ".join(part for part in (finding.code, finding.type, finding.identity) if part)
        said = f"{finding.field}: {finding.message}" if finding.field else finding.message
        tail = f"\n{finding.remedy}" if finding.remedy else ""
        yield command("error" if finding.is_error else "warning", said + tail, **where, title=title)


def command(kind: str, message: str, **properties: str) -> str:
    r"""One workflow command, with what would end it or a property of it escaped as GitHub reads it.

    >>> command("notice", "50 %\nof all", title="a,b:c")
    '::notice title=a%2Cb%3Ac::50 %25%0Aof all'
    """
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind}{' ' if shown else ''}{shown}::{_data(message)}"


def _data(text: str) -> str:
    lines = (visible(line) for line in text.split("\n"))
    return "%0A".join(line.replace("%", "%25").replace("\r", "%0D") for line in lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
