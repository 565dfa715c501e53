"""A base at a revision: its configuration and records are read from git objects, without a checkout.

Such a base is held in memory and answers like any other. It shares the caches of tokens and vectors with the
present, and only a proposal writes it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from duckkb.codes import CODES
from duckkb.engine.base import Wiring
from duckkb.engine.loading import unreadable
from duckkb.errors import Finding, OntologyError, StateError
from duckkb.ontology.model import Ontology
from duckkb.truth import layout
from duckkb.truth.files import document_parts
from duckkb.truth.files.ignored import IgnoreFiles, places_above
from duckkb.truth.files.part import Part, Stamp, pause_collector
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import REGULAR, Revision, TreeEntry

CONFIG, ONTOLOGY = "config.yaml", "ontology"
_NO_FILE = Stamp(-1, 0, 0, 0)


def configuration(root: Path, at: Revision, present: Iterable[str]) -> dict[str, bytes | None]:
    """Return the configuration files of a revision by path, as `config_files` does.

    Paths in `present` that the revision lacks map to None, so that they count as deleted. Raises as
    `config_files` does.
    """
    removals: dict[str, bytes | None] = dict.fromkeys(present)
    return removals | config_files(root, at)


def config_files(root: Path, at: Revision) -> dict[str, bytes]:
    """Return the configuration files of a revision by path.

    Raises `errors.StateError` (E_NO_KB) where the revision has no base, `errors.OntologyError` for a symbolic link.
    """
    entries = revisions.entries(root, at, (CONFIG, ONTOLOGY))
    config_entries = {path: entry for path, entry in entries.items() if _is_configuration(path)}
    if CONFIG not in config_entries:
        raise StateError(
            f"no knowledge base existed here at {at.name}: it has no {CONFIG}",
            code="E_NO_KB",
            suggestion=f"`git log --oneline -- {CONFIG}` lists the commits that have one",
        )
    links = [path for path, entry in config_entries.items() if entry.mode not in REGULAR]
    if links:
        findings = [Finding("E_YAML", f"is not a regular file at {at.name}", path) for path in links]
        raise OntologyError(f"{links[0]} is not a regular file at {at.name}", code="E_YAML", findings=findings)
    return revisions.contents(root, config_entries)


def tree(wiring: Wiring, at: Revision) -> Tree:
    """Read the records of the revision that `wiring.at` names.

    Raises `errors.Unavailable` (E_GIT) where git lacks an object, and `errors.Unreadable` for lines that cannot
    be read (unless lenient).
    """
    if has(wiring, layout.FORMAT_PATH):
        layout.check_format(bytes_of(wiring, layout.FORMAT_PATH))
    past_tree = _read_tree(wiring, at)
    if past_tree.unreadable and not wiring.lenient:
        raise unreadable(past_tree, f" at {at.name}", "`--lenient` reads on without them; or name another revision")
    return past_tree


def has(wiring: Wiring, path: str) -> bool:
    """Return whether the base's revision has a file at `path`."""
    assert wiring.at is not None, "asked of a past base"
    return path in revisions.entries(wiring.root, wiring.at, (path,))


def bytes_of(wiring: Wiring, path: str) -> bytes:
    """Return the bytes of a file at the base's revision; raises KeyError where the revision lacks it."""
    assert wiring.at is not None, "asked of a past base"
    entry = revisions.entries(wiring.root, wiring.at, (path,))[path]
    return revisions.blobs(wiring.root, (entry.blob,))[entry.blob]


def _is_configuration(path: str) -> bool:
    """Check whether a path is a configuration file; hidden files and folders belong to editors and do not count."""
    names = path.split("/")
    return path == CONFIG or (path.endswith(".yaml") and not any(name.startswith(".") for name in names))


def places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    """Return the git paths that hold the records of an ontology's types, and the .gitignore files that apply to
    documents.
    """
    kinds = ontology.nodes.values()
    return (layout.DATA, *document_parts.folders(kinds), *places_above(root, kinds))


def _read_tree(wiring: Wiring, at: Revision) -> Tree:
    entries = revisions.entries(wiring.root, at, places(wiring.root, wiring.ontology))
    return tree_of(wiring, entries, IgnoreFiles.read(wiring.root, entries))


def tree_of(wiring: Wiring, entries: Mapping[str, TreeEntry], ignored: IgnoreFiles) -> Tree:
    """Build the tree of the given git entries, leaving out the documents that `ignored` names.

    Raises `errors.Unavailable` (E_GIT).
    """
    entries = ignored.serve(wiring.ontology, entries)
    parts_by_file = {
        file: file_parts for file in entries if (file_parts := dict(document_parts.parts_in(wiring.ontology, file)))
    }
    content = revisions.contents(wiring.root, {file: entries[file] for file in parts_by_file})
    parts, findings = dict[str, Part](), list[Finding]()
    with pause_collector():
        for file, file_parts in parts_by_file.items():
            if file in content:
                parts |= document_parts.parts_at(file_parts, content[file], wiring.limits, _NO_FILE)
            elif any(kind.source is None for kind in file_parts.values()):
                message = "a link, where only files belong"
                findings.append(Finding("E_SYMLINK", message, file, remedy=CODES["E_SYMLINK"].remedy))
    return Tree(wiring.ontology, wiring.limits, parts, findings)
