"""The loaded knowledge base: truth as rows, and the derived state that mirrors it. Boot makes it, the paths use it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb.errors import Unavailable
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.entries import EntryBuilder
from duckkb.llm.deadline import within
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.validate import Validator
from duckkb.ports import Backend, Clock, Embedder, Row, Tokenizer
from duckkb.records import Record
from duckkb.settings import Environment, Settings
from duckkb.truth.line import Limits
from duckkb.truth.tree import Differences, Part, StoredRow, Tree, collector_paused

if TYPE_CHECKING:
    import numpy as np

Progress = Callable[[str, int, int], None]
EndIds = Callable[[RecordType, Record], tuple[int | None, int | None]]


@dataclass(frozen=True)
class Wiring:
    """The real parts of one base, as `app` chose them. `backend` takes what resolves edges' ends and what gives the rows
    of the caches; `lock_timeout` is in seconds."""

    root: Path
    settings: Settings
    ontology: Ontology
    env: Environment
    backend: Callable[[EndIds, Callable[[], Any]], Backend]
    tokenizer: Tokenizer
    embedder: Embedder
    clock: Clock
    lock_timeout: float = 60.0
    lenient: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class BootReport:
    """What boot found: records by type, and whether the base could only be read."""

    records: dict[str, int]
    read_only: bool = False


@dataclass
class Base:
    """One loaded base. `tree` is truth as it was last read; `backend` mirrors it, type by type, as far as it was needed."""

    wiring: Wiring
    tree: Tree
    backend: Backend
    cache: SearchCache
    report: BootReport
    _builder: EntryBuilder | None = None
    _validators: dict[str, Validator] = field(default_factory=dict)
    _loaded: dict[str, bool] = field(default_factory=dict)
    _dimension: int = 0  # of the vectors in the backend, 0 while there are none
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
            model = None if self.settings.embedding.model == "none" else self.wiring.embedder.fingerprint
            self._builder = EntryBuilder(self.wiring.tokenizer, self.settings, model, self.cache)
        return self._builder

    def ensure(self, kind: RecordType, *, entries: bool) -> None:
        """Have the backend mirror one type: its records, and its index entries where a lane will need them."""
        entries = entries and bool(kind.full_text or kind.vectors)
        if self.cache.dropped != self._dropped:  # rows of a file that turned out to be forged may be among them
            self._loaded, self._dropped = {}, self.cache.dropped
        if self._loaded.get(kind.name) in (True, entries):
            return
        with collector_paused():
            self.backend.load(kind, self._rows(kind, list(self.tree.rows(kind)), entries=entries))
        self._loaded[kind.name] = entries
        if entries:
            self._dimension = self._dimension or self.cache.dimension
            self.cache.save()

    def ensure_all(self, kinds: "Sequence[RecordType]") -> None:
        """As `ensure` with entries, of types that one question is about: none is left with rows of a cache that the load
        of another found to be forged."""
        dropped = -1
        while dropped != self.cache.dropped:
            dropped = self.cache.dropped
            for kind in kinds:
                self.ensure(kind, entries=True)

    def take_in(self, parts: Mapping[str, Part | None]) -> None:
        """Let memory follow the files: parts as they are now, None for those that are gone.

        Interrupted on the way (Ctrl-C in a session that goes on), what the backend mirrors is not known any more: it is
        loaded anew when it is next needed.
        """
        try:
            self._mirror(self.tree.replace(parts))
        except BaseException:
            self.tree.forget()
            self._loaded.clear()
            raise

    def _mirror(self, delta: Differences) -> None:
        """Bring the backend after the tree: only types that it mirrors, only rows that changed."""
        for name, (upserts, gone) in delta.items():
            kind = self.ontology.nodes.get(name) or self.ontology.edges.get(name)
            if kind is not None and name in self._loaded:
                self.backend.apply(kind, self._rows(kind, upserts, entries=self._loaded[name]), gone)

    def _rows(self, kind: RecordType, stored: Sequence[StoredRow], *, entries: bool) -> list[Row]:
        records = [row.record for row in stored]
        if not entries:
            return [Row(record) for record in records]
        return [Row(record, made) for record, made in zip(records, self.builder.build(kind, records), strict=True)]

    def embed(
        self, texts: "dict[bytes, str]", label: str = "embedding", *, save: bool = True, until: float | None = None
    ) -> "dict[bytes, np.ndarray]":
        """Vectors for texts by their key, kept in the local cache batch by batch; raises `errors.Unavailable`, also for a
        batch that the model has not finished at `until` (a time of the monotonic clock)."""
        made: dict[bytes, np.ndarray] = {}
        for batch in batches(sorted(texts.items(), key=lambda item: len(item[1])), EMBED_BATCH):
            vectors = self._embedded([text for _, text in batch], until)
            self._refuse_exchanged(vectors)
            fresh = {key: vector for (key, _), vector in zip(batch, vectors, strict=True)}
            made |= fresh
            self.cache.add_vectors({key: (texts[key], fresh[key]) for key in fresh}, self.wiring.embedder.fingerprint)
            if self.wiring.progress:
                self.wiring.progress(label, len(made), len(texts))
            if save and len(made) % SAVE_EVERY < EMBED_BATCH:
                self.cache.save()
        if save:
            self.cache.save()
        return made

    def expect(self, dimension: int) -> None:
        """Follow a model that was exchanged under its name: vectors of another length than its own are as good as none."""
        self.cache.expect(dimension)
        if self._dimension not in (0, dimension):
            self._loaded.clear()
        self._dimension = dimension

    def _embedded(self, texts: Sequence[str], until: float | None) -> "np.ndarray":
        if until is None:
            return self.wiring.embedder.embed_passages(texts)
        vectors = within(until - time.monotonic(), lambda: self.wiring.embedder.embed_passages(texts))
        if vectors is None:
            raise Unavailable("the model did not answer in time", code="E_MODEL", suggestion="duckkb index build")
        return vectors

    def _refuse_exchanged(self, vectors: "np.ndarray") -> None:
        if self._dimension not in (0, vectors.shape[1]):
            raise Unavailable(
                f"the model gives vectors of {vectors.shape[1]} numbers, the stored ones have {self._dimension}",
                code="E_MODEL",
                suggestion="if another model is meant, set global.embedding.dimensions, then `duckkb index build`",
            )

    def adopt(self, kind: RecordType, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Let a cache that this machine did not make supply vectors, once a sample of it has been recomputed and agrees,
        file by file while `goes_on`; raises `errors.Unavailable` where there is no model to recompute with."""
        pending = dict(self.backend.pending(kind))
        if pending:
            model = self.wiring.embedder
            if not self.cache.verify_vectors(pending, model.embed_passages, goes_on):
                self.ensure(kind, entries=True)
                pending = dict(self.backend.pending(kind))
            found = zip(pending, self.cache.vectors(list(pending), model.fingerprint.dimension), strict=True)
            self.backend.fill(kind, {key: vector for key, vector in found if vector is not None})

    def close(self) -> None:
        self.cache.save()
        self.backend.close()


EMBED_BATCH = 16
SAVE_EVERY = 512


def batches(items: "Sequence[Any]", size: int) -> "Iterable[Sequence[Any]]":
    """Consecutive slices of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))
