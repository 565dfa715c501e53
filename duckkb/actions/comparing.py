"""diff: two versions of a base, and what of their difference is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from duckkb.errors import Finding, StateError, UsageError
from duckkb.review import changes
from duckkb.review.diff import compare, configuration, ontology, sides
from duckkb.review.diff.compare import Types
from duckkb.review.diff.configuration import Configurations, Files
from duckkb.review.diff.model import Diff, Numbers, OntologyChange, RecordChange, Versions
from duckkb.review.diff.sides import Range
from duckkb.truth import revisions
from duckkb.truth.layout import Kind, part_folder
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is compared, which types or records (`TYPE`, `TYPE:IDENTITY`; none for all), and the fields that do not
    count: a record that differs in nothing else is left out. With `whole` both versions are held against every rule as a
    whole, and the files that a gate rests on are compared; with `allow_weaker` rules that are gone are no error; else the findings are those that the touched files tell.
    `allow_shrink`: mass deletions are meant."""

    range: Range
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    whole: bool = False
    allow_weaker: bool = False
    allow_shrink: bool = False


def diff(root: Path, wanted: Wanted, files: Files) -> Diff:
    """The changes between two versions, each side read by its own ontology. Raises `errors.StateError` (E_REVISION,
    E_GIT, E_UNKNOWN_TYPE), `errors.Unavailable` (E_GIT), `errors.OntologyError` where no side's configuration loads."""
    ground = _Ground.of(root, wanted.range, files)
    chosen = _chosen(wanted.only, ground.types)
    found = compare.compare(ground.versions, ground.types, ground.both.new.limits, ground.ontology)
    findings = _findings(root, wanted, ground.versions, ground.both, found)
    found = replace(found, findings=findings, prefix=revisions.prefix(root))
    return _narrowed(_without(found, frozenset(wanted.ignore)), chosen) if chosen or wanted.ignore else found


def numbers(root: Path, range: Range, files: Files) -> Numbers:
    """The same in numbers; its findings are those of lines and files alone. Raises as `diff` does."""
    from duckkb.review.diff.numbers import numbers as counted

    ground = _Ground.of(root, range, files)
    found = counted(ground.versions, ground.types, ground.both.new.limits)
    return found + Numbers(ontology=len(ground.ontology), findings=len(ground.both.findings))


@dataclass(frozen=True, slots=True)
class _Ground:
    """What is compared: both versions of the files, what each says may exist, and how the one says otherwise."""

    versions: Versions
    both: Configurations
    types: Types
    ontology: tuple[OntologyChange, ...]

    @classmethod
    def of(cls, root: Path, range: Range, files: Files) -> "_Ground":
        versions = sides.read(root, range)
        both = configuration.configurations(root, range, versions, files)
        changed = ontology.ontology_changes(both.old.documents, both.new.documents)
        return cls(versions, both, Types(both.old.ontology, both.new.ontology), changed)


def _findings(root: Path, wanted: Wanted, versions: Versions, both: Configurations, found: Diff) -> tuple[Finding, ...]:
    """Each once, by place: what is found twice is told as it was first."""

    def count(kind: Kind, table: str) -> int:
        base = revisions.revision(root, versions.base.commit)
        return revisions.lines(root, base, part_folder(kind, table))

    said = [
        *both.findings,
        *found.findings,
        *changes.of_change(found, versions, changes.Masses(count, both.old.shrink, wanted.allow_shrink)),
    ]
    if wanted.whole:
        from duckkb.review import gate
        from duckkb.review.brought import brought

        said += brought(root, found, versions, both)
        said += gate.of_files(root, wanted.range, versions.base.commit, versions.head.commit)
    if both.old.documents != both.new.documents:
        from duckkb.review import guards

        said += guards.of_configuration(both, found.changes)
    if wanted.allow_weaker:
        from duckkb.review import guards

        said = list(guards.allowed(said))
    once: dict[tuple[Any, ...], Finding] = {}
    for one in said:
        once.setdefault((one.path, one.line, one.code, one.field, one.type, one.identity), one)
    return tuple(once[key] for key in sorted(once))


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
