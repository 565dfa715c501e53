"""What a caller asks and what comes back: intents, plans, hits, traces, notices, receipts."""

from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, StructMeta

from duckkb.errors import Finding
from duckkb.records import Change, Identity
from duckkb.settings import Expansion, Fusion

Mode = Literal["similar", "match", "hybrid", "where"]
Lane = Literal["vector", "fts"]
VariantKind = Literal["lex", "vec", "hyde"]


class Notice(Struct, frozen=True):
    """Something the caller must know about an answer: `code` is `degraded`, `truncated`, `pending`, ... in `W_*` form. `reason` says
    of a part that an answer went without which one and why, in one word for counters: `rerank_timeout`."""

    code: str
    message: str
    remedy: str = ""
    reason: str = ""


class Variant(Struct, frozen=True):
    """Another form of a question: words for the lexical lane (`lex`), a paraphrase (`vec`) or a made-up answer (`hyde`) for
    the vector lane."""

    kind: VariantKind
    text: str


class LexicalQuery(Struct, frozen=True):
    """A parsed lexical query. Each phrase is the text between quotes; prefixes come without their `*`.

    `text` is everything that is neither operator nor excluded: the words to rank by. An empty query matches nothing.
    Prefixes rank; where `every` is set, a record must have each of them, in Chinese text each of the words in them.
    Scores of an `exact` one follow from the records alone, to the last digit; else the average length may be that of an index
    which still counts some of what was replaced.
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
        """The same with phrases and prefixes as words to rank by; what is excluded stays so."""
        return LexicalQuery(
            " ".join((self.text, *self.phrases, *self.prefixes)), excluded=self.excluded, exact=self.exact
        )


NO_WORDS = LexicalQuery()
Weight = tuple[bool, float]
"""Whether a text holds a word that is asked for, and how much it holds of all that is; greater is more."""
NOTHING: Weight = (False, 0.0)


class Plan(Struct, frozen=True):
    """How one find is done: the lanes to run, how deep, how they are fused. A pure function of intent and policy.

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
    """One record in one lane: higher scores are better. `field` and `seq` name the best chunk of a hit by vector; that of
    one by words is asked for where it is shown."""

    id: int
    score: float
    field: str = ""
    seq: int = 0


class ChunkRef(Struct, frozen=True):
    """The chunk a hit is shown by; `start` is where it begins in its field's text, in characters."""

    field: str
    seq: int
    text: str
    start: int = 0


class Excerpt(Struct, frozen=True):
    """Where what fits the question begins: a field, a place in its text in characters, and of a document the `line` of its file."""

    field: str
    start: int
    line: int | None = None


class Hit(Struct, frozen=True):
    """A ranked record. `score` is higher-is-better; `scores` is the account of it (`vector`, `fts`, `final`, `sources`,
    `rank`); `record` is a plain dict of the business fields; `times` are created and updated, UTC; `trace` is filled by
    `explain`. One that `is_filled` does not fit the phrases and open ends of the question: no record does.
    `excerpt` is where its text is shown from; that of a document is always in its `text`. The line of one
    `in_collection` has the account of its score without being asked for it."""

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
    """Of a value that is the sequence of its rows as well."""


class FindResult(Struct, Sequence[Hit], frozen=True, metaclass=SequenceMeta):
    """Hits, best first, with what must be said about them. Behaves as the list of its hits."""

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
    """Rows of a read-only query. `truncated` says that the row or byte cap cut them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False


class ImportSummary(Struct, frozen=True):
    """What an import read: how many records, the types of columns by name, how many records got an id that was made for
    them, and the first few as they were given to the write."""

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
