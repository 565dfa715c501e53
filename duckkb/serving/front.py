"""The requests to a served base through any door: each takes its turn, is counted, and is written to the audit
log.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.serving.admission import Admission, CallLimits
from duckkb.serving.telemetry.noted import Noted

if TYPE_CHECKING:
    from duckkb.serving.pool.pool import Pool
    from duckkb.serving.served import Served
    from duckkb.serving.telemetry.measures import Measures
    from duckkb.serving.tenants import Denial

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Answerer: TypeAlias = "Served | Pool"
"""The part that answers: this process, or worker processes."""
ASKED = "duckkb.asked"
"""Key in the scope of an HTTP request for its `Asked`."""


def _skip_audit(action: str, outcome: str) -> None:
    """Write nothing: the user at the other end of a pipe is not audited."""


class Asked(Struct, frozen=True):
    """A request to the base.

    It has the caller, the notes about it, the limit in seconds (0: the server's), the function that writes a
    decision (an action and an outcome), and the function that identifies the caller now (None: the caller stays
    the same).
    """

    caller: Caller
    noted: Noted
    timeout: float = 0.0
    audit: Callable[[str, str], None] = _skip_audit
    again: "Callable[[], Caller | Denial] | None" = None

    def caller_now(self) -> "Caller | Denial":
        """Return the present caller of the request, or why there is none; reads files."""
        return self.caller if self.again is None else self.again()

    def decide(self, door: str, name: str, given: object) -> None:
        """Audit whether the caller may ask for an action with these arguments. Raises as `audit`."""
        action = ACTIONS[name]
        restricted_arguments = isinstance(given, Mapping) and action.privileged & given.keys()
        may = self.caller.may(action.role) and (self.caller.may("admin") or not restricted_arguments)
        self.audit(f"{door} {name}", "allowed" if may else "E_FORBIDDEN")


class Front:
    """A served base behind its limits."""

    def __init__(self, served: Answerer, limits: CallLimits | None = None, measures: "Measures | None" = None) -> None:
        self.served, self.admission, self._measures = served, Admission(limits or CallLimits()), measures
        self.written = asyncio.Event()
        """Event that the next finished write sets; then a new event replaces it."""

    async def run(self, asked: Asked, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of an action. Raises as `Served.run` and `Admission.run`."""
        began, writes, caller, notes = time.monotonic(), ACTIONS[name].writes, asked.caller, asked.noted
        same = None if writes or not self.admission.limits.dedupe else _build_key(caller, name, given)
        work = partial(notes.trace_run, self.served.run, name, given, caller)
        with notes.record_action(name, given, caller):
            answer = await self.admission.run(caller.tenant, work, asked.timeout, same=same, is_write=writes)
        if writes:
            self.written.set()
            self.written = asyncio.Event()
        notes.record_answer(answer)
        if self._measures is not None:
            self._measures.count_answer(name, answer, time.monotonic() - began, notes.route, caller.tenant)
        return answer

    async def read(self, asked: Asked, what: Callable[..., T], *given: Any) -> T:
        """Return what a function reads from the base with these arguments. Raises as `run`."""
        return await self.admission.run(asked.caller.tenant, partial(what, self.served, *given), asked.timeout)

    async def propose(self, asked: Asked, name: str, given: Mapping[str, Any], message: str) -> dict[str, Any]:
        """Propose a write, as `Served.run_in_proposal`; raises also as `Admission.run`."""
        work = partial(self.served.run_in_proposal, name, given, asked.caller, message)
        return await self.admission.run(asked.caller.tenant, work, asked.timeout, is_write=True)


async def drop_if_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work for a request whose body was read; cancel it and return None if the client
    leaves.
    """
    task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, disconnect):
            future.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await future


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _build_key(caller: Caller, name: str, arguments: Mapping[str, Any]) -> Hashable:
    try:
        return caller, name, json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
