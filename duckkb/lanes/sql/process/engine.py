"""Runs SQL for the runtime tables: `Confined` in this process, or `Isolated` in a process that may be killed.

Both give the same answers. They hold no state of their own: tables are registered Arrow data.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from duckkb import deadline
from duckkb.errors import Unavailable
from duckkb.id_set import IdSet
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN_VERSION = 78
"""The exit code of a process with an engine version that the tree walks do not know."""

Reason = Literal["column", "value", "json", "exact", "fit", "deep", "other"]


class Rejected(Exception):
    """The engine did not run a statement. Its own text is hidden, because it may quote stored values.

    `reason` is `column` (`name` does not exist), `value` (a value does not convert or is out of range), `json`
    (a text met JSON), `exact` (a whole number would be rounded), `fit` (names, types or arguments do not match;
    `name` is a call without a matching function, with the types of its arguments), `deep` (nesting too deep) or
    `other`.
    """

    def __init__(self, reason: Reason, name: str = "") -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.name = name


class Engine(ABC):
    """An in-memory DuckDB without files, network, extensions or a way to change its settings. Threads, and the
    tables of several snapshots of a base, take turns (`engines`).

    Every method raises `errors.Unavailable` (`E_LIMIT` over time or memory, `E_TIMEOUT` if nobody waits any
    more, `E_INTERNAL` if the engine itself failed, with `retryable` among its details); methods that run a
    statement raise Rejected.
    """

    generation = 0
    _given: float | None = None
    _end = 0.0

    def __init__(self) -> None:
        self.shown: dict[str, object] = {}
        """By name what its users registered and defined in this `generation` of it."""

    def _forget(self) -> None:
        """Forget all registered tables."""
        self.generation += 1
        self.shown.clear()

    @contextmanager
    def limit_time(self, seconds: float) -> Iterator[None]:
        """Limit all calls in the block to `seconds` together."""
        self._given, self._end = seconds, monotonic() + seconds
        try:
            yield
        finally:
            self._given = None

    def _limit_seconds(self, seconds: float) -> float:
        """Return `seconds`, or the time that the deadlines leave; raises `errors.Unavailable` (E_LIMIT, E_TIMEOUT)
        if none is left.
        """
        deadline.refuse_late()
        if self._given is None:
            return deadline.limit_seconds(seconds)
        remaining_seconds = min(seconds, self._end - monotonic())
        if remaining_seconds <= 0:
            raise make_limit_error(self._given)
        return deadline.limit_seconds(remaining_seconds)

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the syntax tree of SELECT statements as JSON, with `error` set if there is none; nothing runs."""

    @abstractmethod
    def unparse(self, tree: Any) -> str:
        """Return the SQL text of a syntax tree from `parse`."""

    @abstractmethod
    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Announce the files that `register` will name. `files` is called if the engine can use them without
        copying.
        """

    @abstractmethod
    def register(self, name: str, data: "pa.Table | Path") -> None:
        """Make Arrow data visible under a name, replacing earlier data. Statements do not see the last column of a
        file; raises OSError and ValueError for an invalid file.
        """

    @abstractmethod
    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""

    @abstractmethod
    def ids(self, statement: str, seconds: float) -> IdSet:
        """Return the integers of a statement's only column."""

    @abstractmethod
    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        """Return the rows of a statement as plain JSON values, up to the caps."""

    @abstractmethod
    def drop(self) -> None:
        """Close the instance; the next use opens another."""


def make_limit_error(seconds: float | None) -> Unavailable:
    """Return the error for a query over its time or memory limit."""
    return Unavailable(
        "The query took too much time or memory and was stopped.",
        code="E_LIMIT",
        suggestion="make it narrower, or give it more time (--timeout)",
        details={"seconds": seconds},
    )


def make_parser_limit_error() -> Unavailable:
    """Return the error for a text that the parser does not finish: a longer time limit does not help."""
    return Unavailable(
        "The parser of DuckDB took too much time or memory for this text and was stopped.",
        code="E_LIMIT",
        suggestion="write it shorter, with fewer expressions inside of each other",
    )


def unknown_version() -> Unavailable:
    """Return the error for a DuckDB with unknown syntax trees: unverified statements do not run."""
    return Unavailable(
        "This version of DuckDB is not known to duckkb, so filters and SQL do not run.",
        suggestion="pip install 'duckdb>=2.0.1,<3'",
        details={"retryable": False},
    )


def make_engine_error() -> Unavailable:
    """Return the error after the engine itself failed; its state is derived, so the next call starts a fresh
    engine.
    """
    return Unavailable(
        "The query engine failed and was restarted; nothing stored is touched.",
        code="E_INTERNAL",
        suggestion="try again; report it if it happens again",
        details={"retryable": True},
    )
