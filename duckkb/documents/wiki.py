"""Finds the documents of a collection that a wiki link names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import dirname, normpath

from duckkb.documents.document import format_of

_ATTACHMENTS = frozenset(
    [
        "png",
        "jpg",
        "jpeg",
        "gif",
        "bmp",
        "svg",
        "webp",
        "avif",
        "ico",
        "heic",
        "mp3",
        "wav",
        "m4a",
        "ogg",
        "oga",
        "flac",
        "mp4",
        "mov",
        "mkv",
        "webm",
        "avi",
        "pdf",
        "docx",
        "xlsx",
        "pptx",
        "odt",
        "zip",
        "canvas",
        "base",
        "excalidraw",
    ]
)


def is_attachment(name: str) -> bool:
    """Return whether a link to this name leads to a picture or another attachment; those are looked up only as
    documents.

    >>> is_attachment("map.png"), is_attachment("node.js"), is_attachment("v1.2")
    (True, False, False)
    """
    return name.rpartition(".")[2].lower() in _ATTACHMENTS


class WikiNames:
    """The documents of a collection by the names that links use. `aliases` holds the names that documents give
    themselves, used if no path fits.
    """

    def __init__(self, paths: Iterable[str], aliases: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._paths = frozenset(paths)
        self._by_name: dict[str, list[str]] = {}
        for path in sorted(self._paths):
            for spelling in _list_spellings(path.rpartition("/")[2]):
                self._by_name.setdefault(spelling.casefold(), []).append(path)
        self._aliases = aliases
        self._by_alias: Mapping[str, Sequence[str]] | None = None

    def paths_of(self, source: str, name: str) -> Sequence[str]:
        """Return the documents that a link in the document `source` may mean: the document beside it, else the one
        at this path of the collection, else all whose paths end so, else all that have the name as an alias.
        """
        target = name.strip("/")
        near = self._by_name.get(target.rpartition("/")[2].casefold(), ())
        fitting = [path for path in near if _has_suffix(path, target)]
        exact = [path for path in fitting if _has_suffix(path, target, is_exact=True)]
        folder = dirname(source)
        for place in (f"{folder}/{target}" if folder else target, target):
            for paths in (exact, fitting):
                if at_place := [path for path in paths if _is_at(path, normpath(place))]:
                    return at_place[:1]
        if exact or fitting:
            return exact or fitting
        if self._by_alias is None:
            self._by_alias = {alias.casefold(): paths for alias, paths in self._aliases().items()}
        return self._by_alias.get(target.casefold(), ())


def _list_spellings(path: str) -> tuple[str, ...]:
    """List the ways in which links write a path; Markdown files also without the extension."""
    return (path, path.rpartition(".")[0]) if format_of(path) == "md" else (path,)


def _has_suffix(path: str, name: str, *, is_exact: bool = False) -> bool:
    if not is_exact:
        path, name = path.casefold(), name.casefold()
    return any(f"/{spelling}".endswith(f"/{name}") for spelling in _list_spellings(path))


def _is_at(path: str, place: str) -> bool:
    return place.casefold() in (spelling.casefold() for spelling in _list_spellings(path))
