"""Packing of a collection to a self-contained file, and back; every line and checksum is verified before a write."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from duckkb.engine.base import Base
from duckkb.engine.integrity import BaseView, check_spelling, duplicates, id_clashes
from duckkb.ontology.model import NodeType, Ontology, RecordType
from duckkb.ontology.names import describe_reservation
from duckkb.ontology.ontology_files import collection_of, path_of, rename_definition
from duckkb.ontology.validation import Validator
from duckkb.storage import journal, layout
from duckkb.storage.part import Stamp, part_of
from duckkb.storage.tree import Tree
from duckkb.types.errors import Conflict, Finding, Refused, StateError, UsageError

FORMAT = "duckkb collection 1"
_HEAD = {"format": str, "name": str, "records": int, "definition": str, "parts": list}
_ENTRY = {"path": str, "bytes": int, "sha256": str}


def pack(base: Base, kind: RecordType) -> bytes:
    """Pack a collection: a JSON line that names and hashes what follows, then every part as it is.

    Raises `errors.StateError` (E_INCOMPLETE) where lines have no id yet, and with a finding's code for what
    `unpack` would refuse.
    """
    definition = own_file(base, kind)
    refuse_incomplete(base, kind)
    if flaws := _find_flaws(base.tree, kind):
        message = f"{kind.name} cannot be packed: {flaws[0]}"
        raise StateError(message, flaws[0].code, flaws[0].remedy or "duckkb check", findings=tuple(flaws))
    parts = parts_of(base, kind)
    body = b"".join(parts.values())
    head = {
        "format": FORMAT,
        "name": kind.name,
        "records": base.tree.count(kind),
        "definition": definition.decode(),
        "parts": [
            {"path": path.removeprefix(folder_of(kind) + "/"), "bytes": len(data), "sha256": digest(data)}
            for path, data in parts.items()
        ],
    }
    return _seal_body(_encode_head(head), body)


def unpack(base: Base, data: bytes, name: str | None) -> tuple[NodeType, bytes, dict[str, bytes]]:
    """Unpack a collection, under another name if given; return its type, definition, and parts by new path.

    Raises `errors.StateError` (E_SNAPSHOT) for a file that is damaged in any byte, or holds anything but a
    collection as `pack` writes it.
    """
    head, body = _open_snapshot(data)
    definition = head["definition"].encode()
    kind, findings = collection_of(definition, "definition")
    if kind is None:
        raise _report_damage(f"its definition is wrong: {findings[0].message}", findings)
    if kind.name != head["name"]:
        raise _report_damage(f"its definition is of {kind.name!r}, not of {head['name']!r}")
    if name is not None:
        definition = rename_definition(definition, name)
        kind, findings = collection_of(definition, "definition")
        if kind is None:
            raise unfit(name, findings)
    reject_reserved_name(kind.table)
    parts = _cut(kind, head["parts"], body)
    _refuse_flaws(base, kind, parts, head["records"])
    return kind, definition, parts


def own_file(base: Base, kind: RecordType) -> bytes:
    """Return the bytes of the file that defines a collection.

    Raises `errors.Refused` where it has no file of its own.
    """
    path = path_of(kind.name)
    stored_file = journal.read_target(base.root, path) if kind.is_collection else None
    if stored_file is None or collection_of(stored_file[0], path)[0] is None:
        raise Refused(
            f"{kind.name} is declared at {kind.place}, not in a separate file",
            suggestion=f"change it there, or move it to {path}" if kind.is_collection else "edit the ontology by hand",
        )
    return stored_file[0]


def parts_of(base: Base, kind: RecordType) -> dict[str, bytes]:
    """Return the bytes of a collection's parts by path, in path order (none for documents).

    Raises `errors.Conflict` (E_STALE) for a part that changed.
    """
    data_by_path = {}
    for path, part in base.tree.parts.items():
        if part.kind.name == kind.name and kind.source is None:
            data = (base.root / path).read_bytes()
            if digest(data) != part.digest:
                raise Conflict(f"{path} changed since it was read", code="E_STALE", suggestion="repeat the command")
            data_by_path[path] = data
    return dict(sorted(data_by_path.items()))


def folder_of(kind: RecordType) -> str:
    return f"{layout.DATA}/{layout.FOLDERS[kind.kind]}/{kind.table}"


def refuse_incomplete(base: Base, kind: RecordType) -> None:
    if any(not row.complete for row in base.tree.rows(kind)):
        raise StateError(
            f"{kind.name} has hand-written lines without id or times, which follow from their folder",
            code="E_INCOMPLETE",
            suggestion="duckkb fmt",
        )


def reject_reserved_name(name: str) -> None:
    if why := describe_reservation(name):
        raise UsageError(f"{name!r} {why}", code="E_RESERVED", suggestion="choose another name")


def unfit(name: str, findings: Iterable[Finding]) -> UsageError:
    many = tuple(findings)
    return UsageError(
        f"{name}: {many[0].message}",
        code="E_PARAMS",
        suggestion=many[0].remedy or "choose another name",
        findings=many if len(many) > 1 else (),
    )


def _seal_body(line: bytes, body: bytes) -> bytes:
    return line + b"\n" + json.dumps({"sha256": digest(line + body)}).encode() + b"\n" + body


def _parse_head(line: bytes) -> dict[str, Any]:
    """Parse the first line, which has a single valid form; duplicate or additional keys are refused."""
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise _report_damage(f"it is of the format {head['format']!r}, not {FORMAT!r}")
        kinds = {key: type(value) for key, value in head.items()}
        entries = [{key: type(value) for key, value in entry.items()} for entry in head["parts"]]
        is_whole = kinds == _HEAD and all(entry == _ENTRY for entry in entries) and line == _encode_head(head)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _report_damage("it does not begin like a snapshot") from error
    if not is_whole:
        raise _report_damage("it does not begin like a snapshot")
    return dict(head)


def _encode_head(head: Mapping[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False, sort_keys=True).encode()


def _open_snapshot(data: bytes) -> tuple[dict[str, Any], bytes]:
    line, _, remainder = data.partition(b"\n")
    _, _, body = remainder.partition(b"\n")
    head = _parse_head(line)
    if data != _seal_body(line, body):
        raise _report_damage("its checksum does not match")
    if sum(entry["bytes"] for entry in head["parts"]) != len(body):
        raise _report_damage("some of its parts are missing")
    return head, body


def _cut(kind: RecordType, entries: Iterable[Mapping[str, Any]], body: bytes) -> dict[str, bytes]:
    """Cut the body into parts by their new paths, each once, each with the bytes that its entry names."""
    parts: dict[str, bytes] = {}
    for entry in entries:
        path = f"{folder_of(kind)}/{entry['path']}"
        data, body = body[: entry["bytes"]], body[entry["bytes"] :]
        if layout.parse_part(path) is None:
            raise _report_damage(f"{path} is not the path of a part")
        if path in parts:
            raise _report_damage(f"{entry['path']} is named twice")
        if len(data) != entry["bytes"] or digest(data) != entry["sha256"]:
            raise _report_damage(f"{entry['path']} does not match its checksum")
        parts[path] = data
    return parts


def _refuse_flaws(base: Base, kind: NodeType, parts: Mapping[str, bytes], records: int) -> None:
    """Read the parts as they will be read once stored, and raise where anything is wrong."""
    read = {path: part_of(path, kind, data, base.limits, Stamp(len(data), 0, 0, 0)) for path, data in parts.items()}
    tree = Tree(Ontology({kind.name: kind}), base.limits, read, [])
    if flaws := _find_flaws(tree, kind):
        raise _report_damage(str(flaws[0]), flaws)
    if tree.count(kind) != records:
        raise _report_damage(f"it names {records} records and holds {tree.count(kind)}")


def _find_flaws(tree: Tree, kind: RecordType) -> list[Finding]:
    """Return what no part of a snapshot may have: unreadable, incomplete or duplicate lines, or none at all."""
    findings = [finding for part in tree.parts_of(kind) for finding in part.findings]
    findings += [
        Finding("E_NOT_CANONICAL", "no record is in it", part.path) for part in tree.parts_of(kind) if not part.rows
    ]
    if findings:
        return findings
    view = BaseView(tree, lambda kind: Validator(kind, tree.ontology), lambda kind: {})
    findings = [flaw for row in tree.rows(kind) for flaw in check_spelling(row) if flaw.code == "E_INCOMPLETE"]
    return [*findings, *duplicates(view, kind), *id_clashes(view, kind)]


def _report_damage(why: str, findings: Sequence[Finding] = ()) -> StateError:
    return StateError(
        f"the file is not a snapshot of a collection: {why}",
        code="E_SNAPSHOT",
        suggestion="make a new one: duckkb col snapshot NAME FILE",
        findings=tuple(findings) if len(findings) > 1 else (),
    )


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()
