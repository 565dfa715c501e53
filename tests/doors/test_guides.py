"""The guides run as they stand, print what they say, and lead to one another."""

import re
from pathlib import Path

import pytest

from duckkb.types.codes import CODES
from tests.conftest import ROOT
from tests.doors.shell import page_blocks, run_blocks

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUN = [page for page in PAGES if "<!-- run: begin" in page.read_text("utf-8") and page.name != "agents.md"]
"""agents.md is run by a test of its own."""
_CODE = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _links(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, each with the heading that is meant."""
    text = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", "", _CODE.sub("", text))
    targets = [link.partition("#") for link in _LINK.findall(prose) if ":" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in targets]


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)", _CODE.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.long
@pytest.mark.model
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run_in_a_fresh_folder_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    blocks = page_blocks(page.read_text("utf-8"))
    printed = run_blocks([block.script for block in blocks], tmp_path)
    expected = [block.printed if block.printed is not None else out for block, out in zip(blocks, printed, strict=True)]
    assert printed == expected


def test_the_guides_of_python_and_the_ontology_are_run() -> None:
    counts = {page.stem: len(page_blocks(page.read_text("utf-8"))) for page in RUN}
    assert counts.keys() >= {"ontology-guide", "python", "troubleshooting"} and min(counts.values()) >= 2


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.is_relative_to(DOCS):
            reached.add(page)
            waiting += [path for path, _ in _links(page)]
    assert {str(page.relative_to(DOCS)) for page in PAGES if page not in reached} == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = [
        f"{path.relative_to(ROOT)}#{anchor}"
        for path, anchor in _links(page)
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path))
    ]
    assert broken == []


def test_every_code_that_troubleshooting_names_is_in_the_catalogue() -> None:
    codes = set(re.findall(r"\b[EW]_[A-Z_0-9]+", (DOCS / "troubleshooting.md").read_text("utf-8")))
    assert len(codes) > 30 and codes - set(CODES) == set()
