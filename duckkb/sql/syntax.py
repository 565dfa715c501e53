"""Parses filters and statements to syntax trees with DuckDB's parser. Nothing is executed.

The result is plain JSON: an expression is an object with `class` and `type`. New nodes are built here, too.

The forms of the nodes in DuckDB's syntax trees, as `json_serialize_sql` of 2.0 writes them: a closed list.

A tree with an unknown node, field or word is refused before anything reads it, even if the value is a default:
an unknown part cannot be verified. Known parts may be read; `reading` decides whether they are allowed."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from msgspec import Struct

from duckkb.sql.sql_process import Engine
from duckkb.types.errors import FilterError, shell_word

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
        raise source.build_refusal("unbalanced brackets", "")
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
        return source.build_refusal(f"nothing after the operator {sign[1]}", "", place)
    where = f" at character {position}" if position else ""
    advice = ""
    word, _, tail = source.text.strip().partition(" ")
    if not source.is_filter and (table := _OF_COLUMNS.fullmatch(source.text.strip())):
        advice = f'duckkb sql "DESCRIBE {table[1] or table[2]}"'
    near = get_close_matches(word.upper(), ("SELECT", "SHOW", "DESCRIBE", "WITH"), 1, 0.7)
    if not source.is_filter and near and near[0] != word.upper():
        advice = f"duckkb sql {shell_word(f'{near[0]} {tail}')}"
    return FilterError(
        f"The {'condition' if source.is_filter else 'statement'} does not parse{where}: check quotes, brackets and "
        "operators; strings take single quotes, odd field names double ones.",
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


def _split_words(text: str, before: str = "") -> frozenset[str]:
    return frozenset(before + word for word in text.split())


# CLASS TYPE|TYPE: field=what it holds; fields of all nodes of a kind stand in `_OF_ALL`.
_EXPRESSIONS = """
BETWEEN COMPARE_BETWEEN: input=expression lower=expression upper=expression
CASE CASE_EXPR: case_checks=list:check else_expr=expression
CAST OPERATOR_CAST: child=expression try_cast=flag type_expr=expression
COLLATE COLLATE: child=expression collation=text
COLUMN_REF COLUMN_REF: column_names=list:text
COMPARISON COMPARE_EQUAL|COMPARE_NOTEQUAL|COMPARE_LESSTHAN|COMPARE_GREATERTHAN
  |COMPARE_LESSTHANOREQUALTO|COMPARE_GREATERTHANOREQUALTO|COMPARE_DISTINCT_FROM|COMPARE_NOT_DISTINCT_FROM:
  left=expression right=expression
CONJUNCTION CONJUNCTION_AND|CONJUNCTION_OR: children=list:expression
CONSTANT VALUE_CONSTANT: literal=literal
FUNCTION FUNCTION: function_name=text schema=text catalog=text qualified_name=name arguments=list:argument
  filter=expression? order_bys=modifier distinct=flag is_operator=flag export_state=no is_legacy_function_call=no
LAMBDA LAMBDA: lhs=expression expr=expression syntax_type=SINGLE_ARROW|LAMBDA_KEYWORD
OPERATOR
  OPERATOR_NOT|OPERATOR_IS_NULL|OPERATOR_IS_NOT_NULL|COMPARE_IN|OPERATOR_COALESCE|OPERATOR_TRY|ARRAY_EXTRACT|ARRAY_SLICE
  |STRUCT_EXTRACT|ARRAY_CONSTRUCTOR|OPERATOR_UNPACK|GROUPING_FUNCTION: children=list:expression
POSITIONAL_REFERENCE POSITIONAL_REFERENCE: index=number
STAR STAR: relation_name=text exclude_list=list:text replace_list=list:replacement columns=flag expr=expression?
  qualified_exclude_list=list:column rename_list=list:renaming
SUBQUERY SUBQUERY: subquery_type=SCALAR|EXISTS|ANY subquery=statement child=expression? comparison_type=sign
TYPE TYPE: type_name=text schema=text catalog=text qualified_name=name children=list:expression
WINDOW WINDOW_AGGREGATE|WINDOW_RANK|WINDOW_RANK_DENSE|WINDOW_NTILE|WINDOW_PERCENT_RANK
  |WINDOW_CUME_DIST|WINDOW_ROW_NUMBER|WINDOW_FIRST_VALUE|WINDOW_LAST_VALUE|WINDOW_LEAD|WINDOW_LAG|WINDOW_NTH_VALUE:
  function_name=text schema=text catalog=text qualified_name=name arguments=list:argument
  partitions=list:expression orders=list:order start=boundary end=boundary start_expr=expression?
  end_expr=expression? offset_expr=expression? default_expr=expression? ignore_nulls=flag has_ignore_nulls=flag
  filter_expr=expression? exclude_clause=NO_OTHER|CURRENT_ROW|GROUP|TIES distinct=flag arg_orders=list:order
  is_legacy_function_call=no
"""

_QUERIES = """
SELECT_NODE: select_list=list:expression from_table=table where_clause=expression?
  group_expressions=list:expression group_sets=list:set
  aggregate_handling=STANDARD_HANDLING|FORCE_AGGREGATES|NO_AGGREGATES_ALLOWED having=expression? sample=judged
  qualify=expression?
SET_OPERATION_NODE: setop_type=UNION|EXCEPT|INTERSECT|UNION_BY_NAME setop_all=flag left=query? right=query?
  children=list:query
RECURSIVE_CTE_NODE: cte_name=text union_all=flag left=query right=query aliases=list:text key_targets=list:expression
"""

_TABLES = """
EMPTY:
BASE_TABLE: schema_name=text table_name=text catalog_name=text qualified_name=name column_name_alias=list:text
  at_clause=judged
JOIN: left=table right=table condition=expression? join_type=INNER|LEFT|RIGHT|OUTER|FULL|SEMI|ANTI
  ref_type=REGULAR|NATURAL|CROSS|POSITIONAL|ASOF using_columns=list:text delim_flipped=no
  duplicate_eliminated_columns=none is_implicit=flag ranking_expression=none nearest_count=1
  nearest_order_type=ASCENDING nearest_approx=no
SUBQUERY: subquery=statement column_name_alias=list:text
TABLE_FUNCTION: function=expression column_name_alias=list:text with_ordinality=WITH_ORDINALITY|WITHOUT_ORDINALITY
EXPRESSION_LIST: expected_names=list:text expected_types=none values=list:row
SHOW_REF: table_name=text schema_name=text catalog_name=text qualified_name=name query=query?
  show_type=DESCRIBE|SUMMARY|SHOW|SHOW_FROM|SHOW_SPECIAL
"""

_MODIFIERS = """
ORDER_MODIFIER: orders=list:order
LIMIT_MODIFIER: limit=expression? offset=expression? limit_type=ROW_COUNT|PERCENTAGE
DISTINCT_MODIFIER: distinct_on_targets=list:expression
"""

# Nodes without a class or type: their place tells what they are.
_PARTS = """
tree: error=no statements=list:statement
statement: node=query named_param_map=list:judged
check: when_expr=expression then_expr=expression
argument: name=text expression=expression
literal: kind=BOOLEAN|INTEGER|NUMERIC|NULL_LITERAL|STRING text=text
name: path=list:text
order: type=ORDER_DEFAULT|ASCENDING|DESCENDING null_order=ORDER_DEFAULT|NULLS FIRST|NULLS LAST expression=expression
replacement: key=text value=expression
renaming: key=column value=text
column: catalog=text schema=text table=text column=text
ctes: map=list:cte
cte: key=text value=definition
definition: aliases=list:text materialized=CTE_MATERIALIZE_DEFAULT|CTE_MATERIALIZE_ALWAYS|CTE_MATERIALIZE_NEVER
  key_targets=list:expression payload_aggregates=none query_node=query
"""

_OF_ALL = {
    "expression": "class=text type=text alias=text query_location=number query_location_length=number",
    "query": "type=text modifiers=list:modifier cte_map=ctes",
    "table": "type=text alias=text sample=judged query_location=number query_location_length=number",
    "modifier": "type=text",
}
_NAMED = {
    **dict.fromkeys(("FUNCTION", "WINDOW"), ("catalog", "schema", "function_name")),
    "TYPE": ("catalog", "schema", "type_name"),
    **dict.fromkeys(("BASE_TABLE", "SHOW_REF"), ("catalog_name", "schema_name", "table_name")),
}
"""Nodes that repeat a name: in parts, and as the path that counts, which may have more parts."""

_LEAVES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: type(value) is int,
    "flag": lambda value: isinstance(value, bool),
    "no": lambda value: value is False,
    "none": lambda value: value is None or value == [],
    "1": lambda value: value == 1,
    "judged": lambda value: True,
    "set": lambda value: isinstance(value, list) and all(type(place) is int for place in value),
}
_WORDS = {
    "sign": _split_words("EQUAL NOTEQUAL LESSTHAN GREATERTHAN LESSTHANOREQUALTO GREATERTHANOREQUALTO", "COMPARE_")
    | {"INVALID"},
    "boundary": _split_words(
        "UNBOUNDED_PRECEDING UNBOUNDED_FOLLOWING CURRENT_ROW_RANGE CURRENT_ROW_ROWS CURRENT_ROW_GROUPS"
    )
    | _split_words(
        "PRECEDING_ROWS FOLLOWING_ROWS PRECEDING_RANGE FOLLOWING_RANGE PRECEDING_GROUPS FOLLOWING_GROUPS", "EXPR_"
    ),
}
"""Sets of words that several fields share."""


class Form(Struct, frozen=True):
    """The types that a node may have (any if there are none), and the content of each of its fields."""

    types: frozenset[str]
    fields: Mapping[str, str]


def check_forms(source: Source, tree: Any) -> None:
    """Refuse a tree with an unknown form; raises FilterError."""
    stack: list[tuple[str, Any]] = [("tree", tree)]
    while stack:
        expected_form, value = stack.pop()
        if expected_form.startswith("list:"):
            if not isinstance(value, list):
                raise _build_unknown_error(source, expected_form)
            stack.extend((expected_form.removeprefix("list:"), item) for item in value)
        elif expected_form.endswith("?"):
            stack += [] if value is None else [(expected_form.removesuffix("?"), value)]
        elif expected_form == "row":
            stack.append(("list:expression", value))
        elif is_leaf := _LEAVES.get(expected_form):
            if not is_leaf(value):
                raise _build_unknown_error(source, expected_form)
        elif expected_form.isupper() or expected_form in _WORDS:
            if value not in _WORDS.get(expected_form, expected_form.split("|")):
                raise _build_unknown_error(source, str(value))
        else:
            stack.extend(_list_fields(source, expected_form, value))


def _list_fields(source: Source, expected_form: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the expected form and the value of each field of a node."""
    form = _find_form(source, expected_form, node)
    if node.keys() != form.fields.keys():
        raise _build_unknown_error(source, ", ".join(sorted(node.keys() ^ form.fields.keys())))
    parts = _NAMED.get(str(node.get("class") or node.get("type")))
    if parts and not _is_path(node["qualified_name"], [node[part] for part in parts]):
        raise source.build_refusal("a qualified name", "use bare names", node)
    return ((field_form, node[field]) for field, field_form in form.fields.items())


def _find_form(source: Source, expected_form: str, node: Any) -> Form:
    if not isinstance(node, dict):
        raise _build_unknown_error(source, expected_form)
    if expected_form not in _OF_ALL:
        return _parse_forms()[expected_form, ""]
    name = str(node.get("class" if expected_form == "expression" else "type"))
    form = _parse_forms().get((expected_form, name))
    if form is None and expected_form == "table":
        raise source.build_refusal(f"{name.lower().replace('_', ' ')} in FROM", 'duckkb sql "SHOW TABLES"')
    if form is None and expected_form == "query":
        raise source.build_refusal("this kind of query", 'duckkb sql "SHOW TABLES"')
    if form is None and expected_form == "modifier":
        raise source.build_refusal("this clause", "leave it out")
    if form is None or (form.types and node.get("type") not in form.types):
        raise refuse_expression(source, node)
    return form


def _is_path(name: Any, parts: Sequence[Any]) -> bool:
    path = name.get("path") if isinstance(name, dict) else None
    filled_parts = [part for part in parts if part]
    return isinstance(path, list) and [part for part in path if part] == filled_parts and len(path) <= len(parts)


def _build_unknown_error(source: Source, construct: str) -> Exception:
    return source.build_refusal(f"this construct ({construct})", "write it in another way")


@cache
def _parse_forms() -> Mapping[tuple[str, str], Form]:
    """Parse the table of forms, by the place of a node and by its class or type."""
    forms = {}
    for expected_form, lines in (
        ("expression", _EXPRESSIONS),
        ("query", _QUERIES),
        ("table", _TABLES),
        ("modifier", _MODIFIERS),
        ("", _PARTS),
    ):
        for line in re.sub(r"\n +(?=\|)", "", lines).replace("\n  ", " ").strip().splitlines():
            head, _, field_text = line.partition(":")
            name, _, types = head.partition(" ")
            words = _split_fields(f"{_OF_ALL.get(expected_form, '')} {field_text}")
            fields = dict(word.split("=", 1) for word in words)
            forms[(expected_form, name) if expected_form else (name, "")] = Form(
                frozenset(filter(None, types.split("|"))), fields
            )
    return forms


def _split_fields(text: str) -> list[str]:
    """Split `field=value` words; a value may contain blanks, as NULLS FIRST does."""
    words: list[str] = []
    for word in text.split():
        if "=" in word:
            words.append(word)
        else:
            words[-1] += f" {word}"
    return words
