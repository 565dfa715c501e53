"""Schemas that passed are remembered outside the clone; whatever differs is checked, and no memory lets a wrong one pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema: {type: object, properties: {id: {type: string%s}}, required: [id]}
"""
_LOAD = """
import sys
from pathlib import Path
from duckkb import app, config
from duckkb.types.errors import OntologyError
root, state = Path(sys.argv[1]), Path(sys.argv[2])
env = config.read_environment(root, {"HOME": str(state), "XDG_STATE_HOME": str(state)})
try:
    config.load(root, env)
    print("sound", "jsonschema_rs" in sys.modules)
except OntologyError as error:
    print(error.code, "jsonschema_rs" in sys.modules)
config.remember_schemas(env)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base = tmp_path / "kb"
    base.mkdir()
    write(base, "")
    return base


def write(root: Path, more: str) -> None:
    (root / "config.yaml").write_text(CONFIG % more, "utf-8")


def load(root: Path) -> str:
    state = root.parent / "state"
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(root), str(state)], capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout.strip()


def test_a_schema_is_checked_once(root: Path) -> None:
    assert [load(root), load(root)] == ["sound True", "sound False"]
    assert not (root / ".duckkb").exists()


@pytest.mark.long
def test_a_changed_schema_is_checked_and_a_wrong_one_never_remembered(root: Path) -> None:
    assert load(root) == "sound True"
    write(root, ", minLength: 1")
    assert load(root) == "sound True"
    for wrong in (", minLength: many", ", pattern: '('", ", pattern: '(?=a)'", ", $ref: 'https://example.org/x'"):
        write(root, wrong)
        assert load(root).startswith("E_ONTOLOGY")
        assert load(root).startswith("E_ONTOLOGY")
    write(root, "")
    assert load(root) == "sound False"


@pytest.mark.long
@pytest.mark.parametrize("memory", [b"", b"[]", b'{"format": 1, "sound": 3}', b'{"format": 9, "sound": []}', b"\xff"])
def test_a_damaged_memory_costs_a_check(root: Path, memory: bytes) -> None:
    assert load(root) == "sound True"
    (root.parent / "state/duckkb/schemas.json").write_bytes(memory)
    assert [load(root), load(root)] == ["sound True", "sound False"]
    assert len(json.loads((root.parent / "state/duckkb/schemas.json").read_bytes())["sound"]) == 1
