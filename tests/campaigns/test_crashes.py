"""A process that dies at any call that changes a file, in a write or in the recovery after it, loses and leaves nothing.

Every distinct state that deaths can bring about is judged: those of the write, those of the recovery from each of them,
those of the recovery from these, until no new one appears.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.harness.campaign import Campaign
from tests.harness.faults.bases import NAMED, WRITES, Ground, Write
from tests.harness.faults.hooks import CHANGES
from tests.harness.faults.judge import Judge, judge_of
from tests.harness.faults.run import Files, Zygote, name_of, taken

every_write = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name.replace(" ", "-"))


def points(campaign: Campaign, calls: Sequence[Sequence[str]], short: int) -> list[int]:
    """The calls to die at: all; in the short part the first, the last, those around the seal, and others by chance."""
    changing = [call for call in calls if call[0] in CHANGES]
    everything = list(range(len(changing) + 1))
    if campaign.full:
        return everything
    seal = [at for at, (_, path) in enumerate(changing) if path.endswith("/journal")]
    near = {max(0, seal[0] + offset) for offset in (0, 1)} if seal else set()
    chosen = near | {0} if short > 2 else near
    rest = sorted(set(everything) - chosen)
    return sorted(chosen | set(campaign.random("points").sample(rest, min(len(rest), max(0, short - len(chosen))))))


def killed(judge: Judge, files: Files, at: int, action: str = "die", args: Sequence[str] = ()) -> tuple[bool, Files]:
    """Run the write, or the command given, and let it die at a call; whether it did, and what it left."""
    plan = {"at": at, "action": action}
    with judge.zygote.case(files) as folder:
        if args:
            ended = judge.zygote.run(folder, args, plan=plan, role=2)
        else:
            ended = judge.write.run(judge.zygote, folder, plan=plan, role=1)
        left = taken(folder)
    assert ended.died or ended.code == 0, ended
    if not args and ended.out:  # what was acknowledged is there
        assert judge.side(left) == "new", ended
    return ended.died, left


@every_write
def test_dk_15_death_at_any_call_of_a_write_ends_all_old_or_all_new(
    write: Write, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    judge = judge_of(ground, zygote, write)
    sides, known = [], len(judge.verdicts)
    for action in ("die", "tear") if campaign.full else ("tear",):
        for at in points(campaign, judge.calls, 2):
            died, left = killed(judge, judge.files, at, action)
            sides.append(judge.verdict(left))
            campaign.count("crash points in writes" if action == "die" else "torn writes", died)
    campaign.count("distinct states after crashes in writes", len(judge.verdicts) - known)
    if campaign.full:
        assert sides[0] == "old"
        assert sides[-1] == "new"
        turns = sum(one != other for one, other in pairwise(sides))
        assert turns <= 3, "old, then new, for each of the two actions"


@every_write
def test_dk_15_death_at_any_call_of_any_recovery_changes_nothing_about_the_end(
    write: Write, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    judge = judge_of(ground, zygote, write)
    if not campaign.full and write.name not in ("delete --cascade", "put, the first of a base"):
        return
    waiting: deque[Files] = deque()
    met: set[str] = set()
    for at in points(campaign, judge.calls, 2):
        _, left = killed(judge, judge.files, at)
        judge.verdict(left)
        if stages(left) and name_of(left) not in met:
            met.add(name_of(left))
            waiting.append(left)
    first = len(judge.verdicts)
    while waiting:
        start = waiting.popleft()
        expected = judge.verdict(start)
        for at in recovery_points(campaign, judge, start):
            died, left = killed(judge, start, at, "tear", ("recover",))
            assert judge.verdict(left) == expected, "a recovery that died changed the end"
            campaign.count("crash points in recoveries", died)
            if campaign.full and stages(left) and name_of(left) not in met:
                met.add(name_of(left))
                waiting.append(left)
    campaign.count("distinct states after crashes in recoveries", len(judge.verdicts) - first)


def recovery_points(campaign: Campaign, judge: Judge, start: Files) -> list[int]:
    with judge.zygote.case(start) as folder:
        calls = judge.zygote.run(folder, ["recover"], plan={}, role=2).calls
    return points(campaign, calls, 3)


def stages(files: Files) -> list[str]:
    """The writes under way in a state."""
    return [path for path in files if path.startswith("kb/.duckkb/txn/") and path.count("/") == 3]


@pytest.mark.parametrize("name", ["put, several", "delete --cascade", "rename", "fmt", "index build, a change"])
def test_dk_15_an_abort_or_a_forward_that_dies_ends_old_or_new(
    name: str, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    """From each sealed state; `--abort` that has turned back ends old even if it dies, `--forward` always ends new."""
    judge = judge_of(ground, zygote, NAMED[name])
    if not campaign.full and name != "rename":
        return
    sealed = {}
    for at in points(campaign, judge.calls, 2):
        _, left = killed(judge, judge.files, at)
        if any(path.endswith("/journal") for path in left):
            sealed[at] = left
    for start in list(sealed.values())[: campaign.pick(1, len(sealed))]:
        for decision in ("--abort", "--forward"):
            with zygote.case(start) as folder:
                done = zygote.run(folder, ["recover", decision], plan={}, role=2)
                assert done.code == 0
                assert judge.verdict(taken(folder)) == ("old" if decision == "--abort" else "new")
            for at in points(campaign, done.calls, 3):
                died, left = killed(judge, start, at, "tear", ("recover", decision))
                turned = decision == "--abort" and not any(path.endswith("/journal") for path in left)
                assert judge.verdict(left) == ("old" if turned else "new")
                campaign.count("crash points in recoveries", died)


def test_the_campaign_notices_a_write_that_is_not_atomic(campaign: Campaign, zygote: Zygote, ground: Ground) -> None:
    """Negative control: the commit replaced by one that writes in place."""
    judge = judge_of(ground, zygote, NAMED["delete --cascade"])
    bad = 0
    for at in range(4, len(judge.calls), campaign.pick(3, 1)):
        with zygote.case(judge.files) as folder:
            ended = judge.write.run(zygote, folder, plan={"at": at, "action": "tear"}, role=1, weak="in place")
            left = taken(folder)
        if not ended.died:
            break
        try:
            judge.verdict(left)
        except AssertionError:
            bad += 1
    assert bad > campaign.pick(1, 3)


def test_the_campaign_notices_a_recovery_that_forgets_the_journal(zygote: Zygote, ground: Ground) -> None:
    """Negative control: a sealed write is taken for one that was never sealed."""
    judge = judge_of(ground, zygote, NAMED["delete --cascade"])
    changing = [call for call in judge.calls if call[0] in CHANGES]
    seal = next(at for at, (_, path) in enumerate(changing) if path.endswith("/journal"))
    bad = 0
    for at in range(seal + 1, seal + 8):
        _, start = killed(judge, judge.files, at)
        with zygote.case(start) as folder:
            zygote.run(folder, ["recover"], weak="no journal")
            left = taken(folder)
        try:
            judge.verdict(left)
        except AssertionError:
            bad += 1
    assert bad > 1
