"""Facts of a base for operators, cached between requests."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb.caller import Caller
from duckkb.errors import DuckkbError
from duckkb.llm import call_pool
from duckkb.serving.served import Served
from duckkb.serving.telemetry.measures import Measures
from duckkb.truth.git import repository

if TYPE_CHECKING:
    from duckkb.serving.front import Answerer

_COMMIT_S, _STATUS_S, _PATIENCE_S = 1.0, 10.0, 0.5


class BaseFacts:
    """The facts of the base in `root`, and of what answers for it. Safe to use from several threads."""

    def __init__(self, root: Path, served: "Answerer") -> None:
        self._root, self._served = root, served
        self._head: tuple[float, str | None] = (0.0, None)
        self._made: tuple[str, int | None] = ("", None)
        self._status: tuple[float, dict[str, Any]] = (0.0, {})
        self._look: threading.Thread | None = None

    def commit(self) -> str | None:
        """Return the commit that is checked out, at most a second old."""
        read, head = self._head
        now = time.monotonic()
        if not read or now - read > _COMMIT_S:
            head = repository.head_commit(self._root)
            self._head = now, head
        return head

    def register_measures(self, measures: Measures) -> None:
        """Register these facts as measures. Raises nothing: an unavailable fact is left out."""
        measures.watch("revision_info", "The commit that is checked out", self._describe_revision)
        measures.watch("revision_age_seconds", "Time since that commit was made", self._measure_age)
        measures.watch("missing_vectors", "Texts that lack a vector", lambda: self._load_status().get("missing"))
        measures.watch("records", "Records that are served", self._records)
        pool = self._served
        measures.watch_calls(call_pool.counts if isinstance(pool, Served) else pool.calls)
        if not isinstance(pool, Served):
            restarts = "Workers that ended and were replaced"
            measures.watch(
                "pool_restarts_total",
                restarts,
                lambda: sum(worker_group["restarts"] for worker_group in pool.measures().values()),
            )

    def _describe_revision(self) -> dict[str, str] | None:
        commit = self.commit()
        return {"commit": commit} if commit else None

    def _measure_age(self) -> float | None:
        commit = self.commit()
        if commit and self._made[0] != commit:
            self._made = commit, repository.commit_time(self._root, commit)
        commit_time = self._made[1]
        return max(0.0, time.time() - commit_time) if commit and commit_time is not None else None

    def _records(self) -> float | None:
        records = self._load_status().get("records")
        return None if records is None else float(sum(records.values()))

    def _load_status(self) -> dict[str, Any]:
        """Return the base's status for one reading of all measures; the reading does not wait behind slow calls."""
        if not self._status[0] or time.monotonic() - self._status[0] > _STATUS_S:
            if self._look is None or not self._look.is_alive():
                self._look = threading.Thread(target=self._read_status, daemon=True)
                self._look.start()
            self._look.join(_PATIENCE_S)
        return self._status[1]

    def _read_status(self) -> None:
        status: dict[str, Any] = {}
        with suppress(DuckkbError):
            status = self._served.run("status", {}, Caller())
        self._status = time.monotonic(), status
