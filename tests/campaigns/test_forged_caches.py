"""A cache that came from elsewhere never changes an answer: damaged, rewritten, a bomb, or forged with every checksum right."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.index.cache_database import CacheRow, CacheStore, Stored, content_hash, vector_of
from duckkb.index.cache_parquet import encode
from duckkb.index.embedding_cache import SearchCache, draw
from duckkb.index.index_entries import text_key
from duckkb.index.team_cache import digest, segment_name
from tests.campaigns.test_hostile_repositories import weakened
from tests.conftest import ROOT, make_base
from tests.fakes import HashEmbedder
from tests.harness.campaign import Campaign
from tests.harness.hostile import caches as hostile_caches
from tests.harness.hostile.caches import CONFIG, MEGABYTES, TEAM, records, rows_of
from tests.harness.waiting import HANG_S

Answers = Mapping[str, Any]


@pytest.fixture(scope="module")
def state_of_the_makers() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def made(root: Path, count: int, state: Path, first: int = 0) -> bytes:
    """A base with `count` notes and as many pages; returns its honest team cache, which is then removed."""
    make_base(root, CONFIG)
    os.environ.update(XDG_STATE_HOME=str(state), DUCKKB_CACHE_HOME=str(state / "cache"))
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        for kind in ("Note", "Page"):
            shift = first + (count if kind == "Page" else 0)
            kb.put(
                kind,
                [{**record, "text": hostile_caches.text_of(shift + at)} for at, record in enumerate(records(count))],
            )
        kb.index_build()
    data = (root / TEAM).read_bytes()
    (root / TEAM).unlink()
    return data


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, state_of_the_makers: None) -> tuple[Path, bytes, bytes, Answers]:
    """A base, its honest cache, the cache of another, and the answers without any."""
    folder = tmp_path_factory.mktemp("caches")
    honest = made(folder / "kb", 20, folder / "state")
    other = made(folder / "other", 20, folder / "state", first=900)
    shutil.rmtree(folder / "kb/.duckkb")
    return folder / "kb", honest, other, hostile_caches.answers(folder / "kb", folder / "another state")


class Asked:
    """The program that asks, in a process of its own: what a hostile file does to a process, it does to that one."""

    def __init__(self, sources: Path, base: Path, folder: Path) -> None:
        self._folder, self._count = folder, 0
        folder.mkdir(parents=True)
        copy = shutil.copytree(base, folder / "kb")
        path = os.pathsep.join([str(sources), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", hostile_caches.__file__, str(copy)],
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, data: bytes, state: Path | None = None, place: str = TEAM) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._count += 1
        file = self._folder / f"{self._count}.parquet"
        file.write_bytes(data)
        wanted = {"file": str(file), "state": str(state) if state else None, "place": place}
        print(json.dumps(wanted), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{file} ended the process: {self._process.wait()}"
        file.unlink()
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        self._process.communicate(timeout=HANG_S)


def _hold(asked: Asked, cases: Iterator[tuple[str, bytes]], expected: Answers, campaign: Campaign, figure: str) -> None:
    found = 0
    for name, data in cases:
        said = asked(data)
        assert said["hits"] == expected["hits"], (name, said)
        assert not [code for code in said["codes"] if code.startswith("E_")], (name, said)
        assert said["megabytes"] < MEGABYTES, (name, said["megabytes"])
        found += "W_CACHE" in said["codes"] or "W_CACHE_UNTRUSTED" in said["codes"]
        campaign.count(figure)
    campaign.count(f"{figure}: of these, told by a warning", found)
    asked.close()


def test_dk_12_damaged_caches_never_change_an_answer(
    campaign: Campaign, ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    base, honest, other, expected = ground
    chance = campaign.random("damage")

    def cases() -> Iterator[tuple[str, bytes]]:
        for number in range(campaign.pick(100, 1500)):
            yield f"damaged {number}", hostile_caches.damaged(honest, other, chance)
        for number in range(campaign.pick(8, 150)):
            yield f"rewritten {number}", hostile_caches.rewritten(honest, chance)

    _hold(Asked(ROOT, base, tmp_path / "asked"), cases(), expected, campaign, "mutated caches")


def test_forged_caches_never_change_an_answer(
    campaign: Campaign, ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    """Of a type with up to 32 texts every row is recomputed, so that one forged row is found as surely as all."""
    base, honest, _, expected = ground
    chance = campaign.random("forged")
    cases = ((f"forged {number}", hostile_caches.forged(honest, chance)) for number in range(campaign.pick(24, 400)))
    _hold(Asked(ROOT, base, tmp_path / "asked"), cases, expected, campaign, "forged caches")


def test_dk_11_an_honest_cache_of_another_machine_is_used(
    ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    base, honest, other, expected = ground
    asked = Asked(ROOT, base, tmp_path / "asked")
    for data, codes in ((honest, []), (other, ["W_COMPUTED"])):  # what another base embedded serves no text of this one
        said = asked(data)
        assert (said["hits"], said["codes"]) == (expected["hits"], codes)
    asked.close()


def test_without_checksum_and_sample_answers_change(
    campaign: Campaign, ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    """The negative control: these caches do harm where nobody looks."""
    base, honest, _, expected = ground
    taken_out = {
        "index/cache_parquet": ("if computed_checksum != stored_checksum\n", "if False\n"),
        "index/embedding_cache": ("if all(agree(stored_row", "if True or all(agree(stored_row"),
    }
    sources = weakened(tmp_path / "weak", taken_out)
    chance = campaign.random("control")
    asked = Asked(sources, base, tmp_path / "asked")
    forgeries = [asked(hostile_caches.forged(honest, chance)) for _ in range(8)]
    assert sum(said["hits"] != expected["hits"] for said in forgeries) >= 2
    changed = [asked(_changed_payload(honest, at)) for at in range(4)]
    assert sum(said["hits"] != expected["hits"] for said in changed) >= 2
    asked.close()


def _changed_payload(data: bytes, at: int) -> bytes:
    """Another word in some token rows, checksums as they were."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(data))
    texts = [text and (text.replace("fox", "hare") if number % 12 != at else text + " fox fox") for number, text in enumerate(table["fts_content"].to_pylist())]  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(table.column_names.index("fts_content"), "fts_content", pa.array(texts)), sink)
    return bytes(sink.getvalue())


def test_odd_rows_that_no_sample_met_crash_nothing(
    campaign: Campaign, ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    """A forged row may escape the sample of a large file: then it may mislead, but never break a search."""
    base, honest, _, _ = ground
    chance = campaign.random("odd")
    asked = Asked(ROOT, base, tmp_path / "asked")
    for number in range(campaign.pick(10, 200)):
        data = hostile_caches.forged(honest, chance)
        state = tmp_path / f"state{number}"
        CacheStore(state / "cache/shared").settle(digest(data), "made", None)
        said = asked(data, state)
        assert said["hits"] is not None, said
        campaign.count("forged caches that escaped the sample")
    asked.close()


def test_what_a_folder_brings_beside_the_teams_cache_is_not_read(
    ground: tuple[Path, bytes, bytes, Answers], tmp_path: Path
) -> None:
    """A folder that was unpacked, not cloned, may bring a .duckkb/ that git does not track, and a store in it."""
    base, honest, _, expected = ground
    lying = [(*row[:3], (-vector_of(row[3])).tobytes()) for row in rows_of(honest)[1]]
    store = CacheStore(tmp_path / "forger")
    store.add("vector", lying)
    store.close()
    brought = (tmp_path / "forger/search_cache.sqlite").read_bytes()
    asked = Asked(ROOT, base, tmp_path / "asked")
    name = segment_name("vector", encode((), lying))
    for place, data in (
        (f".duckkb/cache/{name}", encode((), lying)),
        (".duckkb/search_cache.sqlite", brought),
        (".duckkb/shared/search_cache.sqlite", brought),
        (".cache/duckkb/shared/search_cache.sqlite", brought),
        ("data/indices/search_cache.sqlite", brought),
    ):
        said = asked(data, place=place)
        assert (said["hits"], said["codes"]) == (expected["hits"], ["W_COMPUTED"]), place
    asked.close()


# --- who vouches for what

MODEL = HashEmbedder(8)


def _vectors(texts: Sequence[str]) -> dict[bytes, CacheRow]:
    made = zip(texts, MODEL.embed_passages(texts), strict=True)
    keys = [text_key(MODEL.fingerprint, text) for text in texts]
    return {
        key: (key, content_hash(text), str(MODEL.fingerprint), vector.tobytes())
        for key, (text, vector) in zip(keys, made, strict=True)
    }


def _open(root: Path, rows: Mapping[bytes, CacheRow], state: Path | None = None) -> SearchCache:
    (root / TEAM).parent.mkdir(parents=True, exist_ok=True)
    (root / TEAM).write_bytes(encode((), rows.values()))
    return SearchCache.open(root, state)


def test_a_sample_of_one_type_says_nothing_of_another(tmp_path: Path) -> None:
    notes, pages = [f"note {at}" for at in range(100)], [f"page {at}" for at in range(100)]
    honest, forged = (
        _vectors(notes),
        {key: (*row[:3], (-vector_of(row[3])).tobytes()) for key, row in _vectors(pages).items()},
    )
    cache = _open(tmp_path, honest | forged, tmp_path / "state")
    assert cache.verify_vectors(dict(zip(honest, notes, strict=True)), MODEL.embed_passages)
    assert all(vector is not None for vector in cache.vectors(list(honest)))
    for again in (cache, SearchCache.open(tmp_path, tmp_path / "state")):
        assert again.vectors(list(forged)) == [None] * 100
    assert not cache.verify_vectors(dict(zip(forged, pages, strict=True)), MODEL.embed_passages)
    again = SearchCache.open(tmp_path, tmp_path / "state")
    assert again.vectors([*honest, *forged]) == [None] * 200, "a forger is not believed elsewhere either"
    assert [finding.code for finding in again.findings] == ["W_CACHE_UNTRUSTED"]


def test_rows_for_texts_that_come_later_are_sampled_then(tmp_path: Path) -> None:
    """A file may be honest about what there is, and lie about what its author will add next."""
    now, later = [f"now {at}" for at in range(100)], [f"later {at}" for at in range(40)]
    honest, forged = (
        _vectors(now),
        {key: (*row[:3], (-vector_of(row[3])).tobytes()) for key, row in _vectors(later).items()},
    )
    cache = _open(tmp_path, honest | forged, tmp_path / "state")
    assert cache.verify_vectors(dict(zip(honest, now, strict=True)), MODEL.embed_passages)
    again = SearchCache.open(tmp_path, tmp_path / "state")
    texts = dict(zip([*honest, *forged], [*now, *later], strict=True))
    assert all(vector is not None for vector in again.vectors(list(honest)))
    assert not again.verify_vectors(texts, MODEL.embed_passages)
    assert again.vectors(list(texts)) == [None] * len(texts)


@pytest.mark.parametrize("share", [1, 10, 100, 1000])
def test_how_often_a_sample_meets_a_forged_row(campaign: Campaign, tmp_path: Path, share: int) -> None:
    """The honest figure: of 10,000 rows 32 are recomputed. One forged row is met once in 300 times, a tenth nearly always."""
    many = 10_000
    texts = [f"text {at}" for at in range(many)]
    rows = _vectors(texts)
    chance = campaign.random(f"share {share}")
    trials, met = campaign.pick(40, 400), 0
    unknown = list(_open(tmp_path, rows).store.iter_unverified_rows("vector", rows))
    assert len(unknown) == many
    for _ in range(trials):
        lies = set(chance.sample(list(rows), share))
        met += any(drawn.row[0] in lies for drawn in draw(unknown))
    expected = 1 - math.exp(sum(math.log1p(-share / (many - drawn)) for drawn in range(32)))
    slack = 4 * math.sqrt(expected * (1 - expected) / trials) + 0.02
    assert abs(met / trials - expected) <= slack, (met, trials, expected)
    campaign.count(f"samples over 10,000 rows with {share:,} forged", trials)
    campaign.count(f"samples over 10,000 rows with {share:,} forged: found", met)


# --- what a clone must not be able to say for this machine


def test_state_inside_of_a_clone_is_nobodys(tmp_path: Path) -> None:
    """Where the user's home is the clone, the clone could bring what its author wants to be accepted."""
    from duckkb import config

    base = make_base(tmp_path / "kb", CONFIG)
    env = {"HOME": str(base)}
    around, elsewhere = config.read_environment(base, env), config.environment(env)
    settings = config.load(base, elsewhere).settings
    config.accept(base, settings, elsewhere)
    assert (base / ".local/state/duckkb/trust.json").exists()
    assert config.is_trusted(base, settings, elsewhere)
    assert not config.is_trusted(base, settings, around)
    with pytest.raises(duckkb.DuckkbError) as caught:
        config.accept(base, settings, around)
    assert "XDG_STATE_HOME" in caught.value.suggestion
    assert not around.cache_home.is_relative_to(base)
    outside = config.read_environment(base, {"HOME": str(tmp_path)})
    assert outside == config.environment({"HOME": str(tmp_path)})


def test_a_home_that_is_a_work_tree_around_the_base_counts_unless_git_tracks_it(tmp_path: Path) -> None:
    from duckkb import config
    from tests.conftest import commit

    home = make_base(tmp_path / "home", CONFIG)
    base = home / "kb"
    base.mkdir()
    (home / "config.yaml").rename(base / "config.yaml")
    env = {"HOME": str(home)}
    commit(home)
    assert config.read_environment(base, env) == config.environment(env)
    config.accept(base, config.load(base, config.environment(env)).settings, config.environment(env))
    commit(home)
    assert config.read_environment(base, env).state_home != config.environment(env).state_home


def _fresh(root: Path) -> SearchCache:
    return SearchCache.open(root, root / "state")


def test_an_endpoint_without_a_configured_dimension_keeps_its_vectors(tmp_path: Path) -> None:
    from duckkb.types.records import Fingerprint

    model = Fingerprint("org/model", "abc")
    rows = {bytes([at]) * 16: ("", vector) for at, vector in enumerate(MODEL.embed_passages(["a", "b", "c"]))}
    cache = _fresh(tmp_path)
    cache.add_vectors(rows, model)
    cache.save()
    again = _fresh(tmp_path)
    assert all(vector is not None for vector in again.vectors(list(rows)))
    assert again.findings == ()


def test_random_is_not_the_forgers(tmp_path: Path) -> None:
    """Which rows are drawn does not follow from the file, the time or a seed."""
    keys = [Stored(at, (bytes(16), bytes(16), "", b""), False, False) for at in range(2000)]
    drawn = []
    for _ in range(3):
        random.seed(1)
        drawn.append(tuple(one.id for one in draw(keys)))
    assert len(set(drawn)) == 3
