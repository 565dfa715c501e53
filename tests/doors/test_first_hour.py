"""What a newcomer types in the first hour is answered, or leads on as it is printed."""

import json
import shlex
from pathlib import Path

import pytest

from tests.conftest import NOTES, Ran, commit, git, make_base, run_in


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    lines = "".join(json.dumps({"id": f"n{number}", "title": f"refund {number}"}) + "\n" for number in range(30))
    assert run_in(root, ["put", "Note"], stdin=lines).code == 0
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root


def leads_on(root: Path, ran: Ran) -> Ran:
    """Run the one command that an error suggests."""
    (line,) = [line for line in ran.err.splitlines() if line.startswith("  try: duckkb ")]
    return run_in(root, shlex.split(line)[2:])


def test_help_and_version_are_verbs_too(base: Path) -> None:
    assert run_in(base, ["help"]).out.startswith("Usage: duckkb ")
    assert run_in(base, ["help", "graph", "path"]).out == run_in(base, ["graph", "path", "--help"]).out
    assert run_in(base, ["version"]).out == run_in(base, ["--version"]).out


@pytest.mark.parametrize("verb", ["search", "vsearch", "query"])
def test_a_search_of_documents_where_there_are_none_leads_to_the_records(base: Path, verb: str) -> None:
    for more in ([], ["-c", "Note"]):
        ran = run_in(base, [verb, "refund 7", *more])
        assert ran.code == 2 and "try: duckkb find Note 'refund 7'" in ran.err
        assert leads_on(base, ran).lines[0]["id"] == "n7"


def test_a_branch_is_named_to_propose(base: Path) -> None:
    ran = run_in(base, ["put", "Note", '{"id": "x"}', "--branch", "b"])
    assert ran.code == 2 and "propose --branch" in ran.err and "--batch" not in ran.err
    assert leads_on(base, ran).line["branch"] == "b"
    assert run_in(base, ["branches"]).line["name"] == "b"


def test_no_branches_are_said_to_be_none(base: Path) -> None:
    ran = run_in(base, ["branches"])
    assert (ran.code, ran.out) == (1, "") and "no branch has anything that HEAD has not" in ran.err
    assert json.loads(run_in(base, ["branches", "--json"]).out)["branches"] == []


def test_a_refused_deletion_of_many_is_answered_with_the_command_that_is_meant(base: Path) -> None:
    ran = run_in(base, ["delete", "Note", *(f"n{number}" for number in range(28))])
    assert ran.code == 1 and ran.err.splitlines()[-1].endswith(" n27 --allow-shrink")
    assert leads_on(base, ran).line["deleted"] == 28


def test_types_of_columns_go_by_the_names_that_programmers_use(base: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b,c\n1,2,3,1\n", "utf-8")
    named = ["--type-of", "id=str", "--type-of", "a=int", "--type-of", "b=Float", "--type-of", "c=bool"]
    ran = run_in(base, ["import", "rows", str(tmp_path / "t.csv"), *named])
    assert ran.line["types"] == {"id": "text", "a": "integer", "b": "number", "c": "boolean"}


def test_a_folder_outside_of_the_base_is_told_to_be_in_no_clone(base: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# Refunds\n", "utf-8")
    ran = run_in(base, ["collection", "add", str(tmp_path / "docs")])
    assert ran.line["documents"] == 1 and "no clone has docs" in ran.err
    (steps,) = [line.partition(": ")[2] for line in ran.err.splitlines() if line.startswith("to have it in the base")]
    remove, copy, add = (shlex.split(step) for step in steps.split(" && "))
    assert copy == ["cp", "-r", str(tmp_path / "docs"), "docs"]
    (tmp_path / "docs").rename(base / "docs")
    assert run_in(base, remove[1:]).code == 0
    inside = run_in(base, add[1:])
    assert inside.line["files"] == ["ontology/collections/docs.yaml"] and "no clone" not in inside.err


def test_a_base_inside_another_one_names_that(base: Path) -> None:
    ran = run_in(base, ["init", "inner"])
    assert f"lies in another one, {base}" in ran.err and f"duckkb --kb {base} status" in ran.err
    assert "lies in another one" not in run_in(base.parent, ["init", "beside"]).err


def test_a_judged_answer_that_is_no_record_is_found_by_check(base: Path) -> None:
    (base / "ontology").mkdir()
    questions = "questions:\n  - question: refund?\n    type: Note\n    expected: {n1: 2, gone: 1}\n"
    (base / "ontology/questions.yaml").write_text(questions, "utf-8")
    ran = run_in(base, ["check"])
    assert ran.code == 0 and "ontology/questions.yaml:4 W_QUESTION" in ran.out and "Note gone" in ran.out
    assert ran.out.count("W_QUESTION") == 1


def test_what_reads_answers_from_head_while_a_merge_has_conflicts(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "topic")
    for title, branch in (("theirs", "topic"), ("ours", "main")):
        git(base, "checkout", "-q", branch)
        assert run_in(base, ["put", "Note", json.dumps({"id": "n1", "title": title}), "--merge"]).code == 0
        commit(base)
    assert run_in(base, ["merge", "topic"]).code == 1
    for args in (["find", "Note", "ours", "-m"], ["get", "Note", "n1"], ["list", "Note", "-l", "1"], ["status"],
                 ["sql", "SELECT title FROM note WHERE id = 'n1'"], ["log", "Note", "n1"], ["blame", "Note", "n1"],
                 ["schema", "Note"], ["graph", "neighbors", "Note", "n1"], ["col", "list"], ["export", "Note"]):  # fmt: skip
        ran = run_in(base, args)
        assert "a merge is in progress, so this is the base as it is at HEAD" in ran.err, args
        assert "theirs" not in ran.out and "E_MARKERS" not in ran.err, args
    refused = run_in(base, ["put", "Note", '{"id": "n2"}'])
    assert refused.code == 1 and leads_on(base, refused).out.startswith("Note:n1 title")
    settled = run_in(base, ["resolve", "--theirs", "Note:n1"])
    assert "duckkb resolve --stage" in settled.err
    assert run_in(base, ["resolve", "--theirs", "Note:n1"]).err.splitlines()[-1] == "  try: duckkb resolve --stage"
    staged = run_in(base, ["resolve", "--theirs", "Note:n1", "--stage"])
    (path,) = git(base, "diff", "--name-only", "--cached").split()
    assert (staged.code, staged.out, staged.err) == (0, "", f"staged: {path}\n")
    git(base, "commit", "-q", "--no-edit")
    assert run_in(base, ["get", "Note", "n1"]).line["title"] == "theirs"
