"""The records of one type as they are to be read: one per identity, each with an id of its own.

Files may hold more than one line of a record (two branches added it) and one id for two records. Reading goes on then:
lines of one record are merged field by field, and of two records with one id the later in path order gets a free one.
Both are mended in memory alone, and the same way whether the files were read at once or one after the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Identity, Record, component_of, identity_key
from duckkb.truth.files.ids import free_id
from duckkb.truth.files.line import Limits, LineShape, decode, record_line
from duckkb.truth.files.source_text import merge_duplicates
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A record and the line that holds it.

    `line` is canonical, with `__id` and times, without LF, whatever the file has. `complete` says that the file has id and
    times too, `canonical` that what it has is in canonical form. `path` is relative to the knowledge base; lines count
    from 1.
    """

    record: Record
    line: bytes
    path: str
    line_no: int
    complete: bool = True
    canonical: bool = True

    @property
    def position(self) -> tuple[str, int]:
        return self.path, self.line_no

    @property
    def order(self) -> tuple[tuple[Any, ...], int]:
        """Sorts the lines of a part: by identity, then `__id`."""
        return identity_key(self.record.identity), self.record.id

    @property
    def as_stored(self) -> bool:
        """Whether the file has exactly `line`."""
        return self.complete and self.canonical

    def at_line(self, number: int) -> "StoredRow":
        """The row where that is the number of its line, as the file has it."""
        if self.line_no == number and self.as_stored:
            return self
        return StoredRow(self.record, self.line, self.path, number)


class Repeated(Exception):
    """Two records have come to share an identity or an id, which takes all records of the type to mend."""


Swapped = Mapping[str, Sequence[StoredRow]]
"""The rows of files by path, in path order."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What replacing some lines did to the records: those to put, the ids that are gone, and identities come and gone."""

    upserts: list[StoredRow]
    gone: list[int]
    appeared: list[Identity]
    vanished: list[Identity]


def record_of(kind: RecordType, values: dict[str, Any]) -> Record:
    """A record of a complete and sound line's values; takes `__id` and the times out of them and keeps the rest."""
    identity, created_at = identity_in(kind, values), values.pop(CREATED_AT)
    return Record(kind.name, values.pop(ID), identity, values, created_at, values.pop(UPDATED_AT))


def identity_in(kind: RecordType, values: Mapping[str, Any]) -> Identity:
    """The identity that the values of a sound line spell."""
    names = kind.identity_fields
    if len(names) == 1 and type(only := values[names[0]]) is str:  # nearly all of them, and there may be millions
        return (only,)
    return tuple([component_of(values[name]) for name in names])


class Table:
    """The rows of one type. Changing lines costs in proportion to them and to the records that need mending."""

    def __init__(self, kind: RecordType, limits: Limits, rows: Iterable[StoredRow] = ()) -> None:
        self._kind = kind
        self._limits = limits
        self._shape = LineShape(kind.identity_fields)
        self._stored: dict[Identity, tuple[StoredRow, ...]] = {}
        self._joined: dict[Identity, StoredRow] = {}
        self._owners: dict[int, Identity] = {}
        self._contested: dict[int, set[Identity]] = {}
        self._moved: dict[Identity, StoredRow] = {}
        self._moved_ids: dict[int, Identity] = {}
        for identity, own in _by_identity(rows).items():
            self._put(identity, own)
        self._reassign()

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._stored)

    @property
    def is_mended(self) -> bool:
        """Whether any record differs from its line."""
        return bool(self._joined or self._moved)

    def get(self, identity: Identity) -> StoredRow | None:
        row = self._moved.get(identity) or self._joined.get(identity)
        if row is None and (lines := self._stored.get(identity)):
            return lines[0]
        return row

    def by_id(self, record_id: int) -> StoredRow | None:
        identity = self._moved_ids.get(record_id) or self._owners.get(record_id)
        return self.get(identity) if identity is not None else None

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        """Every line of a record, in path order; more than one for a duplicate."""
        return self._stored.get(identity, ())

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {identity: self._stored[identity] for identity in sorted(self._joined, key=identity_key)}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        """Ids that several records claim, with those records as stored, the one that keeps the id first."""
        return {
            record_id: tuple(self._claimant(rival) for rival in self._ranked(self._contested[record_id]))
            for record_id in sorted(self._contested)
        }

    def swap(self, old: Swapped, new: Swapped) -> Difference:
        """Put the rows of files read anew (`new`) in the place of those that the files had (`old`)."""
        incoming = _by_identity(chain.from_iterable(new.values()))
        paths = old.keys() | new.keys()
        touched = dict.fromkeys([*(row.record.identity for row in chain.from_iterable(old.values())), *incoming])
        before = {identity: self.get(identity) for identity in [*touched, *self._moved]}
        for identity in touched:
            kept = [row for row in self._stored.get(identity, ()) if row.path not in paths]
            self._put(identity, kept + incoming.get(identity, []))
        self._reassign()
        before |= {identity: self._claimant(identity) for identity in self._moved if identity not in before}
        return difference(before, {identity: row for identity in before if (row := self.get(identity))})

    def _put(self, identity: Identity, rows: list[StoredRow]) -> None:
        """Give a record these lines and no others."""
        if identity in self._stored:
            self._release(identity)
            del self._stored[identity]
            self._joined.pop(identity, None)
        if not rows:
            return
        if len(rows) > 1:
            rows.sort(key=lambda row: row.position)
            self._joined[identity] = self._join(rows)
        self._stored[identity] = tuple(rows)
        self._claim(identity)

    def _join(self, rows: list[StoredRow]) -> StoredRow:
        line = merge_duplicates([row.line for row in rows], self._kind.identity_fields)
        # Together the lines may be longer than one may be; that is for whoever writes them as one to refuse.
        limits = replace(self._limits, max_record_bytes=max(self._limits.max_record_bytes, len(line)))
        record = record_of(self._kind, decode(line, self._shape, limits).values)
        return replace(rows[0], record=record, line=line)

    def _claimant(self, identity: Identity) -> StoredRow:
        return self._joined.get(identity) or self._stored[identity][0]

    def _claim(self, identity: Identity) -> None:
        record_id = self._claimant(identity).record.id
        owner = self._owners.setdefault(record_id, identity)
        if owner != identity:
            self._contested.setdefault(record_id, {owner}).add(identity)

    def _release(self, identity: Identity) -> None:
        lines = self._stored[identity]
        record_id = min(row.record.id for row in lines)
        rivals = self._contested.get(record_id)
        if rivals is None:
            del self._owners[record_id]
            return
        rivals.discard(identity)
        if len(rivals) == 1:
            del self._contested[record_id]
        self._owners[record_id] = next(iter(rivals))

    def _ranked(self, rivals: Iterable[Identity]) -> list[Identity]:
        return sorted(rivals, key=lambda identity: self._claimant(identity).position)

    def _reassign(self) -> None:
        """Give a free id to every record whose id an earlier one has. All anew each time: there are few, if any."""
        self._moved.clear()
        self._moved_ids.clear()
        losers = []
        for record_id, rivals in self._contested.items():
            winner, *others = self._ranked(rivals)
            self._owners[record_id] = winner
            losers += others
        for identity in self._ranked(losers):
            row = self._claimant(identity)
            record_id = free_id(self._kind.kind, self._kind.table, identity, self._is_taken)
            record = replace(row.record, id=record_id)
            line = record_line(record, self._shape, self._limits.depth)
            self._moved[identity] = replace(row, record=record, line=line)
            self._moved_ids[record_id] = identity

    def _is_taken(self, record_id: int) -> bool:
        return record_id in self._owners or record_id in self._moved_ids


def _by_identity(rows: Iterable[StoredRow]) -> dict[Identity, list[StoredRow]]:
    found: dict[Identity, list[StoredRow]] = {}
    for row in rows:
        identity = row.record.identity
        if identity in found:
            found[identity].append(row)
        else:
            found[identity] = [row]
    return found


def difference(before: Mapping[Identity, StoredRow | None], after: Mapping[Identity, StoredRow]) -> Difference:
    """What became of the records that `before` names."""
    upserts = [
        row
        for identity, old in before.items()
        if (row := after.get(identity)) and (old is None or old.line != row.line)
    ]
    in_use = {row.record.id for row in after.values()}
    gone = [row.record.id for row in before.values() if row and row.record.id not in in_use]
    return Difference(
        upserts,
        gone,
        [identity for identity, row in before.items() if row is None and identity in after],
        [identity for identity, row in before.items() if row and identity not in after],
    )
