"""`duckkb resolve`: names what is open, settles what is chosen, and loses nothing that a person did by hand."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

pytestmark = pytest.mark.usefixtures("one_day")

NAMES = ["Note:a text", "Note:a title", "Note:b", 'Person:["fr",1] name']


def put(root: Path, type_name: str = "Note", **fields: Any) -> None:
    done = run_in(root, ["put", type_name, "--merge", json.dumps(fields)])
    assert done.code == 0, done.err


def records(root: Path) -> dict[str, dict[str, Any]]:
    lines = [line for path in sorted((root / "data").rglob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    held = [json.loads(line) for line in lines if line.startswith("{")]
    return {line.get("id") or line["country"]: line for line in held}


def quietly(root: Path, *args: str) -> int:
    return subprocess.run(["git", "-C", str(root), *args], capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches: both changed two fields of a, one deleted b which the other changed, both renamed a person."""
    root = make_base(tmp_path_factory.mktemp("resolve") / "kb", NOTES)
    for name in "abc":
        put(root, id=name, title=name, text="one", tags=["x"])
    put(root, "Person", country="fr", number=1, name="p")
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    assert run_in(root, ["delete", "Note", "b"]).code == 0
    put(root, id="a", title="theirs", text="theirs", size=5)
    put(root, "Person", country="fr", number=1, name="theirs")
    commit(root)
    git(root, "checkout", "-q", "main")
    put(root, "Person", country="fr", number=1, name="ours")
    put(root, id="a", title="ours", text="ours", tags=["x", "o"])
    put(root, id="b", title="changed")
    commit(root)
    return root


@pytest.fixture
def base(grown: Path, tmp_path: Path) -> Path:
    root = tmp_path / "kb"
    git(tmp_path, "clone", "-q", str(grown), str(root))
    git(root, "branch", "-q", "topic", "origin/topic")
    return root


def resolve(root: Path, *args: str) -> Ran:
    return run_in(root, ["resolve", *args])


def note_part(root: Path) -> Path:
    return next((root / "data/nodes/note").rglob("*.jsonl"))


@pytest.mark.parametrize("driver", [False, True])
def test_it_names_what_is_open_with_and_without_the_driver(base: Path, driver: bool) -> None:
    if driver:
        assert run_in(base, ["git", "install"]).code == 0
        commit(base)
    assert quietly(base, "merge", "topic") == 1
    before = note_part(base).read_bytes()
    listed = resolve(base, "--list")
    assert (listed.code, listed.out.splitlines()) == (1, NAMES)
    assert note_part(base).read_bytes() == before
    assert resolve(base).out.splitlines() == NAMES
    assert note_part(base).read_text().count("<<<<<<<") == 2
    assert records(base)["a"]["tags"] == ["x", "o"] and records(base)["a"]["size"] == 5
    told = json.loads(resolve(base, "--json").out)
    assert [one["name"] for one in told["conflicts"]] == NAMES
    assert told["operation"] == "merge" and told["others"] == []
    assert [one["identity"] for one in told["conflicts"]] == ["a", "a", "b", ["fr", 1]]


def test_choices_are_made_by_type_record_and_field_and_the_closest_counts(base: Path) -> None:
    assert quietly(base, "merge", "topic") == 1
    done = resolve(base, "--theirs", "Note", "--ours", "Note:a:title", "--newest", "Note:b")
    assert (done.code, done.out.splitlines()) == (1, [NAMES[2], NAMES[3]]), "who deleted b says no time"
    found = records(base)
    assert (found["a"]["title"], found["a"]["text"]) == ("ours", "theirs")
    assert resolve(base, "--newest", "Person").out.splitlines() == ["Note:b"]
    assert records(base)["fr"]["name"] == "ours", "it was changed last"
    done = resolve(base, "--theirs")
    assert (done.code, done.out) == (0, "")
    assert "b" not in records(base)
    assert git(base, "diff", "--name-only", "--diff-filter=U") != "", "nothing was staged yet"
    assert "not in the index yet" in done.err
    assert resolve(base, "--stage").code == 0
    assert git(base, "diff", "--name-only", "--diff-filter=U") == ""
    git(base, "commit", "-q", "--no-edit")
    assert run_in(base, ["check", "--fail-on", "warning"]).code == 0
    assert "no record is in conflict" in resolve(base).err


def test_a_choice_that_names_nothing_or_two_things_changes_nothing(base: Path) -> None:
    assert quietly(base, "merge", "topic") == 1
    before = note_part(base).read_bytes()
    for args, code, error in (
        (["--ours", "Note:zz"], 1, "E_NOT_FOUND"),
        (["--ours", "Note:a:size"], 1, "E_NOT_FOUND"),
        (["--ours", "Note:a", "--theirs", "Note:a"], 2, "E_USAGE"),
        (["--list", "--ours"], 2, "E_USAGE"),
    ):
        done = resolve(base, *args, "--json")
        assert (done.code, done.error["code"]) == (code, error), args
        assert note_part(base).read_bytes() == before


def test_a_choice_that_fits_a_record_and_a_field_of_another_one_settles_neither(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    for name in ("a", "a:text"):
        put(root, id=name, title=name, text="one")
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    put(root, id="a", text="theirs")
    assert run_in(root, ["delete", "Note", "a:text"]).code == 0
    commit(root)
    git(root, "checkout", "-q", "main")
    put(root, id="a", text="ours")
    put(root, id="a:text", title="changed")
    commit(root)
    assert quietly(root, "merge", "topic")
    done = resolve(root, "--theirs", "Note:a:text")
    assert done.code == 2 and "--with-file" in done.err
    assert resolve(root, "--list").out.splitlines() == ["Note:a text", "Note:a:text"]
    resolve(root, "--ours", "Note:a")
    assert resolve(root, "--list").out.splitlines() == ["Note:a:text"]


def test_answers_come_as_lines_that_the_list_printed(base: Path, tmp_path: Path) -> None:
    assert quietly(base, "merge", "topic") == 1
    listed = resolve(base, "--list", "--format", "jsonl").lines
    answers = [
        {"value": "both 中文\u2028"},
        {"choose": "theirs"},
        {"record": {"id": "b", "title": "kept"}},
        {"value": None},
    ]
    file = tmp_path / "answers.jsonl"
    lines = [one | answer for one, answer in zip(listed, answers, strict=True)]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    done = resolve(base, "--with-file", str(file), "--stage")
    assert done.code == 1, "a person without a name breaks the schema"
    assert "E_SCHEMA" in done.err
    found = records(base)
    assert (found["a"]["text"], found["a"]["title"], found["b"]["title"]) == ("both 中文\u2028", "theirs", "kept")
    assert "name" not in found["fr"]
    assert git(base, "diff", "--name-only", "--diff-filter=U") == ""


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"type": "Note"}', '{"type": "Note", "identity": "a"}', '{"type": "Note", "identity": "a", "choose": "x"}',
             '{"type": "Note", "identity": "a", "field": "title", "choose": "ours", "choose": "theirs"}',
             '{"type": "Note", "identity": "a", "field": "size", "value": NaN}',
             '{"type": "Note", "identity": "a", "field": "size", "value": 1e999}',
             b'{"type": "Note", "identity": "a", "field": "title", "value": "caf\xe9"}',
             '{"type": "Note", "identity": "a", "value": 1}', '{"type": "Note", "identity": "b", "record": {"title": "no id"}}']
)  # fmt: skip
def test_answers_that_make_no_sense_change_nothing(base: Path, line: str | bytes) -> None:
    assert quietly(base, "merge", "topic") == 1
    before = note_part(base).read_bytes()
    done = run_in(base, ["resolve", "--with-file", "-", "--json"], stdin=line)
    assert (done.code, done.error["code"]) == (1, "E_INVALID")
    assert note_part(base).read_bytes() == before


def test_what_was_settled_by_hand_stays_settled(base: Path) -> None:
    assert run_in(base, ["merge", "topic"]).code == 1
    lines = note_part(base).read_text("utf-8").splitlines()
    start, end = (next(n for n, line in enumerate(lines) if line.startswith(mark)) for mark in ("<<<<<<<", ">>>>>>>"))
    settled = lines[start + 1].replace('"title":"ours"', '"title":"by hand"')
    note_part(base).write_text("\n".join([*lines[:start], settled, *lines[end + 1 :]]) + "\n", "utf-8")
    assert resolve(base).out.splitlines() == NAMES[2:]
    assert resolve(base, "--ours", "--stage").code == 0
    assert (records(base)["a"]["title"], records(base)["b"]["title"]) == ("by hand", "changed")


def test_work_among_gits_own_markers_is_kept_aside(base: Path) -> None:
    assert quietly(base, "merge", "topic") == 1
    marked = note_part(base).read_text("utf-8")
    assert "<<<<<<< HEAD" in marked
    note_part(base).write_text(marked.replace('"text":"ours"', '"text":"begun by hand"'), "utf-8")
    done = resolve(base)
    assert (done.code, done.out.splitlines()) == (1, NAMES)
    assert "rescued" in done.err
    kept = list((base / ".duckkb/rescued").iterdir())
    assert len(kept) == 1 and "begun by hand" in kept[0].read_text("utf-8")


def test_a_part_finished_by_hand_or_staged_is_left_alone(base: Path) -> None:
    assert quietly(base, "merge", "topic") == 1
    mine = git(base, "show", f"topic:{note_part(base).relative_to(base).as_posix()}").replace("theirs", "mine")
    note_part(base).write_text(mine, "utf-8")
    assert resolve(base).out.splitlines() == NAMES[3:]
    git(base, "add", str(note_part(base)))
    assert resolve(base, "--ours", "--stage").code == 0
    assert records(base)["a"]["title"] == "mine"
    assert note_part(base).read_text("utf-8") == mine


@pytest.mark.long
@pytest.mark.parametrize("way", ["rebase", "cherry-pick", "revert", "stash"])
def test_it_works_in_whatever_git_is_in_the_middle_of(base: Path, way: str) -> None:
    match way:
        case "rebase":
            assert quietly(base, "rebase", "topic") == 1
        case "cherry-pick":
            assert quietly(base, "cherry-pick", "topic") == 1
        case "revert":
            put(base, id="a", title="later")
            commit(base)
            assert quietly(base, "revert", "--no-edit", "HEAD~1") == 1
        case "stash":
            git(base, "checkout", "-q", "main~1")
            put(base, id="a", title="stashed")
            git(base, "stash", "-q")
            git(base, "checkout", "-q", "topic")
            assert quietly(base, "stash", "pop") == 1
    listed = resolve(base, "--list", "--json")
    told = json.loads(listed.out)
    assert listed.code == 1
    assert told["operation"] == ("" if way == "stash" else way)
    named = [one["name"] for one in told["conflicts"]]
    assert named == (["Note:a title"] if way in ("revert", "stash") else NAMES)
    done = resolve(base, "--theirs", "--stage")
    assert (done.code, done.out) == (0, "")
    if way in ("rebase", "cherry-pick", "revert"):
        git(base, "-c", "core.editor=true", way, "--continue")
    title = {"rebase": "ours", "cherry-pick": "theirs", "revert": "a", "stash": "stashed"}[way]
    assert records(base)["a"]["title"] == title
    assert run_in(base, ["check"]).code == 0


def test_what_git_merged_by_lines_is_looked_at_before_it_is_committed(base: Path) -> None:
    """Renamed here and deleted there: to lines that is no conflict."""
    git(base, "checkout", "-q", "-B", "topic", "main")
    assert run_in(base, ["delete", "Note", "c"]).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["rename", "Note", "c", "0"]).code == 0
    commit(base)
    assert quietly(base, "merge", "--no-commit", "topic") == 0
    assert resolve(base).out.splitlines() == ["Note:0"]
    assert quietly(base, "commit", "--no-edit") != 0, "git must not commit what is open"
    assert resolve(base, "--theirs", "--stage").code == 0
    git(base, "commit", "-q", "--no-edit")
    assert "0" not in records(base) and "c" not in records(base)


def test_check_finds_what_git_merged_by_lines_and_committed(base: Path) -> None:
    git(base, "checkout", "-q", "-B", "topic", "main")
    assert run_in(base, ["delete", "Note", "c"]).code == 0
    commit(base)
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["rename", "Note", "c", "0"]).code == 0
    commit(base)
    git(base, "merge", "-q", "--no-edit", "topic")
    found = run_in(base, ["check", "--format", "jsonl"])
    assert [(line["code"], line["type"], line["identity"]) for line in found.lines] == [("W_MERGED", "Note", "0")]
    assert (found.code, run_in(base, ["check", "--fail-on", "warning"]).code) == (0, 1)


def test_without_git_or_without_a_merge_there_is_nothing_to_do(base: Path, tmp_path: Path) -> None:
    done = resolve(base)
    assert (done.code, done.out) == (0, "")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "config.yaml").write_text(NOTES, "utf-8")
    assert run_in(alone, ["resolve", "--json"]).error["code"] == "E_GIT"
