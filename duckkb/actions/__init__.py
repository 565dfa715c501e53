"""Every verb once. The modules are imported when they are used: a process that reads one record needs few of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.actions import asking, caring, embedding, reading, tracing, writing

__all__ = ["asking", "caring", "embedding", "reading", "tracing", "writing"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
