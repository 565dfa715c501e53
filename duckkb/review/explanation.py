"""Explains why a record is, or is not, found: every step of the search, asked about that one record.

The explanation can be shown as text and as an object.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from duckkb.engine import find, rank_fusion
from duckkb.engine.base import Base
from duckkb.engine.find import Ranked
from duckkb.engine.rank_fusion import Intent
from duckkb.index.text_chunks import iter_nested_texts
from duckkb.ontology.model import RecordType
from duckkb.storage.part import StoredRow
from duckkb.types.errors import UsageError
from duckkb.types.queries import Lane, LexicalQuery
from duckkb.types.records import identity_text

_NAMES: Mapping[Lane, str] = {"fts": "words", "vector": "meaning"}


class Token(Struct, frozen=True):
    """A token of the question: the record's share of the score for it (0.0 where it has none), and its document
    frequency.

    The frequency is None where this record lacks the token. It also has the fields that contain the token but
    are not searched by words.
    """

    text: str
    score: float
    records: int | None = None
    elsewhere: tuple[str, ...] = ()


class LaneRank(Struct, frozen=True):
    """The record's rank in one lane: from 1 among `ranked` records, None where it is not among them.

    `depth` is how many of them count.
    """

    lane: Lane
    rank: int | None
    score: float | None
    ranked: int
    depth: int


class Why(Struct, frozen=True):
    """The explanation of one record's rank.

    `rank` is its place in the whole answer, of which `limit` records are given; `first` are the identities
    given. `reasons` say in sentences what kept it out, or brought it in.
    `is_plain`: no record fits the phrases and open ends of the question, and this one was found by plain words.
    """

    type: str
    identity: str
    question: str
    mode: str = ""
    limit: int = 10
    rank: int | None = None
    is_plain: bool = False
    lanes: tuple[LaneRank, ...] = ()
    tokens: tuple[Token, ...] = ()
    excluded: tuple[str, ...] = ()
    where: str | None = None
    passes_filter: bool | None = None
    chunks: int = 0
    pending: int = 0
    policy: Mapping[str, Any] = {}
    first: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        return self.rank is not None and self.rank <= self.limit


def why(base: Base, kind: RecordType, row: StoredRow, intent: Intent) -> Why:
    """Explain one record's rank for one question; raises `errors.FilterError` and `errors.Unavailable` as `find`
    does.
    """
    facts: dict[str, Any] = {
        "type": kind.name,
        "identity": identity_text(row.record.identity),
        "question": intent.text or "",
        "limit": intent.limit,
        "where": intent.where,
        "policy": _describe_policy(kind),
    }
    try:
        search_result = find.rank(base, intent)
    except UsageError as problem:
        if problem.code != "E_INTENT":
            raise
        advice = f" ({problem.suggestion})" if problem.suggestion else ""
        return Why(**facts, reasons=(f"The type's policy does not serve this search: {problem.message}{advice}.",))
    facts |= _collect_facts(base, kind, row, search_result, intent.text or "")
    return Why(**facts, reasons=tuple(_explain_rank(Why(**facts), kind)))


def _collect_facts(
    base: Base, kind: RecordType, row: StoredRow, search_result: find.Ranked, text: str
) -> dict[str, Any]:
    """Return what the search knows of a record: its place, its lanes' results, and the first records."""
    number, key = row.record.id, (kind.name, row.record.id)
    allowed_ids, lanes, words = search_result.allowed[kind.name], search_result.plan.lanes, rank_fusion.parse(text)
    keys = [item.key for item in search_result.fused]
    rank = keys.index(key) + 1 if key in keys else None
    is_plain = search_result.reading.is_filled and rank is not None
    lexical_query = words.relaxed if is_plain else words
    entries = base.rows(kind)[number].entries if kind.vectors else ()
    vectors = [entry for entry in entries if entry.vector_key is not None]
    first = (base.tree.find_by_id(kind, item.key[1]) for item in search_result.fused[: search_result.plan.limit])
    return {
        "mode": search_result.plan.mode,
        "limit": search_result.plan.limit,
        "rank": rank,
        "is_plain": is_plain,
        "lanes": tuple(_rank_in_lane(search_result, lane, key) for lane in lanes),
        "tokens": _explain_tokens(base, kind, row, lexical_query) if "fts" in lanes and kind.full_text else (),
        "excluded": _find_excluded_words(base, kind, number, words),
        "passes_filter": None if allowed_ids is None else number in allowed_ids,
        "chunks": len(vectors),
        "pending": sum(entry.vector is None for entry in vectors),
        "first": tuple(identity_text(item.record.identity) if item is not None else "" for item in first),
        "notices": (
            *(item.message for item in (*search_result.plan.notices, *search_result.reading.notices)),
            *_describe_gate(search_result),
        ),
    }


def _describe_gate(search_result: Ranked) -> Iterator[str]:
    """Yield a sentence where the lane of words does not count."""
    gate = search_result.gate
    if gate and gate.is_closed:
        message = (
            f"the best record by words covers {gate.share:.2f} of the question, less than the gate of {gate.least:g}"
        )
        yield f"words do not count here: {message}"


def _rank_in_lane(search_result: Ranked, lane: Lane, key: tuple[str, int]) -> LaneRank:
    ranking = search_result.reading.lists[lane].ranking
    placements = ((place, score) for place, (record_key, score) in enumerate(ranking, 1) if record_key == key)
    rank, score = next(placements, (None, None))
    return LaneRank(lane, rank, score, len(ranking), search_result.plan.depth)


def _explain_tokens(base: Base, kind: RecordType, row: StoredRow, words: LexicalQuery) -> tuple[Token, ...]:
    """Score each token by itself, as often as it is in the question; phrases and prefixes too."""
    (tokenized_text,) = base.wiring.tokenizer.tokenize([words.text])
    token_counts = Counter(tokenized_text.words.split())
    queries = [(token, LexicalQuery(text=" ".join([token] * count))) for token, count in token_counts.items()]
    queries += [(f'"{phrase}"', LexicalQuery(phrases=(phrase,))) for phrase in words.phrases]
    queries += [(f"{prefix}*", LexicalQuery(prefixes=(prefix,))) for prefix in words.prefixes]
    return tuple(_explain_token(base, kind, row, text, lexical_query) for text, lexical_query in queries)


def _explain_token(base: Base, kind: RecordType, row: StoredRow, text: str, lexical_query: LexicalQuery) -> Token:
    explanation = base.lanes(kind).words.explain(lexical_query, row.record.id)
    if explanation["score"]:
        return Token(text, explanation["score"], max((term["doc_freq"] for term in explanation["terms"]), default=None))
    searched_fields = {item.name for item in kind.full_text}
    texts = [] if "*" in searched_fields else [*_iter_unsearched_texts(row.record.fields, searched_fields)]
    tokenized_texts = base.wiring.tokenizer.tokenize([inside for _, inside in texts])
    elsewhere = [name for (name, _), tokens in zip(texts, tokenized_texts, strict=True) if text in tokens.words.split()]
    return Token(text, 0.0, None, tuple(dict.fromkeys(elsewhere)))


def _iter_unsearched_texts(fields: Mapping[str, Any], searched_fields: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a record that are not searched, even inside objects, by field or dotted path."""
    for name, value in fields.items():
        inside = [(name, value)] if isinstance(value, str) else iter_nested_texts(name, value)
        yield from (
            (path, text) for path, text in inside if path not in searched_fields and name not in searched_fields
        )


def _find_excluded_words(base: Base, kind: RecordType, number: int, words: LexicalQuery) -> tuple[str, ...]:
    """Return the `-words` of the question that the record contains."""
    if not kind.full_text:
        return ()
    return tuple(
        text
        for text in words.excluded
        if number in base.lanes(kind).words.find_excluded_ids(LexicalQuery(excluded=(text,)))
    )


def _explain_rank(account: Why, kind: RecordType) -> list[str]:
    reasons = []
    if account.passes_filter is False:
        reasons.append(f"The filter removed it: it does not satisfy {account.where}.")
    if account.is_plain:
        reasons.append("No record fits the quotes and stars of the question: this one was found by its plain words.")
    reasons += [f"-{text} removed it: the record has that." for text in account.excluded]
    lacking = [token.text for token in account.tokens if token.text.startswith('"') and not token.score]
    reasons += [f"It does not have {text}, which the question quotes." for text in lacking]
    for lane in account.lanes if not account.is_plain else ():
        reasons += _explain_lane(account, lane, kind)
    if account.rank is None:
        reasons.append("So it is not among the records that the search ranks.")
    elif not account.is_found:
        reasons.append(f"It ranks {account.rank}, and the first {account.limit} are given: ask for more with --limit.")
    else:
        reasons.append(f"It is found, at rank {account.rank}.")
    return reasons


def _explain_lane(account: Why, lane: LaneRank, kind: RecordType) -> list[str]:
    if lane.lane == "vector" and not kind.vectors:
        return [f"It has no vectors: {kind.name} lists no field under search.vectors."]
    if lane.lane == "fts" and not kind.full_text:
        return [f"It is not searched by words: {kind.name} lists no field under search.full_text."]
    if lane.rank is not None:
        if lane.rank > lane.depth:
            return [f"By {_NAMES[lane.lane]} it ranks {lane.rank}, and only the first {lane.depth} count."]
        return []
    if (
        account.passes_filter is False
        or account.excluded
        or any(token.text.startswith('"') for token in account.tokens)
    ):
        return []
    if lane.lane == "vector" and not account.chunks:
        return ["It has no text in the fields that are compared by meaning."]
    if lane.lane == "vector" and account.pending == account.chunks:
        return ["None of its chunks has a vector yet: `duckkb index refresh` makes them."]
    if lane.lane == "vector":
        return ["The lane of meaning did not rank it."]
    fields = ", ".join(item.name if item.name != "*" else "all texts" for item in kind.full_text)
    elsewhere = sorted({name for token in account.tokens for name in token.elsewhere})
    message = f"The fields searched by words ({fields}) have none of the words of the question."
    return [message + (f" They are in {', '.join(elsewhere)}, which is not searched by words." if elsewhere else "")]


def _describe_policy(kind: RecordType) -> dict[str, Any]:
    """Return what the ontology says of searching the type."""
    policy = kind.policy
    return {
        "policy": policy.name if policy else None,
        "intents": list(policy.intents) if policy and policy.intents is not None else None,
        "full_text": [item.name for item in kind.full_text],
        "vectors": [item.name for item in kind.vectors],
    }


def convert_why_to_object(why: Why) -> dict[str, Any]:
    values = to_builtins(why)
    lanes = {lane.pop("lane"): lane for lane in values["lanes"]}
    tokens = [{"token": token.pop("text"), **token} for token in values["tokens"]]
    filter_object = None if why.where is None else {"where": why.where, "passes": why.passes_filter}
    account = {name: values[name] for name in ("type", "identity", "question", "mode")}
    account |= {"found": why.is_found, "rank": why.rank, "limit": why.limit, "plain": why.is_plain}
    account |= {"reasons": why.reasons, "lanes": lanes, "tokens": tokens, "filter": filter_object}
    return account | {name: values[name] for name in ("excluded", "chunks", "pending", "policy", "first", "notices")}


def iter_why_text(why: Why) -> Iterator[str]:
    yield f"{why.type} {why.identity}: {'found' if why.is_found else 'not found'} by {why.question!r}"
    yield from (f"  {message}" for message in why.reasons)
    if not why.mode:
        return
    yield f"search: {why.mode}, the first {why.limit}"
    yield from (f"  {_format_lane(lane)}" for lane in why.lanes)
    if why.where is not None:
        yield f"  filter: {why.where}: {'satisfied' if why.passes_filter else 'not satisfied'}"
    if why.chunks:
        yield f"  vectors: {why.chunks - why.pending} of {why.chunks} chunks have one"
    if why.tokens:
        yield "words of the question"
        yield from (f"  {_format_token(token)}" for token in why.tokens)
    yield f"first: {', '.join(why.first) or 'nothing'}"
    policy = why.policy
    yield f"policy: {policy['policy'] or 'none'}; words in {', '.join(policy['full_text']) or 'no field'}; vectors of {', '.join(policy['vectors']) or 'no field'}"
    yield from (f"note: {message}" for message in why.notices)


def _format_lane(lane: LaneRank) -> str:
    name = f"by {_NAMES[lane.lane]}"
    if lane.rank is None:
        return f"{name}: not among the {lane.ranked} ranked"
    return f"{name}: rank {lane.rank} of {lane.ranked}, score {lane.score:.4f} (the first {lane.depth} count)"


def _format_token(token: Token) -> str:
    if token.score:
        return f"{token.text}: {token.score:.4f}, in {token.records} records"
    return f"{token.text}: not in the record" + (f", but in {', '.join(token.elsewhere)}" if token.elsewhere else "")
