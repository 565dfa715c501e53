"""A part of which some lines changed is what reading all of it gives, for those who read it and for those who write it."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.engine.base import load_base
from duckkb.storage.render import Writer, render
from duckkb.storage.strict_lines import hash_id
from duckkb.storage.tree import Tree
from duckkb.store.stored_rows import FILE
from duckkb.types.errors import DuckkbError
from duckkb.types.records import Change, Changeset, Record, identity_key
from tests.properties.test_store_laws import follow, ground, place
from tests.properties.test_tree_properties import PERSON, facts, node, read

NAMES = ["a", "b", "c", "d", "e", "中", "文", 3]
PATHS = [f"data/nodes/person/20260101/part_00{number}.jsonl" for number in range(2)]
TIME = "2026-01-01T00:00:00.000000Z"

Edit = tuple[str, int, int, str | int]
edit = st.tuples(
    st.sampled_from(
        ["change", "drop", "insert", "insert in order", "repeat", "swap", "blank", "loosen", "strip", "tear"]
    ),
    st.integers(0, 1),
    st.integers(0, 5),
    st.sampled_from(NAMES),
)
edits = st.lists(st.tuples(st.lists(edit, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=4)


def line(name: str | int, n: int) -> bytes:
    return node(name, hash_id("node", "person", (name,)), TIME, n)


def in_order(lines: list[bytes]) -> list[bytes]:
    return sorted(lines, key=lambda one: identity_key((_name(one),)))


def _name(one: bytes) -> str | int:
    name: str | int = json.loads(one)["name"]
    return name


def edited(lines: list[bytes], what: str, at: int, name: str | int) -> list[bytes]:
    at = min(at, max(0, len(lines) - 1))
    match what:
        case "change":
            return [one.replace(b'"n":0', b'"n":1') if place == at else one for place, one in enumerate(lines)]
        case "drop":
            return lines[:at] + lines[at + 1 :]
        case "insert":
            return [*lines[:at], line(name, 0), *lines[at:]]
        case "insert in order":
            known = [one for one in lines if one.startswith(b"{")]
            return lines if name in map(_name, known) else in_order([*known, line(name, 0)])
        case "repeat":
            return [*lines[: at + 1], *lines[at : at + 1], *lines[at + 1 :]]
        case "swap":
            return [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]
        case "blank":
            return [*lines[:at], b"", *lines[at:]]
        case "loosen":
            return [one.replace(b'"n":', b'"n": ') if place == at else one for place, one in enumerate(lines)]
        case "strip":
            return [re.sub(b'"__id":[0-9]*,', b"", one) if place == at else one for place, one in enumerate(lines)]
        case _:
            return [one[:-1] if place == at else one for place, one in enumerate(lines)] if at else lines


def write(root: Path, number: int, lines: list[bytes]) -> None:
    target = root / PATHS[number]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"".join(one + b"\n" for one in lines))


@pytest.mark.long
@given(edits)
@settings(max_examples=150, deadline=None)
def test_after_edits_of_lines_the_tree_is_that_of_a_fresh_load(later: list[tuple[list[Edit], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        held = [[line(3, 0), *(line(name, 0) for name in NAMES[:3])], [line(name, 0) for name in NAMES[3:6]]]
        for number, lines in enumerate(held):
            write(root, number, lines)
        opened = load_base(ground(root))
        opened = load_base(ground(root))
        for some, stays in later:
            for what, number, at, name in some:
                torn = any(not one.endswith(b"}") for one in held[number])
                held[number] = held[number] if torn else edited(held[number], what, at, name)
                write(root, number, held[number])
            opened = follow(opened, root) if stays else load_base(ground(root))
            assert list(facts(opened.tree)) == list(facts(read(root)))
            assert list(facts(load_base(ground(root)).tree)) == list(facts(read(root)))


changes = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["put", "delete"])), min_size=1, max_size=4)


def changeset(tree: Tree, asked: list[tuple[str | int, str]]) -> Changeset:
    made = []
    for name, what in dict(asked).items():
        row = tree.get(PERSON, (name,))
        old = row.record if row else None
        new = Record("Person", hash_id("node", "person", (name,)), (name,), {"name": name, "n": 7}, TIME, TIME)
        if what == "put" or old:
            made.append(Change(old, new if what == "put" else None))
    return Changeset(tuple(made))


@given(st.lists(changes, min_size=1, max_size=3), edits)
@settings(max_examples=100, deadline=None)
def test_a_write_renders_the_bytes_that_it_would_without_a_store(
    asked: list[list[tuple[str | int, str]]], later: list[tuple[list[Edit], bool]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, 0, [line(name, 0) for name in NAMES[:5]])
        load_base(ground(root))
        for wanted, (some, _) in zip(asked, later, strict=False):
            for what, _, at, name in some:
                present = (root / PATHS[0]).read_bytes().split(b"\n")[:-1]
                if present and all(one.endswith(b"}") for one in present):  # after a torn line none can be put in order
                    write(root, 0, edited(present, what, at, name))
            trees = [load_base(ground(root)).tree, read(root)]
            rendered = []
            for tree in trees:
                try:
                    parts = render(tree, changeset(tree, wanted), Writer())
                    rendered.append([(part.path, part.before, part.data, list(part.rows)) for part in parts])
                except DuckkbError as error:
                    rendered.append([(error.code, "", b"", [])])
            assert rendered[0] == rendered[1]


def test_a_line_that_was_damaged_in_the_store_is_not_written_into_truth(tmp_path: Path) -> None:
    write(tmp_path, 0, [line(name, 0) for name in NAMES[:5]])
    stored = load_base(ground(tmp_path)).lines
    assert stored is not None
    stored.close()  # which brings what it wrote from the log into the file
    kept = place(tmp_path).own / FILE
    sound = kept.read_bytes()
    kept.write_bytes(sound.replace(b'"name":"b","n":0', b'"name":"b","n":9'))
    assert kept.read_bytes() != sound, "the line lies there as it is written"
    tree = load_base(ground(tmp_path)).tree
    (part,) = render(tree, changeset(tree, [("d", "put")]), Writer())
    assert part.data == b"".join(
        one + b"\n" for one in [*(line(name, 0) for name in "abc"), line("d", 7), line("e", 0)]
    )
