"""`repair`: whatever happened to derived state, afterwards a base answers as a fresh clone does, and truth was not touched."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb import app
from duckkb.operations import lifecycle
from duckkb.storage import base_lock, commit_protocol
from duckkb.types.queries import Mode
from tests.conftest import commit, git, tree_bytes
from tests.doors.test_doctor import CONFIG, MODEL, PART, TEXTS, whole
from tests.fakes import HashEmbedder
from tests.harness.campaign import Campaign

QUESTIONS: tuple[tuple[str, Mode], ...] = (
    ("journal files", "match"),
    ("备份数据", "match"),
    ("who holds the lock", "similar"),
    ("副本 lock", "hybrid"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed base with a local cache alone, so that nothing else can answer for it."""
    root = tmp_path_factory.mktemp("made") / "kb"
    duckkb.init(root)
    before = os.environ["XDG_CACHE_HOME"]
    os.environ["XDG_CACHE_HOME"] = str(root.with_name("user"))
    (root / "config.yaml").write_text(CONFIG, "utf-8")
    git(root, "init", "-q", "-b", "main")
    with duckkb.open(root, embedder=MODEL) as kb:
        kb.put("Note", [{"id": name, "text": text} for name, text in TEXTS.items()])
        kb.put("Note", [{"id": f"n{number}", "text": f"note {number} about 知识 {number * 7}"} for number in range(40)])
    os.environ["XDG_CACHE_HOME"] = before
    commit(root)
    return root


@pytest.fixture
def base(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "kb", symlinks=True)


def answers(root: Path, model: HashEmbedder | None = None) -> list[list[tuple[Any, float]]]:
    with duckkb.open(root, embedder=model or HashEmbedder(16)) as kb:
        found = [kb.find("Note", text, mode=mode, limit=20) for text, mode in QUESTIONS]
        assert not any(result.degraded for result in found)
        return [[(hit.identity, round(hit.score or 0.0, 6)) for hit in result] for result in found]


def fresh_answers(root: Path, tmp_path: Path) -> list[list[tuple[Any, float]]]:
    """What a clone says to a user who has no cache."""
    shutil.rmtree(tmp_path / "clone", ignore_errors=True)
    git(root, "clone", "-q", str(root), str(tmp_path / "clone"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing yet"))
        return answers(tmp_path / "clone")


def cached() -> sqlite3.Connection:
    """The user's tokens and vectors, of all bases."""
    return sqlite3.connect(place(), isolation_level=None)


def place() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"]) / "duckkb/shared/search_cache.sqlite"


@pytest.fixture(autouse=True)
def own_cache(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test damages a cache of its own, which has the rows of the base."""
    home = tmp_path / "user"
    shutil.copytree(made.with_name("user"), home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))


def _ruin(data: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        for rest in place().parent.glob(place().name + "-*"):
            rest.unlink()
        place().write_bytes(data(place().read_bytes()))

    return damage


def _row(change: str) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        with closing(cached()) as connection:
            connection.execute(f"UPDATE row SET {change} WHERE id % 3 = 0")

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "payloads turned": _row("payload = zeroblob(64)"),
    "checksums turned": _row("checksum = zeroblob(8)"),
    "keys turned": _row("key = randomblob(16)"),
    "the file cut": _ruin(lambda data: data[: len(data) // 2]),
    "the file without a head": _ruin(lambda data: bytes(100) + data[100:]),
    "the file of another program": _ruin(lambda data: b"PAR1" * 100),
    "a folder instead": lambda root: (place().unlink(), place().mkdir()),
    "a link instead": lambda root: (place().unlink(), place().symlink_to("/dev/zero")),
    "a pipe instead": lambda root: (place().unlink(), os.mkfifo(place())),
    "a cache of an earlier version": lambda root: (
        (root / ".duckkb/cache").mkdir(),
        (root / ".duckkb/cache/x").write_bytes(b"PAR1"),
    ),
    "a cache that is a file": lambda root: (root / ".duckkb/cache").write_bytes(b""),
    "a cache behind a link": lambda root: (
        root.with_name("elsewhere").mkdir(),
        (root / ".duckkb/cache").symlink_to(root.with_name("elsewhere")),
    ),
    "a snapshot": lambda root: ((root / ".duckkb/snapshot").mkdir(), (root / ".duckkb/snapshot/x").write_bytes(b"")),
    "no .gitignore": lambda root: (root / ".duckkb/.gitignore").unlink(),
    "a write that was never sealed": lambda root: (
        (root / ".duckkb/txn/0011").mkdir(parents=True),
        (root / ".duckkb/txn/0011/0000.new").write_bytes(b"x"),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_dk_11_after_repair_a_base_answers_as_a_fresh_clone_and_truth_is_untouched(
    base: Path, tmp_path: Path, name: str
) -> None:
    DAMAGES[name](base)
    truth, before = tree_bytes(base), whole(base)
    planned = app.repair(base, check_only=True)
    assert whole(base) == before, "a look changes nothing"
    assert planned.needs
    done = app.repair(base)
    assert done.needs == planned.needs
    assert tree_bytes(base) == truth
    after = whole(base)
    assert app.repair(base).needs == () == app.repair(base, check_only=True).needs
    assert whole(base) == after, "a second run does nothing"
    assert answers(base) == fresh_answers(base, tmp_path)
    assert tree_bytes(base) == truth


def test_good_rows_of_a_damaged_cache_are_kept(base: Path) -> None:
    """Vectors cost time or money: only what is damaged is dropped."""
    ((damaged, whole_rows),) = cached().execute("SELECT sum(id % 3 = 0 AND kind = 'vector'), count(*) FROM row")
    DAMAGES["payloads turned"](base)
    done = app.repair(base)
    assert 0 < done.kept < whole_rows
    model = HashEmbedder(16)
    answers(base, model)
    assert model.passages == damaged


def test_all_drops_what_is_derived_of_this_base_and_leaves_other_bases_theirs(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    duckkb.init(other)
    (other / "config.yaml").write_text(CONFIG, "utf-8")
    with duckkb.open(other, embedder=MODEL) as kb:
        kb.put("Note", {"id": "a", "text": "别的知识库没有的文字"})
    done = app.repair(base, everything=True)
    assert {need.what for need in done.needs} >= {"what it has of this base: dropped, as was asked for"}
    assert (done.tokens, done.pending) == (42, 43), "tokens of ASCII texts are not kept"
    assert cached().execute("SELECT count(*) FROM row WHERE kind = 'tokens'").fetchall() == [(43,)]
    assert answers(base) == fresh_answers(base, tmp_path)


def test_nothing_is_made_where_nothing_is_wrong(base: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(base, "clone", "-q", str(base), str(clone))
    before = whole(clone)
    assert app.repair(clone).needs == ()
    assert whole(clone) == before


def test_a_sealed_write_is_recovers_and_repair_refuses(base: Path) -> None:
    def stop(step: str) -> None:
        if step.startswith("replace "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit_protocol.commit(base, [commit_protocol.FileChange(PART, None, b"new\n")], on_step=stop)
    DAMAGES["the file cut"](base)
    before = whole(base)
    for check_only in (True, False):
        with pytest.raises(duckkb.DuckkbError) as caught:
            app.repair(base, check_only=check_only)
        assert (caught.value.code, caught.value.suggestion) == ("E_RECOVER", "duckkb recover")
    assert whole(base) == before
    lifecycle.recover(base, action="abort")
    assert app.repair(base).needs


def test_repair_refuses_while_another_writes_and_where_git_tracks_local_state(base: Path) -> None:
    DAMAGES["no .gitignore"](base)
    with base_lock.exclusive(base, 5.0), pytest.raises(duckkb.DuckkbError) as caught:
        app.repair(base)
    assert caught.value.code == "E_LOCKED" and str(os.getpid()) in caught.value.message
    git(base, "add", "-f", ".duckkb/clone_id")
    with pytest.raises(duckkb.DuckkbError) as caught:
        app.repair(base)
    assert caught.value.code == "E_TRACKED_STATE"


def test_a_broken_configuration_keeps_nothing_from_being_dropped(base: Path) -> None:
    DAMAGES["the file cut"](base)
    (base / "config.yaml").write_text("nodes: [\n", "utf-8")
    done = app.repair(base)
    assert done.needs and done.reason
    assert app.repair(base, check_only=True).needs == ()


def test_a_damaged_team_cache_is_not_ours_but_the_command_that_mends_it_is_named(base: Path) -> None:
    team = base / "data/indices/search_cache.parquet"
    team.parent.mkdir()
    team.write_bytes(b"PAR1 torn")
    done = app.repair(base)
    assert done.needs == ()
    assert [(notice.code, notice.remedy) for notice in done.notices] == [("W_CACHE", "duckkb index build")]
    assert team.read_bytes() == b"PAR1 torn"


def test_the_command_prints_one_line_and_check_only_exits_1_while_something_is_wrong(base: Path) -> None:
    def ran(*args: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "duckkb", "repair", *args]
        done = subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    (base / ".duckkb/.lock.tmp").write_bytes(b"")
    code, line = ran("--check-only")
    assert (code, [need["path"] for need in line["needs"]]) == (1, [".duckkb/.lock.tmp"])
    code, line = ran()
    assert (code, set(line)) == (0, {"needs", "check_only", "kept", "tokens", "pending"})
    assert ran("--check-only") == (0, {"needs": [], "check_only": True})


# The wrapper lives in the child alone: it ends the process, as kill -9 does, before the N-th call that changes a folder.
_KILLED = """
import os, signal, sys
left = int(sys.argv.pop(1))
def dying(real):
    def call(*args, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)
    return call
for name in ("unlink", "replace", "rename", "rmdir", "mkdir", "link"):
    setattr(os, name, dying(getattr(os, name)))
from duckkb import app
app.repair(sys.argv[1], everything=len(sys.argv) > 2)
"""


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="there is no SIGKILL on Windows; the other tests here repair what such a death leaves",
)
def test_dk_15_killed_at_any_step_repair_begins_again_and_ends_the_same(
    base: Path, tmp_path: Path, campaign: Campaign
) -> None:
    """The steps of a repair with everything to do, and with --all, until one run gets to its end."""
    expected, truth = fresh_answers(base, tmp_path), tree_bytes(base)
    for damage in ("payloads turned", "a cache of an earlier version", "a snapshot", "a write that was never sealed"):
        DAMAGES[damage](base)
    deaths = 0
    for everything in ([], ["all"]) if campaign.full else ([],):
        for step in range(0, 400, campaign.pick(6, 1)):
            root = shutil.copytree(base, tmp_path / f"run-{everything}-{step}", symlinks=True)
            done = subprocess.run([sys.executable, "-c", _KILLED, str(step), str(root), *everything], check=False)
            assert done.returncode in (0, -signal.SIGKILL)
            assert tree_bytes(root) == truth
            app.repair(root)
            assert app.repair(root, check_only=True).needs == ()
            assert answers(root) == expected
            shutil.rmtree(root)
            if done.returncode == 0:
                break
            deaths += 1
        else:
            pytest.fail("no run came to its end")
    campaign.count("kills in the middle of a repair", deaths)
    assert deaths >= 2


def test_a_mutated_cache_never_changes_an_answer_nor_ends_the_process(
    base: Path, tmp_path: Path, campaign: Campaign
) -> None:
    expected = fresh_answers(base, tmp_path)
    chance = campaign.random("mutated caches")
    sound, kept = place().read_bytes(), 0
    for round_ in range(campaign.pick(12, 300)):
        for rest in place().parent.glob(place().name + "-*"):
            rest.unlink()
        place().write_bytes(_mutated(sound, chance))
        kept += app.repair(base).kept if chance.random() < 0.5 else 0
        assert answers(base) == expected, round_
    campaign.count("mutated local caches", campaign.pick(12, 300))
    campaign.count("rows kept out of mutated local caches", kept)


def _mutated(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 100])):
        at = chance.randrange(len(found))
        match chance.randrange(5):
            case 0 | 1 | 2:
                found[at] ^= 1 << chance.randrange(8)
            case 3:
                del found[at : at + chance.randrange(1, 40)]
            case _:
                found[at:at] = chance.randbytes(chance.randrange(1, 40))
    return bytes(found)
