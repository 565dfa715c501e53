"""What `duckkb check` sees of picks and rebases that git found clean and nobody looked at, and what it cannot see."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

pytestmark = pytest.mark.usefixtures("one_day")

CONFIG = NOTES.replace("      required: [id]\n", "      required: [id]\n      not: {required: [status, size]}\n")
WAYS = ["cherry-pick", "rebase"]


def put(root: Path, type_name: str = "Note", **fields: Any) -> None:
    done = run_in(root, ["put", type_name, "--merge", json.dumps(fields)])
    assert done.code == 0, done.err


def part(root: Path) -> Path:
    return next((root / "data/nodes/note").rglob("*.jsonl"))


def findings(root: Path, *args: str) -> list[tuple[str, str]]:
    told = run_in(root, ["check", "--format", "jsonl", *args]).lines
    return sorted({(one["code"], one.get("identity", "")) for one in told})


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("picked") / "kb", CONFIG)
    for name in "abcdefgh":
        put(root, id=name, title=name)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    return root


@pytest.fixture
def base(started: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(started), "kb")
    git(tmp_path / "kb", "branch", "-q", "topic")
    return tmp_path / "kb"


def on(root: Path, branch: str) -> None:
    git(root, "checkout", "-q", branch)


def carry(root: Path, way: str, *args: str) -> None:
    """Bring the last commit of `topic` onto `main`, which git finds clean."""
    if way == "cherry-pick":
        on(root, "main")
        git(root, "cherry-pick", *args, "topic")
    else:
        on(root, "topic")
        git(root, "rebase", "-q", "main")


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_both_added_stands_twice_and_is_found(base: Path, way: str) -> None:
    on(base, "topic")
    put(base, id="n", title="theirs")
    commit(base)
    on(base, "main")
    put(base, id="n", title="ours")
    commit(base)
    carry(base, way)
    assert findings(base) == [("E_DUP_IDENTITY", "n")]
    assert ("E_DUP_IDENTITY", "n") in findings(base, "--since", "HEAD~1")
    assert run_in(base, ["check", "--since", "HEAD~1"]).code == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_edge_to_a_node_that_the_other_deleted_is_found(base: Path, way: str) -> None:
    on(base, "topic")
    assert run_in(base, ["delete", "Note", "h"]).code == 0
    commit(base)
    on(base, "main")
    put(base, "cites", **{"from": "a", "to": "h"})
    commit(base)
    carry(base, way)
    assert findings(base) == [("E_DANGLING_EDGE", '["a","h"]')]
    assert ("E_DANGLING_EDGE", '["a","h"]') in findings(base, "--since", "HEAD~1")


@pytest.mark.parametrize("way", WAYS)
def test_fields_that_exclude_each_other_are_found_where_the_driver_joined_them(base: Path, way: str) -> None:
    assert run_in(base, ["git", "install"]).code == 0
    commit(base)
    git(base, "branch", "-f", "topic")
    on(base, "topic")
    put(base, id="a", status="draft")
    commit(base)
    on(base, "main")
    put(base, id="a", size=1)
    commit(base)
    carry(base, way)
    assert findings(base) == [("E_SCHEMA", "a")]
    assert ("E_SCHEMA", "a") in findings(base, "--since", "HEAD~1")


def renamed_here_and_deleted_there(base: Path) -> None:
    on(base, "topic")
    assert run_in(base, ["delete", "Note", "g"]).code == 0
    commit(base)
    on(base, "main")
    assert run_in(base, ["rename", "Note", "g", "0"]).code == 0
    commit(base)


def test_a_conflict_that_leaves_no_trace_is_seen_where_the_pick_says_what_it_is_from(base: Path) -> None:
    renamed_here_and_deleted_there(base)
    carry(base, "cherry-pick", "-x", "--allow-empty", "--keep-redundant-commits")
    assert findings(base) == [("W_MERGED", "0")]
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 1
    assert findings(base, "--since", "HEAD~1") == findings(base, "--since", "HEAD~1...main") == [("W_MERGED", "0")]
    assert findings(base, "--since", "HEAD") == []


@pytest.mark.parametrize("way", WAYS)
def test_a_conflict_that_leaves_no_trace_is_not_seen_where_nothing_says_what_the_commit_is_from(
    base: Path, way: str
) -> None:
    renamed_here_and_deleted_there(base)
    carry(base, way, "--allow-empty", "--keep-redundant-commits")
    assert '"id":"0"' in part(base).read_text("utf-8")
    assert findings(base) == []


def test_a_revert_says_what_it_is_from(base: Path) -> None:
    """What it should take away was renamed since: to lines, that is another line in another place."""
    on(base, "main")
    last = json.loads(part(base).read_text("utf-8").splitlines()[-1])
    added = json.dumps(last | {"__id": 7, "id": "n"}, separators=(",", ":"))
    text = part(base).read_text("utf-8").replace('"title":"d"', '"title":"edited"')
    part(base).write_text(f"{text}{added}\n", "utf-8")
    commit(base, "added")
    assert run_in(base, ["rename", "Note", "n", "0"]).code == 0
    commit(base, "renamed")
    git(base, "revert", "--no-edit", "HEAD~1")
    assert '"id":"0"' in part(base).read_text("utf-8")
    assert findings(base) == [("W_MERGED", "0")]


def test_what_was_changed_after_a_pick_is_the_pickers_own(base: Path) -> None:
    renamed_here_and_deleted_there(base)
    carry(base, "cherry-pick", "-x", "--allow-empty", "--keep-redundant-commits")
    put(base, id="b", title="amended")
    git(base, "commit", "-q", "-a", "--amend", "--no-edit")
    assert findings(base) == []
