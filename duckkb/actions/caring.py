"""check, fmt, dedupe, status, index, doctor, repair: the care of a base."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from duckkb.engine import care
from duckkb.engine.base import Base, Wiring
from duckkb.engine.index import job_state, jobs, survey
from duckkb.engine.index import plan as planning
from duckkb.engine.index import repair as repairing
from duckkb.engine.index.glance import glance
from duckkb.engine.index.jobs import Options as JobOptions
from duckkb.engine.index.repair import Options as RepairOptions
from duckkb.engine.index.repair import Repaired
from duckkb.queries import Receipt
from duckkb.review.check import findings
from duckkb.review.check.findings import CheckReport
from duckkb.review.health import examine
from duckkb.review.health.check import Check, Surroundings
from duckkb.review.health.examine import Health
from duckkb.review.merging import verify
from duckkb.settings import Settings
from duckkb.store.base_store import BaseStore
from duckkb.store.place import Place
from duckkb.truth.commit import lock
from duckkb.truth.git import repository
from duckkb.truth.merge.merge_rules import rules_of

__all__ = [
    "Check",
    "CheckReport",
    "Health",
    "JobOptions",
    "RepairOptions",
    "Repaired",
    "Surroundings",
    "check",
    "compact",
    "dedupe",
    "doctor",
    "fmt",
    "index_build",
    "index_plan",
    "index_refresh",
    "index_status",
    "is_being_written",
    "repair",
    "status",
    "status_unread",
]


def check(base: Base) -> CheckReport:
    """What is wrong with the files, with the team's cache, and with the merge that they are from, if HEAD is one."""
    survey.sample_caches(base)
    report = findings.check(base)
    merged = verify.findings(base.root, rules_of(base.ontology, base.settings.merge_granularity))
    return replace(report, findings=(*report.findings, *merged))


def fmt(base: Base, check_only: bool) -> Receipt:
    return care.fmt(base, check_only)


def dedupe(base: Base, reassign: bool, dry_run: bool) -> Receipt:
    return care.dedupe(base, reassign, dry_run)


def compact(base: Base, older_than: int, dry_run: bool) -> Receipt:
    return care.compact(base, older_than, dry_run)


def status(base: Base, trusted: bool) -> dict[str, Any]:
    """The base in a few words, the same keys always; `pending` and `stale` are None where it would take long to say."""
    known, holder = glance(base), lock.holder(base.root)
    return _facts(base.root, base.notes, base.settings, trusted, str(holder) if holder else None) | {
        "records": dict(base.report.records) | {kind.name: base.tree.count(kind) for kind in base.ontology},
        "pending": known.pending,
        "stale": None if known.is_fresh is None else not known.is_fresh,
        "read_only": base.report.read_only,
    }


def is_being_written(root: Path) -> bool:
    """Whether somebody holds the lock alone at this moment."""
    return lock.is_held(root)


def status_unread(root: Path, notes: BaseStore, settings: Settings, trusted: bool) -> dict[str, Any]:
    """As `status`, of a base that somebody is writing: who does, and what is known without its records."""
    return _facts(root, notes, settings, trusted, str(lock.holder(root) or "a process that does not say its name"))


def _facts(root: Path, notes: BaseStore, settings: Settings, trusted: bool, locked_by: str | None) -> dict[str, Any]:
    return {
        "root": str(root),
        "revision": repository.head_commit(root),
        "branch": repository.branch(root) or None,
        "records": None,
        "pending": None,
        "stale": None,
        "model": settings.embedding.model,
        "trust": trusted,
        "locked_by": locked_by,
        "read_only": None,
        "job": job_state.report(root, notes),
    }


def index_status(base: Base) -> dict[str, Any]:
    return survey.status(base)


def index_plan(base: Base) -> planning.Plan:
    return planning.plan(base, planning.survey(base))


def index_refresh(base: Base, options: JobOptions, listen: jobs.Listen) -> jobs.Built:
    return jobs.refresh(base, options, listen)


def index_build(base: Base, options: JobOptions, listen: jobs.Listen) -> jobs.Built:
    return jobs.build(base, options, listen)


def doctor(ground: Surroundings, on_check: Callable[[Check], None]) -> Health:
    return examine.examine(ground, on_check)


def repair(place: Place, options: RepairOptions, wire: Callable[[], Wiring]) -> Repaired:
    return repairing.repair(place, options, wire)
