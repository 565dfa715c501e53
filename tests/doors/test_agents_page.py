"""The page for agents: every command on it runs, in its order, and says what the page says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.doors.shell import page_blocks, run_blocks, run_script

PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")


def _blocks(text: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which the page was run, and what each of its blocks printed."""
    folder = tmp_path_factory.mktemp("agent")
    return folder, run_blocks([block.script for block in page_blocks(PAGE)], folder)


@pytest.mark.long
@pytest.mark.model
def test_every_command_of_the_page_runs_and_no_block_stands_outside_of_the_run(ran: tuple[Path, list[str]]) -> None:
    _, answers = ran
    assert len(_blocks(PAGE)) == len(answers) >= 10


@pytest.mark.long
@pytest.mark.model
def test_the_page_says_what_happens(ran: tuple[Path, list[str]]) -> None:
    (
        _,
        (
            made,
            put,
            many,
            found,
            told,
            refused,
            counted,
            packed,
            read,
            raised,
            whole,
            joined,
            stored,
            acted,
            tools,
            own,
        ),
    ) = ran
    assert joined.splitlines()[-1] == "journal"
    assert made.splitlines()[3:11] == [
        "documents",
        "feature-store",
        "harness",
        "knowledge-base",
        "memory",
        "simple-kv",
        "structured-logs",
        "vector-store",
    ]
    assert re.search(r"^[0-9a-f]{8}-[0-9a-f-]{27}$", put, re.MULTILINE)
    assert [json.loads(line)["errors"] for line in many.splitlines()] == [0, 0, 1]
    lines = [json.loads(line) for line in found.splitlines()]
    assert lines[0]["id"] == "wal" and {line["_engine"] for line in lines} == {"hybrid", "vector", "fts", "relational"}
    assert lines[-1]["id"] == "b" and lines[-1]["_engine"] == "vector"
    assert told.splitlines()[0] == "wal" and "\twal" in told
    assert refused.splitlines()[0] == "E_INTENT" and "-w" in refused
    assert '{"level":"error","n":1,"ms":12.0}' in counted
    assert packed.splitlines()[-1] == "A write-ahead journal survives a crash."
    assert read.splitlines()[0] == "A write-ahead journal survives a crash."
    assert json.loads(raised)["updated"] == 1
    assert whole.splitlines()[-1] == "A write-ahead journal survives a crash."
    assert stored.splitlines() == ["Open settings, then security."] * 2
    assert acted.splitlines()[-1] == '{"from":9,"to":17}'
    for tool in json.loads(tools):
        given = tool["function"]["parameters"]
        assert tool["function"]["name"].startswith("vector_") and given["type"] == "object"
        assert "action" not in given["properties"] and set(given["required"]) <= set(given["properties"])
    assert own.splitlines()[-1] == "duckkb col restore FILE"


_FULL = """duckkb() { [ "$1" = put ] && { echo '{"error": "no space", "code": "E_IO"}' >&2; return 1; }; command duckkb "$@"; }"""


@pytest.mark.long
@pytest.mark.model
@pytest.mark.parametrize(
    ("key", "around"), [("no.such.key", ""), ("app.limit", _FULL)], ids=["no such key", "full disk"]
)
def test_the_loop_that_changes_a_value_ends_where_it_cannot(ran: tuple[Path, list[str]], key: str, around: str) -> None:
    (loop,) = (block for block in _blocks(PAGE) if "E_STALE" in block)
    script = f"{around}\n{loop.replace('add_one app.limit', f'add_one {key}')}"
    assert run_script(script, ran[0], seconds=60).returncode == 1


@pytest.mark.long
@pytest.mark.model
def test_the_loop_that_changes_a_value_loses_none_beside_another_writer(ran: tuple[Path, list[str]]) -> None:
    (loop,) = (block for block in _blocks(PAGE) if "E_STALE" in block)
    own = loop.replace("error.json", "error$1.json").replace('"$1"', "app.limit").replace("add_one app.limit", "")
    many = "for n in 1 2 3; do add_one a; done & for n in 1 2 3; do add_one b; done; wait $!"
    before = json.loads(run_script("duckkb get settings app.limit", ran[0]).stdout)["value"]
    assert run_script(f"{own}\n{many}", ran[0], seconds=120).returncode == 0
    assert json.loads(run_script("duckkb get settings app.limit", ran[0]).stdout)["value"] == before + 6


@pytest.mark.long
@pytest.mark.model
def test_the_python_of_the_page_runs(ran: tuple[Path, list[str]]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=ran[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The deploy key rotates on Mondays." in done.stdout and "(('ops', 1),)" in done.stdout


@pytest.mark.long
def test_every_file_that_the_page_links_to_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert links and all((ROOT / "docs" / link).exists() for link in links)
