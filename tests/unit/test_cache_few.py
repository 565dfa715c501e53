"""Few rows of a cache are read without the rest: the same answers as from whole files, whatever happened to them."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from duckkb.entries import Fingerprint, Tokens
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.cache_files import LOCAL_FOLDER, TEAM_FOLDER, digest
from duckkb.indexing.cache_format import encode
from duckkb.indexing.cache_reader import FEW
from duckkb.indexing.cache_rows import CacheRow, content_hash, fts_content
from duckkb.indexing.places import FOLDER

MODEL = Fingerprint("acme/model", "abc", 24)
WORDS = Fingerprint("words", "1")
LONG_AGO = 10**9  # seconds since 1970


def unit(number: int) -> np.ndarray:
    made = np.random.default_rng(number).standard_normal(24).astype(np.float32)
    return made / np.linalg.norm(made)


def key(number: int) -> bytes:
    return content_hash(f"key {number}")


def tokens(number: int) -> Tokens:
    return Tokens(f"词 words {number} " * (number % 50), f"sequence {number}" * (number % 3))


def settle(root: Path) -> None:
    """Let the files look as if they had been written long ago: within two seconds none is believed by its times.

    ctime cannot be set back, so what is remembered is written by hand with the files as they are.
    """
    import json

    files = {}
    for path in (root / LOCAL_FOLDER).glob("*.parquet"):
        os.utime(path, (LONG_AGO, LONG_AGO))
        about = path.stat()
        stamp = [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev]
        files[str(path.absolute())] = [stamp, digest(path.read_bytes())]
    (root / "state").mkdir(exist_ok=True)
    (root / "state/seen.json").write_text(json.dumps({"format": 1, "files": files}))


def filled(root: Path, numbers: range, *, steps: int = 1) -> None:
    cache = opened(root)
    for step in range(steps):
        some = numbers[step::steps]
        cache.add_tokens({key(n): (f"text {n}", tokens(n)) for n in some}, WORDS)
        cache.add_vectors({key(n): (f"text {n}", unit(n)) for n in some}, MODEL)
        assert cache.save()


def opened(root: Path) -> SearchCache:
    return SearchCache.open(root, state_home=root / "state")


def whole_files_read(cache: SearchCache) -> int:
    return sum(len(files) for files in cache._present.loaded.values())


def assert_right(cache: SearchCache, asked: list[int], known: range) -> None:
    keys = [key(n) for n in asked]
    assert cache.tokens(keys) == [tokens(n) if n in known else None for n in asked]
    for number, vector in zip(asked, cache.vectors(keys, MODEL), strict=True):
        assert (vector is not None) == (number in known)
        if vector is not None:
            assert vector.dtype == np.float32
            assert (vector == unit(number)).all()


@pytest.mark.parametrize("steps", [1, 5])
def test_few_rows_are_the_same_as_of_whole_files_and_no_file_is_read_whole(tmp_path: Path, steps: int) -> None:
    filled(tmp_path, range(9000), steps=steps)
    rng = random.Random(steps)
    for count in (1, 2, 32, 33, FEW, FEW + 1, 3_000):
        cache = opened(tmp_path)
        assert_right(cache, [rng.randrange(-100, 9100) for _ in range(count)], range(9000))
        assert whole_files_read(cache) == 0
    everything = opened(tmp_path)
    assert_right(everything, list(range(9000)), range(9000))
    for count in (3, 3_000):
        asked = [rng.randrange(-100, 9100) for _ in range(count)]
        lacking = [key(n) for n in asked if n not in range(9000)]
        assert everything.lacking("tokens", map(key, asked)) == lacking == everything.lacking("vector", map(key, asked))
    assert whole_files_read(everything) == 0


def test_many_rows_of_several_lengths_are_read_by_their_places(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    vectors = {key(n): unit(n)[: 12 if n % 3 else 24] for n in range(FEW * 3)}
    for length, model in ((12, Fingerprint("acme/short", "abc", 12)), (24, MODEL)):
        own = {one: ("text", made / np.linalg.norm(made)) for one, made in vectors.items() if len(made) == length}
        cache.add_vectors(own, model)
    assert cache.save()
    again = opened(tmp_path)
    found = again.vectors(list(vectors), MODEL)
    assert [vector is not None for vector in found] == [len(made) == 24 for made in vectors.values()]
    assert whole_files_read(again) == 0


def test_rows_that_were_made_are_not_held_without_end(tmp_path: Path) -> None:
    """Of 40 MB of tokens at most 24 are in memory; the others were written, and are read like those of other processes."""
    cache = opened(tmp_path)
    for start in range(0, 4_000, 500):
        rows = {key(n): (f"text {n}", Tokens(f"w{n} " * 2_000, f"w{n} " * 2_000)) for n in range(start, start + 500)}
        cache.add_tokens(rows, WORDS)
        assert cache.unsaved <= 2_500
    asked = [key(n) for n in (0, 1, 3_999, 4_000)]
    for now in (cache, opened(tmp_path)):
        assert [found and found.words[:6] for found in now.tokens(asked)][:2] == ["w0 w0 ", "w1 w1 "]
        assert now.lacking("tokens", asked)[-1:] == [key(4_000)]
    assert cache.tokens([key(3_999)]) != [None]
    assert whole_files_read(cache) == 0


def test_packed_segments_of_the_team_and_of_older_versions_serve_too(tmp_path: Path) -> None:
    rows: list[CacheRow] = [(key(n), content_hash(f"text {n}"), str(MODEL), unit(n)) for n in range(5000)]
    words = [(key(n), content_hash(f"text {n}"), str(WORDS), fts_content(tokens(n))) for n in range(5000)]
    for kind, data in (("vector", encode([], rows)), ("tokens", encode(words, []))):
        path = tmp_path / TEAM_FOLDER / f"{kind}-{digest(data)[:16]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    first = opened(tmp_path)
    texts = {key(n): f"text {n}" for n in range(5000)}
    assert first.verify_vectors(texts, lambda asked: np.array([unit(int(text[5:])) for text in asked]))
    first.verify_tokens(texts, lambda asked: [tokens(int(text[5:])) for text in asked])
    assert first.save()
    again = opened(tmp_path)
    assert_right(again, [3, 4999, 5000, 17, 3], range(5000))
    assert whole_files_read(again) == 0


def test_rows_that_nobody_vouched_for_stay_withheld(tmp_path: Path) -> None:
    rows: list[CacheRow] = [(key(n), content_hash(f"text {n}"), str(MODEL), unit(n)) for n in range(300)]
    data = encode([], rows)
    path = tmp_path / TEAM_FOLDER / f"vector-{digest(data)[:16]}.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    some = {key(n): f"text {n}" for n in range(40)}
    asked: list[str] = []

    def embed(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([unit(int(text[5:])) for text in texts])

    first = opened(tmp_path)
    assert first.verify_vectors(some, embed)
    assert len(asked) == 32
    assert first.save()
    again = opened(tmp_path)
    assert again.verify_vectors(some, embed)
    assert len(asked) == 32
    assert_withheld = [vector is None for vector in again.vectors([key(n) for n in (3, 39, 40, 299)], MODEL)]
    assert assert_withheld == [False, False, True, True]
    assert whole_files_read(again) == 0
    assert again.verify_vectors({key(200): "text 200"}, embed)
    assert len(asked) == 33
    assert opened(tmp_path).vectors([key(200)], MODEL)[0] is not None


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "another magic": lambda data: flip(data, 0),
    "another count": lambda data: flip(data, 8),
    "a flipped byte early": lambda data: flip(data, 100),
    "a flipped byte in the middle": lambda data: flip(data, len(data) // 2),
    "a flipped byte late": lambda data: flip(data, len(data) - 30),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_places_change_no_answer(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    filled(tmp_path, range(500))
    for path in (tmp_path / "state" / FOLDER).iterdir():
        path.write_bytes(damage(path.read_bytes()))
    for asked in ([0, 499, 250, 500, 77], list(range(-5, 505))) * 2:
        cache = opened(tmp_path)
        assert_right(cache, asked, range(500))
        assert cache.findings == ()


def test_a_changed_byte_of_the_places_gives_no_wrong_row(tmp_path: Path) -> None:
    filled(tmp_path, range(300))
    paths = list((tmp_path / "state" / FOLDER).iterdir())
    whole = {path: path.read_bytes() for path in paths}
    rng = random.Random(2)
    for _ in range(40):
        for path, data in whole.items():
            path.write_bytes(flip(data, rng.randrange(len(data))))
        assert_right(opened(tmp_path), list(range(300)), range(300))


def test_places_of_another_file_are_no_places(tmp_path: Path) -> None:
    filled(tmp_path, range(500), steps=2)
    for kind in ("tokens", "vector"):
        one, other = sorted((tmp_path / "state" / FOLDER).glob(f"{kind}-*"))
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
    assert_right(opened(tmp_path), list(range(0, 600, 10)), range(500))


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("count", [60, 300])
def test_a_changed_byte_of_a_segment_gives_no_wrong_row(tmp_path: Path, seen: bool, count: int) -> None:
    filled(tmp_path, range(count))
    (path,) = (tmp_path / LOCAL_FOLDER).glob("vector-*")
    data = path.read_bytes()
    rng = random.Random(1)
    for _ in range(60):
        path.write_bytes(flip(data, rng.randrange(len(data))))
        if seen:
            settle_wrongly(tmp_path, path, digest(data))
        cache = opened(tmp_path)
        for number, vector in zip(range(count), cache.vectors([key(n) for n in range(count)], MODEL), strict=True):
            assert vector is None or (vector == unit(number)).all()


def settle_wrongly(root: Path, path: Path, file_hash: str) -> None:
    """As if a disk had changed a byte while size and times stayed."""
    import json

    about = path.stat()
    stamp = [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev]
    note = {"format": 1, "files": {str(path.absolute()): [stamp, file_hash]}}
    (root / "state/seen.json").write_text(json.dumps(note))


def test_what_was_just_written_is_hashed_again_and_what_was_not_is_remembered(tmp_path: Path) -> None:
    filled(tmp_path, range(10))
    assert_right(opened(tmp_path), [1], range(10))
    assert not (tmp_path / "state/seen.json").exists()
    settle(tmp_path)
    assert_right(opened(tmp_path), [1], range(10))


def test_a_lookup_of_few_rows_imports_neither_arrow_nor_for_tokens_numpy(tmp_path: Path) -> None:
    filled(tmp_path, range(100))
    script = (
        "import sys; from pathlib import Path\n"
        "from duckkb.entries import Fingerprint\n"
        "from duckkb.indexing.cache import SearchCache\n"
        f"cache = SearchCache.open(Path({str(tmp_path)!r}), state_home=Path({str(tmp_path / 'state')!r}))\n"
        f"keys = [{key(1)!r}, {key(200)!r}]\n"
        "cache.verify_tokens(dict.fromkeys(keys, ''), lambda texts: 1 / 0)\n"
        "assert [one is None for one in cache.tokens(keys)] == [False, True]\n"
        "assert 'numpy' not in sys.modules\n"
        "assert [one is None for one in cache.vectors(keys)] == [False, True]\n"
        "assert 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_few_tokens_are_spared_only_beside_others(tmp_path: Path) -> None:
    def saved() -> int:
        return len(list((tmp_path / LOCAL_FOLDER).glob("tokens-*")))

    cache = opened(tmp_path)
    cache.add_tokens({key(1): ("text", tokens(1))}, WORDS)
    assert cache.save(sparing=True)
    assert saved() == 1
    cache.add_tokens({key(n): ("text", tokens(n)) for n in range(2, 20)}, WORDS)
    assert cache.save(sparing=True)
    assert saved() == 1
    assert_right_tokens = cache.tokens([key(19)])
    assert assert_right_tokens == [tokens(19)]
    cache.add_tokens({key(n): ("text", tokens(n)) for n in range(20, 40)}, WORDS)
    assert cache.save(sparing=True)
    assert saved() == 2
    assert opened(tmp_path).tokens([key(n) for n in range(1, 40)]) == [tokens(n) for n in range(1, 40)]


def test_many_saves_leave_few_segments_and_every_row(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    for number in range(300):
        cache.add_vectors({key(number): ("text", unit(number))}, MODEL)
        assert cache.save()
    assert len(list((tmp_path / LOCAL_FOLDER).iterdir())) <= 32
    again = opened(tmp_path)
    assert all(vector is not None for vector in again.vectors([key(n) for n in range(300)], MODEL))
