"""The only reader of filters and statements: it walks a syntax tree with an allow-list, resolves field names, and
returns the tree that runs.

In a filter and in any WHERE, values are compared as `terms` says, and nothing fails: a value that does not
convert is NULL. Elsewhere in a statement the engine's own rules hold, for everything but values inside of JSON.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from duckkb.sql import expressions, functions, statement_names
from duckkb.sql.columns import Columns, is_list
from duckkb.sql.expressions import (
    A_LIST,
    ANY,
    Term,
    choose,
    constant,
    convert_to_boolean,
    convert_to_text,
    list_error,
    match_items,
    meet,
    moment_term,
    name_kind,
    plain,
)
from duckkb.sql.statement_names import Scope, arrow, index_value
from duckkb.sql.syntax import Node, Source, arguments_of, bare_date, call_node, case_node, with_arguments
from duckkb.types.errors import FilterError, shell_word

Tables = Mapping[str, Callable[[], Columns | None]]
"""By name in lower case, a function that returns the columns of a runtime table; None if their kinds do not matter."""

_NOW = frozenset(("now", "current_timestamp", "get_current_timestamp"))
_TODAY = frozenset(("current_date", "today"))
_JSON_CALLS = frozenset(
    (
        "->",
        "->>",
        *("json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text", "struct_extract"),
    )
)
_TEXT_OF_JSON = frozenset(("->>", "json_extract_string", "json_extract_path_text"))
_LAMBDAS = ("_transform", "_apply", "_filter")


def reads_clock(text: str) -> bool:
    """Return whether the answer may depend on the present time."""
    return not (_NOW | _TODAY | {"age"}).isdisjoint(re.findall(r"\w+", text.lower()))


class TreeReader:
    """A walk over a tree; `tables` collects the runtime tables that it reads. `printed` gives the text of an
    expression. With `again` the tree is our own: only its parts are verified.
    """

    def __init__(
        self,
        source: Source,
        tables: Tables,
        printed: Callable[[Node], str] = str,
        now: datetime | None = None,
        *,
        again: bool = False,
    ) -> None:
        self.tables: set[str] = set()
        self._source = source
        self._known = tables
        self._printed = printed
        self._now = (now or datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None)
        self._again = again
        self._is_where = source.is_filter

    # Queries: their frames are changed in place.

    def query(self, node: Any, outer: Scope | None = None) -> Sequence[Term]:
        """Accept a SELECT, a set operation or a recursive step, and rewrite it to what runs; raises FilterError.
        Returns the selected terms of a SELECT.
        """
        around = Scope(outer)
        for item in (node.get("cte_map") or {}).get("map", []):
            name, definition = item["key"].casefold(), item["value"]
            item_scope = Scope(around)
            item_scope.queries |= {name} if definition["query_node"]["type"] == "RECURSIVE_CTE_NODE" else set()
            self.query(definition["query_node"], item_scope)
            result = Scope(item_scope)
            result.add("", None)
            definition["key_targets"] = self._map_expressions(definition["key_targets"], result)
            around.queries |= {name}
        before, self._is_where = self._is_where, False
        selected_terms: Sequence[Term] = ()
        if node["type"] == "SELECT_NODE":
            selected_terms = self._select(node, Scope(around))
        else:
            self._set_operation(node, around)
        self._is_where = before
        return selected_terms

    def _select(self, node: Any, scope: Scope) -> Sequence[Term]:
        if node.get("sample"):
            raise self._source.build_refusal("a sample", "use LIMIT")
        self._read_table(node["from_table"], scope)
        scope.aliases = {item["alias"].casefold() for item in node["select_list"] if item.get("alias")}
        selected_terms = [self.term(item, scope) for item in node["select_list"]]
        items = list(zip(node["select_list"], selected_terms, strict=True))
        terms_by_name: dict[str | int, Term] = {item.get("alias", "").casefold(): term for item, term in items}
        if not any("STAR" in item["class"] for item, _ in items):  # a star stands for several places
            terms_by_name |= dict(enumerate(selected_terms, 1))
        node["select_list"] = list(map(self._alias_item, node["select_list"], selected_terms))
        if node["where_clause"]:
            self._is_where = True
            node["where_clause"] = self.condition(node["where_clause"], scope).node
            self._is_where = False
        node["modifiers"] = self._read_modifiers(node.get("modifiers", []), scope, terms_by_name)
        finished_keys = ("from_table", "select_list", "where_clause", "cte_map", "sample", "modifiers")
        node.update(
            {key: self._map_expressions(value, scope) for key, value in node.items() if key not in finished_keys}
        )
        return selected_terms

    def _read_modifiers(self, modifiers: Any, scope: Scope, selected_terms: Mapping[str | int, Term]) -> Any:
        """Read ORDER BY, LIMIT and DISTINCT. `selected_terms` has the selected terms by place and alias, which
        takes precedence over a column of this name.
        """
        if self._again or any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in modifiers):
            return self._map_expressions(modifiers, scope)  # with DISTINCT only selected expressions may be sorted by
        new_modifiers = self._map_expressions(
            [{**modifier, "orders": []} if "orders" in modifier else modifier for modifier in modifiers], scope
        )
        for modifier, before in zip(new_modifiers, modifiers, strict=True):
            if "orders" in modifier:
                modifier["orders"] = [
                    order for each in before["orders"] for order in self._read_orders(each, scope, selected_terms)
                ]
        return new_modifiers

    def _read_orders(self, order: Node, scope: Scope, selected_terms: Mapping[str | int, Term]) -> list[Node]:
        expression = order["expression"]
        match expression:
            case {"column_names": [str(alias)]}:
                selected_term = selected_terms.get(alias.casefold())
            case {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": str(place)}}:
                selected_term = selected_terms.get(int(place.replace("_", "")))
            case _:
                selected_term = None
        term = selected_term or self.term(expression, scope)
        if term.kind == "json":
            return expressions.order_json(order, term)
        return [order if selected_term else {**order, "expression": term.whole}]

    def _alias_item(self, item: Node, term: Term) -> Node:
        """Return an item of a SELECT list under its original name."""
        expression = term.whole
        if expression == item or item.get("alias") or self._again:
            return {**expression, "alias": item.get("alias", "")}
        names = item.get("column_names")
        return {**expression, "alias": names[-1] if names else self._printed(item)}

    def _set_operation(self, node: Any, around: Scope) -> None:
        branches = [node[key] for key in ("left", "right") if node.get(key)] or node.get("children", [])
        if not branches:
            raise self._source.build_refusal("this kind of query", 'duckkb sql "SHOW TABLES"')
        for branch in branches:
            self.query(branch, around)
        result = Scope(around)
        result.add("", None)
        for key in ("modifiers", "key_targets"):
            node[key] = self._map_expressions(node.get(key, []), result)

    def _read_table(self, table: Any, scope: Scope) -> None:
        if table.get("sample"):
            raise self._source.build_refusal("a sample", "use LIMIT")
        match table["type"]:
            case "EMPTY":
                return
            case "BASE_TABLE":
                self._read_base_table(table, scope)
                return
            case "JOIN":
                self._read_table(table["left"], scope)
                self._read_table(table["right"], scope)
                table["condition"] = self._map_expressions(table.get("condition"), scope)
                return
            case "SUBQUERY":
                self.query(table["subquery"]["node"], scope)
            case "EXPRESSION_LIST":
                table["values"] = self._map_expressions(table["values"], scope)
            case "TABLE_FUNCTION" if table["function"].get("function_name", "").lower() == "unnest":
                table["function"] = self._map_expressions(table["function"], scope)
            case "SHOW_REF" if (
                table["query"] and not table["table_name"] and table["show_type"] in statement_names.SHOWN
            ):
                self.query(table["query"], scope)
            case "TABLE_FUNCTION":
                raise self._source.build_refusal("a table function", "only the runtime tables can be read")
            case table_type:
                raise self._source.build_refusal(
                    f"{table_type.lower().replace('_', ' ')} in FROM", 'duckkb sql "SHOW TABLES"'
                )
        scope.add(table.get("alias", ""), None)

    def _read_base_table(self, table: Any, scope: Scope) -> None:
        if table.get("schema_name") or table.get("catalog_name") or table.get("at_clause"):
            raise self._source.build_refusal("a qualified table name", "use the bare name of a runtime table")
        name = table["table_name"]
        columns = None
        if name.casefold() not in scope.queries:
            if name.casefold() not in self._known:
                raise _build_table_error(name, self._known, self._source.text)
            self.tables.add(name.casefold())
            columns = None if self._again else self._known[name.casefold()]()
        scope.add(table.get("alias") or name, None if table.get("column_name_alias") else columns)

    def _map_expressions(self, value: Any, scope: Scope) -> Any:
        """Rewrite expressions wherever clauses and modifiers have them."""
        if isinstance(value, Mapping):
            if "class" in value:
                return self.term(value, scope).whole
            return {key: self._map_expressions(inner, scope) for key, inner in value.items()}
        return [self._map_expressions(inner, scope) for inner in value] if isinstance(value, list) else value

    # Expressions: these return a new node.

    def condition(self, node: Node, scope: Scope) -> Term:
        """Read a term that is true, false or NULL."""
        term = self.term(node, scope)
        if term.kind in ("boolean", "json"):
            return convert_to_boolean(term)
        if not self._is_where or (term.kind in ("null", ANY) and (self._again or not _is_structure(term.node))):
            return term
        advice = "list_contains(LIST, VALUE), or len(LIST) > 0" if is_list(term.kind) else "Compare it with something."
        subject = "a structure" if term.kind == ANY else name_kind(term.kind)
        raise self._source.build_refusal(f"{subject} where a condition belongs", advice, node)

    def term(self, node: Node, scope: Scope) -> Term:
        """Read any expression; errors get the place of the innermost node with a known place."""
        name = node["class"]
        alone = statement_names.STATEMENTS_ALONE.get(name) or statement_names.STATEMENTS_ALONE.get(node["type"])
        if alone and self._source.is_filter:
            raise self._source.build_refusal(alone, "Use comparisons over fields and constants.", node)
        try:
            visit: Callable[[Node, Scope], Term] = getattr(self, f"_visit_{name.lower()}", self._visit_default)
            return visit(node, scope)
        except FilterError as error:
            error.code = self._source.code
            position = self._source.place(node)
            if position and not error.details.get("position"):
                error.details = {**error.details, "position": position}
                error.message = f"{error.message.removesuffix('.')} (at character {position})."
            raise

    def _should_convert(self, *terms: Term) -> bool:
        """Return whether duckkb's own comparison rules apply."""
        return not self._again and (self._is_where or any(term.kind in ("json", "json[]") for term in terms))

    def _visit_default(self, node: Node, scope: Scope) -> Term:
        kept_keys = ("literal", "type_expr", "subquery", "column_names")
        return Term(
            {key: inner if key in kept_keys else self._map_expressions(inner, scope) for key, inner in node.items()},
            ANY,
        )

    def _read_terms(self, nodes: Iterable[Node], scope: Scope) -> list[Term]:
        return [self.term(node, scope) for node in nodes]

    def _visit_constant(self, node: Node, scope: Scope) -> Term:
        return constant(node)

    def _visit_column_ref(self, node: Node, scope: Scope) -> Term:
        names = node["column_names"]
        if self._again:
            return Term(node, ANY)
        if self._is_where and len(names) == 1 and (moment := self._find_moment(names[0].lower())):
            try:
                return scope.field(node) or moment
            except FilterError:
                return moment
        term = scope.field(node) or Term(node, ANY, ".".join(names))
        return term if self._is_where or not term.path else Term(term.whole, "json", term.name)

    def _find_moment(self, name: str) -> Term | None:
        if name in _TODAY:
            return moment_term(self._now, "date")
        return moment_term(self._now, "timestamp") if name in _NOW else None

    def _visit_comparison(self, node: Node, scope: Scope) -> Term:
        left, right = self.term(node["left"], scope), self.term(node["right"], scope)
        self._refuse_bare_dates(left, node["right"])
        self._refuse_bare_dates(right, node["left"])
        has_null = any(side.constant and side.kind == "null" for side in (left, right))
        if has_null and self._is_where and not self._again and "DISTINCT" not in node["type"]:
            raise self._source.build_refusal(
                "a comparison with NULL", "no value equals NULL: write IS NULL or IS NOT NULL", node
            )
        if left.kind == right.kind == "json" and not self._again:
            return Term(expressions.compare_json(node["type"], left, right), "boolean")
        if self._should_convert(left, right):
            left, right = meet(left, right)
        return Term({**node, "left": left.whole, "right": right.whole}, "boolean")

    def _refuse_bare_dates(self, term: Term, *siblings: Node) -> None:
        """Refuse a date without quotes: it is a subtraction, which only compares with numbers."""
        bare = next((date for sibling in siblings if (date := bare_date(sibling))), "")
        if bare and not term.is_numeric and not self._again:
            raise self._source.build_refusal(f"the date {bare} without quotes, which is arithmetic", f"write '{bare}'")

    def _visit_conjunction(self, node: Node, scope: Scope) -> Term:
        return Term({**node, "children": [self.condition(child, scope).whole for child in node["children"]]}, "boolean")

    def _visit_between(self, node: Node, scope: Scope) -> Term:
        term, lower, upper = self._read_terms([node["input"], node["lower"], node["upper"]], scope)
        self._refuse_bare_dates(term, node["lower"], node["upper"])
        if not self._should_convert(term, lower, upper):
            return Term({**node, "input": term.whole, "lower": lower.whole, "upper": upper.whole}, "boolean")
        for operand in (term, lower, upper):
            if is_list(operand.kind):  # the engine cannot do this in any syntax
                raise list_error(operand)
        signs = ("COMPARE_GREATERTHANOREQUALTO", "COMPARE_LESSTHANOREQUALTO")
        bounds = [meet(term, limit) for limit in (lower, upper)]
        if bounds[0][0].node == bounds[1][0].node and "json" not in (lower.kind, upper.kind):
            (least, lower), (_, upper) = bounds
            return Term({**node, "input": least.node, "lower": lower.node, "upper": upper.node}, "boolean")
        tests = [
            expressions.compare_json(sign, term, limit)
            if term.kind == limit.kind == "json"
            else {"class": "COMPARISON", "type": sign, "left": operand.node, "right": converted_limit.node}
            for sign, limit, (operand, converted_limit) in zip(signs, (lower, upper), bounds, strict=True)
        ]
        return Term({"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "children": tests}, "boolean")

    def _visit_operator(self, node: Node, scope: Scope) -> Term:
        kind = node["type"]
        if kind == "OPERATOR_NOT":
            return Term({**node, "children": [self.condition(node["children"][0], scope).whole]}, "boolean")
        if kind == "ARRAY_CONSTRUCTOR":  # ARRAY['a'] is ['a']
            shared_fields = {key: node[key] for key in ("alias", "query_location", "query_location_length")}
            plain_call: Node = {"catalog": "", "schema": "", "filter": None, "distinct": False, **shared_fields}
            return self._visit_function({**plain_call, **call_node("list_value", *node["children"])}, scope)
        terms = self._read_terms(node["children"], scope)
        if "_IN" in kind:
            self._refuse_bare_dates(terms[0], *node["children"][1:])
        new_node = {**node, "children": [term.whole for term in terms]}
        if not self._should_convert(*terms):
            return Term(new_node, "boolean" if "NULL" in kind or "_IN" in kind else ANY)
        match kind:
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
                return Term({**node, "children": [plain(terms[0]).node]}, "boolean")
            case "COMPARE_IN":
                return Term(match_items(terms[0], terms[1:]), "boolean")
            case "OPERATOR_COALESCE":
                return choose(terms, lambda nodes: {**node, "children": nodes}, terms[0].name)
            case "ARRAY_EXTRACT":
                return index_value(node, *terms)
            case "STRUCT_EXTRACT" if terms[0].kind != ANY:
                return arrow("->", *terms)
            case _:
                return Term(new_node, terms[0].kind if kind in ("ARRAY_SLICE", "OPERATOR_TRY") else ANY, terms[0].name)

    def _visit_case(self, node: Node, scope: Scope) -> Term:
        whens = [self.condition(check["when_expr"], scope).whole for check in node["case_checks"]]
        branches = self._read_terms([*(check["then_expr"] for check in node["case_checks"]), node["else_expr"]], scope)

        def make(nodes: Sequence[Node]) -> Node:
            checks = [{"when_expr": when, "then_expr": then} for when, then in zip(whens, nodes[:-1], strict=True)]
            return {**node, "case_checks": checks, "else_expr": nodes[-1]}

        if self._should_convert(*branches):
            return choose(branches, make, "the CASE")
        return Term(make([branch.whole for branch in branches]), ANY, "the CASE")

    def _visit_cast(self, node: Node, scope: Scope) -> Term:
        cast_type = node["type_expr"]
        self._check_type(cast_type)
        term = self.term(node["child"], scope)
        name = statement_names.type_name(cast_type)
        if name == "INTERVAL":
            return Term({**node, "child": term.whole}, "interval", "the interval")
        if self._is_where and not self._again:
            return functions.convert_term(term, cast_type)
        child = convert_to_text(term).node if term.kind == "json" and name not in _NESTED else term.whole
        return Term({**node, "child": child}, ANY, term.name)

    def _check_type(self, cast_type: Node) -> None:
        """Check that a type contains only types, and the whole numbers that some types take."""
        name = statement_names.type_name(cast_type) if cast_type["class"] == "TYPE" else ""
        inner = [child for child in cast_type["children"] if child["class"] == "TYPE"] if name else []
        parameters = [child for child in cast_type["children"] if child["class"] != "TYPE"] if name else []
        if (
            not name
            or cast_type["schema"]
            or (inner and name not in _MADE_OF_TYPES)
            or (parameters and name not in _SIZED)
            or not all(child.get("literal", {}).get("kind") == "INTEGER" for child in parameters)
        ):
            raise self._source.build_refusal(
                "a CAST to this type", "use VARCHAR, BIGINT, INTEGER, DOUBLE, DECIMAL, BOOLEAN, DATE, TIMESTAMP or JSON"
            )
        for child in inner:
            self._check_type(child)

    def _visit_function(self, node: Node, scope: Scope) -> Term:
        name = self._check_function_name(node)
        arguments = arguments_of(node)
        if name == "if" and len(arguments) == 3:
            return self._visit_case(case_node([(arguments[0], arguments[1])], arguments[2]), scope)
        if name == "row" and not arguments:  # `field IN ()`
            raise self._source.build_refusal("nothing in brackets", "IN takes at least one value", node)
        if self._is_where and not arguments and (moment := self._find_moment(name)):
            return moment
        takes_functions = name.endswith(_LAMBDAS)
        terms = [
            self._read_element_function(child, scope)
            if takes_functions and child["class"] == "LAMBDA"
            else self.term(child, scope)
            for child in arguments
        ]
        typed = self._should_convert(*terms)
        known_call = self._build_call(node, name, terms) if typed else None
        if known_call is not None:
            return known_call
        kind = functions.result_kind(name, terms) if typed else ANY
        clauses = {key: self._map_expressions(node[key], scope) for key in ("filter", "order_bys") if node.get(key)}
        call = with_arguments({**node, **clauses}, [functions.pass_argument(name, term) for term in terms])
        soft = functions.soften(name, call) if typed and self._is_where else call
        return Term(soft, kind, A_LIST if is_list(kind) else name)

    def _build_call(self, node: Node, name: str, terms: Sequence[Term]) -> Term | None:
        """Return the call of a function with known kinds."""
        if name in _JSON_CALLS and len(terms) == 2:
            step_term = arrow(name, *terms)
            return step_term if self._is_where or name not in _TEXT_OF_JSON else convert_to_text(step_term)
        if name in expressions.EXTREMES and (extreme_call := expressions.extreme(node, name, terms)) is not None:
            return extreme_call
        if name in statement_names.ESCAPED and len(terms) == 3:
            return functions.like(name, terms)
        if name == "regexp_full_match" and len(terms) == 2 and _HALF_ANCHORED.fullmatch(str(terms[1].value)):
            raise self._source.build_refusal(
                "a pattern with one anchor for SIMILAR TO, which matches whole texts",
                "regexp_matches(FIELD, PATTERN)",
                node,
            )
        return functions.operation(name, terms) if node["is_operator"] else functions.call_function(name, terms)

    def _check_function_name(self, node: Node) -> str:
        name = str(node["function_name"]).lower()
        if node["catalog"] or node["schema"]:
            raise self._source.build_refusal("a qualified function", "call functions by their bare name", node)
        is_known = name in (statement_names.OPERATORS if node.get("is_operator") else statement_names.FUNCTIONS)
        if not is_known:
            word = name if name.isidentifier() else "of this operator" if not node.get("is_operator") else name
            raise self._source.build_refusal(
                f"the {'operator' if node.get('is_operator') else 'function'} {word}",
                "use plain functions of texts, numbers, dates, lists and JSON",
                node,
            )
        if name not in statement_names.TAKE_NAMES and any(argument["name"] for argument in node["arguments"]):
            raise self._source.build_refusal(f"a named argument of {name}", "give arguments by their place", node)
        if [argument["name"] for argument in node["arguments"]] == ["filter", "result"] and not self._source.place(
            node
        ):
            raise self._source.build_refusal("a list comprehension with IF", "list_filter(LIST, lambda x: CONDITION)")
        orders = (node.get("order_bys") or {}).get("orders")
        if self._source.is_filter and (
            name in statement_names.AGGREGATES | {"unnest"} or node.get("filter") or node.get("distinct") or orders
        ):
            raise self._source.build_refusal(f"the function {name} over many records", "use it with sql", node)
        return name

    def _visit_window(self, node: Node, scope: Scope) -> Term:
        name = self._check_function_name({**node, "filter": None, "order_bys": None})
        # such a frame is measured in the values of its ORDER BY
        if self._again or node.get("start_expr") or node.get("end_expr"):
            return self._visit_default(node, scope)
        terms = self._read_terms(arguments_of(node), scope)
        orders = [order for each in node.get("orders", []) for order in self._read_orders(each, scope, {})]
        window_node = {**self._visit_default({**node, "orders": []}, scope).node, "orders": orders}
        extreme_call = expressions.extreme(window_node, name, terms) if name in expressions.EXTREMES else None
        return extreme_call or Term(with_arguments(window_node, [term.whole for term in terms]), ANY)

    def _read_element_function(self, node: Node, scope: Scope) -> Term:
        """Read a function of a list's elements; its parameters are not fields."""
        names = node["lhs"].get("column_names") or [
            word
            for argument in node["lhs"].get("arguments", ())
            for word in argument["expression"].get("column_names", ())
        ]
        inner = self.term(node["expr"], Scope(scope, names)).whole
        return Term({**node, "expr": inner, "syntax_type": "LAMBDA_KEYWORD"}, ANY)  # the engine takes no other

    def _visit_lambda(self, node: Node, scope: Scope) -> Term:
        """Read a lambda, or `field -> 'key'`, which the parser takes for a lambda wherever a lambda may occur."""
        if node["expr"]["class"] != "CONSTANT" or node["syntax_type"] == "LAMBDA_KEYWORD":
            raise self._source.build_refusal("a lambda", "For JSON write (field -> 'key'), with the brackets.", node)
        term = self.term(node["lhs"], scope)
        if not self._should_convert(term) or term.kind == ANY:
            return Term({**node, "lhs": term.whole}, ANY)
        return arrow("->", term, constant(node["expr"]))

    def _visit_collate(self, node: Node, scope: Scope) -> Term:
        term = self.term(node["child"], scope)
        if self._should_convert(term) and term.kind not in ("text", "json", ANY):
            raise self._source.build_refusal(f"{name_kind(term.kind)} with COLLATE", "CAST it to VARCHAR.", node)
        return Term({**node, "child": plain(term).whole}, "text" if term.kind == "json" else term.kind, term.name)

    def _visit_subquery(self, node: Node, scope: Scope) -> Term:
        selected_terms = self.query(node["subquery"]["node"], scope)
        kind = selected_terms[0].kind if len(selected_terms) == 1 else ANY
        if not node.get("child"):
            is_json = kind == "json" and node["subquery_type"] == "SCALAR" and not self._again
            return Term(node, "json" if is_json else ANY)
        child = self.term(node["child"], scope)
        if child.kind == "json" != kind and self._should_convert(child):
            child = meet(child, Term(node, kind))[0]
        return Term({**node, "child": child.whole}, ANY)


# users of searching operators write `name SIMILAR TO '^a'`
_HALF_ANCHORED = re.compile(r"\^.*[^$*]|[^^.].*\$", re.DOTALL)
_MADE_OF_TYPES = frozenset(("LIST", "ARRAY", "STRUCT"))
_NESTED = _MADE_OF_TYPES | {"JSON"}
_SIZED = frozenset(("DECIMAL", "VARCHAR", "ARRAY"))


def _is_structure(node: Node) -> bool:
    """Return whether a value has several parts: `(a, b)`, `{'a': b}`, `MAP {a: b}`."""
    return node.get("function_name", "").lower() in ("row", "struct_pack", "map", "list_histogram")


def _build_table_error(name: str, tables: Iterable[str], statement: str) -> FilterError:
    near = get_close_matches(name.casefold(), sorted(tables), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    better = (
        re.sub(rf"(?i)\b(from|join|describe|summarize|show) '?{re.escape(name)}\b'?", rf"\1 {near[0]}", statement)
        if near
        else statement
    )
    return FilterError(
        f"No runtime table {name!r}{hint}",
        code="E_SQL",
        suggestion=f"duckkb sql {shell_word(better)}" if near and better != statement else 'duckkb sql "SHOW TABLES"',
        details={"construct": "table", "table": name},
    )
