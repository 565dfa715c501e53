"""Viewers who flood a server with what takes long: another's read is answered at once, and nothing goes on that nobody waits for."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.servers import Server, ask, served

_CLIENTS = 6  # of each viewer who floods
_LONG = "SELECT count(*) AS n FROM note a, note b, note c, note d, note e WHERE length(a.id || b.id || c.id || d.id || e.id) = 1"
_LETTERS = "string_split(replace(text, 's', 'ssssssssssssssssssssssssss'), '')"
_SLOW_FILTER = (
    f"len(list_filter({_LETTERS}, a -> len(list_filter({_LETTERS}, b -> "
    f"len(list_filter({_LETTERS}, c -> md5(concat(a, b, c)) = 'x')) > 0)) > 0)) > 0"
)
_FLOOD: list[tuple[str, dict[str, Any]]] = [
    ("sql", {"statement": _LONG, "timeout": 3_600}),
    ("find", {"type": "Note", "where": _SLOW_FILTER, "mode": "where"}),
    ("growth", {"timeout": 3_600}),
    ("quality", {"timeout": 3_600}),
    ("impact", {}),
]
_QUESTIONS = "questions:\n  - question: ducks\n    type: Note\n    mode: match\n    expected: {n1: 1}\n"


def _base(root: Path) -> dict[str, str]:
    """A base, and the tokens of its viewers."""
    make_base(root, NOTES + _QUESTIONS)
    lines = "\n".join(json.dumps({"id": f"n{n}", "title": f"ducks {n}", "text": "swim " * 20}) for n in range(300))
    assert run_in(root, ["put", "Note", "--batch", "-"], stdin=lines).code == 0
    commit(root)
    added = [run_in(root, ["tenant", "add", name, "Note", "--json"]) for name in ("ann", "bo", "cy")]
    return {one.line["tenant"]: one.line["token"] for one in added}


def _flood(server: Server, token: str, first: int, ends: threading.Event, codes: dict[str, int]) -> None:
    """Ask for one slow thing after the other; each second client goes before its answer."""
    for at in range(first, 1_000_000):
        name, given = _FLOOD[at % len(_FLOOD)]
        if ends.is_set():
            return
        connection = server.connection()
        connection.timeout = 2.0 if at % 2 else 60.0
        with suppress(OSError, HTTPException):
            answer, body = ask(connection, "POST", f"/actions/{name}", token, given)
            code = json.loads(body).get("error", {}).get("code", answer.status)
            codes[f"{name} {code}"] = codes.get(f"{name} {code}", 0) + 1
        connection.close()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_two_viewers_who_flood_a_server_hold_up_nobody_else(workers: str, tmp_path: Path, campaign: Campaign) -> None:
    tokens, seconds = _base(tmp_path / "kb"), campaign.pick(8, 120)
    took, ends, codes = list[float](), threading.Event(), dict[str, int]()
    flags = ("serve", "--workers", workers, "--max-seconds", "10")
    with served(tmp_path / "kb", *flags, log=tmp_path / "log") as server, ThreadPoolExecutor(2 * _CLIENTS) as threads:
        connection = server.connection()
        ask(connection, "POST", "/actions/get", tokens["cy"], {"type": "Note", "identity": "n7"})
        flood = [
            threads.submit(_flood, server, tokens[name], number, ends, codes)
            for name in ("ann", "bo")
            for number in range(_CLIENTS)
        ]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            answer, body = ask(connection, "POST", "/actions/get", tokens["cy"], {"type": "Note", "identity": "n7"})
            took.append(time.monotonic() - began)
            assert (answer.status, json.loads(body)["title"]) == (200, "ducks 7")
        ends.set()
        for each in flood:
            each.result()
        answer, body = ask(
            server.connection(), "POST", "/actions/sql", tokens["cy"], {"statement": "SELECT count(*) n FROM note"}
        )
        assert (answer.status, json.loads(body)["rows"]) == (200, [{"n": 300}])
    for answered, number in codes.items():
        campaign.count(f"{answered}, to who floods {workers} workers", number)
    assert not [
        answered
        for answered in codes
        if answered.endswith(("E_INTERNAL", "E_UNAVAILABLE", "E_WORKER", "E_ARGUMENT", "E_FILTER"))
    ], codes
    took.sort()
    campaign.count(f"reads beside a flood, {workers} workers", len(took))
    campaign.count(f"ms at the 99th percentile, {workers} workers", round(1000 * took[int(0.99 * (len(took) - 1))]))
    campaign.count(f"ms at most, {workers} workers", round(1000 * took[-1]))
    assert took[int(0.99 * (len(took) - 1))] < 1, took[-20:]
