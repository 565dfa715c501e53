r"""Data inside Markdown, where it cannot act: spans and blocks of code that nothing in them can end.

In code a forge reads no mention, reference, link, picture, HTML or formula. All data of a report stands in one of these.
"""

import re
from collections.abc import Iterable

from duckkb.review.invisible import escape, visible

_TICKS = re.compile("`+")
_LONGEST_RUN = 20
_LINE_ENDS = re.compile("[\n\r\u2028\u2029]")


def span(text: str) -> str:
    r"""A text of any kind as a span of code on one line; what ends a line and what is not seen stand there as escapes.

    >>> span("a`b"), span("x\ny"), span("")
    ('``a`b``', '`x\\u000ay`', '` `')
    """
    plain = _few_ticks(_LINE_ENDS.sub(lambda found: escape(found[0]), visible(text)))
    if not plain.strip(" "):
        return f"` {plain}`" if not plain else f"`{plain}`"
    ticks = "`" * (_longest(plain) + 1)
    # One blank on both sides is taken off again; it also keeps ticks of the text apart from ours.
    has_edge = plain[0] in " `" or plain[-1] in " `"
    return f"{ticks} {plain} {ticks}" if has_edge else f"{ticks}{plain}{ticks}"


def cell(text: str) -> str:
    """A span of code in a cell of a table, which a bar would end even there."""
    return span(text).replace("|", "\\|")


def block(lines: Iterable[str], language: str = "") -> str:
    """Lines of any kind as a block of code. What is not seen stands there as escapes."""
    plain = [_few_ticks(visible(line)) for line in lines]
    fence = "`" * max(3, *(_longest(line) + 1 for line in plain)) if plain else "```"
    return "\n".join([fence + language, *plain, fence])


def cut(text: str, longest: int) -> str:
    """A text of at most `longest` characters and a word on how much of it is missing."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more)"


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _few_ticks(text: str) -> str:
    """Without runs of ticks that would make a fence of any length."""
    return _TICKS.sub(lambda run: run[0] if len(run[0]) <= _LONGEST_RUN else escape("`") * len(run[0]), text)
