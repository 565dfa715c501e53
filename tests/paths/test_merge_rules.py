"""`x-merge: max`, `min`, `latest` and `ours`: one result however the branches are merged, with one merge base or several."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

CONFIG = NOTES.replace(
    "        size: {type: integer}\n",
    "        size: {type: integer}\n"
    "        hits: {type: [integer, 'null'], x-merge: max}\n"
    "        first: {type: string, x-merge: min}\n"
    "        state: {x-merge: latest}\n"
    "        owner: {type: string, x-merge: ours}\n",
)
FIRST = {"id": "甲", "hits": 5, "first": "2026-03-01", "state": "new", "owner": "nobody", "title": "one"}
WAYS = ("duckkb merge", "the driver", "resolve alone")


def put(root: Path, **fields: Any) -> None:
    done = run_in(root, ["put", "Note", "--merge", json.dumps({"id": "甲"} | (fields or FIRST))])
    assert done.code == 0, done.err
    commit(root, str(fields))


def note(root: Path) -> dict[str, Any]:
    (path,) = (root / "data/nodes/note").rglob("*.jsonl")
    (line,) = path.read_text("utf-8").splitlines()
    return {name: value for name, value in json.loads(line).items() if not name.startswith("__")}


def on(root: Path, branch: str, **fields: Any) -> None:
    git(root, "checkout", "-q", branch)
    put(root, **fields)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches that changed every field of one record; `topic` did so later."""
    root = make_base(tmp_path_factory.mktemp("rules") / "kb", CONFIG)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    assert run_in(root, ["git", "install"]).code == 0
    put(root)
    git(root, "branch", "topic")
    put(root, hits=9, first="2026-02-10", state={"is": "ours"}, owner="main", tags=["a"])
    on(root, "topic", hits=12, first="2026-02-09", state=["theirs"], owner="topic", text="t")
    git(root, "checkout", "-q", "main")
    return root


@pytest.fixture
def base(grown: Path, tmp_path: Path) -> Path:
    shutil.copytree(grown, tmp_path / "kb")
    git(tmp_path / "kb", "status")
    return tmp_path / "kb"


def merged(root: Path, way: str, other: str) -> dict[str, Any]:
    """A merge without a conflict, and what it left."""
    if way == "duckkb merge":
        done = run_in(root, ["merge", other, "--json"])
        assert (done.code, done.line["action"], done.line["conflicts"]) == (0, "merged", []), done.err
    elif way == "the driver":
        git(root, "merge", "-q", "--no-edit", other)
    else:
        (root / ".git/info/attributes").write_text("data/**/*.jsonl !merge\n", "utf-8")
        assert subprocess.run(["git", "-C", str(root), "merge", "-q", other], capture_output=True).returncode == 1
        done = run_in(root, ["resolve", "--stage"])
        assert (done.code, done.out) == (0, ""), done.err
        git(root, "commit", "-q", "--no-edit")
        (root / ".git/info/attributes").unlink()
    assert run_in(root, ["check", "--fail-on", "warning"]).code == 0, way
    return note(root)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_rule_settles_what_both_sides_changed_and_the_rest_is_kept(base: Path, way: str) -> None:
    git(base, "config", "rerere.enabled", "true")
    wanted = {"hits": 12, "first": "2026-02-09", "state": ["theirs"], "owner": "main"}
    whole = {"id": "甲", "title": "one", "tags": ["a"], "text": "t"} | wanted
    assert merged(base, way, "topic") == whole
    git(base, "reset", "-q", "--hard", "HEAD~")
    assert merged(base, way, "topic") == whole, "what git remembers of a merge changes nothing"


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_several_merge_bases_give_what_one_gives(base: Path, way: str) -> None:
    """Each branch takes the other; then one goes back below the greatest, and changes what the other had taken over."""
    tips = {name: git(base, "rev-parse", name).strip() for name in ("main", "topic")}
    merged(base, "duckkb merge", tips["topic"])
    git(base, "checkout", "-q", "topic")
    assert merged(base, "duckkb merge", tips["main"])["owner"] == "topic"
    on(base, "main", hits=1, state="main again", owner="main again")
    on(base, "topic", title="later")
    git(base, "checkout", "-q", "main")
    assert len(git(base, "merge-base", "--all", "main", "topic").split()) == 2
    found = merged(base, way, "topic")
    assert (found["hits"], found["state"], found["title"]) == (1, "main again", "later")
    assert (found["first"], found["owner"]) == ("2026-02-09", "main again")


def test_what_a_rule_cannot_tell_is_a_conflict_that_is_named(base: Path) -> None:
    on(base, "topic", hits=None, first="soon")
    git(base, "checkout", "-q", "main")
    done = run_in(base, ["merge", "topic", "--json"])
    assert [one["name"] for one in done.line["conflicts"]] == ["Note:甲 first", "Note:甲 hits"]
    assert run_in(base, ["resolve", "--ours", "--stage"]).code == 0
    assert (note(base)["hits"], note(base)["first"]) == (9, "2026-02-10")


def test_an_identity_has_no_rule(tmp_path: Path) -> None:
    for config in (
        CONFIG.replace("id: {type: string}", "id: {type: string, x-merge: latest}"),
        CONFIG.replace("number: {type: integer}", "number: {type: integer, x-merge: max}"),
    ):
        (tmp_path / "config.yaml").write_text(config, "utf-8")
        ran = run_in(tmp_path, ["schema", "--json"])
        assert ran.code == 2 and "two renames" in ran.err
