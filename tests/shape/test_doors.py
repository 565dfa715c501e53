"""The door opens fast: help and argument errors import neither DuckDB nor a model nor a segmenter."""

import subprocess
import sys

import pytest

HEAVY = ("duckdb", "pyarrow", "numpy", "tantivy", "jieba", "rjieba", "onnxruntime", "openai", "git", "jsonschema")
_SPY = """
import sys
from duckkb.cli.main import run
code = run(sys.argv[1:])
print(code, [name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["find", "--help"], 0),
        (["fnid", "concept", "x"], 2),
        (["find", "concept", "x", "--limit", "abc"], 2),
        (["find", "concept", "x", "--nope"], 2),
        (["put"], 2),
    ],
)
def test_help_and_argument_errors_import_nothing_heavy(args: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SPY.format(heavy=HEAVY), *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{code} []"
