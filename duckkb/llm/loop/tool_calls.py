"""A call of a tool, from what a model wrote to its result: as values, and as the JSON of both.

Tools: what they take, what they do, and what they return to whom.

The event loop of a run, on which `async def` functions of callers are awaited, and the check of a function's
form."""

import hashlib
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from msgspec import Struct

from duckkb.ontology.validation import compile_rule, foreign
from duckkb.ontology.yaml_source import pointer
from duckkb.types.chat_messages import Message, ToolSpec
from duckkb.types.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from threading import Event

Status = Literal["success", "error", "timeout", "cancelled"]
_MOST = 10
"""Problems of arguments that a model is told at once."""


class ToolError(Exception):
    """An error whose text a tool tells the model.

    Of other exceptions (but duckkb's own) the model gets only the type: their text may hold anything.
    """


class Call(Struct, frozen=True):
    """A call that a model asked for in a `turn`, under the id `call_id`.

    `arguments` is canonical JSON, or the model's own text where that is no JSON object.
    """

    turn: int
    call_id: str
    tool: str
    arguments: str

    @property
    def id(self) -> str:
        """The id of the call, unique in its harness."""
        return f"{self.turn}.{self.call_id}"

    @property
    def args(self) -> Any:
        """The arguments as an object, or the text where it is none."""
        try:
            arguments = parse_arguments(self.arguments)
        except ToolError:
            return self.arguments
        return arguments if canonical(arguments) == self.arguments else self.arguments

    @property
    def digest(self) -> str:
        """The SHA-256 of the arguments."""
        return hashlib.sha256(self.arguments.encode("utf-8", "surrogatepass")).hexdigest()


class CallRecord(Struct, frozen=True):
    """The outcome of a call: the `result` as the model got it, or the `error`.

    `sequence` counts the records of a harness from 0; `start` is UTC as in records, `duration_ms` in milliseconds.
    """

    call: Call
    sequence: int
    status: Status
    result: str | None
    error: str | None
    start: str
    duration_ms: float

    @property
    def text(self) -> str:
        """The text for the model."""
        if self.result is not None:
            return self.result
        return json.dumps({"status": self.status, "error": self.error}, ensure_ascii=False)

    @property
    def message(self) -> Message:
        """The message that answers the call."""
        return Message("tool", self.text, tool_call_id=self.call.call_id)


class Begun(Struct, frozen=True):
    """An entry that is written just before a call is executed; without a record behind it, the call may have been
    executed.

    `ticket_id` is empty for a call that needs no approval.
    """

    call: Call
    start: str
    ticket_id: str = ""


class Decision(Struct, frozen=True):
    """A decision on a ticket, by somebody who saw the arguments of this `digest`."""

    ticket_id: str
    digest: str
    approved: bool
    reason: str = ""


class PendingApproval(Struct, frozen=True):
    """A call that waits for approval, and was not executed."""

    call: Call
    ticket_id: str

    @property
    def message(self) -> Message:
        """The placeholder in the conversation until then."""
        notice = {
            "status": "pending_approval",
            "ticket_id": self.ticket_id,
            "note": "not executed: it waits for approval",
        }
        return Message("tool", json.dumps(notice, ensure_ascii=False), tool_call_id=self.call.call_id)

    @staticmethod
    def ticket_of(message: Message) -> str | None:
        """Return the ticket whose placeholder a message is; None for any other message."""
        try:
            content = json.loads(message.content) if message.role == "tool" else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("status") != "pending_approval":
            return None
        return content["ticket_id"] if isinstance(content.get("ticket_id"), str) else None

    def approve(self) -> Decision:
        """Return the decision to execute the call with these arguments."""
        return Decision(self.ticket_id, self.call.digest, True)

    def reject(self, reason: str = "") -> Decision:
        """Return the decision not to execute the call; the model is told the reason."""
        return Decision(self.ticket_id, self.call.digest, False, reason)


def canonical(value: Any) -> str:
    r"""Return the canonical JSON text of a value: names sorted, ASCII.

    >>> canonical({"b": [1, "ü"], "a": None})
    '{"a":null,"b":[1,"\\u00fc"]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments that a model wrote; an empty text means none.

    Raises ToolError unless they are a JSON object.
    """
    try:
        arguments = json.loads(text or "{}", parse_constant=_refuse_constant)
        problem = next(foreign(arguments, ""), None)
    except (ValueError, RecursionError):
        raise ToolError("the arguments are not JSON") from None
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are not one JSON object")
    if problem is not None:
        raise ToolError(f"the arguments are not JSON: {problem[1].partition(' (rule:')[0]}")
    return arguments


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def refuse_unfit(schema: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise ToolError with the arguments that do not satisfy the schema; values are not repeated."""
    try:
        errors = list(compile_rule(schema).iter_errors(dict(given)))
    except ValueError:  # a number that the validator does not take
        raise ToolError("the arguments do not fit: a value is out of range") from None
    if errors:
        messages = [
            f"{pointer(*error.instance_path) or '/'}: {error.message.partition(chr(10))[0]}" for error in errors[:_MOST]
        ]
        raise ToolError(f"the arguments do not fit the parameters: {'; '.join(messages)}")


class EventLoop:
    """An event loop in a thread of its own, which starts with the first coroutine.

    Safe to share between threads.
    """

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None
        self._is_closed = False
        self._starting = threading.Lock()

    def settle(self, value: Any, on_start: "Callable[[Future[Any]], object]" = lambda _: None) -> Any:
        """Return a value, or the result of an awaitable; raise what it raises.

        `on_start` gets the future, which can be cancelled.
        """
        if not inspect.isawaitable(value):
            return value
        from asyncio import run_coroutine_threadsafe

        pending = value if inspect.iscoroutine(value) else _await(value)
        with self._starting:
            if self._is_closed:
                pending.close()
                raise RuntimeError("the run has ended")
            future = run_coroutine_threadsafe(pending, self._ensure_loop())
        on_start(future)
        return future.result()

    def close(self) -> None:
        """Cancel what is still awaited and let the thread end, without waiting for it."""
        with self._starting:
            self._is_closed = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _ensure_loop(self) -> "AbstractEventLoop":
        if self._loop is None:
            from asyncio import new_event_loop

            self._loop = new_event_loop()
            threading.Thread(target=_serve, args=(self._loop,), daemon=True, name="event loop of a run").start()
        return self._loop


def refuse_form(what: str, function: object, parameters: int) -> None:
    """Raise `errors.UsageError` for what cannot be called with so many arguments, or is a generator."""
    if not callable(function):
        raise UsageError(f"{what} is not a function", suggestion="give a function, plain or `async def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what} yields, and gives no value", suggestion="return the value, from `def` or `async def`")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have no signature
        return
    try:
        signature.bind(*[None] * parameters)
    except TypeError as error:
        message = f"{what} does not take {parameters} argument{'s' * (parameters > 1)}: {error}"
        raise UsageError(message, suggestion="docs/loop.md lists their arguments") from None


async def _await(value: Any) -> Any:
    return await value


def _serve(loop: "AbstractEventLoop") -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


Args = Mapping[str, Any]
Records = tuple[CallRecord, ...]


class TwoSided(Struct, frozen=True):
    """A result with one side for the model, and one for the program that shows the conversation."""

    for_llm: Any
    for_frontend: Any


class ToolContext(Struct, frozen=True):
    """The context of a call, beside its arguments.

    It has the `metadata` of the loop, and the records of the `harness` from before this turn. Once `cancelled`
    is set nobody waits for the result. `key` is the same whenever this one call is executed.
    """

    metadata: Mapping[str, Any]
    harness: Records
    turn: int
    call_id: str
    key: str
    cancelled: "Event"


class Ticket(Struct, frozen=True):
    """A ticket for a call that needs approval; a call that is `approved` already is executed at once."""

    ticket_id: str
    approved: bool = False


class Tool(Struct, frozen=True):
    """A function that a model may call.

    `parameters` is a JSON Schema (2020-12) of an object. `execute` returns a text, a JSON value, or a
    `TwoSided`; it runs beside the other calls of its turn, may raise `ToolError`, and has `timeout_s` seconds.
    A tool with `create_ticket` is executed once somebody approved the call. `discover` tells before each turn
    whether the model sees the tool: True, or a mapping whose `visible` is true.
    A tool that is `idempotent` by `context.key` is executed again where an earlier execution is uncertain. Each
    of the three functions may be `async def`. Raises `errors.UsageError` for functions that cannot be called
    so.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    execute: Callable[[Args, ToolContext], Any]
    timeout_s: float = 60.0
    create_ticket: Callable[[Args, ToolContext], Ticket | Awaitable[Ticket]] | None = None
    discover: Callable[[Records, Mapping[str, Any]], Any] | None = None
    idempotent: bool = False

    def __post_init__(self) -> None:
        for name in ("execute", "create_ticket", "discover"):
            function = getattr(self, name)
            if function is not None or name == "execute":
                refuse_form(f"`{name}` of the tool {self.name!r}", function, 2)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


def refuse_unsound(tools: Sequence[Tool]) -> None:
    """Raise `errors.UsageError` for a duplicated name, and for parameters that are no JSON Schema."""
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two tools are called {twice!r}", suggestion="give each a different name")
    for tool in tools:
        try:
            compile_rule(tool.parameters)
        except ValueError as error:
            message = f"the parameters of the tool {tool.name!r} are not a JSON Schema: {error}".partition("\n")[0]
            raise UsageError(message, suggestion="correct the schema") from error


def visible(
    tools: Sequence[Tool], records: Records, metadata: Mapping[str, Any], event_loop: EventLoop
) -> dict[str, Tool]:
    """Return the tools that the model sees now; a tool whose `discover` fails is hidden."""
    return {tool.name: tool for tool in tools if _is_visible(tool, records, metadata, event_loop)}


def _is_visible(tool: Tool, records: Records, metadata: Mapping[str, Any], event_loop: EventLoop) -> bool:
    if tool.discover is None:
        return True
    try:
        answer = event_loop.settle(tool.discover(records, metadata))
        return (answer.get("visible") if isinstance(answer, Mapping) else answer) is True
    except Exception:  # any error hides the tool
        return False


def sides(value: Any) -> tuple[str, Any]:
    """Return the text for the model, and the value for the front end (None where there is none).

    Raises ToolError.
    """
    frontend_data = None
    if isinstance(value, TwoSided):
        value, frontend_data = value.for_llm, value.for_frontend
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ToolError("it was executed, and its result has no form in JSON") from None
    return text.encode("utf-8", "replace").decode(), frontend_data  # a lone surrogate cannot be encoded
