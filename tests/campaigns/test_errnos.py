"""A call that fails, at any step of any write: exit 1 with one JSON error, files as they were (or, once the write is
committed, as they are to be, and the error says so), memory too, and the next run does what this one could not.
"""

import errno
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.campaign import Campaign
from tests.harness.faults.bases import NAMED, WRITES, Ground, Write
from tests.harness.faults.hooks import CHANGES, LOOKS
from tests.harness.faults.judge import judge_of
from tests.harness.faults.run import Ended, Zygote, taken

KINDS = (*CHANGES, *LOOKS)


@dataclass(frozen=True)
class Fault:
    """An error, the kinds of calls that can meet it, and those that go on meeting it where it lasts."""

    error: int
    kinds: tuple[str, ...]
    lasting: tuple[str, ...]

    @property
    def name(self) -> str:
        return errno.errorcode[self.error]


# A folder that cannot be removed just this once stays, empty; git knows no empty folders, and a journal that waited for
# it might wait for ever.
FAULTS = (
    Fault(errno.ENOSPC, ("create", "write", "fsync", "mkdir", "link", "rename"), ("create", "write", "mkdir", "link")),
    Fault(errno.EIO, ("write", "fsync", "rename", "unlink", "open", "read", "list"), ("write", "fsync")),
    Fault(errno.EACCES, ("create", "rename", "unlink", "mkdir", "open", "list"), ("create", "rename", "mkdir")),
    Fault(errno.EROFS, tuple(kind for kind in CHANGES if kind != "rmdir"), CHANGES),
    Fault(errno.EXDEV, ("rename", "link"), ("rename", "link")),
    Fault(errno.EMFILE, ("create", "open", "list"), ("create", "open", "list")),
)
EXPECTED = {"E_IO", "E_READ_ONLY", "E_UNREADABLE"}


def cases(campaign: Campaign, calls: list[list[str]], salt: str, most: int) -> list[tuple[Fault, int, bool]]:
    """Calls, each with an error that it can meet, once or for good: all that change a file, the third part of those that
    only look; as many of them as there may be."""
    found = []
    rng = campaign.random(salt)
    for at, (kind, path) in enumerate(calls):
        for fault in FAULTS:
            if kind in fault.kinds and (kind in CHANGES or ".duckkb/txn" in path or rng.random() < 0.34):
                found += [(fault, at, lasts) for lasts in (False, True)]
    return rng.sample(found, min(len(found), most))


def failing(fault: Fault, at: int, lasts: bool) -> dict[str, Any]:
    return {
        "at": at,
        "action": "fail",
        "error": fault.error,
        "kinds": KINDS,
        "lasting": fault.lasting if lasts else (),
    }


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name.replace(" ", "-"))
def test_dk_16_an_error_at_any_call_leaves_all_old_or_says_that_it_is_committed(
    write: Write, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    judge = judge_of(ground, zygote, write)
    wrong = []
    for fault, at, lasts in cases(campaign, judge.calls, write.name, campaign.pick(5, 330)):
        plan = failing(fault, at, lasts)
        with zygote.case(judge.files) as folder:
            args = ("--json", *write.args)
            ended = zygote.run(folder, args, stdin=write.stdin, env=dict(write.env), plan=plan, role=1)
            left = taken(folder)
        told = f"{fault.name} at {at} {judge.calls[at]} {'for good' if lasts else 'once'}"
        try:
            side = judge.side(left) if not _is_committed(ended) else "new"
            assert side == judged_by_its_words(ended), (side, ended)
            assert judge.verdict(left) == side
        except AssertionError as problem:
            wrong.append(f"{told}: {ended.code} {ended.err}\n{problem}")
        campaign.count(f"injected errors: {fault.name}", bool(ended.failed))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:8])


@pytest.mark.parametrize("name", ["delete --cascade", "put, the first of a base", "dedupe", "index build, a change"])
def test_dk_16_an_error_at_any_call_of_a_recovery_leaves_it_to_the_next(
    name: str, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    """By `recover`, by a reader, and by `recover --abort`, which may fail before it has turned back or after."""
    if not campaign.full and name != "delete --cascade":
        return
    judge = judge_of(ground, zygote, NAMED[name])
    changing = [call for call in judge.calls if call[0] in CHANGES]
    seal = next(at for at, (_, path) in enumerate(changing) if path.endswith("/journal"))
    for death in (seal, seal + 1, seal + 5, len(changing) - 3) if campaign.full else (seal, seal + 5):
        with zygote.case(judge.files) as folder:
            judge.write.run(zygote, folder, plan={"at": death, "action": "die"}, role=1)
            start = taken(folder)
        for command in (["recover"], ["recover", "--abort"], ["--json", "list", "Note"]):
            with zygote.case(start) as folder:
                calls = zygote.run(folder, command, plan={"kinds": KINDS}, role=2).calls
            sides = {judge.verdict(start), *(["old"] if "--abort" in command else [])}
            for fault, at, lasts in cases(campaign, calls, f"{name}/{death}/{command}", campaign.pick(4, 80)):
                with zygote.case(start) as folder:
                    ended = zygote.run(folder, ["--json", *command], plan=failing(fault, at, lasts), role=2)
                    left = taken(folder)
                told = f"{fault.name} at {at} {calls[at]} of {command} {'for good' if lasts else 'once'}: {ended.err}"
                assert ended.code == 0 or "config.yaml" in ended.err or ended.error["code"] in EXPECTED, told
                try:
                    assert judge.verdict(left) in sides
                except AssertionError as problem:
                    raise AssertionError(f"{told}\n{problem}") from problem
                campaign.count("injected errors in recoveries", bool(ended.failed))


def judged_by_its_words(ended: Ended) -> str:
    """ "old" or "new", as the exit code and the JSON error say it."""
    if ended.code == 0:
        assert ended.failed == 0 or ended.out, "what succeeded says so"
        return "new"
    error = ended.error
    assert {"error", "code", "suggestion"} <= error.keys()
    if ended.code == 2:  # a configuration that cannot be read counts as one that is wrong, with the file's name
        assert "config.yaml" in ended.err or "ontology" in ended.err, error
        return "old"
    assert ended.code == 1
    assert error["code"] in EXPECTED and error["suggestion"], error
    return "new" if _is_committed(ended) else "old"


def _is_committed(ended: Ended) -> bool:
    return ended.code == 1 and bool(ended.error.get("details", {}).get("committed"))


def test_dk_16_memory_follows_the_files_after_an_error_at_any_call_of_a_put(
    campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    """Through the Python API: truth, words and SQL agree after the failure, and the next put works."""
    files = ground.base("full")
    with zygote.case(files) as folder:
        whole = zygote.run(
            folder, [], session="put_fails_then_works", plan={"kinds": KINDS}, env={"DUCKKB_WRITER": "x"}
        )
    calls = whole.calls
    assert len(calls) > 60, whole
    found = [
        (fault, at, lasts)
        for at, (kind, _) in enumerate(calls)
        for fault in FAULTS
        if kind in fault.kinds
        for lasts in (False, True)
    ]
    for fault, at, lasts in campaign.random("memory").sample(found, campaign.pick(12, 250)):
        plan = failing(fault, at, lasts)
        with zygote.case(files) as folder:
            ended = zygote.run(
                folder, [], session="put_fails_then_works", plan=plan, role=1, env={"DUCKKB_WRITER": "x"}
            )
        told = f"{fault.name} at {at} {calls[at]} {'for good' if lasts else 'once'}: {ended.err}"
        assert ended.out, told
        said = json.loads(ended.out)
        before, after = said["before"], said["after"]
        done = [{"a": "omega", "zz": "omega"}, ["a", "zz"], ["a", "zz"]]
        committed = said.get("committed") or "error" not in said
        assert said.get("error", "E_IO") in EXPECTED, (told, said)
        assert after == (done if committed else before), (told, said)
        assert said["at last"] == done, (told, said)
        assert said["receipt"] == (0 if committed else 1), (told, said)
        assert (said["again"], said["check"]) == (2, 0), (told, said)
        campaign.count("injected errors: in an open base", bool(said["failed"]))


def test_the_campaign_notices_a_write_that_is_not_atomic(zygote: Zygote, ground: Ground) -> None:
    """Negative control: the commit replaced by one that writes in place, on a disk that fills up."""
    write = NAMED["delete --cascade"]
    judge = judge_of(ground, zygote, write)
    with zygote.case(judge.files) as folder:
        calls = write.run(zygote, folder, plan={}, role=1, weak="in place").calls
    data = [
        at for at, call in enumerate(call for call in calls if call[0] in CHANGES) if call[1].startswith("kb/data/")
    ]
    bad = 0
    for at in data[1:]:
        plan = {"at": at, "action": "fail", "error": errno.ENOSPC, "lasting": ("create", "write")}
        with zygote.case(judge.files) as folder:
            write.run(zygote, folder, plan=plan, role=1, weak="in place")
            left = taken(folder)
        try:
            judge.side(left)
        except AssertionError:
            bad += 1
    assert bad > 1
