"""Every replaceable part on one page. Batch is the primitive; one is a batch of one.

A fake of each is in `tests/fakes.py`; the real ones are named in `duckkb.app` alone.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from duckkb.entries import Cut, Fingerprint, IndexEntry, Tokens
from duckkb.errors import StateError
from duckkb.id_set import IdSet
from duckkb.ontology.model import Ontology, RecordType
from duckkb.queries import Lane, LaneHit, LexicalQuery, SqlResult, Variant
from duckkb.records import Identity, Record
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


@dataclass(frozen=True, slots=True)
class Row:
    """A record with its index entries, in the order of the ontology's fields and of the text."""

    record: Record
    entries: tuple[IndexEntry, ...] = ()


class Rows(Protocol):
    """The rows of one type by record id. They may be made when they are asked for; what is given is as truth is now.

    Where a `lane` is named, rows have the entries which that lane reads, with what it reads of them: tokens for `fts`,
    vectors for `vector`. None asks for everything.
    """

    @property
    def version(self) -> "RowVersion":
        """Which rows these are: a lane that mirrors another version follows."""
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


@dataclass(frozen=True, slots=True)
class RowVersion:
    """Which rows of a type a lane has to mirror. `store` names the lines; `revision` rises with their changes and is never given
    twice; `changed` gives the ids that were put or went after a revision, None where that is not known any more.

    `folder` is where the lanes of the type may lie on disk, None where they are kept in memory. `key` names what shapes the
    entries that a lane reads (None: the records alone). `lengths` names what the records themselves decide of them all, and
    is asked when some of them have changed.
    """

    store: str
    revision: int
    changed: Callable[[int], frozenset[int] | None]
    folder: Path | None = None
    key: Callable[[Lane | None], str] = lambda lane: ""
    lengths: Callable[[], str] = str


class ChangeLog:
    """What has changed of the rows of a type since this process has them: a version for lanes that are kept in memory."""

    def __init__(self, lengths: Callable[[], str] = str) -> None:
        self._store = os.urandom(8).hex()
        self._lengths = lengths
        self._revision = 0
        self._changed: dict[int, int] = {}

    @property
    def version(self) -> RowVersion:
        return RowVersion(self._store, self._revision, self._since, lengths=self._lengths)

    def note(self, ids: Iterable[int]) -> None:
        """These were put, or are gone."""
        self._revision += 1
        self._changed.update(dict.fromkeys(ids, self._revision))

    def _since(self, revision: int) -> frozenset[int]:
        return frozenset(record_id for record_id, changed in self._changed.items() if changed > revision)


class Ahead(StateError):
    """State on disk mirrors a later revision than the one asked for: take in what changed on disk, and ask again."""


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Caps of one query: rows, bytes of result, seconds."""

    rows: int = 10_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0


class WordLane(Protocol):
    """The records of one type that match words, by BM25 over whole records.

    As of every lane: `allowed` is the set of record ids it may return, None for all: a true pre-filter, and cheapest as an
    `IdSet`. A list is ordered by score descending, ties by identity, and holds as many records as exist up to `depth`. A
    question sees the rows as they are; it raises `Ahead` where what lies on disk mirrors later ones.
    """

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]: ...

    def excluded(self, query: LexicalQuery) -> IdSet:
        """Ids that the query's `-negations` rule out."""
        ...

    def chunk(self, query: LexicalQuery, record_id: int) -> tuple[str, int]:
        """The field and number of the record's chunk that holds the most of what a query asks for; ("", 0) without chunks."""
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
        """What it is made of: `{"rows", "dimension", "storage", "ann", "recall"}`; None where no question has needed it yet."""
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
