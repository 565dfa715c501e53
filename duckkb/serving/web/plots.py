"""Plots as shapes that a template draws: points in a frame of `WIDTH` by `HEIGHT` units, with the numbers of the
axes.

The series of a plot share the points of the horizontal axis, which are commits in their order; `None` is a gap.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 12, 30
"""Margins around the field in which series are drawn."""
Value = float | int | None


class Series(Struct, frozen=True):
    """A named row of values; `hue` is the number of its colour."""

    name: str
    values: Sequence[Value]
    hue: int


class PlottedValue(Struct, frozen=True):
    """A value at its drawn position."""

    x: float
    y: float
    value: float


class Drawn(Struct, frozen=True):
    """A series as it is drawn: `path` is an SVG line or area, `marks` are the values that stand alone or end it."""

    name: str
    hue: int
    path: str
    marks: tuple[PlottedValue, ...]


class Plot(Struct, frozen=True):
    """A plot: `ticks` are numbers with their height.

    `labels` are texts with their horizontal place, and their alignment to it (start, middle, end).
    """

    series: tuple[Drawn, ...]
    ticks: tuple[tuple[float, float], ...]
    labels: tuple[tuple[str, float, str], ...]
    is_area: bool


def lines(series: Sequence[Series], labels: Sequence[str], most: float) -> Plot:
    """Draw each series as a line, from 0 to `most`."""
    places = _place_columns(len(labels))
    shapes = []
    for row in series:
        marks = [
            PlottedValue(x, _place_height(value, most), value)
            for x, value in zip(places, row.values, strict=True)
            if value is not None
        ]
        runs = _split_runs(row.values, places, most)
        path = " ".join("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs if len(run) > 1)
        shapes.append(Drawn(row.name, row.hue, path, tuple(marks)))
    return Plot(tuple(shapes), _build_ticks(most, most / 4), _place_labels(labels, places), False)


def areas(series: Sequence[Series], labels: Sequence[str]) -> Plot:
    """Draw stacked series, the first one at the bottom; their height is the sum."""
    places = _place_columns(len(labels))
    sums = [0.0] * len(labels)
    layers = []
    for row in series:
        floor, sums = sums, [below + (value or 0) for below, value in zip(sums, row.values, strict=True)]
        layers.append((row, floor, sums))
    step = _choose_step(max(sums, default=0.0))
    most = max(step, math.ceil(max(sums, default=0.0) / step) * step)
    shapes = []
    for row, floor, top in layers:
        edge, back = (
            _widen_edge([(x, _place_height(value, most)) for x, value in zip(places, side, strict=True)])
            for side in (top, floor)
        )
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in (*edge, *reversed(back))) + " Z"
        shapes.append(Drawn(row.name, row.hue, path, ()))
    return Plot(tuple(shapes), _build_ticks(most, step), _place_labels(labels, places), True)


def _split_runs(values: Sequence[Value], places: Sequence[float], most: float) -> list[list[tuple[float, float]]]:
    """Return the points between gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, value in zip(places, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x, _place_height(value, most)))
    return runs


def _widen_edge(edge: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Widen a single point, which has no width, to the whole field."""
    if len(edge) != 1:
        return edge
    return [(LEFT, edge[0][1]), (WIDTH - RIGHT, edge[0][1])]


def _place_columns(count: int) -> list[float]:
    field = WIDTH - LEFT - RIGHT
    return [LEFT + (field * at / (count - 1) if count > 1 else field / 2) for at in range(count)]


def _place_height(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / most if most else 0)


def _choose_step(most: float) -> int:
    """Return the distance of about four ticks: 1, 2 or 5 and zeros.

    >>> _choose_step(1310), _choose_step(7), _choose_step(0)
    (500, 2, 1)
    """
    target = most / 4
    if target <= 1:
        return 1
    power = int(10 ** math.floor(math.log10(target)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= target)


def _build_ticks(most: float, step: float) -> tuple[tuple[float, float], ...]:
    return tuple((number * step, _place_height(number * step, most)) for number in range(round(most / step) + 1))


def _place_labels(labels: Sequence[str], places: Sequence[float]) -> tuple[tuple[str, float, str], ...]:
    """Return the first, the middle and the last label, with their places."""
    last = len(labels) - 1
    indexes = dict.fromkeys([0, last // 2, last] if last > 3 else [0, last] if last > 0 else [0] if last == 0 else [])
    return tuple(
        (labels[at], places[at], "middle" if last == 0 or 0 < at < last else "start" if at == 0 else "end")
        for at in indexes
    )


def format_size(count: float) -> str:
    """Return a readable size in bytes.

    >>> format_size(999), format_size(230_578), format_size(4_000_000_000)
    ('999 B', '231 kB', '4.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes any number")
