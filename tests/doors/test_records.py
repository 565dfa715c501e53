"""put, get, list, delete, rename, import, export through the real process."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, Run, commit, git, make_base, run_in, tree_bytes

NOTE = '{"id": "a", "title": "Ids", "text": "How ids are given. 内存数据库"}'


def test_a_put_record_comes_back_from_get(run: Run) -> None:
    receipt = run("put", "Note", NOTE)
    assert (receipt.code, receipt.line["inserted"], receipt.line["identities"]) == (0, 1, ["a"])
    found = run("get", "Note", "a")
    assert found.line["text"] == "How ids are given. 内存数据库"
    assert found.line["_type"] == "Note"
    assert found.line["_etag"] == receipt.line["etags"][0]
    assert found.line["__id"] == receipt.line["ids"][0]


def test_with_an_argument_stdin_is_never_read(run: Run) -> None:
    assert run("put", "Note", NOTE, stdin="this is no JSON").code == 0


def test_jsonl_on_stdin_is_one_changeset_all_or_nothing(run: Run, notes: Path) -> None:
    refused = run("put", "Note", stdin='{"id": "x"}\n{"id": 5}\nnot json\n{"id": "y", "status": "odd"}\n', env={})
    assert (refused.code, refused.out) == (1, "")
    assert all(f"stdin:{number} " in refused.err for number in (2, 3, 4)), refused.err
    assert not (notes / "data").exists()
    assert run("put", "Note", stdin='{"id": "x"}\n\n{"id": "y"}\n').line["inserted"] == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "E_JSON"),
        ("[]", "E_JSON"),
        ("5", "E_JSON"),
        ('{"id": "a", "id": "b"}', "E_DUP_KEY"),
        ('{"id": "a", "size": NaN}', "E_NUMBER"),
        ('{"id": "a", "size": 1e999}', "E_NUMBER"),
        ('{"id": "a", "size": 99999999999999999999}', "E_NUMBER"),
        ('{"id": "a", "text": "\\ud800"}', "E_SURROGATE"),
        ('{"id": "a", "size": "5"}', "E_SCHEMA"),
        ('{"id": "a", "status": "odd"}', "E_SCHEMA"),
        ('{"title": "no id"}', "E_IDENTITY"),
        ('{"id": ""}', "E_IDENTITY"),
        ('{"id": "a\\u0000b"}', "E_IDENTITY"),
        ('{"id": "a", "_secret": 1}', "E_NAME"),
        ('{"id": "a", "Title": 1, "title": "x"}', "E_NAME"),
        ('{"id": "a", "x": ' + "[" * 100 + "]" * 100 + "}", "E_DEPTH"),
    ],
)
def test_one_bad_object_is_exit_2_and_writes_nothing(run: Run, notes: Path, text: str, code: str) -> None:
    ran = run("put", "Note", text, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (2, "", code), ran.err
    assert ran.error["suggestion"]
    assert not (notes / "data").exists()


def test_the_schema_is_checked_with_all_problems_at_once(run: Run) -> None:
    ran = run("put", "Note", '{"id": "a", "size": "x", "status": "odd"}', "--json")
    assert ran.code == 2
    assert {finding["field"] for finding in ran.error["details"]["findings"]} == {"/size", "/status"}


def test_an_upsert_replaces_and_merge_changes_only_what_is_given(run: Run) -> None:
    run("put", "Note", NOTE)
    assert run("put", "Note", '{"id": "a", "status": "final"}', "--merge").line["updated"] == 1
    assert run("get", "Note", "a").line["title"] == "Ids"
    assert run("put", "Note", '{"id": "a", "status": "draft"}').line["updated"] == 1
    assert "title" not in run("get", "Note", "a").line


def test_a_replaced_record_says_which_fields_it_lost_and_what_brings_them_back(run: Run, notes: Path) -> None:
    whole = run("put", "Note", '{"id":"n1","title":"a","text":"b"}')
    same = run("put", "Note", '{"id":"n1","title":"c","text":"b"}')
    meant = run("put", "Note", '{"id":"n1","title":"c","text":null}', "--dry-run")
    assert "W_DROPPED" not in whole.err + same.err + meant.err
    ran = run("put", "Note", '{"id":"n1","title":"d"}')
    assert "W_DROPPED: Note n1: text was dropped" in ran.err
    assert run(*shlex.split(ran.err.split("`")[1])[1:]).line["updated"] == 1
    assert run("get", "Note", "n1").line["text"] == "b"
    git(notes, "init", "-q")
    commit(notes)
    proposed = run("propose", "--branch", "short", "put", "Note", '{"id":"n1","title":"e"}')
    words = shlex.split(proposed.err.split("`")[1])
    assert words[:4] == ["duckkb", "propose", "--branch", "short"] and run(*words[1:]).code == 0
    assert '"text":"b"' in git(notes, "log", "-1", "-p", "short")


def test_merge_with_null_takes_a_field_away(run: Run) -> None:
    run("put", "Note", NOTE)
    run("put", "Note", '{"id": "a", "title": null}', "--merge")
    assert "title" not in run("get", "Note", "a").line


def test_dk_08_a_put_that_changes_nothing_writes_nothing(run: Run, notes: Path) -> None:
    run("put", "Note", NOTE)
    before = tree_bytes(notes)
    receipt = run("put", "Note", NOTE).line
    assert (receipt["unchanged"], receipt["files"]) == (1, [])
    assert tree_bytes(notes) == before


def test_what_get_prints_can_be_put_back(run: Run) -> None:
    run("put", "Note", NOTE)
    line = run("get", "Note", "a").line | {"title": "New"}
    assert run("put", "Note", json.dumps(line)).line["updated"] == 1
    stale = run("put", "Note", json.dumps(line | {"title": "Newer"}), "--json")
    assert (stale.code, stale.error["code"]) == (1, "E_STALE")
    wrong_id = {"id": "a", "__id": 5, "title": "x"}
    assert run("put", "Note", json.dumps(wrong_id), "--json").error["code"] == "E_ID"


def test_a_line_of_a_record_that_was_deleted_says_who_deleted_it_and_how_it_comes_back(run: Run) -> None:
    run("put", "Note", json.dumps({"id": "a b", "title": "x"}))
    line = run("get", "Note", "a b").line
    run("delete", "Note", "a b")
    error = run("put", "Note", json.dumps(line), "--json").error
    assert error["code"] == "E_STALE" and "`duckkb log Note 'a b'`" in error["suggestion"]
    assert run("put", "Note", json.dumps({name: value for name, value in line.items() if name != "_etag"})).code == 0
    stale = run("put", "Note", json.dumps(line | {"title": "y", "_etag": "0" * 16}), "--json").error
    assert stale["suggestion"] == "duckkb get Note 'a b'"


def test_if_match_guards_put_and_delete(run: Run) -> None:
    etag = run("put", "Note", NOTE).line["etags"][0]
    assert run("put", "Note", '{"id": "a"}', "--if-match", "0000000000000000").code == 1
    assert run("put", "Note", '{"id": "new"}', "--if-match", etag).code == 1
    newer = run("put", "Note", '{"id": "a"}', "--if-match", etag)
    assert newer.code == 0
    assert run("delete", "Note", "a", "--if-match", etag).code == 1
    assert run("delete", "Note", "a", "--if-match", newer.line["etags"][0]).code == 0


def test_a_dry_run_says_what_would_change_and_as_a_patch_what_git_shows(run: Run, notes: Path) -> None:
    run("put", "Note", stdin='{"id": "a", "text": "一"}\n{"id": "b"}\n')
    commit(notes)
    before = tree_bytes(notes)
    brief = run("delete", "Note", "b", "--dry-run")
    shown = run("delete", "Note", "b", "--dry-run", "--format", "patch")
    assert tree_bytes(notes) == before
    assert brief.line["changes"] == [{"op": "delete", "type": "Note", "identity": "b"}] and brief.line["dry_run"]
    assert "dry run: 0 inserted, 0 updated, 1 deleted" in brief.err and "--format patch" in brief.err
    run("delete", "Note", "b")
    assert shown.out == git(notes, "diff")


def test_a_receipt_names_up_to_twenty_records_and_as_json_all(run: Run) -> None:
    def put(count: int, *form: str) -> dict[str, Any]:
        return run("put", "Note", *form, stdin="".join(f'{{"id": "书{n}"}}\n' for n in range(count))).line

    few, many, whole = put(20), put(21), put(21, "--json")
    assert few["identities"] == [f"书{n}" for n in range(20)] and len(few["etags"]) == len(few["ids"]) == 20
    assert (many["inserted"], many["unchanged"]) == (1, 20)
    assert not {"identities", "ids", "etags"} & many.keys()
    assert whole["identities"] == [f"书{n}" for n in range(21)] and whole["etags"][:20] == few["etags"]


def test_delete_of_what_is_not_there_is_exit_1_and_deletes_nothing(run: Run, notes: Path) -> None:
    run("put", "Note", NOTE)
    before = tree_bytes(notes)
    ran = run("delete", "Note", "a", "ghost", "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_NOT_FOUND")
    assert tree_bytes(notes) == before


def test_dk_23_a_node_with_edges_needs_cascade(run: Run, notes: Path) -> None:
    run("put", "Note", stdin='{"id": "a"}\n{"id": "b"}\n')
    run("put", "cites", '{"from": "a", "to": "b", "why": "因为"}')
    refused = run("delete", "Note", "b", "--json")
    assert (refused.code, refused.error["code"]) == (1, "E_EDGES")
    assert run("delete", "Note", "b", "--cascade").line["deleted"] == 2
    assert run("list", "Note").line["id"] == "a"
    assert run("list", "cites").out == ""


def test_dk_23_an_edge_needs_both_ends(run: Run) -> None:
    run("put", "Note", '{"id": "a"}')
    ran = run("put", "cites", '{"from": "a", "to": "ghost"}', "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_DANGLING_EDGE")
    assert "ghost" in ran.error["error"]


def test_cardinality_is_checked(run: Run) -> None:
    run("put", "Note", stdin='{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n')
    assert run("put", "about", '{"from": "a", "to": "b"}').code == 0
    ran = run("put", "about", '{"from": "a", "to": "c"}', "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_CARDINALITY")
    two = run("put", "about", stdin='{"from": "b", "to": "a"}\n{"from": "b", "to": "c"}\n')
    assert two.code == 1


def test_an_end_of_several_types_is_bare_where_it_is_clear(run: Run, notes: Path) -> None:
    run("put", "Note", '{"id": "a"}')
    run("put", "Person", '{"country": "CH", "number": 7, "name": "Li 李"}')
    typed = run("put", "about", '{"from": "a", "to": {"type": "Person", "id": ["CH", 7]}}')
    assert typed.line["identities"] == [["a", ["CH", 7]]]
    bare = run("put", "about", '{"from": "a", "to": ["CH", 7]}')
    assert bare.line["unchanged"] == 1
    assert '"to":["CH",7]' in next((notes / "data/edges/about").rglob("*.jsonl")).read_text("utf-8")


def test_composite_identities_are_json_arrays_on_the_command_line(run: Run) -> None:
    run("put", "Person", '{"country": "CH", "number": 7, "name": "Li"}')
    assert run("get", "Person", '["CH", 7]').line["name"] == "Li"
    assert run("get", "Person", '["CH", "7"]').line["name"] == "Li"
    assert run("get", "Person", "CH").code == 2


def test_a_record_goes_by_one_word_wherever_a_verb_takes_one(run: Run, notes: Path) -> None:
    for name in ("a", "b/c", "d"):
        run("put", "Note", json.dumps({"id": name, "title": f"alpha {name}"}))
    run("put", "Person", '{"country": "cn", "number": 1, "name": "Ann"}')
    run("put", "cites", '{"from": "a", "to": "b/c"}')
    commit(notes)
    for pair, word in (
        (("Note", "a"), "Note/a"),
        (("note", "b/c"), "note/b/c"),
        (("Note", "b/c"), "duckkb://Note/b%2Fc"),
        (("Person", '["cn",1]'), 'Person/["cn",1]'),
        (("cites", '["a","b/c"]'), 'cites/["a","b/c"]'),
    ):
        for verb, rest in ((["get"], []), (["log"], []), (["blame"], []), (["why"], ["alpha"])):
            plain, short = run(*verb, *pair, *rest), run(*verb, word, *rest)
            assert plain.code == 0 and (short.code, short.out) == (0, plain.out), (verb, word)
    for word, pair in (("Note/a", ("Note", "a")), ("Note/b/c", ("Note", "b/c"))):
        for verb in ("neighbors", "citing"):
            assert run("graph", verb, word).out == run("graph", verb, *pair).out
    edge = run("graph", "path", "Note", "a", "Note", "b/c").out
    assert edge and run("graph", "path", "Note/a", "Note/b/c").out == edge
    assert run("graph", "path", "Note/a", "Note", "b/c").out == edge
    assert run("blame", "Note/a", "title").out == run("blame", "Note", "a", "title").out
    assert run("rename", "Note/d", "Note/e").line["identities"] == ["e"]
    assert run("rename", "Note", "e", "Note/f").line["identities"] == ["Note/f"], "an identity may look like a record"
    run("put", "Note", '{"id": "g"}')
    assert run("delete", "Note/Note/f", "Note/g").line["deleted"] == 2
    assert run("log", "duckkb://Note/a@HEAD").code == 2, "which version is looked at would be passed over"
    assert "Nope" in run("log", "Nope/a").err


def test_dk_09_rename_keeps_the_id_and_takes_the_edges_along(run: Run) -> None:
    run("put", "Note", stdin='{"id": "a"}\n{"id": "b"}\n')
    before = run("get", "Note", "a").line["__id"]
    run("put", "cites", '{"from": "b", "to": "a"}')
    assert run("rename", "Note", "a", "z").line["updated"] == 2
    assert run("get", "Note", "z").line["__id"] == before
    assert run("get", "Note", "a").code == 1
    assert run("get", "cites", '["b", "z"]').code == 0
    assert run("check").code == 0
    assert run("rename", "Note", "z", "b").code == 1
    again = run("put", "Note", '{"id": "a"}').line
    assert again["inserted"] == 1 and again["ids"] != [before], "the old name is free again, its id is not"
    assert run("check").code == 0


def test_list_pages_in_the_order_of_identities(run: Run) -> None:
    run("put", "Note", stdin="".join(json.dumps({"id": f"n{number}"}) + "\n" for number in range(7)))
    first = run("list", "Note", "--limit", "3")
    assert [line["id"] for line in first.lines] == ["n0", "n1", "n2"]
    assert "--after" in first.err
    second = run("list", "Note", "--limit", "100", "--after", "n2")
    assert [line["id"] for line in second.lines] == ["n3", "n4", "n5", "n6"]
    assert second.err == ""
    assert run("list", "Note", "--limit", "0").code == 2
    assert run("list", "Note", "--json").line["total"] == 7


def test_list_and_count_take_a_filter_and_say_where_it_meets_nothing(run: Run) -> None:
    run(
        "put",
        "Note",
        stdin="".join(json.dumps({"id": f"n{at}", "size": at, "title": "Alpha"}) + "\n" for at in range(9)),
    )
    run("put", "Note", '{"id": "without"}')
    first = run("list", "Note", "-w", "size >= 4", "-l", "3")
    assert [line["id"] for line in first.lines] == ["n4", "n5", "n6"] and "3 of 5" in first.err
    rest = run("list", "Note", "-w", "size >= 4", "--after", "n6", "--json").line
    assert [record["id"] for record in rest["records"]] == ["n7", "n8"] and (rest["total"], rest["next"]) == (5, None)
    assert [line["id"] for line in run("list", "Note", "-w", "size >= 4", "--after", "m").lines] == [
        "n4",
        "n5",
        "n6",
        "n7",
        "n8",
    ]
    assert run("count", "Note", "-w", "size >= 4").line["count"] == 5
    for verb in ("list", "count"):
        assert "-w \"title = 'Alpha'\"" in run(verb, "Note", "-w", "title = 'alpha'").err, verb
        assert "1 record is left out" in run(verb, "Note", "-w", "size <> 4").err, verb
        assert run(verb, "Note", "-w", "sise = 4").code == 2


def test_import_maps_fields_and_leaves_its_files_alone(run: Run, notes: Path) -> None:
    source = notes.parent / "edges.jsonl"
    source.write_text('{"source": "a", "target": "b", "why": "x"}\n{"source": "b", "target": "a"}\n', "utf-8")
    run("put", "Note", stdin='{"id": "a"}\n{"id": "b"}\n')
    before = source.read_bytes()
    args = ("import", "cites", str(source), "--map", "from=source", "--map", "to=target")
    assert run(*args).line["inserted"] == 2
    commit(notes)
    assert run(*args).line["unchanged"] == 2
    assert git(notes, "status", "--short") == ""
    assert source.read_bytes() == before, "DK-25"


def test_import_reports_every_bad_line_and_imports_nothing(run: Run, notes: Path) -> None:
    source = notes.parent / "bad.jsonl"
    source.write_bytes(b'{"id": "a"}\n{"id": 5}\n\xff\n{"id": "b"}\n{"id": "c", "size": 1.5}\n')
    ran = run("import", "Note", str(source), "--json")
    assert ran.code == 1
    assert {finding["line"] for finding in ran.error["details"]["findings"]} == {2, 3, 5}
    assert all(finding["path"] == str(source) for finding in ran.error["details"]["findings"])
    assert not (notes / "data").exists()
    assert run("import", "Note", str(notes.parent / "absent.jsonl"), "--json").error["code"] == "E_PATH"


def test_export_round_trips_through_import_with_times_kept(run: Run, notes: Path, tmp_path: Path) -> None:
    run("put", "Note", stdin='{"id": "a", "text": "一"}\n{"id": "b", "size": 3}\n')
    file = tmp_path / "notes.jsonl"
    assert run("export", "Note", "-o", str(file)).out == ""
    assert run("export", "Note", "-o", str(file), "--json").error["code"] == "E_PATH"
    other = make_base(tmp_path / "other", NOTES)
    assert run_in(other, ["import", "Note", str(file)]).line["inserted"] == 2
    ours, theirs = run("list", "Note").lines, run_in(other, ["list", "Note"]).lines
    assert ours == theirs


def test_a_type_goes_by_name_table_or_label(run: Run) -> None:
    run("put", "note", '{"id": "a"}')
    assert run("get", "NOTE", "a").line["_type"] == "Note"
    ran = run("get", "Nte", "a", "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_UNKNOWN_TYPE")
    assert "did you mean Note?" in ran.error["error"]


def test_options_work_before_and_after_the_verb(notes: Path, tmp_path: Path) -> None:
    for args in (["--kb", str(notes), "--json", "schema", "Note"], ["schema", "Note", "--json", "--kb", str(notes)]):
        assert run_in(tmp_path, args).line["title"] == "Note"
    lost = run_in(tmp_path, ["schema", "--json"])
    assert (lost.code, lost.error["code"]) == (1, "E_NO_KB")


def test_mass_deletion_needs_allow_shrink(run: Run) -> None:
    run("put", "Note", stdin="".join(json.dumps({"id": f"n{number:02}"}) + "\n" for number in range(30)))
    names = [f"n{number:02}" for number in range(21)]
    ran = run("delete", "Note", *names, "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_SHRINK")
    assert run("delete", "Note", *names[:20]).line["deleted"] == 20
    assert run("delete", "Note", *[f"n{number:02}" for number in range(20, 30)]).line["deleted"] == 10


def test_in_a_sandbox_only_paths_inside_the_base_are_granted(run: Run, notes: Path, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.jsonl", notes / "inside.jsonl"
    for file in (outside, inside):
        file.write_text('{"id": "a"}\n', "utf-8")
    env = {"DUCKKB_SANDBOX": "1"}
    refused = run("import", "Note", str(outside), "--json", env=env)
    assert (refused.code, refused.error["code"]) == (2, "E_PATH")
    assert run("import", "Note", str(inside), env=env).line["inserted"] == 1
    assert run("export", "Note", "-o", str(tmp_path / "x.jsonl"), env=env).code == 2


def test_one_identity_in_several_lines_says_which_line_is_stored(run: Run, notes: Path, tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    lines = [
        {"id": "二", "title": "1"},
        {"id": "二", "title": "2"},
        {"id": "same", "title": "x"},
        {"id": "same", "title": "x"},
    ]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    done = run("import", "Note", str(file))
    assert [done.line[name] for name in ("inserted", "updated", "unchanged")] == [2, 1, 1]
    assert "W_REPLACED" in done.err and f"{file}:2 replaces {file}:1" in done.err and f"{file}:3" not in done.err
    assert run("get", "Note", "二").line["title"] == "2"
    merged = run("put", "Note", "--merge", stdin='{"id":"new","title":"t"}\n{"id":"new","text":"x"}\n')
    assert (merged.line["inserted"], merged.line["updated"], merged.err) == (1, 1, "")
