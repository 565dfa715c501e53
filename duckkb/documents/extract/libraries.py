"""Lists the libraries that read each format, and checks whether they are installed; the extra `documents` brings
them.
"""

from functools import lru_cache
from importlib.util import find_spec

from duckkb.installed import version_of

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
