"""Runtime tables over records that a test gives as they are."""

from collections.abc import Collection, Iterable

from duckkb.lanes.held import HeldRows
from duckkb.lanes.sql.tables import Tables
from duckkb.ontology.model import RecordType
from duckkb.ports import Row
from duckkb.records import Record


class RecordTables(Tables):
    """As `Tables`, for lists of records instead of rows that somebody else keeps."""

    def put(self, kind: RecordType, records: Iterable[Record]) -> None:
        """Replace all records of a type."""
        self._given()[kind.name] = HeldRows.of(Row(record) for record in records)
        self.load(kind, self._given()[kind.name])

    def change(self, kind: RecordType, records: Iterable[Record], gone: Collection[int]) -> None:
        """Replace or add some, and drop some; one that is in both is kept."""
        if kind.name not in self._given():
            self.put(kind, [])
        new = {record.id: Row(record) for record in records}
        dropped = [record_id for record_id in gone if record_id not in new]
        self._given()[kind.name].change(new, dropped)
        self.apply(kind, new, dropped)

    def _given(self) -> dict[str, HeldRows]:
        given: dict[str, HeldRows] = self.__dict__.setdefault("_rows_given", {})
        return given
