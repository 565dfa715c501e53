"""What a caller asks and what comes back: intents, plans, hits, traces, notices, receipts."""

from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, StructMeta

from duckkb.types.errors import Finding
from duckkb.types.records import Change, Identity
from duckkb.types.settings import Expansion, Fusion

Mode = Literal["similar", "match", "hybrid", "where"]
Lane = Literal["vector", "fts"]
VariantKind = Literal["lex", "vec", "hyde"]


class Notice(Struct, frozen=True):
    """A notice about an answer that the caller must know. `code` is a `W_*` code, as of `degraded` or `truncated`.

    `reason` names the part that was left out, and why, in one word for counters: `rerank_timeout`.
    """

    code: str
    message: str
    remedy: str = ""
    reason: str = ""


class Variant(Struct, frozen=True):
    """Another form of a question.

    Words (`lex`) are for the lexical lane; a paraphrase (`vec`) or a made-up answer (`hyde`) for the vector lane.
    """

    kind: VariantKind
    text: str


class LexicalQuery(Struct, frozen=True):
    """A parsed lexical query. Each phrase is the text between quotes; prefixes come without their `*`.

    `text` is everything that is neither operator nor excluded: the words to rank by. An empty query matches
    nothing. Prefixes rank; with `every`, a record must have each of them, in Chinese text each word in them.

    Scores of an `exact` query depend on the records alone, to the last digit. Otherwise the average length may
    come from an index that still counts replaced records.
    """

    text: str = ""
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    every: bool = False
    exact: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.text.strip() or self.phrases or self.excluded or self.prefixes)

    @property
    def relaxed(self) -> "LexicalQuery":
        """The query with phrases and prefixes as words to rank by; exclusions stay."""
        return LexicalQuery(
            " ".join((self.text, *self.phrases, *self.prefixes)), excluded=self.excluded, exact=self.exact
        )


NO_WORDS = LexicalQuery()
Weight = tuple[bool, float]
"""Whether a text holds a word that is asked for, and how much it holds of all that is; greater is more."""
NOTHING: Weight = (False, 0.0)


class Plan(Struct, frozen=True):
    """How a find is done: the lanes to run, their depth and their fusion. A pure function of intent and policy.

    `depth` is the number of distinct records a lane yields, max(50, 5 x limit) for hybrid plans.
    """

    mode: Mode
    lanes: tuple[Lane, ...]
    limit: int
    depth: int
    fusion: Fusion = Fusion()
    expansion: Expansion = Expansion()
    notices: tuple[Notice, ...] = ()


class LaneHit(Struct, frozen=True):
    """A record in one lane; higher scores are better.

    `field` and `seq` name the best chunk of a hit by vector. A hit by words gets its chunk when it is shown.
    """

    id: int
    score: float
    field: str = ""
    seq: int = 0


class ChunkRef(Struct, frozen=True):
    """The chunk by which a hit is shown; `start` is its place in the field's text, in characters."""

    field: str
    seq: int
    text: str
    start: int = 0


class Excerpt(Struct, frozen=True):
    """Where an excerpt begins: a field, a place in its text in characters, and the `line` of a document's file."""

    field: str
    start: int
    line: int | None = None


class Hit(Struct, frozen=True):
    """A ranked record.

    `score` is higher-is-better; `scores` is its account (`vector`, `fts`, `final`, `sources`, `rank`). `record`
    is a plain dict of the business fields; `times` are created and updated, UTC; `trace` is set by `explain`.
    `is_filled`: the record fills up the list, since no record matches the phrases and open ends of the
    question. `excerpt` is where its shown text begins; in a document that is always in `text`. The line of a
    hit `in_collection` always includes the account of its score.
    """

    type: str
    id: int
    identity: Any
    score: float | None
    engine: str
    record: dict[str, Any]
    etag: str
    times: tuple[str, str] = ("", "")
    scores: Mapping[str, Any] | None = None
    chunk: ChunkRef | None = None
    trace: Mapping[str, Any] | None = None
    is_filled: bool = False
    excerpt: Excerpt | None = None
    in_collection: bool = False


class SequenceMeta(StructMeta, ABCMeta):
    """The metaclass of values that are also the sequence of their rows."""


class FindResult(Struct, Sequence[Hit], frozen=True, metaclass=SequenceMeta):
    """Hits, best first, with the notices on them. Behaves as the list of its hits."""

    hits: tuple[Hit, ...]
    mode: Mode
    engine: str
    notices: tuple[Notice, ...] = ()
    explain: Mapping[str, Any] | None = None

    @property
    def degraded(self) -> bool:
        return any(notice.code == "W_DEGRADED" for notice in self.notices)

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]


class SqlResult(Struct, frozen=True):
    """The rows of a read-only query. `truncated`: the row or byte limit cut them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False


class ImportSummary(Struct, frozen=True):
    """What an import read.

    It has the number of records, the types of columns by name, and how many records got a generated id. The
    first few records are as they were given to the write.
    """

    read: int
    types: Mapping[str, str]
    generated_ids: int
    first: tuple[Mapping[str, Any], ...]


class Receipt(Struct, frozen=True):
    """What a write did. `etags` and `ids` run in the order of the records given; `files` are paths relative to the base;
    `pending` counts chunks stored without a vector; `patch` is the unified diff that git would show (`--dry-run`);
    `changes` what it would do to each record; `errors` has what is wrong with each record that a batch left out; `imported` is of an import alone."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    files: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()
    ids: tuple[int, ...] = ()
    etags: tuple[str, ...] = ()
    pending: int = 0
    notices: tuple[Notice, ...] = ()
    dry_run: bool = False
    patch: str = ""
    changes: tuple[Change, ...] = ()
    errors: tuple[tuple[Finding, ...], ...] = ()
    imported: ImportSummary | None = None
