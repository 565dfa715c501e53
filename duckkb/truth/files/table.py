"""The records of one type as they are to be read: one per identity, each with an id of its own.

Files may hold more than one line of a record (two branches added it) and one id for two records. Reading goes on then:
lines of one record are merged field by field, and of two records with one id the later in path order gets a free one.
Both are mended in memory alone (`MendedTable`), and the same way whether the files were read at once or one after the other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.records import Identity, identity_key
from duckkb.truth.files.ids import free_id
from duckkb.truth.files.line import Limits, LineShape, decode, record_line
from duckkb.truth.files.part import Part, PartRows, StoredRow, encode_identity, hash_of, identity_hash, record_of
from duckkb.truth.files.source_text import merge_duplicates

_KEPT = 4096  # rows that were found lately


class Repeated(Exception):
    """Two records have come to share an identity or an id, which takes all records of the type to mend."""


Swapped = Mapping[str, PartRows]
"""The rows of files by path, in path order."""


class Difference(Struct, frozen=True):
    """What replacing some lines did to the records: the ids of those to put and of those that are gone, and identities come
    and gone."""

    upserts: list[int]
    gone: list[int]
    appeared: Iterable[Identity]
    vanished: Iterable[Identity]


class Table:
    """The rows of one type of which none stands twice: found by keys (an id, the hash of an identity) and decoded when they are
    asked for. `where` gives paths of parts in which a key may stand; without it, and of parts that were replaced since, the
    keys are in memory; so are all of them once it gives None, as it cannot tell any more. Changing lines costs in proportion to them.

    Raises `Repeated` where two records of parts in memory share an identity or an id.
    """

    is_mended = False

    def __init__(self, parts: Mapping[str, Part], where: Callable[[int], Iterable[str] | None] | None = None) -> None:
        self.is_stored = where is not None
        self._where = where or _give_no_paths
        self._rows = {path: part.rows for path, part in parts.items()}
        self._count: int | None = None
        self._fresh: dict[int, tuple[str, int]] = {}
        self._lately: dict[int, StoredRow] = {}
        if where is None:
            for path in self._rows:
                self._hold(path)

    def __len__(self) -> int:
        if self._count is None:  # each question asks several times
            self._count = sum(map(len, self._rows.values()))
        return self._count

    def __iter__(self) -> Iterator[Identity]:
        for path in sorted(self._rows):
            yield from (record.identity for record in self._rows[path].records)

    def get(self, identity: Identity) -> StoredRow | None:
        if not self._rows:
            return None
        try:
            key = identity_hash(identity)
        except TypeError:  # half a character: asked for by a command line, and in no line
            return None
        return self._find_row(key, lambda row: row.record.identity == identity)

    def by_id(self, record_id: int) -> StoredRow | None:
        return self._find_row(record_id, lambda row: row.record.id == record_id) if self._rows else None

    def id_of(self, identity: Identity) -> int | None:
        """The id of the record with this identity; no line is read for it."""
        try:
            identity_text = encode_identity(identity)
        except TypeError:  # half a character
            return None
        key = hash_of(identity_text)
        heads = ((rows.content.head, at) for rows, at in self._find_places(key))
        return next(
            (
                head.ids[at]
                for head, at in heads
                if head.hashes[at] == key and head.encode_identity_at(at) == identity_text
            ),
            None,
        )

    def identity(self, record_id: int) -> Identity | None:
        """The identity of the record with this id; no line is read for it."""
        for rows, at in self._find_places(record_id):
            content = rows.content
            if content.head.ids[at] == record_id:
                return content.identity(at)
        return None

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        """Every line of a record, in path order."""
        row = self.get(identity)
        return (row,) if row else ()

    def swap(self, old: Swapped, new: Swapped) -> Difference:
        """Put the rows of files read anew (`new`) in the place of those that the files had (`old`).

        Raises `Repeated` where two records would share an identity or an id; it is of no use then.
        """
        self._lately.clear()
        self._count = None
        before = {row.record.identity: row for path, rows in old.items() for row in rows.unlike(new.get(path))}
        # Where no line has gone, what stands in a new part is new: nothing of it is decoded.
        fresh = [rows.content for path, rows in new.items() if not before and path not in old]
        changed_files = {path: rows for path, rows in new.items() if before or path in old}
        after = [row for path, rows in changed_files.items() for row in rows.unlike(old.get(path))]
        for path in old.keys() - new.keys():
            self._rows.pop(path, None)
        self._rows |= new
        for path in new:  # also of lines that stay: the index does not lead to a part that it does not hold
            self._hold(path)
        for row in after:
            self._refuse_duplicates((row.record.id, identity_hash(row.record.identity)), new[row.path])
        for path in new.keys() - changed_files.keys():
            self._refuse_duplicates(new[path].content.keys, new[path])
        incoming = {row.record.identity: row for row in after}
        outcome = difference({identity: before.get(identity) for identity in {**before, **incoming}}, incoming)
        ids = [record_id for content in fresh for record_id in content.head.ids]
        names = (content.identity(at) for content in fresh for at in range(len(content.head.ids)))
        return Difference([*outcome.upserts, *ids], outcome.gone, chain(outcome.appeared, names), outcome.vanished)

    def _refuse_duplicates(self, keys: Iterable[int], part_rows: PartRows) -> None:
        """Raise `Repeated` where a key stands elsewhere too. Of keys that are all in memory `_hold` has said so."""
        for key in keys if self.is_stored else ():
            if any(rows is not part_rows for rows, _ in self._find_places(key)):
                raise Repeated

    def rest_on(self, parts: Mapping[str, Part]) -> None:
        """Have the rows of these parts from where they are now, which is where the index leads to."""
        for path, part in parts.items():
            self._rows[path] = part.rows
        self._fresh = {key: place for key, place in self._fresh.items() if place[0] not in parts}

    def _hold(self, path: str) -> None:
        """Have the keys of a part in memory. Raises `Repeated`."""
        head = self._rows[path].content.head
        for at, key in (*enumerate(head.ids), *enumerate(head.hashes)):
            place = self._fresh.get(key)
            if place is not None and place != (path, at):
                rows = self._rows.get(place[0])
                if rows is not None and rows.has(key, place[1]):
                    raise Repeated
            self._fresh[key] = path, at

    def _find_row(self, key: int, is_match: Callable[[StoredRow], bool]) -> StoredRow | None:
        match = self._lately.get(key)  # an answer asks for the same few again and again
        if match is None or not is_match(match):
            match = next((row for rows, at in self._find_places(key) if is_match(row := rows[at])), None)
            if match is not None:
                if len(self._lately) >= _KEPT:
                    self._lately.clear()
                self._lately[key] = match
        return match

    def _find_places(self, key: int) -> Iterator[tuple[PartRows, int]]:
        """Where a key stands: the rows of a part, and the place among them."""
        if key in self._fresh:
            path, at = self._fresh[key]
            rows = self._rows.get(path)
            if rows is not None and rows.has(key, at):
                yield rows, at
        paths = self._where(key)
        if paths is None:
            self._hold_all()
            yield from self._find_places(key)
            return
        for rows in (self._rows[path] for path in paths if path in self._rows):
            yield from ((rows, at) for at in rows.places(key))

    def _hold_all(self) -> None:
        for path in self._rows:
            self._hold(path)
        self.is_stored, self._where = False, _give_no_paths


def _give_no_paths(key: int) -> Iterable[str] | None:
    return ()


class MendedTable:
    """The rows of any type, all in memory."""

    is_stored = False

    def __init__(self, kind: RecordType, limits: Limits, rows: Iterable[StoredRow]) -> None:
        self._kind, self._limits = kind, limits
        self._shape = LineShape(kind.identity_fields)
        self._stored = _group_by_identity(rows)
        self._joined = {
            identity: self._join(identity_rows)
            for identity, identity_rows in self._stored.items()
            if len(identity_rows) > 1
        }
        self._claims: dict[int, list[Identity]] = {}
        for identity in self._stored:
            self._claims.setdefault(self._find_claimant(identity).record.id, []).append(identity)
        self._moved = self._reassign_ids()
        self._owners = {record_id: rivals[0] for record_id, rivals in self._claims.items()}
        self._owners |= {row.record.id: identity for identity, row in self._moved.items()}

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._stored)

    @property
    def is_mended(self) -> bool:
        """Whether any record differs from its line."""
        return bool(self._joined or self._moved)

    @property
    def moved(self) -> Iterable[Identity]:
        """The records that have another id than their lines say."""
        return self._moved.keys()

    def get(self, identity: Identity) -> StoredRow | None:
        row = self._moved.get(identity) or self._joined.get(identity)
        return row or next(iter(self._stored.get(identity, ())), None)

    def by_id(self, record_id: int) -> StoredRow | None:
        return self.get(self._owners[record_id]) if record_id in self._owners else None

    def lines(self, identity: Identity) -> tuple[StoredRow, ...]:
        """Every line of a record, in path order; more than one for a duplicate."""
        return tuple(self._stored.get(identity, ()))

    def duplicates(self) -> Mapping[Identity, tuple[StoredRow, ...]]:
        return {identity: self.lines(identity) for identity in sorted(self._joined, key=identity_key)}

    def clashes(self) -> Mapping[int, tuple[StoredRow, ...]]:
        """Ids that several records claim, with those records as stored, the one that keeps the id first."""
        return {
            record_id: tuple(map(self._find_claimant, rivals))
            for record_id, rivals in sorted(self._claims.items())
            if rivals[1:]
        }

    def _join(self, rows: Sequence[StoredRow]) -> StoredRow:
        line = merge_duplicates([row.line for row in rows], self._kind.identity_fields)
        # Together the lines may be longer than one may be; that is for whoever writes them as one to refuse.
        limits = replace(self._limits, max_record_bytes=max(self._limits.max_record_bytes, len(line)))
        record = record_of(self._kind, decode(line, self._shape, limits).values)
        return replace(rows[0], record=record, line=line)

    def _find_claimant(self, identity: Identity) -> StoredRow:
        return self._joined.get(identity) or self._stored[identity][0]

    def _find_position(self, identity: Identity) -> tuple[str, int]:
        return self._find_claimant(identity).position

    def _reassign_ids(self) -> dict[Identity, StoredRow]:
        """The records with a free id whose id an earlier one has."""
        losers: list[Identity] = []
        for rivals in self._claims.values():
            rivals.sort(key=self._find_position)
            losers += rivals[1:]
        used_ids, new_rows = {*self._claims}, {}
        for identity in sorted(losers, key=self._find_position):
            row = self._find_claimant(identity)
            record_id = free_id(self._kind.kind, self._kind.table, identity, used_ids.__contains__)
            record = replace(row.record, id=record_id)
            new_rows[identity] = replace(row, record=record, line=record_line(record, self._shape, self._limits.depth))
            used_ids.add(record_id)
        return new_rows


def _group_by_identity(rows: Iterable[StoredRow]) -> dict[Identity, list[StoredRow]]:
    groups: dict[Identity, list[StoredRow]] = {}
    for row in rows:
        groups.setdefault(row.record.identity, []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: row.position)
    return groups


def difference(before: Mapping[Identity, StoredRow | None], after: Mapping[Identity, StoredRow]) -> Difference:
    """What became of the records that `before` names."""
    upserts = [
        row.record.id
        for identity, old in before.items()
        if (row := after.get(identity)) and (old is None or old.line != row.line)
    ]
    in_use = {row.record.id for row in after.values()}
    removed_ids = [row.record.id for row in before.values() if row and row.record.id not in in_use]
    return Difference(
        upserts,
        removed_ids,
        [identity for identity, row in before.items() if row is None and identity in after],
        [identity for identity, row in before.items() if row and identity not in after],
    )
