"""`diff` and `apply` as processes, on a real repository."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import duckkb
from tests.conftest import NOTES, ROOT, commit, git, make_base, run_in, tree_bytes

pytestmark = pytest.mark.usefixtures("one_day")

SCHEMA = Draft202012Validator(json.loads((ROOT / "docs/diff.schema.json").read_text("utf-8")))
BEFORE = [
    {"id": "a", "title": "The quick red fox", "text": "一\n知识库\nthree", "tags": ["x", "y"], "size": 180},
    {"id": "b", "text": "gone"},
    {"id": "c", "title": "old"},
    {"id": "same", "title": "untouched"},
]
AFTER = {"id": "a", "title": "The quick brown fox", "text": "一\n知识图\nthree", "tags": ["y", "z"], "size": 180.0}
INSIDE = [{"path": "/tags/0", "before": "x"}, {"path": "/tags/1", "after": "z"}]


def put(root: Path, kind: str, *records: dict[str, object]) -> None:
    assert run_in(root, ["put", kind], stdin="".join(json.dumps(one) + "\n" for one in records)).code == 0


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits: `first`, and `second` with an edit, a removal, a rename and two additions. Tests do not change it."""
    root = make_base(tmp_path_factory.mktemp("diff") / "kb", NOTES)
    put(root, "Note", *BEFORE)
    put(root, "cites", {"from": "a", "to": "c", "why": "因为"})
    commit(root)
    git(root, "tag", "first")
    put(root, "Note", AFTER, {"id": "d", "text": "new"})
    put(root, "Person", {"country": "CH", "number": 7, "name": "Ann"})
    assert run_in(root, ["delete", "Note", "b"]).code == 0
    assert run_in(root, ["rename", "Note", "c", "cc"]).code == 0
    commit(root)
    git(root, "tag", "second")
    return root


@pytest.fixture
def copy(history: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(history, tmp_path / "kb", symlinks=True))


def said(root: Path, *args: str) -> dict[str, Any]:
    """What `diff` says as JSON, which keeps to its schema."""
    ran = run_in(root, ["diff", "--format", "json", *args])
    assert ran.code == 0, ran.err
    SCHEMA.validate(ran.line)
    return ran.line


def ops(root: Path, *args: str) -> set[tuple[str, str, str]]:
    return {(one["op"], one["type"], one["identity"]) for one in said(root, *args)["changes"]}


WHOLE = {
    ("update", "Note", "a"),
    ("delete", "Note", "b"),
    ("rename", "Note", "cc"),
    ("insert", "Note", "d"),
    ("insert", "Person", '["CH",7]'),
    ("rename", "cites", '["a","cc"]'),
}


SHOWN = """\
changed Note a
    size: [-180-]{+180.0+}
  - tags: x
  + tags: z
    text:
        一
        知识[-库-]{+图+}
        three
    title: The quick [-red-]{+brown+} fox
removed Note b
  - id: b
  - text: gone
renamed Note cc (was c)
    id: [-c-]{+cc+}
added Note d
  + id: d
  + text: new
added Person ["CH",7]
  + country: CH
  + number: 7
  + name: Ann
renamed cites ["a","cc"] (was ["a","c"])
    to: [-c-]{+cc+}
"""


def test_a_range_names_two_commits_and_each_record_is_found_by_its_number(history: Path) -> None:
    assert ops(history, "first..second") == WHOLE
    back = {("insert", "Note", "b"), ("delete", "Note", "d"), ("rename", "Note", "c"), ("update", "Note", "a")}
    assert ops(history, "second..first") >= back
    assert ops(history, "first..first") == set()
    assert ops(history, "first") == WHOLE, "against the files as they are"
    assert ops(history, "first", "--staged") == WHOLE
    assert ops(history) == set()


def test_json_has_values_places_and_versions(history: Path) -> None:
    told = said(history, "first..second")
    assert told["base"] == {"name": "first", "commit": git(history, "rev-parse", "first").strip()}
    counts = {"insert": 2, "update": 1, "rename": 2, "delete": 1, "parts": 3, "respelled": 0, "moved": 0, "ontology": 0}
    assert told["summary"] == counts | {"errors": 0, "warnings": len(told["findings"])}
    assert told["types"]["Note"] == {"insert": 1, "update": 1, "rename": 1, "delete": 1}
    (edited,) = [one for one in told["changes"] if one["identity"] == "a"]
    assert edited["fields"] == [
        {"name": "size", "before": 180, "after": 180.0},
        {"name": "tags", "before": ["x", "y"], "after": ["y", "z"], "inside": INSIDE},
        {"name": "text", "before": BEFORE[0]["text"], "after": AFTER["text"]},
        {"name": "title", "before": BEFORE[0]["title"], "after": AFTER["title"]},
    ]
    stored = run_in(history, ["get", "Note", "a"]).line
    assert (edited["id"], edited["after"]["etag"]) == (stored["__id"], stored["_etag"])
    lines = (history / edited["after"]["path"]).read_text("utf-8").splitlines()
    assert json.loads(lines[edited["after"]["line"] - 1])["id"] == "a"
    (renamed,) = [one for one in told["changes"] if one["identity"] == "cc"]
    assert renamed["was"] == "c"


def test_json_lines_hold_what_json_holds(history: Path) -> None:
    whole = said(history, "first..second")
    lines = run_in(history, ["diff", "first..second", "--format", "jsonl"]).lines
    for entry, name in (("change", "changes"), ("ontology", "ontology"), ("finding", "findings")):
        found = [{k: v for k, v in one.items() if k != "entry"} for one in lines if one["entry"] == entry]
        assert found == whole[name]
    rows = run_in(history, ["diff", "first..second", "--format", "csv"]).out.splitlines()
    assert len(rows) == 1 + len(whole["changes"])


def test_text_shows_words_elements_and_numbers(history: Path) -> None:
    ran = run_in(history, ["diff", "first..second"])
    lines = [line.partition("  data/")[0] for line in ran.out.splitlines() if " W_" not in line]
    assert lines.pop().startswith("6 records in 3 parts: 2 added, 1 changed, 2 renamed, 1 removed")
    assert "".join(f"{line}\n" for line in lines) == SHOWN


def test_colours_are_sent_where_they_are_wanted(history: Path) -> None:
    line = ["diff", "first..second", "--", "Note:a"]
    always = run_in(history, [*line[:2], "--color", "always", *line[2:]]).out
    assert "The quick \x1b[31mred\x1b[m\x1b[32mbrown\x1b[m fox" in always
    assert "\x1b" not in run_in(history, line).out
    assert "\x1b[32mbrown" in on_terminal(history, line)
    assert "\x1b" not in on_terminal(history, line, NO_COLOR="1")
    assert "\x1b" not in on_terminal(history, [*line[:2], "--color", "never", *line[2:]])


def on_terminal(root: Path, args: list[str], **env: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    around = {**os.environ, "PYTHONUTF8": "1", "TERM": "xterm", **env}
    command = [sys.executable, "-m", "duckkb", *args]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=around
    ) as child:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 65_536):
                pieces.append(piece)
        except OSError:  # the other end is closed
            pass
        child.wait()
    os.close(ours)
    return b"".join(pieces).decode()


def test_types_and_records_can_be_chosen_and_fields_left_out(history: Path) -> None:
    assert ops(history, "first..second", "--", "Person") == {("insert", "Person", '["CH",7]')}
    assert ops(history, "first..second", "--", "Note:a", "note:c") == {
        ("update", "Note", "a"),
        ("rename", "Note", "cc"),
    }
    assert ops(history, "first", "--", 'Person:["CH",7]') == {("insert", "Person", '["CH",7]')}
    ignored = [word for name in ("title", "text", "tags") for word in ("--ignore", name)]
    (left,) = [one for one in said(history, "first..second", *ignored)["changes"] if one["identity"] == "a"]
    assert [field["name"] for field in left["fields"]] == ["size"]
    assert ("update", "Note", "a") not in ops(history, "first..second", *ignored, "--ignore", "size")
    wrong = run_in(history, ["diff", "first", "--json", "--", "Nobody"])
    assert (wrong.code, wrong.error["code"]) == (1, "E_UNKNOWN_TYPE")


def test_exit_codes_say_whether_something_changed(history: Path) -> None:
    assert run_in(history, ["diff", "first..second", "--exit-code", "--stat"]).code == 1
    assert run_in(history, ["diff", "first..second", "--exit-code", "--", "Person:nobody"]).code == 0
    assert run_in(history, ["diff", "first..second"]).code == 0
    stat = run_in(history, ["diff", "first..second", "--stat"]).out.splitlines()
    assert stat[0] == " Note   | 1 added, 1 changed, 1 renamed, 1 removed"
    assert stat[-1].startswith("6 records in 3 parts: 2 added, 1 changed, 2 renamed, 1 removed")


@pytest.mark.parametrize(
    ("args", "code", "name"),
    [
        (["nowhere"], 1, "E_REVISION"),
        (["first..nowhere"], 1, "E_REVISION"),
        (["..--output=made"], 1, "E_REVISION"),
        (["--", "--output=made"], 1, "E_UNKNOWN_TYPE"),
        (["first\nsecond"], 1, "E_REVISION"),
        (["first:config.yaml"], 1, "E_REVISION"),
        ([""], 2, "E_USAGE"),
        (["first..second..third"], 2, "E_USAGE"),
        (["first....second"], 2, "E_USAGE"),
        (["--", "Note:"], 2, "E_USAGE"),
        (["--", ":n1"], 2, "E_USAGE"),
        (["--output=made"], 2, "E_USAGE"),
        (["first..second", "--staged"], 2, "E_USAGE"),
        (["--staged", "--worktree"], 2, "E_USAGE"),
        (["first", "second"], 2, "E_USAGE"),
        (["--format", "xml"], 2, "E_USAGE"),
    ],
)
def test_names_that_mean_no_version_are_refused(history: Path, args: list[str], code: int, name: str) -> None:
    at = args.index("--") if "--" in args else len(args)
    ran = run_in(history, ["diff", *args[:at], "--json", *args[at:]])
    assert (ran.code, ran.error["code"]) == (code, name)
    assert not (history / "made").exists()


def test_three_dots_leave_out_what_the_base_did_meanwhile(copy: Path) -> None:
    git(copy, "checkout", "-q", "-b", "topic", "second")
    put(copy, "Note", {"id": "of-topic"})
    commit(copy)
    git(copy, "checkout", "-q", "main")
    put(copy, "Note", {"id": "of-main"})
    commit(copy)
    assert ops(copy, "main...topic") == {("insert", "Note", "of-topic")}
    assert ops(copy, "main..topic") == {("insert", "Note", "of-topic"), ("delete", "Note", "of-main")}


def test_index_and_files_are_versions_too(copy: Path) -> None:
    put(copy, "Note", {"id": "staged"})
    git(copy, "add", "data")
    put(copy, "Note", {"id": "later"})
    assert ops(copy, "--staged") == {("insert", "Note", "staged")}
    assert ops(copy) == ops(copy, "--worktree") == {("insert", "Note", "staged"), ("insert", "Note", "later")}


def test_a_part_in_conflict_has_no_version_in_the_index(copy: Path) -> None:
    git(copy, "checkout", "-q", "-b", "topic")
    put(copy, "Note", {"id": "a", "title": "of topic"})
    commit(copy)
    git(copy, "checkout", "-q", "main")
    put(copy, "Note", {"id": "a", "title": "of main"})
    commit(copy)
    subprocess.run(["git", "-C", str(copy), "merge", "-q", "topic"], check=False, capture_output=True)
    told = said(copy, "--staged")
    assert (told["changes"], [one["code"] for one in told["findings"]]) == ([], ["E_MERGE_IN_PROGRESS"])
    assert "E_MARKERS" in {one["code"] for one in said(copy)["findings"]}


def test_a_record_that_moved_to_another_part_has_not_changed(copy: Path) -> None:
    (part,) = (copy / "data/nodes/note").rglob("*.jsonl")
    first, *rest = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(rest))
    part.with_name("part_5000.jsonl").write_bytes(first)
    assert ops(copy) == set()
    assert said(copy)["summary"]["moved"] == 1


def test_changes_of_the_configuration_are_told_and_each_side_is_read_by_its_own(copy: Path) -> None:
    config = copy / "config.yaml"
    text = config.read_text("utf-8").replace(
        "size: {type: integer}", "size: {type: number}\n        more: {type: string}"
    )
    place = "  Place: {table: place, identity: id, schema: {properties: {id: {type: string}}}}\n"
    config.write_text(text.replace("  Person:", f"{place}  Person:"), "utf-8")
    put(copy, "Place", {"id": "Bern"})
    told = said(copy)
    assert [(one["what"], one.get("before"), one.get("after")) for one in told["ontology"]][:2] == [
        ("node Note field /more", None, '{"type": "string"}'),
        ("node Note field /size", '{"type": "integer"}', '{"type": "number"}'),
    ]
    assert [one["what"] for one in told["ontology"]][2:] == ["node Place"]
    assert ops(copy) == {("insert", "Place", "Bern")}
    commit(copy)
    git(copy, "checkout", "-q", "second")
    assert ("insert", "Place", "Bern") in ops(copy, "second..main"), "of types that the files know nothing of"


def test_a_configuration_that_does_not_load_is_a_finding(copy: Path) -> None:
    good = (copy / "config.yaml").read_text("utf-8")
    (copy / "config.yaml").write_text(good + "nonsense: [", "utf-8")
    put_line(copy, "e")
    commit(copy)
    told = said(copy, "second..main")
    assert next(one["code"] for one in told["findings"] if one["severity"] == "error") == "E_YAML"
    assert ("insert", "Note", "e") in ops(copy, "second..main")
    assert run_in(copy, ["diff", "second..main", "--fail-on", "error"]).code == 1
    (copy / "config.yaml").write_text(good, "utf-8")
    commit(copy)
    mended = said(copy, "main~1..main")
    assert {one["code"] for one in mended["findings"] if one["severity"] == "warning"} >= {"W_BASE_CONFIG"}
    assert run_in(copy, ["diff", "main~1..main", "--fail-on", "error"]).code == 0
    assert run_in(copy, ["diff", "main~1..main", "--fail-on", "warning"]).code == 1


def put_line(root: Path, identity: str) -> None:
    """A record that a person wrote by hand."""
    time = "2026-01-02T00:00:00.000000Z"
    part = root / "data/nodes/note/20260102/part_000.jsonl"
    part.parent.mkdir(exist_ok=True)
    part.write_text(f'{{"__id":5,"id":"{identity}","__created_at":"{time}","__updated_at":"{time}"}}\n', "utf-8")


def test_what_a_terminal_would_obey_never_reaches_it(copy: Path) -> None:
    put(copy, "Note", {"id": "evil", "title": "\x1b[2J\x9b31m \u202e \x07", "text": "\x1b]0;title\x07\n\rover"})
    for form in ("text", "json", "table"):
        shown = on_terminal(copy, ["diff", "--format", form, "--color", "never"]).replace("\r\n", "\n")
        assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e"} & set(shown), form
    assert "\\u001b[2J" in run_in(copy, ["diff"]).out


@pytest.mark.parametrize("args", [["check", "--since", ""], ["impact", ""], ["impact", "a..b..c"]])
def test_a_range_that_a_script_left_empty_is_no_range(history: Path, args: list[str]) -> None:
    ran = run_in(history, [*args, "--json"])
    assert (ran.code, ran.error["code"], ran.out) == (2, "E_USAGE", "")


@pytest.mark.parametrize("args", [["diff", "HEAD~1"], ["impact"], ["propose", "put", "Note", '{"id":"a"}']])
def test_where_nothing_is_committed_yet_that_is_said(tmp_path: Path, args: list[str]) -> None:
    ran = run_in(make_base(tmp_path / "kb", NOTES), [*args, "--json"])
    assert (ran.code, ran.error["code"], ran.out) == (1, "E_REVISION", "")
    assert "git commit" in ran.error["suggestion"]


def test_without_git_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    root = tmp_path / "bare"
    root.mkdir()
    (root / "config.yaml").write_text(NOTES, "utf-8")
    ran = run_in(root, ["diff", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_GIT")


def test_a_base_in_a_folder_of_a_repository_is_compared_by_itself(tmp_path: Path) -> None:
    root = make_base(tmp_path / "repository/inner/kb", NOTES)
    shutil.move(root / ".git", tmp_path / "repository/.git")
    put(root, "Note", {"id": "a"})
    (tmp_path / "repository/other.txt").write_text("x", "utf-8")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    put(root, "Note", {"id": "b"})
    assert ops(root) == {("insert", "Note", "b")}
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")
    assert ops(root, "HEAD~1..HEAD") == ops(root, "HEAD~1") == {("insert", "Note", "b")}


def test_before_the_base_there_was_nothing(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    put(root, "Note", {"id": "a"})
    (root / "other.txt").write_text("x", "utf-8")
    git(root, "add", "other.txt")
    git(root, "commit", "-q", "-m", "nothing")
    commit(root)
    told = said(root, "HEAD~1..HEAD")
    assert [one["op"] for one in told["changes"]] == ["insert"]
    assert {"node Note", "edge cites", "setting global.embedding_model"} <= {one["what"] for one in told["ontology"]}


def test_a_patch_is_applied_whole_reversed_and_refused_whole(copy: Path) -> None:
    patch = run_in(copy, ["diff", "first..second", "--format", "patch"]).out
    (copy.parent / "patch.jsonl").write_text(patch, "utf-8")
    newer = tree_bytes(copy)
    git(copy, "checkout", "-q", "first")
    older = tree_bytes(copy)
    assert run_in(copy, ["apply", "--check", "-"], stdin=patch).code == 0
    assert tree_bytes(copy) == older
    shown = run_in(copy, ["apply", "--dry-run", "../patch.jsonl"]).out
    assert shown.startswith("diff --git a/data/") and tree_bytes(copy) == older
    done = run_in(copy, ["apply", "../patch.jsonl"])
    assert (done.line["inserted"], done.line["updated"], done.line["deleted"]) == (2, 3, 1)
    assert tree_bytes(copy) == newer
    again = run_in(copy, ["apply", "--json", "-"], stdin=patch)
    assert (again.code, again.error["code"]) == (1, "E_STALE")
    assert len(again.error["details"]["findings"]) == 6
    assert tree_bytes(copy) == newer
    assert run_in(copy, ["apply", "--reverse", "-"], stdin=patch).code == 0
    assert tree_bytes(copy) == older


def test_a_patch_stays_clear_of_what_it_was_not_made_for(copy: Path) -> None:
    patch = run_in(copy, ["diff", "first..second", "--format", "patch", "--", "Note:a", "Note:d"]).out
    git(copy, "checkout", "-q", "first")
    put(copy, "Note", {**BEFORE[0], "size": 181}, {"id": "d", "text": "mine"})
    kept = tree_bytes(copy)
    ran = run_in(copy, ["apply", "--json", "-"], stdin=patch)
    assert (ran.code, ran.error["code"]) == (1, "E_STALE")
    assert [one["identity"] for one in ran.error["details"]["findings"]] == ["a", "d"]
    assert tree_bytes(copy) == kept


def test_an_identity_that_another_record_has_is_named_with_the_rest(copy: Path) -> None:
    patch = run_in(copy, ["diff", "first..second", "--format", "patch", "--", "Note"]).out
    git(copy, "checkout", "-q", "first")
    for old in ("a", "same"):
        assert run_in(copy, ["rename", "Note", old, f"{old}-2"]).code == 0
    put(copy, "Note", {"id": "cc"})
    ran = run_in(copy, ["apply", "--json", "-"], stdin=patch)
    assert ran.error["code"] == "E_STALE"
    assert [one["identity"] for one in ran.error["details"]["findings"]] == ["a", "cc"]


DAMAGE = {
    "nothing": lambda lines: [],
    "no header": lambda lines: lines[1:],
    "a later version": lambda lines: [lines[0].replace('"duckkb_patch":1', '"duckkb_patch":2'), *lines[1:]],
    "cut off": lambda lines: lines[:-1],
    "one line twice": lambda lines: [lines[0].replace('"records":6', '"records":7'), *lines[1:], lines[-1]],
    "another folder": lambda lines: [lines[0], *(line.replace("data/nodes/", "ontology/x/") for line in lines[1:])],
    "a way out": lambda lines: [
        lines[0],
        *(line.replace("data/nodes/note/", "data/nodes/../../") for line in lines[1:]),
    ],
    "another table": lambda lines: [lines[0], *(line.replace("nodes/note/", "nodes/nothing/") for line in lines[1:])],
    "no line": lambda lines: [lines[0], *(line.replace('"line":', '"lime":') for line in lines[1:])],
    "a line that is not canonical": lambda lines: [
        lines[0],
        *(line.replace("fox", " fox \\\\u0041") for line in lines[1:]),
    ],
    "no JSON": lambda lines: [*lines[:-1], lines[-1][:-5]],
    "a git patch": lambda lines: ["diff --git a/x b/x"],
}


@pytest.mark.long
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_patch_writes_nothing(history: Path, name: str) -> None:
    lines = run_in(history, ["diff", "second..first", "--format", "patch"]).out.splitlines()
    before = tree_bytes(history)
    damaged = "".join(f"{line}\n" for line in DAMAGE[name](lines))
    ran = run_in(history, ["apply", "--json", "--check", "-"], stdin=damaged)
    assert (ran.code, ran.error["code"]) == (1, "E_PATCH"), ran.err
    assert tree_bytes(history) == before


def test_a_version_that_cannot_be_read_whole_gives_no_patch(copy: Path) -> None:
    (part,) = (copy / "data/nodes/note").rglob("*.jsonl")
    part.write_bytes(part.read_bytes() + b"<<<<<<< ours\n")
    ran = run_in(copy, ["diff", "--format", "patch", "--json"])
    assert ran.code == 2, "two formats contradict each other"
    ran = run_in(copy, ["diff", "--format", "patch"])
    assert (ran.code, ran.out) == (1, "") and "E_MARKERS" in ran.err
    assert run_in(copy, ["diff", "--fail-on", "error"]).code == 1


def test_the_library_compares_and_applies(copy: Path) -> None:
    found = duckkb.diff(copy, "first..second")
    assert found.counts["Note"] == {"insert": 1, "update": 1, "rename": 1, "delete": 1}
    patch = run_in(copy, ["diff", "first..second", "--format", "patch"]).out.encode()
    with duckkb.open(copy) as kb:
        assert kb.apply_patch(patch, reverse=True).deleted == 2
        assert kb.get("Note", "b")["text"] == "gone"
