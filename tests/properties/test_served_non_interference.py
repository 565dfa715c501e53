"""As test_non_interference, through the doors of a server: for who sees some types, status, headers and body of every answer are the
same, byte for byte, whatever else there is."""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.operations.catalog import ACTIONS
from duckkb.types.errors import DuckkbError
from tests.conftest import run_in
from tests.harness import worlds
from tests.harness.served_worlds import Door, Reply, door, printed, tokens_of
from tests.harness.worlds import DEEDS, Hidden, Visible
from tests.properties.test_non_interference import DOCUMENTS, KNOWN, LEAKS, QUESTIONS, UNKNOWN, Request, drawn
from tests.properties.test_non_interference import one_writer as one_writer

pytestmark = pytest.mark.long
Ask = Callable[[Door], Reply]
_NEWEST = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _NEWEST,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
PAIRS = [
    (Visible(1), Hidden(), Hidden(2, ("Secret", "Notes"), 30, 2, ("tear", "stray"))),
    (Visible(3, frozenset({"Note"})), Hidden(4, ("Nota",), 5), Hidden(5, ("Secret",), 30, 1, ("write", "link"))),
    (Visible(6, frozenset({"Note", "Person"}), True), Hidden(7, ("Search",), 0), Hidden(8, ("Personal", "Secret"), 30)),
    (Visible(9, frozenset({"Person"}), True, True), Hidden(), Hidden(10, ("Secret",), 30, 2, ("empty", "lose"))),
]
"""Worlds with what they have in common, and what either has besides."""
REQUESTS, LAST = 128, 12


def message(method: str, role: str, **params: Any) -> Ask:
    """By a revision without a handshake that has sessions too."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return lambda one: one.ask("POST", "/mcp", role, body)


def modern(method: str, role: str, **params: Any) -> Ask:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    headers = {"mcp-protocol-version": _NEWEST, "mcp-method": method}
    if name := str(params.get("name") or params.get("uri") or ""):
        headers["mcp-name"] = name
    return lambda one: one.ask("POST", "/mcp", role, body, headers)


def plain(chance: random.Random, request: Request) -> Ask:
    """A route of HTTP: mostly an action, or a search."""
    name, given, role = request
    names = chance.sample(["docs", "hid", "Note", "Secret", "nope"], chance.randint(0, 3))
    lane, question = chance.choice(["lex", "vec", "hyde"]), chance.choice(QUESTIONS)
    search = {"searches": [{"type": lane, "query": question}], **({"collections": names} if names else {})}
    method, route, body = chance.choice(
        [
            *[("POST", f"/actions/{name}", given)] * 6,
            *[("POST", "/query", search), ("POST", "/search", search)] * 2,
            *[("GET", route, None) for route in ("/metrics", "/ready", "/openapi.json", f"/actions/{name}", "/Secret")],
            *[("POST", "/actions/Secret", given), ("POST", "/query", [given]), ("POST", "/query", given)],
        ]
    )
    return partial(Door.ask, method=method, route=route, role=role, body=body)


def asked(chance: random.Random, request: Request) -> Ask:
    """A request of the registry through one of the doors, or one that a door has of its own."""
    name, given, role = request
    if chance.random() < 0.5:
        return plain(chance, request)
    send = chance.choice([message, modern])
    type, identity = chance.choice([*KNOWN, *UNKNOWN])
    uris = ["duckkb:schema", f"duckkb:schema/{quote(type, safe='')}", *(one for one in DOCUMENTS if ":" in one)]
    uris += [f"duckkb://{quote(type, safe='')}/{quote(str(identity), safe='')}{end}" for end in ("", "@HEAD", "@0abc")]
    greeting = ("initialize", _GREETING) if send is message else ("server/discover", {})
    begun = chance.choice(["", "n", "s", "Secret", "d"])
    ref = {"type": "ref/prompt", "name": "ask"}
    own: Sequence[tuple[str, dict[str, Any]]] = (
        greeting,
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": chance.choice(uris)}),
        ("resources/read", {"uri": chance.choice(uris)}),
        ("prompts/get", {"name": "ask", "arguments": {"question": "alpha", "type": type}}),
        ("completion/complete", {"ref": ref, "argument": {"name": "type", "value": begun}}),
    )
    method, params = chance.choice(own) if chance.random() < 0.3 else ("tools/call", {"name": name, "arguments": given})
    return send(method, role, **params)


def replies(
    place: Path,
    worlds_of: tuple[Visible, Hidden],
    requests: Sequence[Ask],
    seed: int,
    *,
    left_out: bool = False,
    workers: int = 0,
) -> list[Reply]:
    visible, hidden = worlds_of
    root, chance, found = worlds.base(place / "kb", visible, hidden), random.Random(seed), list[Reply]()
    with ExitStack() as stack:
        kb = stack.enter_context(worlds.opened(root))
        with suppress(DuckkbError):  # there is none such, or what is torn is not written
            kb.put("Secret", {"id": "guess", "text": "all hidden text"})
        one = stack.enter_context(door(root, left_out=left_out, workers=workers))
        for ask in requests:
            if hidden.types and chance.random() < 0.15:
                worlds.do(chance.choice(sorted(DEEDS)), root, kb)
            if visible.torn and len(found) == len(requests) - LAST:
                worlds.tear(next((root / "data" / "nodes" / "person").glob("*/*.jsonl")))
            found.append(ask(one))
            assert str(root).encode() not in found[-1].body
    return found


@pytest.mark.parametrize(("number", "workers"), [*((number, 0) for number in range(len(PAIRS))), (1, 2)])
def test_kx_10_what_is_hidden_changes_no_byte_of_an_answer(tmp_path: Path, number: int, workers: int) -> None:
    visible, *both = PAIRS[number]
    chance = random.Random(number)
    drawn_here = [drawn(chance) for _ in range(REQUESTS)]
    requests = [asked(chance, request) for request in drawn_here]
    first, second = (
        replies(tmp_path / name, (visible, hidden), requests, number, workers=workers)
        for name, hidden in zip(("one", "other"), both, strict=True)
    )
    for request, told, told_there in zip(drawn_here, first, second, strict=True):
        assert told == told_there, request
    errors = sum(b'"error"' in one.body for one in first)
    assert REQUESTS / 10 < errors < REQUESTS * 0.9, "some are answered, and some are refused"


def shown(
    place: Path, worlds_of: tuple[Visible, Hidden], requests: Sequence[Request]
) -> list[tuple[int, bytes, bytes]]:
    """What `duckkb tenant ask` ends with and writes, a process a request, while things happen in the hidden part."""
    visible, hidden = worlds_of
    root, chance, found = worlds.base(place / "kb", visible, hidden), random.Random(hidden.seed), []
    tokens_of(root)
    with worlds.opened(root) as kb:
        for action, given, role in requests:
            if hidden.types and chance.random() < 0.1:
                worlds.do(chance.choice(sorted(DEEDS)), root, kb)
            found.append(printed(root, ["tenant", "ask", role, action, json.dumps(given)]))
            assert str(root).encode() not in b"".join(found[-1][1:]), (action, given)
    return found


@pytest.mark.parametrize("number", range(len(PAIRS)))
@pytest.mark.parametrize("count", [16, pytest.param(REQUESTS, marks=pytest.mark.larger)])
def test_kx_10_what_is_hidden_changes_no_byte_of_what_the_command_line_prints(
    tmp_path: Path, number: int, count: int
) -> None:
    visible, *both = PAIRS[number]
    chance = random.Random(100 + number)
    looks = (request for request in iter(lambda: drawn(chance), None) if not ACTIONS[request[0]].writes)
    requests = list(islice(looks, count))
    first, second = (
        shown(tmp_path / name, (visible, hidden), requests) for name, hidden in zip(("one", "other"), both, strict=True)
    )
    for request, line, line_there in zip(requests, first, second, strict=True):
        assert line == line_there, request
    refused = sum(code != 0 for code, _, _ in first)
    assert count / 10 < refused < count * 0.9, "some are answered, and some are refused"


def test_kx_10_what_an_operator_is_shown_of_a_tenant_tells_nothing_else_either(tmp_path: Path) -> None:
    """`duckkb tenant ask`: output, errors and exit code."""
    asked_for = [(name, given) for name, given, role in LEAKS if role == "viewer" and given.get("mode") != "similar"]
    asked_for += [("types", {}), ("get", {"type": "Note", "identity": "n1"}), ("get", {"document": "hid/d0.md"})]
    found = []
    for name, hidden in (("one", Hidden()), ("other", Hidden(1, ("Secret",), 30, 2, ("stray",)))):
        root = worlds.base(tmp_path / name / "kb", Visible(touched=frozenset({"Note"})), hidden)
        tokens_of(root)
        args = [["tenant", "ask", "viewer", action, json.dumps(given)] for action, given in asked_for]
        found.append([(one.code, one.out, one.err) for one in (run_in(root, line) for line in args)])
    assert found[0] == found[1]
    assert {code for code, _, _ in found[0]} > {0} and "Note" in found[0][-3][1]


def test_kx_10_a_filter_behind_the_answer_would_be_seen(tmp_path: Path) -> None:
    """The control."""
    visible = Visible(touched=frozenset({"Note"}))
    leaks = [message("tools/call", role, name=name, arguments=given) for name, given, role in LEAKS]
    leaks += [
        partial(Door.ask, method="POST", route=f"/actions/{name}", role=role, body=given) for name, given, role in LEAKS
    ]
    found = [
        [
            replies(tmp_path / f"{name}{left_out}", (visible, hidden), leaks, 1, left_out=left_out)
            for name, hidden in (("none", Hidden()), ("secret", Hidden(1, ("Secret",), 30, 2, ("stray",))))
        ]
        for left_out in (True, False)
    ]
    differ = [[one != other for one, other in zip(*pair, strict=True)] for pair in found]
    assert sum(differ[0]) >= 12 and not any(differ[1]), differ
