"""find, graph, sql: questions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from duckkb.actions.reading import line_of, row_named
from duckkb.actions.resolve import GivenIdentity, kind_named, positive, text_or_none
from duckkb.engine import boot, graph
from duckkb.engine import query as queries
from duckkb.engine.base import Base
from duckkb.errors import FilterError, UsageError
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ports import SqlLimits
from duckkb.queries import FindResult, Mode, SqlResult
from duckkb.records import identity_value
from duckkb.search.plan import Intent, servable
from duckkb.settings import Expansion, Fusion
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np

Direction = Literal["out", "in", "both"]


@dataclass(frozen=True, slots=True)
class Neighbors(Sequence[dict[str, Any]]):
    """Records around a node; `truncated` says that the limit cut them."""

    records: tuple[dict[str, Any], ...]
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def find(
    base: Base,
    type: str,
    query: str | None = None,
    *,
    mode: Mode | None = None,
    where: str | None = None,
    limit: int = 10,
    vector: "np.ndarray | Sequence[float] | None" = None,
    fusion: Fusion | None = None,
    expansion: Expansion | None = None,
    explain: bool = False,
) -> FindResult:
    """Search one type (or "all"). `mode` is "similar", "match", "hybrid", or None for the policy's default; `where`
    is a filter over fields, applied before ranking; `vector` (1-d) is a question given as a vector; `fusion` and
    `expansion` stand in for the policy's. Raises `errors.UsageError`, `errors.FilterError`, `errors.NotFound`,
    `errors.Unavailable`."""
    positive(limit)
    text_or_none(query, "a query")
    text_or_none(where, "a filter")
    if mode not in (None, *get_args(Mode)):
        raise UsageError(f"mode is similar, match, hybrid or where, not {mode!r}")
    intent = Intent(query, mode, where, limit, vector, fusion, expansion, explain)
    return queries.find(base, replace(intent, kinds=tuple(_kinds(base, type, intent))))


def _kinds(base: Base, type_name: str, intent: Intent) -> list[RecordType]:
    """One type, or for `all` those that the mode can serve."""
    if type_name != "all":
        return [kind_named(base, type_name)]
    has_query = bool(intent.text and intent.text.strip()) or intent.vector is not None
    served = servable(list(base.ontology), intent.mode if has_query else "where")
    if not served:
        raise UsageError(
            "no type can serve this search",
            code="E_INTENT",
            suggestion="add `search` to a type in the ontology; `duckkb schema` shows what each has",
        )
    return served


def neighbors(
    base: Base,
    type: str,
    identity: GivenIdentity,
    *,
    label: str | Sequence[str] | None = None,
    direction: Direction = "both",
    depth: int = 1,
    limit: int = 1000,
) -> Neighbors:
    """The records around one node, nearest first, each with the `_edge` that led to it."""
    start = _node(base, type, identity)
    steps = _steps(base, label, direction, min(depth, limit))
    found, truncated = graph.neighbors(base.tree, start, steps, depth, limit)
    return Neighbors(tuple(_step_line(step) for step in found), truncated)


def path(
    base: Base,
    start: tuple[str, GivenIdentity],
    end: tuple[str, GivenIdentity],
    *,
    label: str | Sequence[str] | None = None,
    direction: Direction = "both",
    depth: int = 6,
) -> Sequence[dict[str, Any]]:
    """A shortest path between two nodes, given as (type, identity); empty where there is none."""
    first, last = _node(base, *start), _node(base, *end)
    steps = _steps(base, label, direction, depth)
    return [_step_line(step) for step in graph.path(base.tree, first, last, steps, depth)]


def _node(base: Base, type_name: str, identity: GivenIdentity) -> graph.Node:
    kind = kind_named(base, type_name)
    if not isinstance(kind, NodeType):
        raise UsageError(f"{kind.name} is an edge type", suggestion="name a node type; `duckkb schema` lists them")
    _, row = row_named(base, type_name, identity)
    return graph.Node(kind, row)


def _steps(base: Base, label: str | Sequence[str] | None, direction: Direction, least: int) -> graph.Steps:
    if least < 1:
        raise UsageError("depth and limit must be 1 or more")
    if direction not in ("out", "in", "both"):
        raise UsageError(f"direction is out, in or both, not {direction!r}")
    names = [label] if isinstance(label, str) else label
    if names is None:
        return graph.Steps(direction)
    kinds = [kind_named(base, name) for name in names]
    wrong = [kind.name for kind in kinds if not isinstance(kind, EdgeType)]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is a node type", suggestion="--label takes edge types; `duckkb schema` lists them"
        )
    return graph.Steps(direction, frozenset(kind.name for kind in kinds))


def _step_line(step: graph.Step) -> dict[str, Any]:
    line = line_of(step.node.kind, step.node.row)
    if step.edge is None:
        return line | {"_depth": 0}
    kind, row, way = step.edge
    edge = {"_type": kind.name, "direction": way, "identity": identity_value(row.record.identity), **row.record.fields}
    return line | {"_depth": step.depth, "_edge": edge}


def sql(base: Base, statement: str, *, limit: int = 10_000, timeout: float = 30.0) -> SqlResult:
    """One read-only SELECT over the runtime tables: at most `limit` rows, 64 MiB, `timeout` seconds. Raises
    `errors.FilterError` (E_SQL), `errors.Unavailable` (E_LIMIT; E_INTERNAL where trying again helps)."""
    limit, statement = positive(limit), text_or_none(statement, "a statement") or ""
    if any("\ud800" <= character <= "\udfff" for character in statement):
        raise FilterError(
            "A statement cannot have a lone surrogate.", code="E_SQL", suggestion="write the whole character"
        )
    return _selected(base, statement, SqlLimits(rows=limit, seconds=timeout))


@boot.answered
def _selected(base: Base, statement: str, limits: SqlLimits) -> SqlResult:
    return base.sql.sql(statement, limits)
