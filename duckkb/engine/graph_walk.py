"""Walks over edges, breadth first: neighbours within a depth, and a shortest path."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from duckkb.ontology.model import EdgeType, NodeType
from duckkb.storage.part import StoredRow
from duckkb.storage.tree import Side, Tree
from duckkb.types.records import Identity, identity_key

Edge = tuple[EdgeType, StoredRow, Side]
Place = tuple[str, str, tuple[tuple[Any, ...], ...]]
"""The sort key of an edge among those at a node: its type, its side, and the key of its identity."""


class Node(Struct, frozen=True):
    """A node that a walk has reached."""

    kind: NodeType
    row: StoredRow

    @property
    def key(self) -> tuple[str, Identity]:
        return self.kind.name, self.row.record.identity


class Steps(Struct, frozen=True):
    """The edges that a walk follows: their direction as seen from the current node, and their types (None: every
    type).

    A walk of one step may also be limited to the edges behind a place.
    """

    direction: Literal["out", "in", "both"] = "both"
    labels: frozenset[str] | None = None
    after: Place | None = None


class Step(Struct, frozen=True):
    """A node reached at some depth over an edge, from the step `before`; the start of a path has neither."""

    node: Node
    depth: int
    edge: Edge | None = None
    before: "Step | None" = None


def neighbors(tree: Tree, start: Node, steps: Steps, depth: int, limit: int) -> tuple[list[Step], bool]:
    """Return the nodes around `start`, nearest first, and whether `limit` cut them.

    At depth 1 every edge gives a line, parallel edges too; beyond, each node comes once, over the first edge to it.
    """
    results: list[Step] = []
    for step, is_new in _walk(tree, start, steps, depth):
        if is_new or step.depth == 1:
            results.append(step)
        if len(results) > limit:
            return results[:limit], True
    return results, False


def path(tree: Tree, start: Node, end: Node, steps: Steps, depth: int) -> list[Step]:
    """Return a shortest path of at most `depth` edges, both ends included; empty where there is none."""
    arrivals = (step for step, is_new in _walk(tree, start, steps, depth) if is_new and step.node.key == end.key)
    step = Step(start, 0) if start.key == end.key else next(arrivals, None)
    route: list[Step] = []
    while step is not None:
        route.append(step)
        step = step.before
    return route[::-1]


def _walk(tree: Tree, start: Node, steps: Steps, depth: int) -> Iterator[tuple[Step, bool]]:
    """Yield every step within a depth, breadth first, and whether it is the first to its node."""
    visited_keys = {start.key}
    queue = deque([Step(start, 0)])
    while queue:
        here = queue.popleft()
        for step in _find_next_steps(tree, here, steps) if here.depth < depth else ():
            is_new = step.node.key not in visited_keys
            yield step, is_new
            if is_new:
                visited_keys.add(step.node.key)
                queue.append(step)


def _find_next_steps(tree: Tree, here: Step, steps: Steps) -> Iterator[Step]:
    """Yield the next steps in the order of edge type, direction and identity: the same on every run."""
    sides = [
        (kind, way, names)
        for kind, way, names in tree.sides_at(here.node.kind.name, here.node.row.record.identity)
        if steps.direction in (way, "both") and (steps.labels is None or kind.name in steps.labels)
    ]
    for kind, way, names in sorted(sides, key=lambda side: (side[0].name, side[1])):
        for edge in islice(names, _find_first(names, (kind.name, way), steps.after), None):
            row, far_end = tree.get(kind, edge), tree.ends(kind, edge)[1 if way == "out" else 0]
            target = tree.node(far_end)
            if row is not None and target is not None:
                yield Step(
                    Node(tree.ontology.nodes[target.record.type], target), here.depth + 1, (kind, row, way), here
                )


def _find_first(names: Sequence[Identity], side: tuple[str, str], after: Place | None) -> int:
    """Return the index of the first edge behind `after`, among the sorted edges of one type and side."""
    if after is None or side > after[:2]:
        return 0
    return bisect_right(names, after[2], key=identity_key) if side == after[:2] else len(names)
