"""Reads the structure of a Markdown text: front matter, headings with their places, a title, and links to other
files.

Patterns find headings and fences where CommonMark 0.31 has them, except inside lists and quotes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from posixpath import dirname, normpath
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

from msgspec import Struct

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^---|^\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*$", re.MULTILINE)
_ATX = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+([^\n]*))?\r?$", re.MULTILINE)
_UNDERLINE, _UNDERLINED = re.compile(r"\n {0,3}(=+|-+)[ \t]*\r?$", re.MULTILINE), re.compile(r" {0,3}(\S[^\n]*)")
_NO_PARAGRAPH = re.compile(r"[#>|]|[-*+] |\d+[.)] |-{3,}|={3,}")
_ATTRIBUTES = re.compile(r"\{[ \t]*[#.:][^{}\n]*\}$")
_LINK = re.compile(
    r"(?<![!\\])\[(?:[^\[\]\n]++|\[[^\[\]\n]*+\])*+\]"
    r"\(\s*+(<[^<>\n]++>|(?>[^\s()]++(?:\([^\s()]*+\)[^\s()]*+)*+))[^()\n]*+\)"
)
_REFERENCE = re.compile(r"^ {0,3}\[(?!\^)[^\[\]\n]+\]:[ \t]*(<[^<>\n]+>|\S+)", re.MULTILINE)
_WIKI = re.compile(r"(?<![!\\])\[\[([^\[\]|#\n]{1,300})(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_COMMENTS = (("<!--", "-->"), ("%%", "%%"))
_YAML_COMMENT = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_BACKTICKS = re.compile(r"`+|\n[ \t]*\r?(?=\n)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_LONGEST_FRONT = 64 * 1024


class Heading(Struct, frozen=True):
    """A heading: its level, 1 to 6, its text, and the place in characters where its line begins."""

    level: int
    text: str
    start: int


class Link(Struct, frozen=True):
    """A link as written: its target, and its place in characters. A wiki link names a page."""

    target: str
    start: int
    is_wiki: bool = False


def front_matter(text: str) -> tuple[str, int]:
    """Return the YAML between `---` at the beginning of a text, and where the rest begins; empty and 0 if there is
    none.
    """
    match = _FRONT.match(text, 0, _LONGEST_FRONT)
    return (match[1], match.end()) if match else ("", 0)


def fences(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Return the spans of fenced code, fences included; an unclosed fence reaches to the end of the text."""
    spans: list[tuple[int, int]] = []
    if "```" not in text and "~~~" not in text:
        return spans
    opening: re.Match[str] | None = None
    for line in _FENCE.finditer(text, start):
        if opening is None:
            opening = line
        elif line[1][0] == opening[1][0] and len(line[1]) >= len(opening[1]) and line[0].strip() == line[1]:
            spans.append((opening.start(), line.end()))
            opening = None
    return [*spans, (opening.start(), len(text))] if opening is not None else spans


def headings(text: str, start: int = 0) -> list[Heading]:
    """Return the headings from `start` on, in order; code marks and section numbers stay in their text."""
    code = fences(text, start)
    candidates = [
        Heading(len(heading[1]), _strip_attributes(_strip_marks(heading[2] or "")), heading.start())
        for heading in _ATX.finditer(text, start)
    ]
    candidates += _iter_underlined_headings(text, start)
    return sorted(
        (heading for heading in candidates if not _is_inside(code, heading.start)), key=lambda heading: heading.start
    )


def _iter_underlined_headings(text: str, start: int) -> Iterator[Heading]:
    """Yield headings that are underlined with `=` or `-`; an underline is not itself a heading. The search starts
    from the underlines, because they are few.
    """
    underline_start = -1
    for underline in _UNDERLINE.finditer(text, start):
        at = max(text.rfind("\n", start, underline.start()) + 1, start)
        if at != underline_start and (line := _UNDERLINED.match(text, at, underline.start())):
            underline_start = underline.start() + 1
            if not _NO_PARAGRAPH.match(line[1]):
                yield Heading(1 if underline[1][0] == "=" else 2, _strip_attributes(line[1]), at)


def title(found: list[Heading], front: Mapping[str, Any], path: str) -> str:
    """Return the first heading of level 1, else of level 2, else the title in front matter, else the file's name."""
    for level in (1, 2):
        for heading in found:
            if heading.level == level and heading.text:
                return heading.text
    front_title = front.get("title")
    if isinstance(front_title, str) and front_title.strip():
        return front_title.strip()
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def links(text: str, start: int = 0) -> Iterator[Link]:
    """Yield the links to files as written: Markdown links, inline or by reference, and wiki links, also in the
    front matter before `start`. Code and comments have no links.
    """
    code = fences(text, start)
    if "`" in text:
        code = sorted([*code, *_find_code_spans(text, start, code)])
    comments = [comment.span() for comment in _YAML_COMMENT.finditer(text, 0, start)]
    unread = _merge_spans([*code, *_find_comments(text, start, code), *comments])
    for pattern in (_LINK, _REFERENCE, _WIKI):
        is_wiki = pattern is _WIKI
        for match in pattern.finditer(text, 0 if is_wiki else start):
            target = match[1].rstrip("\\").strip() if is_wiki else match[1].strip("<> ")  # in a table: `[[name\|text]]`
            if target and not _is_inside(unread, match.start()) and not _SCHEME.match(target):
                yield Link(target, match.start(), is_wiki)


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans and merge those that overlap."""
    disjoint_spans: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if disjoint_spans and start <= disjoint_spans[-1][1]:
            disjoint_spans[-1] = disjoint_spans[-1][0], max(end, disjoint_spans[-1][1])
        else:
            disjoint_spans.append((start, end))
    return disjoint_spans


def _find_comments(text: str, start: int, code: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of comments: HTML comments, and `%%` as in Obsidian. An unclosed comment does not count."""
    for opens, closes in _COMMENTS:
        at = text.find(opens, start)
        while at >= 0:
            end = -1
            if not _is_inside(code, at):
                end = text.find(closes, at + len(opens))
                if end < 0:
                    break
                yield at, end + len(closes)
            at = text.find(opens, end + len(closes) if end >= 0 else at + len(opens))


def wiki_end(name: str) -> str:
    """Return the edge end for a wiki link: the name as written, because its target depends on all documents of the
    collection.
    """
    return f"[[{name}]]"


def wiki_name(end: object) -> str | None:
    """Return the name in a wiki link's end (the inverse of `wiki_end`); None if the end is a path."""
    is_wiki = isinstance(end, str) and end.startswith("[[") and end.endswith("]]")
    return str(end)[2:-2] if is_wiki else None


def resolve_link(path: str, target: str) -> str | None:
    """Return the path that a link in the file `path` leads to, relative like `path`; None for a place in the same
    file.

    >>> resolve_link("guide/a.md", "../b%20c.md#top"), resolve_link("guide/a.md", "/x.md"), resolve_link("a.md",
    ... "#top")
    ('b c.md', 'x.md', None)
    """
    place = normalize("NFC", unquote(target.partition("#")[0].partition("?")[0]))
    if not place:
        return None
    return normpath(place.lstrip("/") if place.startswith("/") else f"{dirname(path)}/{place}".lstrip("/"))


def _find_code_spans(text: str, start: int, fence_spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of inline code: from a run of backticks to the next run of the same length. Like everything
    here it takes linear time for any text, because texts are untrusted.
    """
    runs: list[tuple[int, int]] = []
    for mark in _BACKTICKS.finditer(text, start):
        if mark[0][0] != "`":
            yield from _match_backticks(runs)
            runs = []
        elif not _is_inside(fence_spans, mark.start()):
            runs.append(mark.span())
    yield from _match_backticks(runs)


def _match_backticks(runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    behind: dict[int, int] = {}
    closing: list[int | None] = [None] * len(runs)
    for at in range(len(runs) - 1, -1, -1):
        length = runs[at][1] - runs[at][0]
        closing[at], behind[length] = behind.get(length), at
    at = 0
    while at < len(runs):
        end = closing[at]
        if end is not None:
            yield runs[at][0], runs[end][1]
        at = at + 1 if end is None else end + 1


def _strip_marks(text: str) -> str:
    """Strip the closing marks from a heading's text."""
    text = text.rstrip()
    bare = text.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else text


def _strip_attributes(text: str) -> str:
    """Strip the trailing attributes that some dialects allow from a heading's text."""
    return _ATTRIBUTES.sub("", text.strip()).strip()


def _is_inside(spans: list[tuple[int, int]], at: int) -> bool:
    place = bisect_right(spans, (at, 1 << 62)) - 1
    return place >= 0 and spans[place][0] <= at < spans[place][1]
