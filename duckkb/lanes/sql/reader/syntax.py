"""Parses filters and statements to syntax trees with DuckDB's parser. Nothing is executed.

The result is plain JSON: an expression is an object with `class` and `type`. New nodes are built here, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from duckkb.errors import FilterError, shell_word
from duckkb.lanes.sql.process.engine import Engine

Node = Mapping[str, Any]

MAX_FILTER = 4096  # bytes
MAX_STATEMENT = 65_536
MAX_NODES = 300
MAX_DEPTH = 40
MAX_ITEMS = 1000

_HEAD = "SELECT 1 FROM __t WHERE "
_OF_COLUMNS = re.compile(
    r"(?:show\s+(?:full\s+)?(?:columns|fields)\s+(?:from|in)|\\d\+?|\.schema|desc(?:ribe)?\s+table)\s+(\w+)\s*;?|(\w+)",
    re.I,
)
"""What other programs call the columns of a table; a word alone is a table."""
_NOTHING_BEHIND = re.compile(r"([-=<>~!+*/%|&^@]+)\s*\)?\s*$")
_PLAIN = {"select_list", "from_table", "where_clause", "type", "aggregate_handling", "cte_map"}


class Source(Struct, frozen=True):
    """The text of a filter or of a whole statement. Its errors say which, and where."""

    text: str
    is_filter: bool = False

    @property
    def code(self) -> str:
        return "E_FILTER" if self.is_filter else "E_SQL"

    def build_refusal(self, construct: str, advice: str, node: Node | None = None) -> FilterError:
        """Return the error for an unsupported construct, with its place if the tree knows it."""
        position = self.place(node) if node else None
        where = f" at character {position}" if position else ""
        return FilterError(
            f"A {'filter' if self.is_filter else 'statement'} cannot have {construct}{where}.",
            code=self.code,
            suggestion=advice,
            details={"construct": construct, "position": position},
        )

    def place(self, node: Node) -> int | None:
        """Return the character, counted from 1, of an expression; None if the parser lost it."""
        offset = node.get("query_location")
        return self.character(offset) if isinstance(offset, int) else None

    def character(self, offset: int) -> int | None:
        """Return the character, counted from 1, of the parser's byte offset."""
        start = offset - (len(_HEAD) + 1 if self.is_filter else 0)
        data = self.text.encode()
        return len(data[:start].decode(errors="ignore")) + 1 if 0 <= start <= len(data) else None

    def check(self) -> None:
        """Refuse a text that no parser should see."""
        if self.is_filter and not self.text.strip():
            raise self.build_refusal("an empty condition", "Write a comparison, for example: year >= 2020")
        if "\0" in self.text:
            raise self.build_refusal("a NUL character", "Remove it.")
        try:
            size = len(self.text.encode())
        except UnicodeEncodeError:
            raise self.build_refusal("a lone surrogate", "Write the whole character.") from None
        most = MAX_FILTER if self.is_filter else MAX_STATEMENT
        if size > most:
            raise self.build_refusal(f"more than {most:,} bytes", "Make it shorter.")


def parse_condition(engine: Engine, source: Source) -> tuple[Any, Node]:
    """Parse a filter as the WHERE of a SELECT; return that and the filter's expression. Raises FilterError if the
    text is anything else or too large.
    """
    source.check()
    answer = engine.parse(f"{_HEAD}({source.text}\n)")
    if answer.get("error"):
        raise _build_syntax_error(source, answer)
    if engine.parse(f"{_HEAD}{source.text}\n").get("error"):
        # `a = 1) OR (b = 2` parses only because the brackets around it are ours
        raise source.build_refusal("unbalanced brackets", "Close the brackets in the order in which they were opened.")
    if len(answer["statements"]) != 1:
        raise source.build_refusal("several statements", "Give one condition.")
    return answer, _extract_condition(source, answer["statements"][0])


def parse_statement(engine: Engine, source: Source) -> Any:
    """Return the tree of a single SELECT; raises FilterError for any other text."""
    source.check()
    answer = engine.parse(source.text)
    if answer.get("error"):
        raise _build_syntax_error(source, answer)
    count = len(answer["statements"])
    if count != 1:
        raise source.build_refusal("several parts" if count else "nothing in it", "give exactly one SELECT")
    if answer["statements"][0].get("named_param_map"):
        raise source.build_refusal("parameters", "write the values as constants")
    return answer


def is_reserved(engine: Engine, word: str) -> bool:
    """Return whether a plain word cannot name a field without quotes."""
    return bool(engine.parse(f"{_HEAD}({word} = 1\n)").get("error"))


def _build_syntax_error(source: Source, answer: Node) -> FilterError:
    match answer.get("error_type"):
        case "nesting":
            return too_deep(source)
        case "size":
            return source.build_refusal("so many terms or grouping sets", "make the statement shorter")
        case "not implemented" if not source.is_filter:
            return source.build_refusal("anything but SELECT, SHOW TABLES and DESCRIBE", 'duckkb sql "SHOW TABLES"')
    error_offset = answer.get("position")
    position = source.character(int(error_offset)) if error_offset is not None else None
    if sign := _NOTHING_BEHIND.search(source.text[: position + 1] if position else source.text):
        offset = len(source.text[: sign.start()].encode()) + (len(_HEAD) + 1 if source.is_filter else 0)
        place = {"query_location": offset}
        return source.build_refusal(f"nothing after the operator {sign[1]}", "write the value to compare with", place)
    where = f" at character {position}" if position else ""
    advice = "check quotes, brackets and operators; strings take single quotes, odd field names double ones"
    word, _, tail = source.text.strip().partition(" ")
    if not source.is_filter and (table := _OF_COLUMNS.fullmatch(source.text.strip())):
        advice = f'duckkb sql "DESCRIBE {table[1] or table[2]}"'
    near = get_close_matches(word.upper(), ("SELECT", "SHOW", "DESCRIBE", "WITH"), 1, 0.7)
    if not source.is_filter and near and near[0] != word.upper():
        advice = f"duckkb sql {shell_word(f'{near[0]} {tail}')}"
    return FilterError(
        f"The {'condition' if source.is_filter else 'statement'} does not parse{where}.",
        code=source.code,
        suggestion=advice,
        details={"construct": "syntax", "position": position},
    )


def refuse_expression(source: Source, node: Node) -> FilterError:
    """Return the error for an unsupported class of expression, or operator."""
    name, kind = str(node.get("class")), str(node.get("type"))
    if name == "OPERATOR":
        word = kind.removeprefix("OPERATOR_").lower().replace("_", " ")
        return source.build_refusal(f"the operator {word}", "Use comparisons.", node)
    word = {"PARAMETER": "a parameter"}.get(name, f"a {name.lower().replace('_', ' ')}")
    return source.build_refusal(word, "Use comparisons over fields and constants.", node)


def too_deep(source: Source) -> FilterError:
    """Return the error for a tree that is too deep to walk."""
    return source.build_refusal("so many levels of nesting", "make it flatter")


def _extract_condition(source: Source, statement: Node) -> Node:
    node = statement["node"]
    table = node.get("from_table") or {}
    plain = (
        node.get("type") == "SELECT_NODE"
        and not any(value for key, value in node.items() if key not in _PLAIN)
        and not (node.get("cte_map") or {}).get("map")
        and table.get("type") == "BASE_TABLE"
        and table.get("table_name") == "__t"
        and not any(table.get(key) for key in ("alias", "sample", "at_clause", "schema_name", "catalog_name"))
        and len(node["select_list"]) == 1
    )
    condition: Node | None = node.get("where_clause")
    if not plain or not condition:
        raise source.build_refusal("more than one condition", "Give one condition without clauses around it.")
    _check_size(condition, source)
    return condition


def _check_size(root: Node, source: Source) -> None:
    """Refuse trees that are too large or too deep; the constants of an IN list have a separate limit."""
    stack, count = [(root, 1)], 0
    while stack:
        node, depth = stack.pop()
        count += 1
        inner = list(_iter_children(node))
        if node.get("type") == "COMPARE_IN":
            if len(inner) > MAX_ITEMS + 1:
                raise source.build_refusal("more than 1,000 items in a list", "Split the list.", node)
            inner = [child for child in inner if child.get("class") != "CONSTANT"]
        if depth > MAX_DEPTH:
            raise source.build_refusal("more than 40 levels of nesting", "Make the condition flatter.", node)
        if count > MAX_NODES:
            raise source.build_refusal("more than 300 terms", "Make the condition shorter.", node)
        stack.extend((child, depth + 1) for child in inner)


def _iter_children(value: Any) -> Iterator[Node]:
    """Yield the expressions directly below an expression, wherever its form has them."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in inner:
        if isinstance(child, Mapping) and "class" in child:
            yield child
        else:
            yield from _iter_children(child)


def text_node(value: str) -> Node:
    """Build a constant text."""
    return _build_literal("STRING", value)


def number_node(text: str) -> Node:
    """Build a constant number from its digits."""
    return _build_literal("INTEGER" if text.lstrip("-").isdigit() else "NUMERIC", text)


def _build_literal(kind: str, text: str) -> Node:
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": kind, "text": text}}


def null_node(sql_type: str = "") -> Node:
    """Build NULL, with a type if given: the engine picks functions by type."""
    null = _build_literal("NULL_LITERAL", "")
    return cast_node(null, sql_type) if sql_type else null


def call_node(name: str, *arguments: Node) -> Node:
    """Build a call of a function or, if its name is not a word, of an operator."""
    call = {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "is_operator": not name.isidentifier(),
    }
    return with_arguments(call, arguments, name)


def arguments_of(call: Node) -> list[Node]:
    """Return the argument expressions of a function, an operator or a window function."""
    return [argument["expression"] for argument in call["arguments"]]


def with_arguments(call: Node, expressions: Sequence[Node], name: str = "") -> Node:
    """Replace the arguments of a call and keep their names; with a `name`, call that function without argument
    names.
    """
    if name:
        name_fields = {"function_name": name, "qualified_name": {"path": [name]}}
        return {
            **call,
            **name_fields,
            "arguments": [{"name": "", "expression": expression} for expression in expressions],
        }
    pairs = zip(call["arguments"], expressions, strict=True)
    return {**call, "arguments": [{**argument, "expression": expression} for argument, expression in pairs]}


def coalesce_node(*nodes: Node) -> Node:
    """Build COALESCE: the first node that is not NULL."""
    return {"class": "OPERATOR", "type": "OPERATOR_COALESCE", "children": [*nodes]}


def case_node(checks: Sequence[tuple[Node, Node]], otherwise: Node) -> Node:
    """Build CASE: the result of the first condition that is true."""
    check_nodes = [{"when_expr": condition, "then_expr": then} for condition, then in checks]
    return {"class": "CASE", "type": "CASE_EXPR", "case_checks": check_nodes, "else_expr": otherwise}


def cast_node(inner: Node, sql_type: str) -> Node:
    """Build a TRY_CAST: a value that does not convert is NULL."""
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "child": inner,
        "type_expr": _build_type(sql_type),
        "try_cast": True,
    }


def _build_type(name: str) -> Node:
    inner = [_build_type(name[:-2])] if name.endswith("[]") else []
    return {"class": "TYPE", "type": "TYPE", "type_name": "list" if inner else name, "children": inner}


def try_node(inner: Node) -> Node:
    """Build TRY: a failure is NULL."""
    return {"class": "OPERATOR", "type": "OPERATOR_TRY", "children": [inner]}


def any_node(tests: list[Node]) -> Node:
    """Join tests by OR."""
    return {"class": "CONJUNCTION", "type": "CONJUNCTION_OR", "children": tests} if len(tests) > 1 else tests[0]


def bare_date(node: Node) -> str:
    """Return the date that arithmetic of three small numbers was meant to be (2026-01-01, 2026/1/1); empty for
    anything else.
    """
    match node:
        case {
            "function_name": ("-" | "/") as sign,
            "arguments": [{"expression": {"function_name": first, "arguments": [year, month]}}, day],
        } if first == sign:
            parts = [part["expression"].get("literal", {}) for part in (year, month, day)]
        case _:
            return ""
    if not all(part.get("kind") == "INTEGER" and part["text"].isdigit() for part in parts):
        return ""
    numbers = [int(part["text"]) for part in parts]
    inside = all(
        least <= number <= most for number, least, most in zip(numbers, (1000, 1, 1), (9999, 12, 31), strict=True)
    )
    return "{}-{:02}-{:02}".format(*numbers) if inside else ""
