"""Runtime tables: columns from schema and data, changes that equal a fresh load, laziness, restarts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.model import EdgeType, NodeType, Ontology, RecordType
from duckkb.ports import SqlLimits
from duckkb.sql.columns import Columns, Observation, ddl
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import DuckkbError, FilterError
from duckkb.types.records import IndexEntry, Record, Tokens
from tests.record_tables import RecordTables

TIME = "2024-05-01T10:00:00.000000Z"
PLACE = NodeType(
    "Place",
    "place",
    ("name",),
    {
        "$defs": {"count": {"type": "integer"}},
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer"},
            "ratio": {"type": ["number", "null"]},
            "open": {"type": "boolean"},
            "day": {"type": "string", "format": "date"},
            "seen": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "array", "items": {"$ref": "#/$defs/count"}},
            "visits": {"$ref": "#/$defs/count"},
            "grade": {"enum": ["a", "b", None]},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "any": {},
            "either": {"type": ["string", "integer"]},
            "inner": {"type": "object"},
        },
    },
)
ROAD = EdgeType(
    "Road", "road", (), {"properties": {"length": {"type": "number"}}}, from_types=("Place",), to_types=("Place",)
)
ONTOLOGY = Ontology({"Place": PLACE}, {"Road": ROAD})


def _place(number: int, **fields: Any) -> Record:
    return Record("Place", number, (f"p{number}",), {"name": f"p{number}", **fields}, TIME, TIME)


def _road(number: int, start: Any, end: Any, **fields: Any) -> Record:
    return Record("Road", number, (str(start), str(end)), {"from": start, "to": end, **fields}, TIME, TIME)


def _columns(*records: Record, kind: RecordType = PLACE) -> Columns:
    seen = Observation(kind)
    seen.add(records)
    return seen.columns()


def _kinds(*records: Record, kind: RecordType = PLACE) -> dict[str, str]:
    return {column.name: column.kind for column in _columns(*records, kind=kind)}


def test_declared_columns_take_the_kind_that_the_schema_gives_them() -> None:
    assert _kinds() == {
        "__id": "integer",
        "name": "text",
        "size": "integer",
        "ratio": "number",
        "open": "boolean",
        "day": "date",
        "seen": "timestamp",
        "tags": "text[]",
        "counts": "integer[]",
        "visits": "integer",
        "grade": "text",
        "maybe": "text",
        "any": "json",
        "either": "json",
        "inner": "json",
        "__created_at": "timestamp",
        "__updated_at": "timestamp",
        "__extra": "json",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", "5"),
        ("size", 1.5),
        ("size", True),
        ("size", 2**63),
        ("ratio", 2**53 + 1),
        ("ratio", False),
        ("name", 5),
        ("day", "2024-02-30"),
        ("day", "2024-1-1"),
        ("seen", "2024-01-01"),
        ("seen", "0000-01-01T10:00:00Z"),
        ("tags", ["a", 1]),
        ("tags", "a"),
        ("tags", [["a"]]),
        ("counts", [1, 1.5]),
        ("open", "true"),
    ],
)
def test_one_value_that_does_not_fit_makes_its_column_json_and_is_kept(field: str, value: Any) -> None:
    record = Record("Place", 2, ("p2",), {"name": "p2", field: value}, TIME, TIME)
    holds_lists = isinstance(value, list)
    assert _kinds(_place(1), record)[field] == ("json[]" if holds_lists else "json")
    tables = RecordTables(ONTOLOGY, lambda kind: ())
    tables.put(PLACE, [_place(1), record])
    rows = tables.sql(f'SELECT "{field}" FROM place WHERE __id = 2', SqlLimits()).rows
    assert rows == ((value,),)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 5.0, 0])
def test_integers_up_to_the_ends_of_int64_stay_integers(value: Any) -> None:
    assert _kinds(_place(1, size=value))["size"] == "integer"


def test_the_ends_of_an_edge_take_the_kind_of_their_identities() -> None:
    assert _kinds(_road(1, "a", "b"), kind=ROAD)["from"] == "text"
    assert _kinds(_road(1, 1, 2), kind=ROAD)["from"] == "integer"
    assert _kinds(_road(1, ["a", 1], {"id": "b", "type": "Place"}), kind=ROAD)["to"] == "json"
    assert list(_kinds(kind=ROAD))[:5] == ["__id", "from_id", "to_id", "from", "to"]


def test_names_that_sql_would_confuse_get_columns_of_their_own() -> None:
    odd = NodeType("Odd", "odd", ("a",), {"properties": {"a": {"type": "string"}, "A": {"type": "integer"}}})
    tables = RecordTables(Ontology({"Odd": odd}), lambda kind: ())
    tables.put(odd, [Record("Odd", 1, ("x",), {"a": "x", "A": 5}, TIME, TIME)])
    assert tables.where(odd, "a = 'x' AND \"A\" = 5") == {1}
    assert [column.sql_name for column in tables.columns(odd).business] == ["a", "A_2"]


def test_the_ddl_names_every_column_of_a_type() -> None:
    assert ddl(ROAD) == (
        'CREATE TABLE "road" (\n  "__id" BIGINT,\n  "from_id" BIGINT,\n  "to_id" BIGINT,\n  "from" VARCHAR,\n'
        '  "to" VARCHAR,\n  "length" DOUBLE,\n  "__created_at" TIMESTAMP,\n  "__updated_at" TIMESTAMP,\n  "__extra" JSON\n);'
    )


CONDITIONS = (
    "size > 1",
    "size = 'x'",
    "hue = 'red'",
    "inner.k = 1",
    "tags = ['a']",
    "name like 'p%'",
    "Hue is null",
    "true",
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "size": st.sampled_from([1, 2, 3, "x"]),
        "hue": st.sampled_from(["red", "蓝"]),
        "Hue": st.just("grey"),
        "inner": st.sampled_from([{"k": 1}, {"k": "1"}, []]),
        "tags": st.sampled_from([["a"], [], ["a", 1]]),
    },
)
CHANGES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(1, 12), VALUES, max_size=4), st.lists(st.integers(1, 12), max_size=3), st.booleans()
    ),
    max_size=6,
)


def _answers(tables: Tables) -> list[Any]:
    answers: list[Any] = []
    for condition in CONDITIONS:
        try:
            answers.append(tables.where(PLACE, condition))
        except FilterError as error:
            answers.append(str(error))
    answers.append(tables.sql("SELECT * FROM place ORDER BY __id", SqlLimits()))
    return answers


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.integers(1, 12), VALUES, max_size=8), CHANGES)
def test_changes_give_the_same_table_as_a_fresh_load(start: dict[int, Any], changes: Any) -> None:
    tables, records = RecordTables(ONTOLOGY, lambda kind: ()), {}
    records = {number: _place(number, **fields) for number, fields in start.items()}
    tables.put(PLACE, list(records.values()))
    for upserts, gone, look in changes:
        new = {number: _place(number, **fields) for number, fields in upserts.items()}
        tables.change(PLACE, list(new.values()), gone)
        records = {number: record for number, record in records.items() if number not in gone} | new
        if look:
            tables.where(PLACE, "true")
    fresh = RecordTables(ONTOLOGY, lambda kind: ())
    fresh.put(PLACE, list(records.values()))
    assert _answers(tables) == _answers(fresh)
    tables.close()
    fresh.close()


def test_a_small_change_to_a_large_table_is_kept_beside_it() -> None:
    tables = RecordTables(ONTOLOGY, lambda kind: ())
    tables.put(PLACE, [_place(number, size=number) for number in range(1, 2001)])
    assert len(tables.where(PLACE, "size > 1000")) == 1000
    tables.change(PLACE, [_place(5, size=9999), _place(5000, size=5000)], [2000, 777_777])
    assert tables.where(PLACE, "size > 1995") == {5, 1996, 1997, 1998, 1999, 5000}
    tables.change(PLACE, [_place(2000, size=2000)], [5])
    assert tables.where(PLACE, "size > 1995") == {1996, 1997, 1998, 1999, 2000, 5000}
    tables.change(PLACE, [_place(number, size=0) for number in range(1, 1000)], [])
    assert len(tables.where(PLACE, "size = 0")) == 999


def test_nothing_is_asked_of_the_callbacks_before_a_statement_needs_it() -> None:
    asked: list[str] = []

    def entries(kind: RecordType) -> Iterable[tuple[int, IndexEntry]]:
        asked.append(kind.name)
        return ()

    def cache() -> pa.Table:
        asked.append("cache")
        return pa.table({"kind": ["vector"]})

    tables = RecordTables(ONTOLOGY, entries, cache_rows=cache)
    tables.put(PLACE, [_place(1)])
    tables.where(PLACE, "true")
    tables.sql("SELECT * FROM place", SqlLimits())
    assert asked == []
    tables.sql("SELECT * FROM search_index", SqlLimits())
    assert asked == ["Place", "Road"]
    assert tables.sql("SELECT kind FROM search_cache", SqlLimits()).rows == (("vector",),)


def test_the_search_index_shows_chunks_tokens_and_vectors_of_all_types() -> None:
    vector = np.array([0.6, 0.8], np.float32)
    stored = {"Place": [(1, IndexEntry("name", 0, "内存", Tokens("内存", "内 存"), b"k", vector))], "Road": []}
    tables = RecordTables(ONTOLOGY, lambda kind: stored[kind.name])
    statement = (
        "SELECT source_table, source_id, source_field, chunk_seq, content, fts_content, vector FROM search_index"
    )
    rows = tables.sql(statement, SqlLimits()).rows
    assert rows[0][:6] == ("place", 1, "name", 0, "内存", "内存")
    assert rows[0][6] == pytest.approx([0.6, 0.8])
    stored["Road"].append((4, IndexEntry("length", 0, "long")))
    assert tables.sql(f"{statement} WHERE source_table = 'road'", SqlLimits()).rows == (
        ("road", 4, "length", 0, "long", None, None),
    )


def test_edges_learn_of_nodes_that_come_and_go() -> None:
    known: dict[str, int] = {}
    tables = RecordTables(
        ONTOLOGY,
        lambda kind: (),
        lambda kind, record: (known.get(record.fields["from"]), known.get(record.fields["to"])),
    )
    tables.put(ROAD, [_road(9, "p1", "p2")])
    assert tables.where(ROAD, "from_id is null and to_id is null") == {9}
    known["p1"] = 1
    tables.change(PLACE, [_place(1)], [])
    assert tables.where(ROAD, "from_id = 1 and to_id is null") == {9}
    known.clear()
    tables.change(PLACE, [], [1])
    assert tables.where(ROAD, "from_id is null") == {9}


def test_closed_tables_open_again_with_the_same_rows() -> None:
    tables = RecordTables(ONTOLOGY, lambda kind: [(1, IndexEntry("name", 0, "x"))] if kind is PLACE else [])
    tables.put(PLACE, [_place(1, size=5)])
    before = (tables.where(PLACE, "size = 5"), tables.sql("SELECT * FROM search_index", SqlLimits()))
    tables.close()
    assert (tables.where(PLACE, "size = 5"), tables.sql("SELECT * FROM search_index", SqlLimits())) == before


def test_a_type_without_records_answers_with_nothing() -> None:
    tables = RecordTables(ONTOLOGY, lambda kind: ())
    assert tables.where(PLACE, "size = 1") == frozenset()
    assert tables.sql("SELECT count(*) FROM road", SqlLimits()).rows == ((0,),)
    with pytest.raises(DuckkbError):
        tables.where(PLACE, "hue = 'red'")
