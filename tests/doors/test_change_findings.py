"""What a reviewer is told of a change: `check --since`, `check --staged` and `diff`, over real repositories."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

DAY = "data/nodes/note/20260101"
PART = f"{DAY}/part_001.jsonl"
OTHER = f"{DAY}/part_002.jsonl"
EDGES = "data/edges/cites/20260101/part_001.jsonl"
TIME = "2026-01-01T00:00:00.000000Z"
TALE = "The journal is sealed before any file changes so that a crash leaves either the old state or the new one "
Change = Callable[[Path], None]


def _line(number: int, key: str, /, **fields: Any) -> str:
    first = {"__id": number} | ({} if "from" in fields else {"id": key})
    ends = {name: fields.pop(name) for name in ("from", "to") if name in fields}
    times = {"__created_at": fields.pop("created", TIME), "__updated_at": TIME}
    return json.dumps(
        {**first, **ends, **dict(sorted(fields.items())), **times}, ensure_ascii=False, separators=(",", ":")
    )


def _write(root: Path, path: str, lines: list[str]) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _notes(root: Path, change: Callable[[list[dict[str, Any]]], None], path: str = PART) -> None:
    """Edit the lines of a part as objects."""
    records = [json.loads(line) for line in (root / path).read_text("utf-8").splitlines()]
    change(records)
    _write(root, path, [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in records])


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty notes and an edge; one note has broken its schema for long."""
    root = make_base(tmp_path_factory.mktemp("ground") / "kb", NOTES)
    notes = [_line(number, f"n{number:02}", title=f"Note {number}") for number in range(1, 61)]
    notes[0] = _line(1, "n01", status="lost", title="Note 1")
    notes[1] = _line(2, "n02", text=TALE * 2 + "一个部件最多一千条记录，超过就换下一个文件")
    _write(root, PART, notes)
    _write(root, EDGES, [_line(901, "", **{"from": "n03", "to": "n04"})])
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    return root


@pytest.fixture
def base(ground: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ground, tmp_path / "kb", symlinks=True)


def _delete(*numbers: int) -> Change:
    def change(records: list[dict[str, Any]]) -> None:
        records[:] = [one for one in records if one["__id"] not in numbers]

    return lambda root: _notes(root, change)


def _set(number: int, **fields: Any) -> Change:
    def change(records: list[dict[str, Any]]) -> None:
        for place, one in enumerate(records):
            if one["__id"] == number:
                times = {name: one.pop(name) for name in ("__created_at", "__updated_at")}
                merged = one | {name: value for name, value in fields.items() if not name.startswith("__")}
                head = {name: merged.pop(name) for name in ("__id", "id")}
                own = {name: value for name, value in fields.items() if name.startswith("__")}
                records[place] = head | dict(sorted(merged.items())) | times | own
        records.sort(key=lambda one: one["id"])

    return lambda root: _notes(root, change)


def _add(path: str, *lines: str) -> Change:
    return lambda root: _write(root, path, list(lines))


def _link(root: Path) -> None:
    (root / OTHER).symlink_to("part_001.jsonl")


def _bytes(path: str, data: bytes) -> Change:
    def change(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    return change


def _appended(data: bytes) -> Change:
    return lambda root: _bytes(PART, (root / PART).read_bytes() + data)(root)


def _settings(old: str, new: str) -> Change:
    def change(root: Path) -> None:
        text = (root / "config.yaml").read_text("utf-8")
        assert old in text
        (root / "config.yaml").write_text(text.replace(old, new), "utf-8")

    return change


def _each(numbers: range) -> Iterator[Change]:
    return (_set(number, title=f"Edited {number}") for number in numbers)


def _all(*changes: Change) -> Change:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


NEAR = TALE * 2 + "一个部件最多一千条记录，超过就换下一个文件夹"
FAR = "A reviewer reads records and not lines, which is why a difference names what became of each of them in words"
CASES: dict[str, tuple[Change, set[tuple[str, str]]]] = {
    "nothing": (lambda root: None, set()),
    "a harmless edit": (_set(5, title="Other"), set()),
    "a node that an edge names": (_delete(4), {("E_DANGLING_EDGE", '["n03","n04"]')}),
    "an identity that another part has": (_add(OTHER, _line(777, "n07")), {("E_DUP_IDENTITY", "n07")}),
    "an id that another record has": (_add(OTHER, _line(7, "new")), {("E_DUP_ID", "new")}),
    "another id": (_set(8, __id=888), {("E_ID_CHANGED", "n08")}),
    "a schema broken by the change": (_set(9, status="gone"), {("E_SCHEMA", "n09")}),
    "a broken record touched": (_set(1, title="Edited"), {("E_SCHEMA", "n01")}),
    "a schema that old records break": (_settings("required: [id]", "required: [id, title]"), {("E_SCHEMA", "n02")}),
    "a type that is gone": (_settings("  cites: {", "  quotes: {"), {("E_UNEXPECTED_FILE", "")}),
    "a renamed record": (_set(10, id="n10b"), {("W_RENAMED", "n10b")}),
    "a renamed node with its edge": (
        _all(_set(4, id="n04b"), _add(EDGES, _line(901, "", **{"from": "n03", "to": "n04b"}))),
        {("W_RENAMED", "n04b")},
    ),
    "an edge that leads elsewhere": (
        _add(EDGES, _line(901, "", **{"from": "n03", "to": "n05"})),
        {("W_RENAMED", '["n03","n05"]')},
    ),
    "another time of creation": (_set(11, __created_at="2026-01-01T09:00:00.000000Z"), {("W_CREATED_AT", "n11")}),
    "another day of creation": (
        _set(11, __created_at="2026-01-02T00:00:00.000000Z"),
        {("W_CREATED_AT", "n11"), ("E_MISPLACED", "n11")},
    ),
    "a record on the wrong day": (_add(OTHER, _line(800, "x", created="2025-12-31T00:00:00.000000Z")), {("E_MISPLACED", "x")}),
    "twenty records gone": (_delete(*range(20, 40)), set()),
    "twenty-one records gone": (_delete(*range(20, 41)), {("E_SHRINK", "")}),
    "twenty-one records edited": (_all(*_each(range(20, 41))), {("W_MASS_CHANGE", "")}),
    "a text with a tag": (_set(12, text="a\U000e0041b"), {("W_INVISIBLE", "n12")}),
    "a text with what has no width": (_set(12, tags=["fine", "b\u200bad"]), {("W_INVISIBLE", "n12")}),
    "an emoji that is joined": (_set(12, text="👩\u200d💻 می\u200cخواهم"), set()),
    "letters that look like others": (_add(OTHER, _line(801, "p\u0430ypal")), {("W_INVISIBLE", "p\u0430ypal")}),
    "Greek in formulas": (_add(OTHER, _line(801, "Δx-μm"), _line(802, "知识graph")), set()),
    "nearly the same text": (_add(OTHER, _line(802, "near", text=NEAR)), {("W_NEAR_DUPLICATE", "near")}),
    "another text": (_add(OTHER, _line(803, "far", text=FAR)), set()),
    "the team's cache": (_bytes("data/indices/search_cache.parquet", b"PAR1"), {("W_CACHE_IN_PR", "")}),
    "a stranger": (_bytes("data/nodes/note/readme.txt", b"hello"), {("E_UNEXPECTED_FILE", "")}),
    "a pointer": (_bytes(OTHER, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), {("E_POINTER", "")}),
    "markers": (_appended(b"<<<<<<< ours\n=======\n>>>>>>> theirs\n"), {("E_MARKERS", "")}),
    "no JSON": (_appended(b"{broken\n"), {("E_JSON", "")}),
    "a link": (_link, {("E_SYMLINK", "")}),
    "lines out of order": (
        _all(_add(OTHER, _line(901, "z"), _line(900, "y"))), {("E_NOT_CANONICAL", "")}
    ),
}  # fmt: skip


def _found(ran: Ran) -> set[tuple[str, str]]:
    return {(one["code"], one.get("identity", "")) for one in ran.line["findings"]}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_check_since_tells_what_the_change_brings_and_nothing_else(base: Path, name: str) -> None:
    change, expected = CASES[name]
    change(base)
    ran = run_in(base, ["check", "--since", "main", "--json"])
    assert _found(ran) == expected
    assert ran.code == any(code.startswith("E_") for code, _ in expected)


SOME = (
    "a node that an edge names",
    "an identity that another part has",
    "a schema that old records break",
    "twenty-one records gone",
    "a link",
)


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_an_index_a_range_and_diff_are_judged_alike(base: Path, name: str) -> None:
    change, expected = CASES[name]
    change(base)
    git(base, "add", "-A")
    assert _found(run_in(base, ["check", "--staged", "--json"])) == expected
    commit(base)
    (base / PART).write_bytes(b"the working tree does not count\n")
    ranged = run_in(base, ["check", "--since", "main...topic", "--json"])
    assert _found(ranged) == expected
    warned = run_in(base, ["diff", "main...topic", "--fail-on", "warning", "--json"])
    assert _found(warned) == expected and warned.code == bool(expected)


def test_a_large_record_is_named(base: Path) -> None:
    _settings("nodes:", "limits: {max_record_bytes: 2000}\nnodes:")(base)
    _set(3, text="long " * 500)(base)
    assert _found(run_in(base, ["check", "--since", "main", "--json"])) == {
        ("E_TOO_LARGE", ""),
        ("E_DANGLING_EDGE", '["n03","n04"]'),
    }


def test_what_lies_in_the_working_tree_alone_is_not_staged(base: Path) -> None:
    _set(9, status="gone")(base)
    assert _found(run_in(base, ["check", "--staged", "--json"])) == set()
    assert _found(run_in(base, ["check", "--since", "HEAD", "--json"])) == {("E_SCHEMA", "n09")}
    assert "1 changed record, 1 error, 0 warnings" in run_in(base, ["check", "--since", "HEAD"]).err


def test_what_the_other_branch_did_meanwhile_is_not_of_this_change(base: Path) -> None:
    git(base, "checkout", "-q", "main")
    _delete(4)(base)
    commit(base)
    git(base, "checkout", "-q", "topic")
    assert _found(run_in(base, ["check", "--since", "main", "--json"])) == set()


def test_diff_alone_tells_what_the_touched_files_tell(base: Path) -> None:
    _all(_delete(4), _set(10, id="n10b"))(base)
    assert _found(run_in(base, ["diff", "main", "--json"])) == {("W_RENAMED", "n10b")}
    failing = run_in(base, ["diff", "main", "--json", "--fail-on", "error"])
    assert failing.code == 1 and ("E_DANGLING_EDGE", '["n03","n04"]') in _found(failing)


def test_a_first_commit_is_checked_before_it_is_made(tmp_path: Path) -> None:
    root = make_base(tmp_path / "new", NOTES)
    _write(root, PART, [_line(1, "a", status="lost")])
    git(root, "add", "-A")
    assert _found(run_in(root, ["check", "--staged", "--json"])) == {("E_SCHEMA", "a")}


def test_a_copy_names_the_record_that_it_copies(base: Path) -> None:
    _add(OTHER, _line(802, "near", text=NEAR), _line(803, "same", text=NEAR))(base)
    found = run_in(base, ["check", "--since", "main", "--json"]).line["findings"]
    said = {one["identity"]: one["message"] for one in found}
    assert said["same"] == f"its texts are nearly those of Note near ({OTHER}:1)"
    assert said["near"].endswith(f"% of its texts appear in Note n02 ({PART}:2)")


def test_check_of_the_whole_base_tells_what_nobody_sees(base: Path) -> None:
    _all(_set(12, text="a\u202eb", title="fine — “quoted”"), _add(OTHER, _line(801, "p\u0430ypal")))(base)
    found = run_in(base, ["check", "--json"]).line["findings"]
    said = {(one["code"], one["identity"], one.get("field")): one["message"] for one in found}
    assert said[("W_INVISIBLE", "n12", "/text")] == "holds U+202E, a bidirectional control"
    assert "U+0430 (Cyrillic)" in said[("W_INVISIBLE", "p\u0430ypal", None)]
    assert {code for code, _, _ in said} == {"W_INVISIBLE", "E_SCHEMA", "E_NOT_CANONICAL"}


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_check_prints_for_those_who_annotate(base: Path, form: str) -> None:
    ran = run_in(base, ["check", "--format", form])
    assert ran.code == 1
    if form == "sarif":
        (result,) = ran.line["runs"][0]["results"]
        assert (result["ruleId"], result["locations"][0]["physicalLocation"]["region"]["startLine"]) == ("E_SCHEMA", 1)
    else:
        assert ran.out.startswith(f"::error file={PART},line=1,title=E_SCHEMA Note n01::/status: ")


def test_paths_of_annotations_start_at_the_root_of_the_repository(ground: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    shutil.copytree(ground, root / "docs/kb", ignore=shutil.ignore_patterns(".git", ".duckkb"))
    git(tmp_path, "init", "-q", "-b", "main", str(root))
    commit(root)
    _set(9, status="gone")(root / "docs/kb")
    for args in (["check", "--since", "main"], ["diff", "--fail-on", "error"], ["check"]):
        ran = run_in(root / "docs/kb", [*args, "--format", "github"])
        assert f"::error file=docs/kb/{PART},line=9,title=E_SCHEMA Note n09::" in ran.out, ran.out
    (log,) = run_in(root / "docs/kb", ["check", "--since", "main", "--format", "sarif"]).line["runs"]
    place = log["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": f"docs/kb/{PART}", "uriBaseId": "%SRCROOT%"} and "%SRCROOT%" in log["originalUriBaseIds"]
    assert log["tool"]["driver"]["version"]
    for form in ("markdown", "html"):
        said = run_in(root / "docs/kb", ["diff", "--fail-on", "error", "--format", form]).out
        assert said.count(PART) == said.count(f"docs/kb/{PART}") >= 2
    table = run_in(root / "docs/kb", ["check", "--format", "markdown"]).out
    assert table.count(PART) == table.count(f"docs/kb/{PART}") >= 1


@pytest.mark.long
def test_findings_and_what_could_not_run_are_told_apart(base: Path) -> None:
    _set(9, status="gone")(base)
    verdicts = [["check"], ["check", "--since", "main"], ["diff", "--fail-on", "error"]]
    for args in verdicts:
        ran = run_in(base, [*args, "--json"])
        assert (ran.code, ran.line["outcome"]) == (1, "findings")
    for args in (["check", "--since", "nowhere"], ["diff", "nowhere"], ["impact", "nowhere"]):
        ran = run_in(base, [*args, "--json"])
        assert (ran.code, ran.out, ran.error["code"], ran.error["outcome"]) == (1, "", "E_REVISION", "could_not_run")
    for args in (["diff", "nowhere"], ["check", "--since", "nowhere"]):
        assert run_in(base, [*args, "--format", "markdown"]).out.startswith("### Could not run\n")
    (base / "config.yaml").write_text("nodes: {", "utf-8")
    ran = run_in(base, ["check", "--format", "github"])
    assert ran.code == 2 and ran.out.startswith("::error file=config.yaml,line=1,title=E_YAML::")
    (log,) = run_in(base, ["check", "--format", "sarif"]).line["runs"]
    assert (log["invocations"][0]["executionSuccessful"], len(log["results"])) == (False, 1)
    assert run_in(base, ["fmt", "--check", "--json"]).error["outcome"] == "could_not_run"
    said = run_in(base, ["impact", "--format", "markdown"])
    assert said.code == 2 and "The change was not judged." in said.out and "`config.yaml:1`" in said.out


def test_a_shallow_clone_is_told_how_to_get_what_it_lacks(base: Path, tmp_path: Path) -> None:
    older = git(base, "rev-parse", "HEAD").strip()
    commit(base)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{base}", "clone")
    ran = run_in(tmp_path / "clone", ["check", "--since", f"{older}...HEAD", "--json"])
    assert (ran.code, ran.error["code"], ran.error["outcome"]) == (1, "E_REVISION", "could_not_run")
    assert "shallow" in ran.error["error"] and "git fetch --deepen" in ran.error["suggestion"]
    assert "fetch-depth: 0" in ran.error["suggestion"]


@pytest.mark.parametrize(
    "args", [["--since", "nowhere"], ["--since", "--output=x"], ["--since", "main..topic", "--staged"]]
)
def test_a_revision_that_is_none_is_an_error(base: Path, args: list[str]) -> None:
    ran = run_in(base, ["check", *args, "--json"])
    assert (ran.code, ran.error["code"]) == ((2, "E_USAGE") if "--staged" in args else (1, "E_REVISION"))


@pytest.mark.long
def test_one_edit_of_the_schema_is_one_finding_with_a_count_and_each_can_be_had(base: Path) -> None:
    config = base / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("required: [id]", "required: [id, owner]"), "utf-8")
    owners = [line for line in run_in(base, ["check"]).out.splitlines() if "owner" in line]
    assert len(owners) == 1 and f"; 59 more like it: {PART}:2, {PART}:3, " in owners[0]
    for form, word in (("github", "E_SCHEMA"), ("markdown", "`E_SCHEMA`"), ("text", "E_SCHEMA")):
        told = run_in(base, ["diff", "HEAD", "--fail-on", "error", "--format", form])
        assert told.code == 1 and told.out.count(word) == 1, told.out
    whole = run_in(base, ["check", "--json"]).line
    (group,) = [one for one in whole["groups"] if one["field"] == "/owner"]
    assert (group["count"], group["places"][:2], len(whole["findings"])) == (60, [f"{PART}:1", f"{PART}:2"], 61)
    assert len(run_in(base, ["check", "--format", "jsonl"]).lines) == 61
