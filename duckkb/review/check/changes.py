"""What a reviewer must be told of a change: findings of a difference. First what the files tell that it touches; then what it
brings that its own files do not tell: both versions are held against every rule, and the older one's findings are taken off
the newer one's.

Of truth is read what can matter: the tables that the change touches, the edges that end in them, and these edges' other
ends; everything where the ontology changed.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.engine.observed import Observed
from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, Ontology, RecordType
from duckkb.ontology.source import pointer
from duckkb.ontology.validate import Validator
from duckkb.records import CREATED_AT
from duckkb.review.check.near_duplicates import near_duplicates
from duckkb.review.diff.model import Diff, LineNumbers, RecordChange, RecordPlace, Versions
from duckkb.review.diff.versions import Comparison, Described
from duckkb.rules.integrity import findings, misplaced
from duckkb.rules.invisible import invisible_in_change, mixed_identity
from duckkb.rules.view import BaseView
from duckkb.settings import Shrink
from duckkb.truth import layout
from duckkb.truth.files.document_parts import DocumentLines, folders, lines_of, parts_in, placed_in_file, type_at
from duckkb.truth.files.part import Part, PartRows, Stamp, StoredRow, collector_paused, part_of
from duckkb.truth.files.source_text import split
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions

_INDICES = "data/indices/"
_Table = tuple[layout.Kind, str]
_Tables = Collection[_Table] | None
"""By kind and table; None for all."""


def findings_of(
    compared: Comparison, diff: Diff, *, whole: bool, allow_shrink: bool, allow_weaker: bool
) -> tuple[Finding, ...]:
    """Each once, by place: what is found twice is told as it was first. With `whole` both versions are held against every
    rule, and the files that a gate rests on are compared. `allow_shrink`: mass deletions are meant, `allow_weaker`: rules that
    are gone are no error."""
    from duckkb.review.check import guards

    told = [*compared.both.findings, *diff.findings, *_caches(compared.versions)]
    told += [*_masses(compared, diff, allow_shrink), *_of_records(diff)]
    if whole:
        told += [*_regressions(compared, diff), *guards.of_files(compared)]
    told += guards.of_configuration(compared.both, diff.changes)
    once: dict[tuple[Any, ...], Finding] = {}
    for one in guards.allowed(told) if allow_weaker else told:
        once.setdefault((one.path, one.line, one.code, one.field, one.type, one.identity), one)
    return tuple(once[key] for key in sorted(once))


def _caches(versions: Versions) -> Iterator[Finding]:
    touched = [path for path in versions.paths if path.startswith(_INDICES)]
    if touched:
        many = f" ({len(touched):,} files)" if len(touched) > 1 else ""
        said = f"the team's cache is made on the main branch{many}; nobody can review it"
        remedy = f"git checkout {versions.base.commit[:12]} -- {_INDICES}"
        yield Finding("W_CACHE_IN_PR", said, touched[0], remedy=remedy)


def _masses(compared: Comparison, diff: Diff, allow_shrink: bool) -> Iterator[Finding]:
    """By the limits of the older version. How many records a table had is asked only where many changed."""
    moved = {(one.kind, one.id) for one in diff.changes if one.op == "insert"}  # as of a collection that was renamed
    counted = Counter(
        (one.kind, one.table, one.type, one.op == "delete")
        for one in diff.changes
        if one.before is not None and not (one.op == "delete" and (one.kind, one.id) in moved)
    )
    for (kind, table, name, is_deletion), number in sorted(counted.items()):
        limit = compared.both.old.shrink if is_deletion else Shrink()
        if number <= limit.records:
            continue
        base = revisions.revision(compared.root, compared.versions.base.commit)
        source = of.source if (of := compared.both.old.ontology.find(name)) is not None else None
        if source is not None and kind == "edge":
            continue  # links follow from the documents
        before = revisions.lines(compared.root, base, layout.part_folder(kind, table))
        if source is not None:
            before = sum(
                type_at(compared.both.old.ontology, file) is of
                and not compared.versions.ignored.leaves_out(source, file)
                for file in revisions.entries(compared.root, base, [source.path])
            )
        if number > limit.most(before):
            code = ("W_MASS_DELETE" if allow_shrink else "E_SHRINK") if is_deletion else "W_MASS_CHANGE"
            said = f"the change {'removes' if is_deletion else 'edits'} {number:,} of {before:,} records"
            yield Finding(code, said, remedy=CODES[code].remedy, type=name)


def _of_records(diff: Diff) -> Iterator[Finding]:
    renamed = {
        change.was: change.identity for change in diff.changes if change.kind == "node" and change.was is not None
    }
    for change in (*diff.changes, *diff.moves):
        if (at := change.after) is not None:
            for code, said, field in _of_record(change, at, renamed):
                remedy = CODES[code].remedy
                yield Finding(code, said, at.path, at.line_no, field, remedy, change.type, change.identity)


def _of_record(change: RecordChange, after: RecordPlace, renamed: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Code, message and field of what is to be told of a record that is there."""
    if change.was is not None and not _followed(change, change.was, renamed):
        yield "W_RENAMED", f"was {change.was}: links and citations by the old identity lead nowhere", ""
    for field in change.fields if change.op != "insert" else ():
        if field.name == CREATED_AT:
            yield "W_CREATED_AT", f"was {field.before}, is {field.after}", f"/{CREATED_AT}"
    created = split(after.line).get(CREATED_AT)
    if created and (said := misplaced(after.path, json.loads(created[1]))):
        yield "E_MISPLACED", said, ""
    for field in change.fields:
        if said := invisible_in_change(field.before, field.after):
            yield "W_INVISIBLE", said, pointer(field.name)
    if change.op in ("insert", "rename") and (said := mixed_identity(change.identity)):
        yield "W_INVISIBLE", said, ""


def _followed(change: RecordChange, was: str, nodes: Mapping[str, str]) -> bool:
    """Whether an edge only followed a node which was renamed, and is as it was."""
    if change.kind != "edge":
        return False
    ends = [nodes.get(str(one), one) if isinstance(one, str | int) else one for one in json.loads(was)]
    return bool(ends == json.loads(change.identity))


def _regressions(compared: Comparison, diff: Diff) -> Iterator[Finding]:
    """Errors and warnings of the newer version that the older one does not have, or that are about records that changed;
    then new records that nearly say what another says."""
    old, new = trees(compared)
    _mark_cut_off(new, compared.versions)
    found, before = ([*tree.findings, *tree.unreadable, *findings(_TouchedView(tree, compared))] for tree in (new, old))
    touched = {(change.type, name) for change in diff.changes for name in (change.identity, change.was) if name}
    known = Counter(map(_key, before))
    for finding in found:
        key = _key(finding)
        known[key] -= 1
        if known[key] < 0 or (finding.type, finding.identity) in touched:
            yield finding
    yield from near_duplicates(new, diff)


def _key(finding: Finding) -> tuple[str, ...]:
    """What a finding is, wherever its line has moved to."""
    if finding.type:
        return finding.code, finding.type, finding.identity, finding.field
    return finding.code, finding.path, finding.message


def _mark_cut_off(new: Tree, versions: Versions) -> None:
    """A part whose records the change took without removing the file has a finding."""
    for path, part in new.parts.items():
        if not part.rows and not part.findings and _is_cut_off(path, versions):
            source = versions.base.commit[:12]
            remedy = f"`git checkout {source} -- {path}`, or `git rm {path}` if all its records are to go"
            cut = Finding("E_EMPTY_PART", "no record is in it: the change cut it off", path, remedy=remedy)
            new.parts[path] = replace(part, findings=(cut,))


def _is_cut_off(path: str, versions: Versions) -> bool:
    return bool(versions.old.get(path, b"").strip()) and layout.is_cut_off(versions.new.get(path, b""))


class _TouchedView(BaseView):
    """What of one version is looked at. Lines of parts that are alike say the same in both."""

    def __init__(self, tree: Tree, compared: Comparison) -> None:
        super().__init__(tree, lambda kind: Validator(kind, tree.ontology), self._lengths)
        self._touched = _touched(compared)
        self._paths = None if self._touched is None else frozenset(compared.versions.paths)

    @property
    def kinds(self) -> Iterable[RecordType]:
        return _checked(self.tree.ontology, self._touched)

    def parts(self, kind: RecordType) -> Sequence[Part]:
        return [part for part in super().parts(kind) if self._paths is None or part.path in self._paths]

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        return (row for row in self.compared(kind) if self._paths is None or row.path in self._paths)

    def _lengths(self, kind: RecordType) -> Mapping[str, int]:
        return Observed(kind, (row.record for row in self.compared(kind))).lengths()


def trees(compared: Comparison, also: Collection[_Table] = ()) -> tuple[Tree, Tree]:
    """The older and the newer version of the tables that a change touches, of the edges that end in them, of these edges'
    other ends, and of `also`; of everything where the ontology changed. Parts that belong to no type there are findings."""
    both, tables = compared.both, _touched(compared)
    if tables is not None:
        kinds = _checked(both.new.ontology, tables)
        ends = [both.new.ontology.nodes[name] for kind in kinds for name in _end_types(kind)]
        tables = {*tables, *also, *((kind.kind, kind.table) for kind in (*kinds, *ends))}
    unchanged = _unchanged(compared, tables)
    content = {path: part.data for path, part in unchanged.items()}
    same_lines = {path: part.numbers for path, part in unchanged.items() if part.numbers}
    old_lines, new_lines = ({**same_lines, **numbers} for numbers in compared.versions.numbers)
    new = _tree(both.new, content, compared.versions.new, new_lines, {})
    return _tree(both.old, content, compared.versions.old, old_lines, new.parts), new


def _touched(compared: Comparison) -> _Tables:
    if compared.both.old.ontology != compared.both.new.ontology:
        return None
    addresses = map(layout.parse_part, compared.versions.paths)
    kinds = (type_at(compared.both.new.ontology, path) for path in compared.versions.paths)
    return {(one.kind, one.table) for one in (*addresses, *kinds) if one is not None}


def _checked(ontology: Ontology, touched: _Tables) -> list[RecordType]:
    """The types of the tables, and those of the edges that end in them."""
    nodes = {kind.name for kind in ontology if touched is None or (kind.kind, kind.table) in touched}
    return [kind for kind in ontology if kind.name in nodes or nodes & set(_end_types(kind))]


def _end_types(kind: RecordType) -> tuple[str, ...]:
    return (*kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else ()


def _unchanged(compared: Comparison, tables: _Tables) -> dict[str, DocumentLines]:
    """The parts that both versions have alike; documents as lines."""
    ontology, root, touched = compared.both.new.ontology, compared.root, set(compared.versions.paths)
    wanted = [kind for kind in ontology if tables is None or (kind.kind, kind.table) in tables]
    places = [f"{layout.DATA}/{folder}" for folder in layout.FOLDERS.values()]
    if tables is not None:
        places = [layout.part_folder(kind, table) for kind, table in sorted(tables)]
    places += folders(wanted)
    base = revisions.revision(root, compared.versions.base.commit)
    there = revisions.entries(root, base, places) if places else {}
    there = compared.versions.ignored.serve(compared.both.old.ontology, there)
    parts = {path: one for path, one in there.items() if path not in touched and layout.parse_part(path)}
    files = {file: found for file in there if (found := _documents(ontology, file, wanted, touched))}
    content = revisions.contents(root, parts | {file: there[file] for file in files})
    read = {file: content.pop(file) for file in files if file in content}
    unchanged = {path: DocumentLines(raw, ()) for path, raw in content.items()}
    for file, raw in read.items():
        unchanged |= lines_of(files[file], raw)
    return unchanged


def _documents(
    ontology: Ontology, file: str, wanted: Collection[RecordType], touched: Collection[str]
) -> dict[str, RecordType]:
    own = parts_in(ontology, file)
    return {path: kind for path, kind in own if kind.source and kind in wanted and path not in touched}


def _tree(
    side: Described,
    unchanged: Mapping[str, bytes],
    own: Mapping[str, bytes],
    numbers: LineNumbers,
    known: Mapping[str, Part],
) -> Tree:
    """Of parts that are `known` and unchanged none is read again."""
    parts: dict[str, Part] = {}
    strange = []
    with collector_paused():
        for path, raw in {**unchanged, **own}.items():
            kind = type_at(side.ontology, path)
            if kind is None and layout.parse_part(path) is None:
                continue
            if kind is None:
                said, remedy = "no type of the ontology has this table or label", CODES["E_UNEXPECTED_FILE"].remedy
                strange.append(Finding("E_UNEXPECTED_FILE", said, path, remedy=remedy))
            elif path in unchanged and path in known and known[path].kind == kind:
                parts[path] = known[path]
            else:
                part = part_of(path, kind, raw, side.limits, Stamp(len(raw), 0, 0, 0))
                rows = (
                    PartRows.of(kind, path, placed_in_file(part.rows, numbers[path])) if path in numbers else part.rows
                )
                parts[path] = replace(part, rows=rows)
    return Tree(side.ontology, side.limits, parts, strange)
