"""New records that nearly repeat another record (W_NEAR_DUPLICATE).

By words, two records are near when they share most of their runs of three words; Chinese characters count as
words. By meaning, they are near when their cached vectors are: no model runs for it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from duckkb.engine.base import Base
from duckkb.errors import Finding
from duckkb.indexing.chunk import read_value_at
from duckkb.ontology.model import EVERY, NodeType, RecordType
from duckkb.records import identity_text
from duckkb.review.diff.model import Diff, RecordChange
from duckkb.rules.view import make_finding
from duckkb.truth.files.part import StoredRow
from duckkb.truth.files.tree import Tree

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
