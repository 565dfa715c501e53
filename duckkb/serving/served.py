"""The base behind the server: opened when it is first asked, so that one that does not load answers each call with why."""

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
    """What is asked of a served base, from any thread. Whoever asks counts as an agent: what the ontology has reviewed becomes a
    proposal, all of one tenant on one branch for as long as this process serves. What only reads is given `longest` seconds, where
    None stands for those that the base's settings say, and 0 for no bound. `server` says which
    process serves the base in a folder in the background."""

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
        """The answer of an action. Raises as `KnowledgeBase.run`, and whatever opening the base raises."""
        kb = self._open_for_caller(caller)
        try:
            is_write = name in ACTIONS and ACTIONS[name].writes
            with deadline.bound_block(None if is_write else self._choose_seconds(kb), caller.tenant):
                answer = kb.run(name, given, caller, strict=not self._chosen.lenient)
                is_whole = name == "status" and "root" in answer
                return answer | {"server": self._server(kb.root)} if is_whole else answer
        except Refused as problem:
            if problem.code != "E_REVIEW" or name == "resolve":  # which settles what lies in the files, and no branch
                raise
        return self._proposals.run(self._opened().root, name, given, caller)

    def proposed(self, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """As `run`, of the proposal of this tenant, to which goes what is written. Raises as `Proposals.run`."""
        return self._proposals.run(self._open_for_caller(caller).root, name, given, caller, message)

    @contextmanager
    def at(self, commit: str, caller: Caller) -> Iterator[KnowledgeBase]:
        """The base as it was at a commit, for whoever may see all of it: its types may have been others then. Raises
        `errors.Refused` (E_FORBIDDEN)."""
        refuse_past(caller)
        with (
            open_chosen(self._opened().root, replace(self._chosen, at=commit, is_served=False)) as kb,
            deadline.bound_block(self._choose_seconds(kb), caller.tenant),
        ):
            yield kb

    @property
    def name(self) -> str:
        """That of the base's folder."""
        return self._opened().root.resolve().name

    @property
    def is_up(self) -> bool:
        """As that of a pool: there is no process but this one."""
        return True

    def close(self) -> None:
        """Let go of the base; waits for a call that is under way."""
        with self._opening:
            if self._kb is not None:
                self._kb.close()

    def _choose_seconds(self, kb: KnowledgeBase) -> float | None:
        return (kb.configured.served_seconds if self._longest is None else self._longest) or None

    def _open_for_caller(self, caller: Caller) -> KnowledgeBase:
        """Who sees a part of the base is not told why the whole does not load: that names other parts."""
        try:
            return self._opened()
        except DuckkbError as problem:
            if caller.types is None:
                raise
            say(f"serve: {problem.code} {problem.message}")
            raise Unavailable("the knowledge base cannot be asked now", suggestion="ask again in a moment") from None

    def _opened(self) -> KnowledgeBase:
        with self._opening:
            if self._kb is None:
                # A line that cannot be read stops those who see its type, and nobody else.
                self._kb = open_chosen(find(self._path, self._chosen.backend), replace(self._chosen, lenient=True))
                if self._chosen.is_served:
                    preloading.import_models(self._kb.configured)
            return self._kb


def refuse_past(caller: Caller) -> None:
    """Raises `errors.Refused` (E_FORBIDDEN) for a caller who may not see the whole base."""
    if caller.types is not None:
        raise Refused("the past is for callers who may see the whole base", "E_FORBIDDEN", "leave the @commit out")
