"""The loaded knowledge base: truth as rows, and the derived state that mirrors it. Boot makes it, the paths use it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from duckkb.engine.observed import FEW, Observed, ObservedParts, key_of_text
from duckkb.engine.rows import TreeRows
from duckkb.entries import Fingerprint
from duckkb.errors import Unavailable
from duckkb.indexing import chunk
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.entries import EntryBuilder
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.validate import Validator
from duckkb.ports import Backend, Clock, Embedder, Row, Tokenizer, Version
from duckkb.queries import Lane
from duckkb.records import Record
from duckkb.settings import EmbeddingSettings, Environment, Settings
from duckkb.store.place import Place
from duckkb.truth.files.line import Limits
from duckkb.truth.files.tree import Differences, Part, StoredRow, Tree
from duckkb.truth.snapshot.snapshot import Snapshot
from duckkb.values import dataclass, field

if TYPE_CHECKING:
    import numpy as np

    from duckkb.truth.git.revisions import Revision

Progress = Callable[[str, int, int], None]
Answer = TypeVar("Answer")
EndIds = Callable[[RecordType, Record], tuple[int | None, int | None]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where the writes of a base read at a revision go: the `branch` that they are for, and what takes the files, by path
    with their bytes, None for those that go."""

    branch: str
    keep: Callable[[Mapping[str, bytes | None]], None]


@dataclass(frozen=True)
class Wiring:
    """The real parts of one base, as `app` chose them. `place` is where what is derived lies; `backend` takes what resolves edges' ends and what gives the rows
    of the caches; `embedder` is the base's own model, `embedder_for` the one of a policy; `preview` reads the
    ontology as it would be with some files of ontology/ replaced or gone (`errors.OntologyError`); `lock_timeout` is in
    seconds; `at` is the revision that is read, None for the files as they lie; such a base is
    written by way of a `proposal` alone."""

    root: Path
    settings: Settings
    ontology: Ontology
    env: Environment
    place: Place
    backend: Callable[[EndIds, Callable[[], Any]], Backend]
    tokenizer: Tokenizer
    embedder: Embedder
    embedder_for: Callable[[EmbeddingSettings], Embedder]
    preview: Callable[[Mapping[str, bytes | None]], Ontology]
    clock: Clock
    lock_timeout: float = 60.0
    lenient: bool = False
    progress: Progress | None = None
    at: "Revision | None" = None
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class BootReport:
    """What boot found: records by type, and whether the base could only be read."""

    records: dict[str, int]
    read_only: bool = False


@dataclass
class Base:
    """One loaded base. `tree` is truth as it was last read; `backend` mirrors it, type by type, as far as it was needed;
    `snapshot` keeps it on disk, `is_alone` says that nothing else is kept there. `adrift` says that the snapshot has gone on, or not kept up, without this process."""

    wiring: Wiring
    tree: Tree
    backend: Backend
    cache: SearchCache
    report: BootReport
    snapshot: Snapshot | None = None
    adrift: bool = False
    is_alone: bool = False
    _builder: EntryBuilder | None = None
    _validators: dict[str, Validator] = field(default_factory=dict)
    _rows: dict[str, TreeRows] = field(default_factory=dict)
    _loaded: set[str] = field(default_factory=set)
    _observed: dict[str, ObservedParts] = field(default_factory=dict)
    _dropped: int = 0

    @property
    def root(self) -> Path:
        return self.wiring.root

    @property
    def ontology(self) -> Ontology:
        return self.wiring.ontology

    @property
    def settings(self) -> Settings:
        return self.wiring.settings

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_record_bytes, self.settings.max_depth)

    def validator(self, kind: RecordType) -> Validator:
        if kind.name not in self._validators:
            self._validators[kind.name] = Validator(kind, self.ontology)
        return self._validators[kind.name]

    @property
    def builder(self) -> EntryBuilder:
        """Makes index entries; knows the chunker, the tokenizer, the model's fingerprint and both caches."""
        if self._builder is None:
            parts = self.wiring.tokenizer, self.settings, self.fingerprint, self.lengths
            self._builder = EntryBuilder(*parts, self.cache)
        return self._builder

    def embedder(self, kind: RecordType) -> Embedder:
        """The model that embeds a type's texts: the base's, or what the type's policy makes of it."""
        return self.wiring.embedder_for(kind.settings(self.settings).embedding)

    def fingerprint(self, kind: RecordType) -> Fingerprint | None:
        """That of the type's model; None where nothing is embedded."""
        is_none = kind.settings(self.settings).embedding.model == "none"
        return None if is_none or not kind.has_text_vectors else self.embedder(kind).fingerprint

    def lengths(self, kind: RecordType) -> dict[str, int]:
        """How long the vectors are that the records of a type give, by field; 0 where there is none yet."""
        return self.observed(kind).lengths()

    def observed(self, kind: RecordType) -> Observed:
        """What the stored lines of a type say of its fields."""
        if kind.name not in self._observed:
            self._observed[kind.name] = ObservedParts(kind, self.root if self.snapshot is not None else None)
        return self._observed[kind.name].together(self.tree)

    def holders(self, kind: RecordType, text: str) -> list[StoredRow]:
        """The records under which a text stands, of a type that makes its keys of texts: one, if nobody gave it another key
        by hand or on two branches; the one whose key is made of it comes first."""
        made = kind.generated
        if made is None or not made.of:
            return []
        keys = [key_of_text(kind, text), *self.observed(kind).own_keys(text)]
        rows = [self.tree.get(kind, (key,)) for key in keys if key is not None]
        return [row for row in rows if row is not None and row.record.fields.get(made.of) == text]

    def rows(self, kind: RecordType) -> TreeRows:
        """The records of a type as they are now, with their entries where those are asked for."""
        if kind.name not in self._rows:
            self._rows[kind.name] = TreeRows(
                kind, self.tree, lambda: self.builder, partial(self.cache.save, sparing=True)
            )
        return self._rows[kind.name]

    def ensure(self, kind: RecordType) -> None:
        """Have the backend mirror one type. What it derives from the records is made when a question needs it."""
        if self.cache.dropped != self._dropped:  # rows of a file that turned out to be forged may be among them
            self._dropped = self.cache.dropped
            self._loaded.clear()
            for other in self.ontology:
                self._load(other)
                self.backend.discard(other)
        if kind.name not in self._loaded:
            self._load(kind)

    def _load(self, kind: RecordType) -> None:
        self.backend.load(kind, self.rows(kind), self._version(kind))
        self._loaded.add(kind.name)

    def _version(self, kind: RecordType) -> Version | None:
        """What derived state on disk has to mirror; None where it is kept in memory."""
        if self.snapshot is None or self.adrift or self.is_alone:
            return None
        found = self.snapshot.version(kind)
        if found is None:
            return None
        key, lengths = partial(self._lane_key, kind), partial(self._lengths_key, kind)
        return Version(found.folder, found.store, found.revision, found.changed, key, lengths)

    def cut_by(self, kind: RecordType) -> tuple[object, ...]:
        """Names what shapes the chunks of a type beside its records."""
        return str(chunk.FINGERPRINT), kind.settings(self.settings).chunk_size, kind.full_text, kind.vectors

    def _lane_key(self, kind: RecordType, lane: Lane | None) -> str:
        """Names what shapes the entries of a type that a lane reads, beside the records."""
        shaped_by: list[object] = [kind.schema, kind.relational]
        if lane == "fts":
            shaped_by = [self.wiring.tokenizer.fingerprint, *self.cut_by(kind)]
        elif lane == "vector":
            shaped_by = [self.fingerprint(kind), *self.cut_by(kind)]
        return blake2b(repr(shaped_by).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _lengths_key(self, kind: RecordType) -> str:
        return str(self.lengths(kind)) if kind.given_vectors else ""

    def until_honest(self, ask: Callable[[], Answer]) -> Answer:
        """What `ask` answers when no cache file was found to be forged on the way: what was derived from one is made anew."""
        while True:
            dropped = self.cache.dropped
            answer = ask()
            if dropped == self.cache.dropped:
                return answer

    def take_in(self, parts: Mapping[str, Part | None]) -> None:
        """Let memory follow the files: parts as they are now, None for those that are gone.

        Interrupted on the way (Ctrl-C in a session that goes on), what the backend mirrors is not known any more: it is
        loaded anew when it is next needed.
        """
        try:
            lengths, was_small = self._given_lengths(), self._is_small
            differences = self.tree.replace(parts)
            if was_small and not self._is_small and not self.report.read_only:
                self.snapshot = self.snapshot or Snapshot.open(self.root, self.ontology, self.limits)
                self._observed.clear()  # from now on there is a note of it
            self._observe(differences, lengths, is_bulk=len(parts) > FEW)
            self._write_down(differences, parts)
            self._mirror(differences)
        except BaseException:
            self.tree.forget()
            self._loaded.clear()
            self._observed.clear()
            raise

    def go_alone(self) -> None:
        """Keep what is derived in memory from now on: others change what lies on disk faster than it can be read."""
        self.is_alone = True
        self._loaded.clear()

    def restart(self, tree: Tree, snapshot: Snapshot | None, backend: Backend) -> None:
        """Go on with what was just loaded."""
        self.backend.close()
        self.tree, self.snapshot, self.backend, self.adrift = tree, snapshot, backend, False
        self._rows.clear()
        self._loaded.clear()
        self._observed.clear()

    def _write_down(self, differences: Differences, paths: Iterable[str]) -> None:
        """Let the snapshot follow the tree. Where that fails, or another process was faster, this one looks again before
        its next answer: the snapshot is derived, nothing depends on it."""
        if self.snapshot is None or self.adrift:
            return
        self.adrift, held = True, self.snapshot.holds
        with suppress(OSError, Unavailable), self.snapshot.writing(self.wiring.lock_timeout) as is_current:
            if is_current:
                self.snapshot.save(self.tree, differences, paths)
                self.snapshot.relieve(self.tree)
                self._loaded -= self.snapshot.holds - held  # what mirrors them can lie on disk from now on
                self.adrift = False

    @property
    def _is_small(self) -> bool:
        """Whether reading all of it costs so little that no snapshot is kept."""
        return sum(part.stamp.size for part in self.tree.parts.values()) < self.settings.snapshot_bytes

    def _given_lengths(self) -> dict[str, dict[str, int]]:
        """How long the vectors are that types give, of those that were asked for it."""
        return {name: self.lengths(known.kind) for name, known in self._observed.items() if known.kind.given_vectors}

    def _observe(self, differences: Differences, lengths: Mapping[str, dict[str, int]], *, is_bulk: bool) -> None:
        """Count many new records while they are in memory. A type whose vectors are now mostly of another length is loaded
        anew when it is next needed."""
        for kind in (self.ontology.nodes[name] for name in differences if is_bulk and name in self.ontology.nodes):
            if kind.is_collection:
                self.observed(kind)
        for name, before in lengths.items():
            known = self.ontology.find(name)
            if known is None or self.lengths(known) != before:
                self._loaded.discard(name)

    def _mirror(self, delta: Differences) -> None:
        """Bring the backend after the tree: only types that it mirrors, only rows that changed."""
        for name, (upserts, gone) in delta.items():
            kind = self.ontology.nodes.get(name) or self.ontology.edges.get(name)
            if kind is not None and name in self._loaded:
                self.backend.apply(kind, [Row(row.record) for row in upserts], gone, self._version(kind))

    def expect(self, model: Embedder, dimension: int) -> None:
        """Follow a model that was exchanged under its name: vectors of another length than its own are as good as none."""
        known = self.cache.dimensions.of(model.fingerprint)
        self.cache.dimensions.expect(model.fingerprint, dimension)
        if known not in (0, dimension):
            self._loaded.clear()

    def exchanged(self, model: Embedder, dimension: int) -> Unavailable | None:
        """What is wrong with vectors of this length, made just now: the stored ones of the model have another."""
        known = self.cache.dimensions.of(model.fingerprint)
        if known in (0, dimension):
            return None
        return Unavailable(
            f"the model gives vectors of {dimension} numbers, the stored ones have {known}",
            code="E_MODEL",
            suggestion="if another model is meant, set global.embedding.dimensions, then `duckkb index build`",
        )

    def fill(self, kind: RecordType, vectors: "Mapping[bytes, np.ndarray]") -> None:
        """Give vectors to the backend, where it mirrors the entries of the type."""
        if vectors and kind.name in self._loaded:
            self.backend.fill(kind, vectors)

    def adopt(self, kind: RecordType, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Let a cache that this machine did not make supply vectors, once a sample of it has been recomputed and agrees,
        file by file while `goes_on`; raises `errors.Unavailable` where there is no model to recompute with."""
        pending = dict(self.backend.pending(kind))
        if pending:
            model = self.embedder(kind)
            if not self.cache.verify_vectors(pending, model.embed_passages, goes_on):
                self.ensure(kind)
                pending = dict(self.backend.pending(kind))
            found = zip(pending, self.cache.vectors(list(pending), model.fingerprint), strict=True)
            self.backend.fill(kind, {key: vector for key, vector in found if vector is not None})

    def close(self) -> None:
        self.cache.save(sparing=True)
        self.backend.close()
