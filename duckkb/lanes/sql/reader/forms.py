"""The forms of the nodes in DuckDB's syntax trees, as `json_serialize_sql` of 2.0 writes them: a closed list.

A tree with an unknown node, field or word is refused before anything reads it, even if the value is a default:
an unknown part cannot be verified. Known parts may be read; `reading` decides whether they are allowed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from duckkb.lanes.sql.reader.syntax import Source, refuse_expression


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
        raise source.build_refusal(f"{name.lower().replace('_', ' ')} in FROM", "name a runtime table")
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
