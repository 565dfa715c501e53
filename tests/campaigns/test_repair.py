"""`repair`: whatever happened to derived state, afterwards a base answers as a fresh clone does, and truth was not touched."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb import app
from duckkb.queries import Mode
from duckkb.truth.commit import lock, protocol
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
CACHE = ".duckkb/cache"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed base with a local cache alone, so that nothing else can answer for it."""
    root = tmp_path_factory.mktemp("made") / "kb"
    app.init(root)
    (root / "config.yaml").write_text(CONFIG, "utf-8")
    git(root, "init", "-q", "-b", "main")
    with duckkb.open(root, embedder=MODEL) as kb:
        kb.put("Note", [{"id": name, "text": text} for name, text in TEXTS.items()])
        kb.put("Note", [{"id": f"n{number}", "text": f"note {number} about 知识 {number * 7}"} for number in range(40)])
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
    clone = tmp_path / "clone"
    git(root, "clone", "-q", str(root), str(clone))
    return answers(clone)


def segments(root: Path, kind: str) -> list[Path]:
    return sorted((root / CACHE).glob(f"{kind}-*.parquet"))


def _flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(data)


def _each(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        for segment in [*segments(root, "tokens"), *segments(root, "vector")]:
            change(segment)

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "bytes turned": _each(lambda path: _flip(path, 0.4)),
    "footers turned": _each(lambda path: _flip(path, 0.97)),
    "cut": _each(lambda path: os.truncate(path, path.stat().st_size // 2)),
    "emptied": _each(lambda path: path.write_bytes(b"")),
    "pointers": _each(lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")),
    "in conflict": _each(lambda path: path.write_bytes(b"<<<<<<< HEAD\n" + path.read_bytes())),
    "a folder instead": _each(lambda path: (path.unlink(), path.mkdir())),
    "a link instead": _each(lambda path: (path.unlink(), path.symlink_to("/dev/zero"))),
    "a pipe instead": _each(lambda path: (path.unlink(), os.mkfifo(path))),
    "renamed": _each(lambda path: path.rename(path.with_name(f"{path.name.split('-')[0]}-{'0' * 16}.parquet"))),
    "kinds exchanged": _each(
        lambda path: path.rename(path.with_name("_" + path.name.replace("vector", "T").replace("tokens", "vector")))
    ),
    "temporaries": lambda root: (root / CACHE / ".tmp-x").write_bytes(b"PAR1"),
    "a cache that is a file": lambda root: (shutil.rmtree(root / CACHE), (root / CACHE).write_bytes(b"")),
    "a cache behind a link": lambda root: (
        (root / CACHE).rename(root.with_name("elsewhere")),
        (root / CACHE).symlink_to(root.with_name("elsewhere")),
    ),
    "a snapshot": lambda root: ((root / ".duckkb/snapshot").mkdir(), (root / ".duckkb/snapshot/x").write_bytes(b"")),
    "no .gitignore": lambda root: (root / ".duckkb/.gitignore").unlink(),
    "a write that was never sealed": lambda root: (
        (root / ".duckkb/txn/0011").mkdir(parents=True),
        (root / ".duckkb/txn/0011/0000.new").write_bytes(b"x"),
    ),
}
HARMLESS = {"kinds exchanged"}  # a name that no segment has is nobody's, and stays


@pytest.mark.parametrize("name", DAMAGES)
def test_dk_11_after_repair_a_base_answers_as_a_fresh_clone_and_truth_is_untouched(
    base: Path, tmp_path: Path, name: str
) -> None:
    DAMAGES[name](base)
    truth, before = tree_bytes(base), whole(base)
    planned = app.repair(base, check_only=True)
    assert whole(base) == before, "a look changes nothing"
    assert bool(planned.needs) == (name not in HARMLESS)
    done = app.repair(base)
    assert done.needs == planned.needs
    assert tree_bytes(base) == truth
    after = whole(base)
    assert app.repair(base).needs == () == app.repair(base, check_only=True).needs
    assert whole(base) == after, "a second run does nothing"
    assert answers(base) == fresh_answers(base, tmp_path)
    assert tree_bytes(base) == truth


def test_good_rows_of_a_damaged_segment_are_kept_and_believed_after_a_sample(base: Path) -> None:
    """Vectors cost time or money: only what is damaged is dropped, and what is kept is held against the model first."""
    segment = segments(base, "vector")[0]
    os.utime(segment)
    data = segment.read_bytes()
    segment.write_bytes(data + b"")
    segment.rename(segment.with_name(f"vector-{'1' * 16}.parquet"))  # its name no longer fits, its rows are whole
    done = app.repair(base)
    assert done.kept >= 3
    model = HashEmbedder(16)
    answers(base, model)
    assert model.passages == 0, "the bytes are those that this machine made, so nothing is computed again"


def test_a_write_that_meets_a_damaged_segment_keeps_its_good_rows_too(base: Path) -> None:
    """Not `repair` alone: what saves to the local cache clears damaged files away."""
    rows = len(_rows(base))
    for segment in segments(base, "vector"):
        segment.rename(segment.with_name(f"vector-{segment.name[7:15]}{'0' * 8}.parquet"))
    with duckkb.open(base, embedder=MODEL) as kb:
        kb.put("Note", {"id": "more", "text": "one more vector to save"})
    model = HashEmbedder(16)
    answers(base, model)
    assert model.passages == 0
    assert len(_rows(base)) == rows + 1


def test_rows_from_bytes_that_nobody_vouches_for_are_sampled_before_use(base: Path) -> None:
    rows = _rows(base)
    for segment in segments(base, "vector"):
        segment.unlink()
    forged = base / CACHE / f"vector-{'2' * 16}.parquet"
    forged.write_bytes(_encoded(rows, turn=True))
    assert app.repair(base).kept == len(rows)
    model = HashEmbedder(16)
    found = answers(base, model)
    assert model.passages >= 32, "a sample was computed, and as it did not agree, all of them"
    for segment in segments(base, "vector"):
        segment.unlink()
    assert found == answers(base)


def _rows(root: Path) -> list[Any]:
    from duckkb.indexing.cache_format import decode

    found = [decode(path.read_bytes(), "vector") for path in segments(root, "vector")]
    return [row for segment in found for row in segment.rows(list(segment.index))]


def _encoded(rows: list[Any], *, turn: bool) -> bytes:
    from duckkb.indexing.cache_format import encode

    return encode((), [(*row[:3], row[3][::-1].copy() if turn else row[3]) for row in rows])


def test_all_drops_the_sound_cache_too_and_makes_tokens_again(base: Path, tmp_path: Path) -> None:
    done = app.repair(base, everything=True)
    assert {need.what for need in done.needs} == {"dropped, as was asked for"}
    assert (done.kept, done.tokens, done.pending) == (0, 42, 43), "tokens of ASCII texts are not kept"
    assert segments(base, "tokens") and not segments(base, "vector")
    assert answers(base) == fresh_answers(base, tmp_path)


def test_a_link_is_removed_and_what_lies_behind_it_stays(base: Path) -> None:
    """By searches too: one that finds its local cache behind a link leaves the files there alone."""
    DAMAGES["a cache behind a link"](base)
    elsewhere = base.with_name("elsewhere")
    for segment in elsewhere.glob("*.parquet"):
        _flip(segment, 0.4)
    kept = whole(elsewhere)
    with duckkb.open(base, embedder=MODEL) as kb:
        kb.put("Note", {"id": "more", "text": "tokens to save"})
        kb.find("Note", "tokens", mode="match")
    assert {name: kept[name] for name in kept} == {name: whole(elsewhere)[name] for name in kept}
    kept = whole(elsewhere)
    app.repair(base)
    assert whole(elsewhere) == kept
    assert not (base / CACHE).is_symlink()


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
        protocol.commit(base, [protocol.FileChange(PART, None, b"new\n")], on_step=stop)
    DAMAGES["cut"](base)
    before = whole(base)
    for check_only in (True, False):
        with pytest.raises(duckkb.DuckkbError) as caught:
            app.repair(base, check_only=check_only)
        assert (caught.value.code, caught.value.suggestion) == ("E_RECOVER", "duckkb recover")
    assert whole(base) == before
    app.recover(base, action="abort")
    assert app.repair(base).needs


def test_repair_refuses_while_another_writes_and_where_git_tracks_local_state(base: Path) -> None:
    DAMAGES["cut"](base)
    before = whole(base / CACHE)
    with lock.exclusive(base, 5.0), pytest.raises(duckkb.DuckkbError) as caught:
        app.repair(base)
    assert caught.value.code == "E_LOCKED" and str(os.getpid()) in caught.value.message
    git(base, "add", "-f", ".duckkb/clone_id")
    with pytest.raises(duckkb.DuckkbError) as caught:
        app.repair(base)
    assert caught.value.code == "E_TRACKED_STATE"
    assert whole(base / CACHE) == before


def test_a_broken_configuration_or_broken_truth_keeps_nothing_from_being_dropped(base: Path) -> None:
    DAMAGES["cut"](base)
    (base / "config.yaml").write_text("nodes: [\n", "utf-8")
    done = app.repair(base)
    assert done.needs and done.reason and not segments(base, "tokens")
    git(base, "checkout", "--", "config.yaml")
    (base / PART).parent.mkdir(parents=True)
    (base / PART).write_bytes(b"nonsense\n")
    (base / CACHE / f"tokens-{'0' * 16}.parquet").write_bytes(b"")
    truth = tree_bytes(base)
    done = app.repair(base)
    assert (len(done.needs), done.reason) == (1, "")
    assert tree_bytes(base) == truth


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

    (base / CACHE / ".tmp-x").write_bytes(b"")
    code, line = ran("--check-only")
    assert (code, [need["path"] for need in line["needs"]]) == (1, [f"{CACHE}/.tmp-x"])
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
    for damage in ("bytes turned", "temporaries", "a snapshot", "a write that was never sealed"):
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
    assert deaths >= 3


def test_mutated_segments_never_change_an_answer_nor_end_the_process(
    base: Path, tmp_path: Path, campaign: Campaign
) -> None:
    expected = fresh_answers(base, tmp_path)
    chance = campaign.random("mutated segments")
    sound = {path: path.read_bytes() for path in [*segments(base, "tokens"), *segments(base, "vector")]}
    kept = 0
    for round_ in range(campaign.pick(12, 300)):
        shutil.rmtree(base / CACHE)
        (base / CACHE).mkdir()
        for path, data in sound.items():
            path.write_bytes(_mutated(data, chance))
        kept += app.repair(base).kept
        assert answers(base) == expected, round_
        assert app.repair(base, check_only=True).needs == ()
    campaign.count("mutated local cache files repaired", campaign.pick(12, 300) * len(sound))
    campaign.count("rows kept out of mutated local cache files", kept)


def test_without_checksums_mutated_segments_would_change_answers(base: Path, campaign: Campaign) -> None:
    """The negative control: what Parquet alone lets through. Rows are read here as a reader without checks would."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = campaign.random("mutated segments")
    segment = max((path.read_bytes() for path in segments(base, "vector")), key=len)
    sound = pq.read_table(pa.BufferReader(segment))["vector"].to_pylist()
    silent = 0
    for _ in range(400):
        try:
            found = pq.read_table(pa.BufferReader(_mutated(segment, chance)))["vector"].to_pylist()
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError):
            continue
        silent += found != sound
    assert silent


def _mutated(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice([1, 1, 3])):
        at = chance.randrange(len(found))
        match chance.randrange(5):
            case 0 | 1:
                found[at] ^= 1 << chance.randrange(8)
            case 2:
                del found[at : at + chance.randrange(1, 40)]
            case 3:
                found[at:at] = chance.randbytes(chance.randrange(1, 40))
            case _:
                tail = len(found) - chance.randrange(1, 400)
                found[max(tail, 0)] ^= 0xFF
    return bytes(found)
