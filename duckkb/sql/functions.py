"""The functions with known kinds of arguments and results: their arguments are converted before the engine gets
them.

An allowed function that is not named here takes its arguments unchanged, and its result has an unknown kind.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from duckkb.sql.columns import EXACT, element, is_list, sql_type
from duckkb.sql.expressions import (
    A_LIST,
    ANY,
    CONVERSIONS,
    WHOLE_TEXT,
    Term,
    choose,
    common_kind,
    convert_to_count,
    convert_to_date,
    convert_to_nearest_number,
    convert_to_number,
    convert_to_text,
    convert_to_text_list,
    convert_to_timestamp,
    double_of_integer,
    list_error,
    meet,
    name_kind,
    plain,
    type_null,
    unify,
)
from duckkb.sql.statement_names import NUMBERS, TEXTS, type_name
from duckkb.sql.syntax import Node, any_node, call_node, cast_node, coalesce_node, text_node, try_node
from duckkb.types.errors import FilterError

Build = Callable[[Sequence[Term]], Term]

_PARTLY_DEFINED = frozenset(["sqrt", "ln", "log", "log2", "log10", "acos", "asin"])
_TO_WHOLE = frozenset(["floor", "ceil", "ceiling", "round"])  # functions that leave an integer unchanged
_TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_PARTS = (*_TRUNCATIONS, "dow", "isodow", "doy", "isoyear", "epoch")

# names: kinds of the arguments (those with ? may be left out), and that of the result
_SIGNATURES = """
lower lcase upper ucase: text -> text
trim ltrim rtrim: text text? -> text
char_length character_length strlen: text -> integer
starts_with prefix ends_with suffix: text text -> boolean
strpos instr position: text text -> integer
substring substr: text count count? -> text
left right: text count -> text
abs: number -> same
floor ceil ceiling sign sqrt: number -> number
round: number count? -> number
date: date -> date
year quarter month week day dayofmonth hour minute second: moment -> integer
list_has_any array_has_any list_has_all array_has_all: list list -> boolean
to_years to_months to_weeks to_days to_hours to_minutes to_seconds: any -> interval
"""


class Function(Struct, frozen=True):
    """The number of arguments of a function, and how it builds its call."""

    least: int
    most: int
    build: Build


def call_function(name: str, arguments: Sequence[Term]) -> Term | None:
    """Build a call of a function with known kinds, None for any other; raises FilterError for a wrong number or
    kind of arguments.
    """
    function = _parse_functions().get(name)
    if function is None:
        return None
    if not function.least <= len(arguments) <= function.most:
        few, many = function.least, function.most
        count = f"{few} argument{'' if few == 1 else 's'}" if few == many else f"{few} to {many} arguments"
        raise FilterError(f"{name} takes {count}, not {len(arguments)}.", details={"construct": f"function {name}"})
    return function.build(arguments)


def pass_argument(name: str, argument: Term) -> Node:
    """Return an argument for a function with unknown kinds."""
    if argument.kind == "json" and (name in TEXTS or name in _TEXT_OPERATORS):
        return convert_to_text(argument).node
    if argument.kind == "json[]" and (name in TEXTS or name.startswith("json_")):
        return call_node("to_json", argument.node)
    return convert_to_number(argument).node if argument.kind == "json" and name in NUMBERS else argument.whole


_LISTS_BY_NAME = {
    kind: frozenset(names.split())
    for kind, names in {
        "text[]": """split str_split string_split string_to_array string_split_regex regexp_split_to_array
            regexp_extract_all""",
        "integer[]": "list_grade_up array_grade_up",
        "the first": """list_sort array_sort list_reverse_sort array_reverse_sort list_reverse array_reverse list_distinct
            array_distinct list_filter array_filter list_select array_select list_where array_where array_pop_back
            array_pop_front""",
        "some[]": """list_intersect array_intersect list_append array_append array_push_back list_prepend array_prepend
            array_push_front list_transform list_apply array_transform array_apply list_zip array_zip flatten array_value
            array_cross_product json_keys""",
    }.items()
}
"""Functions that always return a list, by its kind."""


def result_kind(name: str, arguments: Sequence[Term]) -> str:
    """Return the result kind of a function that takes its arguments unchanged: a list, or unknown."""
    kind = next((kind for kind, names in _LISTS_BY_NAME.items() if name in names), ANY)
    first = arguments[0].kind if arguments else ANY
    if kind == "the first":
        return first if is_list(first) else f"{ANY}[]"
    if name in ("list_slice", "array_slice"):
        return first if is_list(first) else ANY
    if name.startswith("json_") and len(arguments) == 2 and _has_many_paths(arguments[1]):
        return f"{ANY}[]"
    return f"{ANY}[]" if kind == "some[]" else kind


def _has_many_paths(term: Term) -> bool:
    """Return whether a JSON function with this argument reads several places and returns a list."""
    path = str(term.value) if term.constant else ""
    return is_list(term.kind) or (path.startswith("$") and "*" in re.sub('"[^"]*"', "", path))


@cache
def _parse_functions() -> dict[str, Function]:
    functions = dict(_SPECIAL)
    for line in _SIGNATURES.strip().splitlines():
        names, _, signature = line.partition(": ")
        takes, _, result = signature.partition(" -> ")
        kinds = takes.split()
        least = sum(not kind.endswith("?") for kind in kinds)
        for name in names.split():
            functions[name] = Function(
                least, len(kinds), _build_call(name, [kind.rstrip("?") for kind in kinds], result)
            )
    return functions


def _build_call(name: str, kinds: Sequence[str], result: str) -> Build:
    def build(arguments: Sequence[Term]) -> Term:
        pairs = [_ARGUMENTS[kind] for kind in kinds[: len(arguments)]]
        terms = [convert(argument) for (convert, _), argument in zip(pairs, arguments, strict=True)]
        nodes = [type_null(term, null) for (_, null), term in zip(pairs, terms, strict=True)]
        if name in _TO_WHOLE and [term.kind for term in terms] == ["integer"]:
            return Term(nodes[0], "integer", terms[0].name)
        if name == "round" and terms[0].kind == "number" and not terms[-1].constant:
            # the engine cannot round a DECIMAL to a non-constant number of places
            nodes[0] = cast_node(nodes[0], "DOUBLE")
        if kinds[0] == "list":
            nodes = [term.node for term in _align_lists(terms)]
        if result == "same":
            return (
                _build_exact_integer(name, terms[0])
                if terms[0].kind == "integer"
                else Term(call_node(name, *nodes), "number")
            )
        return Term(soften(name, call_node(name, *nodes)), result, terms[0].name)

    return build


def soften(name: str, call: Node) -> Node:
    """Wrap a call so that it is NULL if its result is not a number."""
    for undefined_value in ("nan", "-inf") if name in _PARTLY_DEFINED else ():
        call = call_node("nullif", call, cast_node(text_node(undefined_value), "DOUBLE"))
    return call


def _convert_to_moment(term: Term) -> Term:
    return term if term.is_moment else convert_to_timestamp(term)


def _convert_to_list(term: Term) -> Term:
    return term if is_list(term.kind) and term.kind != "json[]" else convert_to_text_list(term)


_ARGUMENTS: dict[str, tuple[Callable[[Term], Term], str]] = {
    "text": (convert_to_text, "VARCHAR"),
    "count": (convert_to_count, "INTEGER"),
    "number": (convert_to_number, "DOUBLE"),
    "date": (convert_to_date, "DATE"),
    "moment": (_convert_to_moment, "TIMESTAMP"),
    "list": (_convert_to_list, "VARCHAR[]"),
    "any": (plain, "INTEGER"),
}


def _align_lists(terms: Sequence[Term]) -> Sequence[Term]:
    kinds = {element(term.kind) for term in terms}
    alike = len(kinds - {"null"}) <= 1 or kinds == {"integer", "number"} or ANY in kinds
    return terms if alike else [convert_to_text_list(term) for term in terms]


def _build_length(arguments: Sequence[Term]) -> Term:
    """Count characters of a text or elements of a list; JSON decides by its value."""
    term = arguments[0]
    if is_list(term.kind) or term.kind == ANY:
        return Term(call_node("len", term.node), "integer", term.name)
    if term.kind == "json":
        items = call_node("len", cast_node(term.whole, "JSON[]"))
        either = [items, call_node("length", convert_to_text(term).node)]
        node = {"class": "OPERATOR", "type": "OPERATOR_COALESCE", "children": either}
        return Term(node, "integer", term.name)
    return Term(call_node("length", type_null(convert_to_text(term), "VARCHAR")), "integer", term.name)


def _build_contains(arguments: Sequence[Term]) -> Term:
    if is_list(arguments[0].kind):
        return _list_contains(arguments)
    texts = [type_null(convert_to_text(argument), "VARCHAR") for argument in arguments]
    return Term(call_node("contains", *texts), "boolean", arguments[0].name)


def _list_contains(arguments: Sequence[Term]) -> Term:
    items, target = arguments
    if items.kind == ANY:
        return Term(call_node("list_contains", items.node, target.whole), "boolean", items.name)
    if not (is_list(items.kind) or items.kind == "json"):
        raise FilterError(
            f"{items.name} is not a list.",
            suggestion=f"contains({items.name}, TEXT) looks inside a text",
            details={"construct": "function list_contains", "field": items.name},
        )
    if is_list(target.kind):
        raise list_error(target)
    if element(items.kind) in ("text", "json"):
        return _build_text_list_contains(items, target)
    if element(items.kind) == "number" and target.constant and target.kind == "integer" and abs(target.value) >= EXACT:
        raise FilterError(
            f"{items.name} holds doubles, and {target.value} may be none.",
            suggestion=f"compare an element: {items.name}[1] = {target.value}",
            details={"construct": "number", "field": items.name},
        )
    _, inner = meet(Term(items.node, element(items.kind), items.name), target)
    return Term(call_node("list_contains", items.node, inner.node), "boolean", items.name)


def _build_text_list_contains(items: Term, target: Term) -> Term:
    """Compare texts and JSON elements as texts; a whole number matches with and without its `.0`."""
    forms = [type_null(convert_to_text(target), "VARCHAR")]
    if target.constant and target.is_numeric:
        number = target.value
        whole = float(number).is_integer()
        forms = [text_node(form) for form in ([str(int(number)), f"{int(number)}.0"] if whole else [repr(number)])]
    texts = convert_to_text_list(items).node
    return Term(any_node([call_node("list_contains", texts, form) for form in forms]), "boolean", items.name)


def _build_choice(name: str, most: int = 50) -> Function:
    """Build COALESCE and similar: arguments of one kind, one of which is the result."""

    def build(arguments: Sequence[Term]) -> Term:
        kinds = {term.kind for term in arguments}
        if name in ("greatest", "least") and "json" in kinds and kinds & {"integer", "number"}:
            arguments = [convert_to_number(term) for term in arguments]
        return choose(arguments, lambda nodes: call_node(name, *nodes), arguments[0].name)

    return Function(1, most, build)


def _build_nullif(arguments: Sequence[Term]) -> Term:
    left, right = meet(*arguments)
    return Term(call_node("nullif", left.node, right.node), left.kind, arguments[0].name)


def _build_date_part(arguments: Sequence[Term]) -> Term:
    name, moment = _parse_part_name(arguments[0], _PARTS), _convert_to_moment(arguments[1])
    kind = "number" if name == "epoch" else "integer"
    part = call_node("date_part", text_node(name), type_null(moment, "TIMESTAMP"))
    return Term(cast_node(part, sql_type(kind)), kind, moment.name)


def _build_date_trunc(arguments: Sequence[Term]) -> Term:
    name, moment = _parse_part_name(arguments[0], _TRUNCATIONS), _convert_to_moment(arguments[1])
    start = call_node("date_trunc", text_node(name), type_null(moment, "TIMESTAMP"))
    return Term(cast_node(start, "TIMESTAMP"), "timestamp", moment.name)


def _build_date_diff(arguments: Sequence[Term]) -> Term:
    name = _parse_part_name(arguments[0], _TRUNCATIONS)
    ends = [type_null(convert_to_timestamp(argument), "TIMESTAMP") for argument in arguments[1:]]
    return Term(try_node(call_node("date_diff", text_node(name), *ends)), "integer", arguments[1].name)


def _parse_part_name(term: Term, known_parts: Sequence[str]) -> str:
    name = str(term.value).strip().lower() if term.constant else ""
    name = name if name in known_parts else name.removesuffix("s")
    if name not in known_parts:
        raise FilterError(
            "Unknown part of a date.",
            suggestion="one of: " + ", ".join(known_parts),
            details={"construct": "date part"},
        )
    return name


def _build_join(name: str) -> Build:
    def build(arguments: Sequence[Term]) -> Term:
        if all(is_list(term.kind) or term.kind == ANY for term in arguments):
            terms = unify(arguments)
            return Term(call_node(name, *(term.node for term in terms)), common_kind(terms), arguments[0].name)
        texts = [type_null(convert_to_text(term), "VARCHAR") for term in arguments]
        return Term(call_node(name, *texts), "text", arguments[0].name)

    return build


def _build_concatenation(name: str) -> Build:
    def build(arguments: Sequence[Term]) -> Term:
        terms = unify(arguments)
        kind = common_kind(terms)
        return Term(call_node(name, *(term.node for term in terms)), kind if is_list(kind) else f"{ANY}[]", A_LIST)

    return build


def list_of(items: Sequence[Term]) -> Term:
    """Build a list written in brackets; its elements are constants or fields of one kind."""
    terms = [plain(term) for term in unify(items)] if items else []
    kind = common_kind(terms)
    if is_list(kind):
        raise list_error(terms[0])
    return Term(call_node("list_value", *(term.node for term in terms)), f"{kind}[]", A_LIST)


def _map_names(names: str, function: Function) -> dict[str, Function]:
    return dict.fromkeys(names.split(), function)


_SPECIAL = {
    **_map_names("len length array_length list_length json_array_length", Function(1, 1, _build_length)),
    **_map_names("contains", Function(2, 2, _build_contains)),
    **_map_names("list_contains array_contains list_has array_has", Function(2, 2, _list_contains)),
    **_map_names("ifnull", _build_choice("coalesce", 2)),
    **_map_names("nullif", Function(2, 2, _build_nullif)),
    **_map_names("date_part datepart", Function(2, 2, _build_date_part)),
    **_map_names("date_trunc datetrunc", Function(2, 2, _build_date_trunc)),
    **_map_names("date_diff datediff", Function(3, 3, _build_date_diff)),
    **_map_names("mod", Function(2, 2, lambda arguments: arithmetic("%", *arguments))),
    **_map_names("||", Function(2, 2, _build_join("||"))),
    **_map_names("concat", Function(1, 50, _build_join("concat"))),
    **{
        name: Function(1, 50, _build_concatenation(name))
        for name in ("list_concat", "list_cat", "array_concat", "array_cat")
    },
    **_map_names("list_value list_pack", Function(0, 10_000, list_of)),
    **{name: _build_choice(name) for name in ("coalesce", "greatest", "least")},
}

_DIVIDING = frozenset(("/", "//", "%"))
_ARITHMETIC = frozenset("+-*") | _DIVIDING
_TEXT_OPERATORS = frozenset(("~~", "!~~", "~~*", "!~~*", "~~~", "||"))


def arithmetic(operator: str, left: Term, right: Term | None = None) -> Term:
    """Build arithmetic that cannot fail. Text that is a number takes part; integers past 64 bits and divisions by
    zero are NULL; dates take days and intervals. `//` gives a whole number, whatever other values a field has.
    """
    if right is None:
        number = convert_to_number(left)
        if number.kind == "integer":
            return _build_exact_integer(operator, number)
        return Term(call_node(operator, number.node), number.kind, left.name)
    if {ANY} & {left.kind, right.kind}:
        return Term(try_node(call_node(operator, plain(left).node, plain(right).node)), ANY, left.name)
    if left.is_moment or right.is_moment or "interval" in (left.kind, right.kind):
        return _shift_moment(operator, left, right)
    left_number, right_number = convert_to_number(left), convert_to_number(right)
    divisor = right_number.node
    if operator in _DIVIDING:
        divisor = call_node("nullif", divisor, cast_node(text_node("0"), "BIGINT"))
    if left_number.kind == right_number.kind == "integer" and operator != "/":
        return _build_exact_integer(operator, left_number, Term(divisor, "integer"))
    doubles = (_build_double(left_number, left_number.node), _build_double(right_number, divisor))
    whole = call_node("trunc", call_node("/", *doubles))  # for doubles the engine's `//` is `/`
    return Term(whole if operator == "//" else call_node(operator, *doubles), "number", left.name)


def _build_double(term: Term, node: Node) -> Node:
    """Return the double for a calculation. A whole number that would be rounded fails the statement."""
    return double_of_integer(replace(term, node=node)) if term.kind == "integer" else cast_node(node, "DOUBLE")


def _build_exact_integer(name: str, *integers: Term) -> Term:
    """Compute with twice the bits, so that nothing overflows, and convert back: NULL if 64 bits do not hold the
    result.
    """
    wide = call_node(name, *(cast_node(integer.node, "HUGEINT") for integer in integers))
    return Term(cast_node(wide, "BIGINT"), "integer", integers[0].name)


def _shift_moment(operator: str, left: Term, right: Term) -> Term:
    if operator == "+" and right.is_moment and not left.is_moment:
        left, right = right, left
    if operator in "+-" and left.is_moment and right.kind == "interval":
        moment_node = call_node(operator, left.node, right.node)
        return Term(try_node(cast_node(moment_node, "TIMESTAMP")), "timestamp", left.name)
    if operator in "+-" and left.kind == "date" and right.kind == "integer":
        days = cast_node(right.node, "INTEGER")
        return Term(try_node(call_node(operator, left.node, days)), "date", left.name)
    if operator == "-" and left.kind == right.kind == "date":
        return Term(try_node(call_node("date_diff", text_node("day"), right.node, left.node)), "integer", left.name)
    raise FilterError(
        f"{name_kind(left.kind)} and {name_kind(right.kind)} do not go together here.".capitalize(),
        suggestion="add or subtract INTERVAL '7 days', or use date_diff('day', start, end)",
        details={"construct": "arithmetic", "field": left.name},
    )


def operation(operator: str, operands: Sequence[Term]) -> Term | None:
    """Apply an operator to its operands; None for an operator with unknown kinds."""
    if operator in _ARITHMETIC and 1 <= len(operands) <= 2:
        return arithmetic(operator, *operands)
    if operator in ("~~", "!~~", "~~*", "!~~*"):
        return like(operator, operands)
    return call_function(operator, operands)


def like(name: str, operands: Sequence[Term]) -> Term:
    """Build LIKE and its variants, with or without ESCAPE."""
    if len(operands) == 3:
        _check_escape(*operands[1:])
    texts = [type_null(convert_to_text(operand), "VARCHAR") for operand in operands]
    return Term(call_node(name, *texts), "boolean", operands[0].name)


def _check_escape(pattern: Term, escape: Term) -> None:
    if not (pattern.constant and escape.constant and isinstance(pattern.value, str) and isinstance(escape.value, str)):
        if "null" in (pattern.kind, escape.kind):
            return
        raise FilterError("A pattern with ESCAPE must be a string.", details={"construct": "ESCAPE"})
    if len(escape.value) > 1:
        raise FilterError("ESCAPE takes one character.", details={"construct": "ESCAPE"})
    bare = pattern.value.replace(2 * escape.value, "")
    if escape.value and bare.endswith(escape.value):
        raise FilterError("A pattern cannot end in its ESCAPE character.", details={"construct": "ESCAPE"})


def convert_term(term: Term, cast_type: Node) -> Term:
    """Build a CAST of a term: a value that does not convert is NULL; a constant that does not is an error."""
    name = type_name(cast_type)
    kind = _CASTS.get(name, ANY)
    node = {**cast_node(term.whole, "VARCHAR"), "type_expr": cast_type}
    if name in ("LIST", "ARRAY"):
        return Term(node, f"{_find_element_kind(cast_type)}[]", term.name)
    if name == "UUID" and term.kind not in ("text", "json", "null", ANY):
        raise FilterError(
            f"{term.name} is {name_kind(term.kind)} and cannot be CAST so.", details={"construct": "CAST"}
        )
    if kind == ANY or term.kind in (ANY, "interval"):
        return Term(node, kind, term.name)
    if kind == "text":
        return Term(node, "text", term.name) if is_list(term.kind) else convert_to_text(term)
    if kind in ("date", "timestamp") or (kind == "boolean" and not term.is_numeric):
        return CONVERSIONS[kind](term)
    if term.kind == "boolean":
        return Term(node, kind, term.name)
    if not (term.is_numeric or term.kind in ("text", "json", "null")):
        raise FilterError(
            f"{term.name} is {name_kind(term.kind)} and cannot be CAST so.", details={"construct": "CAST"}
        )
    number = convert_to_nearest_number(term) if kind != "boolean" else term
    if kind == "integer" and term.kind in ("text", "json") and not term.constant:
        whole = call_node("regexp_extract", convert_to_text(term).node, text_node(WHOLE_TEXT))
        both = coalesce_node({**node, "child": whole}, {**node, "child": number.node})
        return Term(both, kind, term.name)
    if number.kind == kind and name in ("BIGINT", "DOUBLE"):
        return number
    return Term({**node, "child": number.node}, kind, term.name)


def _find_element_kind(cast_type: Node) -> str:
    """Return the kind of a list's elements; unknown for nested lists and structures."""
    inner = type_name(cast_type["children"][0])
    return "json" if inner == "JSON" else _CASTS.get(inner, ANY)


_CASTS = {
    "VARCHAR": "text",
    **dict.fromkeys(("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), "number"),
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
}
