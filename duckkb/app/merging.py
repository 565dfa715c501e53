"""merge, resolve and git's driver: on a base that need not load, as its configuration may itself be in conflict."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from duckkb import config
from duckkb.actions import merging
from duckkb.app.knowledge import KnowledgeBase
from duckkb.app.wiring import Choice, find
from duckkb.errors import DuckkbError, Finding, OntologyError
from duckkb.queries import Receipt
from duckkb.settings import Settings, Shrink
from duckkb.truth.commit import outside
from duckkb.truth.git import repository
from duckkb.truth.merge import merge_rules
from duckkb.truth.merge.merge_rules import RulesByTable
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Merge:
    """What came of a merge, and what the merged records break without being in conflict."""

    outcome: merging.Outcome
    violations: tuple[Finding, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not (self.outcome.conflicts or self.outcome.others or self.violations)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is left to resolve; where nothing is, what the merged records break."""

    left: merging.Resolved
    violations: tuple[Finding, ...] = ()


def merge(
    path: "str | Path | None" = None,
    revision: str = "",
    *,
    fast_forward: Literal["only", "never"] | None = None,
    commit: bool = True,
    message: str | None = None,
    lock_timeout: float = 60.0,
    allow_shrink: bool = False,
) -> Merge:
    """Merge a revision into what is checked out, records by key. Raises `errors.StateError` (E_REVISION,
    E_MERGE_IN_PROGRESS) and `errors.Refused` (E_SHRINK unless that is allowed) where nothing was begun."""
    root = find(path)
    rules, limit, _ = _said_at(root)
    options = merging.MergeOptions(fast_forward, commit, message, lock_timeout, None if allow_shrink else limit)
    outcome = merging.merge(root, revision, rules, options)
    is_changed = outcome.action in ("fast-forward", "merged", "stopped")
    return Merge(outcome, _violations(root, lock_timeout) if is_changed and not outcome.conflicts else ())


def abort(path: "str | Path | None" = None, *, lock_timeout: float = 60.0) -> Merge:
    """Take a merge back. Raises `errors.Refused` where none is under way."""
    return Merge(merging.abort(find(path), lock_timeout))


def answers_file(path: "str | Path | None", file: "str | Path") -> bytes:
    """The bytes of a file with answers; raises `errors.UsageError` (E_PATH)."""
    root = find(path)
    return outside.regular(file, root, config.around(root), "a file with answers").read_bytes()


def resolve(
    path: "str | Path | None" = None,
    *,
    choices: Sequence[merging.SideChoice] = (),
    answers: bytes = b"",
    only_list: bool = False,
    stage: bool = False,
    judged: bool = False,
    lock_timeout: float = 60.0,
    allow_shrink: bool = False,
) -> Resolution:
    """Settle what is chosen of a merge, rebase, pick, revert or stash, and say what is open. `answers` are JSON lines as
    for `merging.read_answers`. The violations are told where this has settled the last conflict; with `judged` whenever none
    is open, and what is wrong with the ontology also before. Raises `errors.NotFound` for a choice that names no conflict,
    `errors.Conflict` (E_STALE) for an answer to one that is another by now, and `errors.Refused` (E_SHRINK) where the merge
    deletes more than it may."""
    root = find(path)
    rules, limit, depth = _said_at(root)
    options = merging.ResolveOptions(
        choices, merging.read_answers(answers, depth), only_list, stage, lock_timeout, None if allow_shrink else limit
    )
    left = merging.resolve(root, rules, options)
    is_over = left.is_done and (judged or (not only_list and bool(left.files)))
    if not is_over:
        return Resolution(left, _of_ontology(root) if judged else ())
    return Resolution(left, _violations(root, lock_timeout))


def page(resolution: Resolution) -> Iterator[str]:
    """The HTML page on which what is open is settled, piece by piece."""
    return merging.page(resolution.left, resolution.violations)


def refuse_place(path: "str | Path | None", named: "str | Path") -> None:
    """Raise `errors.UsageError` (E_PATH) where `save_page` would not write."""
    root = find(path)
    outside.writable(named, root, config.around(root))


def save_page(path: "str | Path | None", named: "str | Path", resolution: Resolution, *, force: bool) -> None:
    """Write `page` to a file. Raises `errors.UsageError` (E_PATH)."""
    root = find(path)
    pieces = (piece.encode() for piece in page(resolution))
    outside.write(named, pieces, root, config.around(root), force=force)


def git_install(path: "str | Path | None" = None) -> list[str]:
    """Have git in this clone merge and show parts by records; returns what was changed."""
    root = find(path)
    return merging.install.install(root, rules_at(root))


def git_uninstall(path: "str | Path | None" = None) -> list[str]:
    """Have git merge and show parts by lines again; returns what was changed."""
    return merging.install.uninstall(find(path))


def git_check(path: "str | Path | None" = None) -> list[merging.Fact]:
    """Whether git merges and shows parts by records here."""
    root = find(path)
    return merging.install.check(root, rules_at(root))


def compact(
    path: "str | Path | None" = None, *, older_than: int, dry_run: bool = False, lock_timeout: float = 60.0
) -> Receipt:
    """Join the small parts of days at least so many days ago. Raises `errors.Refused` where another branch touches them."""
    from duckkb.actions import caring

    with KnowledgeBase(find(path), Choice(lock_timeout=lock_timeout)) as kb, kb._in_turn() as base:
        return caring.compact(base, older_than, dry_run)


def rules_at(root: Path) -> RulesByTable:
    """As the ontology says; as it last said where it does not load, unless that came with the clone."""
    return _said_at(root)[0]


def _said_at(root: Path) -> tuple[RulesByTable, Shrink, int]:
    """How records are merged, how many may go, and how deep they may nest."""
    try:
        loaded = config.load(root, config.around(root))
    except OntologyError:
        return (
            RulesByTable() if repository.tracks_state(root) else merge_rules.load(root),
            Shrink(),
            Settings().max_depth,
        )
    said = loaded.settings
    return merge_rules.rules_of(loaded.ontology, said.merge_granularity), said.shrink, said.max_depth


def _of_ontology(root: Path) -> tuple[Finding, ...]:
    try:
        config.load(root, config.around(root))
    except OntologyError as problem:
        return tuple(problem.findings)
    return ()


def _violations(root: Path, lock_timeout: float) -> tuple[Finding, ...]:
    commit = repository.head_commit(root) or ""
    try:
        with KnowledgeBase(root, Choice(lenient=True, lock_timeout=lock_timeout)) as kb, kb._in_turn() as base:
            return merging.broken(base, commit)
    except OntologyError as problem:
        return tuple(problem.findings)
    except DuckkbError as problem:
        return (Finding(problem.code, problem.message, remedy=problem.suggestion),)
