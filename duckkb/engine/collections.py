"""Collections as wholes: made, removed, renamed, packed and unpacked, each in one write with their definition."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from duckkb.engine.base import Base
from duckkb.engine.guard import refuse_agent_of
from duckkb.engine.write import emptying, writable
from duckkb.errors import Conflict, Finding, OntologyError, Refused, StateError, UsageError
from duckkb.ontology.model import NodeType, Ontology, RecordType
from duckkb.ontology.names import reserved
from duckkb.ontology.snapshot import collection_of, path_of, renamed
from duckkb.records import identity_text
from duckkb.truth import layout
from duckkb.truth.commit import journal, protocol
from duckkb.truth.files import render
from duckkb.truth.files.read import part_of
from duckkb.truth.files.tree import Stamp, Tree
from duckkb.values import dataclass

FORMAT = "duckkb collection 1"
_HEAD = {"format": str, "name": str, "records": int, "definition": str, "parts": list}
_ENTRY = {"path": str, "bytes": int, "sha256": str}


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a collection: its name, the records in it, and the files that were written or removed."""

    name: str
    records: int
    files: tuple[str, ...]


def create(base: Base, name: str, definition: bytes) -> Changed:
    """Write a definition; raises `errors.Conflict` (E_EXISTS) where the name is taken, `errors.UsageError` (E_PARAMS) where
    it clashes with another type."""
    with writable(base):
        return _added(base, name, definition, {})


def remove(base: Base, kind: RecordType, *, confirmed: bool) -> Changed:
    """Delete a collection's files and definition; raises `errors.Refused` (E_SHRINK) where it holds records and that was not
    confirmed, (E_EDGES) where edges touch them."""
    with writable(base):
        refuse_agent_of(base, kind)
        definition = _own_file(base, kind)
        count = base.tree.count(kind)
        if count and not confirmed:
            raise Refused(
                f"{kind.name} holds {count} record{'s' if count > 1 else ''}",
                code="E_SHRINK",
                suggestion=f"duckkb col rm {kind.name} --yes",
            )
        _refuse_edges(base, kind)
        _refuse_named(base, kind)
        changes = [protocol.FileChange(path, _digest(data), None) for path, data in _parts(base, kind).items()]
        changes.append(protocol.FileChange(path_of(kind.name), _digest(definition), None))
        return _committed(base, kind.name, count, changes)


def rename(base: Base, kind: RecordType, name: str) -> Changed:
    """Give a collection another name, and its files the folder that goes with it; every line stays as it is."""
    with writable(base):
        refuse_agent_of(base, kind)
        definition = _own_file(base, kind)
        _refuse_reserved(name)
        _refuse_taken(base, name)
        _refuse_named(base, kind)
        _refuse_incomplete(base, kind)
        new = renamed(definition, name)
        found, findings = collection_of(new, path_of(name))
        if found is None:
            raise _unfit(name, findings)
        changes = [protocol.FileChange(path_of(kind.name), _digest(definition), None)]
        changes.append(protocol.FileChange(path_of(name), None, new))
        for path, data in _parts(base, kind).items():
            moved = f"{_folder(found)}/{path.removeprefix(_folder(kind) + '/')}"
            if moved != path:
                changes += [protocol.FileChange(moved, None, data), protocol.FileChange(path, _digest(data), None)]
        return _committed(base, name, base.tree.count(kind), changes)


def pack(base: Base, kind: RecordType) -> bytes:
    """A collection as one self-contained file: a JSON line that names and hashes what follows, then every part as it is.

    Raises `errors.StateError` (E_INCOMPLETE) where lines have no id yet, and with a finding's code for what `unpack` would
    not take back.
    """
    definition = _own_file(base, kind)
    _refuse_incomplete(base, kind)
    if flaws := _flaws(base.tree, kind):
        said = f"{kind.name} cannot be packed as it stands: {flaws[0]}"
        raise StateError(said, flaws[0].code, flaws[0].remedy or "duckkb check", findings=tuple(flaws))
    parts = _parts(base, kind)
    body = b"".join(parts.values())
    head = {
        "format": FORMAT,
        "name": kind.name,
        "records": base.tree.count(kind),
        "definition": definition.decode(),
        "parts": [
            {"path": path.removeprefix(_folder(kind) + "/"), "bytes": len(data), "sha256": _digest(data)}
            for path, data in parts.items()
        ],
    }
    return _sealed(_line(head), body)


def unpack(base: Base, data: bytes, name: str | None) -> Changed:
    """Put a packed collection back, under another name where one is given. Raises `errors.StateError` (E_SNAPSHOT) for a
    file that is damaged in any byte or that holds anything but one collection as `pack` would write it,
    `errors.Conflict` (E_EXISTS) where the name is taken."""
    head, body = _opened(data)
    definition = head["definition"].encode()
    kind, findings = collection_of(definition, "definition")
    if kind is None:
        raise _damaged(f"its definition is wrong: {findings[0].message}", findings)
    if kind.name != head["name"]:
        raise _damaged(f"its definition is of {kind.name!r}, not of {head['name']!r}")
    if name is not None:
        definition = renamed(definition, name)
        kind, findings = collection_of(definition, "definition")
        if kind is None:
            raise _unfit(name, findings)
    _refuse_reserved(kind.table)
    parts = _cut(kind, head["parts"], body)
    _refuse_flawed(base, kind, parts, head["records"])
    with writable(base):
        _refuse_taken(base, kind.name)
        if any((base.root / _folder(kind)).glob("*/part_*.jsonl")):
            said = f"{_folder(kind)} holds records already, of no type that the ontology declares"
            raise Conflict(said, code="E_EXISTS", suggestion="restore under another name: --as NAME")
        return _added(base, kind.name, definition, parts)


def _added(base: Base, name: str, definition: bytes, parts: Mapping[str, bytes]) -> Changed:
    _refuse_reserved(name)
    _refuse_taken(base, name)
    changes = [protocol.FileChange(path_of(name), None, definition)]
    changes += [protocol.FileChange(path, None, data) for path, data in parts.items()]
    return _committed(base, name, sum(data.count(b"\n") for data in parts.values()), changes)


def _committed(base: Base, name: str, records: int, changes: Sequence[protocol.FileChange]) -> Changed:
    """Commit, once the ontology as it will be has been read."""
    definitions = {change.path: change.data for change in changes if not change.path.startswith("data/")}
    _refuse_unfit(base, name, definitions)
    known = render.format_change(base.root)
    extra = [protocol.FileChange(layout.FORMAT_PATH, None, known)] if known is not None else []
    with emptying(base, changes):
        protocol.commit(base.root, [*changes, *extra])
    base.take_in({change.path: None for change in changes if change.path in base.tree.parts and change.data is None})
    return Changed(name, records, tuple(sorted(change.path for change in changes)))


def _refuse_unfit(base: Base, name: str, definitions: Mapping[str, bytes | None]) -> None:
    try:
        base.wiring.preview(definitions)
    except OntologyError as problem:
        if all(finding.code == "E_YAML" for finding in problem.findings):
            raise  # a file that cannot be read now says nothing of the collection
        raise _unfit(name, problem.findings) from problem


def _unfit(name: str, findings: Iterable[Finding]) -> UsageError:
    many = tuple(findings)
    return UsageError(
        f"{name}: {many[0].message}",
        code="E_PARAMS",
        suggestion=many[0].remedy or "choose another name",
        findings=many if len(many) > 1 else (),
    )


def _refuse_reserved(name: str) -> None:
    if why := reserved(name):
        raise UsageError(f"{name!r} {why}", code="E_RESERVED", suggestion="choose another name")


def _refuse_taken(base: Base, name: str) -> None:
    """What stands there now counts, not what stood there when the base was opened."""
    taken = base.ontology.find(name)
    if taken is not None or (base.root / path_of(name)).exists():
        raise Conflict(
            f"{name} exists already" + (f" as {taken.name}" if taken and taken.name != name else ""),
            code="E_EXISTS",
            suggestion=f"duckkb col show {name}",
        )


def _own_file(base: Base, kind: RecordType) -> bytes:
    """The bytes of the file that defines a collection; raises `errors.Refused` where that is not one of its own."""
    path = path_of(kind.name)
    found = journal.read_target(base.root, path) if kind.is_collection else None
    if found is None or collection_of(found[0], path)[0] is None:
        raise Refused(
            f"{kind.name} is declared at {kind.place}, not in a file of its own",
            suggestion=f"change it there, or move it to {path}" if kind.is_collection else "edit the ontology by hand",
        )
    return found[0]


def _parts(base: Base, kind: RecordType) -> dict[str, bytes]:
    """The bytes of a collection's parts by path, in path order; raises `errors.Conflict` (E_STALE) for one that changed."""
    found = {}
    for path, part in base.tree.parts.items():
        if part.kind.name == kind.name:
            data = (base.root / path).read_bytes()
            if _digest(data) != part.digest:
                raise Conflict(f"{path} changed since it was read", code="E_STALE", suggestion="repeat the command")
            found[path] = data
    return dict(sorted(found.items()))


def _folder(kind: RecordType) -> str:
    return f"{layout.DATA}/{layout.FOLDERS[kind.kind]}/{kind.table}"


def _refuse_incomplete(base: Base, kind: RecordType) -> None:
    if any(not row.complete for row in base.tree.rows(kind)):
        raise StateError(
            f"{kind.name} has hand-written lines without id or times, which follow from their folder",
            code="E_INCOMPLETE",
            suggestion="duckkb fmt",
        )


def _refuse_edges(base: Base, kind: RecordType) -> None:
    touching = {
        (edge.name, found.record.id)
        for row in base.tree.rows(kind)
        for edge, found, _ in base.tree.edges_at(kind.name, row.record.identity)
    }
    if touching:
        labels = ", ".join(sorted({name for name, _ in touching}))
        raise Refused(
            f"{len(touching)} edges ({labels}) touch records of {kind.name}",
            code="E_EDGES",
            suggestion=f"duckkb delete {kind.name} IDENTITY --cascade, for each of them",
        )


def _refuse_named(base: Base, kind: RecordType) -> None:
    """The ontology names collections as ends of edge types, in files that this write leaves alone."""
    naming = [edge for edge in base.ontology.edges.values() if kind.name in (*edge.from_types, *edge.to_types)]
    if naming:
        raise UsageError(
            f"{kind.name} is an end of {', '.join(edge.name for edge in naming)} in the ontology",
            suggestion=f"change {' and '.join(edge.place for edge in naming)} first",
        )


def _sealed(line: bytes, body: bytes) -> bytes:
    return line + b"\n" + json.dumps({"sha256": _digest(line + body)}).encode() + b"\n" + body


def _head(line: bytes) -> dict[str, Any]:
    """What the first line says, in the one form in which it can say it: a key twice, or one too many, gives another line."""
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise _damaged(f"it is of the format {head['format']!r}, not {FORMAT!r}")
        kinds = {key: type(value) for key, value in head.items()}
        entries = [{key: type(value) for key, value in entry.items()} for entry in head["parts"]]
        is_whole = kinds == _HEAD and all(entry == _ENTRY for entry in entries) and line == _line(head)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged("it does not begin as one") from error
    if not is_whole:
        raise _damaged("it does not begin as one")
    return dict(head)


def _line(head: Mapping[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False, sort_keys=True).encode()


def _opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    line, _, rest = data.partition(b"\n")
    _, _, body = rest.partition(b"\n")
    head = _head(line)
    if data != _sealed(line, body):
        raise _damaged("its bytes are not those that were written")
    if sum(entry["bytes"] for entry in head["parts"]) != len(body):
        raise _damaged("its parts are not all there")
    return head, body


def _cut(kind: RecordType, entries: Iterable[Mapping[str, Any]], body: bytes) -> dict[str, bytes]:
    """The parts by the path where they will lie, each once, each with the bytes that its entry names."""
    parts: dict[str, bytes] = {}
    for entry in entries:
        path = f"{_folder(kind)}/{entry['path']}"
        data, body = body[: entry["bytes"]], body[entry["bytes"] :]
        if layout.parse_part(path) is None:
            raise _damaged(f"{path} is no path of a part")
        if path in parts:
            raise _damaged(f"{entry['path']} is named twice")
        if len(data) != entry["bytes"] or _digest(data) != entry["sha256"]:
            raise _damaged(f"{entry['path']} has other bytes than its checksum says")
        parts[path] = data
    return parts


def _refuse_flawed(base: Base, kind: NodeType, parts: Mapping[str, bytes], records: int) -> None:
    """Read the parts as they will be read once they are there; raise where that would find anything wrong."""
    read = {path: part_of(path, kind, data, base.limits, Stamp(len(data), 0, 0, 0)) for path, data in parts.items()}
    tree = Tree(Ontology({kind.name: kind}), base.limits, read, [])
    if flaws := _flaws(tree, kind):
        raise _damaged(str(flaws[0]), flaws)
    if tree.count(kind) != records:
        raise _damaged(f"it names {records} records and holds {tree.count(kind)}")


def _flaws(tree: Tree, kind: RecordType) -> list[Finding]:
    """What no part of a snapshot may have: lines that cannot be read, are not whole or stand twice, and no line at all."""
    found = [finding for part in tree.parts_of(kind) for finding in part.findings]
    found += [
        Finding("E_NOT_CANONICAL", "no record is in it", part.path) for part in tree.parts_of(kind) if not part.rows
    ]
    if found:
        return found
    rows = [
        (row, "E_INCOMPLETE", "the line lacks __id or times", "duckkb fmt")
        for row in tree.rows(kind)
        if not row.complete
    ]
    rows += [
        (row, "E_DUP_IDENTITY", f"{identity_text(identity)} stands twice", "duckkb dedupe")
        for identity, many in tree.duplicates(kind).items()
        for row in many[1:]
    ]
    rows += [
        (row, "E_DUP_ID", f"__id {number} is another record's", "duckkb dedupe --reassign")
        for number, many in tree.id_clashes(kind).items()
        for row in many[1:]
    ]
    return [Finding(code, said, row.path, row.line_no, remedy=remedy) for row, code, said, remedy in rows]


def _damaged(why: str, findings: Sequence[Finding] = ()) -> StateError:
    return StateError(
        f"the file is no snapshot of a collection: {why}",
        code="E_SNAPSHOT",
        suggestion="take it again: duckkb col snapshot NAME FILE",
        findings=tuple(findings) if len(findings) > 1 else (),
    )


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
