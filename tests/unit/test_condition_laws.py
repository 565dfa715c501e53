"""Laws of filters: generated conditions agree with a brute-force evaluation in Python, and nothing accepted ever fails."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.model import NodeType, Ontology
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import FilterError
from duckkb.types.records import Record
from tests.record_tables import RecordTables

THING = NodeType(
    "Thing",
    "thing",
    ("name",),
    {
        "properties": {
            "name": {"type": "string"},
            "i": {"type": "integer"},
            "x": {"type": "number"},
            "b": {"type": "boolean"},
            "d": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "integer"},
            "meta": {"type": "object"},
        }
    },
)
TIME = "2024-05-01T10:00:00.000000Z"
NOW = datetime(2024, 5, 3, 12, 0, tzinfo=UTC)
TEXTS = ["", "a", "b", "ab", "张三", "a_b", "100%", "5", "-2", "it's", "A"]
INTEGERS = [-2, -1, 0, 1, 2, 5]
NUMBERS = [-1.5, 0.0, 0.5, 2.0, 5.0]
DAYS = ["2024-01-01", "2024-02-29", "1999-12-31"]


def _maybe(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.sampled_from(values))


FIELDS = st.fixed_dictionaries(
    {
        "name": _maybe(TEXTS),
        "i": _maybe(INTEGERS),
        "x": _maybe(NUMBERS),
        "b": _maybe([True, False]),
        "d": _maybe(DAYS),
        "tags": st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "张"]), max_size=3)),
        "m": _maybe([1, 5, "q", "5", 2.5]),
        "meta": st.one_of(st.none(), st.fixed_dictionaries({"k": _maybe(TEXTS), "n": _maybe([*INTEGERS, *NUMBERS])})),
    }
)


@dataclass(frozen=True)
class Case:
    """A condition and what it means: True, False or None (unknown) for the fields of a record."""

    sql: str
    value: Any


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _number(value: Any) -> float | None:
    """What counts as a number in text."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else str(value)


READERS = {
    "name": lambda f: f["name"],
    "i": lambda f: f["i"],
    "x": lambda f: f["x"],
    "d": lambda f: f["d"],
    "m": lambda f: f["m"],
    "meta.k": lambda f: (f["meta"] or {}).get("k"),
    "meta.n": lambda f: (f["meta"] or {}).get("n"),
}
COMPARISONS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _known(test: Any) -> Any:
    """A test of two values that is unknown where one of them is."""
    return lambda a, b: None if a is None or b is None else test(a, b)


@st.composite
def numeric(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["i", "x", "name", "m", "meta.k", "meta.n"]))
    operator = draw(st.sampled_from(sorted(COMPARISONS)))
    constant = draw(st.sampled_from([*INTEGERS, *NUMBERS]))
    read, test = READERS[name], _known(COMPARISONS[operator])
    return Case(f"{name} {operator} {_literal(constant)}", lambda f: test(_number(read(f)), constant))


@st.composite
def textual(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["name", "meta.k", "d"]))
    operator = draw(st.sampled_from(sorted(COMPARISONS)))
    constant = draw(st.sampled_from(DAYS if name == "d" else TEXTS))
    read, test = READERS[name], _known(COMPARISONS[operator])
    by_code_point = _known(lambda a, b: test(a.encode(), b.encode()))
    return Case(f"{name} {operator} {_literal(constant)}", lambda f: by_code_point(read(f), constant))


@st.composite
def between_fields(draw: st.DrawFn) -> Case:
    left, right = draw(st.sampled_from([("i", "x"), ("i", "name"), ("m", "i"), ("meta.n", "x"), ("x", "meta.k")]))
    operator = draw(st.sampled_from(sorted(COMPARISONS)))
    test = _known(COMPARISONS[operator])
    return Case(f"{left} {operator} {right}", lambda f: test(_number(READERS[left](f)), _number(READERS[right](f))))


@st.composite
def membership(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["i", "x", "name", "meta.k"]))
    values = draw(st.lists(_maybe({"i": INTEGERS, "x": NUMBERS}.get(name, TEXTS)), min_size=1, max_size=3))
    negated = draw(st.booleans())
    read = READERS[name]

    def value(fields: Any) -> bool | None:
        found = read(fields)
        if found is None:
            return None
        inside = True if found in [v for v in values if v is not None] else None if None in values else False
        return inside if not negated or inside is None else not inside

    items = ", ".join("NULL" if v is None else _literal(v) for v in values)
    return Case(f"{name} {'NOT ' if negated else ''}IN ({items})", value)


@st.composite
def simple(draw: st.DrawFn) -> Case:
    prefix = draw(st.sampled_from(["a", "张", "1", ""]))
    tag = draw(st.sampled_from(["a", "张", "z"]))
    low, high = draw(st.sampled_from(INTEGERS)), draw(st.sampled_from(INTEGERS))
    return draw(
        st.sampled_from(
            [
                Case("b", lambda f: f["b"]),
                Case("b = false", lambda f: None if f["b"] is None else not f["b"]),
                Case("b IS NOT TRUE", lambda f: f["b"] is not True),
                Case("name IS NULL", lambda f: f["name"] is None),
                Case("meta.k IS NOT NULL", lambda f: READERS["meta.k"](f) is not None),
                Case("i IS DISTINCT FROM x", lambda f: f["i"] != f["x"]),
                Case(f"name LIKE '{prefix}%'", lambda f: None if f["name"] is None else f["name"].startswith(prefix)),
                Case("name LIKE 'a_b'", lambda f: None if f["name"] is None else f["name"] in ("a_b",)),
                Case("name ILIKE 'A%'", lambda f: None if f["name"] is None else f["name"].lower().startswith("a")),
                Case(f"list_contains(tags, '{tag}')", lambda f: None if f["tags"] is None else tag in f["tags"]),
                Case("len(tags) > 1", lambda f: None if f["tags"] is None else len(f["tags"]) > 1),
                Case("length(name) = 2", lambda f: None if f["name"] is None else len(f["name"]) == 2),
                Case(f"i BETWEEN {low} AND {high}", lambda f: None if f["i"] is None else low <= f["i"] <= high),
                Case(f"i + {low} > x", lambda f: None if None in (f["i"], f["x"]) else f["i"] + low > f["x"]),
                Case("i / x > 1", lambda f: None if None in (f["i"], f["x"]) or not f["x"] else f["i"] / f["x"] > 1),
                Case("coalesce(i, x, 0) = 0", lambda f: (f["i"] if f["i"] is not None else f["x"] or 0) == 0),
                Case("CASE WHEN b THEN i ELSE x END > 0", _chosen),
                Case("m = 'q'", lambda f: None if f["m"] is None else f["m"] == "q")
                if low
                else Case("1 = 1", lambda f: True),
                Case("NULL", lambda f: None),
            ]
        )
    )


def _chosen(fields: Any) -> bool | None:
    value = fields["i"] if fields["b"] else fields["x"]
    return None if value is None else value > 0


def _all(values: list[Any]) -> bool | None:
    return False if False in values else None if None in values else True


def _any(values: list[Any]) -> bool | None:
    return True if True in values else None if None in values else False


def _negated(inner: Case) -> Case:
    def value(fields: Any) -> bool | None:
        found = inner.value(fields)
        return None if found is None else not found

    return Case(f"NOT ({inner.sql})", value)


def _joined(pair: tuple[str, list[Case]]) -> Case:
    word, cases = pair
    fold = _all if word == "AND" else _any
    sql = f" {word} ".join(f"({case.sql})" for case in cases)
    return Case(sql, lambda fields: fold([case.value(fields) for case in cases]))


CONDITIONS = st.recursive(
    st.one_of(numeric(), textual(), between_fields(), membership(), simple()),
    lambda inner: st.one_of(
        inner.map(_negated),
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)).map(_joined),
    ),
    max_leaves=6,
)


def _loaded(rows: list[dict[str, Any]]) -> Tables:
    # one moment for all: what is asked twice, as a filter and as a statement, is asked of the same clock
    made = RecordTables(Ontology({"Thing": THING}), lambda kind: (), now=lambda: NOW)
    records = []
    for number, row in enumerate(rows, 1):
        fields = {name: value for name, value in row.items() if value is not None}
        records.append(Record("Thing", number, (str(number),), fields, TIME, TIME))
    # the column stays mixed whatever was drawn, and no row of the table under test has this id
    made.put(THING, [*records, Record("Thing", 999, ("999",), {"m": "q"}, TIME, TIME)])
    return made


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(FIELDS, min_size=1, max_size=6), st.lists(CONDITIONS, min_size=1, max_size=8))
def test_a_filter_means_what_three_valued_logic_says(rows: list[dict[str, Any]], cases: list[Case]) -> None:
    tables = _loaded(rows)
    for case in cases:
        wanted = {number for number, row in enumerate(rows, 1) if case.value(row) is True}
        assert tables.where(THING, case.sql) - {999} == wanted, case.sql
    tables.close()


ATOMS = [
    *(
        "name",
        "i",
        "x",
        "b",
        "d",
        "tags",
        "m",
        "meta",
        "meta.k",
        "meta.n",
        "__id",
        "__created_at",
        "tags[1]",
        "meta['k']",
    ),
    *(
        "NULL",
        "1",
        "0",
        "-3",
        "2.5",
        "1e300",
        "9223372036854775807",
        "'a'",
        "''",
        "'5'",
        "'2024-01-01'",
        "'张'",
        "true",
    ),
    *("date '2024-01-01'", "now()", "current_date", "['a', 'b']", "[1, 2]", "[]", "interval '3 days'", "'[1]'"),
]
SHAPES = [
    *("({} = {})", "({} < {})", "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} % {})", "({} || {})"),
    *("({} AND {})", "({} OR {})", "({} IS DISTINCT FROM {})", "({} IN ({}))", "coalesce({}, {})", "nullif({}, {})"),
    *("greatest({}, {})", "list_contains({}, {})", "list_has_any({}, {})", "contains({}, {})", "left({}, {})"),
    *("round({}, {})", "substring({}, {})", "starts_with({}, {})", "date_diff('day', {}, {})", "strpos({}, {})"),
    *("concat({}, {})", "trim({}, {})", "(CASE WHEN {} THEN {} END)", "[{}, {}]"),
]
SINGLE = [
    *(
        "NOT {}",
        "-{}",
        "{} IS NULL",
        "lower({})",
        "len({})",
        "abs({})",
        "floor({})",
        "sign({})",
        "year({})",
        "date({})",
    ),
    *("date_trunc('month', {})", "date_part('epoch', {})", "{}::varchar", "{}::bigint", "{}::double", "{}::boolean"),
    *("{}::date", "{}::timestamp", "{}::decimal(10,2)", "{}->>'k'", "({})[1]", "{} LIKE '%a_%'", "{} ILIKE 'a%'"),
    *("upper({})", "{} BETWEEN 1 AND 2", "day({})", "{} IS TRUE"),
]
FRAGMENTS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(lambda shape, a, b: shape.format(a, b), st.sampled_from(SHAPES), inner, inner),
        st.builds(lambda shape, a: "(" + shape.format(a) + ")", st.sampled_from(SINGLE), inner),
    ),
    max_leaves=8,
)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.lists(FRAGMENTS, min_size=10, max_size=30))
def test_whatever_the_reader_accepts_the_engine_evaluates(fragments: list[str]) -> None:
    for fragment in fragments:
        for condition in (fragment, f"{fragment} IS NULL", f"{fragment} = {fragment}"):
            try:
                SHARED.where(THING, condition)
            except FilterError as error:
                assert error.details.get("construct") not in ENGINE, condition


ENGINE = ("fit", "value", "column", "other")  # what a refusal of the engine is told as
SHARED = _loaded(
    [
        {"name": "a", "i": 9223372036854775807, "x": 1e308, "b": True, "d": "2024-01-01", "tags": ["a"], "m": 1,
         "meta": {"k": "a", "n": 1}},
        {"name": "", "i": -9223372036854775808, "x": -1e308, "b": False, "d": "9999-12-31", "tags": [], "m": "x",
         "meta": {"k": "[1]", "n": 1.5}},
        {"name": '{"k": 1}', "i": 0, "x": 0.0, "d": "0001-01-01", "meta": {"k": None}},
        {"name": None},
    ]
)  # fmt: skip
