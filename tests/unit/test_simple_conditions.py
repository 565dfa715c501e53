"""Conditions that columns answer without the engine: what is read so means what the engine makes of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duckkb.app.retrievers import MemoryRows
from duckkb.ontology.model import NodeType, Ontology
from duckkb.ports import Row
from duckkb.sql import row_table
from duckkb.sql.confined import Confined
from duckkb.sql.row_table import RowTable
from duckkb.sql.statements import read_condition
from duckkb.sql.syntax import Source, parse_condition
from duckkb.types.records import Record
from tests.record_tables import RecordTables

TIME = "2024-05-01T10:00:00.000000Z"
TEXTS = ["", "a", "ab", "B", "it's", '"', "-5", "true", "a AND b", "内存", "é", "😀", "~", "'", "x'; --"]
INTEGERS = [-(2**63) + 1, -5, -1, 0, 1, 7, 2**53, 2**53 + 1, 2**63 - 1]
NUMBERS = [-1.5, -0.0, 0.0, 0.1, 2.0, 1e300, 123456789.125]
THING = NodeType(
    "Thing",
    "thing",
    ("name",),
    {
        "properties": {
            "name": {"type": "string"},
            "Order": {"type": "integer"},
            "x y": {"type": "number"},
            'q"uote': {"type": "boolean"},
            "day": {"type": "string", "format": "date"},
            "mixed": {},
        }
    },
)


def _things() -> list[Record]:
    found = []
    for number in range(2_400):
        fields: dict[str, Any] = {"name": TEXTS[number % len(TEXTS)], "mixed": [number, str(number)][number % 2]}
        if number % 3:
            fields["Order"] = INTEGERS[number % len(INTEGERS)]
        if number % 5:
            fields["x y"] = NUMBERS[number % len(NUMBERS)]
        if number % 7:
            fields['q"uote'] = bool(number % 2)
        if number % 11 == 0:
            fields["name"] = None
        found.append(Record("Thing", number * 1_000_003 % 2**40 - 2**20, (f"t{number}",), fields, TIME, TIME))
    return found


THINGS = _things()


@pytest.fixture(scope="module")
def rows() -> RowTable:
    return RowTable(THING, MemoryRows(Row(record) for record in THINGS))


@pytest.fixture(scope="module")
def engine() -> Iterator[Confined]:
    engine = Confined()
    yield engine
    engine.drop()


def _by_engine(engine: Confined, rows: RowTable, fragment: str) -> list[int]:
    engine.register("thing", rows.pieces()["base"].data)
    asked = read_condition(engine, "thing", rows.columns, fragment, datetime.now(UTC), lambda other: None)
    return list(engine.ids(asked.sql, 10))


SPACE = st.sampled_from(["", " ", "\n", "\t ", "  "])
GAP = st.sampled_from([" ", "\n", " \t"])
QUOTED = st.one_of(st.sampled_from(TEXTS), st.text(max_size=6).filter(lambda text: "\0" not in text)).map(
    lambda text: "'" + text.replace("'", "''") + "'"
)
INTEGER = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**64), 2**64)).map(str)
NUMBER = st.one_of(INTEGER, st.sampled_from([*map(str, NUMBERS), "0.10", "007", "2.50"]))
OPERATOR = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
LITERALS = {
    st.sampled_from(["name", '"name"', "NAME"]): QUOTED,
    st.sampled_from(['"Order"', '"order"', "__id", "mixed"]): INTEGER,
    st.just('"x y"'): NUMBER,
    st.just('"q""uote"'): st.sampled_from(["true", "FALSE", "True"]),
    st.sampled_from(["day", "__created_at"]): st.just("'2024-01-01'"),
}


@st.composite
def _comparison(draw: st.DrawFn) -> str:
    name, literal = draw(st.sampled_from(list(LITERALS.items())))
    if draw(st.booleans()):
        return f"{draw(SPACE)}{draw(name)}{draw(GAP)}{draw(OPERATOR)}{draw(GAP)}{draw(literal)}"
    items = f"{draw(SPACE)},{draw(GAP)}".join(draw(st.lists(literal, min_size=1, max_size=4)))
    return f"{draw(name)}{draw(GAP)}{draw(st.sampled_from(['IN', 'in']))}{draw(SPACE)}( {items}{draw(SPACE)})"


FRAGMENT = st.lists(_comparison(), min_size=1, max_size=3).flatmap(
    lambda some: st.sampled_from([" AND ", "\nand\t"]).map(lambda joint: joint.join(some))
)


@pytest.mark.long
@settings(max_examples=400)
@given(fragment=FRAGMENT)
@example(fragment='"x y" IN (-5, 0)')
def test_what_columns_answer_is_what_the_engine_answers(rows: RowTable, engine: Confined, fragment: str) -> None:
    asked = row_table.simple_tests(fragment, rows.columns)
    if asked:
        assert list(rows.select_ids(asked)) == _by_engine(engine, rows, fragment)


PIECES = ["name", "=", "<", "'a'", "'", '"', "-", "1", ".", " ", " ", "AND", "IN", "(", ")", ",", "--", "true", "/*"]


@settings(max_examples=400)
@given(fragment=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_what_is_read_at_a_glance_is_nothing_that_the_parser_refuses(engine: Confined, fragment: str) -> None:
    if row_table.parse_comparisons(fragment):
        assert parse_condition(engine, Source(fragment, is_filter=True))


def test_most_of_the_generated_conditions_are_answered_by_columns(rows: RowTable) -> None:
    fragments = ["name = 'a'", "name<>'it''s' AND \"x y\" >= -1.5", '"Order" IN (1, -5, 7)', '"q""uote" = true']
    assert all(row_table.simple_tests(fragment, rows.columns) for fragment in fragments)
    assert all(len(rows.select_ids(row_table.simple_tests(fragment, rows.columns))) for fragment in fragments)


@pytest.mark.parametrize(
    "fragment",
    [
        "mixed = 1",
        "day = '2024-01-01'",
        "__created_at > '2020-01-01'",
        "name = 5",
        '"Order" = 1.5',
        f'"Order" = {2**63}',
        f'"x y" = {2**53 + 1}',
        '"q""uote" < true',
        "order = 1",
        "nothing = 1",
        "name = 'a' OR name = 'b'",
        "name = 'a' -- AND",
        "name = 'a' 'b'",
        "name = 'a';",
        "name.x = 'a'",
        "name IS NULL",
        "NOT name = 'a'",
        "name = NULL",
        "now() > '2020-01-01'",
        "name = 'a\0'",
        "",
        "name = 'a' AND",
        " AND ".join(["name = 'a'"] * 33),
    ],
)
def test_what_is_not_so_simple_is_left_to_the_engine(rows: RowTable, fragment: str) -> None:
    assert not row_table.simple_tests(fragment, rows.columns)


def test_words_of_sql_are_left_to_the_engine_unless_they_are_names_to_it(engine: Confined) -> None:
    words = duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    assert len(words) > 400
    for (word,) in words:
        fragment = f"{word} = 1 AND {word} IN (1, 2)"
        if row_table.parse_comparisons(fragment):
            _, tree = parse_condition(engine, Source(fragment, is_filter=True))
            columns = [node["left"]["column_names"] for node in tree["children"][:1]]
            assert columns == [[word]], word


def test_answers_follow_every_change() -> None:
    tables = RecordTables(Ontology({"Thing": THING}, {}), lambda kind: ())
    tables.put(THING, THINGS)
    one = THINGS[1]
    condition = "name = 'a'"
    assert one.id in tables.where(THING, condition)
    tables.change(THING, [Record("Thing", one.id, one.identity, {"name": "b"}, TIME, TIME)], [THINGS[16].id])
    wanted = {record.id for record in THINGS if record.fields["name"] == "a"} - {one.id, THINGS[16].id}
    assert set(tables.where(THING, condition)) == wanted
    assert set(tables.where(THING, f"{condition} OR {condition}")) == wanted
    tables.close()
