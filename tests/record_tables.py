"""Runtime tables over records that a test gives as they are."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from duckkb.app.retrievers import MemoryRows
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Row
from duckkb.sql.columns import Columns
from duckkb.sql.runtime_tables import Tables
from duckkb.types.queries import Lane
from duckkb.types.records import IndexEntry, Record

Entries = Callable[[RecordType], Iterable[tuple[int, IndexEntry]]]


class RecordTables(Tables):
    """As `Tables`, for lists of records, and index entries by record id, instead of rows that somebody else keeps."""

    def __init__(self, ontology: Ontology, entries: Entries, *others: Any, **named: Any) -> None:
        self._entries = entries
        self._given = {kind.name: _Given(kind, entries) for kind in ontology}
        super().__init__(ontology, lambda kind: self._given[kind.name], *others, **named)

    def put(self, kind: RecordType, records: Iterable[Record]) -> None:
        """Replace all records of a type."""
        self._given[kind.name] = _Given(kind, self._entries, records)

    def change(self, kind: RecordType, records: Iterable[Record], gone: Collection[int]) -> None:
        """Replace or add some, and drop some; one that is in both is kept."""
        self._given[kind.name].change({record.id: Row(record) for record in records}, gone)

    def columns(self, kind: RecordType) -> Columns:
        """The columns of a type's table as its records are now."""
        return self._columns(kind)


class _Given(MemoryRows):
    def __init__(self, kind: RecordType, entries: Entries, records: Iterable[Record] = ()) -> None:
        super().__init__(Row(record) for record in records)
        self._kind, self._entries = kind, entries

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        yield [
            Row(Record(self._kind.name, record_id, (), {}, "", ""), (entry,))
            for record_id, entry in self._entries(self._kind)
        ]
