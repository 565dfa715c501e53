"""Whole numbers past 2^53 in fields that hold other numbers too: filters and aggregates are exact to the last digit, or refuse."""

import operator
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction

import pytest

from duckkb.ontology.model import NodeType, Ontology
from duckkb.ports import SqlLimits
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import FilterError
from duckkb.types.records import Record
from tests.record_tables import RecordTables

TIME = "2024-05-01T10:00:00.000001Z"
LARGE = 9007199254740993  # the first whole number that is no double
VALUES = [LARGE, LARGE - 1, 1.5, 2, LARGE + 2, -LARGE, 2**63 - 1]
DOUBLES = [float(2**53), 2.5, float(2**53 + 2), 2.0, -float(2**53)]
NUM = NodeType("Num", "num", ("name",), {"properties": {"name": {"type": "string"}, "v": {"type": "number"}}})
PAIR = NodeType(
    "Pair",
    "pair",
    ("name",),
    {"properties": {"name": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"}}},
)
WIDE = NodeType("Wide", "wide", ("name",), {"properties": {"name": {"type": "string"}, "x": {"type": "number"}}})

Holds = Callable[[float], bool]


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    """`v` is declared, `u` is not, `w.k` lies inside; `x` holds doubles alone."""
    made = RecordTables(Ontology({"Num": NUM, "Wide": WIDE}, {}), lambda kind: ())
    rows = [{"name": f"n{at}", "v": value, "u": value, "w": {"k": value}} for at, value in enumerate(VALUES, 1)]
    made.put(NUM, [Record("Num", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(rows, 1)])
    wide = [{"name": f"d{at}", "x": value} for at, value in enumerate(DOUBLES, 1)]
    made.put(WIDE, [Record("Wide", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(wide, 1)])
    yield made
    made.close()


COMPARED: list[tuple[str, Holds]] = [
    (f"{{}} > {LARGE - 1}", lambda v: v > LARGE - 1),
    (f"{{}} >= {LARGE}", lambda v: v >= LARGE),
    (f"{{}} >= {LARGE}.0", lambda v: v >= LARGE),
    (f"{{}} <> {LARGE - 1}", lambda v: v != LARGE - 1),
    (f"{{}} = {LARGE}", lambda v: v == LARGE),
    (f"{{}} = {LARGE}.0", lambda v: v == LARGE),
    (f"{{}} = {LARGE - 1}", lambda v: v == LARGE - 1),
    (f"{{}} < -{LARGE - 1}", lambda v: v < -(LARGE - 1)),
    (f"{{}} IN ({LARGE}, 2)", lambda v: v in (LARGE, 2)),
    (f"{{}} NOT IN ({LARGE}, 1.5)", lambda v: v not in (LARGE, 1.5)),
    (f"{{}} BETWEEN {LARGE} AND {LARGE + 1}", lambda v: LARGE <= v <= LARGE + 1),
    (f"{{}} IS DISTINCT FROM {LARGE - 1}", lambda v: v != LARGE - 1),
    ("{} > 9e15", lambda v: v > 9 * 10**15),
    ("{} < 1e30", lambda v: v < 10**30),
    ("{} < 1e200", lambda v: True),
    ("{} > 1.6", lambda v: v > 1.6),
    ("{} = 1.5", lambda v: v == 1.5),
    (f"{{}} > {10**60}", lambda v: False),
]


@pytest.mark.parametrize("field", ["v", "u", "w.k"])
@pytest.mark.parametrize(("condition", "holds"), COMPARED, ids=[condition for condition, _ in COMPARED])
def test_a_constant_is_compared_to_the_last_digit(tables: Tables, field: str, condition: str, holds: Holds) -> None:
    wanted = {at for at, value in enumerate(VALUES, 1) if holds(value)}
    assert tables.where(NUM, condition.format(field)) == wanted
    rows = tables.sql(f"SELECT __id FROM num WHERE {condition.format(field)}", SqlLimits()).rows
    assert {row[0] for row in rows} == wanted


@pytest.mark.parametrize(("condition", "holds"), COMPARED, ids=[condition for condition, _ in COMPARED])
def test_a_column_of_doubles_is_compared_so_too(tables: Tables, condition: str, holds: Holds) -> None:
    wanted = {at for at, value in enumerate(DOUBLES, 1) if holds(value if value % 1 else int(value))}
    assert tables.where(WIDE, condition.format("x")) == wanted


@pytest.mark.parametrize("field", ["v", "u", "w.k"])
@pytest.mark.parametrize(
    "calculation",
    [
        "{} + 0",
        "{} % 2",
        "{} // 2",
        "2 // {}",
        "-{}",
        "{} * 1.0",
        "{} / 1",
        "abs({})",
        "floor({})",
        "round({})",
        "mod({}, 2)",
        "mod({} + 0, 2)",
        "greatest({}, 0)",
    ],
)
def test_a_calculation_that_would_round_is_refused_where_such_a_number_is_met(
    tables: Tables, field: str, calculation: str
) -> None:
    for ask in (
        lambda: tables.where(NUM, f"{calculation.format(field)} = {LARGE}"),
        lambda: tables.sql(f"SELECT {calculation.format(field)} FROM num", SqlLimits()),
    ):
        with pytest.raises(FilterError) as caught:
            ask()
        assert caught.value.details["construct"] == "exact"
        assert str(LARGE) not in str(caught.value)
        assert "CAST(FIELD AS HUGEINT)" in caught.value.suggestion
    assert tables.where(NUM, f"CAST({field} AS HUGEINT) + 0 = {LARGE}") == {1}


COMPARISONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, "<>": operator.ne, ">=": operator.ge, ">": operator.gt,
    "IS DISTINCT FROM": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("sign", COMPARISONS)
def test_a_declared_whole_number_beside_a_double_is_compared_exactly_or_refused(sign: str) -> None:
    """Each pair by itself: rounding leaves the order as it is, but where it makes two numbers equal."""
    integers = [0, -3, LARGE - 1, LARGE, LARGE + 1, LARGE + 2, -LARGE, 2**63 - 1]
    doubles = [0.5, -3.0, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**63, 1e300]
    pairs = [(whole, double) for whole in integers for double in doubles]
    refused = set()
    with closing(RecordTables(Ontology({"Pair": PAIR}, {}), lambda kind: ())) as made:
        rows = [{"name": f"p{at}", "i": whole, "x": double, "u": double} for at, (whole, double) in enumerate(pairs, 1)]
        made.put(PAIR, [Record("Pair", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(rows, 1)])
        for at, (whole, double) in enumerate(pairs, 1):
            for field in ("x", "u"):
                try:
                    ids = made.where(PAIR, f"CASE WHEN __id = {at} THEN i {sign} {field} ELSE false END")
                    holds = COMPARISONS[sign](Fraction(whole), Fraction(double))
                    assert ids == ({at} if holds else set()), (whole, double)
                except FilterError as error:
                    assert error.details["construct"] == "exact"
                    refused.add((field, whole, double))
    rounded = [(whole, double) for whole, double in pairs if whole != double and float(whole) == double]
    assert refused == {(field, *pair) for field in ("x", "u") for pair in rounded}


CHOICES: dict[str, Callable[[int, float], Fraction]] = {
    "CASE WHEN flag THEN i ELSE x END": lambda i, x: Fraction(i),
    "CASE WHEN NOT flag THEN i WHEN NULL THEN x ELSE x END": lambda i, x: Fraction(x),
    "coalesce(NULL, i, x)": lambda i, x: Fraction(i),
    "ifnull(x, i)": lambda i, x: Fraction(x),
    "least(i, x)": lambda i, x: min(Fraction(i), Fraction(x)),
    "greatest(x, i, -1e300)": lambda i, x: max(Fraction(i), Fraction(x)),
    f"coalesce(CASE WHEN flag THEN i ELSE x END, {LARGE})": lambda i, x: Fraction(i),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("sign", COMPARISONS)
def test_a_choice_between_a_whole_number_and_a_double_is_compared_exactly_or_refused(choice: str, sign: str) -> None:
    """With constants it is exact; beside a double it is refused where rounding would make two numbers equal."""
    pairs = [(whole, double) for whole in (0, LARGE - 1, LARGE, -LARGE) for double in (0.5, 2.0**53, -(2.0**53))]
    others = (2.0**53, 0.5)
    with closing(RecordTables(Ontology({"Pair": PAIR}, {}), lambda kind: ())) as made:
        rows = [{"name": f"p{at}", "i": whole, "x": double, "y": other, "flag": True}
                for at, (whole, double, other) in enumerate(((*pair, other) for pair in pairs for other in others), 1)]  # fmt: skip
        made.put(PAIR, [Record("Pair", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(rows, 1)])
        chosen = [CHOICES[choice](row["i"], row["x"]) for row in rows]
        for constant in (0, 1, LARGE - 1, LARGE, LARGE + 1, -LARGE, 2**63 - 1):
            holds = {at for at, value in enumerate(chosen, 1) if COMPARISONS[sign](value, Fraction(constant))}
            assert made.where(PAIR, f"{choice} {sign} {constant}") == holds, constant
        for at, (value, row) in enumerate(zip(chosen, rows, strict=True), 1):
            try:
                found = made.where(PAIR, f"CASE WHEN __id = {at} THEN {choice} {sign} y ELSE false END")
                assert found == ({at} if COMPARISONS[sign](value, Fraction(row["y"])) else set()), row
            except FilterError as error:
                assert error.details["construct"] == "exact" and row["i"] == LARGE and row["y"] == 2.0**53, row
            else:
                assert (value, row["y"]) != (LARGE, 2.0**53), "its nearest double is taken for it"


def test_a_list_of_doubles_is_not_searched_for_a_number_that_doubles_round() -> None:
    with closing(RecordTables(Ontology({"Pair": PAIR}, {}), lambda kind: ())) as made:
        made.put(PAIR, [Record("Pair", 1, ("p",), {"name": "p", "i": LARGE, "x": 2.0**53}, TIME, TIME)])
        with pytest.raises(FilterError, match="holds doubles"):
            made.where(PAIR, f"list_contains([i, x], {LARGE})")
        assert made.where(PAIR, f"list_contains([i, i], {LARGE})") == {1}
        assert made.where(PAIR, "list_contains([x], 9007199254740991)") == set()


def test_a_calculation_in_doubles_with_a_declared_whole_number_that_would_round_is_refused() -> None:
    with closing(RecordTables(Ontology({"Pair": PAIR}, {}), lambda kind: ())) as made:
        rows = [{"name": "small", "i": 7, "x": 0.5}, {"name": "large", "i": LARGE, "x": 0.5}]
        made.put(PAIR, [Record("Pair", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(rows, 1)])
        results = {
            "i % 2.0": 1.0,
            "mod(i, 2.5)": 2.0,
            "i // 2.0": 3.0,
            "x % i": 0.5,
            "i + x": 7.5,
            "i - 0.5": 6.5,
            "i * 1.0": 7.0,
            "i / 2": 3.5,
            "x / i": 0.5 / 7,
        }
        for calculation, result in results.items():
            with pytest.raises(FilterError) as caught:
                made.where(PAIR, f"{calculation} = {LARGE}")
            assert caught.value.details["construct"] == "exact"
            assert made.where(PAIR, f"CASE WHEN i < 10 THEN {calculation} = {result} ELSE false END") == {1}
        exact = {
            "i % 2 = 1": {1, 2},
            "CAST(i AS DOUBLE) + x = 7.5": {1},
            f"CAST(i AS DOUBLE) * 1.0 = {LARGE - 1}": {2},
            f"CAST(i AS HUGEINT) + 1 = {LARGE + 1}": {2},
            f"i + 0 = {LARGE}": {2},
            f"round(i) = {LARGE}": {2},
            "i > 0.5": {1, 2},
            "i > x": {1, 2},
        }
        assert {condition: made.where(PAIR, condition) for condition in exact} == exact


MIXED: list[object] = [7, -7, 7.5, -7.5, 0, "9", " 8.5 ", "x", None, True, [1], {"a": 1}, LARGE - 2, -(LARGE - 2)]


def test_a_whole_quotient_of_a_field_with_other_values_is_that_of_plain_python() -> None:
    """Towards zero, as that of a field of whole numbers: what else is in the field changes no answer."""
    made = RecordTables(Ontology({"Num": NUM}, {}), lambda kind: ())
    rows = [{"name": f"n{at}", "u": value, "w": {"k": value}} for at, value in enumerate(MIXED, 1)]
    made.put(NUM, [Record("Num", at, (row["name"],), row, TIME, TIME) for at, row in enumerate(rows, 1)])
    numbers = {
        at: Fraction(str(value).strip())
        for at, value in enumerate(MIXED, 1)
        if type(value) in (int, float) or value in ("9", " 8.5 ")
    }
    quotients = {(at, by): int(number / by) for at, number in numbers.items() for by in (1, 2, 3, -2, LARGE - 2)}
    for (at, by), quotient in quotients.items():
        wanted = {other for other in numbers if quotients[other, by] == quotient}
        for field in ("u", "w.k"):
            assert at in wanted == made.where(NUM, f"{field} // {by} = {quotient}"), (field, by, quotient)
        asked = f"SELECT u // {by} FROM num WHERE __id = {at}"
        assert made.sql(asked, SqlLimits()).rows == ((quotient,),)
    assert made.where(NUM, "u // 0 IS NULL") == set(range(1, len(MIXED) + 1))
    assert made.where(NUM, "u // 2 IS NULL") == set(range(1, len(MIXED) + 1)) - numbers.keys()
    assert made.where(NUM, "5 // u = 0") == {at for at, number in numbers.items() if number and not int(5 / number)}
    assert made.where(NUM, f"CAST(u AS HUGEINT) // 2 = {(LARGE - 2) // 2}") == {13}
    made.close()


@pytest.mark.parametrize("aggregate", ["sum", "avg", "median", "min", "max", "stddev"])
@pytest.mark.parametrize("field", ["v", "u", "w.k"])
def test_an_aggregate_is_exact_or_refused(tables: Tables, field: str, aggregate: str) -> None:
    with pytest.raises(FilterError):
        tables.sql(f"SELECT {aggregate}({field}) FROM num", SqlLimits())
    small = {"sum": 3.5, "avg": 1.75, "median": 1.75, "min": 1.5, "max": 2, "stddev": 0.3535533905932738}
    asked = f"SELECT {aggregate}({field}) FROM num WHERE {field} BETWEEN 0 AND 100"
    if aggregate != "stddev":
        assert tables.sql(asked, SqlLimits()).rows == ((small[aggregate],),)
    whole = f"SELECT sum(CAST({field} AS HUGEINT)) FROM num WHERE {field} > 100"
    assert tables.sql(whole, SqlLimits()).rows == ((sum(value for value in VALUES if value > 100),),)


def test_order_is_exact(tables: Tables) -> None:
    rows = tables.sql("SELECT v FROM num ORDER BY v", SqlLimits()).rows
    assert [row[0] for row in rows] == sorted(VALUES)


@pytest.mark.parametrize("number", ["9007199254740992.5", "-9007199254740993.25"])
def test_a_constant_that_no_double_is_is_refused(tables: Tables, number: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(NUM, f"v > {number}")
    assert caught.value.details["construct"] == "number"
