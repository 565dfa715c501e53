"""The actions find, graph and sql: questions.

Which condition of a filter takes the last record, for who finds nothing."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import boot, graph_walk, text_vectors
from duckkb.engine import find as queries
from duckkb.engine.base import Base
from duckkb.engine.rank_fusion import Intent, servable
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.operations.name_resolution import GivenIdentity, find_kind, positive, text_or_none
from duckkb.operations.record_lookup import find_row, line_of
from duckkb.ports import SqlLimits
from duckkb.storage.part import StoredRow
from duckkb.types.errors import FilterError, NotFound, UsageError, shell_word
from duckkb.types.queries import FindResult, Mode, Notice, SequenceMeta, SqlResult
from duckkb.types.records import component_of, component_value, identity_key, identity_text, identity_value
from duckkb.types.settings import Expansion, Fusion

if TYPE_CHECKING:
    import numpy as np

Direction = Literal["out", "in", "both"]
_NEAR_DEPTH = 200
"""The number of records looked at for each chunk."""
# Signs that may not follow a citation, since it would name another record:
# https://www.rfc-editor.org/rfc/rfc3986#section-2.3
_ENDS = rb"(?![A-Za-z0-9_~%-]|\.[A-Za-z0-9_~%-])"

_OF_CACHES = re.compile("search_(?:index|cache)", re.IGNORECASE)
"""Tables whose use needs vectors: cached vectors from elsewhere are withheld until a sample was checked."""


class Neighbors(Struct, Sequence[dict[str, Any]], frozen=True, metaclass=SequenceMeta):
    """Records around a node; `truncated`: the limit cut them; `next` continues, where that is possible."""

    records: tuple[dict[str, Any], ...]
    truncated: bool = False
    next: str | None = None
    notices: tuple[Notice, ...] = ()

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
    """Search one type (or "all").

    `mode` is "similar", "match", "hybrid", or None for the policy's default. `where` is a filter over fields,
    applied before ranking. `vector` (1-d) is a question given as a vector. `fusion` and `expansion` override
    the policy's. Raises `errors.UsageError`, `errors.FilterError`, `errors.NotFound`, `errors.Unavailable`.
    """
    positive(limit)
    text_or_none(query, "a query")
    text_or_none(where, "a filter")
    if mode not in (None, *get_args(Mode)):
        raise UsageError(f"mode is similar, match, hybrid or where, not {mode!r}")
    intent = Intent(query, mode, where, limit, vector, fusion, expansion, explain)
    return queries.find(base, replace(intent, kinds=tuple(_select_kinds(base, type, intent))))


def _select_kinds(base: Base, type_name: str, intent: Intent) -> list[RecordType]:
    """Return the named type, or for `all` those that the mode can serve."""
    if type_name != "all":
        return [find_kind(base, type_name, partial(_find_elsewhere, type_name, intent))]
    has_query = bool(intent.text and intent.text.strip()) or intent.vector is not None
    usable_kinds = servable(list(base.ontology), intent.mode if has_query else "where")
    if not usable_kinds:
        raise UsageError(
            "no type can serve this search",
            code="E_INTENT",
            suggestion="add `search` to a type in the ontology; `duckkb schema` shows what each has",
        )
    return usable_kinds


def _find_elsewhere(type_name: str, intent: Intent, near: str) -> str:
    """Return the search in the nearest type, or in all; without a question, the type's place holds the question."""
    if intent.where is not None or intent.vector is not None:
        return "duckkb schema"
    return f"duckkb find {near if near and intent.text else 'all'} {shell_word(intent.text or type_name)}"


class Count(Struct, frozen=True):
    """The number of a type's records, or of those that satisfy a filter."""

    type: str
    count: int
    notices: tuple[Notice, ...] = ()


def count(base: Base, type: str, *, where: str | None = None) -> Count:
    """Count the records of a type, or those that match a filter. Raises `errors.NotFound`, `errors.FilterError`."""
    kind, condition = find_kind(base, type), text_or_none(where, "a filter")
    if condition is None:
        return Count(kind.name, base.tree.count(kind))
    ids, notices = queries.match_filter(base, kind, condition)
    return Count(kind.name, len(ids), notices)


def neighbors(
    base: Base,
    type: str,
    identity: GivenIdentity,
    *,
    label: str | Sequence[str] | None = None,
    direction: Direction = "both",
    depth: int = 1,
    limit: int = 1000,
    after: str | None = None,
) -> Neighbors:
    """Return the records around a node, nearest first, each with the `_edge` that led to it.

    Records one edge away come in the order of edge type, direction and identity; `after` is the `next` of the
    previous page.
    """
    start = _load_node(base, type, identity)
    steps = replace(_build_steps(base, label, direction, min(depth, limit)), after=_place(after, depth))
    reached_steps, is_cut = graph_walk.neighbors(base.tree, start, steps, depth, limit)
    last = reached_steps[-1].edge if is_cut and depth == 1 and reached_steps else None
    return Neighbors(
        tuple(_format_step(step) for step in reached_steps), is_cut, None if last is None else _place_text(last)
    )


def _place(after: str | None, depth: int) -> graph_walk.Place | None:
    """Parse `after`.

    Raises `errors.UsageError` where it is invalid, and for walks of several steps, which have no pages.
    """
    if after is None:
        return None
    if depth != 1:
        raise UsageError("only records that are one edge away come in pages", suggestion="leave out depth or after")
    try:
        name, way, identity = json.loads(after)
        return str(name), str(way), identity_key(tuple(map(component_of, identity)))
    except (ValueError, TypeError, RecursionError):
        raise UsageError("`after` is not the `next` of a page", suggestion="leave it out for the first page") from None


def _place_text(edge: graph_walk.Edge) -> str:
    kind, row, way = edge
    parts = [component_value(component) for component in row.record.identity]
    return json.dumps([kind.name, way, parts], ensure_ascii=False, separators=(",", ":"))


def path(
    base: Base,
    start: tuple[str, GivenIdentity],
    end: tuple[str, GivenIdentity],
    *,
    label: str | Sequence[str] | None = None,
    direction: Direction = "both",
    depth: int = 6,
) -> Sequence[dict[str, Any]]:
    """Return a shortest path between two nodes, given as (type, identity); empty where there is none."""
    first, last = _load_node(base, *start), _load_node(base, *end)
    steps = _build_steps(base, label, direction, depth)
    return [_format_step(step) for step in graph_walk.path(base.tree, first, last, steps, depth)]


def _load_node(base: Base, type_name: str, identity: GivenIdentity) -> graph_walk.Node:
    kind = find_kind(base, type_name)
    if not isinstance(kind, NodeType):
        raise UsageError(f"{kind.name} is an edge type", suggestion="name a node type; `duckkb schema` lists them")
    _, row = find_row(base, type_name, identity)
    return graph_walk.Node(kind, row)


def _build_steps(base: Base, label: str | Sequence[str] | None, direction: Direction, least: int) -> graph_walk.Steps:
    if least < 1:
        raise UsageError("depth and limit must be 1 or more")
    if direction not in ("out", "in", "both"):
        raise UsageError(f"direction is out, in or both, not {direction!r}")
    names = [label] if isinstance(label, str) else label
    if names is None:
        return graph_walk.Steps(direction)
    kinds = [find_kind(base, name) for name in names]
    wrong = [kind.name for kind in kinds if not isinstance(kind, EdgeType)]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is a node type", suggestion="--label takes edge types; `duckkb schema` lists them"
        )
    return graph_walk.Steps(direction, frozenset(kind.name for kind in kinds))


def _format_step(step: graph_walk.Step) -> dict[str, Any]:
    line = line_of(step.node.kind, step.node.row)
    if step.edge is None:
        return line | {"_depth": 0}
    kind, row, way = step.edge
    fields, identity = row.record.fields, identity_value(row.record.identity)
    edge = {**fields, "_type": kind.name, "_direction": way}
    edge |= {} if identity == (fields["from"], fields["to"]) else {"_identity": identity}
    return line | {"_depth": step.depth, "_edge": edge}


def near(base: Base, type: str, identity: GivenIdentity, *, limit: int = 10) -> Neighbors:
    """Return the records of a type nearest in meaning to one of its records, by the vectors of their texts.

    Missing vectors are computed first, as in `find`. `_score` is the mean, over the record's chunks, of the
    cosine to the best chunk of the other record; 0 where that is not among the 200 nearest of the chunk. Raises
    `errors.UsageError` (E_INTENT) where the type has no vectors, and `errors.NotFound` (E_NO_RESULTS) where the
    record has none.
    """
    positive(limit)
    kind, row = find_row(base, type, identity)
    if not kind.vectors:
        message = f"records of {kind.name} have no vectors"
        raise UsageError(message, "E_INTENT", "add `search.vectors` to the type in the ontology")
    matches, notices = _find_nearest(base, kind, row, limit)
    if matches is None:
        record_name = f"{kind.name} {identity_text(row.record.identity)}"
        raise NotFound(f"{record_name} has no vectors", "E_NO_RESULTS", "duckkb index refresh")
    records = tuple({**line_of(kind, neighbor), "_score": score} for neighbor, score in matches)
    return Neighbors(records, notices=notices)


@boot.retry_if_stale
def _find_nearest(
    base: Base, kind: RecordType, row: StoredRow, limit: int
) -> tuple[list[tuple[StoredRow, float]] | None, tuple[Notice, ...]]:
    from duckkb.engine.text_vectors import compute_missing_vectors
    from duckkb.review.change_findings import nearest

    notices = compute_missing_vectors(base, [kind])
    return nearest(base, kind, row.record.id, limit, max(_NEAR_DEPTH, limit + 1)), notices


def find_citing_records(base: Base, type: str, identity: GivenIdentity, *, limit: int = 100) -> Neighbors:
    """Return the records that contain a citation of this record (`duckkb://TYPE/IDENTITY`, of any commit).

    They come in the order of types and files. Reads every record of the base.
    """
    positive(limit)
    kind, row = find_row(base, type, identity)
    lines = [line_of(*pair) for pair in islice(_find_citations(base, kind, row), limit + 1)]
    return Neighbors(tuple(lines[:limit]), len(lines) > limit)


def _find_citations(base: Base, kind: RecordType, target: StoredRow) -> Iterator[tuple[RecordType, StoredRow]]:
    from duckkb.review.history import Citation

    uri = str(Citation(kind.name, identity_text(target.record.identity))).encode()
    form = re.compile(re.escape(uri) + _ENDS)
    for source_kind in base.ontology:
        for row in base.tree.rows_with(source_kind, uri):
            is_itself = source_kind.name == kind.name and row.record.id == target.record.id
            if not is_itself and form.search(row.line):
                yield source_kind, row


def sql(base: Base, statement: str, *, limit: int = 10_000, timeout: float = 30.0) -> SqlResult:
    """Run one read-only SELECT over the runtime tables: at most `limit` rows, 64 MiB, `timeout` seconds.

    Raises `errors.FilterError` (E_SQL), `errors.Unavailable` (E_LIMIT; E_INTERNAL where trying again helps).
    """
    limit, statement = positive(limit), text_or_none(statement, "a statement") or ""
    if any("\ud800" <= character <= "\udfff" for character in statement):
        raise FilterError(
            "A statement cannot have a lone surrogate.", code="E_SQL", suggestion="write the whole character"
        )
    return _run_statement(base, statement, SqlLimits(rows=limit, seconds=timeout))


@boot.retry_if_stale
def _run_statement(base: Base, statement: str, limits: SqlLimits) -> SqlResult:
    if _OF_CACHES.search(statement) and not base.wiring.published:
        text_vectors.adopt_each(base, base.ontology)
    return base.sql.sql(statement, limits)


def describe_last_condition(where: str, count_records: Callable[[str], int]) -> tuple[str, str]:
    """Return what a search without results says, and the filter without the condition that takes the last record.

    `count_records` counts those that satisfy a filter. The filter is empty where a single condition finds nothing.
    """
    conditions = split_conditions(where)
    for at in range(len(conditions) - 1, 0, -1):
        before = " AND ".join(conditions[:at])
        if count := count_records(before):
            return f"no results: of {count:,} with {before} none has {conditions[at]}", before
    return "no results", ""


def split_conditions(condition: str) -> list[str]:
    """Return the conditions that `AND` joins, outside of texts and brackets; the whole where it has `OR`.

    >>> split_conditions("a = 'x AND y' AND b BETWEEN 1 AND 2 AND (c OR d)")
    ["a = 'x AND y'", 'b BETWEEN 1 AND 2', '(c OR d)']
    """
    depth, pieces = 0, [""]
    for word in re.findall(r"'(?:[^']|'')*'|\w+|\s+|.", condition, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(word, 0)
        is_between = re.search(r"(?i)\bbetween\s+[^\s]+\s+$", pieces[-1]) is not None
        if word.lower() == "or" and depth == 0:
            return [condition]
        if word.lower() == "and" and depth == 0 and not is_between:
            pieces.append("")
        else:
            pieces[-1] += word
    return [piece.strip() for piece in pieces]
