"""The ground itself: an oracle that accepts everything would prove nothing."""

from pathlib import Path

import pytest

from tests.conftest import Run
from tests.harness import oracle
from tests.harness.campaign import Campaign

GOOD = '{"__id":1,"id":"a","n":{"a":1e16,"b":[]},"__created_at":"x","__updated_at":"y"}'


@pytest.mark.parametrize(
    "bad",
    [
        GOOD.replace(":1,", ": 1,"),
        GOOD.replace('{"a":1e16,"b":[]}', '{"b":[],"a":1e16}'),
        GOOD.replace('"a","n"', '"\\u4e2d","n"'),
        GOOD.replace('"a","n"', '"\u202e","n"'),
        GOOD.replace('{"a":1e16,"b":[]}', "null"),
        '{"id":"a",' + GOOD[1:-1].replace('"id":"a",', "") + "}",
    ],
)
def test_the_oracle_refuses_a_line_that_is_not_canonical(bad: str) -> None:
    assert oracle.canonical(GOOD)
    assert not oracle.canonical(bad)


def test_the_oracle_sees_a_torn_line_a_repeated_id_and_what_is_left_over(notes: Path, run: Run) -> None:
    run("put", "Note", '{"id":"a","text":"中文 \u202e"}')
    (part,) = (notes / "data" / "nodes" / "note").rglob("*.jsonl")
    assert [record["id"] for record in oracle.records(notes).values()] == ["a"]
    assert oracle.leftovers(notes) == []
    whole, before = part.read_bytes(), oracle.digest(notes)
    for damaged in (whole[:-1], whole + whole):
        part.write_bytes(damaged)
        assert oracle.digest(notes) != before
        with pytest.raises(AssertionError):
            oracle.records(notes)
    (notes / ".duckkb" / "txn" / "one").mkdir(parents=True)
    (notes / ".duckkb" / "txn" / "one" / "journal").write_bytes(b"{}")
    (notes / "data" / "nodes" / "empty").mkdir()
    assert oracle.leftovers(notes) == [".duckkb/txn/one/journal", "data/nodes/empty"]


def test_figures_are_counted_by_name(campaign: Campaign) -> None:
    assert campaign.pick(1, 2) == (2 if campaign.full else 1)
    assert campaign.random("x").random() == campaign.random("x").random()
    campaign.count("tests of the ground")
    assert campaign.figures == {"tests of the ground": 1}
