"""Two embedding models side by side, through the real process: one is migrated to while the other answers, both are asked the
judged questions, the configuration is switched by one line, and the old vectors go when they are asked to."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import duckkb
from duckkb.store import cache_dirs
from duckkb.types import errors
from tests.conftest import Ran, commit, make_base, run_in, tree_bytes
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.fakes import HashEmbedder
from tests.harness.waiting import HANG_S

CONFIG = """\
global:  # of the base
  chunk_size: 100
  embedding_model: old-model
  embedding: {{base_url: "{url}", max_retries: 0, timeout_s: 60, batch_size: 8, concurrency: 1}}
policies:
  own: {{embedding: {{model: own-model}}}}
  none: {{embedding: {{model: none}}}}
nodes:
  Note: {{identity: id, schema: {schema}, search: {{full_text: [text], vectors: [text]}}}}
  Fact: {{identity: id, schema: {schema}, search: {{vectors: [text]}}, policy: own}}
  Word: {{identity: id, schema: {schema}, search: {{full_text: [text], vectors: [text]}}, policy: none}}
"""
SCHEMA = "{type: object, properties: {id: {type: string}, text: {type: string}}}"
NOTES = [f"subject number {at} in a row of many, and {word} beside it" for at in range(10) for word in
         ("alpha", "beta", "gamma", "delta")]  # fmt: skip
FACTS = [f"fact number {at}" for at in range(5)]
PAGES = {"a.md": "# Archive\n\nIt is copied each night.\n", "b.md": "# Server\n\nStop it first.\n"}
QUESTION = "subject number 7 and gamma"


@dataclass(frozen=True)
class Ground:
    """A base with notes, facts and documents, its own model, and another one of other dimensions at another address."""

    root: Path
    old: FakeEndpoint
    new: FakeEndpoint
    env: dict[str, str]

    @property
    def to(self) -> str:
        place = {"base_url": self.new.url, "max_retries": 0, "timeout_s": 60, "batch_size": 8, "concurrency": 1}
        return json.dumps({"embedding_model": "new-model", "embedding": place})

    def run(self, *args: str, stdin: str = "") -> Ran:
        return run_in(self.root, args, stdin=stdin, env=self.env)

    def migrate(self, *args: str) -> Ran:
        return self.run("index", "migrate", "--to", self.to, *args)

    def begin(self, *args: str) -> "subprocess.Popen[bytes]":
        command, env = [sys.executable, "-m", "duckkb", *args], {**os.environ, **self.env}
        return subprocess.Popen(command, cwd=self.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def switch(self, line: str) -> None:
        """As a person does: the line takes the place of what it names."""
        text = (self.root / "config.yaml").read_text("utf-8")
        head, rest = text.split("policies:", 1)
        if line.startswith("embedding_model"):
            head = "".join(f"  {line}\n" if "embedding_model" in one else f"{one}\n" for one in head.splitlines())
        else:
            head = f"{line}\n"
        (self.root / "config.yaml").write_text(f"{head}policies:{rest}", "utf-8")

    def found(self, *args: str) -> list[tuple[Any, Any]]:
        ran = self.run("find", "Note", QUESTION, "-s", "-l", "5", *args)
        assert (ran.code, ran.err) == (0, ""), ran.err
        return [(hit["id"], hit["_score"]) for hit in ran.lines]

    def models(self) -> Counter[str]:
        """The vectors in the search cache by the name of their model, as SQLite has them."""
        (cache,) = Path(self.env["DUCKKB_CACHE_HOME"]).glob("shared/*.sqlite")
        with closing(sqlite3.connect(cache)) as connection:
            rows = connection.execute("SELECT fingerprint, count(*) FROM row WHERE kind = 'vector' GROUP BY 1")
            return sum((Counter({str(name).split("/")[0]: count}) for name, count in rows), Counter())


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with FakeEndpoint(16) as old, FakeEndpoint(24) as new:
        root = make_base(tmp_path / "kb", CONFIG.format(url=old.url, schema=SCHEMA))
        env = {"XDG_STATE_HOME": str(tmp_path / "state"), "DUCKKB_CACHE_HOME": str(tmp_path / "cache")}
        made = Ground(root, old, new, env)
        (root / "docs").mkdir()
        for name, text in PAGES.items():
            (root / "docs" / name).write_text(text, "utf-8")
        assert made.run("collection", "add", "docs").code == 0
        assert made.run("trust").code == 0
        for type, texts in (("Note", NOTES), ("Fact", FACTS), ("Word", ["words alone"])):
            lines = "\n".join(json.dumps({"id": f"n{at:02}", "text": text}) for at, text in enumerate(texts))
            assert made.run("put", type, "--no-embed", stdin=lines).code == 0
        assert made.run("index", "refresh").line["pending"] == 0
        yield made


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_S
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


@pytest.mark.long
def test_models_side_by_side_a_migration_is_killed_resumed_and_switched_to(ground: Ground) -> None:
    everything = ground.old.texts
    assert len(everything) == len(set(everything)) == len(NOTES) + len(FACTS) + len(PAGES)
    before, config, truth = ground.found(), (ground.root / "config.yaml").read_bytes(), tree_bytes(ground.root)
    planned = ground.migrate("--dry-run").line
    assert (planned["missing"], planned["texts"]) == (len(everything), len(everything))
    assert planned["left_alone"] == ["Word"], "its policy wants no vectors"
    refused = ground.migrate("--json")
    assert (refused.code, refused.error["code"]) == (1, "E_UNTRUSTED")
    assert refused.error["suggestion"].startswith("duckkb trust --model ")
    assert ground.new.asked == [], "who was not accepted is not asked"
    assert ground.run("trust", "--model", ground.to).line["demands"]["global.embedding.base_url"] == ground.new.url

    none = ground.migrate("--max-seconds", "0")
    assert (none.code, none.line["embedded"], none.line["code"], ground.new.asked) == (1, 0, "E_BUDGET", [])
    first = ground.migrate("--limit", "11")
    assert (first.code, first.line["code"], first.line["embedded"]) == (1, "E_BUDGET", 11)
    assert (first.line["pending"], "switch" in first.line) == (len(everything) - 11, False)
    assert len(ground.new.texts) == 11

    ground.new.silent_after = len(ground.new.asked) + 2
    job = ground.begin("index", "migrate", "--to", ground.to)
    try:
        _until(lambda: len(ground.new.asked) > (ground.new.silent_after or 0))
        assert ground.run("status").line["job"]["verb"] == "migrate"
        asked = len(ground.old.asked)
        assert ground.found() == before, "searches answer meanwhile, as they did"
        assert len(ground.old.asked) == asked + 1, "the question alone was embedded"
    finally:
        os.kill(job.pid, signal.SIGKILL)
        job.communicate()
    unanswered, ground.new.silent_after = ground.new.asked.pop(), None
    paid = len(ground.new.texts)
    assert 11 < paid < len(everything)

    done = ground.migrate()
    assert (done.code, done.line["embedded"], done.line["pending"]) == (0, len(everything) - paid, 0), done.err
    assert sorted(ground.new.texts) == sorted(everything), "each text was paid for once"
    assert set(unanswered.texts) <= set(ground.new.texts)
    assert {one.body["model"] for one in ground.new.asked} == {"new-model", "own-model"}
    assert (done.line["texts"], done.line["dimensions"]) == (len(everything), 24)
    assert done.line["switch"] in done.err
    assert ground.found() == before and (ground.root / "config.yaml").read_bytes() == config
    assert tree_bytes(ground.root) == truth
    assert ground.models() == {"old-model": 42, "new-model": 42, "own-model": 10}

    ground.switch(done.line["switch"])
    shown = ground.run("config", "show", "--json").line["global"]
    assert (shown["embedding_model"]["value"], shown["chunk_size"]["value"]) == ("new-model", 100)
    old, new = len(ground.old.asked), len(ground.new.asked)
    after = ground.found()
    assert [one.texts for one in ground.new.asked[new:]] == [[QUESTION]], "no stored text is embedded again"
    ids = [f"n{at:02}" for at in range(len(NOTES))]
    assert [id for id, _ in after] == _nearest(ground.new.model, QUESTION, NOTES, ids)[:5]
    assert ground.run("vsearch", "copied at night", "--json").code == 0
    assert ground.run("index", "refresh").line["embedded"] == 0
    assert len(ground.new.asked) == new + 2 and len(ground.old.asked) == old

    assert ground.run("cleanup").code == 0 and ground.models()["old-model"] == 42, "not without being asked"
    planned = ground.run("cleanup", "--unused-vectors", "--dry-run").line
    assert ["42 vectors of old-model/" in one["what"] or "5 vectors of own-model/" in one["what"]
            for one in planned["removed"]] == [True, True]  # fmt: skip
    assert ground.models()["old-model"] == 42
    assert ground.run("cleanup", "--unused-vectors").line["removed"] == planned["removed"]
    assert ground.models() == {"new-model": 42, "own-model": 5}
    assert ground.found() == after and len(ground.old.asked) == old


def _nearest(model: HashEmbedder, question: str, texts: Sequence[str], ids: Sequence[str]) -> list[str]:
    """By brute force, in the order that equal scores have too."""
    scores = model.embed_passages(texts) @ model.embed_passages([question])[0]
    return [ids[at] for at in sorted(range(len(texts)), key=lambda at: (-round(float(scores[at]), 6), ids[at]))]


def test_models_side_by_side_types_with_models_of_their_own_are_left_alone(ground: Ground, tmp_path: Path) -> None:
    """A name alone is asked where the present model is: there the type's own model stays the same."""
    asked = len(ground.old.asked)
    done = ground.run("index", "migrate", "--to", "third-model")
    assert (done.code, done.line["left_alone"], done.line["dimensions"]) == (0, ["Fact", "Word"], 16)
    assert done.line["switch"] == 'embedding_model: "third-model"'
    sent = [text for one in ground.old.asked[asked:] for text in one.texts]
    assert len(sent) == len(NOTES) + len(PAGES) and not set(sent) & set(FACTS)
    ground.switch(done.line["switch"])
    assert ground.run("index", "refresh").line["embedded"] == 0
    same = ground.run("index", "migrate", "--to", "third-model", "--json")
    assert (same.code, same.error["code"]) == (2, "E_USAGE")
    for wrong in ("", "none", "{embedding_model: x, nodes: {}}", "{embedding: {base_url: nowhere}}", "{"):
        ran = ground.run("index", "migrate", "--to", wrong, "--json")
        assert (ran.code, ran.error["code"]) == (2, "E_USAGE"), wrong
    secret = "{embedding_model: x, embedding: {base_url: 'https://a.example/v1', api_key: sk-abcdefghijklmnopqrstuvwx}}"
    assert "abcdefghijkl" not in ground.run("index", "migrate", "--to", secret, "--json").err


def test_models_side_by_side_the_api_migrates_and_goes_on_with_its_own_model(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ground.env.items():
        monkeypatch.setenv(name, value)
    commit(ground.root)
    with duckkb.open(ground.root, at="HEAD") as past, pytest.raises(errors.Refused, match="cannot be changed"):
        past.index_migrate("third-model")
    with duckkb.open(ground.root) as kb:
        before = kb.find("Note", QUESTION, mode="similar", limit=3)
        assert kb.index_migrate("third-model", limit=-1).done.built.embedded == 0, "a budget that is overdrawn"
        assert kb.index_migrate("third-model", limit=5).done.built.pending == len(NOTES) + len(PAGES) - 5
        assert kb.find("Note", QUESTION, mode="similar", limit=3) == before
        assert kb.index_migrate("third-model", dry_run=True).done.plan.missing == len(NOTES) + len(PAGES) - 5


def test_models_side_by_side_never_push_the_old_vectors_out(ground: Ground, tmp_path: Path) -> None:
    home = Path(ground.env["DUCKKB_CACHE_HOME"])
    limit = sum(cache_dirs.size(home / name) for name in (cache_dirs.BASES, cache_dirs.SHARED)) + 10_000
    folder = tmp_path / "state" / "duckkb"
    (folder / "settings.json").write_text(json.dumps({"cache_limit": limit}), "utf-8")
    before, asked = ground.models(), len(ground.old.asked)
    stopped = ground.run("index", "migrate", "--to", "third-model")
    assert (stopped.code, stopped.line["code"]) == (1, "E_CACHE_LIMIT"), stopped.line
    assert stopped.line["embedded"] == len(ground.old.asked) - asked == 0
    assert ground.models() == before


class _ByLength(HashEmbedder):
    """Another model indeed: near are texts of like length."""

    def _add_features(self, row: np.ndarray, text: str) -> None:
        row[:2] = np.cos(len(text) / 40), np.sin(len(text) / 40)


@pytest.mark.long
def test_models_side_by_side_are_asked_the_judged_questions_over_the_same_records(ground: Ground) -> None:
    ids = [f"n{at:02}" for at in range(len(NOTES))]
    wanted = _nearest(ground.old.model, QUESTION, NOTES, ids)[:3]
    asked = {"question": QUESTION, "type": "Note", "mode": "similar", "expected": dict.fromkeys(wanted, 1)}
    (ground.root / "ontology" / "judged.yaml").write_text(json.dumps({"questions": [asked]}), "utf-8")
    ground.new.model = _ByLength(24)
    models = f"...{ground.to}"
    assert ground.run("impact", "--model", models, "--json").error["code"] == "E_UNTRUSTED"
    assert ground.run("trust", "--model", ground.to).code == 0
    assert ground.migrate("--limit", "3").code == 1
    count = len(ground.new.asked)
    half = ground.run("impact", "--model", models, "--json")
    assert (half.code, half.error["code"], half.error["outcome"]) == (1, "E_VECTORS", "could_not_run")
    assert f"{len(NOTES) - 3} of {len(NOTES)} texts" in half.error["error"]
    assert half.error["suggestion"].startswith("duckkb index migrate --to ")
    assert len(ground.new.asked) == count, "half a lane is not asked"
    assert ground.migrate().code == 0
    count = len(ground.new.asked)
    before = {
        path: path.read_bytes() for path in ground.root.rglob("*") if path.is_file() and ".duckkb" not in path.parts
    }

    ran = ground.run("impact", "--model", models, "-k", "10", "--fail-on", "ndcg=0.05", "--json")
    report = json.loads(ran.out)
    (row,) = report["results"]
    assert row["before"] == _nearest(ground.old.model, QUESTION, NOTES, ids)[:10]
    assert row["after"] == _nearest(ground.new.model, QUESTION, NOTES, ids)[:10]
    assert row["after"][:3] != wanted and row["ndcg"]["before"] == 1.0
    assert (ran.code, report["outcome"], report["base"]) == (1, "limits", "old-model (configured)")
    assert (report["head"], report["degraded"]) == ("new-model", [])
    assert [one.texts for one in ground.new.asked[count:]] == [[QUESTION]]
    assert "new-model" in ground.run("impact", "--model", models, "--format", "markdown").out.splitlines()[0]
    (back,) = json.loads(ground.run("impact", "--model", f"{ground.to}...", "--json").out)["results"]
    assert (back["before"], back["after"]) == (row["after"], row["before"])
    after = {
        path: path.read_bytes() for path in ground.root.rglob("*") if path.is_file() and ".duckkb" not in path.parts
    }
    assert after == before
    assert ground.run("impact", "HEAD", "--model", models).code == 2
    assert ground.run("impact", "--model", "new-model").code == 2
    ground.new.always = Reply(status=500)
    failed = ground.run("impact", "--model", models, "--json")
    assert (failed.code, failed.out, failed.error["code"]) == (1, "", "E_MODEL")


def test_models_side_by_side_no_vector_goes_that_another_base_may_use(ground: Ground, tmp_path: Path) -> None:
    other = make_base(tmp_path / "other", CONFIG.format(url=ground.old.url, schema=SCHEMA))
    assert run_in(other, ["trust"], env=ground.env).code == 0
    assert run_in(other, ["put", "Note", '{"id": "a", "text": "of another base"}'], env=ground.env).line["pending"] == 0
    ground.switch('embedding_model: "third-model"')
    assert ground.run("index", "refresh").code == 0
    before = ground.models()
    assert ground.run("cleanup", "--unused-vectors").line["removed"] == [], "the other base uses the old model"
    other.rename(tmp_path / "moved")
    told = ground.run("cleanup", "--unused-vectors").line
    assert (told["removed"], str(other) in told["reason"]) == ([], True), "its disk may be mounted again"
    config = (ground.root / "config.yaml").read_text("utf-8")
    (ground.root / "config.yaml").write_text("global: [", "utf-8")
    told = run_in(tmp_path, ["cleanup", "--unused-vectors", "--now"], env=ground.env).line
    assert str(ground.root) in told["reason"] and ground.models() == before
    (ground.root / "config.yaml").write_text(config, "utf-8")
    assert "reason" not in run_in(tmp_path, ["cleanup", "--unused-vectors", "--now"], env=ground.env).line
    assert before - ground.models() == {"old-model": 43}, "a type of this base has own-model"
    assert (
        "no known base"
        in run_in(tmp_path, ["cleanup", "--unused-vectors"], env=ground.env | {"DUCKKB_CACHE_HOME": "x"}).line["reason"]
    )
