"""What duckkb wants to reach, as ratios of medians of one run, and whether it did."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

Medians = Mapping[str, Mapping[str, float]]
"""Median seconds by part and step: floors and commands under "processes", warm steps under the system's name, builds
under "build", what bench/boot.py measured under "boot, duckkb" and "boot, lancedb"."""

PEERS = ("lancedb", "sqlite-vec")
FLOORS = ("python -c pass", "import duckdb", "read_json of the files", "model and one embedding")
SLOWER = 1.1
"""From this ratio on a step counts as slower: two medians of one cost differ by less."""


@dataclass(frozen=True)
class Goal:
    """`value` divided by `base` is to be at most `limit`; both are seconds, or bytes."""

    name: str
    limit: float
    base_name: str
    value: Callable[[Medians], float]
    base: Callable[[Medians], float]


@dataclass(frozen=True)
class Outcome:
    """A goal with its figures."""

    goal: Goal
    value: float
    base: float

    @property
    def ratio(self) -> float:
        return self.value / self.base

    @property
    def reached(self) -> bool:
        return self.ratio <= self.goal.limit


def faster_peer(step: str) -> Callable[[Medians], float]:
    """The median of the faster of LanceDB and sqlite-vec with FTS5."""
    return lambda medians: min(medians[peer][step] for peer in PEERS if step in medians.get(peer, {}))


def _at(part: str, step: str) -> Callable[[Medians], float]:
    return lambda medians: medians[part][step]


def _cold(step: str) -> Callable[[Medians], float]:
    return _at("processes", step)


_PEER = "the faster peer"
_DUCKDB = "`import duckdb`"
_WORDS = "find, words"

GOALS = (
    Goal("warm hybrid", 1 / 5, _PEER, _at("duckkb", "hybrid"), faster_peer("hybrid")),
    Goal("warm hybrid", 0.6, "the numpy scan", _at("duckkb", "hybrid"), _at("numpy", "vector")),
    Goal("warm hybrid, filter of 1 %", 1 / 4, _PEER, _at("duckkb", "hybrid 1 %"), faster_peer("hybrid 1 %")),
    Goal("warm hybrid, filter of 50 %", 1 / 4, _PEER, _at("duckkb", "hybrid 50 %"), faster_peer("hybrid 50 %")),
    Goal("cold find, words", 4, _DUCKDB, _cold(_WORDS), _cold("import duckdb")),
    Goal("cold find, a vector", 4, _DUCKDB, _cold("find, a vector"), _cold("import duckdb")),
    Goal("cold find, words and a vector", 4, _DUCKDB, _cold("find, words and a vector"), _cold("import duckdb")),
    Goal("cold find, words, filter of 1 %", 6, _DUCKDB, _cold("find, words, filter 1 %"), _cold("import duckdb")),
    Goal("cold find, words, filter of 50 %", 6, _DUCKDB, _cold("find, words, filter 50 %"), _cold("import duckdb")),
    Goal("cold find, embedded question", 4, _DUCKDB, _cold("find, embedded question"), _cold("import duckdb")),
    Goal("cold find, Chinese words", 1.5, "the English one", _cold("find, Chinese words"), _cold(_WORDS)),
    Goal(
        "cold find after a change by hand", 1.5, "unchanged files", _cold("find after a change by hand"), _cold(_WORDS)
    ),
    Goal("put of one record, whole process", 1.5, "the cold find", _cold("put of one record"), _cold(_WORDS)),
    Goal(
        "boot without a store, from files to an answer",
        1.2,
        "LanceDB's process",
        _at("boot, duckkb", "command line"),
        _at("boot, lancedb", "process"),
    ),
)
"""At 100,000 records."""

LARGE_GOALS = (
    Goal("warm hybrid", 0.6, "the numpy scan", _at("duckkb", "hybrid"), _at("numpy", "vector")),
    Goal("peak memory", 1.3, "vectors and texts", _at("memory", "duckkb"), _at("memory", "vectors and texts")),
)
"""At 1,000,000 records, beside `GROWTH`."""

GROWTH = (
    ("cold find, words", 2.0, _cold(_WORDS)),
    ("cold find, a vector", 2.0, _cold("find, a vector")),
    ("refresh after one changed part", 2.0, _at("duckkb", "after a change by hand")),
)
"""What may grow by how much from 100,000 to 1,000,000 records."""


def outcomes(goals: Iterable[Goal], medians: Medians) -> list[Outcome]:
    """The goals for which there are figures."""
    found = []
    for goal in goals:
        with suppress(KeyError, ValueError):  # a step that was left out
            found.append(Outcome(goal, goal.value(medians), goal.base(medians)))
    return found


def growth(small: Medians, large: Medians, base_name: str) -> list[Outcome]:
    """How much more a step costs at the large size than at the small one."""
    grown = []
    for name, limit, figure in GROWTH:
        goal = Goal(name, limit, base_name, figure, figure)
        with suppress(KeyError):
            grown.append(Outcome(goal, figure(large), figure(small)))
    return grown


def slower(small: Medians, large: Medians) -> dict[str, float]:
    """Steps of duckkb that cost more at the smaller size, with the ratio; none should."""
    pairs = [(part, step) for part in ("duckkb", "processes") for step in small.get(part, {})]
    ratios = {step: small[part][step] / large[part][step] for part, step in pairs if step in large.get(part, {})}
    return {step: ratio for step, ratio in ratios.items() if ratio >= SLOWER and step not in FLOORS}
