"""Vectors as callers give them: numbers or hex, read bit for bit or refused with their first wrong place."""

import json
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckkb.llm.embedder_contract import to_hex
from duckkb.operations.embedding_models import MOST_DIMENSIONS, read_vector
from duckkb.types.errors import UsageError

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.lists(FLOATS, min_size=1, max_size=40).filter(any)


@given(VECTORS)
def test_hex_comes_back_bit_for_bit(values: list[float]) -> None:
    words = [struct.pack(">f", value).hex() for value in values]
    vector = read_vector(json.dumps(words).encode())
    assert vector.dtype == np.float32 and vector.shape == (len(values),)
    assert vector.tobytes() == struct.pack(f"={len(values)}f", *values)
    assert to_hex(vector[None]) == [words]


@given(VECTORS)
def test_numbers_that_are_float32_come_back_bit_for_bit(values: list[float]) -> None:
    assert read_vector(json.dumps(values).encode()).tobytes() == struct.pack(f"={len(values)}f", *values)


def test_numbers_are_rounded_to_the_nearest_float32() -> None:
    chance = random.Random(7)
    values = [chance.gauss(0, 10.0 ** chance.randint(-30, 30)) for _ in range(1000)]
    assert read_vector(json.dumps(values).encode()).tolist() == list(
        struct.unpack("=1000f", struct.pack("=1000f", *values))
    )


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b'["3f800000"]', [1.0]),
        (b" [1,\n 2.5, -3e-2] \r\n", [1.0, 2.5, np.float32(-0.03)]),
        (b'["BF800000", "00000001"]', [-1.0, 2.0**-149]),
        (b"[0, 1e-60, 4]", [0.0, 0.0, 4.0]),
        (b"[9223372036854775807]", [2.0**63]),
    ],
)
def test_what_is_taken(data: bytes, values: list[float]) -> None:
    assert read_vector(data).tolist() == values


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"[]", "0"),
        (b"{}", "array"),
        (b'"3f800000"', "array"),
        (b"1.5", "array"),
        (b"[1, 2", "column"),
        (b"[1] [2]", "follows"),
        (b"\xff", "byte 1"),
        (b"\xef\xbb\xbf[1]", "byte order mark"),
        (b"[1, NaN]", "value 2"),
        (b"[1, 2, -Infinity]", "value 3"),
        (b"[1, 1e400]", "value 2"),
        (b"[1, 4e38]", "value 2"),
        (b"[99999999999999999999]", "value 1"),
        (b"[0, 0.0, -0.0]", "are 0"),
        (b"[1e-60]", "are 0"),
        (b'["00000000", "80000000"]', "are 0"),
        (b'["3f800000", "7fc00000"]', "value 2"),
        (b'["3f800000", "3f800000", "ff800000", "7f800000"]', "value 3"),
        (b'["3f800000", 1]', "value 2"),
        (b'[1, "3f800000"]', "value 2"),
        (b"[true]", "value 1"),
        (b"[1, null]", "value 2"),
        (b"[[1, 2]]", "value 1"),
        (b'["3f80000"]', "value 1"),
        (b'["3f8000000"]', "value 1"),
        (b'["3f800000", "0x3f8000"]', "value 2"),
        (b'["3f80 000"]', "value 1"),
        ('["３f800000"]'.encode(), "value 1"),
        (b'["3f800000\\n"]', "value 1"),
        (json.dumps([1.0] * (MOST_DIMENSIONS + 1)).encode(), "16,385"),
    ],
)
def test_what_is_refused_names_the_first_wrong_place(data: bytes, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_vector(data)
    assert place in caught.value.message
    assert (caught.value.code, caught.value.exit_code) == ("E_USAGE", 2) and caught.value.suggestion


def test_the_longest_vector_is_taken() -> None:
    assert read_vector(json.dumps([0.5] * MOST_DIMENSIONS).encode()).shape == (MOST_DIMENSIONS,)
