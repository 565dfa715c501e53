"""Which files of a folder are the documents of a collection."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from duckkb.ontology.model import DocumentSource

if TYPE_CHECKING:
    from pathspec import PathSpec

ALWAYS_IGNORED = frozenset({"node_modules", ".git", ".cache", "vendor", "dist", "build", ".duckkb"})
"""Folders that hold no documents, wherever they lie."""
NOT_DOCUMENTS = frozenset({"data", "ontology"})
"""Folders of a base itself: truth and configuration."""


def is_document(source: DocumentSource, path: str) -> bool:
    """Whether a file counts, by its path in the folder of the source.

    >>> from duckkb.ontology.model import DocumentSource
    >>> guide = DocumentSource("docs", ("**/*.md",), ("drafts/",))
    >>> is_document(guide, "a/b.md"), is_document(guide, "drafts/c.md"), is_document(guide, "dist/d.md")
    (True, False, False)
    """
    folders = path.split("/")[:-1]
    if not ALWAYS_IGNORED.isdisjoint(folders) or (source.path == "." and folders and folders[0] in NOT_DOCUMENTS):
        return False
    return matches(source.pattern, path) and not matches(source.ignore, path)


def matches(lines: tuple[str, ...], path: str) -> bool:
    """Whether a path is named by some lines as in .gitignore."""
    return bool(lines) and _spec(lines).match_file(path)


def enters(source: DocumentSource, path: str) -> bool:
    """Whether a folder can hold documents, by its path in the folder of the source."""
    name = path.rpartition("/")[2]
    return name not in ALWAYS_IGNORED and not (source.path == "." and path in NOT_DOCUMENTS)


def within(source: DocumentSource, path: str) -> str | None:
    """The path of a file inside of the source's folder, None where it lies elsewhere; `path` as parts have it."""
    if source.path == ".":
        return path
    start = f"{source.path}/"
    return path.removeprefix(start) if path.startswith(start) else None


def placed(source: DocumentSource, path: str) -> str:
    """The inverse of `within`."""
    return path if source.path == "." else f"{source.path}/{path}"


def prefixes(path: str) -> Iterator[str]:
    """The folders above a document, the outermost first, then the document itself.

    >>> [*prefixes("a/b/c.md")]
    ['', 'a', 'a/b', 'a/b/c.md']
    """
    yield ""
    at = -1
    while (at := path.find("/", at + 1)) >= 0:
        yield path[:at]
    yield path


def contexts(source: DocumentSource, path: str) -> list[str]:
    """What a document is about by its folders, from the general to the specific."""
    return [source.contexts[one] for one in prefixes(path) if one in source.contexts]


@lru_cache(64)
def _spec(lines: tuple[str, ...]) -> "PathSpec[Any]":
    from pathspec import GitIgnoreSpec  # whom only document collections need

    return GitIgnoreSpec.from_lines(lines)
