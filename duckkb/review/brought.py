"""What a change brings that its own files do not tell: both versions are held against every rule, and the older one's
findings are taken off the newer one's.

Of truth is read what can matter: the tables that the change touches, the edges that end in them, and these edges' other
ends; everything where the ontology changed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from duckkb.codes import CODES
from duckkb.engine.observed import Observed
from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.validate import Validator
from duckkb.review.diff.configuration import Configurations, Described
from duckkb.review.diff.model import Diff, Versions
from duckkb.review.findings import Rules, Scope, of_tree
from duckkb.review.near import near_duplicates
from duckkb.truth import layout
from duckkb.truth.files import read
from duckkb.truth.files.lines import collector_paused
from duckkb.truth.files.tree import Part, Stamp, Tree
from duckkb.truth.git import revisions

_Table = tuple[layout.Kind, str]


def brought(root: Path, diff: Diff, versions: Versions, both: Configurations) -> Iterator[Finding]:
    """Errors and warnings of the newer version that the older one does not have, or that are about records that changed;
    then new records that nearly say what another says."""
    scope = _Reach(both, versions)
    (old, strange_before), (new, strange) = _trees(root, versions, both, scope)
    _mark_cut_off(new, versions)
    found = [*strange, *new.unreadable, *of_tree(new, _rules(new), scope.of(new.ontology))]
    before = [*strange_before, *old.unreadable, *of_tree(old, _rules(old), scope.of(old.ontology))]
    yield from _new_or_touched(found, before, diff)
    yield from near_duplicates(new, diff)


def trees(root: Path, versions: Versions, both: Configurations) -> tuple[Tree, Tree]:
    """The older and the newer version of the tables that a change touches, of the edges that end in them, and of these edges'
    other ends; of everything where the ontology changed."""
    (old, _), (new, _) = _trees(root, versions, both, _Reach(both, versions))
    return old, new


def newer(root: Path, versions: Versions, both: Configurations, tables: Collection[_Table]) -> Tree:
    """The newer version of some tables, whether the change touches them or not."""
    return _tree(both.new, _unchanged(root, versions, tables), versions.new, tables, {})[0]


def _trees(
    root: Path, versions: Versions, both: Configurations, scope: "_Reach"
) -> tuple[tuple[Tree, list[Finding]], tuple[Tree, list[Finding]]]:
    unchanged = _unchanged(root, versions, scope.read)
    new = _tree(both.new, unchanged, versions.new, scope.read, {})
    return _tree(both.old, unchanged, versions.old, scope.read, new[0].parts), new


class _Reach:
    """The tables to check, and those that must be read for it."""

    def __init__(self, both: Configurations, versions: Versions) -> None:
        addresses = map(layout.parse_part, versions.paths)
        touched = {(address.kind, address.table) for address in addresses if address is not None}
        self._touched: Collection[_Table] | None = touched if both.old.ontology == both.new.ontology else None
        self._paths = None if self._touched is None else frozenset(versions.paths)
        self.read: Collection[_Table] | None = None
        if self._touched is not None:
            kinds = self.checked(both.new.ontology)
            ends = [both.new.ontology.nodes[name] for kind in kinds for name in _end_types(kind)]
            self.read = touched | {(kind.kind, kind.table) for kind in (*kinds, *ends)}

    def of(self, ontology: Ontology) -> Scope:
        """What of one version is looked at. Lines of parts that are alike say the same in both."""
        return Scope(self.checked(ontology), self._paths)

    def checked(self, ontology: Ontology) -> list[RecordType]:
        """All types where the ontology changed."""
        touched = self._touched
        if touched is None:
            return list(ontology)
        nodes = {kind.name for kind in ontology if (kind.kind, kind.table) in touched}
        return [kind for kind in ontology if kind.name in nodes or nodes & set(_end_types(kind))]


def _end_types(kind: RecordType) -> tuple[str, ...]:
    return (*kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else ()


def _unchanged(root: Path, versions: Versions, tables: Collection[_Table] | None) -> dict[str, bytes]:
    """The parts that both versions have alike."""
    places = [f"{layout.DATA}/{folder}" for folder in layout.FOLDERS.values()]
    if tables is not None:
        places = [layout.part_folder(kind, table) for kind, table in sorted(tables)]
    touched = set(versions.paths)
    there = revisions.entries(root, revisions.revision(root, versions.base.commit), places) if places else {}
    alike = {
        path: entry.blob
        for path, entry in there.items()
        if entry.mode in revisions.REGULAR and path not in touched and layout.parse_part(path)
    }
    content = revisions.blobs(root, alike.values())
    return {path: content[blob] for path, blob in alike.items()}


def _tree(
    side: Described,
    unchanged: Mapping[str, bytes],
    own: Mapping[str, bytes],
    tables: Collection[_Table] | None,
    known: Mapping[str, Part],
) -> tuple[Tree, list[Finding]]:
    """The records of one version, and the parts that belong to no type there."""
    parts: dict[str, Part] = {}
    strange = []
    with collector_paused():
        for path, raw in {**unchanged, **own}.items():
            address = layout.parse_part(path)
            if address is None or (tables is not None and (address.kind, address.table) not in tables):
                continue
            kind = side.ontology.by_table(address.kind, address.table)
            if kind is None:
                strange.append(_strange(path))
            elif path in unchanged and path in known and known[path].kind == kind:
                parts[path] = known[path]
            else:
                parts[path] = read.part_of(path, kind, raw, side.limits, Stamp(len(raw), 0, 0, 0))
    return Tree(side.ontology, side.limits, parts, []), strange


def _mark_cut_off(new: Tree, versions: Versions) -> None:
    """A part whose records the change took without removing the file has a finding."""
    for path, part in new.parts.items():
        if not part.rows and not part.findings and versions.old.get(path, b"").strip():
            source = versions.base.commit[:12]
            remedy = f"`git checkout {source} -- {path}`, or `git rm {path}` if all its records are to go"
            cut = Finding("E_EMPTY_PART", "no record is in it: the change cut it off", path, remedy=remedy)
            new.parts[path] = replace(part, findings=(cut,))


def _strange(path: str) -> Finding:
    said = "no type of the ontology has this table or label"
    return Finding("E_UNEXPECTED_FILE", said, path, remedy=CODES["E_UNEXPECTED_FILE"].remedy)


def _rules(tree: Tree) -> Rules:
    def lengths(kind: RecordType) -> Mapping[str, int]:
        return Observed(kind, (row.record for row in tree.rows(kind))).lengths()

    return Rules(lambda kind: Validator(kind, tree.ontology), lengths)


def _new_or_touched(found: Iterable[Finding], before: Iterable[Finding], diff: Diff) -> Iterator[Finding]:
    touched = {(change.type, name) for change in diff.changes for name in (change.identity, change.was) if name}
    known = Counter(map(_key, before))
    for finding in found:
        key = _key(finding)
        known[key] -= 1
        if known[key] < 0 or (finding.type, finding.identity) in touched:
            yield finding


def _key(finding: Finding) -> tuple[str, ...]:
    """What a finding is, wherever its line has moved to."""
    if finding.type:
        return finding.code, finding.type, finding.identity, finding.field
    return finding.code, finding.path, finding.message
