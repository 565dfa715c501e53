"""Decides which files of a folder are the documents of a collection."""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from duckkb.documents.glob import IgnoreFile
from duckkb.ontology.model import DocumentSource

ALWAYS_IGNORED = frozenset({"node_modules", ".git", ".cache", "vendor", "dist", "build", ".duckkb"})
"""Names of folders that never hold documents."""
NOT_DOCUMENTS = frozenset({"data", "ontology"})
"""Folders of the base itself: truth and configuration."""
_read_lines = lru_cache(64)(IgnoreFile)


def is_document(source: DocumentSource, path: str) -> bool:
    """Return whether a file is a document, by its path in the folder of the source.

    >>> from duckkb.ontology.model import DocumentSource
    >>> guide = DocumentSource("docs", ("**/*.md",), ("drafts/",))
    >>> is_document(guide, "a/b.md"), is_document(guide, "drafts/c.md"), is_document(guide, "dist/d.md")
    (True, False, False)
    """
    return not exclusion(source, path)


def exclusion(source: DocumentSource, path: str) -> str:
    """Return why a file is not a document: a reason of `folder_exclusion`, `pattern`, or `ignore` of the
    definition; empty if it is one.
    """
    *folders, name = path.split("/")
    if reason := _find_exclusion(source, folders):
        return reason
    if name.startswith(".") and not source.hidden:
        return "hidden"
    if not matches(source.pattern, path):
        return "pattern"
    return "ignore" if matches(source.ignore, path) else ""


def folder_exclusion(source: DocumentSource, path: str) -> str:
    """Return why a folder holds no documents, by its path in the folder of the source: `hidden` or a `reserved`
    name; empty if it may hold some.
    """
    return _find_exclusion(source, path.split("/"))


def _find_exclusion(source: DocumentSource, folders: list[str]) -> str:
    if not ALWAYS_IGNORED.isdisjoint(folders) or (source.path == "." and folders and folders[0] in NOT_DOCUMENTS):
        return "reserved"
    return "hidden" if not source.hidden and any(folder.startswith(".") for folder in folders) else ""


def matches(lines: tuple[str, ...], path: str) -> bool:
    """Return whether lines in the form of .gitignore match a path."""
    return _read_lines(lines).covers(path)


def find_inner_path(source: DocumentSource, path: str) -> str | None:
    """Return the path of a document inside the source's folder, or None if it lies elsewhere; `path` is that of a
    part. The result is in Unicode's form NFC, like identities, whatever form the file's name has.
    """
    inner = find_inner_file(source, path)
    return inner if inner is None else unicodedata.normalize("NFC", inner)


def find_inner_file(source: DocumentSource, path: str) -> str | None:
    """Return the path inside the source's folder as `find_inner_path` does, but with names as the file system has
    them.
    """
    if source.path == ".":
        return None if path.startswith("../") else path
    start = f"{source.path}/"
    return path.removeprefix(start) if path.startswith(start) else None


def place_path(source: DocumentSource, path: str) -> str:
    """Return the part's path for a path inside the source's folder; the inverse of `find_inner_path`."""
    return path if source.path == "." else f"{source.path}/{path}"


def prefixes(path: str) -> Iterator[str]:
    """Yield the folders above a document, outermost first, then the document itself.

    >>> [*prefixes("a/b/c.md")]
    ['', 'a', 'a/b', 'a/b/c.md']
    """
    yield ""
    at = -1
    while (at := path.find("/", at + 1)) >= 0:
        yield path[:at]
    yield path


def contexts(source: DocumentSource, path: str) -> list[str]:
    """Return the descriptions of a document's folders, from the general to the specific."""
    return [source.contexts[prefix] for prefix in prefixes(path) if prefix in source.contexts]
