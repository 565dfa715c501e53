"""The span of a text that fits a question: the best line, or the best stretch of a long line."""

from collections.abc import Callable, Iterator, Sequence

from duckkb.queries import Weight

Weigh = Callable[[Sequence[str]], Sequence[Weight]]

LONGEST = 300
"""The most characters of a line that are weighed at once."""
_LINES = 4
_STRIDE = LONGEST // 2
_BREAKS = " \t.,;:!?。，、；：！？"
_NEAR = 40


def fitting_span(text: str, weigh: Weigh) -> tuple[int, int]:
    """Return the start and end of the line, or stretch of a line, that fits best; the first of equals.

    Returns the first non-blank line where nothing matches; (0, 0) where all lines are blank.
    """
    lines = list(_iter_lines(text))
    if not lines:
        return 0, 0
    start, end = _choose_span(text, lines, weigh)
    if end - start <= LONGEST:
        return start, end
    stretches = [(at, min(at + LONGEST, end)) for at in range(start, end, _STRIDE)]
    at, until = _choose_span(text, stretches, weigh)
    return (_find_break(text, at) if at > start else at), until


def snippet(text: str) -> str:
    """Return the first lines of a text, within a few hundred characters and without a heading at their end."""
    excerpt = "\n".join(text.split("\n", _LINES)[:_LINES])[:LONGEST].rstrip()
    before, _, last = excerpt.rpartition("\n")
    return before.rstrip() if last.startswith("#") and before.strip() else excerpt


def _choose_span(text: str, spans: Sequence[tuple[int, int]], weigh: Weigh) -> tuple[int, int]:
    if len(spans) == 1:
        return spans[0]
    weights = weigh([text[start:end] for start, end in spans])
    return spans[max(range(len(spans)), key=weights.__getitem__)]


def _iter_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines that are not blank, without their ends."""
    start = 0
    for line in text.split("\n"):
        if line.strip():
            yield start, start + len(line)
        start += len(line) + 1


def _find_break(text: str, at: int) -> int:
    """Return a place shortly before `at` where no word is cut; `at` itself without one."""
    return max((text.rfind(sign, at - _NEAR, at) + 1 for sign in _BREAKS), default=0) or at
