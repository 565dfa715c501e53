"""`sql`: honest statements are answered, everything else is refused, caps are announced."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.ontology.model import EdgeType, NodeType, Ontology
from duckkb.ports import SqlLimits
from duckkb.sql.runtime_tables import Tables
from duckkb.types.errors import FilterError, Unavailable, UsageError
from duckkb.types.records import Record
from tests.conftest import NOTES, make_base
from tests.fakes import HashEmbedder
from tests.record_tables import RecordTables

NOTE = NodeType(
    "Note",
    "note",
    ("name",),
    {
        "properties": {
            "name": {"type": "string"},
            "n": {"type": "integer"},
            "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "meta": {"type": "object"},
        }
    },
)
LINK = EdgeType("Link", "link", (), {"properties": {}})
TIME = "2024-05-01T10:00:00.000001Z"


@pytest.fixture(scope="module")
def tables() -> Tables:
    made = RecordTables(Ontology({"Note": NOTE}, {"Link": LINK}), lambda kind: (), lambda kind, record: (1, 2))
    made.put(
        NOTE,
        [
            Record("Note", 1, ("a",), {"name": "a", "n": 1, "day": "2024-02-29", "tags": ["x", "y"], "meta": {"k": [1]}}, TIME, TIME),
            Record("Note", 2, ("张三",), {"name": "张三", "n": 2, "tags": [], "free": "text"}, TIME, TIME),
            Record("Note", 3, ("",), {"name": "", "n": 2}, TIME, TIME),
        ],
    )  # fmt: skip
    made.put(LINK, [Record("Link", 9, ("a", "张三"), {"from": "a", "to": "张三"}, TIME, TIME)])
    return made


HONEST = [
    ("SELECT 'delete'", (("delete",),)),
    ("SELECT 'drop table note; --' AS x;", (("drop table note; --",),)),
    ("SELECT count(*), sum(n), min(name), max(n) FROM note", ((3, 5, "", 2),)),
    ("FROM note SELECT name ORDER BY __id", (("a",), ("张三",), ("",))),
    ("SELECT n, count(*) FROM note GROUP BY n HAVING count(*) > 1", ((2, 2),)),
    ("SELECT name FROM NOTE WHERE n = 2 ORDER BY __id DESC LIMIT 1", (("",),)),
    ("SELECT day, __created_at FROM note WHERE n = 1", (("2024-02-29", TIME),)),
    ("SELECT tags, meta, __extra FROM note WHERE n = 1", ((["x", "y"], {"k": [1]}, None),)),
    ("SELECT __extra->>'free' FROM note WHERE __id = 2", (("text",),)),
    ("SELECT meta->'k'->>0 FROM note WHERE __id = 1", (("1",),)),
    ("SELECT a.name, b.name FROM link JOIN note a ON a.__id = from_id JOIN note b ON b.__id = to_id", (("a", "张三"),)),
    ("WITH t AS (SELECT n FROM note) SELECT max(n) FROM t", ((2,),)),
    ("WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT y FROM b", ((2,),)),
    (
        "WITH RECURSIVE c AS (SELECT 1 AS v UNION ALL SELECT v + 1 FROM c WHERE v < 3) SELECT v FROM c",
        ((1,), (2,), (3,)),
    ),
    ("SELECT name, row_number() OVER (ORDER BY __id) FROM note ORDER BY 2 LIMIT 2", (("a", 1), ("张三", 2))),
    ("SELECT n FROM note WHERE n IN (SELECT max(n) FROM note) LIMIT 1", ((2,),)),
    ("SELECT 1 UNION ALL SELECT 2", ((1,), (2,))),
    ("SELECT * FROM (VALUES (1, 'a')) v(x, y)", ((1, "a"),)),
    ("SELECT unnest(tags) FROM note WHERE __id = 1", (("x",), ("y",))),
    ("SELECT string_agg(name, '|' ORDER BY __id) FROM note", (("a|张三|",),)),
    ("SELECT count(*) FILTER (WHERE n > 1) FROM note", ((2,),)),
    ("SELECT 1.50, 0.1::DOUBLE, 12345678901234567890123456789::HUGEINT", ((1.5, 0.1, 12345678901234567890123456789),)),
    ("SELECT {'a': 1, 'b': [DATE '2024-01-01']}, MAP {'k': 1}", (({"a": 1, "b": ["2024-01-01"]}, {"k": 1}),)),
    ("SELECT row(1, 'a')", (({"element1": 1, "element2": "a"},),)),
    ("SELECT NULL, TRUE, 'inf'::DOUBLE, TRY_CAST('x' AS INTEGER)", ((None, True, "inf", None),)),
    ("SELECT TIMESTAMP '2024-01-01 00:00:00' + INTERVAL 1 DAY", (("2024-01-02T00:00:00.000000Z",),)),
    ("SELECT count(*) FROM search_index", ((0,),)),
    ("SELECT count(*) FROM search_cache", ((0,),)),
    ("SHOW TABLES", (("link",), ("note",), ("search_cache",), ("search_index",))),
    ("-- a comment\nSELECT 1 /* another */", ((1,),)),
]


@pytest.mark.parametrize(("statement", "rows"), HONEST, ids=[statement for statement, _ in HONEST])
def test_dk_24_a_plain_select_is_answered(tables: Tables, statement: str, rows: tuple[tuple[object, ...], ...]) -> None:
    answer = tables.sql(statement, SqlLimits())
    assert answer.rows == rows
    assert not answer.truncated


def test_describe_names_columns_and_types(tables: Tables) -> None:
    answer = tables.sql("DESCRIBE note", SqlLimits())
    assert dict(row[:2] for row in answer.rows)["tags"] == "VARCHAR[]"
    assert tables.sql("SUMMARIZE link", SqlLimits()).rows


REFUSED = [
    "",
    ";",
    "-- nothing",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE note",
    "DROP VIEW note",
    "DELETE FROM note",
    "INSERT INTO note VALUES (1)",
    "UPDATE note SET n = 1",
    "CREATE TABLE x AS SELECT 1",
    "WITH d AS (DELETE FROM note RETURNING *) SELECT * FROM d",
    "SELECT * INTO x FROM note",
    "ATTACH 'x.db'",
    "DETACH memory",
    "COPY note TO '/elsewhere/x.csv'",
    "COPY (SELECT 1) TO '/elsewhere/x.csv'",
    "EXPORT DATABASE '/elsewhere/x'",
    "IMPORT DATABASE '/elsewhere/x'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET threads = 1",
    "RESET threads",
    "CALL pragma_version()",
    "CALL enable_logging(storage='file', storage_path='/elsewhere/x')",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "COMMIT",
    "USE memory",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "PIVOT note ON name USING sum(n)",
    "UNPIVOT note ON n INTO NAME k VALUE v",
    "SELECT getenv('HOME')",
    "SELECT current_setting('threads')",
    "SELECT current_database()",
    "SELECT version()",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/elsewhere/x')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '/elsewhere/x.parquet'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'https://example.org/x.csv'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM main.note",
    "SELECT * FROM temp.note",
    "SELECT * FROM memory.main.note",
    "SELECT * FROM __base_0",
    "SELECT * FROM sqlite_master, (WITH sqlite_master AS (SELECT 1) SELECT 1) x",
    "SELECT * FROM (WITH sqlite_master AS (SELECT 1) SELECT 1) x, sqlite_master",
    "SELECT * FROM (SELECT * FROM read_text('/etc/passwd'))",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1 WHERE EXISTS (FROM read_text('/etc/passwd'))",
    "SELECT 1 ORDER BY (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1 LIMIT (SELECT count(*) FROM read_text('/etc/passwd'))",
    "SELECT 1 UNION SELECT content FROM read_text('/etc/passwd')",
    "SELECT 1 AS v UNION SELECT 2 ORDER BY getenv('HOME')",
    "SELECT 1 UNION SELECT 2 LIMIT (SELECT count(*) FROM read_text('/etc/passwd'))",
    "SELECT getenv('HOME') IN (SELECT name FROM note)",
    "SELECT (SELECT content FROM read_text('/etc/passwd')) IN (SELECT name FROM note)",
    "SELECT count(*) FILTER (WHERE (SELECT true FROM read_text('/etc/passwd'))) FROM note",
    "SELECT sum(n) OVER (ORDER BY (SELECT 1 FROM read_text('/etc/passwd'))) FROM note",
    "SELECT CASE WHEN (SELECT true FROM read_text('/etc/passwd')) THEN 1 END",
    "SELECT * FROM note JOIN read_text('/etc/passwd') ON true",
    "SELECT * FROM note JOIN note b ON (SELECT true FROM read_text('/etc/passwd'))",
    "SELECT * FROM (VALUES ((SELECT content FROM read_text('/etc/passwd')))) v(x)",
    "WITH t AS (FROM read_text('/etc/passwd')) SELECT * FROM t",
    "WITH t AS (SELECT 1), t2 AS (FROM read_text('/etc/passwd')) SELECT * FROM t",
    "SELECT * FROM unnest((SELECT list(content) FROM read_text('/etc/passwd')))",
    "SELECT list_transform([1], x -> (SELECT 1 FROM read_text('/etc/passwd')))",
    "SELECT * FROM note TABLESAMPLE 10%",
    "SELECT * FROM note AT (VERSION => 1)",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('note')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT json_execute_serialized_sql('{}')",
    "SELECT * FROM range(1000000000)",
    "SELECT * FROM generate_series(1, 1000000000)",
    "SELECT * FROM repeat_row(1, num_rows = 1000000000)",
    "SELECT range(1000000000)",
    "SELECT repeat('x', 1000000000)",
    "SELECT lpad('x', 1000000000, 'x')",
    "SELECT system.main.lower('x')",
    "SELECT nextval('x')",
    "SELECT setseed(0.5)",
    "SELECT write_log('x')",
    "SELECT n::regtype FROM note",
    "SELECT name::ENUM('a') FROM note",
    "SELECT ?",
    "SELECT $1",
    "SELECT $name",
    "SELECT * FROM nope",
    "SELECT 'x",
    "SELECT (",
    "SELECT 1\0",
    "SELECT " + "(" * 30_000,
    "SELECT 1" + "+1" * 5_000,
    "SELECT " + "(" * 400 + "1" + "+1)" * 400,
    "SELECT '" + "x" * 70_000 + "'",
]


@pytest.mark.long
@pytest.mark.parametrize("statement", REFUSED, ids=range(len(REFUSED)))
def test_dk_24_everything_else_is_refused_with_exit_code_2(tables: Tables, statement: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(statement, SqlLimits())
    assert caught.value.exit_code == 2
    assert caught.value.code == "E_SQL"
    assert caught.value.details["construct"], "refused by the walk, not by the engine"
    assert tables.sql("SELECT count(*) FROM note", SqlLimits()).rows == ((3,),)


@pytest.mark.parametrize(
    "statement", ["SELECT nope FROM note", "SELECT lower(n, n) FROM note", "SELECT name::INTEGER FROM note"]
)
def test_what_the_engine_refuses_is_told_without_its_words(tables: Tables, statement: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(statement, SqlLimits())
    assert (caught.value.code, caught.value.exit_code) == ("E_SQL", 2)
    assert "张三" not in str(caught.value)
    assert "LINE" not in str(caught.value)


def test_a_statement_reaches_neither_files_nor_the_environment(tables: Tables, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\ncanary\n")
    home = os.environ.get("HOME", "")
    for statement in (f"FROM '{secret}'", f"FROM read_csv('{secret}')", f"COPY note TO '{tmp_path / 'out.csv'}'"):
        with pytest.raises(FilterError) as caught:
            tables.sql(statement, SqlLimits())
        assert "canary" not in str(caught.value)
    with pytest.raises(FilterError) as caught:
        tables.sql("SELECT getenv('HOME')", SqlLimits())
    assert not home or home not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_an_unknown_column_and_table_are_named(tables: Tables) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql("SELECT nam FROM note", SqlLimits())
    assert "nam" in str(caught.value)
    with pytest.raises(FilterError) as caught:
        tables.sql("SELECT * FROM nots", SqlLimits())
    assert caught.value.details["table"] == "nots"


def test_dk_24_a_row_cap_is_announced(tables: Tables) -> None:
    cut = tables.sql("SELECT name FROM note ORDER BY __id", SqlLimits(rows=2))
    assert cut.rows == (("a",), ("张三",))
    assert cut.truncated
    whole = tables.sql("SELECT name FROM note", SqlLimits(rows=3))
    assert len(whole.rows) == 3
    assert not whole.truncated
    assert tables.sql("SHOW TABLES", SqlLimits(rows=1)).truncated


def test_dk_24_a_byte_cap_is_announced(tables: Tables) -> None:
    cut = tables.sql("SELECT name, n, meta FROM note ORDER BY __id", SqlLimits(bytes=30))
    assert len(cut.rows) == 1
    assert cut.truncated


def test_a_huge_cap_is_no_error(tables: Tables) -> None:
    assert len(tables.sql("SELECT * FROM note", SqlLimits(rows=10**12)).rows) == 3


@pytest.mark.parametrize("limits", [SqlLimits(rows=0), SqlLimits(rows=-1), SqlLimits(bytes=0), SqlLimits(seconds=0)])
def test_dk_24_a_cap_below_one_is_a_usage_error(tables: Tables, limits: SqlLimits) -> None:
    with pytest.raises(UsageError) as caught:
        tables.sql("SELECT 1", limits)
    assert caught.value.exit_code == 2


def test_a_statement_over_its_time_is_stopped_and_the_next_one_runs(tables: Tables) -> None:
    endless = "WITH RECURSIVE c AS (SELECT 1 AS v UNION ALL SELECT (v + 1) % 1000 FROM c) SELECT count(*) FROM c"
    with pytest.raises(Unavailable) as caught:
        tables.sql(endless, SqlLimits(seconds=0.2))
    assert caught.value.code == "E_LIMIT"
    assert caught.value.exit_code == 1
    assert tables.sql("SELECT count(*) FROM note", SqlLimits()).rows == ((3,),)


@pytest.fixture(scope="module")
def long_table() -> Tables:
    """So many rows that they come out in several batches; a secret stands in the last one."""
    made = RecordTables(Ontology({"Note": NOTE}), lambda kind: ())
    names = [*map(str, range(200_000)), "canary-7f3a"]
    made.put(NOTE, [Record("Note", n, (name,), {"name": name, "n": n}, TIME, TIME) for n, name in enumerate(names, 1)])
    return made


@pytest.mark.long
def test_what_fails_half_way_through_the_rows_is_told_without_the_engines_words(long_table: Tables) -> None:
    with pytest.raises(FilterError) as caught:
        long_table.sql("SELECT name::BIGINT FROM note", SqlLimits(rows=10**6, bytes=10**9))
    assert caught.value.code == "E_SQL"
    assert "canary" not in f"{caught.value} {caught.value.suggestion} {dict(caught.value.details)}"
    assert long_table.sql("SELECT count(*) FROM note", SqlLimits()).rows == ((200_001,),)


def test_time_runs_out_while_rows_are_read_as_it_does_before(long_table: Tables) -> None:
    with pytest.raises(Unavailable) as caught:
        long_table.sql("SELECT sin(a.n * b.n) FROM note a, note b", SqlLimits(rows=10**9, bytes=10**12, seconds=0.5))
    assert (caught.value.code, caught.value.exit_code) == ("E_LIMIT", 1)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT DATE '290000-01-01'",
        "SELECT 'infinity'::TIMESTAMP",
        "SELECT " + "[" * 100 + "1" + "]" * 100,
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(tables: Tables, statement: str) -> None:
    with pytest.raises(FilterError) as caught:
        tables.sql(statement, SqlLimits())
    assert caught.value.code == "E_SQL"


def test_a_number_past_every_double_stays_text(tables: Tables) -> None:
    assert tables.sql("SELECT '[1e999, 1.5]'::JSON", SqlLimits()).rows == ((["1e999", 1.5],),)


def test_a_long_list_of_constants_may_grow_when_it_is_written_anew(tables: Tables) -> None:
    assert tables.sql(f"SELECT 1 WHERE 1 IN ({','.join(['1'] * 15_000)})", SqlLimits()).rows == ((1,),)


def test_times_in_sql_are_utc_whatever_the_machine_says() -> None:
    code = (
        "from duckkb.sql.confined import Confined; from duckkb.ports import SqlLimits\n"
        "sql = \"SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00' = TIMESTAMP '2024-01-01 00:00:00'\"\n"
        "print(Confined().rows(sql, SqlLimits()).rows)"
    )
    env = {**os.environ, "TZ": "Asia/Tokyo"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "((True,),)\n"


def test_an_engine_of_an_unknown_version_runs_nothing() -> None:
    """Another version may write other syntax trees, which nobody has judged."""
    code = (
        "import duckdb; duckdb.__version__ = '3.0.0'\n"
        "from duckkb.sql.confined import Confined; from duckkb.types.errors import Unavailable\n"
        "try:\n    Confined().parse('SELECT 1')\nexcept Unavailable as error:\n    print(error.code, error.suggestion)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "E_UNAVAILABLE pip install 'duckdb>=2.0.1,<3'\n"


def test_each_of_the_engines_functions_of_lists_arrays_and_json_is_allowed_or_left_out_for_a_reason() -> None:
    import duckdb

    from duckkb.sql.statement_names import FUNCTIONS, REFUSED

    listed = """
        SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('scalar', 'macro')
        AND regexp_matches(function_name, '^(list|array|json)_|_json$') ORDER BY ALL"""
    names = {name for (name,) in duckdb.connect().execute(listed).fetchall()}
    assert len(names) > 100
    assert names - FUNCTIONS - REFUSED.keys() == {"json_group_structure"}  # an aggregate, as a macro
    assert not FUNCTIONS & REFUSED.keys()


def test_vectors_are_compared_in_sql(tmp_path: Path) -> None:
    config = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[text], vectors: [text]")
    model = HashEmbedder(8)
    with duckkb.open(make_base(tmp_path / "kb", config), embedder=model) as kb:
        kb.put("Note", [{"id": "a", "text": "fox"}, {"id": "b", "text": "备份"}])
        asked = ", ".join(map(str, model.embed_passages(["fox"])[0]))
        for call in ("array_cosine_similarity", "list_cosine_similarity"):
            for cast in ("::FLOAT[8]", ""):
                found = kb.sql(
                    f"SELECT content, '[1]', {call}(vector, [{asked}]{cast}) AS near FROM search_index ORDER BY near DESC"
                )
                assert found.rows[0][:2] == ("fox", "[1]") and abs(found.rows[0][2] - 1) < 1e-6
        with pytest.raises(FilterError, match="several lengths") as refused:
            kb.sql("SELECT array_cosine_similarity(vector, [1, 2]) FROM search_index")
        advised = refused.value.suggestion.removeprefix('duckkb sql "').removesuffix('"')
        assert kb.sql(advised).rows == ((8, 2),)


MIXED = ("a", 1), ("b", "one"), ("c", 2.5), ("d", True), ("e", "一")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckkb.KnowledgeBase]:
    """Records whose `w` is of several kinds."""
    with duckkb.open(make_base(tmp_path_factory.mktemp("mixed") / "kb", NOTES)) as kb:
        kb.collections.init("mixed", policy="knowledge-base")
        kb.put("mixed", [{"id": name, "content": "", "w": value} for name, value in MIXED])
        yield kb


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("w IN (SELECT w FROM mixed)", "abcde"),
        ("w IN (SELECT w FROM mixed WHERE id IN ('a', 'b', 'e'))", "abe"),
        ("w NOT IN (SELECT w FROM mixed WHERE id = 'b')", "acde"),
        ("w IN (SELECT CAST(w AS VARCHAR) FROM mixed)", "abcde"),
        ("w IN (SELECT 'one')", "b"),
        ("w IN (SELECT 1)", "a"),
        ("w = (SELECT w FROM mixed WHERE id = 'b')", "b"),
        ("w > (SELECT w FROM mixed WHERE id = 'a') AND id < 'd'", "bc"),
        ("id IN (SELECT m.id FROM mixed AS m JOIN mixed AS n USING (w))", "abcde"),
        ("id IN (SELECT id FROM (SELECT * FROM mixed) WHERE w = '1')", "a"),
        ("id IN (SELECT m.id FROM (SELECT * FROM mixed) AS m WHERE CAST(m.w AS VARCHAR) = '1')", "a"),
    ],
)
def test_values_of_several_kinds_meet_what_a_query_selects(
    mixed: duckkb.KnowledgeBase, condition: str, expected: str
) -> None:
    rows = mixed.sql(f"SELECT id FROM mixed WHERE {condition} ORDER BY id").rows
    assert "".join(str(row[0]) for row in rows) == expected


@pytest.mark.parametrize(
    "condition", ["id IN (SELECT w FROM mixed)", "id IN (SELECT id FROM (SELECT * FROM mixed) WHERE w = 'one')"]
)
def test_a_text_that_meets_values_of_several_kinds_is_refused_with_the_cast_that_helps(
    mixed: duckkb.KnowledgeBase, condition: str
) -> None:
    with pytest.raises(FilterError) as caught:
        mixed.sql(f"SELECT id FROM mixed WHERE {condition}")
    assert "CAST(FIELD AS VARCHAR)" in caught.value.suggestion
