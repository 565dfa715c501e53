"""git's own merges with the driver, and that a driver which fails in any way never loses what they did."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

FIRST = {"id": "a", "title": "A", "text": "one", "tags": ["x"]}
LINE = "data/**/*.jsonl merge=duckkb diff=duckkb"


def put(root: Path, **fields: object) -> None:
    done = run_in(root, ["put", "Note", "--merge", json.dumps(fields)])
    assert done.code == 0, done.err


def part(root: Path) -> Path:
    return next((root / "data/nodes/note").rglob("*.jsonl"))


def notes_of(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in part(root).read_text("utf-8").splitlines() if line.startswith("{")]


def try_merge(root: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["git", "-C", str(root), "merge", "-q", *args, "topic"], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches that changed the same record in other fields (`topic`), and in one field (`rival`)."""
    root = make_base(tmp_path_factory.mktemp("driver") / "kb", NOTES)
    assert run_in(root, ["put", "Note"], stdin=json.dumps(FIRST) + '\n{"id": "b", "title": "B"}\n').code == 0
    assert run_in(root, ["git", "install"]).code == 0
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    for name, fields in {"topic": {"text": "theirs", "tags": ["x", "t"]}, "rival": {"title": "theirs"}}.items():
        git(root, "checkout", "-q", "-b", name, "main")
        put(root, id="a", **fields)
        commit(root, name)
    git(root, "checkout", "-q", "main")
    put(root, id="a", title="ours", tags=["x", "o"])
    commit(root, "ours")
    return root


@pytest.fixture
def base(grown: Path, tmp_path: Path) -> Path:
    """A clone with its own settings."""
    root = tmp_path / "kb"
    git(tmp_path, "clone", "-q", str(grown), str(root))
    for name in ("topic", "rival"):
        git(root, "branch", "-q", name, f"origin/{name}")
    assert run_in(root, ["git", "install"]).code == 0
    return root


def test_install_says_what_it_changed_and_is_checked_and_taken_back(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    before = (root / ".git/config").read_bytes(), (root / ".gitattributes").read_bytes()
    assert run_in(root, ["git", "install", "--check"]).code == 1
    changed = [line["changed"] for line in run_in(root, ["git", "install"]).lines]
    assert changed == [
        "merge.duckkb.name", "merge.duckkb.driver", "merge.duckkb.recursive", "merge.duckkb-base.driver",
        "diff.duckkb.textconv", ".gitattributes", ".duckkb/merge.json",
    ]  # fmt: skip
    assert LINE in (root / ".gitattributes").read_text("utf-8").splitlines()
    assert git(root, "config", "merge.duckkb.recursive") == "duckkb-base\n"
    checked = run_in(root, ["git", "install", "--check"])
    assert (checked.code, {line["status"] for line in checked.lines}) == (0, {"ok"})
    assert run_in(root, ["git", "install"]).lines == []
    git(root, "config", "merge.duckkb.driver", "/no/such/python -I -m duckkb.cli.git_driver merge %O %A %B %L %P")
    checked = run_in(root, ["git", "install", "--check"])
    assert checked.code == 1
    assert [line["message"] for line in checked.lines if line["status"] == "error"] == ["/no/such/python is gone"]
    assert run_in(root, ["git", "uninstall"]).code == 0
    assert b"duckkb" not in (root / ".git/config").read_bytes().replace(b'[merge "duckkb"]', b"").replace(
        b'[diff "duckkb"]', b""
    )
    assert (root / ".gitattributes").read_bytes() == before[1]


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_an_option_of_git_chooses_no_side_and_resolve_does(base: Path, side: str) -> None:
    git(base, "branch", "-qf", "topic", "rival")
    assert try_merge(base, "-X", side).returncode != 0
    assert run_in(base, ["resolve", "--list"]).out == "Note:a title\n"
    assert run_in(base, ["resolve", f"--{side}", "--stage"]).code == 0
    git(base, "commit", "-q", "--no-edit")
    assert notes_of(base)[0]["title"] == side


def test_git_merges_fields_and_sets_of_one_record(base: Path) -> None:
    assert try_merge(base).returncode == 0
    found = notes_of(base)[0]
    assert (found["title"], found["text"], found["tags"]) == ("ours", "theirs", ["x", "o", "t"])
    assert run_in(base, ["check"]).code == 0


def test_rules_that_came_with_a_pull_count_at_once(base: Path) -> None:
    config = base / "config.yaml"
    assert "x-merge: set" in config.read_text("utf-8")
    config.write_text(config.read_text("utf-8").replace(", x-merge: set", ""), "utf-8")
    commit(base, "as a pull brings it: no command of duckkb runs")
    done = try_merge(base)
    assert done.returncode == 1 and "both sides changed Note:a tags" in done.stderr


def test_git_stops_at_a_field_that_both_changed_and_names_it(base: Path) -> None:
    git(base, "branch", "-f", "topic", "rival")
    done = try_merge(base)
    assert done.returncode == 1
    assert "both sides changed Note:a title" in done.stderr
    assert git(base, "diff", "--name-only", "--diff-filter=U").split() == [part(base).relative_to(base).as_posix()]
    assert [line["title"] for line in notes_of(base)] == ["ours", "A", "theirs", "B"]


def test_a_base_below_the_top_of_the_repository_is_merged_too(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    root = tmp_path / "deep/er kb"
    make_base(root, NOTES)
    (root / ".git").rename(tmp_path / "unused.git")
    assert run_in(root, ["put", "Note", json.dumps(FIRST)]).code == 0
    assert run_in(root, ["git", "install"]).code == 0
    (tmp_path / ".gitignore").write_text(".duckkb/\nunused.git/\n", "utf-8")
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "topic")
    put(root, id="a", text="theirs")
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    put(root, id="a", title="ours")
    commit(tmp_path)
    assert try_merge(tmp_path).returncode == 0
    assert [(one["title"], one["text"]) for one in notes_of(root)] == [("ours", "theirs")]


def _script(folder: Path, text: str) -> str:
    path = folder / "a python"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return shlex.quote(str(path))


FAILURES: dict[str, Callable[[Path], str]] = {
    "the interpreter is gone": lambda _: "/no/such/python",
    "the package is gone": lambda _: f"{sys.executable} -S",
    "it ends well and writes nothing": lambda folder: _script(folder, "exit 0"),
    "it ends badly and writes nothing": lambda folder: _script(folder, "exit 1"),
    "a signal": lambda folder: _script(folder, "kill -9 $$"),
    "a crash": lambda folder: _script(folder, "kill -SEGV $$"),
    "it has no right to run": lambda folder: str(folder),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAILURES)
def test_a_driver_that_fails_leaves_the_merge_to_lines_and_loses_nothing(base: Path, tmp_path: Path, name: str) -> None:
    driver = git(base, "config", "merge.duckkb.driver").removesuffix("\n")
    assert driver.startswith(shlex.quote(sys.executable))
    broken = FAILURES[name](tmp_path)
    git(base, "config", "merge.duckkb.driver", driver.replace(shlex.quote(sys.executable), broken, 1))
    done = try_merge(base)
    assert done.returncode == 1, "by lines one record cannot take two edits"
    text = part(base).read_text("utf-8")
    assert "<<<<<<<" in text and '"text":"theirs"' in text and '"title":"ours"' in text
    listed = run_in(base, ["resolve", "--stage"])
    assert (listed.code, listed.out) == (0, "")
    git(base, "commit", "-q", "--no-edit")
    found = notes_of(base)[0]
    assert (found["title"], found["text"], found["tags"]) == ("ours", "theirs", ["x", "o", "t"])


def test_a_driver_without_a_way_out_is_found_out_by_resolve(base: Path) -> None:
    """What git says of such a driver is a conflict, and what it leaves are our lines without a marker."""
    git(base, "config", "merge.duckkb.driver", "/no/such/python %O %A %B")
    assert try_merge(base).returncode == 1
    assert "<<<<<<<" not in part(base).read_text("utf-8")
    assert run_in(base, ["resolve", "--stage"]).code == 0
    assert notes_of(base)[0]["text"] == "theirs"


def test_lines_that_git_merges_cleanly_are_merged_where_the_driver_fails(base: Path) -> None:
    git(
        base,
        "config",
        "merge.duckkb.driver",
        git(base, "config", "merge.duckkb.driver").replace(sys.executable, "/none"),
    )
    git(base, "checkout", "-q", "-B", "topic", "main~")
    assert run_in(base, ["put", "Note", '{"id": "z"}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    assert try_merge(base, "--no-ff").returncode == 0


def test_the_driver_follows_no_module_of_the_work_tree_and_no_rules_that_came_with_it(base: Path) -> None:
    for name in ("json.py", "duckkb.py", "re.py"):
        (base / name).write_text("raise SystemExit(40)\n", "utf-8")
    (base / ".duckkb/merge.json").write_text('{"format":1,"tables":{}}', "utf-8")
    git(base, "add", "-f", ".duckkb/merge.json")
    commit(base)
    assert try_merge(base).returncode == 1, "without rules a record that both changed is in conflict as a whole"
    assert "both sides changed note:#" in try_again(base)


def try_again(base: Path) -> str:
    git(base, "merge", "--abort")
    return try_merge(base).stderr


def test_diff_shows_fields_and_falls_back_to_lines(base: Path) -> None:
    shown = git(base, "diff", "main~", "main", "--", "data")
    assert '-"title": "A"' in shown and '+"title": "ours"' in shown
    git(
        base,
        "config",
        "diff.duckkb.textconv",
        git(base, "config", "diff.duckkb.textconv").strip().replace(sys.executable, "/none"),
    )
    assert '+{"__id":' in git(base, "diff", "main~", "main", "--", "data")


def test_the_driver_imports_the_standard_library_and_its_values_alone() -> None:
    code = "import sys; before = {*sys.modules}; import duckkb.cli.git_driver, duckkb.storage.table_merge as m;"
    code += "m.merge_table({}, {}, {}, None);"
    code += "print(*{name.partition('.')[0] for name in {*sys.modules} - before} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} <= {"duckkb", "msgspec", "typing_extensions"}
