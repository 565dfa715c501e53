"""Publish: makes one delta from what a target holds to a commit, by git's differences.

It reads from git alone, never from the files: anybody finds at that commit what is published. Only differing
files are read, and from the target only what they touch. A type with duplicated records is compared whole,
since touched files cannot tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import at
from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.observed import Observed
from duckkb.engine.publishing.published import OBSERVED
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.entries import EntryBuilder
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ontology.source import read_yaml, write_yaml
from duckkb.ports import Delta, Publication, PublishedFile, PublishedRow, Row, TypeDelta, Watermark
from duckkb.records import Record
from duckkb.truth.files.ignored import IgnoreFiles, is_ignore_file
from duckkb.truth.files.part import StoredRow, etag, row_in
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision, Touched

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
        return at.tree(self.wiring, self.at)

    @cached_property
    def _ignored(self) -> IgnoreFiles:
        """The .gitignore rules at the commit; also those before it, where no touched file is a .gitignore."""
        root = self.wiring.root
        return IgnoreFiles.read(root, revisions.entries(root, self.at, at.places(root, self.wiring.ontology)))

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
        for path, data in sorted(at.config_files(self.wiring.root, self.at).items()):
            value = read_yaml(data, path).value
            for section, content in value.items():
                if section not in _BY_NAME:
                    general |= {} if section == _QUESTIONS else {section: content}
                    continue
                for name, definition in (content or {}).items():
                    if section == _POLICIES or name in kinds:
                        files[f"{at.ONTOLOGY}/{section}-{len(files):04}.yaml"] = _restrict_file(
                            section, name, definition, kinds
                        )
        return {at.CONFIG: _to_file(general), **files}

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
            self.wiring.root, old, self.at, at.places(self.wiring.root, self.wiring.ontology)
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
        """Return the number of chunks to put without a usable vector: neither made here nor accepted after a
        sample.
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
        return at.tree_of(
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
