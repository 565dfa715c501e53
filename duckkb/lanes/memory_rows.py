"""Rows in memory, for callers that already have them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from duckkb.entries import IndexEntry
from duckkb.ports import Row, TypeState
from duckkb.queries import Lane
from duckkb.records import Identity, Record

_NUMBERS = count()


class MemoryRows:
    """Implements `ports.Rows` over a dict, which only `change` may change. Each row is a part, whose digest is the
    number of its change. Every lane sees everything.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = {row.record.id: row for row in rows}
        self._digests: dict[str, str] = {}
        self._number(self._rows)

    @property
    def state(self) -> TypeState:
        return TypeState(self._digest, self._digests, self._read_row)

    def change(self, new: Mapping[int, Row], dropped: Iterable[int] = ()) -> None:
        """Remove the `dropped` rows, then add or replace the `new` ones."""
        for record_id in set(dropped):
            self._rows.pop(record_id, None)
            self._digests.pop(str(record_id), None)
        self._rows.update(new)
        self._number(new)

    def _number(self, ids: Iterable[int]) -> None:
        self._digest = f"{next(_NUMBERS):08x}"
        self._digests = {**self._digests, **{str(record_id): self._digest for record_id in ids}}

    def _read_row(self, path: str) -> Iterable[tuple[int, bytes]]:
        return [(int(path), self._digests[path].encode())]

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
