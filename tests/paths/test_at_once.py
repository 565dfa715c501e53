"""Commands that begin at once, each a process that starts from nothing: what one has acknowledged is there afterwards, whatever the
others did meanwhile, and what cannot be done twice is refused by name."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from duckkb.actions import branches
from duckkb.errors import Unavailable
from duckkb.truth.git import git_changes
from tests.conftest import git, make_base, run_in

COUNT = 6
MEMORIES = "global: {embedding_model: none}\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "kb", MEMORIES)


def at_once(root: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """How commands ended that began together, and what each said of errors."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "duckkb", *command],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUTF8": "1"},
        )
        for command in commands
    ]
    errors = [process.communicate(timeout=300)[1] for process in started]
    return [(process.returncode, error) for process, error in zip(started, errors, strict=True)]


def lines(root: Path, *command: str) -> list[dict[str, Any]]:
    ran = run_in(root, command)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.parametrize("place", ["within", "outside"])
def test_contexts_that_are_added_at_once_are_all_kept(base: Path, place: str) -> None:
    docs = base / "docs" if place == "within" else base.parent / "docs"
    for number in range(COUNT):
        (docs / f"part{number}").mkdir(parents=True)
        (docs / f"part{number}/page.md").write_text(f"# Page {number}\n", "utf-8")
    assert run_in(base, ["collection", "add", str(docs), "--name", "docs"]).code == 0
    done = at_once(base, [["context", "add", f"docs/part{number}", f"about {number}"] for number in range(COUNT)])
    assert done == [(0, "")] * COUNT
    told = {line["path"]: line["context"] for line in lines(base, "context", "list")}
    assert told == {f"docs/part{number}": f"about {number}" for number in range(COUNT)}


def test_folders_outside_that_are_added_at_once_are_all_collections(base: Path) -> None:
    for number in range(COUNT):
        (base.parent / f"docs{number}").mkdir()
        (base.parent / f"docs{number}/page.md").write_text("# Page\n", "utf-8")
    done = at_once(base, [["collection", "add", str(base.parent / f"docs{number}")] for number in range(COUNT)])
    assert done == [(0, "")] * COUNT
    assert {line["name"] for line in lines(base, "collection", "list")} == {f"docs{number}" for number in range(COUNT)}


def test_one_folder_outside_that_is_added_twice_at_once_is_one_collection(base: Path) -> None:
    (base.parent / "docs").mkdir()
    (base.parent / "docs/page.md").write_text("# Page\n", "utf-8")
    done = at_once(base, [["collection", "add", str(base.parent / "docs")]] * 2)
    assert sorted(code for code, _ in done) == [0, 1]
    assert "docs exists already" in max(done)[1]


def test_git_is_set_up_by_commands_that_begin_at_once(base: Path) -> None:
    git(base, "config", "some.thing", "else")
    done = at_once(base, [["git", "install"]] * COUNT)
    assert done == [(0, "")] * COUNT
    assert run_in(base, ["git", "install", "--check"]).code == 0
    assert (base / ".gitattributes").read_text("utf-8").count("merge=duckkb") == 1


def test_git_install_waits_for_another_git_that_changes_the_settings(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, waits = base / ".git" / "config.lock", list[float]()

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        held.unlink()

    monkeypatch.setattr(git_changes.time, "sleep", let_go)
    held.touch()
    branches.git_install(base)
    assert len(waits) == 1
    assert run_in(base, ["git", "install", "--check"]).code == 0


def test_git_install_names_a_lock_of_git_that_nobody_takes_away(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_changes, "_WAIT_S", 0.0)
    held = base / ".git" / "config.lock"
    held.touch()
    with pytest.raises(Unavailable) as caught:
        branches.git_install(base)
    assert caught.value.code == "E_LOCKED" and str(held) in caught.value.message


def test_of_commands_that_make_one_base_at_once_one_does_and_the_others_are_told_so(tmp_path: Path) -> None:
    done = at_once(tmp_path, [["init", "kb"]] * COUNT)
    assert sorted(code for code, _ in done) == [0] + [1] * (COUNT - 1)
    assert all("config.yaml exists already" in error for code, error in done if code)
    assert run_in(tmp_path / "kb", ["check"]).code == 0
    assert not [path.name for path in (tmp_path / "kb").iterdir() if path.name.endswith(".new")]
