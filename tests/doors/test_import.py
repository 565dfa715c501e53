"""import takes what people have: CSV and TSV, JSON arrays and documents, Parquet, and says what it made of them."""

import json
import os
import pty
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckkb.operations.source_files import ColumnTypes, ImportRequest, TextTable
from tests.conftest import Run, commit, git
from tests.harness.waiting import HANG_S


@pytest.fixture
def rows(run: Run) -> str:
    """A collection without a schema."""
    assert run("col", "init", "rows", "--policy", "knowledge-base").code == 0
    return "rows"


def stored(run: Run, type: str) -> list[dict[str, Any]]:
    lines = run("export", type).lines
    return [{name: value for name, value in line.items() if not name.startswith("__")} for line in lines]


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_columns_of_csv_get_the_types_that_their_cells_say_exactly(run: Run, rows: str, tmp_path: Path) -> None:
    text = (
        "\ufeffid,n,price,zip,ok,day,big,mixed,note\r\n"
        'a,1,1.50,01234,true,2026-01-31,99999999999999999999,1,"two\r\nlines, ""quoted"""\r\n'
        "b,-2,3,12345,FALSE,2026-02-01,1,x,\r\n"
    )
    receipt = run("import", rows, write(tmp_path, "t.csv", text)).line
    assert receipt["inserted"] == 2
    assert receipt["types"] == {
        "id": "text", "n": "integer", "price": "number", "zip": "text", "ok": "boolean", "day": "date", "big": "text",
        "mixed": "text", "note": "text",
    }  # fmt: skip
    assert stored(run, rows) == [
        {"id": "a", "big": "99999999999999999999", "day": "2026-01-31", "mixed": "1", "n": 1, "note": 'two\r\nlines, "quoted"',
         "ok": True, "price": 1.5, "zip": "01234"},
        {"id": "b", "big": "1", "day": "2026-02-01", "mixed": "x", "n": -2, "ok": False, "price": 3, "zip": "12345"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("t.csv", "id;name\na;M\u00fcller\n", ()),
        ("t.tsv", "id\tname\na\tM\u00fcller\n", ()),
        ("t.txt", "id|name\na|M\u00fcller\n", ()),
        ("t.csv", "id,name\na,M\u00fcller\n".encode("utf-16"), ()),
        ("t.csv", "id,name\na,M\u00fcller\n".encode("cp1252"), ("--encoding", "cp1252")),
        ("t.json", '[{"id": "a",\n "name": "M\u00fcller"}]', ()),
        ("t.json", '{"data": {"items": [{"id": "a", "name": "M\u00fcller"}], "n": 1}}', ("--records", "data.items")),
        ("t.json", '{\n"id": "a",\n"name": "M\u00fcller"\n}', ()),
        ("t.json", '{"id": "a", "name": "M\u00fcller"}\n\n', ()),
        ("t.ndjson", '{"id": "a", "name": "M\u00fcller"}\n', ()),
        ("t", '[{"id": "a", "name": "M\u00fcller"}]', ()),
    ],
)
def test_the_form_of_a_file_follows_from_its_name_and_content(
    run: Run, rows: str, tmp_path: Path, name: str, content: str | bytes, options: tuple[str, ...]
) -> None:
    ran = run("import", rows, write(tmp_path, name, content), *options)
    assert ran.code == 0, ran.err
    assert stored(run, rows) == [{"id": "a", "name": "M\u00fcller"}]


@pytest.mark.parametrize(
    ("name", "text"), [("t.csv", "id,name\na,caf\u00e9\n"), ("t.json", '{"id": "a", "name": "caf\u00e9"}')]
)
def test_of_a_few_letters_no_rare_code_page_is_guessed(
    run: Run, rows: str, tmp_path: Path, name: str, text: str
) -> None:
    file = write(tmp_path, name, text.encode("cp1252"))
    ran = run("import", rows, file, "--json")
    assert ran.code == 1 and ran.error["suggestion"] == f"duckkb import {rows} {file} --encoding cp1252"


def test_csv_and_json_come_on_stdin_too(run: Run, rows: str) -> None:
    assert run("import", rows, "-", stdin="id,n\na,1\n").line["inserted"] == 1
    assert run("import", rows, "-", stdin='[{"id": "b", "n": 2}]').line["inserted"] == 1
    assert stored(run, rows) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_parquet_comes_with_its_types(run: Run, rows: str, tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "n": [1, None], "x": [0.5, float("nan")], "tags": [["p"], []]})
    pq.write_table(table, tmp_path / "t.parquet")
    receipt = run("import", rows, str(tmp_path / "t.parquet")).line
    assert receipt["types"] == {"id": "text", "n": "integer", "x": "number", "tags": "json"}
    assert stored(run, rows) == [{"id": "a", "n": 1, "tags": ["p"], "x": 0.5}, {"id": "b", "tags": []}]


def test_a_schema_or_the_caller_decides_the_type_of_a_column(run: Run, rows: str, tmp_path: Path) -> None:
    file = write(tmp_path, "t.csv", 'id,title,size,tags\n1,2,3,"[""x""]"\n')
    assert run("import", "Note", file).code == 0
    assert stored(run, "Note") == [{"id": "1", "size": 3, "tags": ["x"], "title": "2"}]
    assert run("import", rows, file, "--type-of", "id=text", "--type-of", "size=text").code == 0
    assert stored(run, rows) == [{"id": "1", "size": "3", "tags": '["x"]', "title": 2}]
    refused = run("import", rows, file, "--type-of", "title=boolean", "--type-of", "tags=integer")
    assert refused.code == 1 and ":2 E_SCHEMA /title: '2' is not a boolean" in refused.err
    unknown = run("import", rows, file, "--type-of", "sise=text")
    assert unknown.code == 2 and "no table has the column 'sise'" in unknown.err


def test_an_identity_is_made_of_fields_also_of_nested_ones(run: Run, rows: str, tmp_path: Path) -> None:
    records = [{"k": {"a": "x", "b": 1}, "t": "one"}, {"k": {"a": "x", "b": 2}, "t": "two"}]
    file = write(tmp_path, "t.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert run("import", rows, file, "--id", "k.a,k.b").line["inserted"] == 2
    assert [record["id"] for record in stored(run, rows)] == ["x-1", "x-2"]
    assert run("import", rows, file, "--map", "id=k.b", "--map", "text=t").code == 0
    assert [record for record in stored(run, rows) if record["id"] == "1"] == [
        {"id": "1", "k": {"a": "x"}, "text": "one"}
    ]
    refused = run("import", rows, file, "--id", "k.a")
    assert (
        refused.code == 1
        and "t.jsonl:2 E_IDENTITY" in refused.err
        and "t.jsonl:1, 'x', and other values" in refused.err
    )


@pytest.mark.parametrize("option", [("--map", "id=kee"), ("--id", "kee"), ("--map", "id=k.ee")])
def test_a_source_that_no_record_has_is_refused(run: Run, rows: str, tmp_path: Path, option: tuple[str, str]) -> None:
    file = write(tmp_path, "t.jsonl", '{"key": "a", "k": {"e": 1}}\n')
    ran = run("import", rows, file, *option)
    assert ran.code == 2 and "no record has the field" in ran.err
    assert not stored(run, rows)


def test_a_file_without_ids_that_is_imported_again_is_not_doubled(run: Run, rows: str, tmp_path: Path) -> None:
    file = write(tmp_path, "t.csv", "customer_id,name\nC1,Ann\nC2,Bob\nC2,Bob\n")
    first = run("import", rows, file)
    assert (first.line["inserted"], first.line["generated_ids"]) == (3, 3) and "W_GENERATED_ID" in first.err
    assert run("import", rows, file).line["unchanged"] == 3
    assert len(stored(run, rows)) == 3


def test_a_file_in_which_no_field_is_a_key_is_answered_with_its_import_and_a_place_for_the_fields(
    run: Run, rows: str, tmp_path: Path
) -> None:
    said = run("import", rows, write(tmp_path, "t.csv", "title,topic\nA,x\nA,y\nB,x\n"), "--dry-run").err
    (command,) = re.findall("`duckkb (import .+ --id FIELD)`", said)
    assert run(*command.replace("FIELD", "title,topic").split()).line["inserted"] == 3


def test_the_refusal_for_want_of_an_id_names_the_field_that_tells_records_apart(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "t.csv", "name,customer_id\n" + "".join(f"Ann,C{n}\n" for n in range(500)))
    ran = run("import", "Note", file)
    assert ran.code == 1 and len(ran.err.splitlines()) <= 5
    (command,) = [line.removeprefix("  try: duckkb ") for line in ran.err.splitlines() if line.startswith("  try: ")]
    assert command.endswith("--id customer_id")
    assert run(*command.split()).line["inserted"] == 500


def test_findings_that_differ_fill_no_more_than_a_screen(run: Run, tmp_path: Path) -> None:
    records = [{"id": f"n{n}", f"_{n}": 1} for n in range(100)]
    file = write(tmp_path, "t.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    ran = run("import", "Note", file)
    assert ran.code == 1 and len(ran.err.splitlines()) <= 40 and "64 more" in ran.err
    assert len(run("import", "Note", file, "--json").error["details"]["findings"]) == 100


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", "id,a\nx,1\ny,1,2\nz,1\n", "t.csv:3 E_ROWS: the row has 3 cells, the header has 2"),
        ("t.csv", 'id,a\nx,1\ny,"open\n', "t.csv:3 E_ROWS: the row cannot be read"),
        ("t.csv", b"id,a\nx,\xe9t\xe9\n", "t.csv:2 is not UTF-8"),
        ("t.csv", "id,a,a\nx,1,2\n", "the column 'a' twice"),
        ("t.parquet", "PAR1 no more", "cannot be read as Parquet"),
        ("t.json", '{"export": 1, "tickets": [{"id": "a"}]}', "--records tickets"),
        ("t.json", '[{"id": "a"},\n{"id": }]', "t.json:2 E_JSON"),
        ("t.json", '[{"id": "a"},\n5]', "t.json:2 E_JSON"),
        ("t.xlsx", b"PK\x03\x04\x00\x00,\n", "t.xlsx"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    run: Run, rows: str, tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    ran = run("import", rows, write(tmp_path, name, content))
    assert ran.code in (1, 2) and said in ran.err, ran.err
    assert not stored(run, rows)


def test_a_dry_run_says_types_and_first_records_and_writes_nothing(run: Run, rows: str, tmp_path: Path) -> None:
    ran = run("import", rows, write(tmp_path, "t.csv", "id,n\na,1\nb,2\n"), "--dry-run")
    assert ran.code == 0 and [change["identity"] for change in ran.line["changes"]] == ["a", "b"]
    assert "types: id text, n integer" in ran.err and 'record: {"id": "a", "n": 1}' in ran.err
    assert "dry run: 2 inserted" in ran.err
    assert not stored(run, rows)


def test_a_dry_run_prints_a_short_receipt_of_what_would_change_and_the_patch_where_it_is_asked_for(
    run: Run, rows: str, tmp_path: Path
) -> None:
    table = "id,n\n" + "".join(f"r{number},{number}\n" for number in range(60))
    assert run("import", rows, write(tmp_path, "t.csv", table)).line["inserted"] == 60
    table = "id,n\n" + "".join(f"r{number},{number + 1}\n" for number in range(60))
    for verb in (("import", rows, write(tmp_path, "t.csv", table)), ("put", rows), ("put", rows, "--batch")):
        lines = "" if verb[0] == "import" else "".join(f'{{"id": "r{n}", "n": {n + 1}}}\n' for n in range(60))
        trial = run(*verb, "--dry-run", stdin=lines).line
        assert trial == run(*verb, "--dry-run", "--json", stdin=lines).line
        assert (trial["updated"], trial["dry_run"], trial["changes_left_out"]) == (60, True, 50)
        assert len(trial["changes"]) == 10 and "patch" not in trial
        assert trial["changes"][3] == {
            "op": "update", "type": rows, "identity": "r3", "fields": {"n": {"before": 3, "after": 4}}
        }  # fmt: skip
        patch = run(*verb, "--dry-run", "--format", "patch", stdin=lines)
        assert patch.out.startswith("diff --git") and patch.out.count("\n+{") == 60
    assert {line["id"]: line["n"] for line in stored(run, rows)} == {f"r{n}": n for n in range(60)}


def test_an_import_that_takes_longer_says_so_on_a_terminal(notes: Path) -> None:
    """What it imports has not come after two seconds."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "duckkb", "import", "Note", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=notes, stdin=pipe, stdout=pipe, stderr=follower) as ran:
        os.close(follower)
        told = b""
        while b"importing -: " not in told:
            told += os.read(leader, 65_536)
        out, _ = ran.communicate(b'{"id": "late"}\n', HANG_S)
        assert ran.returncode == 0 and json.loads(out)["inserted"] == 1
    os.close(leader)
    assert told.count(b"\n") == 1


@pytest.mark.long
def test_reading_a_table_takes_no_more_memory_for_more_rows(tmp_path: Path) -> None:
    """What is held of a file is one row: ten times the rows take the same memory, while types are inferred and rows made."""

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.csv"
        with path.open("w") as file:
            file.write("id,name,n\n")
            file.writelines(f"C{n},name number {n},{n}\n" for n in range(count))
        with path.open("rb") as file:
            tracemalloc.start()
            table = TextTable(path.name, file, "utf-8", ImportRequest("rows", (path.name,)), 1 << 20)
            types = ColumnTypes({})
            for _, cells in table.rows():
                types.note(table.columns, cells if isinstance(cells, list) else [])
            read = sum(1 for _, cells in table.rows() if isinstance(cells, list) and types.record(table.columns, cells))
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert read == count
        return most

    small, large = peak(2_000), peak(20_000)
    assert large < small + 100_000, (small, large)


def test_an_import_to_a_name_that_no_type_has_makes_a_collection_in_the_same_write(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "faq.csv", "id,question,answer\na,How long is it kept?,For thirty days.\n")
    dry = run("import", "faq", file, "--dry-run")
    assert "ontology/collections/faq.yaml" in dry.out and run("find", "faq", "kept").code == 1
    made = run("import", "faq", file)
    assert made.code == 0 and "W_NEW_COLLECTION: faq is a new collection" in made.err
    assert made.line["inserted"] == 1 and "ontology/collections/faq.yaml" in made.line["files"]
    assert made.line["types"] == {"id": "text", "question": "text", "answer": "text"}
    shown = run("col", "show", "faq").line
    assert (shown["policy"], shown["vectors"]) == ("knowledge-base", [{"field": "question"}, {"field": "answer"}])
    assert run("find", "faq", "kept", "-m").line["id"] == "a"
    again = run("import", "faq", file)
    assert again.line["unchanged"] == 1 and "W_NEW_COLLECTION" not in again.err
    removed = run("col", "rm", "faq", "--yes")
    assert removed.code == 0 and run("check").code == 0


def test_a_collection_that_an_import_would_make_is_not_there_where_the_import_fails(run: Run, tmp_path: Path) -> None:
    bad = write(tmp_path, "faq.jsonl", '{"id": "a", "_x": 1}\n')
    empty = write(tmp_path, "faq.csv", "id,question\n")
    assert run("import", "faq", bad).code == 1
    assert "the input has no record" in run("import", "faq", empty).err
    assert run("col", "list").lines == [] and run("check").code == 0


def test_a_slip_of_a_type_makes_no_collection(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "n.jsonl", '{"id": "a", "title": "A", "text": "b"}\n')
    for name in ("Notes", "nots"):
        ran = run("import", name, file)
        assert ran.code == 1 and "did you mean Note?" in ran.err
        assert ran.err.splitlines()[-1] == f"  try: duckkb col init {name} --policy knowledge-base"
    assert run("import", "main", file).code == 2
    assert run("col", "list").lines == []


def test_a_proposal_makes_no_collection(run: Run, notes: Path, tmp_path: Path) -> None:
    git(notes, "init", "-q")
    commit(notes)
    file = write(tmp_path, "n.jsonl", '{"id": "a", "text": "b"}\n')
    ran = run("propose", "import", "faq", file)
    assert ran.code == 1 and "no type 'faq' is committed" in ran.err


def test_records_that_are_there_under_their_own_key_are_not_added_once_more_under_a_made_one(
    run: Run, rows: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "t.csv", "no,customer,name\n1,C1,Ann\n2,C2,Bob\n3,,\n")
    assert run("import", rows, file, "--id", "no").line["inserted"] == 3
    again = run("import", rows, file)
    assert again.code == 1 and f"all 3 records are in {rows} already, under another id" in again.err
    assert again.err.splitlines()[-1] == f"  try: duckkb import {rows} {file} --id no"
    assert run(*again.err.splitlines()[-1].split()[2:]).line["unchanged"] == 3
    other = write(tmp_path, "o.csv", "no,customer,name\n1,C1,Ann\n4,C4,Eve\n")
    assert run("import", rows, other).line["inserted"] == 2, "one of them is new"


def test_records_that_are_there_under_made_ids_are_not_added_once_more_under_their_own(
    run: Run, tmp_path: Path
) -> None:
    text = "customer_code,name\n" + "".join(f"C{n},Ann {n}\n" for n in range(30))
    file = write(tmp_path, "t.csv", text)
    first = run("import", "customers", file)
    again = f"duckkb import customers {file} --id customer_code"
    assert f"(duckkb col rm customers --yes && {again})" in first.err
    for option in (("--id", "customer_code"), ("--map", "id=customer_code")):
        refused = run("import", "customers", file, *option)
        assert refused.code == 1 and "all 30 records are in customers already, under an id" in refused.err
        command = " ".join(["duckkb import customers", file, *option])
        assert refused.err.splitlines()[-1] == f"  try: duckkb col rm customers --yes && {command}"
    own = write(tmp_path, "own.csv", "id,customer_code,name\nx,C1,Ann 1\ny,C99,Eve\n")
    refused = run("import", "customers", own)
    made = next(record["id"] for record in stored(run, "customers") if record["customer_code"] == "C1")
    assert "1 of 2 records are in customers already" in refused.err
    assert refused.err.splitlines()[-1] == f"  try: duckkb delete customers {made} && duckkb import customers {own}"
    assert len(stored(run, "customers")) == 30
    assert run("put", "customers", json.dumps({"id": made, "mood": "glad"}), "--merge").code == 0
    refused = run("import", "customers", file, "--id", "customer_code")
    assert refused.code == 1 and " rm " not in refused.err and "delete" not in refused.err, (
        "what was edited since stays"
    )

    assert run("col", "rm", "customers", "--yes").code == 0
    assert run(*again.split()[1:]).line["inserted"] == 30
    assert run(*again.split()[1:]).line["unchanged"] == 30
    more = write(tmp_path, "more.csv", "customer_code,name\nC98,Eve\n")
    assert "(duckkb delete customers " in run("import", "customers", more).err, "others stay"


def test_an_object_with_the_identity_is_one_record_whatever_lists_it_has(run: Run, rows: str, tmp_path: Path) -> None:
    record = {"id": "t1", "comments": [{"id": "c1", "body": "a"}, {"id": "c2", "body": "b"}]}
    assert run("put", rows, json.dumps(record)).code == 0
    file = write(tmp_path, "t.json", json.dumps(run("get", rows, "t1").line, indent=1))
    assert run("import", rows, file).line["unchanged"] == 1 and stored(run, rows) == [record]
    numbered = write(tmp_path, "n.json", json.dumps({"no": 7, "comments": record["comments"]}))
    assert run("import", rows, numbered, "--id", "no").line["inserted"] == 1
    assert "--records comments" in run("import", rows, numbered).err, "nothing says that it is a record"
