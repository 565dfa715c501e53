"""Index jobs: they compute everything that is missing, batch by batch, within a budget; results are always kept.

One job runs on a base at a time. It may be killed at any moment: the next job does the rest.

Migration: makes the vectors of another model beside the present ones, batch by batch, within a budget.

A vector's key includes its model's fingerprint, so both models' vectors lie in the search cache without
conflict. Lanes, configuration and answers stay unchanged until the configuration names the other model.
Each batch is stored before the next begins: a killed job loses only the batch under way."""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct

from duckkb.engine import boot
from duckkb.engine.base import Base, Wiring
from duckkb.engine.index_status import (
    IndexPlan,
    JobNote,
    Surveyed,
    TypeSurvey,
    glance,
    iter_missing_texts,
    list_indexed_types,
    make_tokens,
    note_job,
    plan,
    remember_rate,
    survey,
)
from duckkb.engine.text_vectors import MadeVectors, Texts, batch_by_length, batch_size, note_missing_graphs, stream
from duckkb.engine.write import writable
from duckkb.ontology.model import RecordType
from duckkb.storage import base_lock, commit_protocol, git_facts, repository
from duckkb.store.cache_dirs import room
from duckkb.types.errors import Unavailable
from duckkb.types.queries import Notice
from duckkb.types.records import ID, Fingerprint
from duckkb.types.settings import NO_MODEL

MOMENT = 0.2
"""Seconds within which a process that only checks the job's lock has released it."""
_GIVE_UP = 3
"""Failed batches in a row after which a model counts as gone."""
_SLAB_BATCHES = 32


class JobOptions(Struct, frozen=True):
    """The options of one job.

    `budget_tokens` and `budget_minutes` end a job between two batches; None: no limit. `if_stale` does nothing
    where nothing is missing, `wait` lets a running job finish first, `anew` ignores what the team's cache has.
    """

    budget_tokens: int | None = None
    budget_minutes: float | None = None
    if_stale: bool = False
    wait: bool = False
    anew: bool = False


class Started(Struct, frozen=True):
    """An event: a job begins, with its plan."""

    verb: str
    plan: IndexPlan


class Progressed(Struct, frozen=True):
    """An event: texts embedded so far, their tokens, texts a second, and the seconds left at that rate."""

    done: int
    total: int
    tokens: int
    rate: float
    eta_s: float | None


class BatchFailed(Struct, frozen=True):
    """An event: the model did not embed a batch; the job goes on with the others."""

    texts: int
    code: str
    message: str


class Built(Struct, frozen=True):
    """The result of a job: the files it wrote, the texts it embedded and their tokens, and notices.

    `changed` counts the texts without a vector at the start, `total` the texts that are compared by meaning
    (None where unknown), `pending` the texts that still lack a vector; `code` and `reason` say why.
    A text that several records have counts once.
    """

    files: tuple[str, ...] = ()
    pending: int = 0
    embedded: int = 0
    tokens: int = 0
    changed: int = 0
    total: int | None = 0
    code: str = ""
    reason: str = ""
    notices: tuple[Notice, ...] = ()


class Ended(Struct, frozen=True):
    """An event: the job is over."""

    result: Built


Event = Started | Progressed | BatchFailed | Ended
Listen = Callable[[Event], None]


def refresh(
    base: Base,
    *,
    budget_tokens: int | None = None,
    budget_minutes: float | None = None,
    if_stale: bool = False,
    wait: bool = False,
    listen: Listen = lambda _: None,
) -> Built:
    """Compute missing tokens and vectors into the local cache, within a budget; `listen` receives each event.

    With `if_stale`, do nothing where nothing is missing; with `wait`, start after the running job. Raises
    `errors.Unavailable` (E_LOCKED) while another job runs.
    """
    return _run_job(base, "refresh", JobOptions(budget_tokens, budget_minutes, if_stale, wait), listen)


def build(
    base: Base,
    *,
    budget_tokens: int | None = None,
    budget_minutes: float | None = None,
    if_stale: bool = False,
    wait: bool = False,
    listen: Listen = lambda _: None,
) -> Built:
    """Refresh, then write the team's cache under the lock of writers.

    A job that ends early leaves a partial cache.
    Raises `errors.Refused` (E_SPARSE) where a sparse checkout hides records, whose rows would be dropped.
    """
    git_facts.refuse_sparse_paths(base.root)
    return _run_job(base, "build", JobOptions(budget_tokens, budget_minutes, if_stale, wait), listen)


def rebuild(
    base: Base,
    *,
    budget_tokens: int | None = None,
    budget_minutes: float | None = None,
    wait: bool = False,
    listen: Listen = lambda _: None,
) -> Built:
    """Build, computing anew what the team's cache has; that cache stays unchanged where the job ends early."""
    git_facts.refuse_sparse_paths(base.root)
    options = JobOptions(budget_tokens, budget_minutes, wait=wait, anew=True)
    try:
        return _run_job(base, "build", options, listen)
    finally:
        base.cache.ignore_team(ignored=False)


def _run_job(base: Base, verb: str, options: JobOptions, listen: Listen) -> Built:
    boot.refuse_past(base)
    if options.if_stale and _is_fresh(base, verb):
        return Built(total=glance(base).texts)
    with base_lock.job(base.root, math.inf if options.wait else MOMENT):
        boot.refresh(base)
        if options.anew:
            base.cache.ignore_team(ignored=True)
        with note_job(base, verb) as book:
            result = _run(base, verb, options, listen, book)
    listen(Ended(result))
    return result


def _run(base: Base, verb: str, options: JobOptions, listen: Listen, book: JobNote) -> Built:
    overview = survey(base)
    job_plan = plan(base, overview)
    listen(Started(verb, job_plan))
    work = JobWork(base, options, listen, book, job_plan.missing)
    for type_survey in overview.types:
        work.process_type(type_survey)
    _complete(base)
    overview = survey(base) if work.changed else overview
    if not options.anew:
        overview.write_down(base)
    notices = note_missing_graphs(base, base.ontology)
    files: tuple[str, ...] = ()
    if verb == "build" and not (options.anew and overview.pending):
        files, team_notices = publish(base)
        notices += team_notices
    if options.anew:  # later callers use the team's cache again
        base.cache.ignore_team(ignored=False)
    if files or options.anew:
        with suppress(OSError):  # the job is done, even where its state cannot be stored
            survey(base).write_down(base)
    result = work.result(overview, files, notices)
    book.note(now_at_all=True, ended="partial" if result.pending else "fresh", code=result.code, reason=result.reason)
    return result


def publish(base: Base) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """Write the team's cache under the lock of writers; return the changed files and notices."""
    if base.wiring.place.sealed is not None:
        return (), (Notice("W_SEALED", "the team's cache is not written, since it would be unencrypted in data/"),)
    on_main = repository.is_main_branch(base.root)  # asked first, since nothing may fail after the commit
    with writable(base):
        for kind in list_indexed_types(base):  # records added during the job wait for the next job
            make_tokens(base, kind)
        live = base.live_keys()
        changes = _diff_team_files(base, live)
        if changes:
            commit_protocol.commit(base.root, changes)
    notices = []
    if changes and not on_main:
        remedy = "leave it out of the pull request"
        notices.append(Notice("W_NOT_ON_MAIN", "build the team cache on the main branch", remedy))
    return tuple(change.path for change in changes), tuple(notices)


def _diff_team_files(base: Base, live: set[bytes]) -> list[commit_protocol.FileChange]:
    """Return the changes after which the team's cache holds the rows that are needed, and no others."""
    contents = base.cache.team_bytes(live)
    paths = sorted({*contents, *base.cache.team_paths()})
    changes = []
    for path in paths:
        target = base.root / path
        old = sha256(target.read_bytes()).hexdigest() if target.exists() else None
        data = contents.get(path)
        if data is None or sha256(data).hexdigest() != old:
            changes.append(commit_protocol.FileChange(path, old, data))
    return changes


@boot.retry_if_stale
def _complete(base: Base) -> None:
    """Store on disk what the next question opens, where the base keeps that."""
    for kind in base.ontology:
        if kind.full_text:
            base.lanes(kind).words.complete()
        if kind.given_vectors or (kind.vectors and base.fingerprint(kind) is not None):
            base.lanes(kind).vectors.complete()
        if base.rows(kind).state.folder is not None:
            base.sql.where(kind, f"{ID} = 0")  # builds the rows that every condition needs


def _is_fresh(base: Base, verb: str) -> bool:
    counts = glance(base)
    return bool(counts.is_fresh if verb == "build" else counts.missing == 0)


class JobWork:
    """The part of a job that asks models, and its results so far."""

    def __init__(self, base: Base, options: JobOptions, listen: Listen, book: JobNote | None, total: int) -> None:
        self.base, self.options, self.listen, self.book, self.total = base, options, listen, book, total
        self.done = self.tokens = 0
        self.changed = False
        self.code = self.reason = ""
        self._began = time.monotonic()
        self._spent = self._failed_in_row = 0
        self._gone: set[str] = set()
        self._asked: set[bytes] = set()
        self._costs: dict[bytes, int] = {}

    def process_type(self, one: TypeSurvey) -> None:
        """Make what one type lacks: its tokens, then its vectors, as far as model and budget allow."""
        if one.tokens:
            make_tokens(self.base, one.kind)
            self.base.cache.save()
            self.changed = True
        if not one.pending or self.code == "E_BUDGET":
            return
        model = self.base.fingerprint(one.kind)
        if model is None or str(model) in self._gone:
            return
        if one.withheld and not self._adopt(one):
            return
        self.embed(one.kind, model)

    def embed(self, kind: RecordType, model: Fingerprint) -> None:
        """Make the vectors that one type lacks, as far as its model and the budget allow."""
        began, previous_done, tokens = time.monotonic(), self.done, self.tokens
        self._failed_in_row = 0
        for batch in self._stream_vectors(kind):
            self._take(kind, batch)
        if self._failed_in_row >= _GIVE_UP:
            self._gone.add(str(model))
        remember_rate(self.base, model, self.done - previous_done, self.tokens - tokens, time.monotonic() - began)

    def result(self, found: Surveyed, files: tuple[str, ...], notices: tuple[Notice, ...]) -> Built:
        pending = found.pending
        code, reason = self.code, self.reason
        if pending and not code:
            code, reason = "W_PENDING", "records were stored meanwhile"
        if not pending:
            code = reason = ""
        return Built(files, pending, self.done, self.tokens, self.total, found.counts.texts, code, reason, notices)

    def _adopt(self, type_survey: TypeSurvey) -> bool:
        """Check rows from elsewhere by a sample, then use them or embed their texts anew; return False where no
        model could.
        """
        cache, model = self.base.cache, self.base.embedder(type_survey.kind)
        self.changed = True
        try:
            cache.verify_vectors(type_survey.withheld, model.embed_passages)
        except Unavailable as problem:
            self._fail(len(type_survey.withheld), problem)
            return False
        self.total += len(cache.list_missing_keys("vector", type_survey.withheld, model.fingerprint))
        return True

    def _stream_vectors(self, kind: RecordType) -> Iterator[MadeVectors]:
        return stream(self.base, kind, self._batches(kind))

    def _iter_missing_texts(self, kind: RecordType, size: int) -> Iterator[Texts]:
        """Yield the texts of a type that lack a vector, at least `size` at a time."""
        return iter_missing_texts(self.base, kind, self._asked, size)

    def _batches(self, kind: RecordType) -> Iterator[Texts]:
        """Yield the batches for the model, until the budget is used up or the model counts as gone."""
        size = batch_size(self.base, kind)
        for slab in self._iter_missing_texts(kind, size * _SLAB_BATCHES):
            for batch in batch_by_length(slab, size):
                portion = self._afford(kind, batch)
                if portion:
                    yield portion
                if len(portion) < len(batch) or self._failed_in_row >= _GIVE_UP:
                    return

    def _afford(self, kind: RecordType, batch: Texts) -> Texts:
        """Return as much of a batch as the budget allows."""
        minutes, most = self.options.budget_minutes, self.options.budget_tokens
        if minutes is not None and time.monotonic() - self._began >= 60 * minutes:
            return self._stop_for_budget(f"{minutes:g} minutes")
        costs = self._count(kind, batch)
        portion: dict[bytes, str] = {}
        for (key, text), cost in zip(batch.items(), costs, strict=True):
            if most is not None and self._spent + cost > most:
                self._stop_for_budget(f"{most:,} tokens")
                break
            self._spent += cost
            self._costs[key] = cost
            portion[key] = text
        return portion

    def _count(self, kind: RecordType, batch: Texts) -> list[int]:
        try:
            return self.base.embedder(kind).count_tokens(list(batch.values()))
        except Unavailable:  # it will not embed them either, and that call reports why
            return [0] * len(batch)

    def _stop_for_budget(self, limit: str) -> Texts:
        self.code, self.reason = "E_BUDGET", f"the budget of {limit} is used up"
        return {}

    def _take(self, kind: RecordType, batch: MadeVectors) -> None:
        if batch.problem:
            self._failed_in_row += 1
            self._fail(len(batch.texts), batch.problem)
            return
        self._failed_in_row = 0
        self._keep(kind, batch)
        self.done += len(batch.texts)
        self.tokens += sum(self._costs.pop(key, 0) for key in batch.texts)
        rate = self.done / max(time.monotonic() - self._began, 1e-6)
        remaining_texts = max(self.total - self.done, 0)
        self.listen(Progressed(self.done, self.total, self.tokens, round(rate, 2), round(remaining_texts / rate, 1)))
        if self.book is not None:
            self.book.note(done=self.done, total=self.total, tokens=self.tokens)

    def _keep(self, kind: RecordType, batch: MadeVectors) -> None:
        """Tell the lanes of vectors that are in the cache already."""
        self.changed = True
        self.base.on_vectors_available(kind, batch.vectors)

    def _fail(self, texts: int, problem: Unavailable) -> None:
        if self.code != "E_BUDGET":
            self.code, self.reason = problem.code, problem.message
        self.listen(BatchFailed(texts, problem.code, problem.message))


_ROW_BYTES = 300
"""Approximate bytes of a row in the search cache beside its vector."""
_USUAL_LENGTH = 1_536
"""Assumed length of the vectors of a model that has not told it yet."""


class Migration(Struct, frozen=True):
    """The result, or the preview, of a migration.

    It has the number of texts that the other model has to embed, the length of its vectors (None where
    unknown), and the result of the job (`built.pending` texts are left).
    """

    texts: int
    dimensions: int | None
    plan: IndexPlan
    built: Built = Built()


class MigrationBudget(Struct, frozen=True):
    """A limit of a migration: at most `texts` are embedded, and none after `seconds`; None: no limit."""

    texts: int | None = None
    seconds: float | None = None


def fingerprint(wiring: Wiring, kind: RecordType) -> str:
    """Return the name of the model that embeds a type's texts; empty where none does."""
    settings = kind.settings(wiring.settings).embedding
    return "" if settings.model == NO_MODEL else str(wiring.embedder_for(settings).fingerprint)


def look(base: Base, kinds: Collection[RecordType]) -> Migration:
    """Preview a migration of these types, on a base that is wired with the other model. Embeds nothing."""
    overview = survey(base, kinds)
    return _describe_migration(base, overview, Built(pending=overview.pending, total=overview.counts.texts))


def migrate(base: Base, kinds: Collection[RecordType], budget: MigrationBudget, listen: Listen) -> Migration:
    """Embed what these types lack under the model that the base is wired with, a batch at a time.

    `listen` receives each event. Raises `errors.Unavailable` (E_LOCKED) while another job runs, and as
    `boot.refuse_past` does.
    """
    boot.refuse_past(base)
    with base_lock.job(base.root, MOMENT):
        boot.refresh(base)
        with note_job(base, "migrate") as book:
            overview = survey(base, kinds)
            job_plan = plan(base, overview)
            listen(Started("migrate", job_plan))
            work = _Migration(base, listen, book, job_plan.missing, budget)
            for type_survey in overview.types:
                work.process_type(type_survey)
            overview = survey(base, kinds)
            built = work.result(overview, (), ())
            outcome = "partial" if built.pending else "fresh"
            book.note(now_at_all=True, ended=outcome, code=built.code, reason=built.reason)
    listen(Ended(built))
    return _describe_migration(base, overview, built)


def _describe_migration(base: Base, overview: Surveyed, built: Built) -> Migration:
    models = [model for type_survey in overview.types if (model := base.fingerprint(type_survey.kind)) is not None]
    lengths = {length for model in models if (length := base.cache.dimensions.get_dimension(model) or model.dimension)}
    return Migration(
        sum(type_survey.texts for type_survey in overview.types),
        max(lengths, default=None),
        plan(base, overview),
        built,
    )


class _Migration(JobWork):
    """The work of a migration: another budget, room for both models' vectors, and every batch stored at once."""

    def __init__(self, base: Base, listen: Listen, book: JobNote | None, total: int, budget: MigrationBudget) -> None:
        super().__init__(base, JobOptions(), listen, book, total)
        self.budget, self._given = budget, 0

    def _afford(self, kind: RecordType, batch: Texts) -> Texts:
        most, seconds = self.budget.texts, self.budget.seconds
        if seconds is not None and time.monotonic() - self._began >= seconds:
            return self._stop_for_budget(f"{seconds:g} seconds")
        if self._has_no_room(kind, len(batch)):
            return {}
        if most is not None and self._given + len(batch) > most:
            batch = dict(list(batch.items())[: max(0, most - self._given)])
            self._stop_for_budget(f"{most:,} texts")
        self._given += len(batch)
        return super()._afford(kind, batch)

    def _has_no_room(self, kind: RecordType, texts: int) -> bool:
        """Return whether more vectors would evict older rows, of which those of the present model are the oldest.

        What is under way at the same time is counted as `texts` more than once.
        """
        env, model = self.base.wiring.env, self.base.embedder(kind).fingerprint
        length = self.base.cache.dimensions.get_dimension(model) or model.dimension or _USUAL_LENGTH
        needed_bytes = self.base.cache.store.size + 8 * texts * (4 * length + _ROW_BYTES)
        if needed_bytes <= env.cache_limit // 4 or needed_bytes <= room(env.cache_home.expanduser(), env.cache_limit):
            return False
        self.code = "E_CACHE_LIMIT"
        self.reason = (
            f"the cache folder is limited to {env.cache_limit:,} bytes, and more vectors would evict older ones"
        )
        return True

    def _keep(self, kind: RecordType, batch: MadeVectors) -> None:
        super()._keep(kind, batch)
        self.base.cache.save()
