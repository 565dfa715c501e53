"""The store of one base: named values and the contents of parts, each sealed, in one file that changes as a whole.

SQLite says when a page makes no sense, not when a byte of a value or of its own index was turned: so each value carries a
checksum over its name and its bytes, and what is asked for by a name that must be there and is not means damage, too.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from duckkb.store.database import Database, Schema, Unusable
from duckkb.store.place import Place
from duckkb.truth.files.part import PartHead, etag

FILE = "store-2.sqlite"
_SCHEMA = Schema(
    1,
    (
        "CREATE TABLE value (name TEXT PRIMARY KEY, seal BLOB NOT NULL, data BLOB NOT NULL)",
        "CREATE TABLE part (number INTEGER PRIMARY KEY AUTOINCREMENT, seal BLOB NOT NULL, head BLOB, text BLOB)",
        "CREATE TABLE change (type TEXT, revision INTEGER, data BLOB NOT NULL, seal BLOB NOT NULL,"
        " PRIMARY KEY (type, revision))",
        "CREATE TABLE gone (number INTEGER PRIMARY KEY, at INTEGER NOT NULL)",
    ),
    page_bytes=32_768,
)
"""`value`: everything that has a name. `part`: heads and lines of parts (`PartContent`), never changed. `change`: the ids
that a revision touched, and the revision before. `gone`: parts that were replaced, and when (seconds)."""
_NOTE = "note/"


class BaseStore:
    """What is kept of one base; in memory where the user's cache folder cannot be had, which `reason` says. One that `holds`
    sees one state of the file (`Database`)."""

    def __init__(self, place: Place, *, holds: bool = False) -> None:
        self.place = place
        self._holds = holds
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """The file, made when it is first asked for."""
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
        """Why nothing is kept beyond this process; empty where it is, or nobody has asked yet."""
        return self._database.reason if self._database is not None else ""

    def value(self, name: str) -> bytes | None:
        """A value; None where there is none. Raises `Unusable`."""
        rows = self.database.read("SELECT seal, data FROM value WHERE name = ?", (name,))
        if not rows:
            return None
        seal, data = rows[0]
        if seal != compute_checksum(name, data):
            raise self.damaged(name)
        return bytes(data)

    def damaged(self, what: str) -> Unusable:
        """The error for what is not as it was written; the file is dropped, so that nobody opens it again."""
        self.database.drop()
        return Unusable(f"{what} is damaged")

    def note(self, name: str) -> Any:
        """What was noted under a name, as JSON has it; None where there is nothing that can be read."""
        with suppress(Unusable, ValueError, RecursionError):
            data = self.value(_NOTE + name)
            return None if data is None else json.loads(data)
        return None

    def keep(self, name: str, note: Any) -> bool:
        """Note something that nothing depends on; False where that cannot be done."""
        try:
            with self.database.writing() as connection:
                put(connection, _NOTE + name, json.dumps(note).encode())
        except Unusable:
            return False
        return True

    @contextmanager
    def writing(self, busy_s: float) -> Iterator[sqlite3.Connection]:
        """Change the file, waiting so many seconds for others. Raises `Unusable`."""
        self.database.let_go()
        self.database.read(f"PRAGMA busy_timeout={int(busy_s * 1000)}")
        with self.database.writing() as connection:
            yield connection

    def problem(self) -> str | None:
        """What is wrong with what lies there, where every byte of it is looked at; None: nothing, or there is none. Makes no
        file and removes none."""
        if not os.path.lexists(self.place.own / FILE):
            return None
        if (flaw := self.database.problem()) is not None:
            return flaw
        try:
            for name, seal, data in self.database.read("SELECT name, seal, data FROM value"):
                if seal != compute_checksum(name, data):
                    return f"{name} is not as it was written"
            for (number,) in self.database.read("SELECT number FROM part"):
                if not self._is_sound_part(number):
                    return f"part {number} is not as it was written"
        except (Unusable, ValueError) as error:
            return str(error)
        finally:
            self.close()
        return None

    def _is_sound_part(self, number: int) -> bool:
        for seal, head, text in self.database.read("SELECT seal, head, text FROM part WHERE number = ?", (number,)):
            lines = text.split(b"\n")[:-1]
            if (
                seal != compute_checksum(f"part/{number}", head)
                or b"".join(map(etag, lines)) != PartHead.load(len(lines), head).etags
            ):
                return False
        return True

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def put(connection: sqlite3.Connection, name: str, data: bytes) -> None:
    """Write a value in a change that has begun."""
    connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?, ?)", (name, compute_checksum(name, data), data))


def compute_checksum(name: str, data: bytes) -> bytes:
    """The checksum that goes with a value."""
    return blake2b(data, digest_size=16, key=blake2b(name.encode(), digest_size=32).digest()).digest()
