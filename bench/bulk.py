"""Bulk writes and first reads: each goal as a ratio of two costs of one run, and whether it is reached.

usage: python bench/bulk.py [--size N] [--rounds N] [--grown N] [--clock] [--keep FOLDER] [--out FILE]

Rounds take turns between the systems. A cost is the seconds for which whole processes kept a core busy (user and system, children
included), which other work on the machine disturbs least; `--clock` judges by the clock instead, and both are shown. `--grown` adds
how a refresh grows from `--size` to that many records, asked in turns in two open bases.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
_SHORT = 3
"""How often what takes less than a second is asked."""


@dataclass
class Costs:
    """What one thing took, round by round: seconds of processor, and of the clock."""

    busy: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    def take(self, run: Callable[[], object], times: int = 1) -> None:
        for _ in range(times):
            before, start = _spent(), time.perf_counter()
            run()
            self.clock.append(time.perf_counter() - start)
            self.busy.append(_spent() - before)


def _spent() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


@dataclass(frozen=True)
class Row:
    """A goal: the sum of some costs divided by the sum of others is to be at most `limit`."""

    name: str
    above: Sequence[str]
    below: Sequence[str]
    limit: float


ROWS = (
    Row("import and first answer, beside LanceDB", ("import", "answer after import"), ("LanceDB",), 1.3),
    Row("put --batch of log lines, beside json.loads", ("put --batch",), ("json.loads",), 10),
    Row("first find after it, beside the second", ("first find",), ("second find",), 2),
    Row("three first answers, beside the first", ("English", "Chinese", "filter"), ("English",), 1.25),
    Row("refresh, beside that of the smaller base", ("refresh, grown",), ("refresh",), 2),
)


class Ground:
    """Files, and a folder for the bases that are made of them."""

    def __init__(self, folder: Path, size: int, peers: Path) -> None:
        import put
        import scale
        from corpus import make

        self.folder, self.size, self.peers = folder, size, peers
        folder.mkdir(parents=True, exist_ok=True)
        self.texts, self.logs = folder / f"texts-{size}.jsonl", folder / f"logs-{size}.jsonl"
        if not self.texts.exists():
            scale.make_lines(self.texts, size)
        if not self.logs.exists():
            self.logs.write_bytes(put.lines("structured-logs", 0, size))
        self.corpus = make(folder / f"corpus-{size}", size)
        self.base = folder / f"base-{size}" / "duckkb"
        import ours

        os.environ.update(own := ours.machine_state(self.base))
        for name in os.environ.keys() - own.keys():
            del os.environ[name]
        if not (self.base / ".git").exists():
            shutil.rmtree(self.base, ignore_errors=True)
            ours.Duckkb().build(self.corpus, self.base)

    def fresh(self, name: str) -> Path:
        """A folder that holds nothing, of which nothing is kept anywhere."""
        import ours

        home = self.folder / name
        if home.exists():
            ours.drop_store(home, Path(os.environ["DUCKKB_CACHE_HOME"]))
        shutil.rmtree(home, ignore_errors=True)
        return home


def duckkb(home: Path, *args: str, given: Path | None = None) -> str:
    """What a command says."""
    command = [str(Path(sys.executable).parent / "duckkb"), "--kb", str(home), *args]
    with (given or Path(os.devnull)).open("rb") as file:
        return subprocess.run(command, stdin=file, capture_output=True, check=True, text=True).stdout


def round_of(ground: Ground, taken: Mapping[str, Costs]) -> None:
    """Everything once."""
    imported(ground, taken)
    batched(ground, taken)
    answered(ground, taken)


def imported(ground: Ground, taken: Mapping[str, Costs]) -> None:
    """Records of 100 words out of one file, by either system, and their first answer."""
    import scale

    home = ground.fresh("imported")
    home.mkdir()
    (home / "config.yaml").write_text(scale.CONFIG, "utf-8")
    words = _words(ground.texts)
    taken["import"].take(lambda: duckkb(home, "import", "Text", str(ground.texts)))
    taken["answer after import"].take(lambda: _some(duckkb(home, "find", "Text", words, "-m")))
    other = ground.folder / "lance"
    shutil.rmtree(other, ignore_errors=True)
    command = [str(ground.peers), str(HERE / "bulk.py"), "--lance", str(ground.texts), str(other), words]
    taken["LanceDB"].take(lambda: subprocess.run(command, check=True, stdin=subprocess.DEVNULL))


def lance(texts: Path, home: Path, words: str) -> None:
    """LanceDB's table of the rows of a file with its indices, and an answer."""
    import lancedb
    from pyarrow import json as arrow_json

    table = lancedb.connect(home).create_table("rows", arrow_json.read_json(texts))
    table.create_fts_index("text", replace=True)
    table.create_scalar_index("topic", index_type="BITMAP")
    assert table.search(words, query_type="fts").limit(10).to_list()


def batched(ground: Ground, taken: Mapping[str, Costs]) -> None:
    """Log lines into a new collection, and two questions."""
    home = ground.fresh("batched")
    duckkb(home, "init", str(home))
    duckkb(home, "col", "init", "things", "--policy", "structured-logs")
    taken["json.loads"].take(lambda: _loaded(ground.logs), _SHORT)  # before and behind: a machine is not always as fast
    taken["put --batch"].take(lambda: duckkb(home, "put", "things", "--batch", "--no-embed", given=ground.logs))
    taken["json.loads"].take(lambda: _loaded(ground.logs), _SHORT)
    taken["first find"].take(lambda: _some(duckkb(home, "find", "things", "-w", "level = 'a'")))
    taken["second find"].take(lambda: _some(duckkb(home, "find", "things", "-w", "level = 'b'")), _SHORT)


def answered(ground: Ground, taken: Mapping[str, Costs]) -> None:
    """Three questions to a base of which files alone are there."""
    import ours

    ours.drop_store(ground.base)
    english, chinese = (ground.corpus.questions(language)[0] for language in ("en", "zh"))
    for name, words, more in (
        ("English", english.text, ()),
        ("Chinese", chinese.text, ()),
        ("filter", english.text, ("-w", f"topic = '{english.topic}'")),
    ):
        taken[name].take(lambda asked=words, more=more: duckkb(ground.base, "find", ours.TYPE, asked, "-m", *more))


def refreshed(small: Ground, large: Ground, rounds: int, taken: Mapping[str, Costs]) -> None:
    """A question after one record was changed by hand, in two open bases in turns."""
    import ours
    from corpus import CHANGING

    import duckkb as library

    with library.open(small.base) as one, library.open(large.base) as other:
        named = {"refresh": (one, small), "refresh, grown": (other, large)}
        for number in range(-1, rounds):
            for name, (kb, ground) in named.items():
                spare = ground.corpus.spare[number + 1]
                ours.change_by_hand(ground.base, CHANGING - 1, spare["text"])
                costs = taken[name] if number >= 0 else Costs()
                costs.take(lambda kb=kb, mark=spare["mark"]: _some(kb.find(ours.TYPE, mark, mode="match")))


def _words(texts: Path) -> str:
    with texts.open("rb") as file:
        return " ".join(random.Random(1).sample(json.loads(next(file))["text"].split(), 3))


def _loaded(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        json.loads(line)


def _some(found: object) -> None:
    assert found, "no answer"


def shown(taken: Mapping[str, Costs], by_clock: bool) -> list[dict[str, object]]:
    """Each row that was measured, with both ratios."""
    rows = []
    for row in ROWS:
        if not all(name in taken for name in (*row.above, *row.below)):
            continue
        busy, clock = (_ratio(taken, row, kind) for kind in ("busy", "clock"))
        reached = (clock if by_clock else busy) <= row.limit
        rows.append({"goal": row.name, "busy": busy, "clock": clock, "limit": row.limit, "reached": reached})
    return rows


def _ratio(taken: Mapping[str, Costs], row: Row, kind: str) -> float:
    above, below = (
        sum(statistics.median(getattr(taken[name], kind)) for name in names) for names in (row.above, row.below)
    )
    return above / below


def positive(text: str) -> int:
    """A number from 1 on; raises ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def main() -> int:
    if sys.argv[1:2] == ["--lance"]:
        lance(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=positive, default=100_000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--grown", type=positive)
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    from peers import peers_python

    taken: dict[str, Costs] = defaultdict(Costs)
    with tempfile.TemporaryDirectory(prefix="duckkb-bench-") as scratch:
        ground = Ground((chosen.keep or Path(scratch)).resolve(), chosen.size, peers_python())
        for _ in range(chosen.rounds):
            round_of(ground, taken)
        if chosen.grown:
            refreshed(ground, Ground(ground.folder, chosen.grown, ground.peers), 10, taken)
    for name, costs in taken.items():
        print(f"{name:24} busy {statistics.median(costs.busy):8.2f} s   clock {statistics.median(costs.clock):8.2f} s")
    rows = shown(taken, chosen.clock)
    print("\n| goal | busy | clock | at most | reached |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        said = "yes" if row["reached"] else "**no**"
        print(f"| {row['goal']} | {row['busy']:.2f} | {row['clock']:.2f} | {row['limit']} | {said} |")
    if chosen.out:
        medians = {name: {"busy": costs.busy, "clock": costs.clock} for name, costs in taken.items()}
        chosen.out.write_text(
            json.dumps({"size": chosen.size, "rows": rows, "seconds": medians}, indent=1) + "\n", "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
