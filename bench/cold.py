"""Whole processes: what a command costs from its start to its end, files in the page cache.

Each round runs every step once, so that all of them see the same machine. What a step left behind (a changed record, a
missing store) is taken in by an untimed search before the next one starts.
"""

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ours
from corpus import CHANGING, Corpus, Question, identity

PUT_RECORD, CHANGED_RECORD = range(CHANGING)
"""The places of the records that are changed; they have their old texts again at the end."""

_MODEL = """\
import time
start = time.perf_counter()
from pathlib import Path
from duckkb.config.environment import environment
from duckkb.llm.providers.offline_model import LocalE5
LocalE5(environment().cache_home).embed_queries(["{text}"])
print(time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Round:
    """One round: its number, its questions, a text that no record has, and files with the question's vector."""

    number: int
    english: Question
    chinese: Question
    spare: Mapping[str, str]
    vector_file: Path


@dataclass(frozen=True)
class Step:
    """A command line of one round; what is done before it, untimed; whether it leaves something behind; and what its
    stdout must show. `inside`: the process itself prints the seconds that count. `rebuilds`: derived state is made anew."""

    name: str
    command: Callable[[Round], Sequence[str]]
    before: Callable[[Round], object] = lambda _: None
    unsettles: bool = False
    right: Callable[[Round, str], bool] = lambda _, out: True
    inside: bool = False
    rebuilds: bool = False


class Wrong(AssertionError):
    """A command failed, or answered wrongly."""


def floors() -> list[Step]:
    """Processes that do next to nothing, and the model alone."""
    python = sys.executable
    return [
        Step("python -c pass", lambda _: [python, "-c", "pass"]),
        Step("import duckdb", lambda _: [python, "-c", "import duckdb"]),
        Step("model and one embedding", lambda _: [python, "-c", _MODEL.format(text=_.english.text)], inside=True),
    ]


def commands(home: Path) -> list[Step]:
    """The command line on unchanged files, after changes, and without a store."""
    duckkb = str(Path(sys.executable).parent / "duckkb")

    def find(*more: str) -> list[str]:
        return [duckkb, "--kb", str(home), "find", ours.TYPE, *more]

    def hybrid(now: Round) -> list[str]:
        return find(now.english.text, "--vector", str(now.vector_file))

    def put(now: Round) -> list[str]:
        row = {"id": identity(PUT_RECORD), "topic": "t00", "side": "left", "text": now.spare["text"]}
        return [duckkb, "--kb", str(home), "put", ours.TYPE, json.dumps(row, ensure_ascii=False)]

    def change(now: Round) -> None:
        ours.change_by_hand(home, CHANGED_RECORD, now.spare["text"])

    return [
        Step("find, words", lambda now: find(now.english.text, "-m"), right=_some),
        Step("find, a vector", lambda now: find("--vector", str(now.vector_file)), right=_ten),
        Step("find, words and a vector", hybrid, right=_ten),
        Step("find, words, filter 1 %", lambda now: find(now.english.text, "-m", *_where("topic", now)), right=_some),
        Step("find, words, filter 50 %", lambda now: find(now.english.text, "-m", *_where("side", now)), right=_some),
        Step("find, embedded question", lambda now: find(now.english.text), right=_ten),
        Step("find, Chinese words", lambda now: find(now.chinese.text, "-m"), right=_some),
        Step(
            "find after a change by hand",
            lambda now: find(" ".join([*now.spare["text"].split()[:2], now.spare["mark"]]), "-m"),
            before=change,
            unsettles=True,
            right=lambda _, out: identity(CHANGED_RECORD) in _ids(out),
        ),
        Step("put of one record", put, unsettles=True, right=_one_file),
        Step(
            "find without a store",
            hybrid,
            before=lambda _: ours.drop_store(home),
            right=_ten,
            rebuilds=True,
        ),
        Step(
            "first Chinese find after that",
            lambda now: find(now.chinese.text, "-m"),
            unsettles=True,
            right=_some,
            rebuilds=True,
        ),
    ]


def rounds(corpus: Corpus, folder: Path, count: int) -> Iterator[Round]:
    """Rounds with questions of their own."""
    english, chinese = corpus.questions("en"), corpus.questions("zh")
    for number in range(count):
        asked = english[number % len(english)]
        file = folder / f"question-{number}.json"
        file.write_text(json.dumps([float(value) for value in asked.vector]), "utf-8")
        spare = corpus.spare[len(corpus.spare) // 2 + number]  # the first half is for objects that stay open
        yield Round(number, asked, chinese[number % len(chinese)], spare, file)


def run(step: Step, now: Round, environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of one process, checked: from its start to its end, and those that it kept a core busy."""
    step.before(now)
    command = [str(part) for part in step.command(now)]
    busy, start = _busy(), time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, stdin=subprocess.DEVNULL
    )
    taken, busy = time.perf_counter() - start, _busy() - busy
    if done.returncode or not step.right(now, done.stdout):
        raise Wrong(f"{step.name}: exit code {done.returncode}\n{command}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return (float(done.stdout) if step.inside else taken), busy


def _busy() -> float:
    """Seconds of all cores in all processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def settle(home: Path, now: Round, environment: Mapping[str, str]) -> None:
    """Let searches by both lanes and in both languages take in whatever changed."""
    for step in commands(home):
        if step.name in ("find, words and a vector", "find, Chinese words"):
            run(step, now, environment)


def restore(home: Path) -> None:
    """Give the records that were changed their old texts again."""
    subprocess.run(["git", "-C", str(home), "checkout", "-q", "--", "."], check=True)


def _where(field: str, now: Round) -> list[str]:
    return ["-w", f"{field} = '{getattr(now.english, field)}'"]


def _ids(out: str) -> list[str]:
    return [json.loads(line)["id"] for line in out.splitlines()]


def _ten(_: Round, out: str) -> bool:
    return len(set(_ids(out))) == 10 and '"_degraded":true' not in re.sub(r"\s", "", out)


def _some(_: Round, out: str) -> bool:
    return len(_ids(out)) > 0


def _one_file(_: Round, out: str) -> bool:
    receipt = json.loads(out)
    return receipt["updated"] == 1 and len(receipt["files"]) == 1
