"""Migration: makes the vectors of another model beside the present ones, batch by batch, within a budget.

A vector's key includes its model's fingerprint, so both models' vectors lie in the search cache without
conflict. Lanes, configuration and answers stay unchanged until the configuration names the other model.
Each batch is stored before the next begins: a killed job loses only the batch under way.
"""

import time
from collections.abc import Collection

from msgspec import Struct

from duckkb.engine import boot
from duckkb.engine.base import Base, Wiring
from duckkb.engine.index.jobs import MOMENT, Built, Ended, JobOptions, JobWork, Listen, Started
from duckkb.engine.index.notes import JobNote, note_job
from duckkb.engine.index.plan import IndexPlan, Surveyed, plan, survey
from duckkb.engine.vectors import MadeVectors, Texts
from duckkb.ontology.model import RecordType
from duckkb.settings import NO_MODEL
from duckkb.store.place import room
from duckkb.truth.commit import lock

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
    with lock.job(base.root, MOMENT):
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
