"""Lines in the store that are not ours, not whole or not there: they are read anew, and no answer is wrong."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from duckkb.engine import base as loading
from duckkb.engine.base import Ground, load_base
from duckkb.ports import Ahead
from duckkb.storage import clone_state
from duckkb.storage.line import Limits
from duckkb.storage.read import load as read_afresh
from duckkb.storage.tree import Tree
from duckkb.store.cache_dirs import Place
from duckkb.store.stored_lines import StoredLines
from duckkb.store.stored_rows import FILE
from duckkb.types.records import Record
from duckkb.types.settings import Settings
from tests.unit.test_truth_tree import G0, GROUP, LIMITS, ONTOLOGY, P0, P1, PERSON, T2, node, put

PEOPLE = [f"person {number}" for number in range(40)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two parts of people and one group, and a store of them."""
    for path, names in ((P0, PEOPLE[:20]), (P1, PEOPLE[20:])):
        put(tmp_path, path, *sorted(node(PERSON, name, text=f"text of {name}") for name in names))
    put(tmp_path, G0, node(GROUP, "all"))
    records(tmp_path)
    return tmp_path


def place(root: Path) -> Place:
    return Place.locate(root / "home", root)


def ground(root: Path, timeout: float = 5.0) -> Ground:
    return Ground(root, ONTOLOGY, Settings(snapshot_bytes=0), place(root), timeout)


def records(root: Path) -> list[Record]:
    opened = load_base(ground(root))
    found = [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)]
    if opened.lines is not None:
        opened.lines.close()
    return found


def truth(root: Path) -> list[Record]:
    tree = read_afresh(root, ONTOLOGY, LIMITS)
    return [row.record for kind in ONTOLOGY for row in tree.rows(kind)]


def kept(root: Path, limits: Limits = LIMITS) -> StoredLines:
    return StoredLines.open(place(root), ONTOLOGY, limits)


def held(root: Path) -> frozenset[str]:
    return kept(root).holds


def test_a_type_that_was_read_from_files_alone_is_written_down_in_the_place_of_what_was_there(base: Path) -> None:
    """As where a base shrank below the size from which its lines are stored, and grows again."""
    tree, stored = read_afresh(base, ONTOLOGY, LIMITS), kept(base)
    with stored.begin_write(5.0) as is_current:
        assert is_current
        stored.save(tree, list(tree.parts))
    stored.close()
    assert held(base) == {"Person", "Group"} and records(base) == truth(base)


def test_a_type_whose_lines_were_read_by_other_rules_is_read_anew(base: Path) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        connection.execute("UPDATE type SET key = 'other' WHERE name = 'node-person'")
    assert held(base) == {"Group"}
    assert records(base) == truth(base) and held(base) == {"Person", "Group"}


def test_the_file_of_an_earlier_version_goes_once_there_is_a_new_one(base: Path) -> None:
    own = place(base).own
    for name in ("store-2.sqlite", "store-2.sqlite-wal", "store-2.sqlite.lock"):
        (own / name).write_bytes(b"of an earlier version")
    put(base, P1, node(PERSON, "person 20"))
    assert records(base) == truth(base)
    assert [path.name for path in own.glob("store-*") if not path.name.startswith(FILE)] == []


def test_an_unchanged_base_is_opened_and_no_part_is_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (P0, P1, G0):  # older than the grain of any clock
        os.utime(base / path, (1, 1))
    load_base(ground(base))
    monkeypatch.setattr(StoredLines, "save", _fail)
    monkeypatch.setattr(loading, "_update_store", _fail)
    tree = load_base(ground(base)).tree
    assert tree.count(PERSON) == 40
    row = tree.get(PERSON, ("person 7",))
    assert row is not None and row.record.fields["text"] == "text of person 7"
    assert tree.find_by_id(PERSON, row.record.id) == row


def _fail(*_: object, **__: object) -> None:
    raise AssertionError("this is not for an unchanged base")


def test_one_changed_part_is_the_only_one_that_is_taken_in(base: Path) -> None:
    before = numbers(base)
    put(base, P1, node(PERSON, "person 20", text="new", at=T2), *sorted(node(PERSON, name) for name in PEOPLE[21:]))
    assert records(base) == truth(base)
    after = numbers(base)
    assert {path for path in before if before[path] != after[path]} == {P1}


def numbers(root: Path) -> dict[str, int]:
    """By path the number under which a part lies in the store."""
    return {path: part.rows.number for known in kept(root)._types.values() for path, part in known.parts.items()}


PAGE = 4096


def zero(data: bytearray, at: int) -> None:
    start = at // PAGE * PAGE
    data[start : start + PAGE] = bytes(PAGE)


def fill(data: bytearray, at: int) -> None:
    start = at // PAGE * PAGE
    data[start : start + PAGE] = b"\xa5" * PAGE


def cut(data: bytearray, at: int) -> None:
    del data[at:]


def flip_line(data: bytearray, at: int) -> None:
    data[data.index(b"text of", at % (len(data) // 2))] ^= 1


@pytest.mark.parametrize("harm", [zero, fill, cut, flip_line])
@pytest.mark.parametrize("share", range(0, 100, 7))
def test_what_is_damaged_is_never_an_answer(base: Path, harm: Callable[[bytearray, int], None], share: int) -> None:
    """Nor an error: a page that makes no sense and a line that is not as it was written are dropped, and read anew."""
    path = place(base).own / FILE
    data = bytearray(path.read_bytes())
    harm(data, share * len(data) // 100)
    path.write_bytes(data)
    assert records(base) == truth(base)
    assert looked_up(base) == truth(base)
    put(base, P1, node(PERSON, "person 20"))  # what is only looked at for a write is found to be damaged by one
    for _ in range(2):
        assert records(base) == truth(base)
    assert looked_up(base) == truth(base)
    assert held(base) == {"Person", "Group"}


def looked_up(root: Path) -> list[Record]:
    """The records as they are found by identity and by id."""
    opened = load_base(ground(root))
    rows = [(kind, record) for kind in ONTOLOGY for record in truth(root) if record.type == kind.name]
    found = [opened.tree.get(kind, record.identity) for kind, record in rows]
    assert found == [opened.tree.find_by_id(kind, record.id) for kind, record in rows]
    assert [opened.tree.identity(kind, record.id) for kind, record in rows] == [record.identity for _, record in rows]
    if opened.lines is not None:
        opened.lines.close()
    return [row.record for row in found if row is not None]


@pytest.mark.parametrize("table", ["type", "part", "record", "sqlite_sequence"])
@pytest.mark.parametrize("key", [None, "Group"])
def test_rows_that_are_gone_from_the_file_are_made_anew(base: Path, table: str, key: str | None) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        connection.execute(f"DELETE FROM {table}" + (" WHERE rowid % 2" if key else ""))
    assert records(base) == truth(base)
    assert records(base) == truth(base)
    assert looked_up(base) == truth(base)


@pytest.mark.parametrize("column", ["id", "identity", "etag", "line", "flags"])
def test_a_row_that_makes_no_sense_is_no_answer(base: Path, column: str) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        connection.execute(f"UPDATE record SET {column} = x'ff00ff' WHERE line_no = 7")
    assert records(base) == truth(base)
    tree = load_base(ground(base)).tree
    found = {name: tree.get(PERSON, (name,)) for name in PEOPLE}
    assert all(row is None or row.record.identity == (name,) for name, row in found.items())
    assert column == "identity" or None not in found.values(), "a key of the index is not guarded"


def test_rows_that_changed_places_are_not_taken_for_each_other(base: Path) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        ((first,), (second,)) = connection.execute("SELECT number FROM part ORDER BY number LIMIT 2").fetchall()
        connection.execute(
            "UPDATE record SET part = CASE part WHEN ? THEN ? ELSE ? END WHERE part IN (?, ?)",
            (first, second, first, first, second),
        )
    assert records(base) == truth(base)
    assert records(base) == truth(base)


def test_a_type_with_other_limits_is_read_anew(base: Path) -> None:
    assert held(base) == {"Person", "Group"}
    assert kept(base, type(LIMITS)(LIMITS.max_record_bytes, LIMITS.depth + 1)).holds == frozenset()


def test_a_store_whose_folder_is_a_link_is_not_used(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "own"
    shutil.move(place(base).own, elsewhere)
    place(base).own.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    opened = load_base(ground(base))
    assert opened.lines is None and "link" in opened.reason
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


def test_while_another_process_writes_the_store_this_one_reads_the_files(base: Path) -> None:
    other = kept(base)
    put(base, P1, node(PERSON, "person 20"))
    with other.begin_write(1.0):
        opened = load_base(ground(base, timeout=0.05))
        assert opened.lines is None and "locked" in opened.reason
        assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)


def test_who_began_to_read_goes_on_with_what_there_was(base: Path) -> None:
    before = truth(base)
    opened = load_base(ground(base))
    reading = (row.record for kind in ONTOLOGY for row in opened.tree.rows(kind))
    first = next(reading)
    for turn in range(3):
        put(base, P1, node(PERSON, "person 20", text=str(turn)))
        records(base)
    assert [first, *reading] == before


def test_over_a_network_who_began_to_read_is_never_given_what_came_since(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a reader that held one state would keep others from writing: it looks whether they did."""
    mounts = base / "mounts"
    mounts.write_text("1 0 0:1 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(clone_state, "MOUNTS", mounts)
    shutil.rmtree(base / "home")
    records(base)
    opened, other = load_base(ground(base)), load_base(ground(base))
    put(base, P1, node(PERSON, "person 20", text="new"), node(PERSON, "person 99"))
    assert records(base) == truth(base)
    with pytest.raises(Ahead):
        list(opened.tree.rows(PERSON))
    with pytest.raises(Ahead):
        other.tree.get(PERSON, ("person 99",))


@pytest.mark.long
def test_many_keys_are_found_and_dead_rows_do_not_pile_up(tmp_path: Path) -> None:
    parts = [P0.replace("000", f"{number:03}") for number in range(12)]

    def fill(path: str, text: str) -> None:
        start = 500 * parts.index(path)
        put(tmp_path, path, *(node(PERSON, f"{start + number:05}", text=text) for number in range(500)))

    fill(parts[0], "old")
    records(tmp_path)
    for path in parts[1:]:  # one part at a time, so that the index grows beyond what it was made for
        fill(path, "old")
        records(tmp_path)
    for turn in range(20):
        fill(parts[3], f"new {turn}")
        records(tmp_path)
    tree = load_base(ground(tmp_path)).tree
    assert lines_of(tree) == lines_of(read_afresh(tmp_path, ONTOLOGY, LIMITS))
    for name in ("00000", "01999", "05999"):
        row = tree.get(PERSON, (name,))
        assert row is not None and tree.find_by_id(PERSON, row.record.id) == row
    assert tree.get(PERSON, ("06000",)) is None and tree.find_by_id(PERSON, 12345) is None
    with sqlite3.connect(place(tmp_path).own / FILE) as connection:
        assert connection.execute("SELECT count(*) FROM part").fetchone() == (len(parts),)
        assert connection.execute("SELECT count(*) FROM record").fetchone() == (500 * len(parts),)


def lines_of(tree: Tree) -> dict[int, bytes]:
    return {row.record.id: row.line for row in tree.rows(PERSON)}


def test_nothing_stays_of_a_type_that_is_no_more(base: Path) -> None:
    (place(base).own / "node-group" / "lexical").mkdir(parents=True)
    (place(base).own / "node-person").mkdir()
    ontology = type(ONTOLOGY)({"Person": PERSON})
    put(base, P1, node(PERSON, "person 20"))
    load_base(Ground(base, ontology, Settings(snapshot_bytes=0), place(base), 5.0))
    assert [path.name for path in place(base).own.iterdir() if path.is_dir()] == ["node-person"]
    assert held(base) == {"Person"}


def test_a_cache_folder_that_vanishes_while_a_base_is_open_is_made_again(base: Path) -> None:
    opened = load_base(ground(base))
    assert opened.lines is not None
    shutil.rmtree(base / "home")
    assert opened.lines.is_behind
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)
    assert records(base) == truth(base)
    assert held(base) == {"Person", "Group"}
