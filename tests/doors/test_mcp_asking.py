"""What `duckkb mcp` asks a client's user, and what it completes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import httpx2
import mcp.client.session
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS

from tests.conftest import run_in, tree_bytes
from tests.doors.test_mcp import Http, command, http
from tests.doors.test_mcp import base as base
from tests.harness.waiting import HANG_S

_GONE = [f"n{number}" for number in range(3)]
_NEW = [{"id": f"m{number}", "title": "many"} for number in range(12)]


class User:
    """Answers what is asked, and remembers it; `answer` None: the client has nobody to ask."""

    def __init__(self, answer: str | None) -> None:
        self.answer, self.asked = answer, list[str]()

    async def __call__(self, _: Any, given: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(given.message)
        assert self.answer is not None
        return types.ElicitResult(action=self.answer)  # type: ignore[arg-type]


@asynccontextmanager
async def client(
    reached: Path | Http, revision: str, user: User, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    monkeypatch.setattr(mcp.client.session, "LATEST_HANDSHAKE_VERSION", revision)
    mode = "legacy" if revision in HANDSHAKE_PROTOCOL_VERSIONS else "auto"
    asking = {"elicitation_callback": user} if user.answer else {}
    if isinstance(reached, Path):
        program, *args = command(reached)
        async with Client(stdio_client(StdioServerParameters(command=program, args=args)), mode=mode, **asking) as one:
            yield one
        return
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {reached.token}"}, timeout=HANG_S) as web,
        Client(streamable_http_client(reached.url, http_client=web), mode=mode, **asking) as one,
    ):
        assert one.protocol_version == revision
        yield one


def call(reached: Path | Http, revision: str, user: User, patch: pytest.MonkeyPatch, name: str, **given: Any) -> Any:
    async def asked() -> Any:
        async with client(reached, revision, user, patch) as one:
            return json.loads((await one.call_tool(name, given)).content[0].text)

    return asyncio.run(asyncio.wait_for(asked(), HANG_S))


def use(reached: Path | Http, root: Path, revision: str, patch: pytest.MonkeyPatch, *, can_ask: bool) -> None:
    """Twelve records are put, replaced and deleted: by a user who declines, by one who accepts, and where nobody can be asked."""
    nobody, refusing, willing = User(None), User("decline"), User("accept")
    everything = {"type": "Note", "identities": [one["id"] for one in _NEW]}
    other = [{**one, "title": "other"} for one in _NEW]
    assert call(reached, revision, refusing, patch, "put", type="Note", records=_NEW)["inserted"] == 12
    assert refusing.asked == [], "what is new takes nothing away"
    before = tree_bytes(root)
    if can_ask:
        for name, given in (("put", {"type": "Note", "records": other}), ("delete", everything)):
            told = call(reached, revision, refusing, patch, name, **given)
            assert told["error"]["code"] == "E_REFUSED" and tree_bytes(root) == before
        assert ["replaces 12" in refusing.asked[0], "deletes 12" in refusing.asked[1]] == [True, True]
        assert call(reached, revision, refusing, patch, "delete", **everything, dry_run=True)["deleted"] == 12
    assert call(reached, revision, willing, patch, "put", type="Note", records=other)["updated"] == 12
    assert len(willing.asked) == can_ask
    assert call(reached, revision, willing if can_ask else nobody, patch, "delete", **everything)["deleted"] == 12
    few = call(reached, revision, refusing, patch, "delete", type="Note", identities=["n0"], dry_run=False)
    assert few["deleted"] == 1 and len(refusing.asked) == 2 * can_ask, "a few are not asked about"
    assert call(reached, revision, nobody, patch, "put", type="Note", records={"id": "n0"})["inserted"] == 1


@pytest.mark.long
def test_kx_14_a_write_that_takes_much_away_is_confirmed_where_the_client_can_ask(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http(base) as server:
        with_session = Http(server.url + "?session=1", server.token)
        for revision in KNOWN_PROTOCOL_VERSIONS:
            use(with_session, base, revision, monkeypatch, can_ask=revision >= "2025-06-18")
        for revision in (HANDSHAKE_PROTOCOL_VERSIONS[-1], KNOWN_PROTOCOL_VERSIONS[-1]):
            use(server, base, revision, monkeypatch, can_ask=revision not in HANDSHAKE_PROTOCOL_VERSIONS)


@pytest.mark.long
def test_kx_14_it_is_confirmed_over_stdio_too(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(base, base, HANDSHAKE_PROTOCOL_VERSIONS[-1], monkeypatch, can_ask=True)


@pytest.mark.long
def test_kx_14_arguments_are_completed_from_what_the_caller_sees(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def complete(reached: Http, revision: str, name: str, begun: str) -> list[str]:
        async with client(reached, revision, User(None), monkeypatch) as one:
            ref = types.PromptReference(type="ref/prompt", name="ask")
            return (await one.complete(ref, {"name": name, "value": begun})).completion.values

    ann, boss = (
        run_in(base, ["tenant", "add", *args, "--json"]).line["token"]
        for args in (["ann", "Note"], ["boss", "--role", "admin"])
    )
    with http(base) as server:
        for revision in (HANDSHAKE_PROTOCOL_VERSIONS[-1], KNOWN_PROTOCOL_VERSIONS[-1]):
            for token, begun, expected in ((boss, "p", ["Person"]), (ann, "", ["Note"]), (ann, "p", [])):
                assert asyncio.run(complete(Http(server.url, token), revision, "type", begun)) == expected
            assert {"Note", "guide"} <= {*asyncio.run(complete(Http(server.url, boss), revision, "collection", ""))}
            assert asyncio.run(complete(Http(server.url, boss), revision, "question", "N")) == []
