"""A server whose installation is replaced while it runs: it goes on with what it began with, and says that another one is there."""

import ast
import json
import os
import shutil
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.installed import current
from duckkb.operations.catalog import ACTIONS
from duckkb.server import dispatcher
from duckkb.server.mcp_answers import COMMON
from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.harness.servers import Server, ask, served

_NOTE = {"type": "Note", "identity": "n1"}
_GIVEN: dict[str, dict[str, Any]] = {
    "find": {"type": "Note", "query": "ducks", "where": "length(title || text) > 3", "mode": "match"},
    "get": _NOTE,
    "multi_get": {"pattern": "guide/*.md"},
    "query": {"question": "ducks"},
    "search": {"question": "ducks"},
    "pack": {"question": "ducks"},
    "ask": {"question": "ducks"},
    "arch_query": {"question": "ducks"},
    "sql": {"statement": "SELECT count(*) AS n FROM note"},
    "neighbors": _NOTE,
    "path": {"start": ["Note", "n1"], "end": ["Note", "n2"]},
    "near": _NOTE,
    "citing": _NOTE,
    "blame": _NOTE,
    "log": _NOTE,
    "why": {**_NOTE, "query": "ducks"},
    "check": {"since": "HEAD~1"},
    "diff": {"range": "HEAD~1..HEAD"},
    "impact": {"range": "HEAD~1..HEAD"},
    "resolve": {"answers": {}},
    "put": {"type": "Note", "records": {"id": "n3", "title": "geese", "text": "swim"}},
    "rename": {"type": "Note", "old": "n3", "new": "n4"},
    "delete": {"type": "Note", "identities": ["n4"]},
    "memory_put": {"scope": "ann", "key": "k", "text": "ducks"},
    "memory_search": {"scope": "ann", "query": "ducks"},
    "memory_history": {"scope": "ann", "key": "k"},
    "memory_mark_accessed": {"scope": "ann", "keys": ["k"]},
}
"""By action, arguments with which it does what it is for; the others need a type, or none."""
_REFUSED = {"arch_query", "ask", "conflicts", "near", "resolve"}
"""No chat model, no graph of code, no merge and no vectors are there."""
_QUESTIONS = "questions:\n  - {question: ducks, type: Note, mode: match, expected: {n1: 1}}\n"
_OTHER = "99.1"


def _base(root: Path) -> None:
    make_base(root, NOTES + _QUESTIONS)
    (root / "guide").mkdir()
    (root / "guide" / "install.md").write_text("# Install\n\nHow to install ducks.\n", "utf-8")
    notes = "\n".join(json.dumps({"id": f"n{n}", "title": f"ducks {n}", "text": "swim"}) for n in (1, 2))
    for args in (
        ["collection", "add", "guide"],
        ["col", "init", "memory-ann", "--policy", "memory", "--params", '{"scope": "ann"}'],
    ):
        assert run_in(root, args).code == 0
    commit(root)
    assert run_in(root, ["put", "Note", "--batch", "-"], stdin=notes).code == 0
    assert run_in(root, ["update"]).code == 0
    git(root, "add", "-A")
    commit(root)


def _installation(folder: Path) -> Path:
    """A copy of duckkb as an installer leaves it."""
    shutil.copytree(Path(duckkb.__file__).parent, folder / "duckkb", ignore=shutil.ignore_patterns("__pycache__"))
    _install(folder, str(current()))
    return folder


def _install(folder: Path, version: str) -> None:
    about = folder / "duckkb-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: duckkb\nVersion: {version}\n", "utf-8")


def _answers(server: Server, token: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """What each action answers, those that need no arguments first."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for name in (*(ACTIONS.keys() - _GIVEN.keys()), *_GIVEN):
        answer, body = ask(server.connection(), "POST", f"/actions/{name}", token, _GIVEN.get(name) or _required(name))
        found[name] = answer.status, json.loads(body)
    return found


def _required(name: str) -> dict[str, Any]:
    return {one: "Note" for one in ACTIONS[name].input["required"] if one == "type"}


def _ready(connection: HTTPConnection) -> dict[str, Any]:
    while (found := ask(connection, "GET", "/ready"))[0].status == 503:
        pass
    told: dict[str, Any] = json.loads(found[1])
    return told


@pytest.mark.long
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_server_answers_everything_once_its_files_are_gone(workers: str, tmp_path: Path) -> None:
    root, installation = tmp_path / "kb", _installation(tmp_path / "site")
    _base(root)
    path = os.pathsep.join([str(installation), *filter(None, [os.environ.get("PYTHONPATH")])])
    with served(root, "serve", "--workers", workers, log=tmp_path / "log", PYTHONPATH=path) as server:
        token = Path(str(server.told["token"])).read_text("ascii").strip()
        assert _ready(server.connection()) == {"status": "ready", "version": current()}
        # The process for queries reads its files while it starts, behind the server's back.
        assert ask(server.connection(), "POST", "/actions/find", token, _GIVEN["find"])[0].status == 200
        (installation / "duckkb").rename(tmp_path / "gone")  # at once: the server may be writing bytecode there
        shutil.rmtree(tmp_path / "gone")
        _install(installation, _OTHER)
        answers = _answers(server, token)
        assert not {name: told for name, (status, told) in answers.items() if status != 200 and name not in _REFUSED}
        assert not {
            name: told for name, (_, told) in answers.items() if told.get("error", {}).get("code") == "E_INTERNAL"
        }
        for route in ("/openapi.json", "/web/sign-in", "/metrics"):
            assert ask(server.connection(), "GET", route, token)[0].status == 200, route
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert len(json.loads(ask(server.connection(), "POST", "/mcp", token, body)[1])["result"]["tools"]) == len(
            COMMON
        )
        assert _ready(server.connection()) == {
            "status": "ready", "version": current(), "installed": _OTHER, "restart": True,
        }  # fmt: skip
    assert str(installation) not in (tmp_path / "log").read_text(), "no traceback names a file of it"


@pytest.mark.long
def test_what_a_served_module_imports_at_first_use_is_imported_before_that() -> None:
    """But libraries of models, of formats and of processes of their own, which a base may not need."""
    others = {
        "bs4", "cryptography", "duckdb", "duckkb", "faiss", "jieba", "mammoth", "markdownify", "numkong", "onnxruntime", "openai",
        "pyarrow", "pypdf", "pypdfium2", "selectolax", "sentencepiece", "tree_sitter", "watchfiles",
    }  # fmt: skip
    lazy = set()
    home = Path(duckkb.__file__).parent
    elsewhere = tuple(f"{name.removeprefix('duckkb.').replace('.', '/')}" for name in dispatcher.ELSEWHERE)
    for path in home.rglob("*.py"):
        if path.relative_to(home).as_posix().startswith(elsewhere):
            continue
        for function in (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                lazy |= {*names, node.module} if isinstance(node, ast.ImportFrom) and node.module else {*names}
    libraries = {name for name in lazy if name.partition(".")[0] not in others | sys.stdlib_module_names}
    assert libraries - {*dispatcher.LIBRARIES} == set()
