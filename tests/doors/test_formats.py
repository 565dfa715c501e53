"""`--format`: every verb in every format, read back by readers that know nothing of duckkb."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, commit, make_base, run_in
from tests.harness.waiting import HANG_S
from tests.read_tables import read_csv, read_markdown, read_table, same, spread

RECORDS: list[dict[str, Any]] = [
    {"id": "a", "title": "plain", "size": 3, "tags": ["x", "y,z"], "more": {"k": [1, None, "|"], "名": "值"}},
    {
        "id": "duck",
        "title": '🦆 `a|b` \\| "q"',
        "text": "one\r\ntwo\rthree\n\nfour\u2028five\t*six* <br> __seven__ &amp;",
    },
    {"id": "p|q", "title": "=1+1", "text": ""},
    {"id": "zh", "title": "备份", "text": "备份是数据在另一处的副本，用来在丢失之后恢复。" * 3, "size": -1},
]
LAST = {"country": "ZZ", "number": 1, "name": "the last", "only_here": "found"}
WIDE = {"COLUMNS": ""}  # as where neither the environment nor a terminal says how wide it is
VERBS = {
    "get": ["get", "Note", "duck"],
    "list": ["list", "Note"],
    "find": ["find", "Note", "备份", "-m"],
    "sql": ["sql", "SELECT id, size, title, tags, size IS NULL AS unknown FROM note ORDER BY id"],
    "graph neighbors": ["graph", "neighbors", "Note", "a"],
    "schema": ["schema"],
    "export": ["export", "Note"],
    "status": ["status"],
    "config show": ["config", "show"],
    "a receipt": ["put", "Note", json.dumps(RECORDS[0])],
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("formats") / "kb", NOTES)
    notes = "".join(json.dumps(record) + "\n" for record in RECORDS)
    assert run_in(root, ["put", "Note"], stdin=notes).line["inserted"] == 4
    people = [{"country": "AA", "number": number, "name": f"n{number}"} for number in range(999)]
    lines = "".join(json.dumps(person) + "\n" for person in [*people, LAST])
    assert run_in(root, ["import", "Person", "-"], stdin=lines).line["inserted"] == 1000
    assert run_in(root, ["put", "cites", '{"from": "a", "to": "zh", "why": "it|says"}']).code == 0
    assert run_in(root, ["status"]).code == 0  # SQLite takes in what the writes left beside the store: sizes rest then
    return root


@pytest.mark.parametrize("verb", VERBS)
def test_csv_says_what_the_default_says(base: Path, verb: str) -> None:
    default = run_in(base, VERBS[verb])
    table = run_in(base, [*VERBS[verb], "--format", "csv"])
    assert table.code == default.code == 0
    header, *rows = read_csv(table.out)
    assert len(rows) == len(default.lines) > 0
    assert all(same(cells, header, record) for cells, record in zip(rows, default.lines, strict=True))
    assert set(header) == {name for record in default.lines for name in record}
    assert "\r\n" not in table.out.replace("one\r\ntwo", ""), "lines end in LF"


@pytest.mark.parametrize("verb", ["list", "status", "config show", "a receipt"])
def test_the_default_is_jsonl_byte_by_byte(base: Path, verb: str) -> None:
    assert run_in(base, [*VERBS[verb], "--format", "jsonl"]) == run_in(base, VERBS[verb])


@pytest.mark.parametrize("verb", ["list", "schema"])
def test_md_and_a_table_say_what_jsonl_says(base: Path, verb: str) -> None:
    records = run_in(base, VERBS[verb]).lines
    header, *rows = read_markdown(run_in(base, [*VERBS[verb], "--format=md"]).out)
    assert [same(cells, header, record) for cells, record in zip(rows, records, strict=True)] == [True] * len(records)
    ran = run_in(base, ["--format", "table", *VERBS[verb]], env=WIDE)
    names, *drawn = read_table(ran.out)
    assert (names, len(drawn), ran.err) == (header, len(records), "")
    assert "\x1b" not in ran.out and "\r" not in ran.out
    plain = [number for number, record in enumerate(records) if record.get("id") != "duck"]
    assert all(same(drawn[number], names, records[number]) for number in plain)


def plain_names(record: dict[str, Any], above: str = "") -> Iterator[str]:
    """The fields of a result by dotted names, those of an object inside it instead of the object."""
    for name, value in record.items():
        yield from plain_names(value, f"{above}{name}.") if isinstance(value, dict) and value else [f"{above}{name}"]


def test_a_table_of_one_result_has_its_lists_of_objects_as_tables_and_no_json(base: Path) -> None:
    plan = run_in(base, ["index", "plan"]).line
    out = run_in(base, ["index", "plan", "--format", "table"], env=WIDE).out
    (rows, types), names = out.split("\n\ntypes\n"), [name for name in plan if name != "types"]
    assert [name for name, _ in read_table(rows)[1:]] == names and not {"{", "["} & {*out}
    header, *drawn = read_table(types)
    assert header == list(plan["types"][0]) and [row[0] for row in drawn] == [one["type"] for one in plan["types"]]


@pytest.mark.parametrize("verb", ["get", "status", "a receipt"])
def test_a_table_of_one_result_has_a_row_a_field(base: Path, verb: str) -> None:
    record = run_in(base, VERBS[verb]).line
    drawn, _, tables = run_in(base, [*VERBS[verb], "--format", "table"], env=WIDE).out.partition("\n\n")
    header, *rows = read_table(drawn)
    assert header == ["field", "value"] and [name for name, _ in rows] == list(plain_names(record)) and tables == ""
    assert len(read_markdown(run_in(base, [*VERBS[verb], "--format", "md"]).out)) == 2


def test_json_is_one_object_with_the_metadata_and_the_same_as_the_flag(base: Path) -> None:
    for args, key in ((VERBS["list"], "total"), (VERBS["sql"], "columns"), (VERBS["find"], "engine")):
        assert key in run_in(base, [*args, "--format", "json"]).line
    assert run_in(base, ["--format", "json", *VERBS["list"]]).out == run_in(base, [*VERBS["list"], "--json"]).out
    assert [record["id"] for record in run_in(base, ["export", "Note", "--json"]).line["records"]] == [
        record["id"] for record in RECORDS
    ]


@pytest.mark.parametrize(("form", "read"), [("csv", read_csv), ("md", read_markdown), ("table", read_table)])
def test_a_field_of_the_last_of_a_thousand_records_has_its_column(base: Path, form: str, read: Any) -> None:
    ran = run_in(base, ["list", "Person", "-l", "2000", "--format", form], env=WIDE)
    header, *rows = read(ran.out)
    assert len(rows) == 1000 and header.index("only_here") < header.index("_etag"), header
    column = [row[header.index("only_here")] for row in rows]
    assert column == [""] * 999 + ["found"]
    assert [row[header.index("name")] for row in rows] == [*(f"n{number}" for number in range(999)), "the last"]


def test_a_table_fits_the_terminal_and_says_what_it_cut(base: Path) -> None:
    statement = ["sql", "SELECT id, size, text FROM note ORDER BY id", "--format", "table"]
    ran = run_in(base, statement, env={"COLUMNS": "40"})
    lines = ran.out.split("\n")
    assert max(spread(line) for line in lines) == 40 and lines[1] == f"{'-' * 4}  {'-' * 4}  {'-' * 28}"
    assert [line.count("…") for line in lines if line][2:] == [0, 1, 0, 1] and "cells shortened to fit: 2" in ran.err
    assert lines[2].split() == ["a", "3"] and lines[2].index("3") == 9, "numbers stand to the right"


STEERING = "SELECT chr(27) || '[31m' AS a, chr(8238) || chr(8203) AS b, chr(65279) || chr(917569) AS c"


@pytest.mark.parametrize("form", ["csv", "table"])
def test_on_a_terminal_no_format_steers_it_or_has_colours(base: Path, form: str) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    command = [sys.executable, "-m", "duckkb", "sql", STEERING, "--format", form]
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        command, cwd=base, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=env
    ) as ran:
        os.close(follower)
        out = b""
        try:
            while piece := os.read(leader, 65_536):
                out += piece
        except OSError:  # the other end is gone
            pass
        assert ran.wait(HANG_S) == 0
    os.close(leader)
    assert b"\x1b" not in out and b"\\u001b" in out and b"\\u200b" in out
    assert not re.search("[\u202e\u200b\ufeff\U000e0041]", out.decode())


@pytest.mark.long
def test_a_reader_that_has_enough_is_success_in_every_format(base: Path) -> None:
    duckkb = f"{sys.executable} -m duckkb list Person -l 1000 --format"
    script = "; ".join(
        f"{duckkb} {form} | head -c 10 >&3; echo ${{PIPESTATUS[0]}}" for form in ("jsonl", "json", "csv", "md", "table")
    )
    done = subprocess.run(["bash", "-c", f"exec 3>/dev/null; {script}"], cwd=base, capture_output=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([b"0"] * 5, b"")


def test_without_records_nothing_is_printed_but_columns_that_are_known(base: Path) -> None:
    assert [run_in(base, ["list", "about", "--format", form]).out for form in ("csv", "md", "table")] == [""] * 3
    ran = run_in(base, ["find", "Note", "zebra", "-m", "--format", "csv"])
    assert (ran.code, ran.out) == (1, "") and "no results" in ran.err
    nothing = ["sql", "SELECT id, id, size FROM note WHERE false", "--format"]
    assert run_in(base, [*nothing, "csv"]).out == "id,id_1,size\n"
    assert run_in(base, [*nothing, "md"]).out == "| id | id_1 | size |\n| --- | --- | --- |\n"


def test_columns_of_one_name_are_all_printed(base: Path) -> None:
    assert run_in(base, ["sql", "SELECT 1 AS a, 2 AS a_1, 3 AS a"]).out == '{"a":1,"a_1":2,"a_2":3}\n'


def test_check_has_text_for_people_and_the_other_formats(notes: Path) -> None:
    part = notes / "data/nodes/note/20260101/part_000.jsonl"
    part.parent.mkdir(parents=True)
    part.write_text('{"id":"a|b"\nnot json\n', "utf-8")
    text, lines = run_in(notes, ["check"]), run_in(notes, ["check", "--format", "jsonl"])
    assert run_in(notes, ["check", "--format", "text"]).out == text.out and ":1" in text.out
    whole = run_in(notes, ["check", "--format", "json"])
    assert {text.code, lines.code, whole.code} == {1} and whole.line["findings"] == lines.lines
    header, *rows = read_csv(run_in(notes, ["check", "--format", "csv"]).out)
    assert all(same(cells, header, record) for cells, record in zip(rows, lines.lines, strict=True)) and rows


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["list", "Note", "--format", "cvs"], "Did you mean csv?"),
        (["list", "Note", "--format", "TABLE"], "Did you mean table?"),
        (["list", "Note", "--format", "xml"], "jsonl, json, csv, md, table"),
        (["list", "Note", "--format", "text"], "Unknown format"),
        (["--format", "jsnol", "list", "Note"], "Did you mean jsonl?"),
        (["list", "Note", "--json", "--format", "csv"], "contradict"),
        (["--format", "csv", "list", "Note", "--json"], "contradict"),
        (["embed", "x", "--format", "csv"], "a vector cannot be printed as csv"),
        (["schema", "Note", "--format", "md"], "a schema"),
        (["put", "Note", '{"id": "new"}', "--dry-run", "--format", "table"], "a dry run"),
        (["list", "Note", "--format", "patch"], "Unknown format"),
        (["export", "Note", "-o", "out.csv", "--format", "csv"], "-o"),
    ],
)
def test_a_format_that_is_wrong_is_refused_with_what_is_right(base: Path, args: list[str], said: str) -> None:
    ran = run_in(base, args)
    assert (ran.code, ran.out) == (2, "") and said in ran.err, ran.err
    assert not (base / "out.csv").exists()


@pytest.mark.parametrize("verb", ["list", "search", "query", "multi-get", "diff"])
def test_the_help_of_a_verb_names_each_format_once(base: Path, verb: str) -> None:
    text = " ".join(run_in(base, [verb, "--help"]).out.split())
    (listed,) = re.findall(r"How results are printed: ([^.]+)\.", text)
    names = re.findall(r"\w+", re.sub(r"\(.*?\)", "", listed))
    assert len(names) >= 4 and sorted(names) == sorted(set(names))


def test_with_format_json_errors_are_objects_too(base: Path) -> None:
    for args in (["get", "Note", "ghost", "--format", "json"], ["--format=json", "get", "Note", "ghost"]):
        ran = run_in(base, args)
        assert (ran.code, ran.error["code"]) == (1, "E_NOT_FOUND")
    assert run_in(base, ["lst", "--format", "json"]).error["code"] == "E_USAGE"
    assert run_in(base, ["get", "Note", "--", "--json"]).err.startswith("duckkb: "), "that is an identity"


ACTING = "@org/team www.example.org #12 <b>x</b> \u202e\u200b\ufeff\U000e0041"


def test_nothing_in_a_markdown_table_links_mentions_or_hides(notes: Path) -> None:
    run_in(notes, ["put", "Note", json.dumps({"id": "a", "title": ACTING})])
    out = run_in(notes, ["list", "Note", "--format", "md"]).out
    assert "| `@org/team www.example.org #12 <b>x</b> \\u202e\\u200b\\ufeff\\U000e0041` |" in out
    assert not re.search("@|www|[\u202e\u200b\ufeff\U000e0041]", re.sub("`[^`]*`", "", out))


COMMAND = "::error file=README.md::owned"


@pytest.mark.long
@pytest.mark.parametrize("text", [f"fine\n  {COMMAND}", "in the middle ##[error]owned"])
def test_no_line_for_people_is_a_command_to_a_forge_and_csv_there_goes_to_a_file(notes: Path, text: str) -> None:
    run_in(notes, ["put", "Note", json.dumps({"id": "a", "title": text})])
    job = {"GITHUB_ACTIONS": "true", "PYTHONHASHSEED": "0"}  # the second: with pipes, as a job has them
    told = [["list", "Note", "--format", form] for form in ("jsonl", "json", "md", "table")]
    for args in (*told, ["diff"], ["why", "Note", "a", text], ["get", "Note", COMMAND]):
        ran = run_in(notes, args, env=job)
        assert not re.search(r"^\s*::|##\[", ran.out + ran.err, re.MULTILINE), (args, ran)
    assert run_in(notes, told[0], env=job).line["title"] == text
    commit(notes)
    run_in(notes, ["put", "Note", json.dumps({"id": "a", "title": f"{text}\nand a line of more words"})])
    comment = ["diff", "--format", "md"]
    assert not re.search(r"^\s*::|##\[", run_in(notes, comment, env=job).out, re.MULTILINE)
    refused = run_in(notes, ["list", "Note", "--format", "csv"], env=job)
    assert (refused.code, refused.out) == (1, "") and "> FILE" in refused.err
    assert text in run_in(notes, ["list", "Note", "--format", "csv"]).out
