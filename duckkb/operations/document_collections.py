"""Document collections: folders of files as types. Only definitions are written, never files.

A folder of the base is defined in ontology/collections, a folder outside only on this machine.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from duckkb import config
from duckkb.documents.document import contexts, find_inner_path, format_of
from duckkb.engine.base import Base
from duckkb.engine.write import refuse_agent_of, refuse_existing_type, writable
from duckkb.ontology.model import MARKDOWN_FILES, DocumentSource, NodeType
from duckkb.ontology.names import is_folder, is_policy_name, nearest
from duckkb.ontology.ontology_files import define, dump_definition, path_of, values_of, with_source
from duckkb.operations.collection_archive import own_file
from duckkb.operations.collections import (
    DOCUMENTS,
    BaseNow,
    Changed,
    Collections,
    commit_ontology,
    create,
    refuse_referenced_collections,
    refuse_unfit,
    resolve_policy,
    validate_collection_name,
)
from duckkb.storage import commit_protocol, path_guard
from duckkb.storage.document_parts import WalkNotes, walk
from duckkb.storage.journal import digest
from duckkb.types.errors import Finding, NotFound, UsageError, shell_word

URI = "duckkb://"
_CONTEXT_FILE = "ontology/context.yaml"
_NO_FOLDERS = ("data", "ontology", ".duckkb", ".git")
_Definitions = Mapping[str, Mapping[str, Any]]
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class DocumentCollections:
    """The actions `kb.documents` on folders of files that are searched as knowledge."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def add(self, path: str | Path, *, name: str | None = None, masks: Sequence[str] = ()) -> Changed:
        """Make the files of a folder records; `masks` are lines as in .gitignore (`**/*.md` by default).

        Raises `errors.UsageError` (E_PATH, E_PARAMS), `errors.Conflict` (E_EXISTS).
        """
        with self._base() as base:
            folder = path_guard.grant_outside_path(path, base.root, base.wiring.env).resolve()
            if not folder.is_dir():
                raise path_guard.refusal(path, "is no folder", "duckkb collection list")
            folder_path = _resolve_place(base, folder, path)
            source = {"path": folder_path, **({"pattern": list(masks)} if masks else {})}
            collection_name = validate_collection_name(name) if name is not None else _name_of(folder)
            definition = define(collection_name, resolve_policy(base, DOCUMENTS), {}, source)
            notes = WalkNotes()
            entries = walk(base.root, DocumentSource(folder_path, tuple(masks) or MARKDOWN_FILES), notes)
            count = sum(not isinstance(entry, Finding) for entry in entries)
            if folder_path.startswith("/"):
                _remember(
                    base,
                    collection_name,
                    lambda definitions: _with(
                        base, definitions, collection_name, values_of(definition, collection_name)
                    ),
                )
                return Changed(collection_name, count, (), tuple(notes.left_out))
            change = create(base, collection_name, definition)
            return Changed(collection_name, count, change.files, tuple(notes.left_out))

    def list(self) -> list[dict[str, Any]]:
        """Return name, folder, number of documents and bytes of each collection, and how it is searched."""
        with self._base() as base:
            return [_line(base, kind) for kind in documents_of(base)]

    def show(self, name: str) -> dict[str, Any]:
        """Return a collection with its patterns, contexts and command, and where it is defined."""
        with self._base() as base:
            kind, source = _find_collection(base, name)
            return _line(base, kind) | {
                "pattern": list(source.pattern),
                "ignore": list(source.ignore),
                "update_command": source.update_command or None,
                "contexts": dict(source.contexts),
                "definition": kind.place,
            }

    def remove(self, name: str, *, confirmed: bool = False) -> Changed:
        """Remove a collection's definition; its files stay. A graph of code (`kb.arch`) loses its records, too.

        Raises `errors.Refused`: E_SHRINK for a graph with records unless `confirmed`, E_EDGES where other edges
        touch them.
        """
        from duckkb.operations.code_graph import find_graph, remove_graph

        with self._base() as base:
            if (graph := find_graph(base, name)) is not None:
                again = "" if confirmed else f"duckkb collection remove {name} --yes"
                return remove_graph(base, graph, again)
            kind, source = _find_collection(base, name)
            if source.is_outside:
                refuse_referenced_collections(base, kind)
                _remember(base, kind.name, lambda definitions: _drop_definition(definitions, kind.name))
                return Changed(kind.name, base.tree.count(kind), ())
        return Collections(self._base).remove(name, confirmed=True)

    def rename(self, name: str, new: str) -> Changed:
        """Rename a collection."""
        with self._base() as base:
            kind, source = _find_collection(base, name)
            if source.is_outside:
                validate_collection_name(new)
                refuse_referenced_collections(base, kind)
                old = kind.name
                _remember(
                    base,
                    new,
                    lambda definitions: _with(
                        base, _drop_definition(definitions, old), new, _require_definition(definitions, old)
                    ),
                )
                return Changed(new, base.tree.count(kind), ())
        return Collections(self._base).rename(name, new)

    def update_command(self, name: str, command: str | None) -> Changed:
        """Set the command that `update` runs in the folder first, once it is trusted; None for no command."""
        return self._redefine_source(name, lambda source: {**source, "update_command": command or ""})

    def include(self, name: str, included: bool = True) -> Changed:
        """Set whether searches that name no collection include this one."""
        return self._redefine_source(name, lambda source: {**source, "included": None if included else False})

    def add_context(self, place: str, text: str) -> Changed:
        """Describe a folder, given by URI, path or collection; `/` stands for all collections."""
        if place == "/":
            with self._base() as base:
                return _set_base_context(base, text)
        return self._set_context(place, text)

    def remove_context(self, place: str) -> Changed:
        """Remove the description of a folder; raises `errors.NotFound` (E_NOT_FOUND) where it has none of its own."""
        if place == "/":
            with self._base() as base:
                if not base.ontology.context:
                    raise _report_missing_context(place)
                return _set_base_context(base, "")
        with self._base() as base:
            kind, inner = place_of(base, place)
            if inner not in source_of(kind).contexts:
                raise _report_missing_context(place)
        return self._set_context(place, "")

    def contexts(self) -> Sequence[dict[str, Any]]:
        """Return the description of each folder: `path` as `ls` takes it, and the text."""
        with self._base() as base:
            entries = [{"path": "/", "context": base.ontology.context}] if base.ontology.context else []
            for kind in documents_of(base):
                for place, text in sorted(source_of(kind).contexts.items()):
                    entries.append({"path": f"{kind.name}/{place}" if place else kind.name, "context": text})
            return entries

    def _set_context(self, place: str, text: str) -> Changed:
        with self._base() as base:
            kind, inner = place_of(base, place)

        def update_contexts(source: Mapping[str, Any]) -> Mapping[str, Any]:
            """Change the contexts as they are under the lock, since another process may have added some."""
            before = {path.strip("/"): context_text for path, context_text in (source.get("contexts") or {}).items()}
            after = sorted((before | {inner: text}).items())
            return {**source, "contexts": {(path or "/"): context_text for path, context_text in after if context_text}}

        return self._redefine_source(kind.name, update_contexts)

    def _redefine_source(self, name: str, transform: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Changed:
        with self._base() as base:
            kind, source = _find_collection(base, name)
            if source.is_outside:
                _remember(
                    base,
                    kind.name,
                    lambda definitions: {**definitions, kind.name: _change_source(definitions, kind.name, transform)},
                )
                return Changed(kind.name, base.tree.count(kind), ())
            with writable(base):
                refuse_agent_of(base, kind)
                old = own_file(base, kind)
                new_definition = with_source(old, kind.name, transform(values_of(old, kind.name)["source"]))
                changes = [commit_protocol.FileChange(path_of(kind.name), digest(old), new_definition)]
                return commit_ontology(base, kind.name, base.tree.count(kind), changes if new_definition != old else [])


def documents_of(base: Base, names: Sequence[str] = (), *, included: bool = False) -> list[NodeType]:
    """Return the document collections, all or those named; of all, only those `included` in unnamed searches.

    Raises `errors.NotFound` (E_UNKNOWN_TYPE), and `errors.UsageError` for a type without a folder.
    """
    if names:
        return list({kind.name: kind for kind, _ in (_find_collection(base, name) for name in names)}.values())
    kinds = [kind for kind in base.ontology.nodes.values() if kind.source is not None]
    return [kind for kind in kinds if source_of(kind).included or not included]


def place_of(base: Base, place: str) -> tuple[NodeType, str]:
    """Return the collection and the path in it of a URI, NAME/PATH, or a path on this machine.

    Raises `errors.NotFound` (E_NOT_FOUND).
    """
    plain_place = place.removeprefix(URI).strip("/") if place.startswith(URI) else place
    name, _, inner = plain_place.partition("/")
    if (kind := base.ontology.nodes.get(name)) is not None and kind.source is not None:
        return kind, normalize("NFC", inner).strip("/")
    if not place.startswith(URI):
        path = Path(place).resolve()
        for kind in documents_of(base):
            folder = (base.root / source_of(kind).path).resolve()
            if path.is_relative_to(folder):
                return kind, "" if path == folder else normalize("NFC", path.relative_to(folder).as_posix())
    raise NotFound(
        f"{place} is not in a collection", suggestion="`duckkb collection list` names them and their folders"
    )


def list_left_out(base: Base, kind: NodeType) -> list[tuple[str, str]]:
    """Return what in a collection's folder is not a document, each with its reason.

    First come omissions and reasons as in `WalkNotes`, then files that cannot be read, and those that are
    `too_large`. Empty for callers who see a part, and for a revision, where no folder is read.
    """
    if base.is_narrowed or base.wiring.at is not None or base.wiring.published:
        return []
    source, notes = source_of(kind), WalkNotes()
    for _ in walk(base.root, source, notes):
        pass
    for part in base.tree.parts_of(kind):
        if part.findings or part.stamp.size > source.extraction.largest:
            path = find_inner_path(source, part.path) or part.path
            notes.left_out.append((path, "unreadable" if part.findings else "too_large"))
    return notes.left_out


def readable_patterns(left_out: Sequence[tuple[str, str]], masks: Sequence[str]) -> list[str]:
    """Return the masks (Markdown by default) extended by those of readable files that the patterns left out.

    Returns an empty list where there are no such files.
    """
    names = [path.rpartition("/")[2] for path, why in left_out if why == "pattern"]
    endings = dict.fromkeys(name.rpartition(".")[2] for name in names if format_of(name))
    return [*(masks or MARKDOWN_FILES), *(f"**/*.{ending}" for ending in endings)] if endings else []


def describe_folders(base: Base, kind: NodeType, inner: str) -> str:
    """Return the descriptions of a document's folders, from the general to the specific, as one text."""
    return "\n".join(filter(None, (base.ontology.context, *contexts(source_of(kind), inner))))


def source_of(kind: NodeType) -> DocumentSource:
    assert kind.source is not None, "asked of documents"
    return kind.source


def _find_collection(base: Base, name: str) -> tuple[NodeType, DocumentSource]:
    kind = base.ontology.find(name.removeprefix(URI).strip("/"))
    if isinstance(kind, NodeType) and kind.source is not None:
        return kind, kind.source
    if kind is not None:
        raise UsageError(f"{kind.name} has no folder of files", suggestion=f"duckkb list {kind.name}")
    collection_names = [collection.name for collection in documents_of(base)]
    near = nearest(name, collection_names)
    otherwise = "duckkb collection list" if collection_names else "duckkb collection add FOLDER"
    suggestion = f"duckkb collection show {shell_word(near)}" if near else otherwise
    error = NotFound(f"no document collection {name!r}", code="E_UNKNOWN_TYPE", suggestion=suggestion)
    error.correction = (name, near) if near else None
    raise error


def _line(base: Base, kind: NodeType) -> dict[str, Any]:
    source = source_of(kind)
    parts = [part for part in base.tree.parts_of(kind) if part.rows]
    return {
        "name": kind.name,
        "uri": f"{URI}{kind.name}",
        "folder": source.path,
        "outside": source.is_outside,
        "documents": len(parts),
        "bytes": sum(part.stamp.size for part in parts),
        "included": source.included,
    }


def _resolve_place(base: Base, folder: Path, folder_argument: str | Path) -> str:
    """Return a folder as a source names it: relative to the base's root, or absolute outside it."""
    root = base.root.resolve()
    if not folder.is_relative_to(root):
        if root.is_relative_to(folder):
            raise path_guard.refusal(
                folder_argument, "contains the knowledge base", "give a folder in it, or one beside it"
            )
        return folder.as_posix()
    path = folder.relative_to(root).as_posix()
    if path.split("/")[0] in _NO_FOLDERS:
        raise path_guard.refusal(
            folder_argument, "contains records or configuration, not documents", "give another folder"
        )
    if path != "." and not is_folder(path):
        raise path_guard.refusal(folder_argument, "has a name that no source can have", "rename the folder")
    return path


def _name_of(folder: Path) -> str:
    name = _NOT_IN_NAMES.sub("-", folder.name).strip("-")
    if not is_policy_name(name):
        raise UsageError(f"{folder.name!r} cannot name a collection", suggestion="give a name: --name NAME")
    return name


def _remember(base: Base, name: str, change: Callable[[_Definitions], _Definitions]) -> None:
    """Change what this machine remembers of folders outside, under its lock and while nobody writes the base.

    So no collection inside gets a name that a folder outside takes meanwhile. Refuses definitions that would
    not load.
    """

    def change_and_check(definitions: _Definitions) -> _Definitions:
        after = change(definitions)
        refuse_unfit(base, name, config.outside_files(after))
        return after

    with commit_protocol.lock_for_reading(base.root, base.wiring.lock_timeout):
        config.change_outside(base.root, base.wiring.env, change_and_check)


def _require_definition(definitions: _Definitions, name: str) -> Mapping[str, Any]:
    """Return the definition of a folder outside; raises `errors.NotFound` where another process has removed it."""
    if name not in definitions:
        raise NotFound(f"the document collection {name!r} no longer exists", "E_UNKNOWN_TYPE", "duckkb collection list")
    return definitions[name]


def _with(base: Base, definitions: _Definitions, name: str, values: Mapping[str, Any]) -> _Definitions:
    """Return the definitions with a new one; raises `errors.Conflict` (E_EXISTS) for a name taken even just now."""
    refuse_existing_type(base, name)
    return {**definitions, name: values}


def _drop_definition(definitions: _Definitions, name: str) -> _Definitions:
    return {key: values for key, values in definitions.items() if key != name}


def _change_source(
    definitions: _Definitions, name: str, transform: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Any:
    """Return the definitions with the source of one of them transformed."""
    values = _require_definition(definitions, name)
    return values_of(with_source(dump_definition(name, values), name, transform(values["source"])), name)


def _set_base_context(base: Base, text: str) -> Changed:
    """Write the description of all documents."""
    with writable(base):
        path = base.root / _CONTEXT_FILE
        old = path.read_bytes() if path.exists() else None
        if base.ontology.context and old is None:
            message = "another file of ontology/ has the context of all collections"
            raise UsageError(message, suggestion="change `context` there")
        new = f"context: {json.dumps(text, ensure_ascii=False)}\n".encode() if text else None
        change = commit_protocol.FileChange(_CONTEXT_FILE, digest(old) if old is not None else None, new)
        return commit_ontology(base, "/", 0, [change])


def _report_missing_context(place: str) -> NotFound:
    return NotFound(f"{place} itself has no description", suggestion="`duckkb context list` prints all descriptions")
