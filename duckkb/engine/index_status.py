"""The present state of the index, counted by type, and the cost of an index job before anything is spent.

Notes that index jobs keep beside the lines, so that others need not compute them again: counts, rates and
progress.

A count holds while its grounds are unchanged: the parts of the type, its chunker and model and, for pending
texts, the files of the caches. After a change it counts as unknown."""

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.llm.embedder_contract import estimate_window_tokens
from duckkb.ontology.model import RecordType
from duckkb.storage import base_lock
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import DuckkbError, Unavailable
from duckkb.types.records import Change, Changeset, Fingerprint, Record

COUNTS, RATES, JOB = "counted", "rates", "job"
_FORMAT = 3
_SMALL = 4 * 1024 * 1024
"""Bytes of parts and caches up to which counting is as fast as checking the notes."""
_SLAB = 1_000
_FEWEST = 32
"""Texts from which on a rate measures the model more than its start."""
_PAUSE = 1.0
"""Seconds between two notes of a running job."""
_JOB = {"verb": str, "pid": int, "started": str, "updated": str, "done": int, "total": int, "tokens": int}
_JOB |= {"ended": str, "code": str, "reason": str}

TeamState = Literal["absent", "stale", "current"]


class Counts(Struct, frozen=True):
    """The known counts of the index; `None` where one is unknown.

    By type: `chunks` counts index entries. `texts` counts the different texts that have or need a vector (None
    after a write to a large base).
    `missing` counts texts whose vector no cache has, `unverified` those with a vector from elsewhere that was
    not checked. A text that several types have counts once.
    """

    types: Mapping[str, tuple[int, int | None, int, int]] | None = None
    team: TeamState | None = None

    @property
    def missing(self) -> int | None:
        """The sum over all types."""
        return None if self.types is None else sum(missing for _, _, missing, _ in self.types.values())

    @property
    def unverified(self) -> int | None:
        """The sum over all types."""
        return None if self.types is None else sum(count for *_, count in self.types.values())

    @property
    def texts(self) -> int | None:
        """The sum over all types."""
        text_counts = [None] if self.types is None else [texts for _, texts, *_ in self.types.values()]
        known_counts = [texts for texts in text_counts if texts is not None]
        return sum(known_counts) if len(known_counts) == len(text_counts) else None

    @property
    def is_fresh(self) -> bool | None:
        """Return whether no vector is missing and the team's cache holds all that is needed; None where unknown."""
        if self.missing is None or self.team is None:
            return False if self.missing or self.team in ("absent", "stale") else None
        return not self.missing and self.team == "current"


def list_indexed_types(base: Base) -> list[RecordType]:
    """Return the types that have index entries."""
    return [kind for kind in base.ontology if kind.full_text or kind.vectors]


def slabs(base: Base, kind: RecordType) -> Iterator[list[Record]]:
    """Yield all records of a type in slices."""
    slab: list[Record] = []
    for row in base.tree.rows(kind):
        slab.append(row.record)
        if len(slab) == _SLAB:
            yield slab
            slab = []
    if slab:
        yield slab


def make_tokens(base: Base, kind: RecordType) -> int:
    """Make the token rows of a type that no cache has, and return their number."""
    count = 0
    for records in slabs(base, kind):
        if missing := len(base.cache.list_missing_keys("tokens", base.builder.needs(kind, records).tokens)):
            base.builder.make_tokens(kind, records)
            count += missing
    return count


def is_small(base: Base) -> bool:
    """Return whether the base is small enough to be counted at once."""
    parts = sum(part.stamp.size for kind in list_indexed_types(base) for part in base.tree.parts_of(kind))
    return parts + base.cache.team_bytes_on_disk <= _SMALL


def recall(base: Base) -> Counts:
    """Return the stored counts that still hold. Reads no cache and no record."""
    try:
        entry: Any = base.notes.note(COUNTS)
        if entry["format"] != _FORMAT:
            return Counts()
        before, now, grounds = entry["caches"], base.cache.stamp(), _compute_grounds(base)
        types = {
            str(name): (int(chunks), None if texts is None else int(texts), int(missing), 0)
            for name, (chunks, texts, missing) in entry["types"].items()
        }
        if "added" in now and not any(missing for _, _, missing, _ in types.values()):
            before = {**before, "added": now["added"]}  # nothing was missing, so rows added since fill no gap
        team = entry["team"]["state"] if entry["team"]["ground"] == _compute_team_ground(grounds, now) else None
        return Counts(types if entry["grounds"] == grounds and before == now else None, team)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # a foreign or damaged note
        return Counts()


def remember(base: Base, counts: Counts, caches: Mapping[str, Any]) -> None:
    """Store the counts that were just made, with the stamp that the caches had before.

    Where they cannot be stored, they are counted again next time.
    """
    grounds = _compute_grounds(base)
    team = {"ground": _compute_team_ground(grounds, caches), "state": counts.team}
    types = {name: type_counts[:3] for name, type_counts in (counts.types or {}).items()}
    entry = {"format": _FORMAT, "grounds": grounds, "caches": dict(caches), "types": types, "team": team}
    base.notes.keep(COUNTS, entry)


def recall_counts(base: Base) -> Counts | None:
    """Return the counts of a large base before a small write, if they lead to the counts after it.

    They do where no vector is missing and none is unverified.
    """
    counts = Counts() if is_small(base) else recall(base)
    return counts if counts.missing == 0 and counts.unverified == 0 else None


def carry(base: Base, before: Counts, changeset: Changeset) -> None:
    """Store the counts after a small change: since no vector was missing before, only new records can lack some.

    The state of the team's cache becomes unknown; texts that other records have too are not looked for.
    """
    if len(changeset.changes) > _SLAB or before.types is None:
        return
    types = dict(before.types)
    for kind in list_indexed_types(base):
        changes = [change for change in changeset.changes if kind.name in _collect_types(change)]
        old = base.builder.needs(kind, [change.old for change in changes if change.old])
        new = base.builder.needs(kind, [change.new for change in changes if change.new])
        model = base.fingerprint(kind)
        missing = len(base.cache.list_missing_keys("vector", new.vectors, model)) if model else 0
        types[kind.name] = types[kind.name][0] + new.entries - old.entries, None, missing, 0
    remember(base, Counts(types, "absent" if before.team == "absent" else None), base.cache.stamp())


def _collect_types(change: Change) -> set[str]:
    return {record.type for record in (change.old, change.new) if record is not None}


def _compute_grounds(base: Base) -> dict[str, str]:
    """Return by type a digest of what its entries depend on."""
    return {kind.name: ground_of(base, kind) for kind in list_indexed_types(base)}


def ground_of(base: Base, kind: RecordType) -> str:
    """Return a digest of what the entries of a type depend on."""
    models = str(base.wiring.tokenizer.fingerprint), str(base.fingerprint(kind))
    shape = kind.identity_fields, base.builder.cut_by(kind), *models, base.wiring.lenient
    parts = "\n".join(f"{part.digest} {part.path}" for part in base.tree.parts_of(kind))
    return sha256(f"{shape!r}\n{parts}".encode("utf-8", "surrogatepass")).hexdigest()


def _compute_team_ground(grounds: Mapping[str, str], caches: Mapping[str, Any]) -> str:
    return sha256(json.dumps([grounds, caches["team"]]).encode()).hexdigest()


def rate_of(base: Base, model: Fingerprint) -> float | None:
    """Return the tokens a second of the model in its last job on this machine; None where none was measured."""
    rates = base.notes.note(RATES)
    rate = rates.get(str(model)) if isinstance(rates, dict) else None
    return rate if isinstance(rate, float) and rate > 0 else None


def remember_rate(base: Base, model: Fingerprint, texts: int, tokens: int, seconds: float) -> None:
    """Store the measured rate, if the job was long enough to measure it."""
    if texts >= _FEWEST and seconds > 0:
        rates = base.notes.note(RATES)
        known_rates = rates if isinstance(rates, dict) else {}
        base.notes.keep(RATES, known_rates | {str(model): round(tokens / seconds, 1)})


class JobNote:
    """The progress of a job as other processes see it, stored no more often than somebody would look.

    Times are UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`; `done`, `total` and `tokens` count embedded texts. `ended` is
    empty while the job runs, then `fresh`, `partial` or `failed`; `code` and `reason` say why it is one of the
    last two.
    """

    def __init__(self, base: Base, verb: str) -> None:
        self._base = base
        defaults: dict[str, Any] = {name: of() for name, of in _JOB.items()}
        self._told = defaults | {"verb": verb, "pid": os.getpid(), "started": base.wiring.clock.now()}
        self._noted = 0.0

    def note(self, *, now_at_all: bool = False, **changes: Any) -> None:
        """Apply changes; store them if it is time to, or with `now_at_all`."""
        self._told |= changes
        if now_at_all or time.monotonic() - self._noted >= _PAUSE:
            self._told["updated"] = self._base.wiring.clock.now()
            self._base.notes.keep(JOB, self._told)
            self._noted = time.monotonic()


@contextmanager
def note_job(base: Base, verb: str) -> Iterator[JobNote]:
    """Keep the note of a job while the block runs; an error that ends the job is stored, a kill is not."""
    book = JobNote(base, verb)
    book.note(now_at_all=True)
    try:
        yield book
    except DuckkbError as problem:
        book.note(now_at_all=True, ended="failed", code=problem.code, reason=problem.message)
        raise


def job_report(root: Path, notes: BaseStore) -> dict[str, Any] | None:
    """Return the job that runs or ran last, with `running`; None where none ran.

    A job that ended without a final state is `interrupted`.
    """
    entry = notes.note(JOB)
    if not isinstance(entry, dict) or {name: type(value) for name, value in entry.items()} != _JOB:
        return None
    running = not entry["ended"] and base_lock.is_job_running(root)
    report = {name: value for name, value in entry.items() if value != ""}
    return report | {"running": running, "ended": entry["ended"] or (None if running else "interrupted")}


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
            remember(base, self.counts, self.caches)


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
    counts = recall(base)
    return counts if _is_whole(counts) or not is_small(base) else survey(base).counts


def _is_whole(counts: Counts) -> bool:
    return counts.types is not None and counts.team is not None


def status(base: Base) -> dict[str, Any]:
    """Return the state of the index; counts that are unknown are computed and stored.

    It has the chunks by type, the texts without a vector, the texts with an unchecked one, whether the team's
    cache holds exactly what is needed, and the job that runs or ran last.
    """
    counts = recall(base)
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
        "job": job_report(base.root, base.notes),
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
    rate = rate_of(base, model) if model else None
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
