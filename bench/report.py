"""Writes the figures of docs/performance.md, and its plots, from what bench/peers.py measured.

usage: python bench/report.py [--no-plots] [--check]

Takes bench/results/peers.json, and where they are there large.json (a million records), boot.json and embedding.json (what
bench/boot.py and bench/embedding.py wrote). `--check` writes nothing; the exit code is 1 where the page does not say what the
results say.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import goals
from goals import Goal, Outcome

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
IMAGES = HERE.parent / "docs" / "images"
RESULTS = (HERE / "results" / "peers.json", HERE / "results" / "large.json")
EMBEDDING = HERE / "results" / "embedding.json"
BOOT = HERE / "results" / "boot.json"
WARM = HERE / "results" / "warm.json"
SERVING = (HERE / "results" / "serving.json", HERE / "results" / "serving-http.json")
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
STANDARD, LARGE = 100_000, 1_000_000
EMBEDDING_GOAL = 0.9
SERVING_GOALS = (1.6, 4.0)
"""Answers a second to many clients of a pool, as a multiple of those of one process to one; and its 99th percentile over its
median."""

STEPS = (
    "hybrid",
    "hybrid 1 %",
    "hybrid 50 %",
    "vector",
    "vector 1 %",
    "vector 50 %",
    "lexical",
    "lexical zh",
    "lexical 1 %",
)
TITLES = {
    "hybrid 1 %": "hybrid, filter of 1 %",
    "hybrid 50 %": "hybrid, filter of 50 %",
    "vector 1 %": "vector, filter of 1 %",
    "vector 50 %": "vector, filter of 50 %",
    "lexical 1 %": "lexical, filter of 1 %",
    "lexical zh": "lexical, Chinese words",
}
SYSTEMS = {
    "duckkb": "duckkb",
    "numpy": "numpy scan",
    "lancedb": "LanceDB",
    "lancedb-ivf": "LanceDB, IVF index",
    "sqlite-vec": "sqlite-vec + FTS5",
    "chroma": "Chroma",
    "agentcairn": "agentcairn",
}
BOOT_STEPS = (
    ("whole process, duckkb's command line", "command line", ""),
    ("whole process, the Python library", "process", "process"),
    ("the same without `import duckkb`, `import lancedb`", "without imports", "without imports"),
    (
        "reads the files (duckkb: checks them and writes down what they say)",
        "reads and checks the files",
        "reads the files",
    ),
    ("makes rows and indices", "makes indices", "builds rows and indices"),
    ("answers", "answers", "opens and answers"),
)
"""What the page calls the steps of bench/boot.py: duckkb's, LanceDB's."""
Sizes = Mapping[int, Mapping[str, Any]]


def load(paths: Sequence[Path]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """What the first file says of the machine, and the sizes of all files; the first file that has a size counts. What the
    large size is compared with stands `beside` it, where the same run has it."""
    found, sizes = [json.loads(path.read_text("utf-8")) for path in paths], {}
    for one in reversed(found):
        own = {int(size): its for size, its in one["sizes"].items()}
        if LARGE in own and STANDARD in own:
            own[LARGE] = own[LARGE] | {"beside": own[STANDARD]}
        sizes |= own
    return found[0]["about"], dict(sorted(sizes.items()))


def with_boots(sizes: dict[int, dict[str, Any]], boots: Mapping[str, Any]) -> None:
    """Take in what bench/boot.py measured of one size."""
    if boots["size"] in sizes:
        sizes[boots["size"]]["seconds"] |= {f"boot, {system}": steps for system, steps in boots["seconds"].items()}


def medians(of_size: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """As `goals` takes them."""
    seconds = {part: {step: its["median"] for step, its in steps.items()} for part, steps in of_size["seconds"].items()}
    return seconds | {"memory": of_size["memory"]}


def figures(about: Mapping[str, Any], sizes: Sizes) -> str:
    """Everything between the markers."""
    parts = [_machine(about), *_goals(sizes), *_warm(sizes), *_processes(sizes), *_builds(sizes), *_answers(sizes)]
    return "\n\n".join([*parts, *_memory(sizes)])


def amount(seconds: float) -> str:
    """Seconds or milliseconds, with three digits that count.

    >>> amount(0.00123), amount(0.0456), amount(12.345)
    ('1.23 ms', '45.6 ms', '12.3 s')
    """
    if seconds < 0.9995:
        return f"{_digits(seconds * 1000)} ms"
    return f"{_digits(seconds)} s"


def _digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def _limit(number: float) -> str:
    return f"1/{1 / number:.0f}" if number < 1 else f"{number:g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)])


def _machine(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"Measured on {about['date']} at commit {about['commit']}: {about['processor']}, {about['cores']} cores, "
        f"{about['memory_gb']} GB of memory, {about['system']}, Python {about['python']}; {versions}."
    )


def _goals(sizes: Sizes) -> Iterator[str]:
    if STANDARD in sizes:
        yield f"## Goals at {STANDARD:,} records"
        found = medians(sizes[STANDARD])
        busy = goals.outcomes(goals.GOALS, {"processes": found.get("processes, busy", {})})
        yield _outcomes(goals.outcomes(goals.GOALS, found), {one.goal: one.ratio for one in busy})
        yield (
            "`busy`: the same ratio of the seconds that the processes kept a core busy, which other work on the machine "
            "disturbs less."
        )
    if LARGE in sizes:
        large = medians(sizes[LARGE])
        yield f"## Goals at {LARGE:,} records"
        smaller = sizes[LARGE].get("beside") or sizes.get(STANDARD)
        grown = goals.growth(medians(smaller) if smaller else {}, large, f"at {STANDARD:,}")
        yield _outcomes([*goals.outcomes(goals.LARGE_GOALS, large), *grown], {})
    for size in sizes:
        if size < STANDARD and STANDARD in sizes:
            costly = goals.slower(medians(sizes[size]), medians(sizes[STANDARD]))
            said = ", ".join(f"{step} ({ratio:.2f} x)" for step, ratio in costly.items())
            yield f"Steps that cost a tenth more at {size:,} records than at {STANDARD:,}: {said or 'none'}."


def _outcomes(found: Sequence[Outcome], busy: Mapping[Goal, float]) -> str:
    head = ["what", "duckkb", "beside", "ratio", *(["busy"] if busy else []), "at most", "reached"]
    return _table(head, [_row(one, busy) for one in found])


def _row(one: Outcome, busy: Mapping[Goal, float]) -> list[str]:
    goal, reached = one.goal, "yes" if one.reached else "**no**"
    base = f"{goal.base_name}: {_cell(goal, one.base)}"
    ratios = [f"{one.ratio:.2f}", *([f"{busy[goal]:.2f}" if goal in busy else ""] if busy else [])]
    return [goal.name, _cell(goal, one.value), base, *ratios, _limit(goal.limit), reached]


def _cell(goal: Goal, number: float) -> str:
    return f"{number / 1e6:,.0f} MB" if goal.name.startswith("peak memory") else amount(number)


def _warm(sizes: Sizes) -> Iterator[str]:
    yield "## Searches in an open process"
    yield "Median, and 95th percentile in brackets."
    for size, its in sizes.items():
        seconds = its["seconds"]
        systems = [name for name in SYSTEMS if name in seconds]
        rows = [
            [TITLES.get(step, step)] + [_spread(seconds[name].get(step)) for name in systems]
            for step in STEPS
            if any(step in seconds[name] for name in systems)
        ]
        yield f"### {size:,} records"
        yield _table(["search", *(SYSTEMS[name] for name in systems)], rows)
    yield "![Searches in an open process](images/warm.png)"


def _spread(its: Mapping[str, float] | None) -> str:
    return f"{amount(its['median'])} ({amount(its['p95'])})" if its else ""


def _processes(sizes: Sizes) -> Iterator[str]:
    having = {size: its["seconds"]["processes"] for size, its in sizes.items() if "processes" in its["seconds"]}
    if not having:
        return
    yield "## Whole processes"
    yield "Median, and in brackets as a multiple of `import duckdb` at the same size."
    steps = dict.fromkeys(step for its in having.values() for step in its)
    rows = [[step, *(_multiple(its, step) for its in having.values())] for step in steps]
    yield _table(["process", *(f"{size:,}" for size in having)], rows)
    own = {size: its["seconds"]["duckkb"] for size, its in sizes.items() if "put" in its["seconds"].get("duckkb", {})}
    yield "What an object that stays open pays for a change:"
    rows = [
        [title, *(amount(its[step]["median"]) for its in own.values())]
        for title, step in (("find after one record was changed by hand", "after a change by hand"), ("put", "put"))
    ]
    yield _table(["call", *(f"{size:,}" for size in own)], rows)
    yield "![Whole processes](images/processes.png)"
    yield "![Cost by size](images/growth.png)"


def _multiple(its: Mapping[str, Mapping[str, float]], step: str) -> str:
    if step not in its:
        return ""
    return f"{amount(its[step]['median'])} ({its[step]['median'] / its['import duckdb']['median']:.1f} x)"


def boots(said: Mapping[str, Any]) -> str:
    """What bench/boot.py found."""
    head = ["", "duckkb", "LanceDB"]
    ours, theirs = (said["seconds"][system] for system in ("duckkb", "lancedb"))
    rows = [[title, _spread(ours.get(own)), _spread(theirs.get(other))] for title, own, other in BOOT_STEPS]
    about = said["about"]
    text = (
        f"From the same {said['size']:,} rows and vectors in files to a store on disk that has answered once, in turns "
        f"({ours['process']['n']} rounds at commit {about['commit']}, {about['date']}). Medians, and 95th percentile in brackets."
    )
    return f"## From files to an answer\n\n{text}\n\n{_table(head, rows)}"


def _builds(sizes: Sizes) -> Iterator[str]:
    yield "## Rows and indices"
    yield "From rows in memory to a store that can be searched; for duckkb from a JSONL file to committed files, vectors cached."
    built = {name for its in sizes.values() for name in its["seconds"]["build"]} - {"numpy", "agentcairn"}
    systems = [name for name in SYSTEMS if name in built]
    rows = [
        [f"{size:,}"]
        + [
            amount(its["seconds"]["build"][name]["median"]) if name in its["seconds"]["build"] else ""
            for name in systems
        ]
        for size, its in sizes.items()
    ]
    systems_row = [SYSTEMS[name] for name in systems]
    yield _table(["records", *systems_row], rows)


def _answers(sizes: Sizes) -> Iterator[str]:
    yield "## Answers"
    yield (
        "The share of the right first ten that each system found. Right is, for vectors, numpy's product in double precision; "
        "for words, BM25 over the words of which the texts were made, without stems; for both, their reciprocal rank fusion. "
        "Stems, segmentation and ties make words differ; vectors do not: an exact search has 1.000. A `!` marks a system that "
        "gave fewer records than satisfy the filter, or others."
    )
    for size, its in sizes.items():
        systems = [name for name in SYSTEMS if its["answers"].get(name)]
        rows = [
            [TITLES.get(step, step)] + [_agreement(its["answers"][name].get(step)) for name in systems]
            for step in STEPS
            if any(step in its["answers"][name] for name in systems)
        ]
        yield f"### {size:,} records"
        yield _table(["search", *(SYSTEMS[name] for name in systems)], rows)


def _agreement(its: Mapping[str, float] | None) -> str:
    if its is None:
        return ""
    return f"{its['agree']:.3f}{' !' if its.get('keeps to the filter', 1) < 1 else ''}"


def _memory(sizes: Sizes) -> Iterator[str]:
    yield "## Memory"
    yield (
        "The most that a process needed that opens the base and searches it in five ways, beside the bytes of vectors and texts; "
        "and what each process of the warm searches needed. Pages of mapped files count; `no file`: what remains without "
        "them. `from nothing`: a process that makes all that is derived; `import`: one that writes the records, in parts of "
        "100,000."
    )
    rows = []
    for size, its in sizes.items():
        used = its["memory"]
        if "duckkb" in used:
            others = ", ".join(
                f"{SYSTEMS[name]} {used[key] / 1e6:,.0f}" for name in SYSTEMS if (key := f"{name}, all steps") in used
            )
            share = used["duckkb"] / used["vectors and texts"]
            names = ("duckkb", "duckkb, no mapped files", "duckkb, from nothing", "duckkb, build", "vectors and texts")
            shown = [f"{used[name] / 1e6:,.0f} MB" if name in used else "" for name in names]
            rows.append([f"{size:,}", *shown, f"{share:.2f}", f"{others} MB"])
    yield _table(
        ["records", "duckkb", "no file", "from nothing", "import", "vectors and texts", "ratio", "all steps"], rows
    )


def written(page: str) -> str:
    """The page with the figures of the results that are there; without any it stays as it is."""
    paths = [path for path in RESULTS if path.exists()]
    if not paths:
        return page
    head, rest = page.split(BEGIN)
    about, sizes = load(paths)
    booted = json.loads(BOOT.read_text("utf-8")) if BOOT.exists() else None
    if booted is not None:
        with_boots(sizes, booted)
    shown = figures(about, sizes)
    if booted is not None:
        shown += "\n\n" + boots(booted)
    if EMBEDDING.exists():
        shown += "\n\n" + embedding(json.loads(EMBEDDING.read_text("utf-8")))
    if WARM.exists():
        shown += "\n\n" + warm_process(json.loads(WARM.read_text("utf-8")))
    served = [json.loads(path.read_text("utf-8")) for path in SERVING if path.exists()]
    if served:
        shown += "\n\n## Many clients\n\n" + "\n\n".join(map(serving, served))
    return f"{head}{BEGIN}\n\n{shown}\n\n{END}{rest.split(END)[1]}"


def embedding(said: Mapping[str, Any]) -> str:
    """What bench/embedding.py found."""
    rows = []
    for measure in (name for name, its in said.items() if isinstance(its, dict)):
        its = said[measure]
        (job,) = (name for name in its["rates"] if not name.startswith("bare"))
        best, own = its["rates"][its["best"]], its["rates"][job]
        reached = "yes" if its["ratio"] >= EMBEDDING_GOAL else "**no**"
        rows.append([measure, f"{own:.1f}", f"{best:.1f} ({its['best']})", f"{its['ratio']:.2f}", reached])
    head = ["texts a second", "index job", "the model called bare, best batch", "ratio", f"at least {EMBEDDING_GOAL}"]
    return f"## Embedding\n\n{said['texts']:,} texts, mode {said['mode']}.\n\n{_table(head, rows)}"


def warm_process(said: Mapping[str, Any]) -> str:
    """What bench/warm.py found."""
    rows = []
    for name, its in said["medians"].items():
        ratio, goal = its["require"] / its["off"], said["goals"][name]
        reached = "yes" if ratio <= goal else "**no**"
        rows.append([name, amount(its["off"]), amount(its["require"]), f"{ratio:.3f}", f"{goal:.3f}", reached])
    about = said["about"]
    text = (
        f"Whole processes, by themselves and answered by `duckkb serve --warm`, in turn; medians, {said['records']:,} records, at commit "
        f"{about['commit']}, {about['date']}. The output is compared byte by byte."
    )
    table = _table(["command", "by itself", "answered warm", "ratio", "at most", "reached"], rows)
    return f"## The warm process\n\n{text}\n\n{table}"


def serving(said: Mapping[str, Any]) -> str:
    """What bench/serving.py found."""
    ways = said["ways"]
    steps = list(next(iter(ways.values())))
    one, pool = "one process, 1 client", f"{said['workers']} workers, {said['clients']} clients"
    rows = [
        [name, *(_rate(its[step], its[step]["rate"] / ways[one][step]["rate"]) for step in steps)]
        for name, its in ways.items()
    ]
    reached = [
        f"{step} {ways[pool][step]['rate'] / ways[one][step]['rate']:.2f} and {ways[pool][step]['p99'] / ways[pool][step]['p50']:.1f}"
        for step in steps
    ]
    room = [f"{step} at most {said['about']['cores'] / ways[one][step]['busy']:.2f}" for step in steps]
    text = (
        f"{'`duckkb serve`, asked over HTTP' if said['http'] else 'The object behind a server, asked by threads'}, {said['size']:,} records, "
        f"the clients on the same {said['about']['cores']} cores, at commit {said['about']['commit']}, {said['about']['date']}: answers a second (as a "
        f"multiple of one process that one client asks), median and 99th percentile, cores of the machine at work. The writer puts 10 times a second ({said['puts']} "
        f"puts); wrong answers: {said['wrong']}."
    )
    goals = (
        f"{pool}, at least {SERVING_GOALS[0]} x one process and one client, 99th percentile at most {SERVING_GOALS[1]:g} x the median: "
        f"{'; '.join(reached)}. What one client keeps at work says what many can have: {'; '.join(room)}."
    )
    return f"{text}\n\n{_table(['who answers whom', *steps], rows)}\n\n{goals}"


def _rate(its: Mapping[str, float], ratio: float) -> str:
    return f"{its['rate']:.0f} ({ratio:.2f} x), {amount(its['p50'])}, {amount(its['p99'])}, {its['busy']:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    page = PAGE.read_text("utf-8")
    made = written(page)
    if chosen.check:
        return int(made != page)
    PAGE.write_text(made, "utf-8")
    if not chosen.no_plots:
        from peers import peers_python

        results = [str(path) for path in RESULTS if path.exists()]
        subprocess.run([str(peers_python()), str(HERE / "plots.py"), str(IMAGES), *results], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
