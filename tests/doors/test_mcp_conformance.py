"""The official suite of MCP and its inspector against `duckkb mcp`. They are programs of Node; `npm ci --prefix tests/harness/mcp`
installs them, and without them these tests are skipped."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.operations.catalog import ACTIONS
from duckkb.server.mcp_answers import COMMON
from tests.conftest import NOTES, make_base
from tests.doors.test_mcp import base as base
from tests.doors.test_mcp import command, http
from tests.harness.servers import served
from tests.harness.waiting import HANG_S

pytestmark = pytest.mark.long
HOME = Path(__file__).resolve().parents[1] / "harness/mcp"
OFFICIAL = HOME / "node_modules/@modelcontextprotocol"
SUITE, INSPECTOR = OFFICIAL / "conformance/dist/index.js", OFFICIAL / "inspector/clients/launcher/build/index.js"
SCENARIOS, OLDEST_NODE = 32, 22


def _is_new(program: str) -> bool:
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    return int(told.removeprefix("v").partition(".")[0]) >= OLDEST_NODE


@pytest.fixture(scope="module")
def node() -> str:
    if not (SUITE.exists() and INSPECTOR.exists()):
        pytest.skip("not installed: npm ci --prefix tests/harness/mcp")
    for found in (HOME / "node_modules/.bin/node", shutil.which("node")):
        if found and _is_new(str(found)):
            return str(found)
    pytest.skip(f"there is no Node from {OLDEST_NODE} on")


@contextmanager
def fixtures(root: Path) -> Iterator[str]:
    """The URL of a server with what the suite asks for by name."""
    log = root.with_name("log")
    program, token = "tests.harness.mcp.fixtures", {"DUCKKB_MCP_TOKEN": "of-the-suite-and-of-nobody-else-at-all"}
    with served(root, "mcp", "--http", log=log, program=program, **token) as server:
        yield str(server.told["url"])


def suite(node: str, url: str, expected: Path, *args: str) -> subprocess.CompletedProcess[str]:
    asked = [node, str(SUITE), "server", "--url", url, "--expected-failures", str(expected), *args]
    return subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANG_S)


@pytest.mark.parametrize(("query", "expected"), [("?session=1", "sessions.yml"), ("", "without_sessions.yml")])
def test_kx_14_the_official_suite_finds_what_is_expected_and_nothing_else(
    node: str, tmp_path: Path, query: str, expected: str
) -> None:
    with fixtures(make_base(tmp_path / "kb", NOTES)) as url:
        ran = suite(node, url + query, HOME / expected, "--suite", "all", "-o", str(tmp_path / "out"))
        assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-1_000:]
        assert len(list((tmp_path / "out").glob("*/checks.json"))) == SCENARIOS, ran.stdout
        for lines in ("server:\n  - ping\n", "server: []\n"):  # the control: one that passes, and one that fails
            (tmp_path / "wrong.yml").write_text(lines, "utf-8")
            scenario = "ping" if "ping" in lines else "server-sse-polling"
            assert suite(node, url + query, tmp_path / "wrong.yml", "--scenario", scenario).returncode == 1


def test_kx_14_the_inspector_lists_and_calls_tools_over_both_transports(node: str, base: Path) -> None:
    def inspect(target: Sequence[str], *args: str) -> dict[str, object]:
        asked = [node, str(INSPECTOR), "--cli", *target, *args]
        around = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
        ran = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANG_S, env=around)
        assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-2_000:]
        told: dict[str, object] = json.loads(ran.stdout)
        return told

    def use(target: Sequence[str]) -> None:
        listed = inspect(target, "--method", "tools/list", "--strict")["tools"]
        assert isinstance(listed, list) and [one["name"] for one in listed] == [
            name for name in ACTIONS if name in COMMON
        ]
        got = inspect(target, "--method", "tools/call", "--tool-name", "get", "--tool-arg", "type=Note", "identity=n1")
        assert got["structuredContent"]["title"] == "ducks 1"  # type: ignore[index]
        read = inspect(target, "--method", "resources/read", "--uri", "duckkb://Note/n2")
        assert "ducks 2" in json.dumps(read)

    use(command(base))
    with http(base) as server:
        use([server.url, "--transport", "http", "--header", f"Authorization: Bearer {server.token}"])
