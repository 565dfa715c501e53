"""Calls that wait for approval, and the file of a harness: what is executed, how often, and what a restart finds (AX-05)."""

import json
import os
import re
import signal
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duckkb.llm.loop import (
    ApprovalNeeded,
    Decision,
    Harness,
    LoopEvent,
    LoopResult,
    Ticket,
    Tool,
    ToolContext,
    ToolLoop,
    ToolResult,
)
from duckkb.types.chat_messages import ChatRequest, ContentDelta, Finish, Message, ToolCall
from duckkb.types.errors import DuckkbError, StateError, Unavailable, UsageError
from tests.conftest import ROOT
from tests.fakes import ScriptedChat, calling
from tests.harness.waiting import HANG_S

ASKED = (Message("user", "delete the old ones"),)


class Desk:
    """A tool that needs approval and one that does not; `ran` are the executions of the first."""

    def __init__(self, **more: Any) -> None:
        self.ran: list[Any] = []
        self.keys: list[str] = []
        self.tickets = 0
        self.tool = Tool("delete", "deletes", {"type": "object"}, self._delete, create_ticket=self._ticket, **more)
        self.free = Tool("look", "looks", {"type": "object"}, lambda args, context: "seen")

    def _delete(self, args: Mapping[str, Any], context: ToolContext) -> str:
        self.ran.append(args["id"])
        self.keys.append(context.key)
        return f"deleted {args['id']}"

    def _ticket(self, args: Mapping[str, Any], context: ToolContext) -> Ticket:
        self.tickets += 1
        return Ticket(f"t-{args['id']}", args.get("harmless") is True)

    def loop(self, *script: Any) -> ToolLoop:
        return ToolLoop(ScriptedChat(*script), (self.tool, self.free))


def contents(result: LoopResult) -> dict[str, str]:
    return {str(one.tool_call_id): one.content for one in result.messages if one.role == "tool"}


def paused(desk: Desk, harness: Harness | None = None) -> LoopResult:
    """A run that waits for two approvals."""
    calls = [calling("delete", "a", id=1), calling("look", "b"), calling("delete", "c", id=2)]
    return desk.loop(calls).run(ASKED, harness)


def test_ax_05_what_needs_approval_waits_and_the_other_calls_run() -> None:
    desk, events = Desk(), list[LoopEvent]()
    calls = [calling("delete", "a", id=1), calling("look", "b"), calling("delete", "c", id=2)]
    result = desk.loop(calls).run(ASKED, on_event=events.append)
    assert (result.ended, result.content, desk.ran) == ("approval", None, [])
    assert [(one.ticket_id, one.call.tool, one.call.call_id, one.call.args) for one in result.pending_approval] == [
        ("t-1", "delete", "a", {"id": 1}), ("t-2", "delete", "c", {"id": 2}),
    ]  # fmt: skip
    assert [one.call.call_id for one in result.harness.records] == ["b"], "what waits has no record yet"
    said = contents(result)
    assert list(said) == ["a", "b", "c"] and said["b"] == "seen"
    assert json.loads(said["a"])["status"] == "pending_approval" and json.loads(said["a"])["ticket_id"] == "t-1"
    assert [one.pending.ticket_id for one in events if isinstance(one, ApprovalNeeded)] == ["t-1", "t-2"]


def test_ax_05_an_approved_ticket_executes_once_and_takes_the_place_of_what_held_it() -> None:
    desk = Desk()
    first = paused(desk)
    yes = [one.approve() for one in first.pending_approval]
    events: list[LoopEvent] = []
    done = desk.loop("both gone").run(first.messages, first.harness, yes, on_event=events.append)
    assert (done.ended, done.content, sorted(desk.ran)) == ("answered", "both gone", [1, 2])
    assert contents(done) == {"a": "deleted 1", "b": "seen", "c": "deleted 2"}
    assert [one.record.call.call_id for one in events if isinstance(one, ToolResult)] == ["a", "c"]
    assert desk.tickets == 2, "nobody is asked twice"
    for again in (first.messages, done.messages, None):
        desk.loop("still gone").run(again, first.harness, yes)
    assert sorted(desk.ran) == [1, 2], "resumed again, with old messages, new ones, or none"


def test_ax_05_one_of_two_is_decided_and_the_other_waits_on() -> None:
    desk = Desk()
    first = paused(desk)
    no_more = desk.loop()
    held = no_more.run(first.messages, first.harness)
    assert held.ended == "approval" and held.messages == first.messages and held.turns == 0
    half = no_more.run(first.messages, first.harness, [first.pending_approval[0].approve()])
    assert (half.ended, desk.ran, [one.ticket_id for one in half.pending_approval]) == ("approval", [1], ["t-2"])
    assert contents(half)["a"] == "deleted 1" and "pending" in contents(half)["c"]
    rest = desk.loop("done").run(half.messages, half.harness, [half.pending_approval[0].approve()])
    assert rest.ended == "answered" and desk.ran == [1, 2]


def test_ax_05_a_rejected_ticket_is_an_error_for_the_model_and_never_an_execution() -> None:
    desk = Desk()
    first = paused(desk)
    one, other = first.pending_approval
    done = desk.loop("kept").run(first.messages, first.harness, [one.reject("it is needed"), other.reject()])
    assert done.content == "kept" and desk.ran == []
    assert "rejected: it is needed" in contents(done)["a"] and "rejected" in contents(done)["c"]
    assert {one.call.call_id: one.status for one in done.harness.records} == {
        "a": "error",
        "b": "success",
        "c": "error",
    }
    late = desk.loop("kept").run(first.messages, first.harness, [one.approve(), other.approve()])
    assert desk.ran == [] and "rejected" in contents(late)["a"], "the first decision stands"


def test_ax_05_a_ticket_that_is_approved_already_executes_at_once_and_only_for_its_call() -> None:
    desk = Desk()
    harmless = [calling("delete", "a", id=1, harmless=True)]
    again = [calling("delete", "b", id=1, harmless=True), calling("delete", "c", id=1)]
    result = desk.loop(harmless, again, "done").run(ASKED)
    assert desk.ran == [1] and result.ended == "answered"
    assert [one.status for one in result.harness.records] == ["success", "error", "error"]
    assert "used before" in contents(result)["b"]


def _changed(result: LoopResult) -> tuple[Message, ...]:
    """Messages in which somebody changed what was approved."""
    at = next(at for at, one in enumerate(result.messages) if one.tool_calls)
    calls = (ToolCall("a", "delete", '{"id": 99}'), *result.messages[at].tool_calls[1:])
    return (*result.messages[:at], replace(result.messages[at], tool_calls=calls), *result.messages[at + 1 :])


def test_ax_05_a_decision_that_fits_no_ticket_is_refused_before_anything_runs() -> None:
    desk = Desk()
    first = paused(desk)
    one, other = first.pending_approval
    no_tools = ToolLoop(ScriptedChat())
    for running, messages, decisions, said in (
        (desk.loop(), first.messages, [Decision("t-9", one.call.digest, True)], "does not have the ticket"),
        (desk.loop(), first.messages, [other.approve(), Decision("t-1", other.call.digest, True)], "other arguments"),
        (desk.loop(), _changed(first), [other.approve(), one.approve()], "other arguments in this conversation"),
        (desk.loop(), ASKED, [one.approve()], "not in this conversation"),
        (desk.loop(), first.messages, [one.approve(), one.reject()], "both approved and rejected"),
        (no_tools, first.messages, [one.approve()], "not among those of this run"),
    ):
        with pytest.raises(UsageError, match=said) as refused:
            running.run(messages, first.harness, decisions)
        assert refused.value.code == "E_TICKET"
    with pytest.raises(UsageError, match="does not have the ticket"):
        desk.loop().run(first.messages, Harness(), [one.approve()])
    assert desk.ran == [] and len(first.harness.pending) == 2, "and they can be decided still"
    same = ToolCall("a", "delete", '{ "id" : 1 }')  # the same arguments, written otherwise
    assert desk.loop("done").run(
        tuple(replace(m, tool_calls=(same, *m.tool_calls[1:])) if m.tool_calls else m for m in first.messages),
        first.harness, [one.approve(), other.reject()],
    ).ended == "answered"  # fmt: skip
    assert desk.ran == [1]


@pytest.mark.parametrize("is_approved", [True, False])
def test_ax_05_saved_messages_with_another_harness_have_their_tickets_asked_for_again(is_approved: bool) -> None:
    saved = [one.as_object() for one in paused(Desk()).messages]
    ran: list[Any] = []
    again = Tool(
        "delete", "deletes", {"type": "object"}, lambda args, context: ran.append(args["id"]),
        create_ticket=lambda args, context: Ticket(f"new-{args['id']}", is_approved and args["id"] == 1),
    )  # fmt: skip
    harness = Harness()
    first = ToolLoop(ScriptedChat("gone"), (again,)).run(saved, harness)
    assert ran == [1] * is_approved and first.ended == "approval"
    assert [one.ticket_id for one in first.pending_approval] == ["new-1", "new-2"][is_approved:]
    decisions = [one.approve() for one in first.pending_approval]
    done = ToolLoop(ScriptedChat("gone"), (again,)).run(None, harness, decisions)
    assert (done.ended, sorted(ran)) == ("answered", [1, 2])
    assert ToolLoop(ScriptedChat("gone"), (again,)).run(saved, harness).ended == "answered" and sorted(ran) == [1, 2]


def test_ax_05_a_placeholder_that_nobody_can_be_asked_about_is_refused() -> None:
    desk = Desk()
    saved = paused(desk).messages
    free = Tool("delete", "deletes", {"type": "object"}, lambda args, context: desk.ran.append(1))
    changed = [replace(one, tool_calls=()) for one in saved]
    for tools, messages in (((), saved), ((free,), saved), ((desk.tool,), changed)):
        with pytest.raises(UsageError, match="does not know it") as refused:
            ToolLoop(ScriptedChat("done"), tools).run(messages, Harness())
        assert refused.value.code == "E_TICKET" and desk.ran == []


def test_ax_05_a_model_that_cannot_what_is_asked_is_refused_before_anything_is_done() -> None:
    desk = Desk()
    first = paused(desk)
    yes, before = [one.approve() for one in first.pending_approval], first.harness.records
    for running in (
        ToolLoop(ScriptedChat("x", tools=False), (desk.tool, desk.free)),
        replace(desk.loop("x"), request=ChatRequest((), reasoning_effort="low")),
    ):
        with pytest.raises(UsageError) as refused:
            running.run(None, first.harness, yes)
        assert refused.value.code == "E_MODEL_CANNOT"
    assert desk.ran == [] and first.harness.records == before and len(first.harness.pending) == 2


def test_ax_05_a_ticket_that_cannot_be_made_is_an_error_and_no_execution() -> None:
    desk = Desk()
    for made in (lambda args, context: 1 / 0, lambda args, context: None, lambda args, context: Ticket("")):
        broken = replace(desk.tool, create_ticket=made)
        result = ToolLoop(ScriptedChat([calling("delete", id=1)], "ok"), (broken,)).run(ASKED)
        assert [one.status for one in result.harness.records] == ["error"] and desk.ran == []


def test_ax_05_a_run_that_waits_survives_a_restart_by_its_file_alone(tmp_path: Path) -> None:
    desk, path = Desk(), tmp_path / "harness.jsonl"
    with Harness.open(path) as harness:
        first = paused(desk, harness)
    assert path.stat().st_mode & 0o077 == 0, "arguments may be anybody's business, but are not everybody's"
    with Harness.open(path) as harness:
        assert harness.messages == first.messages and harness.pending == first.pending_approval
        yes = [one.approve() for one in harness.pending]
        done = desk.loop("gone").run(None, harness, yes)
    assert done.content == "gone" and sorted(desk.ran) == [1, 2]
    for messages in (None, first.messages):
        with Harness.open(path) as harness:
            again = desk.loop("gone").run(messages, harness, yes)
        assert again.content == "gone" and contents(again)["a"] == "deleted 1"
    assert sorted(desk.ran) == [1, 2]
    seen = Harness.read(path)
    assert seen.records == done.harness.records and seen.id == harness.id
    with pytest.raises(UsageError):
        desk.loop("x").run(first.messages, seen, yes)


def test_ax_05_two_at_once_execute_once(tmp_path: Path) -> None:
    desk, path = Desk(), tmp_path / "harness.jsonl"
    with Harness.open(path) as harness:
        first = paused(desk, harness)
    meet, told = threading.Barrier(4, timeout=HANG_S), list[str]()

    def resume() -> None:
        meet.wait()
        with Harness.open(path) as own:
            done = desk.loop("gone").run(first.messages, own, [one.approve() for one in first.pending_approval])
        told.append(contents(done)["a"])

    threads = [threading.Thread(target=resume) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(HANG_S)
    assert sorted(desk.ran) == [1, 2] and told == ["deleted 1"] * 4
    with Harness.open(path), pytest.raises(Unavailable) as refused:
        Harness.open(path, wait_s=0)
    assert refused.value.code == "E_LOCKED"


def interrupted(desk: Desk, path: Path) -> LoopResult:
    """A file as it is when the process died while an approved call was executed."""
    with Harness.open(path) as harness:
        first = paused(desk, harness)
        data = path.read_bytes()
        desk.loop("gone").run(None, harness, [first.pending_approval[0].approve()])
    lines = path.read_bytes()[len(data) :].splitlines(keepends=True)
    (at,) = [at for at, line in enumerate(lines) if json.loads(line)["line"] == "begun"]
    path.write_bytes(data + b"".join(lines[: at + 1]))
    desk.ran.clear()
    return first


def test_ax_05_what_may_have_been_executed_is_not_executed_again_but_said(tmp_path: Path) -> None:
    desk, path = Desk(), tmp_path / "harness.jsonl"
    first = interrupted(desk, path)
    with Harness.open(path) as harness:
        assert [one.call.call_id for one in harness.interrupted] == ["a"]
        yes = [one.approve() for one in first.pending_approval]
        done = desk.loop("one is unclear").run(None, harness, yes)
    assert desk.ran == [2] and "may have been executed" in contents(done)["a"]
    assert [one.status for one in done.harness.records if one.call.call_id == "a"] == ["error"]


def test_ax_05_a_tool_that_is_idempotent_by_its_key_is_executed_again(tmp_path: Path) -> None:
    desk, path = Desk(idempotent=True), tmp_path / "harness.jsonl"
    interrupted(desk, path)
    before = list(desk.keys)
    with Harness.open(path) as harness:
        done = desk.loop().run(None, harness)
    assert desk.ran == [1] and desk.keys[-1:] == before and contents(done)["a"] == "deleted 1"


def test_ax_05_calls_that_nobody_answered_before_a_restart_get_an_answer(tmp_path: Path) -> None:
    """Whatever whole lines of a run are there: the conversation can be gone on with, and no call is executed twice."""
    desk, path = Desk(), tmp_path / "whole.jsonl"
    with Harness.open(path) as harness:
        desk.loop([calling("look", "x"), calling("look", "y")], [calling("delete", "a", id=1)]).run(ASKED, harness)
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(2, len(lines) + 1):
        part = tmp_path / f"{count}.jsonl"
        part.write_bytes(b"".join(lines[:count]))
        with Harness.open(part) as harness:
            result = desk.loop("on", "on").run(None, harness)
        calls = [call.id for one in result.messages for call in one.tool_calls]
        assert [one.tool_call_id for one in result.messages if one.role == "tool"] == calls, count
        assert len({one.call.id for one in result.harness.records}) == len(result.harness.records)
        assert result.ended in ("answered", "approval")


@pytest.mark.parametrize("given", [True, False])
def test_ax_04_an_answer_that_broke_off_is_not_taken_for_one_by_who_goes_on(tmp_path: Path, given: bool) -> None:
    path, cancel = tmp_path / "harness.jsonl", threading.Event()
    lost: list[Any] = [ContentDelta("half"), Unavailable("nobody answers", code="E_MODEL")]
    stopped: list[Any] = [ContentDelta("half"), cancel.set, ContentDelta("x")]
    for number, script in enumerate((lost, stopped)):
        with Harness.open(path) as harness:
            asked = (*harness.messages, Message("user", f"question {number}"))
            first = ToolLoop(ScriptedChat(script)).run(asked, harness, cancel=cancel)
        assert first.ended in ("failed", "cancelled") and first.messages == (*asked, Message("assistant", "half"))
        with Harness.open(path) as harness:
            model = ScriptedChat([ContentDelta("whole"), Finish("length", None, "p")])
            on = ToolLoop(model).run(first.messages if given else None, harness)
        assert (on.ended, on.content, model.asked[0].messages) == ("answered", "whole", asked)
        assert on.messages == (*asked, Message("assistant", "whole"))
        with Harness.open(path) as harness:
            again = ToolLoop(ScriptedChat()).run(None, harness)
        assert (again.ended, again.content, again.finish_reason) == ("answered", "whole", "length")
    *lines, end = path.read_bytes().splitlines(keepends=True)
    assert json.loads(end)["line"] == "turn"
    path.write_bytes(b"".join(lines))  # killed before it was said whether that is an answer
    with Harness.open(path) as harness:
        assert ToolLoop(ScriptedChat("asked again")).run(None, harness).messages[-2:] == (
            asked[-1],
            Message("assistant", "asked again"),
        )


def test_ax_05_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/loop.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    calls = [calling("forecast", city="Rome"), calling("book", "c2", seats=2)]
    names: dict[str, Any] = {"model": ScriptedChat(calls, "It is booked.")}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2 and capsys.readouterr().out.splitlines()[-1] == "It is booked."
    assert contents(names["result"]) == {"c1": '{"degrees": 21}', "c2": "booked 2 seats"}


# The file


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at the open files")
def test_ax_05_a_file_that_is_replaced_while_somebody_waits_for_it_is_not_gone_on_with(tmp_path: Path) -> None:
    path, refused = tmp_path / "harness.jsonl", list[str]()

    def wait() -> None:
        with pytest.raises(StateError, match="replaced") as told:
            Harness.open(path, wait_s=HANG_S)
        refused.append(told.value.code)

    with Harness.open(path) as first:
        held = threading.Thread(target=wait)
        held.start()
        while (
            sum(one.samefile(path) for one in Path("/proc/self/fd").iterdir() if one.exists()) < 2 and held.is_alive()
        ):
            pass  # until the other has opened it too
        path.unlink()
        path.write_bytes(b"")
        first.append()
    held.join(HANG_S)
    assert refused == ["E_HARNESS"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "harness.jsonl"
    with Harness.open(path) as harness:
        paused(Desk(), harness)
    return path


def test_ax_04_the_file_is_appended_to_and_nothing_else(kept: Path) -> None:
    sizes, desk = [kept.read_bytes()], Desk()
    with Harness.open(kept) as harness:
        yes = [one.approve() for one in harness.pending]
        desk.loop([calling("look", "d")], "done").run(
            None, harness, yes, on_event=lambda _: sizes.append(kept.read_bytes())
        )
    assert len(set(sizes)) > 5
    for before, after in zip(sizes, sizes[1:], strict=False):  # noqa: RUF007
        assert after.startswith(before)
    lines = [json.loads(line) for line in sizes[-1].splitlines()]
    records = [one for one in lines if one["line"] == "record"]
    assert [one["sequence"] for one in records] == list(range(len(records)))
    assert {"id", "turn", "sequence", "tool", "args", "status", "result", "start", "duration_ms"} <= records[0].keys()
    for record in records:
        begun = [at for at, one in enumerate(lines) if one["line"] == "begun" and one["id"] == record["id"]]
        assert len(begun) == 1 and begun[0] < lines.index(record), "it is written down before it is done"


def test_ax_04_a_torn_tail_is_recognised_and_lost_alone(kept: Path) -> None:
    data = kept.read_bytes()
    starts = [0, *(at + 1 for at, one in enumerate(data) if one == 10)]
    for end in range(len(data) + 1):
        if end % 53 == 0 or end in starts:
            kept.write_bytes(data[:end])
            whole = max(at for at in starts if at <= end)
            assert len(Harness.read(kept)._entries) == max(0, data[:whole].count(b"\n") - 1)
    for end in (starts[3] + 5, starts[-2] + 1):
        kept.write_bytes(data[:end])
        with Harness.open(kept) as harness:
            harness.append()
        whole = max(at for at in starts if at <= end)
        assert kept.read_bytes() == data[:whole]
    kept.write_bytes(data[: starts[-2]] + b"\0" * (len(data) - starts[-2] - 1) + b"\n")
    assert len(Harness.read(kept)._entries) == data.count(b"\n") - 2, "blocks that never came to the disk"


def test_ax_04_what_was_written_cannot_be_changed_unnoticed(kept: Path) -> None:
    lines = kept.read_bytes().splitlines(keepends=True)
    bad = {
        "changed": [*lines[:2], lines[2].replace(b'"turn":1', b'"turn":2'), *lines[3:]],
        "dropped": [*lines[:2], *lines[3:]],
        "swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "twice": [*lines[:3], *lines[2:]],
        "the last one changed": [*lines[:-1], lines[-1].replace(b'"turn":1', b'"turn":2')],
        "no harness": [b'{"id": "a note"}\n'],
        "no line": [b"hello"],
    }
    for what, given in bad.items():
        assert given != lines
        kept.write_bytes(b"".join(given))
        for door in (Harness.read, Harness.open):
            with pytest.raises(StateError) as refused:
                door(kept)
            assert refused.value.code == "E_HARNESS", what
        assert kept.read_bytes() == b"".join(given), "and nothing is done to it"


@pytest.mark.skipif(os.name == "nt", reason="folders are not synced there")
def test_ax_05_the_name_of_a_file_is_on_the_disk_before_anything_in_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where who made it died before: a file without a name holds no approval."""
    path, synced, sync = tmp_path / "harness.jsonl", list[str](), os.fsync

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append("folder" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size} bytes")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    path.touch()
    with Harness.open(path):
        head = f"file of {path.stat().st_size} bytes"
    assert synced == ["folder", head]


def test_ax_05_a_disk_that_fails_stops_the_run_before_the_tool_is_executed(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    desk, path = Desk(), tmp_path / "harness.jsonl"
    with Harness.open(path) as harness:
        first = paused(desk, harness)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))  # five bytes of the next line find room
    try:
        with Harness.open(path) as harness:
            stopped = desk.loop("x").run(None, harness, [first.pending_approval[0].approve()])
    except DuckkbError as failed:
        assert failed.code == "E_IO"
    else:
        raise AssertionError(stopped)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, heard)
    assert desk.ran == [] and path.read_bytes() == before
    with Harness.open(path) as harness:
        done = desk.loop().run(None, harness, [first.pending_approval[0].approve()])
    assert desk.ran == [1] and contents(done)["a"] == "deleted 1"
