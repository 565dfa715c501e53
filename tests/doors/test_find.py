"""find, graph, sql, embed and index through the real process."""

import json
from pathlib import Path

import pytest

from tests.conftest import Run, commit, make_base, run_in

TEXTS = {
    "duck": "DuckDB内存数据库 is an in-memory engine. 内存很快。",
    "git": "Git keeps text-embedding-3-small and E_DUP_ID since v2.0.1, says the author's note.",
    "fox": "A quick brown fox; foxes were running through the forest. Ｆｕｌｌ width ２０２６年.",
    "zh": "倒数排名融合把两个结果列表合成一个。断电时数据不会丢失。",
    "none": "nothing to see",
}


@pytest.fixture
def found(run: Run) -> Run:
    lines = [
        {"id": name, "text": text, "status": "final" if name in ("duck", "zh") else "draft", "size": number}
        for number, (name, text) in enumerate(TEXTS.items())
    ]
    assert run("put", "Note", stdin="".join(json.dumps(line) + "\n" for line in lines)).code == 0
    return run


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fox", "fox"),
        ("running foxes", "fox"),
        ("内存", "duck"),
        ("内", "duck"),
        ("DuckDB内存", "duck"),
        ("text-embedding-3-small", "git"),
        ("embedding", "git"),
        ("E_DUP_ID", "git"),
        ("v2.0.1", "git"),
        ("author", "git"),
        ("full width 2026", "fox"),
        ("融合", "zh"),
        ("断电", "zh"),
        ('"内存数据库"', "duck"),
        ('"DuckDB内存"', "duck"),
        ('"quick brown"', "fox"),
        ("embed*", "git"),
    ],
)
def test_dk_21_words_identifiers_and_chinese_are_found(found: Run, query: str, expected: str) -> None:
    ran = found("find", "Note", query, "-m")
    assert ran.lines[0]["id"] == expected, ran.err
    assert ran.lines[0]["_engine"] == "fts"


def test_what_is_excluded_is_not_found(found: Run) -> None:
    assert found("find", "Note", '"zebra crossing"', "-m").code == 1
    ran = found("find", "Note", "内存 fox -DuckDB", "-m")
    assert [line["id"] for line in ran.lines] == ["fox"] and "plain words" not in ran.err


@pytest.mark.parametrize("query", ['"', "*", "-", '" * ( ) : NEAR', "🦆", "!!!", "a" * 5000, "的" * 3000, "\u202etxet"])
def test_no_query_is_an_error(found: Run, query: str) -> None:
    ran = found("find", "Note", query, "-m")
    assert ran.code in (0, 1)
    assert ran.code == 0 or "no results" in ran.err


def test_no_results_is_exit_1_with_an_empty_stdout(found: Run) -> None:
    ran = found("find", "Note", "zebra", "-m")
    assert (ran.code, ran.out) == (1, "")
    assert "no results" in ran.err


@pytest.mark.parametrize(
    "args",
    [
        ["Note"],
        ["Note", "fox", "-l", "0"],
        ["Note", "fox", "-l", "-1"],
        ["Note", "fox", "-l", "abc"],
        ["Note", "fox", "-s"],
        ["Note", "-m", "-w", "size = 1"],
        ["Note", "fox", "-w", "colour = 'red'"],
        ["Note", "fox", "-w", "1=1; DROP TABLE note"],
        ["Note", "fox", "-w", "size IN (SELECT 1)"],
        ["Note", "-w", ""],
    ],
)
def test_what_cannot_be_asked_is_exit_2_with_a_way_out(found: Run, args: list[str]) -> None:
    ran = found("find", *args, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error["suggestion"]


def test_a_huge_limit_is_clamped(found: Run) -> None:
    assert len(found("find", "Note", "fox 内存 融合 embedding nothing", "-m", "-l", "1000000000").lines) == 5


def test_a_filter_alone_lists_in_the_order_of_identities(found: Run) -> None:
    ran = found("find", "Note", "-w", "status = 'final' OR size >= 3")
    assert [line["id"] for line in ran.lines] == ["duck", "none", "zh"]
    assert {line["_engine"] for line in ran.lines} == {"relational"}


def test_a_filter_applies_before_ranking(found: Run) -> None:
    ran = found("find", "Note", "fox 内存 融合 embedding", "-m", "-w", "status = 'final'", "-l", "2")
    assert sorted(line["id"] for line in ran.lines) == ["duck", "zh"]


def test_a_hybrid_search_on_words_alone_says_that_it_ran_match(found: Run) -> None:
    ran = found("find", "Note", "fox", "-H")
    assert ran.code == 0 and "W_MODE" in ran.err
    assert found("find", "Note", "fox").err == ""


def test_find_all_searches_every_type(found: Run) -> None:
    found("put", "Person", '{"country": "CH", "number": 1, "name": "Fox 福克斯"}')
    types = {line["_type"] for line in found("find", "all", "fox").lines}
    assert types == {"Note", "Person"}
    assert {line["_type"] for line in found("find", "all", "-w", "name LIKE 'Fox%'").lines} == {"Person"}


@pytest.mark.long
def test_dk_24_sql_reads_and_only_reads(found: Run) -> None:
    assert found("sql", "SELECT 'delete' AS word").line == {"word": "delete"}
    assert found("sql", "SELECT count(*) AS n FROM note WHERE size > 1").line == {"n": 3}
    for statement in (
        "DELETE FROM note",
        "ATTACH 'x.db'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT 1; SELECT 2",
        "COPY note TO 'x'",
    ):
        assert found("sql", statement, "--json").code == 2, statement
    capped = found("sql", "SELECT * FROM note", "--limit", "2")
    assert len(capped.lines) == 2 and "W_TRUNCATED" in capped.err


def test_dk_09_search_index_resolves_to_the_record(found: Run) -> None:
    number = found("get", "Note", "zh").line["__id"]
    rows = found("sql", f"SELECT source_field, chunk_seq, content FROM search_index WHERE source_id = {number}").lines
    assert [row["source_field"] for row in rows] == ["text"]
    assert rows[0]["content"] == TEXTS["zh"]


def test_explain_accounts_for_every_score(found: Run) -> None:
    line = found("find", "Note", "brown fox", "-m", "--explain").lines[0]
    assert line["_explain"]["final"] == pytest.approx(line["_score"])
    assert line["_explain"]["lanes"]["fts"]["rank"] == 1
    terms = line["_explain"]["terms"]
    assert sum(term["score"] for term in terms) == pytest.approx(line["_score"], abs=1e-3)
    assert {term["token"] for term in terms} == {"brown", "fox"}


def test_dk_23_neighbors_and_paths_follow_direction_depth_and_label(run: Run) -> None:
    run("put", "Note", stdin='{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n{"id": "d"}\n')
    run("put", "cites", stdin='{"from": "a", "to": "b"}\n{"from": "b", "to": "c"}\n{"from": "d", "to": "b"}\n')

    def ids(*args: str) -> list[str]:
        return [line["id"] for line in run("graph", "neighbors", "Note", *args).lines]

    assert sorted(ids("b")) == ["a", "c", "d"]
    assert ids("b", "--direction", "out") == ["c"]
    assert ids("a", "--depth", "2", "--direction", "out") == ["b", "c"]
    assert run("graph", "neighbors", "Note", "a", "--label", "wrote").code == 1
    step = run("graph", "neighbors", "Note", "a").line
    assert step["_edge"]["_type"] == "cites" and step["_edge"]["_direction"] == "out"
    path = run("graph", "path", "Note", "a", "Note", "d").lines
    assert [line["id"] for line in path] == ["a", "b", "d"]
    assert run("graph", "path", "Note", "a", "Note", "d", "--direction", "out").code == 1


def test_a_closed_pipe_is_success(found: Run, notes: Path) -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -m duckkb list Note | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=notes, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""


def test_without_a_model_similar_is_an_error_and_hybrid_degrades(tmp_path: Path) -> None:
    config = (
        "global: {embedding_model: m, embedding: {base_url: 'http://127.0.0.1:9', dimensions: 8}}\n"
        "nodes: {Note: {identity: id, schema: {type: object, properties: {id: {type: string}, text: {type: string}}}, "
        "search: {full_text: [text], vectors: [text]}}}\n"
    )
    root = make_base(tmp_path / "kb", config)
    stored = run_in(root, ["put", "Note", '{"id": "a", "text": "内存 fox"}'])
    assert (stored.code, stored.line["pending"]) == (0, 1)
    assert "W_PENDING" in stored.err
    degraded = run_in(root, ["find", "Note", "fox"])
    assert degraded.code == 0 and degraded.line["_degraded"] is True and "W_DEGRADED" in degraded.err
    refused = run_in(root, ["find", "Note", "fox", "-s", "--json"])
    assert (refused.code, refused.error["code"]) == (1, "E_UNTRUSTED")
    built = run_in(root, ["index", "build"])
    assert built.code == 1 and built.line["pending"] == 1


@pytest.mark.long
@pytest.mark.model
def test_dk_04_and_dk_11_the_team_cache_spares_a_clone_the_model(own_base: Path, tmp_path: Path) -> None:
    home = tmp_path / "clone"
    from tests.conftest import git

    git(own_base, "clone", "-q", str(own_base), str(home))
    ran = run_in(home, ["find", "concept", "断电时怎样保证数据不丢失", "-H", "-l", "3"])
    assert ran.code == 0 and "_degraded" not in ran.lines[0], ran.err
    assert {"crash-recovery", "write-journal", "fsync"} & {line["id"] for line in ran.lines}
    # Each type's rows are believed once a sample of them agreed; `index build` asks for all. Vectors serve every Python.
    assert not list(home.rglob("*.db")) and not list(home.rglob("*.duckdb"))
    commit(home)
    assert run_in(home, ["index", "build"]).line["pending"] == 0
    assert run_in(home, ["index", "status"]).code == 0
    done = {"pending": 0, "embedded": 0, "tokens": 0, "changed": 0}
    assert run_in(home, ["index", "build"]).line.items() >= (done | {"files": []}).items()


def test_a_new_base_finds_all_forms_of_a_word_and_an_old_one_once_it_asks_for_them(tmp_path: Path) -> None:
    root = tmp_path / "kb"
    assert run_in(tmp_path, ["init", str(root)]).code == 0
    config = (root / "config.yaml").read_text("utf-8").replace("multilingual-e5-small", "none")
    line = next(line for line in config.splitlines(True) if line.strip().startswith("word_forms: all"))
    texts = {"accents": "ein Café in Zürich 北京", "none": "a cafe in Zurich 北京", "code": "getUserName() 北京"}
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()]

    def found(query: str) -> list[str]:
        return [json.loads(line)["id"] for line in run_in(root, ["find", "Note", query]).out.splitlines()]

    for is_new in (False, True, False):  # tokens of each setting are cached when the other one asks
        (root / "config.yaml").write_text(config if is_new else config.replace(line, ""), "utf-8")
        assert run_in(root, ["put", "Note"], stdin="".join(lines)).code == 0
        assert found("cafe") == (["none", "accents"] if is_new else ["none"])
        assert found("Zürich") == (["accents", "none"] if is_new else ["accents"])
        assert found("user") == (["code"] if is_new else [])
