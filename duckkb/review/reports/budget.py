"""Reports of limited size: the pieces of sections that are shown, and the lines about those left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from duckkb.review.reports.markup import span

_NAMED = 8


class ReportSection(Struct, frozen=True):
    """Pieces of text of one sort, the most important first.

    `share` (0 to 1) is the part of the budget that the section may have even where others want it; `of` names
    the type of each piece.
    """

    head: str
    pieces: Callable[[], Iterable[str]]
    of: Sequence[str]
    share: float
    foot: str = ""


def fit_sections(
    start: str,
    sections: Sequence[ReportSection],
    budget: int,
    end: Callable[[Sequence[int]], str] = lambda shown_pieces: "",
    room: int = 0,
) -> str:
    """Return `start`, the sections with as many pieces as fit into `budget` bytes, and `end`.

    `end` gets the number of shown pieces of each section, and returns at most `room` bytes.

    Where pieces are left out, a line counts them by type. A section without pieces is left out. What a section
    does not need of its share goes to the others, first ones first. `start`, `end`, heads and these lines are
    always shown.
    """
    there = [section for section in sections if section.of]
    free_bytes = max(0, budget - size(start) - room - sum(map(_measure_frame, there)))
    pieces_by_section = [_take_pieces(section.pieces(), free_bytes) for section in there]
    rooms = _divide_room([sum(map(size, pieces)) for pieces in pieces_by_section], there, free_bytes)
    shown_pieces = [
        _take_pieces(some[: len(report_section.of)], wide)
        for report_section, some, wide in zip(there, pieces_by_section, rooms, strict=True)
    ]
    parts = [_format_section(section, some) for section, some in zip(there, shown_pieces, strict=True)]
    counts = iter(map(len, shown_pieces))
    return "".join([start, *parts, end([next(counts) if section.of else 0 for section in sections])])


def size(text: str) -> int:
    """Return the bytes of a line, with its LF."""
    return len(text.encode("utf-8", "replace")) + 1


def more(of: Sequence[str]) -> str:
    """Return a count of what is left out, by type.

    >>> more(["Note", "Character", "Note"])
    '3 more (2 `Note`, 1 `Character`)'
    """
    counts = sorted(Counter(of).items(), key=lambda item: (-item[1], item[0]))
    phrases = [f"{count:,} {span(name)}" for name, count in counts[:_NAMED]]
    other_count = sum(count for _, count in counts[_NAMED:])
    phrases += [f"{other_count:,} of {len(counts) - _NAMED} others"] if other_count else []
    return f"{len(of):,} more ({', '.join(phrases)})"


def _measure_frame(section: ReportSection) -> int:
    """Return the bytes that a section takes at most without its pieces."""
    names = sorted(map(size, set(section.of)), reverse=True)[: _NAMED + 1]
    tail = sum(names) + (len(names) + 1) * (len(f"{len(section.of):,}") + 12) + 12
    return size(section.head) + size(section.foot) + tail


def _take_pieces(pieces: Iterable[str], room: int) -> list[str]:
    """Return the pieces that would fit if there were nothing else."""
    selection = []
    for piece in pieces:
        room -= size(piece)
        if room < 0:
            break
        selection.append(piece)
    return selection


def _divide_room(needs: Sequence[int], sections: Sequence[ReportSection], free_bytes: int) -> Iterator[int]:
    rooms = [min(want, int(section.share * free_bytes)) for want, section in zip(needs, sections, strict=True)]
    spare = free_bytes - sum(rooms)
    for want, room in zip(needs, rooms, strict=True):
        more_of_it = min(want - room, max(0, spare))
        spare -= more_of_it
        yield room + more_of_it


def _format_section(section: ReportSection, pieces: Sequence[str]) -> str:
    body = "".join(f"{piece}\n" for piece in pieces)
    omitted_types = section.of[len(pieces) :]
    tail = f"\n_{more(omitted_types)}_\n" if omitted_types else ""
    return f"{section.head}\n{body}{tail}{section.foot}\n"
