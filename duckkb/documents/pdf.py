"""Reads PDF page by page with PDFium, or with pypdf if that is installed and PDFium refuses the file."""

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING

from duckkb.documents.extraction_result import MOST_TEXT, FileText, clean_text, one_line

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_LEAST_A_PAGE = 10
"""The fewest printable characters of a page with text: a scan may have a few, such as page numbers."""
_MOST_PAGES = 20_000
_MOST_OUTLINE = 5_000
_MOST_LOOKED_AT = 20_000
"""The most text objects of a document that are checked for hidden text."""
_HYPHEN = re.compile("[\x02\ufffe][ \t]*(?:\r\n?|\n)?")
"""PDFium's character for a hyphen at a line end whose word continues on the next line."""
_COMPOUND, _WORD = re.compile(r"(?<![\w-])\w+-\w+"), re.compile(r"\w+")
_WORD_BEFORE = re.compile(r"[\w-]+\Z")
_LONGEST_WORD = 80
_BETWEEN = "\n\n"
_NO_TITLES = frozenset({"untitled", "(anonymous)", "(unspecified)"})
"""Default titles that programs write."""


def read(raw: bytes) -> FileText:
    """Return the text of a PDF. `degraded` says that it may differ from what a reader sees: a page is damaged,
    text is invisible, or PDFium refused the file.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(raw)
    except pypdfium2.PdfiumError as error:
        return _read_with_pypdf(raw, "encrypted" if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD else "failed")
    warnings: list[str] = []
    count = min(len(document), _MOST_PAGES)
    if count < len(document):
        warnings.append("truncated")
    title = one_line(document.get_metadata_value("Title"))
    title = "" if title.lower() in _NO_TITLES else title
    return _join_pages(_read_pages(document, count, warnings), warnings, title, _read_outline(document))


def _read_pages(document: "PdfDocument", count: int, warnings: list[str]) -> Iterator[str]:
    from pypdfium2 import PdfiumError, raw

    budget = _MOST_LOOKED_AT
    for number in range(count):
        text, has_flaw = "", False
        try:
            page = document[number]
            if raw.FPDFPage_GetAnnotCount(page) > 0:  # draws text boxes and filled-in fields on the page, in memory
                raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
                page.close()
                page = document[number]
            text = page.get_textpage().get_text_range()
            if budget > 0 and text:
                looked_at, has_flaw = _find_hidden_text(page, budget)
                budget -= looked_at
            page.close()
        except PdfiumError:
            has_flaw = True
        if has_flaw and "degraded" not in warnings:
            warnings.append("degraded")
        yield _join_words(text)


def _join_words(text: str) -> str:
    """Join words that were hyphenated at line ends. A hyphen stays in compounds: if the page also has the word
    unbroken with it, if the word has another hyphen, and before a capital letter or a digit.
    """
    compounds = set(_COMPOUND.findall(text))

    def join(hyphen: re.Match[str]) -> str:
        before, after = (
            _WORD_BEFORE.search(text[max(0, hyphen.start() - _LONGEST_WORD) : hyphen.start()]),
            _WORD.match(text, hyphen.end()),
        )
        if before is None or after is None:
            return ""
        is_compound = "-" in before[0] or f"{before[0]}-{after[0]}" in compounds or not after[0][0].isalpha()
        return "-" if is_compound or after[0][0].isupper() else ""

    return _HYPHEN.sub(join, text)


def _find_hidden_text(page: "PdfPage", most: int) -> tuple[int, bool]:
    """Look for text that is never drawn: recognised text of a scan, or text that readers are not meant to see.
    Returns how many text objects were examined and whether one of them is hidden.
    """
    from pypdfium2 import raw

    number = 0
    for number, text_object in enumerate(islice(page.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT]), most), 1):
        if raw.FPDFTextObj_GetTextRenderMode(text_object.raw) == raw.FPDF_TEXTRENDERMODE_INVISIBLE:
            return number, True
    return number, False


def _read_outline(document: "PdfDocument") -> list[str]:
    from pypdfium2 import PdfiumError

    try:
        titles = [one_line(entry.get_title()) for entry in islice(document.get_toc(), _MOST_OUTLINE)]
    except (PdfiumError, UnicodeDecodeError):
        return []
    return [entry for entry in titles if entry]


def _join_pages(pages: Iterable[str], warnings: list[str], title: str = "", headings: Iterable[str] = ()) -> FileText:
    """Join the pages to one text and record where each begins."""
    pieces, starts, at, printable = list[str](), list[int](), 0, 0
    for piece in pages:
        text = clean_text(piece).strip()
        starts.append(at)
        printable += sum(map(len, text.split()))
        if at + len(text) > MOST_TEXT:
            warnings.append("truncated")
            break
        if text:
            pieces.append(text)
            at += len(text) + len(_BETWEEN)
    whole = _BETWEEN.join(pieces)
    if printable < _LEAST_A_PAGE * max(1, len(starts)):
        warnings.append("no_text")
    return FileText(
        whole, title, tuple(headings), tuple(min(start, len(whole)) for start in starts), tuple(dict.fromkeys(warnings))
    )


def _read_with_pypdf(raw: bytes, reason: str) -> FileText:
    """Read a file that PDFium refuses; return only PDFium's reason as a warning if pypdf is not installed or
    cannot decrypt the file.
    """
    if find_spec("pypdf") is None:
        return FileText(warnings=(reason,))
    import pypdf

    try:
        reader = pypdf.PdfReader(BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            return FileText(warnings=(reason,))
        file_text = _join_pages((page.extract_text() for page in islice(reader.pages, _MOST_PAGES)), ["degraded"])
    except Exception:  # pypdf raises errors of any kind for damaged files
        return FileText(warnings=(reason,))
    return FileText(warnings=(reason,)) if "no_text" in file_text.warnings else file_text
