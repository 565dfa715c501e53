"""Commands that begin at once, each a process that starts from nothing: what one has acknowledged is there afterwards, whatever the
others did meanwhile, and what cannot be done twice is refused by name."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb import config
from duckkb.engine import write
from duckkb.operations import document_collections, git_branches
from duckkb.storage import base_lock, git_changes
from duckkb.types.errors import Conflict, Unavailable
from tests.conftest import Ran, git, make_base, run_in
from tests.harness.waiting import HANG_S

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
    errors = [process.communicate(timeout=HANG_S)[1] for process in started]
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
    assert [code for code, _ in done] == [0] * COUNT, done
    assert {line["name"] for line in lines(base, "collection", "list")} == {f"docs{number}" for number in range(COUNT)}


def test_one_folder_outside_that_is_added_twice_at_once_is_one_collection(base: Path) -> None:
    (base.parent / "docs").mkdir()
    (base.parent / "docs/page.md").write_text("# Page\n", "utf-8")
    done = at_once(base, [["collection", "add", str(base.parent / "docs")]] * 2)
    assert sorted(code for code, _ in done) == [0, 1]
    assert "docs exists already" in max(done)[1]


def outside_folder(base: Path, name: str) -> list[str]:
    """The command that adds a folder outside of the base as a collection, and waits for nobody."""
    (base.parent / name).mkdir()
    (base.parent / name / "page.md").write_text("# Page\n", "utf-8")
    return ["collection", "add", str(base.parent / name), "--lock-timeout", "0", "--json"]


def test_a_folder_outside_gets_no_name_while_somebody_writes_to_the_base(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, walk = outside_folder(base, "far"), document_collections.walk

    with duckkb.open(base, lock_timeout=0) as kb, ExitStack() as held:

        def walk_and_wait(*given: Any) -> Any:
            held.enter_context(base_lock.exclusive(base, 0))
            return walk(*given)

        monkeypatch.setattr(document_collections, "walk", walk_and_wait)
        with pytest.raises(Unavailable) as caught:
            kb.documents.add(base.parent / "far")
    assert caught.value.code == "E_LOCKED"
    assert run_in(base, add).code == 0


def test_a_collection_of_the_base_gets_no_name_while_a_folder_outside_gets_it(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init, ran, change = (
        ["col", "init", "far", "--policy", "knowledge-base", "--json"],
        list[Ran](),
        config.change_outside,
    )
    outside_folder(base, "far")

    def change_beside(root: Path, env: Any, wanted: Callable[[Any], Any]) -> None:
        def changed(known: Any) -> Any:
            after = wanted(known)
            ran.append(run_in(base, [*init, "--lock-timeout", "0"]))
            return after

        change(root, env, changed)

    with duckkb.open(base) as kb, monkeypatch.context() as patch:
        patch.setattr(config, "change_outside", change_beside)
        kb.documents.add(base.parent / "far")
    assert ran[0].code != 0 and ran[0].error["code"] == "E_LOCKED"
    again = run_in(base, init)
    assert again.code == 1 and again.error["code"] == "E_EXISTS"
    assert again.error["error"] == f"far exists already ({base.parent / 'far'})"
    assert run_in(base, ["check"]).code == 0


def test_an_import_makes_no_collection_of_a_name_that_a_folder_outside_got_meanwhile(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, writable = outside_folder(base, "far"), write.writable
    (base / "rows.jsonl").write_text('{"id": "a", "title": "A title"}\n', "utf-8")

    def writable_afterwards(of: Any) -> Any:
        assert run_in(base, add).code == 0
        return writable(of)

    with duckkb.open(base) as kb, monkeypatch.context() as patch, pytest.raises(Conflict) as caught:
        patch.setattr(write, "writable", writable_afterwards)
        kb.import_files("far", base / "rows.jsonl")
    assert caught.value.code == "E_EXISTS"
    assert [line["name"] for line in lines(base, "collection", "list")] == ["far"]


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
    git_branches.git_install(base)
    assert len(waits) == 1
    assert run_in(base, ["git", "install", "--check"]).code == 0


def test_git_install_names_a_lock_of_git_that_nobody_takes_away(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_changes, "_WAIT_S", 0.0)
    held = base / ".git" / "config.lock"
    held.touch()
    with pytest.raises(Unavailable) as caught:
        git_branches.git_install(base)
    assert caught.value.code == "E_LOCKED" and str(held) in caught.value.message


def test_of_commands_that_make_one_base_at_once_one_does_and_the_others_are_told_so(tmp_path: Path) -> None:
    done = at_once(tmp_path, [["init", "kb"]] * COUNT)
    assert sorted(code for code, _ in done) == [0] + [1] * (COUNT - 1)
    assert all("config.yaml already exists" in error for code, error in done if code)
    assert run_in(tmp_path / "kb", ["check"]).code == 0
    assert not [path.name for path in (tmp_path / "kb").iterdir() if path.name.endswith(".new")]
