"""Expressions with the kind of their value, and how values of different kinds meet.

| left and right | compared as |
|---|---|
| the same kind, or integer and number | as they are |
| text or JSON, and a number | numbers; text that is not a number does not match |
| text or JSON, and true/false, a date or a time | that kind; text that does not convert does not match |
| JSON and text | the text of the JSON value |
| JSON and JSON | numbers if both are numbers, else their texts (`json_order`) |
| text, JSON or a number, and a constant of 2^53 or more | whole numbers, to the last digit |
| text or JSON, and a number that is not a constant | numbers; a whole number without an equal double is refused |
| integer and number, neither a constant | numbers; a whole number is refused if rounding makes it equal to the number |
| a choice between integers and numbers | as the chosen value would be |
| date and time | times; a date is its first moment |
| a list and a list of the same kind | element by element |
| an unknown kind, and anything | by the engine's own rules |
| anything else | refused, naming the field |

Conversions never raise in the engine: a value that does not convert is NULL, so it does not match. A constant that
does not convert is the caller's mistake, and refused before anything runs.

Compares JSON values: as numbers if both are numbers, else by their text.

A column is JSON if its values are nested or of several kinds. The engine treats them as texts and would put 10
before 9."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec import Struct

from duckkb.sql.columns import EXACT, INT64, PAST_EXACT, element, is_list, parse_date, parse_timestamp, sql_type
from duckkb.sql.syntax import (
    Node,
    any_node,
    call_node,
    case_node,
    cast_node,
    coalesce_node,
    null_node,
    number_node,
    text_node,
    with_arguments,
)
from duckkb.types.errors import FilterError

ANY = "any"
A_LIST = "the list"  # the name of a list that is not a field

_NUMERIC_TEXT = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?\s*$"
WHOLE_TEXT, _LARGEST_WHOLE = r"^\s*[-+]?\d{1,38}\s*$", "1e38"
_WITH_OFFSET = r"^\s*\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*[+-]\d\d:\d\d\s*$"
_LARGEST = 1 << 127  # a constant from here on is a double


class Term(Struct, frozen=True):
    """An expression and its kind, one of `kinds` or `any`. A constant has its Python `value`; a JSON value lies at
    `path` inside of the node.

    `name` is the field or the word for messages. A choice between whole numbers and doubles is a double;
    `remake` rebuilds it with other forms of its terms, if a double would round.
    """

    node: Node
    kind: str
    name: str = "the expression"
    constant: bool = False
    value: Any = None
    path: tuple[str | int, ...] = ()
    remake: "Callable[[Callable[[Term], Term]], Node] | None" = None

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("integer", "number")

    @property
    def is_moment(self) -> bool:
        return self.kind in ("date", "timestamp")

    @property
    def whole(self) -> Node:
        """Return the expression as a value of its own."""
        return call_node("json_extract", self.node, text_node(json_pointer(self.path))) if self.path else self.node


def constant(node: Node) -> Term:
    """Convert a CONSTANT node to a term; raises FilterError for a constant that is not a value."""
    kind, text = node["literal"]["kind"], node["literal"]["text"]
    match kind:
        case "NULL_LITERAL":
            return Term(node, "null", "NULL", constant=True)
        case "STRING" if "\0" in text:
            raise FilterError("A text cannot have a NUL character.", details={"construct": "NUL"})
        case "STRING":
            return Term(node, "text", "the constant", constant=True, value=text)
        case "BOOLEAN":
            return Term(node, "boolean", "the constant", constant=True, value=text == "true")
    number = number_of(text.replace("_", ""))
    value_kind = "integer" if isinstance(number, int) else "number"
    # a BIGNUM, which compares with no other number; or a rounded number
    if value_kind != {"INTEGER": "integer"}.get(kind, "number"):
        node = {**node, **number_node(repr(number))}
    return Term(node, value_kind, "the constant", constant=True, value=number)


def number_of(text: str) -> int | float:
    """Parse a number: whole if it is written so, or if it is 2^53 or more, which a double would round. Raises
    FilterError for a number that neither 128 bits nor a double hold.
    """
    number = float(text)
    if number - number != 0:
        raise FilterError("A number is too large.", details={"construct": "number"})
    is_written_whole = re.fullmatch(r"\s*[-+]?\d+\s*", text, re.ASCII)
    if not is_written_whole and abs(number) < EXACT:
        return number
    exact = Decimal(text.strip())
    if exact != exact.to_integral_value():
        raise FilterError("A number past 2^53 cannot have a fraction.", details={"construct": "number"})
    return int(exact) if abs(exact) < _LARGEST else number


def moment_term(moment: datetime, kind: str) -> Term:
    """Return a date or a time as a constant."""
    text = moment.date().isoformat() if kind == "date" else moment.isoformat(sep=" ", timespec="microseconds")
    return Term(cast_node(text_node(text), sql_type(kind)), kind, "the constant", constant=True, value=moment)


def json_pointer(path: tuple[str | int, ...]) -> str:
    """Return a path as an RFC 6901 pointer; unlike DuckDB's paths it can name every key."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def plain(term: Term) -> Term:
    """Return JSON as its text, everything else unchanged."""
    return convert_to_text(term) if term.kind == "json" else term


def convert_to_text(term: Term) -> Term:
    match term.kind:
        case "text" | "null" | "any":
            return term
        case "json":
            return _build_term(
                call_node("json_extract_string", term.node, text_node(json_pointer(term.path))), "text", term
            )
        case "timestamp":
            digits = call_node("strftime", term.node, text_node("%Y-%m-%dT%H:%M:%S.%f"))
            return _build_term(call_node("||", digits, text_node("Z")), "text", term)
        case "interval":
            raise _build_conversion_error(term, "text")
        case kind if is_list(kind):
            raise list_error(term)
        case _:
            return _build_term(cast_node(term.node, "VARCHAR"), "text", term)


def convert_to_number(term: Term) -> Term:
    """Convert to a number; text counts if all of it is a number (spaces around allowed), as `5`, `-0.5` or `1e3`."""
    if term.is_numeric or term.kind in ("null", ANY):
        return term
    if term.constant and term.kind == "text":
        if not re.search(_NUMERIC_TEXT, term.value, re.ASCII):
            raise _build_conversion_error(term, "a number")
        text = term.value.strip()
        number = number_of(text)
        kind, name = ("integer", "BIGINT") if isinstance(number, int) else ("number", "DOUBLE")
        if kind == "integer" and abs(number) >= INT64:
            name = "HUGEINT"
        number_text = text if kind == "number" else str(number)
        return Term(cast_node(text_node(number_text), name), kind, term.name, constant=True, value=number)
    if term.kind in ("text", "json"):
        return _build_term(
            exact_double(convert_to_text(term).node, convert_to_nearest_number(term).node), "number", term
        )
    raise list_error(term) if is_list(term.kind) else _build_conversion_error(term, "a number")


def convert_to_nearest_number(term: Term) -> Term:
    """Convert as `convert_to_number` does, if the nearest double suffices: beside a constant below the range that
    doubles round.
    """
    if term.constant or term.kind not in ("text", "json"):
        return convert_to_number(term)
    digits = call_node("regexp_extract", convert_to_text(term).node, text_node(_NUMERIC_TEXT))
    return _build_term(cast_node(digits, "DOUBLE"), "number", term)


def exact_double(text: Node, number: Node) -> Node:
    """Return the double of a number in a text; a whole number that would be rounded fails the statement."""
    whole = cast_node(call_node("regexp_extract", text, text_node(WHOLE_TEXT)), "HUGEINT")
    return case_node([(_build_rounding_test(whole, number), _FAILS)], number)


def double_of_integer(integer: Term, beside: Node | None = None) -> Node:
    """Return the double of a whole number; a number that would be rounded fails the statement. In a comparison it
    fails only if it would equal the number `beside` it, since any other double is on the same side of both.
    """
    number = cast_node(integer.node, "DOUBLE")
    if integer.constant and (integer.value is None or abs(integer.value) < EXACT):
        return number
    rounds = _build_rounding_test(cast_node(integer.node, "HUGEINT"), number)
    if beside is not None:
        rounds = case_node(
            [(_build_comparison("EQUAL", number, beside), rounds)], cast_node(text_node("false"), "BOOLEAN")
        )
    return case_node([(rounds, _FAILS)], number)


_FAILS: Node = {**cast_node(text_node(PAST_EXACT), "DOUBLE"), "try_cast": False}


def _build_rounding_test(whole: Node, number: Node) -> Node:
    return _build_comparison("NOTEQUAL", whole, cast_node(number, "HUGEINT"))


def _build_comparison(sign: str, left: Node, right: Node) -> Node:
    return {"class": "COMPARISON", "type": f"COMPARE_{sign}", "left": left, "right": right}


def _convert_to_whole_number(term: Term) -> Term:
    """Convert as `convert_to_number` does, beside an integer that a double may not hold: a number without a
    fraction stays as it is written. If neither 128 bits nor a double near them hold it, it is the largest of
    its sign.
    """
    if term.remake is not None:
        return _build_term(term.remake(_convert_to_whole_number), "integer", term)
    if term.kind in ("integer", "null"):
        return _build_term(cast_node(term.node, "HUGEINT"), "integer", term)
    number = convert_to_nearest_number(term).node
    low, high = (cast_node(text_node(sign + _LARGEST_WHOLE), "DOUBLE") for sign in ("-", ""))
    bounded_number = call_node("greatest", call_node("least", number, high), low)  # which pass over NULL
    near = call_node("+", bounded_number, call_node("*", number, cast_node(text_node("0"), "DOUBLE")))
    if term.kind == "number":
        return _build_term(cast_node(near, "HUGEINT"), "integer", term)
    exact = call_node("regexp_extract", convert_to_text(term).node, text_node(WHOLE_TEXT))
    return _build_term(coalesce_node(cast_node(exact, "HUGEINT"), cast_node(near, "HUGEINT")), "integer", term)


def convert_to_count(term: Term) -> Term:
    """Convert to an integer small enough for positions and lengths; NULL for a larger value of a field."""
    number = convert_to_nearest_number(term)
    if number.constant and number.value is not None:
        near = max(-1_000_000_000, min(1_000_000_000, int(number.value)))
        return Term(cast_node(text_node(str(near)), "INTEGER"), "integer", term.name, constant=True, value=near)
    return _build_term(cast_node(number.node, "INTEGER"), "integer", term)


def convert_to_boolean(term: Term) -> Term:
    """Convert to a truth value; text counts if it is `true` or `false`."""
    if term.kind in ("boolean", "null", ANY):
        return term
    if term.constant and term.kind == "text" and term.value.strip().lower() not in ("true", "false", "t", "f"):
        raise _build_conversion_error(term, "true or false")
    if term.constant and term.kind == "text":
        word = cast_node(text_node(term.value.strip()), "BOOLEAN")
        return Term(word, "boolean", term.name, constant=True, value=term.value.strip()[0] in "tT")
    if term.kind in ("text", "json"):
        words = call_node("regexp_extract", convert_to_text(term).node, text_node("^(true|false)$"))
        return _build_term(cast_node(words, "BOOLEAN"), "boolean", term)
    raise list_error(term) if is_list(term.kind) else _build_conversion_error(term, "true or false")


def convert_to_date(term: Term) -> Term:
    if term.constant and term.kind == "text":
        day = parse_date(term.value.strip())
        if day is None:
            raise _build_conversion_error(term, "a date")
        return moment_term(datetime(day.year, day.month, day.day), "date")
    return _convert_to_moment(term, "date", "a date")


def convert_to_timestamp(term: Term) -> Term:
    if term.constant and term.kind == "text":
        text = term.value.strip()
        day = parse_date(text)
        moment = datetime(day.year, day.month, day.day) if day else parse_timestamp(text)
        if moment is None:
            raise _build_conversion_error(term, "a time")
        return moment_term(moment, "timestamp")
    return _convert_to_moment(term, "timestamp", "a time")


def _convert_to_moment(term: Term, kind: str, description: str) -> Term:
    if term.kind in (kind, "null", ANY):
        return term
    if term.is_moment:  # unchanged, not as text: the text form of a time has its own zone mark
        return _build_term(cast_node(term.node, sql_type(kind)), kind, term)
    if term.kind in ("text", "json"):
        text = convert_to_text(term).node
        # the engine ignores an offset unless it reads a time with a zone; its own zone is UTC
        zoned_text = call_node("regexp_extract", text, text_node(_WITH_OFFSET))
        moment = call_node("make_timestamp", call_node("epoch_us", cast_node(zoned_text, "TIMESTAMP WITH TIME ZONE")))
        has_offset = call_node("regexp_matches", text, text_node(_WITH_OFFSET))
        bare = case_node([(has_offset, null_node("VARCHAR"))], text)  # a text with an unknown offset is not a time
        return _build_term(
            coalesce_node(*(cast_node(candidate, sql_type(kind)) for candidate in (moment, bare))), kind, term
        )
    raise list_error(term) if is_list(term.kind) else _build_conversion_error(term, description)


def convert_to_text_list(term: Term) -> Term:
    """Convert a list of any kind or a JSON array to a list of texts."""
    if term.kind in ("json", "json[]"):
        # a JSON array becomes texts without quotes, a list of JSON values does not
        array = term.whole if term.kind == "json" else call_node("to_json", term.node)
        return _build_term(cast_node(array, "VARCHAR[]"), "text[]", term)
    if term.kind in ("text[]", ANY):
        return term
    if not is_list(term.kind):
        raise list_error(Term(term.node, "text[]", term.name))
    return _build_term(cast_node(term.node, "VARCHAR[]"), "text[]", term)


CONVERSIONS: dict[str, Callable[[Term], Term]] = {
    "text": convert_to_text,
    "integer": convert_to_number,
    "number": convert_to_number,
    "boolean": convert_to_boolean,
    "date": convert_to_date,
    "timestamp": convert_to_timestamp,
}


def meet(left: Term, right: Term) -> tuple[Term, Term]:
    """Convert both sides to one kind, so that the engine converts nothing by itself."""
    if {"null", ANY} & {left.kind, right.kind}:
        return plain(left), plain(right)
    if is_list(left.kind) or is_list(right.kind):
        return _meet_lists(left, right)
    kind = _find_common_kind(left, right)
    left_term, right_term = _convert_to_kind(left, kind, right), _convert_to_kind(right, kind, left)
    return _make_comparable(left_term, right_term), _make_comparable(right_term, left_term)


def _make_comparable(term: Term, beside: Term) -> Term:
    is_beside_double = beside.kind == "number" or term.remake is not None
    return (
        _convert_to_double(term, beside.node) if is_beside_double and not (term.constant or beside.constant) else term
    )


def _convert_to_double(term: Term, beside: Node) -> Term:
    """Convert to a double for comparison with `beside`: a value that would round to it fails the statement."""
    if term.remake is not None:
        return _build_term(term.remake(lambda each: _convert_to_double(each, beside)), "number", term)
    return _build_term(double_of_integer(term, beside), "number", term) if term.kind == "integer" else term


def _find_common_kind(left: Term, right: Term) -> str:
    kinds = {left.kind, right.kind}
    specific_kinds = kinds - {"text", "json"}
    if kinds == {"date", "text"}:
        return "date" if _is_day(left) and _is_day(right) else "timestamp"
    if not specific_kinds:
        return "text"
    if len(kinds) == 1 or (len(specific_kinds) == 1 and "interval" not in specific_kinds):
        return specific_kinds.pop()
    if specific_kinds == {"integer", "number"}:
        return "number"
    if specific_kinds == {"date", "timestamp"}:
        return "timestamp"
    raise _build_mismatch_error(left, right)


def _is_day(term: Term) -> bool:
    """Return whether a comparison with a date stays a comparison of dates; only a constant with a time of day
    makes it one of times.
    """
    return not (term.constant and term.kind == "text") or parse_date(term.value.strip()) is not None


def _convert_to_kind(term: Term, kind: str, beside: Term) -> Term:
    is_past_doubles = beside.constant and beside.kind == "integer" and abs(beside.value) >= EXACT
    if is_past_doubles and not term.constant and term.kind in ("text", "json", "number"):
        return _convert_to_whole_number(term)
    if term.kind == kind:
        return term
    try:
        return convert_to_nearest_number(term) if beside.constant and beside.is_numeric else CONVERSIONS[kind](term)
    except FilterError:
        raise _build_mismatch_error(beside, term) from None


def _meet_lists(left: Term, right: Term) -> tuple[Term, Term]:
    if not (is_list(left.kind) or left.kind == "json") or not (is_list(right.kind) or right.kind == "json"):
        raise list_error(left if is_list(left.kind) else right)
    kinds = {element(left.kind), element(right.kind)}
    if "json" in kinds:
        return convert_to_text_list(left), convert_to_text_list(right)
    if {"null", ANY} & kinds or len(kinds) == 1 or kinds == {"integer", "number"}:
        return left, right
    raise _build_mismatch_error(left, right)


def choose(terms: Sequence[Term], make: Callable[[Sequence[Node]], Node], name: str) -> Term:
    """Build a choice between terms, as CASE and COALESCE do: `make` builds it from their nodes."""
    alike = unify(terms)

    def remake(form: Callable[[Term], Term]) -> Node:
        return make([form(term).whole for term in alike])

    has_mixed_kinds = {"integer", "number"} <= {term.kind for term in alike} or any(term.remake for term in alike)
    return Term(remake(lambda term: term), common_kind(alike), name, remake=remake if has_mixed_kinds else None)


def unify(terms: Sequence[Term]) -> list[Term]:
    """Convert the branches of a CASE or the arguments of COALESCE to one kind: their own, a wider kind, or text."""
    kinds = {term.kind for term in terms} - {"null"}
    if any(map(is_list, kinds)):
        return _align_lists(terms)
    if ANY in kinds:
        return [plain(term) for term in terms]
    if kinds == {"date", "timestamp"}:
        return [convert_to_timestamp(term) for term in terms]
    if kinds <= {"integer", "number"} or (len(kinds) == 1 and kinds != {"json"}):
        return list(terms)
    return [convert_to_text(term) for term in terms]


def _align_lists(terms: Sequence[Term]) -> list[Term]:
    """Convert lists beside lists, or beside possible lists."""
    first = next(term for term in terms if is_list(term.kind))
    scalar_kinds = {term.kind for term in terms if not is_list(term.kind)}
    if scalar_kinds - {"null", ANY}:
        raise list_error(first)
    kinds = {element(term.kind) for term in terms} - {"null"}
    if ANY in kinds or len(kinds) <= 1 or kinds == {"integer", "number"}:
        return list(terms)
    if "json" in kinds:
        return [convert_to_text_list(term) if is_list(term.kind) else term for term in terms]
    sibling = next(term for term in terms if element(term.kind) not in ("null", element(first.kind)))
    raise FilterError(
        f"{first.name} is {name_kind(first.kind)} and does not go together with {name_kind(sibling.kind)}.",
        suggestion="CAST one of the lists, for example to VARCHAR[]",
        details={"construct": "list", "field": first.name},
    )


def common_kind(terms: Sequence[Term]) -> str:
    """Return the kind of the terms from `unify`."""
    kinds = {term.kind for term in terms} - {"null"}
    if any(map(is_list, kinds)):
        return f"{_find_widest_kind({element(kind) for kind in kinds} - {'null'})}[]"
    return _find_widest_kind(kinds)


def _find_widest_kind(kinds: set[str]) -> str:
    if ANY in kinds:
        return ANY
    return "number" if kinds == {"integer", "number"} else next(iter(kinds), "null")


def match_items(term: Term, items: Sequence[Term]) -> Node:
    """Build `term IN (items)`; items of several kinds are compared each in its own way."""
    groups: list[tuple[Node, list[Node]]] = []
    for item in items:
        left, right = meet(term, item)
        group = next((nodes for node, nodes in groups if node == left.node), None)
        if group is None:
            groups.append((left.node, group := []))
        group.append(right.node)
    return any_node([{"class": "OPERATOR", "type": "COMPARE_IN", "children": [node, *nodes]} for node, nodes in groups])


def type_null(term: Term, sql_name: str) -> Node:
    """Return the node, but NULL with a type: the engine picks functions by type."""
    return null_node(sql_name) if term.kind == "null" else term.node


def _build_term(node: Node, kind: str, source: Term) -> Term:
    return Term(node, kind, source.name)


def _build_mismatch_error(left: Term, right: Term) -> FilterError:
    named_field, counterpart = (right, left) if left.constant else (left, right)
    counterpart_text = (
        f"a constant that is {name_kind(counterpart.kind)}"
        if counterpart.constant
        else f"{counterpart.name}, {name_kind(counterpart.kind)}"
    )
    if counterpart.constant and counterpart.kind == "text":
        counterpart_text = "this constant"
    return FilterError(
        f"{named_field.name} is {name_kind(named_field.kind)} and cannot be compared with {counterpart_text}.",
        suggestion="compare values of one kind, or CAST one side",
        details={"construct": "comparison", "field": named_field.name},
    )


def list_error(term: Term) -> FilterError:
    """Return the error for a list in place of a single value."""
    word = "LIST" if term.name == A_LIST else term.name
    return FilterError(
        f"{term.name} is a list, but one value is needed.",
        suggestion=f"list_contains({word}, VALUE), or {word}[1] for its first element",
        details={"construct": "list", "field": term.name},
    )


def _build_conversion_error(term: Term, description: str) -> FilterError:
    return FilterError(
        f"{term.name} is not {description}."
        if term.constant
        else f"{term.name} is {name_kind(term.kind)} and cannot be read as {description}.",
        details={"construct": "type", "field": term.name},
    )


def name_kind(kind: str) -> str:
    """Return a kind in words."""
    words = {"integer": "an integer", "boolean": "true or false", "timestamp": "a time", "interval": "an interval"}
    words |= {"text": "text", "json": "JSON", "null": "NULL", ANY: "a value"}
    if is_list(kind):
        return "a list" if kind in ("json[]", "null[]", f"{ANY}[]") else f"a list of {element(kind)} values"
    return words.get(kind, f"a {kind}")


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
