"""Processes that a campaign starts, hurts and waits for, all of them forks of one warm process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.forks import COMMAND, Forked, Forks, forks
from tests.harness.waiting import HANG_S


@dataclass(frozen=True)
class Worker:
    """One process: what it printed is in files, which outlive it whatever becomes of it."""

    process: Forked
    root: Path
    out_path: Path
    err_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: int) -> None:
        """A signal; none where the process is gone already."""
        self.process.send(number)

    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """The exit code; negative: the signal that ended it. One that does not end is killed, and a failure."""
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            about = self._about()
            self.process.kill()
            raise AssertionError(f"process {self.pid} did not end: {self.err[-2000:]}\n{about}") from None

    def _about(self) -> str:
        """What the system tells of it: where it waits, which signals it holds back or has a handler for, how many threads."""
        told = Path(f"/proc/{self.pid}")
        try:
            lines = (told / "status").read_text("ascii").splitlines()
            waits = [(thread / "wchan").read_text("ascii") for thread in (told / "task").iterdir()]
        except OSError as error:
            return str(error)
        return "\n".join(
            [f"waits in {waits}", *(line for line in lines if line.startswith(("State", "Sig", "Shd", "Threads")))]
        )

    @property
    def out(self) -> str:
        return self.out_path.read_text("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text("utf-8", "replace")

    def lines(self) -> list[dict[str, Any]]:
        """What it said so far, whole lines only."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]

    def wait_for(self, lines: int) -> None:
        """Until it has said that many lines."""
        deadline = time.monotonic() + HANG_S
        while self.out.count("\n") < lines:
            is_well = self.is_running() and time.monotonic() < deadline
            assert is_well or self.out.count("\n") >= lines, f"it said {self.out[-500:]!r} and {self.err[-2000:]!r}"
            time.sleep(0.002)


class Forge:
    """Starts workers, of the product or by the warm process of a weakened copy. What they say is kept in `place`."""

    def __init__(self, place: Path, warm: Forks | None = None) -> None:
        self._warm, self._out, self._count = warm or forks(), place, 0
        place.mkdir(parents=True, exist_ok=True)

    def worker(
        self, root: Path, *args: object, call: str = COMMAND, stdin: Path | None = None, ignore: Sequence[int] = ()
    ) -> Worker:
        """A command line in a fork, or another call."""
        self._count += 1
        out, err = self._out / f"{self._count}.out", self._out / f"{self._count}.err"
        files = (stdin or os.devnull, out, err)
        env = {**os.environ, "PYTHONUTF8": "1"}
        return Worker(self._warm.start(call, args, cwd=root, env=env, files=files, ignore=list(ignore)), root, out, err)

    def loop(self, root: Path, seed: int, prefix: str, alone: bool = True) -> Worker:
        """A writer that never stops."""
        return self.worker(root, str(root), seed, prefix, alone, call="tests.harness.crowd.loop:write")

    def whole(self, root: Path, *args: str, stdin: Path | None = None) -> Worker:
        """A whole process from the very start: Python, imports and all."""
        command = (sys.executable, "-m", "duckkb", *args)
        return self.worker(root, *command, call="tests.harness.forks:execute", stdin=stdin)


def wait_for_stage(worker: Worker) -> None:
    """Until it has begun to write, or has ended."""
    txn, deadline = worker.root / ".duckkb" / "txn", time.monotonic() + HANG_S
    while worker.is_running() and not (txn.exists() and any(txn.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.0005)
