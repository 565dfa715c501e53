"""Proposals: the writes of an agent on a branch, for review."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from duckkb.actions.branches import Proposing, Wish
from duckkb.actions.folder import OpenOptions
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.engine.narrowed import load_for_caller

if TYPE_CHECKING:
    from duckkb.app.knowledge import KnowledgeBase


class Proposals:
    """The proposals to a base, which is `opened` for each. Thread-safe.

    All proposals of a tenant go on one branch as long as this object lives.
    """

    def __init__(self, opened: "Callable[[Path, OpenOptions], KnowledgeBase]", *, lenient: bool = False) -> None:
        self._opened, self._lenient, self._turn = opened, lenient, Lock()
        self._branches: dict[str, str] = {}

    def run(self, root: Path, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """Run an action on the proposal; return its answer, for a write with its branch and commit.

        A write becomes a commit under `message`, if given. A read sees the proposal as it stands, and its
        answer gets nothing added, since it may be a record. A caller who sees a part of the base is told only
        the branch: a commit hashes all of the base, and a remote belongs to its owner. Raises as
        `KnowledgeBase.run`.
        """
        title, sees_all = f"{name} {given.get('type', '')}".strip(), caller.types is None
        with self._turn, ExitStack() as stack:
            with load_for_caller(caller.types):
                proposal = Proposing(root, Wish(title, self._branches.get(caller.tenant), message=message))
                opening = proposal.build_open_options(lenient=self._lenient or not sees_all)
                kb = stack.enter_context(self._opened(root, opening))
            answer = kb.run(name, given, caller)
            if proposal.proposed.commit:
                self._branches[caller.tenant] = proposal.proposed.branch
        if not ACTIONS[name].writes:
            return answer
        line = proposal.proposed.line
        return answer | (line if sees_all else {"branch": line["branch"]})
