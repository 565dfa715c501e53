"""Descriptors that make use cases methods of the facade.

Each method is a function of `duckkb.actions`, called with the base as it is now. Reads run side by side, writes
in turn.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from duckkb.engine.base import Base

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
