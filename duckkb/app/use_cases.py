"""Descriptors that make use cases methods of the facade.

Each method is a function of `duckkb.operations`, called with the base as it is now. Reads run side by side, writes
in turn.

Proposals: the writes of an agent on a branch, for review.

`kb.memory`: the actions on memories as methods."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from duckkb.engine.base import Base
from duckkb.engine.scoped_base import load_for_caller
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.git_branches import Proposing, Wish
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.request_context import Caller

if TYPE_CHECKING:
    from duckkb.app.knowledge import KnowledgeBase

P = ParamSpec("P")
R = TypeVar("R")


class Deferred:
    """A module that is imported when a method first uses one of its functions; reading a record needs few modules.

    Type checkers see the module itself.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: getattr(import_module(f"duckkb.{self._module}"), name)


if TYPE_CHECKING:

    def asks(use_case: Callable[Concatenate[Base, P], R]) -> Callable[Concatenate[Any, P], R]:
        """Return a method with the use case's signature, less the base, and its documentation.

        It changes nothing in the base.
        """
        ...

    changes = asks
else:

    class asks:
        """A descriptor that makes the method when it is first looked up, and puts it in its own place."""

        _is_read = True

        def __init__(self, find: Callable[[], Any]) -> None:
            self._find = find

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, kb: "KnowledgeBase | None", owner: type) -> Any:
            use_case, is_read = self._find(), self._is_read

            @wraps(use_case)
            def method(self: "KnowledgeBase", /, *args: Any, **given: Any) -> Any:
                if is_read:
                    return self._answer(lambda base: use_case(base, *args, **given))
                with self._now() as base:
                    return use_case(base, *args, **given)

            method.__name__, method.__qualname__ = self._name, f"{owner.__name__}.{self._name}"
            setattr(owner, self._name, method)
            return method.__get__(kb, owner)

    class changes(asks):
        """The descriptor `asks`, for use cases that write."""

        _is_read = False


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


if TYPE_CHECKING:
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.operations import memories
else:
    memories = Deferred("operations.memories")


class Memory:
    """The memories of agents, by scope and key: put, search, look back, count."""

    def __init__(self, kb: "KnowledgeBase") -> None:
        self._now, self._answer = kb._now, kb._answer

    put = changes(memories.put)
    search = asks(memories.search)
    history = asks(memories.history)
    stats = asks(memories.stats)
    mark_accessed = asks(memories.mark_accessed)
