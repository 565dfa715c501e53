"""One file of derived state: sound, or made anew, or in memory; never an error of who asks."""

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any, ClassVar

import pytest

from duckkb.storage import base_lock
from duckkb.store import store_database
from duckkb.store.store_database import Database, Schema, Unusable

SCHEMA = Schema(1, ("CREATE TABLE word (word TEXT)",))


def opened(folder: Path, schema: Schema = SCHEMA) -> Database:
    return Database(folder / "store.sqlite", schema, busy_s=0.1)


def add(store: Database, word: str) -> None:
    with store.begin_write() as connection:
        connection.execute("INSERT INTO word VALUES (?)", (word,))


def words(store: Database) -> list[str]:
    return [word for (word,) in store.read("SELECT word FROM word ORDER BY word")]


def test_what_was_written_is_there_for_others(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, "a")
    assert words(other) == ["a"]
    assert one.is_lasting and one.is_in_place


def test_a_change_that_fails_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(RuntimeError), store.begin_write() as connection:
        connection.execute("INSERT INTO word VALUES ('a')")
        raise RuntimeError
    assert words(store) == []


def test_a_reader_that_holds_goes_on_with_what_it_saw_beside_a_writer(tmp_path: Path) -> None:
    reader, writer = Database(tmp_path / "store.sqlite", SCHEMA, holds=True), opened(tmp_path)
    add(writer, "a")
    assert words(reader) == ["a"]
    add(writer, "b")
    assert words(reader) == ["a"]
    reader.let_go()
    assert words(reader) == ["a", "b"]


def test_a_file_that_another_process_holds_is_unusable_and_stays(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, "a")
    assert words(other) == ["a"]
    with one.begin_write(), pytest.raises(Unusable, match="locked"):
        add(other, "b")
    add(other, "b")
    assert words(one) == ["a", "b"]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def _newer(path: Path) -> None:
    Database(path, Schema(2, ("CREATE TABLE other (x)",))).drop()
    add_other = Database(path, Schema(2, ("CREATE TABLE other (x)",)))
    assert add_other.is_lasting


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE word (word TEXT)")


HARMS: dict[str, Callable[[Path], object]] = {
    "cut": _cut,
    "overwritten": lambda path: path.write_bytes(b"no database" * 2000),
    "a link": _link,
    "a newer form": _newer,
    "another program's": _foreign,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir(), (path / "x").touch()),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_no_sound_file_of_ours_is_made_anew(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "store.sqlite"
    store = opened(tmp_path)
    for number in range(3000):
        store.read("INSERT INTO word VALUES (?)", (f"{number:040}",))
    store.close()
    assert opened(tmp_path).problem() is None
    HARMS[harm](path)
    after = opened(tmp_path)
    try:
        assert after.read("SELECT count(*) FROM word") == [(0,)]
    except Unusable:  # it is seen when the damaged page is read
        assert after.read("SELECT count(*) FROM word") == [(0,)]
    add(after, "a")
    assert words(opened(tmp_path)) == ["a"]
    assert after.is_lasting


def test_where_no_file_can_be_had_it_is_in_memory_and_says_why(tmp_path: Path) -> None:
    for store in (Database(tmp_path / "absent" / "store.sqlite", SCHEMA), Database(None, SCHEMA, reason="no home")):
        add(store, "a")
        assert words(store) == ["a"]
        assert store.reason and not store.is_lasting


def test_a_file_that_vanished_is_noticed_and_the_open_one_still_answers(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, "a")
    (tmp_path / "store.sqlite").unlink()
    assert words(store) == ["a"]
    assert not store.is_in_place
    store.close()
    assert words(store) == []


def test_over_a_network_there_is_no_log_that_wants_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("1 0 0:1 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(store_database.clone_state, "MOUNTS", mounts)
    store = opened(tmp_path)
    add(store, "a")
    assert store.read("PRAGMA journal_mode") == [("delete",)]
    assert store.read("PRAGMA synchronous") == [(2,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_opens_the_file_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, "a")
    child = os.fork()
    if child == 0:
        try:
            add(store, "b")
            store.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    add(store, "c")
    assert words(store) == ["a", "b", "c"]


def test_a_file_that_others_made_in_place_of_a_damaged_one_stays(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, "a")
    assert words(other) == ["a"]
    one.drop()
    add(one, "b")
    other.drop()  # of what it has open, which is gone already
    assert words(one) == words(other) == words(opened(tmp_path)) == ["b"]
    assert one.is_in_place and other.is_in_place


def test_a_sound_file_that_is_busy_is_not_dropped_as_damaged(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, "a")
    with closing(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)) as holder:
        one.close()
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        assert "locked" in (other.problem() or "")
        assert not other.remove_if_damaged()
    assert words(one) == ["a"]


class _Beside(sqlite3.Connection):
    """A connection beside which another begins before its second statement, and goes on as far as it may."""

    others: ClassVar[list[Thread]] = []
    asked = 0

    def execute(self, *given: Any) -> sqlite3.Cursor:
        self.asked += 1
        if self.asked == 2 and self.others and current_thread() is main_thread():
            other = self.others.pop()
            other.start()
            other.join(0.2)
        return super().execute(*given)


def test_a_file_that_is_made_while_another_process_looks_at_it_is_one_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster, slower = Database(tmp_path / "store.sqlite", SCHEMA), Database(tmp_path / "store.sqlite", SCHEMA)
    (tmp_path / "store.sqlite").touch()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=_Beside))
    thread = Thread(target=add, args=(faster, "a"))
    monkeypatch.setattr(_Beside, "others", [thread])
    add(slower, "b")
    thread.join()
    assert words(faster) == words(slower) == words(opened(tmp_path)) == ["a", "b"]


def test_who_waits_for_a_file_that_is_being_made_says_who_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_database, "_MAKING_S", 0.0)
    store = opened(tmp_path)
    with base_lock.hold_lock_beside(tmp_path / "store.sqlite", "exclusive", 0.0):
        assert not store.is_lasting
    assert f"process {os.getpid()}" in store.reason


def _writes(folder: Path) -> str:
    store = Database(folder / "store.sqlite", SCHEMA)
    for _ in range(10):
        add(store, "x")
    store.close()
    return store.reason


def test_processes_that_begin_at_once_make_one_file(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_writes, [tmp_path] * 4)) == [""] * 4
    assert opened(tmp_path).read("SELECT count(*) FROM word") == [(40,)]
