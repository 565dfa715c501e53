"""Cuts documents into chunks of about as many tokens as a model reads; each chunk repeats the end of the one
before.

The end of a chunk is chosen among the break points in a window before its target: `score = base x (1 -
(distance / window)^2 x 0.7)`. The best score wins; of equal scores the later place wins ([ADR
42](../../docs/adr/0042-chunks-of-documents.md)). Nothing here depends on a model, so the chunks of a file are
the same in every clone; a pattern estimates the tokens.

Finds the best places to cut code: before classes, functions and import blocks, by the grammar of the language.

The extra `code` installs the grammars. Without them, for other languages and for very long files there are no
break points here; lines alone decide.

Cuts documents into passages, gives each its text to show, to index and to embed, and locates passages in
documents."""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from msgspec import Struct

from duckkb.documents import markdown
from duckkb.documents.document import format_of
from duckkb.documents.markdown import Heading
from duckkb.installed import version_of
from duckkb.types.queries import Excerpt
from duckkb.types.records import Fingerprint

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

FINGERPRINT = Fingerprint("documents", "estimate-1")
"""The version of the break points and the estimator."""

TARGET, OVERLAP, WINDOW = 900, 135, 200
PREFIX = 64
"""The most tokens of the text before a chunk."""
_MARKS = 8  # tokens that a model adds around its input
NEAR, FAR = 0.5, 1.0
"""Distances as shares of the target: no equally good place lies that near to an anchor; for sections, and for text
between sections.
"""
_DRAWN_FROM = 64
HEADINGS = (100, 90, 80, 70, 60, 50)
FENCE_EDGE, RULE, BLANK, ITEM, LINE = 80, 60, 20, 5, 1

_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_HANGUL = "\u1100-\u11ff\u3040-\u30ff\uac00-\ud7a3"
# Each match is a token with the white space before it, which models ignore. Fitted to multilingual-e5-small.
_TOKEN = re.compile(
    rf"\s{{0,16}}+(?:[A-Z]?[a-z]{{1,5}}|[A-Z]{{1,2}}|\d{{1,2}}|(?<![{_HAN}])[{_HAN}]{{3}}|[{_HAN}]|[{_KANA_HANGUL}]{{1,2}}"
    r"|[^\W\d_]{1,3}|([^\w\s]|_)\1?|\s)"
)
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}+|(?:\*[ \t]*+){3,}+|(?:_[ \t]*+){3,}+)\r?$", re.MULTILINE)
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_EMPTY = re.compile(r"[^\S\n]*$", re.MULTILINE)
# Cuts in a window without line ends: after sentences, then after words.
_WITHIN_LINES = (re.compile(r"[。！？；…]+[\"'”’」』）】》)\]]?\s*|[.!?;]\s+"), re.compile(r"\s+"))
_PARAGRAPH, _STARTED = re.compile(r"\n(?:[^\S\n]*\n)++"), re.compile(r"\n(?=\S)")
_TO_NEXT_WORD = re.compile(r"(?:(?<=[A-Za-z0-9_])[A-Za-z0-9_]{1,64})?\s{0,16}")
_LINKED = frozenset("\u200d\ufe0e\ufe0f\u20e3" + "".join(map(chr, range(0x1F3FB, 0x1F400))))
"""Characters that belong to the one before them: joiners, variation selectors, keycaps, skin tones."""


class Span(NamedTuple):
    """The places of a chunk in its text: new text lies from `fresh` to `end`; `start` to `fresh` repeats the chunk
    before.
    """

    start: int
    fresh: int
    end: int


class Size(Struct, frozen=True):
    """The size of chunks, in estimated tokens."""

    target: int = TARGET
    overlap: int = OVERLAP
    window: int = WINDOW


class Marks(Struct, frozen=True):
    """The places that guide the cuts of a text: the base scores of places, and the places among them where
    sections begin (ascending); the spans that must not be cut (from, to); and whether the text is Markdown.
    """

    scores: Mapping[int, int] = {}
    sections: Sequence[int] = ()
    whole: Sequence[tuple[int, int]] = ()
    is_markdown: bool = False


def size_for(reads: int | None) -> Size:
    """Return the chunk size for a model that reads `reads` tokens at once; None if that is not known. A tenth of
    them stays free for errors of the estimate and for the text that precedes a chunk.

    >>> size_for(None).target, size_for(512).target
    (900, 396)
    """
    if reads is None:
        return Size()
    target = min(TARGET, (reads - PREFIX - _MARKS) * 9 // 10)
    return Size(target, target * OVERLAP // TARGET, min(WINDOW, target // 2))


def markdown_marks(text: str, headings: Sequence[markdown.Heading]) -> Marks:
    """Return the marks of a Markdown text: headings, fences and the edges of fences."""
    scores = {heading.start: HEADINGS[heading.level - 1] for heading in headings}
    sections = list(scores)
    fences = [(start, min(end + 1, len(text))) for start, end in markdown.fences(text)]
    for place in (place for fence in fences for place in fence):
        scores[place] = max(FENCE_EDGE, scores.get(place, 0))
    return Marks(scores, sections, fences, True)


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text has.

    >>> estimate_tokens("A knowledge base, in git."), estimate_tokens("知识库存在文件里")
    (8, 6)
    """
    return sum(1 for _ in _TOKEN.finditer(text))


def clip_text(text: str, tokens: int) -> str:
    """Return the longest beginning of a text that has at most `tokens` estimated tokens."""
    ends = [token.end() for token in islice(_TOKEN.finditer(text), tokens + 1)]
    return text[: ends[-2]] if len(ends) > tokens else text


def chunks(text: str, marks: Marks, size: Size | None = None) -> list[Span]:
    """Cut a text into chunks; an empty text has none. No cut splits a visible character. No cut falls into a span
    that must stay whole, unless that span alone is longer than a chunk. Takes time in proportion to the text.
    """
    return list(_Cutter(text, marks, size or Size()).pieces())


def splits(text: str, start: int, at: int) -> bool:
    """Return True if a cut at `at` would split a CR LF, a letter from its accents, or an emoji sequence."""
    before, after = text[at - 1], text[at]
    if after.isascii():
        return before == "\r" and after == "\n"
    if before == "\u200d" or after in _LINKED or unicodedata.category(after).startswith("M"):
        return True
    return _is_flag_half(after) and _count_flag_halves(text, start, at) % 2 == 1


class _Cutter:
    def __init__(self, text: str, marks: Marks, size: Size) -> None:
        self._text, self._marks, self._size = text, marks, size
        self._ends = array("I", (token.end() for token in _TOKEN.finditer(text)))
        self._whole = [span for span in marks.whole if self._count_tokens(*span) <= size.target]
        self._starts = [start for start, _ in self._whole]

    def pieces(self) -> Iterator[Span]:
        start = end = 0
        for anchor in (*self._find_anchors(), len(self._text)):
            while end < anchor:
                piece = self._cut_piece(start, end, anchor)
                yield piece
                start, end = self._find_overlap(piece), piece.end

    def _count(self, at: int) -> int:
        """Count the tokens that end at or before a place."""
        return bisect_right(self._ends, at)

    def _count_tokens(self, start: int, end: int) -> int:
        return self._count(end) - self._count(start)

    def _cut_piece(self, start: int, fresh: int, anchor: int) -> Span:
        """Cut the first chunk of the text between `start` and an anchor."""
        target = self._count(start) + self._size.target
        if self._count(anchor) <= target:
            return Span(start, fresh, anchor)
        limit = self._ends[target - 1]
        low = max(self._ends[target - self._size.window - 1], fresh + 1)
        if best := self._best(low, self._ends[target] - 1, target):
            return Span(start, fresh, best)
        if whole := self._find_whole(limit):
            # too long for the rest of this chunk: it begins the next chunk, or fits into this chunk without the overlap
            return Span(start, fresh, whole[0]) if whole[0] > fresh else Span(fresh, fresh, whole[1])
        return Span(start, fresh, self._cut_within_line(start, low, limit))

    def _best(self, low: int, high: int, target: int) -> int:
        """Return the break point with the best score in a window, or 0 if there is none. `target` tokens lie
        before the window's end.
        """
        window, place, best = self._size.window, 0, 0
        for at in self._iter_line_starts(low, high):
            distance = target - self._count(at)
            # whole numbers, so that equal scores compare equal
            score = self._base(at) * (10 * window**2 - 7 * distance**2)
            if score >= best and not self._find_whole(at) and not splits(self._text, 0, at):
                place, best = at, score
        return place

    def _iter_line_starts(self, low: int, high: int) -> Iterator[int]:
        at = low - 1
        while (at := self._text.find("\n", at, high)) >= 0:
            at += 1
            if at < len(self._text):
                yield at

    def _base(self, at: int) -> int:
        if score := self._marks.scores.get(at):
            return score
        text = self._text
        if _EMPTY.match(text, at):
            return LINE
        if self._marks.is_markdown and _RULE.match(text, at):
            return RULE
        if not text[text.rfind("\n", 0, at - 1) + 1 : at].strip():
            return BLANK
        return ITEM if self._marks.is_markdown and _ITEM.match(text, at) else LINE

    def _cut_within_line(self, start: int, low: int, high: int) -> int:
        """Choose a cut in text without a line end: after a sentence, else after a word, else between two
        characters.
        """
        text = self._text
        for pattern in _WITHIN_LINES:
            places = [match.end() for match in pattern.finditer(text, low - 1, high)]
            if best := next((at for at in reversed(places) if at >= low and not splits(text, start, at)), 0):
                return best
        return next((at for at in range(high, low - 1, -1) if not splits(text, start, at)), high)

    def _find_overlap(self, piece: Span) -> int:
        """Return where the next chunk begins: at a word, as many tokens before the end of this chunk as the
        overlap has, and never inside a span that must not be cut.
        """
        text, end = self._text, piece.end
        last = self._count(end) - self._size.overlap
        at = max(self._ends[last - 1] if last > 0 else 0, piece.start)
        match = _TO_NEXT_WORD.match(text, at, end)
        at = match.end() if match else at
        while at < end and splits(text, piece.start, at):
            at += 1
        whole = self._find_whole(at)
        return min(whole[1], end) if whole else at

    def _find_whole(self, at: int) -> tuple[int, int] | None:
        """Return the uncuttable span that contains a place."""
        index = bisect_left(self._starts, at) - 1
        return self._whole[index] if index >= 0 and at < self._whole[index][1] else None

    def _find_anchors(self) -> list[int]:
        """Return the places where a chunk ends whatever text precedes. These are sections without an equally good
        section within `NEAR` tokens. Far from any section they are paragraphs, or lines, whose lot is the
        lowest within `FAR` tokens. The cuts between two anchors depend only on the text between them, so an
        edit moves only cuts near it.
        """
        text, target = self._text, self._size.target
        sections = [at for at in self._marks.sections if 0 < at < len(text) and not self._find_whole(at)]
        anchors = self._select_anchors(sections, 0, len(text), int(target * NEAR))
        far = int(target * FAR)
        for first, last in pairwise([0, *sections, len(text)]):
            if last - first > far and self._count_tokens(first, last) > 2 * far:
                for pattern in (_PARAGRAPH, _STARTED):
                    places = [
                        match.end() for match in pattern.finditer(text, first, last) if first < match.end() < last
                    ]
                    if places := [at for at in places if not self._find_whole(at)]:
                        anchors += self._select_anchors(places, first, last, far)
                        break
        return sorted(anchors)

    def _select_anchors(self, places: Sequence[int], first: int, last: int, reach: int) -> list[int]:
        """Select the places (ascending) that lie more than `reach` tokens from any place as good or better, and
        from both ends. A place is ranked by its score, then by a lot drawn from the text after it, so that an
        edit before it changes nothing.
        """
        counts = [self._count(at) for at in (first, *places, last)]
        if counts[-1] - counts[0] <= 2 * reach:
            return []
        keys = [(-self._marks.scores.get(at, 0), self._draw_lot(at)) for at in places]
        before = _measure_distances(keys, [at - counts[0] for at in counts[1:-1]])
        after = _measure_distances(keys[::-1], [counts[-1] - at for at in counts[-2:0:-1]])[::-1]
        return [at for at, *apart in zip(places, before, after, strict=True) if min(apart) > reach]

    def _draw_lot(self, at: int) -> int:
        return crc32(self._text[at : at + _DRAWN_FROM].encode("utf-8", "surrogatepass"))


def _measure_distances(keys: Sequence[tuple[int, int]], places: Sequence[int]) -> list[int]:
    """Measure how far each place lies after the last earlier place whose key is as good or better, or after the
    beginning.
    """
    better, distances = list[int](), list[int]()
    for at, key in enumerate(keys):
        while better and keys[better[-1]] > key:
            better.pop()
        distances.append(places[at] - (places[better[-1]] if better else 0))
        better.append(at)
    return distances


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _count_flag_halves(text: str, start: int, at: int) -> int:
    """Count the halves of flags in a row before `at`; a chunk starts with a whole flag."""
    first = at
    while first > start and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first


CLASS, FUNCTION, IMPORTS = 100, 90, 60
LONGEST = 1_000_000
"""The most characters of a file that is parsed."""

_GRAMMARS = {
    "py": ("python", "language"),
    "js": ("javascript", "language"),
    "ts": ("typescript", "language_typescript"),
    "tsx": ("typescript", "language_tsx"),
    "java": ("java", "language"),
    "go": ("go", "language"),
    "rs": ("rust", "language"),
    "cs": ("c_sharp", "language"),
    "c": ("c", "language"),
}
_ENDINGS = {"pyi": "py", "jsx": "js", "mjs": "js", "cjs": "js", "h": "c"} | {ending: ending for ending in _GRAMMARS}


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLASSES = _split_names(
    "class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration record_declaration "
    "struct_declaration namespace_declaration file_scoped_namespace_declaration internal_module type_alias_declaration "
    "annotation_type_declaration type_declaration struct_item enum_item union_item trait_item impl_item mod_item "
    "struct_specifier union_specifier enum_specifier type_definition"
)
_FUNCTIONS = _split_names(
    "function_definition function_declaration generator_function_declaration method_definition method_declaration "
    "constructor_declaration function_item function_signature_item macro_definition operator_declaration "
    "property_declaration arrow_function function_expression"
)
_IMPORTS = _split_names(
    "import_statement import_from_statement future_import_statement import_declaration use_declaration using_directive "
    "extern_crate_declaration preproc_include package_declaration package_clause"
)
_AROUND = _split_names(
    "decorated_definition export_statement lexical_declaration variable_declarator expression_statement declaration block "
    "class_body interface_body enum_body enum_body_declarations declaration_list statement_block preproc_ifdef preproc_if "
    "preproc_else linkage_specification ERROR"
)
"""Nodes that may contain scored nodes without being scored themselves."""
_SHELLS = _split_names(
    "decorated_definition export_statement lexical_declaration variable_declarator expression_statement declaration"
)
"""Nodes that begin with the node they contain."""
_ABOVE = _split_names("comment line_comment block_comment attribute_item attribute_list decorator")
"""Nodes that belong to the node below them."""
_DEEPEST = 12


def break_points(path: str, text: str) -> dict[int, int]:
    """Return the base scores of the lines at which a class, a function or an import block begins, by place in
    characters. Comments directly above belong to it. Broken code has the break points of the parts that could
    be parsed.
    """
    language = _ENDINGS.get(path.rpartition(".")[2].lower(), "")
    parser = _make_parser(language) if language and len(text) <= LONGEST else None
    if parser is None:
        return {}
    starts = list(accumulate(map(len, text.split("\n")), lambda at, length: at + length + 1, initial=0))
    tree = parser.parse(text.encode("utf-8", "replace"))
    scores: dict[int, int] = {}
    for row, score in _iter_marks(tree.root_node, None, 0):
        scores[starts[row]] = max(score, scores.get(starts[row], 0))
    return scores


@cache
def fingerprint() -> str:
    """Return a name for the installed grammars; empty without the extra."""
    if find_spec("tree_sitter") is None:
        return ""
    modules = dict.fromkeys(f"tree_sitter_{name}" for name, _ in _GRAMMARS.values())
    return ", ".join(f"{module} {_version(module)}" for module in ("tree_sitter", *modules) if find_spec(module))


def _version(module: str) -> str:
    try:
        return version_of(module, module)
    except ImportError:  # nothing else tells its version
        return ""


@cache
def _make_parser(language: str) -> "Parser | None":
    name, make = _GRAMMARS[language]
    try:
        from tree_sitter import Language, Parser

        return Parser(Language(getattr(import_module(f"tree_sitter_{name}"), make)()))
    except (ImportError, OSError, ValueError):  # not installed, or incompatible with the installed tree-sitter
        return None


def _iter_marks(parent: "Node", row: int | None, depth: int) -> Iterator[tuple[int, int]]:
    """Yield the lines and scores of the children of a node. `row` is the line at which the construct around the
    node begins.
    """
    above: tuple[int, int] | None = None
    is_import = False
    for node in parent.children:
        first, last = node.start_point[0], node.end_point[0]
        first_row = above[0] if above and first <= above[1] + 1 else first
        if node.type in _ABOVE:
            above = first_row, last - (node.end_point[1] == 0)
            continue
        above, kind = None, node.type
        at = first_row if row is None else row
        if kind in _IMPORTS:
            if not is_import:
                yield at, IMPORTS
        elif kind in _CLASSES or kind in _FUNCTIONS:
            yield at, CLASS if kind in _CLASSES else FUNCTION
        if depth < _DEEPEST and (kind in _CLASSES or kind in _AROUND):
            yield from _iter_marks(node, at if kind in _SHELLS else None, depth + 1)
        is_import = kind in _IMPORTS


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
    scores = break_points(path, text)
    return Marks(scores, sorted(at for at, score in scores.items() if score > IMPORTS))


def cut_by(patterns: Sequence[str]) -> str:
    """Return a name for what shapes the passages of matching files on this machine: the grammars, if code may
    match.
    """
    return fingerprint() if any(format_of(pattern) in ("", "code") for pattern in patterns) else ""


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
