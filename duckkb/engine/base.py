"""The loaded knowledge base: the records as rows, and the derived state that mirrors them.

`boot` makes it.
Lanes and tables are built from the records of the tree; index entries are made when they are asked for.

Loads the tree from files: through the store where the size of the base makes it pay, else all at once.

The caller holds the base's lock. What the store lacks is read and stored part by part. A type that is new to
the store, or of which most has changed, is read as a stream."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from duckkb.engine.field_statistics import FEW, Observed, key_of_text
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.index_entries import EntryBuilder
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.validation import Validator
from duckkb.ports import (
    Ahead,
    ChatModel,
    Clock,
    Embedder,
    Expander,
    Lanes,
    Reranker,
    Row,
    Rows,
    Sql,
    Tokenizer,
    TypeState,
)
from duckkb.storage import read
from duckkb.storage.line import Limits
from duckkb.storage.part import Part, StoredRow, pause_collector
from duckkb.storage.read import Survey, survey
from duckkb.storage.tree import Tree
from duckkb.store.cache_dirs import Place, Unusable
from duckkb.store.stored_lines import StoredLines, key_of
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import Finding, Unavailable, Unreadable
from duckkb.types.queries import Lane, Notice
from duckkb.types.records import Chunk, Fingerprint, Identity, IndexEntry, Record
from duckkb.types.settings import EmbeddingSettings, Environment, Settings

if TYPE_CHECKING:
    from duckkb.storage.revisions import Revision

_FEW = 8  # up to this many changed parts are taken in singly


class Opened(Struct, frozen=True):
    """A tree and the store of its lines; None where it is only in memory, with a `reason` where it should be
    stored."""

    tree: Tree
    lines: StoredLines | None = None
    reason: str = ""


class Ground(Struct, frozen=True):
    """The context of a load: the base's folder, its types and settings, the `place` of derived state, and the
    seconds to wait.
    """

    root: Path
    ontology: Ontology
    settings: Settings
    place: Place
    lock_timeout: float

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_record_bytes, self.settings.max_depth)


def unreadable(tree: Tree, when: str, suggestion: str) -> Unreadable:
    """Return the error that names every line and file that cannot be read."""
    count = "1 place" if len(tree.unreadable) == 1 else f"{len(tree.unreadable)} places"
    return Unreadable(f"{count} in data/ cannot be read{when}", suggestion=suggestion, findings=tuple(tree.unreadable))


def load_base(ground: Ground) -> Opened:
    """Load the base from its present files; raises as `read.load` does."""
    file_survey = survey(ground.root, ground.ontology)
    if sum(status.st_size for status in file_survey.files.values()) < ground.settings.snapshot_bytes:
        return Opened(read.load(ground.root, ground.ontology, ground.limits, file_survey))
    lines = StoredLines.open(ground.place, ground.ontology, ground.limits)
    tree = lines.tree()
    is_current = not read.list_changed_parts(tree, ground.root, file_survey)
    if is_current and lines.is_mirror_of(tree) and not lines.reason:
        return Opened(tree, lines)
    try:
        return _update_store(ground, lines, tree, file_survey)
    except (
        OSError,
        Unavailable,
        Unusable,
        Ahead,
    ) as problem:  # the store cannot be written, or is locked: work in memory
        reason = lines.reason or str(problem)
        lines.close()
        return Opened(read.load(ground.root, ground.ontology, ground.limits), reason=reason)


def _update_store(ground: Ground, lines: StoredLines, tree: Tree, file_survey: Survey) -> Opened:
    """Bring the store and the tree to the state of `file_survey`.

    Raises OSError, `Unusable`, `errors.Unavailable`.
    """
    with lines.begin_write(ground.lock_timeout) as is_current, pause_collector():
        if not is_current:
            lines.reopen()
            tree, file_survey = lines.tree(), survey(ground.root, ground.ontology)
        changed_paths = read.list_changed_parts(tree, ground.root, file_survey)
        anew = [kind for kind in ground.ontology if _is_anew(kind, changed_paths, lines, file_survey)]
        if anew:
            kinds_by_path = {path: kind for path, kind in file_survey.kinds.items() if kind in anew}
            # A part with unreadable lines is not stored, so that it is read again until it is repaired.
            lines.build(
                anew, (part for part in read.read_parts(ground.root, kinds_by_path, ground.limits) if not part.findings)
            )
            tree = lines.tree()
            changed_paths = read.list_changed_parts(tree, ground.root, file_survey)
        parts = read.reload(tree, ground.root, changed_paths, file_survey)
        tree.replace(parts)
        lines.save(tree, changed_paths)
    lines.lean(tree)
    return Opened(tree, lines)


def _is_anew(kind: RecordType, changed_paths: Iterable[str], lines: StoredLines, file_survey: Survey) -> bool:
    """Return whether reading a type as a stream is shorter than taking in its changed parts."""
    type_paths = {path for path, record_type in file_survey.kinds.items() if record_type is kind}
    if kind.name not in lines.holds:
        return bool(type_paths)
    return len(type_paths.intersection(changed_paths)) > max(_FEW, len(type_paths) // 2)


_BATCH = 4096  # records whose entries are made, and held, together
_FIRST = 512  # size of the first batch, so that a parallel index build starts early

_FEW_BYTES = 4 << 20
"""Bytes of lines that are read in some tenths of a second."""

Progress = Callable[[str, int, int], None]
Given = ParamSpec("Given")
Made = TypeVar("Made")
EndIds = Callable[[RecordType, Record], tuple[int | None, int | None]]


class Proposal(Struct, frozen=True):
    """A destination for the writes of a base that is read at a revision.

    `branch` is the branch that the writes are for. `keep` takes the files as bytes by path, None for deleted files.
    """

    branch: str
    keep: Callable[[Mapping[str, bytes | None]], None]


class Wiring(Ground, frozen=True):
    """The real parts of one base, as `app` chose them.

    `lanes` makes the lanes of a type over its rows. `sql` takes three functions: for the rows of a type, for
    the ends of edges and for the rows of the caches.
    `embedder_for` makes a model. `reranker` and `expander` serve a `query`, None where there is none. `chat`
    returns the chat model of a name, None standing for the default model; raises `errors.UsageError`
    (E_NO_MODEL).
    `beside` loads the same base at a commit, or (None) as it is now. `preview` reads the ontology with some
    files of ontology/ replaced or removed (`errors.OntologyError`).
    `questions` are the judged questions of ontology/. `wire` chooses the parts of a base again, like
    `app.wiring.wire`, with the models and the clock of the caller.
    `at` is the revision that is read, None for the working files; a base at a revision is written through a
    `proposal` alone.
    `published` is the commit of a published base, empty for any other. `command` says that child processes may
    do a part of the work.
    """

    env: Environment
    lanes: Callable[[RecordType, Rows], Lanes]
    sql: Callable[[Callable[[RecordType], Rows], EndIds, Callable[[], Any]], Sql]
    tokenizer: Tokenizer
    embedder_for: Callable[[EmbeddingSettings], Embedder]
    reranker: Callable[[], Reranker | None]
    expander: Callable[[], Expander | None]
    chat: Callable[[str | None], ChatModel]
    beside: "Callable[[str | None], Base]"
    preview: Callable[[Mapping[str, bytes | None]], Ontology]
    questions: Sequence[Mapping[str, Any]]
    clock: Clock
    wire: Callable[[Path, Any], tuple[Any, "Wiring"]]
    lenient: bool = False
    progress: Progress | None = None
    at: "Revision | None" = None
    proposal: Proposal | None = None
    command: bool = False
    published: str = ""

    @property
    def embedder(self) -> Embedder:
        """The base's own model."""
        return self.embedder_for(self.settings.embedding)


class TreeRows:
    """A view of one type's records that implements `ports.Rows`; it holds no row itself."""

    def __init__(self, base: "Base", kind: RecordType) -> None:
        self._base, self._tree, self._kind = base, base.tree, kind
        self._parts: object = None  # the parts that the last state was made of
        self._digest, self._digests = "", dict[str, str]()

    @property
    def state(self) -> TypeState:
        base, tree = self._base, self._tree
        if self._parts is not tree.parts:  # one question asks several times; the state is cached
            self._parts, self._digests = tree.parts, tree.digests(self._kind)
            self._digest = _hash(self._digests)
        folder = None if base.lines is None or base.in_memory else base.lines.folder(self._kind)
        read = partial(tree.etags, self._kind)
        return TypeState(self._digest, self._digests, read, folder, self._key, self._describe_lengths)

    def _key(self, lane: Lane | None) -> str:
        """Return a key of all that shapes a lane's entries, apart from the records."""
        shaped_by: list[object] = [key_of(self._kind, self._base.limits), self._kind.schema, self._kind.relational]
        if lane is not None:
            words, model = self._base.wiring.tokenizer.fingerprint, self._base.fingerprint(self._kind)
            shaped_by = [words if lane == "fts" else model, *self._base.builder.cut_by(self._kind)]
        return _hash(shaped_by)

    def _describe_lengths(self) -> str:
        return str(self._base.lengths(self._kind)) if self._kind.given_vectors else ""

    def __len__(self) -> int:
        return self._tree.count(self._kind)

    def __iter__(self) -> Iterator[int]:
        return self._tree.ids(self._kind)

    def __contains__(self, record_id: object) -> bool:
        return isinstance(record_id, int) and self._tree.find_by_id(self._kind, record_id) is not None

    def __getitem__(self, record_id: int) -> Row:
        (row,) = self._rows([self.record(record_id)], None)
        return row

    def record(self, record_id: int) -> Record:
        row = self._tree.find_by_id(self._kind, record_id)
        if row is None:
            raise KeyError(record_id)
        return row.record

    def identity(self, record_id: int) -> Identity:
        record_identity = self._tree.identity(self._kind, record_id)
        if record_identity is None:
            raise KeyError(record_id)
        return record_identity

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        return self._base.builder.words(self._kind, self.record(record_id))

    def chunk(self, record_id: int, field: str, seq: int) -> Chunk | None:
        """Return one chunk with its place; None where the record has no such chunk."""
        return self._base.builder.chunk(self._kind, self.record(record_id), field, seq)

    def text(self, record_id: int, field: str, seq: int) -> str | None:
        """Return the text of one chunk; None where the record has no such chunk."""
        return self._base.builder.text(self._kind, self.record(record_id), field, seq)

    def records(self) -> Iterator[Record]:
        with pause_collector():  # building from all rows makes many small objects
            yield from self._tree.records(self._kind)

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        record_stream, size = self.records(), _FIRST
        while records := list(islice(record_stream, size)):
            yield self._rows(records, lane)
            size = _BATCH
        self._base.cache.save()

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        stored_rows = (self._tree.find_by_id(self._kind, record_id) for record_id in ids)
        record_stream = (row.record for row in stored_rows if row is not None)
        rows: list[Row] = []
        while records := list(islice(record_stream, _BATCH)):
            rows += self._rows(records, lane)
        return rows

    def _rows(self, records: Sequence[Record], lane: Lane | None) -> list[Row]:
        if not (self._kind.full_text or self._kind.vectors):
            return [Row(record) for record in records]
        entry_lists = self._base.builder.build(self._kind, records, lane)
        return [Row(record, entries) for record, entries in zip(records, entry_lists, strict=True)]


def _hash(value: object) -> str:
    return blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def make_once(make: "Callable[Concatenate[Base, Given], Made]") -> "Callable[Concatenate[Base, Given], Made]":
    """Wrap a method that makes a value on first use, so that of several threads one makes it."""

    @wraps(make)
    def make_alone(base: "Base", /, *given: Given.args, **named: Given.kwargs) -> Made:
        with base.turn:
            return make(base, *given, **named)

    return make_alone


class Base:
    """A loaded base: its records, and the lanes and tables that are made from them on demand.

    `tree` holds the records as they were last read, `lines` stores them on disk. `in_memory` says that no lane
    is stored on disk.
    `read_only` says that the base could only be read, `reason` why no store is used where one should be.
    `is_generation` marks a base that threads read side by side and nobody refreshes; a change makes a new one.
    `dropped` is the number of forged cache files that were known when the lanes were last made anew. `checked`
    holds the findings of rules for a generation, by visible types.
    """

    in_memory: bool = False
    is_generation: bool = False
    dropped: int = 0
    _notes: BaseStore | None = None
    _builder: EntryBuilder | None = None
    _sql: Sql | None = None

    def __init__(
        self,
        wiring: Wiring,
        tree: Tree,
        cache: SearchCache,
        lines: StoredLines | None = None,
        read_only: bool = False,
        reason: str = "",
    ) -> None:
        self.wiring, self.tree, self.cache = wiring, tree, cache
        self.lines, self.read_only, self.reason = lines, read_only, reason
        self.turn = RLock()
        self._validators: dict[str, Validator] = {}
        self._rows: dict[str, TreeRows] = {}
        self._lanes: dict[str, Lanes] = {}
        self._observed: dict[str, Observed] = {}
        self.checked: dict[tuple[bool, frozenset[str]], tuple[Finding, ...]] = {}

    @property
    def whole(self) -> "Base":
        """The base that this is a part of, as a caller sees it; the base itself where it is no part."""
        return self

    @property
    def is_narrowed(self) -> bool:
        return self.whole is not self

    def renew(self) -> None:
        """Take over the state of the whole base."""

    def concerns(self, path: str) -> bool:
        """Return whether a caller of this base may know of a file of truth or configuration."""
        return True

    def filter_notices(self, notices: Iterable[Notice]) -> tuple[Notice, ...]:
        """Return the notices that a caller of this base may read."""
        return tuple(notices)

    def list_notices(self, ontology: Ontology) -> Iterable[Notice]:
        """Return the notices that hold for as long as these types are read here."""
        return ()

    def refuse_loss(self, kind: RecordType) -> None:
        """Raise `errors.Refused` for a type whose records a caller who sees this base must not delete or rename."""

    @property
    @make_once
    def notes(self) -> BaseStore:
        """The notes stored beside the lines: counts, rates and the state of jobs. Nothing depends on them."""
        if self._notes is None:
            self._notes = BaseStore(self.wiring.place)
        return self._notes

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
        return self.wiring.limits

    @make_once
    def validator(self, kind: RecordType) -> Validator:
        if kind.name not in self._validators:
            self._validators[kind.name] = Validator(kind, self.ontology)
        return self._validators[kind.name]

    @property
    @make_once
    def builder(self) -> EntryBuilder:
        """The builder of index entries; it knows the chunker, the tokenizer, the model's fingerprint and both
        caches.
        """
        if self._builder is None:
            parts = self.wiring.tokenizer, self.settings, self.fingerprint, self.lengths
            self._builder = EntryBuilder(*parts, self.cache)
        return self._builder

    def embedder(self, kind: RecordType) -> Embedder:
        """Return the model that embeds a type's texts: the base's own, or what the type's policy makes of it."""
        return self.wiring.embedder_for(kind.settings(self.settings).embedding)

    def fingerprint(self, kind: RecordType) -> Fingerprint | None:
        """Return the fingerprint of the type's model; None where nothing is embedded."""
        is_none = kind.settings(self.settings).embedding.model == "none"
        return None if is_none or not kind.has_text_vectors else self.embedder(kind).fingerprint

    def lengths(self, kind: RecordType) -> dict[str, int]:
        """Return the length of a type's vectors by field; 0 where there is none yet."""
        return self.observe_fields(kind).lengths()

    @make_once
    def observe_fields(self, kind: RecordType) -> Observed:
        """Return the statistics of a type's fields, as its stored lines have them."""
        if kind.name not in self._observed:
            self._observed[kind.name] = Observed(kind, notes=self.notes if self.lines is not None else None)
        return self._observed[kind.name].follow(self.tree)

    def holders(self, kind: RecordType, text: str) -> list[StoredRow]:
        """Return the records that hold `text`, of a type that derives its keys from texts.

        There is one record, unless a text was given another key by hand or on two branches. The record with the
        derived key comes first.
        """
        key_rule = kind.generated
        if key_rule is None or not key_rule.of:
            return []
        keys = [key_of_text(kind, text), *self.observe_fields(kind).own_keys(text)]
        rows = [self.tree.get(kind, (key,)) for key in keys if key is not None]
        return [row for row in rows if row is not None and row.record.fields.get(key_rule.of) == text]

    @make_once
    def rows(self, kind: RecordType) -> TreeRows:
        """Return the current records of a type, with their entries on demand."""
        if kind.name not in self._rows:
            self._rows[kind.name] = self._build_rows(kind)
        return self._rows[kind.name]

    def _build_rows(self, kind: RecordType) -> TreeRows:
        return TreeRows(self, kind)

    @make_once
    def lanes(self, kind: RecordType) -> Lanes:
        """Return the lanes of a type. What they derive from the records is made when a question needs it."""
        if self.cache.dropped != self.dropped:  # lanes may hold rows of a forged file
            self.dropped = self.cache.dropped
            for record_type in self.ontology:
                self._get_lanes(record_type).discard()
        return self._get_lanes(kind)

    def _get_lanes(self, kind: RecordType) -> Lanes:
        if kind.name not in self._lanes:
            self._lanes[kind.name] = self.wiring.lanes(kind, self.rows(kind))
        return self._lanes[kind.name]

    @property
    @make_once
    def sql(self) -> Sql:
        """The part that answers filters and statements."""
        if self._sql is None:
            self._sql = self.wiring.sql(
                self.rows, lambda *edge: end_ids(self.tree, *edge), lambda: self.cache.table(self.live_keys())
            )
        return self._sql

    def live_keys(self) -> set[bytes]:
        """Return the keys of all token and vector rows that the current records use."""
        keys: set[bytes] = set()
        for kind in (kind for kind in self.ontology if kind.full_text or kind.vectors):
            rows = self.tree.rows(kind)
            while records := [row.record for row in islice(rows, _BATCH)]:
                needs = self.builder.needs(kind, records)
                keys |= needs.tokens.keys() | needs.vectors.keys()
        return keys

    def take_in(self, parts: Mapping[str, Part | None]) -> None:
        """Apply changed parts to memory; None stands for a deleted part.

        After an interruption (Ctrl-C in a session that continues) the changes are unknown, and derived state is
        made anew when it is next needed.
        Where the store cannot say what these parts held before, everything is read from the files again. The
        caller's lock keeps them unchanged: after a commit, only truth may fail.
        """
        try:
            was_small = self._is_small
            self.tree.replace(parts)
            if was_small and not self._is_small and not self.read_only:
                self.lines = self.lines or StoredLines.open(self.wiring.place, self.ontology, self.limits)
                self._observed.clear()  # the counts are noted now
            self._observe(parts)
            self._write_down(parts)
        except Ahead:  # the store is lost; the next command opens it anew
            self.tree = read.load(self.root, self.ontology, self.limits)
            self._forget()
        except BaseException:
            self.tree.forget()
            self._forget()
            raise

    def restart(self, tree: Tree, lines: StoredLines | None) -> None:
        """Replace the tree and the store with what was just loaded."""
        if self.lines is not None:
            self.lines.close()
        self.tree, self.lines = tree, lines
        self._forget()

    def _forget(self) -> None:
        self._rows.clear()
        self._lanes.clear()
        self._observed.clear()

    def _write_down(self, paths: Iterable[str]) -> None:
        """Store the changed parts of the tree.

        Where that fails, or another process was faster, the base checks the files again before its next answer.
        The store is derived; nothing depends on it.
        """
        if self.lines is None or self.lines.is_behind:
            return
        with suppress(OSError, Unusable, Unavailable, Ahead):
            with self.lines.begin_write(self.wiring.lock_timeout) as is_current:
                if is_current:
                    self.lines.save(self.tree, paths)
            if is_current:
                self.lines.lean(self.tree)

    @property
    def _is_small(self) -> bool:
        """Return whether the whole base is read so cheaply that its lines are not stored."""
        return sum(part.stamp.size for part in self.tree.parts.values()) < self.settings.snapshot_bytes

    def _observe(self, parts: Mapping[str, Part | None]) -> None:
        """Count the fields of many new records while they are in memory."""
        names = {part.kind.name for part in parts.values() if part is not None}
        for kind in self.ontology.nodes.values():
            if len(parts) > FEW and kind.name in names and kind.is_collection:
                self.observe_fields(kind)

    @property
    def is_quickly_loaded(self) -> bool:
        """Return whether a second load is cheap: the base does not change, its lines are stored, or they are few."""
        size = sum(part.stamp.size for part in self.tree.parts.values())
        return self.wiring.at is not None or self.lines is not None or size <= _FEW_BYTES

    def register(self) -> None:
        """Create the folder of this base, by which `cleanup` knows that its vectors are in use."""
        with suppress(Unusable, OSError):
            self.wiring.place.make()

    def on_vectors_available(self, kind: RecordType, keys: Iterable[bytes]) -> None:
        """Tell the lane of a type that the cache holds vectors it may wait for."""
        if kind.name in self._lanes:
            self._lanes[kind.name].vectors.on_vectors_available(keys)

    def close(self, *, alone: bool = True) -> None:
        """Close the store, and with `alone` the caches and the engine too; others may share these."""
        if alone:
            self.cache.close()
        if alone and self._sql is not None:
            self._sql.close()
        for store in (self.lines, self._notes):
            if store is not None:
                store.close()
        if self.is_generation:  # break the reference cycle, so that it is freed at once
            self._sql = self._builder = None
            self._forget()


def end_ids(tree: Tree, kind: RecordType, record: Record) -> tuple[int | None, int | None]:
    """Return the ids of an edge's two ends, for the columns `from_id` and `to_id`; None where one dangles or is
    ambiguous.
    """
    return tree.end_ids(kind, record.identity) if isinstance(kind, EdgeType) else (None, None)
