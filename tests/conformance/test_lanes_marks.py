"""A search narrowed by a condition on texts gives what is picked by ids out of all results, however odd the texts are."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.id_set import IdSet
from duckkb.ontology.model import NodeType, Ontology, SearchField
from duckkb.ports import Row
from duckkb.types.queries import LexicalQuery
from tests.conformance.lane_suite import STRING, Held, row

MARKED = NodeType(
    "Marked",
    "marked",
    ("name",),
    {"properties": {"name": STRING, "topic": STRING, "side": STRING, "body": STRING, "size": {"type": "integer"}}},
    full_text=(SearchField("body"),),
)
ODD = (
    *(
        "rivers",
        "Rivers",
        "rivers ",
        " rivers",
        "",
        " ",
        "it's",
        "内存",
        "e\u0301",
        "\u00e9",
        "a\tb",
        "a\nb",
        "%",
        "topic",
    ),
    *("x" * 64, "x" * 65, "x" * 63 + "é", "内" * 21, "内" * 22, "side\0left"[:4], "🦆"),
)
QUERY = LexicalQuery("red green blue")
MANY = 2_000


def records() -> dict[int, tuple[str, str, str]]:
    """By id: topic, side, body. Most have a topic of their own, so that those that share one are few."""
    found = {}
    for number in range(1, MANY):
        topic = ODD[number // 40 % len(ODD)] if number % 40 == 0 or number % 97 == 0 else f"own {number}"
        words = ["red"] * (number % 5 + 1) + ["green"] * (number % 3) + ["blue"] * (number % 7)
        found[number] = topic, "left" if number % 2 else "right", " ".join(words)
    return found


def made(number: int, topic: str, side: str, body: str) -> Row:
    return row(number, MARKED, topic=topic, side=side, body=body, embedded=False)


@cache
def lanes() -> Held:
    built = Held(ontology=Ontology({"Marked": MARKED}))
    built.load(MARKED, [made(number, *values) for number, values in records().items()])
    return built


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("topic", ODD, ids=ascii)
@pytest.mark.parametrize("side", [None, "left"])
def test_a_condition_on_texts_narrows_as_its_ids_do(topic: str, side: str | None) -> None:
    wanted = {number for number, values in records().items() if values[0] == topic and side in (None, values[1])}
    condition = f"topic = {quoted(topic)}" + (f" AND side = {quoted(side)}" if side else "")
    allowed = lanes().where(MARKED, condition)
    assert set(allowed) == wanted
    assert wanted or side
    for depth in (1, 10, 50):
        assert lanes().match(MARKED, QUERY, depth, allowed) == lanes().match(
            MARKED, QUERY, depth, IdSet.from_ids(wanted)
        )


def test_only_conditions_that_ask_for_texts_alone_name_them() -> None:
    named = {
        condition: lanes().where(MARKED, condition).texts
        for condition in ("topic = 'a'", "topic = 'a' AND side = 'left'", "topic <> 'a'", "topic IN ('a')", "size = 1")
    }
    assert named == {
        "topic = 'a'": (("topic", "a"),),
        "topic = 'a' AND side = 'left'": (("topic", "a"), ("side", "left")),
        "topic <> 'a'": (),
        "topic IN ('a')": (),
        "size = 1": (),
    }
    some = lanes().where(MARKED, "topic = 'rivers'")
    assert some.texts
    assert not some.difference([min(some)]).texts
    assert not some.intersection(IdSet.from_ids([min(some)])).texts


@given(
    changes=st.lists(st.tuples(st.integers(1, 60), st.sampled_from(("rivers", "seas", "")), st.booleans()), max_size=8)
)
@settings(max_examples=25, deadline=None)
def test_marks_follow_changes(changes: list[tuple[int, str, bool]]) -> None:
    known = {number: ("rivers" if number % 20 == 0 else f"own {number}", "left", "red") for number in range(1, 900)}
    changed = Held(ontology=Ontology({"Marked": MARKED}))
    changed.load(MARKED, [made(number, *values) for number, values in known.items()])
    changed.match(MARKED, QUERY, 5)
    for number, topic, stays in changes:
        known.pop(number, None)
        if stays:
            known[number] = topic, "left", "red"
        changed.apply(MARKED, [made(number, *known[number])] if stays else [], [] if stays else [number])
    for topic in ("rivers", "seas"):
        allowed = changed.where(MARKED, f"topic = '{topic}'")
        hits = changed.match(MARKED, QUERY, 20, allowed)
        right = sorted(number for number, values in known.items() if values[0] == topic)
        assert sorted(hit.id for hit in hits) == right[:20] if len(right) <= 20 else len(hits) == 20
        assert {hit.id for hit in hits} <= set(right)
