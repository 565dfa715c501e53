"""Rows that are held in memory, for who gives them as they are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from duckkb.entries import IndexEntry
from duckkb.ports import ChangeLog, Row, RowVersion
from duckkb.queries import Lane
from duckkb.records import Identity, Record


class MemoryRows:
    """Implements `ports.Rows` over a dict, which `change` alone may change. Every lane sees everything."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = {row.record.id: row for row in rows}
        self._changes = ChangeLog()

    @property
    def version(self) -> RowVersion:
        return self._changes.version

    def change(self, new: Mapping[int, Row], dropped: Iterable[int] = ()) -> None:
        """Drop, then put `new` in the place of what they replace."""
        dropped_ids = set(dropped)
        for record_id in dropped_ids:
            self._rows.pop(record_id, None)
        self._rows.update(new)
        self._changes.note({*dropped_ids, *new})

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._rows

    def __getitem__(self, record_id: int) -> Row:
        return self._rows[record_id]

    def record(self, record_id: int) -> Record:
        return self._rows[record_id].record

    def identity(self, record_id: int) -> Identity:
        return self._rows[record_id].record.identity

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        return [entry for entry in self._rows[record_id].entries if entry.tokens is not None]

    def records(self) -> Iterator[Record]:
        return (row.record for row in self._rows.values())

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        yield list(self._rows.values())

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        return [self._rows[record_id] for record_id in ids if record_id in self._rows]
