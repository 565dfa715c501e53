"""Conditions that columns answer without the engine: comparisons of fields with constants, joined by AND.

    topic = 'rivers' AND year >= 2020 AND side IN ('left', 'right')

Every condition that is read here gives exactly the engine's result. Any other syntax, comparisons of different
kinds, and errors are left to the engine.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from duckkb.errors import FilterError
from duckkb.lanes.sql.columns import Column, Columns
from duckkb.lanes.sql.kinds import EXACT, INT64
from duckkb.lanes.sql.reader.syntax import MAX_FILTER

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Constant = str | int | float | bool

_MOST_TESTS, _MOST_ITEMS = 32, 500

# Words that the parser may not take for a field unless they are quoted.
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
    |(?i:IN)[ \t\r\n]*\([ \t\r\n]*(?P<many>{_LITERAL}(?:[ \t\r\n]*,[ \t\r\n]*{_LITERAL}){{0,{_MOST_ITEMS - 1}}})[ \t\r\n]*\))
    (?P<joint>[ \t\r\n]+(?i:AND)(?=[ \t\r\n]))?""",
    re.VERBOSE | re.ASCII,
)
_EACH = re.compile(r"'(?:[^']|'')*'|-?[0-9.]+|[a-z]+", re.IGNORECASE)  # each literal in a list of literals and commas
_ODD = re.compile("[\0\ud800-\udfff]")
_EQUALITIES = {"=": "equal", "<>": "not_equal", "!=": "not_equal"}
_OPERATORS = _EQUALITIES | {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_NEGATED = re.compile(r"NOT \(([^()]*)\n\)")
_INVERSE = {"equal": "not_equal", "less": "greater_equal", "greater": "less_equal"}
_INVERSE |= {other: one for one, other in _INVERSE.items()}


Written = tuple[str, str, tuple[Constant, ...]]  # a field's name, an operator of `_OPERATORS` or `in`, constants


class Test(NamedTuple):
    """A comparison of a column with constants of its kind."""

    column: Column
    operator: str
    constants: tuple[Constant, ...]


def parse_comparisons(fragment: str) -> tuple[Written, ...]:
    """Parse the comparisons of a condition, all of which must hold; empty if it is not as simple as that."""
    if len(fragment) > MAX_FILTER // 4 or _ODD.search(fragment):
        return ()
    if negation := _NEGATED.fullmatch(fragment):  # NOT of a single comparison; a missing value satisfies neither
        inner_comparisons = parse_comparisons(negation[1])
        inverse = [
            (name, _INVERSE[operator], constants)
            for name, operator, constants in inner_comparisons
            if operator in _INVERSE
        ]
        return tuple(inverse) if len(inner_comparisons) == 1 else ()
    comparisons: list[Written] = []
    at = 0
    for _ in range(_MOST_TESTS):
        test = _TEST.match(fragment, at)
        if test is None or (test["plain"] or "").lower() in _KEYWORDS.split():
            return ()
        constants = tuple(map(_parse_constant, _EACH.findall(test["one"] or test["many"])))
        name = test["plain"] or test["quoted"].replace('""', '"')
        comparisons.append((name, _OPERATORS.get(test["operator"], "in"), constants))
        at = test.end()
        if not test["joint"]:
            return () if fragment[at:].strip(" \t\r\n") else tuple(comparisons)
    return ()


def tests(fragment: str, columns: Columns) -> tuple[Test, ...]:
    """Return the comparisons of a condition over these columns; empty if the engine must read it."""
    comparisons: list[Test] = []
    for name, operator, constants in parse_comparisons(fragment):
        try:
            column, path = columns.find(name)
        except FilterError:
            return ()
        suits = _SUITS.get(column.kind)
        if path or suits is None or not all(map(suits, constants)):
            return ()
        if column.kind == "boolean" and operator not in _EQUALITIES.values():
            return ()
        comparisons.append(Test(column, operator, constants))
    return tuple(comparisons)


def texts(asked: Sequence[Test]) -> list[tuple[str, str]]:
    """Return the fields with the texts that they must equal; empty if the comparisons require anything else."""
    equal = ((test.column.name, text) for test in asked if test.operator == "equal" for text in test.constants)
    text_pairs = [(name, text) for name, text in equal if isinstance(text, str)]
    return text_pairs if len(text_pairs) == len(asked) else []


def match_rows(table: "pa.Table", asked: Sequence[Test]) -> "np.ndarray":
    """Return a mask of the rows that satisfy all of the comparisons, of which there is at least one. The table's
    columns must be verified. A missing value satisfies no comparison.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = np.ones(table.num_rows, np.bool_)
    for test in asked:
        column = table.column(test.column.sql_name)
        if test.operator == "in":
            zeros = (
                (0.0, -0.0) if test.column.kind == "number" and 0 in test.constants else ()
            )  # equal, but not in bits
            answers = pc.is_in(column, pa.array([*test.constants, *zeros], column.type))
        else:
            answers = getattr(pc, test.operator)(column, pa.scalar(test.constants[0], column.type))
        mask &= answers.fill_null(False).to_numpy()
    return mask


def _parse_constant(text: str) -> Constant:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] in "tTfF":
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


_SUITS: Mapping[str, Callable[[Constant], bool]] = {
    "text": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int and -INT64 < value < INT64,
    "number": lambda value: isinstance(value, (int, float)) and type(value) is not bool and abs(value) < EXACT,
}
"""By the kind of a column, the constants that compare with it unchanged."""
