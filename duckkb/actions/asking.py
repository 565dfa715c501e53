"""find, graph, sql: questions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from duckkb.actions.reading import line_of, no_record
from duckkb.actions.resolve import identity_named, kind_named, positive, text_or_none
from duckkb.engine import boot, graph, query
from duckkb.engine.base import Base
from duckkb.engine.index.counted import live_keys
from duckkb.errors import FilterError, UsageError
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ports import SqlLimits
from duckkb.queries import FindResult, Mode, SqlResult
from duckkb.records import identity_value
from duckkb.search.plan import servable
from duckkb.values import dataclass

Direction = Literal["out", "in", "both"]


@dataclass(frozen=True, slots=True)
class Walk:
    """How edges are followed."""

    label: str | Sequence[str] | None = None
    direction: Direction = "both"
    depth: int = 1
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Neighbors(Sequence[dict[str, Any]]):
    """Records around a node; `truncated` says that the limit cut them."""

    records: tuple[dict[str, Any], ...]
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def find(base: Base, type_name: str, intent: query.Intent) -> FindResult:
    """Answer an intent about one type, or about `all`; the intent comes without its types."""
    positive(intent.limit)
    for name, value in (("a query", intent.text), ("a filter", intent.where)):
        text_or_none(value, name)
    if intent.mode not in (None, *get_args(Mode)):
        raise UsageError(f"mode is similar, match, hybrid or where, not {intent.mode!r}")
    return query.find(base, replace(intent, kinds=tuple(_kinds(base, type_name, intent))))


def _kinds(base: Base, type_name: str, intent: query.Intent) -> list[RecordType]:
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


def neighbors(base: Base, type_name: str, identity: Any, walk: Walk) -> Neighbors:
    start = _node(base, type_name, identity)
    found, truncated = graph.neighbors(base.tree, start, _steps(base, walk), walk.depth, walk.limit)
    return Neighbors(tuple(_step_line(step) for step in found), truncated)


def path(base: Base, start: tuple[str, Any], end: tuple[str, Any], walk: Walk) -> list[dict[str, Any]]:
    first, last = _node(base, *start), _node(base, *end)
    return [_step_line(step) for step in graph.path(base.tree, first, last, _steps(base, walk), walk.depth)]


def _node(base: Base, type_name: str, identity: Any) -> graph.Node:
    kind = kind_named(base, type_name)
    if not isinstance(kind, NodeType):
        raise UsageError(f"{kind.name} is an edge type", suggestion="name a node type; `duckkb schema` lists them")
    named = identity_named(base, kind, identity)
    row = base.tree.get(kind, named)
    if row is None:
        raise no_record(base, kind, named)
    return graph.Node(kind, row)


def _steps(base: Base, walk: Walk) -> graph.Steps:
    if walk.depth < 1 or walk.limit < 1:
        raise UsageError("depth and limit must be 1 or more")
    if walk.direction not in ("out", "in", "both"):
        raise UsageError(f"direction is out, in or both, not {walk.direction!r}")
    names = [walk.label] if isinstance(walk.label, str) else walk.label
    if names is None:
        return graph.Steps(walk.direction)
    kinds = [kind_named(base, name) for name in names]
    wrong = [kind.name for kind in kinds if not isinstance(kind, EdgeType)]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is a node type", suggestion="--label takes edge types; `duckkb schema` lists them"
        )
    return graph.Steps(walk.direction, frozenset(kind.name for kind in kinds))


def _step_line(step: graph.Step) -> dict[str, Any]:
    line = line_of(step.node.kind, step.node.row)
    if step.edge is None:
        return line | {"_depth": 0}
    kind, row, way = step.edge
    edge = {"_type": kind.name, "direction": way, "identity": identity_value(row.record.identity), **row.record.fields}
    return line | {"_depth": step.depth, "_edge": edge}


def sql(base: Base, statement: str, limit: int, timeout: float) -> SqlResult:
    limit, statement = positive(limit), text_or_none(statement, "a statement") or ""
    if any("\ud800" <= character <= "\udfff" for character in statement):
        raise FilterError(
            "A statement cannot have a lone surrogate.", code="E_SQL", suggestion="write the whole character"
        )

    return _selected(base, statement, SqlLimits(rows=limit, seconds=timeout))


@boot.answered
def _selected(base: Base, statement: str, limits: SqlLimits) -> SqlResult:
    if "search_cache" in statement.lower():
        base.cache.shown = live_keys(base)
    return base.sql.sql(statement, limits)
