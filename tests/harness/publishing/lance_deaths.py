"""A publisher to Lance tables that dies before the step with a given number: each is a process of its own, as LanceDB has threads."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = {
    "lancedb.table.LanceTable": ("add", "create_index", "delete", "optimize", "restore", "update"),
    "lancedb.table.Tags": ("create", "delete", "update"),
    "lancedb.db.LanceDBConnection": ("create_table", "drop_table"),
}
"""What changes something, as LanceDB calls it."""
DONE = 3


class Deaths:
    """Of publishers of one base."""

    def __init__(self, root: Path, url: str) -> None:
        self._root, self._url = root, url

    def at(self, step: int, *, full: bool = False) -> bool:
        """Publish, and die before a step, counted from 1; False where there are fewer and it is published."""
        command = [sys.executable, "-m", __name__, str(self._root), self._url, str(step), str(int(full))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (-signal.SIGKILL, DONE), done.stderr
        return done.returncode != DONE


def _die_at(step: int) -> None:
    from importlib import import_module

    seen = [0]

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*given, **named)

        return run

    for path, names in STEPS.items():
        module, _, name = path.rpartition(".")
        owner = getattr(import_module(module), name)
        for method in names:
            setattr(owner, method, counted(getattr(owner, method)))


if __name__ == "__main__":
    from duckkb import app
    from tests.fakes import HashEmbedder

    where, target, number, whole = sys.argv[1:]
    _die_at(int(number))
    app.publish(where, to=target, embedder=HashEmbedder(), full=whole == "1")
    sys.exit(DONE)
