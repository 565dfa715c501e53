"""Errors over all verbs, through the real process: their form, their exit codes, and the readers who have enough."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from duckkb.storage import base_lock
from duckkb.types.codes import CODES
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in
from tests.fake_endpoint import FakeEndpoint
from tests.harness.waiting import HANG_S


@dataclass(frozen=True)
class Case:
    """A command line that fails, and how."""

    args: tuple[str, ...]
    exit_code: int
    code: str
    stdin: str = ""

    def __str__(self) -> str:
        return " ".join(self.args)[:60]


def case(exit_code: int, code: str, *args: str, stdin: str = "") -> Case:
    return Case(args, exit_code, code, stdin)


CASES = [
    # The command line alone is wrong: 2.
    case(2, "E_USAGE"),
    case(2, "E_USAGE", "fnid", "Note"),
    case(2, "E_USAGE", "get", "Note"),
    case(2, "E_USAGE", "graph", "walk"),
    case(2, "E_USAGE", "schema", "--nope"),
    case(2, "E_USAGE", "sql", "SELECT 1", "--timeout", "nan"),
    case(2, "E_USAGE", "repair", "everything"),
    case(2, "E_USAGE", "find", "Note"),
    case(2, "E_USAGE", "list", "Note", "-l", "0"),
    case(2, "E_INTENT", "find", "Note", "x", "-s"),
    case(2, "E_FILTER", "find", "Note", "x", "-w", "1=1; DROP TABLE note"),
    case(2, "E_SQL", "sql", "DELETE FROM note"),
    case(2, "E_PATH", "import", "Note", "nothing.jsonl"),
    case(2, "E_PATH", "export", "Note", "-o", "config.yaml"),
    # A single record that does not parse or fit: 2; a stream or a file: 1.
    case(2, "E_JSON", "put", "Note", '{"id":'),
    case(2, "E_SCHEMA", "put", "Note", '{"id": "x", "status": "wrong"}'),
    case(1, "E_INVALID", "put", "Note", stdin='{"id": "x"}\n{"id":\n'),
    case(1, "E_INVALID", "import", "Note", "bad.jsonl"),
    # It depends on what is stored: 1.
    case(1, "E_UNKNOWN_TYPE", "find", "Nope", "x"),
    case(1, "E_UNKNOWN_TYPE", "put", "Nope", "{}"),
    case(1, "E_NOT_FOUND", "get", "Note", "nobody"),
    case(1, "E_NOT_FOUND", "rename", "Note", "nobody", "somebody"),
    case(1, "E_NO_RESULTS", "graph", "path", "Note", "n02", "Note", "n03"),
    case(1, "E_NO_RESULTS", "find", "Note", "zebra"),
    case(1, "E_STALE", "put", "Note", '{"id": "n00"}', "--if-match", "0" * 16),
    case(1, "E_EXISTS", "rename", "Note", "n02", "n03"),
    case(1, "E_EXISTS", "init", "."),
    case(1, "E_EDGES", "delete", "Note", "n01"),
    case(1, "E_SHRINK", "delete", "Note", *(f"n{number:02}" for number in range(2, 25))),
    case(1, "E_DANGLING_EDGE", "put", "cites", '{"from": "n00", "to": "nobody"}'),
    case(1, "E_MODEL", "embed", "x"),
    case(1, "E_NO_KB", "status", "--kb", "nothing"),
]


def checked(ran: Ran, exit_code: int, code: str) -> None:
    answer = json.loads(ran.out) if code == "E_NO_RESULTS" else {}
    assert ran.code == exit_code and (not ran.out or code == "E_NO_RESULTS"), (ran.out, ran.err)
    assert not answer.get("results", answer.get("path")), "the whole answer, which has nothing in it"
    assert ran.error["code"] == code and ran.error["error"] and ran.error["suggestion"], ran.err
    assert set(ran.error) <= {"error", "code", "suggestion", "details"} and code in CODES
    assert code not in ran.error["error"], "a message is words"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 notes, one of which another one cites; nothing below changes them."""
    root = make_base(tmp_path_factory.mktemp("errors") / "kb", NOTES)
    lines = "".join(json.dumps({"id": f"n{number:02}", "text": f"fox {number}"}) + "\n" for number in range(30))
    assert run_in(root, ["put", "Note"], stdin=lines).code == 0
    assert run_in(root, ["put", "cites", '{"from": "n00", "to": "n01"}']).code == 0
    (root / "bad.jsonl").write_text('{"id": "x"}\n{"id":\n')
    return root


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_xd_11_and_xd_12_with_json_an_error_is_an_object_and_its_exit_code_is_1_or_2(base: Path, case: Case) -> None:
    checked(run_in(base, [*case.args, "--json"], stdin=case.stdin), case.exit_code, case.code)


@pytest.mark.parametrize("case", CASES[1:37:9], ids=str)
def test_xd_11_without_json_stderr_is_words_and_stdout_empty(base: Path, case: Case) -> None:
    ran = run_in(base, case.args, stdin=case.stdin)
    assert (ran.code, ran.out) == (case.exit_code, "")
    *_, said, suggestion = ran.err.splitlines()
    assert said.startswith("duckkb: ") and suggestion.startswith("  try: ") and "{" not in said


def test_xd_11_what_stands_behind_two_dashes_is_no_option(base: Path) -> None:
    ran = run_in(base, ["get", "Note", "--", "--json"])
    assert ran.code == 1 and ran.err.startswith("duckkb: no Note --json")
    checked(run_in(base, ["--json", "get", "Note", "--", "nobody"]), 1, "E_NOT_FOUND")


@pytest.mark.parametrize(
    ("config", "code"),
    [("global: {chunk_sise: 1}", "E_CONFIG"), ("nodes: {Note: {table: 5}}", "E_ONTOLOGY"), ("a: [", "E_YAML")],
)
def test_xd_12_a_wrong_configuration_or_ontology_is_2(tmp_path: Path, config: str, code: str) -> None:
    (tmp_path / "config.yaml").write_text(config)
    ran = run_in(tmp_path, ["list", "Note", "--json"])
    assert (ran.code, ran.out) == (2, "")
    assert code in {ran.error["code"], *(finding["code"] for finding in ran.error["details"]["findings"])}


def test_xd_12_truth_that_cannot_be_read_or_written_now_is_1(base: Path, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    commit(base)
    git(base, "clone", "-q", str(base), str(root))
    put = ["put", "Note", '{"id": "new"}', "--json"]
    with base_lock.exclusive(root, 5.0):
        checked(run_in(root, [*put, "--lock-timeout", "0"]), 1, "E_LOCKED")
    merge = Path(git(root, "rev-parse", "--absolute-git-dir").strip()) / "MERGE_HEAD"
    merge.write_text(git(root, "rev-parse", "HEAD"))
    checked(run_in(root, put), 1, "E_MERGE_IN_PROGRESS")
    merge.unlink()
    part = next((root / "data").rglob("*/note/*/*.jsonl"))
    part.write_bytes(part.read_bytes() + b"{\n")
    ran = run_in(root, ["list", "Note", "--json"])
    checked(ran, 1, "E_UNREADABLE")
    assert ran.error["details"]["findings"][0]["line"] == 31


@pytest.mark.parametrize(
    ("args", "code"),
    [(["put", "Note"], "E_USAGE"), (["sql"], "E_USAGE"), (["embed"], "E_USAGE"), (["find", "Note", "-s"], "E_INTENT")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_xd_11_no_verb_waits_for_a_terminal(base: Path, args: list[str], code: str) -> None:
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "duckkb", *args, "--json"]
        done = subprocess.run(command, cwd=base, stdin=theirs, capture_output=True, timeout=HANG_S)
    finally:
        os.close(ours)
        os.close(theirs)
    checked(Ran(done.returncode, done.stdout.decode(), done.stderr.decode()), 2, code)


def closed_reader(root: Path, args: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a process nobody reads from."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "duckkb", *args]
        done = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=writes, stderr=subprocess.PIPE, timeout=HANG_S
        )
    finally:
        os.close(writes)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    "args",
    [
        ["list", "Note", "-l", "5"],
        ["find", "Note", "fox"],
        ["export", "Note"],
        ["sql", "SELECT id FROM note", "-l", "5"],
        ["check", "--json"],
    ],
    ids=" ".join,
)
def test_xd_11_a_reader_who_has_enough_is_success(base: Path, args: list[str]) -> None:
    assert closed_reader(base, args) == (0, "")


def test_xd_11_a_reader_who_has_enough_of_vectors_is_success(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        root = make_base(
            tmp_path / "kb", NOTES.replace("embedding_model: none", f"embedding_model: far, embedding: {place}")
        )
        checked(run_in(root, ["embed", "x", "--json"]), 1, "E_UNTRUSTED")
        assert run_in(root, ["trust"]).code == 0
        assert closed_reader(root, ["embed", "--batch", json.dumps(["one", "two"] * 50)]) == (0, "")
