"""`duckkb blame COLLECTION PATH text`: the commit of each line of a document, held against `git blame` run by itself."""

import json
import os
import random
import subprocess
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import pytest

import duckkb
from duckkb.types.errors import NotFound
from tests.conftest import NOTES, Ran, commit, git, run_in

FRONT = "---\nowner: mei\ntags: [a, b]\n---\n"
FORMS = {
    "front.md": ("utf-8", "\r\n", True, FRONT.replace("\n", "\r\n")),  # which git has with LF
    "guide/win.md": ("utf-8", "\r\n", True, FRONT.replace("\n", "\r\n")),
    "guide/latin.md": ("cp1252", "\n", False, ""),
    "guide/中 文.md": ("utf-8", "\r\n", False, ""),
    "wide.md": ("utf-16-le", "\n", True, "\ufeff"),
}
"""Documents by encoding, end of line, whether the last line has one, and what stands before the text."""


def _by_git(folder: Path, name: str, *at: str) -> list[str | None]:
    """The commit of each line."""
    command = ["git", "-C", str(folder), "blame", "-l", "-s", "--root", *at, "--", name]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    commits = [line.split(b" ")[0].decode() for line in told.removesuffix(b"\n").split(b"\n")]
    return [one if one.strip("0") else None for one in commits]


def _told(ran: Ran) -> dict[int, str | None]:
    """By number the commit of each line, of runs that stand one behind the other and are as long as they can be."""
    assert ran.code == 0, ran.err
    for one, other in pairwise(ran.lines):
        assert one["lines"][1] + 1 == other["lines"][0] and one["commit"] != other["commit"], ran.out
    assert all((one["commit"] is None) is one.get("uncommitted", False) for one in ran.lines)
    return {at: one["commit"] for one in ran.lines for at in range(one["lines"][0], one["lines"][1] + 1)}


class _Story:
    """A base in a subfolder of a repository, whose documents are edited, renamed and merged by chance."""

    def __init__(self, top: Path) -> None:
        self.top, self.root, self._chance, self._count = top, top / "team/kb", random.Random(7), 0
        (self.root / "docs/guide").mkdir(parents=True)
        (self.root / "config.yaml").write_text(NOTES, "utf-8")
        (top / ".gitattributes").write_text("*front.md text eol=crlf\n", "utf-8")
        git(top, "init", "-q", "-b", "main")
        assert run_in(self.root, ["collection", "add", "docs"]).code == 0
        self.texts = {name: [self._line() for _ in range(30)] for name in FORMS}
        self.forms = dict(FORMS)
        self.write()
        commit(top, "first")

    def _line(self) -> str:
        self._count += 1
        return f"line {self._count} é {self._chance.randint(0, 9) * 'x'}"

    def write(self) -> None:
        for name, lines in self.texts.items():
            encoding, end, is_closed, before = self.forms[name]
            text = before + end.join(lines) + (end if is_closed else "")
            path = self.root / "docs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode(encoding))

    def edit(self, *, first: int = 0) -> None:
        """Lines changed, put in and taken out, in each of the documents, from one on."""
        for lines in self.texts.values():
            for _ in range(3):
                at = self._chance.randrange(first, first + 12)
                lines[at : at + self._chance.randrange(3)] = [self._line() for _ in range(self._chance.randrange(1, 3))]
        self.write()

    def rename(self) -> None:
        for name in list(self.texts):
            new = f"moved/{name.rpartition('/')[2]}" if "/" in name else f"new {name}"
            (self.root / "docs" / new).parent.mkdir(exist_ok=True)
            (self.root / "docs" / name).rename(self.root / "docs" / new)
            self.texts[new], self.forms[new] = self.texts.pop(name), self.forms.pop(name)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> _Story:
    made = _Story(tmp_path_factory.mktemp("lines") / "repo")
    for number in range(3):
        made.edit()
        commit(made.top, f"edit {number}")
    made.rename()
    made.edit()
    commit(made.top, "renamed and edited")
    before = deepcopy(made.texts)
    git(made.top, "checkout", "-q", "-b", "side")
    made.edit(first=16)
    commit(made.top, "at the end")
    git(made.top, "checkout", "-q", "main")
    ends, made.texts = made.texts, before
    for name in made.texts:
        made.texts[name] = ["on main", *made.texts[name]]
        ends[name] = ["on main", *ends[name]]
    made.write()
    commit(made.top, "at the beginning")
    git(made.top, "merge", "-q", "--no-ff", "--no-commit", "-s", "ours", "side")
    made.texts = ends
    made.write()
    commit(made.top, "both")
    return made


def _agrees(story: _Story, name: str, *args: str) -> dict[int, str | None]:
    expected = _by_git(story.root / "docs", name)
    first = story.forms[name][3].count("\n") + 1
    count = first - 1 + len(story.texts[name])
    told = _told(run_in(story.root, ["blame", "docs", name, "text", *args]))
    assert told == dict(enumerate(expected[:count][first - 1 :], first)), name
    return told


@pytest.mark.long
def test_kx_01_each_line_of_a_document_is_from_the_commit_that_git_blames(story: _Story) -> None:
    names = list(story.texts)
    for name in names:
        assert len({*_agrees(story, name).values()}) >= 5, "there is something to tell apart"
    before = deepcopy(story.texts)
    story.edit()
    try:
        for name in names:
            assert None in _agrees(story, name).values()
        git(story.top, "add", "-A")
        assert None in _agrees(story, names[0]).values(), "staged is not committed"
        (name,) = [name for name in names if name.endswith("win.md")]
        path = f"docs/{name}"
        git(story.root, "mv", path, "docs/staged.md")
        expected = _by_git(story.root, "docs/staged.md")
        with duckkb.open(story.root) as kb:
            runs = kb.provenance.lines("docs", "staged.md", 1)
        assert [one.by and one.by.commit for one in runs for _ in range(one.first, one.last + 1)] == expected
    finally:
        git(story.top, "reset", "-q", "--hard")
        story.texts = before
    line = run_in(story.root, ["blame", "docs", names[0], "text"]).lines[0]
    head = git(story.top, "log", "-1", "--format=%H|%an|%ae|%aI|%s", line["commit"]).strip().split("|")
    assert [line[key] for key in ("commit", "author", "email", "date", "summary", "path")] == [
        *head,
        f"docs/{names[0]}",
    ]


@pytest.mark.long
def test_kx_01_lines_of_the_file_are_chosen_as_git_chooses_them(story: _Story) -> None:
    name = "new front.md"
    expected = _by_git(story.root / "docs", name)
    for given, chosen in {"3,9": range(3, 10), ",6": range(1, 7), "12": range(12, len(expected) + 1)}.items():
        told = _told(run_in(story.root, ["blame", "docs", name, "-L", given]))
        assert told == {at: expected[at - 1] for at in chosen}
    assert _told(run_in(story.root, ["blame", "docs", name, "--lines", "30,999"])).keys() == {
        *range(30, len(expected) + 1)
    }
    (whole,) = run_in(story.root, ["blame", "docs", name, "text", "--lines", "5,9", "--json"]).lines
    assert whole["lines"][0]["lines"][0] == 5
    assert {"text", "owner", "title"} <= {one["field"] for one in run_in(story.root, ["blame", "docs", name]).lines}
    refused = {"999": 1, "9,3": 1, "0,3": 2, "a,b": 2}
    for given, code in refused.items():
        ran = run_in(story.root, ["blame", "docs", name, f"--lines={given}"])
        assert (ran.code, ran.out) == (code, ""), (given, ran)
    assert run_in(story.root, ["blame", "docs", name, "title", "-L", "1,2"]).code == 2
    old = git(story.top, "rev-parse", "HEAD~3").strip()
    with duckkb.open(story.root, at=old) as kb:
        (past,) = [name for name in _names(kb.ls("docs")) if "front" in name]
        runs = kb.provenance.lines("docs", past, 1)
        found = [one.by.commit for one in runs if one.by for _ in range(one.first, one.last + 1)]
        assert found == _by_git(story.root / "docs", past, old), "as it was then"
        with pytest.raises(NotFound):
            kb.provenance.lines("docs", "nothing.md")


def _names(listed: list[dict[str, str]]) -> list[str]:
    return [one["path"].removeprefix("docs/") for one in listed]


def test_kx_01_a_shallow_clone_says_where_its_history_ends(story: _Story, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "2", story.top.as_uri(), "clone")
    root = tmp_path / "clone/team/kb"
    ends = {*(tmp_path / "clone/.git/shallow").read_text().split()}
    ran = run_in(root, ["blame", "docs", "new front.md", "text"])
    assert [*_told(ran).values()] == _by_git(root / "docs", "new front.md")[4:]
    assert (
        {one["commit"] for one in ran.lines if one.get("shallow")}
        == ends & {one["commit"] for one in ran.lines}
        != set()
    )


@pytest.mark.long
def test_kx_01_what_git_does_not_know_and_what_has_no_lines_is_said_as_such(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    (root / "docs/theirs").mkdir(parents=True)
    (root / "config.yaml").write_text(NOTES, "utf-8")
    git(root, "init", "-q", "-b", "main")
    assert run_in(root, ["collection", "add", "docs", "--mask", "**/*.md", "--mask", "**/*.html"]).code == 0
    definition = root / "ontology/collections/docs.yaml"  # repositories in the folder are served where this says so
    definition.write_text(
        definition.read_text("utf-8").replace("source:\n", "source:\n      gitignore: false\n"), "utf-8"
    )
    (root / "docs/a.md").write_text(FRONT + "one\ntwo", "utf-8")
    assert run_in(root, ["blame", "docs", "a.md", "text"]).lines == [
        {"lines": [5, 6], "commit": None, "uncommitted": True, "path": "docs/a.md"}
    ], "before the first commit"
    theirs = root / "docs/theirs"
    git(theirs, "init", "-q", "-b", "main")
    (theirs / "b.md").write_text("one\n", "utf-8")
    commit(theirs, "theirs")
    (theirs / "b.md").write_text("one\ntwo\n", "utf-8")
    (root / "docs/page.html").write_text("<p>one</p>\n<p>two</p>\n", "utf-8")
    (root / "docs/empty.md").write_text("", "utf-8")
    (root / ".gitignore").write_text("theirs/\n", "utf-8")
    commit(root)
    (root / "docs/new.md").write_text("one\n\ntwo\n", "utf-8")
    assert _told(run_in(root, ["blame", "docs", "new.md", "text"])) == {1: None, 2: None, 3: None}
    ran = run_in(root, ["blame", "docs", "theirs/b.md", "text"])
    assert [*_told(ran).values()] == _by_git(theirs, "b.md") and ran.lines[0]["summary"] == "theirs"
    assert {one["repository"] for one in ran.lines} == {os.path.realpath(theirs)}
    git(theirs, "mv", "b.md", "c.md")
    assert run_in(root, ["collection", "add", str(theirs.rename(tmp_path / "theirs"))]).code == 0
    ran = run_in(root, ["blame", "theirs", "c.md", "text"])
    assert [*_told(ran).values()] == _by_git(tmp_path / "theirs", "c.md") and ran.lines[0]["repository"]
    assert {one["commit"] for one in run_in(root, ["blame", "theirs", "c.md"]).lines} == {None}, "no commit of the base"
    for name in ("page.html", "empty.md"):
        line = run_in(root, ["blame", "docs", name, "text"]).line
        assert (line["field"], line["summary"]) == ("text", "as it is"), "what has no lines is blamed as a whole"
        refused = run_in(root, ["blame", "docs", name, "-L", "1,2", "--json"])
        assert (refused.code, refused.error["code"]) == (2, "E_USAGE")
    assert run_in(root, ["put", "Note", json.dumps({"id": "n", "text": "one\ntwo"})]).code == 0
    assert run_in(root, ["blame", "Note", "n", "text"]).line["field"] == "text"
    assert run_in(root, ["blame", "Note", "n", "-L", "1"]).code == 2
    (root / "docs/odd.md").write_bytes("a\u0a0ab\nc\n".encode("utf-16"))
    commit(root)
    ran = run_in(root, ["blame", "docs", "odd.md", "text", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_GIT") and "UTF-8" in ran.error["suggestion"], "never wrong numbers"
    (root / ".git/info/attributes").write_text("*.md diff=x\n", "utf-8")
    for name in ("diff.x.textconv", "filter.x.clean", "filter.x.smudge"):
        git(root, "config", name, f"touch {tmp_path}/ran; cat")
    assert run_in(root, ["blame", "docs", "new.md", "text"]).code == 0
    (root / ".git/info/attributes").write_text("*.md filter=x\n", "utf-8")
    ran = run_in(root, ["blame", "docs", "new.md", "text", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_GIT") and "filter" in ran.error["error"]
    assert not (tmp_path / "ran").exists(), "no command of a repository is run"
