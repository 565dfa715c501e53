"""`duckkb serve` as a process, asked over HTTP by whom it knows, by many at once, and by whoever means it ill."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import httpx2
from jsonschema import Draft202012Validator

from duckkb.operations.catalog import ACTIONS
from tests.conftest import NOTES, commit, make_base, run_in
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.harness.servers import PATIENT, ask, served
from tests.harness.waiting import HANG_S, wait_until

_LEX = {"searches": [{"type": "lex", "query": "ducks"}]}
_REMOTE = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", api_key_env: SOME_KEY, dimensions: 16, max_retries: 0, timeout_s: 60}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    for folder in ("guide", "secret"):
        (root / folder).mkdir()
        (root / folder / "install.md").write_text(f"# Install\n\nHow to install ducks, {folder}.\n", "utf-8")
    for args in (
        ["put", "Note", json.dumps({"id": "n1", "title": "ducks 1", "text": "鸭子 swim"})],
        *(["collection", "add", folder] for folder in ("guide", "secret")),
        ["update"],
    ):
        assert run_in(root, args).code == 0
    commit(root)
    return root


class Server:
    """A server behind its URL, and what it wrote."""

    def __init__(self, root: Path, *args: str, **env: str) -> None:
        self.said = root.parent / "stderr.txt"
        with self.said.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "duckkb", "--kb", str(root), "serve", "--port", "0", *args],
                env={**os.environ, **PATIENT, "PYTHONUTF8": "1", **env},
                stdout=subprocess.PIPE,
                stderr=told,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said.read_text("utf-8")
        found = json.loads(line)
        self.url, self.port = found["url"], int(found["url"].rpartition(":")[2])
        self.token = Path(found["token"]).read_text("utf-8").strip() if found["token"] else ""

    def ask(self, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> httpx2.Response:
        """POST where there is a body."""
        token = self.token if token is None else token
        given = {"authorization": f"Bearer {token}"} if token else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {} if body is None else {"content": body} if isinstance(body, bytes) else {"json": body}
        method = "GET" if body is None else "POST"
        return httpx2.request(method, self.url + path, headers=given, timeout=HANG_S, **sent)

    def end(self) -> int:
        """What it ends with, on SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)


@contextmanager
def serving(root: Path, *args: str, **env: str) -> Iterator[Server]:
    server = Server(root, *args, **env)
    try:
        yield server
        assert server.process.poll() is not None or server.end() == 0
        assert "E_INTERNAL" not in (said := server.said.read_text("utf-8")), said
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (("mcp", "--http", "--log-format", "json", "--log-level", "INFO"), 1),
        (("mcp", "--http"), 0),
        (("serve",), 1),
        (("serve", "--log-level", "warning"), 0),
    ],
    ids=str,
)
def test_a_server_has_a_line_a_request_from_the_level_info_on(
    notes: Path, tmp_path: Path, args: tuple[str, ...], lines: int
) -> None:
    with served(notes, *args, log=tmp_path / "log") as server:
        ask(server.connection(), "POST", "/mcp", body={})
    assert [json.loads(line)["status"] for line in (tmp_path / "log").read_text("utf-8").splitlines()] == [401] * lines


def tenant(root: Path, name: str, *args: str) -> str:
    token: str = run_in(root, ["tenant", "add", name, *args, "--json"]).line["token"]
    return token


def audited(root: Path, which: str = "decisions") -> list[tuple[str, str, str]]:
    lines = run_in(root, ["tenant", "status", "--audit", "100", "--json"]).line[which]
    return [(one["tenant"], one["action"], one["outcome"]) for one in lines]


@pytest.mark.long
def test_kx_09_who_is_let_in_and_what_of_it_is_written_down(base: Path) -> None:
    ann, gone = tenant(base, "ann", "guide"), tenant(base, "gone", "guide")
    boss = tenant(base, "boss", "--role", "admin")
    assert run_in(base, ["tenant", "disable", "gone"]).code == 0
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"accept": "application/json, text/event-stream"}
    with serving(base) as server:
        asked = (("/query", _LEX), ("/search", _LEX), ("/mcp", rpc), ("/actions/types", {}), ("/metrics", None))
        for path, body in asked:
            assert server.ask(path, body, authorization="").status_code == 401, path
            assert server.ask(path, body, authorization="Basic YTpi").status_code == 401, path
            assert server.ask(path, body, token="0" * 64).status_code == 403, path
            assert server.ask(path, body, token=gone).status_code == 403, path
            expected = 403 if path == "/metrics" else 200  # which counts what ann must not see
            assert server.ask(path, body, token=ann, **accept).status_code == expected, path
            assert server.ask(path, body, token=boss, **accept).status_code == 200, path
        for path in ("/health", "/ready", "/openapi.json"):
            assert server.ask(path, authorization="").status_code == 200, path
            assert server.ask(path, host="evil.example").status_code == 421, path
        for host, origin, status in (
            (f"localhost:{server.port}", "http://localhost", 200),
            (f"127.0.0.1:{server.port}", "http://evil.example", 403),
            (f"127.0.0.1:{server.port}", "null", 403),
        ):
            assert server.ask("/query", _LEX, token=ann, host=host, origin=origin).status_code == status
        refused = server.ask("/actions/delete", {"type": "guide", "identities": ["x"]}, token=ann)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "E_FORBIDDEN")
        assert run_in(base, ["tenant", "revoke", "ann", "guide"]).code == 0
        assert server.ask("/query", _LEX | {"collections": ["guide"]}, token=ann).status_code == 403
        assert run_in(base, ["tenant", "rotate", "ann"]).code == 0
        assert server.ask("/query", _LEX, token=ann).status_code == 403
    lines, strangers = audited(base), audited(base, "refusals")
    assert ("gone", "http /mcp", "E_DENIED") in strangers and ("gone", "http /query", "E_DENIED") in strangers
    assert ("", "http /search", "E_TOKEN") in strangers and ("ann", "http query", "allowed") in lines
    assert not {"E_TOKEN", "E_DENIED"} & {outcome for _, _, outcome in lines}
    assert ("ann", "mcp tools/list", "allowed") in lines
    assert {("ann", f"http {name}", "E_FORBIDDEN") for name in ("delete", "metrics")} <= {*lines}


def test_kx_09_collections_that_the_caller_may_not_see_are_left_out_and_counted(base: Path) -> None:
    ann, boss = tenant(base, "ann", "guide"), tenant(base, "boss", "--role", "admin")
    with serving(base) as server:

        def asked(*collections: str, token: str = ann) -> httpx2.Response:
            return server.ask("/query", _LEX | {"collections": [*collections]}, token=token, x_request_id="r")

        every = server.ask("/query", _LEX, token=ann).json()
        assert [one["file"] for one in every["results"]] == ["duckkb://guide/install.md"] and every["warnings"] == []
        alone = asked("guide").json()
        assert alone == every
        hidden, unknown = asked("guide", "secret"), asked("guide", "nowhere")
        assert hidden.content == unknown.content and hidden.headers["x-request-id"] == "r"
        assert hidden.json()["results"] == alone["results"]
        assert [(one["code"], one["count"]) for one in hidden.json()["warnings"]] == [("W_LEFT_OUT", 1)]
        assert asked("guide", "secret", "nowhere").json()["warnings"][0]["count"] == 2
        assert asked("secret").content == asked("nowhere").content
        assert asked("secret").status_code == asked("nowhere", "secret").status_code == 403
        assert len(asked("guide", "secret", token=boss).json()["results"]) == 2
        assert asked("nowhere", token=boss).status_code == 404


@pytest.mark.long
def test_kx_09_answers_are_those_of_the_command_line_and_of_the_openapi_document(base: Path) -> None:
    with serving(base) as server:
        document = server.ask("/openapi.json", authorization="").json()
        operations = [one for path in document["paths"].values() for one in path.values()]
        assert len({one["operationId"] for one in operations}) == len(operations)
        assert {f"/actions/{name}" for name in ACTIONS} < document["paths"].keys()

        def resolved(value: dict[str, Any]) -> dict[str, Any]:
            while "$ref" in value:
                found: Any = document
                for name in value["$ref"].removeprefix("#/").split("/"):
                    found = found[name]
                value = found
            return value

        for operation in operations:
            if "requestBody" in operation:
                Draft202012Validator.check_schema(operation["requestBody"]["content"]["application/json"]["schema"])
            for answer in map(resolved, operation["responses"].values()):
                for content in answer.get("content", {}).values():
                    Draft202012Validator.check_schema(resolved(content["schema"]))

        def sound(path: str, body: dict[str, Any], status: int) -> Any:
            answer = server.ask(path, body)
            assert answer.status_code == status, answer.text
            described = resolved(document["paths"][path]["post"]["responses"][str(status)])
            Draft202012Validator(resolved(described["content"]["application/json"]["schema"])).validate(answer.json())
            return answer.json()

        told = sound("/search", _LEX | {"limit": 1, "minScore": 0.1}, 200)
        assert told["results"] == run_in(base, ["query", "lex: ducks", "-n", "1", "--json"]).line["results"]
        found = sound("/actions/find", {"type": "Note", "query": "鸭子", "mode": "match"}, 200)
        assert found == run_in(base, ["find", "Note", "鸭子", "-m", "--json"]).line
        assert sound("/actions/get", {"type": "Note", "identity": "n1"}, 200)["title"] == "ducks 1"
        put = {"type": "Note", "records": {"id": "n2", "title": "二"}}
        assert sound("/actions/put", put, 200)["inserted"] == 1
        assert run_in(base, ["get", "Note", "n2"]).line["title"] == "二"
        assert sound("/actions/get", {"type": "Note", "identity": "n3"}, 404)["error"]["code"] == "E_NOT_FOUND"
        assert sound("/actions/get", {"type": "Nota", "identity": "n3"}, 404)["error"]["code"] == "E_UNKNOWN_TYPE"
        wrong_type = sound("/actions/find", {"type": "Nota", "query": "鸭子", "limit": 1}, 404)["error"]
        assert wrong_type["suggestion"] == 'find {"type": "Note", "query": "鸭子", "limit": 1}'
        stale = put | {"records": {"id": "n2", "_etag": "0" * 16}}
        assert sound("/actions/put", stale, 409)["error"]["code"] == "E_STALE"
        wrong = sound("/actions/find", {"typ": "Note", "limit": "3"}, 400)["error"]["details"]["findings"]
        assert {one["field"] for one in wrong} == {"/typ", "/type", "/limit"}
        wrong = sound("/query", {"searches": [{"type": "x", "query": 1, "b": 2}, 3], "minScore": 2, "a": 1}, 400)
        fields = {one["field"] for one in wrong["error"]["details"]["findings"]}
        assert fields >= {"/a", "/searches/0/type", "/searches/0/query", "/searches/0/b", "/searches/1"}


@pytest.mark.long
def test_kx_09_hostile_bodies_are_refused_and_the_server_goes_on(base: Path) -> None:
    chance = random.Random(9)
    whole = json.dumps(_LEX).encode()
    refused: list[tuple[int, bytes]] = [
        (400, b""),
        (400, b"{"),
        (400, b"[1]"),
        (400, b"7"),
        (400, b'{"searches": [], "searches": []}'),
        (400, b'{"searches": [{"type": "lex", "query": "\xff"}]}'),
        (400, b'{"searches": [{"type": "lex", "query": "x"}], "limit": NaN}'),
        (400, b'{"searches": [{"type": "lex", "query": "x"}], "limit": ' + b"9" * 5000 + b"}"),
        (400, b'{"searches": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        (413, b" " * (4 * 1024 * 1024 + 1)),
    ]
    with serving(base, "--log", "queries") as server:
        for status, body in refused:
            answer = server.ask("/query", body)
            assert answer.status_code == status and answer.json()["error"]["code"], (body[:60], answer.text[:200])
        for _ in range(40):
            torn = bytearray(whole)
            for _ in range(chance.randint(1, 6)):
                torn[chance.randrange(len(torn))] = chance.randrange(256)
            assert server.ask("/query", bytes(torn)).status_code in (200, 400)
        for name in ACTIONS:
            assert server.ask(f"/actions/{name}", {"": 1, "limit": "3", "type": [], "x" * 9999: {}}).status_code == 400
        assert server.ask("/actions/nothing", {}).status_code == 404
        assert server.ask("/actions/put").status_code == 405
        assert server.ask("/actions/types", {}, x_timeout_ms="-1").status_code == 400
        odd = server.ask("/actions/types", {}, x_request_id="a b")
        assert odd.status_code == 200 and odd.headers["x-request-id"] != "a b"
        assert server.ask("/query", _LEX).status_code == 200
        assert all(json.loads(line)["level"] for line in server.said.read_text("utf-8").splitlines())


@pytest.mark.long
def test_kx_09_a_body_that_takes_long_to_read_keeps_nobody_waiting(base: Path) -> None:
    """All that is wrong with it is looked for; meanwhile others are answered, and what is told of it is bounded."""
    bodies = [
        ("/actions/find", b'{"a": [' + b",".join([b'{"b": {}}'] * 100_000) + b"]}"),
        ("/query", b'{"searches": [' + b",".join([b"{}"] * 200_000) + b"]}"),
        ("/actions/delete", b'{"type": "Note", "identities": [' + b",".join([b"{}"] * 200_000) + b"]}"),
        ("/query", b'{"searches": [' + b",".join([b'{"type": "lex", "query": "ducks"}'] * 33) + b"]}"),
        ("/query", json.dumps({"searches": [{"type": "vec", "query": "ducks " * 4_000}]}).encode()),
        ("/actions/find", json.dumps({"type": "Note", "query": "ducks " * 4_000}).encode()),
        ("/actions/multi_get", json.dumps({"pattern": "{a,b}" * 40}).encode()),
    ]
    with serving(base) as server, ThreadPoolExecutor(1) as aside:
        most = 0
        for route, body in bodies:
            asked, others = aside.submit(server.ask, route, body), 0
            while not asked.done():
                assert server.ask("/actions/types", {}).status_code == 200
                others += 1
            answer = asked.result()
            assert answer.status_code == 400 and len(answer.content) < 30_000, (route, answer.text[:300])
            most = max(most, others)
        assert most > 5, "one that was read where all are served would let two or three through"
        # As an expression of the usual form this glob goes on for years, and no other thread of the process goes on meanwhile.
        given = {"pattern": "*?" * 200 + "!"}
        assert server.ask("/actions/multi_get", given).status_code == 404


@pytest.mark.long
def test_kx_09_who_sends_half_a_request_is_not_waited_for(base: Path) -> None:
    with serving(base) as server:
        head = f"POST /query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\nContent-Length: 99\r\n\r\n"
        halves = [b"", b"POST /query HT", head.encode(), head.encode() + b"{"]

        def ending(sent: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as one:
                one.sendall(sent)
                return b"".join(iter(lambda: one.recv(4096), b""))

        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(ending, halves))
        assert told[:2] == [b"", b""] and all(b"HTTP/1.1 408" in one and b"E_BODY" in one for one in told[2:])
        assert server.ask("/query", _LEX).status_code == 200


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[Path, FakeEndpoint]]:
    """A base whose model answers when the test lets it."""
    with FakeEndpoint() as endpoint:
        root = make_base(tmp_path / "kb", _REMOTE.format(url=endpoint.url))
        assert run_in(root, ["trust"], env={"SOME_KEY": "key"}).code == 0
        assert run_in(root, ["put", "Note", '{"id": "a", "text": "fox"}'], env={"SOME_KEY": "key"}).code == 0
        yield root, endpoint


def question(number: int) -> dict[str, Any]:
    return {"type": "Note", "query": f"question {number}", "mode": "similar"}


def waiting(server: Server) -> tuple[float, float]:
    """Calls that wait, and that are under way."""
    lines = dict(
        line.rsplit(" ", 1) for line in server.ask("/metrics", authorization="").text.splitlines() if line[0] != "#"
    )
    return float(lines["duckkb_calls_waiting"]), float(lines["duckkb_calls_active"])


@pytest.mark.long
def test_kx_19_calls_are_bounded_taken_in_turn_joined_and_answered_in_time(
    remote: tuple[Path, FakeEndpoint],
) -> None:
    root, endpoint = remote
    ann, bo = (tenant(root, name, "Note", "--role", "editor") for name in ("ann", "bo"))
    limits = ("--concurrency", "1", "--max-waiting", "6", "--metrics-open", "--timeout", "25")
    with serving(root, *limits, SOME_KEY="key") as server, ThreadPoolExecutor(32) as threads:
        ended: list[str] = []

        def find(number: int, token: str, **headers: str) -> httpx2.Response:
            answer = server.ask("/actions/find", question(number), token=token, **headers)
            ended.append(f"{'ann' if token == ann else 'bo'} {answer.status_code}")
            return answer

        assert find(0, ann).status_code == find(0, bo).status_code == 200
        asked = len(endpoint.asked)
        held = threading.Event()
        endpoint.always = Reply(held=held, body=None)

        # Equal calls of one caller that wait are one.
        equal = [threads.submit(find, 1, ann) for _ in range(3)]
        wait_until(lambda: len(endpoint.asked) == asked + 1)
        equal.append(threads.submit(find, 1, ann))
        # One at a time of ann's is under way: her others wait, and more than six are too many.
        flood = [threads.submit(find, number, ann) for number in range(2, 7)]
        wait_until(lambda: waiting(server) == (6, 1))
        busy = find(8, ann)
        assert (busy.status_code, busy.json()["error"]["code"]) == (429, "E_BUSY")
        assert int(busy.headers["retry-after"]) >= 1
        # Who has nothing waiting gets a place of hers, who has most of them.
        other = threads.submit(find, 9, bo)
        wait_until(lambda: waiting(server) == (6, 2))
        late = threads.submit(find, 10, bo, x_timeout_ms="300")
        told = late.result(HANG_S)
        assert (told.status_code, told.json()["error"]["code"]) == (504, "E_TIMEOUT")
        assert told.json()["error"]["details"] == {"begun": False}

        ended.clear()
        held.set()
        answers = [one.result(HANG_S) for one in (*equal, *flood, other)]
        assert len({one.content for one in answers[:4]}) == 1 and answers[0].status_code == 200
        assert answers[-1].status_code == 200, "the flood of another is not bo's"
        assert [one.status_code for one in answers[4:-1]].count(429) == 1
        assert "bo 200" in ended[:7], ended
        texts = [text for one in endpoint.asked[asked:] for text in one.texts]
        assert len([one for one in texts if "question 1" in one]) == 2, "the first, and the three behind it as one"
        assert not [one for one in texts if "question 10" in one], "nobody waited for it any more"
        assert waiting(server) == (0, 0)


@pytest.mark.long
def test_kx_19_what_was_begun_is_carried_through(remote: tuple[Path, FakeEndpoint]) -> None:
    root, endpoint = remote
    with (
        serving(root, "--timeout", "0.5", "--dedupe", "off", SOME_KEY="key") as server,
        ThreadPoolExecutor(4) as threads,
    ):
        put = {"type": "Note", "records": {"id": "b", "text": "hen"}}
        held = threading.Event()
        endpoint.always = Reply(held=held, body=None)
        told = server.ask("/actions/put", put, x_timeout_ms="60000")
        assert (told.status_code, told.json()["error"]["details"]) == (504, {"begun": True})
        held.set()
        wait_until(lambda: server.ask("/actions/get", {"type": "Note", "identity": "b"}).status_code == 200)
        assert run_in(root, ["get", "Note", "b"]).line["text"] == "hen"

        # On SIGTERM what is under way is answered, and nobody else is let in.
        held.clear()
        asked = len(endpoint.asked)
        under_way: Future[httpx2.Response] = threads.submit(
            httpx2.post,
            server.url + "/mcp",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "put", "arguments": put | {"records": {"id": "c", "text": "owl"}}},
            },
            headers={
                "authorization": f"Bearer {server.token}",
                "accept": "application/json, text/event-stream",
            },
            timeout=HANG_S,
        )
        wait_until(lambda: len(endpoint.asked) > asked)
        server.process.send_signal(signal.SIGTERM)

        def closed() -> bool:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            except OSError:
                return True
            return False

        wait_until(closed)
        held.set()
        assert under_way.result(HANG_S).status_code == 200
        assert server.process.wait(HANG_S) == 0
    assert run_in(root, ["get", "Note", "c"]).line["text"] == "owl"


@pytest.mark.long
def test_kx_19_a_signal_ends_it_soon_whatever_is_under_way(remote: tuple[Path, FakeEndpoint]) -> None:
    root, endpoint = remote
    with serving(root, SOME_KEY="key") as server, ThreadPoolExecutor(1) as threads:
        asked = len(endpoint.asked)
        endpoint.always = Reply(silent=True)
        lost = threads.submit(server.ask, "/actions/find", question(1))
        wait_until(lambda: len(endpoint.asked) > asked)
        began = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - began < 30, "the model has 60 s"
        assert lost.result(HANG_S).status_code == 503


@pytest.mark.long
def test_kx_09_a_tenant_makes_so_many_calls_in_a_time(base: Path) -> None:
    ann, bo = (tenant(base, name, "Note") for name in ("ann", "bo"))
    with serving(base, "--rate", "0.2", "--log", "off") as server:
        told = [server.ask("/actions/types", {}, token=ann) for _ in range(5)]
        statuses = [one.status_code for one in told]
        assert statuses[0] == 200 and 429 in statuses
        late = told[statuses.index(429)]
        assert late.json()["error"]["details"]["retry_after_s"] == int(late.headers["retry-after"]) in range(1, 6)
        assert server.ask("/actions/types", {}, token=bo).status_code == 200
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "types", "arguments": {}}}
        accept = {"accept": "application/json, text/event-stream"}
        several = [server.ask("/mcp", call, token=bo, **accept).json()["result"] for _ in range(4)]
        assert "E_BUSY" in {one["structuredContent"].get("error", {}).get("code") for one in several}
        wait_until(lambda: server.ask("/actions/types", {}, token=ann).status_code == 200)


def test_kx_09_beyond_this_machine_only_under_names_that_are_given(base: Path) -> None:
    refused = run_in(base, ["serve", "--host", "0.0.0.0", "--port", "0", "--json"])
    assert refused.code == 2 and "--allowed-host" in refused.error["suggestion"]
    with serving(base, "--host", "0.0.0.0", "--allowed-host", "kb.example") as server:
        for name, status in (("kb.example", 200), ("KB.example:443", 200), ("localhost", 200), ("other.example", 421)):
            answer = httpx2.get(f"http://127.0.0.1:{server.port}/health", headers={"host": name})
            assert answer.status_code == status, name


@pytest.mark.long
def test_kx_09_worker_processes_answer_the_same_in_the_background_until_stop(base: Path) -> None:
    started = run_in(base, ["serve", "--port", "0", "--workers", "2", "--timeout", "20", "--daemon", "--json"])
    assert started.code == 0, started.err
    try:
        url = started.line["url"]
        token = Path(run_in(base, ["tenant", "status", "--json"]).line["server_token"]).read_text("utf-8").strip()

        def ask(path: str, body: dict[str, Any]) -> Any:
            answer = httpx2.post(url + path, json=body, headers={"authorization": f"Bearer {token}"}, timeout=HANG_S)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert ask("/actions/put", {"type": "Note", "records": {"id": "n5", "title": "geese"}})["inserted"] == 1
        found = ask("/actions/find", {"type": "Note", "query": "geese", "mode": "match"})
        assert found == run_in(base, ["find", "Note", "geese", "-m", "--json"]).line
        measures = httpx2.get(f"{url}/metrics", headers={"authorization": f"Bearer {token}"}, timeout=HANG_S).text
        assert "duckkb_pool_restarts_total 0.0" in measures and "duckkb_records 4.0" in measures
        again = run_in(base, ["mcp", "--http", "--port", "0", "--daemon", "--json"])
        assert again.code == 1 and again.error["code"] == "E_SERVING"
        assert run_in(base, ["serve", "stop"]).line == started.line
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/health")
    finally:
        run_in(base, ["serve", "stop"])
