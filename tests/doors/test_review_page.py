"""The HTML page of a difference, in a real browser: works from disk, asks no network, runs nothing of the data."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from duckkb.review.diff_model import (
    Diff,
    DiffOptions,
    FieldChange,
    Label,
    OntologyChange,
    Op,
    RecordChange,
    RecordPlace,
)
from duckkb.review.report_formats import DIFF
from duckkb.types.errors import Finding
from tests.browser import Page, browsing, wanted
from tests.conftest import NOTES, commit, git, make_base, run_in

EVIL = '</script><script>document.title="owned"</script><img src=x onerror=\'document.title="owned"\'><!-- ${1+1}'
LONG = "一个部件最多一千条记录。The journal is sealed before any file changes. " * 60


def _change(op: Op, name: str, number: int, before: str | None, after: str | None) -> RecordChange:
    sides = [json.dumps(text, ensure_ascii=False) if text is not None else None for text in (before, after)]
    place = RecordPlace("data/nodes/note/20260101/part_001.jsonl", number, b"", "")
    was = f"old-{number}" if op == "rename" else None
    fields = (
        FieldChange("text", *sides),
        FieldChange("size", None, "7") if op == "update" else FieldChange("x", None, "1"),
    )
    kept = fields if op in ("update", "insert") else fields[:1]
    here = (place if before is not None else None, place if after is not None else None)
    return RecordChange("node", name, name.lower(), number, op, f"{name.lower()}-{number}", was, kept, *here)


def _many() -> Diff:
    ops: list[Op] = ["update", "insert", "delete", "rename"]
    changes = []
    for number in range(5_000):
        op = ops[number % 4]
        before = None if op == "insert" else f"the old text of {number} {EVIL if number == 8 else ''}"
        after = None if op == "delete" else f"the new text of {number} {EVIL if number == 8 else ''}"
        changes.append(_change(op, ("Note", "Person", "图书")[number % 3], number, before, after))
    changes[0] = _change("update", "Note", 0, LONG + "red fox" + LONG, LONG + "blue cat" + LONG)
    findings = [Finding("E_SCHEMA", EVIL, "data/x", 3, EVIL, EVIL, "Note", EVIL)]
    findings += [Finding("W_INVISIBLE", f"warning {number}", "data/x", number) for number in range(100)]
    ontology = (OntologyChange("node Note field /title", '{"type": "string"}', EVIL, "config.yaml"),)
    return Diff(Label(EVIL), Label("topic", "a" * 40), tuple(changes), ontology, tuple(findings), 9, 2)


def _page(diff: Diff, budget: int = 100_000_000) -> str:
    return "\n".join(DIFF["html"].lines(diff, DiffOptions(budget=budget)))


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_data_ends_no_block_and_the_policy_lets_nothing_else_run() -> None:
    text = _page(_many())
    parsed = _Elements()
    parsed.feed(text)
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 2 and tags.count("img") == 0
    policy = next(
        about["content"] for tag, about in parsed.tags if about.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy and "default-src 'none'" in policy and "unsafe" not in policy
    addresses = [value for _, about in parsed.tags for name, value in about.items() if name in ("src", "href")]
    assert addresses == ["data:,"]
    assert "://" not in re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)


def test_records_without_room_are_counted() -> None:
    data = json.loads(_page(_many(), budget=2_000).partition('id="data">')[2].partition("</script>")[0])
    assert sum(data["left"].values()) + len(data["changes"]) == 5_000 and 0 < len(data["changes"]) < 20


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("page") / "review.html"
    path.write_text(_page(_many()), "utf-8")
    with browsing(wanted()) as tab:
        tab.open(path)
        yield tab


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    """Every test finds the page as it is when it was opened."""
    if "page" in request.fixturenames:
        tab = request.getfixturevalue("page")
        tab.reload()
        tab.problems.clear()
        tab.dark(False)


def _count(page: Page) -> str:
    return str(page.run("document.getElementById('count').textContent"))


def test_it_shows_the_records_as_they_are_needed_and_nothing_of_the_data_runs(page: Page) -> None:
    assert _count(page) == "5,000 changed records"
    first = page.run("document.querySelectorAll('article').length")
    assert 0 < first <= 400
    page.run("document.getElementById('end').scrollIntoView()")
    page.wait(lambda: page.run("document.querySelectorAll('article').length") > first)
    assert page.run("document.title").startswith("Knowledge: ")
    assert page.run("document.querySelectorAll('img, iframe, object, embed, a[href]').length") == 0
    assert EVIL in page.run("document.querySelector('li.error').textContent")
    assert page.problems == []
    assert [address for address in page.asked if not address.startswith(("file:", "data:", "about:"))] == []


def test_fields_stand_side_by_side_with_the_words_that_changed(page: Page) -> None:
    cells = page.run(
        "[...document.querySelector('#record-0').closest('article').querySelectorAll('tbody tr')].map((row) =>"
        " [...row.cells].map((cell) => [cell.textContent.length, [...cell.querySelectorAll('del, ins')].map("
        " (one) => one.tagName + ' ' + one.textContent)]))"
    )
    assert cells[0][1][1] == ["DEL red fox"] and cells[0][2][1] == ["INS blue cat"]
    assert cells[0][1][0] == len(LONG) * 2 + len("red fox")
    assert cells[1][1] == [len("absent"), []]


def test_filters_by_type_op_and_words_work_together(page: Page) -> None:
    page.run(
        "(() => { const one = document.getElementById('type'); one.value = '图书'; one.dispatchEvent(new Event('change')); })()"
    )
    assert _count(page) == "1,666 of 5,000 changed records"
    page.run(
        "[...document.querySelectorAll('button[aria-pressed]')].find((one) => one.textContent.startsWith('added')).click()"
    )
    expected = sum(number % 3 == 2 and number % 4 != 1 for number in range(5_000))
    assert _count(page) == f"{expected:,} of 5,000 changed records"
    page.press("/")
    page.type("TEXT of 4991 new")
    page.wait(lambda: _count(page).startswith("1 of"))
    assert page.run("document.querySelector('article code').textContent") == "图书-4991".lower()


def test_the_keyboard_walks_the_records_searches_and_helps(page: Page) -> None:
    def focused() -> Any:
        return page.run("document.activeElement.dataset.place")

    for key, place in (("j", "0"), ("j", "1"), ("j", "2"), ("k", "1")):
        page.press(key)
        assert focused() == place
    page.run(
        "for (let step = 0; step < 300; step += 1) document.dispatchEvent(new KeyboardEvent('keydown', {key: 'j'}))"
    )
    assert focused() == "301"
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.type("j")
    assert page.run("document.activeElement.value") == "j"
    page.press("Escape")
    assert page.run("document.activeElement.id") == ""
    page.press("?")
    assert page.run("document.getElementById('help').open")
    page.press("Escape")
    page.wait(lambda: not page.run("document.getElementById('help').open"))
    assert page.problems == []


def test_everything_that_can_be_used_has_a_name(page: Page) -> None:
    page.run("document.getElementById('keys').click()")
    used = {
        "button",
        "searchbox",
        "combobox",
        "article",
        "table",
        "dialog",
        "region",
        "search",
        "columnheader",
        "rowheader",
    }
    named = [(role, name) for role, name in page.names() if role in used]
    page.run("document.getElementById('help').close()")
    named += [(role, name) for role, name in page.names() if role in used]
    roles = {role for role, _ in named}
    assert roles >= {"button", "searchbox", "combobox", "article", "table", "dialog"}
    assert [role for role, name in named if not name and role != "search"] == []


def test_dark_and_light_follow_the_system_and_can_be_switched(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.run(ground) == "rgb(255, 255, 255)"
    page.dark(True)
    assert page.run(ground) == "rgb(13, 17, 23)"
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) == "rgb(255, 255, 255)"


def test_text_stands_out_enough_from_its_ground(page: Page) -> None:
    """4.5 to 1 (WCAG 2.2, 1.4.3), in both themes, for every text of the page."""
    script = """
      (() => {
        const parts = (color) => color.match(/[\\d.]+/g).map(Number);
        const light = (rgb) => { const [r, g, b] = rgb.map((one) => { const c = one / 255;
          return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
        const ground = (one) => { for (let at = one; at; at = at.parentElement) { const c = parts(getComputedStyle(at).backgroundColor);
          if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
        let worst = 99;
        for (const one of document.querySelectorAll('h1, h2, h3, p, li, div, code, span, th, td, ins, del, button, kbd')) {
          if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
          const [a, b] = [light(parts(getComputedStyle(one).color).slice(0, 3)), light(ground(one).slice(0, 3))];
          worst = Math.min(worst, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
        }
        return worst;
      })()"""
    for is_dark in (False, True):
        page.dark(is_dark)
        assert page.run(script) >= 4.5


def test_diff_prints_the_page(tmp_path: Path, page: Page) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    run_in(root, ["put", "Note", '{"id": "a", "text": "one \\u202e two"}'])
    commit(root)
    git(root, "tag", "before")
    run_in(root, ["put", "Note", '{"id": "a", "text": "one two <b>"}'])
    ran = run_in(root, ["diff", "before", "--format", "html"])
    assert ran.code == 0
    (tmp_path / "kb.html").write_text(ran.out, "utf-8")
    page.open(tmp_path / "kb.html")
    assert "one \\u202e two" in page.run("document.querySelector('tbody td').textContent")
    assert _count(page) == "1 changed record"
    assert page.problems == []
