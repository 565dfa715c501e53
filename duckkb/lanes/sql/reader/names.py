"""Resolves names: the columns that a part of a statement sees, and the steps into a value: dotted paths, brackets
and the JSON arrows.
"""

import re
from collections.abc import Iterable, Sequence

from duckkb.errors import FilterError
from duckkb.lanes.sql.columns import Columns
from duckkb.lanes.sql.kinds import element, is_list
from duckkb.lanes.sql.reader.syntax import Node, call_node, cast_node
from duckkb.lanes.sql.reader.terms import ANY, Term, list_error, name_kind

_STEP = re.compile(r"""\.([^.\[\]"$*]+)|\."([^"]+)"|\[(\d+)\]""")


class Scope:
    """The names that the expressions of a query see: tables by alias (None if the columns are unknown, as of a
    subquery), words with another meaning, and the surrounding query.
    """

    def __init__(self, outer: "Scope | None" = None, words: Iterable[str] = ()) -> None:
        self.outer = outer
        self.tables: dict[str, Columns | None] = {}
        self.words = {word.casefold() for word in words}  # parameters of a lambda, which hide columns
        self.aliases: set[str] = set()  # aliases of a SELECT list, which hide no columns
        self.queries: frozenset[str] = outer.queries if outer else frozenset()  # names that WITH defines

    def add(self, alias: str, columns: Columns | None) -> None:
        """Add a table; a table without a name gets a name that nobody can write."""
        self.tables[alias.casefold() or f"\0{len(self.tables)}"] = columns

    def field(self, node: Node) -> Term | None:
        """Resolve a COLUMN_REF to a column and the path in it; None if only the engine can. Raises FilterError for
        an unknown name.
        """
        first: Columns | None = None
        level: Scope | None = self
        while level is not None:
            term, decided = level._resolve_field(node)
            if decided:
                return term
            first = first or next((columns for columns in level.tables.values() if columns), None)
            level = level.outer
        if first is not None:
            first.find(node["column_names"][0])
        return None

    def _resolve_field(self, node: Node) -> tuple[Term | None, bool]:
        """Resolve a name here; the second value is False if it belongs to the surrounding query."""
        parts = node["column_names"]
        head = parts[0].casefold()
        if head in self.words:
            return None, True
        if len(parts) > 1 and head in self.tables:
            columns = self.tables[head]
            return (_resolve_column(node, columns, parts[1:], parts[:1]) if columns else None), True
        holders = self._find_holders(parts[0])
        if len(holders) == 1:
            ((alias, columns),) = holders.items()
            return _resolve_column(node, columns, parts, [alias] if len(self.tables) > 1 else []), True
        return None, bool(holders) or head in self.aliases or None in self.tables.values()

    def _find_holders(self, name: str) -> dict[str, Columns]:
        """Return the tables with a field of this name; tables with a separate column for it take precedence."""
        path_tables: dict[str, Columns] = {}
        columns: dict[str, Columns] = {}
        for alias, table in self.tables.items():
            try:
                _, path = table.find(name) if table else (None, ("",))
            except FilterError:
                continue
            if table:
                (path_tables if path else columns)[alias] = table
        return columns or path_tables


def _resolve_column(node: Node, columns: Columns, parts: Sequence[str], table: Sequence[str]) -> Term:
    column, path = columns.find(parts[0])
    term = Term(node, column.kind, parts[0] if path else column.name)
    if path or len(parts) > 1 or column.sql_name.casefold() != parts[0].casefold():
        named_column = {**node, "column_names": [*table, column.sql_name]}
        term = Term(named_column, column.kind, term.name)
    for step in (*path, *parts[1:]):
        term = inside(term, step)
    return Term(term.node, term.kind, ".".join(parts), path=term.path)


def inside(term: Term, step: str | int) -> Term:
    """Return the value at a key or an index (from 0) of JSON, or of a text that holds JSON."""
    if term.kind == "json[]":
        term = Term(call_node("to_json", term.node), "json", term.name)
    if term.kind == "text":
        term = Term(cast_node(term.node, "JSON"), "json", term.name)
    if is_list(term.kind):
        raise list_error(term)
    if term.kind != "json":
        raise FilterError(
            f"{term.name} is {name_kind(term.kind)} and has nothing inside.",
            details={"construct": "path", "field": term.name},
        )
    return Term(term.node, "json", f"{term.name}.{step}", path=(*term.path, step))


def index_value(node: Node, term: Term, index: Term) -> Term:
    """Build `value[index]`: an element of a list, counted from 1 (from the end if negative), a character of a
    text, or a key of JSON. `node` is the original expression.
    """
    index_node = {**node, "children": [term.whole, index.whole]}
    if index.constant and index.kind == "text":
        return inside(term, index.value)
    if index.constant and index.value == 0 and (is_list(term.kind) or term.kind in ("json", "text")):
        raise _build_element_error(term, 0)
    if is_list(term.kind):
        return Term(index_node, element(term.kind), f"{term.name}[{index.value if index.constant else index.name}]")
    if term.kind in ("text", ANY):
        return Term(index_node, term.kind, term.name)
    if not (index.constant and index.kind == "integer"):
        raise FilterError("An index must be a whole number or a key in quotes.", details={"construct": "index"})
    if term.kind == "json" and index.value > 0:
        return inside(term, min(1_000_000_000, index.value) - 1)
    raise _build_element_error(term, index.value)


def _build_element_error(term: Term, position: int) -> FilterError:
    return FilterError(
        f"{term.name} has no element [{position}].",
        suggestion="indices count from 1; of a text, substring() takes a part",
        details={"construct": "index", "field": term.name},
    )


def arrow(name: str, term: Term, step: Term) -> Term:
    """Build `value -> step` and `->>`, or the function of that name: a key, an index from 0, or a path (`$.a.b[0]`
    or `/a/b/0`).
    """
    if term.kind == ANY:
        return Term(call_node(name, term.node, step.whole), ANY, term.name)
    if not step.constant or step.kind not in ("integer", "text"):
        raise FilterError("A JSON path must be a constant.", details={"construct": "JSON path"})
    steps = [step.value] if step.kind == "integer" else _parse_steps(step.value)
    for key in steps:
        if isinstance(key, int) and key < 0:
            raise FilterError("An index into JSON counts from 0.", details={"construct": "JSON path"})
        term = inside(term, key)
    return term


def _parse_steps(path: str) -> list[str | int]:
    if path.startswith("/"):
        return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    if not path.startswith("$"):
        return [path]
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise FilterError(
                "A JSON path does not parse.", suggestion="'$.key.inner[0]'", details={"construct": "JSON path"}
            )
        steps.append(int(match[3]) if match[3] else match[1] or match[2])
        position = match.end()
    return steps
