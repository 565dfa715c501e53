"""The pages of changes in a real browser: marks of what was viewed, comments and what becomes of them, keys; and axe finds nothing
serious on any of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.browser import Page, browsing, wanted
from tests.conftest import commit, make_base, run_in
from tests.doors.test_changes_in_the_reading_room import CONFIG, RULE, git, put, stopped_merge
from tests.doors.test_reading_room import EVIL, MARKDOWN
from tests.doors.test_reading_room_in_a_browser import _LOUD, AXE, go
from tests.harness.servers import served

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str, Path]]:
    """A tab that is signed in, the address of the pages, and the base, which has a branch to review."""
    browser = wanted()
    root = make_base(tmp_path_factory.mktemp("browser") / "kb", CONFIG)
    put(root, "Note", *({"id": f"n{at}", "title": f"Ducks {at}"} for at in range(4)))
    put(root, "Rule", RULE)
    commit(root, "all of it")
    main = git(root, "branch", "--show-current")
    git(root, "checkout", "-q", "-b", "topic")
    put(root, "Note", *({"id": f"n{at}", "title": f"Geese {at}"} for at in range(4)), merge=True)
    put(root, "Note", {"id": "evil", "title": EVIL, "text": MARKDOWN + EVIL})
    commit(root, EVIL)
    git(root, "checkout", "-q", main)
    with served(root, "serve", "--open", "--edit", log=root.with_name("log")) as server, browsing(browser) as tab:
        tab.visit(str(server.told["open"]))
        yield tab, f"{server.told['url']}/web/", root


def review(page: tuple[Page, str, Path]) -> Page:
    tab = go(page[:2], "change?branch=topic")
    tab.wait(lambda: tab.run("!document.querySelector('.viewed').hidden"))
    return tab


VIEWED = "[...document.querySelectorAll('.changed.is-viewed')].map((one) => one.dataset.identity).join()"


def test_what_was_viewed_is_marked_until_it_changes_again(page: tuple[Page, str, Path]) -> None:
    root = page[2]
    tab = review(page)
    for key in "jjvv":
        tab.press(key)
    assert tab.run(VIEWED) == "n0,n1" and tab.run("document.activeElement.textContent") == "Geese 2"
    assert tab.run("document.querySelector('.is-viewed .difference').hidden")
    assert "2 of 5" in tab.run("document.getElementById('viewed-count').textContent")
    assert review(page).run(VIEWED) == "n0,n1"
    told = json.dumps({"id": "n1", "title": "Swans"})
    assert run_in(root, ["propose", "--continue", "--branch", "topic", "put", "Note", told, "--merge"]).code == 0
    tab = review(page)
    assert tab.run(VIEWED) == "n0"
    assert all(one.startswith((page[1].removesuffix("web/"), "data:")) for one in tab.asked), (
        "nothing is sent elsewhere"
    )
    assert tab.problems == []


def test_comments_stay_here_and_are_taken_to_the_forge_by_file_and_line(page: tuple[Page, str, Path]) -> None:
    root, tab = page[2], review(page)
    asked = len(tab.asked)
    tab.press("j"), tab.press("j"), tab.press("c")
    tab.wait(lambda: tab.run("document.activeElement.tagName") == "TEXTAREA")
    tab.type("Is this `right`? <b>no</b>")
    tab.run("document.querySelector('form.writing').requestSubmit()")
    tab.run("document.querySelector('[data-identity=\"n2\"] .row button.comment').click()")
    tab.type("这是什么")
    tab.run("document.querySelector('form.writing').requestSubmit()")
    assert tab.run("document.querySelectorAll('#comment-list li').length") == 2 and len(tab.asked) == asked
    tab = review(page)
    assert "<b>no</b>" in tab.run("document.querySelector('.said .words').textContent")
    keep = "window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#'; }; document.querySelector('[data-export=NAME]').click(); saved[0].text()"
    sent = json.loads(tab.run(keep.replace("NAME", "json")))
    place = json.loads(run_in(root, ["diff", "HEAD...topic", "--format", "json", "--", "Note:n2"]).out)["changes"][0][
        "after"
    ]
    assert sent["commit_id"] == git(root, "rev-parse", "topic") and sent["event"] == "COMMENT"
    assert {"path": place["path"], "line": place["line"], "side": "RIGHT", "body": "`title`: 这是什么"} in sent[
        "comments"
    ]
    told = tab.run(keep.replace("NAME", "markdown"))
    assert f"`{place['path']}:{place['line']}` `Note n2` `title`" in told and "  这是什么" in told
    tab.run("window.confirm = () => true; document.querySelector('[data-export=clear]').click()")
    assert tab.run("document.querySelectorAll('.said').length") == 0 and tab.problems == []


def test_a_comment_that_is_half_written_stays_while_another_is_begun_or_nothing_more_can_be_kept(
    page: tuple[Page, str, Path],
) -> None:
    tab = review(page)
    begin = "document.querySelectorAll('[data-identity=n1] button.comment')[AT].click()"
    tab.run(begin.replace("AT", "0"))
    tab.type("half a thought")
    tab.run(begin.replace("AT", "1"))
    tab.type("another")
    tab.run(begin.replace("AT", "0"))
    written = "[...document.querySelectorAll('form.writing textarea')].map((one) => one.value)"
    assert tab.run(written) == ["half a thought", "another"]
    assert tab.run("document.activeElement.value") == "half a thought"
    tab.run("Storage.prototype.setItem = () => { throw new Error('full'); }")
    tab.run("document.querySelector('form.writing').requestSubmit()")
    assert tab.run(written) == ["half a thought", "another"]


def test_another_base_that_is_served_at_the_same_address_knows_nothing_of_the_comments(tmp_path: Path) -> None:
    def reviewed(name: str) -> Path:
        root = make_base(tmp_path / name, CONFIG)
        put(root, "Note", {"id": "n0", "title": "Ducks"})
        commit(root, "all of it")
        told = json.dumps({"id": "n0", "title": f"Ducks of {name}"})
        assert run_in(root, ["propose", "--branch", "topic", "put", "Note", told, "--merge"]).code == 0
        return root

    said = "document.querySelectorAll('.said').length"
    one, other = reviewed("one"), reviewed("other")
    with browsing(wanted()) as tab:
        with served(one, "serve", "--open", log=tmp_path / "log") as server:
            tab.visit(str(server.told["open"]))
            tab = review((tab, f"{server.told['url']}/web/", one))
            tab.run("document.querySelector('.comment').click()")
            tab.type("for one alone")
            tab.run("document.querySelector('form.writing').requestSubmit()")
            tab.run("document.querySelector('.viewed input').click()")
            assert tab.run(said) == 1
            assert tab.run("Object.keys(localStorage).every((key) => key.includes(review.dataset.room))")
        for root, many in ((other, 0), (one, 1)):
            with served(root, "serve", "--open", log=tmp_path / "log", port=server.port) as again:
                tab.visit(str(again.told["open"]))
                tab = review((tab, f"{again.told['url']}/web/", root))
                assert (tab.run(said), bool(tab.run(VIEWED))) == (many, bool(many))


def test_who_types_another_value_chooses_it(tmp_path: Path) -> None:
    root = stopped_merge(tmp_path / "kb")
    with browsing(wanted()) as tab, served(root, "serve", "--open", log=tmp_path / "log") as server:
        tab.visit(str(server.told["open"]))
        tab = go((tab, f"{server.told['url']}/web/"), "conflicts")
        field = "[...document.querySelectorAll('fieldset')].find((one) => one.textContent.includes('grade'))"
        tab.run(f"{field}.querySelector('details').open = true")
        tab.run(f"(() => {{ const text = {field}.querySelector('textarea'); text.focus(); text.select(); }})()")
        tab.type("6")
        assert tab.run(f"new FormData({field}.form).getAll({field}.querySelector('[type=radio]').name)") == ["value"]
        tab.run("document.querySelector('form#conflicts button').click()")
        tab.wait(lambda: tab.run("location.search.includes('settled=1')"))
        assert tab.problems == []


def test_hostile_records_run_nothing_in_a_change(page: tuple[Page, str, Path]) -> None:
    tab = review(page)
    tab.run("document.querySelectorAll('[data-identity=evil] button.comment').forEach((one) => one.click())")
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.wait(lambda: tab.run("document.querySelectorAll('[aria-busy]').length === 0"))
    assert tab.run("document.title") != "owned" and tab.run("document.images.length") == 0 and tab.problems == []


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing_serious_on_pages_of_changes(page: tuple[Page, str, Path], look: str) -> None:
    if not AXE.exists():
        pytest.skip("not installed: npm ci --prefix tests/harness/axe")
    tab, axe = page[0], AXE.read_text("utf-8")
    tab.dark(look == "dark")
    tab.size(*((390, 844) if look == "phone" else (1280, 1080)))
    found = {}
    pages = (
        "changes",
        "change?branch=topic",
        "change?branch=topic&view=beside",
        "conflicts",
        "edit?type=Rule&id=r1",
        "edit?type=Note",
    )
    for address in pages:
        go(page[:2], address)
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        tab.wait(lambda: tab.run("document.querySelectorAll('[aria-busy]').length === 0"))
        tab.run(f"(() => {{ {axe}; }})()")
        if serious := tab.run(f"axe.run().then({_LOUD})"):
            found[address] = serious
        too_wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide <= 0, (address, too_wide)
    tab.dark(False)
    tab.size(1280, 1080)
    assert found == {}
