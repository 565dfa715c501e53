"""The store of a base: the lines of its parts as rows, and notes, in a SQLite file that changes as a whole.

SQLite finds what its own checks see. Each line is compared with its etag when it is read; all lines of a
canonical part are compared with the digest of its file.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from duckkb.store.database import Database, Schema, Unusable
from duckkb.store.place import Place
from duckkb.truth.files.part import etag

FILE = "store-3.sqlite"
INDICES = {
    "record_id": "record (type, id)",
    "record_identity": "record (type, identity)",
    "record_part": "record (part, line_no, id)",
}
_TYPE = """CREATE TABLE type (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, state TEXT NOT NULL
)"""
_PART = """CREATE TABLE part (
    number INTEGER PRIMARY KEY AUTOINCREMENT, type INTEGER NOT NULL, path TEXT NOT NULL, stamp BLOB NOT NULL,
    digest TEXT NOT NULL, canonical INTEGER NOT NULL, sorted INTEGER NOT NULL, count INTEGER NOT NULL
)"""
_RECORD = """CREATE TABLE record (
    type INTEGER NOT NULL, part INTEGER NOT NULL, line_no INTEGER NOT NULL, id INTEGER NOT NULL,
    flags INTEGER NOT NULL, etag BLOB NOT NULL, identity BLOB NOT NULL, line BLOB NOT NULL
)"""
_NOTE = "CREATE TABLE note (name TEXT PRIMARY KEY, data BLOB NOT NULL)"
_INDICES = (f"CREATE INDEX {name} ON {columns}" for name, columns in INDICES.items())
_SCHEMA = Schema(2, (_TYPE, _PART, _RECORD, *_INDICES, _NOTE))
"""`type`: the stored types; `key` names everything that affects how its lines are read, `state` changes with each
change. `part`: numbers are never reused; `stamp` is JSON. `record`: `identity` is JSON, `etag` 8 bytes, `flags`
as of `PartLines`. `note`: JSON that nothing depends on.
"""


class BaseStore:
    """The store of a base; in memory if the user's cache folder is unavailable, which `reason` then explains. If
    it `holds`, it sees a single state of the file (`Database`).
    """

    def __init__(self, place: Place, *, holds: bool = False) -> None:
        self.place = place
        self._holds = holds
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """Return the database; create it at the first request."""
        if self._database is None:
            reason = ""
            try:
                self.place.make()
            except Unusable as problem:
                reason = str(problem)
            self._database = Database(self.place.own / FILE, _SCHEMA, reason=reason, holds=self._holds)
        return self._database

    @property
    def reason(self) -> str:
        """Return why nothing outlives this process; empty if the file is used or not opened yet."""
        return self._database.reason if self._database is not None else ""

    def build_damage_error(self, what: str) -> Unusable:
        """Drop the damaged file, so that nobody opens it again, and return the error to raise."""
        self.database.drop()
        return Unusable(f"{what} is damaged")

    def note(self, name: str) -> Any:
        """Return the JSON value noted under a name; None if nothing readable is there."""
        with suppress(Unusable, ValueError, TypeError, RecursionError):
            for (data,) in self.database.read("SELECT data FROM note WHERE name = ?", (name,)):
                return json.loads(data)
        return None

    def keep(self, name: str, note: Any) -> bool:
        """Note a value that nothing depends on; return False if that fails."""
        try:
            with self.database.begin_write() as connection:
                connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (name, json.dumps(note).encode()))
        except Unusable:
            return False
        return True

    @contextmanager
    def begin_write(self, busy_s: float) -> Iterator[sqlite3.Connection]:
        """Change the file; wait at most `busy_s` seconds for other processes. Raises `Unusable`."""
        self.database.let_go()
        self.database.read(f"PRAGMA busy_timeout={int(busy_s * 1000)}")
        with self.database.begin_write() as connection:
            yield connection

    def problem(self) -> str | None:
        """Examine the existing file with every line and describe its damage; None if it is sound or missing.
        Creates and removes no file.
        """
        if not os.path.lexists(self.place.own / FILE):
            return None
        if (problem := self.database.problem()) is not None:
            return problem
        lines = "SELECT etag, line FROM record WHERE part = ?"
        try:
            for number, path, count in self.database.read("SELECT number, path, count FROM part"):
                rows = self.database.read(lines, (number,))
                if len(rows) != count or not is_as_written(rows):
                    return f"its copy of {path} is damaged"
        except (Unusable, TypeError) as error:
            return str(error)
        finally:
            self.close()
        return None

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def is_as_written(rows: list[tuple[bytes, bytes]]) -> bool:
    """Return whether each etag matches its line."""
    return all(etag(line) == tag for tag, line in rows)
