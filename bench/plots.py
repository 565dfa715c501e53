"""The plots of docs/performance.md. Runs in the peers' environment, which has matplotlib.

usage: python bench/plots.py FOLDER RESULT.json...
"""

import sys
from pathlib import Path

import matplotlib as mpl
from goals import FLOORS
from report import STANDARD, SYSTEMS, TITLES, Sizes, load, medians

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend is chosen first
from matplotlib.ticker import ScalarFormatter

COLOURS = {
    "duckkb": "#d62728",
    "numpy": "#7f7f7f",
    "lancedb": "#1f77b4",
    "lancedb-ivf": "#aec7e8",
    "sqlite-vec": "#2ca02c",
    "chroma": "#ff7f0e",
    "agentcairn": "#9467bd",
}


def warm(sizes: Sizes, path: Path) -> None:
    """Bars by search and system at the standard size, on a logarithmic scale."""
    size = _standard(sizes)
    found = medians(sizes[size])
    steps = ["hybrid", "hybrid 1 %", "hybrid 50 %", "vector", "lexical"]
    systems = [name for name in SYSTEMS if name in found]
    figure, axes = plt.subplots(figsize=(8, 3.6))
    width = 0.85 / len(systems)
    for number, name in enumerate(systems):
        places = [place + number * width for place, step in enumerate(steps) if step in found[name]]
        heights = [found[name][step] * 1000 for step in steps if step in found[name]]
        axes.bar(places, heights, width, label=SYSTEMS[name], color=COLOURS[name])
    axes.set_xticks(
        [place + 0.4 for place in range(len(steps))], [TITLES.get(step, step) for step in steps], fontsize=8
    )
    axes.set(yscale="log", ylabel="median, ms", title=f"Searches in an open process, {size:,} records")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.legend(fontsize=7, bbox_to_anchor=(1.01, 1), loc="upper left")
    _save(figure, path)


def processes(sizes: Sizes, path: Path) -> None:
    """Bars of whole processes at the standard size, beside the floor and four times the floor."""
    size = _standard(sizes)
    found = medians(sizes[size])["processes"]
    figure, axes = plt.subplots(figsize=(8, 3.8))
    names = [name for name in found if name in FLOORS][::-1]
    names = [*[name for name in found if name not in FLOORS][::-1], *names]
    colours = [COLOURS["numpy" if name in FLOORS else "duckkb"] for name in names]
    axes.barh(names, [found[name] for name in names], color=colours)
    axes.axvline(4 * found["import duckdb"], color="black", linestyle="--", linewidth=0.8, label="4 x import duckdb")
    axes.set(xlabel="median, seconds", title=f"Whole processes, {size:,} records")
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(fontsize=8)
    _save(figure, path)


def growth(sizes: Sizes, path: Path) -> None:
    """Lines over sizes."""
    lines = (
        ("cold find, words", "processes", "find, words", "#d62728", "-"),
        ("cold find after a change by hand", "processes", "find after a change by hand", "#d62728", ":"),
        ("import duckdb", "processes", "import duckdb", "#7f7f7f", "--"),
        ("warm hybrid, duckkb", "duckkb", "hybrid", "#d62728", "-."),
        ("numpy scan", "numpy", "vector", "#7f7f7f", "-."),
        ("warm hybrid, LanceDB", "lancedb", "hybrid", "#1f77b4", "-."),
        ("warm hybrid, sqlite-vec + FTS5", "sqlite-vec", "hybrid", "#2ca02c", "-."),
    )
    figure, axes = plt.subplots(figsize=(8, 3.8))
    by_size = {size: medians(its) for size, its in sizes.items()}
    for label, part, step, colour, style in lines:
        points = [(size, its[part][step]) for size, its in by_size.items() if step in its.get(part, {})]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label, marker=".")
    axes.set(xscale="log", yscale="log", xlabel="records", ylabel="median, seconds", title="Cost by size")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.legend(fontsize=7, bbox_to_anchor=(1.01, 1), loc="upper left")
    _save(figure, path)


def _save(figure: "plt.Figure", path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def _standard(sizes: Sizes) -> int:
    return max(size for size in sizes if size <= STANDARD)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    _, sizes = load([Path(name) for name in sys.argv[2:]])
    for draw in (warm, processes, growth):
        draw(sizes, folder / f"{draw.__name__}.png")


if __name__ == "__main__":
    main()
