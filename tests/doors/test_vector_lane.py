"""How vectors are compared, by policy and by setting, through the real process; and beside the offline model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Ran, make_base, run_in

COUNT, DIMENSION = 1500, 24
CONFIG = """\
global: {{embedding_model: none{more}}}
snapshot: {{min_bytes: 0}}
"""
POLICY = {"dimension": DIMENSION}


def vectors(count: int, seed: int) -> np.ndarray:
    """Unit vectors around some centres."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((30, DIMENSION))
    found = centres[draw.integers(0, 30, count)] + 0.5 * draw.standard_normal((count, DIMENSION))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


STORED = vectors(COUNT, 1)
QUESTIONS = vectors(3, 2)


def lines(first: int, found: np.ndarray) -> str:
    made = ({"id": f"f{at:05d}", "tensor": row.tolist(), "odd": at % 2} for at, row in enumerate(found, first))
    return "".join(json.dumps(line) + "\n" for line in made)


def ok(root: Path, *args: str, stdin: str = "") -> Ran:
    ran = run_in(root, args, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def features(root: Path, more: str = "", **policy: Any) -> Path:
    """A base with a collection of given vectors."""
    make_base(root, CONFIG.format(more=more))
    ok(root, "col", "init", "feature", "--policy", "feature-store", "--params", json.dumps(POLICY | policy))
    ok(root, "import", "feature", "-", stdin=lines(0, STORED))
    return root


def find(root: Path, query: np.ndarray, *args: str) -> Ran:
    return ok(root, "find", "feature", "--vector", "-", *args, stdin=json.dumps(query.tolist()))


def found(ran: Ran) -> list[str]:
    return [line["id"] for line in ran.lines]


def right(query: np.ndarray, limit: int = 10, odd: int | None = None) -> list[str]:
    """By a product over everything in 64 bits."""
    scores = (STORED.astype(np.float64) @ query.astype(np.float64)).round(6)
    order = np.argsort(-scores, kind="stable")
    return [f"f{at:05d}" for at in order if odd is None or at % 2 == odd][:limit]


def lane(root: Path) -> dict[str, Any]:
    shown: dict[str, Any] = run_in(root, ["index", "status"]).lines[0]["lanes"]["feature"]["vectors"]
    return shown


@pytest.fixture(scope="module")
def graphed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return features(tmp_path_factory.mktemp("graphed") / "kb", ann="hnsw")


@pytest.mark.long
def test_a_graph_is_made_by_a_job_used_by_searches_and_shown(graphed: Path) -> None:
    before = find(graphed, QUESTIONS[0])
    assert found(before) == right(QUESTIONS[0]) and "W_EXACT" in before.err and "duckkb index refresh" in before.err
    assert lane(graphed)["ann"] == "exact"
    assert "W_EXACT" not in ok(graphed, "index", "refresh").err
    shown = lane(graphed)
    assert shown == {"rows": COUNT, "dimension": DIMENSION, "ann": "hnsw"}
    hits = []
    for query in QUESTIONS:
        ran = find(graphed, query)
        assert "W_EXACT" not in ran.err
        hits += [one in right(query) for one in found(ran)]
    assert len(hits) == 30 and sum(hits) >= 28
    narrowed = found(find(graphed, QUESTIONS[0], "-w", "odd = 1"))
    assert len(narrowed) == 10 and len(set(narrowed) & set(right(QUESTIONS[0], odd=1))) >= 9


def test_without_the_library_the_search_is_exact_and_says_how_to_get_it(graphed: Path) -> None:
    """A process in which `faiss` cannot be imported, as where the extra is not installed."""
    start = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'faiss': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from duckkb.__main__ import main\n"
        "main()\n"
    )
    asked = json.dumps(QUESTIONS[1].tolist())
    for args in (["find", "feature", "--vector", "-"], ["index", "refresh"]):
        command = [sys.executable, "-c", start, *args]
        done = subprocess.run(command, cwd=graphed, input=asked, capture_output=True, text=True)
        assert done.returncode == 0 and "W_EXACT" in done.stderr and "pip install 'duckkb[ann]'" in done.stderr
        if args[0] == "find":
            assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == right(QUESTIONS[1])


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("global: {ann: hsnw}\n", "did you mean `hnsw`"),
        ("global: {embedding_model: none, vector_storage: int8}\n", "remove it: vectors are float32"),
        ("global: {embedding_model: none}\npolicies:\n  p: {ann: true}\n", "auto, exact, hnsw"),
        ("global: {embedding_model: none}\npolicies:\n  p: {vector_copy: none}\n", "remove it: vectors are float32"),
    ],
)
def test_other_values_and_settings_that_went_are_refused(tmp_path: Path, config: str, says: str) -> None:
    ran = run_in(make_base(tmp_path / "kb", config), ["status"])
    assert ran.code == 2 and says in ran.err


def test_a_collection_refuses_other_values_too(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONFIG.format(more=""))
    ran = run_in(root, ["col", "init", "f", "--policy", "feature-store", "--params", '{"ann": "annoy"}'])
    assert ran.code == 2 and "must be one of" in ran.err


def test_records_whose_vectors_have_another_length_are_left_out_aloud(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONFIG.format(more=""))
    ok(root, "col", "init", "feature", "--policy", "feature-store", "--params", '{"dimension": 2}')
    ok(root, "import", "feature", "-", stdin='{"id":"a","tensor":[1,0]}\n{"id":"b","tensor":[0,1]}\n')
    definition = root / "ontology/collections/feature.yaml"
    definition.write_text(definition.read_text("utf-8").replace("dimension: 2", "dimension: 3"), "utf-8")

    def ask(*expected: str) -> Any:
        told = find(root, np.array([1.0, 0, 0]), "--format", "json").line
        assert [one["id"] for one in told["results"]] == list(expected)
        return told["degraded"], [
            (one["code"], one["message"]) for one in told["notices"] if one["code"] == "W_DEGRADED"
        ]

    said = (True, [("W_DEGRADED", "feature leaves out 2 vectors: their length is not 3 (tensor)")])
    none = run_in(root, ["find", "feature", "--vector", "-"], stdin="[1, 0, 0]")
    assert none.code == 1 and said[1][0][1] in none.err
    ok(root, "put", "feature", '{"id":"c","tensor":[1,0,0]}')
    assert ask("c") == said
    assert len(run_in(root, ["check", "--format", "jsonl"]).lines) == 2
    ok(root, "import", "feature", "-", stdin='{"id":"a","tensor":[0,1,0]}\n{"id":"b","tensor":[0,0,1]}\n')
    assert ask("c", "a", "b") == (False, [])


def test_an_account_of_what_was_never_asked_is_empty(tmp_path: Path) -> None:
    assert lane(features(tmp_path / "kb")) is None


@pytest.mark.long
@pytest.mark.model
@pytest.mark.parametrize("first", ["graph", "model"])
def test_the_library_and_the_offline_model_live_in_one_process(tmp_path: Path, first: str) -> None:
    """Libraries that bring their own C++ runtime end a process in which others come after them."""
    root = features(tmp_path / "kb", ann="hnsw")
    ok(root, "index", "refresh")
    code = ("import sys, duckkb, onnxruntime\n" if first == "model" else "import sys, duckkb\n") + (
        f"kb = duckkb.open({str(root)!r})\n"
        f"print(len(kb.find('feature', vector={QUESTIONS[0].tolist()!r})), 'faiss' in sys.modules)\n"
        "import onnxruntime\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "10 True\nalive\n"), done.stderr
