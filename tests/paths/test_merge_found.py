"""Small forms of the histories in which random merges found a record that was lost, kept or decided in silence."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from duckkb.storage.layout import EMPTIED
from tests.conftest import NOTES, commit, git, make_base, run_in

DAY = "2026-01-05T00:00:00.000000Z"
FOLDER = "data/nodes/note/20260105"
IDS = {name: number for number, name in enumerate("abcdexyz", 101)}


def line(name: str, **fields: Any) -> str:
    """A note as it is stored; `id` renames it."""
    told = {"__id": IDS[name], "id": name, **fields, "__created_at": DAY, "__updated_at": DAY}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def parts(root: Path, *contents: str | None) -> None:
    """Write the first parts of a day; None for one that is not there."""
    for number, content in enumerate(contents):
        path = root / FOLDER / f"part_{number:03d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content, "utf-8")


def save(root: Path, branch: str, *contents: str | None) -> None:
    """A commit on a branch that leaves these parts."""
    git(root, "checkout", "-q", branch)
    parts(root, *contents)
    commit(root, f"on {branch}")


def held(root: Path) -> dict[str, dict[str, Any]]:
    lines = [text for path in sorted((root / FOLDER).glob("*.jsonl")) for text in path.read_text("utf-8").splitlines()]
    return {told["id"]: told for told in map(json.loads, lines)}


def quietly(root: Path, *args: str) -> int:
    return subprocess.run(["git", "-C", str(root), *args], capture_output=True, check=False).returncode


def told_by_check(root: Path) -> list[tuple[str, str]]:
    done = run_in(root, ["check", "--format", "jsonl"])
    return [(one["code"], one.get("identity", "")) for one in done.lines]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base whose merges the driver makes, with branches `main` and `topic` at one commit."""
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["git", "install"]).code == 0
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    (root / "data").mkdir()
    (root / "data/FORMAT.json").write_text('{"format":1}\n', "utf-8")
    commit(root)
    return root


def cross(root: Path) -> None:
    """Each branch merges the tip of the other; what comes next has two merge bases."""
    tips = {name: git(root, "rev-parse", name).strip() for name in ("main", "topic")}
    for name, other in (("main", tips["topic"]), ("topic", tips["main"])):
        git(root, "checkout", "-q", name)
        assert run_in(root, ["merge", other]).code == 0


def test_a_record_that_was_deleted_here_and_moved_there_is_found_though_the_driver_brought_it_back(base: Path) -> None:
    """To the driver, which sees one part, a record that came from another part is new. By lines nothing was clean."""
    save(base, "main", line("a", title="a") + "\n", line("d", title="d") + "\n")
    git(base, "branch", "topic")
    save(base, "topic", line("a", text="theirs", title="a") + "\n" + line("d", title="d") + "\n", None)
    save(base, "main", line("a", title="ours") + "\n", None)
    assert quietly(base, "merge", "-q", "--no-edit", "topic") == 0
    assert held(base).keys() == {"a", "d"}, "the driver could not know better"
    assert told_by_check(base) == [("W_MERGED", "d")]
    git(base, "reset", "-q", "--hard", "HEAD^")
    assert run_in(base, ["merge", "topic"]).code == 0
    assert held(base).keys() == {"a"}


def test_a_record_that_was_deleted_here_and_moved_to_a_new_part_there_is_found(base: Path) -> None:
    save(base, "main", line("a") + "\n", line("d") + "\n")
    git(base, "branch", "topic")
    save(base, "topic", line("a") + "\n", None, "".join(line(name) + "\n" for name in "dxyz"))
    save(base, "main", line("a") + "\n", None)
    assert quietly(base, "merge", "-q", "--no-edit", "topic") == 0, "the new part is like no old one"
    assert held(base).keys() == {*"adxyz"}
    assert told_by_check(base) == [("W_MERGED", "d")]


def begun_apart(base: Path) -> None:
    """Both branches began one part and took each other's; then one changed its record, and the other deleted that."""
    git(base, "branch", "topic")
    save(base, "main", line("x") + "\n")
    save(base, "topic", line("y") + "\n")
    cross(base)
    save(base, "topic", line("y") + "\n")
    save(base, "main", line("x", title="changed") + "\n")


@pytest.mark.long
def test_a_conflict_is_found_where_git_made_another_base_of_several(base: Path) -> None:
    """git's base of that part is empty, as both began it: a record that one changed and the other deleted looks new. The
    driver makes one base of the two."""
    begun_apart(base)
    assert quietly(base, "merge", "-q", "--no-commit", "topic") == 1
    assert run_in(base, ["resolve", "--list"]).out.splitlines() == ["Note:x"]
    git(base, "merge", "--abort")
    git(base, "config", "merge.duckkb.recursive", "binary")
    assert quietly(base, "merge", "-q", "--no-commit", "topic") == 0, "git found nothing in conflict"
    listed = run_in(base, ["resolve", "--list"])
    assert (listed.code, listed.out.splitlines()) == (1, ["Note:x"])
    assert run_in(base, ["resolve", "--ours", "--stage"]).code == 0
    git(base, "commit", "-q", "--no-edit")
    assert held(base).keys() == {"x"}


def test_check_finds_what_git_took_unasked_where_it_made_another_base_of_several(base: Path) -> None:
    begun_apart(base)
    git(base, "config", "merge.duckkb.recursive", "binary")
    assert quietly(base, "merge", "-q", "--no-edit", "topic") == 0
    assert ("W_MERGED", "x") in told_by_check(base)


@pytest.fixture
def emptied(base: Path) -> Path:
    """Of one part each branch deleted another record; together they left none."""
    save(base, "main", line("a") + "\n", line("c") + "\n" + line("d") + "\n")
    git(base, "branch", "topic")
    save(base, "topic", line("a") + "\n", line("d") + "\n")
    save(base, "main", line("a") + "\n", line("c") + "\n")
    return base


def test_a_part_that_the_driver_could_not_remove_is_named_and_fmt_removes_it(emptied: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(emptied), "merge", "-q", "--no-edit", "topic"], capture_output=True, text=True, check=True
    )
    path = f"{FOLDER}/part_001.jsonl"
    assert done.stderr == f"duckkb: no record is left in {path}; `duckkb fmt` removes it\n"
    assert (emptied / path).read_bytes() == EMPTIED
    assert run_in(emptied, ["put", "Note", '{"id": "n"}']).code == 0, "it is in nobody's way"
    found = run_in(emptied, ["check", "--format", "jsonl"])
    assert [(one["code"], one["path"], one["message"], one["remedy"]) for one in found.lines] == [
        ("E_NOT_CANONICAL", path, "no record is in it", "duckkb fmt")
    ]
    assert run_in(emptied, ["fmt"]).lines == [{"file": path}]
    assert not (emptied / path).exists()
    assert run_in(emptied, ["check"]).code == 0


def test_resolve_removes_a_part_that_the_driver_left_empty(emptied: Path) -> None:
    assert quietly(emptied, "merge", "-q", "--no-commit", "topic") == 0
    assert run_in(emptied, ["resolve", "--stage"]).code == 0
    assert git(emptied, "status", "--porcelain") == f"D  {FOLDER}/part_001.jsonl\n"
