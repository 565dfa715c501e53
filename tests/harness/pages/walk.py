"""Walks through all pages of a base: from each page's bare address over the links that pages have, and by requests drawn at random."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.routing import Route
from starlette.testclient import TestClient

import duckkb.server.web
from duckkb.operations.lifecycle import OpenOptions
from tests.fakes import HashEmbedder
from tests.harness.pages.judge import Judged, judged
from tests.harness.reading_room import OWN, Room, proof, room

_SOURCES = Path(duckkb.server.web.__file__).parent
_ARGUMENT = re.compile(r"""(?:given|number|params\.get|form\.get)\(\s*f?["']([\w.]+)["']|form\[["']([\w.]+)["']\]""")
_OF_SESSIONS = frozenset({"sign-in", "sign-out", "open", "preferences"})
BY_MEANING = re.compile(
    r"/web/record/near|/web/change/(impact|findings)|/web/quality|/web/health|/web/search\?(?!.*mode=match)|/web/edit\?.*id="
    r"|/web/records\?(.*&)?type=cites"
)
"""Pages whose order, what they find wrong, how a value is typed (one with invisible signs is as JSON), or how much of a name has room (an edge's
is JSON, longer by what is escaped), goes by what texts say: these are judged, and not held against each other."""
Pair = tuple[str, str]


@contextmanager
def opened(root: Path, **chosen: Any) -> Iterator[Room]:
    """A server that allows edits, whose models are fakes."""
    with room(root, edits=True, chosen=OpenOptions(**{"embedder": HashEmbedder(), **chosen})) as found:
        yield found


def addresses(found: Room, method: str = "GET") -> list[str]:
    """Those of all pages, without those of sessions: what comes later is in it by itself."""
    routes = [one for one in found.app._app.routes if isinstance(one, Route)]  # type: ignore[attr-defined]
    names = [
        one.path.removeprefix("/web/")
        for one in routes
        if one.path.startswith("/web/") and method in (one.methods or ())
    ]
    return [f"/web/{name}" for name in names if "{" not in name and name and name not in _OF_SESSIONS]


def arguments() -> list[str]:
    """The names that pages read from addresses and forms."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(_SOURCES.rglob("*.py")))
    return sorted({one or other for one, other in _ARGUMENT.findall(text)} - {"proof", "token", "code", "next"})


@dataclass
class Twins:
    """Browsers at two bases of one shape, of which the first is hostile; `seen` counts pages by address."""

    first: TestClient
    second: TestClient
    seen: Counter[str]

    def walk(self, starts: Sequence[Pair], chance: random.Random, most: int) -> None:
        """Visit pairs of pages, those of addresses that were seen least first, and hold each against the other."""
        waiting: dict[str, list[Pair]] = {}
        known = set[str]()

        def add(pairs: Sequence[Pair]) -> None:
            for pair in pairs:
                if pair[0] not in known:
                    known.add(pair[0])
                    waiting.setdefault(_kind(pair[0]), []).append(pair)

        add(starts)
        for _ in range(most):
            if not waiting:
                break
            kind = min(waiting, key=lambda one: (self.seen[one], one))
            pair = waiting[kind].pop(chance.randrange(len(waiting[kind])))
            waiting = {name: some for name, some in waiting.items() if some}
            add(self.visit(pair))

    def visit(self, pair: Pair) -> list[Pair]:
        """Judge both pages; the pairs of pages that they lead to."""
        self.seen[_kind(pair[0])] += 1
        answers = [client.get(address) for client, address in zip((self.first, self.second), pair, strict=True)]
        try:
            one, other = map(judged, answers)
        except AssertionError as problem:
            raise AssertionError(f"{pair}: {problem}") from problem
        assert _headers(answers[0]) == _headers(answers[1]), pair
        if BY_MEANING.match(pair[0]):
            assert answers[0].status_code == answers[1].status_code, pair
            return []
        assert one.skeleton == other.skeleton, (pair, _first_difference(one, other))
        assert len(one.links) == len(other.links), pair
        return [*zip(one.links, other.links, strict=True)]


def _kind(address: str) -> str:
    """A page, and whether a part of it or one of the past is asked for."""
    parts = urlsplit(address)
    return parts.path + ("?at" if "at" in parse_qs(parts.query) else "")


def _headers(answer: Any) -> list[tuple[str, str]]:
    return sorted(
        (name, value)
        for name, value in answer.headers.items()
        if name not in ("content-length", "x-request-id", "date")
    )


def _first_difference(one: Judged, other: Judged) -> Any:
    for at, (left, right) in enumerate(zip(one.skeleton, other.skeleton, strict=False)):
        if left != right:
            return at, one.skeleton[max(0, at - 6) : at + 3], other.skeleton[max(0, at - 6) : at + 3]
    return len(one.skeleton), len(other.skeleton)


@dataclass(frozen=True)
class Values:
    """What stands in requests: types, identities, whatever else, and types with identities that are there."""

    types: Sequence[str]
    identities: Sequence[str]
    others: Sequence[str]
    known: Sequence[tuple[str, str]]

    def drawn(self, name: str, chance: random.Random) -> str:
        match name:
            case "type" | "label":
                return chance.choice(self.types)
            case "id" | "after":
                return chance.choice(self.identities)
            case "part":
                return "1"
            case "at":
                return chance.choice(["HEAD", "main", "HEAD~1", "0abc", "--output=x", "nope"])
            case "mode":
                return chance.choice(["match", "similar", "hybrid", "x"])
        return chance.choice([*self.others, *self.identities[:5], "1", "2", "3", "9" * 12, "-1", ""])


@dataclass(frozen=True)
class Request:
    """One for a page; `sent` are the fields of a form, or None where none is sent."""

    address: str
    sent: tuple[tuple[str, str], ...] | None = None


def drawn(chance: random.Random, pages: Sequence[str], forms: Sequence[str], values: Values) -> Request:
    """A request for any page with any arguments: most name what is there, as all others fail alike."""
    names = arguments()
    page = chance.choice([*pages, *pages, "/web/nope", "/web/record/nope"])
    often = {"type": 0.85, "id": 0.85, "q": 0.5, "name": 0.5, "at": 0.08, "part": 0.3, "limit": 0.3}
    given = {name: values.drawn(name, chance) for name in names if chance.random() < often.get(name, 0.12)}
    if chance.random() < 0.5:
        given |= dict(zip(("type", "id"), chance.choice(values.known), strict=True))
        given.pop("after", None)
    if chance.random() < 0.2:
        given[chance.choice(["f.topic", "f.text", "f.id", "f.size.to", "choose.0", "<b>", "w.id"])] = values.drawn(
            "", chance
        )
    query = urlencode(given)
    if forms and chance.random() < 0.25:
        sent = {name: values.drawn(name, chance) for name in names if chance.random() < 0.4}
        return Request(f"{chance.choice(forms)}?{query}", tuple(sent.items()))
    return Request(f"{page}?{query}", None)


def asked(client: TestClient, request: Request, **headers: str) -> Any:
    """The answer; what is sent has its proof."""
    if request.sent is None:
        return client.get(request.address, headers=headers)
    given = dict(request.sent) | {"proof": proof(client, "/web/search")}
    return client.post(request.address, data=given, headers={**OWN, **headers})
