"""Compares JSON values: as numbers if both are numbers, else by their text.

A column is JSON if its values are nested or of several kinds. The engine treats them as texts and would put 10
before 9.
"""

from collections.abc import Sequence

from duckkb.lanes.sql.reader.syntax import Node, call_node, case_node, cast_node, null_node, text_node, with_arguments
from duckkb.lanes.sql.reader.terms import Term, convert_to_text, exact_double, json_pointer

EXTREMES = {
    "min": "arg_min",
    "max": "arg_max",
    **dict.fromkeys(("arg_min", "min_by"), "arg_min"),
    **dict.fromkeys(("arg_max", "max_by"), "arg_max"),
}
"""Aggregates for the first or the last value, and those that return another value beside it."""

_ZERO = cast_node(text_node("0"), "BIGINT")
_WHOLE = ("BIGINT", "UBIGINT", "HUGEINT")
_NUMBERS = (*_WHOLE, "DOUBLE")


def compare_json(sign: str, left: Term, right: Term) -> Node:
    """Compare two JSON values by a sign, a type of COMPARISON."""

    def test(first_node: Node, second_node: Node) -> Node:
        return {"class": "COMPARISON", "type": sign, "left": first_node, "right": second_node}

    def are(names: Sequence[str]) -> Node:
        return _join_conditions([_is_one_of(term, names) for term in (left, right)])

    texts = convert_to_text(left).node, convert_to_text(right).node
    whole = test(*(cast_node(text, "HUGEINT") for text in texts))
    number = test(*(cast_node(text, "DOUBLE") for text in texts))
    return case_node([(are(_WHOLE), whole), (are(_NUMBERS), number)], test(*texts))


def extreme(node: Node, name: str, terms: Sequence[Term]) -> Term | None:
    """Build a call of one of `EXTREMES` over JSON values in the order of `order_json`; None for another kind."""
    by = terms[-1]
    if by.kind != "json" or len(terms) != (1 if name in ("min", "max") else 2):
        return None
    text, picks = convert_to_text(by).node, EXTREMES[name]
    number = _build_number(by, exact_double(text, cast_node(text, "DOUBLE")))

    def call(function: str, *arguments: Node) -> Node:
        return {**with_arguments(node, arguments, function), "distinct": False}

    is_text: Node = {"class": "OPERATOR", "type": "OPERATOR_IS_NULL", "children": [number]}
    words = case_node([(is_text, text)], null_node("VARCHAR"))
    first, then = (words, number) if picks == "arg_max" else (number, words)  # numbers come before texts
    some = {"class": "COMPARISON", "type": "COMPARE_GREATERTHAN", "left": call("count", first), "right": _ZERO}
    whole = terms[0].whole
    return Term(case_node([(some, call(picks, whole, first))], call(picks, whole, then)), terms[0].kind, name)


def order_json(order: Node, term: Term) -> list[Node]:
    """Build the keys of an ORDER BY item: numbers in their order, then texts in theirs."""
    whole = case_node(
        [(_is_one_of(term, _WHOLE), cast_node(convert_to_text(term).node, "HUGEINT"))], null_node("HUGEINT")
    )
    number = _build_number(term, cast_node(convert_to_text(term).node, "DOUBLE"))
    return [{**order, "expression": key} for key in (number, whole, convert_to_text(term).node)]  # doubles may be alike


def _build_number(term: Term, number: Node) -> Node:
    """Return the number that a JSON value is; NULL for a text of digits, which sorts among texts."""
    return case_node([(_is_one_of(term, _NUMBERS), number)], null_node("DOUBLE"))


def _is_one_of(term: Term, names: Sequence[str]) -> Node:
    path = [text_node(json_pointer(term.path))] if term.path else []
    kind = call_node("json_type", term.node, *path)
    return {"class": "OPERATOR", "type": "COMPARE_IN", "children": [kind, *map(text_node, names)]}


def _join_conditions(conditions: Sequence[Node]) -> Node:
    return {"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "children": [*conditions]}
