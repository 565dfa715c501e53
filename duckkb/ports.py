"""Every replaceable part on one page. Batch is the primitive; one is a batch of one.

A fake of each is in `tests/fakes.py`; the real ones are named in `duckkb.app` alone.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from duckkb.entries import Cut, Fingerprint, IndexEntry, Tokens
from duckkb.errors import StateError
from duckkb.id_set import IdSet
from duckkb.messages import ChatEvent, ChatRequest
from duckkb.ontology.model import Ontology, RecordType
from duckkb.queries import Lane, LaneHit, LexicalQuery, SqlResult, Variant, Weight
from duckkb.records import Component, Identity, Record
from duckkb.settings import ChatModelSettings, Settings

if TYPE_CHECKING:
    from threading import Event

    import numpy as np


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> str:
        """UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`."""
        ...


class Tokenizer(Protocol):
    """Splits texts and queries alike; equal fingerprints mean equal tokens. `has_forms`: whether its tokens have no accents, and
    say where words are written with them."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def has_forms(self) -> bool: ...

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]: ...


class Embedder(Protocol):
    """Turns texts into vectors. Raises `errors.Unavailable` (code `E_MODEL`) when it cannot; never returns less than
    was asked. Texts over the model's limit are split into windows and averaged, so nothing is cut."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        """float32 of shape (len(texts), dimension), rows of unit length."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        """As `embed_passages`, with the model's rule for questions."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model counts them (an estimate where the model does not tell)."""
        ...

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        """Each text as far as the model reads it in one go, as a passage or as a question: embedding a cut's `text` needs
        no second window. For callers who prefer an end that is cut off, and said, to an average."""
        ...


class Reranker(Protocol):
    """Judges how well texts answer a question. Equal fingerprints mean scores that may stand beside each other."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def at_once(self) -> int:
        """The most texts that one call takes; 0 for any number."""
        ...

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """A finite number for each text, higher for a better one: from 0 to 1 or, of a model that gives logits, any. (Which
        of the two can be told only of all candidates of a question together, so `engine.reranking` brings them to 0..1.)

        Gives up after so many seconds in all. Raises `errors.Unavailable` (code `E_MODEL`, `details["reason"]`) when it
        cannot; never returns fewer than were asked."""
        ...


class Expander(Protocol):
    """Writes other forms of a question."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    def variants(self, question: str, seconds: float) -> tuple[Variant, ...]:
        """One or more, each of one line and not the question itself. Gives up and raises as `Reranker.scores`."""
        ...


class ChatModel(Protocol):
    """Answers a conversation, as a stream; whoever wants the whole drains it."""

    @property
    def settings(self) -> ChatModelSettings:
        """What it can do, and who serves it."""
        ...

    def stream(self, request: ChatRequest, cancel: "Event | None" = None) -> Iterator[ChatEvent]:
        """The answer piece by piece; `Finish` comes last. Raises, before anybody is asked, `errors.UsageError` where the model
        cannot do what the request wants (E_MODEL_CANNOT); `errors.Unavailable` (E_MODEL) where nobody answers, or an answer breaks off;
        the same (E_CANCELLED) once `cancel` is set."""
        ...


class Row(Struct, frozen=True):
    """A record with its index entries, in the order of the ontology's fields and of the text."""

    record: Record
    entries: tuple[IndexEntry, ...] = ()


class Rows(Protocol):
    """The rows of one type by record id. They may be made when they are asked for; what is given is as truth is now.

    Where a `lane` is named, rows have the entries which that lane reads, with what it reads of them: tokens for `fts`,
    vectors for `vector`. None asks for everything.
    """

    @property
    def state(self) -> "TypeState":
        """Which rows these are: a lane that mirrors others follows."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """The ids, in path order."""
        ...

    def __contains__(self, record_id: object) -> bool: ...

    def __getitem__(self, record_id: int) -> Row:
        """A record with all of its entries; raises KeyError."""
        ...

    def record(self, record_id: int) -> Record:
        """A record alone; raises KeyError."""
        ...

    def identity(self, record_id: int) -> Identity:
        """The identity of a record, which is all that orders equal scores; raises KeyError."""
        ...

    def words(self, record_id: int) -> Sequence[IndexEntry]:
        """The chunks of a record that are searched by words, with their tokens (a single one may come without them);
        nothing is looked up in a cache. Raises KeyError."""
        ...

    def records(self) -> Iterator[Record]:
        """All records, without entries."""
        ...

    def batches(self, lane: Lane | None = None) -> Iterator[Sequence[Row]]:
        """All rows with their entries, some thousand at a time."""
        ...

    def some(self, ids: Iterable[int], lane: Lane | None = None) -> list[Row]:
        """The rows of several records at once; ids that do not exist are left out."""
        ...


class TypeState(Struct, frozen=True):
    """What the rows of a type are, which is all that a lane has to mirror. `digests` has by path what names the content of each
    part, `read` gives the ids and etags (8 bytes) of the rows of one; `digest` names all of it.

    `folder` is where the lanes of the type may lie on disk, None where they are kept in memory. `key` names what shapes the
    entries that a lane reads (None: the records alone). `lengths` names what the records themselves decide of them all, and
    is asked when some of them have changed.
    """

    digest: str
    digests: Mapping[str, str]
    read: Callable[[str], Iterable[tuple[int, bytes]]]
    folder: Path | None = None
    key: Callable[[Lane | None], str] = lambda lane: ""
    lengths: Callable[[], str] = str


class Ahead(StateError):
    """What was read lies nowhere any more as it was read: take in what changed on disk, and ask again."""


class SqlLimits(Struct, frozen=True):
    """Caps of one query: rows, bytes of result, seconds."""

    rows: int = 10_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0


class WordLane(Protocol):
    """The records of one type that match words, by BM25 over whole records.

    As of every lane: `allowed` is the set of record ids it may return, None for all: a true pre-filter, and cheapest as an
    `IdSet`. A list is ordered by score descending, ties by identity, and holds as many records as exist up to `depth`. A
    question sees the rows as they are.
    """

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]: ...

    def excluded(self, query: LexicalQuery) -> IdSet:
        """Ids that the query's `-negations` rule out."""
        ...

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        """The field and number of the record's chunk (of the one `field`, where given) that holds the most of what a query asks for;
        ("", 0) without chunks. The `preferred` chunk stays where it holds a word of it, or no chunk does."""
        ...

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> Sequence[Weight]:
        """How much each of some texts of a field holds of what a query asks for."""
        ...

    def explain(self, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        """Terms of the query with their part in one record's score: `{"score", "terms": [{"token", "part", "fields",
        "doc_freq", "score"}]}`; the terms' scores add up to the whole."""
        ...

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        """The share (0 to 1) of the query's idf mass that one record holds: each thing that is asked for counts once, however
        rare it is. None where the query asks for nothing."""
        ...

    def complete(self) -> None:
        """Make what any question may need, for whoever comes next; nothing where nothing is kept beyond this process."""
        ...


class VectorLane(Protocol):
    """The records of one type by the cosine of their best chunk with a vector."""

    def ask(self, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        """Exact over every chunk (or over those that a graph leads to, where the type's settings want one), one hit per record
        with its best chunk. Raises `errors.UsageError` for a vector of another dimension, or one that is not finite or all
        zeros."""
        ...

    def lacking(self) -> list[tuple[bytes, str]]:
        """(vector key, text) of the chunks that lack a vector, each key once, in an order that depends on the records alone."""
        ...

    def arrived(self, keys: Iterable[bytes]) -> None:
        """The rows have these vectors now: what lacked them is read again."""
        ...

    def account(self) -> Mapping[str, Any] | None:
        """Return what it is made of, `{"rows", "dimension", "ann"}`; None where no question has needed it yet."""
        ...

    def complete(self) -> None:
        """As of words; also what takes too long for a question to make: a graph, where the settings want one."""
        ...


class Lanes(Protocol):
    """The lanes over the rows of one type. Each is a file at a revision plus the changes since."""

    @property
    def words(self) -> WordLane: ...

    @property
    def vectors(self) -> VectorLane: ...

    def discard(self) -> None:
        """Forget what was derived from entries, on disk too: they are not what they were taken for."""
        ...


class Sql(Protocol):
    """The records of all types as tables. Both raise `errors.FilterError`, and `errors.Unavailable` over time or memory."""

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy an allow-listed SQL condition."""
        ...

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables."""
        ...

    def narrowed(self, ontology: Ontology) -> "Sql":
        """The same over fewer types: no statement can tell that there are others."""
        ...

    def close(self) -> None: ...


class Watermark(Struct, frozen=True):
    """What is published of a base: the records of a `commit` (hex), as what has this `fingerprint` (ontology, tokenizer, models) made
    them ready to be searched."""

    commit: str
    fingerprint: str


class PublishedRow(Struct, frozen=True):
    """A record with its entries, and the canonical line that holds it."""

    row: Row
    line: bytes


class TypeDelta(Struct, frozen=True):
    """What becomes of the records of one type: those with the ids `gone` leave, what is replaced among them, then `puts` come, some
    hundred at a time. `notes` are what the publisher wants to know of them the next time: plain JSON, kept as it is."""

    kind: RecordType
    puts: Iterable[Sequence[PublishedRow]]
    gone: Collection[int] = ()
    notes: Mapping[str, Any] = {}


class PublishedFile(Struct, frozen=True):
    """A file of the configuration of what is published. Whoever may see some types alone is given it where `every` one of these types
    is among them, and one at least of `some`, if there are any."""

    data: bytes
    every: tuple[str, ...] = ()
    some: tuple[str, ...] = ()


class Delta(Struct, frozen=True):
    """What leads from what is published (`parent`, None where nothing is) to a commit. One that `is_whole` holds every record: it
    is built beside what there is, and put in its place. `configuration` is that of the commit, as files by path."""

    parent: Watermark | None
    watermark: Watermark
    ontology: Ontology
    settings: Settings
    configuration: Mapping[str, PublishedFile]
    types: Iterable[TypeDelta]
    is_whole: bool = False


EdgeSide = Literal["out", "in"]


class Publication(Protocol):
    """What a target holds of a base at one moment: nothing that is published meanwhile shows in it."""

    @property
    def watermark(self) -> Watermark: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the types that who asks may see."""
        ...

    def configuration(self) -> Mapping[str, bytes]:
        """The files of the commit's configuration that who asks may see, by path."""
        ...

    def notes(self, kind: RecordType) -> Mapping[str, Any]:
        """As the last `TypeDelta` had them; nothing of a type that is not published, or that who asks may not see."""
        ...

    def count(self, kind: RecordType) -> int: ...

    def ids(self, kind: RecordType) -> Iterable[int]:
        """Of all records, in the order of their identities."""
        ...

    def lines(self, kind: RecordType, ids: Collection[int]) -> Mapping[int, bytes]:
        """The lines of these records, of those that there are, by id."""
        ...

    def named(self, kind: RecordType, identities: Collection[Identity]) -> Mapping[Identity, int]:
        """The ids of the records with these identities, of those that there are."""
        ...

    def in_order(self, kind: RecordType, behind: Identity | None = None) -> Iterator[bytes]:
        """Lines in the order of the records' identities, from the first one behind `behind` on."""
        ...

    def touching(self, kind: RecordType, side: EdgeSide, ends: Collection[Component]) -> Sequence[int]:
        """The ids of the edges that leave (`out`) or reach (`in`) one of these ends as they are written."""
        ...

    def etags(self, kind: RecordType) -> Mapping[int, bytes]:
        """What guards each record's line, 8 bytes, by id."""
        ...

    def vectors(self, kind: RecordType, ids: Collection[int]) -> "Mapping[int, Mapping[tuple[str, int], np.ndarray]]":
        """The vectors of records by id, field and number of the chunk: float32 of unit length."""
        ...

    def faults(self, kind: RecordType) -> Sequence[str]:
        """What of a type does not fit together in the target itself, in sentences."""
        ...

    def pending(self, kind: RecordType) -> Collection[int]:
        """The ids of the records of which a chunk had no vector when it was published."""
        ...


class Target(Protocol):
    """A database, derived from a base, that answers in its place. Every method raises `errors.Unavailable` (E_DATABASE) where it
    cannot be asked."""

    @property
    def name(self) -> str:
        """Which it is, as a person is told: without a password."""
        ...

    @property
    def now(self) -> Publication:
        """What the innermost `reading` of this thread sees; what lanes and tables ask."""
        ...

    def reading(self) -> AbstractContextManager[Publication]:
        """What is published now, as of one moment until the block ends; raises `errors.StateError` (E_NOT_PUBLISHED)."""
        ...

    def watermark(self) -> Watermark | None:
        """What is published now; None where nothing is."""
        ...

    def publish(self, delta: Delta) -> None:
        """Apply a delta all or nothing, if its parent is what is published: of two at once, one wins. Raises `errors.Conflict`
        (E_BEHIND) where another commit is."""
        ...

    def grant(self, role: str, types: Collection[str]) -> None:
        """Have somebody, as the database knows him, see these types of what is published, and nothing that tells of others; none:
        nothing. Holds for what is published later too. Raises `errors.UsageError` (E_ROLE)."""
        ...

    def lanes(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> Lanes:
        """The lanes of a type over what is published; `rows` are its records, as who asks reads them from there."""
        ...

    def sql(self, inner: Sql) -> Sql:
        """What answers filters and statements of what is published; `inner`, over the same records, what the target cannot answer
        to the last record as it does."""
        ...

    def close(self) -> None: ...
