"""Finds, puts and `git checkout` at once over one snapshot, some of them killed: every find shows one truth that there was
while it ran, with all that was acknowledged before it began."""

import json
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.snapshot_ground import ALWAYS, CONFIG, NEVER, lines, note
from tests.conftest import commit, git, make_base, run_in, store_of
from tests.harness.campaign import Campaign
from tests.harness.crowd.workers import Forge, Worker

FINDS = {
    "words": ("find", "Note", "common", "-l", "10000"),
    "filter": ("find", "Note", "-w", "size >= 0", "-l", "10000"),
    "vector": ("find", "vecs", "--vector", "question.json", "-l", "10000"),
}
OLD_PART = "data/nodes/note/20200101/part_001.jsonl"
BRANCHES = ("main", "side")


@dataclass
class Running:
    """A command under way: what must be in its answer, and when it is to be killed, if it is."""

    worker: Worker
    name: str
    marker: str = ""
    known: frozenset[str] = frozenset()
    kill_at: float | None = None


@dataclass
class Crowd:
    """What was begun and what was acknowledged, by the type of the record."""

    forge: Forge
    root: Path
    rng: random.Random
    begun: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    running: list[Running] = field(default_factory=list)
    ended: int = 0
    killed: int = 0

    def find(self) -> None:
        name = self.rng.choice(list(FINDS))
        worker = self.forge.worker(self.root, *FINDS[name])
        self.running.append(Running(worker, name, known=frozenset(self.acknowledged), kill_at=self._fate()))

    def put(self) -> None:
        number = len(self.begun)
        kind, marker = ("Note", f"note {number}") if number % 2 else ("vecs", f"vec {number}")
        record = note(marker, number) if kind == "Note" else {"id": marker, "tensor": [number, 1, 2]}
        self.begun.add(marker)
        worker = self.forge.worker(self.root, "put", kind, json.dumps(record))
        self.running.append(Running(worker, "put", marker, kill_at=self._fate()))

    def look(self) -> None:
        """Take in who has ended, and kill whose time has come."""
        for one in list(self.running):
            if one.kill_at is not None and time.monotonic() > one.kill_at:
                one.worker.send(signal.SIGKILL)
            if not one.worker.is_running():
                self.running.remove(one)
                self._judge(one)

    def _fate(self) -> float | None:
        return time.monotonic() + self.rng.random() * 0.3 if self.rng.random() < 0.15 else None

    def _judge(self, one: Running) -> None:
        code = one.worker.wait()
        if code == -signal.SIGKILL:
            self.killed += 1
            return
        assert code == 0, (one.name, code, one.worker.err)
        self.ended += 1
        if one.name == "put":
            self.acknowledged.add(one.marker)
        else:
            judge(one.name, one.worker.lines(), one.known, self.begun)


def judge(name: str, found: list[dict[str, Any]], known: frozenset[str], begun: set[str]) -> None:
    """One truth: everything acknowledged, nothing that nobody wrote, and one branch's records or none."""
    texts = {record["id"]: record.get("text") for record in found}
    assert len(texts) == len(found), "a record is there twice"
    start = "vec " if name == "vector" else "note "
    shown = {key for key in texts if key.startswith(start)}
    assert {key for key in known if key.startswith(start)} <= shown <= begun, (name, known - shown, shown - begun)
    if name != "vector":
        assert {f"n{at}" for at in range(20)} <= texts.keys()
        branch = (texts.get("branch"), texts.get("side only"))
        assert branch in (("common main", None), ("common side", "common side"), (None, None)), branch


def made(root: Path) -> Path:
    """A base with two branches, which differ in one old part; new records go to parts that git does not know."""
    make_base(root, CONFIG.format(min_bytes=ALWAYS))
    (root / "question.json").write_text("[1, 2, 3]")
    line = ("col", "init", "vecs", "--policy", "feature-store", "--params", '{"dimension": 3}')
    assert run_in(root, line).code == 0
    vectors = [{"id": f"v{at}", "tensor": [at, 1, 1]} for at in range(1, 9)]
    assert run_in(root, ("import", "vecs", "-"), stdin=lines(vectors)).code == 0
    both = [{"id": name, "text": "common side", "size": 1} for name in ("branch", "side only")]
    assert run_in(root, ("import", "Note", "-"), stdin=lines(both)).code == 0
    (part,) = (root / "data/nodes/note").rglob("part_*.jsonl")
    old = part.read_text("utf-8")
    for year in ("2025", "2026", "2027", "2028", "2029", "2030"):
        old = old.replace(f'_at":"{year}', '_at":"2020')
    part.unlink()
    part.parent.rmdir()
    assert run_in(root, ("import", "Note", "-"), stdin=lines([note(f"n{at}", at) for at in range(20)])).code == 0
    (root / OLD_PART).parent.mkdir(parents=True)
    (root / OLD_PART).write_text(old, "utf-8")
    (root / ".gitignore").write_text("/data/nodes/*/202[5-9]*/\n", "utf-8")
    git(root, "checkout", "-q", "-b", "side")
    commit(root)
    git(root, "checkout", "-q", "-b", "main")
    kept = [one for one in old.splitlines(keepends=True) if '"branch"' in one]
    (root / OLD_PART).write_text("".join(kept).replace("common side", "common main"), "utf-8")
    commit(root)
    return root


def test_finds_among_puts_checkouts_and_kills_show_one_truth(tmp_path: Path, campaign: Campaign) -> None:
    root, rng = made(tmp_path / "kb"), campaign.random("crowd")
    crowd = Crowd(Forge(tmp_path / "workers"), root, rng)
    end, turn = time.monotonic() + campaign.pick(2, 90), 0
    while time.monotonic() < end or crowd.running:
        is_open = time.monotonic() < end
        finds = sum(one.name != "put" for one in crowd.running)
        if is_open and finds < 6:
            crowd.find()
        if is_open and len(crowd.running) - finds < 2:
            crowd.put()
        if is_open and rng.random() < 0.2:
            turn += 1
            git(root, "checkout", "-q", BRANCHES[turn % 2])
        crowd.look()
    judge_at_rest(root, crowd)
    assert crowd.ended
    campaign.count("commands at once over a snapshot", crowd.ended)
    campaign.count("commands over a snapshot that were killed", crowd.killed)


def judge_at_rest(root: Path, crowd: Crowd) -> None:
    """Every question is answered as without a snapshot."""
    for name, line in FINDS.items():
        found = {}
        for size in (ALWAYS, NEVER):
            (root / "config.yaml").write_text(CONFIG.format(min_bytes=size), "utf-8")
            ran = run_in(root, line)
            assert ran.code == 0, ran.err
            judge(name, ran.lines, frozenset(crowd.acknowledged), crowd.begun)
            found[size] = {(one["id"], one["_etag"]) for one in ran.lines}
        assert found[ALWAYS] == found[NEVER]
        (root / "config.yaml").write_text(CONFIG.format(min_bytes=ALWAYS), "utf-8")
    assert run_in(root, ("repair", "--check-only")).line["needs"] == []
    assert not list(store_of(root).rglob("*.tmp"))
