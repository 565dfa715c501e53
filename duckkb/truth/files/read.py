"""Reading truth: which files are parts, what stands in them, and which of them changed since.

Nothing below `data/` is followed, waited for or trusted: links, FIFOs, devices and unknown files are findings.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG

from duckkb.codes import CODES
from duckkb.errors import Finding, Unavailable
from duckkb.ontology.model import Ontology, RecordType
from duckkb.truth.files.canonical import scan
from duckkb.truth.files.line import Limits
from duckkb.truth.files.lines import Lines, collector_paused
from duckkb.truth.files.listing import Listing
from duckkb.truth.files.part_rows import reread
from duckkb.truth.files.survey import Survey, survey
from duckkb.truth.files.table import StoredRow
from duckkb.truth.files.tree import Part, Stamp, Tree
from duckkb.truth.layout import read_regular

_YOUNG_NS, _MOMENT_S, _PATIENCE = 2_000_000_000, 0.02, 50
"""How lately an empty file was written that may yet be filled, how long it is waited for at a time, and how often."""


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
        raw, status = _read_settled(root, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        finding = Finding("E_IO", f"the file cannot be read: {error.strerror}", path, remedy=CODES["E_IO"].remedy)
        return Part(path, kind, Stamp(-1, 0, 0, 0), "", (), (finding,))
    stamp = Stamp.of(status, read_ns)
    if before is not None and (rows := reread(before, raw, limits)) is not None:
        return Part(path, kind, stamp, hashlib.sha256(raw).hexdigest(), rows)
    if passing and (found := scan(raw, path, kind, limits)) is not None:
        return Part(path, kind, stamp, hashlib.sha256(raw).hexdigest(), found[0], sorted=found[1])
    part = part_of(path, kind, raw, limits, stamp)
    return part if part.rows or part.findings else _empty(part, root)


def _read_settled(root: Path, path: str) -> tuple[bytes, os.stat_result]:
    """The bytes of a file. One that is empty while git changes files is waited for: git makes a file before it fills it."""
    for _ in range(_PATIENCE):
        raw, status = read_regular(root / path)
        if raw or time.time_ns() - status.st_mtime_ns > _YOUNG_NS:
            break
        if not _is_git_at_work(root):
            return read_regular(root / path)  # it may have been until just now
        time.sleep(_MOMENT_S)
    return raw, status


def _is_git_at_work(root: Path) -> bool:
    from duckkb.truth.git import places  # which few reads need

    try:
        found = places.find_repository(root)
    except (OSError, Unavailable):
        return False
    return found is not None and (found.git_dir / "index.lock").exists()


def part_of(path: str, kind: RecordType, raw: bytes, limits: Limits, stamp: Stamp) -> Part:
    """The part that holds these bytes."""
    lines = Lines(path, kind, limits)
    lines.read(raw)
    return Part(
        path,
        kind,
        stamp,
        hashlib.sha256(raw).hexdigest(),
        tuple(lines.rows),
        tuple(lines.findings),
        canonical=lines.canonical,
        sorted=_is_sorted(lines.rows),
    )


def _empty(part: Part, root: Path) -> Part:
    from duckkb.truth.files import emptied  # which asks git

    found = emptied.finding(root, part.path)
    return replace(part, findings=(found,)) if found else part


def _is_sorted(rows: list[StoredRow]) -> bool:
    order = [row.order for row in rows]
    return order == sorted(order)


def changed(tree: Tree, root: Path, found: Survey | None = None) -> list[str]:
    """Paths of parts that are new, gone, or hold other bytes than the tree was read from. Cheap where nothing changed.

    What lies beside the parts is noted as it is now (`tree.findings`). `found` is what was just seen there.
    """
    if found is None:
        return _changed_since(tree, root)
    tree.findings = found.findings
    gone = [path for path in tree.parts if path not in found.files]
    return sorted(gone + [path for path, status in found.files.items() if _differs(tree, root, path, status)])


def _changed_since(tree: Tree, root: Path) -> list[str]:
    """As `changed`, for one who asks again and again: what was found once to be as it should is only listed after that."""
    if tree.listing is not None and tree.listing.is_still_so(root):
        tree.findings = []
        return []
    found = survey(root, tree.ontology)
    if different := changed(tree, root, found):
        return different
    tree.listing = Listing.of(found, tree.parts)
    return []


def is_edited_again(tree: Tree, root: Path) -> bool:
    """Whether a part that was taken in last is not what it was: told without looking at all others."""
    return any(_is_edited(tree, root, path) for path in tree.lately)


def _is_edited(tree: Tree, root: Path, path: str) -> bool:
    try:
        status = os.lstat(root / path)
    except OSError:
        return False
    return path in tree.parts and S_ISREG(status.st_mode) and _differs(tree, root, path, status)


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
