"""What libraries do of their own accord: no file outside the folders that duckkb names, no socket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NOTES, ROOT, make_base
from tests.harness.faults import strace as fault_strace

CONFIG = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")
VERBS = (
    ("put", "Note", '{"id": "n1", "text": "knowledge 知识库 in git"}'),
    ("find", "Note", "where is 知识 kept?", "-s"),
    ("sql", "SELECT count(*) FROM search_index"),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A machine nobody has worked on: every folder that a library may think of is inside, and empty."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


def _around(home: Path) -> dict[str, str]:
    given = {
        name: str(home / name.lower())
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    }
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home / "home"),
        "TMPDIR": str(home / "tmp"),
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        **given,
    }


def _made(home: Path) -> set[str]:
    """Files and folders outside the base, those of duckkb's own folders left out."""
    found = {path.relative_to(home) for path in home.rglob("*")}
    own = {Path("xdg_cache_home/duckkb"), Path("xdg_state_home/duckkb")}
    return {
        str(path)
        for path in found
        if not any(path.is_relative_to(one) or one.is_relative_to(path) for one in own) and path.parts[0] != "kb"
    } - {"home", "tmp"}  # fmt: skip


@pytest.mark.long
@pytest.mark.model
def test_searching_by_meaning_leaves_nothing_outside_duckkbs_folders_and_opens_no_socket(home: Path) -> None:
    kb = make_base(home / "kb", CONFIG)
    watch: list[str] = []
    if not fault_strace.missing():
        watch = ["strace", "-f", "-qq", "-e", "trace=network", "-o", str(home / "kb" / ".calls")]
    for verb in VERBS:
        done = subprocess.run(
            [*watch, sys.executable, "-m", "duckkb", *verb],
            cwd=kb,
            env=_around(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert _made(home) == set(), verb
        if watch:
            assert "AF_INET" not in (kb / ".calls").read_text("utf-8"), verb
    if not watch:
        pytest.skip(
            f"no file appeared, but sockets cannot be watched: {fault_strace.missing()}; CI installs strace and watches them"
        )
