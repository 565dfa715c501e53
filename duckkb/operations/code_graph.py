"""The action arch: a graph of the code around a base, written by a configured command, as nodes and edges.

The command runs outside the base. Only its output is imported, through the commit protocol as any records are.

Reading of a graph of code in node-link JSON (networkx, d3, graphify) into records, or all its problems.

Pure: bytes in, values out.

Commands that a configuration names, run with the user's rights once this machine trusts them."""

import hashlib
import os
import posixpath
import re
import signal
import stat
import subprocess
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from msgspec import Struct

from duckkb import config
from duckkb.documents.document import ALWAYS_IGNORED
from duckkb.engine.base import Base
from duckkb.engine.write import WriteOptions, writable, write
from duckkb.engine.write_draft import Given, Supersede, Upsert
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.names import is_type_name, show_value
from duckkb.ontology.yaml_source import read_yaml
from duckkb.operations.collection_archive import reject_reserved_name
from duckkb.operations.collections import BaseNow, Changed, commit_ontology, remove_types
from duckkb.operations.name_resolution import regular_file
from duckkb.storage import commit_protocol, git_process, journal, repository
from duckkb.storage.strict_lines import MOST_FINDINGS, Limits, identity_of, parse_whole, scalar_problem
from duckkb.types.errors import Conflict, Finding, InvalidRecord, Refused, UsageError
from duckkb.types.queries import Notice, Receipt
from duckkb.types.records import FROM, TO
from duckkb.types.settings import SEAL_KEY, SEAL_KEY_FILE

LARGEST = 128 * 1024 * 1024  # bytes
_LIMITS = Limits(LARGEST)
_LONGEST = 1_000  # characters of a field
_TEXTS = {
    "kind": ("kind", "type", "file_type"),
    "file": ("file", "source_file"),
    "location": ("location", "source_location", "line"),
}
_NODE = {"label": ("label", "name"), **_TEXTS}
_EDGE = {"relation": ("relation", "type", "label"), "file": _TEXTS["file"], "location": _TEXTS["location"]}
"""By field of a record, the attributes that may give it; the first present one does."""
_CONFIDENCE = ("confidence_score", "confidence")
_WORDS = {"EXTRACTED": 1.0, "INFERRED": 0.5, "AMBIGUOUS": 0.2}
"""The words with which graphify grades edges, as its own numbers."""
_UNNAMED = "related"
_OF_GRAPH = {"nodes", "links", "edges", "directed", "multigraph", "graph", "built_at_commit"}
_OF_NODE = {"id", *(name for names in _NODE.values() for name in names)}
_OF_EDGE = {"source", "target", "key", *_CONFIDENCE, *(name for names in _EDGE.values() for name in names)}
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MOST_NAMED = 8


class CodeGraph(Struct, frozen=True):
    """A graph: nodes and edges as fields of records, and the `commit` that the tool recorded (None: none)."""

    nodes: Sequence[Mapping[str, Any]]
    edges: Sequence[Mapping[str, Any]]
    commit: str | None
    notices: tuple[Notice, ...]


def read_graph(data: bytes, path: str, home: str) -> CodeGraph:
    """Read a graph from a file at `path`; files of the code are named relative to its folder `home`.

    Raises `errors.InvalidRecord` with its first hundred problems by JSON pointer.
    """
    too_long = Finding("E_TOO_LARGE", f"a graph has at most {LARGEST:,} bytes")
    value, wrong = parse_whole(data, _LIMITS) if len(data) <= LARGEST else (None, [too_long])
    reading = _GraphReading(home, wrong)
    if isinstance(value, dict):
        reading.read(value)
    elif not wrong:
        reading.problem("", f"is {show_value(value)}, no graph: an object with `nodes` and `links`")
    if reading.wrong:
        findings = [
            Finding(finding.code, finding.message, path, field=finding.field)
            for finding in reading.wrong[:MOST_FINDINGS]
        ]
        count = f"{len(findings)} problem{'s' if len(findings) > 1 else ''}"
        problem_count = f"more than {count}" if len(reading.wrong) > MOST_FINDINGS else count
        raise InvalidRecord(
            f"{problem_count} in {path}; nothing was written",
            suggestion="correct the program that writes it",
            findings=findings,
            exit_code=1,
        )
    commit = value.get("built_at_commit") if isinstance(value, dict) else None
    commit_id = commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else None
    return CodeGraph([*reading.nodes.values()], [*reading.edges.values()], commit_id, tuple(reading.notices()))


class _GraphReading(Struct):
    """The state of reading: nodes by identity, places of ids, problems, omissions, and the number of merged edges."""

    home: str
    wrong: list[Finding]
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str, str], dict[str, Any]] = {}
    places: dict[str, str] = {}
    left_out: dict[str, None] = {}
    joined: int = 0

    def problem(self, place: str, message: str, code: str = "E_INVALID") -> None:
        self.wrong.append(Finding(code, message, field=place))

    def read(self, graph: Mapping[str, Any]) -> None:
        self.left_out |= dict.fromkeys(name for name, value in graph.items() if name not in _OF_GRAPH and value)
        if "links" in graph and "edges" in graph:
            self.problem("/edges", "appears with `links`; keep only the one that has the edges")
        for place, node in self._iter_objects(graph, "nodes", _OF_NODE):
            self._read_node(place, node)
        for place, edge in self._iter_objects(graph, "links" if "links" in graph else "edges", _OF_EDGE):
            self._read_edge(place, edge)

    def _iter_objects(
        self, graph: Mapping[str, Any], name: str, known_names: set[str]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the objects of a list with their places; stops once there are more problems than are reported."""
        values = graph.get(name)
        if not isinstance(values, list):
            self.problem(f"/{name}", f"is {show_value(values)}, not a list")
            return
        for at, value in enumerate(values):
            if len(self.wrong) > MOST_FINDINGS:
                return
            if isinstance(value, dict):
                self.left_out |= dict.fromkeys(value.keys() - known_names)
                yield f"/{name}/{at}", value
            else:
                self.problem(f"/{name}/{at}", f"is {show_value(value)}, not an object")

    def _read_node(self, place: str, node: Mapping[str, Any]) -> None:
        identity = self._read_id(place, node, "id")
        fields = self._read_texts(place, node, _NODE)
        if identity is None:
            return
        if identity in self.places:
            message = f"{show_value(identity)} is the id of {self.places[identity]} too"
            self.problem(f"{place}/id", message, "E_DUP_IDENTITY")
        self.places.setdefault(identity, place)
        self.nodes[identity] = {"id": identity, "label": identity, **fields}

    def _read_edge(self, place: str, edge: Mapping[str, Any]) -> None:
        ends = [self._read_id(place, edge, name) for name in ("source", "target")]
        for name, end in zip(("source", "target"), ends, strict=True):
            if end is not None and end not in self.places:
                self.problem(f"{place}/{name}", f"no node has the id {show_value(end)}", "E_DANGLING_EDGE")
        fields = {"relation": _UNNAMED, **self._read_texts(place, edge, _EDGE), **self._read_confidence(place, edge)}
        if problem := scalar_problem(fields["relation"]):
            self.problem(f"{place}/relation", problem, "E_IDENTITY")
        if None in ends:
            return
        key = (str(ends[0]), str(ends[1]), fields["relation"])
        record = {FROM: key[0], TO: key[1], **fields}
        sibling = self.edges.get(key)
        self.joined += sibling is not None
        self.edges[key] = record if sibling is None else min(record, sibling, key=_rank_edge)

    def _read_id(self, place: str, attributes: Mapping[str, Any], name: str) -> str | None:
        value = _normalize_text(attributes.get(name))
        if problem := scalar_problem(value):
            self.problem(f"{place}/{name}", problem, "E_IDENTITY")
        return value if isinstance(value, str) and not problem else None

    def _read_texts(
        self, place: str, attributes: Mapping[str, Any], field_sources: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """Return the given attributes as the text fields of a record, by `field_sources`."""
        texts = {}
        for field_name, names in field_sources.items():
            name = next((name for name in names if attributes.get(name) not in (None, "")), "")
            value = _normalize_text(attributes.get(name))
            if isinstance(value, str) and len(value) > _LONGEST:
                self.problem(f"{place}/{name}", f"has {len(value):,} characters, more than {_LONGEST:,}")
            elif isinstance(value, str):
                texts[field_name] = self._file(str(attributes[name])) if field_name == "file" else value
            elif name:
                self.problem(f"{place}/{name}", f"is {show_value(value)}, not a text")
        return texts

    def _file(self, name: str) -> str:
        """Return a file's name as every clone has it."""
        return posixpath.normpath(name.replace("\\", "/")).removeprefix(f"{self.home}/")

    def _read_confidence(self, place: str, edge: Mapping[str, Any]) -> dict[str, Any]:
        """Return `confidence`, 0 to 1, and `evidence`: the word that stands for it, or accompanies it."""
        scores = {name: edge[name] for name in _CONFIDENCE if edge.get(name) is not None}
        word = scores.pop("confidence") if isinstance(scores.get("confidence"), str) else None
        for name, value in scores.items():
            if type(value) not in (int, float) or not 0 <= value <= 1:
                self.problem(f"{place}/{name}", f"must be a number from 0 to 1, is {show_value(value)}")
        number = next(iter(scores.values()), None)
        if word is not None and (len(word) > _LONGEST or (number is None and word not in _WORDS)):
            self.problem(
                f"{place}/confidence", f"must be a number from 0 to 1, or {', '.join(_WORDS)}; is {show_value(word)}"
            )
        number = _WORDS.get(word or "") if number is None else number
        fields = {"confidence": float(number) if isinstance(number, (int, float)) else None, "evidence": word}
        return {name: value for name, value in fields.items() if value is not None}

    def notices(self) -> Iterator[Notice]:
        if self.left_out:
            names = sorted(self.left_out)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield Notice("W_ARCH", f"not kept of the graph: {', '.join(map(show_value, names[:_MOST_NAMED]))}{more}")
        if self.joined:
            message = (
                f"{self.joined} edges repeat the ends and relation of another edge; the most confident ones were kept"
            )
            yield Notice("W_ARCH", message)


def _normalize_text(value: Any) -> Any:
    """Return a text, or an integer as text, in the normal form of records; anything else as it is."""
    if type(value) is int:
        return str(value)
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def _rank_edge(edge: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key by which one of several equal edges is kept, whatever the order of the file."""
    return (-edge.get("confidence", 0.0), *(edge.get(name, "") for name in ("file", "location", "evidence")))


_TOLD = 4_096  # bytes


def trusts_commands(base: Base) -> bool:
    """Return whether this machine trusts all commands of the base's configuration as they are now."""
    commands = config.commands(base.settings, base.ontology)
    return config.are_commands_trusted(base.root, commands, base.wiring.env)


def run(
    command: str | Sequence[str],
    folder: Path,
    what: str,
    seconds: float,
    remedy: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a command (text: by the shell) in a folder, without stdin, in the user's environment and `variables`.

    The environment holds the keys and hosts that the command may need. `what` names the command, and `remedy`
    the fix, in messages. Raises `errors.Refused` where it fails or takes more than `seconds`; its child
    processes are then ended too.
    """
    with TemporaryFile() as error_output:  # not a pipe, which a left-over child could hold open for ever
        try:
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                cwd=folder,
                env={**_build_environment(), "GIT_TERMINAL_PROMPT": "0", **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error_output,
                start_new_session=True,
            )
            code = _wait_for_exit(process, seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"within {seconds:g} s" if isinstance(error, subprocess.TimeoutExpired) else f"well: {error}"
            raise Refused(f"{what} did not end {reason}", suggestion=remedy) from error
        if code:
            error_output.seek(max(0, error_output.seek(0, os.SEEK_END) - _TOLD))
            lines = error_output.read().decode("utf-8", "replace").strip().splitlines()
            message = f"{what} ended with {code}"
            raise Refused(f"{message}: {lines[-1]}" if lines else message, suggestion=remedy)


def _build_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in (SEAL_KEY, SEAL_KEY_FILE)}


def _wait_for_exit(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit code of a process; on a timeout or an interrupt, end it with all that it started."""
    try:
        return process.wait(seconds)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        raise


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
            run(command, Path(folder), "arch.command", settings.timeout_s, remedy, variables)
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
    count_text = git_process.text(base.root, ahead) if head and commit else ""
    nodes, edges = [base.tree.count(kind) for kind in types or ()] or [0, 0]
    return {
        "name": graph,
        "configured": settings.command is not None,
        "trusted": trusts_commands(base) if settings.command else None,
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
        commit_ontology(base, name, 0, [commit_protocol.FileChange(_format_path(name), None, definition)])


def _format_path(name: str) -> str:
    return f"ontology/{name}.yaml"


def _require_command(base: Base) -> str:
    """Return the command that writes the graph; raises where there is none, or this machine does not trust it."""
    if (command := base.settings.arch.command) is None:
        message = "no command that writes a graph of the code is configured"
        raise UsageError(message, code="E_CONFIG", suggestion="set `arch.command` in config.yaml")
    if not trusts_commands(base):
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
    checkout = git_process.find_repository(root)
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
    if git_process.find_repository(root) is not None:
        listing = git_process.output(root, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        yield from {os.fsdecode(name) for name in listing.split(b"\0") if name}
        return
    for folder, inner, names in os.walk(home):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in ALWAYS_IGNORED]
        yield from (Path(folder, name).relative_to(home).as_posix() for name in names)
