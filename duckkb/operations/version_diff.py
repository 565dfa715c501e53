"""The action diff: two versions of a base, opened or not since it may be broken, and the branches to review."""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb import config
from duckkb.engine.base import Base
from duckkb.engine.scoped_base import NarrowedBase, forbidden, part_of
from duckkb.ontology.model import RecordType
from duckkb.operations.lifecycle import OpenOptions, Unopened
from duckkb.review.change_findings import findings_of, trees
from duckkb.review.compared_versions import Comparison, Described, Files, Range, parse_range
from duckkb.review.diff_model import Counts, Diff, Numbers, RecordChange
from duckkb.review.record_changes import Types
from duckkb.review.report_markup import ForgeLinks
from duckkb.review.verdict import remote
from duckkb.storage import git_facts, repository, revisions
from duckkb.storage.line import Limits
from duckkb.storage.tree import Tree
from duckkb.types.errors import DuckkbError, FilterError, NotFound, StateError, UsageError, shell_word

if TYPE_CHECKING:
    from duckkb.review.change_findings import CheckReport
    from duckkb.types.errors import Finding


class DiffRequest(Struct, frozen=True):
    """A comparison: its versions, what of it is reported, and how it is judged.

    `only` names types or records (`TYPE`, `TYPE:IDENTITY`; none: all). Records that differ only in `ignore`
    fields are left out. With `whole` both versions are checked against every rule, and the files that a gate
    rests on are compared; otherwise findings are those of the touched files. `allow_weaker`: removed rules are
    not errors. `allow_shrink`: mass deletions are meant. `where` is a filter that a record satisfies in one of
    the versions. `ops` limits the kinds of change (none: all), and then there are no findings.
    """

    range: Range
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    whole: bool = False
    allow_weaker: bool = False
    allow_shrink: bool = False
    where: str = ""
    ops: tuple[str, ...] = ()


Matching = Callable[[Tree, RecordType, str], Container[int]]
"""The ids of a type's records in a tree that satisfy a filter; raises `errors.FilterError`."""
_OfType = Callable[[Tree, RecordType], Container[int]]
_Opener = Callable[[], AbstractContextManager[Base]]


def diff(unopened: Unopened, wanted: DiffRequest) -> Diff:
    """Compare two versions of a base. As `app.diff`."""
    return _diff(unopened.root, wanted, unopened.matching, opener=_make_opener(unopened))


def _make_opener(closed_base: Unopened) -> _Opener:
    """Return a function that opens the base when its vectors are asked for."""
    return lambda: closed_base.open_base(OpenOptions(lenient=True))


def diff_of(base: Base, wanted: DiffRequest, matching: Matching | None = None, *, is_of_branch: bool = False) -> Diff:
    """Compare two versions of an open base, as `diff`.

    Callers who see a part get the changes of its records since HEAD, or on a branch (`is_of_branch`: the range
    comes from `range_of`), and no commit. For them any other range, and what rules say of the whole, is refused
    (`errors.Refused`, E_FORBIDDEN).
    """
    if (part := part_of(base)) is None:
        return _diff(base.root, wanted, matching, opener=lambda: nullcontext(base))
    if (wanted.range != parse_range(None) and not is_of_branch) or wanted.whole:
        raise forbidden("callers who see only a part of the base may only compare with HEAD")
    difference = _diff(part.whole.root, wanted, matching, part.types)
    return replace(
        difference, base=replace(difference.base, commit=""), head=replace(difference.head, commit=""), prefix=""
    )


def diff_object(
    base: Base,
    range: str | None = None,
    *,
    branch: str | None = None,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    ops: Sequence[Literal["insert", "update", "rename", "delete"]] = (),
    budget: int = 1_000_000,
    after: str = "",
) -> dict[str, Any]:
    """Return what `duckkb diff --format json` prints: HEAD against the files, a range, or what a branch brings.

    A branch is compared from where it parted from HEAD. The answer takes at most `budget` bytes, starting at
    the cursor `after`. Raises as `diff` and `range_of`.
    """
    import json
    import shlex

    from duckkb.review.diff_model import DiffOptions
    from duckkb.review.diff_report import iter_json

    range = range_of(base, range, branch)
    request = DiffRequest(parse_range(range), tuple(only), tuple(ignore), ops=tuple(ops))
    difference = diff_of(base, request, is_of_branch=branch is not None)
    before = [
        "duckkb",
        "diff",
        *([range] if range else []),
        "--format",
        "json",
        *(f"--ignore={name}" for name in ignore),
        *(f"--op={name}" for name in ops),
    ]
    names = ["--", *only] if only else []
    options = DiffOptions(
        budget=budget, after=after, again=lambda more: shlex.join([*before, *more.split(" "), *names])
    )
    answer: dict[str, Any] = json.loads("".join(iter_json(difference, options)))
    return answer


def range_of(base: Base, range: str | None, branch: str | None) -> str | None:
    """Return the given range, or the range of all that a `branch` has and HEAD has not.

    Raises `errors.UsageError` for both at once, `errors.StateError` (E_REVISION) for an unknown branch. For
    callers who see a part, raises `errors.NotFound` also for a branch that changes nothing of that part.
    """
    if branch is None:
        return range
    if range is not None:
        raise UsageError("give a range or a branch, not both", suggestion="leave out one of them")
    if (part := part_of(base)) is not None:
        if branch not in _find_visible_branches(part):
            raise _report_missing_branch(branch)
        return _format_branch_range(part.whole.root, branch)
    return _format_branch_range(base.root, branch)


def hint_of_undone(root: Path, range: str | None, verb: str) -> str:
    """Return a hint where a single name has commits that HEAD has not; else an empty text.

    Compared with the files they would look undone; the hint has the command that shows what they bring.
    """
    parsed_range = parse_range(range)
    if range is None or parsed_range.against != "worktree":
        return ""
    try:
        revision, head = revisions.revisions(root, parsed_range.base, "HEAD")
        count = revisions.commits_between(root, head, revision) if revision.commit and head.commit else 0
    except DuckkbError:
        return ""
    commits = "a commit" if count == 1 else f"{count:,} commits"
    here = repository.branch(root) or "HEAD"
    message = f"{range} is compared with the current files ({here}), and has {commits} that HEAD lacks, which appear as undone"
    return f"{message}; to see its changes: duckkb {verb} {shell_word(f'HEAD...{range}')}" if count else ""


def numbers(root: Path, range: str | None = None, *, staged: bool = False, worktree: bool = False) -> Numbers:
    """Return the difference in numbers, in a fraction of the time: no value is compared.

    Findings are those of unreadable lines only. Raises as `diff` does.
    """
    parsed_range = parse_range(range, staged=staged, worktree=worktree)
    return _compare_versions(root, parsed_range).numbers()


def branches_object(base: Base, *, branch: str | None = None, limit: int = 20, after: str = "") -> dict[str, Any]:
    """Return the branches to review, as `to_review`.

    Callers who see a part get the branches that change something of it, by name, with the number of changed
    records. Author and time of the last commit may concern other records, and are left out.
    """
    if (part := part_of(base)) is None:
        return to_review(base.root, branch, limit=limit, after=after)
    visible_branches = _find_visible_branches(part)
    names = sorted(visible_branches)
    for name in filter(None, (branch, after)):
        if name not in visible_branches:
            raise _report_missing_branch(name)
    behind = names[names.index(after) + 1 :] if after else names
    page_names = behind[:limit] if branch is None else [branch]
    blank = dict.fromkeys(("commit", "author", "date", "subject"), "") | {"is_proposal": False}
    return {
        "head": {"name": "HEAD", "commit": None},
        "operation": None,
        "uncommitted": _count_changes(part.whole.root, None, part.types) if branch is None else None,
        "branches": [{"name": name, **blank, "records": visible_branches[name]} for name in page_names],
        "next": page_names[-1] if branch is None and len(behind) > limit else None,
    }


def _find_visible_branches(part: NarrowedBase) -> dict[str, Counts]:
    """Return the branches that change visible records, each with its counts."""
    root = part.whole.root
    counts_by_name = {
        tip.name: _count_changes(root, _format_tip_range(tip), part.types) for tip in git_facts.ahead(root)
    }
    return {name: counts for name, counts in counts_by_name.items() if counts}


def _format_branch_range(root: Path, name: str) -> str:
    return f"HEAD...{git_facts.resolve_branch(root, name).name}"


def _format_tip_range(tip: git_facts.BranchTip) -> str:
    """Return the range that a branch brings, by its commit: git allows names that no range can hold."""
    return f"HEAD...{tip.commit}"


def _count_changes(root: Path, range: str | None, types: frozenset[str] | None = None) -> Counts | None:
    """Count the changed records of these types (None: all) by type and kind of change; None where that is unknown."""
    with suppress(DuckkbError):
        parsed_range = parse_range(range)
        ends = _find_ends(root, parsed_range)
        return (
            _compare_versions(root, parsed_range, types).numbers().counts
            if ends is None
            else _count_between_commits(root, parsed_range, ends, types)
        )
    return None


@lru_cache(maxsize=256)
def _count_between_commits(root: Path, range: Range, ends: tuple[str, ...], types: frozenset[str] | None) -> Counts:
    return _compare_versions(root, range, types).numbers().counts


def _find_ends(root: Path, range: Range) -> tuple[str, ...] | None:
    """Return the commits that are compared; None where files or the index are."""
    if range.against != "commit":
        return None
    commits = tuple(revision.commit for revision in revisions.revisions(root, range.base, range.head))
    return commits if all(commits) else None


def links_of(root: Path, base: str, head: str) -> ForgeLinks | None:
    """Return the links by which a forge shows two commits (in hex, empty for none); None without a known forge.

    The forge is that of the job, or the clone's remote for commits that a branch of the remote has.
    """
    if page := config.forge_page():
        return ForgeLinks(page, base, head)
    where = remote(root)
    if where is None or not where.host:
        return None
    pushed_commits = [commit if commit and git_facts.is_pushed(root, commit) else "" for commit in (base, head)]
    return ForgeLinks.from_host(where.host, where.path, *pushed_commits) if any(pushed_commits) else None


def _compare_versions(root: Path, range: Range, types: frozenset[str] | None = None) -> Comparison:
    comparison = Comparison.load(root, range, configuration_files(root))
    return comparison if types is None else comparison.narrow(types)


def _report_missing_branch(name: str) -> NotFound:
    return NotFound(f"no branch {name!r} here has changes that HEAD lacks", suggestion="duckkb branches")


def to_review(root: Path, branch: str | None = None, *, limit: int = 20, after: str = "") -> dict[str, Any]:
    """Return the branches with commits that HEAD has not, the newest first (`branch`: only that branch).

    Each has the number of changed records by type and kind of change, null where unknown. Also returns what is
    `uncommitted` in the files, and the unfinished git operation. Raises `errors.NotFound` where `branch` or
    `after` has nothing of its own.
    """
    tips = git_facts.ahead(root)
    names = [tip.name for tip in tips]
    for name in filter(None, (branch, after)):
        if name not in names:
            raise _report_missing_branch(name)
    start = names.index(after) + 1 if after else 0
    page_tips = tips[start : start + limit] if branch is None else [tip for tip in tips if tip.name == branch]

    return {
        "head": {"name": repository.branch(root) or "HEAD", "commit": repository.head_commit(root)},
        "operation": repository.operation_in_progress(root),
        "uncommitted": _count_changes(root, None) if branch is None else None,
        "branches": [{**asdict(tip), "records": _count_changes(root, _format_tip_range(tip))} for tip in page_tips],
        "next": page_tips[-1].name if branch is None and page_tips and names[-1] != page_tips[-1].name else None,
    }


def check_change(
    unopened: Unopened,
    since: str | None,
    *,
    staged: bool,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
) -> "CheckReport":
    """Return the findings that a change brings, or that concern its records.

    The change is that of the working tree (`staged`: the index) since it parted from a revision, or a range
    BASE..HEAD or BASE...HEAD. Raises as `diff` does.
    """
    range = parse_range(since, staged=staged)
    if range.against != "commit" and since is not None:
        range = replace(range, since_parting=True)
    return _report(diff(unopened, DiffRequest(range, whole=True, allow_weaker=allow_weaker, allow_shrink=allow_shrink)))


def check_since(base: Base, since: str | None, branch: str | None) -> "CheckReport":
    """Check a change of an open base, as `check_change`.

    Callers who see a part get the findings of the files that a branch touches. Raises as `range_of` and
    `diff_of`, too.
    """
    range = parse_range(range_of(base, since, branch))
    if part_of(base) is not None:
        return _report(diff_of(base, DiffRequest(range), is_of_branch=branch is not None))
    range = range if range.against == "commit" else replace(range, since_parting=True)
    return _report(diff_of(base, DiffRequest(range, whole=True)))


def _report(difference: Diff) -> "CheckReport":
    from duckkb.review.change_findings import CheckReport

    return CheckReport(difference.findings, len(difference.changes), difference.prefix, difference.is_judged)


def _check_merge(root: Path, range: Range, difference: Diff) -> "Sequence[Finding]":
    """Return findings where git's result differs from a merge by records.

    Only where the newest commit of the change is a merge, pick or revert.
    """
    if range.against == "index":
        return ()
    from duckkb.merge import merge_check
    from duckkb.operations.git_branches import rules_at

    commit = revisions.revision(root, range.head or "HEAD").commit
    return merge_check.findings(root, rules_at(root), commit) if commit and commit != difference.base.commit else ()


def _find_by_vector(opener: _Opener, range: Range, difference: Diff) -> "Sequence[Finding]":
    """Return findings on new records that mean the same as others, as far as vectors are cached.

    Returns nothing while truth itself is in doubt.
    """
    if (
        range.against != "worktree"
        or any(item.is_error for item in difference.findings)
        or not any(item.op == "insert" for item in difference.changes)
    ):
        return ()
    from duckkb.review.change_findings import near_by_vector

    with opener() as base:
        return tuple(near_by_vector(base, difference))


def configuration_files(root: Path) -> Files:
    """Return a reader of a base's configuration as it was in another version."""
    env = config.read_environment(root)

    def load(instead: Mapping[str, bytes | None]) -> Described:
        configuration = config.load(root, env, instead)
        limits = Limits(configuration.settings.max_record_bytes, configuration.settings.max_depth)
        return Described(configuration.ontology, limits, configuration.documents, configuration.settings.shrink)

    return Files(lambda: config.paths(root), load)


def _diff(
    root: Path,
    request: DiffRequest,
    matching: Matching | None = None,
    types: frozenset[str] | None = None,
    opener: _Opener | None = None,
) -> Diff:
    """Compare two versions, each side read by its own ontology.

    `matching` serves `where`; `types` are the visible types. Raises `errors.StateError` (E_REVISION, E_GIT,
    E_UNKNOWN_TYPE), `errors.Unavailable` (E_GIT), `errors.OntologyError` where no side's configuration loads,
    `errors.FilterError` for a filter that is invalid for a changed type.
    """
    is_plain = request == DiffRequest(request.range, request.only, request.ignore, ops=request.ops)
    if is_plain and (ends := _find_ends(root, request.range)) is not None:
        known_types, difference = _diff_commits(root, request.range, ends, types)
        targets = _parse_targets(request.only, known_types)
    else:
        comparison = _compare_versions(root, request.range, types)
        targets = _parse_targets(request.only, comparison.types)
        difference = _collect_changes(comparison, request, opener)
    if targets or request.ignore:
        difference = _limit_to_targets(_ignore_fields(difference, frozenset(request.ignore)), targets)
    if request.ops:
        changes = tuple(change for change in difference.changes if change.op in request.ops)
        difference = replace(difference, changes=changes, ontology=(), findings=(), is_judged=False)
    if request.where and matching is not None:

        def match_records(tree: Tree, kind: RecordType) -> Container[int]:
            return matching(tree, kind, request.where)

        if not difference.changes:
            _check_filter(comparison, {name for name, _ in targets}, match_records)
        return _filter_by_condition(difference, comparison, match_records)
    return difference


@lru_cache(maxsize=1)
def _diff_commits(root: Path, range: Range, ends: tuple[str, ...], types: frozenset[str] | None) -> tuple[Types, Diff]:
    """Return the difference of two commits and the types of both sides; the last is cached for paging."""
    comparison = _compare_versions(root, range, types)
    return comparison.types, _collect_changes(comparison, DiffRequest(range))


def _collect_changes(comparison: Comparison, request: DiffRequest, opener: _Opener | None = None) -> Diff:
    """Return all changes with their findings; a change judged as a whole has the same findings in every report."""
    diff, root, range = comparison.diff(), comparison.root, comparison.range
    allowances = {"allow_shrink": request.allow_shrink, "allow_weaker": request.allow_weaker}
    findings = findings_of(comparison, diff, whole=request.whole, **allowances)
    diff = replace(diff, findings=findings, prefix=revisions.prefix(root), is_judged=request.whole)
    if not request.whole:
        return diff
    from duckkb.review.change_findings import sort_findings

    near = _find_by_vector(opener, range, diff) if opener is not None else ()
    return replace(diff, findings=sort_findings([*findings, *near, *_check_merge(root, range, diff)]))


def _parse_targets(only: Sequence[str], types: Types) -> tuple[tuple[str, str | None], ...]:
    """Parse targets into names of types, each with the identity as the command line writes it, None for all."""
    targets = []
    for text in only:
        name, colon, identity = text.partition(":")
        if not name or (colon and not identity):
            raise UsageError(
                f"{text!r} names no type or record", suggestion="give TYPE or TYPE:IDENTITY after --, as in -- Note:a"
            )
        kind = types.new.find(name) or types.old.find(name)
        if kind is None:
            raise StateError(f"no type {name} on either side", code="E_UNKNOWN_TYPE", suggestion="duckkb schema")
        targets.append((kind.name, identity if colon else None))
    return tuple(targets)


def _check_filter(comparison: Comparison, names: Container[str], matching: _OfType) -> None:
    """Raise for a filter that is invalid for every requested type, even where none of them changed."""
    asked_kinds = [kind for kind in comparison.types.new if not names or kind.name in names]
    _, tree = trees(comparison, {(kind.kind, kind.table) for kind in asked_kinds})
    problems: list[FilterError] = []
    for kind in asked_kinds:
        try:
            matching(tree, kind)
            return
        except FilterError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def _filter_by_condition(difference: Diff, comparison: Comparison, matching: _OfType) -> Diff:
    """Keep only records that a filter matches before or after the change, and the findings about them."""
    older, newer = trees(comparison)
    targets: list[tuple[str, str | None]] = []
    type_names: list[str] = []
    refusals: list[FilterError] = []
    for kind, table in dict.fromkeys((change.kind, change.table) for change in difference.changes):
        type_changes = [change for change in difference.changes if (change.kind, change.table) == (kind, table)]
        ids: list[Container[int]] = []
        problems: list[FilterError] = []
        for tree in (older, newer):
            record_type = tree.ontology.find_by_table(kind, table)
            if record_type is None:  # a version without the type neither accepts nor refuses
                continue
            try:
                ids.append(matching(tree, record_type))
            except FilterError as problem:  # a field may exist only in the other version
                problems.append(problem)
        targets += [(change.type, change.identity) for change in type_changes if any(change.id in some for some in ids)]
        type_names += [type_changes[0].type] if ids else []
        refusals += problems if not ids else []
    if refusals and type_names:
        refusals[0].suggestion = f"name its types after all options: -- {' '.join(type_names)}"
    if refusals:
        raise refusals[0]
    return (
        _limit_to_targets(difference, targets) if targets else replace(difference, changes=(), ontology=(), findings=())
    )


def _ignore_fields(difference: Diff, ignored_names: frozenset[str]) -> Diff:
    """Remove ignored fields from updates; inserts and deletes stay whole."""
    changes = []
    for change in difference.changes:
        if change.op in ("insert", "delete"):
            changes.append(change)
            continue
        fields = tuple(field for field in change.fields if field.name not in ignored_names)
        if fields:
            changes.append(change if len(fields) == len(change.fields) else replace(change, fields=fields))
    return replace(difference, changes=tuple(changes))


def _limit_to_targets(difference: Diff, targets: Sequence[tuple[str, str | None]]) -> Diff:
    """Keep only the requested records and their findings, and findings about no type.

    Changes of the ontology are dropped.
    """
    if not targets:
        return difference
    names = {(name, identity) for name, identity in targets}

    def is_asked(name: str, *identities: str | None) -> bool:
        return (name, None) in names or any((name, finding) in names for finding in identities if finding is not None)

    def has(change: RecordChange) -> bool:
        return is_asked(change.type, change.identity, change.was)

    findings = (
        finding for finding in difference.findings if not finding.type or is_asked(finding.type, finding.identity)
    )
    return replace(difference, changes=tuple(filter(has, difference.changes)), ontology=(), findings=tuple(findings))
