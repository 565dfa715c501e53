"""The findings of a change, for its reviewer.

First come findings of the touched files; then those that the files alone do not show: both versions are checked
against every rule, and the older version's findings are subtracted from the newer one's.

Only the records that can matter are read: the tables that the change touches, the edges that end in them, and
these edges' other ends; everything where the ontology changed.

Checks the answers of judged questions: an answer that is no record can never be found.

`check`: everything that is wrong in data/, each finding with a rule id, its place and a remedy.

New records that nearly repeat another record (W_NEAR_DUPLICATE).

By words, two records are near when they share most of their runs of three words; Chinese characters count as
words. By meaning, they are near when their cached vectors are: no model runs for it."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine import integrity, write
from duckkb.engine.base import Base
from duckkb.engine.field_statistics import Observed
from duckkb.engine.integrity import BaseView, describe_misplacement, findings, make_finding
from duckkb.index.text_chunks import read_value_at
from duckkb.ontology.model import EVERY, EdgeType, NodeType, Ontology, RecordType
from duckkb.ontology.ontology_files import questions_in
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import Document, pointer
from duckkb.review import impact_report
from duckkb.review.compared_versions import Comparison, Described
from duckkb.review.diff_model import Diff, LineNumbers, RecordChange, RecordPlace, Versions
from duckkb.storage import git_changes, git_facts, git_process, layout, repository, revisions
from duckkb.storage.document_parts import DocumentLines, folders, lines_of, parts_in, place_rows_in_file, type_at
from duckkb.storage.part import Part, PartRows, Stamp, StoredRow, part_of, pause_collector
from duckkb.storage.source_text import split
from duckkb.storage.tree import Tree
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, UsageError
from duckkb.types.invisible_characters import describe_mixed_scripts, invisible_in_change
from duckkb.types.records import CREATED_AT, identity_text
from duckkb.types.settings import Shrink

_QUESTION_CODE = "W_QUESTION"


def iter_lost_answers(base: Base, documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield a warning for each judged record that a question of these documents expects and the base does not have."""
    for document in documents:
        for number, question in enumerate(impact_report.read(questions_in(document))):
            kind = base.ontology.find(question.type)
            for name in question.expected if kind is not None else ():
                if kind is not None and not _is_there(base, kind, name):
                    message = f"the question {question.text!r} expects {kind.name} {name}, which does not exist"
                    yield document.finding(
                        _QUESTION_CODE,
                        pointer("questions", number, "expected", name),
                        message,
                        CODES[_QUESTION_CODE].remedy,
                    )


def _is_there(base: Base, kind: RecordType, name: str) -> bool:
    try:
        return base.tree.id_of(kind, base.validator(kind).coerce_identity(name)) is not None
    except UsageError:
        return False


_MOST_KEPT = 100_000


class CheckReport(Struct, frozen=True):
    """The findings of a check, in the order of path, line and rule, over `records` records.

    `prefix` is the folder of the base inside its repository, with a final `/`, or empty. `is_judged`: every
    rule was checked.
    """

    findings: tuple[Finding, ...]
    records: int
    prefix: str = ""
    is_judged: bool = True

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def check(base: Base) -> CheckReport:
    """Check the whole tree against every rule, and report faults of the caches. Changes nothing."""
    git_repository = git_process.find_repository(base.root)
    merge_state = git_changes.read_begun_merge(base.root)
    halfway = [Finding("E_MERGE_IN_PROGRESS", git_changes.WHAT, remedy=git_changes.REMEDY)] if merge_state else []
    report = check_records_alone(
        base, [*halfway, *git_facts.findings(base.root), *base.cache.findings, *_find_large_caches(base)]
    )
    return replace(report, prefix=git_repository.prefix if git_repository else "")


def check_records_alone(base: Base, besides: Iterable[Finding] = ()) -> CheckReport:
    """Check as `check` does, the files of records alone."""
    findings = [*besides, *base.tree.findings, *base.tree.unreadable, *_check_rules(base)]
    return CheckReport(sort_findings(findings), sum(base.tree.count(kind) for kind in base.ontology))


def _check_rules(base: Base) -> Iterable[Finding]:
    """Return the findings of all rules.

    A generation never changes, so it is checked once for all callers: a million records take half a minute.
    """
    if not base.is_generation:
        return integrity.findings(write.view(base))
    cached_findings, cache_key = base.whole.checked, (base.is_narrowed, frozenset(kind.name for kind in base.ontology))
    if cache_key not in cached_findings:
        findings = tuple(integrity.findings(write.view(base)))
        if len(findings) > _MOST_KEPT:
            return findings
        cached_findings[cache_key] = findings
    return cached_findings[cache_key]


def _find_large_caches(base: Base) -> Iterator[Finding]:
    for path in base.cache.team_paths():
        size = (base.root / path).lstat().st_size
        if size > layout.LFS_BYTES and (repository.attributes(base.root, path) or {}).get("filter") != "lfs":
            message = f"{size / 1e6:,.0f} MB, which git keeps whole each time that it changes"
            yield Finding("W_CACHE_SIZE", message, path, remedy=CODES["W_CACHE_SIZE"].remedy)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, in the order of path, line and rule."""
    return tuple(
        sorted(
            set(findings),
            key=lambda finding: (finding.path, finding.line, finding.code, finding.field, finding.message),
        )
    )


NEAR = 0.8
"""The least share of runs of words that two near records have in common."""
NEAR_IN_MEANING = 0.97
"""The least cosine, as the mean over a record's chunks of the best chunk of the other record.

Of 381 different records of duckkb's own base, the nearest two have 0.956 with the offline model.
"""
# More new records of one type are not reported one by one.
_MANY_IN_MEANING = 200
_CODE = "W_NEAR_DUPLICATE"
_RUN = 3
_LEAST_RUNS = 6
# More new records of one type than this are compared for equal words alone.
_MANY = 2_000
_FREQUENT = 50
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "|[^\\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

Runs = frozenset[tuple[str, ...]]


def near_duplicates(tree: Tree, diff: Diff) -> Iterator[Finding]:
    """Yield a W_NEAR_DUPLICATE for each new node near another node, which it names; of two new nodes for the
    later.
    """
    new_ids: dict[str, set[int]] = defaultdict(set)
    for change in diff.changes:
        if change.op == "insert" and change.kind == "node":
            new_ids[change.type].add(change.id)
    for kind in tree.ontology:
        if isinstance(kind, NodeType) and kind.name in new_ids:
            yield from _compare_texts(tree, kind, new_ids[kind.name])


def _compare_texts(tree: Tree, kind: RecordType, new_ids: set[int]) -> Iterator[Finding]:
    every = ((row, runs_of(kind, row.record.fields)) for row in tree.rows(kind) if row.record.id in new_ids)
    new = [(row, runs) for row, runs in every if runs]
    equal: dict[Runs, list[int]] = defaultdict(list)
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, (_, runs) in enumerate(new):
        equal[runs].append(number)
        for run in runs if len(new) <= _MANY else ():
            holders[run].append(number)
    nearest: dict[int, tuple[float, StoredRow]] = {}
    for row in tree.rows(kind) if new else ():
        runs = runs_of(kind, row.record.fields)
        for number in _find_candidates(runs, equal, holders):
            new_row, new_runs = new[number]
            if row.position == new_row.position or (row.record.id in new_ids and row.position > new_row.position):
                continue  # the record itself, or a later new one
            share = len(runs & new_runs) / len(runs | new_runs)
            if share >= NEAR and share > nearest.get(number, (0.0, row))[0]:
                nearest[number] = share, row
    for number, (share, near) in sorted(nearest.items()):
        who = _describe_row(near)
        message = (
            f"its texts are nearly those of {who}"
            if share == 1
            else f"{int(share * 100)} % of its texts appear in {who}"
        )
        yield make_finding(new[number][0], _CODE, message)


def _find_candidates(
    runs: Runs, equal: Mapping[Runs, list[int]], holders: Mapping[tuple[str, ...], list[int]]
) -> Collection[int]:
    """Return the numbers of the records with equal runs, and of those that share an infrequent run.

    The latter count only where enough of the runs occur in other records.
    """
    numbers = set(equal.get(runs, ())) if runs else set()
    common = holders.keys() & runs
    if runs and len(common) >= NEAR * len(runs):
        numbers.update(number for run in common if len(holders[run]) <= _FREQUENT for number in holders[run])
    return numbers


def _describe_row(row: StoredRow) -> str:
    return f"{row.record.type} {identity_text(row.record.identity)} ({row.path}:{row.line_no})"


def runs_of(kind: RecordType, fields: Mapping[str, Any]) -> Runs:
    """Return the runs of three words in the searched texts of a record; empty where there are too few to judge.

    Where no field is searched, all its texts count.
    """
    searched_names = [item.name for item in (*kind.full_text, *kind.vectors) if not item.given and item.name != EVERY]
    names = dict.fromkeys(searched_names or [name for name in fields if name not in kind.identity_fields])
    runs: set[tuple[str, ...]] = set()
    for name in names:
        value = read_value_at(fields, name)
        if isinstance(value, str):
            words = _WORD.findall(value.casefold())
            runs.update(zip(*(words[shift:] for shift in range(_RUN)), strict=False))
    return frozenset(runs) if len(runs) >= _LEAST_RUNS else frozenset()


def near_by_vector(base: Base, diff: Diff) -> Iterator[Finding]:
    """Yield a W_NEAR_DUPLICATE for each new node near another in the base, of types whose texts have vectors.

    Records that have the finding already, and records without vectors, are skipped.
    """
    reported_keys = {(item.type, item.identity) for item in diff.findings if item.code == _CODE}
    for kind in base.ontology.nodes.values():
        if not kind.has_text_vectors:
            continue
        new_changes = [item for item in diff.changes if item.op == "insert" and item.type == kind.name]
        numbers = {item.id for item in new_changes}
        for change in new_changes[:_MANY_IN_MEANING]:
            if (change.type, change.identity) not in reported_keys:
                yield from _compare_vectors(base, kind, change, numbers)


def _compare_vectors(base: Base, kind: RecordType, change: RecordChange, new_ids: set[int]) -> Iterator[Finding]:
    neighbors = nearest(base, kind, change.id, 1)
    row = base.tree.find_by_id(kind, change.id)
    if not neighbors or neighbors[0][1] < NEAR_IN_MEANING or row is None:
        return
    neighbor, cosine = neighbors[0]
    if (
        neighbor.record.id not in new_ids or neighbor.position < row.position
    ):  # of two new records the later is reported
        message = f"it means what {_describe_row(neighbor)} means (cosine {cosine:.3f})"
        yield make_finding(row, _CODE, message)


def nearest(
    base: Base, kind: RecordType, record_id: int, count: int, depth: int = 10
) -> list[tuple[StoredRow, float]] | None:
    """Return the records nearest to all chunks of another, with the mean cosine, nearest first; None where a
    vector is missing.

    For each chunk only the `depth` nearest records are compared: for any other its cosine counts as 0.
    """
    names = {item.name for item in kind.vectors}
    entries = base.rows(kind)[record_id].entries
    vectors = [entry.vector for entry in entries if entry.field in names or EVERY in names]
    sums: dict[int, float] = {}
    for vector in vectors:
        if vector is None:
            return None
        for hit in base.lanes(kind).vectors.ask(vector, depth):
            sums[hit.id] = sums.get(hit.id, 0.0) + hit.score
    sums.pop(record_id, None)
    best = sorted(sums, key=lambda number: (-sums[number], number))[:count]
    rows = ((base.tree.find_by_id(kind, number), sums[number] / len(vectors)) for number in best)
    return [(row, cosine) for row, cosine in rows if row is not None]


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
    from duckkb.review import guards

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
