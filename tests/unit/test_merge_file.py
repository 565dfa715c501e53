"""Three versions of a table's parts: what is merged over files, what conflicts, and which bytes come out."""

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.storage import merge_rules
from duckkb.storage.field_merge import MergeRules
from duckkb.storage.merge_rules import Block, RulesByTable
from duckkb.storage.table_merge import Unmergeable, merge_table

P, Q, R = (f"data/nodes/note/2026010{day}/part_000.jsonl" for day in (1, 2, 3))
NOTE = MergeRules(("id",), {"tags": "set"}, name="Note")
UNKNOWN = RulesByTable().get_rules(("node", "note"))


def line(number: int, name: Any, updated: int = 1, **fields: Any) -> bytes:
    told = {
        "__id": number,
        "id": name,
        **dict(sorted(fields.items())),
        "__created_at": "c",
        "__updated_at": f"t{updated}",
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def part(*lines: bytes) -> bytes:
    return b"".join(one + b"\n" for one in lines)


A, B, C = line(1, "a"), line(2, "b"), line(3, "c")


def test_edits_of_neighbours_and_of_two_fields_of_one_record_are_merged() -> None:
    ours, theirs = line(1, "a", 2, x=1), line(1, "a", 3, y=2)
    merged = merge_table({P: part(A, B)}, {P: part(ours, B)}, {P: part(theirs, line(2, "b", 4))}, NOTE)
    assert merged.parts == {P: part(line(1, "a", 3, x=1, y=2), line(2, "b", 4))}
    assert merged.conflicts == ()


def test_a_record_that_moved_on_one_side_takes_the_edit_of_the_other_with_it() -> None:
    edited = line(1, "a", 2, x=1)
    for ours, theirs in (
        ({P: part(B), Q: part(A)}, {P: part(edited, B)}),
        ({P: part(edited, B)}, {P: part(B), Q: part(A)}),
    ):
        assert merge_table({P: part(A, B)}, ours, theirs, NOTE).parts == {P: part(B), Q: part(edited)}


def test_a_record_that_both_added_stands_once_in_the_first_of_the_two_parts() -> None:
    merged = merge_table({}, {Q: part(A, B)}, {R: part(line(1, "a", 2), C)}, NOTE)
    assert merged.parts == {Q: part(line(1, "a", 2), B), R: part(C)}


def test_a_part_of_which_both_sides_took_their_half_is_gone() -> None:
    assert merge_table({P: part(A, B)}, {P: part(A)}, {P: part(B)}, NOTE).parts == {P: None}


def test_lines_stand_in_the_order_of_their_identities() -> None:
    numbers = {n: line(number, name) for number, (n, name) in enumerate({"two": 2, "ten": 10, "text": "1"}.items(), 1)}
    merged = merge_table({}, {P: part(numbers["ten"])}, {P: part(numbers["two"], numbers["text"])}, NOTE)
    assert merged.parts[P] == part(numbers["two"], numbers["ten"], numbers["text"])


def test_what_only_one_side_changed_keeps_its_bytes_in_order_or_not() -> None:
    unsorted = part(C, A, B)
    for ours, theirs in ((unsorted, part(A, B, C)), (part(A, B, C), unsorted)):
        assert merge_table({P: part(A, B, C)}, {P: ours}, {P: theirs}, NOTE).parts[P] == unsorted


def test_only_the_record_in_conflict_is_marked_and_both_sides_hold_the_clean_edits() -> None:
    base = line(1, "a", x=1, y=1)
    ours, theirs = line(1, "a", 2, x=2, y=1), line(1, "a", 3, x=3, y=4)
    merged = merge_table({P: part(base, B)}, {P: part(ours, line(2, "b", 5))}, {P: part(theirs, B, C)}, NOTE)
    block = Block(base, line(1, "a", 3, x=2, y=4), line(1, "a", 3, x=3, y=4))
    assert [(one.path, one.identity, one.block) for one in merged.conflicts] == [(P, "a", block)]
    assert merge_rules.read_blocks(merged.parts[P] or b"") == [block, line(2, "b", 5), C]
    assert (merged.parts[P] or b"").startswith(b"<<<<<<< ours")
    assert block.open_fields(NOTE) == ("x",)


def test_a_table_that_nobody_knows_merges_whole_records_and_keeps_its_order() -> None:
    merged = merge_table({P: part(C, A)}, {P: part(C, B, A)}, {P: part(C, line(1, "a", 2), line(4, "d"))}, UNKNOWN)
    assert merged.parts[P] == part(C, B, line(1, "a", 2), line(4, "d"))
    torn = merge_table({P: part(A)}, {P: part(line(1, "a", 2, x=1))}, {P: part(line(1, "a", 3, y=1))}, UNKNOWN)
    assert [(one.identity, one.block.open_fields(UNKNOWN)) for one in torn.conflicts] == [("#1", ("",))]


def test_a_line_without_an_id_is_the_record_whose_id_it_will_get() -> None:
    completed = line(1736226034780775, "a", 2)  # what SHA-256 says of ["duckkb/1","node","note",["a"],0]
    merged = merge_table({P: b'{"id":"a"}\n'}, {P: part(completed)}, {P: b'{"id":"a"}\n' + part(B)}, NOTE)
    assert merged.parts == {P: part(completed, B)}


@pytest.mark.parametrize(
    "broken", [b"<<<<<<< HEAD\n", b"version https://git-lfs\n", b'{"id":"a"\n', b"[]\n", b'{"__id":"1"}\n']
)
def test_a_part_with_a_line_that_is_no_record_is_not_merged_by_records(broken: bytes) -> None:
    with pytest.raises(Unmergeable):
        merge_table({P: part(A)}, {P: part(A) + broken}, {P: part(A, B)}, NOTE)


def test_an_id_that_stands_twice_is_merged_where_it_stands() -> None:
    base = {P: part(A), Q: part(A)}
    mended = {P: part(A)}
    assert merge_table(base, mended, base, NOTE).parts == {P: part(A), Q: None}
    edited = {P: part(A), Q: part(line(1, "a", 2, x=1))}
    assert [one.path for one in merge_table(base, mended, edited, NOTE).conflicts] == [Q]


def test_as_a_base_a_conflict_is_what_it_was_before() -> None:
    base = line(1, "a", x=1)
    sides = {P: part(line(1, "a", 2, x=2, y=1))}, {P: part(line(1, "a", 3, x=3, z=1))}
    assert merge_table({P: part(base)}, *sides, NOTE, is_base=True).parts == {P: part(line(1, "a", 3, x=1, y=1, z=1))}
    assert merge_table({P: part(A)}, {}, {P: part(line(1, "a", 2, x=1))}, NOTE, is_base=True).parts == {P: part(A)}


def test_rules_survive_being_written_down_and_nothing_else_is_taken_for_them(tmp_path: Any) -> None:
    rules = RulesByTable({("node", "note"): NOTE, ("edge", "cites"): MergeRules(("from", "to"), {}, "record", "cites")})
    file = tmp_path / merge_rules.FILE
    file.parent.mkdir()
    file.write_bytes(merge_rules.dump(rules))
    assert merge_rules.load(tmp_path) == rules
    for held in (
        b"",
        b"{}",
        b"[]",
        b'{"format":2,"tables":{}}',
        b'{"format":1,"tables":{"note":{}}}',
        b"\xff",
        b"[" * 9999,
    ):
        file.write_bytes(held)
        assert merge_rules.load(tmp_path) == RulesByTable()
    file.unlink()
    assert merge_rules.load(tmp_path) == RulesByTable()


records = st.sampled_from([A, line(1, "a", 2, x=1), line(1, "a", 3, y=1), line(1, "z", 4)])
others = st.sampled_from([B, line(2, "b", 2, x=1), line(2, "a", 3)])
places = st.sampled_from([P, Q])


@st.composite
def versions(draw: st.DrawFn) -> dict[str, bytes]:
    found: dict[str, list[bytes]] = {}
    for kind in (records, others):
        if draw(st.booleans()):
            found.setdefault(draw(places), []).append(draw(kind))
    return {
        path: part(*sorted(lines, key=lambda one: (json.loads(one)["id"], json.loads(one)["__id"])))
        for path, lines in found.items()
    }


@given(versions(), versions(), versions())
@settings(max_examples=300)
def test_both_directions_of_a_merge_give_the_same(
    base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes]
) -> None:
    one, other = merge_table(base, ours, theirs, NOTE), merge_table(base, theirs, ours, NOTE)
    named = [sorted((each.path, each.block.open_fields(NOTE)) for each in way.conflicts) for way in (one, other)]
    assert named[0] == named[1]
    if not one.conflicts:
        assert one.parts == other.parts


@given(versions(), versions())
@settings(max_examples=200)
def test_a_side_that_changed_nothing_yields_to_the_other(base: dict[str, bytes], changed: dict[str, bytes]) -> None:
    for sides in permutations((base, changed)):
        merged = merge_table(base, *sides, NOTE)
        assert {path: data for path, data in merged.parts.items() if data is not None} == changed


@given(versions(), versions(), versions(), st.integers(7, 20))
@settings(max_examples=200)
def test_what_is_marked_is_read_back(
    base: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes], size: int
) -> None:
    for one in merge_table(base, ours, theirs, NOTE).conflicts:
        held: list[bytes | Block] = [A, one.block, B]
        assert merge_rules.read_blocks(merge_rules.join_blocks(held, size)) == held
        assert merge_rules.has_markers(merge_rules.join_blocks(held, size))
