"""The present state of the index, counted by type, and the cost of an index job before anything is spent."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.engine.index import notes
from duckkb.engine.index.notes import Counts, TeamState, list_indexed_types, slabs
from duckkb.entries import Fingerprint
from duckkb.errors import Unavailable
from duckkb.llm.windows import estimate_window_tokens
from duckkb.ontology.model import RecordType

_SAMPLE = 512
"""Texts of a type whose tokens are counted; the average stands for the others."""

_DRAWN = 64
"""Records of a type for which rows of the team's cache are recomputed."""

Told = Literal["counted", "estimated"]


class TypeSurvey(Struct):
    """The state of one type: its entries, the different texts behind its vectors, and what these lack.

    `first_texts` counts the texts that no earlier type with the same model has. `missing` counts texts that no
    cache has, `untold` those of them that an earlier type with the same model has counted already. `withheld`
    are texts with an unchecked vector, by key.
    Of `token_texts`, which need token rows, `tokens` lack them.
    """

    kind: RecordType
    entries: int = 0
    texts: int = 0
    first_texts: int = 0
    missing: int = 0
    untold: int = 0
    token_texts: int = 0
    tokens: int = 0
    withheld: dict[bytes, str] = {}
    sample: list[tuple[bytes, str]] = []

    @property
    def pending(self) -> int:
        return self.missing + self.untold + len(self.withheld)

    def note(self, key: bytes, text: str) -> None:
        """Count a missing text. The sample is of the lowest keys; keys are hashes, so the sample is random."""
        self.missing += 1
        self.sample.append((key, text))
        if len(self.sample) > 2 * _SAMPLE:
            self.sample = sorted(self.sample)[:_SAMPLE]


class Surveyed(Struct, frozen=True):
    """All surveyed types, and whether the team's cache holds what they need; `caches` is the stamp of the caches
    read.
    """

    types: Sequence[TypeSurvey]
    team: TeamState
    caches: Mapping[str, Any]

    @property
    def counts(self) -> Counts:
        type_counts = {
            type_survey.kind.name: (
                type_survey.entries,
                type_survey.first_texts,
                type_survey.missing,
                len(type_survey.withheld),
            )
            for type_survey in self.types
        }
        return Counts(type_counts, self.team)

    @property
    def pending(self) -> int:
        """The number of texts without a usable vector: `missing` and `unverified`."""
        return sum(type_survey.missing + len(type_survey.withheld) for type_survey in self.types)

    def write_down(self, base: Base) -> None:
        """Store the counts for later calls, unless they depend on rows from elsewhere that this machine has not
        checked.
        """
        if not any(type_survey.withheld for type_survey in self.types):
            notes.remember(base, self.counts, self.caches)


class TypePlan(Struct, frozen=True):
    """The work for one type.

    `verified` texts have their vector, `missing` ones will be embedded, `unverified` ones lie in a cache from
    elsewhere, of which a sample is recomputed first. `minutes` and `price` are None where they cannot be
    estimated.
    """

    type: str
    model: str
    chunks: int
    texts: int
    verified: int
    unverified: int
    missing: int
    tokens: int
    tokens_are: Told
    minutes: float | None
    price: float | None


class IndexPlan(Struct, frozen=True):
    """The plan of an index job. `fresh`: nothing is missing, in the team's cache either."""

    types: tuple[TypePlan, ...]
    team_cache: TeamState

    @property
    def fresh(self) -> bool:
        return self.team_cache == "current" and not self.missing

    @property
    def missing(self) -> int:
        return sum(type_plan.missing for type_plan in self.types)

    @property
    def unverified(self) -> int:
        return sum(type_plan.unverified for type_plan in self.types)

    @property
    def tokens(self) -> int:
        return sum(type_plan.tokens for type_plan in self.types)

    @property
    def tokens_are(self) -> Told:
        return (
            "estimated"
            if any(type_plan.tokens_are == "estimated" for type_plan in self.types if type_plan.missing)
            else "counted"
        )

    @property
    def minutes(self) -> float | None:
        return _sum([type_plan.minutes for type_plan in self.types if type_plan.missing])

    @property
    def price(self) -> float | None:
        priced_plans = [type_plan for type_plan in self.types if type_plan.price is not None]
        return _sum([type_plan.price for type_plan in priced_plans if type_plan.missing]) if priced_plans else None


def survey(base: Base, kinds: Collection[RecordType] | None = None) -> Surveyed:
    """Look through all records (those of `kinds`), and compare what they need with what the caches hold.

    Computes neither tokens nor vectors.
    """
    base.cache.look_again()
    caches = base.cache.stamp()
    missing_keys, known_keys = set[bytes](), set[bytes]()
    team_keys = base.cache.team_keys()
    whole, surveys = True, []
    for kind in list_indexed_types(base) if kinds is None else kinds:
        type_survey, texts, complete = _inspect_type(base, kind, missing_keys, team_keys)
        type_survey.texts, type_survey.first_texts = len(texts), len(texts - known_keys)
        known_keys |= texts
        surveys.append(type_survey)
        whole = whole and complete
    absent = not base.cache.team_paths()
    return Surveyed(surveys, "absent" if absent else "current" if whole else "stale", caches)


def plan_index(base: Base) -> IndexPlan:
    """Return the work and the cost of an index job; spends nothing."""
    return plan(base, survey(base))


def glance(base: Base) -> Counts:
    """Return the known counts of the index, without reading all records of a large base; never an estimate."""
    counts = notes.recall(base)
    return counts if _is_whole(counts) or not notes.is_small(base) else survey(base).counts


def _is_whole(counts: Counts) -> bool:
    return counts.types is not None and counts.team is not None


def status(base: Base) -> dict[str, Any]:
    """Return the state of the index; counts that are unknown are computed and stored.

    It has the chunks by type, the texts without a vector, the texts with an unchecked one, whether the team's
    cache holds exactly what is needed, and the job that runs or ran last.
    """
    counts = notes.recall(base)
    if not _is_whole(counts):
        overview = survey(base)
        overview.write_down(base)
        counts = overview.counts
    return {
        "model": base.settings.embedding.model,
        "fingerprint": str(base.wiring.embedder.fingerprint),
        "fingerprints": sorted({str(model) for kind in base.ontology if (model := base.fingerprint(kind)) is not None}),
        "tokenizer": str(base.wiring.tokenizer.fingerprint),
        "chunks": {name: chunks for name, (chunks, *_) in (counts.types or {}).items()},
        "missing": counts.missing,
        "unverified": counts.unverified,
        "team_cache": counts.team,
        "lanes": {kind.name: {"vectors": base.lanes(kind).vectors.account()} for kind in base.ontology if kind.vectors},
        "job": notes.job_report(base.root, base.notes),
        "fresh": counts.is_fresh,
    }


def sample_caches(base: Base) -> None:
    """Recompute rows of the team's cache for some records, drawn so that no forger can foresee them.

    A search does the same for all records. A file that does not agree is a finding of the cache and is not
    used. Endpoints, which cost money, are not asked.
    """
    from random import SystemRandom

    for kind in base.ontology if base.cache.team_paths() else ():
        rows = list(base.tree.rows(kind))
        sample_rows = SystemRandom().sample(rows, min(_DRAWN, len(rows)))
        needs = base.builder.needs(kind, [row.record for row in sample_rows])
        base.cache.verify_tokens(needs.tokens, base.wiring.tokenizer.tokenize)
        if kind.has_text_vectors and kind.settings(base.settings).embedding.address is None:
            with suppress(Unavailable):
                base.cache.verify_vectors(needs.vectors, base.embedder(kind).embed_passages)


def plan(base: Base, found: Surveyed) -> IndexPlan:
    """Return the work of a job for a survey."""
    return IndexPlan(tuple(_plan(base, type_survey) for type_survey in found.types), found.team)


def _inspect_type(
    base: Base, kind: RecordType, missing_keys: set[bytes], team_keys: set[bytes]
) -> tuple[TypeSurvey, set[bytes], bool]:
    """Survey one type; return also the keys of its texts, and whether the team's cache has all that it needs.

    `missing_keys` are the missing keys counted so far.
    """
    model, type_survey, complete = base.fingerprint(kind), TypeSurvey(kind), True
    text_keys: set[bytes] = set()
    for records in slabs(base, kind):
        needs = base.builder.needs(kind, records)
        complete = complete and needs.tokens.keys() <= team_keys and needs.vectors.keys() <= team_keys
        type_survey.entries += needs.entries
        type_survey.token_texts += len(needs.tokens)
        type_survey.tokens += len(base.cache.list_missing_keys("tokens", needs.tokens))
        new = {key: text for key, text in needs.vectors.items() if key not in text_keys}
        text_keys |= new.keys()
        absent = _find_missing_vectors(base, new, model)
        withheld_keys = base.cache.find_unverified_keys(absent)
        for key in absent:
            if key in missing_keys:
                type_survey.untold += 1
            elif key in withheld_keys:
                type_survey.withheld[key] = new[key]
            else:
                type_survey.note(key, new[key])
        missing_keys.update(absent)
    return type_survey, text_keys, complete


def _find_missing_vectors(base: Base, texts: dict[bytes, str], model: Fingerprint | None) -> list[bytes]:
    """Return the keys of the texts whose vectors the caches lack."""
    if model is None or not texts:
        return []
    return base.cache.list_missing_keys("vector", texts, model)


def iter_missing_texts(base: Base, kind: RecordType, asked: set[bytes], size: int) -> Iterator[dict[bytes, str]]:
    """Yield the texts of a type that lack a vector in the present caches, at least `size` at a time.

    Each text is added to `asked`, and comes once.
    """
    model, batch = base.fingerprint(kind), dict[bytes, str]()
    for records in slabs(base, kind):
        texts = base.builder.needs(kind, records).vectors
        new = {key: text for key, text in texts.items() if key not in asked}
        batch |= {key: new[key] for key in _find_missing_vectors(base, new, model)}
        asked |= batch.keys()
        if len(batch) >= size:
            yield batch
            batch = {}
    if batch:
        yield batch


def _plan(base: Base, type_survey: TypeSurvey) -> TypePlan:
    settings = type_survey.kind.settings(base.settings).embedding
    model = base.fingerprint(type_survey.kind)
    tokens, basis = _estimate_tokens(base, type_survey)
    rate = notes.rate_of(base, model) if model else None
    price = settings.price_per_million_tokens if settings.address else None
    return TypePlan(
        type=type_survey.kind.name,
        model=settings.model if model else "none",
        chunks=type_survey.entries,
        texts=type_survey.texts,
        verified=type_survey.texts - type_survey.pending,
        unverified=len(type_survey.withheld),
        missing=type_survey.missing,
        tokens=tokens,
        tokens_are=basis,
        minutes=round(tokens / rate / 60, 2) if rate else None,
        price=None if price is None else round(price * tokens / 1_000_000, 6),
    )


def _estimate_tokens(base: Base, type_survey: TypeSurvey) -> tuple[int, Told]:
    """Estimate the tokens of the missing texts; the model counts them where it can and they are few."""
    if not type_survey.missing:
        return 0, "counted"
    texts = [text for _, text in sorted(type_survey.sample)[:_SAMPLE]]
    is_told = type_survey.kind.settings(base.settings).embedding.address is None
    try:
        token_count = sum(base.embedder(type_survey.kind).count_tokens(texts))
    except Unavailable:
        token_count, is_told = sum(map(estimate_window_tokens, texts)), False
    exact = is_told and len(texts) == type_survey.missing
    return round(token_count * type_survey.missing / len(texts)), "counted" if exact else "estimated"


def _sum(values: Sequence[float | None]) -> float | None:
    """Add the values; None where one of them is unknown."""
    known_values = [value for value in values if value is not None]
    return round(sum(known_values), 6) if len(known_values) == len(values) else None
