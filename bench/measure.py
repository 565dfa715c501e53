"""Runs of one size: what is built, asked warm, checked, and run as whole processes, system by system in turns."""

import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import answers
import cold
import ours
from corpus import Corpus
from runner import SYSTEMS, Failed, Remote

OWN = ("duckkb", "numpy")
"""Systems that run in duckkb's environment."""

_IN_A_ROW, _SETTLING_S = 5, 0.1
"""Questions that are asked of one system before the next one has its turn, and how long that is waited for."""

Samples = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Place:
    """Where the systems of one size lie, and the interpreter of the peers' environment."""

    corpus: Corpus
    folder: Path
    peers_python: Path

    @property
    def base(self) -> Path:
        """The knowledge base."""
        return self.folder / "duckkb"

    def start(self, system: str, home: Path | None = None) -> Remote:
        """A process of one system."""
        python = sys.executable if system in OWN else str(self.peers_python)
        where = home or self.folder / system
        command = [python, str(Path(__file__).with_name("runner.py")), system, str(self.corpus.folder), str(where)]
        return Remote(system, command, ours.machine_state(self.base))


@dataclass
class Found:
    """What was measured of one size: seconds by part and step, answers by system and step, bytes, what failed."""

    samples: Samples = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    answers: dict[str, dict[str, dict[str, float]]] = field(default_factory=lambda: defaultdict(dict))
    memory: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def medians(self) -> dict[str, dict[str, float]]:
        """As `goals` takes them."""
        found = {
            part: {step: statistics.median(seconds) for step, seconds in steps.items()}
            for part, steps in self.samples.items()
        }
        return found | {"memory": {name: float(size) for name, size in self.memory.items()}}


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile (nearest rank) and number of samples.

    >>> summary([1.0, 3.0, 2.0])
    {'median': 2.0, 'p95': 3.0, 'n': 3}
    """
    ordered = sorted(seconds)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[max(0, -(-len(ordered) * 95 // 100) - 1)],
        "n": len(ordered),
    }


def build(place: Place, systems: Iterable[str], found: Found, most: float) -> list[str]:
    """Build what is not there yet, each within so many seconds; returns the systems that can be asked."""
    usable = []
    for system in systems:
        home = place.folder / system
        done = place.folder / f"{system}.built"
        try:
            if not done.exists():
                shutil.rmtree(home, ignore_errors=True)
                with place.start(system) as remote:
                    done.write_text(repr(remote.build(home, most).seconds), "ascii")
                    found.memory[f"{system}, build"] = remote.memory().peak
            if system == "duckkb":
                cold.restore(home)  # what a run that was broken off may have left
            found.samples["build"][system].append(float(done.read_text("ascii")))
            usable.append(system)
        except Failed as problem:
            found.failed[system] = str(problem)
            say(f"  left out: {problem}")
    return usable


def rebuild(place: Place, systems: Iterable[str], found: Found, times: int) -> None:
    """Build these again in other folders, in turns, for a median."""
    for number in range(times):
        for system in systems:
            home = place.folder / f"{system}-again-{number}"
            with place.start(system, home) as remote:
                found.samples["build"][system].append(remote.build(home).seconds)
            shutil.rmtree(home)


def warm(place: Place, systems: Sequence[str], found: Found, count: int) -> None:
    """Some questions of a step to each system in turns; times and answers. Another one is asked before them, and not counted: threads of
    numpy's library go on looking for work for some 30 ms after a product, and would take a core from who is asked next."""
    with ExitStack() as stack:
        remotes = [stack.enter_context(place.start(system)) for system in systems]
        for remote in remotes:
            found.samples[remote.name]["open"].append(remote.open().seconds)
        steps = list(dict.fromkeys(step for remote in remotes for step in remote.steps if step not in _CHANGING))
        given: dict[tuple[str, str], list[tuple[str, ...]]] = defaultdict(list)
        kinds = [(step, language) for step in steps for language in (("en", "zh") if step == "lexical" else ("en",))]
        for start in range(0, count, _IN_A_ROW):
            for step, language in kinds:
                name = step if language == "en" else f"{step} zh"
                for remote in (remote for remote in remotes if step in remote.steps):
                    time.sleep(_SETTLING_S)
                    remote.ask(step, language, start - 1 if start else count - 1)
                    for number in range(start, min(start + _IN_A_ROW, count)):
                        answer = remote.ask(step, language, number)
                        found.samples[remote.name][name].append(answer.seconds)
                        given[remote.name, name].append(answer.ids)
        for remote in remotes:
            found.memory[f"{remote.name}, all steps"] = remote.memory().peak
    say("  checking answers")
    _check(place.corpus, given, count, found)


_CHANGING = ("after a change by hand", "put")


def changes(place: Place, found: Found, count: int) -> None:
    """What an open object costs to follow one changed record, and to store one."""
    with place.start("duckkb") as remote:
        remote.open()
        remote.ask("hybrid", "en", 0)
        for number in range(count):
            one, other = place.corpus.spare[2 * number], place.corpus.spare[2 * number + 1]
            ours.change_by_hand(place.base, cold.CHANGED_RECORD, one["text"])
            answer = remote.ask("after a change by hand", "en", 0, one["mark"])
            assert answer.ids == (ours.identity(cold.CHANGED_RECORD),), answer
            found.samples["duckkb"]["after a change by hand"].append(answer.seconds)
            found.samples["duckkb"]["put"].append(remote.ask("put", "en", 0, other["text"]).seconds)


def memory(place: Place, found: Found) -> None:
    """What a process needs that opens the base and searches it in every way; and one that has to make all that is derived."""
    ours.drop_store(place.base)
    with place.start("duckkb") as remote:
        remote.open()
        for step in ("hybrid", "hybrid 1 %"):
            remote.ask(step, "en", 1)
        found.memory["duckkb, from nothing"] = remote.memory().peak
    with place.start("duckkb") as remote:
        remote.open()
        for step in ("lexical", "vector", "hybrid", "hybrid 1 %", "hybrid 50 %"):
            remote.ask(step, "en", 1)
        used = remote.memory()
        found.memory |= {"duckkb": used.peak, "duckkb, no mapped files": used.own}
    found.memory["vectors and texts"] = place.corpus.vectors.nbytes + place.corpus.text_bytes


def processes(places: Mapping[int, Place], all_found: Mapping[int, Found], count: int, rebuilds: int) -> None:
    """Whole processes of all sizes, in turns; each size has the floors of its own rounds. Only so many rounds make the
    store anew."""
    environments = {size: ours.machine_state(place.base) for size, place in places.items()}
    told = {size: list(cold.rounds(place.corpus, place.folder, count)) for size, place in places.items()}
    for size, place in places.items():
        cold.settle(place.base, told[size][0], environments[size])
    for number in range(count):
        for size, place in places.items():
            now, environment = told[size][number], environments[size]
            for step in (*cold.floors(), *cold.commands(place.base)):
                if step.rebuilds and number >= rebuilds:
                    continue
                try:
                    taken, busy = cold.run(step, now, environment)
                    all_found[size].samples["processes"][step.name].append(taken)
                    all_found[size].samples["processes, busy"][step.name].append(busy)
                except cold.Wrong as problem:
                    all_found[size].failed[step.name] = str(problem).splitlines()[
                        0
                    ]  # what follows names places of this machine
                    say(f"  {problem}")
                if step.unsettles:
                    cold.settle(place.base, now, environment)
    for place in places.values():
        cold.restore(place.base)


def read_json(place: Place, found: Found, count: int) -> None:
    """DuckDB alone over the files that are the truth."""
    import time

    import duckdb

    columns = "{'__id': 'BIGINT', 'id': 'VARCHAR', 'topic': 'VARCHAR', 'side': 'VARCHAR', 'text': 'VARCHAR'}"
    files = f"{place.base}/data/nodes/text/*/*.jsonl"
    for _ in range(count):
        start = time.perf_counter()
        with duckdb.connect() as connection:
            connection.execute(
                f"CREATE TABLE t AS SELECT * FROM read_json('{files}', format='newline_delimited', columns={columns})"
            )
        found.samples["processes"]["read_json of the files"].append(time.perf_counter() - start)


def _check(corpus: Corpus, given: Mapping[tuple[str, str], Sequence[Sequence[str]]], count: int, found: Found) -> None:
    """Hold the answers of every system against numpy's."""
    asked = {language: corpus.questions(language)[:count] for language in ("en", "zh")}
    right = {language: answers.Right(corpus, questions) for language, questions in asked.items()}
    for step in dict.fromkeys(step for _, step in given):
        language = "zh" if step.endswith(" zh") else "en"
        ranked = getattr(right[language], step.split(" ")[0])
        masks = [answers.satisfying(corpus, question, step) for question in asked[language]]
        rights = [(ranked(number, mask), mask) for number, mask in enumerate(masks)]
        for system in (system for system, its in given if its == step):
            said = given[system, step]
            of_step = {"agree": sum(answers.recall(one, r) for one, (r, _) in zip(said, rights, strict=True)) / count}
            if rights[0][1] is not None and not step.startswith("lexical"):
                kept = [answers.keeps_to(one, mask) for one, (_, mask) in zip(said, rights, strict=True)]
                of_step["keeps to the filter"] = sum(kept) / count
            found.answers[system][step] = of_step


def wrong(found: Found) -> list[str]:
    """What duckkb answered that it must not: a vector that was missed, a filter that was not kept, a command that failed."""
    ours_said = found.answers.get("duckkb", {})
    commands = [name for name in found.failed if name not in SYSTEMS or name in OWN]
    missed = [
        f"{step}: recall {its['agree']:.3f}" for step, its in ours_said.items() if "vector" in step and its["agree"] < 1
    ]
    return (
        commands
        + missed
        + [f"{step}: filter" for step, its in ours_said.items() if its.get("keeps to the filter", 1) < 1]
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
