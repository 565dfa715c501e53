r"""Data inside text: on one line of a terminal, whose places it takes; and inside Markdown, where it cannot act: spans and
blocks of code that nothing in them can end.

In code a forge reads no mention, reference, link, picture, HTML or formula. All data of a report stands in one of these.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any

from duckkb.errors import Finding
from duckkb.rules.invisible import escape, visible

_TICKS = re.compile("`+")
_LONGEST_RUN = 20
_LINE_ENDS = re.compile("[\n\r\u2028\u2029]")


def span(text: str) -> str:
    r"""A text of any kind as a span of code on one line; what ends a line and what is not seen stand there as escapes.

    >>> span("a`b"), span("x\ny"), span("")
    ('``a`b``', '`x\\u000ay`', '` `')
    """
    plain = _limit_ticks(_LINE_ENDS.sub(lambda match: escape(match[0]), visible(text)))
    if not plain.strip(" "):
        return f"` {plain}`" if not plain else f"`{plain}`"
    ticks = "`" * (_measure_ticks(plain) + 1)
    # One blank on both sides is taken off again; it also keeps ticks of the text apart from ours.
    has_edge = plain[0] in " `" or plain[-1] in " `"
    return f"{ticks} {plain} {ticks}" if has_edge else f"{ticks}{plain}{ticks}"


def line(text: str) -> str:
    r"""A text of any kind on one line of a terminal.

    >>> line("x\ny\u202e")
    'x\\ny\\u202e'
    """
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def many(number: int, noun: str) -> str:
    """A count in words.

    >>> many(1, "record"), many(3000, "record")
    ('1 record', '3,000 records')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def dumps(value: Any) -> str:
    """JSON on one line, as short as it can be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cell(text: str) -> str:
    """A span of code in a cell of a table, which a bar would end even there."""
    return span(text).replace("|", "\\|")


def block(lines: Iterable[str], language: str = "") -> str:
    """Lines of any kind as a block of code. What is not seen stands there as escapes."""
    plain = [_limit_ticks(visible(line)) for line in lines]
    fence = "`" * max(3, *(_measure_ticks(line) + 1 for line in plain)) if plain else "```"
    return "\n".join([fence + language, *plain, fence])


def link_text(text: str, address: str) -> str:
    """Data as a span of code, which leads to an `address` that is ours, where there is one."""
    return f"[{span(text)}]({address})" if address else span(text)


def finding_line(finding: Finding, address: str = "") -> str:
    """A finding as an item of a list; `address` is the page of its place."""
    place = f" {link_text(cut(finding.place, 200), address)}" if finding.path else ""
    who = "".join(f" {span(cut(name, 200))}" for name in (finding.type, finding.identity) if name)
    field = f" {span(cut(finding.field, 100))}" if finding.field else ""
    has_remedy = finding.remedy and not finding.remedy.lower().startswith("none needed")
    remedy = f" → {span(cut(finding.remedy, 200))}" if has_remedy else ""
    grade = "**error**" if finding.is_error else "warning"
    return f"- {grade} `{finding.code}`{place}{who}{field}: {span(cut(finding.message, 400))}{remedy}"


def cut(text: str, longest: int) -> str:
    """A text of at most `longest` characters and a word on how much of it is missing."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more)"


def _measure_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _limit_ticks(text: str) -> str:
    """Without runs of ticks that would make a fence of any length."""
    return _TICKS.sub(lambda run: run[0] if len(run[0]) <= _LONGEST_RUN else escape("`") * len(run[0]), text)


def places(text: str) -> int:
    """How many places of a terminal a text takes.

    >>> places("ab"), places("数据"), places("é"), places("🦆")
    (2, 4, 1, 2)
    """
    return len(text) if text.isascii() else sum(map(place, text))


@cache
def place(character: str) -> int:
    """How many places one character takes."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
