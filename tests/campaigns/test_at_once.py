"""Eight commands that begin at once on an empty home, whatever they are: nothing that one acknowledged is lost, nothing is embedded
twice, and what fails says who was first. What is there afterwards is read from the files, and by later processes."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in
from tests.fake_endpoint import FakeEndpoint
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.forks import weakened

PROCESSES, PARTS = 8, 8
VERBS = (
    "collection add",
    "context add",
    "find",
    "git install",
    "init",
    "mark-accessed",
    "memory put",
    "put",
    "tenant add",
    "trust",
)
CONFIG = """\
global:
  embedding_model: far
  embedding: {{base_url: '{url}', dimensions: 16, max_retries: 0}}
nodes:
  Note:
    table: note
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}}}, required: [id]}}
    search: {{full_text: [text], vectors: [text]}}
"""


@dataclass
class Round:
    """One home, the bases that share it, and the verbs that are drawn: few, so that they meet. `trusted` is the hash of what the
    bases demand, `source` where another duckkb is imported from."""

    home: Path
    bases: list[Path]
    verbs: list[str]
    trusted: str
    source: str = ""

    @property
    def state(self) -> Path:
        return self.home / "state" / "duckkb"

    def around(self, *, cold: bool = False, trusted: bool = True) -> dict[str, str]:
        """The environment; a `cold` process starts from nothing, any other is a fork of a warm one."""
        return {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "DUCKKB_CACHE_HOME": "",
            **({"DUCKKB_TRUST": self.trusted} if trusted else {}),
            **({"PYTHONHASHSEED": "0"} if cold else {}),
            **({"PYTHONPATH": self.source} if self.source else {}),
        }

    def run(self, base: Path, *command: str) -> Ran:
        """A later process, which may ask no host that this home does not trust."""
        return run_in(base, command, env=self.around(trusted=False))


@dataclass(frozen=True)
class Drawn:
    """A command, where it runs, and how it is known that what it acknowledged is there."""

    verb: str
    base: Path
    command: list[str]
    is_kept: Callable[[], bool]


def _lines(ran: Ran) -> list[dict[str, object]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def _is_told(ran: Ran, name: str, value: str) -> bool:
    return value in [line[name] for line in _lines(ran)]


def _is_set_up(world: Round, base: Path) -> bool:
    """Whether git merges by records; the rules of a type that was added beside it are written when the base is next opened."""
    checks = [json.loads(line) for line in world.run(base, "git", "install", "--check").out.splitlines()]
    return {line["check"] for line in checks if line["status"] != "ok"} <= {"rules"} and len(checks) == 4


def _tenants(world: Round, base: Path) -> list[str]:
    name = hashlib.sha256(os.fsencode(base.resolve())).hexdigest()[:32]
    lines = (world.state / f"tenants/{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["tenant"] for line in lines[1:]]


def _accesses(world: Round, base: Path) -> int:
    name = hashlib.sha256(os.fsencode(base.resolve())).hexdigest()[:32]
    with closing(sqlite3.connect(world.state / f"memory/{name}.v1.sqlite3")) as file:
        return int(file.execute("SELECT sum(times) FROM access").fetchone()[0])


def _draw(world: Round, chance: random.Random, number: int) -> Drawn:
    base, name = chance.choice(world.bases), f"p{number}"
    outside = world.home.parent / f"outside-{number}"
    outside.mkdir(exist_ok=True)
    (outside / "page.md").write_text(f"# Page {number}\n", "utf-8")
    kept = json.dumps({"id": name, "text": f"text of {name}"})
    by_name = {
        "put": (["put", "Note", kept], lambda: {"note"} <= _tables(base, name)),
        "find": (["find", "Note", f"question of {name}"], lambda: True),
        "collection add": (
            ["collection", "add", str(outside)],
            lambda: (
                _is_told(world.run(base, "collection", "list"), "name", outside.name)
                and outside.name in json.loads((world.state / "collections.json").read_bytes()).get(str(base), {})
            ),
        ),
        "context add": (
            ["context", "add", f"docs/part{number}", f"about {name}"],
            lambda: _is_told(world.run(base, "context", "list"), "context", f"about {name}"),
        ),
        "trust": (
            ["trust"],
            lambda: (
                json.loads((world.state / "trust.json").read_bytes()).get(str(base)) == world.trusted
                and world.run(base, "trust", "--show").line["trusted"] is True
            ),
        ),
        "memory put": (
            ["memory", "put", name, f"memory of {name}", "--scope", "ann"],
            lambda: any(f"memory of {name}" in path.read_text("utf-8") for path in base.rglob("data/**/*.jsonl")),
        ),
        "mark-accessed": (["memory", "mark-accessed", "known", "--scope", "ann"], lambda: True),
        "tenant add": (
            ["tenant", "add", name, "--role", "viewer"],
            lambda: name in _tenants(world, base) and _is_told(world.run(base, "tenant", "list"), "tenant", name),
        ),
        "git install": (["git", "install"], lambda: _is_set_up(world, base)),
        "init": (["init", "made"], lambda: world.run(base / "made", "check").code == 0),
    }
    verb = chance.choice(world.verbs)
    return Drawn(verb, base, *by_name[verb])


def _tables(base: Path, name: str) -> set[str]:
    return {table for (table, _), record in oracle.records(base).items() if record.get("id") == name}


def _play(world: Round, chance: random.Random, campaign: Campaign) -> None:
    """Have eight commands begin together, and hold what they acknowledged against what is there."""
    drawn = [_draw(world, chance, number) for number in range(PROCESSES)]
    start = Barrier(PROCESSES)

    def run(number: int) -> Ran:
        start.wait()
        is_cold = bool(world.source) or number % 2 == 0
        return run_in(drawn[number].base, drawn[number].command, env=world.around(cold=is_cold))

    with ThreadPoolExecutor(PROCESSES) as pool:
        ended = list(pool.map(run, range(PROCESSES)))
    done = Counter[tuple[str, Path]]()
    for one, ran in zip(drawn, ended, strict=True):
        campaign.count("commands that began eight at once")
        if one.verb == "init" and ran.code == 1 and "config.yaml already exists" in ran.err:
            campaign.count("commands that were told who was first")
            done["init", one.base] += 0
        elif one.verb == "find" and ran.code == 1:
            assert not ran.err, "there is nothing yet, which is no failure"
        else:
            assert ran.code == 0, (one.command, ran.err)
            assert one.is_kept(), (one.command, "is lost")
            done[one.verb, one.base] += 1
    for (verb, base), count in done.items():
        assert verb != "init" or count == 1, "one of those who make a base makes it"
        assert verb != "mark-accessed" or _accesses(world, base) == count, "accesses are lost"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    with FakeEndpoint() as served:
        yield served


@pytest.fixture(scope="module")
def ground(endpoint: FakeEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a scope of memories, a memory in it, and a folder of documents."""
    root = make_base(tmp_path_factory.mktemp("at-once") / "kb", CONFIG.format(url=endpoint.url))
    for number in range(PARTS):
        (root / f"docs/part{number}").mkdir(parents=True)
        (root / f"docs/part{number}/page.md").write_text(f"# Part {number}\n", "utf-8")
    for command in (
        ["trust"],
        ["collection", "add", "docs"],
        ["col", "init", "memory-ann", "--policy", "memory", "--params", '{"scope": "ann"}'],
        ["memory", "put", "known", "what everybody knows", "--scope", "ann"],
        ["put", "Note", '{"id": "first", "text": "the first note"}'],
    ):
        ran = run_in(root, command)
        assert ran.code == 0, (command, ran.err)
    commit(root)
    return root


def _world(folder: Path, ground: Path, chance: random.Random, source: str = "") -> Round:
    """An empty home, and bases of which no process knows anything yet."""
    (folder / "home").mkdir(parents=True)
    bases = [folder / f"kb{number}" for number in range(chance.choice((1, 3)))]
    for base in bases:
        git(folder, "clone", "-q", str(ground), str(base))
    trusted = run_in(ground, ["trust", "--show"]).line["hash"]
    return Round(folder / "home", bases, chance.sample(VERBS, 3), trusted, source)


def test_commands_that_begin_at_once_on_an_empty_home_lose_nothing(
    ground: Path, endpoint: FakeEndpoint, tmp_path: Path, campaign: Campaign
) -> None:
    for number in range(campaign.pick(5, 200)):
        print(f"round {number}")
        chance = campaign.random(str(number))
        world = _world(tmp_path / f"round{number}", ground, chance)
        endpoint.asked.clear()
        _play(world, chance, campaign)
        for base in world.bases:
            assert oracle.leftovers(base) == []
            assert run_in(base, ["index", "refresh"], env=world.around()).code == 0
            assert run_in(base, ["check"], env=world.around()).code == 0
        texts = Counter(text for asked in endpoint.asked for text in asked.texts)
        own = {text: count for text, count in texts.items() if " of p" in text}
        assert [text for text, count in own.items() if count > 1] == [], "embedded twice"
        campaign.count("texts that were embedded once while others began", len(own))
        campaign.count("rounds of eight commands at once")
        shutil.rmtree(tmp_path / f"round{number}")


def test_a_memory_of_the_machine_without_its_lock_is_caught(ground: Path, tmp_path: Path, campaign: Campaign) -> None:
    """The control: what every process does between reading and replacing takes longer, and nobody holds the lock."""
    held = 'stack.enter_context(base_lock.hold_lock_beside(folder / _LOCKED, "exclusive", _WAIT_S))'
    known = "entries = _read(env, name)\n"
    weak = weakened(
        tmp_path / "weak",
        {"config/machine_memory": (held, "pass", known, f"{known}        import time\n        time.sleep(0.5)\n")},
    )
    world = _world(tmp_path / "round", ground, campaign.random(), str(weak))
    world.verbs = ["trust"]
    world.bases = [world.bases[0], *(shutil.copytree(ground, tmp_path / f"kb{number}") for number in range(3))]
    with pytest.raises(AssertionError, match="is lost"):
        for number in range(10):
            shutil.rmtree(world.home)
            world.home.mkdir()
            _play(world, campaign.random(str(number)), Campaign(campaign.full, campaign.seed))
