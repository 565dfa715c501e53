"""Filters over values that columns cannot hold as they are: moments in text, whole numbers past what a double holds."""

from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app.knowledge import KnowledgeBase

CONFIG = """
global: {embedding_model: none}
nodes:
  D:
    table: d
    identity: id
    schema: {type: object, properties: {id: {type: string}, ts: {type: string, format: date-time}, s: {type: string}}, required: [id]}
"""
EAST = "2024-01-31T00:00:00+02:00"
BIG = 1234567890123456789
RECORDS = [
    {"id": "east", "ts": EAST, "s": EAST, "u": EAST, "o": {"at": EAST}},
    {"id": "utc", "ts": "2024-01-30T23:30:00Z"},
    {"id": "fine", "ts": "2010-01-31T00:00:00.123456789Z"},
    {"id": "leap", "ts": "2016-12-31T23:59:60Z"},
    {"id": "big", "n": BIG, "o": {"n": BIG}},
    {"id": "next", "n": BIG + 1, "o": {"n": BIG + 1}},
    {"id": "half", "n": 1.5, "o": {"n": 2.5}},
    {"id": "word", "n": "x", "o": {"n": "1e300"}},
]


def opened(home: Path, records: list[dict[str, Any]]) -> KnowledgeBase:
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    made = duckkb.open(home)
    made.put("D", records)
    return made


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return opened(tmp_path_factory.mktemp("odd"), RECORDS)


@pytest.mark.parametrize(
    "condition, wanted",
    [
        ("ts > '2024-01-30T23:00:00Z'", "utc"),
        ("ts = '2024-01-30T22:00:00Z'", "east"),
        ("ts = '2017-01-01T00:00:00Z'", "leap"),
        ("ts = '2010-01-31T00:00:00.123456Z'", "fine"),
        ("u = ts", "east"),
        ("s = ts", "east"),
        ("o.at = ts", "east"),
        ("s::TIMESTAMP = ts", "east"),
        ("u::DATE = '2024-01-30'", "east"),
        ("date_part('hour', s) = 22", "east"),
        ("u < TIMESTAMP '2024-01-30 23:00:00'", "east"),
        (f"n = {BIG}", "big"),
        (f"n IN ({BIG}, 7)", "big"),
        (f"n BETWEEN {BIG + 1} AND {BIG + 2}", "next"),
        (f"n < {BIG + 1}", "big half"),
        (f"o.n = {BIG + 1}", "next"),
        (f"o.n > {BIG}", "next word"),
        (f"o.n < {BIG}", "half"),
        (f"CAST(n AS BIGINT) = {BIG}", "big"),
        ("CAST(o.n AS BIGINT) = 2", "half"),
    ],
)
def test_a_filter_finds_what_the_values_are(kb: KnowledgeBase, condition: str, wanted: str) -> None:
    assert {hit.identity for hit in kb.find("D", where=condition)} == set(wanted.split())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """Numbers that lie in JSON: one field is undeclared and `q`, another has a text among them, others are nested."""
    records = [
        {"id": "a", "q": 2, "m": 10, "o": {"used": 10, "limit": 9, "n": 10, "zip": "10"}},
        {"id": "b", "q": 10, "m": 9, "o": {"used": 1, "limit": 9, "n": 10.0, "zip": "9"}},
        {"id": "c", "q": 100, "m": "word", "o": {"used": "x", "limit": "b", "n": BIG}},
        {"id": "d", "o": {"n": BIG + 1, "m": BIG}},
    ]
    return opened(tmp_path_factory.mktemp("mixed"), records)


@pytest.mark.parametrize(
    "condition, wanted",
    [
        ("o.used > o.limit", "a c"),
        ("q = o.n", "b"),
        ("o.n <> o.m", "d"),
        ("o.used BETWEEN o.limit AND 20", "a"),
        ("greatest(q, 50) = 100", "c"),
        ("least(q, 9) = 9 AND q > 1", "b c"),
        ("m = 'word'", "c"),
    ],
)
def test_json_is_compared_as_numbers_where_both_are(mixed: KnowledgeBase, condition: str, wanted: str) -> None:
    assert {hit.identity for hit in mixed.find("D", where=condition)} == set(wanted.split())


@pytest.mark.parametrize(
    "statement, wanted",
    [
        ("SELECT id FROM d ORDER BY q DESC NULLS LAST", "c b a d"),
        ("SELECT id FROM d ORDER BY m NULLS LAST", "b a c d"),
        ("SELECT id, q AS m FROM d ORDER BY m DESC NULLS LAST", "c b a d"),
        ("SELECT id AS q FROM d ORDER BY q", "a b c d"),
        ("SELECT id, q FROM d ORDER BY 2 NULLS LAST", "a b c d"),
        ("SELECT *, q AS z FROM d ORDER BY 2", "a b c d"),
        ("SELECT id FROM d WHERE q = (SELECT max(q) FROM d)", "c"),
        ("SELECT id FROM d WHERE q = (SELECT min(q) FROM d)", "a"),
        ("SELECT arg_max(id, q) FROM d", "c"),
        ("SELECT id FROM d WHERE o.zip IS NOT NULL ORDER BY o.zip", "a b"),
        ("SELECT arg_max(id, m) FROM d", "c"),
        ("SELECT arg_min(id, m) FROM d", "b"),
        ("SELECT max_by(id, m) FILTER (WHERE id <> 'c') FROM d", "a"),
        ("SELECT max_by(id, q) FILTER (WHERE id <> 'c') FROM d", "b"),
        ("SELECT id FROM d QUALIFY row_number() OVER (ORDER BY q DESC NULLS LAST) = 1", "c"),
        ("SELECT id FROM d QUALIFY q = max(q) OVER ()", "c"),
        ("SELECT arg_max(id, q) OVER (PARTITION BY q IS NULL) FROM d WHERE q < 50 ORDER BY q", "b b"),
        ("SELECT id FROM d GROUP BY id, q HAVING max(q) > 9 ORDER BY q", "b c"),
    ],
)
def test_statements_order_json_by_number(mixed: KnowledgeBase, statement: str, wanted: str) -> None:
    found = mixed.sql(statement)
    at = next((at for at, name in enumerate(found.columns) if name == "id"), 0)
    assert [row[at] for row in found.rows] == wanted.split()
