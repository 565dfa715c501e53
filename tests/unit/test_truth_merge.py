"""The merge table, row by row, and what each rule does with a field."""

import json
from typing import Any

import pytest

from duckkb.storage.field_merge import MergeRules, merge_record
from duckkb.storage.line import Limits, LineShape, decode
from duckkb.storage.source_text import merge_duplicates, split

T1, T2, T3 = (f"2026-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3))
RULES = MergeRules(("name",), {"tags": "set", "body": "text"})


def line(updated: str = T1, created: str = T1, **fields: Any) -> bytes:
    ordered = {"__id": 7, "name": "n", **dict(sorted(fields.items())), "__created_at": created, "__updated_at": updated}
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode()


X, Y, Z = line(a=1), line(T2, a=2), line(T3, a=1, b=2)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        (X, X, X, X),
        (X, X, Y, Y),
        (X, Y, X, Y),
        (X, Y, Y, Y),
        (X, Y, Z, line(T3, a=2, b=2)),
        (X, None, X, None),
        (X, X, None, None),
        (X, None, None, None),
        (None, Y, None, Y),
        (None, None, Y, Y),
        (None, Y, Y, Y),
        (None, line(T1, a=1), line(T2, a=1, b=2), line(T2, a=1, b=2)),
    ],
)
def test_the_merge_table(base: bytes | None, ours: bytes | None, theirs: bytes | None, result: bytes | None) -> None:
    merged = merge_record(base, ours, theirs, RULES)
    assert (merged.line, merged.conflicts, merged.alternatives) == (result, (), None)


def test_deleting_what_the_other_side_changed_is_a_conflict() -> None:
    for ours, theirs in ((None, Y), (Y, None)):
        merged = merge_record(X, ours, theirs, RULES)
        assert merged.line is None
        assert merged.conflicts == ("",)
        assert merged.alternatives == (ours, theirs)


def test_a_field_that_both_changed_is_a_conflict_whose_alternatives_hold_the_clean_edits() -> None:
    merged = merge_record(line(a=1, b=1, c=1), line(T2, a=2, b=5, c=1), line(T3, a=3, b=1), RULES)
    assert merged.line is None
    assert merged.conflicts == ("a",)
    assert merged.alternatives == (line(T3, a=2, b=5), line(T3, a=3, b=5))


def test_removing_a_field_that_the_other_side_changed_is_a_conflict() -> None:
    merged = merge_record(line(a=1), line(T2), line(T2, a=2), RULES)
    assert merged.conflicts == ("a",)
    assert merged.alternatives == (line(T2), line(T2, a=2))


def test_absent_is_not_null() -> None:
    base = b'{"__id":7,"a":null,"name":"n"}'
    assert merge_record(base, b'{"__id":7,"name":"n"}', base, RULES).line == b'{"__id":7,"name":"n"}'
    merged = merge_record(base, b'{"__id":7,"name":"n"}', b'{"__id":7,"a":1,"name":"n"}', RULES)
    assert [*merged.conflicts] == ["a"]


def test_times_never_conflict_the_later_update_and_the_earlier_creation_win() -> None:
    merged = merge_record(None, line(T2, T2, a=1), line(T3, T1, a=1), RULES)
    assert merged.line == line(T3, T1, a=1)


def test_values_are_copied_as_source_text() -> None:
    base = b'{"__id":7,"name":"n","f":1.50,"g":[1, 2],"h":1e400}'
    ours = base.replace(b"1.50", b"1.500")
    theirs = base.replace(b"[1, 2]", b"[1,  3]")
    merged = merge_record(base, ours, theirs, RULES)
    assert merged.line == b'{"__id":7,"name":"n","f":1.500,"g":[1,  3],"h":1e400}'


def test_a_new_field_goes_to_its_place_after_the_identity() -> None:
    merged = merge_record(X, line(T2, a=1, z=1), line(T2, a=1, Age=1), RULES)
    assert merged.line == line(T2, Age=1, a=1, z=1)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        (["a", "b"], ["a", "b", "c"], ["a", "b", "d"], ["a", "b", "c", "d"]),
        (["a", "b"], ["a"], ["a", "b", "c"], ["a", "c"]),
        (["a", "b"], ["b"], ["a"], []),
        (["a"], ["a", "中"], ["中", "a", "b"], ["a", "b", "中"]),
        (None, ["a"], ["b"], ["a", "b"]),
    ],
)
def test_a_set_keeps_removals_removed_and_takes_additions_of_both(
    base: list[str] | None, ours: list[str], theirs: list[str], result: list[str]
) -> None:
    old = line(tags=base) if base is not None else line()
    for one, other in ((ours, theirs), (theirs, ours)):
        assert merge_record(old, line(T2, tags=one), line(T2, tags=other), RULES).line == line(T2, tags=result)


def test_a_set_that_is_no_array_on_one_side_is_a_conflict() -> None:
    merged = merge_record(line(tags=["a"]), line(T2, tags="a"), line(T2, tags=["b"]), RULES)
    assert [*merged.conflicts] == ["tags"]


def test_texts_merge_line_by_line() -> None:
    base = "一\ntwo\nthree\nfour\n"
    ours, theirs = "一。\ntwo\nthree\nfour\n", "一\ntwo\nthree\nfour\u2028\nfive"
    merged = merge_record(line(body=base), line(T2, body=ours), line(T2, body=theirs), RULES)
    assert merged.line is not None
    decoded = decode(merged.line, LineShape(("name",)), Limits())
    assert decoded.canonical
    assert decoded.values["body"] == "一。\ntwo\nthree\nfour\u2028\nfive"


@pytest.mark.parametrize("theirs", ["one\nTWO!\n", "one\n", "", 5])
def test_texts_that_overlap_are_a_conflict(theirs: object) -> None:
    merged = merge_record(line(body="one\ntwo\n"), line(T2, body="one\nTWO\n"), line(T2, body=theirs), RULES)
    assert [*merged.conflicts] == ["body"]


@pytest.mark.parametrize(
    ("base", "low", "high"),
    [
        (0, 2, 10),
        (5, -1, 1.5),
        (None, 9007199254740992.0, 9007199254740993),
        ("2026-01-01", "2026-01-02", "2026-01-10"),
        ("2026", "2026-09", "2026-11"),
        ("t", "2026-01-01T00:00:00+08:00", "2025-12-31T17:00:00Z"),
        ("t", "2026-01-01T00:00:00.45Z", "2026-01-01T00:00:00.5z"),
    ],
)
def test_the_greater_and_the_smaller_of_two_values_is_taken_by_what_they_mean(base: Any, low: Any, high: Any) -> None:
    old = line(a=base)
    for rule, wanted in (("max", high), ("min", low)):
        for sides in ((low, high), (high, low)):
            merged = merge_record(old, *(line(T2, a=each) for each in sides), MergeRules(("name",), {"a": rule}))
            assert merged.line == line(T2, a=wanted)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(1, "1"), (True, 2), (None, 2), ("1.10", "1.9"), ("02.01.2026", "01.02.2026"), ("2026", "2026-01"),
     ("2026-01-01T00:00:00", "2026-01-01T00:00:01"), ("2026-13-01T00:00:00Z", "2026-01-01T00:00:01Z"), ([1], [2])],
)  # fmt: skip
def test_values_without_an_order_that_they_tell_are_a_conflict(ours: Any, theirs: Any) -> None:
    for rule in ("max", "min"):
        merged = merge_record(line(a=0), line(T2, a=ours), line(T2, a=theirs), MergeRules(("name",), {"a": rule}))
        assert [*merged.conflicts] == ["a"]


def test_the_side_that_was_changed_later_is_taken_and_equal_times_are_a_conflict() -> None:
    rules = MergeRules(("name",), {"a": "latest"})
    for sides in ((line(T2, a=2), line(T3, a=3)), (line(T3, a=3), line(T2, a=2))):
        assert merge_record(line(a=1), *sides, rules).line == line(T3, a=3)
    assert merge_record(line(a=1), line(T2, a=2), line(T3), rules).line == line(T3), "it was removed last"
    untimed = b'{"__id":7,"name":"n","a":9}'
    for theirs in (line(T2, a=3), line("later", a=3), untimed):
        merged = merge_record(line(a=1), line(T2, a=2), theirs, rules)
        assert [name for name in merged.conflicts if name[:1] != "_"] == ["a"]


def test_ours_is_taken_where_both_sides_changed_and_only_there() -> None:
    rules = MergeRules(("name",), {"a": "ours"})
    assert merge_record(line(a=1), line(T2, a=2), line(T3, a=3, b=1), rules).line == line(T3, a=2, b=1)
    assert merge_record(line(a=1), line(T2), line(T3, a=3), rules).line == line(T3)
    assert merge_record(line(a=1), line(T2, a=1, b=1), line(T3, a=3), rules).line == line(T3, a=3, b=1)


def test_a_rule_that_is_not_known_settles_nothing() -> None:
    merged = merge_record(line(a=1), line(T2, a=2), line(T2, a=3), MergeRules(("name",), {"a": "theirs", "b": "newer"}))
    assert [*merged.conflicts] == ["a"]


def test_records_of_an_unknown_table_merge_whole() -> None:
    merged = merge_record(X, Y, Z, MergeRules(granularity="record"))
    assert merged.line is None
    assert merged.alternatives == (Y, Z)
    assert merge_record(X, X, Z, MergeRules(granularity="record")).line == Z


def test_duplicates_join_field_by_field_and_the_later_wins() -> None:
    first, second = line(T3, T2, a=1, b="old"), line(T2, T1, a=2, c="中文")
    for lines in ([first, second], [second, first]):
        assert merge_duplicates(lines, ("name",)) == line(T3, T1, a=1, b="old", c="中文")


def test_duplicates_with_two_ids_take_the_smaller_number() -> None:
    lines = [line(T3).replace(b'"__id":7', b'"__id":10'), line(T1).replace(b'"__id":7', b'"__id":9')]
    assert split(merge_duplicates(lines, ("name",)))["__id"][1] == "9"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"a":1', b'{"a":1,}', b'{"a" 1}', b'{"a":1}x', b'{"a":1,"a":1}', b"{1:2}", b'{"a":\xff}',
            b'{"a":' + b"[" * 100_000]
)  # fmt: skip
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        split(raw)


@pytest.mark.parametrize("count", [50, 6_000])
def test_texts_of_many_equal_lines_are_merged_where_each_side_changed_another(count: int) -> None:
    """So many that each pair of equal lines cannot be looked at."""

    def text(**changed: str) -> str:
        at = {"ours": 10, "theirs": count - 10}
        lines = ["| |"] * count
        for side, word in changed.items():
            lines[at[side]] = word
        return "\n".join(lines) + "\n"

    base, ours, theirs = (line(T1, body=text(**told)) for told in ({}, {"ours": "a"}, {"theirs": "b"}))
    merged = merge_record(base, ours, theirs, RULES)
    assert not merged.conflicts and json.loads(merged.line)["body"] == text(ours="a", theirs="b")
