"""arch: a graph of the code around a base, written by a command of its own choice, as nodes and edges of the base.

The command runs outside of the base, and only what it wrote is taken in: through the commit protocol, as any records are.
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

from duckkb.actions.collecting import BaseNow, committed
from duckkb.actions.documents import commands
from duckkb.actions.documents.arch.graph_file import LARGEST, CodeGraph, read_graph
from duckkb.actions.packing import refuse_reserved
from duckkb.actions.resolve import regular_file
from duckkb.documents.source import ALWAYS_IGNORED
from duckkb.engine.base import Base
from duckkb.engine.draft import Given, Supersede, Upsert
from duckkb.engine.write import WriteOptions, writable, write
from duckkb.errors import Conflict, Refused, UsageError
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.names import is_type_name
from duckkb.queries import Notice, Receipt
from duckkb.truth.commit import protocol
from duckkb.truth.files.ids import identity_of
from duckkb.truth.git import repository, run
from duckkb.values import dataclass

NAME = "arch"
_STATE = "arch/"
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


@dataclass(frozen=True, slots=True)
class ArchImport:
    """What an import did: how many nodes and edges the graph has, the commit that it is of (None: not known), what became of
    the records."""

    name: str
    nodes: int
    edges: int
    commit: str | None
    receipt: Receipt
    notices: tuple[Notice, ...] = ()


class Architecture:
    """`kb.arch`: graphs of code. Nodes are records of the type `name`, edges of `NAME_links`."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def status(self, name: str = NAME) -> dict[str, Any]:
        """Whether a command is configured and trusted; the commit of the last import on this machine, HEAD, by how many
        commits that is ahead, whether `refresh` would build; nodes and edges. None stands for what is not known."""
        with self._base() as base:
            chosen, kinds, noted = base.settings.arch, _kinds(base, name), _noted(base, name)
            head, commit = repository.head_commit(base.root), noted.get("commit")
            counted = (
                run.text(base.root, ["rev-list", "--count", "--end-of-options", f"{commit}..HEAD"])
                if head and commit
                else ""
            )
            return {
                "name": name,
                "configured": chosen.command is not None,
                "trusted": commands.are_trusted(base) if chosen.command else None,
                "commit": commit,
                "head": head,
                "ahead": int(counted) if counted else None,
                "stale": noted.get("state") != _state(base) if chosen.command else None,
                "nodes": base.tree.count(kinds[0]) if kinds else 0,
                "edges": base.tree.count(kinds[1]) if kinds else 0,
            }

    def build(self, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport:
        """Run the command and import what it wrote. Raises `errors.UsageError` (E_CONFIG) where there is none,
        `errors.Refused` (E_UNTRUSTED; E_REFUSED where it fails), and as `import_file`."""
        with self._base() as base:
            chosen, home, state = base.settings.arch, home_of(base.root), _state(base)
            head = repository.head_commit(base.root)
            _refuse_unready(base)
            _kinds(base, name)
        assert chosen.command is not None, "refused before"
        with TemporaryDirectory(prefix="duckkb-arch-", ignore_cleanup_errors=True) as folder:
            remedy = "run it by hand in an empty folder, with the folder of the code in DUCKKB_CODE"
            variables = {"DUCKKB_CODE": str(home)}
            commands.run(chosen.command, Path(folder), "arch.command", chosen.timeout_s, remedy, variables)
            written = Path(folder, chosen.output)
            if not written.is_file() or written.is_symlink():
                raise Refused(
                    f"arch.command wrote no file {chosen.output}",
                    suggestion="set `arch.output`, or see that it writes there",
                )
            graph = read_graph(_content(written), chosen.output, str(home))
        return self._take_in(graph, name, {"state": state, "commit": head}, allow_shrink)

    def import_file(self, path: str | Path, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport:
        """Import a graph; nothing is run. Raises `errors.UsageError` (E_PATH), `errors.InvalidRecord` with everything that is
        wrong with the graph, `errors.Refused` (E_SHRINK), `errors.Conflict` (E_EXISTS)."""
        with self._base() as base:
            data, home = _content(regular_file(base, path, "a graph")), home_of(base.root)
            _kinds(base, name)
        graph = read_graph(data, str(path), str(home))
        return self._take_in(graph, name, {"commit": graph.commit}, allow_shrink)

    def refresh(self, name: str = NAME, *, allow_shrink: bool = False) -> ArchImport | None:
        """`build` where the code or the command is another than at the last build on this machine; else None."""
        with self._base() as base:
            _refuse_unready(base)
            is_known = _kinds(base, name) is not None and _noted(base, name).get("state") == _state(base)
        return None if is_known else self.build(name, allow_shrink=allow_shrink)

    def _take_in(self, graph: CodeGraph, name: str, noted: Mapping[str, Any], allow_shrink: bool) -> ArchImport:
        with self._base() as base:
            if _kinds(base, name) is None:
                _define(base, name)
        with self._base() as base:  # with the types that were defined
            kinds = _kinds(base, name)
            assert kinds is not None, "just defined"
            upserts = (_upsert(kinds[0], graph.nodes), _upsert(kinds[1], graph.edges))
            receipt = write(base, Supersede(upserts), WriteOptions(allow_shrink=allow_shrink))
            base.notes.keep(_STATE + name, noted)
            notices = (*graph.notices, *receipt.notices)
            return ArchImport(name, len(graph.nodes), len(graph.edges), noted["commit"], receipt, notices)


def graphs(base: Base) -> Iterator[tuple[NodeType, EdgeType]]:
    """The types of each graph that was imported; their definition says that they are such."""
    for name, kind in base.ontology.nodes.items():
        edge = base.ontology.edges.get(f"{name}_links")
        if kind.schema.get("x-arch") is True and edge is not None and edge.from_types == edge.to_types == (name,):
            yield kind, edge


def _kinds(base: Base, name: str) -> tuple[NodeType, EdgeType] | None:
    """The types of a graph; None where they are not defined. Raises `errors.Conflict` (E_EXISTS) for a name that is taken."""
    found = next((pair for pair in graphs(base) if pair[0].name == name), None)
    taken = base.ontology.find(name) or base.ontology.find(f"{name}_links")
    if found is None and taken is not None:
        said = f"{taken.name} ({taken.place}) exists already, and is no graph of code"
        raise Conflict(said, code="E_EXISTS", suggestion="give the graph another name: --name NAME")
    return found


def _upsert(kind: RecordType, records: Sequence[Mapping[str, Any]]) -> Upsert:
    return Upsert(kind, tuple(Given(identity_of(kind, fields), fields) for fields in records))


def _define(base: Base, name: str) -> None:
    refuse_reserved(name)
    if not is_type_name(name):
        raise UsageError(
            f"{name!r} cannot name a graph: use letters, digits and _, a letter first", suggestion="--name NAME"
        )
    path, definition = f"ontology/{name}.yaml", _DEFINITION.replace("TEXT", _TEXT).replace("NAME", name)
    with writable(base):
        if (base.root / path).exists():
            raise Conflict(
                f"{path} exists already", code="E_EXISTS", suggestion="give the graph another name: --name NAME"
            )
        committed(base, name, 0, [protocol.FileChange(path, None, definition.encode())])


def _refuse_unready(base: Base) -> None:
    if base.settings.arch.command is None:
        said = "no command that writes a graph of the code is configured"
        raise UsageError(said, code="E_CONFIG", suggestion="set `arch.command` in config.yaml")
    if not commands.are_trusted(base):
        said = "the command that config.yaml names has not been trusted, and did not run"
        raise Refused(said, code="E_UNTRUSTED", suggestion="duckkb trust --show, and duckkb trust")


def _noted(base: Base, name: str) -> dict[str, Any]:
    noted = base.notes.note(_STATE + name)
    return noted if isinstance(noted, dict) else {}


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def home_of(root: Path) -> Path:
    """The folder of the code: the work tree around the base, the base itself without git."""
    found = run.find_repository(root)
    return found.work_tree if found else root.resolve()


def _state(base: Base) -> str:
    """A digest of the command and of every file of the code: of those that git does not ignore, but for the base's own."""
    home, digest = home_of(base.root), hashlib.sha256()
    own = base.root.resolve().relative_to(home).as_posix()
    truth = tuple(path if own == "." else f"{own}/{path}" for path in _TRUTH)
    digest.update(repr((base.settings.arch.command, base.settings.arch.output)).encode())
    for path in sorted(_files(base.root, home)):
        if not path.startswith(truth):
            with suppress(OSError):  # gone since, or not for us to read
                digest.update(repr((path, _content_of(home / path))).encode())
    return digest.hexdigest()


def _content_of(path: Path) -> str:
    """What a file holds, as a digest, or where a link leads; nothing of what else there may be in its place."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return str(path.readlink())
    with path.open("rb") if stat.S_ISREG(mode) else BytesIO() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(root: Path, home: Path) -> Iterator[str]:
    """The files below the folder of the code, relative to it."""
    if run.find_repository(root) is not None:
        listed = run.output(root, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        yield from {os.fsdecode(name) for name in listed.split(b"\0") if name}
        return
    for folder, inner, names in os.walk(home):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in ALWAYS_IGNORED]
        yield from (Path(folder, name).relative_to(home).as_posix() for name in names)
