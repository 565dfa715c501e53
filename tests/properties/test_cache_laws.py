"""Laws of a cache file: what goes in comes out, in whatever order it went in."""

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckkb.index.cache_database import KINDS, CacheRow, fts_content, tokens_of
from duckkb.index.cache_parquet import decode, encode
from duckkb.types.records import Tokens

LAW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6), max_size=8
)
TOKENS = st.builds(Tokens, WORDS.map(" ".join), WORDS.map(" ".join))
KEYS = st.binary(min_size=16, max_size=16)


def unit(seed: int, dimension: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return made / np.linalg.norm(made)


@st.composite
def token_rows(draw: st.DrawFn) -> list[CacheRow]:
    keys = draw(st.lists(KEYS, unique=True, max_size=12))
    return [
        (key, draw(KEYS), draw(st.sampled_from(["jieba/a", "plain/b"])), fts_content(draw(TOKENS)).encode())
        for key in keys
    ]


@st.composite
def vector_rows(draw: st.DrawFn) -> list[CacheRow]:
    keys = draw(st.lists(KEYS, unique=True, max_size=12))
    sizes = [draw(st.sampled_from([1, 4, 9])) for _ in keys]
    return [
        (key, draw(KEYS), f"org/model/{size}/d", unit(draw(st.integers(0, 9)), size).tobytes())
        for key, size in zip(keys, sizes, strict=True)
    ]


@LAW
@given(token_rows(), vector_rows())
def test_rows_come_out_as_they_went_in(tokens: list[CacheRow], vectors: list[CacheRow]) -> None:
    batches = list(decode(encode(tokens, vectors)))
    assert not any(batch.left_out for batch in batches)
    found = {kind: [row for batch in batches if batch.kind == kind for row in batch.rows] for kind in KINDS}
    assert found == {"tokens": sorted(tokens), "vector": sorted(vectors)}


@LAW
@given(token_rows(), vector_rows(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_shape_the_bytes(
    tokens: list[CacheRow], vectors: list[CacheRow], chance: random.Random
) -> None:
    data = encode(tokens, vectors)
    chance.shuffle(tokens)
    chance.shuffle(vectors)
    assert encode(tokens, vectors) == data


@LAW
@given(TOKENS)
def test_tokens_survive_their_column(tokens: Tokens) -> None:
    assert tokens_of(fts_content(tokens).encode()) == tokens
