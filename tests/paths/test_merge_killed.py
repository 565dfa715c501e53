"""A merge whose process dies with its git: the files are taken back, and nothing advises to commit what was left halfway."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

# A git that dies in the midst of a merge, and takes the duckkb that began it along: `index` as it is, or as it was, still locked.
GIT = """\
#!/bin/sh
case " $* " in *" merge -q "*) ;; *) exec {git} "$@" ;; esac
cp .git/index .git/before
{git} "$@"
rm -f .git/MERGE_HEAD .git/MERGE_MSG .git/MERGE_MODE
if [ "$DIES" = early ]; then
  {git} update-ref refs/heads/main "$MAIN"
  mv .git/index .git/index.lock; mv .git/before .git/index
fi
kill -9 $PPID
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", '{"id":"a","title":"first"}']).code == 0
    (root / "page.txt").write_text("a\n", "utf-8")
    (root / "own.txt").write_text("mine\n", "utf-8")
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    assert run_in(root, ["put", "Note", '{"id":"a","title":"theirs 他们"}', "--merge"]).code == 0
    (root / "new.txt").write_text("new\n", "utf-8")
    (root / "page.txt").write_text("b\n", "utf-8")
    commit(root)
    git(root, "checkout", "-q", "main")
    assert run_in(root, ["put", "Note", '{"id":"a","title":"ours"}', "--merge"]).code == 0
    commit(root)
    (root / "own.txt").write_text("not committed\n", "utf-8")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(GIT.replace("{git}", shutil.which("git") or "git"), "utf-8")
    (folder / "git").chmod(0o755)
    return root


def _kill(root: Path, dies: str, *args: str) -> None:
    path = f"{root.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "DIES": dies, "MAIN": git(root, "rev-parse", "main").strip()}
    assert run_in(root, ["merge", "topic", *args], env=env).code not in (0, 1)


def _recover(root: Path) -> Ran:
    ran = run_in(root, ["recover"])
    lock = root / ".git/index.lock"
    if lock.exists():
        assert ran.code == 1 and f"rm {lock} && duckkb recover" in ran.err
        lock.unlink()
        ran = run_in(root, ["recover"])
    return ran


@pytest.mark.long
@pytest.mark.parametrize("dies", ["early", "late"])
def test_recover_takes_a_killed_merge_back(base: Path, dies: str) -> None:
    part = next(base.glob("data/nodes/note/*/*.jsonl"))
    before = part.read_bytes()
    _kill(base, dies)
    assert b"<<<<<<<" in part.read_bytes() and not (base / ".git/MERGE_HEAD").exists()
    assert "E_MERGE_IN_PROGRESS" in run_in(base, ["check"]).out
    for args in (
        ["list", "Note"],
        ["put", "Note", '{"id":"b"}'],
        ["merge", "topic"],
        ["resolve", "--list"],
        ["resolve", "--ours", "--stage"],
    ):
        ran = run_in(base, args)
        assert ran.code == 1 and "duckkb recover" in ran.err and "commit" not in ran.err, ran.err
    assert "merge" in run_in(base, ["recover", "--show"]).line
    done = _recover(base)
    assert done.line["action"] == "aborted merge", done.err
    assert part.read_bytes() == before and not (base / "new.txt").exists()
    assert (base / "page.txt").read_text("utf-8") == "a\n" and (base / "own.txt").read_text(
        "utf-8"
    ) == "not committed\n"
    assert git(base, "status", "--porcelain").splitlines() == [" M own.txt"]
    assert run_in(base, ["recover"]).line["action"] == "none"
    assert run_in(base, ["merge", "topic"]).lines[0]["counts"]["conflicts"] == 1
    assert (base / ".git/MERGE_HEAD").exists()


def test_recover_takes_a_killed_fast_forward_back(base: Path) -> None:
    git(base, "stash", "-q")
    git(base, "reset", "-q", "--hard", "main~1")
    _kill(base, "early", "--ff-only")
    assert json.loads(next(base.glob("data/nodes/note/*/*.jsonl")).read_text("utf-8"))["title"] == "theirs 他们"
    assert _recover(base).line["action"] == "aborted merge"
    assert git(base, "status", "--porcelain") == ""
    assert run_in(base, ["merge", "topic"]).line["action"] == "fast-forward"
