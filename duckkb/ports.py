"""Every replaceable part, on one page. Batches are the primitive; a single value is a batch of one.

A fake of each part is in `tests/fakes.py`; only `duckkb.app` names the real ones.

Orders the records of a lane: by score, and by identity if scores are indistinguishable."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from duckkb.id_set import IdSet
from duckkb.ontology.model import Ontology, RecordType
from duckkb.types.chat_messages import ChatEvent, ChatRequest
from duckkb.types.errors import StateError
from duckkb.types.queries import Lane, LaneHit, LexicalQuery, SqlResult, Variant, Weight
from duckkb.types.records import Component, Cut, Fingerprint, Identity, IndexEntry, Record, Tokens
from duckkb.types.settings import ChatModelSettings, Settings

if TYPE_CHECKING:
    from threading import Event

    import numpy as np


class Clock(Protocol):
    """A clock that gives the time as text."""

    def now(self) -> str:
        """Return the time in UTC, as `YYYY-MM-DDTHH:MM:SS.ffffffZ`."""
        ...


class Tokenizer(Protocol):
    """A tokenizer that splits texts and queries alike; equal fingerprints mean equal tokens.

    `has_forms`: whether tokens have no accents and the sequence marks words that are written with them.
    """

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def has_forms(self) -> bool: ...

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]: ...


class Embedder(Protocol):
    """A model that turns texts into vectors.

    Raises `errors.Unavailable` (code `E_MODEL`) when it cannot; never returns fewer vectors than texts. Texts
    over the model's limit are split into windows and averaged, so nothing is cut.
    """

    @property
    def fingerprint(self) -> Fingerprint: ...

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        """Embed passages; return float32 of shape (len(texts), dimension), rows of unit length."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        """Embed questions as `embed_passages` does, with the model's rule for questions."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count each text's tokens as the model does; estimate where the model does not tell."""
        ...

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        """Cut each text to what the model reads in one go, as a passage or as a question.

        Embedding a cut's `text` needs no second window. For callers who prefer a reported cut to an average of
        windows.
        """
        ...


class Reranker(Protocol):
    """A model that scores how well texts answer a question. Equal fingerprints mean comparable scores."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def at_once(self) -> int:
        """The most texts that one call takes; 0 for any number."""
        ...

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Return a finite score for each text, higher for a better one; give up after `seconds` in all.

        Scores are from 0 to 1, or unbounded where a model gives logits. Only all candidates of a question
        together show which, so `engine.rerank` scales them to 0..1. Never returns fewer scores than texts.
        Raises `errors.Unavailable` (code `E_MODEL`, `details["reason"]`) when it cannot.
        """
        ...


class Expander(Protocol):
    """A model that writes other forms of a question."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    def variants(self, question: str, seconds: float) -> tuple[Variant, ...]:
        """Return at least one variant, each a single line and not the question itself.

        Gives up and raises as `Reranker.scores` does.
        """
        ...


class ChatModel(Protocol):
    """A chat model that continues a conversation as a stream; drain it for the whole answer."""

    @property
    def settings(self) -> ChatModelSettings:
        """What the model can do, and its providers."""
        ...

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]:
        """Yield the answer piece by piece; `Finish` comes last.

        Raises `errors.UsageError` (E_MODEL_CANNOT), before asking anybody, where the model cannot do what the
        request wants. Raises `errors.Unavailable`: E_MODEL where no provider answers or an answer breaks off,
        E_CANCELLED once `cancel` is set.
        """
        ...


class Row(Struct, frozen=True):
    """A record with its index entries, in the order of the ontology's fields and of the text."""

    record: Record
    entries: tuple[IndexEntry, ...] = ()


class Rows(Protocol):
    """The rows of one type by record id. They may be made when asked for; they always show truth as it is now.

    With a `lane`, rows hold only the entries and data which that lane reads: tokens for `fts`, vectors for
    `vector`. None asks for everything.
    """

    @property
    def state(self) -> "TypeState":
        """The state of these rows; a lane that mirrors another state applies the changes."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids, in path order."""
        ...

    def __contains__(self, record_id: object) -> bool: ...

    def __getitem__(self, record_id: int) -> Row:
        """Return a record with all of its entries; raises KeyError."""
        ...

    def record(self, record_id: int) -> Record:
        """Return a record without entries; raises KeyError."""
        ...

    def identity(self, record_id: int) -> Identity:
        """Return the identity of a record, which is enough to order equal scores; raises KeyError."""
        ...

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        """Return the chunks of a record that are searched by words, with their tokens; raises KeyError.

        A single chunk may come without tokens; nothing is looked up in a cache.
        """
        ...

    def records(self) -> Iterator[Record]:
        """Iterate over all records, without entries."""
        ...

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        """Yield all rows with their entries, some thousand at a time."""
        ...

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        """Return the rows of several records; leave out ids that do not exist."""
        ...


class TypeState(Struct, frozen=True):
    """The state of a type's rows: all that a lane has to mirror.

    `digests` names the content of each part by path, and `read` gives the ids and etags (8 bytes) of the rows
    of a part. `digest` names all of it. `folder` is where the lanes of the type may lie on disk, None where
    they are kept in memory. `key` names what shapes the entries that a lane reads (None: the records alone).
    `lengths` names what all records together decide; it is asked when some of them have changed.
    """

    digest: str
    digests: Mapping[str, str]
    read: Callable[[str], Iterable[tuple[int, bytes]]]
    folder: Path | None = None
    key: Callable[[Lane | None], str] = lambda lane: ""
    lengths: Callable[[], str] = str


class Ahead(StateError):
    """The error of a reader whose snapshot is no longer on disk: reload from disk, then ask again."""


class SqlLimits(Struct, frozen=True):
    """The limits of one query: rows, bytes of the result, seconds."""

    rows: int = 10_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0


class WordLane(Protocol):
    """The records of one type that match words, ranked by BM25 over whole records.

    For every lane, `allowed` is the set of record ids it may return, None for all. It is a true pre-filter, and
    cheapest as an `IdSet`. A list is ordered by falling score, ties by identity, and holds as many records as
    exist up to `depth`. A question sees the rows as they are.
    """

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]: ...

    def find_excluded_ids(self, query: LexicalQuery) -> IdSet:
        """Return the ids that the query's `-negations` rule out."""
        ...

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        """Return the field and number of the record's chunk that matches most of a query; ("", 0) without chunks.

        A `field` restricts the choice to its chunks. The `preferred` chunk is returned where it holds a word of
        the query, or no chunk does.
        """
        ...

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> Sequence[Weight]:
        """Return how much of the query each of some texts of a field holds."""
        ...

    def explain(self, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        """Explain one record's score: `{"score", "terms": [{"token", "part", "fields", "doc_freq", "score"}]}`.

        The terms' scores add up to the whole.
        """
        ...

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        """Return the share (0 to 1) of the query's idf mass that a record holds; None for an empty query.

        Each thing that is asked for counts once, however rare it is.
        """
        ...

    def complete(self) -> None:
        """Build what any question may need, for later processes; do nothing where nothing is kept on disk."""
        ...


class VectorLane(Protocol):
    """The records of one type, ranked by the cosine of their best chunk."""

    def ask(self, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """Return the nearest records, one hit each with its best chunk.

        Exact over every chunk, or over those that a graph yields where the type's settings want a graph. Raises
        `errors.UsageError` for a vector of another dimension, and for one that is not finite or all zeros.
        """
        ...

    def list_missing_texts(self) -> list[tuple[bytes, str]]:
        """Return (vector key, text) of the chunks without a vector, each key once, in an order fixed by records."""
        ...

    def on_vectors_available(self, keys: Iterable[bytes]) -> None:
        """Read again the rows that lacked these vectors, since they have them now."""
        ...

    def account(self) -> Mapping[str, Any] | None:
        """Return what the lane is made of, `{"rows", "dimension", "ann"}`; None before any question needed it."""
        ...

    def complete(self) -> None:
        """Build what any question may need, as `WordLane.complete` does; also a graph, if the settings want one."""
        ...


class Lanes(Protocol):
    """The lanes over the rows of one type. Each is a file at a revision plus the changes since."""

    @property
    def words(self) -> WordLane: ...

    @property
    def vectors(self) -> VectorLane: ...

    def discard(self) -> None:
        """Discard what was derived from entries, on disk too, because the entries turned out to be wrong."""
        ...


class Sql(Protocol):
    """The records of all types as tables.

    Both questions raise `errors.FilterError`, and `errors.Unavailable` over time or memory.
    """

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Return the ids of the records that satisfy an allow-listed SQL condition."""
        ...

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """Run one read-only SELECT over the runtime tables."""
        ...

    def narrow(self, ontology: Ontology) -> "Sql":
        """Return the tables of fewer types; no statement can tell that there are others."""
        ...

    def close(self) -> None: ...


class Watermark(Struct, frozen=True):
    """What is published of a base: the records of a `commit` (hex), prepared for search under a `fingerprint`.

    The fingerprint covers ontology, tokenizer and models.
    """

    commit: str
    fingerprint: str


class PublishedRow(Struct, frozen=True):
    """A record with its entries and its canonical line."""

    row: Row
    line: bytes


class TypeDelta(Struct, frozen=True):
    """The changes of one type's records.

    The records with the ids `gone` leave first, replaced ones among them; then `puts` come, some hundred at a
    time. `notes` are plain JSON that the publisher wants back the next time.
    """

    kind: RecordType
    puts: Iterable[Sequence[PublishedRow]]
    gone: Collection[int] = ()
    notes: Mapping[str, Any] = {}


class PublishedFile(Struct, frozen=True):
    """A file of the published configuration.

    A caller who may see only some types gets the file where these include all types of `every`, and at least
    one type of a non-empty `some`.
    """

    data: bytes
    every: tuple[str, ...] = ()
    some: tuple[str, ...] = ()


class Delta(Struct, frozen=True):
    """The changes from what is published (`parent`, None where nothing is) to a commit.

    A delta that `is_whole` holds every record; it is built beside the published state and then replaces it.
    `configuration` has the files of the commit's configuration by path.
    """

    parent: Watermark | None
    watermark: Watermark
    ontology: Ontology
    settings: Settings
    configuration: Mapping[str, PublishedFile]
    types: Iterable[TypeDelta]
    is_whole: bool = False


EdgeSide = Literal["out", "in"]


class Publication(Protocol):
    """What a target holds of a base at one moment; later publications do not show in it."""

    @property
    def watermark(self) -> Watermark: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the types that the caller may see."""
        ...

    def configuration(self) -> Mapping[str, bytes]:
        """Return the files of the commit's configuration that the caller may see, by path."""
        ...

    def notes(self, kind: RecordType) -> Mapping[str, Any]:
        """Return the notes of the last `TypeDelta`; empty for a type unpublished or hidden from the caller."""
        ...

    def count(self, kind: RecordType) -> int: ...

    def ids(self, kind: RecordType) -> Iterable[int]:
        """Iterate over the ids of all records, in the order of their identities."""
        ...

    def lines(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, bytes]:
        """Return the lines of the existing records among `ids`, by id."""
        ...

    def find_ids(self, kind: RecordType, identities: Collection[Identity]) -> Mapping[Identity, int]:
        """Return the ids of the existing records among `identities`, by identity."""
        ...

    def iter_by_identity(self, kind: RecordType, behind: Identity | None = None) -> Iterator[bytes]:
        """Yield lines in the order of the records' identities, starting after `behind`."""
        ...

    def find_edge_ids(self, kind: RecordType, side: EdgeSide, ends: Collection[Component]) -> Sequence[int]:
        """Return the ids of the edges that leave (`out`) or reach (`in`) one of these ends as they are written."""
        ...

    def etags(self, kind: RecordType) -> Mapping[int, bytes]:
        """Return the etag of each record's line (8 bytes), by id."""
        ...

    def vectors(self, kind: RecordType, ids: Collection[int]) -> "Mapping[int, Mapping[tuple[str, int], np.ndarray]]":
        """Return the vectors of records by id, field and number of the chunk: float32 of unit length."""
        ...

    def faults(self, kind: RecordType) -> Sequence[str]:
        """Return sentences on inconsistencies of a type within the target itself."""
        ...

    def list_pending_ids(self, kind: RecordType) -> Collection[int]:
        """Return the ids of the records that had a chunk without a vector when they were published."""
        ...


class Target(Protocol):
    """A database, derived from a base, that answers in its place.

    Every method raises `errors.Unavailable` (E_DATABASE) where the database cannot be asked.
    """

    @property
    def name(self) -> str:
        """The name of the target as people read it: without a password."""
        ...

    @property
    def now(self) -> Publication:
        """The publication of the innermost `open_publication` of this thread, which lanes and tables read."""
        ...

    def open_publication(self) -> AbstractContextManager[Publication]:
        """Hold the current publication fixed until the block ends; raises `errors.StateError` (E_NOT_PUBLISHED)."""
        ...

    def watermark(self) -> Watermark | None:
        """Return what is published now; None where nothing is."""
        ...

    def publish(self, delta: Delta) -> None:
        """Apply a delta atomically, if its parent is what is published; of two at once, a single one wins.

        Raises `errors.Conflict` (E_BEHIND) where another commit is published.
        """
        ...

    def grant(self, role: str, types: Collection[str]) -> None:
        """Let a role of the database see only these types of what is published, now and later; no types: nothing.

        Nothing tells the role of other types. Raises `errors.UsageError` (E_ROLE).
        """
        ...

    def lanes(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> Lanes:
        """Return the lanes of a type over what is published; `rows` are its records as the caller reads them."""
        ...

    def sql(self, inner: Sql) -> Sql:
        """Return the tables that answer filters and statements over what is published.

        `inner`, over the same records, answers whatever the target cannot answer exactly as it does.
        """
        ...

    def close(self) -> None: ...


Scored = tuple[float, int]
"""A score and the id of the record that has it."""


def best_first(scored: Sequence[Scored], depth: int, identity: Callable[[int], Any], slack: float) -> list[Scored]:
    """Return the first `depth` of records in falling order of score, ties by `identity(id)`.

    Two neighbours tie when they differ by no more than `slack` of the greater one: the order in which an engine
    adds up 32-bit floats would otherwise decide between equal texts. Tied records share the score of their
    first, rounded to six decimals, so that a longer list starts with the shorter one.

    >>> best_first([(2.0, 7), (1.0, 9), (1.0, 8)], 2, lambda id: id, 0.0)
    [(2.0, 7), (1.0, 8)]
    """
    best_records: list[Scored] = []
    start, count = 0, len(scored)
    while start < count and (missing_count := depth - len(best_records)) > 0:
        upper, record_id = scored[start]
        end, score = start + 1, round(upper, 6)
        while end < count and upper - (lower := scored[end][0]) <= slack * abs(upper):
            end, upper = end + 1, lower
        if end == start + 1:  # a record without a tie needs no identity
            best_records.append((score, record_id))
        else:
            ids = [record_id for _, record_id in scored[start:end]]
            best_records += [
                (score, record_id) for record_id in heapq.nsmallest(min(missing_count, len(ids)), ids, key=identity)
            ]
        start = end
    return best_records


def is_settled(scored: Sequence[Scored], depth: int, slack: float) -> bool:
    """Return whether records after these cannot belong among the first `depth`: some tie ends at `depth` or later."""
    return any(not _is_tie(upper[0], lower[0], slack) for upper, lower in pairwise(scored[max(depth - 1, 0) :]))


def _is_tie(upper: float, lower: float, slack: float) -> bool:
    return upper - lower <= slack * abs(upper)
