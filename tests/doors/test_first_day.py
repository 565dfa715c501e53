"""What a newcomer does on the first day loses nothing without a word, and is answered with commands that run as printed."""

import json
import re
import shlex
from pathlib import Path

import pytest

from duckkb.review.health_checks import CHECKS
from tests.conftest import NOTES, ROOT, Ran, commit, git, make_base, run_in
from tests.doors.test_first_hour import leads_on

TICKET = {"id": "T-1", "ticket": {"key": "T-1", "status": "open", "subject": "备份"}, "topic": "sync"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", NOTES)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    assert run_in(root, ["col", "init", "tickets", "--policy", "knowledge-base"]).code == 0
    assert run_in(root, ["put", "tickets", json.dumps(TICKET)]).code == 0
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root


def _ticket(root: Path) -> dict[str, str]:
    value: dict[str, str] = run_in(root, ["get", "tickets", "T-1"]).line["ticket"]
    return value


def _write(root: Path, name: str, text: str) -> str:
    (root.parent / name).write_text(text, "utf-8")
    return str(root.parent / name)


def _next_commands(ran: Ran) -> list[list[str]]:
    return [shlex.split(line)[2:] for line in ran.err.splitlines() if re.match("(next|then): duckkb ", line)]


def test_members_that_a_merged_object_lacks_are_named_and_brought_back(base: Path) -> None:
    put = ["put", "tickets", '{"id": "T-1", "ticket": {"status": "closed"}}', "--merge"]
    trial = run_in(base, [*put, "--dry-run"])
    assert "W_DROPPED: tickets T-1: ticket.key, ticket.subject were dropped" in trial.err
    assert _ticket(base) == TICKET["ticket"]
    ran = run_in(base, put)
    assert _ticket(base) == {"status": "closed"} and "topic" not in ran.err
    assert run_in(base, shlex.split(ran.err.split("`")[1])[1:]).line["updated"] == 1
    assert _ticket(base) == {"key": "T-1", "status": "closed", "subject": "备份"}
    whole = run_in(base, ["put", "tickets", json.dumps(TICKET | {"ticket": {"key": "T-1", "status": None}})])
    assert "ticket.subject was dropped" in whole.err and "status" not in whole.err.split("(")[0]
    kept = run_in(base, ["put", "tickets", '{"id": "T-1", "ticket": null}', "--merge"])
    assert "W_DROPPED" not in kept.err, "null deletes the field"


def test_a_dotted_name_in_a_write_leads_to_the_nested_form_with_the_other_members(base: Path) -> None:
    record = '{"id": "T-1", "ticket.status": "closed", "topic": "billing"}'
    for args, stdin in ((["put", "tickets", record, "--merge"], ""), (["put", "tickets"], record)):
        ran = run_in(base, [*args, "--json"], stdin=stdin)
        findings = ran.error["details"]["findings"]
        assert ran.code > 0 and [finding["code"] for finding in findings] == ["E_NAME"]
    assert leads_on(base, run_in(base, ["put", "tickets", record])).line["updated"] == 1
    line = run_in(base, ["get", "tickets", "T-1"]).line
    assert (line["ticket"]["status"], line["ticket"]["subject"], line["topic"]) == ("closed", "备份", "billing")
    assert "ticket.status" not in line
    file = _write(base, "t.csv", "id,ticket.status\nT-1,open\n")
    assert "E_NAME" in run_in(base, ["import", "tickets", file, "--merge"]).err
    assert run_in(base, ["put", "tickets", '{"id": "T-2", "v1.2": "x"}']).code == 0, "no object has that name"


def test_a_dotted_name_is_refused_where_the_schema_says_object(tmp_path: Path) -> None:
    root = make_base(
        tmp_path / "kb",
        "nodes:\n  Case:\n    table: case\n    identity: [id]\n    schema:\n      type: object\n"
        "      properties:\n        id: {type: string}\n        who: {type: object}\n",
    )
    ran = run_in(root, ["put", "Case", '{"id": "c", "who.name": "沈括"}'])
    assert "'who.name' would be a second field" in ran.err
    assert leads_on(root, ran).line["inserted"] == 1
    assert run_in(root, ["get", "Case", "c"]).line["who"] == {"name": "沈括"}


def test_what_a_proposal_says_to_do_next_runs_as_it_is_printed(base: Path) -> None:
    first = run_in(base, ["propose", "--branch", "q/1", "put", "tickets", '{"id": "T-1", "topic": "sso"}', "--merge"])
    second = run_in(base, ["propose", "--branch", "q/2", "put", "tickets", '{"id": "T-2", "topic": "登录"}'])
    for proposed, name in ((first, "T-1"), (second, "T-2")):
        review, merge = _next_commands(proposed)
        shown = run_in(base, review)
        assert shown.code == 0 and name in shown.out and "shown undone" not in shown.err
        merged = run_in(base, merge)
        assert (merged.code, merged.line["action"]) == (0, "fast-forward" if proposed is first else "merged")
    assert run_in(base, ["get", "tickets", "T-1"]).line["topic"] == "sso"
    assert run_in(base, ["get", "tickets", "T-2"]).line["topic"] == "登录"


@pytest.mark.parametrize("ahead", [False, True], ids=["fast-forward", "two histories"])
def test_a_merge_that_brings_a_record_which_is_not_committed_here_writes_nothing(base: Path, ahead: bool) -> None:
    proposed = ["propose", "--branch", "q/3", "put", "tickets", '{"id": "T-9", "topic": "theirs"}']
    assert run_in(base, proposed, env={"DUCKKB_WRITER": "another clone"}).code == 0
    if ahead:
        (base / "own.txt").write_text("mine\n", "utf-8")
        commit(base)
    assert run_in(base, ["put", "tickets", '{"id": "T-9", "topic": "ours"}']).code == 0
    assert run_in(base, ["put", "Note", '{"id": "other", "title": "not of the merge"}']).code == 0
    for staged in (False, True):
        if staged:
            git(base, "add", "-A")
        before = git(base, "rev-parse", "HEAD"), git(base, "status", "--porcelain")
        ran = run_in(base, ["merge", "q/3", "--json"])
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", "E_REFUSED")
        assert "tickets T-9" in ran.error["error"] and "other" not in ran.error["error"]
        assert (git(base, "rev-parse", "HEAD"), git(base, "status", "--porcelain")) == before
        assert not (base / ".git/MERGE_HEAD").exists() and run_in(base, ["check"]).code == 0
    add, message = (shlex.split(step) for step in ran.error["suggestion"].split(" && "))
    git(base, *add[1:])
    git(base, *message[1:])
    conflict = run_in(base, ["merge", "q/3"])
    assert (conflict.code, conflict.lines[0]["counts"]["conflicts"]) == (1, 1), "both sides have a topic of it"


def test_a_merge_goes_on_beside_records_that_are_not_committed_and_not_in_it(base: Path) -> None:
    proposed = ["propose", "--branch", "q/4", "put", "tickets", '{"id": "T-9", "topic": "theirs"}']
    assert run_in(base, proposed).code == 0
    assert run_in(base, ["put", "Note", '{"id": "mine", "title": "not committed"}']).code == 0
    assert run_in(base, ["merge", "q/4"]).line["action"] == "fast-forward"
    assert run_in(base, ["get", "Note", "mine"]).code == 0 and run_in(base, ["check"]).code == 0


ROWS = [f"C{n},user{n}@example.org,Ann,{n % 3}" for n in range(20)]
CUSTOMERS = "customer_id,email,name,seats\n" + "\n".join(ROWS) + "\n"


def test_a_file_with_an_evident_key_is_not_imported_under_ids_of_its_contents(base: Path) -> None:
    file = _write(base, "customers.csv", CUSTOMERS)
    for option in (["--dry-run"], []):
        ran = run_in(base, ["import", "customers", file, *option])
        assert (ran.code, ran.out) == (1, "") and "customer_id tells all 20 of them apart" in ran.err
        assert not (base / "ontology/collections/customers.yaml").exists()
        assert leads_on(base, ran).code == 0
    assert run_in(base, ["get", "customers", "C7"]).line["email"] == "user7@example.org"


@pytest.mark.parametrize(
    "text",
    ["customer_id,n\nC1,1\nC1,2\n", "customer_id,n\nC1,1\n,2\n", "monkey,n\nC1,1\nC2,1\n", "customer_id,n\nC1,1\n"],
    ids=["twice", "a gap", "another name", "one row"],
)
def test_a_column_that_may_be_no_key_leaves_ids_to_the_contents(base: Path, text: str) -> None:
    ran = run_in(base, ["import", "rows", _write(base, "r.csv", text)])
    assert ran.code == 0 and "W_GENERATED_ID" in ran.err


@pytest.mark.parametrize("fields", ["email", "email,name"])
def test_rows_that_are_there_are_not_added_once_more_under_an_id_of_other_fields(base: Path, fields: str) -> None:
    file = _write(base, "customers.csv", CUSTOMERS)
    assert run_in(base, ["import", "customers", file, "--id", "customer_id"]).line["inserted"] == 20
    ran = run_in(base, ["import", "customers", file, "--id", fields])
    assert ran.code == 1 and "all 20 records are in customers already, under another id" in ran.err
    assert leads_on(base, ran).line["unchanged"] == 20
    assert run_in(base, ["import", "members", file, "--id", fields]).line["inserted"] == 20, "another name goes on"
    more = _write(base, "more.csv", CUSTOMERS + "C99,new@example.org,Eve,1\n")
    assert run_in(base, ["count", "customers"]).line["count"] == 20
    assert run_in(base, ["import", "customers", more, "--id", "customer_id"]).line["inserted"] == 1


def test_put_says_which_id_it_made(base: Path) -> None:
    ran = run_in(base, ["put", "tickets", '{"topic": "sync"}'])
    (made,) = ran.line["identities"]
    assert f"W_GENERATED_ID: tickets: 1 record without id got a random one: {made}" in ran.err
    two = run_in(base, ["put", "tickets"], stdin='{"topic": "a"}\n{"id": "own", "topic": "b"}\n')
    assert "1 record without id" in two.err and two.line["inserted"] == 2
    assert "W_GENERATED_ID" not in run_in(base, ["put", "tickets", '{"id": "own", "topic": "c"}']).err


def test_reads_without_results_say_so_with_the_exit_code_that_they_had(base: Path) -> None:
    for args in (["list", "tickets", "-w", "topic = 'sync' AND id = 'T-2'"], ["graph", "citing", "tickets", "T-1"]):
        ran = run_in(base, args)
        assert (ran.code, ran.out) == (0, "") and ran.err.splitlines()[-1] == "no results", args
    assert "no results" not in run_in(base, ["list", "tickets", "-w", "topic = 'sync'"]).err


def test_every_check_of_doctor_is_in_the_table_of_the_guide_under_its_own_name(base: Path) -> None:
    names = {line["check"] for line in run_in(base, ["doctor"]).lines if "check" in line}
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    rows = page.split("| checks | look at |")[1].split("\n\n")[0].splitlines()
    listed = {name for row in rows for name in re.findall("`([a-z_]+)`", row.split("|")[1])}
    assert names == CHECKS.keys() == listed
    assert {"tracked_state", "derived_state"} <= names
