"""Laws of the field merge, and the merge of sets and texts against models of a few lines."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.storage.field_merge import MergeRules, merge_record
from duckkb.storage.line import Limits, LineShape, decode, encode
from duckkb.storage.source_text import merge_duplicates, split

SHAPE = LineShape(("name",))
RULES = MergeRules(("name",), {"tags": "set", "body": "text"})
PLAIN = MergeRules(("name",))
FAST = settings(max_examples=200, deadline=None)

times = st.integers(1, 28).map(lambda day: f"2026-01-{day:02d}T00:00:00.000000Z")
values = st.sampled_from(["", "中文", 1, 180, 180.0, 1e16, True, [1], {"a": None}, "x\u2028"])
fields = st.dictionaries(st.sampled_from(["a", "b", "c", "Z", "中"]), values, max_size=4)
lines = st.lists(st.sampled_from(["甲", "b", "c", "d", "e"]), max_size=5)


def line(held: dict[str, Any], updated: str = "2026-01-01T00:00:00.000000Z", record_id: int = 7) -> bytes:
    created = "2026-01-01T00:00:00.000000Z"
    return encode({"__id": record_id, "name": "n", **held, "__created_at": created, "__updated_at": updated}, SHAPE)


records = st.builds(line, fields, times)
versions = st.none() | records


@given(versions, versions)
@FAST
def test_a_change_on_one_side_or_alike_on_both_is_taken(base: bytes | None, changed: bytes | None) -> None:
    for rules in (RULES, MergeRules(granularity="record")):
        assert merge_record(base, changed, base, rules).line == changed
        assert merge_record(base, base, changed, rules).line == changed
        assert merge_record(base, changed, changed, rules).line == changed


@given(versions, versions, versions)
@FAST
def test_a_merge_does_not_depend_on_its_direction(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> None:
    one, other = merge_record(base, ours, theirs, RULES), merge_record(base, theirs, ours, RULES)
    assert one.line == other.line
    assert {*one.conflicts} == {*other.conflicts}
    assert (one.alternatives or ())[::-1] == (other.alternatives or ())


measures = st.integers(-3, 3) | st.sampled_from(
    [0.5, 2.0, "2026-01-02", "2026-02-01", "2026-01-02T03:04:05+06:00", "x"]
)


@given(st.none() | measures, measures, measures, measures, st.sampled_from(["max", "min"]))
@FAST
def test_extremes_commute_repeat_to_nothing_and_group_in_any_way(old: Any, a: Any, b: Any, c: Any, rule: str) -> None:
    rules = MergeRules(("name",), {"x": rule})
    base = line({} if old is None else {"x": old})

    def both(one: bytes | None, other: bytes | None) -> bytes | None:
        return one and other and merge_record(base, one, other, rules).line

    one, two, three = (line({"x": each}) for each in (a, b, c))
    assert both(one, one) == one and both(one, two) == both(two, one)
    joined = both(one, two)
    assert joined in (None, one, two) and (joined is None or joined == base or both(joined, one) == joined)
    if base not in (one, two, three):  # a side that changed nothing yields, whatever it holds
        ways = {both(both(one, two), three), both(one, both(two, three)), both(both(three, one), two)}
        assert len(ways) == 1


@given(versions, records, records)
@FAST
def test_each_field_of_a_merge_is_what_the_table_says(base: bytes | None, ours: bytes, theirs: bytes) -> None:
    merged = merge_record(base, ours, theirs, PLAIN)
    old, mine, other = (json.loads(each) if each else {} for each in (base, ours, theirs))
    spelled = [{key: repr(held) for key, held in each.items()} for each in (old, mine, other)]
    torn = {*merged.conflicts}
    results = [json.loads(each) for each in (merged.alternatives or (merged.line,)) if each]
    for key in {**old, **mine, **other}:
        was, left, right = (each.get(key) for each in spelled)
        if key == "__updated_at" and left != right and was not in (left, right):
            assert {result[key] for result in results} == {max(mine[key], other[key])}
        elif left != right and was not in (left, right):
            assert key in torn
        else:
            wanted = left if was == right else right
            assert {repr(result[key]) if key in result else None for result in results} == {wanted}


@given(versions, records, records)
@FAST
def test_what_a_merge_writes_is_canonical(base: bytes | None, ours: bytes, theirs: bytes) -> None:
    merged = merge_record(base, ours, theirs, RULES)
    for each in (merged.line, *(merged.alternatives or ())):
        assert each is None or decode(each, SHAPE, Limits()).canonical


@given(st.permutations([("a", 1), ("b", 2), ("c", "中"), ("Z", None)]))
@FAST
def test_edits_of_different_fields_merge_to_one_result_in_any_order(edits: list[tuple[str, Any]]) -> None:
    held = {"a": 0, "b": 0, "Z": 0}
    base = result = line(held)
    for name, value in edits:
        branch = line({key: each for key, each in {**held, name: value}.items() if each is not None})
        merged = merge_record(base, result, branch, RULES)
        assert merged.line is not None
        result = merged.line
    assert result == line({"a": 1, "b": 2, "c": "中"})


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
@FAST
def test_sets_merge_as_sets(base: set[int], ours: set[int], theirs: set[int]) -> None:
    old, mine, other = (line({"tags": sorted(each)}) for each in (base, ours, theirs))
    merged = merge_record(old, mine, other, RULES)
    assert merged.line is not None
    assert set(json.loads(merged.line)["tags"]) == (base & ours & theirs) | ((ours | theirs) - base)


@given(lines, lines, lines)
@FAST
def test_a_clean_text_merge_holds_every_line_that_a_side_added_and_none_that_it_removed(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    old, mine, other = (line({"body": "\n".join(each)}) for each in (base, ours, theirs))
    merged = merge_record(old, mine, other, RULES)
    if merged.line is None:
        return
    found = set(json.loads(merged.line)["body"].split("\n"))
    for one, opposite in ((ours, theirs), (theirs, ours)):
        assert {each for each in one if each not in base} <= found
        removed = {each for each in base if each not in one and each not in opposite}
        assert not removed & found


@given(st.lists(lines, min_size=2, max_size=4).filter(lambda blocks: all(blocks)), st.data())
@FAST
def test_edits_of_blocks_apart_from_each_other_always_merge(blocks: list[list[str]], data: st.DataObject) -> None:
    def text(held: list[list[str]]) -> bytes:
        fenced = [f"--- {number} ---\n" + "\n".join(block) + "\n" for number, block in enumerate(held)]
        return line({"body": "".join(fenced)})

    first, second = data.draw(st.permutations(range(len(blocks))))[:2]
    ours, theirs, both = ([*blocks] for _ in range(3))
    ours[first] = both[first] = data.draw(lines)
    theirs[second] = both[second] = data.draw(lines)
    assert merge_record(text(blocks), text(ours), text(theirs), RULES).line == text(both)


@given(st.lists(st.builds(line, fields, times, st.integers(1, 12)), min_size=1, max_size=4), st.randoms())
@FAST
def test_duplicates_join_to_one_canonical_line_whatever_their_order(found: list[bytes], chance: Any) -> None:
    joined = merge_duplicates(found, ("name",))
    shuffled = [*found, *found]
    chance.shuffle(shuffled)
    assert merge_duplicates(shuffled, ("name",)) == joined == merge_duplicates([joined], ("name",))
    values = decode(joined, SHAPE, Limits())
    assert values.canonical
    held = [json.loads(each) for each in found]
    assert values.values.keys() == {key for each in held for key in each}
    assert values.values["__id"] == min(each["__id"] for each in held)
    assert values.values["__updated_at"] == max(each["__updated_at"] for each in held)


keys = st.sampled_from(["a", "中", '"', "\\", ",", "}", ""])
nested = st.recursive(values, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(keys, inside, max_size=3))


@given(st.dictionaries(keys, nested, max_size=5))
@FAST
def test_a_line_is_split_alike_with_blanks_and_without(held: dict[str, Any]) -> None:
    texts = {json.dumps(name): json.dumps(value, ensure_ascii=False) for name, value in held.items()}
    compact = "{" + ",".join(f"{name}:{value}" for name, value in texts.items()) + "}"
    spaced = "{ " + " , ".join(f"{name} :\t{value}" for name, value in texts.items()) + " }"
    assert (
        split(compact.encode()) == split(spaced.encode()) == {json.loads(name): (name, texts[name]) for name in texts}
    )


@given(st.dictionaries(keys, nested, min_size=1, max_size=3), st.data())
@FAST
def test_a_line_that_is_cut_or_goes_on_is_no_object(held: dict[str, Any], data: st.DataObject) -> None:
    whole = json.dumps(held, separators=(",", ":"))
    wrong = [whole[: data.draw(st.integers(0, len(whole) - 1))], whole + "}", whole[:-1] + ",}", whole[1:]]
    for text in wrong:
        with pytest.raises(ValueError):
            split(text.encode())
