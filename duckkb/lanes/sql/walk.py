"""The walk over a statement's syntax tree: what it may read and call, decided node by node."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from duckkb.errors import FilterError
from duckkb.lanes.sql.allowed import EXPRESSIONS, FUNCTIONS, JOINS, MODIFIERS, TYPES


class Walk:
    """One walk over a statement's tree; `named` collects the tables it reads."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = {name.casefold() for name in tables}
        self.named: set[str] = set()

    def query(self, node: Mapping[str, Any], scope: frozenset[str]) -> None:
        """A SELECT, a set operation or a recursive step; `scope` has the names that WITH defined around it."""
        scope = self._with(node, scope)
        match node["type"]:
            case "SELECT_NODE":
                self._table(node["from_table"], scope)
                rest = {key: value for key, value in node.items() if key not in ("from_table", "cte_map", "sample")}
                if node.get("sample"):
                    raise refused("a sample", "use LIMIT")
                self._values(rest, scope)
            case "SET_OPERATION_NODE" | "RECURSIVE_CTE_NODE":
                self._set_operation(node, scope)
            case _:
                raise refused("this kind of query")

    def _with(self, node: Mapping[str, Any], scope: frozenset[str]) -> frozenset[str]:
        for item in (node.get("cte_map") or {}).get("map", []):
            name = item["key"].casefold()
            inner = item["value"]["query"]["node"]
            recursive = inner["type"] == "RECURSIVE_CTE_NODE"
            self.query(inner, scope | {name} if recursive else scope)
            scope |= {name}
        return scope

    def _set_operation(self, node: Mapping[str, Any], scope: frozenset[str]) -> None:
        branches = [node[key] for key in ("left", "right") if node.get(key)] or node.get("children", [])
        if not branches:
            raise refused("this kind of query")
        for branch in branches:
            self.query(branch, scope)
        self._values(node.get("modifiers", []), scope)

    def _table(self, table: Mapping[str, Any], scope: frozenset[str]) -> None:
        match table["type"]:
            case "EMPTY":
                return
            case "BASE_TABLE":
                self._base_table(table, scope)
            case "JOIN" if table["ref_type"] in JOINS:
                self._table(table["left"], scope)
                self._table(table["right"], scope)
                self._values(table.get("condition"), scope)
            case "SUBQUERY":
                self.query(table["subquery"]["node"], scope)
            case "EXPRESSION_LIST":
                self._values(table["values"], scope)
            case "TABLE_FUNCTION" if table["function"].get("function_name", "").lower() == "unnest":
                self._values(table["function"], scope)
            case "SHOW_REF" if table.get("query") and not table.get("table_name"):
                self.query(table["query"], scope)
            case "TABLE_FUNCTION":
                raise refused("a table function", "only the runtime tables can be read")
            case other:
                raise refused(f"{other.lower().replace('_', ' ')} in FROM")
        if table.get("sample"):
            raise refused("a sample", "use LIMIT")

    def _base_table(self, table: Mapping[str, Any], scope: frozenset[str]) -> None:
        if table.get("schema_name") or table.get("catalog_name") or table.get("at_clause"):
            raise refused("a qualified table name", "use the bare name of a runtime table")
        name = table["table_name"]
        if name.casefold() in scope:
            return
        if name.casefold() not in self._tables:
            raise _unknown_table(name, self._tables)
        self.named.add(name)

    def _values(self, value: Any, scope: frozenset[str]) -> None:
        """Expressions, wherever clauses and modifiers keep them."""
        if isinstance(value, Mapping):
            if "class" in value:
                self._expression(value, scope)
                return
            if str(value.get("type", "")).endswith("_MODIFIER") and value["type"] not in MODIFIERS:
                raise refused("this clause")
            for inner in value.values():
                self._values(inner, scope)
        elif isinstance(value, list):
            for inner in value:
                self._values(inner, scope)

    def _expression(self, node: Mapping[str, Any], scope: frozenset[str]) -> None:
        name = node["class"]
        if name not in EXPRESSIONS:
            raise refused(f"a {name.lower().replace('_', ' ')}")
        if name == "SUBQUERY":
            self.query(node["subquery"]["node"], scope)
            self._values(node.get("child"), scope)
            return
        if name in ("FUNCTION", "WINDOW"):
            self._function(node)
        if name == "CAST":
            _check_type(node["cast_type"])
        skipped = ("value", "cast_type") if name in ("CONSTANT", "CAST") else ()
        for key, value in node.items():
            if key not in skipped:
                self._values(value, scope)

    def _function(self, node: Mapping[str, Any]) -> None:
        name = node["function_name"].lower()
        if node.get("catalog") or node.get("schema") not in ("", "main"):
            raise refused("a qualified function", "call functions by their bare name")
        if name not in FUNCTIONS:
            word = name if name.isidentifier() else "this operator"
            raise refused(f"the function {word}", "use plain scalar, aggregate and window functions")


def _check_type(cast_type: Mapping[str, Any]) -> None:
    info = cast_type.get("type_info") or {}
    if cast_type["id"] == "UNBOUND":
        if info.get("name", "").lower() != "json" or info.get("schema") or info.get("user_type_modifiers"):
            raise refused("a CAST to this type")
    elif cast_type["id"] not in TYPES:
        raise refused("a CAST to this type")
    inner = [info["child_type"]] if info.get("child_type") else [pair["second"] for pair in info.get("child_types", [])]
    for child in inner:
        _check_type(child)


def _unknown_table(name: str, tables: Iterable[str]) -> FilterError:
    near = get_close_matches(name.casefold(), sorted(tables), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return FilterError(
        f"There is no runtime table {name!r}{hint}",
        code="E_SQL",
        suggestion='duckkb sql "SHOW TABLES"',
        details={"construct": "table", "table": name},
    )


def refused(construct: str, suggestion: str = 'duckkb sql "SHOW TABLES"') -> FilterError:
    """The error for what a statement may not have."""
    return FilterError(
        f"A statement cannot have {construct}.", code="E_SQL", suggestion=suggestion, details={"construct": construct}
    )
