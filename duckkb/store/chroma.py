"""Reads the file of a local Chroma, `chroma.sqlite3`, without writing it: its collections and the content of each
entry.

Chroma queues a write until it next reads the collection, so the queue is read too.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.types.errors import StateError

FILE = "chroma.sqlite3"
DOCUMENT = "chroma:document"
_ARRAYS = "embedding_metadata_array"
_TABLES = ("collections", "segments", "embeddings", "embedding_metadata", "embeddings_queue", "max_seq_id")
_COLUMNS = "key, string_value, int_value, float_value, bool_value"
_IN_SEGMENT = "id IN (SELECT id FROM embeddings WHERE segment_id = ?)"
_ADD, _UPDATE, _UPSERT, _DELETE = range(4)

Metadata = dict[str, Any]


class ChromaCollection(Struct, frozen=True):
    """A collection of Chroma: its UUID, its name, and the metadata of each entry by id, with the document under
    `DOCUMENT`. Values are texts, whole numbers, floats, booleans, and lists of values of the same kind.
    """

    id: str
    name: str
    entries: dict[str, Metadata]


def read(path: Path) -> list[ChromaCollection]:
    """Read all collections, in the order of their names. Raises `errors.StateError` (E_FOREIGN) if the file is
    damaged or does not belong to Chroma.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            file.execute("BEGIN")  # reads a single state of the file while others write
            present = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if lacking := [name for name in _TABLES if name not in present]:
                raise _build_foreign_error(path, f"it has no table {lacking[0]}")
            for table in (*_TABLES, *({_ARRAYS} & present)):
                ((verdict,), *_) = file.execute(f"PRAGMA quick_check('{table}')")
                if verdict != "ok":
                    raise _build_foreign_error(path, f"it is damaged: {verdict}")
            rows = file.execute("SELECT id, name FROM collections ORDER BY name, id").fetchall()
            return [ChromaCollection(id, name, _read_entries(file, id, _ARRAYS in present)) for id, name in rows]
    except (sqlite3.Error, ValueError, RecursionError) as error:
        raise _build_foreign_error(path, f"it cannot be read: {error}") from error


def _read_entries(file: sqlite3.Connection, collection: str, has_arrays: bool) -> dict[str, Metadata]:
    """Read the entries of a collection: first the metadata segment, then the queued changes."""
    entries: dict[str, Metadata] = {}
    last_seq = -1
    of_metadata = "SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA'"
    for (segment,) in file.execute(of_metadata, (collection,)).fetchall():
        rows = file.execute("SELECT id, embedding_id FROM embeddings WHERE segment_id = ? ORDER BY id", (segment,))
        by_row: dict[int, Metadata] = {row: entries.setdefault(name, {}) for row, name in rows}
        statement = f"SELECT id, {_COLUMNS} FROM embedding_metadata WHERE {_IN_SEGMENT} ORDER BY id, key"
        for row, key, *values in file.execute(statement, (segment,)):
            by_row[row][key] = _pick_value(*values)
        statement = f"SELECT id, {_COLUMNS} FROM {_ARRAYS} WHERE {_IN_SEGMENT} ORDER BY rowid"
        for row, key, *values in file.execute(statement, (segment,)) if has_arrays else ():
            by_row[row].setdefault(key, []).append(_pick_value(*values))
        for (seq,) in file.execute("SELECT seq_id FROM max_seq_id WHERE segment_id = ?", (segment,)):
            last_seq = int.from_bytes(seq, "big") if isinstance(seq, bytes) else int(seq)
    for operation, name, changes in _iter_queue(file, collection, last_seq):
        _apply(entries, operation, name, changes)
    return entries


def _pick_value(text: str | None, whole: int | None, fraction: float | None, truth: int | None) -> Any:
    if truth is not None:
        return bool(truth)
    return next((value for value in (text, whole, fraction) if value is not None), None)


def _iter_queue(file: sqlite3.Connection, collection: str, last_seq: int) -> Iterator[tuple[int, str, Metadata]]:
    """Yield the writes that the metadata segment does not have yet; null in a metadata removes a key."""
    statement = "SELECT operation, id, metadata FROM embeddings_queue WHERE topic LIKE ? AND seq_id > ? ORDER BY seq_id"
    for operation, name, metadata in file.execute(statement, (f"%/{collection}", last_seq)):
        changes = json.loads(metadata) if metadata else {}
        if not isinstance(changes, dict):
            raise ValueError(f"the metadata of {name} in its queue is not an object")
        yield operation, name, changes


def _apply(entries: dict[str, Metadata], operation: int, name: str, changes: Metadata) -> None:
    """Apply a queued write as Chroma does: an add of an existing entry and an update of a missing entry change
    nothing.
    """
    if operation == _DELETE:
        entries.pop(name, None)
    elif operation == _UPSERT or (operation == _ADD) != (name in entries):
        combination = {**entries.get(name, {}), **changes}
        entries[name] = {key: value for key, value in combination.items() if value is not None}


def _build_foreign_error(path: Path, why: str) -> StateError:
    message = f"{path} is not a readable Chroma file: {why}; nothing was written"
    return StateError(message, "E_FOREIGN", f"give the {FILE} of a local Chroma (its PersistentClient), or its folder")
