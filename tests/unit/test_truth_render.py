"""Which bytes a changeset makes: one line of diff for one record, in a place that does not depend on chance."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duckkb.ontology.model import NodeType, Ontology
from duckkb.storage.layout import PartAddress, part_path
from duckkb.storage.line import Limits, LineShape, record_line
from duckkb.storage.read import list_changed_parts, load
from duckkb.storage.render import RenderedPart, Writer, fmt_parts, format_change, render
from duckkb.storage.strict_lines import hash_id
from duckkb.storage.tree import Tree
from duckkb.types.errors import Conflict, InvalidRecord, Unreadable
from duckkb.types.records import Change, Changeset, Record

T1, T2 = "2026-01-01T10:00:00.000000Z", "2026-01-02T10:00:00.000000Z"
PERSON = NodeType("Person", "person", ("name",), {})
ONTOLOGY = Ontology({"Person": PERSON})
SHAPE = LineShape(("name",))
DAY = "20260101"


def record(name: Any, at: str = T1, **fields: Any) -> Record:
    return Record("Person", hash_id("node", "person", (name,)), (name,), {"name": name, **fields}, at, at)


def line(each: Record) -> bytes:
    return record_line(each, SHAPE) + b"\n"


def inserts(records: Iterable[Record]) -> Changeset:
    return Changeset(tuple(Change(None, each) for each in records))


def path(number: int = 0, day: str = DAY) -> str:
    return part_path("node", "person", day, number)


def base(root: Path, files: dict[str, bytes] | None = None) -> Tree:
    for name, data in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return load(root, ONTOLOGY, Limits(max_record_bytes=100_000))


def bytes_of(parts: list[RenderedPart]) -> dict[str, bytes | None]:
    return {part.path: part.data for part in parts}


def apply(root: Path, tree: Tree, parts: list[RenderedPart]) -> None:
    """Write as the commit would, without its guarantees."""
    stored = {}
    for part in parts:
        file = root / part.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if part.data is None:
            file.unlink()
            stored[part.path] = None
        else:
            file.write_bytes(part.data)
            stored[part.path] = part.build_part(file.stat())
    tree.replace(stored)


def test_an_insert_goes_to_the_writers_part_of_its_day_of_creation(tmp_path: Path) -> None:
    ann, bo = record("Ann"), record("Bo", T2)
    parts = render(base(tmp_path), inserts([bo, ann]), Writer(7))
    assert bytes_of(parts) == {path(7): line(ann), path(7, "20260102"): line(bo)}
    assert [part.before for part in parts] == [None, None]


def test_dk_06_the_order_of_a_changeset_makes_no_difference(tmp_path: Path) -> None:
    kept = [record(f"k{n}") for n in range(5)]
    tree = base(tmp_path, {path(3): b"".join(map(line, kept))})
    changes = [Change(None, record(name, text="文" * 20)) for name in (9, 10, "b", "a", "中", "é", *range(20, 60))]
    changes += [Change(kept[0], None), Change(kept[1], replace(kept[1], fields={"name": "k1", "n": 1}))]
    writer = Writer(3, max_records=20, max_bytes=3_000)
    expected = bytes_of(render(tree, Changeset(tuple(changes)), writer))
    assert len(expected) > 2
    for seed in range(3):
        random.Random(seed).shuffle(changes)
        assert bytes_of(render(tree, Changeset(tuple(changes)), writer)) == expected


def test_lines_are_sorted_by_identity_numbers_first(tmp_path: Path) -> None:
    names = ["b", 10, "中", "B", 9, "é", "10", -1]
    (part,) = render(base(tmp_path), inserts(map(record, names)), Writer())
    assert [row.record.identity[0] for row in part.rows] == [-1, 9, 10, "10", "B", "b", "é", "中"]
    assert part.data == b"".join(row.line + b"\n" for row in part.rows)
    assert [row.line_no for row in part.rows] == list(range(1, 9))


def test_update_keeps_a_record_in_its_creation_day_file(tmp_path: Path) -> None:
    ann, bo = record("Ann"), record("Bo")
    tree = base(tmp_path, {path(4): line(ann) + line(bo)})
    new = replace(bo, fields={"name": "Bo", "text": "新"}, updated_at=T2)
    assert bytes_of(render(tree, Changeset((Change(bo, new),)), Writer(7))) == {path(4): line(ann) + line(new)}


def test_dk_07_unchanged_records_are_copied_as_their_bytes(tmp_path: Path) -> None:
    ann = record("Ann")
    odd = line(record("Odd", n=180.0, f=1e16, m=180))
    tree = base(tmp_path, {path(): line(ann) + odd})
    assert bytes_of(render(tree, inserts([record("Zoe")]), Writer())) == {path(): line(ann) + odd + line(record("Zoe"))}


def test_a_renamed_record_stays_in_its_file_with_its_id(tmp_path: Path) -> None:
    ann, bo = record("Ann"), record("Bo")
    tree = base(tmp_path, {path(4): line(ann) + line(bo)})
    new = replace(ann, identity=("Zoe",), fields={"name": "Zoe"})
    assert bytes_of(render(tree, Changeset((Change(ann, new),)), Writer())) == {path(4): line(bo) + line(new)}


def test_a_name_that_a_rename_vacates_may_be_taken_in_the_same_changeset(tmp_path: Path) -> None:
    ann = record("Ann")
    tree = base(tmp_path, {path(): line(ann)})
    moved = replace(ann, identity=("Zoe",), fields={"name": "Zoe"})
    fresh = replace(record("Ann"), id=5)
    parts = render(tree, Changeset((Change(None, fresh), Change(ann, moved))), Writer())
    assert bytes_of(parts) == {path(): line(fresh) + line(moved)}


def test_a_part_that_loses_its_last_record_is_deleted(tmp_path: Path) -> None:
    ann = record("Ann")
    tree = base(tmp_path, {path(): line(ann)})
    (part,) = render(tree, Changeset((Change(ann, None),)), Writer())
    assert (part.path, part.data, part.before) == (path(), None, tree.parts[path()].digest)


def test_equal_bytes_are_skipped(tmp_path: Path) -> None:
    ann = record("Ann")
    tree = base(tmp_path, {path(): line(ann)})
    assert render(tree, Changeset((Change(ann, ann),)), Writer()) == []
    assert render(tree, Changeset(), Writer()) == []


def test_a_full_part_overflows_into_the_next_number_and_goes_on_there(tmp_path: Path) -> None:
    tree = base(tmp_path)
    writer = Writer(998, max_records=2)
    apply(tmp_path, tree, render(tree, inserts(map(record, range(5))), writer))
    assert [part.path for part in tree.parts.values()] == [path(1000), path(998), path(999)]
    apply(tmp_path, tree, render(tree, inserts(map(record, range(5, 7))), writer))
    numbers = {PartAddress("node", "person", DAY, n).path: n for n in (998, 999, 1000, 1001)}
    filled = {numbers[part.path]: [row.record.identity[0] for row in part.rows] for part in tree.parts.values()}
    assert filled == {998: [0, 1], 999: [2, 3], 1000: [4, 5], 1001: [6]}


def test_a_part_takes_no_more_bytes_than_its_limit_but_one_large_record_has_its_own(tmp_path: Path) -> None:
    large, small = record("a", text="x" * 5_000), [record(f"b{n}") for n in range(3)]
    size = len(line(small[0]))
    parts = render(base(tmp_path), inserts([large, *small]), Writer(max_bytes=2 * size))
    assert bytes_of(parts) == {path(0): line(large), path(1): line(small[0]) + line(small[1]), path(2): line(small[2])}


def test_a_changeset_fills_the_room_that_it_makes(tmp_path: Path) -> None:
    ann, bo = record("Ann"), record("Bo")
    tree = base(tmp_path, {path(): line(ann) + line(bo)})
    changes = Changeset((Change(None, record("Cy")), Change(ann, None)))
    assert bytes_of(render(tree, changes, Writer(max_records=2))) == {path(): line(bo) + line(record("Cy"))}


def test_a_number_that_is_blocked_by_something_else_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / path(0)).mkdir(parents=True)
    assert list(bytes_of(render(base(tmp_path), inserts([record("a")]), Writer()))) == [path(1)]


def test_hand_written_lines_of_a_part_that_changes_are_completed(tmp_path: Path) -> None:
    tree = base(tmp_path, {path(): '{"text": "手", "name": "Ann"}\n\n'.encode()})
    (part,) = render(tree, inserts([record("Bo")]), Writer())
    ann = replace(
        record("Ann", text="手"), created_at="2026-01-01T00:00:00.000000Z", updated_at="2026-01-01T00:00:00.000000Z"
    )
    assert part.data == line(ann) + line(record("Bo"))
    assert all(row.complete and row.canonical for row in part.rows)


def test_fmt_completes_sorts_and_writes_canonically_and_then_finds_nothing(tmp_path: Path) -> None:
    raw = b'{"name":"b"}\n{"name": "a", "x": null}\n\n' + line(record("c"))[:-1]
    tree = base(tmp_path, {path(): raw, path(2): line(record("z"))})
    parts = fmt_parts(tree)
    assert [part.path for part in parts] == [path(0)]
    apply(tmp_path, tree, parts)
    again = base(tmp_path)
    assert fmt_parts(again) == fmt_parts(tree) == []
    assert [row.record.identity for row in again.rows(PERSON)] == [("a",), ("b",), ("c",), ("z",)]
    assert all(row.complete and row.canonical for row in again.rows(PERSON))


def test_an_incomplete_line_whose_id_is_taken_is_written_with_the_free_one(tmp_path: Path) -> None:
    taken = replace(record("a"), id=hash_id("node", "person", ("b",)))
    tree = base(tmp_path, {path(): line(taken) + b'{"name":"b"}\n'})
    (part,) = fmt_parts(tree)
    assert part.rows[1].record.id == hash_id("node", "person", ("b",), 1)
    apply(tmp_path, tree, [part])
    assert base(tmp_path).id_clashes(PERSON) == {}


def test_a_change_of_a_duplicate_leaves_one_line_at_the_first_place(tmp_path: Path) -> None:
    first, second = record("Ann", n=1), replace(record("Ann", m=2), updated_at=T2)
    tree = base(tmp_path, {path(1): line(first), path(2): line(second), path(3): line(record("Bo"))})
    row = tree.get(PERSON, ("Ann",))
    assert row is not None
    parts = render(tree, Changeset((Change(row.record, row.record),)), Writer())
    assert bytes_of(parts) == {path(1): row.line + b"\n", path(2): None}
    apply(tmp_path, tree, parts)
    assert base(tmp_path).duplicates(PERSON) == tree.duplicates(PERSON) == {}


def test_a_part_with_a_line_that_cannot_be_read_is_never_rewritten(tmp_path: Path) -> None:
    tree = base(tmp_path, {path(): line(record("Ann")) + b'{"name":\n'})
    with pytest.raises(Unreadable) as caught:
        render(tree, inserts([record("Bo")]), Writer())
    assert [found.place for found in caught.value.findings] == [f"{path()}:2"]


def test_changes_that_do_not_fit_what_is_stored_are_refused(tmp_path: Path) -> None:
    tree = base(tmp_path, {path(): line(record("Ann")) + line(record("Bo"))})
    renamed = replace(record("Ann"), identity=("Bo",), fields={"name": "Bo"})
    for change, code in [
        (Change(None, record("Ann")), "E_EXISTS"),
        (Change(record("Ann"), renamed), "E_EXISTS"),
        (Change(record("Cy"), None), "E_STALE"),
    ]:
        with pytest.raises(Conflict) as caught:
            render(tree, Changeset((change,)), Writer())
        assert caught.value.code == code


def test_a_line_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecord) as caught:
        render(base(tmp_path), inserts([record("a", text="内" * 40_000)]), Writer())
    assert caught.value.code == "E_TOO_LARGE"


def test_what_was_written_is_known_without_reading_it_again(tmp_path: Path) -> None:
    tree = base(tmp_path)
    apply(tmp_path, tree, render(tree, inserts(map(record, range(5))), Writer()))
    assert list_changed_parts(tree, tmp_path) == []
    fresh = base(tmp_path)
    assert list(tree.rows(PERSON)) == list(fresh.rows(PERSON))
    assert {name: part.digest for name, part in tree.parts.items()} == {
        name: part.digest for name, part in fresh.parts.items()
    }


def test_the_format_is_written_once(tmp_path: Path) -> None:
    assert format_change(tmp_path) == b'{"format":1}\n'
    (tmp_path / "data").mkdir()
    (tmp_path / "data/FORMAT.json").symlink_to(tmp_path / "nowhere")
    assert format_change(tmp_path) is None


def test_a_rename_onto_a_record_that_is_only_updated_is_refused(tmp_path: Path) -> None:
    ann, bo = record("Ann"), record("Bo")
    tree = base(tmp_path, {path(): line(ann) + line(bo)})
    moved = replace(ann, identity=("Bo",), fields={"name": "Bo"})
    with pytest.raises(Conflict):
        render(tree, Changeset((Change(bo, replace(bo, updated_at=T2)), Change(ann, moved))), Writer())
