"""Syntax trees of filters and statements: parsing, size limits and places.

DuckDB parses, nothing is executed. What comes back is plain JSON: an expression is an object with `class` and `type`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.errors import FilterError
from duckkb.lanes.sql.engine import Engine

Node = Mapping[str, Any]

MAX_BYTES = 4096
MAX_NODES = 300
MAX_DEPTH = 40
MAX_ITEMS = 1000

_BARE = "SELECT 1 FROM __t WHERE "
_HEAD = f"{_BARE}("
_PLAIN = {"select_list", "from_table", "where_clause", "type", "aggregate_handling", "cte_map"}


def parse_condition(engine: Engine, fragment: str) -> Node:
    """The tree of the one expression that a fragment is; raises FilterError where it is anything else or too large."""
    _check_text(fragment)
    answer = engine.parse(f"{_HEAD}{fragment}\n)")
    if answer.get("error"):
        raise _syntax_error(fragment, answer)
    if engine.parse(f"{_BARE}{fragment}\n").get("error"):
        # `a = 1) OR (b = 2` parses only because the brackets around it are ours
        raise refused("unbalanced brackets", "Close the brackets in the order in which they were opened.")
    statements = answer["statements"]
    if len(statements) != 1:
        raise refused("several statements", "Give one condition.")
    return _condition_of(fragment, statements[0])


def is_reserved(engine: Engine, word: str) -> bool:
    """Whether a plain word cannot name a field without quotes."""
    return bool(engine.parse(f"{_HEAD}{word} = 1\n)").get("error"))


def _check_text(fragment: str) -> None:
    if not fragment.strip():
        raise refused("an empty condition", "Write a comparison, for example: year >= 2020")
    if "\0" in fragment:
        raise refused("a NUL character", "Remove it.")
    try:
        size = len(fragment.encode())
    except UnicodeEncodeError:
        raise refused("a lone surrogate", "Write the whole character.") from None
    if size > MAX_BYTES:
        raise refused("more than 4,096 bytes", "Make the condition shorter.")


def _syntax_error(fragment: str, answer: Node) -> FilterError:
    found = answer.get("position")
    position = character(fragment, int(found)) if found is not None else None
    where = f" at character {position}" if position else ""
    return FilterError(
        f"The condition does not parse{where}.",
        suggestion="check quotes, brackets and operators; strings take single quotes, odd field names double ones",
        details={"construct": "syntax", "position": position},
    )


def _condition_of(fragment: str, statement: Node) -> Node:
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
        raise refused("more than one condition", "Give one condition without clauses around it.")
    check_size(condition, fragment)
    return condition


def check_size(root: Node, fragment: str) -> None:
    """Refuse trees that are too large or too deep; the constants of an IN list count by a limit of their own."""
    stack, count = [(root, 1)], 0
    while stack:
        node, depth = stack.pop()
        count += 1
        inner = list(children(node))
        if node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
            if len(inner) > MAX_ITEMS + 1:
                raise refused("more than 1,000 items in a list", "Split the list.", node, fragment)
            inner = [child for child in inner if child.get("class") != "CONSTANT"]
        if depth > MAX_DEPTH:
            raise refused("more than 40 levels of nesting", "Make the condition flatter.", node, fragment)
        if count > MAX_NODES:
            raise refused("more than 300 terms", "Make the condition shorter.", node, fragment)
        stack.extend((child, depth + 1) for child in inner)


def children(node: Node) -> Iterator[Node]:
    """The expressions directly below an expression, wherever its form keeps them."""
    for value in node.values():
        yield from _expressions(value)


def _expressions(value: Any) -> Iterator[Node]:
    if isinstance(value, Mapping):
        if "class" in value:
            yield value
        else:
            for inner in value.values():
                yield from _expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _expressions(inner)


def refused(construct: str, advice: str, node: Node | None = None, fragment: str = "") -> FilterError:
    """The error for a construct that filters do not have, with its place where the tree knows it."""
    position = place(node, fragment) if node else None
    where = f" at character {position}" if position else ""
    return FilterError(
        f"A filter cannot have {construct}{where}.",
        suggestion=advice,
        details={"construct": construct, "position": position},
    )


def place(node: Node, fragment: str) -> int | None:
    """The character of the fragment, counted from 1, at which an expression stands; None where the parser lost it."""
    found = node.get("query_location")
    return character(fragment, found) if isinstance(found, int) else None


def character(fragment: str, offset: int) -> int | None:
    start = offset - len(_HEAD)
    data = fragment.encode()
    if not 0 <= start <= len(data):
        return None
    return len(data[:start].decode(errors="ignore")) + 1
