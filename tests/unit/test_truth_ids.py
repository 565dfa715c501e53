"""Identities, the ids that follow from them, and times."""

import hashlib
import json

import pytest

from duckkb.ontology.model import EdgeType, NodeType
from duckkb.storage.strict_lines import (
    IdentityError,
    canonical_time,
    day_of,
    day_start,
    free_id,
    hash_id,
    identity_of,
    is_time,
    next_time,
)
from duckkb.types.records import Identity, TypedEnd

NODE = NodeType("Flight", "flight", ("carrier", "number"), {})
EDGE = EdgeType("Knows", "knows", ("since",), {}, from_types=("Person",), to_types=("Person", "Group"))


def by_the_book(kind: str, table: str, parts: str, salt: int = 0) -> int:
    """`parts` is the identity as it stands in the canonical JSON."""
    text = f'["duckkb/1","{kind}","{table}",{parts},{salt}]'
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) >> 11


@pytest.mark.parametrize(
    ("kind", "identity", "parts"),
    [
        ("node", ("Ann",), '["Ann"]'),
        ("node", (7,), "[7]"),
        ("node", ("7",), '["7"]'),
        ("node", ("内存",), '["内存"]'),
        ("node", ('a"\\b',), '["a\\"\\\\b"]'),
        ("node", ("CHE", -3), '["CHE",-3]'),
        ("edge", ("Ann", "Bo"), '["Ann","Bo"]'),
        ("edge", (("CHE", "FRA"), "Bo", 2), '[["CHE","FRA"],"Bo",2]'),
        ("edge", ("Ann", TypedEnd("Group", ("G1",))), '["Ann",{"id":"G1","type":"Group"}]'),
        ("edge", (TypedEnd("Group", ("G", 1)), "Ann"), '[{"id":["G",1],"type":"Group"},"Ann"]'),
    ],
)
def test_an_id_is_53_bits_of_the_hash_of_the_canonical_identity(kind: str, identity: Identity, parts: str) -> None:
    assert hash_id(kind, "t", identity) == by_the_book(kind, "t", parts)
    assert hash_id(kind, "t", identity, 3) == by_the_book(kind, "t", parts, 3)
    assert 0 < hash_id(kind, "t", identity) < 2**53


def test_dk_10_the_same_identity_has_the_same_id_everywhere_and_another_table_another_one() -> None:
    ids = {hash_id("node", "a", ("x",)), hash_id("node", "b", ("x",)), hash_id("edge", "a", ("x",))}
    assert len(ids) == 3
    assert hash_id("node", "a", ("x",)) in ids


def test_a_taken_id_gives_way_to_the_next_salt() -> None:
    vectors = [by_the_book("node", "t", '["a"]', salt) for salt in range(3)]
    assert free_id("node", "t", ("a",), set().__contains__) == vectors[0]
    assert free_id("node", "t", ("a",), {vectors[0], vectors[1]}.__contains__) == vectors[2]


def test_an_identity_is_read_in_the_order_of_the_ontology() -> None:
    assert identity_of(NODE, {"number": 7, "x": 1, "carrier": "LX"}) == ("LX", 7)
    assert identity_of(EDGE, {"from": "a", "to": {"type": "Group", "id": ["G", 1]}, "since": 1}) == (
        "a",
        TypedEnd("Group", ("G", 1)),
        1,
    )
    assert identity_of(EDGE, {"from": ["CHE", "FRA"], "to": "b", "since": "x"})[0] == ("CHE", "FRA")


def test_every_wrong_field_of_an_identity_is_named_at_once() -> None:
    with pytest.raises(IdentityError) as caught:
        identity_of(NODE, {"carrier": "e\u0301"})
    assert [(found.code, found.field) for found in caught.value.findings] == [
        ("E_IDENTITY", "/carrier"),
        ("E_IDENTITY", "/number"),
    ]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "value", [None, "", True, 1.0, [], {}, ["a"], "a\nb", "\u2028", "\u200e", "x" * 1025, "é" * 513, 2**63, "\ud800"]
)
def test_a_node_is_not_named_by(value: object) -> None:
    with pytest.raises(IdentityError):
        identity_of(NODE, {"carrier": value, "number": 1})


@pytest.mark.parametrize("value", ["x" * 1024, "é" * 512, " ", "../../etc/passwd", "-rf", "a\u200db", -(2**63), 0])
def test_a_node_may_be_named_by(value: object) -> None:
    assert identity_of(NODE, {"carrier": value, "number": 1}) == (value, 1)


def test_times_are_utc_with_six_digits_and_exist() -> None:
    assert canonical_time("2024-02-29T00:00:00.000000Z")
    for text in ("2023-02-29T00:00:00.000000Z", "2024-02-29T00:00:00Z", "2024-02-29 00:00:00.000000Z", ""):
        assert not canonical_time(text)
    assert not canonical_time("2024-02-29T00:00:00.000000Z\n")
    assert not is_time(["2024-02-29T00:00:00.000000Z"])


def test_the_day_of_a_time_and_its_first_moment() -> None:
    assert day_of("2026-01-31T23:59:59.999999Z") == "20260131"
    assert day_start("20260131") == "2026-01-31T00:00:00.000000Z"


def test_a_change_moves_its_time_on_even_where_the_clock_goes_backwards() -> None:
    old = "2026-01-01T00:00:00.999999Z"
    assert next_time("2026-01-01T00:00:02.000000Z", old) == "2026-01-01T00:00:02.000000Z"
    assert next_time("2025-01-01T00:00:00.000000Z", old) == "2026-01-01T00:00:01.000000Z"
    assert next_time(old, old) == "2026-01-01T00:00:01.000000Z"
    assert next_time("2026-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z") == "9999-12-31T23:59:59.999999Z"
    assert next_time("0001-01-01T00:00:00.000000Z", "0009-01-01T00:00:00.000000Z") == "0009-01-01T00:00:00.000001Z"


def test_canonical_json_of_the_hash_is_that_of_the_standard_library() -> None:
    text = json.dumps(["duckkb/1", "node", "t", ["é内\U0001f600"], 0], ensure_ascii=False, separators=(",", ":"))
    assert hash_id("node", "t", ("é内\U0001f600",)) == int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) >> 11
