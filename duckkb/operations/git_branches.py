"""Actions on branches, for a base that need not load since its configuration may be in conflict.

They are `propose`, a base whose writes become a commit on a branch of their own; merge, resolve, compact and
git's driver.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb import config
from duckkb.engine import repair
from duckkb.engine.base import Base, Proposal
from duckkb.merge import conflict_choices, git_drivers, git_merge
from duckkb.merge.conflict_choices import Resolved, ResolveOptions
from duckkb.merge.git_merge import MergeOptions, Outcome
from duckkb.merge.merge_check import find_broken_records, note_whole
from duckkb.merge.merge_conflicts import ConflictAnswer, OpenConflict, read_answers
from duckkb.operations.lifecycle import OpenOptions, Unopened
from duckkb.operations.record_lines import finding_line
from duckkb.review import verdict
from duckkb.storage import clone_state, git_changes, merge_rules, path_guard, repository, revisions
from duckkb.storage.git_changes import Branch
from duckkb.storage.merge_rules import RulesByTable
from duckkb.storage.revisions import Revision
from duckkb.types.errors import DuckkbError, Finding, NotFound, OntologyError, Refused
from duckkb.types.queries import Receipt
from duckkb.types.settings import Settings, Shrink


class Merge(Struct, frozen=True):
    """The result of a merge, and the rules that merged records break without a conflict."""

    outcome: Outcome
    violations: tuple[Finding, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not (self.outcome.conflicts or self.outcome.others or self.violations)


class Resolution(Struct, frozen=True):
    """What is left to resolve; once nothing is, the rules that merged records break."""

    left: Resolved
    violations: tuple[Finding, ...] = ()


def conflicts(base: Base, *, limit: int = 100, after: str = "") -> dict[str, Any]:
    """Return what `duckkb resolve --list --format json` prints.

    Raises as `resolve`; `errors.Refused` (E_FORBIDDEN) for callers who see a part of the base.
    """
    options = ResolveOptions(only_list=True, timeout=base.wiring.lock_timeout)
    return resolution_object(resolve(Unopened.from_base(base), options), limit, after)


def settle(
    base: Base,
    *,
    answers: Sequence[Mapping[str, Any]],
    stage: bool = False,
    limit: int = 100,
    allow_shrink: bool = False,
) -> dict[str, Any]:
    """Settle conflicts; return what `duckkb resolve --with-file --format json` prints.

    `answers` are the lines of the file.

    Raises as `resolve`.
    """
    around = Unopened.from_base(base)
    lines = "\n".join(json.dumps(dict(answer)) for answer in answers).encode()
    options = ResolveOptions(stage=stage, timeout=base.wiring.lock_timeout)
    resolution = resolve(around, options, lines, allow_shrink=allow_shrink, is_agent=base.wiring.env.agent)
    return resolution_object(resolution, limit)


def resolution_object(done: Resolution, limit: int, after: str = "") -> dict[str, Any]:
    """Return the open conflicts as a plain object.

    It has `limit` of them after the name `after`. Raises `errors.NotFound`.
    """
    remainder = done.left
    page_conflicts, following = page_of(remainder.conflicts, limit, after)
    paths = ("unreadable", "unstaged", "staged", "others", "files", "rescued")
    path_lists = {name: list(getattr(remainder, name)) for name in paths}
    open_now = {
        "conflicts": list(map(conflict_object, page_conflicts)),
        "total": len(remainder.conflicts),
        "next": following,
    }
    return {
        "operation": remainder.operation,
        **open_now,
        **path_lists,
        "violations": list(map(finding_line, done.violations)),
    }


def conflict_object(one: OpenConflict) -> dict[str, Any]:
    """Return a conflict as a plain object; `base`, `ours` and `theirs` are JSON source text.

    The identity is as records have it.
    """
    line = asdict(one)
    line["identity"] = line.pop("identity_value")
    return {"name": one.name} | line | {"etag": one.etag}


def page_of(held: Sequence[OpenConflict], limit: int, after: str) -> tuple[Sequence[OpenConflict], str | None]:
    """Return a page of conflicts, and the name after which to continue, if any. Raises `errors.NotFound`."""
    names = [conflict.name for conflict in held]
    if after and after not in names:
        raise NotFound(f"no open conflict is named {after}", suggestion="duckkb resolve --list")
    start = names.index(after) + 1 if after else 0
    end = start + limit
    return held[start:end], names[end - 1] if end < len(names) else None


def merge(unopened: Unopened, revision: str, options: MergeOptions, *, allow_shrink: bool = False) -> Merge:
    """Merge a revision into the checked-out branch, records by key; the base's limits hold unless `allow_shrink`.

    A result that `check` would refuse stays uncommitted. Raises `errors.StateError` (E_REVISION,
    E_MERGE_IN_PROGRESS) and `errors.Refused` (E_SHRINK) before anything has begun.
    """
    root = unopened.root
    limit = None if allow_shrink else _load_rules(root)[1]
    options = replace(options, shrink=limit)
    outcome = git_merge.merge(root, revision, partial(rules_at, root), options)
    if outcome.action == "up-to-date":
        return Merge(outcome)
    with ExitStack() as stack:
        head = repository.head_commit(root) or ""
        base, violations = _open_and_check(stack, unopened, options.timeout)
        if options.commit and outcome.can_conclude and not any(finding.is_error for finding in violations):
            outcome = git_merge.conclude(root, outcome, options)
            head = outcome.commit
        if base is not None and not violations:
            note_whole(base, head)
        return Merge(outcome, violations)


def abort(unopened: Unopened, lock_timeout: float) -> Merge:
    """Abort a merge. Raises `errors.Refused` where none is under way."""
    return Merge(git_merge.abort(unopened.root, lock_timeout))


def answers_file(root: Path, file: "str | Path") -> bytes:
    """Return the bytes of a file with answers; raises `errors.UsageError` (E_PATH)."""
    return path_guard.regular(file, root, config.read_environment(root), "a file with answers").read_bytes()


def resolve(
    unopened: Unopened,
    options: ResolveOptions,
    answers: bytes = b"",
    *,
    judged: bool = False,
    allow_shrink: bool = False,
    is_agent: bool | None = None,
) -> Resolution:
    """Settle chosen conflicts of a merge, rebase, pick, revert or stash, and report what is open.

    `answers` are JSON lines as for `read_answers`. Violations are reported once the last conflict is settled;
    with `judged`, whenever none is open, and problems of the ontology even before. The environment says whether
    an agent answers, unless `is_agent` does.

    Raises `errors.NotFound` for a choice that names no conflict, `errors.Conflict` (E_STALE) for an answer to a
    conflict that has changed, `errors.Refused` (E_SHRINK) where the merge deletes more than it may, and
    `errors.Refused` (E_REVIEW) for values that an agent gives where the ontology requires review.
    """
    rules, limit, depth = _load_rules(unopened.root)
    options = replace(options, answers=read_answers(answers, depth), shrink=None if allow_shrink else limit)
    if config.plain_around(unopened.root).agent if is_agent is None else is_agent:
        _refuse_agents(unopened.root, options.answers)
    remainder = conflict_choices.resolve(unopened.root, rules, options)
    is_over = remainder.is_done and (judged or (not options.only_list and bool(remainder.files)))
    if not is_over:
        return Resolution(remainder, _check_ontology(unopened.root) if judged else ())
    return Resolution(remainder, _collect_violations(unopened, options.timeout))


def _refuse_agents(root: Path, answers: Sequence[ConflictAnswer]) -> None:
    """Refuse values given by agents where the ontology requires review.

    A value of a side was reviewed, or will be, with its branch; a new value was not. Where the ontology does
    not load, everything needs review.
    """
    type_names = sorted({answer.type for answer in answers if answer.side is None})
    if not type_names:
        return
    try:
        ontology = config.load(root, config.plain_around(root)).ontology
    except OntologyError:
        ontology = None
    for name in type_names:
        kind = ontology.find(name) if ontology is not None else None
        if ontology is None or (kind is not None and (kind.review or kind.reviewed_fields)):
            raise Refused(
                f"changes of {name} need a review: an agent can only choose a side here",
                code="E_REVIEW",
                suggestion="choose ours, theirs or base, and propose the rest",
            )


def page(resolution: Resolution) -> Iterator[str]:
    """Yield the HTML page on which the open conflicts are settled, piece by piece."""
    from duckkb.merge import conflict_choices

    return conflict_choices.render(resolution.left, resolution.violations)


def refuse_place(root: Path, named: "str | Path") -> None:
    """Raise `errors.UsageError` (E_PATH) where `save_page` would refuse to write."""
    path_guard.writable(named, root, config.read_environment(root))


def save_page(root: Path, named: "str | Path", resolution: Resolution, *, force: bool) -> None:
    """Write `page` to a file. Raises `errors.UsageError` (E_PATH)."""
    pieces = (piece.encode() for piece in page(resolution))
    path_guard.write(named, pieces, root, config.read_environment(root), force=force)


def git_install(root: Path) -> list[str]:
    """Set up git in this clone to merge and show parts by records; return what was changed."""
    return git_drivers.install(root, rules_at(root))


def git_check(root: Path) -> list[git_drivers.Fact]:
    """Return the facts on whether git merges and shows parts by records here."""
    return git_drivers.check(root, rules_at(root))


def compact(unopened: Unopened, older_than: int, dry_run: bool, lock_timeout: float) -> Receipt:
    """Join small parts of days at least `older_than` days ago.

    Raises `errors.Refused` where another branch touches them.
    """
    with unopened.open_base(OpenOptions(lock_timeout=lock_timeout)) as base:
        return repair.compact(base, older_than, dry_run)


def rules_at(root: Path) -> RulesByTable:
    """Return the merge rules of the ontology, or those it last had where it does not load.

    Last rules that came with the clone are not used.
    """
    return _load_rules(root)[0]


def _load_rules(root: Path) -> tuple[RulesByTable, Shrink, int]:
    """Return how records are merged, how many may be deleted, and how deep they may nest."""
    try:
        configuration = config.load(root, config.read_environment(root))
    except OntologyError:
        return (
            RulesByTable() if repository.tracks_state(root) else merge_rules.load(root),
            Shrink(),
            Settings().max_depth,
        )
    settings = configuration.settings
    return merge_rules.rules_of(configuration.ontology, settings.merge_granularity), settings.shrink, settings.max_depth


def _check_ontology(root: Path) -> tuple[Finding, ...]:
    try:
        config.load(root, config.read_environment(root))
    except OntologyError as problem:
        return tuple(problem.findings)
    return ()


def _collect_violations(closed_base: Unopened, lock_timeout: float) -> tuple[Finding, ...]:
    head = repository.head_commit(closed_base.root) or ""
    with ExitStack() as stack:
        base, violations = _open_and_check(stack, closed_base, lock_timeout)
        if base is not None and not violations:
            note_whole(base, head)
        return violations


def _open_and_check(
    stack: ExitStack, closed_base: Unopened, lock_timeout: float
) -> tuple[Base | None, tuple[Finding, ...]]:
    """Return the base, open until the stack is closed, and its violations; None for a base that cannot be opened."""
    try:
        base = stack.enter_context(closed_base.open_base(OpenOptions(lenient=True, lock_timeout=lock_timeout)))
        return base, find_broken_records(base)
    except OntologyError as problem:
        return None, tuple(problem.findings)
    except DuckkbError as problem:
        return None, (Finding(problem.code, problem.message, remedy=problem.suggestion),)


class Wish(Struct, frozen=True):
    """A proposal's options: its `branch`, start and message.

    `branch` None means a generated name. `base` is the revision to start from; None means the branch's own tip
    where it is ahead of HEAD, else HEAD. `goes_on` allows adding to any existing branch; without it, only to a
    branch that this clone proposed.
    """

    title: str
    branch: str | None = None
    base: str | None = None
    message: str = ""
    goes_on: bool = False


class Proposed(Struct):
    """A proposal being made; `commit` is empty until there is something to propose."""

    branch: str
    base: str
    commit: str = ""
    push: str = ""
    url: str = ""
    files: tuple[str, ...] = ()

    @property
    def line(self) -> dict[str, Any]:
        """The proposal's part of a receipt: both values null where nothing differed."""
        if not self.commit:
            return {"branch": None, "commit": None}
        opening = {key: text for key, text in (("push", self.push), ("open", self.url)) if text}
        return {"branch": self.branch, "commit": self.commit, "base": self.base, **opening}


class Proposing:
    """A base at a revision whose writes are kept as commits on a branch.

    Open it with `opening` to write; `proposed` then says where.
    """

    def __init__(self, root: Path, wish: Wish) -> None:
        from secrets import token_hex

        self._root, self._wish = root, wish
        verb, _, subject = wish.title.partition(" ")
        name = wish.branch if wish.branch is not None else verdict.branch_name(verb, subject, token_hex(3))
        self._target: Branch = git_changes.branch(self._root, name)
        self._remote = verdict.remote(self._root)
        self._writer = config.read_environment(self._root).writer or clone_state.clone_id(self._root)
        self._parent: Revision = self._start()
        self.proposed = Proposed(name, self._parent.commit)

    def build_open_options(self, *, lenient: bool = False) -> OpenOptions:
        """Return the options that open the base to write to."""
        return OpenOptions(lenient, at=self._parent.commit, proposal=Proposal(self._target.name, self._keep))

    def _start(self) -> Revision:
        """Return the revision that the first commit builds on."""
        name, base = self._target.name, self._wish.base
        pushed_tip = git_changes.find_pushed_revision(self._root, self._remote.name, name) if self._remote else None
        tip = self._target.tip or pushed_tip
        if tip is not None:
            self._refuse_anothers(tip)
        elif self._wish.goes_on:
            raise NotFound(f"no branch {name} to continue", suggestion="leave out --continue to create it")
        start = revisions.revision(self._root, base or "HEAD")
        if tip and not base and not git_changes.contains(self._root, start, tip):
            start = tip
        self._refuse_to_lose(start, (self._target.tip, pushed_tip))
        return start

    def _refuse_anothers(self, tip: Revision) -> None:
        name = self._target.name
        if not self._wish.goes_on and not git_changes.is_made_by(self._root, self._writer, name, tip):
            raise Refused(
                f"the branch {name} ({tip.name}, {tip.short}) exists, and its last commit was not proposed from here",
                suggestion=f"propose on another branch, or add to it: duckkb propose --continue --branch {name} ...",
            )

    def _refuse_to_lose(self, start: Revision, tips: tuple[Revision | None, ...]) -> None:
        """Refuse where a commit of the branch, here or at its remote, would be lost."""
        for tip in tips:
            if tip is not None and not git_changes.contains(self._root, start, tip):
                mend = "leave out --base" if self._wish.base else f"git branch -f {self._target.name} {tip.name}"
                raise Refused(
                    f"{tip.name} has commits that {start.name} lacks, and they would be lost",
                    suggestion=f"{mend}, or propose on another branch",
                )

    def _keep(self, files: Mapping[str, bytes | None]) -> None:
        message = self._wish.message or f"{self._wish.title}\n\nProposed by duckkb propose.\n"
        commit = git_changes.commit(self._root, self._target, self._parent, files, message, self._writer)
        self._parent = revisions.revision(self._root, commit)
        self._target = Branch(self._target.name, self._parent)
        opening = verdict.build_opening(self._remote, self._target.name, repository.branch(self._root))
        self.proposed.commit, self.proposed.files = commit, tuple(sorted(files))
        self.proposed.push, self.proposed.url = opening.push, opening.url
