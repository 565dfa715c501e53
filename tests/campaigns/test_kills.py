"""kill -9 at random moments of real writers: what was acknowledged is there, and nothing is there by halves."""

import json
import random
import signal
import time
from pathlib import Path

import duckkb
from tests.conftest import NOTES, commit, make_base
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.crowd.model import Model, Op
from tests.harness.crowd.workers import Forge, Worker, wait_for_stage
from tests.harness.forks import Forks, weakened

LAYOUT = {"data/nodes", "data/edges"}
"""Folders that stay when the last record in them was deleted."""


def _killed(worker: Worker, rng: random.Random, model: Model, seconds: float) -> tuple[Model, Op | None]:
    """Let it write a while, then kill it: the model after what it acknowledged, and the write that it was at."""
    worker.wait_for(1 + rng.choice((1, 2, 3, 8)) * 2)
    if rng.random() < 0.5:  # half of the kills come once a write is under way, the others at any moment
        wait_for_stage(worker)
    time.sleep(rng.random() * seconds)
    worker.send(signal.SIGKILL)
    assert worker.wait() in (-signal.SIGKILL, 0), worker.err
    assert "Traceback" not in worker.err, worker.err
    pending: Op | None = None
    for line in worker.lines():
        if "will" in line:
            pending = line["will"]
        elif pending is not None:
            model.apply(pending)
            pending = None
    return model, pending


def _judge(root: Path, kb: duckkb.KnowledgeBase, allowed: list[Model]) -> Model:
    """The model, of those allowed, that the files are exactly like once the next command has looked at them."""
    shuffled = any(model.shuffled for model in allowed)
    findings = kb.check().findings  # the first command after the kill: it recovers
    assert {finding.code for finding in findings} <= {"W_INVISIBLE", *(["E_NOT_CANONICAL"] if shuffled else [])}, (
        findings
    )
    assert set(oracle.leftovers(root)) <= LAYOUT
    differences = [model.differs(root) for model in allowed]
    assert "" in differences, differences
    for path in (root / "data" / "indices").glob("**/*.parquet"):
        assert path.read_bytes()[:4] == path.read_bytes()[-4:] == b"PAR1"
    if shuffled:
        kb.fmt()
    found = allowed[differences.index("")]
    found.shuffled = False
    found.adopt(root)
    return found


def _stage(root: Path) -> str:
    """How far the write had come that a kill ended."""
    names = {path.name for path in (root / ".duckkb" / "txn").rglob("*")}
    return "sealed" if "journal" in names else "staged" if names else "none"


def _with(model: Model, op: Op | None) -> list[Model]:
    """As it is, and as it is after a write that nobody heard of."""
    if op is None:
        return [model]
    after = model.copy()
    after.apply(op)
    return [model, after]


def test_dk_15_loops_killed_at_random_keep_what_they_acknowledged(
    tmp_path: Path, workers: Forge, campaign: Campaign
) -> None:
    rng, stages = campaign.random("kills"), set[str]()
    for number in range(campaign.pick(1, 12)):
        root, model = make_base(tmp_path / str(number), NOTES), Model()
        with duckkb.open(root) as kb:
            for kill in range(20):
                worker = workers.loop(root, rng.randrange(10**9), f"k{kill}")
                model, pending = _killed(worker, rng, model, 0.012)
                stages.add(stage := _stage(root))
                if rng.random() < 0.3:  # whoever recovers is killed too
                    recovering = workers.worker(root, "get", "Note", "none")
                    time.sleep(rng.random() * 0.02)
                    recovering.send(signal.SIGKILL)
                    recovering.wait()
                    campaign.count("kills of real processes")
                model = _judge(root, kb, _with(model, pending))
                campaign.count("kills of real processes")
                campaign.count("kills between two writes" if stage == "none" else f"kills that left a write {stage}")
    assert stages > {"none"}, "no kill came in the middle of a write"


def test_dk_15_two_writers_killed_at_once_leave_at_most_one_write_each(
    notes: Path, workers: Forge, campaign: Campaign
) -> None:
    rng, model = campaign.random("pairs"), Model()
    with duckkb.open(notes) as kb:
        for number in range(campaign.pick(2, 15)):
            pair = [workers.loop(notes, rng.randrange(10**9), f"{side}{number}", False) for side in "ab"]
            model, first = _killed(pair[0], rng, model, 0.02)
            model, second = _killed(pair[1], rng, model, 0.0)
            allowed = [after for before in _with(model, first) for after in _with(before, second)]
            model = _judge(notes, kb, allowed)
            campaign.count("kills of real processes", 2)


COMMANDS: list[Op] = [
    {"op": "put", "type": "Note", "records": [{"id": "a", "text": "new 内存"}]},
    {"op": "import", "type": "Note", "records": [{"id": f"i{n}", "text": "x" * 50} for n in range(200)]},
    {"op": "delete", "type": "Note", "ids": ["b"]},
    {"op": "rename", "type": "Note", "old": "c", "new": "z"},
    {"op": "index"},
    {"op": "fmt"},
]
FIRST: list[Op] = [
    {"op": "put", "type": "Note", "records": [{"id": name, "text": "fox"} for name in "abcdef"]},
    {"op": "put", "type": "cites", "records": [{"from": a, "to": b} for a in "abc" for b in "bcd" if a != b]},
]


def _line(op: Op, root: Path) -> list[str]:
    """The command line of a write."""
    match op["op"]:
        case "put":
            return ["put", op["type"], json.dumps(op["records"][0])]
        case "import":
            (root / "import.jsonl").write_text("".join(json.dumps(record) + "\n" for record in op["records"]))
            return ["import", op["type"], "import.jsonl"]
        case "delete":
            return ["delete", op["type"], *op["ids"], "--cascade"]
        case "rename":
            return ["rename", op["type"], op["old"], op["new"]]
    return ["index", "build"] if op["op"] == "index" else [op["op"]]


def _filled(root: Path) -> Model:
    model = Model()
    with duckkb.open(root) as kb:
        for op in FIRST:
            kb.put(op["type"], op["records"])
            model.apply(op)
    model.adopt(root)
    commit(root)
    return model


def test_dk_15_whole_commands_killed_at_random_are_done_or_not(
    tmp_path: Path, workers: Forge, campaign: Campaign
) -> None:
    """From the start of Python on; every command is then repeated and must come to the same end as undisturbed."""
    rng = campaign.random("commands")
    for number in range(campaign.pick(6, 50)):
        root, op = make_base(tmp_path / str(number), NOTES), COMMANDS[number % len(COMMANDS)]
        model = _filled(root)
        line = _line(op, root)
        worker = workers.whole(root, *line)
        time.sleep(rng.random() * 0.9)
        worker.send(signal.SIGKILL)
        code = worker.wait()
        assert code in (0, -signal.SIGKILL), worker.err
        campaign.count("kills of real processes" if code else "commands faster than their kill")
        with duckkb.open(root) as kb:
            after = model.copy()
            after.apply(op)
            found = _judge(root, kb, [after] if code == 0 else [model, after])
            if found is model and op["op"] not in ("index", "fmt"):
                again = workers.worker(root, *line)
                assert again.wait() == 0, again.err
                _judge(root, kb, [after])


def test_a_writer_without_the_journal_is_caught(tmp_path: Path, campaign: Campaign) -> None:
    """The control: the same loop, kills and judge over a copy that writes its files in place."""
    naive = """    stage = root / ".duckkb" / "txn" / "in place"
    stage.mkdir(parents=True, exist_ok=True)
    for target in targets:
        path = root / target.change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as file:
            for at in range(0, len(target.change.data or b""), 512):
                file.write((target.change.data or b"")[at : at + 512])
                __import__("time").sleep(0.002)
        facts[target.change.path] = path.stat()
        if target.change.data is None:
            path.unlink()
    stage.rmdir()
    return facts
    facts |= _seal(work, targets)
"""
    sources = weakened(tmp_path / "weak", {"storage/commit_protocol": ("    facts |= _seal(work, targets)\n", naive)})
    rng = campaign.random("control")
    with Forks(sources) as warm:
        workers = Forge(tmp_path / "workers", warm)
        for number in range(60):
            root = make_base(tmp_path / str(number), NOTES)
            worker = workers.loop(root, rng.randrange(10**9), "w")
            try:
                model, pending = _killed(worker, rng, Model(), 0.012)
                with duckkb.open(root) as kb:
                    _judge(root, kb, _with(model, pending))
            except (AssertionError, duckkb.DuckkbError):
                return
    raise AssertionError("60 kills of a writer without protection, and nothing was noticed")
