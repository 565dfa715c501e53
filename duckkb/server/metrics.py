"""The counters and timers of a server, in Prometheus' text form.

No label holds what a client sent, nor a tenant or a type. So each has few values, and one tenant's activity
cannot be read there, unless the operator wants tenants named.

Facts of a base for operators, cached between requests."""

import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from duckkb.llm import call_pool
from duckkb.llm.call_pool import CallCounts
from duckkb.server.authentication import list_reasons
from duckkb.server.dispatcher import Served
from duckkb.storage import repository
from duckkb.types.errors import DuckkbError
from duckkb.types.request_context import Caller

if TYPE_CHECKING:
    from duckkb.server.dispatcher import Answerer

ROUTES = frozenset({"/mcp", "/query", "/search", "/actions", "/health", "/ready", "/metrics", "/openapi.json", "/web"})
OTHER = "other"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MS = tuple(1000 * bound for bound in _SECONDS)
_ASKED = {"find": "", "query": "query", "search": "words"}
"""Actions that search, with the profile where their answers do not tell the mode."""

Gauge = Callable[[], "float | Mapping[str, str] | None"]
"""Function that returns a number, or the labels of a fact such as a revision; None where it is unknown."""


class Measures:
    """The measures of one process.

    Safe to feed from several threads. With `names_tenants`, requests are also counted by tenant.
    """

    def __init__(self, *, names_tenants: bool = False) -> None:
        disable_series: Callable[[], None] = prometheus_client.disable_created_metrics  # which has no types of its own
        disable_series()  # one extra series for each, used by OpenMetrics alone
        self._registry = CollectorRegistry(auto_describe=False)
        self._names_tenants = names_tenants
        self._tenant = ("tenant",) if names_tenants else ()
        self._requests = self._build_counter(
            "http_requests", "Requests answered", "route", "method", "status", *self._tenant
        )
        self._request_ms = self._build_histogram(
            "http_request_duration_ms", "Time of a request", _MS, "route", "method"
        )
        self._request_s = self._build_histogram(
            "http_request_duration_seconds", "Time of a request", _SECONDS, "route", "method"
        )
        self._refusals = self._build_counter("refusals", "Requests not let in", "code")
        by = ("profile", "degraded", "route")
        self._queries = self._build_counter("query_requests", "Searches answered", *by, *self._tenant)
        self._routes = self._build_counter("query_route", "Searches answered by route", "route")
        self._degraded = self._build_counter("query_degraded", "Searches answered without a part, by why", "reason")
        self._query_ms = self._build_histogram("query_total_ms", "Time of a search", _MS, *by)
        self._query_s = self._build_histogram("query_duration_seconds", "Time of a search", _SECONDS, *by)
        self._watched = _Watched()
        self._registry.register(self._watched)
        self.watch(
            "build_info",
            "The duckkb that serves",
            lambda: {"version": version("duckkb"), "python": platform.python_version()},
        )

    def request(self, route: str, method: str, status: int, seconds: float, tenant: str = "") -> None:
        """Count a request; an unknown route or method counts as `other`."""
        route, method = route if route in ROUTES else OTHER, method if method in METHODS else OTHER
        self._requests.labels(route, method, str(status), *self._label_tenant(tenant)).inc()
        self._request_ms.labels(route, method).observe(1000 * seconds)
        self._request_s.labels(route, method).observe(seconds)

    def count_refusal(self, code: str) -> None:
        """Count a refused request: without a token (E_TOKEN), with a wrong (E_DENIED) or an expired one
        (E_EXPIRED).
        """
        self._refusals.labels(code).inc()

    def query(self, route: str, profile: str, degraded: Collection[str], seconds: float, tenant: str = "") -> None:
        """Count a search.

        `profile` is its mode, or `query` or `words` for a search of documents; `degraded` has one word for each
        thing that it went without, as `reason` of notices.
        """
        route = route if route in ROUTES else OTHER
        labels = (profile, str(bool(degraded)).lower(), route)
        self._queries.labels(*labels, *self._label_tenant(tenant)).inc()
        self._routes.labels(route).inc()
        for reason in degraded:
            self._degraded.labels(reason).inc()
        self._query_ms.labels(*labels).observe(1000 * seconds)
        self._query_s.labels(*labels).observe(seconds)

    def count_answer(
        self, action: str, answer: Mapping[str, Any], seconds: float, route: str, tenant: str = ""
    ) -> None:
        """Count the answer of an action, where it is one that searches."""
        if action in _ASKED:
            self.query(route, _ASKED[action] or str(answer.get("mode", OTHER)), list_reasons(answer), seconds, tenant)

    def watch(self, name: str, says: str, read: Gauge) -> None:
        """Add a gauge that is read at each scrape; a name that ends in `_total` is a counter's.

        It is left out where it raises `errors.DuckkbError` or returns None.
        """
        self._watched.gauges[name] = (says, read)

    def watch_calls(self, read: Callable[[], Iterable[CallCounts]]) -> None:
        """Add the pools of calls to models, of this process and of its workers."""
        self._watched.calls.append(read)

    def text(self) -> bytes:
        """Return everything in Prometheus' text form (`CONTENT_TYPE`)."""
        return prometheus_client.generate_latest(self._registry)

    def _label_tenant(self, tenant: str) -> tuple[str, ...]:
        return (tenant,) if self._names_tenants else ()

    def _build_counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"duckkb_{name}", says, labels, registry=self._registry)

    def _build_histogram(self, name: str, says: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"duckkb_{name}", says, labels, registry=self._registry, buckets=bounds)


class _Watched(Collector):
    """A collector of values that are read at a scrape instead of being counted."""

    def __init__(self) -> None:
        self.gauges: dict[str, tuple[str, Gauge]] = {}
        self.calls: list[Callable[[], Iterable[CallCounts]]] = []

    def collect(self) -> Iterator[Metric]:
        for name, (says, read) in self.gauges.items():
            with suppress(DuckkbError):
                if (value := read()) is not None:
                    yield _build_metric(name, says, value)
        for name, (says, value) in _measure_calls([counts for read in self.calls for counts in read()]).items():
            yield _build_metric(name, says, value)


def _build_metric(name: str, says: str, value: "float | Mapping[str, str]") -> Metric:
    name = f"duckkb_{name}"
    if isinstance(value, Mapping):
        family = GaugeMetricFamily(name, says, labels=list(value))
        family.add_metric(list(value.values()), 1)
        return family
    if name.endswith("_total"):
        return CounterMetricFamily(name.removesuffix("_total"), says, value=value)
    return GaugeMetricFamily(name, says, value=value)


def _measure_calls(pools: Collection[CallCounts]) -> dict[str, tuple[str, float]]:
    """Return the series of the pools: all of them from the start, 0 where no model has been asked yet."""
    reranks = [pool for pool in pools if pool.model == "rerank"]
    return {
        "rerank_queue_depth": ("Rerank requests that wait for their turn", sum(pool.waiting for pool in reranks)),
        "rerank_queue_active": ("Rerank requests at the model", sum(pool.active for pool in reranks)),
        "rerank_queue_concurrency": ("Rerank requests that may be at the model", sum(pool.size for pool in reranks)),
        "rerank_queue_timed_out_total": ("Rerankings given up as late", sum(pool.late for pool in reranks)),
        "rerank_queue_saturated_total": (
            "Rerankings refused as too many waited",
            sum(pool.refused for pool in reranks),
        ),
        "llm_pool_size": ("Requests to models that may be under way", sum(pool.size for pool in pools)),
        "llm_pool_active": ("Requests to models under way", sum(pool.active for pool in pools)),
        "llm_pool_waiting": ("Requests to models that wait for their turn", sum(pool.waiting for pool in pools)),
        "llm_pool_acquired_total": ("Requests to models that got their turn", sum(pool.acquired for pool in pools)),
        "llm_pool_timed_out_total": ("Requests to models that waited too long", sum(pool.timed_out for pool in pools)),
    }


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
