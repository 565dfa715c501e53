"""Processes that a campaign starts, hurts and waits for, all of them children of one warm process (`zygote`)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckkb
from tests.harness.crowd.zygote import RUNNING

SOURCES = Path(duckkb.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 120.0
"""Seconds after which a process that says nothing is a failure."""


@dataclass(frozen=True)
class Worker:
    """One process: what it printed is in files, which outlive it whatever becomes of it."""

    forge: "Forge"
    root: Path
    pid: int
    out_path: Path
    err_path: Path

    def send(self, number: int) -> None:
        """A signal; none where the process is gone already."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def is_running(self) -> bool:
        """Whether it has not ended yet; one that has and was not waited for counts as ended."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return not Path("/proc/self").exists()  # without /proc nobody can say; a deadline ends the wait

    def wait(self) -> int:
        """The exit code; negative: the signal that ended it. One that does not end is killed, and a failure."""
        deadline = time.monotonic() + PATIENCE
        while (code := self.forge.ask({"wait": self.pid})) == RUNNING:
            if time.monotonic() > deadline:
                about = self._about()
                self.send(signal.SIGKILL)
                raise AssertionError(f"process {self.pid} did not end: {self.err[-2000:]}\n{about}")
            time.sleep(0.002)
        return code

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
        deadline = time.monotonic() + PATIENCE
        while self.out.count("\n") < lines:
            is_well = self.is_running() and time.monotonic() < deadline
            assert is_well or self.out.count("\n") >= lines, f"it said {self.out[-500:]!r} and {self.err[-2000:]!r}"
            time.sleep(0.002)


class Forge:
    """Starts workers. `sources` is where `duckkb` is imported from: the real one, or a weakened copy."""

    def __init__(self, place: Path, sources: Path = SOURCES) -> None:
        self._place, self._count = place, 0
        place.mkdir(parents=True, exist_ok=True)
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(sources), str(ROOT)]),
            "PYTHONUTF8": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._zygote = subprocess.Popen(
            [sys.executable, "-c", "from tests.harness.crowd.zygote import serve; serve()"],
            cwd=place,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self, mode: str, root: Path, *args: object, stdin: Path | None = None, ignore: Sequence[int] = ()
    ) -> Worker:
        self._count += 1
        out, err = self._place / f"{self._count}.out", self._place / f"{self._count}.err"
        out.touch()
        err.touch()
        asked = {"start": mode, "cwd": str(root), "args": args, "stdin": str(stdin) if stdin else None}
        pid = self.ask(asked | {"out": str(out), "err": str(err), "ignore": ignore})
        assert pid > 1, "a signal to it would reach others"
        return Worker(self, root, pid, out, err)

    def command(self, root: Path, *args: str, stdin: Path | None = None) -> Worker:
        """A whole process from the very start: Python, imports and all."""
        return self.start("exec", root, sys.executable, "-m", "duckkb", *args, stdin=stdin)

    def ask(self, what: dict[str, Any]) -> int:
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(what) + "\n")
        self._zygote.stdin.flush()
        return int(self._zygote.stdout.readline())

    def close(self) -> None:
        self._zygote.communicate(timeout=PATIENCE)


def wait_for_stage(worker: Worker) -> None:
    """Until it has begun to write, or has ended."""
    txn, deadline = worker.root / ".duckkb" / "txn", time.monotonic() + PATIENCE
    while worker.is_running() and not (txn.exists() and any(txn.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.0005)


@contextmanager
def forge(place: Path, sources: Path = SOURCES) -> Iterator[Forge]:
    made = Forge(place, sources)
    try:
        yield made
    finally:
        made.close()


def weakened(place: Path, changes: Mapping[str, tuple[str, ...]]) -> Path:
    """A copy of the package with a protection taken out: module (`truth/shadow`) -> (text, text instead, and so on).
    Returns where to import it from. The text must be there, so that a control that controls nothing is noticed."""
    shutil.copytree(SOURCES / "duckkb", place / "duckkb", ignore=shutil.ignore_patterns("__pycache__"))
    for module, texts in changes.items():
        path = place / "duckkb" / f"{module}.py"
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            text = path.read_text("utf-8")
            assert text.count(old) == 1, f"{path.name} no longer says {old!r}"
            path.write_text(text.replace(old, new), "utf-8")
    return place
