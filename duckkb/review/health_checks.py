"""`doctor`: runs every check in a fixed order.

A check that raises is an error of that check; the others continue.

The growth of a base: records and bytes of each type, now and at some commits of its history.

A commit is counted by its difference from the one counted before it, so that the whole history costs what was
changed in it. Counts are noted beside the lines: the next call reads only newer commits."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.ontology.model import Ontology
from duckkb.review import base_health, machine_health
from duckkb.review.base_health import Check, Look, Surroundings, join_problems
from duckkb.storage import document_parts, layout, revisions
from duckkb.storage.document_parts import IgnoreFiles, is_ignore_file, places_above
from duckkb.storage.git_facts import History, Sample
from duckkb.storage.revisions import Revision, Touched, TreeEntry
from duckkb.types import request_context

CHECKS: dict[str, Look] = {
    "python": machine_health.python,
    "libraries": machine_health.libraries,
    "extra_local": machine_health.local_extra,
    "extra_ann": machine_health.ann_extra,
    "limits": machine_health.limits,
    "configuration": base_health.configuration,
    "trust": base_health.trust,
    "git": machine_health.git,
    "repository": machine_health.check_history,
    "git_settings": machine_health.git_settings,
    "checkout": machine_health.checkout,
    "attributes": machine_health.attributes,
    "tracked_state": machine_health.check_tracked_state,
    "file_system": machine_health.file_system,
    "disk": machine_health.disk,
    "derived_state": machine_health.check_derived_state,
    "writable": base_health.writable,
    "lock": base_health.lock_file,
    "journal": base_health.check_journal,
    "local_state": base_health.local_state,
    "rescued": base_health.check_rescued,
    "format": base_health.data_format,
    "data": base_health.data_present,
    "readable": base_health.readable,
    "canonical": base_health.none_of(base_health.FORM, "every line is in canonical form"),
    "records": base_health.none_of(base_health.BAD_FIT, "every record fits its type and its place"),
    "identities": base_health.none_of(base_health.IDENTITIES, "every identity and every __id is unique"),
    "edges": base_health.none_of(base_health.EDGES, "every edge has its ends"),
    "strangers": base_health.none_of(base_health.STRANGERS, "data/ has no other files"),
    "documents": base_health.none_of(base_health.DOCUMENTS, "every folder and file of documents can be read"),
    "lfs": machine_health.lfs,
    "clock": machine_health.clock,
    "team_cache": base_health.team_cache,
    "local_cache": base_health.local_cache,
    "coverage": base_health.coverage,
    "meaning": base_health.check_meaning,
    "fingerprint": base_health.fingerprint,
    "duckdb": machine_health.self_test("duckdb", "pip install --force-reinstall 'duckdb>=2.0.1,<3'"),
    "tantivy": machine_health.self_test("tantivy", "pip install --force-reinstall tantivy"),
    "segmenters": machine_health.segmenters,
    "model": machine_health.model,
}


class Health(Struct, frozen=True):
    """The verdicts of all checks, in a fixed order."""

    checks: tuple[Check, ...]

    @property
    def errors(self) -> int:
        return sum(check.status == "error" for check in self.checks)

    @property
    def warnings(self) -> int:
        return sum(check.status == "warning" for check in self.checks)


def examine(ground: Surroundings, on_check: Callable[[Check], None]) -> Health:
    """Run every check. Changes nothing, and gives the same result for the same state.

    `on_check` gets each verdict as it is done: a native library that ends the process loses no earlier verdict.
    """
    checks = []
    for name, look in CHECKS.items():
        checks.append(join_problems(name, look, ground))
        on_check(checks[-1])
    return Health(tuple(checks))


NOTE = "growth"
_FORMAT = 2
_KEPT = 1_000
"""Commits whose counts stay noted."""
_AT_ONCE = 64
"""Files that are held at once."""
Sizes = dict[str, tuple[int, int]]
"""Records and bytes by type; a table without a type counts under its folder (`nodes/old`)."""


class CountedHistory(Struct, frozen=True):
    """The counted commits of a history, oldest first; `left` were not counted for lack of time."""

    commits: tuple[tuple[Sample, Sizes], ...]
    left: int = 0


def now(base: Base) -> list[dict[str, Any]]:
    """Return the records, parts and bytes of each type.

    Parts and bytes are None where a type has no files of its own (links between documents), or none on disk (a
    base of a revision, or a published one).
    """
    rows = []
    for kind in base.ontology:
        parts = base.tree.parts_of(kind)
        has_files = (
            base.wiring.at is None and not base.wiring.published and (kind.source is None or kind.kind == "node")
        )
        line = {"name": kind.name, "kind": kind.kind, "records": base.tree.count(kind), "parts": len(parts)}
        rows.append(line | {"bytes": sum(part.stamp.size for part in parts) if has_files else None})
    return rows


def places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    """Return the paths of records that git knows, and the .gitignore files that apply to documents."""
    return (*(f"{layout.DATA}/{folder}" for folder in layout.FOLDERS.values()), *_list_document_places(root, ontology))


def _list_document_places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    kinds = ontology.nodes.values()
    return (*document_parts.folders(kinds), *places_above(root, kinds))


def count_commits(base: Base, history: History, seconds: float) -> CountedHistory:
    """Count as many of these commits as time allows, at least one.

    Raises `errors.Unavailable` (E_GIT) where git lacks an object.
    """
    until = time.monotonic() + seconds
    ground = _compute_ground(base.ontology)
    known_sizes = _load_counts(base, ground)
    commits: list[tuple[Sample, Sizes]] = []
    is_new, before = False, None
    for sample in history.samples:
        commit = sample.by.commit
        if commit not in known_sizes:
            if (is_new and time.monotonic() > until) or request_context.is_over():
                break
            known_sizes[commit], is_new = _count_commit(base, commits[-1][1] if commits else {}, before, commit), True
        commits.append((sample, known_sizes[commit]))
        before = commit
    if is_new:
        recent_sizes = dict(islice(reversed(known_sizes.items()), _KEPT))
        base.notes.keep(NOTE, {"format": _FORMAT, "ground": ground, "commits": recent_sizes})
    return CountedHistory(tuple(commits), len(history.samples) - len(commits))


def _compute_ground(ontology: Ontology) -> str:
    """Return a digest of what decides the type of a file."""
    declarations = [(kind.kind, kind.name, kind.table, repr(kind.source)) for kind in ontology]
    return sha256(repr(declarations).encode("utf-8", "surrogatepass")).hexdigest()


def _load_counts(base: Base, ground: str) -> dict[str, Sizes]:
    """Return the noted counts that still hold; empty where the note is foreign or damaged."""
    note = base.notes.note(NOTE)
    try:
        if note["format"] != _FORMAT or note["ground"] != ground:
            return {}
        return {
            str(commit): {str(name): (int(records), int(size)) for name, (records, size) in sizes.items()}
            for commit, sizes in note["commits"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _count_commit(base: Base, sizes: Mapping[str, tuple[int, int]], before: str | None, commit: str) -> Sizes:
    """Return the sizes at a commit, from those at the commit `before` it; None: from nothing."""
    root = base.root
    at = revisions.revision(root, commit)
    old = revisions.revision(root, before) if before else Revision("", "", revisions.empty_tree(root))
    remaining_files = iter(
        _serve_files(base, old, at, revisions.compare_trees(root, old, at, places(root, base.ontology)))
    )
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0], {name: [*both] for name, both in sizes.items()})
    while some := list(islice(remaining_files, _AT_ONCE)):
        for name, records, size in _measure_changes(base, some):
            totals[name][0] += records
            totals[name][1] += size
    return {name: (records, size) for name, (records, size) in totals.items() if records or size}


def _serve_files(base: Base, old: Revision, at: Revision, touched_files: list[Touched]) -> list[Touched]:
    """Return the files that differ, without the sides that .gitignore files leave out.

    Files that only a change of .gitignore adds or removes count too.
    """
    root, ontology = base.root, base.ontology
    if not (where := _list_document_places(root, ontology)):
        return touched_files
    there = revisions.entries(root, at, where)
    ignore_files = ignored_before = IgnoreFiles.read(root, there)
    if any(is_ignore_file(file.path) for file in touched_files):
        ignored_before = IgnoreFiles.read(root, revisions.entries(root, old, where))
        paths = {file.path for file in touched_files}
        touched_files = [
            *touched_files,
            *(Touched(path, entry, entry) for path, entry in there.items() if path not in paths),
        ]
    before = ignored_before.serve(ontology, {file.path: file.old for file in touched_files})
    now = ignore_files.serve(ontology, {file.path: file.new for file in touched_files})
    sides = [Touched(file.path, before.get(file.path), now.get(file.path)) for file in touched_files]
    return [file for file in sides if file.old != file.new]


def _measure_changes(base: Base, touched_files: Iterable[Touched]) -> list[tuple[str, int, int]]:
    """Return for each file the type, and the records and bytes that it gained or lost."""
    sides: dict[tuple[str, int], TreeEntry | None] = {}
    for file in touched_files:
        sides |= {(file.path, 1): file.new, (file.path, -1): file.old}
    content = revisions.contents(base.root, sides)
    changes = []
    for (path, sign), data in content.items():
        name, is_document = _find_type(base.ontology, path)
        if name:
            records = 1 if is_document else sum(1 for line in data.split(b"\n") if line.strip())
            changes.append((name, sign * records, sign * len(data)))
    return changes


def _find_type(ontology: Ontology, path: str) -> tuple[str, bool]:
    """Return the name under which a file is counted, and whether it is one document; an empty name for none."""
    if address := layout.parse_part(path):
        kind = ontology.find_by_table(address.kind, address.table)
        return kind.name if kind is not None else f"{layout.FOLDERS[address.kind]}/{address.table}", False
    document_type = document_parts.type_at(ontology, path)
    return (document_type.name, True) if document_type is not None else ("", False)
