"""Walking edges, breadth first: neighbours within a depth, and a shortest path."""

from collections import deque
from collections.abc import Iterator
from typing import Literal

from duckkb.ontology.model import EdgeType, NodeType
from duckkb.records import Identity, identity_key
from duckkb.truth.files.part import StoredRow
from duckkb.truth.files.tree import Side, Tree
from duckkb.values import dataclass

Edge = tuple[EdgeType, StoredRow, Side]


@dataclass(frozen=True, slots=True)
class Node:
    """A node where a walk stands."""

    kind: NodeType
    row: StoredRow

    @property
    def key(self) -> tuple[str, Identity]:
        return self.kind.name, self.row.record.identity


@dataclass(frozen=True, slots=True)
class Steps:
    """Which edges a walk follows: their direction as seen from where it stands, and their types (None: every type)."""

    direction: Literal["out", "in", "both"] = "both"
    labels: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A node reached at some depth over an edge; the start of a path has none."""

    node: Node
    depth: int
    edge: Edge | None = None


def neighbors(tree: Tree, start: Node, steps: Steps, depth: int, limit: int) -> tuple[list[Step], bool]:
    """The nodes around `start`, nearest first, and whether `limit` cut them.

    At depth 1 every edge gives a line, parallel ones too; beyond, each node comes once, over the first edge to it.
    """
    found: list[Step] = []
    seen = {start.key}
    queue = deque([Step(start, 0)])
    while queue:
        here = queue.popleft()
        if here.depth == depth:
            break
        for step in _onward(tree, here, steps):
            fresh = step.node.key not in seen
            if fresh or here.depth == 0:
                found.append(step)
            if len(found) > limit:
                return found[:limit], True
            if fresh:
                seen.add(step.node.key)
                queue.append(step)
    return found, False


def path(tree: Tree, start: Node, end: Node, steps: Steps, depth: int) -> list[Step]:
    """A shortest path of at most `depth` edges, both ends included; empty where there is none."""
    came: dict[tuple[str, Identity], tuple[Step, Step | None]] = {start.key: (Step(start, 0), None)}
    queue = deque([Step(start, 0)])
    while queue:
        here = queue.popleft()
        if here.node.key == end.key:
            return _back(came, end)
        if here.depth == depth:
            continue
        for step in _onward(tree, here, steps):
            if step.node.key not in came:
                came[step.node.key] = (step, here)
                queue.append(step)
    return []


def _back(came: dict[tuple[str, Identity], tuple[Step, Step | None]], end: Node) -> list[Step]:
    steps: list[Step] = []
    step: Step | None = came[end.key][0]
    while step is not None:
        steps.append(step)
        before = came[step.node.key][1]
        step = came[before.node.key][0] if before else None
    return steps[::-1]


def _onward(tree: Tree, here: Step, steps: Steps) -> Iterator[Step]:
    """The steps on from here, in the order of edge type, direction and identity: the same on every run."""
    edges = [
        (kind, row, way)
        for kind, row, way in tree.edges_at(here.node.kind.name, here.node.row.record.identity)
        if steps.direction in (way, "both") and (steps.labels is None or kind.name in steps.labels)
    ]
    edges.sort(key=lambda edge: (edge[0].name, edge[2], identity_key(edge[1].record.identity)))
    for kind, row, way in edges:
        other = tree.ends(kind, row.record.identity)[1 if way == "out" else 0]
        target = tree.node(other)
        if target is not None:
            yield Step(Node(tree.ontology.nodes[target.record.type], target), here.depth + 1, (kind, row, way))
