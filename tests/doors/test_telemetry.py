"""What operators see of requests: measures, log lines and spans, of a real base behind the middleware of the server."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="serving needs the extra `serve`")
pytest.importorskip("opentelemetry.sdk", reason="spans are read with OpenTelemetry's SDK, of the extra `dev`")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from duckkb.llm.call_pool import CallPool, counts
from duckkb.operations.lifecycle import OpenOptions
from duckkb.server.authentication import get_notes
from duckkb.server.dispatcher import Served
from duckkb.server.metrics import BaseFacts, Measures
from duckkb.server.request_telemetry import RequestLog, Telemetry, tenant_hash
from duckkb.server.worker_pool import Pool
from duckkb.types.errors import NotFound
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.fake_models import FakeModels
from tests.harness.servers import ask
from tests.harness.servers import served as running
from tests.harness.waiting import HANG_S

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_SECRET = 'geese\u2028{"level": "info"}\r\n\x1b[2J'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", json.dumps({"id": "n1", "title": "ducks", "text": "swim"})]).code == 0
    commit(root)
    return root


@pytest.fixture(scope="module")
def exported() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def served(base: Path) -> Iterator[Served]:
    one = Served(base, OpenOptions())
    yield one
    one.close()


class _Server:
    """Each request asks for one action and gives its answer: what a door of the server does."""

    def __init__(self, served: "Served | Pool", measures: Measures, caller: Caller) -> None:
        self._served, self._measures, self._caller = served, measures, caller

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name, given = json.loads((await receive())["body"])
        about, status = get_notes(scope), 200
        if scope["path"].startswith("/actions/"):
            about.route = "/actions"
        try:
            with about.record_action(name, given, self._caller):
                run = partial(about.trace_run, self._served.run, name, given, self._caller)
                answer = await asyncio.to_thread(run)
                about.record_answer(answer)
                self._measures.count_answer(name, answer, 0.25, about.route, self._caller.tenant)
        except NotFound:
            answer, status = {}, 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def _ask(app: Any, path: str, asked: tuple[str, Mapping[str, Any]], **headers: str) -> dict[str, str]:
    """The headers of the answer."""
    told: list[dict[str, Any]] = []
    given = [(name.replace("_", "-").encode(), one.encode("latin-1")) for name, one in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": given}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(asked).encode(), "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    asyncio.run(app(scope, receive, send))
    return {name.decode(): one.decode() for name, one in told[0]["headers"]}


def _series(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def test_what_operators_see_of_a_request(
    base: Path, served: Served, exported: InMemorySpanExporter, capfd: pytest.CaptureFixture[str]
) -> None:
    exported.clear()
    measures, head = Measures(), git(base, "rev-parse", "HEAD").strip()
    facts = BaseFacts(base, served)
    facts.register_measures(measures)
    caller = Caller("acme", "viewer", frozenset({"Note"}))
    app = Telemetry(_Server(served, measures, caller), measures, RequestLog(queries=True, commit=facts.commit))
    find = {"type": "Note", "query": _SECRET + " ducks", "mode": "match", "where": "id <> 'x'"}
    headers = _ask(app, "/query", ("find", find), x_request_id="r-1", traceparent=f"00-{_TRACE}-b7ad6b7169203331-01")
    assert headers["x-request-id"] == "r-1"
    other = _ask(app, "/wp-admin\n{}", ("get", {"type": "Note", "identity": "none"}), x_request_id='"\xff bad')
    assert len(other["x-request-id"]) == 32

    lines = capfd.readouterr().err.splitlines()
    first, second = map(json.loads, lines)  # one line each, whatever was asked
    assert first.pop("ms") > 0 and first.pop("ts").endswith("Z")
    assert first == {
        "level": "info", "event": "request", "request_id": "r-1", "trace_id": _TRACE, "tenant": tenant_hash("acme"),
        "route": "/query", "method": "POST", "status": 200, "action": "find", "hits": 1, "commit": head,
        "arguments": find,
    }  # fmt: skip
    assert (second["level"], second["route"], second["status"], second["code"]) == (
        "warning",
        "other",
        404,
        "E_NOT_FOUND",
    )

    series = _series(measures.text())
    assert (
        series["duckkb_http_requests_total", frozenset({("route", "/query"), ("method", "POST"), ("status", "200")})]
        == 1
    )
    labels = frozenset({("profile", "match"), ("degraded", "false"), ("route", "/query")})
    assert series["duckkb_query_requests_total", labels] == 1
    assert (
        series["duckkb_query_total_ms_sum", labels] == 250
        and series["duckkb_query_duration_seconds_sum", labels] == 0.25
    )
    assert series["duckkb_revision_info", frozenset({("commit", head)})] == 1
    assert series["duckkb_records", frozenset()] == 1
    said = measures.text().decode()
    assert not any(word in said for word in ("acme", "Note", "geese", "ducks", "wp-admin")), said

    request = _span(exported, "POST /query")
    assert request.context is not None and request.parent is not None
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (_TRACE, "b7ad6b7169203331")
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/query", "http.response.status_code": 200,
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find", "duckkb.hits": 1,
    }  # fmt: skip
    within = [
        one for one in exported.get_finished_spans() if one.parent and one.parent.span_id == request.context.span_id
    ]
    # asked with what stands in quotes, and without them
    assert sorted(one.name for one in within) == ["filter", "fuse", "lexical", "lexical", "plan"]
    assert all(request.start_time <= one.start_time <= one.end_time <= request.end_time for one in within)  # type: ignore[operator]


def test_a_pool_tells_the_steps_of_its_workers(base: Path, exported: InMemorySpanExporter) -> None:
    exported.clear()
    measures, pool = Measures(), Pool(base, OpenOptions(), 1)
    try:
        BaseFacts(base, pool).register_measures(measures)
        app = Telemetry(_Server(pool, measures, Caller("acme")), measures)
        _ask(app, "/actions/find", ("find", {"type": "Note", "query": "ducks", "mode": "match"}))
        request = _span(exported, "POST /actions")
        steps = [one for one in exported.get_finished_spans() if one.parent]
        assert [one.name for one in steps] == ["plan", "lexical", "fuse"]
        assert all(request.start_time <= one.start_time <= one.end_time <= request.end_time for one in steps)  # type: ignore[operator]
        os.kill(pool.pids()["readers"][0], signal.SIGKILL)
        deadline = time.monotonic() + HANG_S
        while _series(measures.text())["duckkb_pool_restarts_total", frozenset()] != 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        pool.close()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_server_tells_what_it_asked_of_models(tmp_path: Path, workers: int) -> None:
    with FakeModels() as endpoint:
        judge = f"rerank: {{method: http, model: judge, base_url: {endpoint.url}, timeout_ms: 20000, concurrency: 3}}"
        root = make_base(tmp_path / "kb", f"global:\n  embedding_model: none\n  {judge}\n")
        (root / "guide").mkdir()
        (root / "guide/install.md").write_text("# Install\n\nHow to install ducks.\n", "utf-8")
        for args in (["collection", "add", "guide"], ["update"], ["trust"]):
            assert run_in(root, args).code == 0
        token = "0123456789abcdef" * 4
        args = ("serve", "--metrics-open", "--workers", str(workers))
        with running(root, *args, log=tmp_path / "log", DUCKKB_MCP_TOKEN=token) as server:
            connection = server.connection()
            assert set(_model_series(ask(connection, "GET", "/metrics")[1]).values()) == {0}
            body = {"searches": [{"type": "lex", "query": "ducks"}]}
            response, answer = ask(connection, "POST", "/query", token, body)
            assert (response.status, len(endpoint.asked)) == (200, 1), answer
            deadline, models, text = time.monotonic() + HANG_S, {"rerank_queue_concurrency": 0.0}, b""
            while not models["rerank_queue_concurrency"]:
                assert time.monotonic() < deadline, models
                text = ask(connection, "GET", "/metrics")[1]
                models = _model_series(text)
        lines = [json.loads(line) for line in (tmp_path / "log").read_text("utf-8").splitlines()]
    (line,) = [line for line in lines if line.get("route") == "/query"]
    assert models == {
        "rerank_queue_depth": 0, "rerank_queue_active": 0, "rerank_queue_concurrency": 3,
        "rerank_queue_timed_out_total": 0, "rerank_queue_saturated_total": 0,
        "llm_pool_size": 3, "llm_pool_active": 0, "llm_pool_waiting": 0,
        "llm_pool_acquired_total": 1, "llm_pool_timed_out_total": 0,
    }  # fmt: skip
    series = _series(text)
    assert series["duckkb_records", frozenset()] == 1
    assert (("duckkb_pool_restarts_total", frozenset()) in series) == bool(workers)
    assert (line["event"], line["action"], line["hits"]) == ("request", "query", 1)


def test_tenants_are_named_where_the_operator_wants_it_and_questions_are_not_logged_by_default(
    base: Path, served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    measures = Measures(names_tenants=True)
    app = Telemetry(_Server(served, measures, Caller("acme")), measures, RequestLog())
    _ask(app, "/mcp", ("find", {"type": "Note", "query": "geese", "mode": "match"}))
    (line,) = capfd.readouterr().err.splitlines()
    assert "geese" not in line and "acme" not in line and json.loads(line)["hits"] == 0
    labels = {("route", "/mcp"), ("method", "POST"), ("status", "200"), ("tenant", "acme")}
    assert _series(measures.text())["duckkb_http_requests_total", frozenset(labels)] == 1


def test_a_search_without_its_model_is_counted_with_its_reason(tmp_path: Path) -> None:
    ontology = NOTES.replace("full_text: [title, text]", "full_text: [title, text], vectors: [text]")
    root = make_base(tmp_path / "kb", ontology)
    assert run_in(root, ["put", "Note", '{"id": "n1", "text": "ducks swim"}']).code == 0
    measures, served = Measures(), Served(root, OpenOptions())
    answer = served.run("find", {"type": "Note", "query": "ducks", "mode": "hybrid"}, Caller())
    served.close()
    measures.count_answer("find", answer, 0.1, "/mcp")
    (reason,) = [
        dict(labels)["reason"] for name, labels in _series(measures.text()) if name == "duckkb_query_degraded_total"
    ]
    assert reason.startswith("embed_") and [one["reason"] for one in answer["notices"]] == [reason]


def test_calls_to_models_are_counted_where_they_happen() -> None:
    measures = Measures()
    measures.watch_calls(lambda: [one for one in counts() if one.size == 7])
    pool = CallPool.get_shared(("rerank", "of this test"), 7, 0)
    with pool.slot(float("inf")):
        during = _series(measures.text())
    after = _series(measures.text())
    active = ("duckkb_rerank_queue_active", frozenset[tuple[str, str]]())
    assert (during[active], after[active], after["duckkb_llm_pool_acquired_total", frozenset()]) == (1, 0, 1)


def _model_series(text: bytes) -> dict[str, float]:
    """The series of models, by their names without the prefix."""
    plain = {name.removeprefix("duckkb_"): value for (name, labels), value in _series(text).items() if not labels}
    return {name: value for name, value in plain.items() if name.startswith(("rerank_", "llm_"))}


def _span(exported: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [one for one in exported.get_finished_spans() if one.name == name]
    return found
