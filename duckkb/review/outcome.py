"""How a command that judges ended: it passed, it has findings, a limit was reached, or it could not run; and the last of
these said where the answer would have stood, so that nobody takes silence, or what was said before, for an answer."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from duckkb.codes import CODES
from duckkb.errors import DuckkbError, Finding
from duckkb.review.alike import told
from duckkb.review.annotations import command, commands
from duckkb.review.markup import cut, span

Outcome = Literal["passed", "findings", "limits", "could_not_run"]
COULD_NOT_RUN: Outcome = "could_not_run"
_MOST = 20
_LONGEST = 400


def of_findings(errors: int, warnings: int = 0, *, fail_on: str | None = "error") -> Outcome:
    """`findings` where there are errors, or warnings where these count too (`fail_on` is `warning`)."""
    return "findings" if errors or (fail_on == "warning" and warnings) else "passed"


def annotations(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """What stopped a command as GitHub's workflow commands: its findings where they are, then the whole of it."""
    yield from commands(problem.findings, prefix)
    yield command("error", f"could not run: {problem.message}\n{_remedy(problem)}", title=problem.code)


def markdown(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """What stopped a command as a section of a comment, all data in spans of code."""
    yield "### Could not run"
    yield ""
    yield f"This is no verdict on the change. `{problem.code}`: {span(cut(problem.message, _LONGEST))}"
    if remedy := _remedy(problem):
        yield from ("", f"To mend it: {span(cut(remedy, _LONGEST))}")
    if problem.findings:
        yield ""
        found = told(problem.findings, prefix)
        yield from (_finding(one, prefix) for one in found[:_MOST])
        if len(found) > _MOST:
            yield f"- {len(found) - _MOST:,} more"


def sarif(problem: DuckkbError, prefix: str) -> Iterator[str]:
    """What stopped a command as a SARIF log of a run that was not carried out."""
    import json
    from importlib.metadata import version

    from duckkb.review.sarif import as_sarif

    yield json.dumps(as_sarif(problem.findings, version("duckkb"), prefix, stopped=problem), ensure_ascii=False)


FORMATS: Mapping[str, Callable[[DuckkbError, str], Iterator[str]]] = {
    "github": annotations,
    "markdown": markdown,
    "md": markdown,
    "sarif": sarif,
}
"""Those formats whose readers see nothing of stderr (`md` of verbs that print a table by it). `prefix` is the folder of the base inside its repository."""


def _finding(finding: Finding, prefix: str) -> str:
    place = f" {span(finding.rooted(prefix).place)}" if finding.path else ""
    field = f" {span(finding.field)}" if finding.field else ""
    return f"- `{finding.code}`{place}{field}: {span(cut(finding.message, _LONGEST))}"


def _remedy(problem: DuckkbError) -> str:
    return problem.suggestion or (CODES[problem.code].remedy if problem.code in CODES else "")
