"""Lines in the store that are not ours, not whole or not there: they are read anew, and no answer is wrong."""

import os
import shutil
import sqlite3
from pathlib import Path

import orjson
import pytest

from duckkb.engine import loading
from duckkb.engine.loading import Ground, load
from duckkb.ports import RowVersion
from duckkb.records import Record
from duckkb.settings import Settings
from duckkb.store import base_store, lines
from duckkb.store.base_store import FILE
from duckkb.store.lines import StoredLines
from duckkb.store.place import Place
from duckkb.store.stored_type import StoredType
from duckkb.truth.files.line import Limits
from duckkb.truth.files.read import load as read_afresh
from duckkb.truth.files.tree import Tree
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
    return Place.of(root / "home", root)


def ground(root: Path, timeout: float = 5.0) -> Ground:
    return Ground(root, ONTOLOGY, Settings(snapshot_bytes=0), place(root), timeout)


def records(root: Path) -> list[Record]:
    opened = load(ground(root))
    found = [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)]
    if opened.lines is not None:
        opened.lines.close()
    return found


def truth(root: Path) -> list[Record]:
    tree = read_afresh(root, ONTOLOGY, LIMITS)
    return [row.record for kind in ONTOLOGY for row in tree.rows(kind)]


def version_of(root: Path) -> RowVersion | None:
    return kept(root).version(PERSON, lambda lane: "", str)


def kept(root: Path, limits: Limits = LIMITS) -> StoredLines:
    return StoredLines.open(place(root), ONTOLOGY, limits)


def held(root: Path) -> frozenset[str]:
    return kept(root).holds


def test_a_type_that_was_read_from_files_alone_is_written_down_in_the_place_of_what_was_there(base: Path) -> None:
    """As where a base shrank below the size from which its lines are stored, and grows again."""
    tree, stored = read_afresh(base, ONTOLOGY, LIMITS), kept(base)
    with stored.writing(5.0) as is_current:
        assert is_current
        stored.save(tree, {}, list(tree.parts))
    stored.close()
    assert held(base) == {"Person", "Group"} and records(base) == truth(base)


def test_a_type_that_another_version_wrote_in_another_form_is_read_anew(base: Path) -> None:
    told = orjson.loads(StoredType("key", "store").plain())
    assert StoredType.of(orjson.dumps(told)) == StoredType("key", "store")
    for other in (told | {"more": 1}, told | {"parts": {"p": [1, 2]}}, {}, [], 5):
        assert StoredType.of(orjson.dumps(other)) is None
    stored = kept(base)
    with stored.writing(5.0):
        name, data = "type/node-person", orjson.dumps(told | {"more": 1})
        base_store.put(stored._connection(), name, data)
    stored.close()
    assert held(base) == {"Group"}
    assert records(base) == truth(base) and held(base) == {"Person", "Group"}


def test_an_unchanged_base_is_opened_and_no_part_is_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (P0, P1, G0):  # older than the grain of any clock
        os.utime(base / path, (1, 1))
    load(ground(base))
    monkeypatch.setattr(StoredLines, "save", _fail)
    monkeypatch.setattr(loading, "_update_store", _fail)
    tree = load(ground(base)).tree
    assert tree.count(PERSON) == 40
    row = tree.get(PERSON, ("person 7",))
    assert row is not None and row.record.fields["text"] == "text of person 7"
    assert tree.by_id(PERSON, row.record.id) == row


def _fail(*_: object, **__: object) -> None:
    raise AssertionError("this is not for an unchanged base")


def test_one_changed_part_is_the_only_one_that_is_taken_in(base: Path) -> None:
    before = numbers(base)
    first = version_of(base)
    put(base, P1, node(PERSON, "person 20", text="new", at=T2), *sorted(node(PERSON, name) for name in PEOPLE[21:]))
    assert records(base) == truth(base)
    after = numbers(base)
    assert {path for path in before if before[path] != after[path]} == {P1}
    version = version_of(base)
    assert first is not None and version is not None
    assert len(version.changed(first.revision) or ()) == 20
    assert version.changed(first.revision + 1) is None and version.changed(0) is None


def numbers(root: Path) -> dict[str, int]:
    """By path the number under which a part lies in the store."""
    return {path: part.number for known in kept(root)._types.values() for path, part in known.parts.items()}


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 1


@pytest.mark.parametrize("share", range(0, 100, 4))
def test_a_damaged_byte_is_never_an_answer(base: Path, share: int) -> None:
    """Nor an error: what is damaged is dropped, and read anew."""
    path = place(base).own / FILE
    data = bytearray(path.read_bytes())
    for at in range(share * len(data) // 100, len(data), 4099):
        flip(data, at)
    path.write_bytes(data)
    assert records(base) == truth(base)
    assert records(base) == truth(base)
    assert held(base) == {"Person", "Group"}


@pytest.mark.parametrize("table", ["value", "part", "change", "sqlite_sequence"])
@pytest.mark.parametrize("key", [None, "Group"])
def test_rows_that_are_gone_from_the_file_are_made_anew(base: Path, table: str, key: str | None) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        connection.execute(f"DELETE FROM {table}" + (" WHERE rowid % 2" if key else ""))
    assert records(base) == truth(base)
    assert records(base) == truth(base)
    tree = load(ground(base)).tree
    for name in PEOPLE:
        assert tree.get(PERSON, (name,)) is not None


def test_two_values_that_changed_places_are_not_taken_for_each_other(base: Path) -> None:
    with sqlite3.connect(place(base).own / FILE) as connection:
        (first, second) = connection.execute("SELECT number FROM part ORDER BY number LIMIT 2").fetchall()
        for old, new in ((first, (-1,)), (second, first), ((-1,), second)):
            connection.execute("UPDATE part SET number = ? WHERE number = ?", (*new, *old))
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
    opened = load(ground(base))
    assert opened.lines is None and "link" in opened.reason
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


def test_while_another_process_writes_the_store_this_one_reads_the_files(base: Path) -> None:
    other = kept(base)
    put(base, P1, node(PERSON, "person 20"))
    with other.writing(1.0):
        opened = load(ground(base, timeout=0.05))
        assert opened.lines is None and "locked" in opened.reason
        assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)


def test_who_began_to_read_goes_on_with_what_there_was(base: Path) -> None:
    before = truth(base)
    opened = load(ground(base))
    reading = (row.record for kind in ONTOLOGY for row in opened.tree.rows(kind))
    first = next(reading)
    for turn in range(3):
        put(base, P1, node(PERSON, "person 20", text=str(turn)))
        records(base)
    assert [first, *reading] == before


def test_what_changes_beyond_measure_is_not_remembered_for_ever(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LOGGED_BYTES", 200)
    versions = []
    for turn in range(12):
        put(base, P1, node(PERSON, "person 20", text=str(turn)))
        records(base)
        versions.append(version_of(base))
    known = [versions[-1].changed(one.revision) is not None for one in versions if one is not None and versions[-1]]
    assert known == sorted(known) and known[-2:] == [True, True] and not known[0]


@pytest.mark.long
def test_many_keys_are_found_and_dead_parts_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_READABLE_S", -1)
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
    tree = load(ground(tmp_path)).tree
    assert lines_of(tree) == lines_of(read_afresh(tmp_path, ONTOLOGY, LIMITS))
    for name in ("00000", "01999", "05999"):
        row = tree.get(PERSON, (name,))
        assert row is not None and tree.by_id(PERSON, row.record.id) == row
    assert tree.get(PERSON, ("06000",)) is None and tree.by_id(PERSON, 12345) is None
    with sqlite3.connect(place(tmp_path).own / FILE) as connection:
        assert connection.execute("SELECT count(*) FROM part").fetchone()[0] <= len(parts) + 1


def lines_of(tree: Tree) -> dict[int, bytes]:
    return {row.record.id: row.line for row in tree.rows(PERSON)}


def test_nothing_stays_of_a_type_that_is_no_more(base: Path) -> None:
    (place(base).own / "node-group" / "lexical").mkdir(parents=True)
    (place(base).own / "node-person").mkdir()
    ontology = type(ONTOLOGY)({"Person": PERSON})
    put(base, P1, node(PERSON, "person 20"))
    load(Ground(base, ontology, Settings(snapshot_bytes=0), place(base), 5.0))
    assert [path.name for path in place(base).own.iterdir() if path.is_dir()] == ["node-person"]
    assert held(base) == {"Person"}


def test_a_cache_folder_that_vanishes_while_a_base_is_open_is_made_again(base: Path) -> None:
    opened = load(ground(base))
    assert opened.lines is not None
    shutil.rmtree(base / "home")
    assert opened.lines.is_dropped
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)
    assert records(base) == truth(base)
    assert held(base) == {"Person", "Group"}
