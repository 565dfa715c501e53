"""The rows that lanes and tables are made of: records of the tree, entries as they are asked for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from duckkb.entries import IndexEntry
from duckkb.indexing.entries import EntryBuilder
from duckkb.ontology.model import RecordType
from duckkb.ports import ChangeLog, Row, RowVersion
from duckkb.queries import Lane
from duckkb.records import Record
from duckkb.truth.files.part import collector_paused
from duckkb.truth.files.tree import Tree

_BATCH = 4096  # records whose entries are made, and held, together
_FIRST = 512  # of the first ones, so that an index that works beside this begins soon


class TreeRows:
    """Implements `ports.Rows` over one type of a tree. Holds no row; `builder` is made when the first entry is wanted, and
    `saved` called when the entries of all records were made. `changes` is what this process has seen change; `on_disk` says
    what lanes on disk mirror, None where there are none."""

    def __init__(
        self,
        kind: RecordType,
        tree: Tree,
        builder: Callable[[], EntryBuilder],
        saved: Callable[[], object],
        changes: ChangeLog,
        on_disk: Callable[[], RowVersion | None],
    ) -> None:
        self._kind = kind
        self._tree = tree
        self._builder = builder
        self._saved = saved
        self.changes = changes
        self._on_disk = on_disk

    @property
    def version(self) -> RowVersion:
        return self._on_disk() or self.changes.version

    def __len__(self) -> int:
        return self._tree.count(self._kind)

    def __iter__(self) -> Iterator[int]:
        return self._tree.ids(self._kind)

    def __contains__(self, record_id: object) -> bool:
        return isinstance(record_id, int) and self._tree.by_id(self._kind, record_id) is not None

    def __getitem__(self, record_id: int) -> Row:
        (row,) = self._rows([self.record(record_id)], None)
        return row

    def record(self, record_id: int) -> Record:
        stored = self._tree.by_id(self._kind, record_id)
        if stored is None:
            raise KeyError(record_id)
        return stored.record

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        return self._builder().words(self._kind, self.record(record_id))

    def text(self, record_id: int, field: str, seq: int) -> str | None:
        """The text of one chunk; None where the record has no such chunk."""
        return self._builder().text(self._kind, self.record(record_id), field, seq)

    def records(self) -> Iterator[Record]:
        with collector_paused():  # what is built from all of them is built out of a great many small objects
            yield from self._tree.records(self._kind)

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        left, size = self.records(), _FIRST
        while records := list(islice(left, size)):
            yield self._rows(records, lane)
            size = _BATCH
        self._saved()

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        stored = (self._tree.by_id(self._kind, record_id) for record_id in ids)
        left = (row.record for row in stored if row is not None)
        made: list[Row] = []
        while records := list(islice(left, _BATCH)):
            made += self._rows(records, lane)
        return made

    def _rows(self, records: Sequence[Record], lane: Lane | None) -> list[Row]:
        if not (self._kind.full_text or self._kind.vectors):
            return [Row(record) for record in records]
        made = self._builder().build(self._kind, records, lane)
        return [Row(record, entries) for record, entries in zip(records, made, strict=True)]
