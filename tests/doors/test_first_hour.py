"""What a newcomer types in the first hour is answered, or leads on as it is printed."""

import json
import shlex
import subprocess
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
    assert (ran.code, ran.out) == (1, "") and "no branch has changes that HEAD lacks" in ran.err
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
    assert ran.line["documents"] == 1 and "clones do not have docs" in ran.err
    (steps,) = [line.partition(": ")[2] for line in ran.err.splitlines() if line.startswith("to move it into the base")]
    remove, copy, add = (shlex.split(step) for step in steps.split(" && "))
    assert copy == ["cp", "-r", str(tmp_path / "docs"), "docs"]
    (tmp_path / "docs").rename(base / "docs")
    assert run_in(base, remove[1:]).code == 0
    inside = run_in(base, add[1:])
    assert inside.line["files"] == ["ontology/collections/docs.yaml"] and "no clone" not in inside.err


def test_a_base_inside_another_one_names_that(base: Path) -> None:
    ran = run_in(base, ["init", "inner"])
    assert f"is inside another base, {base}" in ran.err and f"duckkb --kb {base} status" in ran.err
    assert "is inside another base" not in run_in(base.parent, ["init", "beside"]).err


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
        assert "a merge is in progress, so this is the base at HEAD" in ran.err, args
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


TICKETS = [
    {"ticket": {"key": f"T-{n}", "status": "open"}, "requester": {"customer_id": f"C{n % 9}"}} for n in range(20)
]


@pytest.fixture
def tickets(tmp_path: Path) -> str:
    file = tmp_path / "tickets.json"
    file.write_text(json.dumps({"version": 3, "tickets": TICKETS}), "utf-8")
    return str(file)


def test_records_inside_a_json_document_are_led_to_with_the_nested_field_that_names_them(
    base: Path, tickets: str
) -> None:
    for option in ([], ["--records", "ticket"]):
        asked = run_in(base, ["import", "tickets", tickets, *option, "--dry-run"])
        assert asked.code == 2 and asked.err.endswith(" --id ticket.key --records tickets --dry-run\n")
        dry = leads_on(base, asked)
        assert dry.code == 0 and "20 inserted" in dry.err and "W_GENERATED_ID" not in dry.err
    assert run_in(base, ["count", "tickets"]).code == 1
    assert leads_on(base, run_in(base, ["import", "tickets", tickets])).line["inserted"] == 20
    assert run_in(base, ["get", "tickets", "T-7"]).code == 0


@pytest.mark.parametrize("name", ["key", "ticket", "ticket.id", "ticket.keys"])
def test_a_field_that_is_no_identity_leads_to_the_nested_one_that_is(base: Path, tickets: str, name: str) -> None:
    ran = run_in(base, ["import", "tickets", tickets, "--records", "tickets", "--id", name])
    assert ran.code in (1, 2) and " --id ticket.key " in ran.err
    assert leads_on(base, ran).line["inserted"] == 20


def test_documents_given_to_import_lead_to_a_collection_of_their_folder(base: Path) -> None:
    (base / "runbooks").mkdir()
    (base / "runbooks/a.md").write_text("---\ntitle: Keys, and more\n---\n# Keys, and more\n", "utf-8")
    (base / "runbooks/b.md").write_text("# Keys, and more\n\nRotate them, always.\n", "utf-8")
    for name in ("a.md", "b.md"):
        ran = run_in(base, ["import", "runbooks", str(base / "runbooks" / name)])
        assert ran.code == 2 and "is a document" in ran.err
    assert leads_on(base, ran).line["documents"] == 2


def test_edges_between_imported_records_lead_to_the_edge_type_that_they_need(base: Path, tickets: str) -> None:
    (base / "c.csv").write_text("customer_id,plan\n" + "".join(f"C{n},free\n" for n in range(9)), "utf-8")
    assert run_in(base, ["import", "customers", str(base / "c.csv"), "--id", "customer_id"]).code == 0
    assert run_in(base, ["import", "tickets", tickets, "--records", "tickets", "--id", "ticket.key"]).code == 0
    ends = [tickets, "--records", "tickets", "--map", "from=ticket.key", "--map", "to=requester.customer_id"]
    (base / "ontology").mkdir(exist_ok=True)
    (base / "ontology/links.yaml").write_text("edges: {links: {from: Note, to: Note}}\n", "utf-8")
    elsewhere = run_in(base, ["import", "links", *ends])
    assert "links joins Note to Note; `" in elsewhere.err and "TYPE" not in elsewhere.err
    commands = {"tickets_customers": elsewhere.err.rpartition("; `")[2].partition("`")[0]}
    unknown = run_in(base, ["import", "requested_by", *ends])
    assert unknown.code == 1 and run_in(base, ["count", "requested_by"]).code == 1
    commands["requested_by"] = unknown.err.rpartition("  try: ")[2]
    for name, command in commands.items():
        subprocess.run(["sh", "-c", command], cwd=base, check=True)
        assert run_in(base, ["import", name, *ends]).line["inserted"] == 20
    near = run_in(base, ["graph", "neighbors", "tickets", "T-7", "--label", "requested_by"])
    assert [line["id"] for line in near.lines] == ["C7"]


def test_an_import_that_is_proposed_is_suggested_as_a_proposal(base: Path, tickets: str) -> None:
    ran = run_in(base, ["propose", "import", "Note", tickets])
    assert ran.err.endswith(f"  try: duckkb propose import Note {tickets} --id ticket.key --records tickets\n")
    assert leads_on(base, ran).line["inserted"] == 20
    assert git(base, "status", "--short") == "" and run_in(base, ["count", "Note"]).line["count"] == 30


def test_a_branch_to_be_checked_is_what_check_is_led_to(base: Path) -> None:
    assert run_in(base, ["propose", "--branch", "topic", "put", "Note", '{"id": "n31"}']).code == 0
    for given in (["main...topic"], ["--ref", "main...topic"]):
        ran = run_in(base, ["check", *given])
        assert ran.code == 2 and ran.err.endswith("  try: duckkb check --since main...topic\n")
        assert "1 changed record," in leads_on(base, ran).err
