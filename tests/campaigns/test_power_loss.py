"""A power cut after any call of a write, or of a kill and the recovery after it: exactly old or exactly new, whatever
the disk kept of what no fsync had covered. What was acknowledged is there.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.harness.campaign import Campaign
from tests.harness.faults.bases import NAMED, WRITES, Ground, Write
from tests.harness.faults.disk import Disk, Replay
from tests.harness.faults.hooks import CHANGES
from tests.harness.faults.judge import Judge, judge_of
from tests.harness.faults.run import Files, Zygote, name_of, taken

RECORD = {"keep": True}
ATOMIC = [write for write in WRITES if write.name != "init"]
"""What an init leaves half made is begun anew; its judge knows no power cut."""


def recorded(judge: Judge, files: Files, args: Sequence[str] = (), **plan: Any) -> tuple[list[dict[str, Any]], Files]:
    """The calls of the write, or of the command given, with their data; and what it left."""
    with judge.zygote.case(files) as folder:
        if args:
            ended = judge.zygote.run(folder, args, plan=RECORD | plan, role=2)
        else:
            ended = judge.write.run(judge.zygote, folder, plan=RECORD | plan, role=1)
        left = taken(folder)
    assert ended.died or ended.code == 0, ended
    return ended.record, left


def distinct(replay: Replay, campaign: Campaign, salt: str) -> list[tuple[int, str, Files]]:
    """The states that differ. What a cut at the end leaves comes first: whatever that is, the write was acknowledged."""
    met: set[tuple[str, bool]] = set()
    found = []
    for made, kept, files in replay.states(campaign.random(salt)):
        name = (name_of(files), made == len(replay.steps))
        if name not in met:
            met.add(name)
            found.append((made, kept, files))
    return found[::-1]


@pytest.mark.parametrize("write", ATOMIC, ids=lambda write: write.name.replace(" ", "-"))
def test_dk_15_a_power_cut_after_any_call_of_a_write_ends_all_old_or_all_new(
    write: Write, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    judge = judge_of(ground, zygote, write)
    record, after = recorded(judge, judge.files)
    replay = Replay(judge.files, record)
    seen, there = replay.at_last(), {path: data for path, (_, data) in after.items()}
    assert seen == there, "the model knows every call that changed a file"
    found = distinct(replay, campaign, write.name)
    ends = [state for state in found if state[0] == len(replay.steps)]
    chosen = found if campaign.full else campaign.random(f"cut/{write.name}").sample(found, 3) + ends[:1]
    for made, kept, files in chosen:
        try:
            side = judge.glance(files)
            assert side == "new" or made < len(replay.steps), "it was acknowledged"
        except AssertionError as problem:
            raise AssertionError(f"{kept}, after {made} of {len(replay.steps)} steps:\n{problem}") from problem
        campaign.count("power-loss states")


@pytest.mark.parametrize("name", ["put, several", "delete --cascade", "put, the first of a base", "dedupe"])
def test_dk_15_a_power_cut_in_the_recovery_after_a_kill_ends_all_old_or_all_new(
    name: str, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    """The kill leaves calls that no fsync has covered yet; the recovery must not count on them."""
    if not campaign.full and name != "delete --cascade":
        return
    judge = judge_of(ground, zygote, NAMED[name])
    changing = [call for call in judge.calls if call[0] in CHANGES]
    seal = next(at for at, (_, path) in enumerate(changing) if path.endswith("/journal"))
    deaths = [at for at in range(seal - 12, len(changing)) if at % 2 == seal % 2]
    for death in deaths if campaign.full else [seal + 4]:
        first, left = recorded(judge, judge.files, at=death, action="die")
        second, end = recorded(judge, left, ("recover",))
        replay = Replay(judge.files, [*first, *_shifted(second)])
        before = len(Replay(judge.files, first).steps)
        found = [state for state in distinct(replay, campaign, f"{name}/{death}") if state[0] >= before]
        for made, kept, files in found if campaign.full else campaign.random("recovery").sample(found, 6):
            try:
                side = judge.glance(files)
                assert made < len(replay.steps) or side == judge.side(end), "the recovery had said so"
            except AssertionError as problem:
                raise AssertionError(f"killed at {death}; {kept}, after {made} steps:\n{problem}") from problem
            campaign.count("power-loss states in recoveries")


def _shifted(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The open files of another process are others."""
    return [{**call, "handle": call["handle"] + 1_000_000} if "handle" in call else call for call in record]


@pytest.mark.parametrize("name", ["put, several", "delete --cascade", "index build, the first"])
def test_without_fsync_power_cuts_leave_bad_states(
    name: str, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    """Negative control: the same calls, as if no fsync had been made."""
    if not campaign.full and name != "delete --cascade":
        return
    judge = judge_of(ground, zygote, NAMED[name])
    record, _ = recorded(judge, judge.files)
    replay = Replay(judge.files, record, with_fsync=False)
    found = distinct(replay, campaign, "control")
    chosen = campaign.random("control").sample(found, min(len(found), campaign.pick(12, 300)))
    bad = 0
    for made, _, files in chosen:
        try:
            bad += judge.glance(files) == "old" and made == len(replay.steps)
        except AssertionError:
            bad += 1
    assert bad > len(chosen) // 5
    campaign.count("power-loss states without fsync", len(chosen))
    campaign.count("power-loss states that were bad without fsync", bad)


def test_the_model_keeps_what_an_fsync_covers_and_may_lose_the_rest(campaign: Campaign) -> None:
    before: Files = {"d": (0o755, None), "d/a": (0o644, b"old")}
    record: list[dict[str, Any]] = [
        {"op": "open", "path": "d/b", "handle": 1, "create": True, "cut": False},
        {"op": "write", "handle": 1, "at": 0, "data": "bmV3IQ=="},
        {"op": "fsync", "handle": 1},
        {"op": "rename", "path": "d/b", "to": "d/a"},
    ]
    contents = {_read(files) for _, _, files in Replay(before, record).states(campaign.random())}
    assert contents == {b"old", b"new!"}
    bare = {_read(files) for _, _, files in Replay(before, record, with_fsync=False).states(campaign.random())}
    assert bare == {b"old", b"new!", b"", b"ne", b"\0\0\0\0"}
    assert Disk.of(before).files() == before


def _read(files: Files) -> bytes | None:
    return files["d/a"][1]
