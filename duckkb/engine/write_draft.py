"""The request of a write, and how it becomes a changeset against the current rows.

Pure: nothing here touches files.
An edge has one identity: an end is written without its type where that is clear, and with it where it would be
ambiguous.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.names import nearest
from duckkb.storage import strict_lines
from duckkb.storage.line import etag
from duckkb.storage.part import StoredRow
from duckkb.storage.tree import Ambiguous, Tree, bare_end, end_identity
from duckkb.types.errors import Conflict, DuckkbError, Finding, NotFound, Refused, StateError, shell_word
from duckkb.types.records import (
    CREATED_AT,
    FROM,
    TO,
    UPDATED_AT,
    Change,
    Changeset,
    Component,
    Identity,
    Record,
    TypedEnd,
    component_of,
    component_value,
    identity_text,
    record_arguments,
)

_MOST_COMPARED = 10_000
_SHORTEST_BEGINNING = 3
_DIGITS = re.compile(r"\d+")
"""A base with more records of a type names no near one; a shorter word is the beginning of too many."""


class Given(Struct, frozen=True):
    """A record as a caller gave it: checked fields and, where given, the fields that duckkb prints itself.

    `place` says where the record stood (`line 3`, `file.jsonl:3`).
    """

    identity: Identity
    fields: Mapping[str, Any]
    place: str = ""
    id: int | None = None
    etag: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Upsert(Struct, frozen=True):
    """A request to insert or replace records.

    `merge` changes only the fields given; `keep_times` uses the given times for new records; `definition` is
    that of a collection which is created with its first records.
    """

    kind: RecordType
    given: tuple[Given, ...]
    merge: bool = False
    keep_times: bool = False
    definition: bytes | None = None


class Delete(Struct, frozen=True):
    """A request to delete records; `cascade` deletes the edges that touch them too."""

    kind: RecordType
    identities: tuple[Identity, ...]
    cascade: bool = False
    etag: str | None = None


class Rename(Struct, frozen=True):
    """A request to give a record another identity: the record keeps its id, and the edges that name it follow."""

    kind: RecordType
    old: Identity
    new: Identity


class Apply(Struct, frozen=True):
    """A request to apply a changeset; each old side must equal the stored record, with `exact` its times too.

    `places` names by type and id the part for a record. Other records stay where they are, or are put with the
    new ones.
    """

    changeset: Changeset
    exact: bool = False
    places: Mapping[tuple[str, int], str] = {}


class Supersede(Struct, frozen=True):
    """A request to replace all records of some types with those given."""

    upserts: tuple[Upsert, ...]


Request = Upsert | Delete | Rename | Apply | Supersede


class Draft(Struct, frozen=True):
    """A changeset, and the receipt lines of the records given: the identity of each, in the order given.

    `replaced` pairs each given record with the later one of the same identity that replaced it and differs from it.
    """

    changeset: Changeset
    asked: tuple[tuple[RecordType, Identity], ...] = ()
    unchanged: int = 0
    replaced: tuple[tuple[Given, Given], ...] = ()
    places: Mapping[tuple[str, int], str] = {}


class Drafting(Struct):
    """The state of one drafting: current rows, the time of the write, and the ids taken so far by type."""

    tree: Tree
    now: str
    taken: dict[str, set[int]] = {}
    findings: list[Finding] = []


def draft(request: Request, tree: Tree, now: str) -> Draft:
    """Return the changeset of a request against `tree`; raises `errors.Conflict`, `NotFound`, `Refused` with every
    problem.
    """
    state = Drafting(tree, now)
    match request:
        case Upsert():
            return _upsert(request, state)
        case Delete():
            return _delete(request, state)
        case Rename():
            return _rename(request, state)
        case Apply():
            return _apply(request, state)
        case Supersede():
            return _replace_records(request, state)


def _upsert(request: Upsert, state: Drafting) -> Draft:
    last: dict[Identity, Given] = {}
    replacements = []
    for entry in request.given:  # of two records with one identity the later wins, as in two puts
        earlier = last.get(entry.identity)
        last[entry.identity] = _merge_inputs(earlier, entry) if request.merge else entry
        if earlier and not same_fields(_clean(last[entry.identity].fields), _clean(earlier.fields)):
            replacements.append((earlier, entry))
    for entry in request.given if request.merge else last.values():  # with `merge`, each version contributes fields
        if problem := _check_precondition(request.kind, entry, state.tree):
            state.findings.append(problem)
    _raise(state.findings, Conflict, "E_STALE", "the records are not at the versions named")
    changes, unchanged_count = [], 0
    for entry in last.values():
        change = _upsert_record(request, entry, state.tree.get(request.kind, entry.identity), state)
        changes.append(change) if change else None
        unchanged_count += change is None
    record_keys = tuple((request.kind, entry.identity) for entry in request.given)
    unchanged_count += len(request.given) - len(last) - len(replacements)
    return Draft(Changeset(tuple(changes)), record_keys, unchanged_count, tuple(replacements))


def _merge_inputs(first: Given | None, second: Given) -> Given:
    return second if first is None else replace(second, fields={**first.fields, **second.fields})


def _upsert_record(request: Upsert, entry: Given, stored_row: StoredRow | None, state: Drafting) -> Change | None:
    kind = request.kind
    if stored_row is None:
        created_at = (entry.created_at if request.keep_times else None) or state.now
        updated_at = (entry.updated_at if request.keep_times else None) or created_at
        new_id = _find_free_id(kind, entry.identity, state)
        return Change(None, Record(kind.name, new_id, entry.identity, _clean(entry.fields), created_at, updated_at))
    old = stored_row.record
    fields = _clean({**old.fields, **entry.fields} if request.merge else entry.fields)
    if same_fields(fields, old.fields):
        return None
    return _build_change(old, fields, state, old.identity)


def _build_change(old: Record, fields: Mapping[str, Any], state: Drafting, identity: Identity) -> Change:
    moment = strict_lines.next_time(state.now, old.updated_at)
    return Change(old, replace(old, identity=identity, fields=fields, updated_at=moment))


def same_fields(first: Any, second: Any) -> bool:
    """Return whether two values are equal as JSON text: 180 is not 180.0, True is not 1; the order of keys does
    not matter.
    """
    if type(first) is not type(second):
        return isinstance(first, Mapping) and isinstance(second, Mapping) and _is_same_mapping(first, second)
    if isinstance(first, Mapping):
        return _is_same_mapping(first, second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_fields, first, second))
    return bool(first == second)


def _is_same_mapping(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(same_fields(first[key], second[key]) for key in first)


def _clean(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without top-level nulls, which a line leaves out.

    Given fields are never changed in place, so most of them need no copy.
    """
    if type(fields) is dict and None not in fields.values():
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def _find_free_id(kind: RecordType, identity: Identity, state: Drafting) -> int:
    taken_ids = state.taken.setdefault(kind.name, set())
    number = strict_lines.free_id(
        kind.kind,
        kind.table,
        identity,
        lambda candidate: candidate in taken_ids or state.tree.find_by_id(kind, candidate) is not None,
    )
    taken_ids.add(number)
    return number


def _replace_records(request: Supersede, state: Drafting) -> Draft:
    drafts = [_upsert(item, state) for item in request.upserts]
    changes = [change for item in drafts for change in item.changeset.changes]
    for item in request.upserts:
        identities = {entry.identity for entry in item.given}
        rows = state.tree.rows(item.kind)
        changes += [Change(row.record, None) for row in rows if row.record.identity not in identities]
    replacements = tuple(pair for item in drafts for pair in item.replaced)
    return Draft(Changeset(tuple(changes)), unchanged=sum(item.unchanged for item in drafts), replaced=replacements)


def _check_precondition(kind: RecordType, entry: Given, tree: Tree) -> Finding | None:
    if entry.etag is None and entry.id is None:
        return None
    stored_row = tree.get(kind, entry.identity)
    name, place = identity_text(entry.identity), f"{entry.place}: " if entry.place else ""
    if entry.etag is not None and (stored_row is None or etag(stored_row.line) != entry.etag):
        where = record_arguments(kind.name, entry.identity)
        if stored_row is None:
            have = f"does not exist, but _etag {entry.etag} names a version of it"
            remedy = f"`duckkb log {where}` shows its deletion; without `_etag` the line is stored again"
        else:
            have, remedy = f"is at {etag(stored_row.line)}, not at {entry.etag}", f"duckkb get {where}"
        return Finding("E_STALE", f"{place}{name} {have}", remedy=remedy, type=kind.name, identity=name)
    if entry.id is not None and stored_row is not None and stored_row.record.id != entry.id:
        message = f"{place}__id of {name} is {stored_row.record.id}, not {entry.id}; it never changes"
        return Finding("E_ID", message, remedy="leave out __id", type=kind.name, identity=name)
    return None


def _delete(request: Delete, state: Drafting) -> Draft:
    kind, rows = request.kind, []
    for identity in dict.fromkeys(request.identities):
        stored_row = state.tree.get(kind, identity)
        if stored_row is None:
            state.findings.append(make_not_found_finding(kind, identity, state.tree))
        elif problem := _check_precondition(kind, Given(identity, {}, etag=request.etag), state.tree):
            state.findings.append(problem)
        else:
            rows.append(stored_row)
    stale = any(finding.code == "E_STALE" for finding in state.findings)
    family: type[DuckkbError] = Conflict if stale else NotFound
    _raise(state.findings, family, family.code, "not every record can be deleted")
    edges = [row for _, row in _find_edges(kind, rows, state.tree).values()] if isinstance(kind, NodeType) else []
    if edges and not request.cascade:
        raise _build_edges_refusal(request, edges)
    changes = [Change(row.record, None) for row in (*edges, *rows)]
    return Draft(Changeset(tuple(changes)), tuple((kind, row.record.identity) for row in rows))


def make_not_found_finding(kind: RecordType, identity: Identity, tree: Tree) -> Finding:
    name, near = identity_text(identity), find_near_identity(kind, identity, tree)
    message = f"no {kind.name} {name}" + (f"; did you mean {near}?" if near else "")
    remedy = f"duckkb get {shell_word(kind.name)} {shell_word(near)}" if near else f"duckkb list {kind.name}"
    return Finding("E_NOT_FOUND", message, remedy=remedy, type=kind.name, identity=name)


def find_near_identity(kind: RecordType, identity: Identity, tree: Tree) -> str:
    """Return the identity of a record that begins like a missing one or is spelt nearly so; empty where none is near."""
    if isinstance(kind, EdgeType) or tree.count(kind) > _MOST_COMPARED:
        return ""
    name = identity_text(identity)
    numbers = _DIGITS.findall(name)  # `part-2` is no slip of `part-1`
    candidates = [identity_text(row.record.identity) for row in tree.iter_by_identity(kind)]
    candidates = [text for text in candidates if _DIGITS.findall(text)[: len(numbers)] == numbers]
    longer = (
        text for text in candidates if len(name) >= _SHORTEST_BEGINNING and text.casefold().startswith(name.casefold())
    )
    return next(longer, nearest(name, candidates) or "")


def _find_edges(
    kind: RecordType, rows: Iterable[StoredRow], tree: Tree
) -> dict[tuple[str, int], tuple[EdgeType, StoredRow]]:
    """Return the edges at these nodes, each once, by label and id."""
    edges = (edge for row in rows for edge in tree.edges_at(kind.name, row.record.identity))
    return {(edge_kind.name, edge.record.id): (edge_kind, edge) for edge_kind, edge, _ in edges}


def _build_edges_refusal(request: Delete, edges: Sequence[StoredRow]) -> Refused:
    examples = ", ".join(f"{row.record.type} {identity_text(row.record.identity)}" for row in edges[:5])
    more = f" and {len(edges) - 5} more" if len(edges) > 5 else ""
    identities = " ".join(shell_word(identity_text(identity)) for identity in dict.fromkeys(request.identities))
    return Refused(
        f"{len(edges)} edges refer to the records to delete: {examples}{more}",
        code="E_EDGES",
        suggestion=f"duckkb delete {request.kind.name} {identities} --cascade",
    )


def _rename(request: Rename, state: Drafting) -> Draft:
    kind, tree = request.kind, state.tree
    stored_row = tree.get(kind, request.old)
    if stored_row is None:
        missing = make_not_found_finding(kind, request.old, tree)
        raise NotFound(missing.message, suggestion=missing.remedy)
    if request.new == request.old:
        return Draft(Changeset(), ((kind, request.new),), 1)
    if tree.get(kind, request.new) is not None:
        raise Conflict(
            f"{kind.name} {identity_text(request.new)} already exists",
            code="E_EXISTS",
            suggestion="choose another identity, or delete that record first",
        )
    names = zip(kind.identity_fields, request.new, strict=True)
    fields = {**stored_row.record.fields, **{name: component_value(component) for name, component in names}}
    changes = [_build_change(stored_row.record, fields, state, request.new)]
    for edge_kind, row in _find_edges(kind, [stored_row], tree).values() if isinstance(kind, NodeType) else ():
        changes.append(_with_end(edge_kind, row.record, kind, request, state))
    return Draft(Changeset(tuple(changes)), ((kind, request.new),))


def _with_end(kind: EdgeType, edge: Record, node: RecordType, request: Rename, state: Drafting) -> Change:
    """Return the change that makes an edge name the new identity of a node, in the form in which its ends were
    written.
    """
    fields = dict(edge.fields)
    refs = state.tree.ends(kind, edge.identity)
    for name, ref in zip((FROM, TO), refs, strict=True):
        if isinstance(ref, Ambiguous) and end_identity(component_of(fields[name])) == request.old:
            raise _build_ambiguity_refusal(edge, name, ref)
        if ref == (node.name, request.old):
            bare = bare_end(request.new)
            fields[name] = (
                {"type": node.name, "id": component_value(bare)}
                if isinstance(fields[name], Mapping)
                else component_value(bare)
            )
    identity = strict_lines.identity_of(kind, fields)
    if identity != edge.identity and state.tree.get(kind, identity) is not None:
        raise Conflict(
            f"renaming would make {kind.name} {identity_text(identity)} twice",
            code="E_EXISTS",
            suggestion="delete one of the two edges first",
        )
    return _build_change(edge, fields, state, identity)


def _build_ambiguity_refusal(edge: Record, name: str, end: Ambiguous) -> Refused:
    who, types = f"{edge.type} {identity_text(edge.identity)}", " or ".join(end.types)
    return Refused(
        f"`{name}` of {who} may name this node or another one ({types}); nothing was renamed",
        code="E_AMBIGUOUS_END",
        suggestion=f'delete that edge, and put it with {{"type": ..., "id": ...}} for its `{name}`',
    )


def _apply(request: Apply, state: Drafting) -> Draft:
    tree, record_keys, changes = state.tree, [], []
    leaving = {(change.old.type, change.old.id) for change in request.changeset.changes if change.old is not None}
    for change in request.changeset.changes:
        kind = tree.ontology.find(change.record.type)
        if kind is None:
            raise StateError(f"no type {change.record.type}", code="E_UNKNOWN_TYPE", suggestion="duckkb schema")
        stored_row = tree.find_by_id(kind, change.record.id)
        holder = tree.get(kind, change.new.identity) if change.new is not None else None
        if mismatch := _describe_mismatch(stored_row.record if stored_row else None, change.old, request.exact):
            state.findings.append(_build_stale_finding(change.record, stored_row, mismatch))
        elif holder and holder.record.id != change.record.id and (kind.name, holder.record.id) not in leaving:
            state.findings.append(
                _build_stale_finding(change.record, holder, f"exists already, with __id {holder.record.id}")
            )
        record_keys.append((kind, change.record.identity))
        changes.append(change)
    _raise(state.findings, Conflict, "E_STALE", "the changeset does not apply")
    return Draft(Changeset(tuple(changes)), tuple(record_keys), places=request.places)


def _build_stale_finding(record: Record, stored_row: StoredRow | None, message: str) -> Finding:
    name = identity_text(record.identity)
    path, line = (stored_row.path, stored_row.line_no) if stored_row else ("", 0)
    remedy = f"duckkb get {record_arguments(record.type, record.identity)}"
    return Finding("E_STALE", f"{record.type} {name} {message}", path, line, "", remedy, record.type, name)


def _describe_mismatch(have: Record | None, target: Record | None, exact: bool) -> str:
    """Describe how a stored record differs from the expected one; empty where it does not."""
    if have is None:
        return "does not exist" if target is not None else ""
    if target is None:
        return "already exists"
    names = [name for name in {**target.fields, **have.fields} if _is_different(name, have.fields, target.fields)]
    times = (have.created_at, have.updated_at), (target.created_at, target.updated_at)
    names += [
        name for name, *both in zip((CREATED_AT, UPDATED_AT), *times, strict=True) if exact and len(set(both)) > 1
    ]
    return f"is not as expected ({', '.join(names)})" if names or have.identity != target.identity else ""


def _is_different(name: str, some: Mapping[str, Any], counterpart: Mapping[str, Any]) -> bool:
    return (name in some) != (name in counterpart) or not same_fields(some.get(name), counterpart.get(name))


def _raise(findings: Sequence[Finding], family: Callable[..., DuckkbError], code: str, message: str) -> None:
    if findings:
        is_single = len(findings) == 1
        raise family(
            findings[0].message if is_single else message,
            code=findings[0].code if is_single else code,
            suggestion=findings[0].remedy,
            findings=tuple(findings),
        )


def plain_request(tree: Tree, request: Request) -> Request:
    """Return the request with the ends of every edge in the form in which they are stored."""
    if not isinstance(request, (Upsert, Delete)) or not isinstance(request.kind, EdgeType):
        return request
    if isinstance(request, Delete):
        return replace(
            request, identities=tuple(plain_identity(tree, request.kind, entry) for entry in request.identities)
        )
    return replace(request, given=tuple(_simplify_edge(tree, request.kind, entry) for entry in request.given))


def plain_identity(tree: Tree, kind: RecordType, identity: Identity) -> Identity:
    """Return an edge's identity in the form in which it is, or would be, stored; return other identities
    unchanged.

    An edge keeps its form when another node gains or loses the identity that one of its ends names.
    """
    if not isinstance(kind, EdgeType) or tree.id_of(kind, identity) is not None:
        return identity
    first, second, *tail = identity
    plain = (_simplify_end(tree, first, kind.from_types), _simplify_end(tree, second, kind.to_types), *tail)
    ends = _list_spellings(tree, plain[0], kind.from_types), _list_spellings(tree, plain[1], kind.to_types)
    if all(len(forms) == 1 for forms in ends):
        return plain
    stored_identities = [
        candidate for pair in product(*ends) if tree.id_of(kind, candidate := (*pair, *tail)) is not None
    ]
    return stored_identities[0] if len(stored_identities) == 1 else plain


def _list_spellings(tree: Tree, end: Component, allowed_types: tuple[str, ...]) -> list[Component]:
    """Return an end as given, and with its type as it may be stored.

    The type is that of the node it leads to, or any allowed type where there is no such node.
    """
    if isinstance(end, TypedEnd) or len(allowed_types) == 1:
        return [end]
    parts = end if isinstance(end, tuple) else (end,)
    there = [name for name in allowed_types if tree.get(tree.ontology.nodes[name], parts) is not None]
    return [end, *(TypedEnd(name, parts) for name in (there if len(there) == 1 else () if there else allowed_types))]


def _simplify_edge(tree: Tree, kind: EdgeType, entry: Given) -> Given:
    identity = plain_identity(tree, kind, entry.identity)
    if identity == entry.identity:
        return entry
    ends = {FROM: component_value(identity[0]), TO: component_value(identity[1])}
    return replace(entry, identity=identity, fields={**entry.fields, **ends})


def _simplify_end(tree: Tree, end: Component, allowed_types: tuple[str, ...]) -> Component:
    if not isinstance(end, TypedEnd):
        return end
    other_types = (tree.ontology.nodes[name] for name in allowed_types if name != end.type)
    if any(tree.get(kind, end.id) is not None for kind in other_types):
        return end
    return end.id if len(end.id) > 1 else end.id[0]
