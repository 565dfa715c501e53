"""The guards of a write: what must hold of a changeset and of the base before anything is rendered."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.draft import same_fields
from duckkb.engine.observed import keyed_text
from duckkb.errors import Finding, InvalidRecord, Refused
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.records import FROM, TO, Change, Changeset, Identity, Record, TypedEnd, component_of, identity_text
from duckkb.settings import Shrink
from duckkb.truth.files.ends import end_identity
from duckkb.truth.files.tree import Ambiguous, Ref, StoredRow, Tree
from duckkb.truth.git import repository, skipped
from duckkb.values import dataclass


def refuse_unready(base: Base) -> None:
    """Refuse to write on a base that is unreadable, not all here, or in the middle of something else."""
    refuse_unreadable(base.tree)
    skipped.refuse_missing(base.root)
    under_way = repository.operation_in_progress(base.root)
    if under_way:
        raise Refused(
            f"a {under_way} is in progress; a write would mix with it",
            code="E_MERGE_IN_PROGRESS",
            suggestion=f"`duckkb resolve` and finish it, or `git {under_way} --abort`, then repeat",
        )


def check(base: Base, changeset: Changeset, *, allow_shrink: bool, check_schema: bool) -> None:
    """Raise for everything that is wrong with a changeset: duplicates, schema, ends, cardinality, deletions."""
    findings = list(_duplicates(base.tree, changeset))
    if check_schema:
        findings += _schema(base, changeset)
    findings += _lengths(base, changeset)
    findings += _texts(base, changeset)
    findings += _ends(base.tree, changeset)
    findings += _left_behind(base.tree, changeset)
    findings += _cardinality(base.tree, changeset)
    if findings:
        first, one = findings[0], len(findings) == 1
        where = f"{first.field}: " if first.field.startswith("/") else ""
        family = InvalidRecord if all(finding.code == "E_SCHEMA" for finding in findings) else Refused
        raise family(
            where + first.message if one else f"{len(findings)} problems; nothing was written",
            code=first.code if len({finding.code for finding in findings}) == 1 else "E_REFUSED",
            suggestion=first.remedy,
            findings=tuple(findings),
            exit_code=1,
        )
    if not allow_shrink:
        _refuse_mass_deletion(base, changeset)


def refuse_agents(base: Base, changeset: Changeset) -> None:
    """Where an agent writes directly what the ontology wants reviewed, raise `errors.Refused` (E_REVIEW)."""
    if not base.wiring.env.agent or base.wiring.proposal is not None:
        return
    found = []
    for change in changeset.changes:
        kind = _kind(base.tree, change.record.type)
        touched = sorted(_touched(change) & kind.reviewed_fields)
        if kind.review or touched:
            what = kind.name if kind.review else f"{kind.name} {', '.join(touched)}"
            said = f"changes of {what} are reviewed before they count"
            found.append(_found("E_REVIEW", said, "duckkb propose put|import|delete|rename ...", change.record))
    if found:
        raise Refused(
            f"{found[0].message}, and DUCKKB_AGENT says that an agent writes; nothing was written",
            code="E_REVIEW",
            suggestion="write the same with `duckkb propose put|import|delete|rename ...`: it makes a branch to review",
            findings=found,
        )


def refuse_agent_of(base: Base, kind: RecordType) -> None:
    """As `refuse_agents`, for what is done to all records of a type."""
    if base.wiring.env.agent and (kind.review or kind.reviewed_fields):
        raise Refused(
            f"changes of {kind.name} are reviewed before they count, and DUCKKB_AGENT says that an agent writes",
            code="E_REVIEW",
            suggestion="let a person do this, or propose changes of single records with `duckkb propose`",
        )


def _touched(change: Change) -> set[str]:
    """The fields whose value a change gives, takes or replaces."""
    old, new = (record.fields if record is not None else {} for record in (change.old, change.new))
    return {name for name in {**old, **new} if not same_fields(old.get(name), new.get(name))}


def _found(code: str, message: str, remedy: str, record: Record) -> Finding:
    return Finding(code, message, remedy=remedy, type=record.type, identity=identity_text(record.identity))


def _kind(tree: Tree, name: str) -> RecordType:
    kind = tree.ontology.find(name)
    assert kind is not None, "a changeset names types of the ontology"
    return kind


def _duplicates(tree: Tree, changeset: Changeset) -> Iterator[Finding]:
    for change in changeset.changes:
        record = change.record
        if record.identity in tree.duplicates(_kind(tree, record.type)):
            said = (
                f"{record.type} {identity_text(record.identity)} stands twice in data/; it cannot be written as it is"
            )
            yield _found("E_DUP_IDENTITY", said, "duckkb dedupe", record)


def _schema(base: Base, changeset: Changeset) -> Iterator[Finding]:
    for change in changeset.changes:
        if change.new is not None:
            name = identity_text(change.new.identity)
            for finding in base.validator(_kind(base.tree, change.new.type)).findings(change.new.fields):
                yield replace(finding, type=change.new.type, identity=name, message=f"{name}: {finding.message}")


def _lengths(base: Base, changeset: Changeset) -> Iterator[Finding]:
    """The vectors that records give are as long as those that stay; the first record of all fixes the length."""
    kinds = {change.new.type: _kind(base.tree, change.new.type) for change in changeset.changes if change.new}
    for kind in kinds.values():
        if not kind.given_vectors:
            continue
        changes = [change for change in changeset.changes if change.record.type == kind.name]
        stays = base.tree.count(kind) > sum(change.old is not None for change in changes)
        expected = dict(base.lengths(kind)) if stays else {}
        for record in (change.new for change in changes if change.new):
            for name in kind.given_vectors:
                value = record.fields.get(name)
                if isinstance(value, list) and len(value) != (expected.get(name) or len(value)):
                    said = f"{identity_text(record.identity)}: {name} has {len(value)} numbers, the others {expected[name]}"
                    yield _found("E_SCHEMA", said, f"give {expected[name]} numbers, or use another collection", record)
                elif isinstance(value, list):
                    expected[name] = expected.get(name) or len(value)


def _texts(base: Base, changeset: Changeset) -> Iterator[Finding]:
    """A text of which keys are made comes to stand under one key alone, whoever chose that."""
    changed = {(change.record.type, change.record.id) for change in changeset.changes}
    held: dict[tuple[str, str], Record] = {}
    come: list[tuple[RecordType, str, Record]] = []
    for change in changeset.changes:
        kind = _kind(base.tree, change.record.type)
        text = keyed_text(kind, change.new) if change.new is not None else None
        if change.new is not None and text is not None:
            if change.old is not None and keyed_text(kind, change.old) == text:
                held[kind.name, text] = change.new
            else:
                come.append((kind, text, change.new))
    for kind, text, new in come:
        stored = (row.record for row in base.holders(kind, text) if (kind.name, row.record.id) not in changed)
        other = held.setdefault((kind.name, text), next(stored, new))
        if other is not new:
            made = kind.generated.of if kind.generated is not None else ""
            said = f"{identity_text(new.identity)}: this {made} stands under the key {identity_text(other.identity)}"
            yield _found("E_EXISTS", said, "leave the key out, or give that one, to change the record that has it", new)


@dataclass(frozen=True, slots=True)
class _After:
    """Which nodes exist once the changeset is applied."""

    tree: Tree
    added: frozenset[tuple[str, Identity]]
    gone: frozenset[tuple[str, Identity]]

    def has(self, type_name: str, identity: Identity) -> bool:
        key = (type_name, identity)
        if key in self.added:
            return True
        return key not in self.gone and self.tree.get(_kind(self.tree, type_name), identity) is not None


def _after(tree: Tree, changeset: Changeset) -> _After:
    old = {(change.old.type, change.old.identity) for change in changeset.changes if change.old}
    new = {(change.new.type, change.new.identity) for change in changeset.changes if change.new}
    return _After(tree, frozenset(new), frozenset(old - new))


def _ends(tree: Tree, changeset: Changeset) -> Iterator[Finding]:
    """Every edge that is written has two ends that exist, each in exactly one of the types it may have."""
    after = _after(tree, changeset)
    for change in changeset.changes:
        if change.new is None:
            continue
        kind = _kind(tree, change.new.type)
        if isinstance(kind, EdgeType):
            for name, allowed in ((FROM, kind.from_types), (TO, kind.to_types)):
                yield from _end_problem(after, change.new, name, allowed)


def _end_problem(after: _After, edge: Record, name: str, allowed: tuple[str, ...]) -> Iterator[Finding]:
    value = component_of(edge.fields[name])
    types: tuple[str, ...] = (value.type,) if isinstance(value, TypedEnd) else allowed
    identity = end_identity(value)
    found = [type_name for type_name in types if type_name in allowed and after.has(type_name, identity)]
    shown = identity_text(identity)
    if not found:
        said = f"{edge.type} {identity_text(edge.identity)}: no {' or '.join(types)} {shown} for `{name}`"
        yield _found("E_DANGLING_EDGE", said, "put the node first", edge)
    elif len(found) > 1:
        said = f"{edge.type} {identity_text(edge.identity)}: `{name}` {shown} exists as {' and '.join(found)}"
        remedy = f'write it as {{"type": "{found[0]}", "id": ...}}'
        yield _found("E_AMBIGUOUS_END", said, remedy, edge)


def _left_behind(tree: Tree, changeset: Changeset) -> Iterator[Finding]:
    """No edge stays that names a node which the changeset takes away."""
    after = _after(tree, changeset)
    leaving = {(change.old.type, change.old.id) for change in changeset.changes if change.old is not None}
    for type_name, identity in after.gone:
        if not isinstance(_kind(tree, type_name), NodeType):
            continue
        for kind, row, _ in tree.edges_at(type_name, identity):
            if (kind.name, row.record.id) not in leaving:
                said = f"{kind.name} {identity_text(row.record.identity)} would lose its end {type_name} {identity_text(identity)}"
                yield _found("E_EDGES", said, "delete the edge too (--cascade)", row.record)


def _cardinality(tree: Tree, changeset: Changeset) -> Iterator[Finding]:
    """1:N lets a `to` have one `from`; N:1 lets a `from` have one `to`; 1:1 both."""
    leaving = {(change.old.type, change.old.id) for change in changeset.changes if change.old is not None}
    ends: dict[tuple[str, str], Counter[Ref]] = {}
    for change in changeset.changes:
        kind = _kind(tree, change.record.type)
        if change.new is None or not isinstance(kind, EdgeType) or kind.cardinality == "N:N":
            continue
        for side in limited_sides(kind):
            ref = tree.ends(kind, change.new.identity)[side]
            if ref is None or isinstance(ref, Ambiguous):
                continue
            counts = ends.setdefault((kind.name, str(side)), Counter())
            counts[ref] += 1
            others = sum((kind.name, row.record.id) not in leaving for row in _same_side(tree, kind, ref, side))
            if counts[ref] + others > 1:
                yield _over(kind, change.new, ref, side)


def limited_sides(kind: EdgeType) -> tuple[int, ...]:
    """The ends (0 from, 1 to) that may stand in at most one edge of this type."""
    return {"1:1": (0, 1), "1:N": (1,), "N:1": (0,), "N:N": ()}[kind.cardinality]


def _same_side(tree: Tree, kind: EdgeType, ref: Ref, side: int) -> list[StoredRow]:
    way = "out" if side == 0 else "in"
    return [row for found, row, at in tree.edges_at(*ref) if found.name == kind.name and at == way]


def _over(kind: EdgeType, edge: Record, ref: Ref, side: int) -> Finding:
    name = (FROM, TO)[side]
    said = f"{kind.name} is {kind.cardinality}: `{name}` {identity_text(ref[1])} has another edge already"
    return _found("E_CARDINALITY", said, f"delete the other {kind.name} edge first", edge)


def _refuse_mass_deletion(base: Base, changeset: Changeset) -> None:
    deleted = Counter(change.old.type for change in changeset.changes if change.new is None and change.old is not None)
    totals = {name: base.tree.count(_kind(base.tree, name)) for name in deleted}
    refuse_shrinking({name: (count, totals[name]) for name, count in deleted.items()}, base.settings.shrink)


def refuse_shrinking(deleted: Mapping[str, tuple[int, int]], limit: Shrink) -> None:
    """Raise `errors.Refused` (E_SHRINK) where a change, whatever makes it, deletes more records of a type than may go
    unasked: by type how many of how many."""
    for name, (count, total) in deleted.items():
        if count > limit.most(total):
            raise Refused(
                f"this would delete {count} of {total} {name} records; without asking, at most {limit.most(total)} at once",
                code="E_SHRINK",
                suggestion="--allow-shrink if that is meant",
            )
