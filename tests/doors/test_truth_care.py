"""check, fmt, dedupe, recover, init, status, trust, config through the real process; broken truth refuses writes."""

import json
import os
import shutil
from pathlib import Path

import pytest

import duckkb
from duckkb.storage import base_lock
from tests.conftest import ROOT, Run, commit, git, make_base, run_in, tree_bytes

LINE = b'{"__id":1,"id":"a","__created_at":"2026-01-02T00:00:00.000000Z","__updated_at":"2026-01-02T00:00:00.000000Z"}'
PART = "data/nodes/note/20260102/part_001.jsonl"


def _write(root: Path, path: str, data: bytes) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("data", "line", "code"),
    [
        (LINE + b"\n\xff\xfe\n", 2, "E_UTF8"),
        (b"\xef\xbb\xbf" + LINE + b"\n", 1, "E_BOM"),
        (LINE + b"\r\n", 1, "E_CR"),
        (LINE + b"\n\x00\n", 2, "E_NUL"),
        (b"<<<<<<< HEAD\n" + LINE + b"\n=======\n>>>>>>> theirs\n", 1, "E_MARKERS"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", 1, "E_POINTER"),
        (LINE + LINE + b"\n", 1, "E_JSON"),
        (LINE[:-9] + b"\n", 1, "E_JSON"),
        (LINE.replace(b'"id":"a"', b'"id":"a","id":"b"') + b"\n", 1, "E_DUP_KEY"),
        (LINE.replace(b'"id":"a"', b'"id":"a","x":NaN') + b"\n", 1, "E_NUMBER"),
        (LINE.replace(b'"id":"a"', b'"id":"a","x":1e400') + b"\n", 1, "E_NUMBER"),
        (LINE.replace(b'"id":"a"', b'"id":"a","x":9223372036854775808') + b"\n", 1, "E_NUMBER"),
        (LINE.replace(b'"id":"a"', b'"id":"a","x":"\\ud800"') + b"\n", 1, "E_SURROGATE"),
        (LINE.replace(b'"__id":1', b'"__id":1.0') + b"\n", 1, "E_ID"),
        (LINE.replace(b"00.000000Z", b"00Z") + b"\n", 1, "E_TIME"),
        (LINE.replace(b'"id":"a"', b'"id":"a","x":' + b"[" * 70 + b"]" * 70) + b"\n", 1, "E_DEPTH"),
        (LINE.replace(b'"id":"a",', b"") + b"\n", 1, "E_IDENTITY"),
        (b"null\n", 1, "E_JSON"),
    ],
)
def test_dk_13_broken_lines_stop_reading_and_writing_and_change_nothing(
    run: Run, notes: Path, data: bytes, line: int, code: str
) -> None:
    _write(notes, PART, data)
    before = tree_bytes(notes)
    for args in (["list", "Note"], ["find", "Note", "a"], ["put", "Note", '{"id": "b"}'], ["fmt"]):
        ran = run(*args, "--json")
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", "E_UNREADABLE"), ran.err
        found = ran.error["details"]["findings"]
        assert (found[0]["path"], found[0]["line"], found[0]["code"]) == (PART, line, code)
        assert found[0]["remedy"]
    assert tree_bytes(notes) == before
    checked = run("check", "--format", "json")
    assert checked.code == 1
    assert code in {finding["code"] for finding in checked.line["findings"]}


def test_lenient_reads_on_without_the_broken_line_and_still_refuses_to_write(run: Run, notes: Path) -> None:
    _write(notes, PART, LINE + b"\nnot json\n")
    shown = run("list", "Note", "--lenient")
    assert (shown.code, shown.line["id"]) == (0, "a")
    assert "W_LENIENT" in shown.err
    assert run("put", "Note", '{"id": "b"}', "--lenient").code == 1


def test_a_line_over_the_limit_is_refused(notes: Path) -> None:
    config = notes / "config.yaml"
    config.write_text("limits: {max_record_bytes: 1024}\n" + config.read_text("utf-8"), "utf-8")
    _write(notes, PART, LINE.replace(b'"id":"a"', b'"id":"a","text":"' + b"x" * 2000 + b'"') + b"\n")
    ran = run_in(notes, ["list", "Note", "--json"])
    assert ran.error["details"]["findings"][0]["code"] == "E_TOO_LARGE"


def test_a_hand_written_line_is_read_reported_and_completed(run: Run, notes: Path) -> None:
    _write(notes, PART, '{"text":"写","id":"by hand"}\n'.encode())
    shown = run("get", "Note", "by hand")
    assert shown.code == 0 and "W_INCOMPLETE" in shown.err
    checked = run("check", "--format", "json")
    assert (checked.code, [one["code"] for one in checked.line["findings"]]) == (1, ["E_INCOMPLETE"])
    assert run("fmt", "--check").code == 1
    assert run("fmt").lines == [{"file": PART}]
    assert run("check").code == 0
    assert run("get", "Note", "by hand").line["__id"] == shown.line["__id"]
    assert run("fmt").out == ""


def test_fmt_sorts_and_canonicalises_without_touching_records(run: Run, notes: Path) -> None:
    two = LINE.replace(b'"__id":1', b'"__id":2').replace(b'"a"', b'"B"')
    _write(notes, PART, LINE.replace(b'"id":"a"', b'"id" : "a", "title": null') + b"\n" + two + b"\n")
    before = run("list", "Note").lines
    assert run("check", "--json").line["errors"] >= 2
    run("fmt")
    assert (notes / PART).read_bytes() == two + b"\n" + LINE + b"\n"
    assert run("list", "Note").lines == before


def test_one_identity_in_two_files_is_read_merged_and_mended_by_dedupe(run: Run, notes: Path) -> None:
    one = LINE.replace(b'"id":"a"', b'"id":"a","size":1,"title":"old"')
    newer = LINE.replace(b'"id":"a"', b'"id":"a","status":"final","title":"new"').replace(
        b'_at":"2026-01-02T00:00:00.000000Z"}', b'_at":"2026-01-03T00:00:00.000000Z"}'
    )
    _write(notes, PART, one + b"\n")
    other = _write(notes, PART.replace("001", "002"), newer + b"\n")
    shown = run("get", "Note", "a")
    assert (shown.line["title"], shown.line["size"], shown.line["status"]) == ("new", 1, "final")
    assert "W_DUPLICATE" in shown.err
    assert run("put", "Note", '{"id": "a"}', "--json").error["code"] == "E_DUP_IDENTITY"
    checked = run("check", "--format", "json")
    assert (checked.code, [finding["code"] for finding in checked.line["findings"]]) == (1, ["E_DUP_IDENTITY"])
    patch = run("dedupe", "--dry-run").out
    assert patch.startswith("diff --git")
    run("dedupe")
    assert not other.exists()
    assert run("check").code == 0
    assert run("get", "Note", "a").line["title"] == "new"


def test_two_records_with_one_id_are_found_and_mended(run: Run, notes: Path) -> None:
    _write(notes, PART, LINE + b"\n" + LINE.replace(b'"a"', b'"b"') + b"\n")
    assert [line["id"] for line in run("list", "Note").lines] == ["a", "b"]
    assert "E_DUP_ID" in {finding["code"] for finding in run("check", "--json").line["findings"]}
    run("dedupe")
    assert run("check").code == 1
    run("dedupe", "--reassign")
    assert run("check").code == 0


def test_check_holds_records_against_schema_day_and_edges(run: Run, notes: Path) -> None:
    odd = LINE.replace(b'"id":"a"', b'"id":"a","size":"many"').replace(
        b"2026-01-02T00:00:00.000000Z", b"2026-02-02T00:00:00.000000Z"
    )
    _write(notes, PART, odd + b"\n")
    edge = b'{"__id":3,"from":"a","to":"ghost","__created_at":"2026-01-02T00:00:00.000000Z","__updated_at":"2026-01-02T00:00:00.000000Z"}\n'
    _write(notes, "data/edges/cites/20260102/part_001.jsonl", edge)
    _write(notes, "data/nodes/note/readme.txt", b"hello")
    (notes / "data/nodes/link").symlink_to(notes)
    checked = run("check", "--format", "json")
    codes = [finding["code"] for finding in checked.line["findings"]]
    assert sorted(codes) == ["E_DANGLING_EDGE", "E_MISPLACED", "E_SCHEMA", "E_SYMLINK", "E_UNEXPECTED_FILE"]
    assert all(finding["path"] and finding["remedy"] for finding in checked.line["findings"])
    assert run("get", "Note", "a").code == 0, "a bad fit does not stop reading"
    assert run("put", "Note", '{"id": "a", "title": "x"}', "--merge").code == 1, "but a write must fit"
    assert run("put", "Note", '{"id": "a", "size": 5}').code == 0


def test_dk_14_unknown_files_and_tables_survive_every_write(run: Run, notes: Path) -> None:
    strangers = {
        "data/nodes/other/20260101/part_000.jsonl": b'{"a":1}\n',
        "data/nodes/note/readme.txt": b"hello",
        "data/extra.bin": b"\0",
    }
    for path, data in strangers.items():
        _write(notes, path, data)
    run("put", "Note", '{"id": "a"}')
    run("fmt")
    run("delete", "Note", "a")
    assert all((notes / path).read_bytes() == data for path, data in strangers.items())


def test_missing_data_with_records_in_head_is_an_error(run: Run, notes: Path) -> None:
    run("put", "Note", '{"id": "a"}')
    commit(notes)
    shutil.rmtree(notes / "data")
    ran = run("list", "Note", "--json")
    assert (ran.code, ran.error["code"], ran.error["suggestion"]) == (1, "E_DATA_MISSING", "git checkout -- data")


def test_writes_refuse_while_a_merge_is_under_way(run: Run, notes: Path) -> None:
    run("put", "Note", '{"id": "a"}')
    commit(notes)
    (notes / ".git" / "MERGE_HEAD").write_text(git(notes, "rev-parse", "HEAD"), "utf-8")
    ran = run("put", "Note", '{"id": "b"}', "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_MERGE_IN_PROGRESS")
    assert run("get", "Note", "a").code == 0


def test_a_tracked_state_folder_is_not_read(run: Run, notes: Path) -> None:
    run("put", "Note", '{"id": "a"}')
    git(notes, "add", "-f", ".duckkb/lock")
    for args in (["list", "Note"], ["put", "Note", '{"id": "b"}'], ["recover"], ["recover", "--forward"]):
        ran = run(*args, "--json")
        assert (ran.code, ran.error["code"]) == (1, "E_TRACKED_STATE"), args


def test_a_newer_format_is_refused(run: Run, notes: Path) -> None:
    _write(notes, "data/FORMAT.json", b'{"format":2}\n')
    assert run("list", "Note", "--json").error["code"] == "E_FORMAT"


def test_recover_says_that_there_is_nothing_to_do(run: Run) -> None:
    run("put", "Note", '{"id": "a"}')
    assert run("recover").line["action"] == "none"
    assert run("recover", "--show").code == 0


def test_init_makes_a_base_that_works_and_refuses_a_second_time(tmp_path: Path) -> None:
    made = run_in(tmp_path, ["init", "kb"])
    assert [line["file"] for line in made.lines] == ["config.yaml", ".gitattributes", "data/FORMAT.json"]
    home = tmp_path / "kb"
    assert run_in(home, ["put", "Note", '{"id": "first", "text": "hello"}', "--no-embed"]).line["inserted"] == 1
    assert run_in(home, ["check"]).code == 0
    assert run_in(home, ["put", "Note", '{"id": "traditional", "text": "資料庫"}', "--no-embed"]).code == 0
    assert run_in(home, ["find", "Note", "资料库", "-m"]).line["id"] == "traditional"
    again = run_in(tmp_path, ["init", "kb", "--json"])
    assert (again.code, again.error["code"]) == (1, "E_EXISTS")


def test_dk_03_a_bad_ontology_is_refused_whole_with_every_line(tmp_path: Path) -> None:
    text = "nodes:\n  A:\n    table: A-b\n    identity: id\n    schema: {type: object, properties: {x: {type: string}}}\nedges:\n  e: {from: A, to: B}\nglobl: {}\n"
    root = make_base(tmp_path / "kb", text)
    ran = run_in(root, ["put", "A", "{}", "--json"])
    assert ran.code == 2
    places = {(finding["path"], finding["line"]) for finding in ran.error["details"]["findings"]}
    assert {("config.yaml", 3), ("config.yaml", 4), ("config.yaml", 7), ("config.yaml", 8)} <= places
    assert not (root / "data").exists() and not (root / ".duckkb").exists()


def test_config_show_names_the_origin_of_every_value(run: Run) -> None:
    shown = run("config", "show", "--json").line
    text = json.dumps(shown)
    assert "config.yaml:1" in text and "default" in text


def test_trust_is_asked_for_hosts_and_kept_outside_the_clone(notes: Path, tmp_path: Path) -> None:
    config = notes / "config.yaml"
    config.write_text(
        config.read_text("utf-8").replace(
            "global: {embedding_model: none}",
            "global: {embedding_model: some-model, embedding: {base_url: 'http://127.0.0.1:9', api_key_env: MY_KEY, dimensions: 8}}",
        ),
        "utf-8",
    )
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    shown = run_in(notes, ["trust", "--show"], env=env).line
    assert not shown["trusted"] and shown["demands"]
    assert run_in(notes, ["status", "--json"], env=env).line["trust"] is False
    assert run_in(notes, ["status", "--json"], env=env | {"DUCKKB_TRUST": shown["hash"]}).line["trust"] is True
    assert run_in(notes, ["trust"], env=env).line["trusted"] is True
    assert run_in(notes, ["status", "--json"], env=env).line["trust"] is True
    assert run_in(notes, ["status", "--json"], env={"XDG_STATE_HOME": str(tmp_path / "other")}).line["trust"] is False


@pytest.mark.long
def test_the_repositorys_own_base_is_clean_and_its_cache_small() -> None:
    assert run_in(ROOT, ["check", "--fail-on", "warning"]).code == 0
    cache = ROOT / "data/indices/search_cache.parquet"
    assert cache.stat().st_size < 3_000_000  # it grows with what the base says


def test_status_names_at_once_who_writes(notes: Path, run: Run) -> None:
    run("put", "Note", '{"id": "a"}')
    with duckkb.open(notes) as kb, base_lock.exclusive(notes, 5):
        said = run("status").line
        assert str(os.getpid()) in said["locked_by"]
        assert (said["records"], said["team_cache"], said["model"]) == (None, None, "none")
        (notes / "data/nodes/note/x.txt").write_text("a change that the open base has not seen", "utf-8")
        assert kb.status().keys() | {"server"} == said.keys() and kb.status()["records"]["Note"] == 1
    assert run("status").line["locked_by"] is None
