"""Honest filters over a small table, each against what plain Python says about the same records."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from duckkb.ontology.model import EdgeType, NodeType, Ontology
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import FilterError
from duckkb.types.records import Record
from tests.record_tables import RecordTables

PAPER = NodeType(
    "Paper",
    "paper",
    ("title",),
    {
        "properties": {
            "title": {"type": "string"},
            "body": {"type": ["string", "null"]},
            "year": {"type": "integer"},
            "score": {"type": "number"},
            "open": {"type": "boolean"},
            "day": {"type": "string", "format": "date"},
            "seen": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "pages": {"type": "array", "items": {"type": "integer"}},
            "metadata": {"type": "object"},
            "mixed": {"type": "integer"},
            "order": {"type": "integer"},
            "级别": {"type": "integer"},
        }
    },
)
CITES = EdgeType("Cites", "cites", (), {"properties": {"since": {"type": "integer"}}})

FIELDS: list[dict[str, Any]] = [
    {"title": "Snakes", "body": "An update of pythons", "year": 2020, "score": 1.5, "open": True, "order": 1,
     "day": "2024-01-31", "seen": "2024-01-31T23:30:00+08:00", "tags": ["a", "b"], "pages": [1, 2],
     "metadata": {"author": "Ann", "n": 10, "deep": {"k": [5, "x"]}, "ok": True, "key with/odd~\"": 1}, "mixed": 1},
    {"title": "内存数据库", "body": "DuckDB内存", "year": 2021, "score": -2.0, "open": False, "day": "2024-02-29",
     "tags": [], "pages": [], "metadata": {"author": "张三", "n": "10", "list": ["a", 1, 2.0]}, "mixed": "q", "级别": 3},
    {"title": "it's", "body": "", "year": 1999, "score": 0.0, "tags": ["a"], "pages": [3], "metadata": {"author": None}},
    {"title": "42", "body": "100%_sure", "year": -5, "extra": "hi", "nested": {"Key": 7}, "mixed": 2.5,
     "seen": "2024-01-31T15:30:00.000001Z"},
    {"title": "none"},
    {"title": "4.20e1", "body": "a\\b\nc", "score": 42.0, "Extra": "HO", "mixed": True},
]  # fmt: skip
RECORDS = [
    Record(
        "Paper",
        number,
        (fields["title"],),
        fields,
        f"2024-05-0{number}T10:00:00.000001Z",
        "2024-06-01T00:00:00.000000Z",
    )
    for number, fields in enumerate(FIELDS, 1)
]
NOW = datetime(2024, 5, 3, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def tables() -> Tables:
    made = RecordTables(Ontology({"Paper": PAPER}, {"Cites": CITES}), lambda kind: (), now=lambda: NOW)
    made.put(PAPER, RECORDS)
    return made


def _is(name: str, test: Callable[[Any], bool]) -> Callable[[Mapping[str, Any]], bool]:
    """A test of one field that is there."""
    return lambda fields: fields.get(name) is not None and test(fields[name])


def _meta(name: str, test: Callable[[Any], bool]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda fields: (fields.get("metadata") or {}).get(name) is not None and test(fields["metadata"][name])


ANSWERS: list[tuple[str, Callable[[Mapping[str, Any]], bool]]] = [
    ("year = 2020", _is("year", lambda v: v == 2020)),
    ("year <> 2020", _is("year", lambda v: v != 2020)),
    ("YEAR != 2020 and Title > ''", _is("year", lambda v: v != 2020)),
    ("year >= 2000 OR score < 0", lambda f: f.get("year", 0) >= 2000 or f.get("score", 0) < 0),
    ("not year = 2020", _is("year", lambda v: v != 2020)),
    ("year in (2020, 1999)", _is("year", lambda v: v in (2020, 1999))),
    ("year in (2020, '1999', null)", _is("year", lambda v: v in (2020, 1999))),
    ("year not in (2020, 1999)", _is("year", lambda v: v not in (2020, 1999))),
    ("year not in (2020, null)", lambda f: False),
    ("year between 1999 and 2020", _is("year", lambda v: 1999 <= v <= 2020)),
    ("year not between 1999 and 2020", _is("year", lambda v: not 1999 <= v <= 2020)),
    ("year = '2020'", _is("year", lambda v: v == 2020)),
    ("year > 1999.5", _is("year", lambda v: v > 1999.5)),
    ("year = -5", _is("year", lambda v: v == -5)),
    ("-year = 5", _is("year", lambda v: v == -5)),
    ("year is null", lambda f: f.get("year") is None),
    ("year is not null", lambda f: f.get("year") is not None),
    ("year is distinct from 2020", lambda f: f.get("year") != 2020),
    ("year is not distinct from null", lambda f: f.get("year") is None),
    ("year < 9223372036854775808", _is("year", lambda v: True)),
    ("score = 1.5", _is("score", lambda v: v == 1.5)),
    ("score = '1.50'", _is("score", lambda v: v == 1.5)),
    ("score = 42", _is("score", lambda v: v == 42)),
    ("abs(score) = 2 or round(score) = 42", _is("score", lambda v: abs(v) == 2 or v == 42)),
    ("floor(score) = 1 or ceil(score) = 2", _is("score", lambda v: v == 1.5)),
    ("year + 1 = 2021", _is("year", lambda v: v == 2020)),
    ("year % 2 = 0", _is("year", lambda v: v % 2 == 0)),
    ("1 / score > 0", _is("score", lambda v: v > 0)),
    ("(1 / score) is null and score is not null", _is("score", lambda v: v == 0)),
    ("year * 2 - 1 = 4039", _is("year", lambda v: v == 2020)),
    ("title + 1 = 43", _is("title", lambda v: v in ("42", "4.20e1"))),
    ("title = 42", _is("title", lambda v: v in ("42", "4.20e1"))),
    ("title > 40.5", _is("title", lambda v: v in ("42", "4.20e1"))),
    ("title = '42'", _is("title", lambda v: v == "42")),
    ("title = 'it''s'", _is("title", lambda v: v == "it's")),
    ("title = '内存数据库'", _is("title", lambda v: v == "内存数据库")),
    ("级别 = 3", _is("级别", lambda v: v == 3)),
    ("body like '%update%'", _is("body", lambda v: "update" in v)),
    ("body not like '%update%'", _is("body", lambda v: "update" not in v)),
    ("body ilike 'AN UPDATE%'", _is("body", lambda v: v.lower().startswith("an update"))),
    ("body not ilike 'AN%'", _is("body", lambda v: not v.lower().startswith("an"))),
    ("title like '内存___'", _is("title", lambda v: v == "内存数据库")),
    ("title like '4_'", _is("title", lambda v: v == "42")),
    ("body like '100!%!_%' escape '!'", _is("body", lambda v: v.startswith("100%_"))),
    ("body like 'a\\b_c'", _is("body", lambda v: v == "a\\b\nc")),
    ("body like 'a\\%'", _is("body", lambda v: v.startswith("a\\"))),
    ("body = ''", _is("body", lambda v: v == "")),
    ("year like '20%'", _is("year", lambda v: str(v).startswith("20"))),
    ("open", _is("open", lambda v: v)),
    ("not open", _is("open", lambda v: not v)),
    ("open = 'false'", _is("open", lambda v: not v)),
    ("open is true", lambda f: f.get("open") is True),
    ("open is not true", lambda f: f.get("open") is not True),
    ("open is unknown", lambda f: f.get("open") is None),
    ("score IN (1.5, NULL)", _is("score", lambda v: v == 1.5)),
    ("score IN (pages[1], NULL)", lambda f: False),
    ("score IN (0, NULL)", _is("score", lambda v: v == 0)),
    ("day = '2024-02-29'", _is("day", lambda v: v == "2024-02-29")),
    ("day > date '2024-01-31'", _is("day", lambda v: v > "2024-01-31")),
    ("day >= '2024-01-31T12:00:00Z'", _is("day", lambda v: v > "2024-01-31")),
    ("year(day) = 2024 and month(day) = 2", _is("day", lambda v: v == "2024-02-29")),
    ("extract(day from day) = 31", _is("day", lambda v: v == "2024-01-31")),
    ("date_trunc('month', day) = '2024-01-01'", _is("day", lambda v: v == "2024-01-31")),
    ("day + 29 = '2024-02-29'", _is("day", lambda v: v == "2024-01-31")),
    ("day + interval 1 month = '2024-02-29'", _is("day", lambda v: v == "2024-01-31")),
    ("day - date '2024-01-01' = 30", _is("day", lambda v: v == "2024-01-31")),
    ("date_diff('day', day, '2024-03-01') = 1", _is("day", lambda v: v == "2024-02-29")),
    ("day like '2024-02%'", _is("day", lambda v: v.startswith("2024-02"))),
    ("day::date = '2024-02-29'", _is("day", lambda v: v == "2024-02-29")),
    ("seen = '2024-01-31T15:30:00Z'", _is("seen", lambda v: "+08:00" in v)),
    ("seen > timestamp '2024-01-31 15:30:00'", _is("seen", lambda v: "000001" in v)),
    ("list_contains(tags, 'a')", _is("tags", lambda v: "a" in v)),
    ("not list_contains(tags, 'b')", _is("tags", lambda v: "b" not in v)),
    ("'a' in tags", _is("tags", lambda v: "a" in v)),
    ("tags[1] = 'a' and tags[-1] = 'b'", _is("tags", lambda v: v == ["a", "b"])),
    ("tags = ['a']", _is("tags", lambda v: v == ["a"])),
    ("tags = []", _is("tags", lambda v: v == [])),
    ("len(tags) = 0", _is("tags", lambda v: not v)),
    ("list_has_any(tags, ['b', 'z'])", _is("tags", lambda v: "b" in v)),
    ("list_has_all(pages, [1, 2])", _is("pages", lambda v: {1, 2} <= set(v))),
    ("list_contains(pages, '3')", _is("pages", lambda v: 3 in v)),
    ("list_contains(pages, 3.0)", _is("pages", lambda v: 3 in v)),
    ("metadata.author = 'Ann'", _meta("author", lambda v: v == "Ann")),
    ("metadata.author = '张三'", _meta("author", lambda v: v == "张三")),
    ("metadata.author is null", lambda f: (f.get("metadata") or {}).get("author") is None),
    ("metadata->>'author' = 'Ann'", _meta("author", lambda v: v == "Ann")),
    ("metadata['author'] = 'Ann'", _meta("author", lambda v: v == "Ann")),
    ("json_extract_string(metadata, '$.author') = 'Ann'", _meta("author", lambda v: v == "Ann")),
    ("metadata.n = 10", _meta("n", lambda v: True)),
    ("metadata.n + 1 > 10.5", _meta("n", lambda v: True)),
    ("metadata.ok", _meta("ok", lambda v: v)),
    ("metadata.ok = true", _meta("ok", lambda v: v)),
    ("metadata.deep.k[1] = 5", _meta("deep", lambda v: v["k"][0] == 5)),
    ("metadata->'deep'->'k'->>1 = 'x'", _meta("deep", lambda v: v["k"][1] == "x")),
    ("metadata->>'$.deep.k[1]' = 'x'", _meta("deep", lambda v: v["k"][1] == "x")),
    ("metadata->>'/deep/k/1' = 'x'", _meta("deep", lambda v: v["k"][1] == "x")),
    ("metadata.\"key with/odd~\"\"\" = 1", _meta('key with/odd~"', lambda v: v == 1)),
    ("list_contains(metadata.list, 2)", _meta("list", lambda v: 2 in v)),
    ("len(metadata.list) = 3", _meta("list", lambda v: len(v) == 3)),
    ("lower(metadata.author) = 'ann'", _meta("author", lambda v: v == "Ann")),
    ("mixed = 'q'", _is("mixed", lambda v: v == "q")),
    ("mixed = 1", _is("mixed", lambda v: v is not True and v == 1)),
    ("mixed > 2", _is("mixed", lambda v: v == 2.5)),
    ("mixed = true", _is("mixed", lambda v: v is True)),
    ("extra = 'hi'", _is("extra", lambda v: v == "hi")),
    ('"Extra" = \'HO\'', _is("Extra", lambda v: v == "HO")),
    ("nested.Key >= 7", _is("nested", lambda v: True)),
    ("NESTED.Key >= 7", _is("nested", lambda v: True)),
    ('"order" = 1', _is("order", lambda v: v == 1)),
    ("lower(title) = 'snakes'", _is("title", lambda v: v == "Snakes")),
    ("upper(title) = 'SNAKES' or length(title) = 5", _is("title", lambda v: v == "Snakes" or len(v) == 5)),
    ("contains(title, '数据')", _is("title", lambda v: "数据" in v)),
    ("starts_with(title, 'Sn') and ends_with(title, 's')", _is("title", lambda v: v == "Snakes")),
    ("prefix(title, 'Sn') or suffix(title, '库')", _is("title", lambda v: v[:2] == "Sn" or v[-1] == "库")),
    ("substring(title, 1, 2) = '内存'", _is("title", lambda v: v[:2] == "内存")),
    ("substring(title from 3) = 'akes'", _is("title", lambda v: v[2:] == "akes")),
    ("left(title, 1) = '内' or right(title, 1) = '库'", _is("title", lambda v: v == "内存数据库")),
    ("trim('  ' || title || ' ') = 'Snakes'", _is("title", lambda v: v == "Snakes")),
    ("concat(title, '-', year) = 'Snakes-2020'", _is("title", lambda v: v == "Snakes")),
    ("strpos(title, 'k') = 4", _is("title", lambda v: v.find("k") == 3)),
    ("coalesce(year, 0) = 0", lambda f: f.get("year") is None),
    ("coalesce(body, title) = 'none'", lambda f: f["title"] == "none"),
    ("nullif(body, '') is null", lambda f: not f.get("body")),
    ("greatest(year, 2000) = 2000", lambda f: (f.get("year") or 0) <= 2000),
    ("case when year > 2000 then 'new' else 'old' end = 'new'", _is("year", lambda v: v > 2000)),
    ("case title when '42' then true end", _is("title", lambda v: v == "42")),
    ("if(open, 1, 0) = 1", _is("open", lambda v: v)),
    ("title::double = 42", _is("title", lambda v: v in ("42", "4.20e1"))),
    ("cast(score as decimal(10, 1)) = 1.5", _is("score", lambda v: v == 1.5)),
    ("try_cast(title as bigint) = 42", _is("title", lambda v: v in ("42", "4.20e1"))),
    ("year::varchar = '2020'", _is("year", lambda v: v == 2020)),
    ("1=1", lambda f: True),
    ("1=0 OR 1=1", lambda f: True),
    ("true", lambda f: True),
    ("null", lambda f: False),
    ("year = 2020 -- the rest is a comment", _is("year", lambda v: v == 2020)),
    ("year /* inner */ = 2020", _is("year", lambda v: v == 2020)),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("condition", "holds"), ANSWERS, ids=[condition for condition, _ in ANSWERS])
def test_dk_24_a_filter_finds_what_python_finds(
    tables: Tables, condition: str, holds: Callable[[Mapping[str, Any]], bool]
) -> None:
    wanted = {record.id for record in RECORDS if holds(record.fields)}
    assert tables.where(PAPER, condition) == wanted


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("__id = 2", {2}),
        ("__id in (1, 3) and __created_at < '2024-05-02'", {1}),
        ("__created_at = '2024-05-03T10:00:00.000001Z'", {3}),
        ("__created_at like '2024-05-03T10%'", {3}),
        ("__created_at > now() - interval '2 days'", {2, 3, 4, 5, 6}),
        ("__created_at::date = current_date", {3}),
        ("__updated_at >= '2024-06-01'", {1, 2, 3, 4, 5, 6}),
        ("__extra is not null", {4, 6}),
    ],
)
def test_system_columns_can_be_filtered(tables: Tables, condition: str, wanted: set[int]) -> None:
    assert tables.where(PAPER, condition) == wanted


def test_an_edge_is_filtered_by_its_ends_and_their_record_ids() -> None:
    edges = [
        Record(
            "Cites", 7, ("A", "B"), {"from": "A", "to": "B", "since": 3}, RECORDS[0].created_at, RECORDS[0].updated_at
        ),
        Record("Cites", 8, ("B", "张"), {"from": "B", "to": "张"}, RECORDS[0].created_at, RECORDS[0].updated_at),
    ]
    ends = {"A": 1, "B": 2}
    made = RecordTables(
        Ontology({"Paper": PAPER}, {"Cites": CITES}),
        lambda kind: (),
        lambda kind, record: (ends.get(record.fields["from"]), ends.get(record.fields["to"])),
    )
    made.put(CITES, edges)
    assert made.where(CITES, "\"from\" = 'A' and since = 3") == {7}
    assert made.where(CITES, "from_id = 2") == {8}
    assert made.where(CITES, "to_id is null and \"to\" = '张'") == {8}


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        ("year = 'x'", "year"),
        ("score > 'many'", "score"),
        ("day = '2024-02-30'", "day"),
        ("seen < 'yesterday'", "seen"),
        ("open = 'maybe'", "open"),
        ("open = 1", "open"),
        ("tags = 'a'", "tags"),
        ("list_contains(title, 'a')", "title"),
        ("day > 5", "day"),
        ("year in (1, 'x')", "year"),
        ("list_contains(pages, 'x')", "pages"),
    ],
)
def test_a_constant_that_cannot_meet_its_field_is_refused_and_the_field_is_named(
    tables: Tables, condition: str, field: str
) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(PAPER, condition)
    assert caught.value.details["field"] == field
    assert caught.value.exit_code == 2


def test_the_nearest_field_is_offered_for_an_unknown_one(tables: Tables) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(PAPER, "a = 1 and tile = 'x'")
    assert caught.value.details["field"] == "a"
    with pytest.raises(FilterError) as caught:
        tables.where(PAPER, "year = 1 and tile = 'x'")
    assert caught.value.details["nearest"] == "title"
    assert caught.value.details["position"] == 14


def test_a_name_that_fits_two_fields_but_for_case_is_not_guessed(tables: Tables) -> None:
    with pytest.raises(FilterError):
        tables.where(PAPER, "EXTRA = 'hi'")


def test_a_field_named_like_a_word_of_sql_is_offered_in_quotes(tables: Tables) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(PAPER, "order = 1")
    assert '"order"' in caught.value.suggestion
