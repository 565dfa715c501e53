"""The functions that filters may call: cheap ones whose result is never larger than what goes in.

Left out on purpose: what makes long strings or lists from short ones (repeat, lpad, format, replace, range), what takes
more than linear time (levenshtein and its kin, regular expressions), what calls other code (lambdas, query).
"""

from collections.abc import Callable, Sequence

from duckkb.errors import FilterError
from duckkb.lanes.sql.compare import as_text_list, common_kind, meet, unify
from duckkb.lanes.sql.kinds import element, is_list
from duckkb.lanes.sql.terms import (
    Term,
    as_count,
    as_date,
    as_double,
    as_text,
    as_timestamp,
    json_pointer,
    list_error,
    plain,
    quoted_text,
    text_constant,
)
from duckkb.values import dataclass

PARTS = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("dow", "isodow", "doy", "isoyear", "epoch"),
)
_TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")

Build = Callable[[Sequence[Term]], Term]


@dataclass(frozen=True, slots=True)
class Function:
    """How many arguments a function takes, and what it becomes."""

    least: int
    most: int
    build: Build


def call(name: str, arguments: Sequence[Term]) -> Term:
    """A function call as SQL; raises FilterError for a name off the list or a wrong number of arguments."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise FilterError(
            f"Filters have no function {name}." if name.isidentifier() else "Operators cannot be called as functions.",
            suggestion="use one of: " + ", ".join(sorted(FUNCTIONS)),
            details={"construct": f"function {name}" if name.isidentifier() else "operator"},
        )
    if not function.least <= len(arguments) <= function.most:
        raise FilterError(
            f"{name} takes {_count(function)}, not {len(arguments)}.", details={"construct": f"function {name}"}
        )
    return function.build(arguments)


def _count(function: Function) -> str:
    few, many = function.least, function.most
    return f"{few} argument{'' if few == 1 else 's'}" if few == many else f"{few} to {many} arguments"


def _on_text(template: str, result: str, arity: int = 1) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        return Term(template.format(*(_text(argument) for argument in arguments)), result, arguments[0].name)

    return Function(arity, arity, build)


def _on_number(template: str) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        return Term(template.format(as_double(arguments[0])), "number", arguments[0].name)

    return Function(1, 1, build)


def _text(term: Term) -> str:
    """The SQL of an argument as text, NULL too: the engine picks overloads by type."""
    text = as_text(term)
    return "CAST(NULL AS VARCHAR)" if text.kind == "null" else text.sql


def _trim(name: str) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        return Term(f"{name}({', '.join(map(_text, arguments))})", "text", arguments[0].name)

    return Function(1, 2, build)


def _substring(arguments: Sequence[Term]) -> Term:
    positions = "".join(f", {as_count(argument)}" for argument in arguments[1:])
    return Term(f"substring({_text(arguments[0])}{positions})", "text", arguments[0].name)


def _side(name: str) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        return Term(f'"{name}"({_text(arguments[0])}, {as_count(arguments[1])})', "text", arguments[0].name)

    return Function(2, 2, build)


def _length(arguments: Sequence[Term]) -> Term:
    """Characters of a text, elements of a list; JSON answers by what it holds."""
    term = arguments[0]
    if is_list(term.kind):
        return Term(f"len({term.sql})", "integer", term.name)
    if term.kind == "json":
        pointer = quoted_text(json_pointer(term.path))
        lists = (
            f"json_type({term.sql}, {pointer}) = 'ARRAY' THEN CAST(json_array_length({term.sql}, {pointer}) AS BIGINT)"
        )
        return Term(f"(CASE WHEN {lists} ELSE length({as_text(term).sql}) END)", "integer", term.name)
    return Term(f"length({_text(term)})", "integer", term.name)


def _contains(arguments: Sequence[Term]) -> Term:
    if is_list(arguments[0].kind):
        return _list_contains(arguments)
    return Term(f"contains({_text(arguments[0])}, {_text(arguments[1])})", "boolean", arguments[0].name)


def _list_contains(arguments: Sequence[Term]) -> Term:
    items, wanted = arguments
    if items.kind == "json":
        return _text_list_contains(items, wanted)
    if not is_list(items.kind):
        raise FilterError(
            f"{items.name} is no list.",
            suggestion=f"contains({items.name}, TEXT) looks inside a text",
            details={"construct": "function list_contains", "field": items.name},
        )
    if is_list(wanted.kind):
        raise list_error(wanted)
    if element(items.kind) == "text":
        return _text_list_contains(items, wanted)
    _, inner = meet(Term("", element(items.kind), items.name), wanted)
    return Term(f"list_contains({items.sql}, {inner.sql})", "boolean", items.name)


def _text_list_contains(items: Term, wanted: Term) -> Term:
    """Texts, and the elements of JSON, are compared as texts; a whole number is one with and without its `.0`."""
    texts = [_text(plain(wanted))]
    if wanted.constant and wanted.is_numeric:
        number = wanted.value
        forms = [str(int(number)), f"{int(number)}.0"] if float(number).is_integer() else [repr(number)]
        texts = [quoted_text(form) for form in forms]
    tests = " OR ".join(f"list_contains({as_text_list(items).sql}, {text})" for text in texts)
    return Term(f"({tests})", "boolean", items.name)


def _lists_meet(name: str) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        left, right = (argument if is_list(argument.kind) else as_text_list(argument) for argument in arguments)
        if element(left.kind) != element(right.kind) and "null[]" not in (left.kind, right.kind):
            left, right = (left, right) if _both_numeric(left, right) else (as_text_list(left), as_text_list(right))
        return Term(f"{name}({left.sql}, {right.sql})", "boolean", left.name)

    return Function(2, 2, build)


def _both_numeric(left: Term, right: Term) -> bool:
    return {element(left.kind), element(right.kind)} == {"integer", "number"}


def _round(arguments: Sequence[Term]) -> Term:
    digits = f", {as_count(arguments[1])}" if len(arguments) == 2 else ""
    return Term(f"round({as_double(arguments[0])}{digits})", "number", arguments[0].name)


def _picked(name: str, most: int = 50) -> Function:
    """COALESCE and its kin: arguments in one kind, one of which is the result."""

    def build(arguments: Sequence[Term]) -> Term:
        terms = unify(arguments)
        kind = common_kind(terms)
        if kind == "null":
            return Term("NULL", "null", arguments[0].name)
        return Term(f"{name}({', '.join(term.sql for term in terms)})", kind, arguments[0].name)

    return Function(1, most, build)


def _nullif(arguments: Sequence[Term]) -> Term:
    left, right = meet(*arguments)
    return Term(f"nullif({left.sql}, {right.sql})", left.kind, arguments[0].name)


def _moment(term: Term) -> str:
    return term.sql if term.is_moment else _typed(as_timestamp(term), "TIMESTAMP")


def _typed(term: Term, name: str) -> str:
    return f"CAST(NULL AS {name})" if term.kind == "null" else term.sql


def _part(name: str) -> Function:
    def build(arguments: Sequence[Term]) -> Term:
        return _date_part([text_constant(name), arguments[0]])

    return Function(1, 1, build)


def _date_part(arguments: Sequence[Term]) -> Term:
    name, moment = _part_name(arguments[0], PARTS), arguments[1]
    kind, sql_name = ("number", "DOUBLE") if name == "epoch" else ("integer", "BIGINT")
    return Term(f"TRY_CAST(date_part('{name}', {_moment(moment)}) AS {sql_name})", kind, moment.name)


def _date_trunc(arguments: Sequence[Term]) -> Term:
    name, moment = _part_name(arguments[0], _TRUNCATIONS), arguments[1]
    # TRY keeps the optimizer from looking inside: it takes `date_trunc(...) <> DAY` for true where the field is NULL
    return Term(f"TRY(CAST(date_trunc('{name}', {_moment(moment)}) AS TIMESTAMP))", "timestamp", moment.name)


def _date_diff(arguments: Sequence[Term]) -> Term:
    name = _part_name(arguments[0], _TRUNCATIONS)
    start, end = (_typed(as_timestamp(argument), "TIMESTAMP") for argument in arguments[1:])
    return Term(f"TRY(date_diff('{name}', {start}, {end}))", "integer", arguments[1].name)


def _part_name(term: Term, known: Sequence[str]) -> str:
    name = str(term.value).strip().lower() if term.constant else ""
    name = name if name in known else name.removesuffix("s")
    if name not in known:
        raise FilterError(
            "Unknown part of a date.", suggestion="one of: " + ", ".join(known), details={"construct": "date part"}
        )
    return name


def _date(arguments: Sequence[Term]) -> Term:
    return as_date(arguments[0])


def joined(terms: Sequence[Term]) -> Term:
    """`a || b`: NULL where one side is."""
    return Term(f"({' || '.join(map(_text, terms))})", "text", terms[0].name)


def _concat(arguments: Sequence[Term]) -> Term:
    return Term(f"concat({', '.join(map(_text, arguments))})", "text", arguments[0].name)


def list_of(items: Sequence[Term]) -> Term:
    """A list written in brackets; its elements are constants or fields of one kind."""
    terms = [plain(term) for term in unify(items)] if items else []
    kind = common_kind(terms)
    if is_list(kind):
        raise list_error(terms[0])
    return Term(f"[{', '.join(term.sql for term in terms)}]", f"{kind}[]", "the list")


_ALIASES = {
    "len": ("char_length", "character_length", "array_length", "list_length", "length", "json_array_length"),
    "lower": ("lcase",),
    "upper": ("ucase",),
    "starts_with": ("prefix",),
    "ends_with": ("suffix",),
    "substring": ("substr",),
    "ceil": ("ceiling",),
    "strpos": ("instr", "position"),
    "list_contains": ("array_contains", "list_has", "array_has"),
    "list_has_any": ("array_has_any",),
    "list_has_all": ("array_has_all",),
    "day": ("dayofmonth",),
    "date_part": ("datepart",),
    "date_trunc": ("datetrunc",),
    "date_diff": ("datediff",),
}

_NAMED = {
    "lower": _on_text("lower({0})", "text"),
    "upper": _on_text("upper({0})", "text"),
    "trim": _trim("trim"),
    "ltrim": _trim("ltrim"),
    "rtrim": _trim("rtrim"),
    "len": Function(1, 1, _length),
    "contains": Function(2, 2, _contains),
    "starts_with": _on_text("starts_with({0}, {1})", "boolean", 2),
    "ends_with": _on_text("ends_with({0}, {1})", "boolean", 2),
    "strpos": _on_text("strpos({0}, {1})", "integer", 2),
    "substring": Function(2, 3, _substring),
    "left": _side("left"),
    "right": _side("right"),
    "concat": Function(1, 16, _concat),
    "abs": _on_number("abs({0})"),
    "floor": _on_number("floor({0})"),
    "ceil": _on_number("ceil({0})"),
    "sign": _on_number("CAST(sign({0}) AS DOUBLE)"),
    "round": Function(1, 2, _round),
    "coalesce": _picked("coalesce"),
    "ifnull": _picked("coalesce", 2),
    "greatest": _picked("greatest"),
    "least": _picked("least"),
    "nullif": Function(2, 2, _nullif),
    "list_contains": Function(2, 2, _list_contains),
    "list_has_any": _lists_meet("list_has_any"),
    "list_has_all": _lists_meet("list_has_all"),
    **{name: _part(name) for name in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    "date_part": Function(2, 2, _date_part),
    "date_trunc": Function(2, 2, _date_trunc),
    "date_diff": Function(3, 3, _date_diff),
    "date": Function(1, 1, _date),
}

FUNCTIONS: dict[str, Function] = _NAMED | {
    alias: _NAMED[name] for name, aliases in _ALIASES.items() for alias in aliases
}
