"""The page on which conflicts are settled, in a real browser: what it prints settles them exactly as they were chosen."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page, browsing, wanted
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
NAME = 'o\'neil $(x) `y` "z"'
SAME = {"id": "n", "title": "one", "text": "中文 text", "size": 1}
THEIRS: dict[str, dict[str, Any]] = {
    "n": {"title": "theirs", "text": "中文 theirs", "size": 9007199254740993},
    NAME: {"title": f"{EVIL} theirs"},
    "甲": {"title": "他们的", "text": "theirs \u202e here"},
    "kept": {"title": "theirs"},
}
OURS: dict[str, dict[str, Any]] = {
    "n": {"title": "ours", "text": "中文 ours", "size": 7},
    NAME: {"title": f"{EVIL} ours"},
    "甲": {"title": "我们的", "text": "ours \u202e here"},
    "gone": {"title": "ours"},
}


def put(root: Path, notes: dict[str, dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps({"id": name} | fields) for name, fields in notes.items())
    assert run_in(root, ["put", "Note", "--merge"], stdin=lines).code == 0


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A merge that stopped: fields that both changed, and a record deleted on either side."""
    root = make_base(tmp_path_factory.mktemp("conflicts") / "kb", NOTES)
    put(root, {name: SAME | {"id": name, "title": EVIL} for name in ("n", NAME, "甲", "gone", "kept")})
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    for branch, notes, deleted in (("topic", THEIRS, "gone"), ("main", OURS, "kept")):
        git(root, "checkout", "-q", *(["-b"] if branch == "topic" else []), branch)
        put(root, notes)
        assert run_in(root, ["delete", "Note", deleted]).code == 0
        commit(root)
    assert run_in(root, ["merge", "topic"]).code == 1
    return root


@pytest.fixture
def base(merging: Path, tmp_path: Path) -> Path:
    shutil.copytree(merging, tmp_path / "kb")
    return tmp_path / "kb"


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browsing(wanted()) as page:
        yield page


def drawn(base: Path, page: Page) -> Page:
    """The page of a base, opened from disk."""
    path = base.parent / "conflicts.html"
    ran = run_in(base, ["resolve", "--list", "--format", "html", "-o", str(path), "--force"])
    assert ran.code == 1, ran.err
    page.open(path)
    page.problems.clear()
    page.asked.clear()
    return page


def choose(page: Page, name: str, side: str, text: str | None = None) -> None:
    """Click a choice of the conflict that has this name, and type what it is to be."""
    page.run(f"""(() => {{
      const made = [...document.querySelectorAll('article')].find((one) => one.getAttribute('aria-label') === {json.dumps(name)});
      made.querySelector('input[value={side}]').click();
      if ({json.dumps(text)} !== null) {{ const field = made.querySelector('textarea'); field.focus(); field.select(); }}
    }})()""")
    if text is not None:
        page.type(text)


def printed(page: Page, what: str) -> str:
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    return str(page.run(f"document.getElementById('{what}').value"))


def carried_out(base: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """A command as a person pastes it."""
    own = f'duckkb() {{ {sys.executable} -m duckkb "$@"; }}\n{command}\n'
    return subprocess.run(["sh", "-c", own], cwd=base, capture_output=True, text=True, check=False)


def notes(base: Path) -> dict[str, dict[str, Any]]:
    parts = sorted((base / "data/nodes/note").rglob("*.jsonl"))
    found = [json.loads(line) for path in parts for line in path.read_text("utf-8").splitlines()]
    return {one["id"]: {name: one[name] for name in ("title", "text", "size") if name in one} for one in found}


CHOSEN = [
    ("Note n size", "theirs", None),
    ("Note n text", "edit", "both: 中文 'text'\n</script> \\n"),
    ("Note n title", "base", None),
    (f"Note {NAME} title", "ours", None),
    ("Note 甲 text", "edit", '"\\u202e 1"'),
    ("Note 甲 title", "theirs", None),
    ("Note gone ", "theirs", None),
    ("Note kept ", "edit", '{"id": "kept", "size": 12345678901234567, "title": "整条"}'),
]
SETTLED = {
    "n": {"title": EVIL, "text": "both: 中文 'text'\n</script> \\n", "size": 9007199254740993},
    NAME: {"title": f"{EVIL} ours", "text": "中文 text", "size": 1},
    "甲": {"title": "他们的", "text": "\u202e 1", "size": 1},
    "kept": {"title": "整条", "size": 12345678901234567},
}


@pytest.mark.long
@pytest.mark.parametrize("way", ["command", "answers"])
def test_what_was_chosen_is_settled_exactly_so(base: Path, tab: Page, way: str) -> None:
    page = drawn(base, tab)
    for name, side, text in CHOSEN:
        choose(page, name, side, text)
    told = printed(page, way)
    if way == "command":
        done = carried_out(base, told)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    else:
        ran = run_in(base, ["resolve", "--stage", "--with-file", "-"], stdin=told)
        assert (ran.code, ran.out) == (0, ""), ran.err
    assert notes(base) == SETTLED
    assert git(base, "diff", "--name-only", "--diff-filter=U") == ""
    assert re.fullmatch(r"[\x20-\x7e\n]*", told.replace("both: 中文 'text'", "").replace("整条", "")), "nothing unseen"
    assert page.problems == [] and page.run("document.title") == "Conflicts: merge"
    assert [one for one in page.asked if not one.startswith(("file:", "data:", "about:", "blob:"))] == []
    assert page.run("document.querySelectorAll('img, iframe, a[href], article script').length") == 0


def test_the_keyboard_alone_settles_them_and_the_command_has_a_flag_for_each(base: Path, tab: Page) -> None:
    page = drawn(base, tab)
    for key in "jtjojtjojbjtjouojt":
        page.press(key)
    command = printed(page, "command")
    assert page.run("document.getElementById('progress').textContent").startswith("8 of 8 settled")
    assert command.startswith("duckkb resolve --stage --theirs Note:gone --ours Note:kept --theirs Note:n:size --")
    page.press("c")
    assert page.run("document.activeElement.id") == "command"
    assert carried_out(base, command).returncode == 0
    found = notes(base)
    assert found["n"] == {"title": EVIL, "text": "中文 ours", "size": 9007199254740993}
    assert (found[NAME]["title"], found["甲"]["text"]) == (f"{EVIL} theirs", "ours \u202e here")
    assert found.keys() == {"n", NAME, "甲"}
    assert page.problems == []


def test_an_edit_that_is_no_json_is_said_and_settles_nothing(base: Path, tab: Page) -> None:
    page = drawn(base, tab)
    choose(page, "Note n size", "edit", "7,")
    choose(page, "Note kept ", "edit", "[]")
    assert printed(page, "command") == ""
    said = page.run("[...document.querySelectorAll('.wrong')].map((one) => one.textContent).filter(Boolean)")
    assert len(said) == 2 and "object" in said[0] and "No JSON yet" in said[1]
    assert page.run("document.querySelectorAll('.settled').length") == 0


def test_taking_a_side_for_the_rest_leaves_alone_what_was_typed(base: Path, tab: Page) -> None:
    page = drawn(base, tab)
    choose(page, "Note 甲 text", "edit", "not yet JSON")
    page.run("document.getElementById('all-ours').click()")
    kept = "[...document.querySelectorAll('article')].find((one) => one.getAttribute('aria-label') === 'Note 甲 text')"
    assert page.run(f"{kept}.querySelector('input[value=edit]').checked")
    assert page.run(f"{kept}.querySelector('textarea').value") == "not yet JSON"


def test_an_answer_is_for_what_stood_on_the_page_alone(base: Path) -> None:
    def resolve(*lines: dict[str, Any]) -> Ran:
        return run_in(base, ["resolve", "--json", "--with-file", "-"], stdin="\n".join(map(json.dumps, lines)))

    listed = run_in(base, ["resolve", "--list", "--format", "jsonl"]).lines
    before = (base / listed[0]["path"]).read_bytes()
    stale = resolve(listed[0] | {"choose": "ours", "etag": "0" * 16}, listed[1] | {"choose": "ours"})
    assert (stale.code, stale.error["code"]) == (1, "E_STALE")
    twice = resolve(listed[0] | {"choose": "ours"}, listed[0] | {"choose": "theirs"})
    assert (twice.code, twice.error["code"]) == (1, "E_INVALID")
    assert (base / listed[0]["path"]).read_bytes() == before
    assert resolve(*[one | {"choose": "base"} for one in listed]).code == 0
    assert all(one == SAME | {"title": EVIL} or "id" not in one for one in notes(base).values())
    assert {"gone", "kept"} <= notes(base).keys()


def test_what_is_no_conflict_of_records_is_listed_apart(base: Path, tab: Page) -> None:
    (base / "config.yaml").write_text("<<<<<<< ours\nglobal: {embedding_model: none}\n", "utf-8")
    git(base, "update-index", "--cacheinfo", f"100644,{git(base, 'rev-parse', 'HEAD:config.yaml').strip()},config.yaml")
    page = drawn(base, tab)
    titles = page.run("[...document.querySelectorAll('h2')].map((one) => one.textContent)")
    assert titles[0] == "Rules that are broken (1)" and "Conflicts" in titles
    assert "config.yaml" in page.run("document.querySelector('li.error').textContent")


@pytest.mark.long
def test_hundreds_of_conflicts_stay_usable(tmp_path: Path, tab: Page) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    for switch, branch in (("--orphan", "main"), ("-b", "topic"), ("", "main")):
        git(root, "checkout", "-q", *filter(None, (switch, branch)))
        put(root, {f"n{n:03}": {"title": f"{switch} {branch} {n}"} for n in range(500)})
        commit(root)
    assert run_in(root, ["merge", "topic"]).code == 1
    page = drawn(root, tab)
    assert page.run("document.querySelectorAll('article').length") < 500
    page.press("/")
    page.type("n499")
    page.wait(lambda: page.run("document.querySelectorAll('article').length") == 1)
    page.press("Escape")
    page.press("t")
    page.run(
        "document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))"
    )
    page.wait(lambda: page.run("document.getElementById('count').textContent") == "500 conflicts")
    page.run("document.getElementById('all-ours').click()")
    command = printed(page, "command")
    assert "500 of 500 settled" in page.run("document.getElementById('progress').textContent")
    assert carried_out(root, command).returncode == 0
    titles = {name: one["title"] for name, one in notes(root).items()}
    assert titles == {f"n{n:03}": f" main {n}" if n < 499 else "-b topic 499" for n in range(500)}
    assert page.problems == []


def test_the_page_goes_where_other_pages_go(base: Path) -> None:
    ran = run_in(base, ["resolve", "--format", "html", "--list"])
    assert ran.code == 1 and ran.out.startswith("<!doctype html>") and "default-src 'none'" in ran.out
    assert ran.out.count("<script") == 2 and "://" not in ran.out.replace(r"\u003c", "")
    for path in (".git/x.html", "data/x.html"):
        refused = run_in(base, ["resolve", "--format", "html", "-o", path, "--json"])
        assert refused.code == 2
    assert run_in(base, ["resolve", "--format", "csv", "-o", "x.html"]).code == 2
