"""`duckkb merge`: what git leaves, with records merged over all parts and without a driver."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, Ran, commit, git, make_base, run_in, tree_bytes

Step = Callable[[Path], object]


def put(root: Path, **fields: Any) -> None:
    done = run_in(root, ["put", "Note", "--merge", json.dumps(fields)])
    assert done.code == 0, done.err


def notes_of(root: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for data in tree_bytes(root).values() for line in data.splitlines() if b'"__id"' in line]
    return {line["id"]: line for line in lines if "id" in line}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("merge") / "kb", NOTES)
    lines = [{"id": name, "title": name, "tags": ["x"]} for name in "abc"]
    assert run_in(root, ["put", "Note"], stdin="".join(json.dumps(line) + "\n" for line in lines)).code == 0
    assert run_in(root, ["put", "cites", '{"from": "a", "to": "b"}']).code == 0
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    (root / "page.txt").write_text("".join(f"{number}\n" for number in range(9)), "utf-8")
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


def merge(base: Path, *args: str) -> Ran:
    return run_in(base, ["merge", *args, "--json"])


def test_two_fields_of_one_record_and_two_neighbours_are_merged_and_committed(base: Path) -> None:
    branches(
        base,
        lambda root: put(root, id="a", title="ours", tags=["x", "o"]),
        lambda root: (put(root, id="a", text="theirs", tags=["x", "t"]), put(root, id="b", text="too")),
    )
    done = merge(base, "topic", "-m", "both")
    assert (done.code, done.line["action"], done.line["conflicts"], done.err) == (0, "merged", [], "")
    found = notes_of(base)
    assert (found["a"]["title"], found["a"]["text"], found["a"]["tags"]) == ("ours", "theirs", ["x", "o", "t"])
    assert found["b"]["text"] == "too"
    assert done.line["commit"] == git(base, "rev-parse", "HEAD").strip()
    assert git(base, "log", "-1", "--format=%s %P").split()[0] == "both"
    assert len(git(base, "log", "-1", "--format=%P").split()) == 2
    assert git(base, "status", "--porcelain") == ""
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_a_record_that_both_added_in_parts_of_their_own_stands_once(base: Path) -> None:
    branches(base, lambda root: put(root, id="n", title="n"), lambda root: put(root, id="n", title="n", text="t"))
    assert merge(base, "topic").code == 0
    assert sum(b'"id":"n"' in data for data in tree_bytes(base).values()) == 1
    assert notes_of(base)["n"]["text"] == "t"
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_a_conflict_stops_it_as_gits_does_and_git_concludes_it(base: Path) -> None:
    branches(base, lambda root: put(root, id="a", title="ours"), lambda root: put(root, id="a", title="theirs"))
    done = merge(base, "topic")
    assert (done.code, done.line["action"]) == (1, "stopped")
    assert [one["name"] for one in done.line["conflicts"]] == ["Note:a title"]
    assert (done.line["conflicts"][0]["ours"], done.line["conflicts"][0]["theirs"]) == ('"ours"', '"theirs"')
    path = done.line["conflicts"][0]["path"]
    assert git(base, "status", "--porcelain") == f"UU {path}\n"
    assert (base / ".git/MERGE_HEAD").read_text().strip() == git(base, "rev-parse", "topic").strip()
    for stage, name in ((1, git(base, "merge-base", "main", "topic").strip()), (2, "main"), (3, "topic")):
        assert git(base, "show", f":{stage}:{path}") == git(base, "show", f"{name}:{path}")
    assert run_in(base, ["put", "Note", '{"id": "z"}']).code == 1
    again = merge(base, "topic")
    assert (again.code, again.error["code"]) == (1, "E_MERGE_IN_PROGRESS")
    assert run_in(base, ["resolve", "--theirs", "--stage", "--format", "jsonl"]).lines == [{"staged": path}]
    git(base, "commit", "-q", "--no-edit")
    assert notes_of(base)["a"]["title"] == "theirs"
    assert git(base, "log", "-1", "--format=%s").strip() == "Merge branch 'topic'"


def test_abort_takes_files_and_index_back(base: Path) -> None:
    branches(base, lambda root: put(root, id="a", title="ours"), lambda root: put(root, id="a", title="theirs"))
    before = tree_bytes(base)
    assert merge(base, "topic").code == 1
    done = merge(base, "--abort")
    assert (done.code, done.line["action"]) == (0, "aborted")
    assert (tree_bytes(base), git(base, "status", "--porcelain")) == (before, "")
    again = run_in(base, ["merge", "--abort", "--json"])
    assert (again.code, again.error["code"]) == (1, "E_REFUSED")


def test_what_lies_ahead_is_taken_as_it_is_unless_a_commit_is_asked_for(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    put(base, id="n")
    commit(base)
    git(base, "checkout", "-q", "main")
    assert merge(base, "main").line["action"] == "up-to-date"
    git(base, "branch", "-q", "old")
    done = merge(base, "topic")
    assert (done.code, done.line["action"], len(done.line["files"])) == (0, "fast-forward", 1)
    assert git(base, "rev-parse", "main") == git(base, "rev-parse", "topic")
    git(base, "checkout", "-q", "old")
    assert merge(base, "topic", "--no-ff").line["action"] == "merged"
    assert len(git(base, "log", "-1", "--format=%P").split()) == 2


def test_only_forward_means_only_forward(base: Path) -> None:
    branches(base, lambda root: put(root, id="a", title="o"), lambda root: put(root, id="b", title="t"))
    before = git(base, "rev-parse", "HEAD"), tree_bytes(base)
    assert run_in(base, ["merge", "topic", "--ff-only", "--json"]).error["code"] == "E_REFUSED"
    assert (git(base, "rev-parse", "HEAD"), tree_bytes(base)) == before


def test_no_commit_leaves_the_merge_to_be_concluded(base: Path) -> None:
    branches(base, lambda root: put(root, id="a", title="o"), lambda root: put(root, id="b", title="t"))
    done = merge(base, "topic", "--no-commit")
    assert (done.code, done.line["action"]) == (0, "stopped")
    git(base, "commit", "-q", "--no-edit")
    assert len(git(base, "log", "-1", "--format=%P").split()) == 2
    assert (notes_of(base)["a"]["title"], notes_of(base)["b"]["title"]) == ("o", "t")


def test_other_files_are_merged_as_git_merges_them(base: Path) -> None:
    page = base / "page.txt"
    branches(
        base,
        lambda root: (put(root, id="a", title="o"), page.write_text(page.read_text().replace("0", "ours"))),
        lambda root: (put(root, id="a", text="t"), page.write_text(page.read_text().replace("8", "theirs"))),
    )
    assert merge(base, "topic").code == 0
    assert (page.read_text().splitlines()[0], page.read_text().splitlines()[-1]) == ("ours", "theirs")


def test_another_file_in_conflict_is_named_and_stops_the_merge(base: Path) -> None:
    page = base / "page.txt"
    branches(
        base,
        lambda root: (put(root, id="a", title="o"), page.write_text("ours\n")),
        lambda root: (put(root, id="a", text="t"), page.write_text("theirs\n")),
    )
    done = merge(base, "topic")
    assert (done.code, done.line["action"], done.line["others"]) == (1, "stopped", ["page.txt"])
    assert (notes_of(base)["a"]["title"], notes_of(base)["a"]["text"]) == ("o", "t")
    listed = run_in(base, ["resolve"])
    assert (listed.code, listed.out) == (0, "")
    assert "left to git: page.txt" in listed.err
    assert git(base, "diff", "--name-only", "--diff-filter=U").split() == ["page.txt"]


def test_what_check_would_refuse_is_listed_apart_and_not_committed(base: Path) -> None:
    def cite(root: Path) -> None:
        assert run_in(root, ["put", "cites", '{"from": "a", "to": "c"}']).code == 0

    def rename(root: Path) -> None:
        assert run_in(root, ["rename", "Note", "b", "new"]).code == 0

    branches(
        base,
        lambda root: (cite(root), put(root, id="new")),
        lambda root: (run_in(root, ["delete", "Note", "c"]), rename(root)),
    )
    before = git(base, "rev-parse", "HEAD").strip()
    done = merge(base, "topic")
    assert (done.code, done.line["action"], done.line["conflicts"]) == (1, "stopped", [])
    assert sorted({one["code"] for one in done.line["violations"]}) == ["E_DANGLING_EDGE", "E_DUP_IDENTITY"]
    assert (done.line["commit"], git(base, "rev-parse", "HEAD").strip()) == (before, before)
    assert "git commit" in done.err and "duckkb merge --abort" in done.err
    git(base, "commit", "-q", "--no-edit")
    assert git(base, "status", "--porcelain") == ""


def test_what_is_broken_is_told_while_records_are_in_conflict(base: Path) -> None:
    """A record in conflict counts as there: an edge to it leads somewhere, whichever side is chosen."""
    assert run_in(base, ["put", "cites", '{"from": "b", "to": "a"}']).code == 0
    commit(base, "an edge to what will be in conflict")
    branches(
        base,
        lambda root: (put(root, id="a", title="ours"), run_in(root, ["put", "cites", '{"from": "b", "to": "c"}'])),
        lambda root: (put(root, id="a", title="theirs"), run_in(root, ["delete", "Note", "c"])),
    )
    done = merge(base, "topic")
    assert (done.code, done.line["counts"]) == (1, {"conflicts": 1, "violations": 1})
    assert [(one["code"], one["type"]) for one in done.line["violations"]] == [("E_DANGLING_EDGE", "cites")]
    assert run_in(base, ["resolve", "--theirs", "--stage"]).code == 1, "the edge still leads nowhere"


def test_what_is_not_committed_is_not_overwritten(base: Path) -> None:
    branches(base, lambda root: put(root, id="a", title="o"), lambda root: put(root, id="b", text="t"))
    put(base, id="c", title="not committed")
    before = tree_bytes(base), git(base, "rev-parse", "HEAD")
    for stage in (False, True):
        if stage:
            git(base, "add", "-A")
        done = merge(base, "topic")
        assert (done.code, done.error["code"]) == (1, "E_REFUSED")
        assert (tree_bytes(base), git(base, "rev-parse", "HEAD")) == before
        assert not (base / ".git/MERGE_HEAD").exists()


def test_a_configuration_in_conflict_does_not_keep_records_from_merging(base: Path) -> None:
    config = base / "config.yaml"
    branches(
        base,
        lambda root: (put(root, id="a", tags=["x", "o"]), config.write_text("# ours\n" + config.read_text())),
        lambda root: (put(root, id="a", tags=["x", "t"]), config.write_text("# theirs\n" + config.read_text())),
    )
    done = merge(base, "topic")
    assert (done.code, done.line["others"]) == (1, ["config.yaml"])
    assert notes_of(base)["a"]["tags"] == ["x", "o", "t"]
    assert run_in(base, ["resolve", "--list"]).code == 0


def test_without_a_name_or_with_a_strange_one_nothing_is_begun(base: Path) -> None:
    assert merge(base).code == 2
    assert merge(base, "topic", "--abort").code == 2
    for name in ("nowhere", "--output=x", "-rf", "", "HEAD:data"):
        done = run_in(base, ["merge", "--json", "--", name])
        assert (done.code, done.error["code"]) == (1, "E_REVISION"), name
    git(base, "checkout", "-q", "--orphan", "elsewhere")
    commit(base, "elsewhere")  # with the same words, within one second, it would be the first commit itself
    assert run_in(base, ["merge", "main", "--json"]).error["code"] == "E_REVISION"


def test_nothing_of_the_repository_is_run(base: Path, tmp_path: Path) -> None:
    branches(
        base,
        lambda root: (put(root, id="a", title="o"), (root / "page.txt").write_text("ours\n")),
        lambda root: (put(root, id="a", text="t"), (root / "page.txt").write_text("theirs\n")),
    )
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n", "utf-8")
    trap.chmod(0o755)
    for name in ("pre-merge-commit", "post-merge", "pre-commit", "commit-msg", "prepare-commit-msg", "post-checkout"):
        hook = base / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_bytes(trap.read_bytes())
        hook.chmod(0o755)
    names = ["core.fsmonitor", "core.editor", "gpg.program", "diff.external", "filter.f.clean", "filter.f.smudge"]
    names += ["filter.f.process", "merge.m.driver", "merge.duckkb.driver", "diff.duckkb.textconv", "sequence.editor"]
    for name in names:
        git(base, "config", name, str(trap))
    git(base, "config", "commit.gpgSign", "true")
    (base / ".git/info/attributes").write_text("*.txt filter=f merge=m\n*.jsonl filter=f merge=duckkb\n", "utf-8")
    done = merge(base, "topic")
    assert done.line["others"] == ["page.txt"], done.err
    assert "<<<<<<<" in (base / "page.txt").read_text()
    assert merge(base, "--abort").code == 0
    assert run_in(base, ["merge", "topic", "--no-commit"]).code == 1
    assert not (tmp_path / "sprung").exists()


def test_records_of_a_collection_that_the_other_side_removed_are_not_committed(base: Path) -> None:
    """They merge cleanly into a folder that no type reads any more."""
    assert run_in(base, ["col", "init", "logs", "--policy", "knowledge-base"]).code == 0
    assert run_in(base, ["put", "logs", '{"id": "first", "content": "0"}']).code == 0
    commit(base, "collection")
    branches(
        base,
        lambda root: run_in(root, ["col", "rm", "logs", "--yes"]),
        lambda root: run_in(root, ["put", "logs", '{"id": "new", "content": "c"}'], env={"DUCKKB_WRITER": "other"}),
    )
    done = merge(base, "topic")
    assert (done.code, done.line["action"]) == (1, "stopped")
    assert [(one["code"], one["path"]) for one in done.line["violations"]] == [
        ("E_UNEXPECTED_FILE", "data/nodes/logs/")
    ]


def test_going_forward_overwrites_no_part_that_git_ignores(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    part = base / "data/nodes/note/20260101/part_000.jsonl"
    part.parent.mkdir(parents=True)
    line = '{"__id":5,"id":"z","title":"THEIRS","__created_at":"2026-01-01T00:00:00.000000Z","__updated_at":"2026-01-01T00:00:00.000000Z"}\n'
    part.write_text(line, "utf-8")
    commit(base, "theirs")
    git(base, "checkout", "-q", "main")
    (base / ".git/info/exclude").write_text("data/nodes/note/20260101\n", "utf-8")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(line.replace("THEIRS", "OURS"), "utf-8")
    done = merge(base, "topic")
    assert done.code != 0 and "OURS" in part.read_text("utf-8")
