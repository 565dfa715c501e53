"""Data inside text: on one line of a terminal; and inside Markdown, as inert spans and blocks of code.

In code a forge reads no mention, reference, link, picture, HTML or formula, and no data can end the code. All
data of a report stands in one of these.

A self-contained HTML file. A policy in its head forbids network requests, and every script but its own.

The data is JSON in a block that no browser runs. In it `<` is escaped, so that no data can end the block; the
script inserts it as text, never as markup.

Web addresses of a forge for a commit, and for a line of a file at a commit."""

import base64
import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from duckkb.types.errors import Finding
from duckkb.types.invisible_characters import escape, visible

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


def escape_line(text: str) -> str:
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


KINDS = {"same": 0, "gone": 1, "new": 2, "cut": 0}
"""The numbers that the script uses for the runs of `diff.words`."""
_HERE = Path(__file__).parent


def document(title: str, data: Iterable[str], script: Path) -> Iterator[str]:
    """Yield a page in pieces: `data` are the pieces of one JSON value as `safe` writes it, `script` draws it."""
    style = (_HERE / "page.css").read_text("utf-8")
    code = "\n".join(path.read_text("utf-8") for path in (_HERE / "page.js", script))
    yield _render_head(title, style, code)
    yield '<script type="application/json" id="data">'
    yield from data
    yield f"</script>\n<script>{code}</script>\n</html>"


def safe(value: Any) -> str:
    """Return JSON that cannot end a block of HTML."""
    return dumps(value).replace("<", "\\u003c")


def convert_finding(one: Finding) -> dict[str, str]:
    """Return a finding as the script shows it."""
    record = f"{one.type} {one.identity}" if one.type else ""
    entries = {"code": one.code, "place": one.place, "record": record, "field": one.field}
    entries |= {"message": one.message, "remedy": one.remedy}
    return {name: visible(text) for name, text in entries.items() if text}


def _render_head(title: str, style: str, script: str) -> str:
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page needs JavaScript: its records are shown as they are scrolled to.</p></noscript>
</body>"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_FORMS = {"github": "", "gitlab": "/-"}
"""The path between a repository's page and its commits, by a word of the forge's host."""


class ForgeLinks(Struct, frozen=True):
    """The addresses of a repository on a forge.

    `page` is that of the repository (`https://github.com/team/kb`), `between` leads from there to its commits.
    `base` and `head` are the commits of either side in hex, empty where the forge does not have that side.
    """

    page: str
    base: str = ""
    head: str = ""
    between: str = ""

    @classmethod
    def from_host(cls, host: str, path: str, base: str, head: str) -> "ForgeLinks | None":
        """Return the links of a repository by its host; None for an unknown kind of forge.

        >>> ForgeLinks.from_host("gitlab.com", "team/kb", "", "abc").line("data/a b.jsonl", 3, is_old=False)
        'https://gitlab.com/team/kb/-/blob/abc/data/a%20b.jsonl#L3'
        """
        between = next((between for word, between in _FORMS.items() if word in host), None)
        return cls(f"https://{host}/{quote(path)}", base, head, between) if between is not None else None

    def commit(self, *, is_old: bool) -> str:
        """Return the page of a side's commit; empty where there is none."""
        commit = self.base if is_old else self.head
        return f"{self.page}{self.between}/commit/{commit}" if commit else ""

    def line(self, path: str, line_no: int, *, is_old: bool) -> str:
        """Return the page of a line; empty where the forge does not have that side.

        `path` is relative to the top of the repository.
        """
        commit = self.base if is_old else self.head
        return f"{self.page}{self.between}/blob/{commit}/{quote(path)}#L{line_no}" if commit else ""
