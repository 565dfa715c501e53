"""What runs SQL for the runtime tables: `Confined` in this process, or `Isolated` in one that may be killed.

Both give the same answers. They hold no state of their own: tables are Arrow data that was registered, as `shown` says.
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
"""The exit code of a process that found an engine which the walks do not know."""

Reason = Literal["column", "value", "json", "exact", "fit", "deep", "other"]


class Rejected(Exception):
    """The engine did not run a statement. Its own text stays behind: that may quote stored values.

    `reason` is `column` (`name` does not exist), `value` (one does not convert or is out of range), `json` (a text met JSON), `exact` (a whole number would be
    rounded), `fit` (names, types or
    arguments do not go together; `name` is a call that no function takes, with the types of its arguments), `deep` (parts inside of each other) or `other`.
    """

    def __init__(self, reason: Reason, name: str = "") -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.name = name


class Engine(ABC):
    """One in-memory DuckDB without files, network, extensions or a way to change its settings. Of threads, and of the tables of
    several generations of a base, one at a time asks it (`engines`).

    Every method raises `errors.Unavailable` (`E_LIMIT` over time or memory, `E_TIMEOUT` where nobody waits any more, `E_INTERNAL` where
    the engine failed in itself, with `retryable` among its details); what runs a statement raises Rejected.
    """

    generation = 0
    _given: float | None = None
    _end = 0.0

    def __init__(self) -> None:
        self.shown: dict[str, object] = {}
        """By name what its users registered and defined in this `generation` of it."""

    def _forget(self) -> None:
        """Whatever was registered is gone."""
        self.generation += 1
        self.shown.clear()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Whatever is asked inside is over after so many seconds, all of it together."""
        self._given, self._end = seconds, monotonic() + seconds
        try:
            yield
        finally:
            self._given = None

    def _left(self, seconds: float) -> float:
        """`seconds`, or what the deadlines leave of them; raises `errors.Unavailable` (E_LIMIT, E_TIMEOUT) where that is nothing."""
        deadline.refuse_late()
        if self._given is None:
            return deadline.limit_seconds(seconds)
        remaining_seconds = min(seconds, self._end - monotonic())
        if remaining_seconds <= 0:
            raise make_limit_error(self._given)
        return deadline.limit_seconds(remaining_seconds)

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The syntax tree of SELECT statements as JSON gives it, with `error` set where there is none; nothing runs."""

    @abstractmethod
    def unparse(self, tree: Any) -> str:
        """The SQL text of a syntax tree that `parse` gave."""

    @abstractmethod
    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Say which files `register` will name. It is asked for them where it can take them without copying."""

    @abstractmethod
    def register(self, name: str, data: "pa.Table | Path") -> None:
        """Make Arrow data visible under a name, in place of what had it. Of a file, statements do not see the last column;
        raises OSError and ValueError for one that is none."""

    @abstractmethod
    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""

    @abstractmethod
    def ids(self, statement: str, seconds: float) -> IdSet:
        """The integers of a statement's one column."""

    @abstractmethod
    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        """The rows of a statement as plain JSON values, up to the caps."""

    @abstractmethod
    def drop(self) -> None:
        """Let the instance go; the next use opens another."""


def make_limit_error(seconds: float | None) -> Unavailable:
    """The error for a query that took more time or memory than it may."""
    return Unavailable(
        "The query took too much time or memory and was stopped.",
        code="E_LIMIT",
        suggestion="make it narrower, or give it more time (--timeout)",
        details={"seconds": seconds},
    )


def make_parser_limit_error() -> Unavailable:
    """The error for a text that the parser does not finish: more time for the statement does not help."""
    return Unavailable(
        "The parser of DuckDB took too much time or memory for this text and was stopped.",
        code="E_LIMIT",
        suggestion="write it shorter, with fewer expressions inside of each other",
    )


def unknown_version() -> Unavailable:
    """The error for a DuckDB whose syntax trees the walks do not know: what cannot be judged is not run."""
    return Unavailable(
        "This version of DuckDB is not known to duckkb, so filters and SQL do not run.",
        suggestion="pip install 'duckdb>=2.0.1,<3'",
        details={"retryable": False},
    )


def make_engine_error() -> Unavailable:
    """The error after the engine failed in itself; its state is derived, so the next call starts a fresh one."""
    return Unavailable(
        "The query engine failed and was restarted; nothing stored is touched.",
        code="E_INTERNAL",
        suggestion="try again; report it if it happens again",
        details={"retryable": True},
    )
