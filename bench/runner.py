"""A process that measures one system, and the client that drives it: JSON lines over stdin and stdout.

usage: python bench/runner.py SYSTEM CORPUS_FOLDER HOME

Requests are {"do": "build", "home"}, {"do": "open"}, {"do": "ask", "step", "language", "number", "text"} and
{"do": "memory"}; answers have `seconds` and what was found. Only the call itself is timed, inside of the process.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SYSTEMS = ("duckkb", "numpy", "lancedb", "lancedb-ivf", "sqlite-vec", "chroma", "agentcairn")


class Failed(RuntimeError):
    """A system could not do what it was asked; the message is what it printed."""


@dataclass(frozen=True)
class Answer:
    """Seconds of a call, the ids that it found, and how many bytes the process had in memory at most: `peak` with pages of
    mapped files, `own` without, of which another process could not use the same."""

    seconds: float
    ids: tuple[str, ...] = ()
    peak: int = 0
    own: int = 0


class Remote:
    """A system in a process of its own. Use it in a `with` block."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.steps: tuple[str, ...] = ()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=dict(environment)
        )

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def build(self, home: Path, most: float = 3600) -> Answer:
        """Raises `Failed` where it takes longer than so many seconds."""
        stop = threading.Timer(most, self._process.kill)
        stop.start()
        try:
            return _answer(self._call(do="build", home=str(home)))
        finally:
            stop.cancel()

    def open(self) -> Answer:
        """Seconds of opening alone; `steps` has what can be asked from then on."""
        said = self._call(do="open")
        self.steps = tuple(said["steps"])
        return _answer(said)

    def ask(self, step: str, language: str, number: int, text: str | None = None) -> Answer:
        """The answer to a question of the corpus; `text` stands for its words."""
        return _answer(self._call(do="ask", step=step, language=language, number=number, text=text))

    def memory(self) -> Answer:
        """The most bytes that the process had in memory so far."""
        return _answer(self._call(do="memory"))

    def _call(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"{self.name}: the process ended with exit code {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise Failed(f"{self.name}: {said['error']}")
        return said


def _answer(said: Mapping[str, Any]) -> Answer:
    return Answer(said["seconds"], tuple(said.get("ids", ())), said.get("peak", 0), said.get("own", 0))


class OwnMemory(threading.Thread):
    """Watches how much memory this process has that is no mapped file; the kernel keeps the most of both together alone."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        while True:
            self.most = max(self.most, memory_of("RssAnon"))
            time.sleep(0.05)


def memory_of(name: str) -> int:
    """Bytes that Linux tells of this process: VmHWM, the most that was in memory; RssAnon, what is there now and is no
    mapped file."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def make(name: str) -> Any:
    """The system of a name. Its library is imported when it is opened."""
    match name:
        case "duckkb" | "numpy":
            import ours

            return ours.Duckkb() if name == "duckkb" else ours.Numpy()
        case "agentcairn":
            import cairn_peer

            return cairn_peer.Cairn()
        case _:
            import systems

            made = {
                "lancedb": systems.Lance(),
                "lancedb-ivf": systems.Lance(index=True),
                "sqlite-vec": systems.SqliteVec(),
                "chroma": systems.Chroma(),
            }
            return made[name]


def serve(name: str, folder: Path, home: Path) -> None:
    """Answer requests until stdin ends."""
    from corpus import Corpus

    corpus, system = Corpus(folder), make(name)
    questions = {language: corpus.questions(language) for language in ("en", "zh")}
    steps: Mapping[str, Any] = {}
    own = OwnMemory()
    own.start()
    out = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    for line in sys.stdin:
        asked = json.loads(line)
        said: dict[str, Any] = {"seconds": 0.0}
        try:
            match asked["do"]:
                case "build":
                    said["seconds"] = system.build(corpus, Path(asked["home"]))
                case "open":
                    start = time.perf_counter()
                    steps = system.open(corpus, home)
                    said = {"seconds": time.perf_counter() - start, "steps": list(steps)}
                case "memory":
                    said |= {"peak": memory_of("VmHWM"), "own": max(own.most, memory_of("RssAnon"))}
                case _:
                    question = questions[asked["language"]][asked["number"]]
                    question = replace(question, text=asked["text"] or question.text)
                    start = time.perf_counter()
                    found = steps[asked["step"]](question)
                    said = {"seconds": time.perf_counter() - start, "ids": list(found)}
        except Exception as problem:  # whatever a library raises is told to who asked
            said = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
