"""Reading a folder of parts: what is loaded, what is a finding, and how a record is found."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from duckkb.ontology.model import EdgeType, NodeType, Ontology
from duckkb.storage.line import Limits, LineShape, decode, encode
from duckkb.storage.part import Stamp
from duckkb.storage.read import list_changed_parts, load, read_part, reload
from duckkb.storage.strict_lines import hash_id
from duckkb.storage.tree import Ambiguous, Tree
from duckkb.types.records import TypedEnd

T1, T2 = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"
PERSON = NodeType("Person", "person", ("name",), {})
GROUP = NodeType("Group", "group", ("name",), {})
AIRPORT = NodeType("Airport", "airport", ("country", "code"), {})
KNOWS = EdgeType("Knows", "knows", (), {}, from_types=("Person",), to_types=("Person", "Group"))
FLIES = EdgeType("Flies", "flies", ("number",), {}, from_types=("Airport",), to_types=("Airport",))
ONTOLOGY = Ontology(
    {kind.name: kind for kind in (PERSON, GROUP, AIRPORT)}, {kind.name: kind for kind in (KNOWS, FLIES)}
)
LIMITS = Limits()
P0 = "data/nodes/person/20260101/part_000.jsonl"
P1 = "data/nodes/person/20260101/part_001.jsonl"
G0 = "data/nodes/group/20260101/part_000.jsonl"
K0 = "data/edges/knows/20260101/part_000.jsonl"


def node(kind: NodeType | EdgeType, *identity: Any, at: str = T1, id: int | None = None, **fields: Any) -> bytes:
    named = dict(zip(kind.identity_fields, identity, strict=True))
    number = id or hash_id(kind.kind, kind.table, tuple(map(frozen, identity)))
    times = {"__created_at": T1, "__updated_at": at}
    return encode({"__id": number, **named, **fields, **times}, LineShape(kind.identity_fields))


def frozen(component: Any) -> Any:
    match component:
        case dict():
            return TypedEnd(component["type"], (component["id"],))
        case list():
            return tuple(component)
        case _:
            return component


def put(root: Path, path: str, *lines: bytes | str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return file


def read(root: Path) -> Tree:
    return load(root, ONTOLOGY, LIMITS)


def test_an_absent_or_empty_folder_is_an_empty_tree(tmp_path: Path) -> None:
    assert (read(tmp_path).parts, read(tmp_path).findings) == ({}, [])
    (tmp_path / "data/nodes/person/20260101").mkdir(parents=True)
    assert (read(tmp_path).parts, read(tmp_path).findings) == ({}, [])


def test_a_record_is_found_by_identity_and_by_id_with_its_line(tmp_path: Path) -> None:
    line = node(PERSON, "安娜", text="", tags=["x"])
    put(tmp_path, P0, line)
    tree = read(tmp_path)
    row = tree.get(PERSON, ("安娜",))
    assert row is not None
    assert (row.line, row.path, row.line_no, row.complete, row.canonical) == (line, P0, 1, True, True)
    assert row.record.fields == {"name": "安娜", "text": "", "tags": ["x"]}
    assert (row.record.type, row.record.created_at, row.record.updated_at) == ("Person", T1, T1)
    assert tree.find_by_id(PERSON, row.record.id) == row
    assert tree.get(PERSON, ("Anna",)) is None and tree.find_by_id(PERSON, 1) is None
    assert tree.count(PERSON) == 1 and tree.count(GROUP) == 0
    part = tree.parts[P0]
    assert part.digest == hashlib.sha256(line + b"\n").hexdigest()
    assert part.canonical and part.sorted


def test_lines_are_split_at_lf_alone(tmp_path: Path) -> None:
    put(tmp_path, P0, '{"name":"a","text":"x\u2028y\u0085z\x0b"}'.replace("\x0b", "\\u000b"))
    assert [row.record.fields["text"] for row in read(tmp_path).rows(PERSON)] == ["x\u2028y\x85z\x0b"]


def test_a_hand_written_line_gets_the_same_id_and_times_each_time(tmp_path: Path) -> None:
    put(tmp_path, P0, '{"name": "安娜"}')
    row = read(tmp_path).get(PERSON, ("安娜",))
    assert row is not None
    assert not row.complete and not row.canonical
    assert row.line == node(PERSON, "安娜")
    assert (row.record.created_at, row.record.updated_at) == (T1, T1)
    assert not read(tmp_path).parts[P0].canonical


def test_a_line_with_some_of_id_and_times_keeps_them(tmp_path: Path) -> None:
    put(tmp_path, P0, f'{{"__id":5,"name":"a","__created_at":"{T2}"}}')
    row = read(tmp_path).get(PERSON, ("a",))
    assert row is not None
    assert (row.record.id, row.record.created_at, row.record.updated_at, row.complete) == (5, T2, T2, False)


@pytest.mark.parametrize("raw", [node(PERSON, "a"), node(PERSON, "a") + b"\n\n", b"\n" + node(PERSON, "a") + b"\n"])
def test_a_missing_last_lf_and_blank_lines_are_readable_but_not_canonical(tmp_path: Path, raw: bytes) -> None:
    put(tmp_path, P0).write_bytes(raw)
    tree = read(tmp_path)
    assert tree.unreadable == []
    assert not tree.parts[P0].canonical
    assert tree.count(PERSON) == (b"name" in raw)


def test_lines_out_of_order_are_seen(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "b"), node(PERSON, "a"))
    put(tmp_path, P1, node(PERSON, 10), node(PERSON, 9, id=1))
    put(tmp_path, G0, node(GROUP, 9), node(GROUP, 10), node(GROUP, "1"), node(GROUP, "é"), node(GROUP, "中"))
    tree = read(tmp_path)
    assert [tree.parts[path].sorted for path in (P0, P1, G0)] == [False, False, True]


def test_dk_13_an_unreadable_line_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"), b'{"name":"b"', node(PERSON, "c"), b"\xff")
    tree = read(tmp_path)
    assert [(found.place, found.code) for found in tree.unreadable] == [(f"{P0}:2", "E_JSON"), (f"{P0}:4", "E_UTF8")]
    assert all(found.remedy for found in tree.unreadable)
    assert [row.record.identity for row in tree.rows(PERSON)] == [("a",), ("c",)]


def test_dk_13_neither_side_of_a_conflict_is_read(tmp_path: Path) -> None:
    ours, base, theirs = (node(PERSON, "b", n=n) for n in (1, 2, 3))
    put(
        tmp_path,
        P0,
        node(PERSON, "a"),
        "<<<<<<< HEAD",
        ours,
        "||||||| base",
        base,
        "=======",
        theirs,
        ">>>>>>> x",
        node(PERSON, "c"),
    )
    tree = read(tmp_path)
    assert [(found.line, found.code) for found in tree.unreadable] == [(n, "E_MARKERS") for n in (2, 4, 6, 8)]
    assert [row.record.identity for row in tree.rows(PERSON)] == [("a",), ("c",)]


def test_dk_13_a_pointer_is_one_finding(tmp_path: Path) -> None:
    put(tmp_path, P0, "version https://git-lfs.github.com/spec/v1", "oid sha256:" + "0" * 64, "size 12")
    assert [(found.code, found.line) for found in read(tmp_path).unreadable] == [("E_POINTER", 1)]


def test_a_part_that_may_not_be_opened_is_unreadable(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"))
    (tmp_path / P1).symlink_to(tmp_path / P0)
    part = read_part(tmp_path, P1, PERSON, LIMITS)
    assert [found.code for found in part.findings] == ["E_IO"]
    assert [*part.rows] == []


def test_dk_14_everything_else_below_data_is_a_finding_and_never_loaded(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"))
    put(tmp_path, "data/FORMAT.json", '{"format":1}')
    put(tmp_path, "data/indices/search_cache.parquet", "x")
    put(tmp_path, "data/notes.txt", "x")
    put(tmp_path, "data/nodes/unknown/20260101/part_000.jsonl", "{}")
    put(tmp_path, "data/nodes/stray.jsonl", "{}")
    put(tmp_path, "data/nodes/person/20260230/part_000.jsonl", "{}")
    put(tmp_path, "data/nodes/person/20260101/part_1.jsonl", "{}")
    put(tmp_path, "data/edges/person/20260101/part_000.jsonl", "{}")
    (tmp_path / "data/nodes/person/20260101/part_002.jsonl").mkdir()
    os.mkfifo(tmp_path / "data/nodes/person/20260101/part_003.jsonl")
    os.mkfifo(tmp_path / "data/pipe")
    (tmp_path / P1).symlink_to(tmp_path / P0)
    (tmp_path / "data/nodes/group").symlink_to(tmp_path / "data/nodes/person")
    tree = read(tmp_path)
    assert list(tree.parts) == [P0]
    assert {(found.code, found.path) for found in tree.findings} == {
        ("E_UNEXPECTED_FILE", "data/notes.txt"),
        ("E_UNEXPECTED_FILE", "data/nodes/unknown/"),
        ("E_UNEXPECTED_FILE", "data/nodes/stray.jsonl"),
        ("E_UNEXPECTED_FILE", "data/nodes/person/20260230/"),
        ("E_UNEXPECTED_FILE", "data/nodes/person/20260101/part_1.jsonl"),
        ("E_UNEXPECTED_FILE", "data/edges/person/"),
        ("E_NOT_REGULAR", "data/nodes/person/20260101/part_002.jsonl"),
        ("E_NOT_REGULAR", "data/nodes/person/20260101/part_003.jsonl"),
        ("E_NOT_REGULAR", "data/pipe"),
        ("E_SYMLINK", P1),
        ("E_SYMLINK", "data/nodes/group"),
    }


@pytest.mark.parametrize(("make", "code"), [("link", "E_SYMLINK"), ("file", "E_NOT_REGULAR")])
def test_data_itself_must_be_a_folder(tmp_path: Path, make: str, code: str) -> None:
    put(tmp_path, f"elsewhere/{P0.removeprefix('data/')}", node(PERSON, "a"))
    if make == "link":
        (tmp_path / "data").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "data").write_bytes(b"")
    tree = read(tmp_path)
    assert (list(tree.parts), [found.code for found in tree.findings]) == ([], [code])


def test_dk_10_a_record_in_two_files_is_read_once_merged_field_by_field(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a", n=1, old=1, at=T2))
    put(tmp_path, P1, node(PERSON, "a", n=2, new=1), node(PERSON, "b"))
    tree = read(tmp_path)
    row = tree.get(PERSON, ("a",))
    assert row is not None
    assert row.record.fields == {"name": "a", "n": 1, "new": 1, "old": 1}
    assert row.line == node(PERSON, "a", n=1, new=1, old=1, at=T2)
    assert tree.count(PERSON) == 2
    assert [each.record.identity for each in tree.rows(PERSON)] == [("a",), ("b",)]
    assert {key: [row.path for row in rows] for key, rows in tree.duplicates(PERSON).items()} == {("a",): [P0, P1]}
    assert [row.path for row in tree.find_lines(PERSON, ("a",))] == [P0, P1]


def test_of_two_records_with_one_id_the_later_gets_a_free_one_in_memory(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "b", id=5))
    put(tmp_path, P1, node(PERSON, "a", id=5), node(PERSON, "c", id=hash_id("node", "person", ("a",))))
    tree = read(tmp_path)
    first, moved = tree.get(PERSON, ("b",)), tree.get(PERSON, ("a",))
    assert first is not None and moved is not None
    assert first.record.id == 5 and tree.find_by_id(PERSON, 5) == first
    assert moved.record.id == hash_id("node", "person", ("a",), 1) and tree.find_by_id(PERSON, moved.record.id) == moved
    assert decode(moved.line, LineShape(("name",)), LIMITS).values["__id"] == moved.record.id
    assert {key: [row.record.identity for row in rows] for key, rows in tree.id_clashes(PERSON).items()} == {
        5: [("b",), ("a",)]
    }
    assert {row.record.id for row in tree.rows(PERSON)} == {5, moved.record.id, hash_id("node", "person", ("a",))}


def test_changes_of_files_are_noticed(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"))
    put(tmp_path, G0, node(GROUP, "g"))
    tree = read(tmp_path)
    assert list_changed_parts(tree, tmp_path) == []
    put(tmp_path, P0, node(PERSON, "b"))
    put(tmp_path, P1, node(PERSON, "c"))
    (tmp_path / G0).unlink()
    assert list_changed_parts(tree, tmp_path) == [G0, P0, P1]
    tree.replace(reload(tree, tmp_path, [G0, P0, P1]))
    assert list_changed_parts(tree, tmp_path) == []
    assert [row.record.identity for row in tree.rows(PERSON)] == [("b",), ("c",)]
    assert tree.count(GROUP) == 0


def test_dk_18_a_change_of_equal_length_at_the_same_moment_is_noticed(tmp_path: Path) -> None:
    file = put(tmp_path, P0, node(PERSON, "a", n=1))
    tree = read(tmp_path)
    before = file.stat()
    with file.open("r+b") as same_inode:
        same_inode.write(node(PERSON, "a", n=2) + b"\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list_changed_parts(tree, tmp_path) == [P0]


def test_a_stamp_is_racy_within_two_seconds_of_the_reading() -> None:
    second = 1_000_000_000
    assert Stamp(1, 10 * second, 1, 11 * second).is_racy
    assert Stamp(1, 10 * second, 1, 9 * second).is_racy
    assert not Stamp(1, 10 * second, 1, 13 * second).is_racy


def test_records_are_found_in_the_parts_that_replaced_theirs(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"), node(PERSON, "b", n=1), node(PERSON, "c"))
    tree = read(tmp_path)
    put(tmp_path, P0, node(PERSON, "b", n=2), node(PERSON, "d", id=hash_id("node", "person", ("a",))))
    put(tmp_path, P1, node(PERSON, "c"))
    tree.replace(reload(tree, tmp_path, [P0, P1]))
    assert tree.identity(PERSON, hash_id("node", "person", ("a",))) == ("d",) and tree.get(PERSON, ("a",)) is None
    row = tree.get(PERSON, ("c",))
    assert row is not None and row.path == P1
    (tmp_path / P1).unlink()
    tree.replace(reload(tree, tmp_path, [P1]))
    assert (
        tree.get(PERSON, ("c",)) is None and tree.find_by_id(PERSON, row.record.id) is None and tree.count(PERSON) == 2
    )


def edges(tree: Tree, kind: str, *identity: Any) -> list[tuple[str, Any, str]]:
    return [(edge.name, row.record.identity, side) for edge, row, side in tree.edges_at(kind, identity)]


def test_dk_23_edges_are_found_at_both_ends(tmp_path: Path) -> None:
    typed = {"id": "x", "type": "Group"}
    put(tmp_path, P0, node(PERSON, "a"), node(PERSON, "b"), node(PERSON, "x"))
    put(tmp_path, G0, node(GROUP, "g"), node(GROUP, "x"))
    lines = [node(KNOWS, "a", "a"), node(KNOWS, "a", "b"), node(KNOWS, "a", "g"), node(KNOWS, "a", "nobody")]
    put(tmp_path, K0, *lines, node(KNOWS, "a", "x"), node(KNOWS, "b", typed))
    tree = read(tmp_path)
    group_x = TypedEnd("Group", ("x",))
    assert edges(tree, "Person", "b") == [("Knows", ("b", group_x), "out"), ("Knows", ("a", "b"), "in")]
    assert ("Knows", ("a", "a"), "in") in edges(tree, "Person", "a") and ("Knows", ("a", "a"), "out") in edges(
        tree, "Person", "a"
    )
    assert edges(tree, "Group", "g") == [("Knows", ("a", "g"), "in")]
    assert edges(tree, "Group", "a") == []
    assert edges(tree, "Group", "x") == [("Knows", ("a", "x"), "in"), ("Knows", ("b", group_x), "in")]
    assert edges(tree, "Person", "x") == [("Knows", ("a", "x"), "in")]
    ends = {row.record.identity[1]: tree.ends(KNOWS, row.record.identity)[1] for row in tree.rows(KNOWS)}
    assert ends == {
        "a": ("Person", ("a",)),
        "b": ("Person", ("b",)),
        "g": ("Group", ("g",)),
        "nobody": None,
        "x": Ambiguous(("Person", "Group")),
        group_x: ("Group", ("x",)),
    }


def test_a_typed_end_must_be_of_an_allowed_type(tmp_path: Path) -> None:
    put(tmp_path, P0, node(PERSON, "a"))
    put(tmp_path, K0, node(KNOWS, "a", {"id": "a", "type": "Airport"}), node(KNOWS, {"id": "a", "type": "Person"}, "b"))
    tree = read(tmp_path)
    assert {tree.ends(KNOWS, row.record.identity) for row in tree.rows(KNOWS)} == {
        (("Person", ("a",)), None),
    }


def test_edges_between_composite_nodes_and_after_a_change(tmp_path: Path) -> None:
    airports, flights = "data/nodes/airport/20260101/part_000.jsonl", "data/edges/flies/20260101/part_000.jsonl"
    put(tmp_path, airports, node(AIRPORT, "CH", "ZRH"), node(AIRPORT, "DE", "FRA"))
    put(tmp_path, flights, node(FLIES, ["CH", "ZRH"], ["DE", "FRA"], 7))
    tree = read(tmp_path)
    identity = (("CH", "ZRH"), ("DE", "FRA"), 7)
    assert edges(tree, "Airport", "DE", "FRA") == [("Flies", identity, "in")]
    assert tree.ends(FLIES, identity) == (("Airport", ("CH", "ZRH")), ("Airport", ("DE", "FRA")))
    put(tmp_path, flights, node(FLIES, ["DE", "FRA"], ["CH", "ZRH"], 7))
    tree.replace(reload(tree, tmp_path, [flights]))
    assert [side for *_, side in edges(tree, "Airport", "DE", "FRA")] == ["out"]
    target = tree.node(tree.ends(FLIES, (("DE", "FRA"), ("CH", "ZRH"), 7))[1])
    assert target is not None and json.loads(target.line)["code"] == "ZRH"
