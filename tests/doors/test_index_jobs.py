"""Index jobs through the command line: planned, within a budget, resumed after a kill, one at a time, seen by others."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duckkb import config
from duckkb.store import cache_dirs
from duckkb.store.cache_dirs import Place
from duckkb.store.stored_rows import BaseStore
from tests.conftest import Ran, make_base, run_in, store_of, tree_bytes
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.fakes import HashEmbedder
from tests.harness.waiting import HANG_S, wait_until

CONFIG = """\
global:
  chunk_size: 100
  embedding_model: some-model
  embedding:
    base_url: "{url}"
    dimensions: 16
    max_retries: 0
    timeout_s: 60
    batch_size: 8
    {more}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{full_text: [text], vectors: [text]}}
  Fact:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}}}
    search: {{vectors: [text]}}
"""


@dataclass(frozen=True)
class Ground:
    """A base whose vectors come from an endpoint that is trusted."""

    root: Path
    endpoint: FakeEndpoint
    env: dict[str, str]

    def run(self, *args: str, stdin: str = "") -> Ran:
        return run_in(self.root, args, stdin=stdin, env=self.env)

    def store(self, texts: list[str], type: str = "Note", start: int = 0) -> None:
        lines = "\n".join(json.dumps({"id": f"n{start + at}", "text": text}) for at, text in enumerate(texts))
        stored = self.run("put", type, "--no-embed", stdin=lines)
        assert stored.code == 0, stored.err

    def begin(self, *args: str) -> "subprocess.Popen[bytes]":
        """A command that runs beside the test."""
        command = [sys.executable, "-m", "duckkb", *args]
        env = {**os.environ, **self.env}
        return subprocess.Popen(command, cwd=self.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


Make = Callable[..., Ground]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a trusted base: make("concurrency: 1")."""
    opened: list[FakeEndpoint] = []

    def base(more: str = "") -> Ground:
        endpoint = FakeEndpoint().__enter__()
        opened.append(endpoint)
        root = make_base(tmp_path / f"kb{len(opened)}", CONFIG.format(url=endpoint.url, more=more))
        ground = Ground(root, endpoint, {"XDG_STATE_HOME": str(tmp_path / "state")})
        assert ground.run("trust").code == 0
        return ground

    yield base
    for endpoint in opened:
        endpoint.__exit__(None, None, None)


def texts_of(count: int, word: str = "subject") -> list[str]:
    """Different short texts, each one chunk."""
    return [f"{word} number {at} in a row of {count}" for at in range(count)]


def tokens_of(texts: list[str]) -> int:
    """What an endpoint's estimate says of texts without Chinese: four characters a token."""
    return sum(ceil(len(text) / 4) for text in texts)


def events(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.err.splitlines() if line.startswith('{"event"')]


def test_a_plan_says_what_a_job_then_does_and_spends_nothing(make: Make) -> None:
    ground = make("price_per_million_tokens: 20")
    notes, facts = texts_of(21), texts_of(5, "fact")
    long = "".join(f"Sentence {at} is there. " for at in range(12))
    ground.store([*notes, notes[0], long])
    ground.store([*facts, notes[1]], "Fact", start=100)
    before = tree_bytes(ground.root)
    planned = ground.run("index", "plan")
    assert (planned.code, ground.endpoint.asked, tree_bytes(ground.root)) == (1, [], before)
    refreshed = ground.run("index", "refresh")
    assert refreshed.code == 0, refreshed.err
    asked = ground.endpoint.texts
    pieces = sorted((text for text in asked if text in long), key=long.index)
    assert len(asked) == len(set(asked)) == 21 + 5 + len(pieces) and "".join(pieces) == long
    plan = planned.line
    assert (plan["missing"], plan["tokens"], plan["tokens_are"]) == (len(asked), tokens_of(asked), "estimated")
    assert (plan["fresh"], plan["minutes"], plan["price"]) == (False, None, round(20 * tokens_of(asked) / 1e6, 6))
    note, fact = plan["types"]
    assert (note["type"], note["model"], note["verified"], fact["missing"]) == ("Note", "some-model", 0, len(facts))
    assert (fact["chunks"], fact["texts"], note["texts"]) == (6, 6, note["chunks"] - 1)
    done = {"pending": 0, "embedded": len(asked), "tokens": tokens_of(asked)}
    total = note["texts"] + fact["texts"] - 1  # which both have
    assert refreshed.line == done | {"changed": len(asked), "total": total}
    assert f"{len(asked)} changed / {total} total texts" in refreshed.err.splitlines()
    after = ground.run("index", "plan").line
    assert (after["missing"], after["types"][0]["verified"], after["team_cache"]) == (0, note["texts"], "absent")
    assert tree_bytes(ground.root) == before, "a refresh writes the local cache alone"
    built = ground.run("index", "build")
    assert (built.code, built.line["files"]) == (0, ["data/indices/search_cache.parquet"])
    done = ground.run("index", "plan")
    assert (done.code, done.line["fresh"], len(ground.endpoint.texts)) == (0, True, len(asked))


def test_the_time_of_a_job_is_known_from_the_one_before(make: Make) -> None:
    ground = make()
    ground.store(texts_of(40))
    ground.run("index", "refresh")
    ground.store(texts_of(3, "more"), start=100)
    assert ground.run("index", "plan").line["minutes"] >= 0


def test_progress_as_events_adds_up(make: Make) -> None:
    ground = make("concurrency: 1")
    texts = texts_of(30)
    ground.store(texts)
    ground.endpoint.next(Reply(status=500))
    ran = ground.run("index", "refresh", "--progress", "json")
    told = events(ran)
    assert [one["event"] for one in told] == ["start", "failed", "progress", "progress", "progress", "end"]
    start, failed, *steps, end = told
    assert start["verb"] == "refresh" and start["plan"]["missing"] == 30
    assert (failed["code"], failed["texts"]) == ("E_MODEL", 8)
    assert [one["total"] for one in steps] == [30] * 3
    assert sorted(one["done"] for one in steps) == [one["done"] for one in steps] and steps[-1]["done"] == 22
    assert all(one["rate"] > 0 and one["eta_s"] >= 0 for one in steps)
    assert ran.code == 1 and end["pending"] == 8 and end["embedded"] == 22
    assert (ran.line["code"], ran.line["pending"]) == ("E_MODEL", 8) and ran.line["reason"]
    again = ground.run("index", "refresh", "--progress", "none")
    assert (again.code, again.line["embedded"], again.err) == (0, 8, "")
    assert sorted(set(ground.endpoint.texts)) == sorted(texts)


def test_a_budget_of_tokens_is_kept_and_the_next_run_does_the_rest(make: Make) -> None:
    ground = make()
    texts = texts_of(40)
    ground.store(texts)
    budget = tokens_of(texts) // 3
    first = ground.run("index", "build", "--budget-tokens", str(budget))
    spent = tokens_of(ground.endpoint.texts)
    assert (first.code, first.line["code"], first.line["tokens"]) == (1, "E_BUDGET", spent)
    assert budget - 20 < spent <= budget and first.line["pending"] == 40 - len(ground.endpoint.texts)
    assert first.line["files"], "what there is was written for the team"
    none = ground.run("index", "refresh", "--budget-minutes", "0")
    assert (none.code, none.line["code"], none.line["embedded"]) == (1, "E_BUDGET", 0)
    rest = ground.run("index", "refresh", "--budget-tokens", "100000", "--budget-minutes", "60")
    assert (rest.code, rest.line["pending"]) == (0, 0)
    assert sorted(ground.endpoint.texts) == sorted(texts), "each text was paid for once"


@pytest.mark.long
def test_a_forced_build_computes_anew_what_the_team_has(make: Make) -> None:
    ground = make("concurrency: 1")
    texts = texts_of(20)
    ground.store(texts)
    assert ground.run("index", "build").code == 0
    ground.endpoint.asked.clear()
    forced = ground.run("index", "build", "-f")
    assert (forced.code, forced.line["embedded"], forced.line["files"]) == (0, 20, []), forced.err
    assert (forced.line["changed"], forced.line["total"]) == (20, 20), "one unit: texts"
    planned, status = ground.run("index", "plan"), ground.run("index", "status")
    assert (planned.code, planned.line["team_cache"]) == (status.code, status.line["team_cache"]) == (0, "current")
    assert sorted(ground.endpoint.texts) == sorted(texts)
    ground.endpoint.asked.clear()
    other = HashEmbedder(16)
    ground.endpoint.model = SimpleNamespace(embed_passages=lambda texts: -other.embed_passages(texts))
    half = ground.run("index", "build", "-f", "--budget-tokens", str(tokens_of(texts) // 2))
    assert (half.code, half.line["code"], half.line["files"]) == (1, "E_BUDGET", []), "the team keeps what it had"
    assert ground.run("index", "build", "-f").line["files"], "what was made anew replaces what the team had"
    assert ground.run("index", "build").line["embedded"] == 0


@pytest.mark.parametrize("wrong", [["--budget-tokens", "-1"], ["--budget-minutes", "nan"], ["--progress", "loud"]])
def test_limits_that_make_no_sense_are_refused(make: Make, wrong: list[str]) -> None:
    assert make().run("index", "refresh", *wrong).code == 2


@pytest.mark.long
def test_a_killed_job_keeps_what_it_made_and_the_next_does_only_the_rest(make: Make) -> None:
    ground = make("concurrency: 1")
    texts = texts_of(600)
    ground.store(texts)
    ground.endpoint.silent_after = 66
    job = ground.begin("index", "refresh")
    try:
        wait_until(lambda: len(ground.endpoint.asked) == 67)
        shown = ground.run("status", "--json").line["job"]
        assert (shown["running"], shown["verb"], shown["pid"], shown["ended"]) == (True, "refresh", job.pid, None)
    finally:
        os.kill(job.pid, signal.SIGKILL)
        job.communicate()
    status = ground.run("index", "status")
    assert (status.code, status.line["job"]["running"], status.line["job"]["ended"]) == (1, False, "interrupted")
    assert 0 < status.line["missing"] <= 600 - 512
    seen, ground.endpoint.silent_after = len(ground.endpoint.asked), None
    again = ground.run("index", "refresh")
    assert (again.code, again.line["embedded"]) == (0, status.line["missing"])
    assert sum(len(asked.texts) for asked in ground.endpoint.asked[seen:]) == status.line["missing"]
    fresh = ground.run("index", "status").line
    assert (fresh["missing"], fresh["job"]["ended"], fresh["job"]["done"]) == (0, "fresh", again.line["embedded"])


@pytest.mark.long
def test_of_two_jobs_the_second_is_told_or_waits(make: Make) -> None:
    ground = make("concurrency: 1")
    ground.store(texts_of(20))
    ground.endpoint.silent_after = 1
    first = ground.begin("index", "build")
    try:
        wait_until(lambda: len(ground.endpoint.asked) == 2)
        refused = ground.run("index", "refresh", "--json")
        assert (refused.code, refused.error["code"], refused.out) == (1, "E_LOCKED", "")
        assert refused.error["details"]["holder"]["pid"] == first.pid
        assert len(ground.endpoint.asked) == 2, "nothing was done twice"
        ground.endpoint.silent_after = None
        second = ground.begin("index", "refresh", "--wait")
        assert ground.run("find", "Note", "subject", "-m").code == 0, "readers are not kept"
        assert second.poll() is None
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    out, err = second.communicate(timeout=HANG_S)
    assert second.returncode == 0, err
    assert json.loads(out)["pending"] == 0


def test_an_endpoint_is_asked_by_several_at_once_and_every_text_gets_its_own_vector(make: Make) -> None:
    ground = make()
    texts = texts_of(64)
    ground.store(texts)
    ground.endpoint.together = threading.Barrier(4)
    ground.endpoint.backwards = True
    assert ground.run("index", "refresh").code == 0
    assert (len(ground.endpoint.asked), ground.endpoint.most_at_once) == (8, 4)
    ground.endpoint.together = None
    for text in texts[::30]:
        assert ground.run("find", "Note", text, "-s", "-l", "1").line["text"] == text


def test_the_width_can_be_set(make: Make) -> None:
    ground = make("concurrency: 2")
    ground.store(texts_of(32))
    ground.endpoint.together = threading.Barrier(2)
    assert ground.run("index", "refresh").code == 0
    assert ground.endpoint.most_at_once == 2


def test_vectors_that_a_failing_model_left_pending_are_filled_by_the_next_job(make: Make) -> None:
    ground = make()
    ground.endpoint.always = Reply(status=500)
    stored = ground.run("put", "Note", '{"id": "a", "text": "fox 内存"}')
    assert (stored.code, stored.line["pending"]) == (0, 1)
    failed = ground.run("index", "build")
    assert (failed.code, failed.line["code"], failed.line["pending"]) == (1, "E_MODEL", 1)
    assert ground.run("status").line["missing"] == 1
    ground.endpoint.always = None
    assert ground.run("index", "build").code == 0
    asked = len(ground.endpoint.asked)
    found = ground.run("find", "Note", "fox 内存", "-s")
    assert found.line["id"] == "a" and "_degraded" not in found.line
    assert len(ground.endpoint.asked) == asked + 1, "the question alone"


def test_a_model_that_is_gone_is_asked_a_few_times_and_no_more(make: Make) -> None:
    ground = make("concurrency: 1")
    ground.store(texts_of(80))
    ground.store(texts_of(80, "fact"), "Fact", start=100)
    ground.endpoint.always = Reply(status=500)
    ran = ground.run("index", "refresh")
    assert (ran.code, ran.line["pending"], ran.line["code"]) == (1, 160, "E_MODEL")
    assert len(ground.endpoint.asked) <= 4


def test_without_trust_nothing_is_asked_and_the_code_says_so(make: Make, tmp_path: Path) -> None:
    ground = make()
    ground.store(texts_of(3))
    other = {"XDG_STATE_HOME": str(tmp_path / "other")}
    built = run_in(ground.root, ["index", "build"], env=other)
    assert (built.code, built.line["code"], built.line["pending"]) == (1, "E_UNTRUSTED", 3)
    plan = run_in(ground.root, ["index", "plan"], env=other)
    assert (plan.code, plan.line["missing"], ground.endpoint.asked) == (1, 3, [])


def test_if_stale_does_nothing_where_nothing_is_missing(make: Make) -> None:
    ground = make()
    ground.store(texts_of(3))
    assert ground.run("index", "refresh", "--if-stale").line["embedded"] == 3
    noop = ground.run("index", "refresh", "--if-stale", "--progress", "json")
    nothing = {"pending": 0, "embedded": 0, "tokens": 0, "changed": 0, "total": 3}
    assert (noop.code, noop.line, noop.err) == (0, nothing, "")
    assert ground.run("index", "build", "--if-stale").line["files"], "the team's cache is missing"
    assert ground.run("index", "build", "--if-stale").line["files"] == []
    ground.store(["another"], start=50)
    assert ground.run("index", "build", "--if-stale").line["embedded"] == 1


@pytest.mark.long
def test_status_says_what_it_knows_of_a_large_base_and_null_where_it_does_not(make: Make) -> None:
    ground = make()
    (ground.root / "config.yaml").write_text(
        "nodes: {Note: {identity: id, search: {full_text: [text]}, "
        "schema: {type: object, properties: {id: {type: string}, text: {type: string}}}}}\n"
    )
    text = "word " * 9_000
    lines = "\n".join(json.dumps({"id": f"n{at}", "text": f"{at} {text}"}) for at in range(100))
    assert ground.run("put", "Note", stdin=lines).code == 0

    def known() -> tuple[Any, Any]:
        line = ground.run("status").line
        return line["missing"], line["team_cache"]

    assert known() == (None, None)
    chunks = ground.run("index", "status").line["chunks"]["Note"]
    assert chunks >= 100 * len(text) // 800 and known() == (0, "absent")
    assert ground.run("put", "Note", '{"id": "n7", "text": "short"}').code == 0
    assert known() == (0, "absent"), "a write knows what it changed"
    carried = ground.run("index", "status").line["chunks"]["Note"]
    cache_dirs.remove(store_of(ground.root))
    assert known() == (None, None)
    assert ground.run("index", "status").line["chunks"]["Note"] == carried < chunks
    part = next(path for path in (ground.root / "data").rglob("part_*.jsonl") if '"short"' in path.read_text("utf-8"))
    part.write_text(part.read_text("utf-8").replace('"short"', '"by hand"'), "utf-8")
    assert known() == (None, None)
    notes = BaseStore(Place.locate(config.read_environment(ground.root).cache_home, ground.root))
    assert notes.note("counted") is not None and notes.keep("counted", {"format": 1, "grounds": 7})
    assert known() == (None, None)


def test_a_job_leaves_what_the_next_search_opens(make: Make) -> None:
    """The files of words, vectors and rows are there, and the first searches change nothing of them."""
    ground = make()
    with (ground.root / "config.yaml").open("a") as config:
        config.write("snapshot: {min_bytes: 0}\n")
    ground.store(["alpha beta", "gamma 中文"])
    assert ground.run("index", "refresh").code == 0
    folder = store_of(ground.root) / "node-note"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert {"lexical", "vectors", "rows"} <= {path.parent.name for path in before if path.name == "meta.json"}
    assert [hit["id"] for hit in ground.run("find", "Note", "beta", "-m").lines] == ["n0"]
    assert len(ground.run("find", "Note", "beta", "-s").lines) == 2
    assert [hit["id"] for hit in ground.run("find", "Note", "-w", "id = 'n1'").lines] == ["n1"]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
