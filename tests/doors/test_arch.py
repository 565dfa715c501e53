"""Graphs of code: written by a real command that reads a small tree of Python, trusted, imported, refreshed; refused where they
are hostile; and said beside the answers of a query."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in

pytestmark = pytest.mark.usefixtures("one_day")

TOOL = """
import ast, json, os, pathlib, sys
home = pathlib.Path(os.environ["DUCKKB_CODE"])
with open(home.parent / "runs.txt", "a") as log:
    log.write(os.getcwd() + " " + repr(sys.stdin.read()) + "\\n")
nodes, links, defined, calls = [], [], {}, []
for path in sorted((home / "src").rglob("*.py")):
    name = path.relative_to(home).as_posix()
    nodes.append({"id": name, "label": path.name, "file_type": "file", "source_file": str(path), "community": 3})
    for function in ast.parse(path.read_text()).body:
        own = name + "::" + function.name
        defined[function.name] = own
        nodes.append({"id": own, "label": function.name + "()", "file_type": "function", "source_file": str(path),
                      "source_location": "L%d" % function.lineno})
        links.append({"source": name, "target": own, "relation": "contains", "confidence": "EXTRACTED", "confidence_score": 1})
        calls += [(own, call.func.id) for call in ast.walk(function) if isinstance(call, ast.Call) and hasattr(call.func, "id")]
links += [{"source": a, "target": defined[b], "relation": "calls", "confidence": "INFERRED", "confidence_score": 0.8}
          for a, b in calls if b in defined]
pathlib.Path("graph.json").write_text(json.dumps({"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}))
"""
POOL = "def acquire(size):\n    return retry(size)\n\n\ndef release(one):\n    return None\n"
RETRY = "def retry(times):\n    return times\n\n\ndef backoff(times):\n    return retry(times)\n"


def _base(tmp_path: Path, command: str, more: str = "") -> Path:
    settings = {"command": command, "timeout_s": 20}
    root = make_base(tmp_path / "kb", f"global: {{embedding_model: none}}\narch: {json.dumps(settings)}\n{more}")
    for path, text in (("src/pool.py", POOL), ("src/net/retry.py", RETRY), ("tools/graph.py", TOOL)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    commit(root)
    return root


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return _base(tmp_path, f'"{sys.executable}" "$DUCKKB_CODE/tools/graph.py"')


def _graph(root: Path) -> dict[str, Any]:
    """What the tool says, asked without duckkb."""
    folder = root.parent / "oracle"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(root / "tools/graph.py")]
    env = {**os.environ, "DUCKKB_CODE": str(root)}
    subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, check=True)
    (root.parent / "runs.txt").write_text("", "utf-8")
    found: dict[str, Any] = json.loads((folder / "graph.json").read_text("utf-8"))
    return found


def _expected(root: Path) -> dict[Any, tuple[Any, ...]]:
    """By identity what each record of the tool's graph says."""
    graph = _graph(root)
    nodes = {
        one["id"]: (one["label"], one["source_file"].removeprefix(f"{root}/"), one.get("source_location"))
        for one in graph["nodes"]
    }
    links = {
        (one["source"], one["target"], one["relation"]): (one["confidence_score"], one["confidence"])
        for one in graph["links"]
    }
    return {**nodes, **links}


def _key(record: dict[str, Any]) -> Any:
    return record["id"] if "id" in record else (record["from"], record["to"], record["relation"])


def _stored(root: Path) -> dict[Any, tuple[Any, ...]]:
    nodes, links = run_in(root, ["export", "arch"]).lines, run_in(root, ["export", "arch_links"]).lines
    return {
        **{_key(one): (one["label"], one["file"], one.get("location")) for one in nodes},
        **{_key(one): (one["confidence"], one["evidence"]) for one in links},
    }


def _changed(root: Path) -> set[Any]:
    """The records whose lines git sees changed."""
    lines = git(root, "diff", "HEAD", "-U0", "--", "data").splitlines()
    return {_key(json.loads(line[1:])) for line in lines if line[:2] in ("+{", "-{")}


def _ran(root: Path) -> list[str]:
    return (root.parent / "runs.txt").read_text("utf-8").splitlines()


def _refused(ran: Ran, code: str) -> dict[str, Any]:
    assert ran.code == 1 and ran.out == "", ran
    assert ran.error["code"] == code, ran.err
    return ran.error


@pytest.mark.long
def test_kx_01_arch_a_command_runs_once_it_is_trusted_and_refresh_changes_what_changed(code: Path) -> None:
    expected = _expected(code)
    status = run_in(code, ["arch", "status"]).line
    assert (status["configured"], status["trusted"], status["commit"], status["nodes"]) == (True, False, None, 0)
    for verb in ("build", "refresh"):
        assert "duckkb trust" in _refused(run_in(code, ["arch", verb, "--json"]), "E_UNTRUSTED")["suggestion"]
    assert _ran(code) == [] and git(code, "status", "--short") == ""
    assert "tools/graph.py" in run_in(code, ["trust", "--show"]).line["demands"]["arch.command"]
    assert run_in(code, ["trust"]).code == 0

    built = run_in(code, ["arch", "build"])
    assert "community" in built.err, "what is not kept is said"
    assert _stored(code) == expected and built.line["inserted"] == len(expected)
    (where,) = _ran(code)
    assert where.endswith(" ''") and not where.startswith(str(code)), "outside of the base, without stdin"
    assert {line[3:] for line in git(code, "status", "--short").splitlines()} == {"data/", "ontology/"}
    head = git(code, "rev-parse", "HEAD").strip()
    commit(code, "the graph")
    status = run_in(code, ["arch", "status"]).line
    assert (status["trusted"], status["commit"], status["ahead"], status["stale"]) == (True, head, 1, False)
    assert (status["nodes"], status["edges"]) == (6, 6) == (len(expected) // 2, len(expected) // 2)
    assert run_in(code, ["check"]).code == 0

    assert run_in(code, ["arch", "refresh"]).line == {"name": "arch", "built": False}
    assert len(_ran(code)) == 1, "nothing changed, nothing runs"
    again = run_in(code, ["arch", "build"]).line
    assert (again["inserted"], again["updated"], again["deleted"], again["files"]) == (0, 0, 0, [])
    assert git(code, "status", "--short") == ""

    (code / "src/net/retry.py").write_text(
        "def retry(times):\n    return times\n\n\n\ndef wait(times):\n    return retry(times)\n"
    )
    assert run_in(code, ["arch", "status"]).line["stale"] is True
    before, after = expected, _expected(code)
    done = run_in(code, ["arch", "refresh"]).line
    differ = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    assert _changed(code) == differ and len(differ) == 6
    assert (done["inserted"], done["updated"], done["deleted"]) == (3, 0, 3) and _stored(code) == after
    assert run_in(code, ["check"]).code == 0

    git(code, "checkout", "-q", "--", "data")
    assert run_in(code, ["arch", "status"]).line["stale"] is True, "the code is as it was, the records are not"
    assert run_in(code, ["arch", "refresh"]).line["built"] is True and _stored(code) == after

    text = (code / "config.yaml").read_text("utf-8")
    (code / "config.yaml").write_text(text.replace("graph.py", "other.py"), "utf-8")
    _refused(run_in(code, ["arch", "build", "--json"]), "E_UNTRUSTED")


def test_kx_01_arch_is_off_where_no_command_is_named(notes: Path) -> None:
    status = run_in(notes, ["arch", "status"]).line
    assert (status["configured"], status["trusted"], status["stale"]) == (False, None, None)
    assert run_in(notes, ["arch", "build", "--json"]).error["code"] == "E_CONFIG"
    assert run_in(notes, ["arch", "import", "none.json", "--json"]).error["code"] == "E_PATH"
    (notes / "graph.json").write_text('{"nodes": [], "links": []}', "utf-8")
    taken = run_in(notes, ["arch", "import", "graph.json", "--name", "Note", "--json"])
    assert _refused(taken, "E_EXISTS") and not (notes / "ontology").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo broken thing >&2; exit 3", "ended with 3: broken thing"),
        ("true", "wrote no file graph.json"),
        ("ln -s /etc/passwd graph.json", "wrote no file graph.json"),
        ("(sleep 50; touch $DUCKKB_CODE/late) & echo $! > $DUCKKB_CODE/../pid; wait", "did not end within 1 s"),
    ],
)
def test_kx_01_arch_a_command_that_fails_changes_nothing(tmp_path: Path, command: str, said: str) -> None:
    root = _base(tmp_path, command)
    (root / "config.yaml").write_text((root / "config.yaml").read_text("utf-8").replace("20", "1"), "utf-8")
    assert run_in(root, ["trust"]).code == 0
    assert said in _refused(run_in(root, ["arch", "build", "--json"]), "E_REFUSED")["error"]
    assert not (root / "late").exists(), "nobody waited for what it started"
    assert git(root, "status", "--short").split() == ["M", "config.yaml"]
    if (pid := tmp_path / "pid").exists():
        state = Path(f"/proc/{int(pid.read_text())}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX", (
            "what it started ended too"
        )


def _import(root: Path, graph: Any, *more: str) -> Ran:
    (root / "g.json").write_text(graph if isinstance(graph, str) else json.dumps(graph), "utf-8")
    ran = run_in(root, ["arch", "import", "g.json", "--json", *more])
    (root / "g.json").unlink()
    return ran


def _numbered(count: int, start: int = 0) -> dict[str, Any]:
    return {
        "nodes": [{"id": n} for n in range(start, count)],
        "edges": [{"source": n, "target": n} for n in range(start, count)],
    }


def test_kx_01_arch_hostile_graphs_are_refused_whole_with_every_problem(notes: Path) -> None:
    hostile = """{"nodes": [{"id": "a"}, {"id": "a"}, {"id": ""}, {"id": 1.5}, {"id": "b", "label": ["x"]}, 7, {"label": "no id"},
        {"id": "c", "label": "%s"}, {"id": "x\\u0000y"}, {"id": "d", "id": "e"}],
      "links": [{"source": "a", "target": "nowhere"}, {"source": "a", "target": "b", "confidence": 1.5},
        {"source": "a", "target": "b", "confidence": NaN}, {"source": "a", "target": "b", "confidence": "SURELY"},
        {"source": "a", "target": "b", "confidence_score": true}, {"source": {"id": "a"}, "target": "b"}]}"""
    error = _refused(_import(notes, hostile % ("x" * 10_000_000)), "E_INVALID")
    places = {one["field"]: one["code"] for one in error["details"]["findings"]}
    assert places == {
        "/nodes/1/id": "E_DUP_IDENTITY", "/nodes/2/id": "E_IDENTITY", "/nodes/3/id": "E_IDENTITY",
        "/nodes/4/label": "E_INVALID", "/nodes/5": "E_INVALID", "/nodes/6/id": "E_IDENTITY", "/nodes/7/label": "E_INVALID",
        "/nodes/8/id": "E_IDENTITY", "/nodes/9/id": "E_DUP_KEY", "/links/0/target": "E_DANGLING_EDGE",
        "/links/1/confidence": "E_INVALID", "/links/2/confidence": "E_NUMBER", "/links/3/confidence": "E_INVALID",
        "/links/4/confidence_score": "E_INVALID", "/links/5/source": "E_IDENTITY",
    }  # fmt: skip
    assert {one["path"] for one in error["details"]["findings"]} == {"g.json"} and "15 problems" in error["error"]
    odd: list[Any] = [
        "",
        "{",
        "[]",
        "null",
        "\ufeff{}",
        '{"nodes": []}',
        "[" * 100_000,
        '{"nodes": [], "links": []} {}',
    ]
    for graph in (*odd, {"nodes": {}, "links": []}, {"nodes": [], "links": [], "edges": []}):
        assert _refused(_import(notes, graph), "E_INVALID")["details"]["findings"], graph
    many = _refused(_import(notes, {"nodes": [{"id": None}] * 5_000, "links": []}), "E_INVALID")
    assert len(many["details"]["findings"]) == 100 and "more than 100" in many["error"]
    assert git(notes, "status", "--short", "--", "data", "ontology") == "", "nothing of it was written"


def test_kx_01_arch_imports_are_what_the_graph_says_whatever_its_form(notes: Path) -> None:
    graph: dict[str, Any] = {
        "nodes": [{"id": 1, "name": "one"}, {"id": "b", "source_file": ".\\\\src\\\\b.py", "type": "CLASS", "line": 7}],
        "edges": [
            {"source": 1, "target": "b", "key": 0, "relation": "uses", "confidence": "INFERRED"},
            {"source": 1, "target": "b", "key": 1, "relation": "uses", "confidence": "EXTRACTED", "weight": 2},
            {"source": "b", "target": "b", "relation": "calls", "confidence": 0.25},
            {"source": "b", "target": 1},
        ],
        "built_at_commit": "0123abc",
    }
    done = _import(notes, graph)
    assert (done.line["nodes"], done.line["edges"], done.line["commit"]) == (2, 3, "0123abc"), done.err
    assert "1 edges repeat" in done.err and "weight" in done.err
    nodes, links = run_in(notes, ["export", "arch"]).lines, run_in(notes, ["export", "arch_links"]).lines
    assert [(one["id"], one["label"], one.get("file"), one.get("kind"), one.get("location")) for one in nodes] == [
        ("1", "one", None, None, None), ("b", "b", "src/b.py", "CLASS", "7"),
    ]  # fmt: skip
    assert {_key(one): (one.get("confidence"), one.get("evidence")) for one in links} == {
        ("1", "b", "uses"): (1.0, "EXTRACTED"), ("b", "b", "calls"): (0.25, None), ("b", "1", "related"): (None, None),
    }  # fmt: skip
    commit(notes)
    turned = {"nodes": graph["nodes"][::-1], "links": graph["edges"][::-1]}
    assert _import(notes, turned).line["files"] == [] and git(notes, "status", "--short") == ""
    assert [hit["id"] for hit in run_in(notes, ["find", "arch", "one", "-m"]).lines] == ["1"]
    near = run_in(notes, ["graph", "neighbors", "arch", "1"]).lines
    assert {(one["id"], one["_edge"]["relation"]) for one in near} == {("b", "uses"), ("b", "related")}


def test_kx_01_arch_what_a_graph_lost_goes_under_the_guard_of_deletions(notes: Path) -> None:
    assert _import(notes, _numbered(50), "--name", "big").line["inserted"] == 100
    commit(notes)
    _refused(_import(notes, _numbered(50, 25), "--name", "big"), "E_SHRINK")
    assert git(notes, "status", "--short") == ""
    done = _import(notes, _numbered(50, 25), "--name", "big", "--allow-shrink").line
    assert (done["deleted"], done["unchanged"], done["inserted"]) == (50, 50, 0)
    assert run_in(notes, ["check"]).code == 0
    (notes / "ontology/more.yaml").write_text("edges: {explains: {from: Note, to: big}}\n", "utf-8")
    assert run_in(notes, ["put", "Note", '{"id": "n"}']).code == 0
    assert run_in(notes, ["put", "explains", '{"from": "n", "to": "30"}']).code == 0
    lost = _refused(_import(notes, _numbered(50, 31), "--name", "big"), "E_EDGES")
    assert "explains" in json.dumps(lost), "an edge of somebody's own keeps its node"


def test_kx_01_arch_hints_stand_beside_the_answers_and_move_none(code: Path) -> None:
    assert run_in(code, ["trust"]).code == 0 and run_in(code, ["arch", "build"]).code == 0
    assert run_in(code, ["collection", "add", "src", "--mask", "**/*.py"]).code == 0
    plain = run_in(code, ["query", "release", "--json"])
    hinted = run_in(code, ["query", "release", "--json", "--arch-hints"])
    assert json.loads(plain.out)["results"][0]["file"] == "duckkb://src/pool.py" and "hint" not in plain.out + plain.err
    whole = json.loads(hinted.out)
    hints = whole.pop("hints")
    assert whole == json.loads(plain.out) and "hint" not in hinted.err, "hints change no answer"
    assert [(one["of"], one["relation"], one["direction"], one["label"], one["confidence"]) for one in hints] == [
        ("release()", "contains", "in", "pool.py", 1.0),
        ("acquire()", "calls", "out", "retry()", 0.8),
        ("pool.py", "contains", "out", "acquire()", 1.0),
    ]
    assert hints[1]["file"] == "src/net/retry.py"
    told = run_in(code, ["query", "what calls retry", "--arch-hints"]).err
    lines = [line for line in told.splitlines() if line.startswith("hint: ")]
    assert lines[0] == "hint: acquire() (src/pool.py) calls retry() [0.8]" and len(lines) == 5
    assert run_in(code, ["query", "what calls retry", "--arch-hints"]).err == told


def test_how_many_hints_there_are_and_how_sure_is_a_setting(code: Path) -> None:
    assert run_in(code, ["trust"]).code == 0 and run_in(code, ["update", "--arch-refresh"]).code == 0
    whole = run_in(code, ["arch", "query", "what calls retry"]).lines
    assert len(whole) == 3 and {one["confidence"] for one in whole} == {0.8, 1.0}
    config = (code / "config.yaml").read_text("utf-8")
    (code / "config.yaml").write_text(
        config.replace('"timeout_s": 20', '"timeout_s": 20, "min_confidence": 0.9, "hints": 1'), "utf-8"
    )
    assert (
        run_in(code, ["arch", "query", "what calls retry"]).lines
        == [one for one in whole if one["confidence"] == 1][:1]
    )
    nothing = run_in(code, ["arch", "query", "weather", "--json"])
    assert nothing.code == 1 and json.loads(nothing.out) == {"hints": []} and nothing.error["code"] == "E_NO_RESULTS"


@pytest.mark.parametrize("label", ["renew_certificate()", "renewCertificate()", "TLSRenewCertificate.py"])
def test_a_question_names_a_function_by_all_parts_of_its_name(notes: Path, label: str) -> None:
    nodes = [{"id": name, "label": name, "source_file": "src/tls.py"} for name in (label, "main()", "renew_all()")]
    calls = [
        {"source": "main()", "target": other, "relation": "calls", "confidence_score": 1}
        for other in (label, "renew_all()")
    ]
    assert _import(notes, {"nodes": nodes, "links": calls}).code == 0
    hints = run_in(notes, ["arch", "query", "how do we renew a TLS py certificate, 证书"]).lines
    assert [(hint["of"], hint["label"]) for hint in hints] == [(label, "main()")], (
        "renew_all has a part that is not asked"
    )
    assert run_in(notes, ["arch", "query", "renew it"]).code == 1


def test_an_update_refreshes_the_graph_of_the_code_where_that_is_asked(code: Path) -> None:
    assert run_in(code, ["trust"]).code == 0
    assert run_in(code, ["update"]).code == 0 and run_in(code, ["arch", "status"]).line["nodes"] == 0
    assert run_in(code, ["update", "--arch-refresh"]).code == 0 and run_in(code, ["arch", "status"]).line["nodes"] > 0


def test_kx_01_arch_a_graph_is_removed_with_its_types(notes: Path) -> None:
    commit(notes)
    assert _import(notes, _numbered(30), "--name", "big").code == 0
    _refused(run_in(notes, ["collection", "remove", "big", "--json"]), "E_SHRINK")
    (notes / "ontology/more.yaml").write_text("edges: {explains: {from: Note, to: big}}\n", "utf-8")
    assert "explains" in run_in(notes, ["collection", "remove", "big", "--yes"]).err
    (notes / "ontology/more.yaml").unlink()
    own = (notes / "ontology/big.yaml").read_text("utf-8")
    (notes / "ontology/big.yaml").write_text(own + "  big_more: {from: big, to: big}\n", "utf-8")
    _refused(run_in(notes, ["collection", "remove", "big", "--yes", "--json"]), "E_REFUSED")
    (notes / "ontology/big.yaml").write_text(own, "utf-8")
    assert len(run_in(notes, ["export", "big"]).lines) == 30, "nothing of it went so far"
    line = run_in(notes, ["collection", "remove", "big", "--yes"]).line
    assert (line["name"], len(line["files"])) == ("big", 3)
    assert [path for path in (notes / "data").rglob("*.jsonl") if "big" in str(path)] == []
    assert not (notes / "ontology/big.yaml").exists() and run_in(notes, ["check"]).code == 0
    assert run_in(notes, ["arch", "status", "--name", "big"]).line["nodes"] == 0
    assert _import(notes, _numbered(30), "--name", "big").line["inserted"] == 60
