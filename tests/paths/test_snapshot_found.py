"""Damage of what is derived that campaigns found once, each kept as a small case."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import duckkb
from duckkb.index import index_entries
from duckkb.store import cache_dirs
from duckkb.types.records import Fingerprint
from tests.conftest import NOTES, make_base, store_of

RIGHT = [f"n{number:02d}" for number in range(40) if number % 3 == 1]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A base whose snapshot has rows for filters."""
    root = make_base(tmp_path / "kb", f"snapshot: {{min_bytes: 0}}\n{NOTES}")
    with duckkb.open(root) as kb:
        kb.put("Note", [{"id": f"n{number:02d}", "status": "draft", "size": number % 3} for number in range(40)])
        assert found(kb) == RIGHT
    return root


def found(kb: "duckkb.KnowledgeBase") -> list[str]:
    return [hit.identity for hit in kb.find("Note", where="size = 1", limit=100)]


def test_a_file_of_rows_that_grew_is_made_anew(filled: Path) -> None:
    (rows,) = store_of(filled).glob("node-note/rows/*/base.arrow")
    before = rows.read_bytes()
    rows.write_bytes(before + bytes(64))
    with duckkb.open(filled) as kb:
        assert found(kb) == RIGHT
    (again,) = store_of(filled).glob("node-note/rows/*/base.arrow")
    assert again.stat().st_size == len(before)


def test_rows_that_turn_out_to_be_none_while_they_are_open_are_done_without(filled: Path) -> None:
    (rows,) = store_of(filled).glob("node-note/rows/*/base.arrow")
    with duckkb.open(filled) as kb:
        status = rows.stat()
        rows.write_bytes(bytes(status.st_size))
        os.utime(rows, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert found(kb) == RIGHT
    with duckkb.open(filled) as kb:
        assert found(kb) == RIGHT


@pytest.mark.parametrize("closed", [".", "node-note"])
def test_a_closed_folder_is_no_error(filled: Path, closed: str) -> None:
    folder = store_of(filled) / closed
    folder.chmod(0)
    with duckkb.open(filled) as kb:
        assert found(kb) == RIGHT
    cache_dirs.remove(store_of(filled))
    with duckkb.open(filled) as kb:
        assert found(kb) == RIGHT


def test_a_link_is_not_followed_where_a_store_is_removed(filled: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (store_of(filled) / "node-note" / "away").symlink_to(elsewhere)
    cache_dirs.remove(store_of(filled))
    assert (elsewhere / "kept").exists() and not store_of(filled).exists()


def test_columns_are_opened_where_a_failure_can_be_met(tmp_path: Path) -> None:
    """`CosineLane` maps its matrix when it opens or makes it: a later question opens no file."""
    root = make_base(tmp_path / "kb", f"snapshot: {{min_bytes: 0}}\n{NOTES}")
    with duckkb.open(root) as kb:
        kb.collections.init("vecs", policy="feature-store", params={"dimension": 3})
        kb.put("vecs", [{"id": f"v{number}", "tensor": [number, 1, 2]} for number in range(9)])
        kb.find("vecs", vector=[1.0, 1.0, 2.0])
        assert kb._generations is not None
        lane = kb._generations.newest._lanes["vecs"].vectors
        (file,) = store_of(root).glob("*/vectors/*/matrix")
        before = lane._records.view.matrix.tolist()
        file.unlink()
        assert lane._records.view.matrix.tolist() == before and len(kb.find("vecs", vector=[1.0, 1.0, 2.0])) == 9


def test_what_was_cut_by_another_chunker_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and vectors on disk name chunks by their numbers, which another chunker gives to other texts."""
    root = make_base(tmp_path / "kb", f"snapshot: {{min_bytes: 0}}\n{NOTES}")

    def made_by_asking() -> set[str]:
        with duckkb.open(root) as kb:
            assert kb.find("Note", "crane", mode="match")
        return {path.name for path in store_of(root).glob("node-note/lexical/*")}

    with duckkb.open(root) as kb:
        kb.put("Note", {"id": "a", "text": "the crane lifts steel"}, embed=False)
    first = made_by_asking()
    assert first and made_by_asking() == first
    monkeypatch.setattr(index_entries, "FINGERPRINT", Fingerprint("boundaries", "of another version"))
    assert made_by_asking() != first


def _named(root: Path, folder: Path, variable: str) -> dict[str, str]:
    return {variable: str(folder)}


def _linked(root: Path, folder: Path, variable: str) -> dict[str, str]:
    link = root.parent / "link"
    link.symlink_to(folder)
    return {variable: str(link)}


def _in_the_machines_settings(root: Path, folder: Path, variable: str) -> dict[str, str]:
    state = root.parent / "machine"
    (state / "duckkb").mkdir(parents=True)
    (state / "duckkb" / "settings.json").write_text(json.dumps({"cache_home": str(folder)}))
    return {"XDG_STATE_HOME": str(state)}


def _nowhere(root: Path, folder: Path, variable: str) -> dict[str, str]:
    return {}


@pytest.mark.parametrize(
    ("lead", "variable", "folder"),
    [
        (_named, "XDG_CACHE_HOME", ".cache"),
        (_named, "DUCKKB_CACHE_HOME", ".cache"),
        (_named, "DUCKKB_CACHE_HOME", ".duckkb"),
        (_named, "DUCKKB_CACHE_HOME", "data"),
        (_linked, "XDG_CACHE_HOME", ".cache"),
        (_linked, "DUCKKB_CACHE_HOME", ".git"),
        (_in_the_machines_settings, "", ".cache"),
        *(
            (_nowhere, "", place)
            for place in (".", ".duckkb", ".duckkb/snapshot", ".duckkb/cache", "data", ".cache/duckkb")
        ),
    ],
)
def test_a_store_that_came_with_the_base_is_not_read(
    filled: Path,
    monkeypatch: pytest.MonkeyPatch,
    lead: Callable[[Path, Path, str], dict[str, str]],
    variable: str,
    folder: str,
) -> None:
    """Where the user's cache folder lies in the base, or is led there, whoever made the base could have filled it. Each place
    is tried with a store that has lost its records."""
    own = store_of(filled)
    home = filled / folder / "duckkb" if variable == "XDG_CACHE_HOME" else filled / folder
    forged = home / "bases" / own.name
    shutil.copytree(own, forged)
    (file,) = forged.glob("store-*.sqlite")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM part")
        connection.commit()
    cache_dirs.remove(own)
    shutil.copytree(forged, filled / folder, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in forged.rglob("*") if path.is_file()}
    for name, value in lead(filled, filled / folder, variable).items():
        monkeypatch.setenv(name, value)
    with duckkb.open(filled) as kb:
        assert found(kb) == RIGHT
        assert [notice.code for notice in kb.notices] == ([] if lead is _nowhere else ["W_NO_STORE"])
    assert {path: path.read_bytes() for path in forged.rglob("*") if path.is_file()} == before


def test_who_sees_a_change_second_opens_what_the_first_wrote_down(filled: Path) -> None:
    (part,) = (filled / "data/nodes/note").rglob("*.jsonl")
    with duckkb.open(filled) as first, duckkb.open(filled) as second:
        assert found(first) == found(second) == RIGHT
        part.write_bytes(part.read_bytes().replace(b'"id":"n01"', b'"id":"n99"'))
        now = sorted([*RIGHT[1:], "n99"])
        assert sorted(found(first)) == sorted(found(second)) == now
        assert all(kb._generations and kb._generations.newest.lines for kb in (first, second))


@pytest.mark.long
@pytest.mark.parametrize("what", ["emptied", "gone", "mended", "cut"])
def test_what_a_part_with_a_torn_line_held_is_found_no_more_once_it_is_gone(filled: Path, what: str) -> None:
    """Such a part is not in the store, and rows for filters are made of it all the same."""
    (part,) = (filled / "data/nodes/note").rglob("*.jsonl")
    lines = part.read_bytes().splitlines(keepends=True)
    with duckkb.open(filled) as kb:
        kb.put("Person", {"country": "x", "number": 1, "name": "b"})
    part.write_bytes(b"".join(lines) + b'{"torn": \n')
    with duckkb.open(filled, lenient=True) as kb:
        assert found(kb) == RIGHT
    if what == "gone":
        part.unlink()
    else:
        part.write_bytes({"emptied": b"", "mended": b"".join(lines), "cut": b"".join(lines[:20])}[what])
    for _ in range(2):
        with duckkb.open(filled, lenient=True) as kb:
            there = {"mended": RIGHT, "cut": [one for one in RIGHT if one < "n20"]}.get(what, [])
            assert found(kb) == there
            assert kb.sql("SELECT count(*) FROM note").rows == (({"mended": 40, "cut": 20}.get(what, 0),),)
