"""Search over tables of a real PostgreSQL with pgvector, held against numpy and plain Python; and `duckkb table` as a process."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from duckkb.tables import VectorTables, connect
from duckkb.tables.table_catalogue import find_table, pgvector
from duckkb.tables.table_query import NeighbourSearch, Postgres, check, unit
from duckkb.tables.table_search import Statement
from duckkb.types.errors import FilterError, StateError, Unavailable, UsageError
from tests.conftest import NOTES, ROOT, make_base, run_in
from tests.fake_endpoint import FakeEndpoint, Reply
from tests.fake_models import FakeModels
from tests.fakes import HashEmbedder, WordReranker
from tests.harness.postgres import PASSWORD, Server
from tests.vector_tables import DIMENSION, MOODS, make_shop, opened, ranked, rows

ITEMS = rows()
FEW = ["id", "title"]


@pytest.fixture(scope="module")
def url(postgres: Server) -> str:
    made = postgres.database()
    make_shop(made, ITEMS)
    return made


@pytest.fixture
def db(url: str) -> Iterator[VectorTables]:
    with opened(url) as tables:
        yield tables


def question(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(DIMENSION)


# What is found


@pytest.mark.parametrize("column", ["embedding", "half"])
@pytest.mark.parametrize("top_k", [1, 10, 1_000])
def test_ax_09_the_nearest_rows_are_those_of_numpy(db: VectorTables, column: str, top_k: int) -> None:
    for seed in range(5):
        vector = question(seed)
        wanted = ranked(ITEMS, vector, column, np.float16 if column == "half" else np.float32)[:top_k]
        found = db.vector_search("shop.items", vector, top_k=top_k, vector_column=column, select=["id"])
        assert [row["id"] for row in found] == [number for number, _ in wanted]
        assert np.allclose([row["embedding_score"] for row in found], [score for _, score in wanted], atol=2e-6)
        assert all(set(row) == {"id", "embedding_score"} and -1 <= row["embedding_score"] <= 1 for row in found)


def test_ax_09_rows_that_are_equally_near_come_by_their_key(db: VectorTables) -> None:
    same = [row["id"] for row in ITEMS if row["id"] % 40 == 7]
    for top_k in (1, 3, len(same)):
        found = db.vector_search("shop.items", np.ones(DIMENSION), top_k=top_k, select=["title"])
        assert [row["title"] for row in found] == [ITEMS[number]["title"] for number in same[:top_k]]
        seen = db.vector_search("shop.kept", np.ones(DIMENSION), top_k=top_k, select=["title"])
        assert [row["title"] for row in seen] == sorted(
            (ITEMS[number]["title"] for number in same), key=lambda title: (title is None, title)
        )[:top_k]


def test_ax_09_scale_does_not_count_and_extreme_vectors_are_asked(db: VectorTables) -> None:
    vector = question(1)
    plain = db.vector_search("shop.items", vector, select=["id"])
    for scale in (1e-300, 1e-40, 1e30, 1e300, 5):
        assert db.vector_search("shop.items", (vector * scale).tolist(), select=["id"]) == plain
    assert db.vector_search("shop.items", [float(number) for number in vector], select=["id"]) == plain


def test_ax_09_a_row_without_a_direction_is_never_found(db: VectorTables) -> None:
    found = {row["id"] for row in db.vector_search("shop.items", question(2), top_k=1_000, select=["id"])}
    assert found == {row["id"] for row in ITEMS if row["id"] % 50 < 48}


@pytest.mark.parametrize("threshold", [-1, 0, 0.4, 0.99, 1])
def test_ax_09_a_threshold_leaves_out_what_is_less(db: VectorTables, threshold: float) -> None:
    vector = np.ones(DIMENSION)
    wanted = [number for number, score in ranked(ITEMS, vector) if score >= threshold - (1e-7 if threshold == 1 else 0)]
    found = db.vector_search("shop.items", vector, top_k=1_000, threshold=threshold if threshold < 1 else 0.9999999, select=["id"])  # fmt: skip
    assert [row["id"] for row in found] == wanted and wanted


def test_ax_09_views_partitions_and_reserved_names_are_asked_as_tables(db: VectorTables) -> None:
    vector = question(3)
    ids = [number for number, _ in ranked(ITEMS, vector)]
    live = [number for number in ids if ITEMS[number]["live"]]
    assert [row["id"] for row in db.vector_search("shop.live_items", vector, select=["id"])] == live[:10]
    assert [row["id"] for row in db.vector_search("shop.parts", vector, select=["id"])] == ids[:10]
    second = [number for number in ids if number >= 120]
    assert [row["id"] for row in db.vector_search("shop.parts_2", vector, select=["id"])] == second[:10]
    assert [row["from"] for row in db.vector_search("select", vector, vector_column="order")] == ids[:10]
    filtered = db.vector_search("select", vector, vector_column="order", select=["from"], filter={"from": {"$lt": 50}})
    assert [row["from"] for row in filtered] == [number for number in ids if number < 50][:10]
    mixed = db.vector_search("shop.items", vector, select=["Mixed Case".join('""'), "order"], filter={'"Mixed Case"': "M1", "order": [1, 2]})  # fmt: skip
    assert [row["order"] for row in mixed] == [
        number % 5 for number in ids if number % 3 == 1 and number % 5 in (1, 2)
    ][:10]


def test_ax_09_a_table_with_hostile_column_names_is_printed_whole(db: VectorTables) -> None:
    (row,) = db.vector_search('"My Items"', np.ones(DIMENSION))
    assert row.pop("embedding_score") == pytest.approx(1)
    assert row == {"50%s; --": 1, 'a"b': "one", "x'); DROP TABLE shop.items; --": "two", "embedding": [1] * DIMENSION}


def test_ax_09_vectors_of_several_lengths_in_one_column(db: VectorTables) -> None:
    found = db.vector_search("loose", [1, 1])
    assert [(row["id"], row["embedding"]) for row in found] == [(2, [1, 0]), (3, [0, 1])]
    assert [row["id"] for row in db.vector_search("loose", [1, 1, 1])] == [1]
    with pytest.raises(UsageError, match="5 dimensions") as told:
        db.vector_search("loose", [1] * 5)
    assert told.value.code == "E_DIMENSION"


def test_ax_09_dimensions_are_compared_before_the_model_is_asked(url: str) -> None:
    model = HashEmbedder(DIMENSION + 1)
    with (
        opened(url, embedder=model) as tables,
        pytest.raises(UsageError, match="9 dimensions, embedding has 8") as told,
    ):
        tables.query("a question", "shop.items")
    assert (told.value.code, model.calls) == ("E_DIMENSION", 0)


# How values look


def test_ax_09_every_type_has_one_form(url: str, db: VectorTables) -> None:
    with psycopg.connect(url, autocommit=True) as one:
        one.execute("DROP TABLE IF EXISTS forms; DROP DOMAIN IF EXISTS humour")
        one.execute("CREATE DOMAIN humour AS shop.mood")
        one.execute(
            """CREATE TABLE forms AS SELECT 1 AS id, '2026-03-01'::date AS day, 'infinity'::date AS never, '0044-03-15 BC'::date AS ides,
            '2026-03-01 12:00:00.5+02'::timestamptz AS at, '25:00:00'::interval AS wait, 1.10::numeric AS price, 12345678901234567890.123::numeric AS large,
            'NaN'::numeric AS none, 'Infinity'::float8 AS endless, 0.1::real AS tenth, 9223372036854775807 AS big, ('1' || repeat('0', 5000))::numeric AS huge,
            '{"b": 1e400, "a": [null, 1.5, {"c": "\\u0007"}]}'::jsonb AS doc, '{"b":1,"a":2}'::json AS text_doc, '\\xdeadbeef'::bytea AS raw,
            'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid AS key, ARRAY['sad', NULL, 'ok']::shop.mood[] AS moods, 'ok'::shop.mood AS mood, 'ok'::humour AS humour,
            '[1,3)'::int4range AS span, '10.0.0.1/8'::inet AS net, true AS live, NULL::text AS gone, E'a\\n"b"\\u2028備' AS title, ARRAY[[1,2],[3,4]] AS grid,
            '[1,2.5]'::halfvec(2) AS half, '{1:1.5}/3'::sparsevec AS sparse, '[1,0]'::vector(2) AS embedding, B'101' AS bits"""
        )
        one.execute("ALTER DATABASE " + one.info.dbname + " SET timezone = 'Asia/Tokyo'; ALTER DATABASE " + one.info.dbname + " SET datestyle = 'German'")  # fmt: skip
    with opened(url) as fresh:
        (row,) = fresh.vector_search("forms", [1, 0])
        (plain,) = fresh.vector_search("forms", [1, 0], parse_enum=False, select=["moods", "mood", "humour", "title"])
    assert row == {
        "id": 1, "day": "2026-03-01", "never": "infinity", "ides": "0044-03-15 BC", "at": "2026-03-01T10:00:00.5+00:00", "wait": "PT25H", "price": 1.1,
        "large": "12345678901234567890.123", "none": "NaN", "endless": "Infinity", "tenth": 0.1, "big": 2**63 - 1, "huge": "1" + "0" * 5000,
        "doc": {"a": [None, 1.5, {"c": "\x07"}], "b": 10**400}, "text_doc": {"b": 1, "a": 2}, "raw": "\\xdeadbeef", "key": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "moods": ["sad", None, "ok"], "mood": "ok", "humour": "ok", "span": "[1,3)", "net": "10.0.0.1/8", "live": True, "gone": None, "title": 'a\n"b"\u2028備',
        "grid": [[1, 2], [3, 4]], "half": [1, 2.5], "sparse": "{1:1.5}/3", "embedding": [1, 0], "bits": "101", "embedding_score": 1.0,
    }  # fmt: skip
    json.dumps(row, allow_nan=False)
    assert plain | {"embedding_score": 1.0} == {"moods": "{sad,NULL,ok}", "mood": "ok", "humour": "ok", "title": row["title"], "embedding_score": 1.0}  # fmt: skip


# Names and filters


def test_ax_09_what_is_not_there_is_named_with_what_is_near(db: VectorTables) -> None:
    for name, near in (
        ("shop.item", "shop.items"),
        ("items", "shop.items"),
        ("SELECT", "select"),
        ('"my items"', '"My Items"'),
    ):
        with pytest.raises(UsageError, match="invalid table") as told:
            db.vector_search(name, question(0))
        assert near in told.value.suggestion and told.value.code == "E_TABLE"
    with pytest.raises(UsageError) as told:
        db.vector_search("shop.items", question(0), vector_column="embeding", select=["titel", "id"], filter={"mod": "x", "price": "dear", "live": 1, "mood": "hapy", "meta": 1, "moods": "sad", "small": True, "title": 5})  # fmt: skip
    said = " ".join(map(str, told.value.findings))
    assert len(told.value.findings) == 10
    for word in ("embedding", "title", "mood", "happy", "JSON", "arrays", "a text", "a number", "true or false"):
        assert word in said, word
    with pytest.raises(UsageError, match="invalid column 'embedding'") as told:
        db.vector_search("plain", question(0))
    assert "no column of type vector" in str(told.value.suggestion)


def test_ax_09_values_are_bound_and_names_are_not_run(url: str, db: VectorTables) -> None:
    attacks = ["'; DROP TABLE shop.items; --", "x' OR '1'='1", "\\'; SELECT pg_sleep(10); --", "$$", "%s", "%(vector)s", "{0}", "1); DELETE FROM shop.items; --"]  # fmt: skip
    for attack in attacks:
        for how in ({"title": attack}, {"title": [attack, attack]}, {"kind": {"$gt": attack, "$lt": attack}}):
            assert db.vector_search("shop.items", question(0), filter=how) == []
    with psycopg.connect(url) as one:
        assert one.execute("SELECT count(*) FROM shop.items").fetchone() == (len(ITEMS),)
    assert [row["id"] for row in db.vector_search("shop.items", question(0), top_k=1_000, select=["id"], filter={"kind": ["O'Neil", "a%b"]})] == [
        number for number, _ in ranked(ITEMS, question(0)) if number % 5 in (2, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        {"day": "yesterday-ish"},
        {"key": "no uuid"},
        {"ratio": 1e300},
        {"ratio": 1e-208},
        {"at": ["2026-13-01"]},
        {"raw": b"\x00", "day": {"$gt": "x"}},
    ],
    ids=str,
)
def test_ax_09_a_value_that_its_column_cannot_have_is_an_error_of_the_filter(db: VectorTables, wanted: Any) -> None:
    with pytest.raises(FilterError, match=r"\[database\]") as told:
        db.vector_search("shop.items", question(0), filter=wanted)
    assert told.value.exit_code == 2
    assert len(db.vector_search("shop.items", question(0))) == 10, "the connection is as good as before"


# Indexes


@pytest.fixture(scope="module")
def crowd(postgres: Server) -> str:
    """4,000 rows around one centre with an index each; those of the rare kind lie on the far side of it."""
    url = postgres.database()
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((4_000, DIMENSION)) + 2
    vectors[::100] -= 4
    with psycopg.connect(url, autocommit=True) as one:
        for kind in ("vector", "halfvec"):
            one.execute(f"CREATE TABLE {kind}s (id int PRIMARY KEY, kind text, embedding {kind}({DIMENSION}))")
            with (
                one.cursor() as cursor,
                cursor.copy(f"COPY {kind}s FROM STDIN") as copy,
            ):
                for number, vector in enumerate(vectors):
                    copy.write_row((number, "rare" if number % 100 == 0 else "plain", str(vector.tolist())))
        one.execute("CREATE TABLE lists AS SELECT * FROM vectors")
        one.execute("CREATE INDEX ON vectors USING hnsw (embedding vector_cosine_ops)")
        one.execute("CREATE INDEX ON halfvecs USING hnsw (embedding halfvec_cosine_ops)")
        one.execute("CREATE INDEX ON lists USING ivfflat (embedding vector_cosine_ops) WITH (lists = 40)")
        one.execute("ANALYZE")
    return url


def _crowd() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((4_000, DIMENSION)) + 2
    vectors[::100] -= 4
    return [{"id": number, "embedding": vector} for number, vector in enumerate(vectors)]


@pytest.mark.parametrize("table", ["vectors", "halfvecs", "lists"])
def test_ax_09_an_index_starves_no_filter_and_exact_is_exact(crowd: str, table: str) -> None:
    given, vector = _crowd(), np.full(DIMENSION, 2.0)
    rare = [
        number
        for number, _ in ranked(given, vector, narrow=np.float16 if table == "halfvecs" else np.float32)
        if number % 100 == 0
    ]
    kind = table.removesuffix("s") if table != "lists" else "vector"
    with psycopg.connect(crowd) as one:
        one.execute("SET enable_seqscan = off")
        starved = one.execute(
            f"SELECT id FROM {table} WHERE kind = 'rare' ORDER BY embedding <=> '{vector.tolist()}'::{kind} LIMIT 10"
        ).fetchall()
        assert len(starved) < 10, "what PostgreSQL does by itself, and so the reason for all this"
    with opened(crowd) as tables:
        how: dict[str, Any] = {"filter": {"kind": "rare"}, "select": ["id"]}
        assert [row["id"] for row in tables.vector_search(table, vector, **how)] == rare[:10]
        near = tables.vector_search(table, vector, approximate=True, **how)
        assert len(near) == 10 and {row["id"] for row in near} <= set(rare)
        assert len(tables.vector_search(table, vector, approximate=True, top_k=1_000, **how)) == 40
        exact = tables.vector_search(table, question(1), top_k=100)
        loose = tables.vector_search(table, question(1), top_k=100, approximate=True)
    wanted = [
        number
        for number, _ in ranked(given, question(1), narrow=np.float16 if table == "halfvecs" else np.float32)[:100]
    ]
    assert [row["id"] for row in exact] == wanted
    assert len(loose) == 100 and len({row["id"] for row in loose} & set(wanted)) >= (90 if table != "lists" else 10)
    scores = {row["id"]: row["embedding_score"] for row in exact}
    assert all(row["embedding_score"] == scores[row["id"]] for row in loose if row["id"] in scores)
    assert [row["embedding_score"] for row in loose] == sorted((row["embedding_score"] for row in loose), reverse=True)


@pytest.mark.parametrize("table", ["vectors", "halfvecs"])
def test_ax_09_an_index_is_read_on_and_where_it_gives_up_all_are_compared(
    crowd: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"filter": {"kind": "rare"}, "select": ["id"], "approximate": True}
    vector, compared = np.full(DIMENSION, 2.0), list[str]()
    exact = Statement.exact
    monkeypatch.setattr(Statement, "exact", lambda *given: (compared.append(table), exact(*given))[1])
    name = crowd.partition("@/")[2].partition("?")[0]
    with psycopg.connect(crowd, autocommit=True) as one:
        one.execute(f"ALTER DATABASE {name} SET enable_seqscan = off")
        try:
            with opened(crowd) as tables:
                assert len(tables.vector_search(table, vector, **how)) == 10 and compared == []
            for most in (1, 100, 400, 1_600):
                one.execute(f"ALTER DATABASE {name} SET hnsw.max_scan_tuples = {most}")
                narrow = np.float16 if table == "halfvecs" else np.float32
                wanted = [number for number, _ in ranked(_crowd(), question(1), narrow=narrow) if number % 100 == 0]
                with opened(crowd) as tables:
                    found = tables.vector_search(table, question(1), top_k=40, **how)
                assert [row["id"] for row in found] == wanted
            assert compared
        finally:
            one.execute(f"ALTER DATABASE {name} RESET ALL")


@pytest.mark.parametrize("table", ["vectors", "halfvecs", "lists"])
def test_ax_09_only_who_asks_for_it_is_answered_by_an_index(crowd: str, table: str) -> None:
    vector = unit(question(1).tolist())
    asked = NeighbourSearch(table, approximate=True)
    names = check(asked)
    with Postgres(crowd).open_cursor() as cursor:
        found = find_table(cursor, "", table, table)
        assert found.indexes == {"embedding": ("ivfflat" if table == "lists" else "hnsw",)}
        statement = Statement(found, pgvector(cursor), names, asked)
        cursor.execute("SET LOCAL enable_seqscan = off")
        plans = ["\n".join(line for (line,) in cursor.execute(b"EXPLAIN " + text.as_bytes(cursor), bound).fetchall()) for text, bound in (statement.order_by_index(vector), statement.exact(vector))]  # fmt: skip
    assert f"Index Scan using {table}_embedding_idx" in plans[0] and f"{table}_embedding_idx" not in plans[1]


# Models


def _base(tmp_path: Path, endpoint: FakeEndpoint, models: FakeModels) -> Path:
    embedding = {"base_url": endpoint.url, "api_key_env": "AX_KEY", "max_retries": 0, "timeout_s": 60}
    judge = {"method": "http", "model": "judge", "base_url": models.url, "api_key_env": "AX_JUDGE"}
    settings = {"embedding_model": "some-model", "embedding": embedding, "rerank": judge}
    return make_base(tmp_path / "kb", NOTES.replace("{embedding_model: none}", json.dumps(settings)))


def test_ax_09_rows_are_found_reranked_and_cut(url: str) -> None:
    judge = WordReranker()
    with opened(url, reranker=judge) as tables:
        text = "row 17 or 23"
        vector = HashEmbedder(DIMENSION).embed_queries([text])[0]
        near = [number for number, _ in ranked(ITEMS, vector)][:30]
        found = tables.query(text, "shop.items", top_k=30, final=4, text_column="title", select=["id"])
        scored = [(number, judge.scores(text, [ITEMS[number]["title"] or ""], 1)[0]) for number in near]
        wanted = sorted(((number, score) for number, score in scored if score >= 0.1), key=lambda one: -one[1])[:4]
        assert [(row["id"], row["rerank_score"]) for row in found] == wanted
        assert all(set(row) == {"id", "embedding_score", "rerank_score"} for row in found)
        assert None not in judge.asked[0] and len(judge.asked[0]) == sum(
            bool(ITEMS[number]["title"]) for number in near
        )
        every = tables.query(
            text, "shop.items", top_k=30, final=30, text_column="title", select=["id"], rerank_threshold=0
        )
        assert len(every) == 30 and [row["rerank_score"] for row in every].count(0.0) >= sum(
            ITEMS[number]["title"] is None for number in near
        )
        plain = tables.query(text, "shop.items", top_k=30, rerank=False, select=["id"])
        assert [row["id"] for row in plain] == near[:5] and "rerank_score" not in plain[0]
        with pytest.raises(UsageError, match="invalid column 'query'"):
            tables.query(text, "shop.items")
        calls = len(judge.asked)
        for column, form in (("embedding", "vector"), ("ratio", "real"), ("meta", "jsonb"), ("mood", ".*mood")):
            with pytest.raises(UsageError, match=f"a reranker reads text, and {column} is {form}"):
                tables.query(text, "shop.items", text_column=column)
        assert len(judge.asked) == calls


def test_ax_09_no_row_is_said_and_ends_with_1(url: str, tmp_path: Path) -> None:
    (tmp_path / "vector.json").write_text(json.dumps([1.0] * DIMENSION))
    args = [
        "table",
        "search",
        "--url",
        url,
        "shop.items",
        "--vector",
        "vector.json",
        "--filter",
        '{"title": "none such"}',
    ]
    ran = run_in(tmp_path, args)
    assert (ran.code, ran.out) == (1, "") and "no results" in ran.err


def test_ax_09_logits_become_scores_from_0_to_1(url: str) -> None:
    with opened(url, reranker=WordReranker(gives_logits=True, at_once=3)) as tables:
        found = tables.query("row 17", "shop.items", text_column="title", final=10, rerank_threshold=0)
    assert len(found) == 10 and all(0 <= row["rerank_score"] <= 1 for row in found)
    assert [row["rerank_score"] for row in found] == sorted((row["rerank_score"] for row in found), reverse=True)


def test_ax_09_a_model_may_have_a_threshold_of_its_own(url: str) -> None:
    for name, asked, least in (("hash", None, -1.0), ("text-embedding-v4", None, 0.8), ("text-embedding-v4", -1, -1.0), ("hash", 0.8, 0.8)):  # fmt: skip
        model = HashEmbedder(DIMENSION, name=name)
        wanted = [number for number, score in ranked(ITEMS, model.embed_queries(["row 5"])[0]) if score >= least][:10]
        with opened(url, embedder=model) as tables:
            found = tables.query("row 5", "shop.items", final=10, threshold=asked, select=["id"])
        assert [row["id"] for row in found] == wanted, (name, asked)


@pytest.mark.long
def test_ax_09_nobody_is_asked_before_trust_and_each_stage_says_what_failed(url: str, tmp_path: Path) -> None:
    with FakeEndpoint(DIMENSION) as endpoint, FakeModels() as models:
        root = _base(tmp_path, endpoint, models)
        env = {"XDG_STATE_HOME": str(tmp_path / "state"), "AX_KEY": "key-of-the-test", "AX_JUDGE": "key-of-the-judge"}
        args = ["table", "query", "--url", url, "shop.items", "row 17", "--text-column", "title", "--select", "id", "--json"]  # fmt: skip

        def failed(env: dict[str, str]) -> tuple[str, str]:
            ran = run_in(root, args, env=env)
            assert ran.code == 1 and not ran.out and "key-of" not in ran.err
            return ran.error["code"], ran.error["error"]

        code, said = failed(env)
        assert (code, said[:12]) == ("E_UNTRUSTED", "[embedding] ") and endpoint.asked == models.asked == []
        run_in(root, ["trust"], env=env)
        code, said = failed({**env, "AX_KEY": ""})
        assert code == "E_MODEL" and said.startswith("[embedding] ") and "AX_KEY" in said
        code, said = failed({**env, "AX_JUDGE": ""})
        assert code == "E_MODEL" and said.startswith("[rerank] ") and "AX_JUDGE" in said and models.asked == []
        endpoint.next(Reply(503))
        code, said = failed(env)
        assert code == "E_MODEL" and said.startswith("[embedding] ") and "HTTP 503" in said
        models.always = Reply(500)
        code, said = failed(env)
        models.always = None
        assert code == "E_MODEL" and said.startswith("[rerank] ") and "HTTP 500" in said
        ran = run_in(root, args, env=env)
        assert ran.code == 0 and all("rerank_score" in row for row in ran.line["rows"]) and ran.line["rows"]
        asked = len(endpoint.asked)
        wide = run_in(root, [*args, "--dimensions", "9"], env=env)
        assert wide.error["code"] == "E_DIMENSION" and len(endpoint.asked) == asked
        run_in(root, [*args, "--dimensions", "8"], env=env)
        assert endpoint.asked[-1].body["dimensions"] == 8


@pytest.mark.long
@pytest.mark.model
def test_ax_09_the_offline_model_finds_by_meaning(postgres: Server, tmp_path: Path) -> None:
    texts = [
        "Waterproof boots for heavy rain",
        "A cookbook of Italian pasta",
        "数据库的备份与恢复",
        "Sandals for the beach",
    ]
    made = postgres.database()
    with psycopg.connect(made, autocommit=True) as one:
        one.execute("CREATE TABLE shelf (title text PRIMARY KEY, embedding vector(384))")
        with connect(made) as tables:
            for text in texts:
                one.execute("INSERT INTO shelf VALUES (%s, %s)", (text, str(tables.embed(text, passage=True))))
    for question_of, wanted in (("shoes for wet weather", texts[0]), ("how do I restore a backup", texts[2])):
        ran = run_in(
            tmp_path, ["table", "query", "--url", made, "shelf", question_of, "--select", "title", "--final", "1"]
        )
        assert (ran.code, ran.line["title"]) == (0, wanted) and 0.7 < ran.line["embedding_score"] < 1
    vector = run_in(make_base(tmp_path / "kb", "global: {}\n"), ["embed", "shoes for wet weather"]).out
    ran = run_in(
        tmp_path, ["table", "search", "--url", made, "shelf", "--vector", "-", "--select", "title"], stdin=vector
    )
    assert next(line["title"] for line in ran.lines) == texts[0] and len(ran.lines) == 4


# The database


def test_ax_09_a_password_shows_in_no_error_log_or_repr(
    postgres: Server, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "pass-hidden%20word"
    for url in (postgres.tcp("postgres", password=wrong), f"postgresql://u:{wrong}@127.0.0.1:1/x", f"postgresql://127.0.0.1:1/x?user=u&password={wrong}", f"postgresql://u:{wrong}@%2Fnowhere/x"):  # fmt: skip
        with pytest.raises(Unavailable, match=r"\[database\]") as told:
            connect(url, embedder=HashEmbedder(DIMENSION), connect_timeout_s=2).show()
        chain, seen = told.value, ""
        while chain is not None:
            seen += repr(chain) + str(chain)
            chain = chain.__cause__  # type: ignore[assignment]
        ran = run_in(tmp_path, ["table", "show", "--url", url, "--json"])
        assert ran.code == 1 and ran.error["code"] == "E_DATABASE"
        for secret in (wrong, "pass-hidden word"):
            assert secret not in seen + ran.err + ran.out + caplog.text
    with connect(postgres.tcp("postgres"), embedder=HashEmbedder(DIMENSION)) as tables:
        assert tables.show() == [] and PASSWORD not in repr(tables) + repr(vars(tables))
    with pytest.raises(StateError, match="no pgvector"), connect(postgres.tcp("postgres")) as tables:
        tables.vector_search("pg_class", [1.0])


def test_ax_09_nothing_is_written_and_time_is_bounded(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as one:
        one.execute(
            """
            CREATE TABLE IF NOT EXISTS written (n int);
            CREATE OR REPLACE FUNCTION leaks() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO written VALUES (1); RETURN 1; END $$;
            CREATE OR REPLACE VIEW writes AS SELECT leaks() AS n, '[1,0]'::vector(2) AS embedding;
            CREATE OR REPLACE VIEW sleeps AS SELECT pg_sleep(60)::text AS n, '[1,0]'::vector(2) AS embedding;
            """
        )
    with opened(url, timeout_s=0.3) as tables:
        with pytest.raises(StateError, match="read-only transaction") as told:
            tables.vector_search("writes", [1, 0])
        assert told.value.code == "E_DATABASE"
        with pytest.raises(Unavailable, match=r"\[database\] no answer within 0.3 s") as late:
            tables.vector_search("sleeps", [1, 0])
        assert late.value.code == "E_TIMEOUT"
        assert len(tables.vector_search("shop.items", question(0))) == 10
    with psycopg.connect(url) as one:
        assert one.execute("SELECT count(*) FROM written").fetchone() == (0,)


def test_ax_09_a_connection_that_was_cut_is_made_anew(url: str, db: VectorTables) -> None:
    first = db.vector_search("shop.items", question(0))
    with psycopg.connect(url, autocommit=True) as one:
        cut = one.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duckkb'"
        ).fetchall()
    assert cut and db.vector_search("shop.items", question(0)) == first


def test_ax_09_pgvector_may_lie_in_another_schema(postgres: Server) -> None:
    made = postgres.database(extension=False)
    with psycopg.connect(made, autocommit=True) as one:
        one.execute('CREATE SCHEMA "Ext"; CREATE EXTENSION vector SCHEMA "Ext"')
        one.execute(
            "CREATE TABLE t AS SELECT 1 AS id, '[1,2]'::\"Ext\".vector(2) AS embedding, '[1,2]'::\"Ext\".halfvec AS half"
        )
        one.execute('CREATE INDEX ON t USING hnsw (embedding "Ext".vector_cosine_ops)')
        one.execute(
            "CREATE ROLE reader LOGIN PASSWORD 'reads-alone'; GRANT SELECT (id, embedding) ON t TO reader; GRANT USAGE ON SCHEMA \"Ext\" TO reader"
        )
    with opened(made) as tables:
        for how in ({}, {"approximate": True}, {"vector_column": "half"}):
            assert tables.vector_search("t", [1, 2], **how)[0]["embedding_score"] == pytest.approx(1)  # type: ignore[arg-type]
    with opened(postgres.tcp(re.findall(r"test_\d+", made)[0], "reader", "reads-alone")) as tables:
        assert tables.show()[0]["table"] == "t" and len(tables.vector_search("t", [1, 2], select=["id"])) == 1
        with pytest.raises(StateError, match=r"\[database\] permission denied"):
            tables.vector_search("t", [1, 2])


# The command


def test_ax_09_show_says_what_can_be_asked(url: str, tmp_path: Path) -> None:
    ran = run_in(tmp_path, ["table", "show", "--url", url])
    found = {line["table"]: line for line in ran.lines}
    assert ran.code == 0 and found["shop.items"]["vectors"] == {"embedding": "vector(8)", "half": "halfvec(8)"}
    assert {name: found[name]["kind"] for name in ("shop.items", "shop.live_items", "shop.kept", "shop.parts", "shop.parts_1", '"My Items"', "select")} == {
        "shop.items": "table", "shop.live_items": "view", "shop.kept": "materialized view", "shop.parts": "partitioned table", "shop.parts_1": "partition",
        '"My Items"': "table", "select": "table",
    }  # fmt: skip
    assert "plain" not in found
    shown = run_in(tmp_path, ["table", "show", "--url", url, "shop.items", "--json"]).line["columns"]
    columns = {line["column"]: line for line in shown}
    assert columns["mood"]["labels"] == list(MOODS) and columns["id"]["key"] == 1 and not columns["id"]["nullable"]
    assert columns["half"] == {"column": "half", "type": "halfvec(8)", "nullable": True, "dimension": 8, "indexes": []}


def test_ax_09_the_command_answers_as_the_library_does(url: str, db: VectorTables, tmp_path: Path) -> None:
    vector = [float(number) for number in question(4)]
    (tmp_path / "vector.json").write_text(json.dumps(vector))
    how: dict[str, Any] = {
        "top_k": 7,
        "threshold": 0.1,
        "filter": {"price": {"$lt": 200}, "mood": ["ok", None]},
        "parse_enum": False,
    }
    wanted = db.vector_search("shop.items", vector, **how)
    args = ["table", "search", "--url", url, "shop.items", "--vector", "vector.json", "--top-k", "7", "--threshold", "0.1", "--no-parse-enum", "--filter", json.dumps(how["filter"])]  # fmt: skip
    assert run_in(tmp_path, args).lines == wanted and len(wanted) == 7
    assert run_in(tmp_path, [*args, "--json"]).line == {"rows": wanted}
    none = run_in(tmp_path, [*args[:-1], '{"id": []}'])
    assert (none.code, none.out) == (1, "") and "no results" in none.err
    csv = run_in(tmp_path, [*args, "--select", "id", "--select", '"Mixed Case"', "--format", "csv"]).out
    assert csv.splitlines()[0] == "id,Mixed Case,embedding_score" and len(csv.splitlines()) == 8


@pytest.mark.parametrize(
    ("more", "code", "exit_code"),
    [
        (["shop.itms"], "E_TABLE", 2), (["shop.items; --"], "E_TABLE", 2), (["shop.items", "--filter", "{"], "E_FILTER", 2), (["shop.items", "--filter", '{"id": 1, "id": 2}'], "E_FILTER", 2),
        (["shop.items", "--filter", '{"id": {"$ne": 1}}'], "E_FILTER", 2), (["shop.items", "--top-k", "0"], "E_USAGE", 2), (["shop.items", "--top-k", "99999999999"], "E_USAGE", 2),
        (["shop.items", "--threshold", "nan"], "E_USAGE", 2), (["loose", "--select", "id"], "E_DIMENSION", 2), (["shop.items", "--timeout", "0"], "E_USAGE", 2),
        (["shop.items", "--vector-column", "title"], "E_TABLE", 2), (["shop.items", "--select", "__proto__"], "E_TABLE", 2),
    ],
)  # fmt: skip
def test_ax_09_errors_of_the_command_are_objects_with_stable_codes(
    url: str, tmp_path: Path, more: list[str], code: str, exit_code: int
) -> None:
    ran = run_in(tmp_path, ["table", "search", "--url", url, "--vector", "-", "--json", *more], stdin=json.dumps([1.0] * DIMENSION))  # fmt: skip
    assert (ran.code, ran.error["code"], ran.out) == (exit_code, code, "") and ran.error["suggestion"]


def test_ax_09_a_base_that_is_named_and_is_none_is_an_error(url: str, tmp_path: Path) -> None:
    ran = run_in(tmp_path, ["table", "query", "--url", url, "shop.items", "x", "--kb", "nowhere", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_NO_KB")


def test_ax_09_the_guide_runs(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tables.md").read_text("utf-8"), re.DOTALL)
    made = postgres.database()
    with psycopg.connect(made, autocommit=True) as one:
        one.execute("CREATE TABLE products (id int PRIMARY KEY, title text, price numeric, embedding vector(384))")
        one.execute("INSERT INTO products VALUES (1, 'Boots', 80, array_fill(0.1, ARRAY[384])::vector)")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block.replace("postgresql://reader@127.0.0.1/shop", made), names)
    assert [row["title"] for row in names["rows"]] == ["Boots"]
