"""Decides which files of a document collection the .gitignore files of a state exclude, equally on disk and in
git.

They apply from the top of the repository down to the folder of the file. An excluded folder is not searched,
except the collection's own folder, which was requested explicitly.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from duckkb.documents.glob import IgnoreFile
from duckkb.documents.source import find_inner_file, place_path
from duckkb.ontology.model import DocumentSource, Ontology, RecordType

if TYPE_CHECKING:
    from duckkb.truth.git.revisions import TreeEntry

GITIGNORE = ".gitignore"
_MOST_BYTES = 1024 * 1024
Binding = tuple[tuple[str, int, IgnoreFile], ...]
"""The .gitignore files that apply to a folder, outermost first. Each has the text to add before a path, and the
number of characters to remove from it, to get the path relative to that file.
"""
_File = TypeVar("_File")


def parse_ignore_file(raw: bytes) -> IgnoreFile | None:
    """Parse the bytes of a .gitignore; None for an empty file and for a file of more than a MiB."""
    return IgnoreFile(raw.decode("utf-8", "replace").split("\n")) if raw and len(raw) <= _MOST_BYTES else None


def bind(binding: Binding, folder: str, lines: IgnoreFile | None) -> Binding:
    """Add the .gitignore of a folder, by its path in the collection's folder, to those above it."""
    return (*binding, ("", len(folder) + 1 if folder else 0, lines)) if lines else binding


def is_ignored(path: str, is_folder: bool, binding: Binding) -> bool:
    """Return whether the last line that matches a path, in the innermost file with such a line, excludes it."""
    for lead, start, lines in reversed(binding):
        verdict = lines.leaves_out(lead + path[start:], is_folder)
        if verdict is not None:
            return verdict
    return False


def places_above(root: Path, kinds: Iterable[RecordType]) -> tuple[str, ...]:
    """Return where a .gitignore above the folders of some collections may lie, up to the top of the repository,
    relative to the base (`../.gitignore`). Those in the folders lie among the documents.
    """
    sources = {kind.source for kind in kinds if kind.source is not None}
    heeding = [source for source in sources if source.gitignore and not source.is_outside]
    if not heeding:
        return ()
    prefix = _prefix(root)
    return tuple(sorted({path for source in heeding for path, _ in _list_outer_files(prefix, source)}))


class IgnoreFiles:
    """The .gitignore files of a state of the base, by their paths as in `places_above`; `prefix` is the folder of
    the base in its repository, with a final `/`.
    """

    def __init__(self, prefix: str = "", files: Mapping[str, bytes] | None = None) -> None:
        self._prefix, self._files = prefix, {**(files or {})}
        self._bindings: dict[tuple[str, str], Binding | None] = {}

    @classmethod
    def read(cls, root: Path, entries: "Mapping[str, TreeEntry]") -> "IgnoreFiles":
        """Read the .gitignore files of a revision, with at most a single call of git. Raises `errors.Unavailable`
        (E_GIT).
        """
        files = {path: entry for path, entry in entries.items() if is_ignore_file(path)}
        if not files:
            return cls()
        from duckkb.truth.git import (
            revisions,
        )  # takes a while to import, and every read of the disk imports this module

        return cls(_prefix(root), revisions.contents(root, files))

    def replace_files(self, root: Path, paths: Iterable[str], new: Mapping[str, bytes]) -> "IgnoreFiles":
        """Return the .gitignore files of a state in which the files at some paths differ: as in `new`, or deleted."""
        ignore_paths = {path for path in paths if is_ignore_file(path)}
        if not ignore_paths:
            return self
        files = {path: raw for path, raw in self._files.items() if path not in ignore_paths}
        return IgnoreFiles(_prefix(root), files | {path: new[path] for path in ignore_paths if path in new})

    def leaves_out(self, source: DocumentSource, path: str) -> bool:
        """Return whether a file, by its path from the base, or a folder above it is excluded."""
        inner = find_inner_file(source, path) if self._files and source.gitignore else None
        if inner is None:
            return False
        binding = self._bind_folder(source, inner.rpartition("/")[0])
        return binding is None or is_ignored(inner, False, binding)

    def serve(self, ontology: Ontology, files: Mapping[str, _File]) -> dict[str, _File]:
        """Return the files that no collection of an ontology excludes."""
        sources = [kind.source for kind in ontology.nodes.values() if kind.source is not None] if self._files else []
        return {
            path: file for path, file in files.items() if not any(self.leaves_out(source, path) for source in sources)
        }

    def _bind_folder(self, source: DocumentSource, folder: str) -> Binding | None:
        """Return the .gitignore files that apply to a folder of a collection; None if the folder itself is
        excluded.
        """
        if (source.path, folder) in self._bindings:
            return self._bindings[source.path, folder]
        names, binding = folder.split("/") if folder else [], self._bind_top(source)
        for depth in range(1, len(names) + 1):
            inner = "/".join(names[:depth])
            if is_ignored(inner, True, binding):
                self._bindings[source.path, folder] = None
                return None
            binding = bind(binding, inner, self._read_ignore_file(place_path(source, f"{inner}/{GITIGNORE}")))
        self._bindings[source.path, folder] = binding
        return binding

    def _bind_top(self, source: DocumentSource) -> Binding:
        above = ((lead, self._read_ignore_file(path)) for path, lead in _list_outer_files(self._prefix, source))
        binding = tuple((lead, 0, lines) for lead, lines in above if lines)
        return bind(binding, "", self._read_ignore_file(place_path(source, GITIGNORE)))

    def _read_ignore_file(self, path: str) -> IgnoreFile | None:
        return parse_ignore_file(self._files.get(path, b""))


def is_ignore_file(path: str) -> bool:
    """Return whether a path is that of a .gitignore."""
    return path.rpartition("/")[2] == GITIGNORE


def _list_outer_files(prefix: str, source: DocumentSource) -> list[tuple[str, str]]:
    """List the .gitignore files above the folder of a collection, outermost first, each with the prefix of the
    documents' paths relative to it.
    """
    outside = prefix.split("/")[:-1]
    inside = [] if source.path == "." else source.path.split("/")
    folders = ["../" * up for up in range(len(outside), 0, -1)]
    folders += ["".join(f"{name}/" for name in inside[:depth]) for depth in range(len(inside))]
    names = [*outside, *inside]
    return [(folder + GITIGNORE, "/".join(names[at:]) + "/") for at, folder in enumerate(folders)]


def _prefix(root: Path) -> str:
    from duckkb.truth.git.run import find_repository

    repository = find_repository(root)
    return repository.prefix if repository is not None else ""
