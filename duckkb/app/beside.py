"""A second process that makes the vector lane of one type while this one makes its words: the other core has nothing else
to do. Where it fails, or comes too late, the lane is made here; the lock of its folder sees to it that it is made once."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_START = "import json, sys; sys.path += json.loads(sys.argv[1]); from duckkb.app.vector_process import main; main(*sys.argv[2:])"


def start(root: Path, type_name: str) -> None:
    """Begin, and do not wait; nothing where this machine has one core, or no process can be had."""
    from duckkb.backends.duckdb.isolated import import_path

    if _cores() < 2:
        return
    with suppress(OSError, ValueError):
        subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _START, json.dumps(import_path()), str(root), type_name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
