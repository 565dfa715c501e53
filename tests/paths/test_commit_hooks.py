"""What a git hook sees is what is being committed, whichever way: the shipped hook, by itself and under pre-commit."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml

from duckkb.cli.main import VERBS, duckkb
from tests.conftest import NOTES, ROOT, commit, git, make_base, run_in
from tests.doors.shell import commands

MANY = 57
STAGES = ("pre-commit", "pre-merge-commit")
SHIPPED = [
    hook
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    if hook.get("stages") != ["manual"]
]


@dataclass(frozen=True)
class Place:
    """A work tree whose commits go through hooks: `notes` is a file of many records, `people` one of a single record."""

    root: Path
    folder: Path

    @property
    def notes(self) -> str:
        return self._part("note")

    @property
    def people(self) -> str:
        return self._part("person")

    def _part(self, table: str) -> str:
        (part,) = (self.root / f"data/nodes/{table}").glob("*/*.jsonl")
        return part.relative_to(self.root).as_posix()

    def git(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """Run git as a person does, with its hooks."""
        path = f"{commands(self.folder)}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(self.folder / "pre-commit"), "GIT_EDITOR": "true"}
        return subprocess.run(["git", *args], cwd=self.root, env=env, capture_output=True, text=True, check=False)

    def break_notes(self) -> None:
        """Have a line that is not JSON stand in the file of notes."""
        path = self.root / self.notes
        path.write_text(path.read_text("utf-8") + "{no record\n", "utf-8")

    def change_people(self) -> None:
        """Have the one person have another name: a sound change, in another file."""
        changed = run_in(self.root, ["put", "Person", '{"country":"中国","number":1,"name":"renamed"}'])
        assert changed.code == 0, changed.err

    def head(self) -> str:
        return git(self.root, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed base; its branch `topic` has a person more, and `broken` a line that is not JSON."""
    root = make_base(tmp_path_factory.mktemp("hooks") / "kb", NOTES)
    notes = "".join(json.dumps({"id": f"n{number}", "title": f"标题 {number}"}) + "\n" for number in range(MANY))
    assert run_in(root, ["import", "Note", "-"], stdin=notes).code == 0
    assert run_in(root, ["put", "Person", '{"country":"中国","number":1,"name":"first"}']).code == 0
    commit(root)
    for branch in ("topic", "broken"):
        git(root, "checkout", "-q", "-b", branch, "main")
        if branch == "topic":
            assert run_in(root, ["put", "Note", '{"id":"n1","title":"theirs"}']).code == 0
        else:
            Place(root, root.parent).break_notes()
        commit(root, branch)
    git(root, "checkout", "-q", "main")
    assert run_in(root, ["put", "Note", '{"id":"n50","title":"ours"}']).code == 0
    commit(root, "ours")
    return root


def place_of(base: Path, folder: Path, *, linked: bool) -> Place:
    """A copy of the base, or a work tree that is linked to one."""
    top = folder / "kb"
    shutil.copytree(base, top)
    git(top, "checkout", "-q", "-b", "work")
    if linked:
        git(top, "checkout", "-q", "main")
        git(top, "worktree", "add", "-q", str(folder / "linked"), "work")
        return Place(folder / "linked", folder)
    return Place(top, folder)


def install_plainly(place: Place) -> None:
    """Have git itself run the shipped commands at the stages that they are for."""
    hooks = Path(git(place.root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()) / "hooks"
    for stage in STAGES:
        wanted = [hook["entry"] for hook in SHIPPED if stage in hook.get("stages", STAGES)]
        (hooks / stage).write_text("\n".join(["#!/bin/sh", "set -e", *wanted, ""]), "utf-8")
        (hooks / stage).chmod(0o755)


def install_pre_commit(place: Place) -> None:
    """Have pre-commit run the shipped hooks: as they are but for `language`, as nothing is installed here."""
    hooks = [{**hook, "language": "system"} for hook in SHIPPED]
    config = {"default_install_hook_types": list(STAGES), "repos": [{"repo": "local", "hooks": hooks}]}
    (place.root / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    commit(place.root, "hooks")
    env = {**os.environ, "PRE_COMMIT_HOME": str(place.folder / "pre-commit")}
    done = subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=place.root, env=env, capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def _all(place: Place, *, good: bool) -> Sequence[str]:
    (place.change_people if good else place.break_notes)()
    git(place.root, "add", "-A")
    return ["commit", "-m", "x"]


def _of_tracked(place: Place, *, good: bool) -> Sequence[str]:
    (place.change_people if good else place.break_notes)()
    return ["commit", "-am", "x"]


def _only(place: Place, *, good: bool) -> Sequence[str]:
    """One file, while the other one is staged beside it, which this commit is not about."""
    place.change_people()
    place.break_notes()
    git(place.root, "add", place.notes if good else place.people)
    return ["commit", "-m", "x", "--", place.people if good else place.notes]


def _include(place: Place, *, good: bool) -> Sequence[str]:
    place.change_people()
    git(place.root, "add", "-A")
    if good:
        return ["commit", "-m", "x", "-i", place.people]
    place.break_notes()
    return ["commit", "-m", "x", "-i", place.notes]


def _amended(place: Place, *, good: bool) -> Sequence[str]:
    return [*_of_tracked(place, good=good), "--amend"]


def _merged(place: Place, *, good: bool) -> Sequence[str]:
    return ["merge", "--no-ff", "-m", "x", "topic" if good else "broken"]


def _merged_by_hand(place: Place, *, good: bool) -> Sequence[str]:
    git(place.root, "merge", "-q", "--no-commit", "--no-ff", "topic" if good else "broken")
    return ["commit", "-m", "x"]


def _deleted(place: Place, *, good: bool) -> Sequence[str]:
    git(place.root, "rm", "-q", place.people if good else place.notes)
    return ["commit", "-m", "x"]


def _deleted_unstaged(place: Place, *, good: bool) -> Sequence[str]:
    (place.root / (place.people if good else place.notes)).unlink()
    return ["commit", "-am", "x"]


def _untracked(place: Place, *, good: bool) -> Sequence[str]:
    git(place.root, "rm", "-q", "--cached", place.people if good else place.notes)
    return ["commit", "-m", "x"]


WAYS: dict[str, Callable[..., Sequence[str]]] = {
    "what is staged": _all,
    "-a": _of_tracked,
    "PATH": _only,
    "-i PATH": _include,
    "--amend": _amended,
    "a merge": _merged,
    "a merge by hand": _merged_by_hand,
    "a deletion": _deleted,
    "a deletion with -a": _deleted_unstaged,
    "git rm --cached": _untracked,
}
needs_pre_commit = pytest.mark.skipif(find_spec("pre_commit") is None, reason="pre-commit is not installed")


@pytest.mark.parametrize("linked", [False, True], ids=["main", "linked"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "install", [install_plainly, pytest.param(install_pre_commit, marks=[needs_pre_commit, pytest.mark.long])]
)
def test_a_hook_stops_each_bad_commit_and_no_good_one(
    base: Path, tmp_path: Path, install: Callable[[Place], None], way: str, linked: bool
) -> None:
    for good in (False, True):
        folder = tmp_path / ("good" if good else "bad")
        folder.mkdir()
        place = place_of(base, folder, linked=linked)
        install(place)
        before = place.head()
        done = place.git(*WAYS[way](place, good=good))
        assert (done.returncode == 0, place.head() != before) == (good, good), (good, done.stdout, done.stderr)


def test_a_hook_stops_a_commit_that_only_weakens_what_git_does_to_files(base: Path, tmp_path: Path) -> None:
    place = place_of(base, tmp_path, linked=False)
    install_plainly(place)
    (place.root / ".gitattributes").write_text("data/**/*.jsonl -text\n", "utf-8")
    done = place.git("commit", "-am", "x")
    assert done.returncode == 1 and "E_GUARD" in done.stdout + done.stderr


def _staged_verbs() -> list[list[str]]:
    """The commands that say what is in the index: whatever has the option."""
    context = click.Context(duckkb)
    resolved = [(verb.name, duckkb.resolve_command(context, [verb.name])[1]) for verb in VERBS]
    return [
        [name, "--staged"]
        for name, command in resolved
        if command is not None and any("--staged" in param.opts for param in command.params)
    ]


@pytest.mark.long
@pytest.mark.parametrize("args", [*_staged_verbs(), ["check"]], ids=shlex.join)
@pytest.mark.parametrize("linked", [False, True], ids=["main", "linked"])
def test_the_index_that_git_names_is_what_a_verb_looks_at(
    base: Path, tmp_path: Path, args: list[str], linked: bool
) -> None:
    place = place_of(base, tmp_path, linked=linked)
    index = _index_of(place)
    without = run_in(place.root, args)
    git(place.root, "rm", "-q", "--cached", place.notes)
    expected = run_in(place.root, args)
    assert expected.out != without.out, "the deletion is seen"
    named = index.rename(index.with_name("next-index-1.lock"))
    git(place.root, "read-tree", "HEAD")
    seen = run_in(place.root, args, env={"GIT_INDEX_FILE": str(named)})
    assert (seen.code, seen.out) == (expected.code, expected.out)
    assert run_in(place.root, args).out == without.out


def _index_of(place: Place) -> Path:
    return Path(git(place.root, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())


def test_an_index_outside_of_the_work_trees_own_git_folder_is_not_looked_at(base: Path, tmp_path: Path) -> None:
    place = place_of(base, tmp_path, linked=True)
    main = tmp_path / "kb"
    git(main, "rm", "-q", "--cached", "-r", "data")
    git(place.root, "rm", "-q", "--cached", "-r", "data")
    linked_index = _index_of(place)
    outside = Path(shutil.copyfile(main / ".git/index", tmp_path / "index"))
    git(place.root, "read-tree", "HEAD")
    (linked_index.parent / "link").symlink_to(outside)
    for index in (main / ".git/index", outside, linked_index.parent / "link", linked_index.parent, tmp_path / "none"):
        ran = run_in(place.root, ["check", "--staged"], env={"GIT_INDEX_FILE": str(index)})
        assert (ran.code, ran.out) == (0, ""), index
    git(main, "read-tree", "HEAD")
    git(place.root, "rm", "-q", "--cached", "-r", "data")
    assert run_in(main, ["check", "--staged"], env={"GIT_INDEX_FILE": str(linked_index)}).out == ""
