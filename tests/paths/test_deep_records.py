"""Records as deep as the base allows are records like others, in every verb; what is deeper is refused, and ends no process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import duckkb
from tests.conftest import NOTES, commit, git, make_base, run_in


def nested(levels: int, leaf: str) -> Any:
    value: Any = leaf
    for _ in range(levels):
        value = [value]
    return value


def test_records_deeper_than_the_default_are_written_exported_traced_and_settled(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES + "limits: {max_depth: 128}\n")
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    for leaf in ("one", "two", "three"):
        if leaf != "one":
            git(root, "checkout", "-q", *(["-b", "topic"] if leaf == "two" else ["main"]))
        with duckkb.open(root) as kb:
            receipt = kb.put("Note", {"id": "a", "x": nested(127, leaf)})
            assert receipt.etags == (kb.get("Note", "a")["_etag"],)
            kb.export_file("Note", tmp_path / "out", force=True)
        assert json.loads((tmp_path / "out").read_text("utf-8"))["x"] == nested(127, leaf)
        commit(root, leaf)
    assert run_in(root, ["blame", "Note", "a", "x"]).line["summary"] == "three"
    assert run_in(root, ["merge", "topic"]).code == 1
    answer = {"type": "Note", "identity": "a", "field": "x"}
    too_deep = nested(128, "x")
    for given in (answer | {"value": too_deep}, {"type": "Note", "identity": "a", "record": {"x": too_deep}}):
        ran = run_in(root, ["resolve", "--with-file", "-", "--json"], stdin=json.dumps(given))
        assert ran.code == 1 and "line 1 of the answers" in ran.err and "nested too deep" in ran.err
    ran = run_in(root, ["resolve", "--with-file", "-"], stdin=json.dumps(answer | {"value": nested(127, "x")}))
    assert ran.code == 0, ran.err
    with duckkb.open(root) as kb:
        assert kb.get("Note", "a")["x"] == nested(127, "x")


@pytest.mark.skipif(sys.platform != "linux", reason="`ulimit -s` bounds the stack of a child on Linux")
def test_a_statement_as_deep_as_can_be_is_answered_alike_where_processes_get_little_stack(notes: Path) -> None:
    deep = "SELECT " + "[" * 3000 + "]" * 3000
    said = run_in(notes, ["sql", deep])
    command = ["sh", "-c", 'ulimit -s 256; exec "$@"', "sh", sys.executable, "-m", "duckkb", "sql", deep]
    ran = subprocess.run(command, cwd=notes, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (said.code, said.err) and said.code == 2
