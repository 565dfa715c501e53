"""Conditions so simple that columns answer them without the engine: fields beside constants, joined by AND.

    topic = 'rivers' AND year >= 2020 AND side IN ('left', 'right')

What is read here means what the engine makes of it, to the last record. What is written in any other way, or compares what
is not of one kind, is left to the engine, and so is everything that is wrong: the engine's path says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

from duckkb.errors import FilterError
from duckkb.lanes.sql.columns import Column, Columns
from duckkb.lanes.sql.reader.syntax import MAX_FILTER
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Constant = str | int | float | bool

_MOST_TESTS, _MOST_ITEMS = 32, 500
_EXACT = 1 << 53  # every integer up to here is a double
_INT64 = 1 << 63

# Words that the parser may take for something else than a field where they are not quoted.
_KEYWORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization between bigint binary bit boolean both by
case cast char character check coalesce collate collation column columns concurrently constraint create cross dec decimal
default deferrable desc describe distinct do else end except exists extract false fetch float for foreign freeze from full
generated glob group grouping grouping_id having ilike in initially inner inout int integer intersect interval into is
isnull join lambda lateral leading left like limit map national natural nchar none not notnull null nullif numeric offset
on only or order out outer overlaps overlay pivot pivot_longer pivot_wider placing position positional precision primary
qualify real references returning right row select semi setof show similar smallint some struct substring summarize
symmetric table tablesample then time timestamp to trailing treat trim true try_cast union unique unpack unpivot using
values varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest
xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
_LITERAL = r"(?:'(?:[^']|'')*'|(?<=\s)-?\d{1,19}(?:\.\d{1,15})?|\d{1,19}(?:\.\d{1,15})?|(?i:true|false)\b)"
_TEST = re.compile(
    rf"""[ \t\r\n]*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))[ \t\r\n]*
    (?:(?P<operator>=|<>|!=|<=|>=|<|>)[ \t\r\n]*(?P<one>{_LITERAL})
    |(?i:IN)[ \t\r\n]*\([ \t\r\n]*(?P<many>{_LITERAL}(?:[ \t\r\n]*,[ \t\r\n]*{_LITERAL})*)[ \t\r\n]*\))""",
    re.VERBOSE | re.ASCII,
)
_EACH = re.compile(r"'(?:[^']|'')*'|-?[0-9.]+|[a-z]+", re.IGNORECASE)  # of literals, where only those and commas are
_ODD = re.compile("[\0\ud800-\udfff]")
_AND = re.compile(r"[ \t\r\n]+AND(?=[ \t\r\n])", re.IGNORECASE)
_OPERATORS = {
    "=": "equal",
    "<>": "not_equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_NEGATED = re.compile(r"NOT \(([^()]*)\n\)")
_OPPOSITES = (("equal", "not_equal"), ("less", "greater_equal"), ("greater", "less_equal"))
_INVERSE = {one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])}


@dataclass(frozen=True, slots=True)
class Written:
    """A comparison as it is written: a field's name, an operator of `_OPERATORS` or `in`, and constants."""

    name: str
    operator: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of a column with constants of its kind."""

    column: Column
    operator: str
    constants: tuple[Constant, ...]


def written(fragment: str) -> tuple[Written, ...]:
    """The comparisons of a condition, all of which must hold; none where it is not as simple as that."""
    if len(fragment) > MAX_FILTER // 4 or _ODD.search(fragment):
        return ()
    if negated := _NEGATED.fullmatch(fragment):
        return _inverse(written(negated[1]))
    found: list[Written] = []
    at = 0
    while len(found) < _MOST_TESTS:
        test = _TEST.match(fragment, at)
        if test is None or (test["plain"] or "").lower() in _keywords():
            return ()
        constants = [_constant(text) for text in _EACH.findall(test["one"] or test["many"])]
        if len(constants) > _MOST_ITEMS:
            return ()
        name = test["plain"] or test["quoted"].replace('""', '"')
        found.append(Written(name, _OPERATORS.get(test["operator"], "in"), tuple(constants)))
        if not fragment[test.end() :].strip(" \t\r\n"):
            return tuple(found)
        joined = _AND.match(fragment, test.end())
        if joined is None:
            return ()
        at = joined.end()
    return ()


def _inverse(found: tuple[Written, ...]) -> tuple[Written, ...]:
    """What one comparison says where it is negated; a missing value satisfies neither."""
    if len(found) != 1 or found[0].operator not in _INVERSE:
        return ()
    return (Written(found[0].name, _INVERSE[found[0].operator], found[0].constants),)


def tests(fragment: str, columns: Columns) -> tuple[Test, ...]:
    """The comparisons of a condition over these columns; none where the engine has to read it."""
    found: list[Test] = []
    for one in written(fragment):
        try:
            column, path = columns.find(one.name)
        except FilterError:
            return ()
        suits = _SUITS.get(column.kind)
        if path or suits is None or not all(map(suits, one.constants)):
            return ()
        if column.kind == "boolean" and one.operator not in ("equal", "not_equal"):
            return ()
        found.append(Test(column, one.operator, one.constants))
    return tuple(found)


def texts(asked: Sequence[Test]) -> list[tuple[str, str]]:
    """The fields and the texts that they must have, where the comparisons ask for nothing else."""
    found = [(one.column.name, one.constants[0]) for one in asked if one.operator == "equal"]
    named = [(name, text) for name, text in found if isinstance(text, str)]
    return named if len(named) == len(asked) else []


def matching(table: "pa.Table", asked: Sequence[Test]) -> "NDArray[np.bool_]":
    """Which rows of a table, whose columns are known to be sound, satisfy all of the comparisons, one of which there is; a
    missing value satisfies none."""
    return reduce(lambda one, other: one & other, (_satisfied(table, test) for test in asked))


def _satisfied(table: "pa.Table", test: Test) -> "NDArray[np.bool_]":
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(test.column.sql_name)
    if test.operator == "in":
        zeros = (0.0, -0.0) if test.column.kind == "number" and 0 in test.constants else ()  # equal, but not in bits
        answers = pc.is_in(column, pa.array([*test.constants, *zeros], column.type))
    else:
        compare: Callable[..., Any] = getattr(pc, test.operator)
        answers = compare(column, pa.scalar(test.constants[0], column.type))
    found: NDArray[np.bool_] = answers.fill_null(False).to_numpy()
    return found


@cache
def _keywords() -> frozenset[str]:
    return frozenset(_KEYWORDS.split())


def _constant(text: str) -> Constant:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] in "tTfF":
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


def _is_integer(value: Constant) -> bool:
    return type(value) is int and -_INT64 < value < _INT64


def _is_number(value: Constant) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _EXACT)


_SUITS: Mapping[str, Callable[[Constant], bool]] = {
    "text": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
}
"""By the kind of a column, which constants are compared with it as they are."""
