"""What the campaigns of faults found, one fixed case each."""

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.harness.faults.bases import NAMED, Ground
from tests.harness.faults.hooks import CHANGES, LOOKS
from tests.harness.faults.judge import Judge, judge_of
from tests.harness.faults.run import Ended, Files, Zygote, left_over, taken, truth

KINDS = (*CHANGES, *LOOKS)


def failing(at: int, error: int, lasting: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"at": at, "action": "fail", "error": error, "kinds": KINDS, "lasting": lasting}


def first(calls: list[list[str]], kind: str, end: str) -> int:
    return next(at for at, (is_kind, path) in enumerate(calls) if is_kind == kind and path.endswith(end))


@pytest.fixture(scope="module")
def judge(zygote: Zygote, ground: Ground) -> Judge:
    return judge_of(ground, zygote, NAMED["delete --cascade"])


@pytest.fixture(scope="module")
def sealed(judge: Judge) -> Files:
    """The base of a write that died with its first target replaced."""
    changing = [call for call in judge.calls if call[0] in CHANGES]
    seal = first(changing, "rename", "/journal")
    with judge.zygote.case(judge.files) as folder:
        judge.write.run(judge.zygote, folder, plan={"at": seal + 5, "action": "die"}, role=1)
        left = taken(folder)
    assert truth(left) not in (judge.old.truth, judge.new.truth), "half of it is done"
    return left


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", ["open", "read"])
@pytest.mark.parametrize("command", [["recover"], ["list", "Note"], ["recover", "--abort"], ["recover", "--show"]])
def test_a_journal_that_cannot_be_read_now_is_not_torn(
    judge: Judge, sealed: Files, command: list[str], kind: str, error: int
) -> None:
    """It was taken for torn: the stage was discarded, and half of the write stayed."""
    with judge.zygote.case(sealed) as folder:
        calls = judge.zygote.run(folder, command, plan={"kinds": KINDS}).calls
    with judge.zygote.case(sealed) as folder:
        plan = failing(first(calls, kind, "/journal"), error)
        ended = judge.zygote.run(folder, ["--json", *command], plan=plan)
        assert (ended.code, ended.error["code"]) in ((1, "E_IO"), (1, "E_READ_ONLY"))
        assert truth(taken(folder)) == truth(sealed)
        assert judge.zygote.run(folder, ["recover"]).code == 0
        assert truth(taken(folder)) == judge.new.truth
        assert left_over(folder) == []


def test_a_file_that_is_not_there_and_cannot_be_looked_for_is_no_foreign_thing(zygote: Zygote, ground: Ground) -> None:
    """Out of descriptors was told as a target that is no regular file, to be moved away."""
    judge = judge_of(ground, zygote, NAMED["put, the first of a base"])
    plan = failing(first(judge_calls(judge), "open", ".jsonl"), errno.EMFILE)
    with zygote.case(judge.files) as folder:
        ended = judge.zygote.run(folder, ["--json", *judge.write.args], plan=plan)
    assert (ended.code, ended.error["code"]) == (1, "E_IO")


def judge_calls(judge: Judge) -> list[list[str]]:
    with judge.zygote.case(judge.files) as folder:
        done: Ended = judge.write.run(judge.zygote, folder, plan={"kinds": KINDS}, role=1)
    return done.calls


def test_a_reader_that_cannot_open_the_lock_for_want_of_descriptors_does_not_read_without_it(judge: Judge) -> None:
    with judge.zygote.case(judge.after) as folder:
        calls = judge.zygote.run(folder, ["list", "Note"], plan={"kinds": KINDS}).calls
        plan = failing(first(calls, "create", ".duckkb/lock"), errno.EMFILE, ("create", "open"))
        ended = judge.zygote.run(folder, ["--json", "list", "Note"], plan=plan)
    assert (ended.code, ended.error["code"], ended.out) == (1, "E_IO", "")


@pytest.mark.parametrize("file", [".git/index", ".git/HEAD"])
def test_git_files_that_cannot_be_read_now_do_not_count_as_absent(judge: Judge, file: str) -> None:
    """The guard against a tracked .duckkb stood open, and new records went to the part of another branch."""
    write = NAMED["put, one insert"]
    with judge.zygote.case(judge.files) as folder:
        calls = judge.zygote.run(folder, write.args, plan={"kinds": KINDS}).calls
    with judge.zygote.case(judge.files) as folder:
        ended = judge.zygote.run(
            folder, ["--json", *write.args], plan=failing(first(calls, "open", file), errno.EMFILE)
        )
        assert (ended.code, ended.error["code"]) == (1, "E_IO")
        assert truth(taken(folder)) == truth(judge.files)


def test_index_build_asks_nothing_that_can_fail_behind_its_commit(zygote: Zygote, ground: Ground) -> None:
    """It said that it had failed, and had written."""
    write = NAMED["index build, the first"]
    judge = judge_of(ground, zygote, write)
    calls = judge_calls(judge)
    retired = max(at for at, (kind, _) in enumerate(calls) if kind == "rmdir")
    for at in range(retired, len(calls)):
        with zygote.case(judge.files) as folder:
            ended = zygote.run(folder, write.args, plan=failing(at, errno.EMFILE, ("open", "create", "list")))
            assert ended.code == 0, (calls[at], ended.err)


def test_an_init_that_dies_or_fails_is_begun_anew_by_the_next(zygote: Zygote, ground: Ground) -> None:
    """config.yaml was written first: what was missing beside it never came, as init then said that it exists already."""
    judge = judge_of(ground, zygote, NAMED["init"])
    changing = [call for call in judge.calls if call[0] in CHANGES]
    for at, (kind, path) in enumerate(changing):
        with zygote.case(judge.files) as folder:
            zygote.run(folder, ["init"], plan={"at": at, "action": "tear"})
            half = truth(taken(folder))
            if "config.yaml" not in half:
                assert zygote.run(folder, ["init"]).code == 0, (kind, path)
            assert truth(taken(folder)) == judge.new.truth, (kind, path)


def test_a_draft_of_the_clone_id_does_not_outlive_the_next_write(judge: Judge) -> None:
    with judge.zygote.case(judge.files) as folder:
        state = folder / "kb" / ".duckkb"
        (state / ".clone_id.0123456789ab.tmp").write_bytes(b"half")
        assert judge.write.run(judge.zygote, folder).code == 0
        assert left_over(folder) == []


def test_local_state_whose_folder_was_made_by_a_process_that_died_is_made_durable(judge: Judge) -> None:
    """A sealed journal in a folder whose name a power cut takes away seals nothing."""
    files = {path: kept for path, kept in judge.files.items() if not path.startswith("kb/.duckkb/")}
    with judge.zygote.case(files) as folder:
        assert (folder / "kb" / ".duckkb").is_dir()
        calls = judge.write.run(judge.zygote, folder, plan={}).calls
    seal = first(calls, "rename", "/journal")
    assert ["fsync", "kb"] in calls[:seal]


def test_a_folder_that_cannot_be_listed_is_told_with_a_remedy(judge: Judge) -> None:
    for path in (".", "data", "data/nodes/note"):
        with judge.zygote.case(judge.files) as folder:
            calls = judge.zygote.run(folder, ["list", "Note"], plan={"kinds": KINDS}).calls
            at = first(calls, "list", str(Path("kb") / path))
            ended = judge.zygote.run(folder, ["--json", "list", "Note"], plan=failing(at, errno.EMFILE))
        assert (ended.code, ended.error["code"]) == (1, "E_IO")
        assert ended.error["suggestion"]
