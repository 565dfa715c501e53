"""The plain values of an extraction: its request and its result.

Lists the libraries that read each format, and checks whether they are installed; the extra `documents` brings
them."""

import re
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from duckkb.installed import version_of
from duckkb.ontology.model import EXTRACTED

FORMATS = frozenset(EXTRACTED)
MOST_TEXT = 16 * 1024 * 1024
"""The most characters of a text; the rest is left out with the warning `truncated`."""
_NEVER_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\xad\u200b\u2060\ufeff\ufffe\uffff\ud800-\udfff]")


class FileText(Struct, frozen=True):
    """The text of a file: Markdown, or plain text of a PDF, with its title and outline where the format has them.
    `pages` of a PDF are the places in the text, in characters, where each page begins; a page without text
    begins where the next does. Warnings are by code.
    """

    text: str = ""
    title: str = ""
    headings: tuple[str, ...] = ()
    pages: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("text", "title", "headings", "pages", "warnings")}

    @classmethod
    def from_plain(cls, told: Any) -> "FileText":
        """Parse the JSON value that `plain` returns. Raises ValueError for anything else: the value may come from
        a process that a file took over, or from a damaged disk.
        """
        match told:
            case {"text": str(), "title": str(), "headings": [*headings], "pages": [*pages], "warnings": [*warnings]}:
                size = len(told["text"])
                names = [*headings, *warnings]
                if all(isinstance(name, str) for name in names) and all(
                    type(at) is int and 0 <= at <= size for at in pages
                ):
                    return cls(told["text"], told["title"], tuple(headings), tuple(pages), tuple(warnings))
        raise ValueError("no text of a file")


def clean_text(text: str) -> str:
    """Remove invisible characters that disturb searches: controls, halves of surrogate pairs, soft breaks; unify
    line ends.
    """
    return _NEVER_TEXT.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n"))


def one_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def truncate_text(text: str, warnings: list[str]) -> str:
    """Return the text, shortened to the limit with the warning `truncated` if it is too long."""
    if len(text) <= MOST_TEXT:
        return text
    warnings.append("truncated")
    return text[:MOST_TEXT]


_WRITTEN = "3"
"""The version of duckkb's own part of the extraction; a change extracts everything again."""
_PACKAGES = {
    "pypdfium2": "pypdfium2",
    "pypdf": "pypdf",
    "mammoth": "mammoth",
    "markdownify": "markdownify",
    "bs4": "beautifulsoup4",
    "selectolax": "selectolax",
    "chardet": "chardet",
}
NEEDED = {"pdf": ("pypdfium2",), "docx": ("mammoth", "markdownify", "bs4"), "html": ("markdownify", "bs4")}
_ALSO_USED = {"pdf": ("pypdf",), "html": ("selectolax", "chardet")}


def is_readable(form: str) -> bool:
    """Return whether the libraries that a format needs are installed."""
    return all(_find_version(module) for module in NEEDED[form])


@lru_cache
def extractor(form: str) -> str:
    """Return a name for the reader of a format, with versions: another name means another text. Formats without
    libraries are read by duckkb itself, and their encoding may be guessed.
    """
    modules = (*NEEDED[form], *_ALSO_USED.get(form, ())) if form in NEEDED else ("chardet",)
    versions = [f"{_PACKAGES[module]} {version}" for module in modules if (version := _find_version(module))]
    return ", ".join([f"duckkb {_WRITTEN}", *versions])


@lru_cache
def _find_version(module: str) -> str:
    return version_of(_PACKAGES[module], module) if find_spec(module) is not None else ""
