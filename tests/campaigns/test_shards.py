"""Shards of an index job: workers that are killed, at any write, over and over, leave the bytes that one process leaves; what was damaged
meanwhile is made again; a forged shard is refused by its name. HashEmbedder stands for the model, in processes of their own."""

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import duckkb
from duckkb.engine.index_jobs import JobOptions
from duckkb.index import team_cache
from duckkb.index.cache_database import CacheRow, vector_of
from duckkb.index.cache_parquet import decode, encode
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.team_cache import Partial, Shard
from duckkb.storage import clone_state
from duckkb.types.errors import StateError
from tests.campaigns.test_forged_caches import state_of_the_makers
from tests.conftest import git, make_base
from tests.fakes import HashEmbedder
from tests.harness.campaign import Campaign
from tests.harness.hostile.caches import CONFIG, TEAM, text_of

__all__ = ["state_of_the_makers"]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks, which this system does not have")

TEXTS, OF = 240, 3
STEPS = 16
"""Writes after which a worker may die: each batch is one, and so are the steps that make the shard."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, state_of_the_makers: None) -> tuple[Path, dict[str, bytes], bytes]:
    """A base, its shards as one process makes them, and the team's cache without any."""
    folder = tmp_path_factory.mktemp("shards")
    root = make_base(folder / "kb", CONFIG.replace("dimensions: 64", "dimensions: 64, batch_size: 8"))
    _on_machine(folder / "maker")
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        for at, kind in enumerate(("Note", "Page")):
            half = range(at * TEXTS // 2, (at + 1) * TEXTS // 2)
            kb.put(kind, [{"id": f"r{number}", "text": text_of(number)} for number in half], embed=False)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "records")
    _make(root, folder / "out")
    whole = shutil.copytree(root, folder / "whole")
    _on_machine(folder / "another")
    with duckkb.open(whole, embedder=HashEmbedder()) as kb:
        kb.index_build()
    return root, _bytes(folder / "out"), (whole / TEAM).read_bytes()


def _on_machine(home: Path) -> None:
    os.environ.update(XDG_STATE_HOME=str(home), DUCKKB_CACHE_HOME=str(home / "cache"))


def _make(root: Path, out: Path, numbers: tuple[int, ...] = tuple(range(1, OF + 1))) -> None:
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        for number in numbers:
            assert kb.index_build_shard(Shard(OF, number), out, options=JobOptions(wait=True)).built.pending == 0


def _bytes(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


# --- workers that die


class _Dying:
    """Ends this process at one of its writes: before it, behind it, or with a part of it on disk."""

    def __init__(self, step: int, how: str) -> None:
        self._left, self._how = step, how

    def lay(self) -> None:
        add, write = Partial.add, clone_state.write_atomic

        def adding(partial: Any, rows: Any) -> None:
            self._at("before")
            if self._left == 0 and self._how == "within":
                written = partial._file.write
                partial._file.write = lambda data: written(data[: len(data) // 2])
                add(partial, list(rows)[:1])
                _die()
            add(partial, rows)
            self._at("behind")

        def writing(path: Path, data: bytes, **how: Any) -> None:
            self._at("before")
            if self._left == 0 and self._how == "within":
                path.with_name(f".{path.name}.abc.tmp").write_bytes(data[: len(data) // 2])
                _die()
            write(path, data, **how)
            self._at("behind")

        mock.patch.object(Partial, "add", adding).start()
        mock.patch.object(clone_state, "write_atomic", writing).start()

    def _at(self, how: str) -> None:
        if how == "before":
            self._left -= 1
        if self._left == 0 and self._how == how:
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _spawn(root: Path, out: Path, number: int, dying: _Dying | None, weaken: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        weaken()
        if dying is not None:
            dying.lay()
        _make(root, out, (number,))
        code = 0
    finally:
        os._exit(code)


def _damage(out: Path, chance: random.Random, campaign: Campaign) -> None:
    """What a disk, or whoever may write there, does to a file that is being made."""
    for partial in out.glob("*.partial"):
        data = bytearray(partial.read_bytes())
        if not data or chance.random() < 0.4:
            continue
        campaign.count("partial files damaged between two runs")
        kind = chance.choice(("flip", "cut", "noise", "twice"))
        if kind == "flip":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[chance.randrange(len(data)) :]
        elif kind == "noise":
            data += chance.randbytes(chance.randrange(1, 900))
        else:
            data *= 2
        partial.write_bytes(data)


def _killed(
    root: Path, out: Path, chance: random.Random, campaign: Campaign, weaken: Callable[[], None] = lambda: None
) -> None:
    """All shards, by workers of which most die, two of them at once on some."""
    for _ in range(60):
        left = [number for number in range(1, OF + 1) if not list(out.glob(f"shard-{number}-*.parquet"))]
        if not left:
            return
        numbers = [chance.choice(left) for _ in range(2)]
        plans = [
            _Dying(chance.randint(1, STEPS), chance.choice(("before", "within", "behind")))
            if chance.random() < 0.8
            else None
            for _ in numbers
        ]
        children = [_spawn(root, out, number, plan, weaken) for number, plan in zip(numbers, plans, strict=True)]
        for child in children:
            status = os.waitpid(child, 0)[1]
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a worker failed that was not killed"
            campaign.count("workers killed", int(os.WIFSIGNALED(status)))
            campaign.count("workers that came to their end", int(os.WIFEXITED(status)))
        _damage(out, chance, campaign)
    raise AssertionError("the shards were never whole")


def test_workers_killed_at_random_leave_the_bytes_of_one_process(
    campaign: Campaign, ground: tuple[Path, dict[str, bytes], bytes], tmp_path: Path
) -> None:
    root, expected, team = ground
    chance = campaign.random("kills")
    for number in range(campaign.pick(5, 120)):
        out = tmp_path / f"out{number}"
        out.mkdir()
        _on_machine(tmp_path / f"worker{number % 4}")
        _killed(root, out, chance, campaign)
        _make(root, out)  # which finds all of them, and removes what the killed have left
        assert _bytes(out) == expected
        campaign.count("sets of shards")
    assert campaign.figures["workers killed"] >= campaign.figures["sets of shards"]
    _on_machine(tmp_path / "adopter")
    home = shutil.copytree(root, tmp_path / "home")
    model = HashEmbedder()
    with duckkb.open(home, embedder=model) as kb:
        adopted = kb.index_adopt(out)
        assert (adopted.shards, adopted.texts, adopted.pending) == (("1/3", "2/3", "3/3"), TEXTS, 0)
        assert model.passages == 32 * OF or model.passages == 2 * 32 * OF, "a sample of each shard, by type"
        before = model.passages
        assert kb.index_build().embedded == 0 and kb.index_adopt(out) == adopted
        assert model.passages == before, "what was believed is believed"
    assert (home / TEAM).read_bytes() == team


def _without_checksums() -> None:
    mock.patch.object(team_cache, "checksums", lambda kind, rows: _Any(rows)).start()


class _Any(list[bytes]):
    """Checksums that any other equals."""

    def __init__(self, rows: Any) -> None:
        super().__init__(b"checksum" for _ in rows)

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_without_the_checksums_of_rows_a_damaged_one_is_in_the_shard(
    campaign: Campaign, ground: tuple[Path, dict[str, bytes], bytes], tmp_path: Path
) -> None:
    """The control."""
    root, expected, _ = ground
    _on_machine(tmp_path / "worker")
    chance = campaign.random("control")
    for number in range(40):
        out = tmp_path / f"out{number}"
        out.mkdir()
        _killed(root, out, chance, campaign, _without_checksums)
        if any(data != expected[name] for name, data in _bytes(out).items() if name.endswith(".parquet")):
            return
    raise AssertionError("40 sets of shards made without checksums, and nothing was noticed")


def test_the_campaign_kills_at_every_write(ground: tuple[Path, dict[str, bytes], bytes], tmp_path: Path) -> None:
    root, *_ = ground
    _on_machine(tmp_path / "worker")
    codes = {}
    for step in range(1, STEPS + 1):
        child = _spawn(root, tmp_path / f"out{step}", 1, _Dying(step, "before"), lambda: None)
        codes[step] = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    died = [step for step, killed in codes.items() if killed]
    assert died == list(range(1, len(died) + 1)) and 9 <= len(died) < STEPS


# --- shards that lie


def _forged(data: bytes, chance: random.Random) -> bytes:
    """Every checksum right, every column as it should be, and vectors of other texts, or turned around."""
    rows: list[CacheRow] = [row for batch in decode(data) for row in batch.rows]
    share = chance.choice((0.25, 0.5, 1.0))
    chosen = chance.sample(range(len(rows)), int(share * len(rows)))
    for at in chosen:
        key, content, model, payload = rows[at]
        other = (-vector_of(payload)).tobytes() if chance.random() < 0.5 else rows[at - 1][3]
        rows[at] = key, content, model, other
    return encode((), rows)


def _laid(expected: dict[str, bytes], out: Path, chance: random.Random) -> str:
    """The shards with one of them forged, whose name comes back."""
    out.mkdir()
    name = chance.choice(sorted(expected))
    for other, data in expected.items():
        (out / other).write_bytes(_forged(data, chance) if other == name else data)
    return name


def test_a_forged_shard_is_refused_whole_and_named(
    campaign: Campaign, ground: tuple[Path, dict[str, bytes], bytes], tmp_path: Path
) -> None:
    root, expected, _ = ground
    chance = campaign.random("forged")
    for number in range(campaign.pick(6, 150)):
        _on_machine(tmp_path / f"adopter{number}")
        out = tmp_path / f"out{number}"
        name = _laid(expected, out, chance)
        with duckkb.open(root, embedder=HashEmbedder()) as kb:
            with pytest.raises(StateError) as refused:
                kb.index_adopt(out)
            assert [(one.code, one.path) for one in refused.value.findings] == [("E_SHARD", name)]
            assert "differ from recomputed" in refused.value.findings[0].message
            assert kb.index_status()["missing"] == TEXTS, "nothing of the others was taken in"
            some = kb.index_adopt(out, partial=True)
            assert len(some.shards) == OF - 1 and some.pending == TEXTS - some.texts
            assert [one.path for one in some.problems] == [name]
        campaign.count("forged shards refused")


def test_without_the_sample_a_forged_shard_is_taken_in(
    campaign: Campaign, ground: tuple[Path, dict[str, bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: nothing else than the sample stops it."""
    root, expected, _ = ground
    _on_machine(tmp_path / "adopter")
    _laid(expected, tmp_path / "out", campaign.random("control"))
    verify = SearchCache._verify

    def believing(cache: SearchCache, kind: Any, texts: Any, recompute: Any, agree: Any, *rest: Any) -> bool:
        return verify(cache, kind, texts, recompute, lambda stored, made: True, *rest)

    monkeypatch.setattr(SearchCache, "_verify", believing)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        assert kb.index_adopt(tmp_path / "out").pending == 0
