"""Data inside text: on one line of a terminal; and inside Markdown, as inert spans and blocks of code.

In code a forge reads no mention, reference, link, picture, HTML or formula, and no data can end the code. All
data of a report stands in one of these.
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
    r"""Return a text of any kind as a code span on one line; line ends and invisible characters are escaped.

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
    r"""Return a text of any kind on one line of a terminal.

    >>> line("x\ny\u202e")
    'x\\ny\\u202e'
    """
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def many(number: int, noun: str) -> str:
    """Return a count in words.

    >>> many(1, "record"), many(3000, "record")
    ('1 record', '3,000 records')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def dumps(value: Any) -> str:
    """Return compact JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cell(text: str) -> str:
    """Return a code span for a cell of a table, in which a bar is escaped."""
    return span(text).replace("|", "\\|")


def block(lines: Iterable[str], language: str = "") -> str:
    """Return lines of any kind as a block of code, with invisible characters escaped."""
    plain = [_limit_ticks(visible(line)) for line in lines]
    fence = "`" * max(3, *(_measure_ticks(line) + 1 for line in plain)) if plain else "```"
    return "\n".join([fence + language, *plain, fence])


def link_text(text: str, address: str) -> str:
    """Return data as a code span, linked to an `address` of ours where there is one."""
    return f"[{span(text)}]({address})" if address else span(text)


def finding_line(finding: Finding, address: str = "") -> str:
    """Return a finding as an item of a list; `address` is the page of its place."""
    place = f" {link_text(cut(finding.place, 200), address)}" if finding.path else ""
    who = "".join(f" {span(cut(name, 200))}" for name in (finding.type, finding.identity) if name)
    field = f" {span(cut(finding.field, 100))}" if finding.field else ""
    has_remedy = finding.remedy and not finding.remedy.lower().startswith("none needed")
    remedy = f" → {span(cut(finding.remedy, 200))}" if has_remedy else ""
    grade = "**error**" if finding.is_error else "warning"
    return f"- {grade} `{finding.code}`{place}{who}{field}: {span(cut(finding.message, 400))}{remedy}"


def cut(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters, with a note on the length of the rest."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more)"


def _measure_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _limit_ticks(text: str) -> str:
    """Return the text without runs of ticks that would make a fence of any length."""
    return _TICKS.sub(lambda run: run[0] if len(run[0]) <= _LONGEST_RUN else escape("`") * len(run[0]), text)


def places(text: str) -> int:
    """Return the columns that a text takes on a terminal.

    >>> places("ab"), places("数据"), places("é"), places("🦆")
    (2, 4, 1, 2)
    """
    return len(text) if text.isascii() else sum(map(place, text))


@cache
def place(character: str) -> int:
    """Return the columns that one character takes."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
