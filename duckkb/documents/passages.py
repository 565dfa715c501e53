"""Cuts documents into passages, gives each its text to show, to index and to embed, and locates passages in
documents.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from duckkb.documents import code, markdown
from duckkb.documents.chunks import PREFIX, Marks, Size, Span, chunks, clip_text, estimate_tokens, markdown_marks
from duckkb.documents.document import format_of
from duckkb.documents.markdown import Heading
from duckkb.queries import Excerpt

TEXT = "text"
"""The field that is cut into passages."""
_LINE = PREFIX // 2  # estimated tokens of each line before a passage
_MOST_KNOWN = 50_000
_MARKDOWN = frozenset({"md", "html", "docx"})
"""Formats whose text is Markdown, originally or after extraction."""
_known: "dict[tuple[bytes, str, str, Size], tuple[list[Heading], list[Span]]]" = {}


class Passage(Struct, frozen=True):
    """A chunk of a document. `text` begins at the character `start` of the whole. `words` are indexed: the text
    that the passage before does not have, so that each word counts once, and in the first passage the context
    of its folders. `meaning` is what a model reads: the text below its headings.
    """

    start: int
    text: str
    words: str
    meaning: str


def passages(path: str, fields: Mapping[str, Any], contexts: Sequence[str], size: Size) -> list[Passage]:
    """Return the passages of a document by its path and fields; `contexts` describe its folders."""
    text, results = str(fields.get(TEXT) or ""), list[Passage]()
    form = str(fields.get("format"))
    headings, pieces = _cut(text, form, path.rpartition("/")[2] if form == "code" else "", size)
    paths, about = _Paths(headings), clip_text(" ".join(contexts), _LINE)
    title = clip_text(str(fields.get("title") or ""), _LINE)
    for start, fresh, end in pieces:
        prefix = _prefix(about, title, paths.to(fresh))
        excerpt = text[start:end]
        words = text[fresh:end] if results else "\n".join([*contexts, text[fresh:end]])
        results.append(Passage(start, excerpt, words, f"{prefix}\n\n{excerpt}" if prefix else excerpt))
    return results


def _cut(text: str, form: str, name: str, size: Size) -> tuple[list[Heading], list[Span]]:
    """Return the headings and the chunks of a text; recent results are kept, because every lane and every shown
    hit needs them. `name` is the name of a file of code.
    """
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), form, name, size
    result = _known.get(key)
    if result is None:
        headings = markdown.headings(text) if form in _MARKDOWN else []
        if form in _MARKDOWN:
            marks = markdown_marks(text, headings)
        else:
            marks = code_marks(name, text) if form == "code" else Marks()
        result = headings, chunks(text, marks, size)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = result
    return result


def code_marks(path: str, text: str) -> Marks:
    """Return the marks of code: classes, functions and imports."""
    scores = code.break_points(path, text)
    return Marks(scores, sorted(at for at, score in scores.items() if score > code.IMPORTS))


def cut_by(patterns: Sequence[str]) -> str:
    """Return a name for what shapes the passages of matching files on this machine: the grammars, if code may
    match.
    """
    return code.fingerprint() if any(format_of(pattern) in ("", "code") for pattern in patterns) else ""


def heading_path(text: str, start: int) -> list[str]:
    r"""Return the headings above a place of a Markdown text, outermost first.

    >>> heading_path("# Guide\n\n## Install\n\nPip.\n\n## Use\n", 22)
    ['Guide', 'Install']
    """
    return [heading.text for heading in _Paths(markdown.headings(text)).to(start + 1)]


def page(pages: Sequence[int], start: int) -> int | None:
    """Return the page, from 1, of a place in a text, given where its pages begin; None without pages."""
    return bisect_right(pages, start) or 1 if pages else None


def line_at(fields: Mapping[str, Any], start: int) -> int:
    """Return the line of the file, from 1, that holds a place of a document's text."""
    return int(fields.get("text_line") or 1) + str(fields.get(TEXT) or "").count("\n", 0, start)


def excerpt_start(fields: Mapping[str, Any], longest: int) -> Excerpt:
    """Return an excerpt of where a document's text begins. It starts below a first heading that repeats the title,
    unless the whole text fits into `longest` characters.
    """
    text = str(fields.get(TEXT) or "")
    start = len(text) - len(text.lstrip())
    heading = text[start:].partition("\n")[0]
    if heading.startswith("#") and heading.strip("# ") == fields.get("title"):
        body = text[start + len(heading) :].lstrip()
        start = len(text) - len(body) if body else start
    start = start if len(text) > longest else 0
    return Excerpt(TEXT, start, line_at(fields, start))


class _Paths:
    """The headings above places that are requested in ascending order."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._left, self._path = list(reversed(headings)), list[Heading]()

    def to(self, place: int) -> list[Heading]:
        """Return the headings before a place whose sections contain it."""
        while self._left and self._left[-1].start < place:
            heading = self._left.pop()
            while self._path and self._path[-1].level >= heading.level:
                self._path.pop()
            self._path.append(heading)
        return list(self._path)


def _prefix(about: str, title: str, above: Sequence[Heading]) -> str:
    """Join the context of the folders and the headings above a passage, without the title that the whole document
    shares. If they are too many, keep those nearest to the passage.
    """
    path = [clip_text(piece.text, _LINE) for piece in above if piece.text]
    path = path[1:] if path[:1] == [title] else path
    while len(path) > 1 and estimate_tokens(" > ".join(path)) > _LINE:
        path = path[1:]
    return "\n".join(filter(None, (" ".join(piece.split()) for piece in (about, " > ".join(path)))))
