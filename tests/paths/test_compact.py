"""`duckkb compact`: fewer parts, the same records."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two notes and two people, by two writers on one day, and a note of today."""
    root = make_base(tmp_path / "kb", NOTES)
    for writer, name in (("one", "b"), ("two", "a")):
        line = {
            "id": name,
            "__created_at": "2026-01-05T00:00:00.000000Z",
            "__updated_at": "2026-01-05T00:00:00.000000Z",
        }
        done = run_in(root, ["import", "Note", "-"], stdin=json.dumps(line) + "\n", env={"DUCKKB_WRITER": writer})
        assert done.code == 0, done.err
    assert run_in(root, ["put", "Note", '{"id": "today"}']).code == 0
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    return root


def of_the_day(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in tree_bytes(root).items() if "/20260105/" in path}


def test_the_parts_of_a_past_day_become_one_and_no_record_changes(base: Path) -> None:
    before = of_the_day(base)
    assert len(before) == 2
    exported = run_in(base, ["export", "Note"]).out
    dry = run_in(base, ["compact", "--older-than", "3", "--dry-run"])
    assert dry.code == 0 and dry.out.count("diff --git") == 2
    assert of_the_day(base) == before
    done = run_in(base, ["compact", "--older-than", "3"])
    assert (done.code, {line["file"] for line in done.lines}) == (0, before.keys())
    after = of_the_day(base)
    assert list(after) == [min(before)]
    lines = b"".join(before.values()).splitlines()
    assert after[min(before)].splitlines() == sorted(lines, key=lambda line: json.loads(line)["id"])
    assert run_in(base, ["export", "Note"]).out == exported
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0
    assert run_in(base, ["compact", "--older-than", "3"]).lines == []


def test_days_that_are_not_that_old_stay_as_they_are(base: Path) -> None:
    before = tree_bytes(base)
    assert run_in(base, ["compact", "--older-than", "30000"]).lines == []
    assert tree_bytes(base) == before
    assert run_in(base, ["compact"]).code == 2
    assert run_in(base, ["compact", "--older-than", "0"]).code == 2


def test_a_part_that_another_branch_changes_is_not_moved_from_under_it(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    assert run_in(base, ["put", "Note", '{"id": "a", "title": "changed"}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    before = tree_bytes(base)
    done = run_in(base, ["compact", "--older-than", "3", "--json"])
    assert (done.code, done.error["code"]) == (1, "E_REFUSED")
    assert "topic" in done.error["error"]
    assert tree_bytes(base) == before


def test_a_branch_that_was_made_before_and_changes_a_record_later_still_merges(base: Path) -> None:
    git(base, "branch", "topic")
    assert run_in(base, ["compact", "--older-than", "3"]).code == 0
    commit(base)
    git(base, "checkout", "-q", "topic")
    for name in "ab":
        assert run_in(base, ["put", "Note", f'{{"id": "{name}", "title": "later"}}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["merge", "topic"]).line["action"] == "merged"
    assert len(of_the_day(base)) == 1
    assert b"".join(of_the_day(base).values()).count(b'"title":"later"') == 2


@pytest.mark.long
@pytest.mark.parametrize("driver", [False, True])
def test_a_record_that_moved_here_and_changed_there_is_resolved_where_it_went(base: Path, driver: bool) -> None:
    """To git's merge of single files it is gone from one and new in the other."""
    if driver:
        assert run_in(base, ["git", "install"]).code == 0
        commit(base)
    git(base, "branch", "topic")
    assert run_in(base, ["compact", "--older-than", "3"]).code == 0
    for name in "ab":
        assert run_in(base, ["put", "Note", "--merge", f'{{"id": "{name}", "text": "ours"}}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "topic")
    for name in "ab":
        assert run_in(base, ["put", "Note", "--merge", f'{{"id": "{name}", "title": "theirs"}}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    done = subprocess.run(["git", "-C", str(base), "merge", "-q", "topic"], capture_output=True, check=False)
    assert done.returncode == 1
    resolved = run_in(base, ["resolve", "--stage"])
    assert (resolved.code, resolved.out) == (0, ""), resolved.err
    git(base, "commit", "-q", "--no-edit")
    lines = b"".join(of_the_day(base).values()).splitlines()
    assert len(of_the_day(base)) == 1 and len(lines) == 2
    assert all(b'"text":"ours"' in line and b'"title":"theirs"' in line for line in lines)
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0


def test_a_record_does_not_leave_its_part_for_one_that_a_person_has_changed(base: Path) -> None:
    git(base, "branch", "topic")
    assert run_in(base, ["compact", "--older-than", "3"]).code == 0
    commit(base)
    git(base, "checkout", "-q", "topic")
    for name in "ab":
        assert run_in(base, ["put", "Note", "--merge", f'{{"id": "{name}", "title": "theirs"}}']).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    assert subprocess.run(["git", "-C", str(base), "merge", "-q", "topic"], capture_output=True, check=False).returncode
    kept = base / next(iter(of_the_day(base)))
    kept.write_text(
        "".join(line + "\n" for line in kept.read_text("utf-8").splitlines() if '"id":"c"' in line), "utf-8"
    )
    git(base, "add", str(kept))
    held = b"".join(of_the_day(base).values())
    left = run_in(base, ["resolve", "--json"])
    assert left.code == 1 and len(left.line["unreadable"]) == 1
    assert b"".join(of_the_day(base).values()) == held


def test_no_record_is_older_than_the_calendar(base: Path) -> None:
    for days in ("999999", "2147483648", "1" + "0" * 30):
        ran = run_in(base, ["compact", "--older-than", days])
        assert (ran.code, ran.out) == (0, "")
