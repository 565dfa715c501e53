"""The base behind the server: opened at the first call, so that a base that does not load answers each call with
the reason.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb import deadline
from duckkb.actions.folder import OpenOptions, find
from duckkb.actions.registry.offered import ACTIONS
from duckkb.app import KnowledgeBase, open_chosen
from duckkb.app.proposals import Proposals
from duckkb.caller import Caller
from duckkb.errors import DuckkbError, Refused, Unavailable
from duckkb.serving import preloading
from duckkb.serving.lines import say


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
            with deadline.bound_block(None if is_write else self._choose_seconds(kb), caller.tenant):
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
            deadline.bound_block(self._choose_seconds(kb), caller.tenant),
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
                    preloading.import_models(self._kb.configured)
            return self._kb


def refuse_past(caller: Caller) -> None:
    """Raise `errors.Refused` (E_FORBIDDEN) for a caller who may not see the whole base."""
    if caller.types is not None:
        raise Refused("the history needs access to the whole base", "E_FORBIDDEN", "leave out the @commit")
