"""The two caches on disk: what comes back, what is written where, what damage does, and who is believed."""

import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckkb.index import team_cache
from duckkb.index.cache_database import FILE, CacheStore, content_hash
from duckkb.index.cache_parquet import SCHEMA, encode
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.index_entries import text_key
from duckkb.index.team_cache import TEAM_FILE, TEAM_FOLDER
from duckkb.index.tokens import JiebaTokenizer
from duckkb.types.records import Fingerprint, Tokens

TOKENIZER = JiebaTokenizer()
WORDS = TOKENIZER.fingerprint
MODEL = Fingerprint("acme/model", "abc", 8)
TEXTS = [
    "DuckDB内存数据库",
    "plain words",
    "v2.0.1 is out",
    "",
    "。",
    *(f"text number {number}" for number in range(60)),
]


def vector_of(text: str) -> np.ndarray:
    seed = np.frombuffer(content_hash(text), dtype=np.uint32)
    made = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
    return made / np.linalg.norm(made)


def embed(texts: list[str]) -> np.ndarray:
    return np.array([vector_of(text) for text in texts])


def lying(texts: list[str]) -> np.ndarray:
    return -embed(texts)


TOKEN_TEXTS = {text_key(WORDS, text): text for text in TEXTS}
VECTOR_TEXTS = {text_key(MODEL, text): text for text in TEXTS}
KEYS = [*TOKEN_TEXTS, *VECTOR_TEXTS]


def filled(root: Path) -> SearchCache:
    cache = SearchCache.open(root, root / "user")
    cache.add_tokens({key: (text, TOKENIZER.tokenize([text])[0]) for key, text in TOKEN_TEXTS.items()}, WORDS)
    cache.add_vectors({key: (text, vector_of(text)) for key, text in VECTOR_TEXTS.items()}, MODEL)
    return cache


def opened(root: Path, user: str = "user") -> SearchCache:
    """The cache as a process of a user finds it."""
    return SearchCache.open(root, root / user)


def write_team(root: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(root / "data/indices", ignore_errors=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def assert_full(cache: SearchCache) -> None:
    assert cache.tokens(list(TOKEN_TEXTS)) == TOKENIZER.tokenize(list(TOKEN_TEXTS.values()))
    for vector, text in zip(cache.vectors(list(VECTOR_TEXTS)), VECTOR_TEXTS.values(), strict=True):
        assert vector is not None
        assert vector.dtype == np.float32
        assert (vector == vector_of(text)).all()


def assert_empty(cache: SearchCache) -> None:
    assert not any(cache.tokens(list(TOKEN_TEXTS)))
    assert all(vector is None for vector in cache.vectors(list(VECTOR_TEXTS)))


def test_rows_come_back_before_and_after_they_are_saved(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    assert_full(cache)
    assert cache.unsaved == 2 * len(TEXTS)
    assert cache.save()
    assert_full(cache)
    assert cache.unsaved == 0
    assert_full(opened(tmp_path))
    assert opened(tmp_path).findings == ()


def test_an_absent_cache_is_empty_and_no_finding(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert_empty(cache)
    assert cache.findings == ()
    assert cache.tokens([]) == cache.vectors([]) == []
    assert cache.save()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_a_miss_among_hits(tmp_path: Path) -> None:
    filled(tmp_path).save()
    known = next(iter(TOKEN_TEXTS))
    found = opened(tmp_path).tokens([b"0" * 16, known, b"1" * 16, known])
    assert [tokens is None for tokens in found] == [True, False, True, False]


def test_what_is_made_lies_in_the_users_folder_and_no_other_user_reads_it(tmp_path: Path) -> None:
    filled(tmp_path / "kb").save()
    assert [path.name for path in (tmp_path / "kb").iterdir()] == ["user"]
    folder = tmp_path / "kb/user"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 or os.name == "nt"
    assert_empty(SearchCache.open(tmp_path / "kb", tmp_path / "another user"))


def test_another_base_of_the_user_has_what_this_one_made_but_not_what_it_was_brought(tmp_path: Path) -> None:
    """A clone may lie about a text that stands in another base too: its rows stay its own."""
    filled(tmp_path).save()
    assert_full(SearchCache.open(tmp_path / "another base", tmp_path / "user"))
    hostile = tmp_path / "hostile"
    lies = [(key, content_hash(text), str(MODEL), (-vector_of(text)).tobytes()) for key, text in VECTOR_TEXTS.items()]
    write_team(hostile, {TEAM_FILE: encode([], lies)})
    brought = SearchCache.open(hostile, tmp_path / "third")
    assert brought.verify_vectors(VECTOR_TEXTS, lying)  # it may agree, where a sample misses what is wrong
    assert all(vector is not None for vector in brought.vectors(list(VECTOR_TEXTS)))
    assert_empty(SearchCache.open(tmp_path / "another base", tmp_path / "third"))


@pytest.mark.parametrize("place", ["a file", "read-only", "a link"])
def test_a_place_that_cannot_be_used_is_no_error(tmp_path: Path, place: str) -> None:
    if place == "a file":
        (tmp_path / "user").write_text("a file where the folder should be")
    elif place == "a link":
        (tmp_path / "user").symlink_to(tmp_path)
    else:
        (tmp_path / "user").mkdir(mode=0o500)
    cache = filled(tmp_path)
    cache.save()
    assert_full(cache)
    write_team(tmp_path, cache.team_bytes(KEYS))
    again = opened(tmp_path)
    again.verify_tokens(TOKEN_TEXTS, TOKENIZER.tokenize)
    assert again.verify_vectors(VECTOR_TEXTS, embed)
    assert_full(again)


def test_two_processes_may_save_side_by_side(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    for cache, text in ((one, "first"), (other, "second")):
        cache.add_tokens({text_key(WORDS, text): (text, TOKENIZER.tokenize([text])[0])}, WORDS)
        assert cache.save()
    for cache in (one, other, opened(tmp_path)):
        keys = [text_key(WORDS, "first"), text_key(WORDS, "second")]
        assert cache.tokens(keys) == TOKENIZER.tokenize(["first", "second"])


def stored(root: Path) -> sqlite3.Connection:
    return sqlite3.connect(root / "user" / FILE, isolation_level=None)


@pytest.mark.parametrize("column", ["payload", "fingerprint", "content_hash", "checksum", "key"])
def test_a_damaged_row_is_a_miss_and_is_made_anew(tmp_path: Path, column: str) -> None:
    filled(tmp_path).save()
    change = "'x'" if column == "fingerprint" else "zeroblob(16)"
    stored(tmp_path).execute(f"UPDATE row SET {column} = {change} WHERE id IN (3, {len(TEXTS) + 3})")
    cache = opened(tmp_path)
    assert sum(found is None for found in cache.tokens(list(TOKEN_TEXTS))) == 1
    assert sum(found is None for found in cache.vectors(list(VECTOR_TEXTS))) == 1
    assert cache.findings == ()
    cache.save()
    assert len(opened(tmp_path).list_missing_keys("vector", VECTOR_TEXTS)) == 1, "it is known to be missing from now on"
    filled(tmp_path).save()
    assert_full(opened(tmp_path))


@pytest.mark.parametrize("damage", [b"", b"no database at all", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_empty_and_made_anew(tmp_path: Path, damage: bytes) -> None:
    filled(tmp_path).close()
    (tmp_path / "user" / FILE).write_bytes(damage)
    cache = opened(tmp_path)
    assert_empty(cache)
    filled(tmp_path).save()
    assert_full(opened(tmp_path))


def test_any_byte_of_the_file_may_change_and_no_answer_does(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path, chance = tmp_path / "user" / FILE, random.Random(4)
    sound = path.read_bytes()
    for _ in range(40):
        data = bytearray(sound)
        for at in chance.sample(range(len(data)), chance.choice([1, 20, 400])):
            data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        cache = opened(tmp_path)
        for text, tokens in zip(TEXTS, cache.tokens(list(TOKEN_TEXTS)), strict=True):
            assert tokens in (None, TOKENIZER.tokenize([text])[0])
        for text, vector in zip(TEXTS, cache.vectors(list(VECTOR_TEXTS)), strict=True):
            assert vector is None or (vector == vector_of(text)).all()
        cache.close()


def test_rows_that_were_not_used_for_longest_go_first(tmp_path: Path) -> None:
    filled(tmp_path).save()
    stored(tmp_path).execute("UPDATE row SET used_on = used_on - 100 WHERE id % 2")
    used = opened(tmp_path)
    key = next(iter(VECTOR_TEXTS))
    assert used.vectors([key])[0] is not None
    used.save()
    store = CacheStore(tmp_path / "user")
    assert store.surplus(store.size) == {}
    recent = "SELECT count(*) FROM row WHERE used_on > (SELECT max(used_on) FROM row) - 50"
    ((before,),) = stored(tmp_path).execute(recent)
    surplus = store.surplus(store.size - 1_000)
    assert 0 < len(surplus) <= len(TEXTS)
    store.let_go(surplus)
    assert stored(tmp_path).execute(recent).fetchall() == [(before,)], "only old ones went"
    assert opened(tmp_path).vectors([key])[0] is not None
    store.let_go(store.surplus(0))
    assert_empty(opened(tmp_path))


def test_what_went_of_a_teams_file_is_read_again(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    cache = opened(tmp_path, "another")
    assert cache.verify_vectors(VECTOR_TEXTS, embed)
    store = CacheStore(tmp_path / "another")
    store.let_go(store.surplus(0))
    again = opened(tmp_path, "another")
    assert again.find_unverified_keys(VECTOR_TEXTS) == VECTOR_TEXTS.keys()
    assert again.verify_vectors(VECTOR_TEXTS, embed)
    assert all(vector is not None for vector in again.vectors(list(VECTOR_TEXTS)))


def test_the_teams_file_holds_exactly_the_live_rows(tmp_path: Path) -> None:
    filled(tmp_path).save()
    live = KEYS[::3]
    files = opened(tmp_path).team_bytes(live)
    assert list(files) == [TEAM_FILE]
    rows = pq.read_table(pa.BufferReader(files[TEAM_FILE]))
    assert sorted(rows["key"].to_pylist()) == sorted(live)
    kinds_and_keys = list(zip(rows["kind"].to_pylist(), rows["key"].to_pylist(), strict=True))
    assert kinds_and_keys == sorted(kinds_and_keys)
    assert rows.schema.names == ["kind", "key", "content_hash", "fts_content", "vector", "fingerprint", "checksum"]


def test_without_live_rows_the_team_has_no_file(tmp_path: Path) -> None:
    assert filled(tmp_path).team_bytes([]) == {}


def test_equal_rows_give_equal_bytes_wherever_they_come_from(tmp_path: Path) -> None:
    made = filled(tmp_path / "a").team_bytes(KEYS)
    other = filled(tmp_path / "b")
    other.save()
    assert opened(tmp_path / "b").team_bytes(reversed(KEYS)) == made
    write_team(tmp_path / "a", made)
    assert opened(tmp_path / "a").team_bytes(set(KEYS)) == made


def test_the_teams_file_reads_in_duckdb_with_vectors_as_floats(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    query = f"SELECT count(*), max(len(vector)) FROM '{tmp_path / TEAM_FILE}' WHERE kind = 'vector'"
    assert duckdb.sql(query).fetchall() == [(len(TEXTS), 8)]


def test_the_table_for_sql_has_the_usable_rows_of_the_keys_that_are_shown(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    cache.save()
    again = opened(tmp_path)
    assert again.table([]).num_rows == 0, "other bases have theirs in it"
    assert again.table(KEYS).schema == SCHEMA
    assert again.table(KEYS).num_rows == 2 * len(TEXTS)


def large(root: Path, count: int) -> tuple[SearchCache, list[bytes]]:
    """A cache whose vectors come to more than one file may hold."""
    model = Fingerprint("large", "abc", 1024)
    vectors = np.random.default_rng(7).standard_normal((count, 1024)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"large {number}" for number in range(count)]
    keys = [text_key(model, text) for text in texts]
    cache = SearchCache.open(root, root / "user")
    cache.add_vectors({key: (text, row) for key, text, row in zip(keys, texts, vectors, strict=True)}, model)
    return cache, keys


@pytest.mark.long
def test_from_8_mb_on_a_change_adds_a_small_segment_and_leaves_the_others(tmp_path: Path) -> None:
    cache, keys = large(tmp_path, 2500)
    night = cache.team_bytes(keys[:2400])
    assert len(night) == 2
    assert all(path.startswith(f"{TEAM_FOLDER}/vector-") for path in night)
    write_team(tmp_path, night)
    cache.save()
    after = opened(tmp_path).team_bytes(keys[50:])
    assert night.items() <= after.items()
    added = [data for path, data in after.items() if path not in night]
    assert [len(data) < 1_000_000 for data in added] == [True]
    write_team(tmp_path, after)
    again = opened(tmp_path)
    assert all(vector is not None for vector in again.vectors(keys))
    assert again.team_bytes(keys[50:]) == after
    assert sorted(again.team_paths()) == sorted(after)


@pytest.mark.long
def test_segments_that_are_mostly_dead_are_written_anew(tmp_path: Path) -> None:
    cache, keys = large(tmp_path, 3200)
    write_team(tmp_path, cache.team_bytes(keys))
    live = sorted(keys)[800:]
    after = opened(tmp_path).team_bytes(live)
    held = [key for data in after.values() for key in pq.read_table(pa.BufferReader(data))["key"].to_pylist()]
    assert sorted(held) == live


def test_a_cache_that_shrinks_is_one_file_again(tmp_path: Path) -> None:
    cache, keys = large(tmp_path, 2400)
    write_team(tmp_path, cache.team_bytes(keys))
    assert list(opened(tmp_path).team_bytes(keys[:100])) == [TEAM_FILE]


def _with(change: Callable[[pa.Table], pa.Table]) -> Callable[[bytes], bytes]:
    def rewrite(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(change(pq.read_table(pa.BufferReader(data))), sink)
        return sink.getvalue().to_pybytes()

    return rewrite


WHOLE_FILES: dict[str, Callable[[bytes], bytes]] = {
    "pointer": lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "markers": lambda data: b"<<<<<<< ours\n" + data + b"=======\n" + data + b">>>>>>> theirs\n",
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "three bytes": lambda data: b"PAR",
    "no magic": lambda data: b"\0" * 500,
    "only magic": lambda data: b"PAR1PAR1",
    "torn inside": lambda data: data[:100] + data[200:],
    "other columns": _with(lambda table: table.drop_columns(["fingerprint"])),
    "other types": _with(lambda table: table.set_column(5, "fingerprint", pa.array([1] * table.num_rows))),
}


@pytest.mark.parametrize("damage", WHOLE_FILES.values(), ids=WHOLE_FILES)
def test_dk_12_a_damaged_file_is_a_finding_and_a_miss(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    files = filled(tmp_path).team_bytes(KEYS)
    write_team(tmp_path, {TEAM_FILE: damage(files[TEAM_FILE])})
    cache = opened(tmp_path)
    cache.verify_tokens(TOKEN_TEXTS, TOKENIZER.tokenize)
    cache.verify_vectors(VECTOR_TEXTS, embed)
    assert_empty(cache)
    assert {(finding.code, finding.path) for finding in cache.findings} == {("W_CACHE", TEAM_FILE)}
    assert all(finding.remedy for finding in cache.findings)


@pytest.mark.parametrize("damage", ["pointer", "markers", "truncated"])
def test_dk_12_damage_shows_when_the_cache_is_opened(tmp_path: Path, damage: str) -> None:
    files = filled(tmp_path).team_bytes(KEYS)
    write_team(tmp_path, {TEAM_FILE: WHOLE_FILES[damage](files[TEAM_FILE])})
    assert [finding.code for finding in opened(tmp_path).findings] == ["W_CACHE"]


def test_dk_12_a_pointer_says_how_to_fetch_it(tmp_path: Path) -> None:
    write_team(tmp_path, {TEAM_FILE: WHOLE_FILES["pointer"](b"")})
    assert opened(tmp_path).findings[0].remedy == "git lfs pull"


def test_a_folder_or_a_link_in_its_place_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / TEAM_FILE).mkdir(parents=True)
    assert [finding.code for finding in opened(tmp_path).findings] == ["W_CACHE"]
    elsewhere = tmp_path / "elsewhere"
    write_team(elsewhere, filled(elsewhere).team_bytes(KEYS))
    (tmp_path / TEAM_FILE).rmdir()
    (tmp_path / TEAM_FILE).symlink_to(elsewhere / TEAM_FILE)
    cache = opened(tmp_path, "elsewhere/user")
    assert_empty(cache)
    assert [finding.code for finding in cache.findings] == ["W_CACHE"]
    (tmp_path / TEAM_FILE).unlink()
    (tmp_path / "data/indices").rmdir()
    (tmp_path / "data/indices").symlink_to(elsewhere / "data/indices")
    assert_empty(opened(tmp_path, "elsewhere/user"))


def _rows(vector: np.ndarray | None = None, fingerprint: str = str(MODEL), key: bytes = b"k" * 16) -> bytes:
    """A file made as ours are, checksums and all, with one odd row."""
    odd = (
        key,
        content_hash("odd"),
        fingerprint,
        (vector_of("odd") if vector is None else np.asarray(vector, np.float32)).tobytes(),
    )
    good = (b"g" * 16, content_hash("good"), str(MODEL), vector_of("good").tobytes())
    return encode([], [odd, good])


def _changed(table: pa.Table, column: str, value: object) -> pa.Table:
    """The odd row with another value in one column."""
    values = [
        value if key == b"k" * 16 else old
        for key, old in zip(table["key"].to_pylist(), table[column].to_pylist(), strict=True)
    ]
    field = SCHEMA.field(column)
    return table.set_column(SCHEMA.names.index(column), field, pa.array(values, field.type))


ODD_ROWS = {
    "another dimension": _rows(vector_of("odd")[:7]),
    "no values": _rows(np.zeros(0)),
    "not a number": _rows([float("nan")] * 8),
    "infinite": _rows([float("inf"), *[0.0] * 7]),
    "huge": _rows([3e38] * 8),
    "zero": _rows([0.0] * 8),
    "not of unit length": _rows(vector_of("odd") * 2),
    "a flipped bit": _with(lambda table: _changed(table, "key", b"K" * 16))(_rows()),
    "no fingerprint": _with(lambda table: _changed(table, "fingerprint", None))(_rows()),
}


@pytest.mark.parametrize("data", ODD_ROWS.values(), ids=ODD_ROWS)
def test_an_odd_row_is_left_out_and_the_others_stay(tmp_path: Path, data: bytes) -> None:
    write_team(tmp_path, {TEAM_FILE: data})
    cache = opened(tmp_path)
    assert cache.verify_vectors({b"g" * 16: "good", b"k" * 16: "odd", b"K" * 16: "odd"}, embed)
    good, odd, flipped = cache.vectors([b"g" * 16, b"k" * 16, b"K" * 16])
    assert good is not None
    assert odd is None
    assert flipped is None
    assert [(finding.code, "1 rows" in finding.message) for finding in cache.findings] == [("W_CACHE", True)]


def test_a_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    cache = SearchCache.open(tmp_path, tmp_path / "user")
    texts = {text_key(WORDS, text): text for text in TEXTS[:6]}
    made = {key: TOKENIZER.tokenize([text])[0] for key, text in texts.items()}
    cache.add_tokens({key: (texts[key], made[key]) for key in texts}, WORDS)
    data = cache.team_bytes(texts)[TEAM_FILE]
    for at in range(0, len(data), 61):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        write_team(tmp_path, {TEAM_FILE: bytes(flipped)})
        found = SearchCache.open(tmp_path)
        found.verify_tokens(texts, TOKENIZER.tokenize)
        for key, tokens in zip(texts, found.tokens(list(texts)), strict=True):
            assert tokens in (None, made[key])


def test_rows_from_elsewhere_count_for_nothing_until_a_sample_agrees(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    elsewhere = opened(tmp_path, "another")
    assert_empty(elsewhere)
    embedded: list[str] = []
    elsewhere.verify_tokens(TOKEN_TEXTS, TOKENIZER.tokenize)
    assert elsewhere.verify_vectors(VECTOR_TEXTS, lambda texts: embedded.extend(texts) or embed(texts))
    assert len(set(embedded)) == 32
    assert_full(elsewhere)
    assert elsewhere.findings == ()


def test_a_file_is_sampled_once_and_its_maker_never_samples_it(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    assert opened(tmp_path).verify_vectors(VECTOR_TEXTS, lying)
    assert opened(tmp_path, "another").verify_vectors(VECTOR_TEXTS, embed)
    again = opened(tmp_path, "another")
    assert again.verify_vectors(VECTOR_TEXTS, lying)
    assert all(vector is not None for vector in again.vectors(list(VECTOR_TEXTS)))


def test_a_checked_kind_says_nothing_of_the_other(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    opened(tmp_path, "another").verify_tokens(TOKEN_TEXTS, TOKENIZER.tokenize)
    again = opened(tmp_path, "another")
    assert all(again.tokens(list(TOKEN_TEXTS)))
    assert all(vector is None for vector in again.vectors(list(VECTOR_TEXTS)))


@pytest.mark.parametrize("kind", ["tokens", "vectors"])
def test_a_forged_file_is_dropped_whole_and_named(tmp_path: Path, kind: str) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    cache = opened(tmp_path, "another")
    if kind == "tokens":
        cache.verify_vectors(VECTOR_TEXTS, embed)
        cache.verify_tokens(TOKEN_TEXTS, lambda texts: [Tokens("forged", "forged")] * len(texts))
    else:
        cache.verify_tokens(TOKEN_TEXTS, TOKENIZER.tokenize)
        assert not cache.verify_vectors(VECTOR_TEXTS, lying)
    assert_empty(cache)
    assert [(finding.code, finding.path) for finding in cache.findings] == [("W_CACHE_UNTRUSTED", TEAM_FILE)]
    assert cache.team_bytes(KEYS) == {}


def test_a_few_checked_rows_vouch_for_themselves_alone(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    cache = opened(tmp_path, "another")
    few = dict(list(VECTOR_TEXTS.items())[:5])
    assert cache.verify_vectors(few, embed)
    found = cache.vectors(list(VECTOR_TEXTS))
    assert [vector is not None for vector in found] == [key in few for key in VECTOR_TEXTS]
    again = opened(tmp_path, "another").vectors(list(VECTOR_TEXTS))
    assert [vector is not None for vector in again] == [key in few for key in VECTOR_TEXTS]


def test_untrusted_rows_do_not_enter_files_of_our_own(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    cache = opened(tmp_path, "another")
    own = text_key(WORDS, "own")
    cache.add_tokens({own: ("own", TOKENIZER.tokenize(["own"])[0])}, WORDS)
    held = pq.read_table(pa.BufferReader(cache.team_bytes([*KEYS, own])[TEAM_FILE]))
    assert held["key"].to_pylist() == [own]


def test_without_a_users_folder_trust_lasts_as_long_as_the_cache(tmp_path: Path) -> None:
    write_team(tmp_path, filled(tmp_path).team_bytes(KEYS))
    cache = SearchCache.open(tmp_path)
    assert cache.verify_vectors(VECTOR_TEXTS, embed)
    assert all(vector is not None for vector in cache.vectors(list(VECTOR_TEXTS)))
    assert SearchCache.open(tmp_path).vectors(list(VECTOR_TEXTS)) == [None] * len(TEXTS)


def test_the_limit_of_one_file_is_8_mb() -> None:
    assert team_cache.SINGLE_LIMIT == 8 * 2**20
