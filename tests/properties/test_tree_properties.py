"""A tree that follows changes of files is the tree that a fresh load gives, and of any two states of it the difference is true."""

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.model import EdgeType, NodeType, Ontology
from duckkb.ports import TypeState
from duckkb.storage import tree as tree_module
from duckkb.storage.line import Limits, LineShape, encode
from duckkb.storage.read import list_changed_parts, load, reload
from duckkb.storage.render import Writer, fmt_parts, render
from duckkb.storage.strict_lines import hash_id
from duckkb.storage.tree import Tree
from duckkb.store.mirrored_files import Inventory
from duckkb.types.records import Change, Changeset, Record, identity_key

PERSON = NodeType("Person", "person", ("name",), {})
GROUP = NodeType("Group", "group", ("name",), {})
KNOWS = EdgeType("Knows", "knows", (), {}, from_types=("Person",), to_types=("Person", "Group"))
ONTOLOGY = Ontology({"Person": PERSON, "Group": GROUP}, {"Knows": KNOWS})
TIMES = [f"2026-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3)]
NAMES = ["a", "b", "中", 1]
Mirror = dict[str, dict[int, bytes]]

names, times = st.sampled_from(NAMES), st.sampled_from(TIMES)
ids = st.sampled_from([hash_id("node", "person", (name,)) for name in NAMES] + [1, 2])


@pytest.fixture(autouse=True, scope="module")
def order_of_edges_is_kept() -> Iterator[None]:
    """As for nodes of very many edges."""
    with pytest.MonkeyPatch.context() as altered:
        altered.setattr(tree_module, "_MANY_EDGES", 1)
        yield


def node(name: str | int, record_id: int, at: str, n: int) -> bytes:
    return encode(
        {"__id": record_id, "name": name, "n": n, "__created_at": at, "__updated_at": at}, LineShape(("name",))
    )


def edge(source: str | int, target: str | int, typed: bool, at: str) -> bytes:
    end = {"type": "Group", "id": target} if typed else target
    values = {"__id": hash_id("edge", "knows", (source, target)), "from": source, "to": end}
    return encode({**values, "__created_at": at, "__updated_at": at}, LineShape(("from", "to")))


bare = st.sampled_from([b'{"name":"a"}', '{"n": 5, "name": "中"}'.encode(), b'{"name":1,"x":2}', b'{"name":', b""])
person_lines = st.lists(st.builds(node, names, ids, times, st.integers(0, 2)) | bare, max_size=3)
edge_lines = st.lists(st.builds(edge, names, names, st.booleans(), times), max_size=3)
FILES = {
    **{f"data/nodes/person/20260101/part_00{n}.jsonl": person_lines for n in range(2)},
    "data/nodes/person/20260102/part_000.jsonl": person_lines,
    "data/nodes/group/20260101/part_000.jsonl": person_lines,
    **{f"data/edges/knows/20260101/part_00{n}.jsonl": edge_lines for n in range(2)},
}
states = st.fixed_dictionaries({name: st.none() | held for name, held in FILES.items()})

edits = st.lists(
    st.one_of(*(st.tuples(st.just(name), st.none() | held) for name, held in FILES.items())), max_size=2
).map(dict)


def write(root: Path, state: dict[str, list[bytes] | None]) -> None:
    for name, held in state.items():
        file = root / name
        if held is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"".join(each + b"\n" for each in held))


def read(root: Path) -> Tree:
    return load(root, ONTOLOGY, Limits())


def facts(tree: Tree) -> Iterator[object]:
    """Everything that a tree tells, without the stamps."""
    yield tree.unreadable
    yield [(part.path, part.digest, part.rows, part.canonical, part.sorted) for part in tree.parts.values()]
    for kind in ONTOLOGY:
        yield list(tree.rows(kind))
        yield tree.count(kind)
        yield tree.duplicates(kind)
        yield tree.id_clashes(kind)
        yield [tree.find_by_id(kind, row.record.id) for row in tree.rows(kind)]
        ordered = sorted(tree.rows(kind), key=lambda row: identity_key(row.record.identity))
        assert list(tree.iter_by_identity(kind)) == ordered
        for number, row in enumerate(ordered, 1):
            assert list(tree.iter_by_identity(kind, row.record.identity)) == ordered[number:]
    yield [tree.ends(KNOWS, row.record.identity) for row in tree.rows(KNOWS)]
    yield [tree.edges_at(kind, (name,)) for kind in ("Person", "Group") for name in NAMES]
    for kind, text in ((kind, str(name).encode()) for kind in ONTOLOGY for name in NAMES):
        assert list(tree.rows_with(kind, text)) == [row for row in tree.rows(kind) if text in row.line]


def lines(tree: Tree) -> Mirror:
    return {kind.name: {row.record.id: row.line for row in tree.rows(kind)} for kind in ONTOLOGY}


def check_states(tree: Tree, fresh: Tree, seen: list[tuple[dict[str, Inventory], Mirror]]) -> None:
    """From each state that was seen, the difference names the records that have changed since, and no others."""
    states = {
        kind.name: Inventory.from_state(
            TypeState("", tree.digests(kind), partial(tree.etags, kind)), seen[-1][0][kind.name] if seen else None
        )
        for kind in ONTOLOGY
    }
    now = lines(fresh)
    seen.append((states, now))
    for held, then in seen:
        for name, state in states.items():
            known = Inventory.load(held[name].dump())
            both = now[name].keys() | then[name].keys()
            changed = {key for key in both if now[name].get(key) != then[name].get(key)}
            assert state.difference(known) == known.difference(state) == changed


@given(states, st.lists(edits, max_size=4))
@settings(max_examples=200, deadline=None)
def test_following_changes_equals_a_fresh_load_and_the_difference_is_true(
    first: dict[str, list[bytes] | None], later: list[dict[str, list[bytes] | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, first)
        tree = read(root)
        seen: list[tuple[dict[str, Inventory], Mirror]] = []
        list(facts(tree))
        for state in later:
            write(root, state)
            tree.replace(reload(tree, root, list_changed_parts(tree, root)))
            fresh = read(root)
            assert list(facts(tree)) == list(facts(fresh))
            check_states(tree, fresh, seen)
            assert list_changed_parts(tree, root) == []


@given(states)
@settings(max_examples=100, deadline=None)
def test_every_record_is_read_once_with_an_id_of_its_own(state: dict[str, list[bytes] | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), state)
        tree = read(Path(folder))
        for kind in ONTOLOGY:
            rows = list(tree.rows(kind))
            assert len({row.record.identity for row in rows}) == len({row.record.id for row in rows}) == len(rows)
            assert {row.record.identity for row in rows} == {
                row.record.identity for part in tree.parts_of(kind) for row in part.rows
            }
            for row in rows:
                assert tree.get(kind, row.record.identity) == tree.find_by_id(kind, row.record.id) == row


@given(states)
@settings(max_examples=100, deadline=None)
def test_fmt_leaves_nothing_to_format_and_no_record_changed(state: dict[str, list[bytes] | None]) -> None:
    lines = {name: [each for each in held or () if each != b'{"name":'] for name, held in state.items()}
    readable = {name: held if any(each.strip() for each in held) else None for name, held in lines.items()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, readable)
        tree = read(root)
        before = {
            (row.record.type, row.record.identity): row.record.fields for kind in ONTOLOGY for row in tree.rows(kind)
        }
        for part in fmt_parts(tree):
            write(root, {part.path: part.data.splitlines() if part.data else None})
        again = read(root)
        assert fmt_parts(again) == []
        assert all(row.as_stored for part in again.parts.values() for row in part.rows)
        after = {
            (row.record.type, row.record.identity): row.record.fields for kind in ONTOLOGY for row in again.rows(kind)
        }
        assert after == before


steps = st.lists(st.tuples(st.sampled_from(["put", "delete", "rename"]), names, names, st.integers(0, 3)), max_size=12)


@given(st.lists(steps, min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_writes_give_what_they_say_and_a_restart_gives_the_same(writes: list[list[tuple[str, str, str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tree = read(root)
        model: dict[str | int, Record] = {}
        for write_steps in writes:
            changeset, model = plan(model, write_steps)
            stored = {}
            for part in render(tree, changeset, Writer(5, max_records=2)):
                (root / part.path).parent.mkdir(parents=True, exist_ok=True)
                if part.data is None:
                    (root / part.path).unlink()
                    stored[part.path] = None
                else:
                    (root / part.path).write_bytes(part.data)
                    stored[part.path] = part.build_part((root / part.path).stat())
            tree.replace(stored)
            fresh = read(root)
            assert list(facts(tree)) == list(facts(fresh))
            assert {row.record.identity[0]: row.record for row in fresh.rows(PERSON)} == model
            assert all(part.canonical and part.sorted for part in fresh.parts.values())


def plan(
    model: dict[str | int, Record], wanted: list[tuple[str, str, str, int]]
) -> tuple[Changeset, dict[str | int, Record]]:
    """A changeset with at most one change a record, and the records after it."""
    after = dict(model)
    origin: dict[str | int, str | int] = {name: name for name in model}
    for verb, name, other, n in wanted:
        if verb == "put" and name in after:
            after[name] = Record("Person", after[name].id, (name,), {"name": name, "n": n}, TIMES[0], TIMES[n % 3])
        elif verb == "put" and name not in model:
            after[name] = Record(
                "Person", _free(name, model, after), (name,), {"name": name, "n": n}, *[TIMES[n % 3]] * 2
            )
        elif verb == "delete":
            after.pop(name, None)
            origin.pop(name, None)
        elif verb == "rename" and name in after and name in origin and other not in after and other not in model:
            old = after.pop(name)
            after[other] = Record("Person", old.id, (other,), {"name": other}, old.created_at, old.updated_at)
            origin[other] = origin.pop(name)
    kept = {origin[name]: record for name, record in after.items() if name in origin}
    changes = [Change(old, kept.get(name)) for name, old in model.items() if kept.get(name) != old]
    changes += [Change(None, record) for name, record in after.items() if name not in origin]
    return Changeset(tuple(changes)), after


def _free(name: str | int, *known: dict[str | int, Record]) -> int:
    """An id that no record has: one whose record was renamed still has the id of its first name."""
    taken = {record.id for records in known for record in records.values()}
    return next(number for number in count(100 + NAMES.index(name), len(NAMES)) if number not in taken)
