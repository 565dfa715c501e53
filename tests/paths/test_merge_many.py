"""Hundreds of conflicts: a line each, a page at a time."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

MANY = 500


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches that changed the titles of the same 500 of 2,000 notes. The writer decides the numbers of the two parts; conflicts
    are listed by path, where part_1000 stands before part_999."""
    root = make_base(tmp_path_factory.mktemp("many") / "kb", NOTES)
    for switch, branch, every in (("--orphan", "main", 1), ("-b", "topic", 4), ("", "main", 4)):
        git(root, "checkout", "-q", *filter(None, (switch, branch)))
        lines = (json.dumps({"id": f"n{n:04}", "title": f"{branch} {every} {n}"}) for n in range(0, 4 * MANY, every))
        ran = run_in(root, ["put", "Note", "--merge"], stdin="\n".join(lines), env={"DUCKKB_WRITER": "many"})
        assert ran.code == 0
        commit(root)
    return root


@pytest.fixture
def base(grown: Path, tmp_path: Path) -> Path:
    shutil.copytree(grown, tmp_path / "kb")
    git(tmp_path / "kb", "status")
    return tmp_path / "kb"


def test_a_merge_prints_a_conflict_a_line_and_says_where_it_stops(base: Path) -> None:
    done = run_in(base, ["merge", "topic"])
    first, *conflicts = done.lines
    assert (done.code, first["action"]) == (1, "stopped")
    assert first["counts"] == {"conflicts": MANY, "violations": 0}
    assert [one["name"] for one in conflicts] == [f"Note:n{n:04} title" for n in range(0, 400, 4)]
    assert max(map(len, done.out.splitlines())) < 1_000 and len(done.err) < 1_000
    assert "500 records or fields (the first 100 are shown)" in done.err


@pytest.mark.long
def test_open_conflicts_are_listed_a_page_at_a_time(base: Path) -> None:
    assert run_in(base, ["merge", "topic"]).code == 1
    names: list[str] = []
    after: list[str] = []
    while after or not names:
        ran = run_in(base, ["resolve", "--list", "--json", "--limit", "200", *after])
        page = json.loads(ran.out)
        assert (ran.code, page["total"]) == (1, MANY)
        names += [one["name"] for one in page["conflicts"]]
        after = ["--after", page["next"]] if page["next"] else []
        assert ("continue with --after" in ran.err) == bool(after)
    assert names == [f"Note:n{n:04} title" for n in range(0, 4 * MANY, 4)]
    assert len(run_in(base, ["resolve", "--list"]).out.splitlines()) == 100
    assert run_in(base, ["resolve", "--list", "--after", "Note:zz title", "--json"]).error["code"] == "E_NOT_FOUND"
    done = run_in(base, ["resolve", "--newest", "--stage"])
    assert (done.code, done.out) == (0, "")
