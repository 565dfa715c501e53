"""A collection, or a type's table, that one side of a merge renamed: the other side's records go with it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes

Step = Callable[[Path], object]
OTHER = {"DUCKKB_WRITER": "other"}


def put(name: str, **fields: Any) -> Step:
    return lambda root: _done(root, ["put", name, "--merge", json.dumps(fields)])


def rename(new: str, old: str = "logs") -> Step:
    return lambda root: _done(root, ["col", "rename", old, new])


def delete(name: str, identity: str) -> Step:
    return lambda root: _done(root, ["delete", name, identity])


def steps(*several: Step) -> Step:
    return lambda root: [step(root) for step in several]


def _done(root: Path, args: list[str]) -> None:
    done = run_in(root, args, env=OTHER if git(root, "branch", "--show-current").strip() == "topic" else {})
    assert done.code == 0, done.err


def move_table(root: Path) -> None:
    """Give the type Note another table by hand, as its records' folder."""
    config = root / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("table: note\n", "table: papers\n", 1), "utf-8")
    (root / "data/nodes/note").rename(root / "data/nodes/papers")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("renamed") / "kb", NOTES)
    steps(put("Note", id="a", title="a"), put("Note", id="b", title="b"))(root)
    _done(root, ["col", "init", "logs", "--policy", "knowledge-base"])
    steps(*(put("logs", id=name, content=name) for name in ("first", "第二", "third")))(root)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    return root


@pytest.fixture
def base(started: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(started), "kb")
    return tmp_path / "kb"


def branches(base: Path, ours: Step, theirs: Step) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    theirs(base)
    commit(base, "theirs")
    git(base, "checkout", "-q", "main")
    ours(base)
    commit(base, "ours")


def contents(root: Path, table: str) -> dict[str, str]:
    prefix = f"data/nodes/{table}/"
    texts = [data.decode() for path, data in tree_bytes(root).items() if path.startswith(prefix)]
    records = [json.loads(line) for text in texts for line in text.splitlines()]
    assert len({record["id"] for record in records}) == len(records)
    return {record["id"]: record.get("content", record.get("title")) for record in records}


EDITS = steps(put("logs", id="first", content="edited"), put("logs", id="new", content="new"), delete("logs", "third"))
EDITED = {"first": "edited", "第二": "第二", "new": "new"}


@pytest.mark.long
@pytest.mark.parametrize("is_ours", [True, False])
def test_records_follow_the_rename_of_their_collection_on_either_side(base: Path, is_ours: bool) -> None:
    branches(base, *((rename("memos"), EDITS) if is_ours else (EDITS, rename("memos"))))
    done = run_in(base, ["merge", "topic", "--json"])
    assert (done.code, done.line["action"], done.line["violations"]) == (0, "merged", []), done.err
    assert (contents(base, "memos"), contents(base, "logs")) == (EDITED, {})
    assert git(base, "status", "--porcelain") == ""
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_records_follow_the_rename_of_their_types_table(base: Path) -> None:
    branches(base, steps(put("Note", id="a", title="edited"), put("Note", id="c", title="c")), move_table)
    done = run_in(base, ["merge", "topic", "--json"])
    assert (done.code, done.line["violations"]) == (0, []), done.err
    assert contents(base, "papers") == {"a": "edited", "b": "b", "c": "c"}
    assert not (base / "data/nodes/note").exists()
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_both_sides_may_have_given_the_same_name(base: Path) -> None:
    branches(base, steps(EDITS, rename("memos")), steps(rename("memos"), put("memos", id="第二", content="二")))
    assert run_in(base, ["merge", "topic"]).code == 0
    assert contents(base, "memos") == {**EDITED, "第二": "二"}


def test_of_two_names_the_records_have_ours_and_nothing_is_lost(base: Path) -> None:
    branches(base, steps(EDITS, rename("ours")), steps(rename("theirs"), put("theirs", id="第二", content="二")))
    run_in(base, ["merge", "topic"])
    assert (contents(base, "ours"), contents(base, "theirs")) == ({**EDITED, "第二": "二"}, {})


@pytest.mark.long
@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("way", ["duckkb", "git"])
def test_a_conflict_in_a_renamed_collection_is_settled_where_its_records_are(base: Path, way: str, side: str) -> None:
    branches(
        base,
        steps(EDITS, put("logs", id="第二", content="ours")),
        steps(rename("memos"), put("memos", id="第二", content="theirs")),
    )
    if way == "duckkb":
        done = run_in(base, ["merge", "topic", "--json"])
        assert [one["name"] for one in done.line["conflicts"]] == ["memos:第二 content"], done.err
    else:
        assert run_in(base, ["git", "install"]).code == 0
        commit(base, "installed")
        assert subprocess.run(["git", "-C", base, "merge", "-q", "topic"], capture_output=True, check=False).returncode
    assert run_in(base, ["resolve", "--list"]).out == "memos:第二 content\n"
    assert run_in(base, ["resolve", f"--{side}", "memos:第二:content", "--stage"]).code == 0
    git(base, "commit", "-q", "--no-edit")
    assert (contents(base, "memos"), contents(base, "logs")) == ({**EDITED, "第二": side}, {})
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_a_rename_to_a_name_that_the_other_side_gave_to_new_records_is_not_committed(base: Path) -> None:
    def add_memos(root: Path) -> None:
        _done(root, ["col", "init", "memos", "--policy", "knowledge-base"])
        put("memos", id="other", content="other")(root)

    branches(base, steps(EDITS, add_memos), rename("memos"))
    before = git(base, "rev-parse", "HEAD")
    done = run_in(base, ["merge", "topic", "--json"])
    assert (done.code, done.line["action"]) == (1, "stopped")
    assert git(base, "rev-parse", "HEAD") == before


def search_by_words(root: Path) -> None:
    """Change the settings of the collection, whatever its name is."""
    definition = root / "ontology/collections/logs.yaml"
    definition.write_text(definition.read_text("utf-8").replace("default: hybrid", "default: match"), "utf-8")


def rename_type(root: Path) -> None:
    """Give the type Note another name and table by hand."""
    config = root / "config.yaml"
    text = config.read_text("utf-8").replace("Note", "Paper")
    config.write_text(text.replace("table: note\n", "table: papers\n", 1), "utf-8")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A base whose types and collection have no record."""
    root = make_base(tmp_path / "kb", NOTES)
    _done(root, ["col", "init", "logs", "--policy", "knowledge-base"])
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    return root


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_is_added_to_a_collection_without_records_follows_its_rename(empty: Path, is_ours: bool) -> None:
    git(empty, "config", "merge.renames", "false")
    edits = steps(put("logs", id="第一", content="new"), search_by_words)
    branches(empty, *((rename("memos"), edits) if is_ours else (edits, rename("memos"))))
    done = run_in(empty, ["merge", "topic", "--json"])
    assert (done.code, done.line["action"], done.line["violations"]) == (0, "merged", []), done.err
    assert (contents(empty, "memos"), contents(empty, "logs")) == ({"第一": "new"}, {})
    assert run_in(empty, ["col", "show", "memos"]).line["default"] == "match"
    assert git(empty, "status", "--porcelain") == ""
    assert run_in(empty, ["check", "--fail-on", "warning"]).code == 0


def test_what_is_added_to_a_type_without_records_follows_its_rename(empty: Path) -> None:
    branches(empty, put("Note", id="a", title="new"), rename_type)
    done = run_in(empty, ["merge", "topic", "--json"])
    assert (done.code, done.line["violations"]) == (0, []), done.err
    assert (contents(empty, "papers"), contents(empty, "note")) == ({"a": "new"}, {})
    assert run_in(empty, ["check", "--fail-on", "warning"]).code == 0


def test_what_is_added_follows_a_rename_after_which_nothing_was_kept(base: Path) -> None:
    gone = (delete("memos", name) for name in ("first", "第二", "third"))
    branches(base, put("logs", id="new", content="new"), steps(rename("memos"), *gone))
    done = run_in(base, ["merge", "topic", "--json"])
    assert (done.code, done.line["violations"]) == (0, []), done.err
    assert (contents(base, "memos"), contents(base, "logs")) == ({"new": "new"}, {})


def test_records_stay_where_two_new_collections_may_be_the_renamed_one(empty: Path) -> None:
    def split(root: Path) -> None:
        rename("memos")(root)
        _done(root, ["col", "init", "notices", "--policy", "knowledge-base"])

    branches(empty, put("logs", id="first", content="new"), split)
    before = git(empty, "rev-parse", "HEAD")
    done = run_in(empty, ["merge", "topic", "--json"])
    assert (done.code, done.line["action"]) == (1, "stopped")
    assert git(empty, "rev-parse", "HEAD") == before
    assert contents(empty, "logs") == {"first": "new"}
