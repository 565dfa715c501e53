"""`check`: everything that is wrong in data/, each finding with a rule id, its place and a remedy."""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.engine import guard
from duckkb.engine.base import Base
from duckkb.errors import Finding
from duckkb.rules import integrity
from duckkb.truth import layout
from duckkb.truth.git import absent, begun_merge, repository, run

_MOST_KEPT = 100_000


class CheckReport(Struct, frozen=True):
    """The findings of a check, in the order of path, line and rule, over `records` records.

    `prefix` is the folder of the base inside its repository, with a final `/`, or empty. `is_judged`: every
    rule was checked.
    """

    findings: tuple[Finding, ...]
    records: int
    prefix: str = ""
    is_judged: bool = True

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def check(base: Base) -> CheckReport:
    """Check the whole tree against every rule, and report faults of the caches. Changes nothing."""
    git_repository = run.find_repository(base.root)
    merge_state = begun_merge.read_begun_merge(base.root)
    halfway = [Finding("E_MERGE_IN_PROGRESS", begun_merge.WHAT, remedy=begun_merge.REMEDY)] if merge_state else []
    report = check_records_alone(
        base, [*halfway, *absent.findings(base.root), *base.cache.findings, *_find_large_caches(base)]
    )
    return replace(report, prefix=git_repository.prefix if git_repository else "")


def check_records_alone(base: Base, besides: Iterable[Finding] = ()) -> CheckReport:
    """Check as `check` does, the files of records alone."""
    findings = [*besides, *base.tree.findings, *base.tree.unreadable, *_check_rules(base)]
    return CheckReport(sort_findings(findings), sum(base.tree.count(kind) for kind in base.ontology))


def _check_rules(base: Base) -> Iterable[Finding]:
    """Return the findings of all rules.

    A generation never changes, so it is checked once for all callers: a million records take half a minute.
    """
    if not base.is_generation:
        return integrity.findings(guard.view(base))
    cached_findings, cache_key = base.whole.checked, (base.is_narrowed, frozenset(kind.name for kind in base.ontology))
    if cache_key not in cached_findings:
        findings = tuple(integrity.findings(guard.view(base)))
        if len(findings) > _MOST_KEPT:
            return findings
        cached_findings[cache_key] = findings
    return cached_findings[cache_key]


def _find_large_caches(base: Base) -> Iterator[Finding]:
    for path in base.cache.team_paths():
        size = (base.root / path).lstat().st_size
        if size > layout.LFS_BYTES and (repository.attributes(base.root, path) or {}).get("filter") != "lfs":
            message = f"{size / 1e6:,.0f} MB, which git keeps whole each time that it changes"
            yield Finding("W_CACHE_SIZE", message, path, remedy=CODES["W_CACHE_SIZE"].remedy)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, in the order of path, line and rule."""
    return tuple(
        sorted(
            set(findings),
            key=lambda finding: (finding.path, finding.line, finding.code, finding.field, finding.message),
        )
    )
