"""Rules of edges: where their ends lead, and how many of them a node may have."""

from collections.abc import Iterator

from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.records import FROM, TO, TypedEnd, component_of, identity_text
from duckkb.rules.view import BaseView, IntegrityRule, at
from duckkb.truth.files.part import StoredRow
from duckkb.truth.files.tree import Ambiguous, Ref, end_identity


def ends(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Both ends of an edge exist, each in exactly one of the types that it may have."""
    if isinstance(kind, EdgeType):
        for row in view.linked(kind):
            for name, end in zip((FROM, TO), view.ends(kind, row.record.identity), strict=True):
                if end is None or isinstance(end, Ambiguous):
                    yield _lost(kind, row, name, end)


def _lost(kind: EdgeType, row: StoredRow, name: str, end: Ambiguous | None) -> Finding:
    value = component_of(row.record.fields[name])
    shown = identity_text(end_identity(value))
    if end is not None:
        said = f"{shown} exists as {' and '.join(end.types)}"
        return at(row, "E_AMBIGUOUS_END", said, f'write it as {{"type": "{end.types[0]}", "id": ...}}', f"/{name}")
    types = (value.type,) if isinstance(value, TypedEnd) else kind.from_types if name == FROM else kind.to_types
    return at(
        row, "E_DANGLING_EDGE", f"no {' or '.join(types)} {shown}", "add the node, or delete the edge", f"/{name}"
    )


def left_behind(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """No edge stays that names a node which a write takes away."""
    if isinstance(kind, EdgeType):
        for row, (name, identity) in view.left_behind(kind):
            who = f"{kind.name} {identity_text(row.record.identity)}"
            said = f"{who} would lose its end {name} {identity_text(identity)}"
            yield at(row, "E_EDGES", said, "delete the edge too (--cascade)")


def cardinality(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """1:N lets a `to` have one `from`; N:1 lets a `from` have one `to`; 1:1 both."""
    if not isinstance(kind, EdgeType) or not (sides := limited_sides(kind)):
        return
    met: set[tuple[int, Ref]] = set()
    for row in view.compared(kind):
        found = view.ends(kind, row.record.identity)
        for side in sides:
            node = found[side]
            if node is None or isinstance(node, Ambiguous):
                continue
            if (side, node) in met or view.has_more_edges(kind, side, node):
                name = (FROM, TO)[side]
                said = f"{kind.name} is {kind.cardinality}: `{name}` {identity_text(node[1])} has another edge already"
                yield at(row, "E_CARDINALITY", said, f"delete the other {kind.name} edge, or change `cardinality`")
            met.add((side, node))


def limited_sides(kind: EdgeType) -> tuple[int, ...]:
    """The ends (0 from, 1 to) that may stand in at most one edge of this type."""
    return {"1:1": (0, 1), "1:N": (1,), "N:1": (0,), "N:N": ()}[kind.cardinality]


RULES = (IntegrityRule(ends), IntegrityRule(left_behind), IntegrityRule(cardinality))
