"""The snapshot under `.duckkb/` is derived: a process that dies or fails at any call that changes it costs no answer, no
record and no later command.
"""

import errno
from dataclasses import dataclass
from typing import Any

import pytest

from tests.campaigns.snapshot_ground import SNAPSHOT, Place, ids, lines, note
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.faults.hooks import CHANGES, LOOKS
from tests.harness.faults.run import Ended


@dataclass(frozen=True)
class Op:
    """A command. `stale`: what it finds of the snapshot, which is `current`, `behind` the files, or `none`."""

    name: str
    args: tuple[str, ...]
    stdin: str = ""
    stale: tuple[str, ...] = ("behind", "none")


WITH_IDS = ("--fields", "+__id")
OPS = (
    Op("find by words", ("find", "Note", "common", "-l", "100", *WITH_IDS)),
    Op("find by vector", ("find", "vecs", "--vector", "-", *WITH_IDS), "[1, 2, 3]"),
    Op("find by filter", ("find", "Note", "-w", "size > 30", "-l", "100", *WITH_IDS)),
    Op("find edges", ("find", "cites", "-w", "from_id > 0", "-l", "100", *WITH_IDS)),
    Op("put", ("put", "Note", "-"), lines([note("put", 77, "fresh"), note("n3", 78)]), ("current", "behind", "none")),
    Op("delete", ("delete", "Note", "n30"), stale=("current", "behind", "none")),
    Op("index build", ("index", "build"), stale=("none", "behind")),
)
CASES = [(op, stale) for op in OPS for stale in op.stale]
every_case = pytest.mark.parametrize(
    ("op", "stale"), CASES, ids=[f"{op.name} {stale}".replace(" ", "-") for op, stale in CASES]
)


def is_left_out(campaign: Campaign, salt: str, case: tuple[Op, str], most: int) -> bool:
    """Whether a short campaign passes over a case."""
    return not campaign.full and CASES.index(case) not in campaign.random(salt).sample(range(len(CASES)), most)


def begin(place: Place, stale: str) -> None:
    """Bring the base to where a case begins."""
    place.turn()
    if stale == "none":
        place.drop()
    if stale == "current":
        place.judge("before")


def calls_of(place: Place, op: Op, stale: str, kinds: tuple[str, ...]) -> list[list[str]]:
    """The calls on the snapshot's files that a command makes where nothing is in its way."""
    begin(place, stale)
    done = place.run(op.args, op.stdin, plan={"kinds": kinds})
    assert done.code == 0, done
    place.judge(op.name)
    return [call for call in done.calls if call[0] in kinds and call[1].startswith(SNAPSHOT)]


def judge_truth(op: Op, before: dict[str, bytes], done: Ended, place: Place) -> None:
    """What was acknowledged is there, and finds leave everything as it was."""
    if op.args[0] == "find":
        assert oracle.tree(place.root) == before
    records = {found["id"]: found for found in oracle.records(place.root).values() if "id" in found}
    if op.name == "put" and done.out:
        assert (records["put"]["size"], records["n3"]["size"]) == (77, 78)
    if op.name == "delete" and done.out:
        assert "n30" not in records


@every_case
def test_death_at_any_call_that_changes_the_snapshot_changes_no_answer(
    op: Op, stale: str, campaign: Campaign, place: Place
) -> None:
    if is_left_out(campaign, "deaths", (op, stale), 5):
        return
    calls = calls_of(place, op, stale, CHANGES)
    points = range(len(calls))
    chosen = points if campaign.full else sorted(campaign.random(op.name + stale).sample(points, min(2, len(points))))
    for at in chosen:
        for action in ("die", "tear") if campaign.full else ("tear",):
            begin(place, stale)
            before = oracle.tree(place.root)
            done = place.run(op.args, op.stdin, plan={"at": at, "action": action, "under": SNAPSHOT})
            judge_truth(op, before, done, place)
            place.judge((op.name, stale, action, at, calls[at]))
            campaign.count("deaths at calls that change a snapshot", done.died)


ERRORS = {
    errno.ENOSPC: ("create", "write", "fsync", "mkdir", "rename"),
    errno.EIO: ("write", "fsync", "rename", "unlink", "open", "read", "list"),
    errno.EACCES: ("create", "rename", "unlink", "mkdir", "open", "list"),
    errno.EROFS: CHANGES,
    errno.EMFILE: ("create", "open", "list"),
}
KINDS = (*CHANGES, *LOOKS)


@every_case
def test_an_error_at_any_call_on_the_snapshot_changes_no_answer(
    op: Op, stale: str, campaign: Campaign, place: Place
) -> None:
    if is_left_out(campaign, "errors", (op, stale), 5):
        return
    calls = calls_of(place, op, stale, KINDS)
    found = [
        (error, at, lasts)
        for at, (kind, _) in enumerate(calls)
        for error, kinds in ERRORS.items()
        if kind in kinds
        for lasts in (False, True)
    ]
    rng = campaign.random(f"errors/{op.name}{stale}")
    for error, at, lasts in rng.sample(found, min(len(found), campaign.pick(2, 60))):
        begin(place, stale)
        before = oracle.tree(place.root)
        told = (op.name, stale, errno.errorcode[error], "for good" if lasts else "once", at, calls[at])
        plan: dict[str, Any] = {"at": at, "action": "fail", "error": error, "kinds": KINDS, "under": SNAPSHOT}
        done = place.run(op.args, op.stdin, plan=plan | {"lasting": ERRORS[error] if lasts else ()})
        assert done.code == 0, (told, done)
        if op.args[0] == "find":
            assert ids(done) == place.ids(op.args, op.stdin), told
        judge_truth(op, before, done, place)
        place.judge(told)
        campaign.count("errors at calls on a snapshot", bool(done.failed))


@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
def test_libraries_that_meet_a_full_disk_change_no_answer(dies: bool, campaign: Campaign, place: Place) -> None:
    """What Tantivy and Arrow write passes no hook: a limit on the size of files stands for the disk."""
    sizes = [*range(0, 1000, 40), *range(1000, 12000, 400)]
    for size in sizes if campaign.full else campaign.random(f"sizes {dies}").sample(sizes, 1):
        for stale in ("behind", "none"):
            begin(place, stale)
            found = place.answers(limits={"RLIMIT_FSIZE": [size, -1]}, dies_over=dies)
            if found is not None:
                place.compare(found, (size, stale))
            place.judge((size, stale))
            campaign.count("files of a snapshot over a limit")
