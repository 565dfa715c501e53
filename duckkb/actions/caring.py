"""check, fmt, dedupe, status, index, doctor, repair: the care of a base."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from duckkb.engine import care, index
from duckkb.engine import repair as repairing
from duckkb.engine.base import Base, Wiring
from duckkb.engine.repair import Options as RepairOptions
from duckkb.engine.repair import Repaired
from duckkb.queries import Receipt
from duckkb.review import findings
from duckkb.review.findings import CheckReport
from duckkb.review.health import examine
from duckkb.review.health.check import Check, Ground
from duckkb.review.health.examine import Health
from duckkb.truth import history, lock

__all__ = [
    "Check",
    "CheckReport",
    "Ground",
    "Health",
    "RepairOptions",
    "Repaired",
    "check",
    "dedupe",
    "doctor",
    "fmt",
    "index_build",
    "index_status",
    "repair",
    "status",
]


def check(base: Base) -> CheckReport:
    return findings.check(base)


def fmt(base: Base, check_only: bool) -> Receipt:
    return care.fmt(base, check_only)


def dedupe(base: Base, reassign: bool, dry_run: bool) -> Receipt:
    return care.dedupe(base, reassign, dry_run)


def status(base: Base, trusted: bool) -> dict[str, Any]:
    """The base in a few words: a flat object, the same keys always."""
    counted = index.status(base)
    holder = lock.holder(base.root)
    return {
        "root": str(base.root),
        "revision": history.head_commit(base.root),
        "branch": history.branch(base.root) or None,
        "records": dict(base.report.records) | {kind.name: base.tree.count(kind) for kind in base.ontology},
        "pending": counted["pending"],
        "stale": not counted["fresh"],
        "model": counted["model"],
        "trust": trusted,
        "locked_by": str(holder) if holder else None,
        "read_only": base.report.read_only,
    }


def index_status(base: Base) -> dict[str, Any]:
    return index.status(base)


def index_build(base: Base) -> index.Built:
    return index.build(base)


def doctor(ground: Ground, on_check: Callable[[Check], None]) -> Health:
    return examine.examine(ground, on_check)


def repair(root: Path, state_home: Path, options: RepairOptions, wire: Callable[[], Wiring]) -> Repaired:
    return repairing.repair(root, state_home, options, wire)
