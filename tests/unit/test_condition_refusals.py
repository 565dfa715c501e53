"""Hostile and mistaken filters: each is refused before anything runs, in words of our own."""

from pathlib import Path

import duckdb
import pytest

from duckkb.id_set import IdSet
from duckkb.ontology.model import NodeType, Ontology
from duckkb.ports import SqlLimits
from duckkb.sql.confined import Confined
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import make_limit_error
from duckkb.sql.statement_names import FUNCTIONS
from duckkb.types.errors import FilterError
from duckkb.types.records import Record
from tests.record_tables import RecordTables

NOTE = NodeType(
    "Note",
    "note",
    ("content",),
    {"properties": {"content": {"type": "string"}, "n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}},
)  # fmt: skip
SECRET = "canary-7f3a"
TIME = "2024-05-01T10:00:00.000000Z"


def _tables() -> Tables:
    made = RecordTables(Ontology({"Note": NOTE}), lambda kind: ())
    records = [
        Record("Note", 1, (SECRET,), {"content": SECRET, "n": 1, "tags": ["a"]}, TIME, TIME),
        Record("Note", 2, ("plain",), {"content": "plain", "n": 2}, TIME, TIME),
    ]
    made.put(NOTE, records)
    return made


@pytest.fixture(scope="module")
def tables() -> Tables:
    return _tables()


HOSTILE = [
    "content SIMILAR TO '(a+)+$'",
    "",
    "   ",
    "-- only a comment",
    "1=1; DROP TABLE note",
    "1=1); DROP TABLE note; --",
    "1=1) UNION SELECT content FROM read_text('/etc/passwd') --",
    "1=1 UNION SELECT 1",
    "true) FROM note; COPY note TO '/elsewhere/x'; SELECT (1",
    "n IN (SELECT n FROM note)",
    "EXISTS (SELECT 1 FROM read_text('/etc/passwd'))",
    "(SELECT count(*) FROM note) > 0",
    "'a' = ANY(tags)",
    "n = ANY(SELECT 1)",
    "n IN (SELECT * FROM query('SELECT 1'))",
    "json_execute_serialized_sql('{}') = 1",
    "query('SELECT 1') = 1",
    "query_table('note') = 1",
    "getenv('HOME') = 'x'",
    "current_setting('threads') = '1'",
    "getvariable('x') = 1",
    "read_text('/etc/passwd') = 'x'",
    "read_blob('/etc/passwd') = 'x'",
    "glob('/*') = 'x'",
    "content IN read_csv('/etc/passwd')",
    "enable_logging(storage='file')",
    "pragma_version() = 'x'",
    "nextval('x') = 1",
    "version() = 'x'",
    "current_user = 'duckdb'",
    "current_database() = 'memory'",
    "uuid() = 'x'",
    "random() > 0",
    "error('x')",
    "write_log('x')",
    "sleep(1)",
    "ATTACH 'x.db'",
    "COPY note TO 'x'",
    "PRAGMA version",
    "SET threads = 1",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE 'x'",
    "CALL pragma_version()",
    "DELETE FROM note",
    "repeat(content, 1000000) = 'x'",
    "lpad(content, 1000000000, 'x') = 'x'",
    "rpad(content, 1000000000, 'x') = 'x'",
    "printf('%1000000000d', 1) = 'x'",
    "format('{:1000000000}', 1) = 'x'",
    "levenshtein(content, 'x') = 1",
    "damerau_levenshtein(content, 'x') = 1",
    "jaccard(content, 'x') = 1",
    "list_resize(tags, 1000000000) = tags",
    "range(1000000000) = [1]",
    "generate_series(1, 1000000000) = [1]",
    "hex(hex(hex(content))) = 'x'",
    "base64(encode(content)) = 'x'",
    "x -> x + 1",
    "row_number() OVER () = 1",
    "count(*) OVER () > 0",
    "sum(n) > 1",
    "count(*) > 1",
    "*",
    "note.*",
    "COLUMNS('n') = 1",
    "n = ?",
    "n = $1",
    "n = $name",
    "n COLLATE nocase = 1",
    "main.lower(content) = 'x'",
    "main.\"lower\"(content) = 'x'",
    "system.main.lower(content) = 'x'",
    "content.lower() = 'x'",
    '"="(n, 1)',
    "\"IS NOT DISTINCT FROM\"(ROW(1, 2), 'a')",
    '"+"(n, 1) = 2',
    "\"~~\"(content, '%')",
    "#1 = 1",
    "DEFAULT",
    "grouping(n) = 1",
    "n! = 1",
    "@n = 1",
    "n::BLOB = '1'",
    "n::UUID = '1'",
    "n::ENUM('a') = 'a'",
    "content::STRUCT(a INTEGER) = content",
    "cast(content as regtype) = 'x'",
    "content AT TIME ZONE 'UTC' = content",
    "unknown = 1",
    "note.n = 1",
    "content.a.b.c = ",
    "n = 1 GROUP BY n",
    "n = 1) GROUP BY (n",
    "n = 1) ORDER BY (n",
    "n = 1) LIMIT (1",
    "n = 1) HAVING (true",
    "n = 1) QUALIFY (true",
    "n = 1) WINDOW w AS (ORDER BY n",
    "n = 1) OR (n = 2",
    "n = 1 LIMIT 1",
    "n BETWEEN SYMMETRIC 1 AND 2",
    "n",
    "content",
    "tags",
    "n AND true",
    "n = 'x'",
    "n = true",
    "content LIKE 'a!' ESCAPE '!'",
    "content LIKE 'a' ESCAPE 'ab'",
    "content = 'unterminated",
    'content = "unterminated',
    "content = $$unterminated",
    "/* unterminated",
    "content = ‘x’",
    "content = “x”",
    "n ＝ 1",
    "n = １",
    "n = 1\0",
    "content = e'\\000'",
    "content = '\ud800'",
    "n = 1e999",
    "n = 1" + "0" * 400,
    "date '2024-02-30' = date '2024-02-28'",
    "date_part('nonsense', content) = 1",
    "content->n = 'x'",
    "content->>'$[' = 'x'",
    "n->>'a' = 'x'",
    "n IN ()",
    "lower() = 'x'",
    "lower(content, content) = 'x'",
    "lower(DISTINCT content) = 'x'",
    "lower(content ORDER BY n) = 'x'",
    "lower(content) FILTER (WHERE true) = 'x'",
    "lower(content := 'x') = 'x' AND nothing = 1",
    "coalesce(tags, 'x') = 'x'",
    "content < interval '1 day'",
    "(" * 3000 + "1=1" + ")" * 900,
    "(" * 5000,
    "NOT " * 1000 + "true",
    "NOT (n = 1 OR " * 60 + "true" + ")" * 60,
    " OR ".join(["n = 1"] * 200),
    "n IN (" + ",".join(["1"] * 1001) + ")",
    "content = '" + "x" * 4096 + "'",
    "n = 1 AND " * 100_000 + "true",
]

# What statements may call as well, and harms nobody: filters take it too, and it says there what it says in a statement.
OFFERED = [
    "replace(content, 'a', 'aaaaaaaaaaaaaaaa') = 'x'",
    "regexp_replace(content, '.', 'aaaaaaaa', 'g') = 'x'",
    "regexp_matches(content, '(a+)+$')",
    "content SIMILAR TO 'a'",
    "content GLOB '*'",
    "md5(content) = 'x'",
    "list_transform(tags, x -> x) = tags",
    "list_filter(tags, lambda x: x = 'a') = tags",
    "[x FOR x IN tags] = tags",
    "content COLLATE NOCASE = 'X'",
    "(n, content) = (1, 'x')",
    "ROW(1, 2) = ROW(1, 2)",
    "{'a': 1} = {'a': 1}",
    "MAP {'a': 1} = MAP {'a': 1}",
    "TRY(n) = 1",
    "n & 1 = 1",
    "n << 2 = 4",
    "n ^ 2 = 4",
    "n // 2 = 1",
    "n::JSON = '1'",
    "content::INTEGER[] = [1]",
    "tags[1:2] = ['a']",
    "tags[n] = 'a'",
    "content LIKE content",
    "interval '1 day' = interval '1 day'",
    " || ".join(["content"] * 20) + " = 'x'",
    "concat(tags, ['b']) = ['a', 'b']",
    "json_exists('{\"a*b\": 1}', '$.\"a*b\"')",
    "coalesce(tags, []) = []",
    "round(2.55, n) = 2.6",
    "round(greatest(2.5, 0.5), content) IS NULL",
    "CASE WHEN n = 1 THEN tags ELSE ['z'] END = ['z']",
    "list_contains(coalesce(list_sort(tags), ['z']), 'z')",
    "list_concat(NULL, tags) = tags",
    "string_split(content, 'n')[1] = 'plai'",
]
LISTS = [
    "concat(tags, ['a', 'b'])",
    "concat(tags, [1, 2])",
    "tags || ['a']",
    "tags || []",
    "NOT (tags || tags)",
    "n = 1 AND list_sort(tags)",
    "list_concat(tags, ['b'])",
    "list_concat(tags, [1])",
    "list_append(tags, 'b')",
    "array_push_front(tags, 'b')",
    "list_reverse(tags)",
    "array_pop_back(tags)",
    "list_slice(tags, 1, 1)",
    "tags[1:1]",
    "tags::varchar[]",
    "content::JSON[]",
    "CASE WHEN n = 1 THEN tags ELSE [] END",
    "CASE WHEN n = 1 THEN [1] ELSE tags END",
    "CASE WHEN list_sort(tags) THEN true END",
    "coalesce(tags, [])",
    "coalesce(list_filter(tags, x -> x = 'a'), tags)",
    "if(n = 1, tags, [])",
    "nullif(tags, [])",
    "greatest(tags, ['q'])",
    "TRY(tags)",
    "tags BETWEEN [] AND ['z']",
    "json_type(content, '$.*')",
    "json_exists('{}', ['$.a', '$.b'])",
    "list_sort(tags) = 'a'",
    "concat(list_sort(tags), 'x') = 'q'",
]
STRUCTURES = ["(content, n)", "row(n)", "{'a': n}", "MAP {'a': n}", "NOT (n, n)"]
ENGINE = ("fit", "value", "column", "other")  # what a refusal of the engine is told as


@pytest.mark.parametrize("condition", HOSTILE, ids=range(len(HOSTILE)))
def test_xd_06_what_is_not_an_honest_filter_is_refused_with_exit_code_2(tables: Tables, condition: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(NOTE, condition)
    assert caught.value.exit_code == 2
    assert caught.value.code == "E_FILTER"
    assert caught.value.details.get("construct", "field") != "fit", "refused by the reader, not by the engine"
    assert SECRET not in str(caught.value)
    assert tables.where(NOTE, f"content = '{SECRET}'") == {1}


@pytest.mark.parametrize("condition", OFFERED, ids=range(len(OFFERED)))
def test_what_a_statement_may_call_a_filter_may_call_too(tables: Tables, condition: str) -> None:
    found = tables.sql(f"SELECT __id FROM note WHERE {condition}", SqlLimits())
    assert tables.where(NOTE, condition) == {row[0] for row in found.rows}


def _refusals(tables: Tables, condition: str) -> list[FilterError]:
    """Of the filter, and of the statement whose WHERE it is."""
    found = []
    for ask in (
        lambda: tables.where(NOTE, condition),
        lambda: tables.sql(f"SELECT __id FROM note WHERE ({condition}\n)", SqlLimits()),
    ):
        with pytest.raises(FilterError) as caught:
            ask()
        found.append(caught.value)
    return found


@pytest.mark.parametrize("condition", ["n ==", "n == ", "content ~"])
def test_an_operator_that_nothing_stands_behind_is_named_as_it_was_typed(tables: Tables, condition: str) -> None:
    sign = condition.split()[1]
    for error in _refusals(tables, condition):
        assert error.message.startswith(("A filter", "A statement")) and f"operator {sign} at" in error.message, error


@pytest.mark.parametrize("condition", LISTS)
def test_a_list_is_no_condition_whatever_gives_it(tables: Tables, condition: str) -> None:
    for error in _refusals(tables, condition):
        assert "list" in error.message and error.details["construct"] not in ENGINE, error
        assert "list_contains" in error.suggestion or "CAST" in error.suggestion


@pytest.mark.parametrize("condition", STRUCTURES)
def test_a_value_of_several_parts_is_no_condition(tables: Tables, condition: str) -> None:
    assert ["a structure" in error.message for error in _refusals(tables, condition)] == [True, True]


def test_the_reader_knows_every_function_of_the_engine_that_gives_a_list(tables: Tables) -> None:
    """Asked of the engine's own catalogue, with an argument of each type; its macros have no types there."""
    given = {"LAMBDA": "x -> x", "VARCHAR": "content", "VARCHAR[]": "['$.a']", "JSON": "'{}'", "BIGINT": "n"}
    overloads = duckdb.sql(
        "SELECT DISTINCT function_name, parameter_types, varargs FROM duckdb_functions() "
        "WHERE function_type = 'scalar' AND (return_type LIKE '%]' OR return_type = 'ARRAY')"
    ).fetchall()
    asked = set()
    for name, types, more in overloads:
        if name not in FUNCTIONS:
            continue
        values = [given.get(kind, f"[1, 2, 3]::{kind}" if "[3]" in kind else "tags") for kind in types]
        condition = f"{name}({', '.join([*values, *(['tags'] if more and not values else [])])})"
        for error in _refusals(tables, condition):
            assert error.details.get("construct") not in ENGINE, condition
        asked.add(name)
    assert {"list_sort", "string_split", "list_transform", "json_keys", "array_value", "flatten"} <= asked


UNREADY = [
    "CASE WHEN n = 1 THEN n ELSE concat_ws(',', content) END = unknown",
    "translate(content, 'a', 'b') AND content <> unknown",
    "(n << 62) IN (md5(content), unknown)",
    "content SIMILAR TO 'a' BETWEEN content AND content",
]


@pytest.mark.parametrize("condition", UNREADY)
def test_what_only_the_engine_refuses_is_not_advised(tables: Tables, condition: str) -> None:
    for error in _refusals(tables, condition):
        assert not error.suggestion.startswith(("duckkb find", "duckkb sql")), error.suggestion


def test_what_runs_is_advised_and_what_cannot_be_tried_is_not() -> None:
    class Slow(Confined):
        def ids(self, statement: str, seconds: float) -> IdSet:
            raise make_limit_error(seconds)

    for engine, advice in ((Confined(), "duckkb find Note -w \"content = 'unknown'\""), (Slow(), "")):
        made = RecordTables(Ontology({"Note": NOTE}), lambda kind: (), engine=engine)
        made.put(NOTE, [Record("Note", 1, ("x",), {"content": "x"}, TIME, TIME)])
        with pytest.raises(FilterError) as caught:
            made.where(NOTE, "content = unknown")
        assert caught.value.details["field"] == "unknown"
        assert caught.value.suggestion == advice if advice else not caught.value.suggestion.startswith("duckkb find")


def test_xd_06_nothing_is_written_by_a_hostile_filter(tmp_path: Path) -> None:
    target = tmp_path / "stolen.csv"
    made = _tables()
    for condition in (
        f"1=1; COPY note TO '{target}'",
        f"1=1) ; COPY (SELECT * FROM note) TO '{target}' ; SELECT (1=1",
        f"n IN (SELECT 1 FROM note) OR enable_logging(storage='file', storage_path='{target}') IS NULL",
    ):
        with pytest.raises(FilterError):
            made.where(NOTE, condition)
    assert list(tmp_path.iterdir()) == []


def test_a_filter_that_is_always_true_sees_its_own_type_only(tables: Tables) -> None:
    assert tables.where(NOTE, "1=0 OR 1=1") == {1, 2}


@pytest.mark.parametrize(
    "condition",
    [
        "n = 'canary-7f3a'",
        "content->>'canary-7f3a' !! 'x'",
        "'canary-7f3a'(1)",
        "n = 1 'canary-7f3a'",
        "d'canary-7f3a' = n",
    ],
)
def test_a_refusal_quotes_no_constant_of_the_fragment(tables: Tables, condition: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(NOTE, condition)
    told = f"{caught.value} {caught.value.suggestion} {dict(caught.value.details)}"
    assert SECRET not in told


def test_casts_over_text_do_not_match_and_do_not_fail(tables: Tables) -> None:
    assert tables.where(NOTE, "content = 5") == frozenset()
    assert tables.where(NOTE, "cast(content as integer) = 5") == frozenset()
    assert tables.where(NOTE, "cast(content as date) = '2024-01-01'") == frozenset()
    assert tables.where(NOTE, "content->>'a' = 'x'") == frozenset()


def test_the_place_of_what_is_refused_is_counted_in_characters(tables: Tables) -> None:
    with pytest.raises(FilterError) as caught:
        tables.where(NOTE, "content = '张三' AND repeat(content, 2) = 'x'")
    assert caught.value.details["position"] == 20


def test_nesting_is_refused_by_its_depth_alone(tables: Tables) -> None:
    assert tables.where(NOTE, "-(" * 36 + "n" + ")" * 36 + " = 1") == {1}
    with pytest.raises(FilterError) as caught:
        tables.where(NOTE, "-(" * 40 + "n" + ")" * 40 + " = 1")
    assert "nesting" in caught.value.details["construct"]


def test_the_largest_honest_filters_pass(tables: Tables) -> None:
    assert tables.where(NOTE, "n IN (" + ",".join(map(str, range(1000))) + ")") == {1, 2}
    assert tables.where(NOTE, " OR ".join(["n = 1"] * 99)) == {1}
    assert tables.where(NOTE, "NOT " * 2 * 17 + "n = 1") == {1}
