"""Converts HTML to Markdown, for pages on disk and for the HTML made of a DOCX."""

import codecs
import re
from functools import lru_cache
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from duckkb.documents.document import decode_text
from duckkb.documents.extraction_result import FileText, clean_text, one_line, truncate_text

if TYPE_CHECKING:
    from markdownify import MarkdownConverter

_DECLARED = re.compile(
    rb"""<(?:meta\b|\?xml\b)[^>]{0,400}?\b(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{2,40})""",
    re.IGNORECASE,
)
_DECLARED_WITHIN = 4096
_MEANT = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
          "euc_kr": "cp949", "big5": "cp950"}  # fmt: skip
"""The encodings that browsers use for names of narrower encodings: WHATWG Encoding, 4.2."""
_OF_TEXT = re.compile(r"(?:utf-8|cp\d|iso|gb|hz|big5|shift|euc|koi8|mac|johab|tis|ptcp|kz)")
_CERTAIN = 8
"""So many characters beyond ASCII that decode as UTF-8 without an error are no accident."""
_SWALLOWING = re.compile(r"<(script|style|title|textarea)\b[^>]*>?|<!--", re.IGNORECASE)
"""Elements that contain everything up to their end, tags too."""
_END = {None: re.compile("-->")} | {
    tag: re.compile(rf"</{tag}\b[^>]*>?", re.IGNORECASE) for tag in ("script", "style", "title", "textarea")
}
_NOT_SHOWN = ("script", "style", "template", "title")
_BLOCKS = re.compile(
    r"(?:p|div|h[1-6]|li|tr|td|th|br|hr|pre|table|ul|ol|dl|d[td]|section|article|blockquote|option|optgroup|textarea|button|label)\Z"
)
_STRUCTURE = re.compile(r"^(\s*)(#{1,6}\s|`{3,}|~{3,})", re.MULTILINE)
_BACKTICKS = re.compile(r"^\s*(`{3,})", re.MULTILINE)
_CELL_BAR = re.compile(r"(?<!\\)\|")
_LINE_END = re.compile(r"[ \t]+$", re.MULTILINE)
_LANGUAGE = re.compile(r"lang(?:uage)?-([\w+#.-]{1,30})")
_MOST_MARKUP = 5_000_000
"""Characters of a page that is parsed to a tree: it takes twenty times as many bytes, and 2 s for a million."""


def read(raw: bytes) -> FileText:
    """Return the text of a page as Markdown, without scripts and styles. `degraded` says that an element is not
    closed, or that the page is so large or so deep that only its bare words were read.
    """
    decoding = page_text(raw)
    if decoding is None:
        return FileText(warnings=("failed",))
    text, is_guess = decoding
    warnings = ["encoding_guessed"] if is_guess else []
    html, has_all_ends = _drop_scripts(text)
    title, body, is_whole = _read(html)
    if not (has_all_ends and is_whole):
        warnings.append("degraded")
    if not body:
        warnings.append("empty")
    return FileText(truncate_text(body, warnings), title, warnings=tuple(warnings))


def page_text(raw: bytes) -> tuple[str, bool] | None:
    """Decode a page; return its text and whether the encoding is a guess, as it is if the declared encoding is
    impossible. Returns None if the bytes are not text.

    Tried in this order: the byte order mark; UTF-8 if that cannot be an accident; the declared encoding; UTF-8;
    a guess.
    """
    if raw.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decode_text(raw)
    for mark, name in ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")):
        if raw.startswith(mark):
            return raw.decode(name, "replace"), True
    encoding = _find_encoding(raw)
    try:
        text: str | None = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is not None and (
        encoding in ("", "utf-8") or sum(1 for character in text if character > "\x7f") >= _CERTAIN
    ):
        return None if decode_text(raw) is None else (text, encoding not in ("", "utf-8"))
    if encoding not in ("", "utf-8"):
        try:
            return raw.decode(encoding), False
        except UnicodeDecodeError:
            pass
    return _decode_text(raw)


def markdown(html: str) -> tuple[str, str]:
    """Return the title of a page and its text as Markdown. Raises RecursionError for a page that is too deep."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    title = soup.title.get_text() if soup.title else ""
    for tag in soup(_NOT_SHOWN):
        tag.decompose()
    return one_line(title), _LINE_END.sub("", clean_text(_build_converter().convert_soup(soup))).strip()


def _decode_text(raw: bytes) -> tuple[str, bool] | None:
    decoding = decode_text(raw)
    return None if decoding is None else (decoding[0], bool(decoding[1]))


def _find_encoding(raw: bytes) -> str:
    """Return the codec that a page declares, as Python names it; empty if it declares none or one that is not for
    text.
    """
    declaration = _DECLARED.search(raw, 0, _DECLARED_WITHIN)
    if not declaration:
        return ""
    try:
        name = codecs.lookup(declaration[1].decode("ascii", "replace")).name
    except LookupError:
        return ""
    if name.startswith("utf-16"):  # a UTF-16 page cannot contain this declaration in ASCII
        return "utf-8"
    name = _MEANT.get(name, name)
    return name if _OF_TEXT.match(name) else ""


def _drop_scripts(html: str) -> tuple[str, bool]:
    """Remove scripts, styles and comments; return the page and whether all of them were closed. Of an unclosed
    element only its opening tag is removed, so that the page does not end there.
    """
    pieces, at, open_tags = list[str](), 0, set[str | None]()
    while opening := _SWALLOWING.search(html, at):
        tag = opening[1].lower() if opening[1] else None
        end = None if tag in open_tags else _END[tag].search(html, opening.end())
        pieces.append(html[at : opening.start()])
        if end is None:
            open_tags.add(tag)
        elif tag in ("title", "textarea"):
            pieces.append(html[opening.start() : end.end()])
        at = opening.end() if end is None else end.end()
    return "".join([*pieces, html[at:]]), not open_tags


def _read(html: str) -> tuple[str, str, bool]:
    """Return a page's title and text, and whether that is the whole page."""
    if len(html) <= _MOST_MARKUP:
        try:
            return *markdown(_with_all_tags(html)), True
        except RecursionError:
            pass
    words = _Words()
    words.feed(html)
    words.close()
    return one_line("".join(words.title)), clean_text("".join(words.text)).strip(), False


def _with_all_tags(html: str) -> str:
    """Add the optional tags of a page, such as those at the end of cells and list items, by the rules of browsers.
    Returns the page unchanged if selectolax is not installed: the words stay, but some tables and lists are
    lost.
    """
    if find_spec("selectolax") is None:
        return html
    from selectolax.lexbor import LexborHTMLParser

    return LexborHTMLParser(html).html or html


class _Words(HTMLParser):
    """A parser that collects the words of a page, a line for each block."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.title: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in _NOT_SHOWN and not self._inside:
            self._inside = tag
        if _BLOCKS.match(tag):
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)
        elif self._inside == "title":
            self.title.append(data)


@lru_cache(1)
def _build_converter() -> "MarkdownConverter":
    from markdownify import ATX
    from markdownify import MarkdownConverter as Converter

    plain: Any = Converter

    # markdownify has no types: mypy knows the base class only if the extra is installed
    class Plain(Converter):  # type: ignore[misc,unused-ignore]
        """A converter without emphasis, which would split words, and without links inside the page."""

        def escape(self, text: str, parent_tags: Any) -> str:
            return _STRUCTURE.sub(r"\1\\\2", text)

        def convert_a(self, el: Any, text: str, parent_tags: Any) -> str:
            target = "".join(str(el.get("href") or "").split("\n")).strip()
            if not target or not text.strip() or "_noformat" in parent_tags:
                return text
            if target.startswith("#") or target.lower().startswith(("javascript:", "data:")):
                return text
            if "://" in target and target == text.strip():
                return text
            if re.search(r"[\s()<>]", target):
                target = f"<{target.replace('<', '%3C').replace('>', '%3E')}>"
            return f"{text[: len(text) - len(text.lstrip())]}[{text.strip()}]({target}){text[len(text.rstrip()) :]}"

        def convert_img(self, el: Any, text: str, parent_tags: Any) -> str:
            caption, source = one_line(str(el.get("alt") or "")), str(el.get("src") or "")
            if source and not source.startswith("data:") and " " not in source:
                return f"![{caption}]({source})"
            return f" {caption} " if caption else ""

        def convert_apart(self, el: Any, text: str, parent_tags: Any) -> str:
            return f" {text.strip()} " if text.strip() else ""

        convert_option = convert_optgroup = convert_textarea = convert_button = convert_label = convert_apart

        def convert_td(self, el: Any, text: str, parent_tags: Any) -> str:
            return str(plain.convert_td(self, el, _CELL_BAR.sub(r"\\|", text), parent_tags))

        def convert_th(self, el: Any, text: str, parent_tags: Any) -> str:
            return str(plain.convert_th(self, el, _CELL_BAR.sub(r"\\|", text), parent_tags))

        def convert_pre(self, el: Any, text: str, parent_tags: Any) -> str:
            if not text.strip():
                return ""
            fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(text))])
            classes = [*(el.get("class") or ()), *((el.code and el.code.get("class")) or ())]
            language = next((match[1] for class_name in classes if (match := _LANGUAGE.match(class_name))), "")
            body = text.strip("\n")
            return f"\n\n{fence}{language}\n{body}\n{fence}\n\n"

    return Plain(
        heading_style=ATX, bullets="-", strip=["b", "strong", "i", "em", "u", "s", "del"], table_infer_header=True
    )
