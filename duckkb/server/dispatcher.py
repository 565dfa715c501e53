"""The requests to a served base through any door: each takes its turn, is counted, and is written to the audit
log.

The base behind the server: opened at the first call, so that a base that does not load answers each call with
the reason.

Loads what a server needs of its installation before it says that it is ready.

From then on the files may be replaced by another version, or be deleted, and the server keeps answering with
what it loaded."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

import duckkb
from duckkb import installed
from duckkb.app import KnowledgeBase, open_chosen
from duckkb.app.use_cases import Proposals
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.lifecycle import OpenOptions, find
from duckkb.server.admission import Admission, CallLimits
from duckkb.server.authentication import Noted
from duckkb.server.server_log import say
from duckkb.types import request_context
from duckkb.types.errors import DuckkbError, Refused, Unavailable
from duckkb.types.request_context import Caller
from duckkb.types.settings import NO_MODEL, Settings

if TYPE_CHECKING:
    from duckkb.server.authentication import Denial
    from duckkb.server.metrics import Measures
    from duckkb.server.worker_pool import Pool

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


ELSEWHERE = (
    "duckkb.__main__",
    "duckkb.cli",
    "duckkb.integrations",
    "duckkb.tables",
    "duckkb.types.database_urls",  # imported lazily, as the two around it
    "duckkb.databases",  # imported for a published base, with its driver
    "duckkb.llm.providers.guarded_http",  # imported for a base that asks a service for vectors or chats
)
LIBRARIES = (
    "chardet",
    "git.cmd",
    "git.exc",
    "jsonschema",
    "jsonschema.exceptions",
    "jsonschema.validators",
    "jsonschema_rs",
    "numpy",
    "portalocker",
    "pyarrow.compute",
    "referencing",
)
"""Modules that others import on demand, except models and formats of documents, which a base may not have."""


def import_all(*, doors: bool = True) -> None:
    """Import every module that may answer a request, and what they load lazily, with those of `doors` too.

    Modules whose extra is not installed are left out. The version that is installed now is the one that runs.
    """
    installed.remember_running()
    elsewhere = ELSEWHERE if doors else (*ELSEWHERE, "duckkb.server")
    modules = (module.name for module in walk_packages(duckkb.__path__, "duckkb.", onerror=lambda name: None))
    for name in modules:
        if not any(f"{name}.".startswith(f"{prefix}.") for prefix in elsewhere):
            _import(name)
    for name in LIBRARIES:
        _import(name)
    from duckkb.ontology.presets import presets

    presets()


def import_models(settings: Settings) -> None:
    """Import what the models of a base need."""
    if settings.embedding.base_url or settings.models:
        _import("duckkb.llm.providers.guarded_http")
    if settings.embedding.model != NO_MODEL and not settings.embedding.base_url:
        for name in ("onnxruntime", "sentencepiece"):
            _import(name)


def _import(name: str) -> None:
    with suppress(ImportError):
        import_module(name)


class Served:
    """A served base, for use from any thread.

    Every caller counts as an agent: a write that the ontology has reviewed becomes a proposal, and one tenant's
    proposals go to one branch for as long as this process serves.
    A read may take `longest` seconds: None for the base's settings, 0 for no limit. `server` describes the
    background server of the base in a folder.
    """

    def __init__(
        self,
        path: str | Path | None,
        chosen: OpenOptions,
        longest: float | None = 0,
        server: Callable[[Path], dict[str, Any] | None] = lambda _: None,
    ) -> None:
        self._path, self._chosen, self._longest = path, replace(chosen, agent=True), longest
        self._opening, self._proposals = threading.Lock(), Proposals(KnowledgeBase, lenient=chosen.lenient)
        self._kb: KnowledgeBase | None = None
        self._server = server

    def run(self, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the answer of an action. Raises as `KnowledgeBase.run`, and whatever opening the base raises."""
        kb = self._open_for_caller(caller)
        try:
            is_write = name in ACTIONS and ACTIONS[name].writes
            with request_context.bound_block(None if is_write else self._choose_seconds(kb), caller.tenant):
                answer = kb.run(name, given, caller, strict=not self._chosen.lenient)
                is_whole = name == "status" and "root" in answer
                return answer | {"server": self._server(kb.root)} if is_whole else answer
        except Refused as problem:
            if problem.code != "E_REVIEW" or name == "resolve":  # `resolve` settles the files, and no branch
                raise
        return self._proposals.run(self._open_base().root, name, given, caller)

    def run_in_proposal(self, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """Run an action on the proposal of this tenant, which also gets what it writes. Raises as `Proposals.run`."""
        return self._proposals.run(self._open_for_caller(caller).root, name, given, caller, message)

    @contextmanager
    def open_revision(self, commit: str, caller: Caller) -> Iterator[KnowledgeBase]:
        """Yield the base at a commit, for a caller who may see all of it: its types may have been others then.

        Raises `errors.Refused` (E_FORBIDDEN).
        """
        refuse_past(caller)
        with (
            open_chosen(self._open_base().root, replace(self._chosen, at=commit, is_served=False)) as kb,
            request_context.bound_block(self._choose_seconds(kb), caller.tenant),
        ):
            yield kb

    @property
    def name(self) -> str:
        """The name of the base's folder."""
        return self._open_base().root.resolve().name

    @property
    def is_up(self) -> bool:
        """Always true: there is no process but this one."""
        return True

    def close(self) -> None:
        """Close the base; wait for a call that is under way."""
        with self._opening:
            if self._kb is not None:
                self._kb.close()

    def _choose_seconds(self, kb: KnowledgeBase) -> float | None:
        return (kb.configured.served_seconds if self._longest is None else self._longest) or None

    def _open_for_caller(self, caller: Caller) -> KnowledgeBase:
        """Open the base for a caller.

        A caller who sees a part of the base does not learn why the whole does not load: the reason names other parts.
        """
        try:
            return self._open_base()
        except DuckkbError as problem:
            if caller.types is None:
                raise
            say(f"serve: {problem.code} {problem.message}")
            raise Unavailable("temporarily unavailable", suggestion="ask again in a moment") from None

    def _open_base(self) -> KnowledgeBase:
        with self._opening:
            if self._kb is None:
                # An unreadable line stops only callers who see its type.
                self._kb = open_chosen(find(self._path, self._chosen.backend), replace(self._chosen, lenient=True))
                if self._chosen.is_served:
                    import_models(self._kb.configured)
                    with suppress(DuckkbError):  # its process has read its files once it answers
                        self._kb.sql("SELECT 1")
            return self._kb


def refuse_past(caller: Caller) -> None:
    """Raise `errors.Refused` (E_FORBIDDEN) for a caller who may not see the whole base."""
    if caller.types is not None:
        raise Refused("the history needs access to the whole base", "E_FORBIDDEN", "leave out the @commit")
