"""The TypeScript client: it is what the server's OpenAPI document says, and what it gives is what the command line prints."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from tests.conftest import ROOT, run_in
from tests.doors.test_mcp import ASKED, base
from tests.harness.servers import served
from tests.harness.waiting import HANG_S

__all__ = ["base"]
_CLIENT = ROOT / "clients/typescript"
_TSC = _CLIENT / "node_modules/typescript/bin/tsc"
_NODE = shutil.which("node")
_TOKEN = "0123456789abcdef" * 4


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_client", _CLIENT / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_client_is_current() -> None:
    said = "python clients/typescript/generate.py writes it anew"
    assert (_CLIENT / "src/actions.ts").read_text("utf-8") == _generator().source(), said


@pytest.mark.long
@pytest.mark.skipif(_NODE is None, reason="needs Node.js")
@pytest.mark.skipif(not _TSC.exists(), reason="needs TypeScript's compiler: npm ci --prefix clients/typescript")
def test_the_client_gives_what_the_command_line_prints(base: Path, tmp_path: Path) -> None:
    assert _NODE is not None
    built = tmp_path / "built"
    project = ["-p", str(_CLIENT / "test"), "--outDir", str(built)]
    compiled = subprocess.run([_NODE, str(_TSC), *project], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stdout
    (built / "package.json").write_text('{"type": "module"}')
    searches = {"searches": [{"type": "lex", "query": "install"}], "limit": 1}
    asked = [*((name, given) for name, given, _ in ASKED), ("query_documents", searches)]
    with served(base, log=tmp_path / "log", DUCKKB_MCP_TOKEN=_TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}"
        given = json.dumps({"url": url, "token": _TOKEN, "asked": asked})
        done = subprocess.run(
            [_NODE, str(built / "test/use.js")], input=given, capture_output=True, text=True, timeout=HANG_S
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["file"] for one in told["answers"].pop()["results"]] == ["duckkb://guide/install.md"]
    for (name, _, command), answer in zip(ASKED, told["answers"], strict=True):
        printed = run_in(base, [*command, "--json"]).line
        if "notices" not in printed:
            answer.pop("notices", None)  # which the command line has on stderr
        assert (answer["results"] if isinstance(printed, list) else answer) == printed, name
    assert told["best"] == "number" and told["ready"] == [True, False]
    assert told["errors"] == [
        ["NotFound", 404, "E_NOT_FOUND", "r-404", 0],
        ["InvalidRequest", 400, "E_ARGUMENT", "r-400", 2],
        ["Conflict", 409, "E_STALE", "r-409", 1],
        ["Denied", 403, "E_DENIED", "r-403", 0],
        ["Unavailable", 0, "E_CONNECTION", "", 0],
        "AbortError",
    ]
