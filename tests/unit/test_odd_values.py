"""Filters over values that columns cannot hold as they are: moments in text, whole numbers past what a double holds."""

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


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    home = tmp_path_factory.mktemp("odd")
    (home / "config.yaml").write_text(CONFIG, "utf-8")
    opened = duckkb.open(home)
    opened.put("D", RECORDS)
    return opened


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
