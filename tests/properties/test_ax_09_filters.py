"""A law of filters over tables: the rows that PostgreSQL gives are those that plain Python chooses, in the order of numpy."""

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckkb.tables import VectorTables
from tests.harness.postgres import Server
from tests.vector_tables import DIMENSION, MOODS, make_shop, opened, ranked, rows

ITEMS = rows(120)
VECTOR = np.arange(1.0, DIMENSION + 1)
ORDER = [number for number, _ in ranked(ITEMS, VECTOR)]
COLUMNS = ("id", "title", "kind", "code", "small", "big", "price", "ratio", "share", "live", "mood", "day", "key", "order", '"Mixed Case"')  # fmt: skip


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[VectorTables]:
    url = postgres.database()
    make_shop(url, ITEMS)
    with opened(url) as tables:
        yield tables


def as_real(value: Any) -> float:
    """The nearest float32."""
    found: float = struct.unpack("f", struct.pack("f", float(value)))[0]
    return found


READ: dict[str, Callable[[Any], Any]] = {
    "price": Decimal,
    "ratio": as_real,
    "code": lambda text: text.rstrip(" "),
    "mood": MOODS.index,
    "share": lambda value: (value != value, value),  # NaN is above all others
}
"""How a column compares what it has and what it is asked for, where that is not how Python compares the values."""


def compared(column: str, stored: Any, sign: str, wanted: Any) -> bool:
    if stored is None:
        return False
    read = READ.get(column, lambda value: value)
    if column == "price":
        wanted = Decimal(repr(wanted)) if isinstance(wanted, float) else Decimal(wanted)
    left, right = read(stored), read(wanted)
    return bool({"=": left == right, "$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[sign])  # fmt: skip


def chosen(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    for name, asked in wanted.items():
        column = name.strip('"')
        stored = row[column]
        if asked is None:
            fits = stored is None
        elif isinstance(asked, dict):
            fits = all(compared(column, stored, sign, value) for sign, value in asked.items())
        elif isinstance(asked, list):
            fits = any(stored is None if one is None else compared(column, stored, "=", one) for one in asked)
        else:
            fits = compared(column, stored, "=", asked)
        if not fits:
            return False
    return True


def values(name: str) -> st.SearchStrategy[Any]:
    """What a row has there, and what is near to that."""
    there = st.sampled_from([row[name.strip('"')] for row in ITEMS if row[name.strip('"')] is not None])
    if name == "price":
        return st.one_of(
            there.map(Decimal), there.map(float), st.integers(-5, 200), st.floats(-10, 300, allow_nan=False)
        )
    if name in ("small", "id", "order", "big"):
        return st.one_of(
            there, st.integers(-(10**20), 10**20), there.map(lambda value: value + 0.5), there.map(Decimal)
        )
    if name in ("ratio", "share"):
        drawn = st.one_of(there, st.floats(-50, 100), st.integers(-5, 50)).filter(lambda value: value == value)
        # What is too near to nought for a `real` is refused (test_ax_09_tables), as everything that a column cannot have.
        return drawn if name == "share" else drawn.filter(lambda value: value == 0 or as_real(value) != 0)
    if name in ("live", "mood", "key", "day"):
        return there
    return st.one_of(there, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6))


@st.composite
def filters(draw: st.DrawFn) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(COLUMNS), max_size=3, unique=True)):
        value = values(name)
        signs = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), value, min_size=1, max_size=2)
        wanted[name] = draw(st.one_of(value, st.none(), st.lists(st.one_of(value, st.none()), max_size=4), signs))
    return wanted


@pytest.mark.long
@settings(max_examples=400)
@given(wanted=filters())
@example(wanted={})
@example(wanted={"id": []})
@example(wanted={"id": {"$lte": 7}})
@example(wanted={"id": {"$gte": 7}})
@example(wanted={"id": {"$gt": 7, "$lt": 20}})
@example(wanted={"title": None, "live": [None, True]})
@example(wanted={"small": {"$gt": 2.5}, "big": {"$lt": 10**30}})
@example(wanted={"kind": "boot-and-more-than-eight"})
@example(wanted={"code": ["ab", "abcde", "x   "]})
@example(wanted={"share": {"$gte": 1e308}})
@example(wanted={"price": {"$gt": 1.125, "$lte": Decimal("2.250")}})
@example(wanted={"ratio": 0.14285714285714285})
@example(wanted={"mood": {"$gt": "sad"}})
def test_ax_09_a_filter_chooses_what_plain_python_chooses(db: VectorTables, wanted: dict[str, Any]) -> None:
    found = db.vector_search("shop.items", VECTOR, top_k=1_000, select=["id"], filter=wanted)
    assert [row["id"] for row in found] == [number for number in ORDER if chosen(ITEMS[number], wanted)]
