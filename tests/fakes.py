"""Fakes of the ports, for tests that need neither a model nor the time of day. They keep the contracts of `duckkb.ports`."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from zlib import crc32

import numpy as np

from duckkb.id_set import IdSet
from duckkb.llm.call_pool import refuse_what_it_cannot
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Row, Rows, SqlLimits
from duckkb.types.chat_messages import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finish,
    ReasoningDelta,
    ToolCall,
    ToolCallDone,
    Usage,
)
from duckkb.types.errors import FilterError, Unavailable, UsageError
from duckkb.types.queries import LaneHit, LexicalQuery, SqlResult, Variant, Weight
from duckkb.types.records import Cut, Fingerprint, IndexEntry, identity_key
from duckkb.types.settings import ChatModelSettings

_WORDS = re.compile(r"\w+")
_NOTHING = "\x00nothing"
_USED = Usage(10, 5, 15)


class HashEmbedder:
    """Maps a text to a unit vector by hashing its words and character trigrams: texts that share them are near.

    Passages and queries get the same vectors. `passages` and `queries` count the texts that were embedded, `calls` the
    calls. `limit` is the number of words that it reads in one go, 0 for any. With `fail=True` (it may be set at any time)
    embedding raises as a missing model does.
    """

    def __init__(self, dimension: int = 64, fail: bool = False, name: str = "hash", limit: int = 0) -> None:
        self.dimension = dimension
        self.limit = limit
        self.fail = fail
        self.name = name
        self.passages = 0
        self.queries = 0
        self.calls = 0

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, "trigrams-and-words-1", self.dimension)

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embed(texts)
        self.passages += len(texts)
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embed(texts)
        self.queries += len(texts)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(_WORDS.findall(text)) for text in texts]

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        cuts = []
        for text in texts:
            ends = [word.end() for word in _WORDS.finditer(text)]
            kept = text[: ends[self.limit - 1]] if self.limit and len(ends) > self.limit else text
            cuts.append(Cut(kept, len(ends), len(_WORDS.findall(kept)), self.limit or None))
        return cuts

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        if self.fail:
            raise Unavailable("the model is switched off", code="E_MODEL", suggestion="pip install 'duckkb[local]'")
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            self._add_features(row, text)
        return vectors

    def _add_features(self, row: np.ndarray, text: str) -> None:
        for feature in _features(text):
            digest = crc32(feature.encode("utf-8", "surrogatepass"))
            row[(digest >> 1) % self.dimension] += 1.0 if digest & 1 else -1.0
        norm = float(np.linalg.norm(row))
        if norm == 0.0:  # no features, or features that cancelled out: the contract is a unit vector all the same
            row[0] = norm = 1.0
        row /= norm


class WordReranker:
    """The part of a question's words that a text has, from 0 to 1; times 10 less 5 where it `gives_logits`. `asked` are the
    texts of each call. With `fail=True` (it may be set at any time) it raises as an endpoint does."""

    def __init__(self, gives_logits: bool = False, at_once: int = 0, name: str = "words") -> None:
        self.gives_logits = gives_logits
        self.at_once = at_once
        self.name = name
        self.fail = False
        self.asked: list[list[str]] = []

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, f"share-of-words-{self.gives_logits}")

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        self.asked.append(list(texts))
        if self.fail:
            raise Unavailable("the reranker is switched off", code="E_MODEL", details={"reason": "unreachable"})
        return [self._score(set(_WORDS.findall(query.casefold())), text) for text in texts]

    def _score(self, wanted: set[str], text: str) -> float:
        share = len(wanted & set(_WORDS.findall(text.casefold()))) / max(1, len(wanted))
        return 10 * share - 5 if self.gives_logits else share


class FixedExpander:
    """Answers every question with the same `variants`. `asked` are the questions; `fail` as of `WordReranker`."""

    fingerprint = Fingerprint("fixed", "1")

    def __init__(self, *variants: Variant) -> None:
        self.given = variants or (Variant("lex", "other words"), Variant("vec", "said otherwise"))
        self.fail = False
        self.asked: list[str] = []

    def variants(self, question: str, seconds: float) -> tuple[Variant, ...]:
        self.asked.append(question)
        if self.fail:
            raise Unavailable("the expander is switched off", code="E_MODEL", details={"reason": "unreachable"})
        return self.given


Scripted = str | Sequence[ToolCall] | Sequence[ChatEvent | Exception | Callable[[], object]]
"""An answer of `ScriptedChat`: what it says; what it calls; or its events one by one, with errors that end it and functions that are
called between them."""


class ScriptedChat:
    """A chat model that gives one answer of its script after another. `asked` are the requests."""

    def __init__(self, *script: Scripted, usage: Usage | None = _USED, **settings: Any) -> None:
        self.settings = ChatModelSettings("scripted", (), **settings)
        self.script = list(script)
        self.usage = usage
        self.asked: list[ChatRequest] = []

    def stream(self, request: ChatRequest, cancel: Event | None = None) -> Iterator[ChatEvent]:
        refuse_what_it_cannot(self.settings, request)
        self.asked.append(request)
        for one in self._events(self.script[len(self.asked) - 1]):
            if cancel is not None and cancel.is_set():
                raise Unavailable("the request was cancelled", code="E_CANCELLED")
            if isinstance(one, Exception):
                raise one
            if isinstance(one, ContentDelta | ReasoningDelta | ToolCallDone | Finish):
                yield one
            else:
                one()

    def _events(self, answer: Scripted) -> Iterator[ChatEvent | Exception | Callable[[], object]]:
        if isinstance(answer, str):
            yield from (ContentDelta(piece) for piece in re.findall(r"\S+\s*", answer))
            yield Finish("stop", self.usage, "scripted")
        elif all(isinstance(one, ToolCall) for one in answer):
            yield from (ToolCallDone(one) for one in answer if isinstance(one, ToolCall))
            yield Finish("tool_calls", self.usage, "scripted")
        else:
            yield from (one for one in answer if not isinstance(one, ToolCall))


def calling(name: str, id: str = "c1", /, **args: Any) -> ToolCall:
    """A call as a model writes it."""
    return ToolCall(id, name, json.dumps(args, ensure_ascii=False))


def _features(text: str) -> list[str]:
    lowered = text.casefold()
    words = _WORDS.findall(lowered)
    padded = f" {' '.join(words)} "
    trigrams = [padded[at : at + 3] for at in range(len(padded) - 2)]
    return [*words, *trigrams] or [_NOTHING]


class FrozenClock:
    """Says `start` until told otherwise: moves on by `step` microseconds at each call, or by `advance`."""

    def __init__(self, start: str = "2026-01-15T08:00:00.000000Z", step: int = 0) -> None:
        self._next = datetime.strptime(start, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        self.step = step

    def now(self) -> str:
        said = self._next
        self.advance(self.step)
        return said.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def advance(self, microseconds: int) -> None:
        self._next += timedelta(microseconds=microseconds)


def _best(scored: Iterable[tuple[float, Row, str, int]], depth: int) -> list[LaneHit]:
    ordered = sorted(scored, key=lambda one: (-one[0], identity_key(one[1].record.identity)))
    return [LaneHit(row.record.id, score, field, seq) for score, row, field, seq in ordered[: max(depth, 0)]]


def _all(rows: Rows, allowed: Set[int] | None) -> list[Row]:
    return [row for some in rows.batches() for row in some if allowed is None or row.record.id in allowed]


class FakeWords:
    """The lane of words: each record is looked at, a word counts as often as it stands there between spaces."""

    def __init__(self, kind: RecordType, rows: Rows) -> None:
        self._rows = rows

    def ask(self, query: LexicalQuery, depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        out = self.find_excluded_ids(query)
        asks_more = bool(query.text.strip() or query.phrases or query.prefixes)
        scored = [
            (self._score(query, row), row, "", 0) for row in _all(self._rows, allowed) if row.record.id not in out
        ]
        return _best([one for one in scored if one[0] or (query.excluded and not asks_more)], depth)

    def find_excluded_ids(self, query: LexicalQuery) -> IdSet:
        return IdSet.from_ids(
            row.record.id
            for row in _all(self._rows, None)
            if any(f" {text} " in f" {' '.join(_said(row))} " for text in query.excluded)
        )

    def weights(self, query: LexicalQuery, field: str, texts: Sequence[str]) -> list[Weight]:
        counts = [self._count(query, text.split()) for text in texts]
        return [(count > 0, float(count)) for count in counts]

    def chunk(
        self, query: LexicalQuery, record_id: int, preferred: tuple[str, int] | None = None, field: str = ""
    ) -> tuple[str, int]:
        entries = [entry for entry in self._rows.words(record_id) if field in ("", entry.field)]
        held = {(entry.field, entry.seq) for entry in entries if self._count(query, entry.content.split())}
        if preferred is not None and (preferred in held or not held):
            return preferred
        best = max(entries, key=lambda entry: self._count(query, entry.content.split()), default=IndexEntry("", 0, ""))
        return best.field, best.seq

    def explain(self, query: LexicalQuery, record_id: int) -> Mapping[str, Any]:
        score = self._score(query, self._rows[record_id]) if record_id in self._rows else 0.0
        return {"score": score, "terms": [{"token": query.text, "score": score}] if score else []}

    def coverage(self, query: LexicalQuery, record_id: int) -> float | None:
        every = [set(_said(row)) for row in _all(self._rows, None)]
        asked = set(" ".join((query.text, *query.phrases)).split())
        idf = {word: math.log((len(every) + 1) / (sum(word in one for one in every) + 0.5)) for word in asked}
        held = set(_said(self._rows[record_id]))
        return sum(idf[word] for word in asked & held) / sum(idf.values()) if idf else None

    def complete(self) -> None:
        """Nothing is kept."""

    def _score(self, query: LexicalQuery, row: Row) -> float:
        words = _said(row)
        if not all(f" {phrase} " in f" {' '.join(words)} " for phrase in query.phrases):
            return 0.0
        if query.every and not all(any(word.startswith(prefix) for word in words) for prefix in query.prefixes):
            return 0.0
        return float(self._count(query, words))

    def _count(self, query: LexicalQuery, words: Sequence[str]) -> int:
        asked = [*query.text.split(), *(word for phrase in query.phrases for word in phrase.split())]
        return sum(words.count(word) for word in asked) + sum(
            any(word.startswith(prefix) for word in words) for prefix in query.prefixes
        )


def _said(row: Row) -> list[str]:
    return [word for entry in row.entries if entry.tokens is not None for word in entry.content.split()]


class FakeVectors:
    """The lane of vectors: each chunk is looked at."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def ask(self, vector: "np.ndarray | Sequence[float]", depth: int, allowed: Set[int] | None = None) -> list[LaneHit]:
        query = self._sound(vector)
        scored = []
        for row in _all(self._rows, allowed):
            found = [(self._cosine(one.vector, query), one) for one in row.entries if one.vector is not None]
            if found:
                score, best = max(found, key=lambda pair: pair[0])
                scored.append((score, row, best.field, best.seq))
        return _best(scored, depth)

    def list_missing_texts(self) -> list[tuple[bytes, str]]:
        entries = (entry for row in _all(self._rows, None) for entry in row.entries)
        return sorted({(one.vector_key, one.content) for one in entries if one.vector_key and one.vector is None})

    def on_vectors_available(self, keys: Iterable[bytes]) -> None:
        """The rows are read at each question."""

    def account(self) -> Mapping[str, Any] | None:
        vectors = [one.vector for row in _all(self._rows, None) for one in row.entries if one.vector is not None]
        dimension = len(vectors[0]) if vectors else 0
        return {"rows": len(vectors), "dimension": dimension, "ann": "exact"}

    def complete(self) -> None:
        """Nothing is kept."""

    def _sound(self, vector: "np.ndarray | Sequence[float]") -> np.ndarray:
        try:
            query = np.asarray(vector, np.float64)
        except (TypeError, ValueError, OverflowError):
            query = np.empty(0)
        dimension = (self.account() or {})["dimension"]
        is_sound = query.ndim == 1 and np.isfinite(query).all() and query.any()
        if not is_sound or (dimension and len(query) != dimension):
            raise UsageError("a query vector that is none, or of another dimension", suggestion="give one that fits")
        return query

    @staticmethod
    def _cosine(one: np.ndarray, other: np.ndarray) -> float:
        first = one.astype(np.float64)
        scale = max(float(np.abs(other).max()), 1e-300)
        second = other / scale
        lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
        return round(float(first @ second) / lengths, 6) if lengths else 0.0


class FakeSql:
    """Tables without an engine: conditions are `true`, FIELD = 'text' and FIELD LIKE '%text%', statements SELECT * FROM TABLE."""

    _CONDITION = re.compile(r"(\w+) (?:= '([^'%]*)'|LIKE '%([^'%]*)%')")
    _STATEMENT = re.compile(r"SELECT \* FROM (\w+)")

    def __init__(self, ontology: Ontology, rows: Callable[[RecordType], Rows]) -> None:
        self._ontology = ontology
        self._rows = rows

    def where(self, kind: RecordType, condition: str) -> IdSet:
        found = self._CONDITION.fullmatch(condition)
        if condition != "true" and not found:
            raise FilterError(f"no such condition: {condition}")
        return IdSet.from_ids(
            row.id for row in self._rows(kind).records() if found is None or self._holds(row.fields, found)
        )

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        found = self._STATEMENT.fullmatch(statement)
        kind = next((one for one in self._ontology if found and one.table == found[1]), None)
        if kind is None:
            raise FilterError(f"no such statement: {statement}")
        records = list(self._rows(kind).records())
        names = tuple(dict.fromkeys(name for record in records for name in record.fields))
        rows = tuple((record.id, *(record.fields.get(name) for name in names)) for record in records)
        return SqlResult(("__id", *names), rows[: limits.rows], len(rows) > limits.rows)

    def close(self) -> None:
        """Nothing is open."""

    @staticmethod
    def _holds(fields: Mapping[str, Any], found: "re.Match[str]") -> bool:
        name, equal, part = found.groups()
        value = fields.get(name)
        return value == equal if equal is not None else isinstance(value, str) and part in value
