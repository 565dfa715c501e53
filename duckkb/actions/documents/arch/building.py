"""The action arch: a graph of the code around a base, written by a configured command, as nodes and edges.

The command runs outside the base. Only its output is imported, through the commit protocol as any records are.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from duckkb.actions.collecting import BaseNow, Changed, commit_ontology, remove_types
from duckkb.actions.documents import commands
from duckkb.actions.documents.arch.graph_file import LARGEST, CodeGraph, read_graph
from duckkb.actions.packing import reject_reserved_name
from duckkb.actions.resolve import regular_file
from duckkb.documents.source import ALWAYS_IGNORED
from duckkb.engine.base import Base
from duckkb.engine.draft import Given, Supersede, Upsert
from duckkb.engine.write import WriteOptions, writable, write
from duckkb.errors import Conflict, Refused, UsageError
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.names import is_type_name
from duckkb.ontology.source import read_yaml
from duckkb.queries import Notice, Receipt
from duckkb.truth.commit import journal, protocol
from duckkb.truth.files.ids import identity_of
from duckkb.truth.git import repository, run

NAME = "arch"
_NOTE = "arch/"
_TRUTH = ("ontology/", "data/", ".duckkb/")
_TEXT = "{type: string, x-merge: latest}"
_DEFINITION = """\
# A graph of code that `duckkb arch` imports: each import makes its records those of the graph. How they are searched may be changed.
nodes:
  NAME:
    identity: id
    schema:
      x-arch: true
      properties: {id: {type: string}, label: TEXT, kind: TEXT, file: TEXT, location: TEXT}
      required: [label]
    search: {full_text: [label, file]}
edges:
  NAME_links:
    from: NAME
    to: NAME
    identity: relation
    schema:
      properties:
        {relation: {type: string}, evidence: TEXT, file: TEXT, location: TEXT,
         confidence: {type: number, minimum: 0, maximum: 1, x-merge: latest}}
"""


Graph = tuple[NodeType, EdgeType]
"""The types of a graph of code."""


class ArchImport(Struct, frozen=True):
    """The result of an import: the graph's nodes, edges and commit (None: unknown), and what became of records."""

    name: str
    nodes: int
    edges: int
    commit: str | None
    receipt: Receipt
    notices: tuple[Notice, ...] = ()


class Architecture:
    """The actions `kb.arch` on graphs of code. Nodes are records of the type `name`, edges of `NAME_links`."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def status(self, name: str = NAME) -> dict[str, Any]:
        """Return the state of a graph. As `arch_status`."""
        with self._base() as base:
            return arch_status(base, name)

    def build(self, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport:
        """Run the command and import its output.

        Raises `errors.UsageError` (E_CONFIG) without a command, `errors.Refused` (E_UNTRUSTED; E_REFUSED where
        it fails), and as `import_file`.
        """
        with self._base() as base:
            command = _require_command(base)
            _find_graph(base, name)
            settings, home = base.settings.arch, home_of(base.root)
            note = {"state": _state(base), "commit": repository.head_commit(base.root)}
        with TemporaryDirectory(prefix="duckkb-arch-", ignore_cleanup_errors=True) as folder:
            remedy = "run it by hand in an empty folder, with the folder of the code in DUCKKB_CODE"
            variables = {"DUCKKB_CODE": str(home)}
            commands.run(command, Path(folder), "arch.command", settings.timeout_s, remedy, variables)
            output_path = Path(folder, settings.output)
            if not output_path.is_file() or output_path.is_symlink():
                message, remedy = (
                    f"arch.command wrote no file {settings.output}",
                    "set `arch.output`, or see that it writes there",
                )
                raise Refused(message, suggestion=remedy)
            graph = read_graph(_read_content(output_path), settings.output, str(home))
        return self._take_in(graph, name, note, allow_shrink)

    def import_file(self, path: str | Path, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport:
        """Import a graph from a file; nothing is run.

        Raises `errors.UsageError` (E_PATH), `errors.InvalidRecord` with all problems of the graph,
        `errors.Refused` (E_SHRINK), `errors.Conflict` (E_EXISTS).
        """
        with self._base() as base:
            data, home = _read_content(regular_file(base, path, "a graph")), home_of(base.root)
            _find_graph(base, name)
        graph = read_graph(data, str(path), str(home))
        return self._take_in(graph, name, {"commit": graph.commit}, allow_shrink)

    def refresh(self, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport | None:
        """Run `build` where code, command or records changed since the last build here; else return None."""
        with self._base() as base:
            _require_command(base)
            if not _is_stale(base, name):
                return None
        return self.build(name, allow_shrink=allow_shrink)

    def _take_in(self, graph: CodeGraph, name: str, note: Mapping[str, Any], allow_shrink: bool) -> ArchImport:
        with self._base() as base:
            if _find_graph(base, name) is None:
                _define(base, name)
        with self._base() as base:  # now with the new types
            kinds = _find_graph(base, name)
            assert kinds is not None, "just defined"
            upserts = (_upsert(kinds[0], graph.nodes), _upsert(kinds[1], graph.edges))
            receipt = write(base, Supersede(upserts), WriteOptions(allow_shrink=allow_shrink))
            base.notes.keep(_NOTE + name, {**note, "records": _digest_records(base, kinds)})
            notices = (*graph.notices, *receipt.notices)
            return ArchImport(name, len(graph.nodes), len(graph.edges), note["commit"], receipt, notices)


def arch_status(base: Base, graph: str = NAME) -> dict[str, Any]:
    """Return the state of a graph of code.

    It says whether a command is configured and trusted, and whether `refresh` would build. It has the commit of
    the last import on this machine, HEAD, and the number of commits between; nodes and edges. None means
    unknown.
    """
    settings, types, commit = base.settings.arch, _find_graph(base, graph), _load_note(base, graph).get("commit")
    head = repository.head_commit(base.root)
    ahead = ["rev-list", "--count", "--end-of-options", f"{commit}..HEAD"]
    count_text = run.text(base.root, ahead) if head and commit else ""
    nodes, edges = [base.tree.count(kind) for kind in types or ()] or [0, 0]
    return {
        "name": graph,
        "configured": settings.command is not None,
        "trusted": commands.trusts_commands(base) if settings.command else None,
        "commit": commit,
        "head": head,
        "ahead": int(count_text) if count_text else None,
        "stale": _is_stale(base, graph) if settings.command else None,
        "nodes": nodes,
        "edges": edges,
    }


def find_graph(base: Base, name: str) -> Graph | None:
    """Return the types of the graph of this name; None where their definition does not declare a graph."""
    kind, edge = base.ontology.nodes.get(name), base.ontology.edges.get(f"{name}_links")
    if kind is None or edge is None or kind.schema.get("x-arch") is not True:
        return None
    return (kind, edge) if edge.from_types == edge.to_types == (name,) else None


def graphs(base: Base) -> Iterator[Graph]:
    """Yield the types of each imported graph."""
    return (graph for name in base.ontology.nodes if (graph := find_graph(base, name)) is not None)


def remove_graph(base: Base, graph: Graph, again: str) -> Changed:
    """Delete the records of a graph and its definition, as `collecting.remove_types`.

    Raises `errors.Refused` where the definition has no file of its own.
    """
    name, path = graph[0].name, _format_path(graph[0].name)
    with writable(base):
        stored_file = journal.read_target(base.root, path)
        declared_types = read_yaml(stored_file[0], path).value if stored_file else {}
        if {part: [*types] for part, types in declared_types.items()} != {"nodes": [name], "edges": [graph[1].name]}:
            message = f"{name} is declared at {graph[0].place}, not alone in {path}"
            raise Refused(message, suggestion="delete its records, and edit the ontology by hand")
        return remove_types(base, graph, path, stored_file[0] if stored_file else b"", again)


def _find_graph(base: Base, name: str) -> Graph | None:
    """Return the types of a graph; None where undefined. Raises `errors.Conflict` (E_EXISTS) for a taken name."""
    graph, clashing_type = find_graph(base, name), base.ontology.find(name) or base.ontology.find(f"{name}_links")
    if graph is None and clashing_type is not None:
        raise _report_conflict(f"{clashing_type.name} ({clashing_type.place}) already exists, and is not a code graph")
    return graph


def _report_conflict(message: str) -> Conflict:
    return Conflict(message, code="E_EXISTS", suggestion="give the graph another name: --name NAME")


def _upsert(kind: RecordType, records: Sequence[Mapping[str, Any]]) -> Upsert:
    return Upsert(kind, tuple(Given(identity_of(kind, fields), fields) for fields in records))


def _define(base: Base, name: str) -> None:
    reject_reserved_name(name)
    if not is_type_name(name):
        message = f"{name!r} cannot name a graph: use letters, digits and _, a letter first"
        raise UsageError(message, suggestion="--name NAME")
    definition = _DEFINITION.replace("TEXT", _TEXT).replace("NAME", name).encode()
    with writable(base):
        if (base.root / _format_path(name)).exists():
            raise _report_conflict(f"{_format_path(name)} exists already")
        commit_ontology(base, name, 0, [protocol.FileChange(_format_path(name), None, definition)])


def _format_path(name: str) -> str:
    return f"ontology/{name}.yaml"


def _require_command(base: Base) -> str:
    """Return the command that writes the graph; raises where there is none, or this machine does not trust it."""
    if (command := base.settings.arch.command) is None:
        message = "no command that writes a graph of the code is configured"
        raise UsageError(message, code="E_CONFIG", suggestion="set `arch.command` in config.yaml")
    if not commands.trusts_commands(base):
        message = "the command in config.yaml did not run, since it is not trusted"
        raise Refused(message, code="E_UNTRUSTED", suggestion="`duckkb trust --show`, then `duckkb trust`")
    return command


def _load_note(base: Base, name: str) -> dict[str, Any]:
    note = base.notes.note(_NOTE + name)
    return note if isinstance(note, dict) else {}


def _read_content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def home_of(root: Path) -> Path:
    """Return the folder of the code: the work tree around the base, or the base itself without git."""
    checkout = run.find_repository(root)
    return checkout.work_tree if checkout else root.resolve()


def _is_stale(base: Base, name: str) -> bool:
    """Return whether the records differ from those that the last build here would make of the code as it is."""
    kinds, note = _find_graph(base, name), _load_note(base, name)
    return kinds is None or note.get("records") != _digest_records(base, kinds) or note.get("state") != _state(base)


def _digest_records(base: Base, kinds: Graph) -> str:
    """Return a digest of the records of a graph."""
    digests = [
        (path, part.digest) for path, part in base.tree.parts.items() if part.kind.name in {kind.name for kind in kinds}
    ]
    return journal.digest(repr(sorted(digests)).encode())


def _state(base: Base) -> str:
    """Return a digest of a file's content, or a link's target; the digest of no bytes for anything else."""
    home, digest = home_of(base.root), hashlib.sha256()
    base_folder = base.root.resolve().relative_to(home).as_posix()
    truth = tuple(path if base_folder == "." else f"{base_folder}/{path}" for path in _TRUTH)
    digest.update(repr((base.settings.arch.command, base.settings.arch.output)).encode())
    for path in sorted(_list_files(base.root, home)):
        if not path.startswith(truth):
            with suppress(OSError):  # gone since, or unreadable
                digest.update(repr((path, _digest_content(home / path))).encode())
    return digest.hexdigest()


def _digest_content(path: Path) -> str:
    """Return a digest of a file's content or of a link's target; empty for anything else."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return str(path.readlink())
    with path.open("rb") if stat.S_ISREG(mode) else BytesIO() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_files(root: Path, home: Path) -> Iterator[str]:
    """Yield the files below the folder of the code, relative to it."""
    if run.find_repository(root) is not None:
        listing = run.output(root, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        yield from {os.fsdecode(name) for name in listing.split(b"\0") if name}
        return
    for folder, inner, names in os.walk(home):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in ALWAYS_IGNORED]
        yield from (Path(folder, name).relative_to(home).as_posix() for name in names)
