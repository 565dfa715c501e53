"""Regressions: what a change brings that its own files do not tell. Both versions are held against every rule, and the older one's
findings are taken off the newer one's.

Of truth is read what can matter: the tables that the change touches, the edges that end in them, and these edges' other
ends; everything where the ontology changed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from duckkb.codes import CODES
from duckkb.engine.observed import Observed
from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.validate import Validator
from duckkb.review.check.near_duplicates import near_duplicates
from duckkb.review.diff.comparison import Comparison
from duckkb.review.diff.configuration import Described
from duckkb.review.diff.model import Diff, Versions
from duckkb.rules.catalogue import findings
from duckkb.rules.view import BaseView
from duckkb.truth import layout
from duckkb.truth.files.part import Part, Stamp, StoredRow, collector_paused, part_of
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions

_Table = tuple[layout.Kind, str]
_Tables = Collection[_Table] | None
"""By kind and table; None for all."""


def regressions(compared: Comparison, diff: Diff) -> Iterator[Finding]:
    """Errors and warnings of the newer version that the older one does not have, or that are about records that changed;
    then new records that nearly say what another says."""
    touched, paths = _touched(compared), compared.versions.paths
    (old, strange_before), (new, strange) = _trees(compared, touched)
    _mark_cut_off(new, compared.versions)
    found = [*strange, *new.unreadable, *findings(_TouchedView(new, touched, paths))]
    before = [*strange_before, *old.unreadable, *findings(_TouchedView(old, touched, paths))]
    yield from _new_or_touched(found, before, diff)
    yield from near_duplicates(new, diff)


def trees(compared: Comparison) -> tuple[Tree, Tree]:
    """The older and the newer version of the tables that a change touches, of the edges that end in them, and of these edges'
    other ends; of everything where the ontology changed."""
    (old, _), (new, _) = _trees(compared, _touched(compared))
    return old, new


def newer(compared: Comparison, tables: Collection[_Table]) -> Tree:
    """The newer version of some tables, whether the change touches them or not."""
    return _tree(compared.both.new, _unchanged(compared, tables), compared.versions.new, {})[0]


def _touched(compared: Comparison) -> _Tables:
    if compared.both.old.ontology != compared.both.new.ontology:
        return None
    addresses = map(layout.parse_part, compared.versions.paths)
    return {(one.kind, one.table) for one in addresses if one is not None}


def _checked(ontology: Ontology, touched: _Tables) -> list[RecordType]:
    """The types of the tables, and those of the edges that end in them."""
    nodes = {kind.name for kind in ontology if touched is None or (kind.kind, kind.table) in touched}
    return [kind for kind in ontology if kind.name in nodes or nodes & set(_end_types(kind))]


def _end_types(kind: RecordType) -> tuple[str, ...]:
    return (*kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else ()


class _TouchedView(BaseView):
    """What of one version is looked at. Lines of parts that are alike say the same in both."""

    def __init__(self, tree: Tree, touched: _Tables, paths: Collection[str]) -> None:
        super().__init__(tree, lambda kind: Validator(kind, tree.ontology), self._lengths)
        self._touched, self._paths = touched, None if touched is None else frozenset(paths)

    @property
    def kinds(self) -> Iterable[RecordType]:
        return _checked(self.tree.ontology, self._touched)

    def parts(self, kind: RecordType) -> Sequence[Part]:
        return [part for part in super().parts(kind) if self._paths is None or part.path in self._paths]

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        return (row for row in self.compared(kind) if self._paths is None or row.path in self._paths)

    def _lengths(self, kind: RecordType) -> Mapping[str, int]:
        return Observed(kind, (row.record for row in self.compared(kind))).lengths()


_Read = tuple[Tree, list[Finding]]
"""The records of one version, and the parts that belong to no type there."""


def _trees(compared: Comparison, touched: _Tables) -> tuple[_Read, _Read]:
    versions, both, read = compared.versions, compared.both, touched
    if touched is not None:
        kinds = _checked(both.new.ontology, touched)
        ends = [both.new.ontology.nodes[name] for kind in kinds for name in _end_types(kind)]
        read = {*touched, *((kind.kind, kind.table) for kind in (*kinds, *ends))}
    unchanged = _unchanged(compared, read)
    new = _tree(both.new, unchanged, versions.new, {})
    return _tree(both.old, unchanged, versions.old, new[0].parts), new


def _unchanged(compared: Comparison, tables: _Tables) -> dict[str, bytes]:
    """The parts that both versions have alike."""
    places = [f"{layout.DATA}/{folder}" for folder in layout.FOLDERS.values()]
    if tables is not None:
        places = [layout.part_folder(kind, table) for kind, table in sorted(tables)]
    root, versions = compared.root, compared.versions
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
    side: Described, unchanged: Mapping[str, bytes], own: Mapping[str, bytes], known: Mapping[str, Part]
) -> _Read:
    """Of parts that are `known` and unchanged none is read again."""
    parts: dict[str, Part] = {}
    strange = []
    with collector_paused():
        for path, raw in {**unchanged, **own}.items():
            address = layout.parse_part(path)
            if address is None:
                continue
            kind = side.ontology.by_table(address.kind, address.table)
            if kind is None:
                said, remedy = "no type of the ontology has this table or label", CODES["E_UNEXPECTED_FILE"].remedy
                strange.append(Finding("E_UNEXPECTED_FILE", said, path, remedy=remedy))
            elif path in unchanged and path in known and known[path].kind == kind:
                parts[path] = known[path]
            else:
                parts[path] = part_of(path, kind, raw, side.limits, Stamp(len(raw), 0, 0, 0))
    return Tree(side.ontology, side.limits, parts, []), strange


def _mark_cut_off(new: Tree, versions: Versions) -> None:
    """A part whose records the change took without removing the file has a finding."""
    for path, part in new.parts.items():
        if not part.rows and not part.findings and versions.old.get(path, b"").strip():
            source = versions.base.commit[:12]
            remedy = f"`git checkout {source} -- {path}`, or `git rm {path}` if all its records are to go"
            cut = Finding("E_EMPTY_PART", "no record is in it: the change cut it off", path, remedy=remedy)
            new.parts[path] = replace(part, findings=(cut,))


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
