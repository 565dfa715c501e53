"""One edge, one identity: an end is written bare where that is clear, with its type only where it would be ambiguous; and
which records the ends of an edge are."""

from dataclasses import replace

from duckkb.engine.draft import Delete, Given, Request, Upsert
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.records import FROM, TO, Component, Identity, Record, TypedEnd, component_value
from duckkb.truth.files.tree import Tree


def plain_request(tree: Tree, request: Request) -> Request:
    """The request with every edge's ends in the form in which they are stored."""
    if not isinstance(request, (Upsert, Delete)) or not isinstance(request.kind, EdgeType):
        return request
    if isinstance(request, Delete):
        return replace(request, identities=tuple(plain_identity(tree, request.kind, one) for one in request.identities))
    return replace(request, given=tuple(_plain_given(tree, request.kind, one) for one in request.given))


def plain_identity(tree: Tree, kind: RecordType, identity: Identity) -> Identity:
    """An edge's identity in the form in which it is stored; other identities as they are."""
    if not isinstance(kind, EdgeType):
        return identity
    first, second, *rest = identity
    return (_plain(tree, first, kind.from_types), _plain(tree, second, kind.to_types), *rest)


def _plain_given(tree: Tree, kind: EdgeType, given: Given) -> Given:
    identity = plain_identity(tree, kind, given.identity)
    if identity == given.identity:
        return given
    ends = {FROM: component_value(identity[0]), TO: component_value(identity[1])}
    return replace(given, identity=identity, fields={**given.fields, **ends})


def _plain(tree: Tree, end: Component, allowed: tuple[str, ...]) -> Component:
    if not isinstance(end, TypedEnd):
        return end
    others = (tree.ontology.nodes[name] for name in allowed if name != end.type)
    if any(tree.get(kind, end.id) is not None for kind in others):
        return end
    return end.id if len(end.id) > 1 else end.id[0]


def end_ids(tree: Tree, kind: RecordType, record: Record) -> tuple[int | None, int | None]:
    """The ids of an edge's two ends, for the columns `from_id` and `to_id`; None where one dangles or is ambiguous."""
    if not isinstance(kind, EdgeType):
        return None, None
    source, target = tree.ends(kind, record.identity)
    first, second = tree.node(source), tree.node(target)
    return (first.record.id if first else None), (second.record.id if second else None)
