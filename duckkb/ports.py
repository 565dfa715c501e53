"""Every replaceable part on one page. Batch is the primitive; one is a batch of one.

A fake of each is in `tests/fakes.py`; the real ones are named in `duckkb.app` alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from duckkb.entries import Cut, Fingerprint, IndexEntry, Tokens
from duckkb.errors import StateError
from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.queries import Lane, LaneHit, LexicalQuery, Notice, SqlResult
from duckkb.records import Record
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> str:
        """UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`."""
        ...


class Tokenizer(Protocol):
    """Splits texts and queries alike; equal fingerprints mean equal tokens."""

    @property
    def fingerprint(self) -> Fingerprint: ...

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


@dataclass(frozen=True, slots=True)
class Row:
    """A record as a backend stores it: with its index entries, in the order of the ontology's fields and of the text."""

    record: Record
    entries: tuple[IndexEntry, ...] = ()


class Rows(Protocol):
    """The rows of one type by record id. They may be made when they are asked for; what is given is as truth is now.

    Where a `lane` is named, rows have the entries which that lane reads, with what it reads of them: tokens for `fts`,
    vectors for `vector`. None asks for everything.
    """

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


@dataclass(frozen=True)
class Version:
    """What state on disk must mirror to be of use.

    `folder` is where the components of one type may lie, made when it is needed; `store` names the lines; `revision` rises
    with their changes and is never given twice; `changed` gives the ids that were put or went after a revision, None where
    that is not known any more.
    `key` names what shapes the entries that a lane reads (None: the records alone). `lengths` names what the records
    themselves decide of them all, and is asked when some of them have changed.
    """

    folder: Path
    store: str
    revision: int
    changed: Callable[[int], frozenset[int] | None]
    key: Callable[[Lane | None], str] = lambda lane: ""
    lengths: Callable[[], str] = str


class Ahead(StateError):
    """State on disk mirrors a later revision than the one asked for: take in what changed on disk, and ask again."""


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Caps of one query: rows, bytes of result, seconds."""

    rows: int = 10_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0


class Backend(Protocol):
    """A derived, rebuildable database. It never reads or writes files under `data/`.

    `allowed` is the set of record ids a lane may return, None for all: a true pre-filter, and cheapest as an `IdSet`. Every list is ordered by score
    descending, ties by identity, and holds as many records as exist up to `depth`.
    """

    def load(self, kind: RecordType, rows: Rows | Sequence[Row], version: Version | None = None) -> None:
        """Replace everything of one type. `Rows` are read when they are needed, and never held; with a `version`, what is
        made of them may be kept on disk."""
        ...

    def apply(
        self, kind: RecordType, upserts: Sequence[Row], gone: Iterable[int], version: Version | None = None
    ) -> None:
        """Replace or add `upserts` by record id and drop `gone`; cost follows their number. A type that was loaded from
        `Rows` has changed there already: only the ids of `upserts` count then."""
        ...

    def prepare(self, kind: RecordType) -> None:
        """Make what questions about a type will need and what is kept beyond this process; nothing where nothing is. Also
        what takes too long for a question to make (`notices` says what that is)."""
        ...

    def expect(self, kind: RecordType, words: LexicalQuery) -> None:
        """Say that a type is about to be asked by words and by a vector, so that what has to be made for both can be made
        out of one pass over the rows. Answers are the same without it."""
        ...

    def where(self, kind: RecordType, condition: str) -> IdSet:
        """Ids of the records that satisfy an allow-listed SQL condition; raises `errors.FilterError`."""
        ...

    def match(
        self, kind: RecordType, query: LexicalQuery, depth: int, allowed: Set[int] | None = None
    ) -> list[LaneHit]:
        """The lexical lane: BM25 over whole records. `best_chunks` says which chunk to show of a hit."""
        ...

    def best_chunks(self, kind: RecordType, query: LexicalQuery, ids: Sequence[int]) -> list[tuple[str, int]]:
        """For each of these records the field and number of the chunk that holds the most of what a query asks for."""
        ...

    def excluded(self, kind: RecordType, query: LexicalQuery) -> IdSet:
        """Ids that the query's `-negations` rule out."""
        ...

    def similar(
        self,
        kind: RecordType,
        vector: "np.ndarray | Sequence[float]",
        depth: int,
        allowed: Set[int] | None = None,
    ) -> list[LaneHit]:
        """The vector lane: exact cosine over every chunk (or over those that a graph leads to, where the type's settings
        want one), one hit per record with its best chunk. Raises
        `errors.UsageError` for a vector of another dimension, or one that is not finite or all zeros."""
        ...

    def account(self, kind: RecordType) -> Mapping[str, Any]:
        """What the lanes of a type are made of, by lane; None for one that no question has needed yet."""
        ...

    def notices(self, kind: RecordType) -> tuple[Notice, ...]:
        """What must be said of the answers that a type's lanes gave last."""
        ...

    def dimension(self, kind: RecordType) -> int:
        """That of the stored vectors; 0 where there is none."""
        ...

    def pending(self, kind: RecordType) -> list[tuple[bytes, str]]:
        """(vector key, text) of the chunks that lack a vector, each key once."""
        ...

    def fill(self, kind: RecordType, vectors: "Mapping[bytes, np.ndarray]") -> None:
        """Give vectors to pending chunks by their key."""
        ...

    def entries(self, kind: RecordType, record_id: int) -> tuple[IndexEntry, ...]:
        """The index entries of one record, empty for an unknown id."""
        ...

    def explain(self, kind: RecordType, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        """Terms of the query with their part in one record's lexical score."""
        ...

    def discard(self, kind: RecordType) -> None:
        """Forget what was derived from the entries of a type, on disk too: they are not what they were taken for."""
        ...

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        """One read-only SELECT over the runtime tables; raises `errors.FilterError` or `errors.Unavailable`."""
        ...

    def close(self) -> None: ...
