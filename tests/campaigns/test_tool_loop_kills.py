"""kill -9 at every write of a harness: a call that needed approval is executed never or once, whoever resumes it and how often.

Real processes resume a run until it is through, alone or two at once; each may be killed before, within or behind any of its writes and
syncs, and just before and behind what the tool does. What was executed is counted by files that the tools append to, which the harness
knows nothing of.
"""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any, NoReturn

import pytest

from duckkb import locks
from duckkb.llm.loop import Harness, Ticket, Tool, ToolContext, ToolLoop
from duckkb.types.chat_messages import ChatEvent, ChatRequest, ContentDelta, Finish, Message, ToolCallDone, Usage
from duckkb.types.errors import DuckkbError
from duckkb.types.settings import ChatModelSettings
from tests.fakes import calling
from tests.harness.campaign import Campaign

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
ASKED = (Message("user", "pay, delete, and look"),)
CALLS = [calling("pay", "p", sum=5), calling("look", "l"), calling("delete", "d", id=7), calling("upsert", "u", id=7)]
ONCE = {"p": "pay", "d": "delete", "l": "look"}
_CODE_REFUSED = 3
Plan = tuple[int, str]
WRITES = 30
"""More than one process writes, syncs and does."""
LIVES: Plan = (0, "")
"""A process that is not killed."""


class Deciding:
    """A model that calls everything first, and answers once it has been told of it: any process may ask it."""

    settings = ChatModelSettings("deciding", ())

    def stream(self, request: ChatRequest, cancel: Event | None = None) -> Iterator[ChatEvent]:
        if any(one.tool_calls for one in request.messages):
            yield ContentDelta("done")
            yield Finish("stop", Usage(1, 1, 2), "p")
        else:
            yield from map(ToolCallDone, CALLS)
            yield Finish("tool_calls", Usage(1, 1, 2), "p")


class Steps:
    """What a process does to files, counted; at the step `last` it dies: before it, within it, or behind it."""

    def __init__(self, last: int, moment: str) -> None:
        self._last, self._moment, self._done, self._lock = last, moment, 0, Lock()
        self._write, self._fsync, self._truncate = os.write, os.fsync, os.ftruncate

    def install(self) -> None:
        """In a forked child: nothing but the moment of its death is changed."""
        os.write = lambda descriptor, data: self.step(
            lambda part: self._write(descriptor, data[: part or len(data)]), len(data)
        )
        os.fsync = lambda descriptor: self.step(lambda part: self._fsync(descriptor))
        os.ftruncate = lambda descriptor, size: self.step(lambda part: self._truncate(descriptor, size))

    def step(self, act: Callable[[int], Any], size: int = 0) -> Any:
        with self._lock:  # one thread at a time, so that no other acts once this one is to die
            self._done += 1
            if self._done != self._last:
                return act(0)
            if self._moment == "within":
                act(size // 2)
            elif self._moment == "behind":
                act(0)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("it is dead")

    def effect(self, path: Path, text: str) -> None:
        """What a tool does, whole or not at all; one may die just before it and just behind it."""

        def act(part: int) -> None:
            if not part:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._write(descriptor, text.encode() + b"\n")
                os.close(descriptor)

        self.step(act, 2)


def tools(folder: Path, steps: Steps) -> tuple[Tool, ...]:
    def execute(args: Mapping[str, Any], context: ToolContext, name: str) -> str:
        steps.effect(folder / f"{name}.effects", context.key)
        return "did it"

    def made(name: str, **more: Any) -> Tool:
        return Tool(name, name, {"type": "object"}, lambda args, context: execute(args, context, name), **more)

    def ticket(args: Mapping[str, Any], context: ToolContext) -> Ticket:
        return Ticket(f"ticket-{context.call_id}")

    return (
        made("pay", create_ticket=ticket), made("look"), made("delete", create_ticket=ticket),
        made("upsert", create_ticket=ticket, idempotent=True),
    )  # fmt: skip


def live(folder: Path, steps: Steps, weaken: Callable[[], None]) -> NoReturn:
    """In a child: begin the run, or go on with it and approve whatever waits."""
    code = 1
    try:
        weaken()
        steps.install()
        with Harness.open(folder / "harness.jsonl", wait_s=60) as harness:
            loop = ToolLoop(Deciding(), tools(folder, steps))
            yes = [one.approve() for one in harness.pending]
            loop.run(None if harness.messages else ASKED, harness, yes)
        code = 0
    except DuckkbError:
        code = _CODE_REFUSED
    finally:
        os._exit(code)


def spawn(folder: Path, steps: Steps, weaken: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        live(folder, steps, weaken)
    return pid


def ended(pid: int) -> int:
    """0, a code, or the signal that killed it, less than 0."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class ExecutedTwice(AssertionError):
    """What must never be."""


def refuse_twice(folder: Path) -> None:
    done = effects(folder)
    if any(len(done[name]) > 1 for name in ONCE.values()):
        raise ExecutedTwice(str(done))


def effects(folder: Path) -> dict[str, list[str]]:
    names = ("pay", "look", "delete", "upsert")
    paths = {name: folder / f"{name}.effects" for name in names}
    return {name: path.read_text().splitlines() if path.exists() else [] for name, path in paths.items()}


def is_through(folder: Path) -> bool:
    path = folder / "harness.jsonl"
    messages = Harness.read(path).messages if path.exists() else ()
    return bool(messages) and messages[-1].content == "done"


def judge(folder: Path, kills: int) -> Counter[str]:
    """What became of the calls of a run that is through, from the lines of its file, read by nothing of ours."""
    found, done = Counter[str](), effects(folder)
    lines = [json.loads(line) for line in (folder / "harness.jsonl").read_bytes().splitlines()]
    records = [line for line in lines if line["line"] == "record"]
    assert len({one["id"] for one in records}) == len(records), "a call has one record"
    told = {one["call_id"]: one for one in records if one["turn"] == 1}
    assert sorted(told) == ["d", "l", "p", "u"], "and each has its own"
    for call_id, name in ONCE.items():
        times, record = len(done[name]), told[call_id]
        assert times <= 1
        if record["status"] == "success":
            assert times == 1, f"{name} is said to be done, and is not"
            found["executed once, and said so"] += 1
        elif "may have been" in record["error"]:
            assert kills, "nobody was killed"
            found[f"unclear, and executed {'once' if times else 'never'}"] += 1
        else:
            assert kills and times == 0, f"{name} is said not to be done: {record}"
            found["not executed, and said so"] += 1
    assert len(set(done["upsert"])) <= 1, "always with the same key"
    assert told["u"]["status"] != "success" or done["upsert"]
    found["executed again under its key"] += max(0, len(done["upsert"]) - 1)
    return found


def lifetime(folder: Path, plans: Iterable[Sequence[Plan]], weaken: Callable[[], None]) -> Counter[str]:
    """Processes until the run is through, one after another or at once, as planned, and at last such as are not killed."""
    folder.mkdir()
    kills = 0
    for plan in (*plans, [LIVES], [LIVES, LIVES], [LIVES]):
        codes = [ended(pid) for pid in [spawn(folder, Steps(*one), weaken) for one in plan]]
        assert set(codes) <= {0, -signal.SIGKILL}, codes
        kills += codes.count(-signal.SIGKILL)
        refuse_twice(folder)
    assert is_through(folder)
    return judge(folder, kills) + Counter({"processes killed": kills, "runs": 1})


def _by_chance(rng: random.Random) -> list[list[Plan]]:
    return [[_plan(rng) for _ in range(rng.choice((1, 1, 2)))] for _ in range(rng.randrange(0, 4))]


def _plan(rng: random.Random) -> Plan:
    return rng.randrange(1, WRITES), rng.choice(("before", "within", "behind"))


def test_a_call_is_executed_never_or_once_wherever_its_process_is_killed(tmp_path: Path, campaign: Campaign) -> None:
    rng, figures = campaign.random("kills"), Counter[str]()
    for number in range(campaign.pick(40, 500)):
        first = [[LIVES]] if number % 2 else []  # every other run waits for approvals before anybody dies
        dies = 1 + number // 2 * campaign.pick(5, 1) % WRITES, ("before", "within", "behind")[number // 2 // WRITES % 3]
        figures += lifetime(tmp_path / str(number), [*first, [dies], *_by_chance(rng)], lambda: None)
    for name, count in figures.items():
        campaign.count(f"tool loop: {name}", count)
    assert figures["processes killed"] >= figures["runs"] // 2
    assert figures["executed once, and said so"] and figures["unclear, and executed once"]
    assert figures["not executed, and said so"] and figures["executed again under its key"]


def _not_written_down() -> None:
    Harness.begin = lambda self, begun, again=False: None  # type: ignore[method-assign]  # broken on purpose: a control


def _no_lock() -> None:
    locks.try_lock = lambda descriptor, exclusive: True


@pytest.mark.parametrize("weaken", [_not_written_down, _no_lock])
def test_a_loop_without_its_protection_is_caught(
    tmp_path: Path, campaign: Campaign, weaken: Callable[[], None]
) -> None:
    """The controls: nothing is written down before a tool is executed; nobody is kept from going on with another's run."""
    rng = campaign.random("control")
    for number in range(120):
        second = [_plan(rng)] if weaken is _not_written_down else [LIVES, LIVES]
        try:
            lifetime(tmp_path / str(number), [[LIVES], second], weaken)
        except ExecutedTwice:
            return
        except AssertionError:
            pass  # the file is damaged, or says what is not so: that is noticed as well, and is not what is looked for
    raise AssertionError("120 runs without protection, and nothing was noticed")


def test_the_campaign_kills_at_every_write(tmp_path: Path) -> None:
    """A process that begins a run, and one that goes on with it, die at each step up to the last one, and at none behind it."""
    steps = {}
    for phase, first in enumerate(([], [[LIVES]])):
        for step in range(1, WRITES + 2):
            folder = tmp_path / f"{phase}-{step}"
            folder.mkdir()
            for (plan,) in (*first, [(step, "before")]):
                code = ended(spawn(folder, Steps(*plan), lambda: None))
            steps[phase, step] = code
    killed = [{step for (phase, step), code in steps.items() if phase == at and code < 0} for at in (0, 1)]
    assert all(some == set(range(1, len(some) + 1)) and 10 < len(some) <= WRITES for some in killed), killed
