"""Edits from elsewhere between load and write: git, editors and other bases. What they wrote is never overwritten."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.operations import lifecycle
from duckkb.types.errors import Refused, StateError, Unreadable
from tests.conftest import NOTES, commit, git, make_base
from tests.fakes import FrozenClock
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.crowd.scripts import start
from tests.harness.crowd.worlds import World, anew, by_renaming, in_place, put_times_back, status
from tests.harness.forks import weakened
from tests.harness.waiting import HANG_S


def _part(root: Path) -> Path:
    return max((root / "data" / "nodes" / "note").rglob("part_*.jsonl"))


def _texts(root: Path) -> dict[str, Any]:
    return {record["id"]: record.get("text") for (table, _), record in oracle.records(root).items() if table == "note"}


def _by_sed(path: Path, data: bytes) -> None:
    subprocess.run(["sed", "-i", "s/old/new/", str(path)], check=True)
    assert path.read_bytes() == data


EDITORS = {"in place": in_place, "by renaming": by_renaming, "anew": anew, "by sed": _by_sed}


@pytest.mark.parametrize("settled", [False, True], ids=["racy", "long after"])
@pytest.mark.parametrize("times_back", [False, True], ids=["", "times put back"])
@pytest.mark.parametrize("editor", EDITORS)
def test_dk_18_an_edit_of_the_same_size_is_seen(notes: Path, editor: str, times_back: bool, settled: bool) -> None:
    """However it is made, and even where size, mtime and inode are those of before."""
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a", "text": "old"}, {"id": "b", "text": "other"}])
        part = _part(notes)
        if settled:  # as if it had been loaded long after it was written
            os.utime(part, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000))
        assert kb.get("Note", "a")["text"] == "old"
        before = status(part)
        EDITORS[editor](part, part.read_bytes().replace(b"old", b"new"))
        if times_back:
            put_times_back(part, before)
        assert kb.get("Note", "a")["text"] == "new"
        EDITORS["in place"](part, part.read_bytes().replace(b"new", b"odd"))
        if times_back:
            put_times_back(part, before)
        kb.put("Note", {"id": "c", "text": "ours"})
        assert kb.get("Note", "a")["text"] == "odd"
    assert _texts(notes) == {"a": "odd", "b": "other", "c": "ours"}


def test_dk_18_an_edit_of_a_part_that_the_write_does_not_touch_counts_too(notes: Path) -> None:
    """A node that an editor took away is no end for an edge, even where its file looks as it did."""
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a"}, {"id": "b"}])
        part = _part(notes)
        os.utime(part, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000))
        kb.get("Note", "a")
        before = status(part)
        in_place(part, part.read_bytes().replace(b'"id":"b"', b'"id":"z"'))
        put_times_back(part, before)
        with pytest.raises(Refused) as caught:
            kb.put("cites", {"from": "a", "to": "b"})
        assert caught.value.code == "E_DANGLING_EDGE"
        kb.put("cites", {"from": "a", "to": "z"})


def test_dk_18_git_between_load_and_write(notes: Path, tmp_path: Path) -> None:
    """pull, checkout of a branch and back, stash and pop, merge, reset, restore, clean: one open base all the while."""
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "one"})
        commit(notes)
        other = tmp_path / "other"
        git(notes, "clone", "-q", str(notes), str(other))
        with duckkb.open(other) as theirs:
            theirs.put("Note", [{"id": "a", "text": "two"}, {"id": "pulled", "text": "x"}])
        commit(other)
        git(notes, "pull", "-q", str(other), "main")
        kb.put("Note", {"id": "b", "text": "after the pull"})
        assert _texts(notes) == {"a": "two", "pulled": "x", "b": "after the pull"}
        commit(notes)

        git(notes, "checkout", "-q", "-b", "topic")
        kb.put("Note", {"id": "topic", "text": "t"})
        topic = {path for path in oracle.tree(notes) if b'"topic"' in oracle.tree(notes)[path]}
        commit(notes)
        git(notes, "checkout", "-q", "main")
        kb.put("Note", {"id": "main", "text": "m"})
        assert _texts(notes).keys() == {"a", "pulled", "b", "main"}
        assert topic.isdisjoint(oracle.tree(notes)), "each branch has its own part of the day"
        commit(notes)

        kb.put("Note", {"id": "b", "text": "stashed"})
        git(notes, "stash", "-q")
        kb.put("Note", {"id": "c", "text": "c"})
        assert _texts(notes)["b"] == "after the pull"
        commit(notes)
        git(notes, "merge", "-q", "--no-edit", "topic")
        kb.put("Note", {"id": "d", "text": "d"})
        assert _texts(notes).keys() == {"a", "pulled", "b", "c", "d", "main", "topic"}
        commit(notes)
        kb.put("Note", {"id": "e", "text": "lost on purpose"})
        git(notes, "reset", "-q", "--hard")
        kb.put("Note", {"id": "a", "text": "three"})
        assert _texts(notes).keys() == {"a", "pulled", "b", "c", "d", "main", "topic"}
        git(notes, "checkout", "-q", "--", "data")
        assert kb.get("Note", "a")["text"] == "two"
        git(notes, "clean", "-q", "-dffx")  # takes .duckkb/ away, lock and clone id and all
        kb.put("Note", {"id": "f", "text": "f"})
        assert _texts(notes)["f"] == "f"
        assert kb.check().findings == ()


@pytest.mark.parametrize("kind", ["merge", "rebase", "cherry-pick", "revert"])
def test_dk_18_a_conflict_that_git_left_refuses_writes_of_an_open_base(notes: Path, kind: str) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "one"})
        commit(notes)
        git(notes, "branch", "other")
        kb.put("Note", {"id": "a", "text": "two"})
        commit(notes)
        git(notes, "checkout", "-q", "other")
        for text in ("two and a half", "three"):
            kb.put("Note", {"id": "a", "text": text})
            commit(notes)
        what = {"merge": ["merge", "main"], "rebase": ["rebase", "main"], "cherry-pick": ["cherry-pick", "main"]}
        command = what.get(kind, ["revert", "--no-edit", "HEAD~1"])
        done = subprocess.run(["git", "-C", str(notes), *command], capture_output=True, check=False)
        assert done.returncode, "there should be a conflict"
        before = oracle.digest(notes)
        with pytest.raises(Unreadable):
            kb.put("Note", {"id": "b"})
        part = _part(notes)
        mine = [line for line in part.read_bytes().splitlines(keepends=True) if b"three" in line]
        part.write_bytes(b"".join(mine))
        if mine:  # the markers are gone, the operation is not
            with pytest.raises(Refused) as caught:
                kb.put("Note", {"id": "b"})
            assert caught.value.code == "E_MERGE_IN_PROGRESS" and kind in str(caught.value)
            assert part.read_bytes() == b"".join(mine)
        git(notes, kind, "--abort")
        kb.put("Note", {"id": "b"})
        assert _texts(notes) == {"a": "three", "b": None}
        assert before != oracle.digest(notes)


def test_a_base_whose_data_vanished_while_it_was_open_is_not_empty(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a", "text": "x"}, {"id": "b"}])
        commit(notes)
        (notes / "data").rename(notes / "elsewhere")
        for call in (lambda: kb.get("Note", "a"), lambda: kb.put("Note", {"id": "c"}), lambda: kb.list("Note")) * 2:
            with pytest.raises(StateError) as caught:
                call()
            assert caught.value.code == "E_DATA_MISSING"
        assert not (notes / "data").exists()
        (notes / "elsewhere").rename(notes / "data")
        kb.put("Note", {"id": "c"})
        assert kb.delete("Note", "a", "b", "c").deleted == 3, "emptied on purpose is another thing"
        assert kb.list("Note").total == 0


def test_a_link_that_took_a_folders_place_while_the_base_was_open_is_not_followed(notes: Path, tmp_path: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "ours"})
        kb.put("Person", {"country": "CH", "number": 1, "name": "n"})
        day = _part(notes).parent
        day.rename(tmp_path / "outside")
        day.symlink_to(tmp_path / "outside")
        part = next((tmp_path / "outside").iterdir())
        part.write_bytes(part.read_bytes().replace(b"ours", b"evil"))
        before = part.read_bytes()
        for call in (lambda: kb.list("Note"), lambda: kb.put("Note", {"id": "b"})):
            with pytest.raises(Unreadable) as caught:
                call()
            assert [finding.code for finding in caught.value.findings] == ["E_SYMLINK"]
        assert part.read_bytes() == before
        with duckkb.open(notes, lenient=True) as lenient:
            assert lenient.list("Note").total == 0
        day.unlink()
        (tmp_path / "outside").rename(day)
        assert kb.get("Note", "a")["text"] == "evil" and kb.check().findings == ()


@pytest.mark.parametrize("torn", [b"", b'{"id":"a"', b'{"id":"a"}\n{', b"\xff\n"])
def test_dk_18_a_file_cut_short_between_load_and_write_refuses_the_write(notes: Path, torn: bytes) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a", "text": "x"}, {"id": "b"}])
        part = _part(notes)
        whole = part.read_bytes()
        part.write_bytes(torn)
        if torn:
            with pytest.raises(Unreadable):
                kb.put("Note", {"id": "c"})
            assert part.read_bytes() == torn
        part.write_bytes(whole)
        kb.put("Note", {"id": "c"})
        assert _texts(notes) == {"a": "x", "b": None, "c": None}


def test_dk_18_an_edit_while_a_write_is_under_way_stops_it(notes: Path) -> None:
    """An editor that saves after the write has looked and before it replaces: a hook in a copy of it stands in for one."""
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "old"})
    part = _part(notes)
    program = """
import sys
from pathlib import Path
import duckkb
from duckkb.types.errors import DuckkbError
from duckkb.storage import commit_protocol as protocol
real, part = protocol.commit, Path(sys.argv[2])
def commit(root, changes, **options):
    def edit(step):
        if step == sys.argv[3]:
            part.write_bytes(part.read_bytes().replace(b'old', b'new'))
    return real(root, changes, on_step=edit)
protocol.commit = commit
with duckkb.open(sys.argv[1]) as kb:
    try:
        kb.put('Note', {'id': 'a', 'text': 'ours'})
        print('written')
    except DuckkbError as error:
        print(error.code, bool(error.suggestion))
"""
    for step, said in (
        ("make the stage", "E_STALE True"),
        ("compare again", "E_STALE True"),
        ("seal", "E_RECOVER True"),
    ):
        part.write_bytes(part.read_bytes().replace(b"new", b"old"))
        out, err = start(program, notes, part, step).communicate(timeout=HANG_S)
        assert out.strip() == said, err
        assert _texts(notes) == {"a": "new"}
    with pytest.raises(StateError), duckkb.open(notes):
        pass
    assert lifecycle.recover(notes, action="abort")["action"] == "aborted"
    rescued = list((notes / ".duckkb" / "rescued").rglob("part_*"))
    assert len(rescued) == 1 and b"new" in rescued[0].read_bytes(), "the editor's file is kept"
    assert _texts(notes) == {"a": "old"}


def test_updated_at_grows_whatever_the_clock_and_the_editors_do(notes: Path, campaign: Campaign) -> None:
    rng = campaign.random("clock")
    last = ""
    for number in range(campaign.pick(15, 100)):
        moment = f"20{rng.randint(10, 40)}-0{rng.randint(1, 9)}-11T00:00:00.{rng.randint(0, 999999):06}Z"
        with duckkb.open(notes, clock=FrozenClock(moment)) as kb:
            kb.put("Note", {"id": "a", "size": number})
            kb.put("Note", {"id": "a", "size": -number - 1})
            record = kb.get("Note", "a")
        assert record["__updated_at"] > last
        last = record["__updated_at"]
    campaign.count("writes under a clock that jumps", 2 * campaign.pick(15, 100))
    assert duckkb.check(notes).findings == ()


def test_dk_18_random_interleavings_of_bases_editors_and_git(tmp_path: Path, campaign: Campaign) -> None:
    for world_number in range(campaign.pick(4, 60)):
        rng = campaign.random(f"world {world_number}")
        world, done = World(make_base(tmp_path / str(world_number), NOTES), rng), []
        for _ in range(campaign.pick(40, 80)):
            done.append(world.turn())
            try:
                world.judge()
            except AssertionError as problem:
                raise AssertionError(f"world {world_number} after {done[-8:]}") from problem
            campaign.count("interleaved steps of bases, editors and git")
        world.close()


BLIND = """
import sys
from pathlib import Path
import duckkb
root, part = Path(sys.argv[1]), Path(sys.argv[2])
with duckkb.open(root) as kb:
    kb.put('Note', {'id': 'b', 'text': 'load'})
    part.write_bytes(part.read_bytes().replace(b'old', b'new'))
    kb.put('Note', {'id': 'b', 'text': 'write'})
"""


def test_a_writer_that_does_not_look_again_is_caught(notes: Path, tmp_path: Path) -> None:
    """The control: with the comparison taken out, an edit between load and write is overwritten, and the judge sees it."""
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "text": "old"})
    part = _part(notes)
    changes = {
        "storage/read": ("    return sorted(differing)", "    return [] and sorted(differing)"),
        "storage/commit_protocol": (
            "        if (None if before is None else journals.digest(before)) != change.old:\n"
            "            stale.append(change.path)\n        elif before",
            "        if before",
        ),
        "storage/journal": (
            '    if now == "third":\n        if not',
            '    if now == "third" and False:\n        if not',
        ),
    }
    _, err = start(BLIND, notes, part, sources=weakened(tmp_path / "weak", changes)).communicate(timeout=HANG_S)
    assert err == ""
    assert _texts(notes) == {"a": "old", "b": "write"}, "the edit should have been lost"
    _, err = start(BLIND, notes, part).communicate(timeout=HANG_S)
    assert _texts(notes) == {"a": "new", "b": "write"}, err
