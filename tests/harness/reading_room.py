"""The pages of a base, asked in this process as a browser asks: with cookies, and with the headers that browsers add by themselves."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from duckkb.operations.lifecycle import OpenOptions
from duckkb.server.application import application
from duckkb.server.authentication import BearerTokens
from duckkb.server.dispatcher import Front, Served
from duckkb.server.http_middleware import Doors
from duckkb.server.mcp_server import make
from duckkb.server.mcp_transports import McpMount, SessionLimits
from duckkb.server.metrics import Measures
from duckkb.server.server_log import Strangers
from duckkb.server.web.page_request import Sessions

ADDRESS = "http://127.0.0.1"
OWN: Mapping[str, str] = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
"""What a browser says of a form of this server's own page."""
_PROOF = re.compile(r'data-proof="([0-9a-f]{64})"')


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [given for name, given in self.tags if name == tag]


class Room:
    """A server of a base, and browsers that are signed in to it."""

    def __init__(self, root: Path, *, edits: bool = False, chosen: OpenOptions | None = None) -> None:
        self.served = Served(root, chosen or OpenOptions())
        self.tokens = BearerTokens(root)
        where = self.tokens.prepare()
        self.token = Path(where).read_text("utf-8").strip() if where else ""
        self.sessions = Sessions(self.tokens, Strangers(self.tokens))
        front = Front(self.served)
        mount = McpMount(make(front), make(front, notifies=True), SessionLimits(10, 600))
        self.app = application(front, self.sessions, self.tokens, mount, Measures(), Doors(edits=edits))

    def visitor(self) -> TestClient:
        """A browser of somebody who is not signed in."""
        return TestClient(self.app, base_url=ADDRESS, follow_redirects=False)

    def signed_in(self, token: str = "") -> TestClient:
        client = self.visitor()
        answer = client.post("/web/sign-in", data={"token": token or self.token, "proof": proof(client)}, headers=OWN)
        assert answer.status_code == 303, answer.text
        return client


def proof(client: TestClient, path: str = "/web/sign-in") -> str:
    """What a form of a page has to send."""
    found = _PROOF.search(client.get(path).text)
    assert found is not None
    return found[1]


@contextmanager
def room(root: Path, *, edits: bool = False, chosen: OpenOptions | None = None) -> Iterator[Room]:
    opened = Room(root, edits=edits, chosen=chosen)
    try:
        yield opened
    finally:
        opened.served.close()


def hits(page: str) -> list[str]:
    """The addresses of the results, in order."""
    return [str(given["href"]) for given in Elements(page).of("a") if "data-open" in given]


def harmless(page: str) -> Elements:
    """A page in which nothing of the data can act: no script, handler, style or frame but its own, and no address that runs."""
    found = Elements(page)
    scripts = [(given.get("src") or "").rpartition("/")[2] for given in found.of("script")]
    assert scripts in (["page.js"], []), scripts
    for tag, given in found.tags:
        assert tag not in ("iframe", "object", "embed", "base", "style", "img"), tag
        assert tag != "meta" or "http-equiv" not in given, given
        wrong = [name for name in given if name.startswith("on") or name in ("style", "srcdoc")]
        assert not wrong, (tag, given)
        for name in ("href", "src", "action", "formaction", "xlink:href"):
            value = (given.get(name) or "").strip().lower()
            assert value.startswith(("/web/", "#", "https://", "http://", "mailto:", "data:,")) or not value, (
                tag,
                given,
            )
    return found


def told(answer: Any) -> tuple[int, str]:
    """Of an answer what its reader can tell, but for the proof."""
    return answer.status_code, _PROOF.sub("", answer.text)
