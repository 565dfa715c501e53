"""What a server answers in a second: one process and a pool of workers, one client and many, without and with a writer beside.

usage: python bench/serving.py [--size N] [--rounds N] [--seconds S] [--clients N] [--workers N] [--http] [--keep FOLDER] [--out FILE]

In each round every way of serving is asked every kind of question for S seconds, by one client and by N, and then by N while a writer
puts 10 times a second: all see the same machine. The clients are threads of this process; with --http they ask
`duckkb serve`, without it the object behind it. Ratios are of one run, against one process that one client asks.

Answers are held against those of one quiet process. Each put gives two records the same number, and nothing else of them
changes: an answer that has two numbers is mixed of two states, and one that has an older number than the last receipt that
came before it was asked is stale. The exit code is 1 where one answer is wrong. The result is JSON; bench/report.py shows it.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cold
import measure
import ours
from boot import positive
from corpus import CHANGING, Corpus, identity, make
from measure import Place, say
from peers import RESULTS, about

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""The answer of an action."""

STEPS = ("words", "vector", "hybrid")
PUTS_A_SECOND = 10
PAIR_EACH = 8
"""Every so many questions one asks for the two records that are written."""
QUESTIONS = 40
_KEPT_S = 2.0


@dataclass
class Taken:
    """Seconds of each answer, how long all of it took, seconds that the machine's cores worked, and what was wrong."""

    seconds: list[float] = field(default_factory=list)
    wall: float = 0.0
    busy: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Answers a second; median and 99th percentile in seconds; how many cores of the machine worked."""
        ordered = sorted(self.seconds)
        return {
            "rate": len(ordered) / self.wall,
            "p50": statistics.median(ordered),
            "p99": ordered[max(0, -(-len(ordered) * 99 // 100) - 1)],
            "busy": self.busy / self.wall,
            "n": len(ordered),
        }


class Writer:
    """Gives the changing records one number after the other, and knows which may be seen."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self._records = records
        self.told, self.begun, self.puts = -1, -1, 0

    def put(self, ask: Ask) -> None:
        self.begun += 1
        ask("put", {"type": ours.TYPE, "records": [{**one, "topic": f"v{self.begun}"} for one in self._records]})
        self.told, self.puts = self.begun, self.puts + 1

    def until(self, ask: Ask, stop: threading.Event) -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / PUTS_A_SECOND, time.monotonic() - 1)
            self.put(ask)


PAIR = {"type": ours.TYPE, "mode": "where", "where": f"id IN ('{identity(0)}', '{identity(1)}')"}


def questions(corpus: Corpus) -> dict[str, list[dict[str, Any]]]:
    """Arguments of `find` by kind of question."""
    asked = corpus.questions("en")[:QUESTIONS]
    vectors = [[float(number) for number in one.vector] for one in asked]
    return {
        "words": [{"type": ours.TYPE, "query": one.text, "mode": "match"} for one in asked],
        "vector": [{"type": ours.TYPE, "vector": vector} for vector in vectors],
        "hybrid": [
            {"type": ours.TYPE, "query": one.text, "vector": vector} for one, vector in zip(asked, vectors, strict=True)
        ],
    }


def said(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What must be the same whatever is written beside."""
    assert not answer["degraded"], answer["notices"]
    return [(hit["id"], hit["_score"]) for hit in answer["results"]]


def is_same(one: list[tuple[str, float]], other: list[tuple[str, float]]) -> bool:
    """Scores may count what was replaced (docs/adr/0050), of which there is little here."""
    ids, scores = zip(*one, strict=True) if one else ((), ())
    wanted, right = zip(*other, strict=True) if other else ((), ())
    return ids == wanted and all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(scores, right, strict=True))


def worked() -> float:
    """Seconds that the cores of this machine have worked since it was started."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def load(
    ways: Sequence[Ask],
    step: str,
    asked: Sequence[Mapping[str, Any]],
    right: Sequence[list[tuple[str, float]]],
    writer: Writer | None,
    seconds: float,
) -> Taken:
    """As many clients as there are ways to ask, each with a question of its own first, for so many seconds."""
    taken, numbers, lock = Taken(), count(), threading.Lock()
    end = time.monotonic() + seconds

    def client(ask: Ask) -> None:
        own: list[float] = []
        wrong: list[str] = []
        while time.monotonic() < end:
            with lock:
                number = next(numbers)
            if number % PAIR_EACH == 0:
                pair(ask, wrong)
                continue
            at = number % len(asked)
            start = time.perf_counter()
            answer = ask("find", asked[at])
            own.append(time.perf_counter() - start)
            if not is_same(said(answer), right[at]):
                wrong.append(f"{step} {at}: {said(answer)} instead of {right[at]}")
        with lock:
            taken.seconds += own
            taken.wrong += wrong

    def pair(ask: Ask, wrong: list[str]) -> None:
        before = writer.told if writer else 0
        answer = ask("find", PAIR)
        seen = [hit["topic"] for hit in answer["results"]]
        after = writer.begun if writer else 0
        if len(seen) != CHANGING or len(set(seen)) != 1:
            wrong.append(f"two states in one answer: {seen}")
        elif writer and not before <= int(seen[0][1:]) <= after:
            wrong.append(f"{seen[0]} was seen, where {before} had been told and {after} begun")

    threads = [threading.Thread(target=client, args=(ask,)) for ask in ways]
    start, before = time.perf_counter(), worked()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken.wall, taken.busy = time.perf_counter() - start, worked() - before
    return taken


@contextmanager
def in_process(place: Place, workers: int) -> Iterator[Callable[[], Ask]]:
    """The object behind a server's doors; what it yields gives each client its way to ask."""
    from duckkb.operations.lifecycle import OpenOptions
    from duckkb.server.dispatcher import Served
    from duckkb.server.worker_pool import Pool
    from duckkb.types.request_context import Caller

    served = Pool(place.base, OpenOptions(), workers) if workers else Served(place.base, OpenOptions())
    try:
        yield lambda: lambda name, given: served.run(name, given, Caller())
    finally:
        served.close()


@contextmanager
def over_http(place: Place, workers: int) -> Iterator[Callable[[], Ask]]:
    """`duckkb serve`, and connections that are kept."""
    command = [sys.executable, "-P", "-m", "duckkb", "--kb", str(place.base), "serve", "--port", "0"]
    command += ["--workers", str(workers), "--log", "off", "--dedupe", "off"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        head = {"authorization": f"Bearer {Path(told['token']).read_text('ascii').strip()}"}

        def connected() -> Ask:
            connection = http.client.HTTPConnection(urlsplit(told["url"]).netloc, timeout=120)
            used = time.monotonic()

            def ask(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
                nonlocal used
                if time.monotonic() - used > _KEPT_S:
                    connection.close()  # and opened again: a server closes those that are idle
                used = time.monotonic()
                connection.request("POST", f"/actions/{name}", json.dumps(given), head)
                response = connection.getresponse()
                body: dict[str, Any] = json.loads(response.read())
                assert response.status == 200, body
                return body

            return ask

        yield connected
    finally:
        server.terminate()
        server.wait()


def run(place: Place, chosen: argparse.Namespace) -> tuple[dict[str, dict[str, Taken]], Writer]:
    """By way of serving and number of clients, and by kind of question."""
    asked = questions(place.corpus)
    found: dict[str, dict[str, Taken]] = defaultdict(lambda: defaultdict(Taken))
    with ExitStack() as stack:
        opened = over_http if chosen.http else in_process
        served = {
            name: stack.enter_context(opened(place, workers))
            for name, workers in (("one process", 0), (f"{chosen.workers} workers", chosen.workers))
        }
        with in_process(place, 0) as quiet:
            ask = quiet()
            right = {step: [said(ask("find", one)) for one in its] for step, its in asked.items()}
            records = ask("find", PAIR)["results"]
            writer = Writer([{name: one[name] for name in ("id", "side", "text")} for one in records])
            writer.put(ask)
        for number in range(chosen.rounds):
            say(f"round {number + 1} of {chosen.rounds}")
            for name, connect in served.items():
                ways = [connect() for _ in range(chosen.clients)]
                for step, its in asked.items():
                    load(ways, step, its, right[step], None, 0.5)  # whatever there is to be taken in
                    for clients in (1, chosen.clients):
                        taken = load(ways[:clients], step, its, right[step], None, chosen.seconds)
                        add(found[f"{name}, {clients} client{'s' * (clients > 1)}"][step], taken)
            for name, connect in served.items():
                with writing(writer, connect()):
                    for step, its in asked.items():
                        ways = [connect() for _ in range(chosen.clients)]
                        taken = load(ways, step, its, right[step], writer, chosen.seconds)
                        add(found[f"{name}, {chosen.clients} clients and a writer"][step], taken)
    return found, writer


@contextmanager
def writing(writer: Writer, ask: Ask) -> Iterator[None]:
    """While somebody writes."""
    stop = threading.Event()
    writer.put(ask)
    thread = threading.Thread(target=writer.until, args=(ask, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def add(whole: Taken, part: Taken) -> None:
    whole.seconds += part.seconds
    whole.wrong += part.wrong
    whole.wall += part.wall
    whole.busy += part.busy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=positive, default=100_000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=positive, default=32)
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    out = chosen.out or RESULTS / ("serving-http.json" if chosen.http else "serving.json")
    with tempfile.TemporaryDirectory(prefix="duckkb-bench-") as scratch:
        folder = (chosen.keep or Path(scratch)).resolve()
        place = Place(
            make(folder / f"corpus-{chosen.size}", chosen.size), folder / f"{chosen.size}", Path(sys.executable)
        )
        place.folder.mkdir(exist_ok=True)
        if not measure.build(place, ["duckkb"], measure.Found(), 1800):
            return 1
        os.environ.update(ours.machine_state(place.base))
        try:
            found, writer = run(place, chosen)
        finally:
            cold.restore(place.base)
    wrong = [one for its in found.values() for taken in its.values() for one in taken.wrong]
    ways = {name: {step: taken.summary() for step, taken in its.items()} for name, its in found.items()}
    result = {"about": about(Path(sys.executable)), "size": chosen.size, "http": chosen.http, "clients": chosen.clients}
    result |= {"workers": chosen.workers, "ways": ways, "puts": writer.puts, "wrong": len(wrong)}
    for name, its in ways.items():
        say(
            f"{name}: "
            + "; ".join(
                f"{step} {one['rate']:.0f}/s {1000 * one['p50']:.1f} {1000 * one['p99']:.1f} ms, {one['busy']:.2f} cores"
                for step, one in its.items()
            )
        )
    for one in wrong[:10]:
        say(f"wrong: {one[:600]}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
