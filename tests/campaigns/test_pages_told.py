"""Every page of a served base, as test_pages: no page tells a secret, who sees a part of the base is shown the same bytes whatever else
there is, and no form is taken that a page of this server did not send."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.server.dispatcher import Served
from duckkb.server.web import site
from duckkb.types.request_context import Caller
from tests.campaigns.test_pages import evil as evil
from tests.conftest import commit, git, tree_bytes
from tests.fakes import HashEmbedder
from tests.harness import worlds
from tests.harness.campaign import Campaign
from tests.harness.pages import bases
from tests.harness.pages.bases import hostile
from tests.harness.pages.judge import judged
from tests.harness.pages.walk import Request, Values, addresses, asked, drawn, opened
from tests.harness.reading_room import OWN, Room, proof
from tests.harness.served_worlds import tokens_of
from tests.harness.worlds import DEEDS, Hidden, Visible

KEY = "sk-MARKED-7f3a9c1e5b8d2046-not-to-be-seen"
_PIECE = 10


class Telling(HashEmbedder):
    """A model whose errors repeat all that they know."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self._said = said

    def embed_queries(self, texts: Sequence[str]) -> Any:
        raise RuntimeError(self._said)


def _secrets(found: Room, root: Path, cookies: Sequence[str]) -> Mapping[str, str]:
    """By a name what no page may tell."""
    home = {
        name: os.environ[name]
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME")
        if os.environ.get(name, "/") != "/"
    }
    hashed = hashlib.sha256(found.token.encode()).hexdigest()
    keys = {
        "the server's token": found.token,
        "its hash": hashed,
        "a key": KEY,
        "the key of sessions": found.sessions._key.hex(),
    }
    places = {
        "the package": str(Path(duckkb.__file__).parent),
        "the interpreter": os.path.realpath(os.__file__),
        "beside the base": f"{root.parent}/",
    }
    return {**keys, **{f"session {at}": one for at, one in enumerate(cookies)}, **home, **places}


def _told(answer: Any, root: Path, secrets: Mapping[str, str]) -> list[str]:
    """Names of secrets of which a piece is told; the folder of the base itself is none for who sees all of it."""
    text = f"{answer.text}\n" + "\n".join(
        f"{name}: {value}" for name, value in answer.headers.items() if name != "set-cookie"
    )
    text = text.replace(str(root), "")
    found = []
    for name, secret in secrets.items():
        length = len(secret) if secret.startswith("/") else _PIECE
        pieces = {secret[at : at + length] for at in range(len(secret) - length + 1)}
        found += [name] if any(one in text or one[::-1] in text for one in pieces) else []
    return found


def _broken(root: Path, found: Room, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What makes pages fail in other ways, one after the other."""
    part = next((root / "data" / "nodes" / "note").rglob("*.jsonl"))
    types, before = root / "config.yaml", part.read_bytes()
    yield "nothing"
    part.write_bytes(before + f'{{"torn": "{KEY}\n'.encode())
    yield "a line that cannot be read"
    part.unlink()
    part.symlink_to("/etc/passwd")
    yield "a link out of the base"
    part.unlink()
    part.write_bytes(before)
    kept = types.read_text("utf-8")
    types.write_text(
        kept.replace('"embedding_model": "none"', f'"embedding_model": "none", "nonsense": "{KEY}"'), "utf-8"
    )
    yield "a configuration that does not load"
    types.write_text(kept, "utf-8")
    (root / ".git").rename(root.parent / "away")
    yield "no repository"
    (root.parent / "away").rename(root / ".git")

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{KEY} in {duckkb.__file__} of {os.environ['XDG_STATE_HOME']}")

    monkeypatch.setattr(Served, "run", fails)
    yield "an error that nobody expected"


def test_no_page_tells_a_secret(campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of the environment, tokens, sessions, and paths of the machine: not on pages, nor on those of errors."""
    for name in ("SOME_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, KEY)
    root, chance = bases.base(tmp_path / "some-folder" / "kb", hostile), campaign.random("secrets")
    commit(root, "as it is")
    codes = Counter[str]()
    with opened(root, embedder=Telling(f"{KEY} {os.environ['XDG_CACHE_HOME']}")) as found:
        client, other = found.signed_in(), found.signed_in()
        secrets = _secrets(found, root, [value for one in (client, other) for value in one.cookies.values()])
        for state in _broken(root, found, monkeypatch):
            for _ in range(campaign.pick(25, 400)):
                request = drawn(chance, addresses(found), addresses(found, "POST"), bases.values(hostile))
                try:
                    answer = asked(client, request)
                except AssertionError:  # no page has a proof while the base does not load
                    continue
                assert not (told := _told(answer, root, secrets)), (state, request, told, answer.text[-3_000:])
                codes[f"{state}: {answer.status_code}"] += 1
            for status in (
                client.get("/web/search?q=mark01&mode=similar"),
                client.get("/web/open?code=x"),
                client.get("/web/sign-in"),
            ):
                assert not (told := _told(status, root, secrets)), (state, told)
    assert codes.total() > 50 and codes["an error that nobody expected: 500"], codes
    campaign.count("random requests for pages that might tell a secret", codes.total())


def test_a_page_that_tells_a_secret_would_be_seen(evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: an error page that says what the error says."""

    def careless(problem: Exception) -> dict[str, Any]:
        return {"error": {"code": "E_INTERNAL", "message": repr(problem), "suggestion": ""}}

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{KEY} {duckkb.__file__}")

    with opened(evil) as found:
        client = found.signed_in()
        secrets = _secrets(found, evil, [*client.cookies.values()])
        monkeypatch.setattr(Served, "run", fails)
        assert _told(client.get("/web/records"), evil, secrets) == []
        monkeypatch.setattr(site, "failure", careless)
        assert _told(client.get("/web/records"), evil, secrets) == ["a key", "the package"]


PAIRS = [
    (Visible(1), Hidden(), Hidden(2, ("Secret", "Notes"), 30, 2, ("tear", "stray"))),
    (Visible(3, frozenset({"Note"})), Hidden(4, ("Nota",), 5), Hidden(5, ("Secret",), 30, 1, ("write", "link"))),
    (Visible(6, frozenset({"Note", "Person"}), True), Hidden(7, ("Search",), 0), Hidden(8, ("Personal", "Secret"), 30)),
    (Visible(9, frozenset({"Person"}), True), Hidden(), Hidden(10, ("Secret",), 30, 2, ("empty", "lose"))),
]
"""Worlds with what they have in common, and what either has besides."""
_OF_WORLDS = Values(
    ["Note", "Note", "Person", "about", "docs", "all", "Secret", "Notes", "leaks0", "both", "hid", "nope", ""],
    [
        "n1",
        "n3",
        "n19",
        "p1",
        '["n0","p0"]',
        "d0.md",
        "only.md",
        "zzz",
        "hid/d0.md",
        '["n1","n1"]',
        '["about","out",["n1","n2"]]',
    ],
    [
        "alpha",
        "beta gamma",
        "topic = 'a'",
        "id in (select id from secret)",
        "text",
        "Secret",
        "HEAD..main",
        "main",
        "{}",
        "put",
    ],
    [("Note", "n1"), ("Note", "n3"), ("Person", "p1"), ("about", '["n0","p0"]'), ("docs", "d0.md")],
)


def _shown(
    root: Path,
    requests: Sequence[tuple[str, Request]],
    worlds_of: tuple[Visible, Hidden],
    seed: int,
    campaign: Campaign,
) -> list[Any]:
    """What a tenant who sees a part is shown: of each answer status, headers and body, without the proof and what names the folder;
    deeds of others between."""
    worlds.base(root, *worlds_of)
    tokens, deeds, found = tokens_of(root), campaign.random(f"deeds{seed}"), list[Any]()
    with worlds.opened(root) as kb, opened(root, clock=worlds.CLOCK, lenient=True, sql_in_process=True) as at:
        clients = {role: at.signed_in(token) for role, token in tokens.items()}
        proofs = {role: at.sessions.proof(next(iter(one.cookies.values()))) for role, one in clients.items()}
        for role, request in requests:
            if worlds_of[1].types and deeds.random() < 0.15:
                worlds.do(deeds.choice(sorted(DEEDS)), root, kb)
            answer = asked(clients[role], request)
            headers = sorted(
                (name, one) for name, one in answer.headers.items() if name not in ("x-request-id", "date")
            )
            shown = answer.text.replace(proofs[role], "PROOF").replace(at.sessions.base, "BASE")
            found.append((answer.status_code, headers, shown))
            assert str(root) not in answer.text
    return found


@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(number, marks=pytest.mark.larger) for number in range(2, len(PAIRS)))]
)
def test_what_is_hidden_changes_no_byte_of_a_page(
    campaign: Campaign, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKKB_WRITER", "one")
    visible, *both = PAIRS[number]
    requests = _requests(campaign, number)
    first, second = (
        _shown(tmp_path / name / "kb", requests, (visible, hidden), number, campaign)
        for name, hidden in zip(("one", "other"), both, strict=True)
    )
    for request, one, other in zip(requests, first, second, strict=True):
        assert one == other, (request, _difference(one[2], other[2]))
    statuses = Counter(one[0] for one in first)
    # Numbers name no version of a comparison any more, so that fewer of the drawn addresses lead anywhere.
    assert statuses[200] > len(requests) / 6 and statuses[404] and statuses[403], statuses
    campaign.count("random requests for pages of worlds that differ in what is hidden", len(requests))


def _difference(one: str, other: str) -> tuple[str, str]:
    at = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), 0)
    return one[max(0, at - 100) : at + 200], other[max(0, at - 100) : at + 200]


def _requests(campaign: Campaign, number: int) -> list[tuple[str, Request]]:
    chance = campaign.random(f"worlds{number}")
    with opened_of_nothing() as found:
        pages, forms = addresses(found), addresses(found, "POST")
    return [
        (chance.choice(["viewer", "editor"]), drawn(chance, pages, forms, _OF_WORLDS))
        for _ in range(campaign.pick(80, 1_500))
    ]


@contextmanager
def opened_of_nothing() -> Iterator[Room]:
    """For the addresses of its pages."""
    with opened(Path("nowhere")) as found:
        yield found


def _leaving_out(run: Any) -> Any:
    def left_out(self: Served, name: str, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        told = worlds.left_out(run(self, name, given, replace(caller, types=None)))
        if name == "types":
            told["types"] = [one for one in told["types"] if one["name"] in worlds.GRANTED]
        return told

    return left_out


def test_a_filter_behind_the_pages_would_be_seen(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    given = [
        {"type": "all", "q": "alpha beta", "mode": "match"},
        {"type": "Secret", "id": "n1"},
        {"type": "Secrt", "id": "n1"},
        {"type": "Note", "id": "n1", "label": "leaks0"},
    ]
    requests = [
        ("viewer", Request(f"/web/{page}?{urlencode(one)}"))
        for page in ("search", "record", "record/edges")
        for one in given
    ]
    run, differ = Served.run, []
    for left_out in (True, False):
        if left_out:
            monkeypatch.setattr(Served, "run", _leaving_out(run))
        else:
            monkeypatch.undo()
        both = [
            _shown(
                tmp_path / f"{name}{left_out}" / "kb",
                requests,
                (Visible(touched=frozenset({"Note"})), hidden),
                1,
                campaign,
            )
            for name, hidden in (("none", Hidden()), ("secret", Hidden(1, ("Secret",), 30, 1)))
        ]
        differ.append(sum(one != other for one, other in zip(*both, strict=True)))
    assert differ[0] >= 4 and differ[1] == 0, differ


def _foreign() -> list[dict[str, str]]:
    """What browsers say of requests that pages of others make."""
    sites = [{"sec-fetch-site": site} for site in ("cross-site", "same-site", "none")]
    origins = [
        "https://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://127.0.0.1.evil.example",
        "http://localhost",
        "",
        "http://[::1",
        "file://",
    ]
    return [
        *sites,
        *({"origin": one} for one in origins),
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    ]


def test_no_form_is_taken_that_a_page_of_this_server_did_not_send(campaign: Campaign, evil: Path) -> None:
    """Without a proof, with that of another session, of nobody, or a piece of one, by whatever field; from
    elsewhere also with the right one. Nothing is written, you are not signed in, and no session ends."""
    chance = campaign.random("forms")
    with opened(evil) as found:
        client, other, nobody = found.signed_in(), found.signed_in(), found.visitor()
        good, forms = (
            proof(client, "/web/search"),
            [*addresses(found, "POST"), "/web/sign-in", "/web/sign-out", "/web/preferences"],
        )
        false = [
            "",
            proof(other, "/web/search"),
            proof(nobody),
            found.sessions.proof(""),
            good[:-1],
            good.upper() + "x",
            "0" * 64,
            "\u202e",
            f"{good}\x00",
        ]
        before, refs, refused = tree_bytes(evil), git(evil, "for-each-ref"), 0
        for form in forms:
            for _ in range(campaign.pick(12, 300)):
                sent = {
                    **dict(drawn(chance, [form], [form], bases.values(hostile)).sent or ()),
                    "token": found.token,
                    "theme": "dark",
                }
                if chance.random() < 0.5:
                    wrong = chance.choice(false)
                    answer = client.post(
                        form,
                        data=sent | {"proof": wrong},
                        headers={**OWN} | ({"x-proof": "x"} if chance.random() < 0.5 else {}),
                    )
                else:
                    answer = client.post(form, data=sent | {"proof": good}, headers=chance.choice(_foreign()))
                assert answer.status_code == 403 and "set-cookie" not in answer.headers, (
                    form,
                    answer.status_code,
                    answer.request.headers,
                )
                judged(answer) if answer.headers["content-type"].startswith("text/html") else None
                refused += 1
            nameless = found.visitor().post(
                form, data={"token": found.token, "proof": found.sessions.proof("")}, headers=OWN
            )
            assert nameless.status_code == 403 and "set-cookie" not in nameless.headers, form
            for method in ("put", "patch", "delete"):
                assert getattr(client, method)(form, headers=OWN).status_code in (403, 404, 405)
            assert (
                "set-cookie" not in client.get(form, headers={"referer": f"http://127.0.0.1{form}"}).headers
                or form == "/web/sign-in"
            )
        assert client.get("/web/search").status_code == 200, "still signed in"
        assert tree_bytes(evil) == before and git(evil, "for-each-ref") == refs
        taken = client.post("/web/preferences", data={"theme": "dark", "proof": good}, headers=OWN)
        assert taken.status_code == 303, "the control: the right proof is taken"
    campaign.count("forms that were refused", refused)
