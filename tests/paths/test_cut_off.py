"""Files that were cut off: what they held counts as lost, not as deleted, until somebody says that it is to go."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes

PART = "data/nodes/note/20260105/part_001.jsonl"
TIME = "2026-01-05T00:00:00.000000Z"
RECORDS = [
    {"__id": n, "id": f"n{n:02}", "title": f"N{n}", "__created_at": TIME, "__updated_at": TIME} for n in range(9)
]
VERBS = (
    ["list", "Note"],
    ["put", "Note", '{"id": "x"}'],
    ["delete", "Note", "n01"],
    ["fmt"],
    ["fmt", "--check"],
    ["dedupe"],
    ["compact", "--older-than", "1"],
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    (root / PART).parent.mkdir(parents=True)
    lines = (json.dumps(one | {"__id": one["__id"] + 1}, separators=(",", ":")) for one in RECORDS)
    (root / PART).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    commit(root)
    return root


def codes(root: Path, *args: str) -> list[tuple[str, str]]:
    return [(one["code"], one["path"]) for one in run_in(root, ["check", *args, "--format", "jsonl"]).lines]


def mend(root: Path) -> None:
    """Run the command that `check` names."""
    (remedy,) = (one["remedy"] for one in run_in(root, ["check", "--format", "jsonl"]).lines)
    subprocess.run(shlex.split(remedy.split("`")[1]), cwd=root, check=True, capture_output=True)


@pytest.mark.long
@pytest.mark.parametrize("left", [b"", b"\n\n", b" \t\n"])
def test_a_part_without_a_record_stops_every_verb_and_none_deletes_it(base: Path, left: bytes) -> None:
    whole = (base / PART).read_bytes()
    (base / PART).write_bytes(left)
    before = tree_bytes(base)
    for args in VERBS:
        ran = run_in(base, [*args, "--json"])
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", "E_UNREADABLE"), args
    assert tree_bytes(base) == before
    assert codes(base) == [("E_EMPTY_PART", PART)]
    mend(base)
    assert (base / PART).read_bytes() == whole
    assert codes(base) == []


def test_a_part_that_was_committed_without_its_records_is_still_found(base: Path) -> None:
    whole = (base / PART).read_bytes()
    (base / PART).write_bytes(b"")
    commit(base, "a job that commits whatever lies there")
    assert run_in(base, ["put", "Note", '{"id": "x"}']).code == 1
    assert codes(base, "--since", "HEAD~1") == codes(base) == [("E_EMPTY_PART", PART)]
    mend(base)
    assert (base / PART).read_bytes() == whole
    git(base, "rm", "-q", "-f", PART)
    commit(base, "all of them are to go")
    assert run_in(base, ["put", "Note", '{"id": "x"}']).code == 0, "who removes the file has said so"


def test_a_part_that_was_never_committed_is_found_too(base: Path) -> None:
    fresh = PART.replace("part_001", "part_002")
    (base / fresh).write_bytes(b"")
    assert codes(base) == [("E_EMPTY_PART", fresh)]


def test_a_committed_part_of_a_base_below_the_top_of_its_repository_is_found_too(base: Path) -> None:
    (base / ".git").rename(base.parent / ".git")
    commit(base.parent, "the base lies in a folder")
    whole = (base / PART).read_bytes()
    (base / PART).write_bytes(b"")
    commit(base.parent, "a job that commits whatever lies there")
    assert codes(base) == [("E_EMPTY_PART", PART)]
    mend(base)
    assert (base / PART).read_bytes() == whole


def test_without_git_a_part_without_a_record_is_found_too(base: Path) -> None:
    (base / ".git").rename(base.parent / "away")
    (base / PART).write_bytes(b"")
    assert codes(base) == [("E_EMPTY_PART", PART)]


def test_a_merge_deletes_no_record_because_a_branch_has_cut_a_part_off(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    (base / PART).write_bytes(b"")
    commit(base, "cut off")
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["put", "Note", '{"id": "n03", "title": "changed"}']).code == 0
    commit(base, "changed")
    held = (base / PART).read_text("utf-8").splitlines()
    done = run_in(base, ["merge", "topic"])
    assert (done.code, done.line["action"], done.line["others"]) == (1, "stopped", [PART])
    assert {*held} <= {*(base / PART).read_text("utf-8").splitlines()}


@pytest.mark.long
@pytest.mark.parametrize("path", ["config.yaml", "ontology/types.yaml"])
def test_an_empty_file_of_the_configuration_is_none_where_head_has_more(base: Path, path: str) -> None:
    if not (base / path).exists():
        (base / path).parent.mkdir(exist_ok=True)
        (base / path).write_text("policies: {}\n", "utf-8")
    assert run_in(base, ["status"]).code == 0
    commit(base, "configured")
    (base / path).write_bytes(b"")
    ran = run_in(base, ["list", "Note", "--json"])
    assert (ran.code, ran.error["code"]) == (2, "E_YAML")
    assert f"git checkout HEAD -- {path}" in ran.err


@pytest.mark.long
def test_a_part_that_a_rebase_takes_the_last_record_of_stops_neither_it_nor_what_follows(base: Path) -> None:
    """The driver cannot remove the file; what it leaves is told from a part that was cut off."""
    assert run_in(base, ["git", "install"]).code == 0
    assert run_in(base, ["put", "Person", '{"country": "x", "number": 1, "name": "stays"}']).code == 0
    commit(base, "driver")
    git(base, "checkout", "-q", "-b", "topic")
    held = (base / PART).read_text("utf-8").splitlines(keepends=True)
    names = [json.loads(line)["id"] for line in held]
    half = len(names) // 2
    assert run_in(base, ["delete", "Note", *names[:half], "--allow-shrink"]).code == 0
    commit(base, "the first ones go")
    assert run_in(base, ["put", "Note", json.dumps({"id": names[-1], "title": "changed there"})]).code == 0
    commit(base, "changed there")
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["delete", "Note", *names[half:], "--allow-shrink"]).code == 0
    commit(base, "the others go")
    git(base, "checkout", "-q", "topic")
    stopped = subprocess.run(["git", "-C", str(base), "rebase", "-q", "main"], capture_output=True, check=False)
    assert stopped.returncode == 1 and git(base, "show", f"HEAD:{PART}") == "\n"
    listed = run_in(base, ["resolve", "--list", "--format", "jsonl"])
    assert [line["name"] for line in listed.lines] == [f"Note:{names[-1]}"]
    assert run_in(base, ["resolve", "--stage", "--ours", f"Note:{names[-1]}"]).code == 0
    git(base, "rebase", "--skip")
    assert codes(base, "--since", "main") == [("E_NOT_CANONICAL", PART)]
    assert run_in(base, ["put", "Note", '{"id": "new"}']).code == 0
    assert run_in(base, ["fmt"]).lines == [{"file": PART}]
    assert codes(base, "--since", "main") == []
