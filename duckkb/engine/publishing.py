"""Publish: makes one delta from what a target holds to a commit, by git's differences.

It reads from git alone, never from the files: anybody finds at that commit what is published. Only differing
files are read, and from the target only what they touch. A type with duplicated records is compared whole,
since touched files cannot tell.

A base that is read from a target: the same questions on the same paths, over a database instead of files.

Its tree, rows, lanes and tables ask the target what a clone reads from truth and derived state. It has one
commit and is never written."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import boot
from duckkb.engine.base import Base, TreeRows, Wiring
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.field_statistics import Observed
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.index_entries import EntryBuilder
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.yaml_source import read_yaml, write_yaml
from duckkb.ports import (
    Delta,
    Lanes,
    Publication,
    PublishedFile,
    PublishedRow,
    Row,
    Target,
    TypeDelta,
    VectorLane,
    Watermark,
    WordLane,
)
from duckkb.storage import revisions
from duckkb.storage.document_parts import IgnoreFiles, is_ignore_file
from duckkb.storage.line import Limits
from duckkb.storage.part import StoredRow, etag, row_in
from duckkb.storage.record_table import Swapped, Table
from duckkb.storage.revisions import Revision, Touched
from duckkb.storage.tree import EdgeEnds, Side, Tree
from duckkb.types.queries import Lane, LaneHit, Notice
from duckkb.types.records import Component, Identity, Record, identity_key

OBSERVED = "observed"
"""Key under which a target stores the statistics of a type's fields."""

_KEPT = 4_096  # rows held, the latest requested
_AT_ONCE = 500

Ahead = Callable[[str], tuple[Notice, ...]]
"""Function that returns the notices about a published commit, seen from a clone."""


class PublishedTable(Table):
    """The records of one type of a commit, read from a target on demand."""

    def __init__(self, kind: RecordType, target: Target) -> None:
        super().__init__({})
        self._kind, self._target = kind, target
        self._by_id: dict[int, StoredRow] = {}
        self._ids: dict[Identity, int | None] = {}

    def __len__(self) -> int:
        return self._target.now.count(self._kind)

    def __iter__(self) -> Iterator[Identity]:
        return (row.record.identity for row in self.iter_by_identity())

    def get(self, identity: Identity) -> StoredRow | None:
        record_id = self.id_of(identity)
        return None if record_id is None else self.find_by_id(record_id)

    def find_by_id(self, record_id: int) -> StoredRow | None:
        row = self._by_id.get(record_id)
        return self.fetch([record_id]).get(record_id) if row is None else row

    def id_of(self, identity: Identity) -> int | None:
        ids = self._ids
        if identity in ids:
            return ids[identity]
        record_id = self._target.now.find_ids(self._kind, [identity]).get(identity)
        if len(ids) >= _KEPT:
            ids = self._ids = {}
        ids[identity] = record_id
        return record_id

    def identity(self, record_id: int) -> Identity | None:
        row = self.find_by_id(record_id)
        return row.record.identity if row else None

    def swap(self, old: Swapped, new: Swapped) -> tuple[set[bytes], set[bytes]]:
        raise AssertionError("a published base has no files")

    def fetch(self, ids: Iterable[int]) -> Mapping[int, StoredRow]:
        """Fetch those of these records that are not held, in one request. Other threads may drop them at any time."""
        at_hand = self._by_id
        missing_ids = [record_id for record_id in ids if record_id not in at_hand]
        lines = self._target.now.lines(self._kind, missing_ids) if missing_ids else {}
        rows = {record_id: self._row(line) for record_id, line in lines.items()}
        if len(at_hand) + len(rows) > _KEPT:
            at_hand = self._by_id = {}
        at_hand.update(rows)
        return rows

    def some(self, ids: Sequence[int]) -> Iterator[StoredRow]:
        """Yield the rows of those of these records that exist; they are not held."""
        for start in range(0, len(ids), _AT_ONCE):
            batch_ids = ids[start : start + _AT_ONCE]
            lines = self._target.now.lines(self._kind, batch_ids)
            yield from (self._row(lines[record_id]) for record_id in batch_ids if record_id in lines)

    def iter_by_identity(self, behind: Identity | None = None) -> Iterator[StoredRow]:
        return map(self._row, self._target.now.iter_by_identity(self._kind, behind))

    def _row(self, line: bytes) -> StoredRow:
        return row_in(self._kind, line)


class PublishedEnds(EdgeEnds):
    """The edges of one type by either end, as a target finds them."""

    def __init__(self, kind: EdgeType, table: PublishedTable, target: Target) -> None:
        super().__init__(())
        self._kind, self._table, self._target = kind, table, target

    def find_edges(self, side: Side, component: Component) -> Sequence[Identity]:
        ids = self._target.now.find_edge_ids(self._kind, side, [component])
        self._table.fetch(ids)
        rows = map(self._table.find_by_id, ids)
        return sorted((row.record.identity for row in rows if row), key=identity_key)


class PublishedTree(Tree):
    """The records of a commit as a target holds them; those of a type come in the order of their identities."""

    def __init__(self, ontology: Ontology, limits: Limits, target: Target) -> None:
        super().__init__(ontology, limits, {}, [])
        self._target = target

    def narrow(self, ontology: Ontology) -> "PublishedTree":
        tree = PublishedTree(ontology, self.limits, self._target)
        tree._tables, tree._ends, tree._turn = self._tables, self._ends, self._turn
        return tree

    def select_rows(self, kind: RecordType, ids: Container[int]) -> Iterator[StoredRow]:
        return self.table(kind).some([record_id for record_id in self._target.now.ids(kind) if record_id in ids])

    def rows(self, kind: RecordType) -> Iterator[StoredRow]:
        return self.table(kind).iter_by_identity()

    def rows_with(self, kind: RecordType, text: bytes) -> Iterator[StoredRow]:
        return (row for row in self.rows(kind) if text in row.line)

    def records(self, kind: RecordType) -> Iterator[Record]:
        return (row.record for row in self.rows(kind))

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[StoredRow]:
        return self.table(kind).iter_by_identity(behind)

    def ids(self, kind: RecordType) -> Iterator[int]:
        return iter(self._target.now.ids(kind))

    def table(self, kind: RecordType) -> PublishedTable:
        with self._turn:
            published_table = self._tables.get(kind.name)
            if not isinstance(published_table, PublishedTable):
                published_table = self._tables[kind.name] = PublishedTable(kind, self._target)
            return published_table

    def _table(self, kind: RecordType) -> PublishedTable:
        return self.table(kind)

    def _document_paths(self, kind: RecordType) -> Iterable[str]:
        return (str(identity[0]) for identity in self.table(kind))

    def _edge_ends(self, kind: EdgeType) -> EdgeEnds:
        with self._turn:
            if kind.name not in self._ends:
                self._ends[kind.name] = PublishedEnds(kind, self.table(kind), self._target)
            return self._ends[kind.name]


class PublishedRows(TreeRows):
    """Tree rows with the vectors that were published."""

    def __init__(self, base: "PublishedBase", kind: RecordType) -> None:
        super().__init__(base, kind)
        self._target = base.target

    def _rows(self, records: Sequence[Record], lane: Lane | None) -> list[Row]:
        rows = super()._rows(records, lane)
        if lane == "fts" or not self._kind.vectors:
            return rows
        vectors = self._target.now.vectors(self._kind, [record.id for record in records])
        return [_with_vectors(row, vectors.get(row.record.id, {})) for row in rows]


def _with_vectors(row: Row, vectors: Mapping[tuple[str, int], Any]) -> Row:
    entries = (
        replace(entry, vector=vectors.get((entry.field, entry.seq)))
        if entry.vector_key or entry.vector is not None
        else entry
        for entry in row.entries
    )
    return Row(row.record, tuple(entries))


class PublishedBase(Base):
    """A base of the commit that is published at a target.

    `ahead` has the notices about that commit where there is a clone.
    """

    def __init__(self, wiring: Wiring, cache: SearchCache, target: Target, ahead: Ahead) -> None:
        super().__init__(wiring, PublishedTree(wiring.ontology, wiring.limits, target), cache)
        self.target, self._ahead = target, ahead
        self.is_generation = True

    def _build_rows(self, kind: RecordType) -> TreeRows:
        return PublishedRows(self, kind)

    def _get_lanes(self, kind: RecordType) -> Lanes:
        if kind.name not in self._lanes:
            lanes, tree = self.wiring.lanes(kind, self.rows(kind)), self.tree
            assert isinstance(tree, PublishedTree), "it is made so"
            self._lanes[kind.name] = FetchingLanes(lanes, tree.table(kind).fetch)
        return self._lanes[kind.name]

    def observe_fields(self, kind: RecordType) -> Observed:
        with self.turn:
            if kind.name not in self._observed:
                observations = self._observed[kind.name] = Observed(kind)
                observations.add(self.target.now.notes(kind).get(OBSERVED, {}), 1)
            return self._observed[kind.name]

    def list_notices(self, ontology: Ontology) -> Iterable[Notice]:
        yield from self._ahead(self.wiring.published)
        pending = sum(len(self.target.now.list_pending_ids(kind)) for kind in ontology if kind.vectors)
        if pending:
            message = f"{pending} records were published before all of their texts had a vector"
            yield Notice("W_DEGRADED", message, "`duckkb index build`, then `duckkb publish`", "vectors_pending")


class FetchingLanes:
    """Lanes (`ports.Lanes`) over other lanes that fetch all records of a hit list in one request.

    Their identities and lines are asked for next.
    """

    def __init__(self, lanes: Lanes, fetch: Callable[[Iterable[int]], object]) -> None:
        self._lanes = lanes
        self.words: WordLane = _Fetching(lanes.words, fetch)
        self.vectors: VectorLane = _Fetching(lanes.vectors, fetch)

    def discard(self) -> None:
        self._lanes.discard()


class _Fetching:
    def __init__(self, lane: Any, fetch: Callable[[Iterable[int]], object]) -> None:
        self._lane, self._fetch = lane, fetch

    def ask(self, *given: Any) -> list[LaneHit]:
        hits: list[LaneHit] = self._lane.ask(*given)
        self._fetch(hit.id for hit in hits[:_AT_ONCE])
        return hits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)


_FORMAT = 1
_BATCH = 512
_BY_NAME, _POLICIES, _QUESTIONS = ("nodes", "edges", "collections", "policies"), "policies", "questions"
_LENGTHS, _MENDED = "lengths", "mended"


class TypeChange(Struct, frozen=True):
    """The change of one type: rows to put, ids to remove (replaced ones among them), and the note for the target."""

    kind: RecordType
    puts: Sequence[StoredRow]
    gone: frozenset[int]
    observed: Observed
    is_mended: bool

    @property
    def notes(self) -> dict[str, Any]:
        counts = {
            section: {
                name: positive_counts
                for name, values in sorted(names.items())
                if (positive_counts := {k: v for k, v in sorted(values.items()) if v})
            }
            for section, names in self.observed.counts.items()
        }
        return {OBSERVED: counts, _LENGTHS: self.observed.lengths(), _MENDED: self.is_mended}


class Commit:
    """A commit to publish: its types, and the builder of entries of its records. `wiring` is of that revision."""

    def __init__(self, wiring: Wiring, cache: SearchCache) -> None:
        assert wiring.at is not None, "a commit is published, not files"
        self.wiring, self.at = wiring, wiring.at
        self._cache = cache
        self._base = Base(wiring, Tree(wiring.ontology, wiring.limits, {}, []), cache)
        self._lengths: dict[str, Mapping[str, int]] = {}
        self.builder = EntryBuilder(
            wiring.tokenizer, wiring.settings, self._base.fingerprint, lambda kind: self._lengths[kind.name], cache
        )

    @cached_property
    def tree(self) -> Tree:
        """All records of the commit."""
        return boot.read_tree_at(self.wiring, self.at)

    @cached_property
    def _ignored(self) -> IgnoreFiles:
        """The .gitignore rules at the commit; also those before it, where no touched file is a .gitignore."""
        root = self.wiring.root
        return IgnoreFiles.read(root, revisions.entries(root, self.at, boot.places(root, self.wiring.ontology)))

    @property
    def kinds(self) -> list[RecordType]:
        """The types whose records git has: not those of folders outside of the base."""
        return [kind for kind in self.wiring.ontology if kind.source is None or not kind.source.is_outside]

    @cached_property
    def configuration(self) -> dict[str, PublishedFile]:
        """Return the configuration as it is published: one file for each type and policy, and one for the rest.

        A caller with some types sees the files of these alone. Judged questions, which name records, are left out.
        """
        kinds = {kind.name: kind for kind in self.kinds}
        general: dict[str, Any] = {}
        files: dict[str, PublishedFile] = {}
        for path, data in sorted(boot.config_files(self.wiring.root, self.at).items()):
            value = read_yaml(data, path).value
            for section, content in value.items():
                if section not in _BY_NAME:
                    general |= {} if section == _QUESTIONS else {section: content}
                    continue
                for name, definition in (content or {}).items():
                    if section == _POLICIES or name in kinds:
                        files[f"{boot.ONTOLOGY}/{section}-{len(files):04}.yaml"] = _restrict_file(
                            section, name, definition, kinds
                        )
        return {boot.CONFIG: _to_file(general), **files}

    @property
    def watermark(self) -> Watermark:
        """Return the watermark of its records as published: the fingerprint names all that shapes them."""
        settings = self.wiring.settings
        shape_parts: list[object] = [_FORMAT, str(self.wiring.tokenizer.fingerprint), settings.language]
        for kind in self.kinds:
            model, type_settings = self._base.fingerprint(kind), kind.settings(settings)
            shape = (
                kind.name,
                kind.kind,
                kind.table,
                kind.identity_fields,
                kind.schema,
                kind.relational,
                type_settings.vectors,
            )
            of_documents = () if kind.source is None else (repr(kind.source),)  # the source decides how files are read
            shape_parts.append((*shape, str(model), self.builder.cut_by(kind), *of_documents))
        digest = blake2b(repr(shape_parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        return Watermark(self.at.commit, digest)

    def whole(self) -> list[TypeChange]:
        """Return the changes that publish all of its records."""
        return [
            TypeChange(
                kind,
                [*self.tree.rows(kind)],
                frozenset(),
                Observed(kind, self.tree.records(kind)),
                self.tree.is_mended(kind),
            )
            for kind in self.kinds
        ]

    def since(self, published: Publication, old: Revision) -> list[TypeChange] | None:
        """Return the changes from what is published of another commit; None where everything must be made anew."""
        touched_files = revisions.compare_trees(
            self.wiring.root, old, self.at, boot.places(self.wiring.root, self.wiring.ontology)
        )
        if any(is_ignore_file(entry.path) for entry in touched_files):
            return None
        before, after = self._read(touched_files, is_old=True), self._read(touched_files, is_old=False)
        refuse_unreadable(after)
        changes = [self._derive_change(published, kind, before, after) for kind in self.kinds]
        if any(entry.observed.lengths() != published.notes(entry.kind).get(_LENGTHS, {}) for entry in changes):
            return None
        return [entry for entry in changes if entry.puts or entry.gone or entry.notes != published.notes(entry.kind)]

    def list_pending_changes(self, published: Publication) -> list[TypeChange]:
        """Return the records that were published without some vectors, where these exist now."""
        changes = []
        for kind in self.kinds:
            ids = published.list_pending_ids(kind)
            if ids:
                rows = [row for item in ids if (row := self.tree.find_by_id(kind, item)) is not None]
                self._lengths[kind.name] = published.notes(kind).get(_LENGTHS, {})
                ready = [row for row in rows if not self._count_missing(kind, [row.record])]
                ready_ids = frozenset(row.record.id for row in ready)
                changes.append(
                    TypeChange(
                        kind,
                        ready,
                        ready_ids,
                        self._load_observations(published, kind),
                        bool(published.notes(kind)[_MENDED]),
                    )
                )
        return [item for item in changes if item.puts]

    def count_missing_vectors(self, changes: Iterable[TypeChange]) -> int:
        """Return the number of chunks in these changes that have no usable vector.

        A vector is usable if this machine made it, or if a sample of vectors from elsewhere passed the check.
        """
        count = 0
        for change in changes:
            self._lengths[change.kind.name] = change.observed.lengths()
            rows = iter(change.puts)
            while records := [row.record for row in islice(rows, _BATCH)]:
                count += self._count_missing(change.kind, records)
        return count

    def delta(self, parent: Watermark | None, changes: Sequence[TypeChange], *, is_whole: bool = False) -> Delta:
        """Return the changes as a delta for a target."""
        self._lengths |= {change.kind.name: change.observed.lengths() for change in changes}
        types = [TypeDelta(change.kind, self._rows(change), change.gone, change.notes) for change in changes]
        wiring = self.wiring
        return Delta(parent, self.watermark, wiring.ontology, wiring.settings, self.configuration, types, is_whole)

    def _rows(self, change: TypeChange) -> Iterator[Sequence[PublishedRow]]:
        row_stream = iter(change.puts)
        while rows := [*islice(row_stream, _BATCH)]:
            records = [row.record for row in rows]
            # as in a clone: a record's words are those of its text, not of its chunks
            words, vectors = (self.builder.build(change.kind, records, lane) for lane in ("fts", "vector"))
            triples = zip(rows, words, vectors, strict=True)
            yield [
                PublishedRow(Row(row.record, (*some, *vector_entries)), row.line)
                for row, some, vector_entries in triples
            ]
        self._cache.save()

    def _count_missing(self, kind: RecordType, records: Sequence[Record]) -> int:
        model = self._base.fingerprint(kind)
        if model is None:
            return 0
        texts = self.builder.needs(kind, records).vectors
        missing = self._cache.list_missing_keys("vector", texts, model)
        if missing:
            embed = self._base.embedder(kind).embed_passages
            self._cache.verify_vectors({key: texts[key] for key in missing}, embed)
            missing = self._cache.list_missing_keys("vector", texts, model)
        return len(missing)

    def _read(self, touched_files: Iterable[Touched], *, is_old: bool) -> Tree:
        sides = {file.path: file.old if is_old else file.new for file in touched_files}
        return boot.tree_of(
            self.wiring, {path: entry for path, entry in sides.items() if entry is not None}, self._ignored
        )

    def _derive_change(self, publication: Publication, kind: RecordType, before: Tree, after: Tree) -> TypeChange:
        difference = (
            None if publication.notes(kind).get(_MENDED) else self._diff_files(publication, kind, before, after)
        )
        puts, gone_ids = self._compare_records(publication, kind) if difference is None else difference
        observations = self._load_observations(publication, kind)
        old_lines = publication.lines(kind, gone_ids)
        observations.add(Observed(kind, (row_in(kind, line).record for line in old_lines.values())).counts, -1)
        observations.add(Observed(kind, (row.record for row in puts)).counts, 1)
        return TypeChange(
            kind, puts, frozenset(old_lines), observations, difference is None and self.tree.is_mended(kind)
        )

    def _load_observations(self, publication: Publication, kind: RecordType) -> Observed:
        observations = Observed(kind)
        observations.add(publication.notes(kind).get(OBSERVED, {}), 1)
        return observations

    def _diff_files(
        self, publication: Publication, kind: RecordType, before: Tree, after: Tree
    ) -> tuple[list[StoredRow], frozenset[int]] | None:
        """Return the rows to put and the ids to remove of a type, by the touched files alone.

        None where they do not tell, since a record is duplicated.
        """
        if before.is_mended(kind) or after.is_mended(kind):
            return None
        old = {row.record.id: row for row in before.rows(kind)}
        new = {row.record.id: row for row in after.rows(kind)}
        puts = [row for record_id, row in new.items() if record_id not in old or old[record_id].line != row.line]
        gone_ids = frozenset(
            record_id for record_id, row in old.items() if record_id not in new or new[record_id].line != row.line
        )
        put_ids = [row.record.id for row in puts]
        elsewhere = publication.lines(kind, [record_id for record_id in put_ids if record_id not in old])
        named_ids = publication.find_ids(kind, [row.record.identity for row in puts])
        if elsewhere or any(record_id not in old for record_id in named_ids.values()):
            return None
        return puts, gone_ids

    def _compare_records(self, publication: Publication, kind: RecordType) -> tuple[list[StoredRow], frozenset[int]]:
        """Return the rows to put and the ids to remove of a type, by comparing all of its records."""
        known_etags = dict(publication.etags(kind))
        puts, present = [], set()
        for row in self.tree.rows(kind):
            present.add(row.record.id)
            if known_etags.get(row.record.id) != etag(row.line):
                puts.append(row)
        replaced_ids = {row.record.id for row in puts} & known_etags.keys()
        return puts, frozenset(known_etags.keys() - present) | replaced_ids


def faults(commit: Commit, published: Publication) -> Iterator[str]:
    """Yield a sentence for each difference between a target and the commit that it claims to hold."""
    for kind in commit.kinds:
        there, here = published.etags(kind), {row.record.id: etag(row.line) for row in commit.tree.rows(kind)}
        if len(there) != len(here):
            yield f"{kind.name}: {len(there):,} records are published, {len(here):,} are in the commit"
        elif _sum(there) != _sum(here) or dict(there) != here:
            difference_count = sum(there.get(record_id) != tag for record_id, tag in here.items())
            yield f"{kind.name}: {difference_count:,} of {len(here):,} records are not as the commit has them"
        yield from (f"{kind.name}: {fault}" for fault in published.faults(kind))


def _restrict_file(section: str, name: str, definition: Any, kinds: Mapping[str, RecordType]) -> PublishedFile:
    file = _to_file({section: {name: definition}})
    if section == _POLICIES:
        users = (kind.name for kind in kinds.values() if kind.policy is not None and kind.policy.name == name)
        return replace(file, some=(name, *users))
    kind = kinds[name]
    ends = (*kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else ()
    return replace(file, every=tuple(dict.fromkeys((name, *ends))))


def _to_file(value: Mapping[str, Any]) -> PublishedFile:
    return PublishedFile(write_yaml(value))


def _sum(etags: Mapping[int, bytes]) -> int:
    return sum(int.from_bytes(tag, "big") for tag in etags.values())
