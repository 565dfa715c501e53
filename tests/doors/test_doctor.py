"""`doctor`: a healthy base is all ok; each planted fault is named with a remedy that mends it; a look changes no byte."""

import json
import os
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict

import duckkb
from duckkb import app
from duckkb.cli.main import run
from duckkb.review import machine_health
from duckkb.review.base_health import Check, Look, Surroundings, Verdict, error, join_problems
from duckkb.review.health_checks import CHECKS
from duckkb.storage import base_lock, commit_protocol
from tests.conftest import commit, git, run_in, without_roots_rights
from tests.fakes import FrozenClock, HashEmbedder
from tests.harness.hostile.caches import rows_of

CONFIG = """\
global: {embedding_model: multilingual-e5-small}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, text: {type: string}, size: {type: integer}}
      required: [id]
    search: {full_text: [text], vectors: [text]}
edges:
  cites: {from: Note, to: Note}
"""
TEXTS = {
    "journal": "A journal is sealed before files change.",
    "backup": "备份是数据在另一处的副本。",
    "lock": "The kernel holds the lock, 内核持有锁。",
}
MODEL = HashEmbedder(16)
LINE = '{"__id":%d,"id":"%s"%s,"__created_at":"2026-01-02T00:00:00.000000Z","__updated_at":"%s"}\n'
PART = "data/nodes/note/20260102/part_000.jsonl"
TEAM = "data/indices/search_cache.parquet"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed base with records, both caches and vectors, on a machine that made them."""
    root = tmp_path_factory.mktemp("healthy") / "kb"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DUCKKB_CACHE_HOME", str(root.with_name("cache")))
        return make_healthy(root)


def make_healthy(root: Path) -> Path:
    duckkb.init(root)
    (root / "config.yaml").write_text(CONFIG, "utf-8")
    git(root, "init", "-q", "-b", "main")
    with duckkb.open(root, embedder=MODEL) as kb:
        kb.put("Note", [{"id": name, "text": text} for name, text in TEXTS.items()])
        kb.put("cites", {"from": "backup", "to": "journal"})
        kb.index_build()
    commit(root)
    return root


@pytest.fixture
def base(healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the machine that made it: what other tests do to their caches is not seen here."""
    shutil.copytree(healthy.with_name("cache"), tmp_path / "cache", symlinks=True)
    (tmp_path / "cache/models").symlink_to(Path(os.environ["XDG_CACHE_HOME"]) / "duckkb/models")
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(healthy, tmp_path / "kb", symlinks=True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and cache folders of this test's own: another machine, that has made and checked nothing."""
    monkeypatch.delenv("DUCKKB_CACHE_HOME", raising=False)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def whole(folder: Path) -> dict[str, Any]:
    """Every path below a folder with kind, mode, time of change and content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = (
            path.read_bytes() if stat.S_ISREG(facts.st_mode) else str(path.readlink()) if path.is_symlink() else None
        )
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_mtime_ns, content)
    return found


def contents(folder: Path) -> dict[str, Any]:
    """The files below a folder of stores: SQLite lays its log beside a store that it reads, and takes it away."""
    if folder == Path():
        return {}
    return {name: facts[2] for name, facts in whole(folder).items() if not name.startswith("models")}


def look(root: Path, **chosen: Any) -> dict[str, Check]:
    """What doctor says, by check; holds it to changing nothing in the base and in the user's folders."""
    state, cache = Path(os.environ["XDG_STATE_HOME"]), Path(os.environ.get("DUCKKB_CACHE_HOME", ""))
    before = whole(root), whole(state), contents(cache)
    health = app.doctor(root, **{"embedder": MODEL, **chosen})
    assert (whole(root), whole(state), contents(cache)) == before
    assert tuple(check.check for check in health.checks) == tuple(CHECKS)
    assert all(check.remedy for check in health.checks if check.status in ("warning", "error")), health
    assert not any("the check itself failed" in check.message for check in health.checks), health
    return {check.check: check for check in health.checks}


def troubles(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.status for name, check in found.items() if check.status in ("warning", "error")}


def shell(root: Path, command: str) -> None:
    """Run a remedy as a person would paste it; one of duckkb's alone runs in this process, which is faster."""
    words = shlex.split(command)
    if words[0] == "duckkb" and not set(command) & set(";|&<>`"):
        assert run([*words[1:], "--kb", str(root)]) == 0, command
        return
    duckkb_here = f'duckkb() {{ {sys.executable} -m duckkb "$@"; }}; '
    done = subprocess.run(["bash", "-c", duckkb_here + command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.long
def test_kx_12_a_healthy_base_is_all_ok_and_two_looks_say_the_same(base: Path) -> None:
    found = look(base)
    assert {check.status for check in found.values()} == {"ok"}, troubles(found)
    assert list(look(base).values()) == list(found.values())


@pytest.mark.long
def test_a_fresh_clone_on_another_machine_is_healthy_too(base: Path, machine: Path) -> None:
    clone = machine / "clone"
    git(base, "clone", "-q", str(base), str(clone))
    found = look(clone)
    assert {check.status for check in found.values()} == {"ok"}, troubles(found)
    assert "sample" in found["team_cache"].message
    assert not (clone / ".duckkb").exists()


@dataclass(frozen=True)
class Fault:
    """`plant` breaks a base, `check` must then have `status`; `mend` runs the remedy given (None), or what a person does
    who follows it. `only` is false where one fault rightly shows in other checks too."""

    check: str
    status: str
    plant: Callable[[Path], object]
    mend: Callable[[Path], object] | None = None
    only: bool = True


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")


def _add(root: Path, path: str, text: str) -> None:
    with (root / path).open("a", encoding="utf-8") as file:
        file.write(text)


def _line(number: int, name: str, more: str = "", updated: str = "2026-01-02T00:00:00.000000Z") -> str:
    return LINE % (number, name, more, updated)


def _remove(path: str) -> Callable[[Path], object]:
    def remove(root: Path) -> None:
        target = root / path
        shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()

    return remove


def _restore(path: str) -> Callable[[Path], object]:
    return lambda root: git(root, "checkout", "--", path)


def _build(root: Path) -> None:
    with duckkb.open(root, embedder=MODEL) as kb:
        kb.index_build()


def _put_without_vector(root: Path) -> None:
    with duckkb.open(root, embedder=MODEL) as kb:
        kb.put("Note", {"id": "new", "text": "not embedded yet"}, embed=False)


def _interrupt(root: Path) -> None:
    """Stop a write right behind its commit point, as a kill would."""

    def stop(step: str) -> None:
        if step.startswith("replace "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit_protocol.commit(
            root, [commit_protocol.FileChange(PART, None, _line(5, "sealed").encode())], on_step=stop
        )


def _third_state(root: Path) -> None:
    _interrupt(root)
    _write(root, PART, _line(6, "stranger"))


def _shallow(root: Path) -> None:
    deep = root.with_name("deep")
    root.rename(deep)
    commit(deep, "another")
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{deep}", str(root)], check=True)


def _turn_bytes(root: Path) -> None:
    """Other bytes in the middle of the team's cache, as a bad disk or a bad merge leaves them."""
    data = bytearray((root / TEAM).read_bytes())
    for at in range(200, 240):
        data[at] ^= 0xFF
    (root / TEAM).write_bytes(data)


def _other_columns(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"word": ["a"]}), root / TEAM)


def cached() -> sqlite3.Connection:
    """The user's tokens and vectors, of all bases."""
    folder = Path(os.environ["DUCKKB_CACHE_HOME"]) / "shared"
    return sqlite3.connect(folder / "search_cache.sqlite", isolation_level=None)


def _damage_row(root: Path) -> None:
    with closing(cached()) as connection:
        connection.execute("UPDATE row SET payload = zeroblob(9) WHERE id = (SELECT max(id) FROM row)")


def _cache_behind_link(root: Path) -> None:
    root.with_name("elsewhere").mkdir()
    (root / ".duckkb/cache").symlink_to(root.with_name("elsewhere"))


FAULTS = {
    "an unknown key": Fault("configuration", "error", lambda root: _add(root, "config.yaml", "globl: {}\n"), _restore("config.yaml"), only=False),
    "a YAML file that is none": Fault("configuration", "error", lambda root: _write(root, "ontology/a.yaml", "a: [\n"), _remove("ontology/a.yaml"), only=False),
    "no repository": Fault("repository", "warning", _remove(".git")),
    "a repository that lost its objects": Fault("repository", "error", _remove(".git/objects"), only=False, mend=lambda root: None),
    "a repository without HEAD": Fault("repository", "error", _remove(".git/HEAD"), mend=lambda root: _write(root, ".git/HEAD", "ref: refs/heads/main\n"), only=False),
    "a merge under way": Fault("repository", "warning", lambda root: _write(root, ".git/MERGE_HEAD", git(root, "rev-parse", "HEAD")), _remove(".git/MERGE_HEAD")),
    "a shallow clone": Fault("repository", "warning", _shallow),
    "a work tree that git calls bare": Fault("repository", "warning", lambda root: git(root, "config", "core.bare", "true")),
    "line ends that git turns": Fault("git_settings", "warning", lambda root: (git(root, "config", "core.autocrlf", "true"), _write(root, ".gitattributes", "")), only=False),
    "case that git ignores": Fault("git_settings", "warning", lambda root: git(root, "config", "core.ignorecase", "true")),
    "no attributes": Fault("attributes", "warning", lambda root: git(root, "rm", "-q", ".gitattributes")),
    "attributes overridden": Fault("attributes", "warning", lambda root: _write(root, ".git/info/attributes", "*.jsonl text eol=crlf\n"), _remove(".git/info/attributes")),
    "attributes that are a pipe": Fault("attributes", "error", lambda root: ((root / ".gitattributes").unlink(), os.mkfifo(root / ".gitattributes"))),
    "parts in LFS": Fault("attributes", "warning", lambda root: _add(root, ".gitattributes", "*.jsonl filter=lfs\n"), _restore(".gitattributes")),
    "local state in git": Fault("tracked_state", "error", lambda root: git(root, "add", "-f", ".duckkb/lock")),
    "a lock that is a folder": Fault("lock", "error", lambda root: ((root / ".duckkb/lock").unlink(), (root / ".duckkb/lock").mkdir()), only=False),
    "a write that was never sealed": Fault("journal", "warning", lambda root: _write(root, ".duckkb/txn/0011/draft", "{")),
    "a sealed write": Fault("journal", "error", _interrupt, only=False),
    "a file in a third state": Fault("journal", "error", _third_state, lambda root: shell(root, "duckkb recover --abort; rm -r .duckkb/rescued"), only=False),
    "a temporary file": Fault("local_state", "warning", lambda root: _write(root, ".duckkb/.clone_id.0011.tmp", "x")),
    "a cache of an earlier version": Fault("local_state", "warning", lambda root: _write(root, ".duckkb/cache/.tmp-abc", "PAR1")),
    "local state that git sees": Fault("local_state", "warning", lambda root: _write(root, ".duckkb/.gitignore", "")),
    "a .gitignore that is a link": Fault("local_state", "error", lambda root: ((root / ".duckkb/.gitignore").unlink(), (root / ".duckkb/.gitignore").symlink_to("/dev/null")), lambda root: shell(root, "rm -r .duckkb/.gitignore; duckkb repair")),
    "an old snapshot": Fault("local_state", "warning", lambda root: _write(root, ".duckkb/snapshot/rows.arrow", "x")),
    "a cache behind a link": Fault("local_state", "warning", _cache_behind_link, only=False),
    "local state behind a link": Fault("local_state", "error", lambda root: ((root / ".duckkb").rename(root.with_name("own")), (root / ".duckkb").symlink_to(root.with_name("own"))), only=False),
    "a stage that is a file": Fault("local_state", "error", lambda root: ((root / ".duckkb/txn").rmdir(), _write(root, ".duckkb/txn", "x"))),
    "files kept aside": Fault("rescued", "warning", lambda root: _write(root, ".duckkb/rescued/a/b.jsonl.0011", "x"), _remove(".duckkb/rescued")),
    "a newer format": Fault("format", "error", lambda root: _write(root, "data/FORMAT.json", '{"format":2}'), _restore("data/FORMAT.json")),
    "no data": Fault("data", "error", _remove("data"), only=False),
    "a line that is no JSON": Fault("readable", "error", lambda root: _write(root, PART, "nonsense\n"), _remove(PART), only=False),
    "a part that is a pointer": Fault("lfs", "error", lambda root: _write(root, PART, POINTER), _remove(PART), only=False),
    "a line written by hand": Fault("canonical", "error", lambda root: _write(root, PART, '{"id": "by hand"}\n')),
    "lines out of order": Fault("canonical", "error", lambda root: _write(root, PART, _line(9, "z") + _line(8, "b"))),
    "a record that does not fit": Fault("records", "error", lambda root: _write(root, PART, _line(9, "odd", ',"size":"many"')), _remove(PART)),
    "a record in another day": Fault("records", "error", lambda root: _write(root, PART.replace("0102", "0103"), _line(9, "odd")), _remove("data/nodes/note/20260103")),
    "one identity twice": Fault("identities", "error", lambda root: _write(root, PART, _line(9, "journal", ',"text":"A journal."')), only=False),
    "one id twice": Fault("identities", "error", lambda root: _write(root, PART, _line(9, "a") + _line(9, "b"))),
    "an edge to nothing": Fault("edges", "error", lambda root: _write(root, "data/edges/cites/20260102/part_000.jsonl", _line(9, "x").replace('"id":"x"', '"from":"backup","to":"ghost"')), _remove("data/edges/cites/20260102")),
    "a stranger in data": Fault("strangers", "error", lambda root: _write(root, "data/nodes/note/readme.txt", "hi"), _remove("data/nodes/note/readme.txt")),
    "a link where parts belong": Fault("readable", "error", lambda root: (root / "data/nodes/note/20260101").symlink_to("/"), _remove("data/nodes/note/20260101")),
    "a link in data": Fault("strangers", "error", lambda root: (root / "data/extra").symlink_to("/"), _remove("data/extra")),
    "a record from the future": Fault("clock", "warning", lambda root: _write(root, PART, _line(9, "late", "", "2999-01-01T00:00:00.000000Z")), _remove(PART)),
    "a team cache that is a pointer": Fault("team_cache", "warning", lambda root: _write(root, TEAM, POINTER), _build, only=False),
    "a team cache in conflict": Fault("team_cache", "warning", lambda root: _write(root, TEAM, "<<<<<<< HEAD\n"), _build),
    "a torn team cache": Fault("team_cache", "warning", lambda root: os.truncate(root / TEAM, 500), _build),
    "a team cache with turned bytes": Fault("team_cache", "warning", _turn_bytes, _build),
    "a team cache of other columns": Fault("team_cache", "warning", _other_columns, _build),
    "a damaged row of the local cache": Fault("local_cache", "warning", _damage_row, only=False),
    "vectors that are missing": Fault("coverage", "warning", _put_without_vector, _build),
}  # fmt: skip


_OF_MACHINE = ("libraries", "duckdb", "tantivy", "segmenters")
"""Checks that look at nothing of the base."""


@pytest.fixture(scope="module")
def said_of_machine() -> dict[str, Check]:
    return {}


@pytest.fixture
def machine_asked_once(said_of_machine: dict[str, Check], monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's checks are made for the first of the faults, and say the same for the others."""

    def once(name: str, real: Look) -> Look:
        def look(ground: Surroundings) -> Verdict:
            if name not in said_of_machine:
                said_of_machine[name] = join_problems(name, real, ground)
            if said_of_machine[name].status != "ok":
                yield error(said_of_machine[name].message, "mend the machine")
            return said_of_machine[name].message

        return look

    for name in _OF_MACHINE:
        monkeypatch.setitem(CHECKS, name, once(name, CHECKS[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.usefixtures("machine_asked_once")
def test_kx_12_each_planted_fault_is_named_and_its_remedy_mends_it(base: Path, name: str) -> None:
    fault = FAULTS[name]
    fault.plant(base)
    found = look(base)
    assert found[fault.check].status == fault.status, found[fault.check]
    if fault.only:
        assert troubles(found) == {fault.check: fault.status}
    if fault.mend is None:
        shell(base, found[fault.check].remedy)
    else:
        fault.mend(base)
    if name != "a repository that lost its objects":
        assert look(base)[fault.check].status == "ok"


def test_kx_12_two_looks_at_one_broken_base_say_the_same_bytes(base: Path) -> None:
    together = ("a shallow clone", "no attributes", "a temporary file", "lines out of order", "an edge to nothing")
    for name in (*together, "a stranger in data", "a team cache with turned bytes"):
        FAULTS[name].plant(base)
    _write(base, ".duckkb/.clone_id.0022.tmp", "x")
    first, second = (json.dumps([asdict(check) for check in look(base).values()]) for _ in range(2))
    assert first == second
    assert len(troubles(look(base))) >= 7


def test_an_extra_of_which_a_library_is_missing_is_not_installed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "faiss-cpu":
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    monkeypatch.setattr(machine_health, "version", version)
    told = look(base)["extra_ann"]
    assert told.status == "ok" and told.message.startswith("not installed (faiss-cpu is missing)"), told


def test_a_lock_that_is_held_is_named_and_truth_is_not_read_meanwhile(base: Path) -> None:
    with base_lock.exclusive(base, 5.0):
        found = look(base)
    assert found["lock"].status == "warning"
    assert str(os.getpid()) in found["lock"].message
    assert found["readable"].status == found["journal"].status == "skipped"
    assert look(base)["lock"].status == "ok"


def test_a_wrong_clock_is_told(base: Path) -> None:
    for now in ("1970-01-01T00:00:05.000000Z", "2025-06-01T00:00:00.000000Z"):
        assert troubles(look(base, clock=FrozenClock(now))) == {"clock": "warning"}


def test_vectors_of_another_model_are_told_and_built_anew(base: Path) -> None:
    other = HashEmbedder(16, name="other")
    assert troubles(look(base, embedder=other)) == {"coverage": "warning", "fingerprint": "warning"}
    with duckkb.open(base, embedder=other) as kb:
        kb.index_build()
    assert troubles(look(base, embedder=other)) == {}


def test_doctor_and_the_index_count_the_same_vectors(base: Path, machine: Path) -> None:
    """Also of a text that several types have, and where the team's cache holds vectors that nobody here has checked."""
    shutil.rmtree(base / ".duckkb")
    config = (base / "config.yaml").read_text("utf-8")
    note = config[config.index("  Note:") : config.index("edges:")]
    twin = note.replace("Note", "Twin").replace("table: note", "table: twin")
    (base / "config.yaml").write_text(config.replace("edges:", f"{twin}edges:"), "utf-8")
    with duckkb.open(base, embedder=MODEL) as kb:
        kb.put("Note", {"id": "new", "text": "not embedded yet"}, embed=False)
        kb.put("Twin", [{"id": "new", "text": "not embedded yet"}, {"id": "lock", "text": TEXTS["lock"]}], embed=False)
        status, counted, types = kb.status(), kb.index_status(), kb.index_plan().types
    numbers = {name: sum(getattr(each, name) for each in types) for name in ("verified", "unverified", "missing")}
    assert numbers["missing"] == status["missing"] == counted["missing"] == 1
    assert numbers["unverified"] == status["unverified"] == counted["unverified"] > 0
    coverage = look(base)["coverage"]
    assert coverage.status == "warning"
    assert (
        "vectors: {verified} verified, {unverified} unverified, {missing} missing".format_map(numbers)
        in coverage.message
    )


def test_a_fresh_clone_whose_team_cache_is_whole_lacks_nothing_in_any_command(base: Path, machine: Path) -> None:
    shutil.rmtree(base / ".duckkb")
    with duckkb.open(base, embedder=MODEL) as kb:
        status, counted, plan = kb.status(), kb.index_status(), kb.index_plan()
    assert plan.unverified > 0 and not any(each.verified for each in plan.types), (
        "nobody has checked the team's vectors here"
    )
    assert (status["missing"], status["unverified"], status["team_cache"]) == (0, plan.unverified, "current")
    assert (counted["missing"], counted["unverified"], counted["fresh"]) == (0, plan.unverified, True)
    assert plan.missing == 0 and plan.fresh
    assert look(base)["coverage"].status == "ok"


@pytest.mark.parametrize("kind", ["tokens", "vector"])
def test_a_forged_team_cache_is_told_on_a_machine_that_did_not_make_it(base: Path, machine: Path, kind: str) -> None:
    """The rows' checksums are right: only computing them again can tell."""
    _forge(base, kind)
    shutil.rmtree(base / ".duckkb")
    assert troubles(look(base)) == {"team_cache": "warning"}
    _build(base)
    assert troubles(look(base)) == {}


def _forge(root: Path, kind: str) -> None:
    from duckkb.index.cache_parquet import encode

    made = dict(zip(("tokens", "vector"), rows_of((root / TEAM).read_bytes()), strict=True))
    wrong = {"tokens": b"nothing of it", "vector": np.eye(16, dtype=np.float32)[3].tobytes()}
    made[kind] = [(*row[:3], wrong[kind]) for row in made[kind]]
    (root / TEAM).write_bytes(encode(made["tokens"], made["vector"]))


class Twisted(HashEmbedder):
    """A model whose vectors went through `twist`."""

    def __init__(self, twist: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(16)
        self._twist = twist

    def embed_passages(self, texts: Any) -> np.ndarray:
        return self._twist(super().embed_passages(texts))

    def embed_queries(self, texts: Any) -> np.ndarray:
        return self._twist(super().embed_queries(texts))


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (lambda rows: rows[:, :8], "3 rows of 16"),
        (lambda rows: rows * np.nan, "finite"),
        (lambda rows: rows * 2, "unit length"),
        (lambda rows: np.tile(np.eye(16, dtype=np.float32)[0], (len(rows), 1)), "one vector"),
        (lambda rows: rows if len(rows) > 1 else np.roll(rows, 3, axis=1), "nearest to itself"),
    ],
)
def test_kx_12_a_model_that_answers_nonsense_is_told(
    base: Path, twist: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    found = look(base, embedder=Twisted(twist))
    assert troubles(found) == {"model": "error"}
    assert said in found["model"].message


def test_kx_12_a_model_that_does_not_answer_is_an_error_and_none_is_skipped(base: Path) -> None:
    found = look(base, embedder=HashEmbedder(16, fail=True))
    assert (found["model"].status, found["model"].remedy) == ("error", "pip install 'duckkb[local]'")
    (base / "config.yaml").write_text(CONFIG.replace("multilingual-e5-small", "none"), "utf-8")
    found = look(base)
    assert (found["model"].status, found["fingerprint"].status) == ("skipped", "skipped")
    assert troubles(found) == {}


def test_an_endpoint_is_not_asked_before_it_is_trusted(base: Path, machine: Path) -> None:
    asked = "global: {embedding_model: far, embedding: {base_url: 'http://127.0.0.1:9/v1', max_retries: 0}}"
    (base / "config.yaml").write_text(
        CONFIG.replace("global: {embedding_model: multilingual-e5-small}", asked), "utf-8"
    )
    found = look(base, embedder=None)
    assert (found["trust"].status, found["model"].status) == ("warning", "skipped")
    assert "127.0.0.1" in found["trust"].message
    shell(base, "duckkb trust")
    found = look(base, embedder=None)
    assert (found["trust"].status, found["model"].status) == ("ok", "error"), "trusted, but nobody answers there"


def test_a_defect_of_one_check_does_not_hide_the_others(base: Path) -> None:
    class Broken(HashEmbedder):
        def embed_passages(self, texts: Any) -> np.ndarray:
            raise ZeroDivisionError("of the model's own")

    health = app.doctor(base, embedder=Broken(16))
    assert {check.check: check.status for check in health.checks if check.status != "ok"} == {"model": "error"}
    assert "ZeroDivisionError" in health.checks[-1].message


def test_verdicts_are_told_one_by_one(base: Path) -> None:
    """So that a native library that ends the process takes none of them with it."""

    class Ending(HashEmbedder):
        def embed_passages(self, texts: Any) -> np.ndarray:
            raise SystemExit

    told: list[str] = []
    with pytest.raises(SystemExit):
        app.doctor(base, embedder=Ending(16), on_check=lambda check: told.append(check.check))
    assert told == list(CHECKS)[:-1]


def test_a_base_in_a_folder_of_a_repository_and_in_a_linked_work_tree_is_healthy(base: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    shutil.copytree(base, outer / "inner/kb", ignore=shutil.ignore_patterns(".git"))
    git(outer, "init", "-q", "-b", "main")
    commit(outer)
    assert troubles(look(outer / "inner/kb")) == {}
    git(base, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "side")
    found = look(tmp_path / "linked")
    assert troubles(found) == {}
    assert "linked" in found["repository"].message


# The rest through the real process, where the machine itself can be another one: libraries, limits, programs, rights.


def _said(root: Path, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    ran = run_in(root, ["doctor"], env=env)
    assert ran.err == ""
    found = {line["check"]: line for line in ran.lines}
    assert list(found) == list(CHECKS)
    assert all(list(line) == ["check", "status", "message", "remedy"] for line in found.values())
    assert ran.code == int(any(line["status"] == "error" for line in found.values()))
    return found


@pytest.fixture
def wordy(base: Path) -> Path:
    """The base without a model, so that a process starts fast."""
    (base / "config.yaml").write_text(CONFIG.replace("multilingual-e5-small", "none"), "utf-8")
    return base


@pytest.mark.long
def test_the_command_prints_a_line_a_check_and_its_exit_code_follows_fail_on(
    wordy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _said(wordy)
    assert {line["status"] for line in found.values()} == {"ok", "skipped"}
    assert run(["doctor", "--json", "--kb", str(wordy)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"errors": 0, "warnings": 0, "checks": list(found.values())}
    shutil.rmtree(wordy / ".git")
    assert run(["doctor", "--kb", str(wordy)]) == 0
    assert run(["doctor", "--fail-on", "warning", "--kb", str(wordy)]) == 1
    (wordy / "config.yaml").write_text("nodes: []\n", "utf-8")
    assert run(["doctor", "--kb", str(wordy)]) == 1
    assert run(["doctor", "--kb", str(wordy.parent)]) == 1, "no knowledge base there"


def test_odd_libraries_are_told_and_the_other_checks_go_on(wordy: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    (odd / "tantivy-0.1.dist-info").mkdir(parents=True)
    (odd / "tantivy-0.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tantivy\nVersion: 0.1\n", "utf-8")
    (odd / "tantivy.py").write_text("raise ImportError('no such library here')\n", "utf-8")
    (odd / "rjieba.py").write_text("def cut_for_search(run):\n    return list(run)\n", "utf-8")
    found = _said(wordy, {"PYTHONPATH": str(odd)})
    wrong = {name for name, line in found.items() if line["status"] not in ("ok", "skipped")}
    assert wrong == {"libraries", "tantivy", "segmenters", "team_cache"} or wrong == {
        "libraries",
        "tantivy",
        "segmenters",
    }
    assert "tantivy 0.1" in found["libraries"]["message"]
    assert all("pip install" in found[name]["remedy"] for name in ("libraries", "tantivy", "segmenters"))


@pytest.mark.long
def test_a_machine_without_git_or_with_an_old_one(wordy: Path, tmp_path: Path) -> None:
    empty, old = tmp_path / "empty", tmp_path / "old"
    for folder in (empty, old):
        folder.mkdir()
    (old / "git").write_text(
        f'#!/bin/sh\ncase "$*" in version) echo git version 2.20.1;; *) exec {shutil.which("git")} "$@";; esac\n',
        "utf-8",
    )
    (old / "git").chmod(0o755)
    found = _said(wordy, {"PATH": str(empty)})
    assert (found["git"]["status"], found["repository"]["status"]) == ("warning", "skipped")
    assert found["attributes"]["status"] == "ok", "the lines speak for themselves"
    assert "2.20.1" in _said(wordy, {"PATH": str(old)})["git"]["message"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are a POSIX matter: there are none to tell")
def test_low_limits_are_told(wordy: Path) -> None:
    script = f"ulimit -n 100; ulimit -f 1000; exec {sys.executable} -m duckkb doctor"
    done = subprocess.run(["bash", "-c", script], cwd=wordy, capture_output=True, text=True, check=False)
    found = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert found["limits"]["status"] == "warning"
    assert "ulimit -n" in found["limits"]["remedy"] and "ulimit -f" in found["limits"]["remedy"]


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform == "win32", reason="rights of folders are a POSIX matter; test_errnos.py refuses the calls"
)
def test_a_checkout_that_cannot_be_written_is_looked_at_and_said_to_be_so(wordy: Path) -> None:
    drop = without_roots_rights()
    folders = [wordy, *(path for path in wordy.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        before = whole(wordy)
        command = [*drop, sys.executable, "-m", "duckkb", "doctor"]
        done = subprocess.run(command, cwd=wordy, capture_output=True, text=True, check=False)
        assert whole(wordy) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)
    found = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(CHECKS), done.stderr
    assert {name: line["status"] for name, line in found.items() if line["status"] in ("warning", "error")} == {
        "writable": "warning"
    }


@pytest.mark.long
@pytest.mark.model
def test_kx_12_the_offline_model_runs_and_leaves_the_users_folders_alone(base: Path) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duckkb"
    (base / "config.yaml").write_text(CONFIG, "utf-8")
    before = whole(base), whole(cache)
    found = _said(base)
    assert found["model"] == {
        "check": "model",
        "status": "ok",
        "message": "multilingual-e5-small answers in English and Chinese",
        "remedy": "",
    }
    assert (whole(base), whole(cache)) == before
