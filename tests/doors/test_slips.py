"""What agents mistype: each error names the next command, and that command works as it is printed."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.types.request_context import Caller
from tests.conftest import commit, git, make_base, run_in
from tests.doors.shell import run_script

RECORD = {"id": "wal", "content": "A journal survives a crash.", "author": "ann", "year": 2024, "flag": True}
RECORD |= {"tags": ["red", "blue"], "meta": {"source": "wiki"}, "my_name": "O'Brien", "when": "2024-05-06"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = make_base(tmp_path_factory.mktemp("slips") / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.collections.init("empty", policy="simple-kv")
        kb.put("notes", [RECORD, {"id": "other", "content": "nothing of it"}])
        yield root


FILTERS = [
    'author = "ann"',
    "autor = 'ann'",
    "author = ann",
    "(autor = 'ann')",
    "lower(autor) = 'ann'",
    "author IN (ann, bob)",
    "author = `ann`",
    "author = “ann”",
    "author === 'ann' && year > 2000",
    "SELECT * FROM notes WHERE author = 'ann' ORDER BY id LIMIT 5",
    "WHERE author = 'ann';",
    "author: ann",
    "json_extract(data, '$.meta.source') = 'wiki'",
    "author REGEXP 'bob|ann'",
    "author startsWith 'a'",
    "content CONTAINS 'crash'",
    'author LIKE "a%"',
    'lower(author) == "ann"',
    "'red' = ANY(tags)",
    "tags = 'red'",
    "tags LIKE '%red%'",
    "cardinality(tags) > 1",
    "array_length(tags, 1) = 2",
    "flag = 1",
    "myName = 'O'Brien'",
    "year BETWEEN 2020, 2025",
    "exists(author)",
    "author",
    "author <> NULL",
    "author = 'ann' AND",
    "author in ann, bob",
    "year < 1,000,000 and author = 'ann'",
    "author startswith ann",
    "content contains crash",
    "AND author = 'ann' &&",
    "author like an%",
    "year between 2020 to 2025",
    "year between 2020..2025",
    "year betwen 2020 and 2025 adn author lke 'a%'",
    "author = 'ann' AND createdAt < tomorrow",
    "flag IS NOT NULL AND author != NULL",
    "createdAt > '2020-01-01' AND author != None",
    "when >= '2024-01-01' AND author = 'when'' is' OR when < '2025'",
]


@pytest.mark.long
@pytest.mark.parametrize("slip", FILTERS)
def test_a_filter_of_another_dialect_is_answered_with_one_that_works(base: Path, slip: str) -> None:
    with duckkb.open(base) as kb:
        with pytest.raises(duckkb.types.errors.FilterError) as caught:
            kb.find("notes", where=slip)
        command = shlex.split(caught.value.suggestion)
        assert command[:4] == ["duckkb", "find", "notes", "-w"] and len(command) == 5
        assert [hit.identity for hit in kb.find("notes", where=command[4])] == ["wal"]


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("day >= 2024-01-01", "day >= '2024-01-01'"),
        ("day BETWEEN 2024/1/1 AND 2024-12-31", "day BETWEEN '2024-01-01' AND '2024-12-31'"),
        ("day IN (2024-05-06)", "day IN ('2024-05-06')"),
    ],
)
def test_a_date_without_quotes_is_no_arithmetic(tmp_path: Path, slip: str, meant: str) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    assert run_in(root, ["col", "init", "days", "--policy", "simple-kv"]).code == 0
    assert run_in(root, ["put", "days", '{"key": "a", "day": "2024-05-06", "n": 2021}']).code == 0
    for verb in (["find", "days", "-w", slip], ["sql", f"SELECT key FROM days WHERE {slip}"]):
        refused = run_in(root, [*verb, "--json"])
        assert refused.code == 2 and "without quotes" in refused.error["error"]
        advised = shlex.split(refused.error["suggestion"])
        assert meant in advised[-2] and run_in(root, advised[1:-1]).line["key"] == "a"
    assert run_in(root, ["find", "days", "-w", "n = 2024-01-02"]).line["key"] == "a", "numbers are subtracted"


def test_a_text_that_cannot_be_mended_leads_to_the_fields_that_there_are(base: Path) -> None:
    for ask, meant in (
        (["find", "notes", "-w", "year >"], "duckkb col show notes"),
        (["find", "notes", "-w", "(year = 2024"], "duckkb col show notes"),
        (["sql", "SELECT id FROM notes WHERE (year = 2024"], "duckkb col show notes"),
        (["sql", "SELECT (1"], "duckkb sql 'SHOW TABLES'"),
    ):
        refused = run_in(base, [*ask, "--json"])
        command = shlex.split(refused.error["suggestion"])
        assert refused.code == 2 and command[: len(shlex.split(meant))] == shlex.split(meant)
        assert run_in(base, command[1:]).code == 0


def test_a_sum_of_texts_names_the_column_its_type_and_the_statement_that_casts_it(base: Path) -> None:
    refused = run_in(base, ["sql", "SELECT sum(author) AS s FROM notes", "--json"])
    assert refused.code == 2 and "author, which is VARCHAR" in refused.error["error"]
    assert run_in(base, shlex.split(refused.error["suggestion"])[1:]).line == {"s": None}


@pytest.mark.parametrize(
    "where",
    [
        "regexp_matches(author, '^a.n')",
        "tags @> ['red']",
        "tags && ARRAY['red']",
        "author ~ '^a.n'",
        "`author` = 'ann'",
    ],
)
def test_operators_and_functions_that_a_statement_may_use_are_no_slips(base: Path, where: str) -> None:
    with duckkb.open(base) as kb:
        assert [hit.identity for hit in kb.find("notes", where=where)] == ["wal"]


@pytest.mark.parametrize(
    "slip", ["(vault.secret) IS NULL", "author = vault.secret", "(vault) IS NULL", "author = vault[1]"]
)
def test_what_cannot_be_a_text_is_not_advised_as_one(base: Path, slip: str) -> None:
    with duckkb.open(base) as kb, pytest.raises(duckkb.types.errors.FilterError) as caught:
        kb.find("notes", where=slip)
    assert "'vault'" not in caught.value.suggestion


LINES = [
    ("search notes crash -m", "find notes crash -m"),
    ("query notes crash", "find notes crash"),
    ('add notes \'{"id": "wal"}\' --dry-run', 'put notes \'{"id": "wal"}\' --dry-run'),
    ("ls notes", "list notes"),
    ("remove notes nobody", "delete notes nobody"),
    ("collections list", "col list"),
    ("col info notes", "col show notes"),
    ("col note", "col show notes"),
    ("col unheard-of", "col list"),
    ("policy knowlege-base", "policy show knowledge-base"),
    ("collection notes", "collection list"),
    ("col delete empty", "col rm empty"),
    ("find notes crash --top-k 3", "find notes crash --limit 3"),
    ("find notes crash --limit=all", "find notes crash --limit=1000000"),
    ("find notes crash --filter \"author = 'ann'\"", "find notes crash --where \"author = 'ann'\""),
    ("find notes --query crash", "find notes crash"),
    ("find notes crash --json=true", "find notes crash --json"),
    ("list notes --select id,author", "list notes --fields id,author"),
    ("find notes -H -w \"author = 'ann'\"", "find notes -w \"author = 'ann'\""),
    ("vector search x --limit 2", "vector search x --top-k 2"),
    ('propose put notes \'{"id": "n"}\' --branch b/c', 'propose --branch b/c put notes \'{"id": "n"}\''),
    ('propose put notes \'{"id": "n"}\' --branch=b/c', 'propose --branch=b/c put notes \'{"id": "n"}\''),
    ("length notes", "count notes"),
    ("count notes -w 'author = ann'", "count notes -w \"author = 'ann'\""),
    ("list notes --sort year", "sql 'SELECT * FROM notes ORDER BY year LIMIT 10'"),
    ("find notes crash --mode=fts", "find notes crash --match"),
    ("put notes \"{id: 'new', ok: true,}\"", 'put notes \'{"id": "new", "ok": true}\''),
    ("find notes crash -w 'author = ann' -l 2", "find notes crash -w \"author = 'ann'\" -l 2"),
    ("list notes -l 2 --fields id,autor", "list notes -l 2 --fields id,author"),
    ("find notes crash -l 2 -w \"source = 'wiki'\"", "find notes crash -l 2 -w \"meta.source = 'wiki'\""),
    ("list notes --fields id,source", "list notes --fields id,meta.source"),
    ("find notes crash --author ann -l 2", "find notes crash -l 2 -w \"author='ann'\""),
    ("list notes --year 2024", "list notes -w \"year='2024'\""),
    ("list notes --source wiki", "list notes -w \"meta.source='wiki'\""),
    ("find notes -w \"author = 'ann'\" --count", "count notes -w \"author = 'ann'\""),
    ("list notes --count", "count notes"),
    ("count notes --year 2024", "count notes -w \"year='2024'\""),
    ("memory put bot wal 'kept in order'", "memory put wal 'kept in order' --scope bot"),
    ("policy show nope", "policy list"),
    ("policy show knowlege-base", "policy show knowledge-base"),
    ("sql 'selct author from notes'", "sql 'SELECT author from notes'"),
    ("sql -c 'select 1'", "sql 'select 1'"),
    (".tables", "sql 'SHOW TABLES'"),
    ("show tables", "sql 'SHOW TABLES'"),
    ("-c 'select 1'", "sql 'select 1'"),
    ("exec 'select 1'", "sql 'select 1'"),
    ("schema --table notes", "schema notes"),
    ("find --type notes crash", "find notes crash"),
    ("find -C 3 crash", "find all crash"),
    ("grep crash", "find all crash"),
    ("log -p notes wal", "log notes wal"),
    ("embed --all", "index build"),
    ("propose", "branches"),
    ("backup list", "backup create"),
    ("collection status", "collection list"),
    ("pr list", "branches"),
    ("index --force", "index status"),
    ("propose -b b put notes '{}'", "propose --branch b put notes '{}'"),
    ("grep crash notes", "find notes crash"),
    ("rg -i crash", "find all crash"),
    ("get notes -o yaml", "list notes"),
    ("delete -f notes", "list notes"),
    ("apply -f a.patch", "apply a.patch"),
    ("git install --force", "git install"),
    ("get notes --id wal", "get notes wal"),
    ("list notes --author ann,bob", "list notes -w \"author IN ('ann','bob')\""),
    ("list notes --order year desc", "sql 'SELECT * FROM notes ORDER BY year DESC LIMIT 10'"),
    ("sql 'select top 5 id from notes'", "sql 'select id from notes LIMIT 5'"),
    ("sql 'select count from notes'", "sql 'SELECT count(*) FROM notes'"),
    (
        "sql 'select author, count(*) from notes group author'",
        "sql 'select author, count(*) from notes group BY author'",
    ),
    ('propose put notes \'{"id": "n"}\' --title new', 'propose --message new put notes \'{"id": "n"}\''),
    ("edit notes wal", 'put notes \'{"id": "wal"}\' --merge'),
    (
        "count notes --by author",
        "sql 'SELECT author, count(*) AS count FROM notes GROUP BY author ORDER BY count DESC'",
    ),
    ("rows notes", "list notes"),
    ("find notes -i crash", "find notes crash"),
    ("get notes wal --history", "log notes wal"),
    ("update notes wal topic=pay", 'put notes \'{"id": "wal", "topic": "pay"}\' --merge'),
    ("update notes wal --set topic=pay", 'put notes \'{"id": "wal", "topic": "pay"}\' --merge'),
    ('put notes \'{"id": "new" "ok": true}\'', 'put notes \'{"id": "new", "ok": true}\''),
    ("sql 'SHOW COLUMNS FROM notes'", "sql 'DESCRIBE notes'"),
    ("sql '\\d notes'", "sql 'DESCRIBE notes'"),
    ("sql notes", "sql 'DESCRIBE notes'"),
    ("sql 'select author, count(*) from notes'", "sql 'select author, count(*) from notes GROUP BY ALL'"),
    ("sql 'select id from note limit 1'", "sql 'select id from notes limit 1'"),
    ("put notes {id: new, ok: true}", 'put notes \'{"id": "new", "ok": true}\''),
    ("put notes {id new", 'put notes \'{"id": "..."}\' --dry-run'),
    ("put notes \"{'id': 'new', 'is': None}\"", 'put notes \'{"id": "new", "is": null}\''),
]


@pytest.mark.long
@pytest.mark.parametrize(("slip", "meant"), LINES, ids=[slip for slip, _ in LINES])
def test_a_slip_on_the_command_line_is_answered_with_the_line_as_it_should_be(
    base: Path, slip: str, meant: str
) -> None:
    ran = run_in(base, [*shlex.split(slip), "--json"])
    assert ran.code == 2 and ran.out == ""
    advised = shlex.split(ran.error["suggestion"].removesuffix(" --json"))
    assert [word for word in advised if word != "--json"] == ["duckkb", *shlex.split(meant.removesuffix(" --json"))]
    if not {"nobody", "apply", "pr", "index", "vector", "propose", "query", "memory"} & {*slip.split()}:
        assert run_in(base, advised[1:]).code == 0


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("get notes WAL", "get notes wal"),
        ("get notes othe", "get notes other"),
        ("get notes/othe --full", "get notes other"),
        ("blame notes othe", "blame notes other"),
        ("log notes othe", "log notes other"),
        ("delete notes othe", "get notes other"),
        ("rename notes othe another", "get notes other"),
        ("get notes wal2", "list notes"),
        ("get notes w", "list notes"),
        ("find notes -w \"author = 'ann' AND year > 3000 AND flag\" -l 3", "find notes -w \"author = 'ann'\" -l 3"),
        (
            "find notes crash -w \"year BETWEEN 1 AND 2030 AND author = 'no'\"",
            'find notes crash -w "year BETWEEN 1 AND 2030"',
        ),
        ("find notes crash -w \"(author = 'no' OR year < 1)\" -l 2", "find notes crash -l 2"),
    ],
)
def test_a_name_or_a_filter_that_no_record_has_leads_to_what_there_is(base: Path, slip: str, meant: str) -> None:
    ran = run_in(base, shlex.split(slip))
    assert ran.code == 1 and ran.out == ""
    command = ran.err.strip().rpartition("try: ")[2]
    assert shlex.split(command) == ["duckkb", *shlex.split(meant)]
    assert meant.startswith(("blame", "log")) or run_in(base, shlex.split(command)[1:]).code == 0


def test_a_question_that_lacks_is_asked_for_and_none_made_up(base: Path) -> None:
    assert "try: say what was searched for behind `duckkb why notes wal`" in run_in(base, ["why", "notes", "wal"]).err


def test_who_finds_nothing_is_told_which_condition_takes_the_last_record(base: Path) -> None:
    ran = run_in(base, ["find", "notes", "-w", "author = 'ann' AND year > 3000"])
    assert "of 1 with author = 'ann' none has year > 3000" in ran.err


def test_a_broken_file_leads_to_the_line_to_mend_and_a_lone_document_to_a_folder(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    (root / "bad.csv").write_text('id,a\n1,"x\n')
    (root / "bad.json").write_text('[{"id": "1"}{"id": "2"}]')
    for file, line in (("bad.csv", 2), ("bad.json", 1)):
        ran = run_script(f"duckkb import new {file}", root)
        assert f"mend {file}:{line}, then run `duckkb import new {file}` again" in ran.stderr
    (root / "page.md").write_text("# Page\n")
    command = run_script("duckkb import pages page.md", root).stderr.strip().rpartition("try: ")[2]
    done = run_script(command, root)
    assert '"documents":1' in done.stdout, (command, done.stderr)
    assert run_in(root, ["update"]).code == 0
    assert "Page" in run_in(root, ["get", "pages", "pages/page.md"]).out  # as `ls` prints it


def test_the_message_and_the_command_to_try_name_the_same(base: Path) -> None:
    empty = run_in(base, ["put", "notes", "--json"]).error["suggestion"]
    assert empty.endswith("--dry-run") and run_in(base, shlex.split(empty)[1:]).code == 0
    for slip, meant in (("restore", "duckkb backup restore"), ("branch", "git branch"), ("fetch", "git fetch")):
        error = run_in(base, [slip, "--json"]).error
        assert f"Did you mean {meant.removeprefix('duckkb ')}?" in error["error"]
        assert error["suggestion"].startswith(meant)
    assert "Did you mean" not in run_in(base, ["find", "notes", "--lang", "zh"]).err
    assert run_in(base, ["find", "notes", "x", "--table"]).err.endswith("try: duckkb find notes x --format table\n")


def test_a_restore_leads_to_the_newest_backup_or_says_what_lacks(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    asks = (["restore"], ["backup", "restore"], ["--kb", ".", "restore"])
    for ask in asks:
        head = ["duckkb", *(word for word in ask if word not in ("backup", "restore")), "backup", "restore"]
        suggestion = run_in(root, [*ask, "--json"]).error["suggestion"]
        assert shlex.split(suggestion) == [*head, "--json", "FILE"]
    commit(root)
    created = run_in(root, ["backup", "create"])
    assert created.code == 0 and git(root, "status", "--porcelain") == ""
    for ask in asks:
        advised = shlex.split(run_in(root, [*ask, "--json"]).error["suggestion"])
        restored = run_in(root, advised[1:])
        assert restored.code == 0 and created.line["file"] in advised
        shutil.rmtree(restored.line["folder"])
    shutil.copy(root / created.line["file"], root.parent / "saved")
    advised = shlex.split(run_in(root, ["restore", "../saved", "--json"]).error["suggestion"])
    assert advised == ["duckkb", "backup", "restore", "../saved", "../saved-restored", "--json"]
    assert run_in(root, advised[1:]).code == 0


def test_a_filter_of_all_types_asks_those_that_have_its_fields_and_names_the_others(base: Path) -> None:
    assert run_in(base, ["col", "init", "plans", "--policy", "knowledge-base"]).code == 0
    assert run_in(base, ["put", "plans", '{"id": "p", "content": "of a crash", "tier": "gold"}']).code == 0
    for question in ([], ["crash"], ["crash", "-m"]):
        ran = run_in(base, ["find", "all", *question, "-w", "tier = 'gold'", "--json"])
        (notice,) = (one for one in ran.line["notices"] if one["code"] == "W_NOT_ASKED")
        assert [hit["id"] for hit in ran.line["results"]] == ["p"] and notice["message"].endswith("no tier: notes")
    none = run_in(base, ["find", "all", "-w", "colour = 'gold'", "--json"])
    assert none.code == 2 and "has no field 'colour'" in none.error["error"]
    unquoted = run_in(base, ["find", "all", "-w", "tier = gold", "--json"])
    assert unquoted.error["suggestion"] == "duckkb find plans -w \"tier = 'gold'\""
    with duckkb.open(base) as kb:
        seen = Caller("ann", "viewer", frozenset({"plans"}))
        answer = kb.run("find", {"type": "all", "where": "tier = 'gold'"}, seen)
        assert len(answer["results"]) == 1 and answer["notices"] == [], (
            "nothing tells of types that a caller may not see"
        )
    assert run_in(base, ["col", "rm", "plans", "--yes"]).code == 0


def test_a_filter_of_all_types_names_those_whose_values_it_does_not_fit(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    for name, year in (("books", 1999), ("plays", [1601, 1602])):
        assert run_in(root, ["col", "init", name, "--policy", "knowledge-base"]).code == 0
        assert run_in(root, ["put", name, json.dumps({"id": "a", "content": "x", "year": year})]).code == 0
    ran = run_in(root, ["find", "all", "-w", "year > 1900", "--json"])
    (notice,) = ran.line["notices"]
    assert [hit["_type"] for hit in ran.line["results"]] == ["books"]
    assert (notice["code"], notice["message"][:17]) == ("W_NOT_ASKED", "left out: plays. ")
    assert "year is a list" in notice["message"]
    assert run_in(root, ["find", "plays", "-w", "year > 1900"]).code == 2


def test_who_puts_an_edge_is_told_of_edge_types_and_their_ends(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    assert run_in(root, ["col", "init", "notes", "--policy", "simple-kv"]).code == 0
    assert run_in(root, ["put", "notes", '{"key": "a"}']).code == 0
    edge = ["put", "links", '{"from": "a", "to": "b"}', "--json"]
    unknown = run_in(root, edge).error
    assert "an edge needs its own type" in unknown["error"]
    assert run_script(unknown["suggestion"], root).returncode == 0
    (lost,) = run_in(root, edge).error["details"]["findings"]
    assert "links joins notes to notes" in lost["message"] and "ontology/" in lost["message"]
    assert run_in(root, shlex.split(lost["remedy"])[1:]).line["key"] == "a"
    assert run_in(root, ["put", "links", '{"from": "a", "to": "a"}']).code == 0


def test_who_has_no_neighbors_is_told_a_command_that_asks_more(base: Path) -> None:
    alone = ["graph", "neighbors", "notes", "wal"]
    for walk, meant in ((alone, "duckkb schema"), ([*alone, "--direction", "in"], "duckkb graph neighbors notes wal")):
        assert run_in(base, [*walk, "--json"]).error["suggestion"] == meant


def test_who_finds_nothing_is_told_a_search_that_asks_less(base: Path) -> None:
    wider = {
        "find notes crash -w 'year < 1'": "find notes crash",
        "find notes qqqq -m": "find all qqqq",
        "find notes -w 'year < 1'": "list notes",
        "find all qqqq -m": "schema",
    }
    for search, meant in wider.items():
        assert run_in(base, [*shlex.split(search), "--json"]).error["suggestion"] == f"duckkb {meant}"


def test_who_finds_no_path_is_told_a_walk_that_goes_further(base: Path) -> None:
    ends = ["graph", "path", "notes", "wal", "notes", "other"]
    for walk, further in (([], ["--depth", "12"]), (["--direction", "out"], ["--direction", "both"])):
        ran = run_in(base, [*ends, *walk, "--json"])
        assert shlex.split(ran.error["suggestion"]) == ["duckkb", *ends, *further]
        assert run_in(base, [*ends, *further, "--json"]).error["code"] == "E_NO_RESULTS"


def test_an_import_beside_a_type_is_answered_with_the_collection_to_make(tmp_path: Path, base: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "d"}\n', "utf-8")
    error = run_in(base, ["import", "notes2", str(tmp_path / "a.jsonl"), "--json"]).error
    assert error["suggestion"] == "duckkb col init notes2 --policy knowledge-base"


def test_an_import_of_a_file_that_is_not_there_leads_to_those_beside_it(tmp_path: Path, base: Path) -> None:
    notes, lost = tmp_path / "notes.jsonl", ("note.jsonl", "other.csv", "folder/other.csv")
    empty = run_in(base, ["import", "notes", str(tmp_path / "note.jsonl"), "--json"]).error["suggestion"]
    assert empty == f"ls {tmp_path}" and run_script(empty, base).returncode == 0
    for file in (tmp_path / "a.csv", notes):
        file.write_text('{"id": "d"}\n', "utf-8")
    for name in lost:
        suggestion = run_in(base, ["import", "notes", str(tmp_path / name), "--json"]).error["suggestion"]
        assert suggestion == f"duckkb import notes {notes} --dry-run"
    assert run_in(base, shlex.split(suggestion)[1:]).code == 0


def test_a_collection_of_documents_that_is_not_there_leads_to_the_nearest(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    (root / "runbooks").mkdir()
    assert run_in(root, ["collection", "add", "runbooks"]).code == 0
    for slip, meant in (("ls runbook", "ls runbooks"), ("collection remove runbook", "collection show runbooks")):
        suggestion = run_in(root, [*slip.split(), "--json"]).error["suggestion"]
        assert suggestion.removesuffix(" --json") == f"duckkb {meant}"
        assert run_in(root, shlex.split(suggestion)[1:]).code == 0


def test_a_statement_that_a_shell_split_is_answered_with_the_statement(base: Path) -> None:
    slips = {
        "select * from notes": "select * from notes",
        "SELECT count FROM notes --limit 1": "SELECT count(*) FROM notes",
        "sql select count from notes": "select count(*) from notes",
        "'select id from notes'": "select id from notes",
    }
    for slip, statement in slips.items():
        suggestion = run_script(f"duckkb {slip}", base).stderr.partition("try: ")[2]
        assert shlex.split(suggestion)[:3] == ["duckkb", "sql", statement]
        assert run_script(suggestion, base).returncode == 0


@pytest.mark.parametrize(("verb", "formats"), [("review", "markdown, html, github, sarif"), ("growth", "jsonl, json")])
def test_who_asks_for_a_format_that_is_not_there_is_told_which_are(base: Path, verb: str, formats: str) -> None:
    assert f"use {formats}" in run_in(base, [verb, "--format", "table"]).err


@pytest.mark.parametrize("verb", ["undo", "revert", "rollback"])
def test_who_wants_to_undo_is_told_what_does(tmp_path: Path, verb: str) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    assert run_in(root, ["col", "init", "notes", "--policy", "simple-kv"]).code == 0
    commit(root)
    assert run_in(root, ["put", "notes", '{"key": "kept"}']).code == 0
    commit(root)
    message = run_in(root, [verb, "--json"]).error["error"]
    not_committed, last_commit = re.findall("`(.+?)`", message)
    assert run_in(root, ["put", "notes", '{"key": "loose"}']).code == 0
    assert run_script(not_committed, root).returncode == 0
    assert [line["key"] for line in run_in(root, ["list", "notes"]).lines] == ["kept"]
    assert run_script(last_commit, root).returncode == 0
    assert run_in(root, ["list", "notes"]).lines == []


@pytest.mark.long
def test_advice_of_several_commands_works_in_a_shell(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.collections.init("vectors", policy="feature-store", params={"dimension": 2})
        kb.put("notes", [{"id": "a b", "content": "x", "year": 1}, {"id": "c", "year": 2}])
        kb.put("vectors", {"id": "v", "tensor": [1, 0]})
    (root / "more.jsonl").write_text('{"id": "d"}\n', "utf-8")
    slips = (
        (["find", "notes", "x", "-m", "--sort", "year"], '"a b"'),
        (["update", "notes", "a b", '{"content": "it\'s"}'], '"updated":1'),
        (["put", "notes", '[{"id": "e"}, {"id": "f"}]'], '"inserted":2'),
        (["put", "notes", "@more.jsonl"], '"inserted":1'),
        (["put", "notes", "--file", "more.jsonl"], '"unchanged":1'),
        (["find", "vectors", "--vector", "[2, 0]"], '"id":"v"'),
        (["find", "vectors", "--vector=[2, 0]"], '"id":"v"'),
        (["delete", "notes", "-w", "year < 3"], '"deleted":2'),
    )
    for slip, expected in slips:
        ran = run_in(root, [*slip, "--json"])
        assert ran.code == 2 and ran.out == "", slip
        done = run_script(ran.error["suggestion"], root)
        assert done.returncode == 0 and expected in done.stdout, (slip, ran.error, done.stderr)


@pytest.mark.parametrize(
    "args",
    [
        ["table", "query", "--url", "postgresql://ann:secret@db.example/kb", "--nope"],
        ["find", "all", "sk-secret123456789012", "--nope"],
        ["tenant", "show", f"{64 * '0'}secret", "--nope"],
    ],
    ids=" ".join,
)
def test_advice_repeats_no_word_that_may_be_a_password_or_a_token(base: Path, args: list[str]) -> None:
    ran = run_in(base, args)
    assert ran.code == 2 and "--help" in ran.err and "secret" not in ran.err


def test_an_example_of_a_record_writes_nothing(base: Path) -> None:
    for given in ("null", "", "7", "hello there"):
        ran = run_in(base, ["put", "notes", given, "--json"])
        assert ran.code == 2 and run_in(base, shlex.split(ran.error["suggestion"])[1:]).code == 0
        assert run_in(base, ["get", "notes", "..."]).code == 1


def test_an_option_without_its_value_is_answered_with_the_line_without_it_or_its_values(base: Path) -> None:
    for slip, meant in (("find notes x -w", "find notes x"), ("propose --branch", "branches")):
        assert run_in(base, ["--json", *slip.split()]).error["suggestion"] == f"duckkb --json {meant}"


def test_a_path_inside_a_value_that_no_record_has_is_said_with_the_near_one(base: Path) -> None:
    for args in (["-w", "meta.sorce = 'wiki'"], ["x", "-w", "NOT meta.sorce = 'wiki'"]):
        ran = run_in(base, ["find", "notes", *args, "--json"])
        assert ran.code == 1 and '"no record of notes has meta.sorce"' in ran.err and "`meta.source`" in ran.err
    unlike = run_in(base, ["find", "notes", "-w", "meta.source = 'book'"]).err
    assert "no record of notes has meta.source = 'book'; there is 'wiki'" in unlike
    assert "`meta.source`" in run_in(base, ["list", "notes", "--fields", "id,meta.sorce"]).err


def test_a_path_through_a_list_is_said_with_the_filter_that_looks_inside(base: Path) -> None:
    record = (
        '{"id":"t1","comments":[{"body":"a loop","by":{"name":"Ann"}}],"meta":{"runs":[{"steps":[{"no":"\u4e03"}]}]}}'
    )
    assert run_in(base, ["col", "init", "tickets", "--policy", "knowledge-base"]).code == 0
    assert run_in(base, ["put", "tickets", record]).code == 0
    for where in ("comments.body LIKE '%loop%'", "comments.by.name = 'Ann'", "meta.runs.steps.no = '\u4e03'"):
        ran = run_in(base, ["find", "tickets", "-w", where, "--json"])
        (notice,) = (one for one in ran.line["notices"] if one["code"] == "W_NO_VALUE")
        assert ran.code == 1 and "is inside a list" in notice["message"]
        assert run_in(base, ["find", "tickets", *shlex.split(notice["remedy"])]).line["id"] == "t1"
    unlike = run_in(base, ["find", "tickets", "-w", "comments.bodi = 'x'"]).err
    assert "no record of tickets has comments.bodi" in unlike
    assert "--fields comments has all" in run_in(base, ["list", "tickets", "--fields", "id,comments.body"]).err


def test_a_filter_names_the_case_in_which_records_have_its_text(base: Path) -> None:
    plans = ["enterprise", "it's free", "Pro", "pro"]
    records = [{"id": f"c{number}", "meta": {"plan": plan}} for number, plan in enumerate(plans)]
    assert run_in(base, ["col", "init", "plans", "--policy", "knowledge-base"]).code == 0
    assert run_in(base, ["put", "plans", "-"], stdin="\n".join(map(json.dumps, records))).code == 0
    for where in ("meta.plan='Enterprise'", "id != 'x' AND meta.plan = 'It''s Free'"):
        ran = run_in(base, ["find", "plans", "-w", where, "--json"])
        (notice,) = (notice for notice in ran.line["notices"] if notice["code"] == "W_NO_VALUE")
        assert ran.code == 1 and "some have" in notice["message"]
        assert ran.error["suggestion"] == f"duckkb find plans {notice['remedy']} --json"
        assert run_in(base, shlex.split(ran.error["suggestion"])[1:-1]).line["id"] in ("c0", "c1")
    for where in ("meta.plan = 'PRO' AND id = 'x'", "meta.plan = 'Pro' AND id = 'x'", "lower(id) = 'C0'"):
        said = run_in(base, ["find", "plans", "-w", where]).err
        assert ("some have 'Pro'" in said or "some have 'pro'" in said) == ("PRO" in where)


_PLANS = ["free"] * 30 + ["team"] * 20 + ["it's new", "enterprise"]


def test_a_filter_for_a_value_that_no_record_has_names_those_that_there_are_the_nearest_first(base: Path) -> None:
    records = [{"id": f"v{n}", "plan": plan, "meta": {"地": "北京"}, "n": f"text {n}"} for n, plan in enumerate(_PLANS)]
    assert run_in(base, ["col", "init", "values", "--policy", "knowledge-base"]).code == 0
    assert run_in(base, ["put", "values", "-"], stdin="\n".join(map(json.dumps, records))).code == 0
    near = run_in(base, ["find", "values", "-w", "plan = 'enterprize'"])
    assert near.code == 1 and "there are 'enterprise', 'free', 'team', 'it''s new'" in near.err
    assert run_in(base, shlex.split(near.err.splitlines()[-1])[2:]).line["plan"] == "enterprise"
    for verb in ("list", "find"):
        assert "there is '北京'" in run_in(base, [verb, "values", "-w", "meta.\"地\" = '上海' OR meta.地 = '上海'"]).err
    unlike = run_in(base, ["find", "values", "question", "-m", "-w", "plan = 'zzz'"]).err
    assert "no record of values has plan = 'zzz'; there are 'free', 'team'," in unlike
    assert "there" not in run_in(base, ["find", "values", "-w", "n = 'zzz'"]).err, "a field of many values names none"
    assert "W_NO_VALUE" not in run_in(base, ["find", "values", "-w", "plan = 'team' AND id = 'v0'"]).err


def test_a_filter_says_how_many_records_it_lets_through_beyond_the_limit(base: Path) -> None:
    ran = run_in(base, ["find", "notes", "-w", "id IN ('wal', 'other')", "-l", "1", "--json"])
    (notice,) = ran.line["notices"]
    assert (notice["code"], notice["message"]) == ("W_TRUNCATED", "1 of 2 records that satisfy the filter")
    more = run_in(base, ["find", "notes", "-w", "id IN ('wal', 'other')", *notice["remedy"].split()])
    assert len(more.lines) == 2 and more.err == ""


def test_slips_of_field_names_in_many_records_are_one_notice(base: Path) -> None:
    lines = '{"id":"1","contnet":"a","x":null}\n{"id":"2","contnet":"b","yaer":3}\n{"id":"3","zzz":1}\n'
    for verb in (["put", "notes", "--batch", "--dry-run"], ["put", "notes", "--merge", "--dry-run"]):
        said = run_in(base, verb, stdin=lines).err.splitlines()
        (told,) = (line for line in said if line.startswith("W_FIELD"))
        assert told.startswith("W_FIELD: notes 2 records: contnet, yaer were stored") and "content, year" in told
        nulls = [line for line in said if line.startswith("W_NULL")]
        assert [line[:28] for line in nulls] == ([] if "--merge" in verb else ["W_NULL: notes 1 record: x wa"])


def test_names_that_are_not_there_are_answered_with_what_is(base: Path) -> None:
    unknown = run_in(base, ["find", "noets", "crash", "--json"])
    assert unknown.code == 1 and "did you mean notes?" in unknown.error["error"]
    assert unknown.error["suggestion"] == "duckkb find notes crash --json"
    for slip, meant in (("get noets wal", "get notes wal"), ("find noets crash -l 2", "find notes crash -l 2")):
        assert run_in(base, slip.split()).err.splitlines()[-1].endswith(f"duckkb {meant}")
    unknown = run_in(base, ["put", "noets", "{}", "--json"])
    assert unknown.code == 1 and unknown.error["suggestion"] == "duckkb put notes '{}' --json"
    unknown = run_in(base, ["put", "unheard", "{}", "--json"])
    assert unknown.code == 1 and unknown.error["suggestion"] == "duckkb col init unheard --policy knowledge-base"
    field = run_in(base, ["find", "notes", "-w", "zzzz = 5", "--json"])
    assert field.error["suggestion"] == "duckkb col show notes"
    scored = run_in(base, ["find", "notes", "x", "-w", "_score > 0.5", "--json"])
    assert "jq -c 'select(._score > 0.5)'" in scored.error["suggestion"]
    assert run_in(base, ["vector", "search", "x", "--top-k", "0", "--json"]).error["error"].startswith("top_k")


@pytest.mark.parametrize(
    ("alias", "policy"), [("vector", "feature-store"), ("hybrid", "knowledge-base"), ("relational", "structured-logs")]
)
def test_the_short_names_of_policies_are_accepted(base: Path, alias: str, policy: str) -> None:
    assert run_in(base, ["col", "init", alias, "--policy", alias]).code == 0
    assert run_in(base, ["col", "show", alias]).line["policy"] == policy


@pytest.mark.parametrize(
    "args",
    [["find", "notes", "x", "-s", "-m"], ["find", "notes", "x", "-H", "-m"], ["recover", "--show", "--abort"]],
    ids=" ".join,
)
def test_flags_that_contradict_each_other_are_refused(base: Path, args: list[str]) -> None:
    ran = run_in(base, [*args, "--json"])
    assert ran.code == 2 and "contradict" in ran.error["error"]


def test_with_json_every_line_of_stderr_is_json(base: Path) -> None:
    for args, stdin, keys in (
        (["put", "notes", "--batch", "--dry-run"], '{"id": "wal"}\n{bad\n', {"note", "notice", "error"}),
        (["find", "notes", "-w", "author <> 'bo'"], "", {"notice"}),
        (["list", "notes", "-l", "1"], "", {"note"}),
        (["find", "notes", "x", "-y"], "", {"error"}),
    ):
        ran = run_in(base, [*args, "--json"], stdin=stdin)
        lines = [json.loads(line) for line in ran.err.splitlines()]
        assert {next(iter(line)) for line in lines} == keys
        if ran.code:
            assert {"error", "code", "suggestion"} <= lines[-1].keys()


@pytest.mark.long
def test_records_that_an_exclusion_skips_for_lack_of_the_field_are_counted(base: Path) -> None:
    for where in ("author <> 'bo'", "NOT author = 'bo'", "author NOT IN ('bo', 'cy')", "author NOT LIKE 'b%'"):
        ran = run_in(base, ["find", "notes", "-w", where, "--json"])
        (notice,) = ran.line["notices"]
        every = run_in(base, ["find", "notes", "-w", shlex.split(notice["remedy"])[-1]]).lines
        lacking = [line for line in every if "author" not in line]
        assert notice["code"] == "W_SKIPPED" and int(notice["message"].split()[0]) == len(lacking) == len(every) - 1
    for where in ("author = 'do not'", "author IS NOT NULL", "id <> 'x'"):
        assert "W_SKIPPED" not in run_in(base, ["find", "notes", "-w", where]).err


@pytest.mark.parametrize("name", ["path", "filepath", "filePath", "filename"])
def test_an_action_takes_a_path_by_its_usual_names(name: str) -> None:
    from duckkb.operations.vector_store import parse

    for action in ("import_file", "set_database"):
        assert parse({"action": action, name: "a.txt"})[1] == {"path": "a.txt"}


def test_what_init_advises_works_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("question,answer\nWhere is it?,Here.\n")
    for folder, where in ((tmp_path, ["new base"]), (tmp_path / "new base" / "..", ["other"])):
        lines = run_in(folder, ["init", *where]).err.splitlines()
        advised = [line.partition("duckkb ")[2].partition(", and")[0] for line in lines]
        assert len(advised) == 2
        assert all(run_in(tmp_path, [*shlex.split(command), "--no-embed"]).code == 0 for command in advised)


@pytest.fixture(scope="module")
def far_base(base: Path) -> Path:
    """The folder beside a base, from which commands name it."""
    with duckkb.open(base) as kb:
        kb.collections.init("far", policy="knowledge-base")
        kb.put("far", [{"id": "f1", "content": "A far record.", "planet": "Mars"}])
    return base.parent


HINTS_WITH_OPTIONS = [
    ("--kb kb count", "--kb kb schema"),
    ("count --kb kb", "--kb kb schema"),
    ("--kb=kb list -w \"planet = 'Mars'\"", "--kb kb list far -w \"planet = 'Mars'\""),
    ("--kb kb --format csv count -w 'planet = Mars'", "--kb kb --format csv count far -w \"planet = 'Mars'\""),
    ("list far --kb kb --limitt 1", "--kb kb list far --limit 1"),
    ("--format tabel --kb kb list far", "--kb kb --format table list far"),
    ("--kb kb --json edit far f1 planet=Venus", '--kb kb --json put far \'{"id": "f1", "planet": "Venus"}\' --merge'),
    ("--kb kb get far nobody", "--kb kb list far"),
    ("--kb kb put nofar {}", "--kb kb col init nofar --policy knowledge-base"),
    ("--kb kb", "--kb kb status"),
]


@pytest.mark.parametrize(("slip", "meant"), HINTS_WITH_OPTIONS, ids=[slip for slip, _ in HINTS_WITH_OPTIONS])
def test_a_hint_keeps_the_options_before_the_verb_and_the_base_wherever_it_is_named(
    far_base: Path, slip: str, meant: str
) -> None:
    ran = run_in(far_base, [*shlex.split(slip), "--json"] if "csv" not in slip else shlex.split(slip))
    last = ran.err.splitlines()[-1]
    suggestion = json.loads(last)["suggestion"] if last.startswith("{") else last.partition("try: ")[2]
    advised = [word for word in shlex.split(suggestion) if word != "--json"]
    assert advised == ["duckkb", *(word for word in shlex.split(meant) if word != "--json")]
    assert run_in(far_base, [*advised[1:], *(["--dry-run"] if "put" in advised else [])]).code == 0


def test_commands_in_notices_and_pipes_name_the_base_and_git_goes_there(far_base: Path) -> None:
    piped = run_in(far_base, ["--kb", "kb", "find", "far", "record", "--history"]).err
    assert piped.count("duckkb --kb kb ") == 2
    made = far_base / "new.jsonl"
    made.write_text('{"id": "n", "content": "text"}\n', "utf-8")
    assert "`duckkb --kb kb col rm new --yes`" in run_in(far_base, ["--kb", "kb", "import", "new", str(made)]).err
    assert run_in(far_base, ["commit", "--kb", "kb", "-m", "x"]).err.endswith("try: git -C kb commit -m x\n")


WITHOUT_A_TYPE = [
    ("col nots", "col show notes"),
    ("col noxx", "col list"),
    ('list -w ""', "schema"),
    ("list -w \"planet = 'Mars'\"", "list far -w \"planet = 'Mars'\""),
    ("list -w \"sea = 'Baltic'\"", "schema"),
    ("find -w \"planet = 'Mars'\"", "find all -w \"planet = 'Mars'\""),
    ('find far -w ""', "list far"),
    ('count far -w " "', "count far"),
    ('put far/f1 \'{"planet": "Venus"}\' --dry-run', 'put far \'{"id": "f1", "planet": "Venus"}\' --merge --dry-run'),
    ("put far/f1", 'put far \'{"id": "f1"}\' --merge'),
    ("put new-type/f1 {}", "col init new-type --policy knowledge-base"),
    ("get nope/f1", "get far f1"),
    ("get nope/nobody", "schema"),
]


@pytest.mark.parametrize(("slip", "meant"), WITHOUT_A_TYPE, ids=[slip for slip, _ in WITHOUT_A_TYPE])
def test_a_line_with_a_missing_or_wrong_type_leads_to_types_that_the_base_has(
    far_base: Path, slip: str, meant: str
) -> None:
    ran = run_in(far_base / "kb", [*shlex.split(slip), "--json"])
    advised = [word for word in shlex.split(ran.error["suggestion"]) if word != "--json"]
    assert ran.code and advised == ["duckkb", *shlex.split(meant)]
    assert run_in(far_base / "kb", advised[1:]).code == 0


@pytest.mark.parametrize("args", [["list", "notes", "-fields", "id"], ["list", "-fields", "id", "notes"]])
def test_an_unknown_letter_in_a_word_of_options_is_an_error_of_usage(base: Path, args: list[str]) -> None:
    ran = run_in(base, [*args, "--json"])
    error = json.loads(ran.err.splitlines()[-1])
    assert (ran.code, error["code"]) == (2, "E_USAGE") and "Traceback" not in ran.err
    assert run_in(base, shlex.split(error["suggestion"])[1:]).code == 0
