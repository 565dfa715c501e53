"""Every decision in docs/adr has one form, and those that a later one supersedes say so on both pages."""

import re
from datetime import date
from pathlib import Path

import pytest

from tests.conftest import ROOT

ADR = ROOT / "docs" / "adr"
PAGES = sorted(ADR.glob("[0-9]*.md"))
_HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>\S.*)\n\n- \*\*Date:\*\* (?P<date>\S+)\n- \*\*Status:\*\* (?P<status>.+)\n"
    r"(- \*\*Supersedes:\*\* (?P<supersedes>.+)\n)?\n## Context\n"
)
_STATUS = re.compile(r"Proposed|Accepted|(Accepted; superseded in part|Superseded) by \[ADR \d+\]\(.+")
_LINK = re.compile(r"\[ADR (\d+)\]\((\d{4}-[^)]+\.md)\)")


def _head(page: Path) -> re.Match[str]:
    match = _HEAD.match(page.read_text("utf-8"))
    assert match is not None, f"{page.name} does not begin with title, date, status and context"
    return match


def _named(text: str | None) -> set[str]:
    return {name for _, name in _LINK.findall(text or "")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_a_title_a_date_a_status_and_its_three_sections_in_order(page: Path) -> None:
    head, text = _head(page), page.read_text("utf-8")
    assert int(head["number"]) == int(page.name[:4]) and date.fromisoformat(head["date"]) >= date(2026, 11, 1)
    assert _STATUS.match(head["status"]), head["status"]
    outside_of_code = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^## (.*)", outside_of_code, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    sections = re.split(r"^## .*\n", text, flags=re.MULTILINE)[1:]
    assert all(len(section.split()) >= 8 for section in sections)
    assert all((ADR / name).exists() and int(name[:4]) == int(number) for number, name in _LINK.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_context_of_a_decision_opens_with_a_sentence_that_can_be_read_at_once(page: Path) -> None:
    context = page.read_text("utf-8").split("## Context\n\n")[1]
    first = re.split(r"(?<=[.:?])\s", context, maxsplit=1)[0]
    assert len(first.split()) <= 30 and not first.startswith("*"), first


def test_a_superseded_decision_and_the_one_that_supersedes_it_name_each_other() -> None:
    forward = {(page.name, newer) for page in PAGES for newer in _named(_head(page)["status"])}
    backward = {(older, page.name) for page in PAGES for older in _named(_head(page)["supersedes"])}
    assert forward == backward and len(forward) >= 8
