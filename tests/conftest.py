"""Shared ground: knowledge bases in temporary folders, real git, and a machine state of their own for every test."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from duckkb import config
from duckkb.store.cache_dirs import Place
from tests.fake_endpoint import FakeEndpoint
from tests.harness import one_day as one_day_of_tests
from tests.harness.forks import COMMAND, MODELS, forks, possible, warm_children
from tests.harness.postgres import postgres as postgres
from tests.harness.waiting import HANG_S
from tests.harness.warmth import Warmth

# The suite draws the same examples every time, a quarter of what each law asks for; `make check-full` draws new ones, and
# all of them (--hypothesis-profile=fresh), and prints how to repeat what it finds.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fresh", print_blob=True, deadline=None)
settings.load_profile("repeatable")
FEWER, FEWEST = 4, 8

ROOT = Path(__file__).resolve().parent.parent
NOTES = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties:
        id: {type: string}
        title: {type: string}
        text: {type: string}
        status: {type: string, enum: [draft, final]}
        size: {type: integer}
        tags: {type: array, items: {type: string}, x-merge: set}
      required: [id]
    search: {full_text: [title, text]}
  Person:
    table: person
    identity: [country, number]
    schema:
      type: object
      properties: {country: {type: string}, number: {type: integer}, name: {type: string}}
      required: [name]
    search: {full_text: [name]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: {type: string}}}}
  wrote: {from: Person, to: Note}
  about: {from: Note, to: [Note, Person], cardinality: "N:1"}
"""


def pytest_configure() -> None:
    """A run in the background or under nohup ignores signals, and so would all that it starts and then interrupts: what is
    ignored is inherited, and what is handled is not."""
    for number in (getattr(signal, name, None) for name in ("SIGINT", "SIGHUP")):
        if number and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", choices=("short", "full"), default="short", help="how much of each campaign to run")
    parser.addoption(
        "--warm", action="store_true", help="also have a warm process answer each command that one may, and compare"
    )
    parser.addoption("--seed", type=int, default=20261122, help="where the chance of a campaign begins")
    parser.addoption(
        "--serving-seconds", type=float, help="how long the campaign of a server takes; else 12, in full an hour"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave larger samples to the full run, and have each law draw fewer examples, unless they are to be fresh. A law says
    in its decorator how many it asks for, which no profile overrides, so what the decorator left on the function is
    replaced."""
    if config.getoption("--campaign") != "full":
        larger = [item for item in items if item.get_closest_marker("larger")]
        config.hook.pytest_deselected(items=larger)
        items[:] = [item for item in items if item not in larger]
    if settings.get_current_profile_name() != "repeatable":
        return
    laws = {item.obj for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)}
    for law in laws:
        asked = getattr(law, "_hypothesis_internal_use_settings", settings.default)
        fewer = max(min(asked.max_examples, FEWEST), asked.max_examples // FEWER)
        law._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)


def pytest_collection_finish() -> None:
    """Four thousand tests and their modules stay to the end: looking them through for garbage took a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the campaigns counted, by name, over all processes of the run."""
    figures: Counter[str] = Counter()
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        for kind, value in report.user_properties if getattr(report, "when", "") == "teardown" else ():
            if kind == "figure":
                figures[value[0]] += value[1]
    if figures:
        terminalreporter.section("figures of the campaigns")
        for name, number in sorted(figures.items()):
            terminalreporter.write_line(f"{number:>10,}  {name}")


_warmth: list[Warmth] = []


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    """A server of vectors that answers well, until a test asks it for something else."""
    with FakeEndpoint() as server:
        yield server


@pytest.fixture(autouse=True, scope="session")
def answered_twice(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --warm."""
    if request.config.getoption("--warm") and possible():
        _warmth.append(Warmth())
    yield
    while _warmth:
        print(f"{_warmth[-1].compared} commands compared with a warm process")
        _warmth.pop().close()


@pytest.fixture(autouse=True, scope="session")
def own_machine_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust of the tests' own; git without the user's configuration."""
    home = tmp_path_factory.mktemp("state")
    before = dict(os.environ)
    os.environ.update(
        XDG_STATE_HOME=str(home),
        XDG_CACHE_HOME=str(_cache_home(home / "cache")),
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_SYSTEM=os.devnull,
        GIT_AUTHOR_NAME="test",
        GIT_AUTHOR_EMAIL="test@example.org",
        GIT_COMMITTER_NAME="test",
        GIT_COMMITTER_EMAIL="test@example.org",
    )
    for name in ("DUCKKB_KB", "DUCKKB_WRITER", "DUCKKB_TRUST", "DUCKKB_SANDBOX", "DUCKKB_AGENT", "DUCKKB_CACHE_HOME"):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True, scope="module")
def own_cache_home(own_machine_state: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores, and the cache of tokens and vectors, of each module's own: what one has embedded, another has not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(_cache_home(tmp_path_factory.mktemp("cache"))))
        yield


def _cache_home(home: Path) -> Path:
    """An empty cache folder, but that converted models lie in it."""
    MODELS.mkdir(parents=True, exist_ok=True)
    (home / "duckkb").mkdir(parents=True)
    (home / "duckkb" / "models").symlink_to(MODELS)
    return home


@pytest.fixture(autouse=True, scope="module")
def warm(request: pytest.FixtureRequest) -> Iterator[None]:
    """No module but a campaign pays for the start of Python in every process, nor for loading the model in every base."""
    with nullcontext() if "campaigns" in request.path.parts or not possible() else warm_children():
        yield


@pytest.fixture(scope="module")
def one_day() -> Iterator[None]:
    """All that the module's tests write, here and in forks, is of one day, whatever midnight passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(one_day_of_tests.BEGAN, str(time.monotonic()))
        patch.setattr(one_day_of_tests.SystemClock, "now", one_day_of_tests.now)
        yield


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """An empty base of notes and people in a git repository."""
    return make_base(tmp_path / "kb", NOTES)


def make_base(root: Path, config: str) -> Path:
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(config, "utf-8")
    (root / ".gitattributes").write_text("data/**/*.jsonl text eol=lf\n", "utf-8")
    git(root, "init", "-q", "-b", "main")
    return root


CopyOf = Callable[[Callable[[Path], object], Path], Path]


@pytest.fixture(scope="session")
def copy_of(tmp_path_factory: pytest.TempPathFactory) -> CopyOf:
    """`copy_of(make, root)`: at `root` a copy of the base that `make` makes, which it is asked for once."""
    bases: dict[Callable[[Path], object], Path] = {}

    def copy(make: Callable[[Path], object], root: Path) -> Path:
        if make not in bases:
            base = tmp_path_factory.mktemp("template") / "kb"
            make(base)
            bases[make] = base
        return Path(shutil.copytree(bases[make], root, symlinks=True))

    return copy


def git(root: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *args], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def store_of(root: Path) -> Path:
    """The folder in the user's cache where what is derived of a base lies."""
    return Place.locate(config.read_environment(root).cache_home, root).own


def commit(root: Path, message: str = "as it is") -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)


def tree_bytes(root: Path) -> dict[str, bytes]:
    """Every file under data/ with its bytes."""
    files = sorted(path for path in (root / "data").rglob("*") if path.is_file() or path.is_symlink())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@dataclass(frozen=True)
class Ran:
    """One real process: its exit code, stdout as objects a line, stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def line(self) -> dict[str, Any]:
        assert len(self.out.splitlines()) == 1, (self.out, self.err)
        return self.lines[0]

    @property
    def error(self) -> dict[str, Any]:
        """The JSON error of `--json`, which is the last line of stderr."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found


Run = Callable[..., Ran]


@pytest.fixture
def run(notes: Path) -> Run:
    """Run `duckkb` in the base of notes, as a process: run("put", "Note", "{...}", stdin="...")."""
    return lambda *args, stdin="", env=None: run_in(notes, args, stdin=stdin, env=env)


def run_in(root: Path, args: Sequence[str], *, stdin: str | bytes = "", env: dict[str, str] | None = None) -> Ran:
    """Run `duckkb` in a folder, as a process of its own: a fork of a warm one, unless the environment says how Python
    itself is to start."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    around = {**os.environ, "PYTHONUTF8": "1", **(env or {})}
    from_nothing = any(name.startswith("PYTHON") for name in env or {})
    if from_nothing or not possible():
        command = [sys.executable, "-m", "duckkb", *args]
        done = subprocess.run(
            command, cwd=root, input=data, capture_output=True, env=around, check=False, timeout=HANG_S
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        some = forks()
        code, out, err = some.output(COMMAND, args, root, data, around)
        for warmth in _warmth:
            warmth.check(some, root, args, data, around, (code, out, err))
    ran = Ran(code, out.decode(), err.decode())
    assert "Traceback" not in ran.err, ran.err
    assert "E_INTERNAL" not in ran.err and "a bug in duckkb" not in ran.err, ran.err
    return ran


def without_roots_rights() -> list[str]:
    """Root reads and writes wherever it likes; a command in front takes that from it."""
    if os.getuid():
        return []
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    if not shutil.which(drop[0]) or subprocess.run([*drop, "true"], capture_output=True, check=False).returncode:
        pytest.skip(
            "runs as root, and setpriv cannot take its rights away here; test_errnos.py refuses the same calls with EACCES and EROFS"
        )
    return drop


@pytest.fixture(scope="session")
def own_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's own knowledge base, committed."""
    root = tmp_path_factory.mktemp("own") / "kb"
    root.mkdir()
    for name in ("config.yaml", ".gitattributes"):
        shutil.copy2(ROOT / name, root / name)
    for name in ("ontology", "data"):
        shutil.copytree(ROOT / name, root / name)
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root
