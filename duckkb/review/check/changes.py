"""The findings of a change, for its reviewer.

First come findings of the touched files; then those that the files alone do not show: both versions are checked
against every rule, and the older version's findings are subtracted from the newer one's.

Only the records that can matter are read: the tables that the change touches, the edges that end in them, and
these edges' other ends; everything where the ontology changed.
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
from duckkb.rules.integrity import describe_misplacement, findings
from duckkb.rules.invisible import describe_mixed_scripts, invisible_in_change
from duckkb.rules.view import BaseView
from duckkb.settings import Shrink
from duckkb.truth import layout
from duckkb.truth.files.document_parts import DocumentLines, folders, lines_of, parts_in, place_rows_in_file, type_at
from duckkb.truth.files.part import Part, PartRows, Stamp, StoredRow, part_of, pause_collector
from duckkb.truth.files.source_text import split
from duckkb.truth.files.tree import Tree
from duckkb.truth.git import revisions

_INDICES = "data/indices/"
_Table = tuple[layout.Kind, str]
_Tables = Collection[_Table] | None
"""Tables by kind and name; None for all."""


def findings_of(
    compared: Comparison, diff: Diff, *, whole: bool, allow_shrink: bool, allow_weaker: bool
) -> tuple[Finding, ...]:
    """Return the findings of a change, each once, by place; of duplicates the first counts.

    With `whole`, both versions are checked against every rule, and the files that a gate depends on are
    compared. `allow_shrink` permits mass deletions; with `allow_weaker`, removed rules are no error.
    """
    from duckkb.review.check import guards

    all_findings = [*compared.both.findings, *diff.findings, *_check_caches(compared.versions)]
    all_findings += [*_check_mass_changes(compared, diff, allow_shrink), *_check_records(diff)]
    if whole:
        all_findings += [*_find_regressions(compared, diff), *guards.guard_files(compared)]
    all_findings += guards.guard_configuration(compared.both, diff.changes)
    once: dict[tuple[Any, ...], Finding] = {}
    for finding in guards.allow_weakening(all_findings) if allow_weaker else all_findings:
        once.setdefault(
            (finding.path, finding.line, finding.code, finding.field, finding.type, finding.identity), finding
        )
    return tuple(once[key] for key in sorted(once))


def _check_caches(versions: Versions) -> Iterator[Finding]:
    touched_paths = [path for path in versions.paths if path.startswith(_INDICES)]
    if touched_paths:
        many = f" ({len(touched_paths):,} files)" if len(touched_paths) > 1 else ""
        message = f"the team's cache is made on the main branch{many}; it cannot be reviewed"
        remedy = f"git checkout {versions.base.commit[:12]} -- {_INDICES}"
        yield Finding("W_CACHE_IN_PR", message, touched_paths[0], remedy=remedy)


def _check_mass_changes(comparison: Comparison, diff: Diff, allow_shrink: bool) -> Iterator[Finding]:
    """Check the number of changes by the older version's limits.

    The size of a table is read only where many of its records changed.
    """
    moved_ids = {
        (change.kind, change.id) for change in diff.changes if change.op == "insert"
    }  # for example of a renamed collection
    counts = Counter(
        (change.kind, change.table, change.type, change.op == "delete")
        for change in diff.changes
        if change.before is not None and not (change.op == "delete" and (change.kind, change.id) in moved_ids)
    )
    for (kind, table, name, is_deletion), number in sorted(counts.items()):
        limit = comparison.both.old.shrink if is_deletion else Shrink()
        if number <= limit.records:
            continue
        base = revisions.revision(comparison.root, comparison.versions.base.commit)
        source = of.source if (of := comparison.both.old.ontology.find(name)) is not None else None
        if source is not None and kind == "edge":
            continue  # links follow from the documents
        before = revisions.lines(comparison.root, base, layout.part_folder(kind, table))
        if source is not None:
            before = sum(
                type_at(comparison.both.old.ontology, file) is of
                and not comparison.versions.ignored.leaves_out(source, file)
                for file in revisions.entries(comparison.root, base, [source.path])
            )
        if number > limit.most(before):
            code = ("W_MASS_DELETE" if allow_shrink else "E_SHRINK") if is_deletion else "W_MASS_CHANGE"
            message = f"the change {'removes' if is_deletion else 'edits'} {number:,} of {before:,} records"
            yield Finding(code, message, remedy=CODES[code].remedy, type=name)


def _check_records(diff: Diff) -> Iterator[Finding]:
    new_identities = {
        change.was: change.identity for change in diff.changes if change.kind == "node" and change.was is not None
    }
    for change in (*diff.changes, *diff.moves):
        if (at := change.after) is not None:
            for code, message, field in _check_record(change, at, new_identities):
                remedy = CODES[code].remedy
                yield Finding(code, message, at.path, at.line_no, field, remedy, change.type, change.identity)


def _check_record(
    change: RecordChange, after: RecordPlace, new_identities: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield code, message and field of each finding about a record that is present."""
    if change.was is not None and not _is_follow_up(change, change.was, new_identities):
        yield "W_RENAMED", f"was {change.was}: links and citations by the old identity lead nowhere", ""
    for field in change.fields if change.op != "insert" else ():
        if field.name == CREATED_AT:
            yield "W_CREATED_AT", f"was {field.before}, is {field.after}", f"/{CREATED_AT}"
    creation = split(after.line).get(CREATED_AT)
    if creation and (message := describe_misplacement(after.path, json.loads(creation[1]))):
        yield "E_MISPLACED", message, ""
    for field in change.fields:
        if message := invisible_in_change(field.before, field.after):
            yield "W_INVISIBLE", message, pointer(field.name)
    if change.op in ("insert", "rename") and (message := describe_mixed_scripts(change.identity)):
        yield "W_INVISIBLE", message, ""


def _is_follow_up(change: RecordChange, was: str, nodes: Mapping[str, str]) -> bool:
    """Return whether an edge only follows a renamed node, and is otherwise unchanged."""
    if change.kind != "edge":
        return False
    ends = [nodes.get(str(end), end) if isinstance(end, str | int) else end for end in json.loads(was)]
    return bool(ends == json.loads(change.identity))


def _find_regressions(comparison: Comparison, diff: Diff) -> Iterator[Finding]:
    """Yield the newer version's errors and warnings that the older one lacks, or that concern changed records.

    Then yield new records that nearly repeat another.
    """
    old, new = trees(comparison)
    _mark_cut_off(new, comparison.versions)
    new_findings, before = (
        [*tree.findings, *tree.unreadable, *findings(_TouchedView(tree, comparison))] for tree in (new, old)
    )
    touched_records = {(change.type, name) for change in diff.changes for name in (change.identity, change.was) if name}
    known_counts = Counter(map(_build_key, before))
    for finding in new_findings:
        key = _build_key(finding)
        known_counts[key] -= 1
        if known_counts[key] < 0 or (finding.type, finding.identity) in touched_records:
            yield finding
    yield from near_duplicates(new, diff)


def _build_key(finding: Finding) -> tuple[str, ...]:
    """Return a key of a finding that does not depend on its line number."""
    if finding.type:
        return finding.code, finding.type, finding.identity, finding.field
    return finding.code, finding.path, finding.message


def _mark_cut_off(new: Tree, versions: Versions) -> None:
    """Note a finding for a part whose records the change removed without removing the file."""
    for path, part in new.parts.items():
        if not part.rows and not part.findings and _is_cut_off(path, versions):
            source = versions.base.commit[:12]
            remedy = f"`git checkout {source} -- {path}`, or `git rm {path}` if all its records are to go"
            cut = Finding("E_EMPTY_PART", "no record is in it: the change cut it off", path, remedy=remedy)
            new.parts[path] = replace(part, findings=(cut,))


def _is_cut_off(path: str, versions: Versions) -> bool:
    return bool(versions.old.get(path, b"").strip()) and layout.is_cut_off(versions.new.get(path, b""))


class _TouchedView(BaseView):
    """A view of the records of one version that are checked.

    Lines of unchanged parts are the same in both versions.
    """

    def __init__(self, tree: Tree, compared: Comparison) -> None:
        super().__init__(tree, lambda kind: Validator(kind, tree.ontology), self._measure_lengths)
        self._touched = _list_touched_tables(compared)
        self._paths = None if self._touched is None else frozenset(compared.versions.paths)

    @property
    def kinds(self) -> Iterable[RecordType]:
        return _select_types(self.tree.ontology, self._touched)

    def parts(self, kind: RecordType) -> Sequence[Part]:
        return [part for part in super().parts(kind) if self._paths is None or part.path in self._paths]

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        return (row for row in self.select_rows_to_check(kind) if self._paths is None or row.path in self._paths)

    def _measure_lengths(self, kind: RecordType) -> Mapping[str, int]:
        return Observed(kind, (row.record for row in self.select_rows_to_check(kind))).lengths()


def trees(compared: Comparison, also: Collection[_Table] = ()) -> tuple[Tree, Tree]:
    """Return the older and the newer version of the records that a change may affect.

    These are the tables that it touches, the edges that end in them, these edges' other ends, and the tables in
    `also`; everything where the ontology changed. Parts that belong to no type become findings.
    """
    both, tables = compared.both, _list_touched_tables(compared)
    if tables is not None:
        kinds = _select_types(both.new.ontology, tables)
        ends = [both.new.ontology.nodes[name] for kind in kinds for name in _end_types(kind)]
        tables = {*tables, *also, *((kind.kind, kind.table) for kind in (*kinds, *ends))}
    unchanged_parts = _read_unchanged_parts(compared, tables)
    content = {path: part.data for path, part in unchanged_parts.items()}
    same_lines = {path: part.numbers for path, part in unchanged_parts.items() if part.numbers}
    old_lines, new_lines = ({**same_lines, **numbers} for numbers in compared.versions.numbers)
    new = _build_tree(both.new, content, compared.versions.new, new_lines, {})
    return _build_tree(both.old, content, compared.versions.old, old_lines, new.parts), new


def _list_touched_tables(comparison: Comparison) -> _Tables:
    if comparison.both.old.ontology != comparison.both.new.ontology:
        return None
    addresses = map(layout.parse_part, comparison.versions.paths)
    kinds = (type_at(comparison.both.new.ontology, path) for path in comparison.versions.paths)
    return {(item.kind, item.table) for item in (*addresses, *kinds) if item is not None}


def _select_types(ontology: Ontology, tables: _Tables) -> list[RecordType]:
    """Return the types of the tables, and those of the edges that end in them."""
    nodes = {kind.name for kind in ontology if tables is None or (kind.kind, kind.table) in tables}
    return [kind for kind in ontology if kind.name in nodes or nodes & set(_end_types(kind))]


def _end_types(kind: RecordType) -> tuple[str, ...]:
    return (*kind.from_types, *kind.to_types) if isinstance(kind, EdgeType) else ()


def _read_unchanged_parts(comparison: Comparison, tables: _Tables) -> dict[str, DocumentLines]:
    """Return the parts that are equal in both versions; documents as lines."""
    ontology, root, touched_paths = comparison.both.new.ontology, comparison.root, set(comparison.versions.paths)
    selected_kinds = [kind for kind in ontology if tables is None or (kind.kind, kind.table) in tables]
    places = [f"{layout.DATA}/{folder}" for folder in layout.FOLDERS.values()]
    if tables is not None:
        places = [layout.part_folder(kind, table) for kind, table in sorted(tables)]
    places += folders(selected_kinds)
    base = revisions.revision(root, comparison.versions.base.commit)
    there = revisions.entries(root, base, places) if places else {}
    there = comparison.versions.ignored.serve(comparison.both.old.ontology, there)
    parts = {path: entry for path, entry in there.items() if path not in touched_paths and layout.parse_part(path)}
    files = {
        file: documents
        for file in there
        if (documents := _find_documents(ontology, file, selected_kinds, touched_paths))
    }
    content = revisions.contents(root, parts | {file: there[file] for file in files})
    read = {file: content.pop(file) for file in files if file in content}
    unchanged_parts = {path: DocumentLines(raw, ()) for path, raw in content.items()}
    for file, raw in read.items():
        unchanged_parts |= lines_of(files[file], raw)
    return unchanged_parts


def _find_documents(
    ontology: Ontology, file: str, selected_kinds: Collection[RecordType], touched_paths: Collection[str]
) -> dict[str, RecordType]:
    file_parts = parts_in(ontology, file)
    return {
        path: kind for path, kind in file_parts if kind.source and kind in selected_kinds and path not in touched_paths
    }


def _build_tree(
    side: Described,
    unchanged_content: Mapping[str, bytes],
    side_content: Mapping[str, bytes],
    numbers: LineNumbers,
    known_parts: Mapping[str, Part],
) -> Tree:
    """Build the tree of one side; unchanged parts among `known_parts` are not read again."""
    parts: dict[str, Part] = {}
    strange = []
    with pause_collector():
        for path, raw in {**unchanged_content, **side_content}.items():
            kind = type_at(side.ontology, path)
            if kind is None and layout.parse_part(path) is None:
                continue
            if kind is None:
                message, remedy = "no type of the ontology has this table or label", CODES["E_UNEXPECTED_FILE"].remedy
                strange.append(Finding("E_UNEXPECTED_FILE", message, path, remedy=remedy))
            elif path in unchanged_content and path in known_parts and known_parts[path].kind == kind:
                parts[path] = known_parts[path]
            else:
                part = part_of(path, kind, raw, side.limits, Stamp(len(raw), 0, 0, 0))
                rows = (
                    PartRows.from_rows(kind, path, place_rows_in_file(part.rows, numbers[path]))
                    if path in numbers
                    else part.rows
                )
                parts[path] = replace(part, rows=rows)
    return Tree(side.ontology, side.limits, parts, strange)
