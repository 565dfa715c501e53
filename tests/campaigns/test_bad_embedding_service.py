"""Bad embedding services: a record is stored all the same, hybrid answers by words and says so, similar is a clear error."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.types.errors import UsageError
from tests.conftest import Ran, make_base
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.fakes import HashEmbedder
from tests.harness.bad_inputs.ground import KEY, complaints, invoke
from tests.harness.campaign import Campaign

CONFIG = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", api_key_env: SOME_KEY, max_retries: {retries}, timeout_s: {seconds}, batch_size: 4{more}}}
search: {{embed_wait_s: {wait}}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""
SLOW = 0.7
NEVER_ENDING = ("time-out", "an answer that drips", "headers that drip")


def vectors(*rows: object, indices: list[object] | None = None) -> bytes:
    places = indices if indices is not None else list(range(len(rows)))
    data = [{"index": place, "embedding": row} for place, row in zip(places, rows, strict=True)]
    return json.dumps({"data": data}).encode()


def spoken(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


ONE = [0.5] * 16
REPLIES: dict[str, Reply] = {
    "time-out": Reply(silent=True),
    "an answer that drips": Reply(dripping=True),
    "headers that drip": Reply(slow_headers=True),
    "the connection reset": Reply(reset=True),
    "100 MB": Reply(endless=True),
    "100 MB of error": Reply(status=500, endless=True),
    "401 that repeats the key": Reply(status=401, body=spoken(f"Incorrect API key: {KEY}")),
    "403": Reply(status=403, body=KEY.encode()),
    "404 that repeats the key": Reply(status=404, body=spoken(f"no such model for {KEY}")),
    "400 with escapes": Reply(status=400, body=spoken(f"\x1b]0;x\x07\x1b[31m{KEY}\nduckkb: all is well")),
    "413": Reply(status=413, body=spoken("too long")),
    "418": Reply(status=418),
    "429": Reply(status=429),
    "429 for an hour": Reply(status=429, headers={"Retry-After": "3600"}),
    "429 for a minute": Reply(status=429, headers={"Retry-After": "60"}),
    "429 for ever": Reply(status=429, headers={"Retry-After": "1e308"}),
    "429 for less than nothing": Reply(status=429, headers={"Retry-After": "-5"}),
    "429 for NaN": Reply(status=429, headers={"Retry-After": "nan"}),
    "429 until 2099": Reply(status=429, headers={"Retry-After": "Fri, 01 Jan 2099 00:00:00 GMT"}),
    "429 in milliseconds": Reply(status=429, headers={"retry-after-ms": "59000"}),
    "a retry that is asked for": Reply(status=400, headers={"x-should-retry": "true", "Retry-After": "50"}),
    "500": Reply(status=500, body=b"<html>oops"),
    "503 of noise": Reply(status=503, body=os.urandom(2000)),
    "HTML": Reply(body=b"<html>Welcome to the wifi</html>", headers={"Content-Type": "text/html"}),
    "nothing": Reply(body=b""),
    "noise": Reply(body=b"\xff\xfe\0\x01"),
    "a list": Reply(body=b"[]"),
    "100,000 arrays": Reply(body=b"[" * 100_000),
    "an integer of 5,000 digits": Reply(body=b'{"data":[{"index":0,"embedding":[' + b"9" * 5000 + b"]}]}"),
    "no vectors": Reply(body=vectors()),
    "too many vectors": Reply(body=vectors(*[ONE] * 9)),
    "the same index twice": Reply(body=vectors(ONE, ONE, indices=[0, 0])),
    "an index below zero": Reply(body=vectors(ONE, indices=[-1])),
    "another dimension": Reply(body=vectors([0.5] * 8)),
    "one number": Reply(body=vectors([0.5])),
    "70,000 numbers": Reply(body=vectors([0.5] * 70_000)),
    "NaN": Reply(body=vectors([0.5] * 15 + [float("nan")])),
    "infinity": Reply(body=vectors([float("inf")] * 16)),
    "zeros": Reply(body=vectors([0.0] * 16)),
    "words": Reply(body=vectors(["x"] * 16)),
    "truth values": Reply(body=vectors([None] * 16)),
    "broken base64": Reply(body=vectors("???")),
    "gzip that is none": Reply(body=b"plain", headers={"Content-Encoding": "gzip"}),
    "an unknown encoding": Reply(body=b"x", headers={"Content-Encoding": "rot13"}),
    "a redirect": Reply(status=307, headers={"Location": "http://127.0.0.1:9/v1/embeddings"}),
    "a redirect to a file": Reply(status=302, headers={"Location": "file:///etc/passwd"}),
    "a redirect to nowhere": Reply(status=301),
    "204": Reply(status=204, body=b""),
}


@dataclass
class Service:
    """A base whose vectors come from `endpoint`, with one record that has its vector and a key in the environment."""

    root: Path
    endpoint: FakeEndpoint

    def ask(self, *args: str, stdin: str = "", as_json: bool = True) -> Ran:
        return invoke(self.root, [*args, "--json"] if as_json else list(args), stdin.encode())


def service(root: Path, endpoint: FakeEndpoint, **settings: Any) -> Service:
    given = {"retries": 0, "seconds": 20, "wait": 2, "more": ", dimensions: 16"} | settings
    made = Service(make_base(root / "kb", CONFIG.format(url=endpoint.url, **given)), endpoint)
    assert invoke(made.root, ["trust"]).code == 0
    assert made.ask("put", "Note", '{"id":"first","text":"git and 内存数据库"}').code == 0
    return made


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield KEY


def _tried(made: Service, reply: Reply) -> list[str]:
    """Put, hybrid and similar while every answer is `reply`, and once all is well again."""
    wrong: list[str] = []

    made.endpoint.always = reply

    def ran(*args: str) -> Ran:
        started = time.monotonic()
        answer = made.ask(*args)
        if time.monotonic() - started > 30:
            wrong.append(f"{args[0]} took {time.monotonic() - started:.0f} s")
        wrong.extend(f"{args}: {one}\n{answer.err}" for one in complaints(answer, as_json=True))
        return answer

    stored = ran("put", "Note", '{"id":"second","text":"git under a bad star"}')
    if stored.code or json.loads(stored.out)["pending"] != 1 or "W_PENDING" not in stored.err:
        wrong.append(f"put: {stored.code} {stored.out} {stored.err}")
    hybrid = ran("find", "Note", "git", "-H")
    found = json.loads(hybrid.out) if hybrid.out else {"results": [], "degraded": False}
    if hybrid.code or not found["degraded"] or {hit["id"] for hit in found["results"]} != {"first", "second"}:
        wrong.append(f"hybrid: {hybrid.code} {hybrid.out} {hybrid.err}")
    similar = ran("find", "Note", "git", "-s")
    if similar.code != 1 or json.loads(similar.err.splitlines()[-1])["code"] != "E_MODEL":
        wrong.append(f"similar: {similar.code} {similar.err}")
    built = made.ask("index", "build")
    if built.code != 1 or json.loads(built.out)["pending"] != 1:
        wrong.append(f"index build: {built.code} {built.out} {built.err}")
    made.endpoint.always = None
    healed = ran("find", "Note", "git", "-s")
    if healed.code or len(json.loads(healed.out)["results"]) != 2:
        wrong.append(f"healed: {healed.code} {healed.out} {healed.err}")
    return wrong


def test_a_bad_answer_keeps_no_record_from_being_stored_and_no_hybrid_search_from_answering(
    campaign: Campaign, tmp_path: Path, key: str
) -> None:
    chosen = campaign.random("replies").sample(sorted(REPLIES), campaign.pick(3, len(REPLIES)))
    for name in dict.fromkeys(["headers that drip", *chosen]):
        root = tmp_path / str(sorted(REPLIES).index(name))
        waits: dict[str, Any] = {"seconds": SLOW} if name in NEVER_ENDING else {}
        waits |= {"retries": 1} if name[:1] in "45a" and campaign.full else {}
        with FakeEndpoint() as endpoint:
            wrong = _tried(service(root, endpoint, **waits), REPLIES[name])
            assert all(asked.headers["Authorization"] == f"Bearer {KEY}" for asked in endpoint.asked)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        wrong += [f"{path.name} holds the key" for path in files if KEY.encode() in path.read_bytes()]
        assert not wrong, f"{name}: " + "\n".join(wrong)
        campaign.count("bad inputs tried: embedding service", 5)


@pytest.mark.parametrize("pause", ["3600", "59", "1e308", "Fri, 01 Jan 2099 00:00:00 GMT"])
def test_a_pause_that_a_service_asks_for_is_not_longer_than_an_answer_may_take(
    campaign: Campaign, tmp_path: Path, key: str, pause: str
) -> None:
    with FakeEndpoint() as endpoint:
        made = service(tmp_path, endpoint, retries=1, seconds=2)
        endpoint.next(Reply(status=429, headers={"Retry-After": pause}))
        started = time.monotonic()
        ran = made.ask("find", "Note", "git", "-s")
        assert time.monotonic() - started < 30
        assert ran.code == 0, ran.err
    campaign.count("bad inputs tried: embedding service")


def test_a_model_exchanged_for_one_of_another_dimension_mixes_nothing_and_heals(
    campaign: Campaign, tmp_path: Path, key: str
) -> None:
    """Nothing in the configuration says how long its vectors are: what the model gives now decides, in both directions."""
    with FakeEndpoint() as endpoint:
        made = service(tmp_path, endpoint, more="")
        assert made.ask("find", "Note", "git", "-s").code == 0
        with duckkb.open(made.root) as kb:
            assert len(kb.find("Note", "git", mode="similar")) == 1
            for turn, dimension in enumerate((8, 16, 8)):
                endpoint.model = HashEmbedder(dimension)
                receipt = kb.put("Note", {"id": f"open {turn}", "text": f"git {turn}"})
                assert receipt.inserted == 1
                stored = made.ask("put", "Note", json.dumps({"id": f"new {turn}", "text": f"git again {turn}"}))
                assert stored.code == 0 and not complaints(stored, as_json=True)
                built = made.ask("index", "build")
                assert not complaints(built, as_json=True, reports=True), built.err
                for mode in ("-H", "-s"):
                    ran = made.ask("find", "Note", "git", mode)
                    assert ran.code == 0 and not complaints(ran, as_json=True), ran.err
                    assert len(json.loads(ran.out)["results"]) == 3 + 2 * turn
                assert len(kb.find("Note", "git", mode="hybrid")) == 3 + 2 * turn  # by words, as its model has changed
                campaign.count("bad inputs tried: embedding service", 6)


def test_a_find_waits_for_missing_vectors_no_longer_than_it_may(campaign: Campaign, tmp_path: Path, key: str) -> None:
    """One answer may take five minutes here; the search for which the vectors are missing has one second for them."""
    with FakeEndpoint() as endpoint:
        made = service(tmp_path, endpoint, seconds=300, wait=1, retries=0)
        assert made.ask("put", "Note", '{"id":"second","text":"git again"}', "--no-embed").code == 0
        endpoint.next(Reply(body=vectors(ONE)), Reply(silent=True))
        started = time.monotonic()
        ran = made.ask("find", "Note", "git", "-s")
        assert time.monotonic() - started < 60
        assert ran.code == 0 and json.loads(ran.out)["degraded"]
        assert "1 chunk has no vector yet" in ran.err
    campaign.count("bad inputs tried: embedding service")


def test_a_question_given_as_a_bad_vector_is_refused(campaign: Campaign, tmp_path: Path, key: str) -> None:
    bad: list[Any] = [[], [0.5] * 15, [0.5] * 17, [float("nan")] * 16, [float("inf")] * 16, [0.0] * 16, ["x"] * 16, "x" * 16,
                      [[0.5] * 16], [None] * 16, [10**400] * 16, {}, 5, b"x" * 16]  # fmt: skip
    with FakeEndpoint() as endpoint:
        made = service(tmp_path, endpoint)
        with duckkb.open(made.root) as kb:
            good = kb.find("Note", vector=ONE, mode="similar")
            assert [hit.identity for hit in good] == ["first"]
            for vector in bad:
                with pytest.raises(UsageError) as caught:
                    kb.find("Note", vector=vector, mode="similar")
                assert caught.value.exit_code == 2 and len(str(caught.value)) < 500
    campaign.count("bad inputs tried: embedding service", len(bad))
