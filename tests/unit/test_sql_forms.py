"""What DuckDB 2 can parse: a tree is of a form that is known, to the last field, or refused; and what 2 alone has is decided."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from duckkb.ports import SqlLimits
from duckkb.sql.confined import Confined
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.statement_names import FUNCTIONS, type_name
from duckkb.sql.syntax import Source, check_forms
from duckkb.types.errors import FilterError
from tests.harness.sql import ground

# Between them these have every node that is allowed, and every field of each.
STATEMENTS = [
    "SELECT DISTINCT ON (a) a, t.*, * EXCLUDE (x, t.z) REPLACE (y + 1 AS y) RENAME (q AS r), COLUMNS(c -> c LIKE 'a%') FROM t",
    "SELECT NULL, true, 1, 1.5, 'a', DATE '2024-01-01', INTERVAL 1 DAY, a::DECIMAL(3, 1)[], a::STRUCT(x INTEGER), TRY_CAST(a AS JSON)",
    "SELECT a NOT IN (1, 2), a IN (SELECT 1), a BETWEEN 1 AND 2, NOT a, a IS NULL, a IS DISTINCT FROM b, a COLLATE NOCASE, a[1], a[1:2]",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END, coalesce(a, b), TRY(a), (a).b, {'a': 1}, [1], f(lambda x: x), a -> 'k', a AND b OR c, #1",
    "SELECT count(DISTINCT a ORDER BY b DESC NULLS LAST) FILTER (WHERE c), UNPACK(COLUMNS(*)), GROUPING(a), EXISTS (SELECT 1), (SELECT 1)",
    "SELECT lag(a, 1 IGNORE NULLS) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t",
    "SELECT a FROM t AS u (b), (SELECT 1) AS v (c), unnest([1]) AS w (d), (VALUES (1)) AS x WHERE a GROUP BY ROLLUP (a) HAVING b QUALIFY c",
    "SELECT * FROM a JOIN b USING (x) LEFT JOIN c ON a.x = c.x ASOF JOIN d ON a.x >= d.x POSITIONAL JOIN e ORDER BY 1 LIMIT 10% OFFSET 1",
    "WITH x (a) AS MATERIALIZED (SELECT 1), y AS (SELECT 2) SELECT 1 UNION ALL BY NAME SELECT 2 EXCEPT SELECT 3 ORDER BY a LIMIT 1",
    "WITH RECURSIVE c (v) USING KEY (v) AS (SELECT 1 UNION SELECT v + 1 FROM c WHERE v < 3) SELECT * FROM c",
    "DESCRIBE t",
]


@pytest.fixture(scope="module")
def engine() -> Confined:
    return Confined()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a tree, but what lies in one that is judged as a whole."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(inner)


def _is_refused(tree: Any) -> bool:
    try:
        check_forms(Source("SELECT 1"), tree)
    except FilterError as error:
        assert (error.code, error.exit_code) == ("E_SQL", 2)
        return True
    return False


def _changed(tree: Any, change: Callable[[dict[str, Any]], bool]) -> Iterator[Any]:
    """The tree with one node changed, once for each node that the change applies to."""
    for place in range(sum(1 for _ in _nodes(tree))):
        other = copy.deepcopy(tree)
        if change(list(_nodes(other))[place]):
            yield other


def _gain(node: dict[str, Any]) -> bool:
    node["something_new"] = None
    return True


def _lose(node: dict[str, Any]) -> bool:
    return node.popitem() is not None


def _word(key: str) -> Callable[[dict[str, Any]], bool]:
    def change(node: dict[str, Any]) -> bool:
        was = node.get(key)
        node[key] = "SOMETHING_NEW"
        return isinstance(was, str)

    return change


def _nested_path(node: dict[str, Any]) -> bool:
    if "qualified_name" in node:
        node["qualified_name"] = {"path": ["a", "b", "c", *node["qualified_name"]["path"]]}
        return True
    return False


WORDS = (
    "class",
    "type",
    "kind",
    "join_type",
    "ref_type",
    "limit_type",
    "null_order",
    "setop_type",
    "materialized",
    "start",
)
WORDS = (*WORDS, "syntax_type", "subquery_type", "comparison_type", "aggregate_handling", "exclude_clause", "show_type")
CHANGES = {"a new field": _gain, "a lost field": _lose, "a longer path": _nested_path} | {
    f"a new word of {key}": _word(key) for key in WORDS
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_tree_with_something_unknown_in_any_of_its_nodes_is_refused(engine: Confined, name: str) -> None:
    changed = 0
    for statement in STATEMENTS:
        tree = engine.parse(statement)
        assert not _is_refused(tree), statement
        for other in _changed(tree, CHANGES[name]):
            assert _is_refused(other), statement
            changed += 1
    assert changed


SWITCHES = {
    "export_state": True,
    "is_legacy_function_call": True,
    "delim_flipped": True,
    "nearest_approx": True,
    "nearest_count": 2,
    "nearest_order_type": "DESCENDING",
    "ranking_expression": {"class": "CONSTANT"},
    "duplicate_eliminated_columns": [{"class": "CONSTANT"}],
    "payload_aggregates": [{"class": "CONSTANT"}],
    "expected_types": [{"id": "INTEGER"}],
}


@pytest.mark.parametrize("key", SWITCHES)
def test_a_field_that_nobody_reads_must_have_its_default(engine: Confined, key: str) -> None:
    def change(node: dict[str, Any]) -> bool:
        known = key in node
        node[key] = SWITCHES[key]
        return known

    others = [other for statement in STATEMENTS for other in _changed(engine.parse(statement), change)]
    assert others and all(map(_is_refused, others))


# What 1.5 has not: functions, and whether filters and statements have them.
ACCEPTED = [
    "json_set",
    "json_insert",
    "json_replace",
    "json_remove",
    "json_deep_merge",
    "json_merge_patch_diff",
    "json_strip_nulls",
    "json_normalize",
    "overlay",
    "round_even",
    "roundbankers",
]
REFUSED = {
    "of VARIANT, a type that no column has": "variant_array_length variant_comparator variant_contains variant_exists "
    "variant_extract_string variant_group_array variant_group_object variant_keys variant_type",
    "of geometries, which no column has": "vertex_extract st_asgeojson st_geomfromgeojson",
    "is one of COPY's own": "json_copy_strftime_if_date json_copy_strftime_if_timestamp",
    "changes something": "setval create_external_resource deregister_external_resource destroy_external_resource "
    "register_external_resource register_external_resource_type add_grammar_extension remove_grammar_extension",
    "reads files": "read_single_csv_file read_single_json_file read_single_parquet_file parquet_page_index path_join "
    "hive_partition_component",
    "tells of the engine": "duckdb_available_metrics duckdb_dialects duckdb_eviction_queues duckdb_extension_repositories "
    "duckdb_external_resource_types duckdb_external_resources duckdb_grammar_extensions duckdb_live_query_metrics "
    "duckdb_secret_type_parameters duckdb_triggers python_arrow_scan index_key map_type_id_to_pg_oid",
    "states of aggregates": "combine_aggr to_aggregate_state decimal_average lttb",
    "runs an expression of its own": "invoke",
    "fails at will": "assert_true",
    "takes INTEGER alone, which no column is, and fails where the result is past 128 bits": "binom",
    "has an operator": "__between __cast bitstring_byte_comparable decimal_division",
    "is a window function that makes up values": "fill",
}
SIGNS = ("!=", "<", "<=", "=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_pure_function_that_2_brought_is_one_of_filters_too(name: str) -> None:
    assert name in FUNCTIONS


@pytest.mark.parametrize("name", [name for names in REFUSED.values() for name in names.split()] + list(SIGNS))
def test_any_other_function_that_2_brought_is_refused(tables: Tables, name: str) -> None:
    quoted = f'"{name}"'
    assert name not in FUNCTIONS
    for statement in (f"SELECT {quoted}(i) FROM doc", f"SELECT * FROM {quoted}(1)"):
        with pytest.raises(FilterError) as caught:
            tables.sql(statement, SqlLimits())
        assert caught.value.details["construct"] not in ("fit", "value", "other", "column"), statement
    with pytest.raises(FilterError):
        tables.where(ground.DOC, f"{quoted}(i) = 1")


def test_no_function_of_the_engines_own_is_allowed() -> None:
    names = {name for (name,) in duckdb.connect().execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    assert not {name for name in FUNCTIONS & names if name.startswith(("__", "collate_", "icu_", "duckdb_", "pragma_"))}


@pytest.fixture(scope="module")
def tables() -> Tables:
    return ground.tables()


NEW_SYNTAX = {
    "INSERT in a CTE": "WITH x AS (INSERT INTO doc VALUES (1) RETURNING *) SELECT * FROM x",
    "UPDATE in a CTE": "WITH x AS (UPDATE doc SET i = 1 RETURNING *) SELECT * FROM x",
    "DELETE in a CTE": "WITH x AS (DELETE FROM doc RETURNING *) SELECT * FROM x",
    "DELETE in a CTE of a subquery": "SELECT (WITH x AS (DELETE FROM doc RETURNING i) SELECT max(i) FROM x)",
    "COPY in a CTE": "WITH x AS (COPY doc TO 'out.csv') SELECT * FROM x",
    "COPY of a query in a CTE": "WITH x AS (COPY (SELECT 1) TO 'out.csv') SELECT 1",
    "a variable": "SELECT $name",
    "a variable in a LIMIT": "SELECT 1 LIMIT $name",
    "nested schemas": "SELECT * FROM a.b.c.d.doc",
    "a function of nested schemas": "SELECT a.b.c.d.lower('x')",
    "a type of nested schemas": "SELECT 1::a.b.c.d.integer",
    "CONNECT": "CONNECT 'x'",
    "DISCONNECT": "DISCONNECT",
    "an end of an external resource": "DESTROY EXTERNAL RESOURCE x",
    "a name for an external resource": "REGISTER EXTERNAL RESOURCE x",
    "the resources there are": "SHOW EXTERNAL RESOURCES",
    "another dialect": "SET current_dialect = 'x'",
    "MERGE in a CTE": "WITH x AS (MERGE INTO doc USING vault ON true WHEN MATCHED THEN DELETE RETURNING *) SELECT * FROM x",
    "an end of a trigger": "DROP TRIGGER x ON doc",
    "a secure view": "CREATE SECURE VIEW v AS SELECT 1",
    "a trigger": "CREATE TRIGGER x AFTER INSERT ON doc EXECUTE SELECT 1",
    "an external resource": "CREATE EXTERNAL RESOURCE x",
    "the other run of USING KEY": "WITH RECURSIVE c (v) USING KEY (v) AS (SELECT 1 UNION SELECT v + 1 FROM recurring.c) SELECT * FROM c",
    "SHOW of a schema": "SHOW TABLES FROM main",
    "SHOW of a name with a schema": "SHOW main.doc",
    "a blob": "SELECT x'aa'",
    "bits": "SELECT b'01'",
    "VARIANT": "SELECT 1::VARIANT",
    "TUPLE": "SELECT (1, 2)::TUPLE(INTEGER, INTEGER)",
    "a call of TUPLE": "SELECT TUPLE(1, 2)",
    "PARQUET_VARIANT": "SELECT 1::PARQUET_VARIANT",
    "GEOMETRY": "SELECT 'POINT(1 1)'::GEOMETRY",
    "TIMESTAMPTZ_NS": "SELECT 'x'::TIMESTAMPTZ_NS",
    "a size of a type that has none": "SELECT i::BIGINT(3) FROM doc",
    "a state of an aggregate": "SELECT sum(i) EXPORT_STATE FROM doc",
    "a named argument": "SELECT lower(string := name) FROM doc",
    "an argument named with an arrow": "SELECT lower(string => name) FROM doc",
    "nothing in a list": "SELECT i IN () FROM doc",
    "a nearest join": "SELECT * FROM doc JOIN vault NEAREST 2 BY DISTANCE abs(doc.i - vault.i)",
    "a nearest join of an alias": "SELECT * FROM doc d LEFT JOIN doc e APPROX NEAREST BY SIMILARITY d.i - e.i",
    "an exact nearest join": "SELECT * FROM doc d JOIN doc e EXACT NEAREST 2 BY DISTANCE d.i - e.i",
    "a call of an operator": 'SELECT "IS DISTINCT FROM"(1, 2)',
}


@pytest.mark.parametrize("name", NEW_SYNTAX)
def test_syntax_that_2_brought_and_nobody_asked_for_is_refused(tables: Tables, name: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(NEW_SYNTAX[name], SqlLimits())
    assert caught.value.code == "E_SQL"
    assert caught.value.details["construct"] not in ("fit", "value", "other", "column"), "refused by the reader"


NEW_ANSWERS = [
    ("SELECT i FROM doc WHERE i IS NOT NULL ORDER BY i FETCH FIRST 2 ROWS ONLY", ((-3,), (0,))),
    ("SELECT overlay('abc' PLACING 'x' FROM 2 FOR 1)", (("axc",),)),
    ("SELECT name ~ 'lph' FROM doc WHERE __id = 1", ((True,),)),
    ("SELECT name !~ 'lph' FROM doc WHERE __id = 1", ((False,),)),
    ("SELECT name ~* 'LPH' FROM doc WHERE __id = 1", ((True,),)),
    ("SELECT list_transform([1, 2], x -> x + 1), list_transform([1], lambda x: x + 1)", (([2, 3], [2]),)),
    ("SELECT b AND meta->>'k' = 'a' FROM doc WHERE __id = 1", ((True,),)),
    ("SELECT count(*) FROM doc GROUP BY unnest(tags) ORDER BY ALL LIMIT 1", ((1,),)),
    (
        "WITH RECURSIVE c (v, w) USING KEY (v) AS (SELECT 1, 1 UNION SELECT v % 2 + 1, w + 1 FROM c WHERE w < 3) FROM c ORDER BY v",
        ((1, 3), (2, 2)),
    ),
    ("SELECT json_set(meta, '$.n', '5'::JSON)->>'n' FROM doc WHERE __id = 1", (("5",),)),
    ("SELECT row(1, 'a')", (({"element1": 1, "element2": "a"},),)),
    ("SHOW links", None),
    (
        "SELECT approx + distance + tuple FROM (SELECT 1 AS approx, 2 AS distance, 3 AS tuple)",
        ((6,),),
    ),  # words, and names
]


@pytest.mark.parametrize(("statement", "rows"), NEW_ANSWERS, ids=[statement for statement, _ in NEW_ANSWERS])
def test_what_2_brought_and_is_of_use_is_answered(tables: Tables, statement: str, rows: object) -> None:
    found = tables.sql(statement, SqlLimits()).rows
    assert found == rows if rows is not None else found


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("name ~ 'lph'", {1, 10}),
        ("name !~ 'lph'", set(range(1, 11)) - {1, 10}),
        ("name ~* 'LPH'", {1, 10}),
        ("overlay(name PLACING 'x' FROM 1 FOR 1) = 'xlpha'", {1, 10}),
        ("json_remove(meta, '$.k')->>'k' IS NULL AND meta->>'k' = 'a'", {1}),
        ("json_set(meta, '$.k', '\"z\"'::JSON)->>'k' = 'z'", {1, 2, 3, 4, 5, 7, 10}),
        ('json_normalize(meta) = \'{"k":"A","list":[[1],{"a":1}],"n":-1}\'', {10}),
        ("round_even(x, 0) = 2", {1, 5}),
        ("i // 0 IS NULL AND mod(i, 0) IS NULL AND i % 0 IS NULL AND i / 0 IS NULL", set(range(1, 11))),
        ("i // 3 = 2", {7}),
        ("sqrt(x) > 1", {1, 4, 5, 7, 10}),
        ("ln(i) >= 0 OR acos(i) >= 0 OR log2(i) < -9", {1, 2, 4, 6, 7, 8, 10}),
        ("if(i > 5, name, note) = 'DuckDB内存'", {2}),
    ],
)
def test_a_filter_has_what_2_brought(tables: Tables, condition: str, ids: set[int]) -> None:
    assert tables.where(ground.DOC, condition) == ids
    rows = tables.sql(f"SELECT __id FROM doc WHERE {condition}", SqlLimits()).rows
    assert {row[0] for row in rows} == ids


def test_each_name_of_a_type_that_the_engine_knows_as_another_is_read_so() -> None:
    """`type_name` gives one name; the engine must mean the same type by all of them."""
    rows = duckdb.connect().execute("SELECT DISTINCT lower(type_name), logical_type FROM duckdb_types()").fetchall()
    for name, logical in rows:
        known = type_name({"type_name": name})
        assert known in ("", logical, "JSON"), name


def _withs(count: int, opening: str = "WITH a AS (") -> str:
    return f"SELECT ({opening * count}"


# Texts that are none, for which the parser takes long: each step of a WITH or PIVOT 3 to 7 times as long as the one before.
TOO_DEEP = {
    "WITH": _withs(6),
    "WITH in small letters": _withs(6, "with a as materialized ("),
    "WITH of several": _withs(6, "WITH b AS (SELECT 1), a AS ("),
    "WITH that ends": f"{_withs(6)}SELECT 1{') SELECT 1' * 6})",
    "WITH behind a blank of another kind": _withs(6, "WITH\u00a0a AS ("),
    "WITH behind a comment": _withs(6, "/* ' */WITH/**/a AS ("),
    "WITH behind a dollar": _withs(6, "$(WITH a AS ("),
    "PIVOT": "SELECT " + "(PIVOT t ON " * 6,
    "PIVOT in a WITH": "SELECT " + "(WITH a AS (PIVOT t ON " * 3,
    "PIVOT in brackets": "SELECT " + "(pivot t ON position(" * 6,
    "signs": "SELECT " + "- " * 101,
    "signs of several kinds": "SELECT " + "- ~ @ + " * 26,
    "brackets": "SELECT " + "(" * 301,
    "brackets of lists": "SELECT " + "[" * 301,
    "brackets of structures": "SELECT " + "{'a': " * 301,
    "brackets behind a quote that was escaped": "SELECT E'\\'' || " + "(" * 301 + "'",
    "brackets behind a quote in dollars": "SELECT $$'$$ || " + "(" * 301 + "'",
    "brackets behind a quote in a dollar name": "SELECT $a$'$a$ || " + "(" * 301 + "'",
    "brackets behind a quote in a comment": "SELECT /* ' */ " + "(" * 301 + "'",
    "brackets that a text seems to close": "SELECT " + "(')', " * 301,
}
DEEP_ENOUGH = {
    "WITH": f"SELECT ({'WITH a AS (' * 4}SELECT 1{') SELECT 1' * 4})",
    "WITH side by side": "SELECT " + ", ".join(["(WITH a AS (SELECT 1 AS n) SELECT n FROM a)"] * 40),
    "WITH in a text": f"SELECT '{'(WITH a AS ' * 40}'",
    "WITH as a name": 'SELECT "with" FROM (SELECT 1 AS "with")',
    "WITH of a type": f"SELECT {'CAST(' * 10}'2024-01-01'{' AS TIMESTAMP WITH TIME ZONE)' * 10}",
    "brackets": "SELECT " + "(" * 300 + "1" + ")" * 300,
    "brackets side by side": "SELECT 1 WHERE 1 IN (" + "(1)," * 600 + "1)",
    "brackets in a text": f"SELECT '{'(' * 1000}'",
    "signs": f"SELECT {'- ' * 30}1",
    "queries": f"SELECT {'(SELECT x FROM (SELECT ' * 30}1{' AS x))' * 30}",
}


@pytest.mark.parametrize("name", TOO_DEEP)
def test_a_text_that_the_parser_would_take_long_for_is_refused_before(tables: Tables, name: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(TOO_DEEP[name], SqlLimits())
    assert caught.value.details["construct"] == "so many levels of nesting"
    with pytest.raises(FilterError) as caught:
        tables.where(ground.DOC, TOO_DEEP[name].removeprefix("SELECT "))
    assert caught.value.details["construct"] == "so many levels of nesting"


def test_queries_inside_of_each_other_beyond_what_the_engine_writes_back_are_refused_as_too_deep(
    tables: Tables,
) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(f"SELECT {'(SELECT x FROM (SELECT ' * 60}1{' AS x))' * 60}", SqlLimits())
    assert caught.value.details["construct"] == "so many levels of nesting"


@pytest.mark.parametrize("name", DEEP_ENOUGH)
def test_a_statement_as_deep_as_people_write_them_is_answered(tables: Tables, name: str) -> None:
    assert len(tables.sql(DEEP_ENOUGH[name], SqlLimits()).rows) == 1


@pytest.mark.parametrize("text", [" ", "\n", "\u00a0\u200b", "-- nothing"])
def test_a_statement_without_a_word_has_nothing_in_it(tables: Tables, text: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(text, SqlLimits())
    assert caught.value.details["construct"] == "nothing in it"
