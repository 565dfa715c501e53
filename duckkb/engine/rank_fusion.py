"""Ranked lists: their fusion, relevance feedback, and accounts of scores.

Pure functions over keys; a key is whatever names a record.

The plan of a find, a pure function of the intent, the types' search fields and policies, and the base's models.

The query language of the lexical lane: words, "phrases", -negation and prefix*. Every text is a valid query.

The span of a text that fits a question: the best line, or the best stretch of a long line."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from duckkb.ontology.model import RecordType, settings_of
from duckkb.types.errors import UsageError, shell_word
from duckkb.types.queries import NO_WORDS, Lane, LaneHit, LexicalQuery, Mode, Notice, Plan, Weight
from duckkb.types.settings import NO_MODEL, Expansion, Fusion, Settings

if TYPE_CHECKING:
    import numpy as np

Key = TypeVar("Key", bound=Hashable)
QueryKind = Literal["original", "variant"]


class RankedList(Struct, frozen=True):
    """What one lane finds for one question: keys with the lane's scores, best first, each key once.

    `query` is the question as written, `words` what the lexical lane reads of it. `hits` has the lane's hit of
    each key.
    """

    lane: Lane
    ranking: Sequence[tuple[Any, float]]
    kind: QueryKind = "original"
    query: str = ""
    words: LexicalQuery = NO_WORDS
    hits: Mapping[Any, LaneHit] = {}


class Contribution(Struct, frozen=True):
    """What one list adds to a record: its rank there (from 1), its score in the lane, and the fused `value`."""

    source: RankedList
    rank: int
    score: float
    weight: float
    value: float


class Fused(Struct, frozen=True):
    """A record after fusion, at a `rank` from 1; `base` is the sum of its parts, one per list in their order."""

    key: Any
    rank: int
    parts: Sequence[Contribution]
    base: float
    bonus: float = 0.0

    @property
    def score(self) -> float:
        return self.base + self.bonus

    @property
    def best(self) -> Contribution:
        """The part of the list in which the record ranks best; on ties the vector list's."""
        return min(self.parts, key=lambda part: (part.rank, part.source.lane != "vector"))

    def part(self, lane: Lane) -> Contribution | None:
        """Return the first part of a lane; None where the lane does not have the record."""
        return next((part for part in self.parts if part.source.lane == lane), None)


class Profile(Struct, frozen=True):
    """How lists are fused: a fusion, weights and a bonus.

    Lists of an `original` question have a weight of their own (`minmax` weighs lanes instead). The bonus
    depends on the best rank in any list. With a bonus, scores equal to `places` decimals are ties.
    """

    fusion: Fusion
    original: float = 1.0
    bonus: Mapping[int, float] = {}
    places: int = 12


DOCUMENTS = Profile(Fusion("rrf", 60), 2.0, {1: 0.05, 2: 0.02, 3: 0.02})
"""The profile of `query`. 1/72 + 1/90 and 2/80 are a tie."""


class Gate(Struct, frozen=True):
    """The decision whether the lexical lane counts in a min-max fusion.

    It counts where its best record, the first over all types, covers a `share` of the question of at least
    `least`. The share (0 to 1) is that of the question's idf mass in the index of that record's type. It is 0
    where no record matches by words, None where the question has no words.
    """

    least: float
    share: float | None

    @property
    def is_closed(self) -> bool:
        return self.share is not None and self.share < self.least

    @property
    def account(self) -> dict[str, Any]:
        return {"least": self.least, "share": self.share, "closed": self.is_closed}


def rank_keys(score: Mapping[Key, float], tie: Callable[[Key], Any], limit: int) -> list[Key]:
    """Return the first `limit` keys by falling score, ties by `tie`, which is called for ties alone.

    >>> rank_keys({"b": 1.0, "a": 1.0, "c": 2.0}, str, 2)
    ['c', 'a']
    """
    results: list[Key] = []
    for _, group in groupby(sorted(score, key=score.__getitem__, reverse=True), key=score.__getitem__):
        keys = list(group)
        results += sorted(keys, key=tie) if len(keys) > 1 else keys
        if len(results) >= limit:
            break
    return results[:limit]


def fuse(
    lists: Sequence[RankedList], profile: Profile, tie: Callable[[Any], Any], limit: int | None = None
) -> list[Fused]:
    """Fuse lists; return the first `limit` records (None: all) by falling score, ties by `tie` (of a key)."""
    parts: dict[Any, list[Contribution]] = {}
    for source in lists:
        weight, values = _weigh(source, profile)
        for rank, ((key, score), value) in enumerate(zip(source.ranking, values, strict=True), 1):
            parts.setdefault(key, []).append(Contribution(source, rank, score, weight, value))
    bases = {key: fsum(part.value for part in some) for key, some in parts.items()}
    best = {key: min(part.rank for part in some) for key, some in parts.items()} if profile.bonus else {}
    bonus = {key: profile.bonus.get(rank, 0.0) for key, rank in best.items()}
    scores = {key: round(base + bonus[key], profile.places) for key, base in bases.items()} if bonus else bases
    order = rank_keys(scores, tie, len(scores) if limit is None else limit)
    return [Fused(key, rank, parts[key], bases[key], bonus.get(key, 0.0)) for rank, key in enumerate(order, 1)]


def _weigh(source: RankedList, profile: Profile) -> tuple[float, list[float]]:
    """Return the weight of a list, and the value of each record in it.

    `rrf`: weight / (k + rank), reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009). `minmax`:
    weight x score, scaled to 0..1 in the list. Equal scores show only that the lane has the records, so each
    counts half.
    """
    fusion = profile.fusion
    if fusion.method == "rrf":
        weight = profile.original if source.kind == "original" else 1.0
        return weight, [weight / (fusion.k + rank) for rank in range(1, len(source.ranking) + 1)]
    weight = fusion.weight if source.lane == "vector" else 1.0 - fusion.weight
    scores = [score for _, score in source.ranking]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return weight, [weight * ((score - low) / (high - low) if high > low else 0.5) for score in scores]


def feedback(question: Sequence[float], found: Sequence[Sequence[float]], weight: float) -> list[float]:
    """Move the question's vector by `weight` (0 to 1) towards the mean of `found`; return it at length 1.

    Rocchio's relevance feedback (in Salton, The SMART Retrieval System, 1971) without a part for irrelevant
    texts; the best hits replace judged texts. All vectors are 1-d, equally long, and scaled to unit length; a
    zero vector counts as it is. With nothing in `found` the question stays, at unit length.
    """
    unit_question = _normalize_vector(question)
    if not found:
        return unit_question
    mean = [fsum(column) / len(found) for column in zip(*map(_normalize_vector, found), strict=True)]
    return _normalize_vector(
        [(1 - weight) * mine + weight * theirs for mine, theirs in zip(unit_question, mean, strict=True)]
    )


def _normalize_vector(vector: Sequence[float]) -> list[float]:
    values = [float(value) for value in vector]
    length = sqrt(fsum(value * value for value in values))
    return [value / length for value in values] if length else values


def score_account(fused: Fused, plan: Plan) -> dict[str, Any]:
    """Return the `_scores` of a hybrid hit: lane scores, final score, lanes, and rank in each (None: absent)."""
    vector, fts = fused.part("vector"), fused.part("fts")
    return {
        "vector": vector.score if vector else None,
        "fts": fts.score if fts else None,
        "final": fused.score,
        "sources": [lane for lane in plan.lanes if fused.part(lane)],
        "rank": {"vector": vector.rank if vector else None, "fts": fts.rank if fts else None},
    }


def trace(
    fused: Fused,
    plan: Plan,
    lexical: Mapping[str, Any] | None,
    gate: Gate | None = None,
) -> dict[str, Any]:
    """Explain a record's rank: each lane's part under the plan's fusion, and the lexical score's terms.

    `lexical` is the lane's own explanation; its terms add up to the score. Where the `gate` closed, the lexical
    lane has no record. A min-max part of two lanes depends on whole lists and is None; the lane scores show it
    instead.
    """
    parts: dict[str, Any] = {lane: {"rank": None, "score": None, "part": 0.0} for lane in plan.lanes}
    is_sum = len(plan.lanes) == 1 or plan.fusion.method == "rrf"
    for part in fused.parts:
        value = part.value if is_sum else None
        parts[part.source.lane] = {"rank": part.rank, "score": part.score, "part": value}
    terms = list(lexical["terms"]) if lexical else None
    return {"lanes": parts, "final": fused.score, "terms": terms} | ({"gate": gate.account} if gate else {})


def plan_account(plan: Plan, moved_to: Sequence[Any] = (), gate: Gate | None = None) -> dict[str, Any]:
    """Return the plan as a plain dict, for `--explain`.

    `moved_to` are the identities that an expansion moved the question to; `gate` is the decision on the lexical lane.
    """
    expansion = {"weight": plan.expansion.weight, "hits": plan.expansion.hits, "moved_to": list(moved_to)}
    fusion: dict[str, Any] = {"method": plan.fusion.method}
    fusion |= {"k": plan.fusion.k} if plan.fusion.method == "rrf" else {"weight": plan.fusion.weight}
    fusion |= {"gate": gate.account} if gate else {}
    return {
        "mode": plan.mode,
        "lanes": list(plan.lanes),
        "limit": plan.limit,
        "depth": plan.depth,
        "fusion": fusion if len(plan.lanes) > 1 else None,
        "expansion": {"method": "feedback", **expansion} if plan.expansion.method == "feedback" else None,
    }


RECALL_DEPTH = 50
RECALL_FACTOR = 5
_FLAGS: dict[Mode, str] = {"similar": "-s", "match": "-m", "hybrid": "-H", "where": "-w"}


class Intent(Struct, frozen=True):
    """What a caller wants, and of which types.

    `vector` is a question given as a vector (1-d, float32 after checking). `fusion` and `expansion` override
    the policy's. `exact` asks for scores by words that depend on the records alone (`LexicalQuery`).
    """

    text: str | None = None
    mode: Mode | None = None
    where: str | None = None
    limit: int = 10
    vector: "np.ndarray | Sequence[float] | None" = None
    fusion: Fusion | None = None
    expansion: Expansion | None = None
    explain: bool = False
    exact: bool = False
    kinds: tuple[RecordType, ...] = ()

    @property
    def has_text(self) -> bool:
        return bool(self.text and self.text.strip())


def plan(ask: Intent, records: int, base: Settings) -> Plan:
    """Plan an intent over types that hold `records` records; a limit above that number is lowered to it.

    Raises `errors.UsageError` (E_USAGE, E_INTENT) for what cannot be served.
    """
    kinds = ask.kinds
    if ask.limit <= 0:
        raise UsageError(f"limit must be 1 or more, not {ask.limit}", suggestion="leave --limit out for the first 10")
    limit = min(ask.limit, max(records, 1))
    if not ask.has_text and ask.vector is None:
        return _filter_only(ask, limit)
    mode = ask.mode or _default_mode(ask, has_model=base.embedding.model != NO_MODEL)
    mode, notices = _resolve_mode(mode, ask)
    lanes = _choose_lanes(mode, ask)
    depth = limit if len(lanes) < 2 else max(RECALL_DEPTH, RECALL_FACTOR * limit)
    settings = settings_of([kind.policy for kind in kinds], base)
    fusion, expansion = ask.fusion or settings.fusion, ask.expansion or settings.expansion
    if ask.vector is not None or "vector" not in lanes:
        expansion = Expansion("none")  # a given vector is asked unchanged
    return Plan(mode, lanes, limit, depth, fusion, expansion, notices)


def servable(kinds: Sequence[RecordType], mode: Mode | None) -> list[RecordType]:
    """Return the types of `find all` that can serve a mode; None means any search at all."""
    return [kind for kind in kinds if mode == "where" or _can(kind, mode)]


def _can(kind: RecordType, mode: Mode | None) -> bool:
    match mode:
        case "similar":
            return kind.has_text_vectors
        case "match":
            return bool(kind.full_text)
        case _:
            return bool(kind.has_text_vectors or kind.full_text)


def _filter_only(ask: Intent, limit: int) -> Plan:
    kinds = ask.kinds
    if ask.mode not in (None, "where"):
        _resolve_mode(ask.mode, ask)  # refuses types without this lane before a missing text
        name, flag = kinds[0].name if len(kinds) == 1 else "all", _FLAGS[ask.mode]
        command = f'duckkb find {name} "what you look for" {flag}'
        if ask.where is not None:  # a filter alone has no mode
            command = f"duckkb find {name} -w {shell_word(ask.where)}"
        raise UsageError(f"{flag} needs a query text", suggestion=command)
    if ask.where is None:
        raise _build_empty_refusal(kinds)
    return Plan("where", (), limit, limit)


def _build_empty_refusal(kinds: Sequence[RecordType]) -> UsageError:
    """Return the refusal of an empty question, which says what these types can be asked."""
    name, by_filter = kinds[0].name if len(kinds) == 1 else "all", "-w \"FIELD = 'value'\""
    if any(kind.has_text_vectors or kind.full_text for kind in kinds):
        return UsageError("give a query, a filter, or both", suggestion=f'duckkb find {name} "a question"')
    if any(kind.vectors for kind in kinds):
        return UsageError(
            "give a vector, a filter, or both", suggestion=f"duckkb find {name} --vector FILE {by_filter}"
        )
    return UsageError("give a filter", suggestion=f"duckkb find {name} {by_filter}")


def _default_mode(ask: Intent, *, has_model: bool) -> Mode:
    kinds = ask.kinds
    if ask.vector is not None:
        return "hybrid" if ask.has_text else "similar"
    intents = {kind.policy.default_intent for kind in kinds if kind.policy and kind.policy.default_intent}
    if len(intents) == 1:
        return intents.pop()
    vectors = has_model and any(kind.has_text_vectors for kind in kinds)
    words = any(kind.full_text for kind in kinds)
    return "hybrid" if vectors and words else "similar" if vectors else "match"


def _resolve_mode(mode: Mode, ask: Intent) -> tuple[Mode, tuple[Notice, ...]]:
    """Return the mode that these types can serve; raises `errors.UsageError` for others.

    Hybrid narrows to the only lane there is, with a notice.
    """
    kinds, has_vector = ask.kinds, ask.vector is not None
    names = ", ".join(kind.name for kind in kinds)
    words = any(kind.full_text for kind in kinds)
    vectors = any(kind.vectors if has_vector else kind.has_text_vectors for kind in kinds)
    if not words and not vectors:
        raise _build_lane_refusal(mode, kinds, names)
    if mode == "where":
        raise UsageError(
            "where takes a filter and no query text", suggestion="leave the query out, or choose -m, -s or -H"
        )
    if mode == "hybrid" and not (words and vectors):
        mode = "match" if words else "similar"
        notice = Notice(
            "W_MODE", f"{names} has no {'vectors' if words else 'full_text'} fields: ran {mode}", _FLAGS[mode]
        )
        return _check_mode(mode, kinds), (notice,)
    if mode == "similar" and not vectors:
        raise _build_intent_refusal(
            kinds, mode, f"{names} has no vectors fields", f'use -m: duckkb find {names} "..." -m'
        )
    if mode == "match" and not words:
        raise _build_intent_refusal(
            kinds, mode, f"{names} has no full_text fields", f'use -s: duckkb find {names} "..." -s'
        )
    if mode == "match" and has_vector:
        raise UsageError("match takes words, not a vector", suggestion="choose -s, or -H with both")
    return _check_mode(mode, kinds), ()


def _build_lane_refusal(mode: Mode, kinds: Sequence[RecordType], names: str) -> UsageError:
    """Return the refusal of a question where there are no search fields, or only vectors that callers give."""
    if any(kind.vectors for kind in kinds):
        remedy = f"duckkb find {names} --vector FILE"
        message = f"{names} compares vectors that callers give; give a vector instead of a text"
    else:
        remedy, message = "use --where, or add `search` to the type in the ontology", f"{names} has no search fields"
    return _build_intent_refusal(kinds, "similar" if mode == "where" else mode, message, remedy)


def _check_mode(mode: Mode, kinds: Sequence[RecordType]) -> Mode:
    for kind in kinds:
        intents = kind.policy.intents if kind.policy else None
        if intents is not None and mode not in intents:
            message = f"{kind.name} does not allow {mode}"
            raise _build_intent_refusal([kind], mode, message, f"its policy allows: {', '.join(intents)}")
    return mode


def _choose_lanes(mode: Mode, ask: Intent) -> tuple[Lane, ...]:
    if mode == "hybrid":
        return ("vector", "fts") if ask.has_text else ("vector",)
    return ("vector",) if mode == "similar" else ("fts",)


def _build_intent_refusal(kinds: Sequence[RecordType], mode: Mode, message: str, suggestion: str) -> UsageError:
    """Return a refusal with the policy's suggestion where it has one, else with `suggestion`."""
    hints = (kind.policy.refuse.get(mode) for kind in kinds if kind.policy)
    return UsageError(message, code="E_INTENT", suggestion=next(filter(None, hints), suggestion))


# An operator counts only at the start of a word, so that text-embedding-3-small and 2024-05 stay whole; and not before a
# single letter, a number or another dash, which are flags and amounts: -H, -1.5, --force.
_MINUS = r'(?<!\S)-(?:"(?P<ruled_out>[^"]*)"|(?P<excluded>(?!(?:[A-Za-z]|[0-9.,]+)(?![^\s"]))[^\s"-][^\s"]*))'
_PIECE = re.compile(
    rf"""{_MINUS}                                     # -"a phrase", -word
      | "(?P<phrase>[^"]*)"                          # "a phrase"
      | (?P<prefix>[^\s"*]+)\*+(?!\S)                # word*
      | (?P<word>[^\s"]+|")                          # anything else; a lone quote is dropped
    """,
    re.VERBOSE,
)
_SIGNS = re.compile(r'"|(?<![^\s"])[-*]+|\*+(?![^\s"])')


def parse(text: str) -> LexicalQuery:
    """Parse a query as people type it; an unbalanced quote and stray operators are plain text.

    >>> parse('ids -"hash ids" trunc*')
    LexicalQuery(text='ids', phrases=(), excluded=('hash ids',), prefixes=('trunc',), every=False, exact=False)
    """
    words: list[str] = []
    phrases: list[str] = []
    exclusions: list[str] = []
    prefixes: list[str] = []
    for piece in _PIECE.finditer(text):
        if piece["phrase"] is not None:
            phrases.append(piece["phrase"])
        elif piece["ruled_out"] is not None or piece["excluded"] is not None:
            exclusions.append(piece["ruled_out"] or piece["excluded"] or "")
        elif piece["prefix"] is not None:
            prefixes.append(piece["prefix"])
        elif piece["word"] not in ('"', "*", "-"):
            words.append(piece["word"])
    return LexicalQuery(" ".join(words), _clean_pieces(phrases), _clean_pieces(exclusions), _clean_pieces(prefixes))


def drop_exclusions(text: str) -> str:
    """Return a query for an embedding model: as typed, without its exclusions.

    >>> drop_exclusions('ids "hash ids" -random trunc -v')
    'ids "hash ids" trunc -v'
    """
    if not parse(text).excluded:
        return text
    pieces = (piece for piece in _PIECE.finditer(text) if piece["ruled_out"] is None and piece["excluded"] is None)
    return " ".join(piece[0] for piece in pieces)


def plain(text: str) -> str:
    """Return a query without the signs of its operators: nothing in it is required, excluded or open.

    >>> plain('ids "hash ids" -random trunc*').split()
    ['ids', 'hash', 'ids', 'random', 'trunc']
    """
    return _SIGNS.sub(" ", text)


def _clean_pieces(pieces: list[str]) -> tuple[str, ...]:
    return tuple(piece.strip() for piece in pieces if piece.strip())


Weigh = Callable[[Sequence[str]], Sequence[Weight]]

LONGEST = 300
"""The most characters of a line that are weighed at once."""
_LINES = 4
_STRIDE = LONGEST // 2
_BREAKS = " \t.,;:!?。，、；：！？"
_NEAR = 40


def fitting_span(text: str, weigh: Weigh) -> tuple[int, int]:
    """Return the start and end of the line, or stretch of a line, that fits best; the first of equals.

    Returns the first non-blank line where nothing matches; (0, 0) where all lines are blank.
    """
    lines = list(_iter_lines(text))
    if not lines:
        return 0, 0
    start, end = _choose_span(text, lines, weigh)
    if end - start <= LONGEST:
        return start, end
    stretches = [(at, min(at + LONGEST, end)) for at in range(start, end, _STRIDE)]
    at, until = _choose_span(text, stretches, weigh)
    return (_find_break(text, at) if at > start else at), until


def snippet(text: str) -> str:
    """Return the first lines of a text, within a few hundred characters and without a heading at their end."""
    excerpt = "\n".join(text.split("\n", _LINES)[:_LINES])[:LONGEST].rstrip()
    before, _, last = excerpt.rpartition("\n")
    return before.rstrip() if last.startswith("#") and before.strip() else excerpt


def _choose_span(text: str, spans: Sequence[tuple[int, int]], weigh: Weigh) -> tuple[int, int]:
    if len(spans) == 1:
        return spans[0]
    weights = weigh([text[start:end] for start, end in spans])
    return spans[max(range(len(spans)), key=weights.__getitem__)]


def _iter_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines that are not blank, without their ends."""
    start = 0
    for line in text.split("\n"):
        if line.strip():
            yield start, start + len(line)
        start += len(line) + 1


def _find_break(text: str, at: int) -> int:
    """Return a place shortly before `at` where no word is cut; `at` itself without one."""
    return max((text.rfind(sign, at - _NEAR, at) + 1 for sign in _BREAKS), default=0) or at
