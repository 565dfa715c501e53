"""diff: two versions of a base, which may be broken, so without opening it; and what of their difference is asked for."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb import config
from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.engine.base import Base
from duckkb.engine.narrowed import NarrowedBase, forbidden
from duckkb.errors import FilterError, StateError, UsageError
from duckkb.ontology.model import RecordType
from duckkb.review.check.changes import findings_of, trees
from duckkb.review.diff.compare import Types
from duckkb.review.diff.model import Diff, Numbers, RecordChange
from duckkb.review.diff.versions import Comparison, Described, Files, Range, parse_range
from duckkb.truth.files.line import Limits
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.errors import Finding
    from duckkb.review.check.findings import CheckReport


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """What is compared, which types or records (`TYPE`, `TYPE:IDENTITY`; none for all), and the fields that do not
    count: a record that differs in nothing else is left out. With `whole` both versions are held against every rule as a
    whole, and the files that a gate rests on are compared; with `allow_weaker` rules that are gone are no error; else the findings are those that the touched files tell.
    `allow_shrink`: mass deletions are meant. `where` is a filter that a record satisfies in one of the versions."""

    range: Range
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    whole: bool = False
    allow_weaker: bool = False
    allow_shrink: bool = False
    where: str = ""


Matching = Callable[[Tree, RecordType, str], Container[int]]
"""The ids of a type's records in a tree that satisfy a filter; raises `errors.FilterError`."""
_OfType = Callable[[Tree, RecordType], Container[int]]


def diff(unopened: Unopened, wanted: DiffRequest) -> Diff:
    """As `app.diff`."""
    return _diff(unopened.root, wanted, unopened.matching)


def diff_of(base: Base, wanted: DiffRequest, matching: Matching | None = None) -> Diff:
    """As `diff`, of a base that is open. Who sees a part of it sees what changed of its records since HEAD, and no commit: any
    other range, or what the rules say of the whole, is refused (`errors.Refused`, E_FORBIDDEN)."""
    if not isinstance(base, NarrowedBase):
        return _diff(base.root, wanted, matching)
    if wanted.range != parse_range(None) or wanted.whole:
        raise forbidden("who sees only a part of the base may ask for what changed since HEAD alone")
    found = _diff(base.whole.root, wanted, matching, base.types)
    return replace(found, base=replace(found.base, commit=""), head=replace(found.head, commit=""), prefix="")


def diff_object(
    base: Base,
    *,
    range: str | None = None,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    budget: int = 1_000_000,
    after: str = "",
) -> dict[str, Any]:
    """What `duckkb diff --format json` prints: HEAD against the files as they are, or a range; as much as has room in `budget`
    bytes, from the cursor `after` on. Raises as `diff` does."""
    import json
    import shlex

    from duckkb.review.diff.model import DiffOptions
    from duckkb.review.diff.report import as_json

    found = diff_of(base, DiffRequest(parse_range(range), tuple(only), tuple(ignore)))
    before = [
        "duckkb",
        "diff",
        *([range] if range else []),
        "--format",
        "json",
        *(f"--ignore={name}" for name in ignore),
    ]
    names = ["--", *only] if only else []
    options = DiffOptions(
        budget=budget, after=after, again=lambda more: shlex.join([*before, *more.split(" "), *names])
    )
    told: dict[str, Any] = json.loads("".join(as_json(found, options)))
    return told


def numbers(root: Path, range: str | None = None, *, staged: bool = False, worktree: bool = False) -> Numbers:
    """The difference in numbers, for a fraction of the time: no value is compared, and its findings are those of lines that
    cannot be read as they should. Raises as `diff` does."""
    wanted = parse_range(range, staged=staged, worktree=worktree)
    return Comparison.of(root, wanted, configuration_files(root)).numbers()


def check_change(
    unopened: Unopened,
    since: str | None,
    *,
    staged: bool,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
) -> "CheckReport":
    """The findings that a change brings, or that are about its records: of the working tree (`staged`: the index) since it
    parted from a revision, or of a range BASE..HEAD or BASE...HEAD. Raises as `diff` does."""
    from duckkb.review.check.findings import CheckReport, in_order

    range = parse_range(since, staged=staged)
    if range.against != "commit" and since is not None:
        range = replace(range, since_parting=True)
    root = unopened.root
    wanted = DiffRequest(range, whole=True, allow_weaker=allow_weaker, allow_shrink=allow_shrink)
    found = _diff(root, wanted)
    more = _by_vector(unopened, found) if range.against == "worktree" else ()
    merged = () if staged else _merged(root, range.head or "HEAD", found)
    return CheckReport(in_order([*found.findings, *more, *merged]), len(found.changes), found.prefix)


def _merged(root: Path, head: str, found: Diff) -> "Sequence[Finding]":
    """What git made otherwise than a merge by records would, where the newest commit of the change is a merge, pick or
    revert."""
    from duckkb.actions.branches import rules_at
    from duckkb.review.merging import verify
    from duckkb.truth.git import revisions

    commit = revisions.revision(root, head).commit
    return verify.findings(root, rules_at(root), commit) if commit and commit != found.base.commit else ()


def _by_vector(unopened: Unopened, found: Diff) -> "tuple[Finding, ...]":
    """New records that mean what others mean, as far as vectors are cached; nothing while truth itself is in doubt."""
    if any(one.is_error for one in found.findings) or not any(one.op == "insert" for one in found.changes):
        return ()
    from duckkb.review.check.near_duplicates import near_by_vector

    with unopened.opened(OpenOptions(lenient=True)) as base:
        return tuple(near_by_vector(base, found))


def configuration_files(root: Path) -> Files:
    """How the configuration of a base is read as it was in another version."""
    env = config.around(root)

    def load(instead: Mapping[str, bytes | None]) -> Described:
        loaded = config.load(root, env, instead)
        limits = Limits(loaded.settings.max_record_bytes, loaded.settings.max_depth)
        return Described(loaded.ontology, limits, loaded.documents, loaded.settings.shrink)

    return Files(lambda: config.paths(root), load)


def _diff(
    root: Path, wanted: DiffRequest, matching: Matching | None = None, types: Container[str] | None = None
) -> Diff:
    """The changes between two versions, each side read by its own ontology; `matching` serves `where`, `types` are those that
    may be seen. Raises
    `errors.StateError` (E_REVISION, E_GIT, E_UNKNOWN_TYPE), `errors.Unavailable` (E_GIT), `errors.OntologyError` where no
    side's configuration loads, `errors.FilterError` for a filter that makes no sense for a type that changed."""
    compared = Comparison.of(root, wanted.range, configuration_files(root))
    compared = compared if types is None else compared.narrowed(types)
    chosen = _chosen(wanted.only, compared.types)
    found = compared.diff()
    allowed = {"allow_shrink": wanted.allow_shrink, "allow_weaker": wanted.allow_weaker}
    told = findings_of(compared, found, whole=wanted.whole, **allowed)
    found = replace(found, findings=told, prefix=revisions.prefix(root))
    if chosen or wanted.ignore:
        found = _narrowed(_without(found, frozenset(wanted.ignore)), chosen)
    if wanted.where and matching is not None:

        def satisfying(tree: Tree, kind: RecordType) -> Container[int]:
            return matching(tree, kind, wanted.where)

        if not found.changes:
            _hold_against_asked(compared, {name for name, _ in chosen}, satisfying)
        return _satisfying(found, compared, satisfying)
    return found


def _chosen(only: Sequence[str], types: Types) -> tuple[tuple[str, str | None], ...]:
    """Names of types, and with each the identity as the command line writes it, None for all."""
    chosen = []
    for text in only:
        name, colon, identity = text.partition(":")
        if not name or (colon and not identity):
            raise UsageError(
                f"{text!r} names no type or record", suggestion="give TYPE or TYPE:IDENTITY behind --, as in -- Note:a"
            )
        kind = types.new.find(name) or types.old.find(name)
        if kind is None:
            raise StateError(f"no type {name} on either side", code="E_UNKNOWN_TYPE", suggestion="duckkb schema")
        chosen.append((kind.name, identity if colon else None))
    return tuple(chosen)


def _hold_against_asked(compared: Comparison, names: Container[str], matching: _OfType) -> None:
    """Where nothing asked for changed, a filter that makes no sense for any type asked for is an error all the same."""
    asked = [kind for kind in compared.types.new if not names or kind.name in names]
    _, tree = trees(compared, {(kind.kind, kind.table) for kind in asked})
    refused: list[FilterError] = []
    for kind in asked:
        try:
            matching(tree, kind)
            return
        except FilterError as problem:
            refused.append(problem)
    if refused:
        raise refused[0]


def _satisfying(found: Diff, compared: Comparison, matching: _OfType) -> Diff:
    """Only the records that a filter lets through as they were or as they are, and the findings about them."""
    older, newer = trees(compared)
    kept: list[tuple[str, str | None]] = []
    taken: list[str] = []
    refused: list[FilterError] = []
    for kind, table in dict.fromkeys((change.kind, change.table) for change in found.changes):
        own = [change for change in found.changes if (change.kind, change.table) == (kind, table)]
        ids: list[Container[int]] = []
        problems: list[FilterError] = []
        for tree in (older, newer):
            known = tree.ontology.by_table(kind, table)
            if known is None:  # a version that does not know the type neither accepts nor refuses
                continue
            try:
                ids.append(matching(tree, known))
            except FilterError as problem:  # a field may be one of the other version alone
                problems.append(problem)
        kept += [(change.type, change.identity) for change in own if any(change.id in some for some in ids)]
        taken += [own[0].type] if ids else []
        refused += problems if not ids else []
    if refused and taken:
        refused[0].suggestion = f"name the types that it is for, behind all options: -- {' '.join(taken)}"
    if refused:
        raise refused[0]
    return _narrowed(found, kept) if kept else replace(found, changes=(), ontology=(), findings=())


def _without(found: Diff, ignored: frozenset[str]) -> Diff:
    """Fields that do not count are left out of updates; inserts and deletes are told whole."""
    kept = []
    for change in found.changes:
        if change.op in ("insert", "delete"):
            kept.append(change)
            continue
        fields = tuple(field for field in change.fields if field.name not in ignored)
        if fields:
            kept.append(change if len(fields) == len(change.fields) else replace(change, fields=fields))
    return replace(found, changes=tuple(kept))


def _narrowed(found: Diff, chosen: Sequence[tuple[str, str | None]]) -> Diff:
    """Only the records asked for, and the findings about them; what is said of the configuration is about none."""
    if not chosen:
        return found
    names = {(name, identity) for name, identity in chosen}

    def is_asked(name: str, *identities: str | None) -> bool:
        return (name, None) in names or any((name, one) in names for one in identities if one is not None)

    def has(change: RecordChange) -> bool:
        return is_asked(change.type, change.identity, change.was)

    findings = (one for one in found.findings if not one.type or is_asked(one.type, one.identity))
    return replace(found, changes=tuple(filter(has, found.changes)), ontology=(), findings=tuple(findings))
