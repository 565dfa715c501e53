"""Text in aligned columns for a terminal."""

from collections.abc import Sequence

from duckkb.cli.printed import one_line
from duckkb.review.reports.markup import place, places
from duckkb.values import dataclass

_GAP = "  "
_NARROWEST = 8  # a column is not cut below this: the lines of many columns are then longer than the terminal
_WIDEST = 200  # of a cell where there is no terminal to fit
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class RowLines:
    """Rows as lines without their ends, and how many of their cells are not whole."""

    lines: tuple[str, ...]
    cut: int = 0


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> RowLines:
    """A header, a rule, a line a row, at most `width` places wide where its columns can be cut so far (0: no limit).
    `right` says which columns are aligned to the right."""
    most = width or _WIDEST
    shown = [[_cut(text, most)[0] for text in row] for row in (columns, *rows)]
    widths = [max(places(text) for text in column) for column in zip(*shown, strict=True)]
    if width:
        widths = _fitted(columns, widths, width - len(_GAP) * (len(widths) - 1))
    lines, cut = [], 0
    for row in (columns, *rows):
        cells = [_cut(text, limit) for text, limit in zip(row, widths, strict=True)]
        cut += sum(missing for _, missing in cells)
        lines.append(_line([text for text, _ in cells], widths, right))
    return RowLines((lines[0], _GAP.join("-" * one for one in widths), *lines[1:]), cut)


def _cut(text: str, limit: int) -> tuple[str, bool]:
    """The text on one line in at most `limit` places, and whether something of it is missing."""
    start = text[: 2 * limit + 8]  # a text may be megabytes; the rest of what combines with its last place is cut too
    shown = one_line(start)
    if len(start) == len(text) and (len(shown) * 2 <= limit or places(shown) <= limit):
        return shown, False
    kept, room = [], limit - 1
    for character in shown:
        room -= place(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + _ELLIPSIS, True


def _fitted(columns: Sequence[str], widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit: first duckkb's own fields (`_etag`) give way, then the widest others."""
    fitted = list(widths)
    for which in ([name.startswith("_") for name in columns], [True] * len(columns)):
        level = max(fitted, default=0)
        while sum(fitted) > room and level > _NARROWEST:
            level -= 1
            fitted = [min(one, level) if yields else one for one, yields in zip(fitted, which, strict=True)]
    return fitted


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for text, width, to_right in zip(cells, widths, right, strict=True):
        spaces = " " * (width - places(text))
        padded.append(spaces + text if to_right else text + spaces)
    return _GAP.join(padded).rstrip(" ")
