"""Reading truth: which files are parts, what stands in them, and which of them changed since.

Nothing below `data/` is followed, waited for or trusted: links, FIFOs, devices and unknown files are findings.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.ontology.model import Ontology, RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, component_of
from duckkb.truth.canonical import scan
from duckkb.truth.ids import day_start, hash_id
from duckkb.truth.kept import reread
from duckkb.truth.layout import parse_part, read_regular
from duckkb.truth.line import Limits, LineError, Shape, decode, encode
from duckkb.truth.survey import Survey, survey
from duckkb.truth.table import StoredRow, record_of
from duckkb.truth.tree import Part, Stamp, Tree, collector_paused
from duckkb.values import dataclass, field

_POINTER = b"version https://git-lfs"


def load(root: Path, ontology: Ontology, limits: Limits, found: Survey | None = None) -> Tree:
    """Read every part of the types in the ontology. An absent `data/` is an empty tree. `found` is what was just seen there.

    Lines that cannot be read are the findings of their part, the rest of the file is there. Raises `Unavailable` (E_IO)
    for a folder that cannot be listed.
    """
    found = found or survey(root, ontology)
    with collector_paused():
        parts = _read_all(root, found.kinds, limits)
    return Tree(ontology, limits, parts, found.findings)


def read_part(
    root: Path, path: str, kind: RecordType, limits: Limits, before: Part | None = None, *, passing: bool = False
) -> Part:
    """Read one part. Raises FileNotFoundError where it is gone; one that cannot be opened is a part with a finding. Where it
    was read `before`, only what changed is decoded, if that can be told. Who is `passing` asks hardly
    for rows: those of a canonical part are not made before.

    A line without `__id` or times gets the id that follows from its identity, and the first moment of the file's day.
    """
    read_ns = time.time_ns()
    try:
        raw, status = read_regular(root / path)
    except FileNotFoundError:
        raise
    except OSError as error:
        finding = Finding("E_IO", f"the file cannot be read: {error.strerror}", path, remedy=CODES["E_IO"].remedy)
        return Part(path, kind, Stamp(-1, 0, 0, 0), "", (), (finding,))
    stamp = Stamp.of(status, read_ns)
    digest = hashlib.sha256(raw).hexdigest()
    if before is not None and (rows := reread(before, raw, kind, limits)) is not None:
        return Part(path, kind, stamp, digest, rows)
    if passing and (found := scan(raw, path, kind, limits)) is not None:
        return Part(path, kind, stamp, digest, found[0], sorted=found[1])
    lines = _Lines(path, kind, limits)
    lines.read(raw)
    return Part(
        path,
        kind,
        stamp,
        digest,
        tuple(lines.rows),
        tuple(lines.findings),
        canonical=lines.canonical,
        sorted=_is_sorted(lines.rows),
    )


def _is_sorted(rows: list[StoredRow]) -> bool:
    order = [row.order for row in rows]
    return order == sorted(order)


def changed(tree: Tree, root: Path, found: Survey | None = None) -> list[str]:
    """Paths of parts that are new, gone, or hold other bytes than the tree was read from. Cheap where nothing changed.

    What lies beside the parts is noted as it is now (`tree.findings`). `found` is what was just seen there.
    """
    found = found or survey(root, tree.ontology)
    tree.findings = found.findings
    gone = [path for path in tree.parts if path not in found.files]
    return sorted(gone + [path for path, status in found.files.items() if _differs(tree, root, path, status)])


def reload(tree: Tree, root: Path, paths: Iterable[str], found: Survey | None = None) -> dict[str, Part | None]:
    """Read parts anew, for `Tree.replace`; None for what is no part any more: gone, behind a link, of no known type.
    `found` is what was just seen there."""
    paths = list(paths)
    kinds = (found or survey(root, tree.ontology)).kinds if paths else {}
    return {path: _reread(tree, root, path, kinds.get(path)) for path in paths}


def _read_all(root: Path, kinds: dict[str, RecordType], limits: Limits) -> dict[str, Part]:
    parts = {}
    for path, kind in kinds.items():
        try:
            parts[path] = read_part(root, path, kind, limits)
        except FileNotFoundError:
            continue
    return parts


def _reread(tree: Tree, root: Path, path: str, kind: RecordType | None) -> Part | None:
    if kind is None:
        return None
    try:
        return read_part(root, path, kind, tree.limits, tree.parts.get(path))
    except FileNotFoundError:
        return None


def _differs(tree: Tree, root: Path, path: str, status: os.stat_result) -> bool:
    part = tree.parts.get(path)
    if part is None or part.stamp.size != status.st_size:
        return True
    if part.stamp.vouches(status):
        return False
    read_ns = time.time_ns()
    try:
        raw, seen = read_regular(root / path)
    except OSError:
        return True
    if hashlib.sha256(raw).hexdigest() != part.digest:
        return True
    # The same bytes, read later: once that is past the clock's grain the stamp alone vouches for them.
    tree.parts[path] = replace(part, stamp=Stamp.of(seen, read_ns))
    return False


@dataclass(slots=True)
class _Lines:
    """Reads the lines of one file one after the other."""

    path: str
    kind: RecordType
    limits: Limits
    rows: list[StoredRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    canonical: bool = True

    def read(self, raw: bytes) -> None:
        if raw.startswith(_POINTER):
            self.findings.append(
                Finding("E_POINTER", "the file is a Git LFS pointer", self.path, 1, remedy=CODES["E_POINTER"].remedy)
            )
            return
        *lines, rest = raw.split(b"\n")
        if rest or not raw:
            # The last LF is missing, or the file is empty and should not be.
            self.canonical = False
            lines.append(rest)
        shape = Shape(self.kind.identity_fields, self.kind.generated)
        in_conflict = False
        for number, line in enumerate(lines, 1):
            if not line.strip(b" \t"):
                self.canonical = False
                continue
            try:
                values, canonical = decode(line, shape, self.limits)
            except LineError as error:
                self.findings += [_placed(finding, self.path, number) for finding in error.findings]
                if error.findings[0].code == "E_MARKERS":
                    # A divider or an end that no beginning precedes hides nothing of what follows.
                    in_conflict = line.startswith(b"<") or (in_conflict and not line.startswith(b">"))
                continue
            # Neither side of a conflict is the record until someone has chosen.
            if not in_conflict:
                self.rows.append(self._row(values, line, number, shape, canonical))

    def _row(self, values: dict[str, Any], line: bytes, number: int, shape: Shape, canonical: bool) -> StoredRow:
        complete = ID in values and CREATED_AT in values and UPDATED_AT in values
        if not complete:
            self._complete(values)
        if not (complete and canonical):
            self.canonical = False
            line = encode(values, shape, self.limits.depth)
        return StoredRow(record_of(self.kind, values), line, self.path, number, complete, canonical)

    def _complete(self, values: dict[str, Any]) -> None:
        address = parse_part(self.path)
        assert address is not None, f"{self.path} is no part"
        identity = tuple(component_of(values[name]) for name in self.kind.identity_fields)
        values.setdefault(ID, hash_id(self.kind.kind, self.kind.table, identity))
        values.setdefault(CREATED_AT, day_start(address.day))
        values.setdefault(UPDATED_AT, values[CREATED_AT])


def _placed(finding: Finding, path: str, line: int) -> Finding:
    return Finding(finding.code, finding.message, path, line, finding.field, CODES[finding.code].remedy)
