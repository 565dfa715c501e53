"""The pages in a real browser: keys, search while typing, the picture, light and dark, a phone; and axe finds nothing serious."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.browser import Page, browsing, wanted
from tests.conftest import NOTES, ROOT, commit, make_base, run_in
from tests.doors.test_reading_room import EVIL, MARKDOWN
from tests.harness import attack
from tests.harness.servers import served

pytestmark = pytest.mark.long
DATA = Path(os.environ.get("DUCKKB_EVAL_DATA") or ".", "graph", "attack")
AXE = ROOT / "tests/harness/axe/node_modules/axe-core/axe.min.js"
MANY = 700
_LOUD = "(result) => result.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => `${one.id}: ${one.nodes.map((node) => node.html)}`)"
_WIDE = "[...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 90)).slice(0, 5)"
PAGES = (
    "search", "search?q=ducks", "search?type=Note&where=size+%3E+2", "search?q=x&type=Nota", "records", "records?type=Note",
    "record?type=Note&id=n1", "record?type=Note&id=evil", "record/history?type=Note&id=n1", "record/compare?type=Note&id=n1",
    "record/field?type=Note&id=n1&name=text", "record/edges?type=Note&id=hub", "nowhere", "ontology", "ontology/type?type=Note",
    "health", "health/findings", "quality",
)  # fmt: skip

ATTACK = (
    "search?q=credential+dumping", "search?type=technique&q=phishing&where=name+LIKE+%27Phish%25%27", "records", "records?type=technique",
    "record?type=technique&id=T1059", "record?type=tactic&id=TA0005", "record/compare?type=technique&id=T1059", "record/history?type=technique&id=T1059",
    "changes", "change?branch=said-otherwise", "change?branch=said-otherwise&view=beside", "ontology", "ontology/type?type=technique", "health", "quality",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A tab that is signed in, and the address of the pages."""
    browser = wanted()
    root = make_base(tmp_path_factory.mktemp("browser") / "kb", NOTES)
    notes = [
        {"id": f"n{at}", "title": f"Ducks {at}", "text": f"Ducks swim in pond {at}.\n\nThe end.", "size": at}
        for at in range(30)
    ]
    notes += [{"id": "evil", "title": EVIL, "text": MARKDOWN + EVIL}, {"id": "hub", "title": "The hub"}]
    spokes = [{"id": f"s{at}", "title": f"Spoke {at}"} for at in range(MANY)]
    edges = [{"from": "hub", "to": f"s{at}"} for at in range(MANY)] + [{"from": "evil", "to": "n1", "why": EVIL}]
    for type, records in (("Note", notes + spokes), ("cites", edges)):
        assert run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records))).code == 0
    commit(root, "all of it")
    assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "text": "Ducks swim in lakes."}), "--merge"]).code == 0
    commit(root, "lakes")
    with served(root, "serve", "--open", log=root.with_name("log")) as server, browsing(browser) as tab:
        tab.visit(str(server.told["open"]))
        yield tab, f"{server.told['url']}/web/"


def go(page: tuple[Page, str], address: str) -> Page:
    """A page that is loaded, with its scripts at work."""
    tab, root = page
    tab.visit(root + address)
    tab.problems.clear()
    tab.wait(
        lambda: tab.run("document.readyState === 'complete' && document.querySelectorAll('[aria-busy]').length === 0")
    )
    return tab


def test_search_is_asked_while_it_is_typed_and_moved_through_by_keys(page: tuple[Page, str]) -> None:
    tab = go(page, "search?type=Note")
    tab.run("document.activeElement.blur()")
    tab.press("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.type("ducks swim")
    tab.wait(lambda: tab.run("document.querySelectorAll('.hit').length") == 10)
    assert "q=ducks+swim" in tab.run("location.search") and tab.run("document.querySelectorAll('mark').length") > 10
    tab.press("Escape")
    for key in "jjk":
        tab.press(key)
    second = tab.run("[...document.querySelectorAll('[data-open]')].indexOf(document.activeElement)")
    assert second == 0
    tab.press("?")
    assert "next, previous" in tab.run("document.querySelector('dialog').textContent")
    tab.press("Escape")
    tab.wait(lambda: not tab.run("!!document.querySelector('dialog')"))
    wanted_title = tab.run("document.querySelector('[data-open]').textContent")
    before = tab.loaded
    tab.press("Enter")
    tab.wait(lambda: tab.loaded > before)
    assert tab.run("document.querySelector('h1').textContent") == wanted_title
    assert tab.problems == []


def test_why_and_where_from_come_when_they_are_opened(page: tuple[Page, str]) -> None:
    tab = go(page, "search?q=ducks&type=Note")
    tab.run("document.querySelector('.why').open = true")
    tab.wait(lambda: "part_" in tab.run("document.querySelector('.why').textContent"))
    tab = go(page, "record?type=Note&id=n1")
    tab.run("document.querySelectorAll('details.part').forEach((one) => { one.open = true; })")
    tab.wait(lambda: "lakes" in tab.run("document.querySelector('.history')?.textContent || ''"))
    assert tab.problems == []


def test_the_picture_of_five_hundred_records_is_drawn_moved_and_walked_by_keys(page: tuple[Page, str]) -> None:
    tab = go(page, "record?type=Note&id=hub")
    tab.wait(lambda: tab.run("document.querySelectorAll('.drawing .node').length") == 61)
    tab.run(
        "{ const s = document.querySelector('[name=limit]'); s.value = '500'; s.dispatchEvent(new Event('change', { bubbles: true })); }"
    )
    tab.wait(lambda: tab.run("document.querySelectorAll('.drawing .node').length") == 501)
    assert "500 edges" in tab.run("document.querySelector('.said').textContent")
    places = "[...document.querySelectorAll('.drawing .node')].map((one) => one.getAttribute('transform'))"
    assert tab.run(f"new Set({places}).size") == 501
    tab.run("document.querySelector('.drawing svg').focus()")
    stage = "document.querySelector('.drawing svg > g').getAttribute('transform')"
    before = tab.run(stage)
    tab.press("+")
    closer = tab.run(stage)
    tab.press("ArrowLeft")
    assert len({before, closer, tab.run(stage)}) == 3
    tab.press("0")
    assert tab.run(stage) == before
    # Moving the picture of 500 records costs less than a frame of 60 a second, as the median of what the script does.
    slow = tab.run(
        "(() => { const svg = document.querySelector('.drawing svg'); const times = [];"
        "for (let at = 0; at < 60; at += 1) { const began = performance.now();"
        "svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }));"
        "times.push(performance.now() - began); } return times.sort((a, b) => a - b)[30]; })()"
    )
    assert slow < 16
    tab.press("Tab")
    assert tab.run("document.activeElement.matches('.node.itself')")
    assert tab.problems == []


def test_hostile_records_run_nothing(page: tuple[Page, str]) -> None:
    for address in (
        "record?type=Note&id=evil",
        "search?q=owned&type=Note",
        "record/edges?type=Note&id=n1",
        "record/field?type=Note&id=evil&name=text",
    ):
        tab = go(page, address)
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        tab.wait(lambda tab=tab: tab.run("document.querySelectorAll('[aria-busy]').length === 0"))
        assert tab.run("document.title") != "owned"
        assert tab.run("[...document.images].length") == 0 and tab.problems == [], address
        assert all(one.startswith((page[1].removesuffix("web/"), "data:,")) for one in tab.asked[-20:])


def test_a_link_of_another_server_leads_to_the_page_and_signed_in_people_see_it(
    page: tuple[Page, str], tmp_path: Path
) -> None:
    tab, root = page
    elsewhere = tmp_path / "mail.html"
    elsewhere.write_text(f'<a id="there" href="{root}search?q=ducks">look</a>', "utf-8")
    tab.open(elsewhere)
    tab.follow("#there")
    tab.wait(lambda: tab.run("document.querySelectorAll('.hit').length") == 10)
    assert tab.run("location.search") == "?q=ducks"


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing_serious(page: tuple[Page, str], look: str) -> None:
    if not AXE.exists():
        pytest.skip("not installed: npm ci --prefix tests/harness/axe")
    tab, axe = page[0], AXE.read_text("utf-8")
    tab.dark(look == "dark")
    tab.size(*((390, 844) if look == "phone" else (1280, 1080)))
    found = {}
    for address in PAGES:
        go(page, address)
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        tab.wait(lambda: tab.run("document.querySelectorAll('[aria-busy]').length === 0"))
        tab.run(f"(() => {{ {axe}; }})()")
        if serious := tab.run(f"axe.run().then({_LOUD})"):
            found[address] = serious
        too_wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide <= 0, (address, too_wide, tab.run(_WIDE))
    tab.dark(False)
    tab.size(1280, 1080)
    assert found == {}


@pytest.mark.skipif(not DATA.is_dir(), reason="DUCKKB_EVAL_DATA names no folder with graph/attack")
def test_attack_is_looked_at_page_by_page(tmp_path: Path) -> None:
    browser, root = wanted(), tmp_path / "kb"
    attack.build(DATA, root)
    change = {"id": "T1059", "name": "Command and Scripting Interpreter, said otherwise"}
    proposed = [
        "propose",
        "--branch",
        "said-otherwise",
        "-m",
        "As others say it",
        "put",
        "technique",
        json.dumps(change),
        "--merge",
    ]
    assert run_in(root, proposed).code == 0
    with served(root, "serve", "--open", log=tmp_path / "log") as server, browsing(browser) as tab:
        tab.visit(str(server.told["open"]))
        for address in ATTACK:
            shown = go((tab, f"{server.told['url']}/web/"), address)
            shown.run("document.querySelectorAll('details.part').forEach((one) => { one.open = true; })")
            shown.wait(lambda: tab.run("document.querySelectorAll('[aria-busy]').length === 0"))
            if AXE.exists():
                shown.run(AXE.read_text("utf-8"))
                assert shown.run(f"axe.run(document, {{resultTypes: ['violations']}}).then({_LOUD})") == [], address
            assert shown.run(_WIDE) == [] and shown.problems == [], address
            assert shown.run("!document.querySelector('.problem')"), address
