"""What an agent writes as a proposal: on a branch, for somebody to review."""

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
    """The proposals to a base, which is `opened` for each; all of one tenant go on one branch for as long as this lives. For any
    thread."""

    def __init__(self, opened: "Callable[[Path, OpenOptions], KnowledgeBase]", *, lenient: bool = False) -> None:
        self._opened, self._lenient, self._turn = opened, lenient, Lock()
        self._branches: dict[str, str] = {}

    def run(self, root: Path, name: str, given: Mapping[str, Any], caller: Caller, message: str = "") -> dict[str, Any]:
        """The answer of an action that writes, with the branch and the commit that it became, under a `message` where one is given; of
        one that reads, as the proposal stands, and nothing besides: that answer may be a record. Who sees a part of the base is told
        the branch alone: a commit is a hash over all of it, a remote is its owner's. Raises as `KnowledgeBase.run`."""
        title, sees_all = f"{name} {given.get('type', '')}".strip(), caller.types is None
        with self._turn, ExitStack() as stack:
            with load_for_caller(caller.types):
                proposal = Proposing(root, Wish(title, self._branches.get(caller.tenant), message=message))
                opening = proposal.opening(lenient=self._lenient or not sees_all)
                kb = stack.enter_context(self._opened(root, opening))
            answer = kb.run(name, given, caller)
            if proposal.proposed.commit:
                self._branches[caller.tenant] = proposal.proposed.branch
        if not ACTIONS[name].writes:
            return answer
        line = proposal.proposed.line
        return answer | (line if sees_all else {"branch": line["branch"]})
