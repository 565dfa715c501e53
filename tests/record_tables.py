"""Runtime tables over records that a test gives as they are."""

from collections.abc import Collection, Iterable, Sequence

from duckkb.backends.duckdb.held import HeldRows
from duckkb.backends.duckdb.tables import Tables
from duckkb.ontology.model import RecordType
from duckkb.ports import Row
from duckkb.records import Record


class RecordTables(Tables):
    """As `Tables`, for lists of records instead of rows that somebody else keeps."""

    def put(self, kind: RecordType, records: Sequence[Record]) -> None:
        """Replace all records of a type."""
        self.load(kind, HeldRows.of(Row(record) for record in records))

    def change(self, kind: RecordType, records: Iterable[Record], gone: Collection[int]) -> None:
        """Replace or add some, and drop some; one that is in both is kept."""
        new = {record.id: Row(record) for record in records}
        rows = self._table(kind).rows
        assert isinstance(rows, HeldRows)
        rows.change(new, [record_id for record_id in gone if record_id not in new])
        self.apply(kind, new, [record_id for record_id in gone if record_id not in new])
