"""In which part of a type a record may stand, by its id or the hash of its identity.

Keys lie in buckets by their lowest bits, each a sealed value with some hundred keys: a look-up reads one, a change writes
those of the keys that come. Keys that went stay, and a key may be another record's: who asks looks into the part.
"""

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise

from duckkb.store import base_store
from duckkb.store.base_store import BaseStore

_FILL = 512
_FULL = 4 * _FILL
ALL = (1 << 64) - 1

Key = int
"""64 bits: an id, or the hash of an identity."""
Entries = list[tuple[Key, int]]
"""Keys with the number of a part's path (`slot`), in order."""


class KeyIndex:
    """The buckets of one type, `count` of them (a power of two; 0: none yet), as they are read."""

    def __init__(self, store: BaseStore, name: str, count: int = 0) -> None:
        self._store, self._name, self.count = store, name, count
        self._read: dict[int, tuple[array[int], array[int]]] = {}

    def slots(self, key: Key) -> Iterator[int]:
        """Where a key may be found. Raises `Unusable`."""
        if not self.count:
            return
        key &= ALL
        keys, slots = self._bucket(key & (self.count - 1))
        at = bisect_left(keys, key)
        while at < len(keys) and keys[at] == key:
            yield slots[at]
            at += 1

    def build(self, connection: sqlite3.Connection, keys: Iterable[Key], slots: Iterable[int], size: int) -> bool:
        """Make the index anew of `size` keys and their slots; False where a key occurs twice."""
        self.drop(connection)
        self.count = 1
        while self.count * _FILL < size:
            self.count *= 2
        buckets: list[Entries] = [[] for _ in range(self.count)]
        mask = self.count - 1
        for key, slot in zip(keys, slots, strict=True):
            buckets[key & mask].append((key & ALL, slot))
        is_unique = True
        for number, entries in enumerate(buckets):
            entries.sort()
            is_unique = is_unique and all(entry[0] != successor[0] for entry, successor in pairwise(entries))
            self._write(connection, number, entries)
        return is_unique

    def add(self, connection: sqlite3.Connection, fresh: Iterable[tuple[Key, int]]) -> bool:
        """Add keys with their slots; False where a bucket has become too full, so that it is time to build."""
        additions: dict[int, set[tuple[Key, int]]] = {}
        for key, slot in fresh:
            additions.setdefault(key & (self.count - 1), set()).add((key & ALL, slot))
        is_fit = True
        for number, entries in additions.items():
            stored_entries = set(zip(*self._bucket(number), strict=True))
            if not entries <= stored_entries:
                self._write(connection, number, sorted(stored_entries | entries))
                is_fit = is_fit and len(stored_entries | entries) <= _FULL
        return is_fit

    def drop(self, connection: sqlite3.Connection) -> None:
        """Remove all buckets."""
        connection.execute("DELETE FROM value WHERE name GLOB ?", (f"index/{self._name}/*",))
        self._read.clear()
        self.count = 0

    def _bucket_name(self, number: int) -> str:
        return f"index/{self._name}/{self.count}/{number}"

    def _bucket(self, number: int) -> tuple["array[int]", "array[int]"]:
        bucket = self._read.get(number)
        if bucket is None:
            name = self._bucket_name(number)
            data = self._store.value(name)
            if data is None:
                raise self._store.damaged(name)
            bucket = self._read[number] = _unpack_bucket(data)
        return bucket

    def _write(self, connection: sqlite3.Connection, number: int, entries: Entries) -> None:
        keys, slots = array("Q", [key for key, _ in entries]), array("I", [slot for _, slot in entries])
        base_store.put(connection, self._bucket_name(number), keys.tobytes() + slots.tobytes())
        self._read[number] = keys, slots


def _unpack_bucket(data: bytes) -> tuple["array[int]", "array[int]"]:
    count = len(data) // 12
    return array("Q", data[: 8 * count]), array("I", data[8 * count :])
