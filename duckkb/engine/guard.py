"""The guards of a write: what must hold of a changeset and of the base before anything is rendered."""

from collections import Counter
from collections.abc import Iterable

from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.draft import same_fields
from duckkb.errors import Conflict, Finding, InvalidRecord, Refused
from duckkb.ontology.model import RecordType
from duckkb.records import Change, Changeset, identity_text
from duckkb.rules import integrity
from duckkb.rules.integrity import refuse_mass_deletion, schema
from duckkb.rules.view import BaseView, WriteView, name_record
from duckkb.truth.git import absent, begun_merge, repository


def refuse_unready(base: Base) -> None:
    """Raise where the base is unreadable, incomplete, or in the middle of a merge or another operation."""
    begun_merge.refuse_begun_merge(base.whole.root)
    refuse_unreadable(base.tree)
    absent.refuse_sparse_paths(base.whole.root, base.concerns)
    under_way = repository.operation_in_progress(base.whole.root)
    if under_way:
        raise Refused(
            f"a {under_way} is in progress; a write would mix with it",
            code="E_MERGE_IN_PROGRESS",
            suggestion=f"`duckkb resolve` and finish it, or `git {under_way} --abort`, then repeat",
        )


def check(base: Base, changeset: Changeset, *, allow_shrink: bool, check_schema: bool) -> None:
    """Raise for everything that a changeset would break.

    Raises `errors.InvalidRecord` where records do not fit their types, else `errors.Refused`. Without
    `check_schema`, the records have been validated before.
    """
    rules = [rule for rule in integrity.BEFORE_WRITE if check_schema or rule.find is not schema]
    problems = integrity.findings(WriteView(view(base), changeset, base.holders), rules)
    findings = tuple(name_record(one) for one in problems if one.is_error)
    if findings:
        first, one = findings[0], len(findings) == 1
        where = f"{first.field}: " if first.field.startswith("/") else ""
        family = InvalidRecord if all(finding.code == "E_SCHEMA" for finding in findings) else Refused
        raise family(
            where + first.message if one else f"{len(findings)} problems; nothing was written",
            code=first.code if len({finding.code for finding in findings}) == 1 else "E_REFUSED",
            suggestion=first.remedy,
            findings=findings,
            exit_code=1,
        )
    if not allow_shrink:
        deletions = Counter(one.old.type for one in changeset.changes if one.new is None and one.old is not None)
        totals = {name: base.tree.count(_find_type(base, name)) for name in deletions}
        refuse_mass_deletion({name: (count, totals[name]) for name, count in deletions.items()}, base.settings.shrink)


def view(base: Base) -> BaseView:
    """Return the base as integrity rules see it."""
    return BaseView(base.tree, base.validator, base.lengths)


def refuse_documents(kinds: Iterable[RecordType]) -> None:
    """Raise `errors.Refused` (E_DOCUMENT) for types whose records are files: changing the files changes the
    records.
    """
    for kind in kinds:
        if kind.source is not None:
            message = f"the records of {kind.name} are the files of {kind.source.path}; nothing was written"
            raise Refused(message, code="E_DOCUMENT", suggestion="edit, add or delete the file itself")


def refuse_existing_type(base: Base, name: str) -> None:
    """Raise `errors.Conflict` (E_EXISTS) where a type has the name of a new collection.

    The declarations of the files and of this machine are read anew, not taken from when the base was opened;
    the caller's lock keeps them unchanged.
    """
    from duckkb.ontology.snapshot import path_of

    holder = base.wiring.preview({}).find(name)
    if holder is not None or (base.root / path_of(name)).exists():
        alias = f" as {holder.name}" if holder and holder.name != name else ""
        place = f" ({holder.source.path})" if holder and holder.source else ""
        raise Conflict(f"{name} exists already{alias}{place}", "E_EXISTS", f"duckkb col show {name}")


def refuse_agents(base: Base, changeset: Changeset) -> None:
    """Raise `errors.Refused` (E_REVIEW) where an agent directly writes what the ontology wants reviewed."""
    if not base.wiring.env.agent or base.wiring.proposal is not None:
        return
    findings = []
    for change in changeset.changes:
        kind = _find_type(base, change.record.type)
        changed_fields = sorted(_diff_fields(change) & kind.reviewed_fields)
        if kind.review or changed_fields:
            subject = kind.name if kind.review else f"{kind.name} {', '.join(changed_fields)}"
            message, remedy = (
                f"changes of {subject} are reviewed before they count",
                "put `propose` in front of the verb: `duckkb propose put ...`",
            )
            name = identity_text(change.record.identity)
            findings.append(Finding("E_REVIEW", message, remedy=remedy, type=kind.name, identity=name))
    if findings:
        raise Refused(
            f"{findings[0].message}, and DUCKKB_AGENT marks an agent; nothing was written",
            code="E_REVIEW",
            suggestion="put `propose` in front of the verb: `duckkb propose put ...` makes a branch to review",
            findings=findings,
        )


def refuse_agent_of(base: Base, kind: RecordType) -> None:
    """Raise as `refuse_agents` does, for a change to all records of a type."""
    if base.wiring.env.agent and (kind.review or kind.reviewed_fields):
        raise Refused(
            f"changes of {kind.name} need a review, and DUCKKB_AGENT marks an agent",
            code="E_REVIEW",
            suggestion="ask a person to do this, or propose changes of single records with `duckkb propose`",
        )


def _diff_fields(change: Change) -> set[str]:
    """Return the fields whose value a change adds, removes or replaces."""
    old, new = (record.fields if record is not None else {} for record in (change.old, change.new))
    return {name for name in {**old, **new} if not same_fields(old.get(name), new.get(name))}


def _find_type(base: Base, name: str) -> RecordType:
    kind = base.ontology.find(name)
    assert kind is not None, "a changeset names types of the ontology"
    return kind
