"""From a `--where` fragment to SQL: parse, walk the tree with an allow-list, write our own text.

Nothing that we did not write reaches the engine: names are looked up, constants are written anew, functions come from a
list. What the walk does not know it refuses.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from duckkb.errors import FilterError
from duckkb.lanes.sql import arithmetic
from duckkb.lanes.sql.access import arrow, at_index, inside
from duckkb.lanes.sql.columns import Columns, quoted
from duckkb.lanes.sql.compare import OPERATORS, common_kind, compare, is_among, like, unify
from duckkb.lanes.sql.engine import Engine
from duckkb.lanes.sql.functions import call, joined, list_of
from duckkb.lanes.sql.literals import cast, constant, interval
from duckkb.lanes.sql.syntax import MAX_BYTES, Node, is_reserved, parse_condition, place, refused
from duckkb.lanes.sql.terms import Term, as_boolean, date_constant, named, plain, timestamp_constant

MAX_SQL = 131_072
MAX_JOINS = 16  # each `||` may double a text; memory limits of the engine do not bound strings

_LIKES = {"~~": (False, False), "!~~": (False, True), "~~*": (True, False), "!~~*": (True, True)}
_LIKES_WITH_ESCAPE = {
    "like_escape": (False, False),
    "not_like_escape": (False, True),
    "ilike_escape": (True, False),
    "not_ilike_escape": (True, True),
}
_NAMES = {
    "SUBQUERY": "a subquery",
    "STAR": "a star",
    "WINDOW": "a window function",
    "PARAMETER": "a parameter",
    "COLLATE": "COLLATE",
    "POSITIONAL_REFERENCE": "a positional reference",
}
_NOW = ("now", "current_timestamp", "get_current_timestamp")
_TODAY = ("current_date", "today")
_JSON_CALLS = ("json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text", "struct_extract")


def compile_condition(engine: Engine, columns: Columns, fragment: str, now: datetime | None = None) -> str:
    """The SQL of a filter over one table's columns; raises FilterError for whatever is not allowed or does not fit.

    `now` is what now() and current_date mean, in UTC.
    """
    try:
        return _compiled(engine, columns, fragment, now)
    except FilterError as error:
        from duckkb.lanes.sql.advice import mended

        def reserved(text: str) -> list[str]:
            return _reserved(engine, columns, text)

        better = mended(columns, fragment, lambda text: _compiled(engine, columns, text, now), error, reserved)
        error.suggestion = better or error.suggestion
        raise


def _compiled(engine: Engine, columns: Columns, fragment: str, now: datetime | None) -> str:
    try:
        tree = parse_condition(engine, fragment)
    except FilterError as error:
        error.suggestion = _quoting_advice(engine, columns, fragment) or error.suggestion
        raise
    compilation = _Compilation(columns, fragment, now or datetime.now(UTC))
    sql = compilation.condition(tree).sql
    if len(sql) > MAX_SQL:
        raise refused("so many repeated parts", "Make the condition simpler.")
    return sql


def _quoting_advice(engine: Engine, columns: Columns, fragment: str) -> str:
    quoted_words = ", ".join(map(quoted, _reserved(engine, columns, fragment)[:5]))
    return f"put field names that are words of SQL in double quotes: {quoted_words}" if quoted_words else ""


def _reserved(engine: Engine, columns: Columns, fragment: str) -> list[str]:
    """Which field names of the fragment SQL keeps for itself, as `order` or `from`."""
    known = {name.casefold() for name in columns.names}
    words = dict.fromkeys(re.findall(r'(?<!["\w.])[^\W\d]\w*', fragment[:MAX_BYTES]))
    return [word for word in words if word.casefold() in known and is_reserved(engine, word)]


class _Compilation:
    """One walk over one tree."""

    def __init__(self, columns: Columns, fragment: str, now: datetime) -> None:
        self._columns = columns
        self._fragment = fragment
        self._now = now.astimezone(UTC).replace(tzinfo=None)
        self._joins = 0
        self._forms: dict[str, Callable[[Node], Term]] = {
            "COLUMN_REF": self._field,
            "CONSTANT": constant,
            "COMPARISON": self._comparison,
            "CONJUNCTION": self._conjunction,
            "BETWEEN": self._between,
            "OPERATOR": self._operator,
            "CASE": self._case,
            "CAST": self._cast,
            "FUNCTION": self._function,
            "LAMBDA": self._lambda,
        }

    def condition(self, node: Node) -> Term:
        """A term that is true, false or NULL."""
        term = self.term(node)
        if term.kind in ("boolean", "json"):
            return as_boolean(term)
        if term.kind == "null":
            return Term("CAST(NULL AS BOOLEAN)", "boolean")
        raise refused(
            f"{named(term.kind)} where a condition belongs", "Compare it with something.", node, self._fragment
        )

    def term(self, node: Node) -> Term:
        """Any expression; errors get the place of the innermost node that knows its own."""
        form = self._forms.get(node["class"])
        if form is None:
            name = _NAMES.get(node["class"], node["class"].lower().replace("_", " "))
            raise refused(name, "Use comparisons over fields and constants.", node, self._fragment)
        try:
            return form(node)
        except FilterError as error:
            position = place(node, self._fragment)
            if position and not error.details.get("position"):
                error.details = {**error.details, "position": position}
                error.message = f"{error.message.removesuffix('.')} (at character {position})."
            raise

    def _terms(self, nodes: Sequence[Node]) -> list[Term]:
        return [self.term(node) for node in nodes]

    def _field(self, node: Node) -> Term:
        head, *rest = node["column_names"]
        try:
            column, path = self._columns.find(head)
        except FilterError:
            if not rest and head.lower() in (*_NOW, *_TODAY):
                return self._moment(head.lower())
            raise
        term = Term(quoted(column.sql_name), column.kind, head if path else column.name)
        for step in (*path, *rest):
            term = inside(term, step)
        return Term(term.sql, term.kind, ".".join(node["column_names"]), path=term.path)

    def _moment(self, name: str) -> Term:
        return date_constant(self._now.date()) if name in _TODAY else timestamp_constant(self._now)

    def _comparison(self, node: Node) -> Term:
        operator = OPERATORS.get(node["type"])
        if operator is None:
            raise refused("this comparison", "Use =, <>, <, <=, >, >=, IS DISTINCT FROM.", node, self._fragment)
        return compare(operator, self.term(node["left"]), self.term(node["right"]))

    def _conjunction(self, node: Node) -> Term:
        word = {"CONJUNCTION_AND": " AND ", "CONJUNCTION_OR": " OR "}[node["type"]]
        return Term(f"({word.join(self.condition(child).sql for child in node['children'])})", "boolean")

    def _between(self, node: Node) -> Term:
        term, lower, upper = self._terms([node["input"], node["lower"], node["upper"]])
        return Term(f"({compare('>=', term, lower).sql} AND {compare('<=', term, upper).sql})", "boolean")

    def _operator(self, node: Node) -> Term:
        children = node["children"]
        match node["type"]:
            case "OPERATOR_NOT":
                return Term(f"(NOT {self.condition(children[0]).sql})", "boolean")
            case "OPERATOR_IS_NULL":
                return Term(f"({plain(self.term(children[0])).sql} IS NULL)", "boolean")
            case "OPERATOR_IS_NOT_NULL":
                return Term(f"({plain(self.term(children[0])).sql} IS NOT NULL)", "boolean")
            case "COMPARE_IN" | "COMPARE_NOT_IN":
                term, *items = self._terms(children)
                among = is_among(term, items)
                return among if node["type"] == "COMPARE_IN" else Term(f"(NOT {among.sql})", "boolean")
            case "OPERATOR_COALESCE":
                return call("coalesce", self._terms(children))
            case "ARRAY_EXTRACT":
                return at_index(*self._terms(children))
            case "STRUCT_EXTRACT":
                return arrow(*self._terms(children))
            case other:
                name = other.removeprefix("OPERATOR_").lower().replace("_", " ")
                raise refused(f"the operator {name}", "Use comparisons.", node, self._fragment)

    def _case(self, node: Node) -> Term:
        whens = [self.condition(check["when_expr"]).sql for check in node["case_checks"]]
        branches = unify(self._terms([*(check["then_expr"] for check in node["case_checks"]), node["else_expr"]]))
        tests = " ".join(f"WHEN {when} THEN {branch.sql}" for when, branch in zip(whens, branches[:-1], strict=True))
        return Term(f"(CASE {tests} ELSE {branches[-1].sql} END)", common_kind(branches), "the CASE")

    def _cast(self, node: Node) -> Term:
        return interval(node) or cast(self.term(node["child"]), node["cast_type"])

    def _function(self, node: Node) -> Term:
        name = node["function_name"].lower()
        self._check_plain_call(node, name)
        if node["is_operator"]:
            return self._operation(name, node)
        found = interval(node)
        if found:
            return found
        if name in _NOW or name in _TODAY:
            return self._moment(name)
        arguments = self._terms(node["children"])
        if name in _LIKES_WITH_ESCAPE and len(arguments) == 3:
            return self._like(_LIKES_WITH_ESCAPE[name], arguments)
        if name in _JSON_CALLS and len(arguments) == 2:
            return arrow(*arguments)
        if name in ("list_value", "list_pack"):
            return list_of(arguments)
        self._count_joins(len(arguments) - 1 if name == "concat" else 0, node)
        return call(name, arguments)

    def _check_plain_call(self, node: Node, name: str) -> None:
        orders = (node.get("order_bys") or {}).get("orders")
        # the parser itself writes `main` before what it makes of LIKE ... ESCAPE, lists and SUBSTRING(x FROM y)
        qualified = node.get("catalog") or node.get("schema") not in ("", "main")
        if qualified or node.get("filter") or node.get("distinct") or orders:
            raise refused("a qualified or aggregate call", "Call functions by their bare name.", node, self._fragment)
        if node.get("schema") == "main" and self._is_written("main."):
            raise refused("a qualified call", "Call functions by their bare name.", node, self._fragment)

    def _is_written(self, text: str) -> bool:
        return text in self._fragment.lower().replace(" ", "").replace('"', "")

    def _operation(self, name: str, node: Node) -> Term:
        arguments = self._terms(node["children"])
        if name in _LIKES:
            return self._like(_LIKES[name], arguments)
        if name in ("->", "->>"):
            return arrow(*arguments)
        if name == "||":
            self._count_joins(1, node)
            return joined(arguments)
        if name in arithmetic.OPERATORS and len(arguments) == 2:
            return arithmetic.arithmetic(name, *arguments)
        if name == "-" and len(arguments) == 1:
            return arithmetic.negative(arguments[0])
        raise refused(f"the operator {name}", "Use comparisons, + - * / %, ||.", node, self._fragment)

    def _like(self, form: tuple[bool, bool], arguments: Sequence[Term]) -> Term:
        fold, negated = form
        term = arguments[0]
        found = like(term, arguments[1], fold=fold, escape=arguments[2] if len(arguments) == 3 else None)
        return Term(f"(NOT {found.sql})", "boolean") if negated else found

    def _count_joins(self, count: int, node: Node) -> None:
        self._joins += count
        if self._joins > MAX_JOINS:
            raise refused("more than 16 joined texts", "Compare the parts.", node, self._fragment)

    def _lambda(self, node: Node) -> Term:
        """The parser takes `field -> 'key'` for a lambda wherever one could stand."""
        step = node["expr"]
        if step["class"] != "CONSTANT":
            raise refused("a lambda", "For JSON write (field -> 'key'), with the brackets.", node, self._fragment)
        return arrow(self.term(node["lhs"]), constant(step))
