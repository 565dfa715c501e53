"""The records of one type whose lines lie in the store: found through the index, decoded when they are asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from duckkb.ontology.model import RecordType
from duckkb.records import Identity
from duckkb.store.key_index import ALL
from duckkb.truth.files.part_rows import PartContent, PartRows, identity_hash, unshared
from duckkb.truth.files.table import Difference, Repeated, StoredRow, Swapped, difference
from duckkb.truth.files.tree import Part

_KEPT = 4096  # rows that were found lately


class StoredTable:
    """As `table.Table`, of a type without duplicates and contested ids. `where` gives paths of parts in which a key (an id, the
    hash of an identity) may stand; parts that were replaced since are in memory, with the keys that are new in them."""

    is_mended = False

    def __init__(self, kind: RecordType, parts: Mapping[str, Part], where: Callable[[int], Iterable[str]]) -> None:
        self._kind, self._where = kind, where
        self._rows = {path: self._by_place(path, part.rows) for path, part in parts.items()}
        self._fresh: dict[int, str] = {}
        self._lately: dict[int, StoredRow] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[Identity]:
        for path in sorted(self._rows):
            yield from (record.identity for record in self._rows[path].records)

    def get(self, identity: Identity) -> StoredRow | None:
        hashed = identity_hash(identity)
        for rows in self._candidates(hashed):
            row = rows.with_identity(identity, hashed)
            if row is not None:
                return row
        return None

    def by_id(self, record_id: int) -> StoredRow | None:
        known = self._lately.get(record_id)  # an answer asks for the same few again and again
        if known is None:
            found = (rows.with_id(record_id) for rows in self._candidates(record_id & ALL))
            known = next((row for row in found if row is not None), None)
            if known is not None:
                if len(self._lately) >= _KEPT:
                    self._lately.clear()
                self._lately[record_id] = known
        return known

    def ids(self) -> Iterator[int]:
        """The ids of all records, in path order."""
        for path in sorted(self._rows):
            yield from self._rows[path].content.head.ids

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        row = self.get(identity)
        return (row,) if row else ()

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        return {}

    def swap(self, old: Swapped, new: Swapped) -> Difference:
        """As `Table.swap`. Raises `Repeated` where two records would share an identity or an id; it is of no use then."""
        self._lately.clear()
        before = {row.record.identity: row for path, rows in old.items() for row in unshared(rows, new.get(path, ()))}
        after = [row for path, rows in new.items() for row in unshared(rows, old.get(path, ()))]
        for path in old.keys() - new.keys():
            self._rows.pop(path, None)
        for path, rows in new.items():
            self._rows[path] = self._by_place(path, rows)
            if _repeats(self._rows[path].content):
                raise Repeated
        for row in after:
            self._claim(row)
        incoming = {row.record.identity: row for row in after}
        return difference({identity: before.get(identity) for identity in {**before, **incoming}}, incoming)

    def rest_on(self, parts: Mapping[str, Part]) -> None:
        """Have the rows of these parts from where they are now, which is where the index leads to."""
        for path, part in parts.items():
            self._rows[path] = self._by_place(path, part.rows)
        self._fresh = {key: path for key, path in self._fresh.items() if path not in parts}

    def _claim(self, row: StoredRow) -> None:
        """Have a new row be found. Raises `Repeated` where its id or identity stands elsewhere, too."""
        record = row.record
        hashed = identity_hash(record.identity)
        for key in (record.id & ALL, hashed):
            for rows in self._candidates(key):
                if rows is not self._rows[row.path] and (
                    rows.with_id(record.id) is not None or rows.with_identity(record.identity, hashed) is not None
                ):
                    raise Repeated
            self._fresh[key] = row.path

    def _candidates(self, key: int) -> Iterator[PartRows]:
        """The parts in which a key may stand."""
        first = self._fresh.get(key)
        if first in self._rows:
            yield self._rows[first]
        for path in self._where(key):
            if path != first and path in self._rows:
                yield self._rows[path]

    def _by_place(self, path: str, rows: Iterable[StoredRow]) -> PartRows:
        if isinstance(rows, PartRows):
            return rows
        return PartRows.of(self._kind, path, PartContent.of_rows([*rows]))


def _repeats(content: PartContent) -> bool:
    return any(len(set(keys)) < len(keys) for keys in (content.head.ids, content.head.hashes))
