"""A bounded pool of calls to a model: limits for the calls under way in a process, and for the questions that
wait.

Equal questions asked at the same time share one answer. A caller waits for a limited time; the call goes on for
the others.

Calls that wait for somebody else: with a limit of time, or several at once.

An abandoned call continues in a thread of its own, which does not keep the process from ending.

A chat model of several providers: they are asked in order, until one answers."""

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from duckkb.types.chat_messages import ChatEvent, ChatRequest
from duckkb.types.errors import Unavailable, UsageError
from duckkb.types.settings import ChatModelSettings

if TYPE_CHECKING:
    from threading import Event

_POOLS: dict[tuple[object, ...], "CallPool"] = {}
_MAKING = threading.Lock()


class CallCounts(Struct, frozen=True):
    """The counts of one pool.

    It has the requests that may be under way, that are, and that wait; since the pool was made, the requests
    that got their turn and those that did not in time; the questions given up as late, and those refused
    because too many waited. `model` is `rerank` or `expand`.
    """

    model: str
    size: int
    active: int
    waiting: int
    acquired: int
    timed_out: int
    late: int
    refused: int


def counts() -> list[CallCounts]:
    """Return the counts of all pools of this process."""
    with _MAKING:
        return [pool.count_calls(key[1]) for key, pool in _POOLS.items() if key[0] == os.getpid()]


class _Flight:
    """A question under way, with its answer or error once it is `done`."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self, call: Callable[[], Any]) -> None:
        try:
            self.value = call()
        except BaseException as error:  # any error is passed on to those who asked
            self.error = error


class CallPool:
    """A pool of `width` requests at once; `queue_limit` more questions may wait, besides those that ask to wait
    anyway.
    """

    def __init__(self, width: int, queue_limit: int) -> None:
        self._width, self._most = width, width + queue_limit
        self._slots = threading.Semaphore(width)
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}
        self._active = self._waiting = self._acquired = self._timed_out = self._late = self._refused = 0

    @classmethod
    def get_shared(cls, name: object, width: int, queue_limit: int) -> "CallPool":
        """Return this process's pool for a model, shared by all callers."""
        key = (os.getpid(), name, width, queue_limit)  # a fork must not inherit locks of the parent's threads
        with _MAKING:
            return _POOLS.setdefault(key, cls(width, queue_limit))

    def count_calls(self, name: object) -> CallCounts:
        """Return the counts of the pool, under the name that it was made for."""
        model = str(name[0] if isinstance(name, tuple) else name)
        with self._lock:
            slots = (self._width, self._active, self._waiting, self._acquired, self._timed_out)
            return CallCounts(model, *slots, self._late, self._refused)

    def ask(self, question: Hashable, call: Callable[[], Any], seconds: float, *, waits: bool = False) -> Any:
        """Return what the call gives, or raise what it raises; equal questions share one call.

        The call runs in a thread of its own. Raises `errors.Unavailable`, with `details["reason"]`: `timeout`
        where it takes longer than `seconds`, after which the call goes on by itself; `busy` where too many
        questions are under way, unless it `waits`.
        """
        with self._lock:
            flight = self._flights.get(question)
            if flight is None:
                if len(self._flights) >= self._most and not waits:
                    self._refused += 1
                    message = f"{len(self._flights)} questions are under way at the model already."
                    remedy = "try again later, or raise global.rerank.queue_limit"
                    raise Unavailable(message, code="E_MODEL", suggestion=remedy, details={"reason": "busy"})
                flight = self._flights[question] = _Flight()
                threading.Thread(target=self._run, args=(question, flight, call), daemon=True).start()
        if not flight.done.wait(max(0.0, seconds)):
            with self._lock:
                self._late += 1
            raise _late()
        if flight.error is not None:
            raise flight.error
        return flight.value

    @contextmanager
    def slot(self, until: float) -> Iterator[None]:
        """Hold one of the requests that may be under way while the block runs.

        Raises `errors.Unavailable` (`timeout`) where none becomes free until `until`, a time of the monotonic clock.
        """
        with self._lock:
            self._waiting += 1
        got = self._slots.acquire(timeout=max(0.0, until - time.monotonic()))
        with self._lock:
            self._waiting -= 1
            self._active += got
            self._acquired += got
            self._timed_out += not got
        if not got:
            raise _late()
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
            self._slots.release()

    def _run(self, question: Hashable, flight: _Flight, call: Callable[[], Any]) -> None:
        flight.run(call)
        with self._lock:
            del self._flights[question]
        flight.done.set()


def _late() -> Unavailable:
    remedy = "ask again, as a late answer is kept, or raise timeout_ms"
    return Unavailable(
        "The model did not answer in time.", code="E_MODEL", suggestion=remedy, details={"reason": "timeout"}
    )


Item = TypeVar("Item")
Value = TypeVar("Value")


def wait_within(seconds: float, call: Callable[[], Value]) -> Value | None:
    """Return what a call gives, or raise what it raises; None where it takes longer than `seconds`.

    It runs in a thread of its own, which is then abandoned and does not keep the process from ending.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:  # any error is passed on to the caller
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if "error" in outcome:
        raise outcome["error"]
    value: Value | None = outcome.get("value")
    return value


def side_by_side(
    items: Iterable[Item], call: Callable[[Item], Value], width: int
) -> Iterator[tuple[Item, Value | Unavailable]]:
    """Yield each item with the result of the call, or with the `errors.Unavailable` that it raised, as they
    finish.

    Any other error is raised here. At most `width` calls run at once, and the next item is taken when one of
    them is free, so the producer of items may stop at any time and loses nothing.

    With a width of 1 everything runs in the caller's thread. Other threads are abandoned when the caller stops;
    they do not keep the process from ending.
    """
    if width <= 1:
        yield from ((item, _try_item(call, item)) for item in items)
        return
    tasks: SimpleQueue[Item | None] = SimpleQueue()
    results: SimpleQueue[tuple[Item, Value | BaseException]] = SimpleQueue()
    threads = 0
    source = iter(items)
    try:
        running = 0
        while True:
            while running < width and (item := next(source, None)) is not None:
                if running == threads:
                    threading.Thread(target=_process_items, args=(call, tasks, results), daemon=True).start()
                    threads += 1
                tasks.put(item)
                running += 1
            if not running:
                return
            finished_item, outcome = results.get()
            running -= 1
            if isinstance(outcome, BaseException) and not isinstance(outcome, Unavailable):
                raise outcome
            yield finished_item, outcome
    finally:
        for _ in range(threads):
            tasks.put(None)


def _try_item(call: Callable[[Item], Value], item: Item) -> Value | Unavailable:
    try:
        return call(item)
    except Unavailable as problem:
        return problem


def _process_items(
    call: Callable[[Item], Value],
    tasks: "SimpleQueue[Item | None]",
    results: "SimpleQueue[tuple[Item, Value | BaseException]]",
) -> None:
    while (item := tasks.get()) is not None:
        try:
            results.put((item, call(item)))
        except BaseException as error:  # any error is passed on to the caller
            results.put((item, error))


_GOES_ON = frozenset({"timeout", "unreachable", "bad_answer", "no_key"})
_STATUSES = frozenset({401, 403, 404, 408, 429})
"""Statuses below 500 after which the next provider is asked.

Others, 400 and 422 above all, concern the request: the next provider would refuse it as well.
"""


class ChatProvider(Protocol):
    """A place where a model is served.

    Its faults are `errors.Unavailable` (E_MODEL) with one word in `details["reason"]`: `timeout`,
    `unreachable`, `http_STATUS`, `bad_answer`, `no_key` or `ignored`.
    """

    @property
    def name(self) -> str:
        """The name that identifies the provider in errors; it holds no secret."""
        ...

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]: ...


class Failover:
    """A chat model (`ports.ChatModel`) of several providers.

    The next provider is asked where one cannot be reached, is late, gives an unusable answer, or answers 401,
    403, 404, 408, 429 or 5xx; never after a piece of an answer has been passed on. `refusal` is raised instead
    of asking any.
    """

    def __init__(
        self, settings: ChatModelSettings, providers: Sequence[ChatProvider], refusal: Unavailable | None = None
    ) -> None:
        self._settings, self._providers, self._refusal = settings, providers, refusal

    @property
    def settings(self) -> ChatModelSettings:
        return self._settings

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]:
        refuse_what_it_cannot(self._settings, request)
        if self._refusal:
            raise self._refusal
        return self._answer(request, cancel)

    def _answer(self, request: ChatRequest, cancel: "Event | None") -> Iterator[ChatEvent]:
        failures: list[tuple[str, Unavailable]] = []
        for provider in self._providers:
            is_begun = False
            try:
                for event in provider.stream(request, cancel):
                    is_begun = True
                    yield event
                return
            except Unavailable as problem:
                failures.append((provider.name, problem))
                if is_begun or not _should_fail_over(problem):
                    problem.details = {**problem.details, "provider": provider.name, "tries": _list_tries(failures)}
                    raise
        raise self._combine_failures(failures)

    def _combine_failures(self, failures: Sequence[tuple[str, Unavailable]]) -> Unavailable:
        """Return one error that lists the error of each provider."""
        summary = "; ".join(f"{name}: {problem.message}" for name, problem in failures)
        remedy = next((problem.suggestion for _, problem in failures if problem.suggestion), "")
        message = f"No provider of the chat model {self._settings.name} answered. {summary}"
        reason = {"reason": "all_failed", "tries": _list_tries(failures)}
        return Unavailable(message, code="E_MODEL", suggestion=remedy, details=reason)


def refuse_what_it_cannot(model: ChatModelSettings, request: ChatRequest) -> None:
    """Raise `errors.UsageError` (E_MODEL_CANNOT) where a request needs a feature that the registry denies the
    model.
    """
    abilities = {
        "JSON": (request.response_format == "json", model.json_mode, "json_mode"),
        "calls of tools": (bool(request.tools), model.tools, "tools"),
        "reasoning": (request.reasoning_effort is not None, model.reasoning != "none", "reasoning"),
    }
    for ability, (is_necessary, can, key) in abilities.items():
        if is_necessary and not can:
            remedy = f"use another model, or leave it out; global.models.{model.name}.{key} lists its features"
            raise UsageError(f"The chat model {model.name} has no {ability}.", "E_MODEL_CANNOT", remedy)


def _should_fail_over(problem: Unavailable) -> bool:
    reason = str(problem.details.get("reason"))
    status = int(reason.removeprefix("http_")) if reason.startswith("http_") else 0
    return reason in _GOES_ON or status in _STATUSES or status >= 500


def _list_tries(failures: Sequence[tuple[str, Unavailable]]) -> list[dict[str, str]]:
    return [
        {"provider": name, "reason": str(problem.details.get("reason", problem.code)), "message": problem.message}
        for name, problem in failures
    ]
