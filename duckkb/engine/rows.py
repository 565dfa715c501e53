"""The rows that lanes and tables are made of: records of the tree, entries as they are asked for."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

from duckkb.entries import IndexEntry
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ports import ChangeLog, Row, RowVersion
from duckkb.queries import Lane
from duckkb.records import Record
from duckkb.truth.files.part import collector_paused
from duckkb.truth.files.tree import Tree

if TYPE_CHECKING:
    from duckkb.engine.base import Base

_BATCH = 4096  # records whose entries are made, and held, together
_FIRST = 512  # of the first ones, so that an index that works beside this begins soon


class TreeRows:
    """Implements `ports.Rows` over one type of a base. Holds no row; `changes` is what this process has seen change."""

    def __init__(self, base: "Base", kind: RecordType) -> None:
        self._base, self._tree, self._kind = base, base.tree, kind
        self.changes = ChangeLog(self._lengths)

    @property
    def version(self) -> RowVersion:
        return self._on_disk() or self.changes.version

    def _on_disk(self) -> RowVersion | None:
        """What lanes on disk have to mirror; None where they are kept in memory."""
        base = self._base
        if base.lines is None or base.is_stale or base.in_memory:
            return None
        return base.lines.version(self._kind, self._key, self._lengths)

    def _key(self, lane: Lane | None) -> str:
        """Names what shapes the entries that a lane reads, beside the records."""
        shaped_by: list[object] = [self._kind.schema, self._kind.relational]
        if lane is not None:
            words, model = self._base.wiring.tokenizer.fingerprint, self._base.fingerprint(self._kind)
            shaped_by = [words if lane == "fts" else model, *self._base.cut_by(self._kind)]
        return blake2b(repr(shaped_by).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _lengths(self) -> str:
        return str(self._base.lengths(self._kind)) if self._kind.given_vectors else ""

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
        return self._base.builder.words(self._kind, self.record(record_id))

    def text(self, record_id: int, field: str, seq: int) -> str | None:
        """The text of one chunk; None where the record has no such chunk."""
        return self._base.builder.text(self._kind, self.record(record_id), field, seq)

    def records(self) -> Iterator[Record]:
        with collector_paused():  # what is built from all of them is built out of a great many small objects
            yield from self._tree.records(self._kind)

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        left, size = self.records(), _FIRST
        while records := list(islice(left, size)):
            yield self._rows(records, lane)
            size = _BATCH
        self._base.cache.save()

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
        made = self._base.builder.build(self._kind, records, lane)
        return [Row(record, entries) for record, entries in zip(records, made, strict=True)]


def end_ids(tree: Tree, kind: RecordType, record: Record) -> tuple[int | None, int | None]:
    """The ids of an edge's two ends, for the columns `from_id` and `to_id`; None where one dangles or is ambiguous."""
    if not isinstance(kind, EdgeType):
        return None, None
    source, target = tree.ends(kind, record.identity)
    first, second = tree.node(source), tree.node(target)
    return (first.record.id if first else None), (second.record.id if second else None)
