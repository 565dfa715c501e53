"""New records that nearly say what another record says (W_NEAR_DUPLICATE).

By words, two records are near when most of the runs of three words that either has stand in both; Chinese characters count as
words. By meaning, when the vectors that are cached are: no model runs for it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.engine.base import Base
from duckkb.errors import Finding
from duckkb.ontology.model import EVERY, NodeType, RecordType
from duckkb.records import identity_text
from duckkb.review.diff.model import Diff, RecordChange
from duckkb.rules.view import at
from duckkb.truth.files.part import StoredRow
from duckkb.truth.files.tree import Tree
from duckkb.values import dataclass, field

NEAR = 0.8
"""The least share of runs of words that two records have in common."""
NEAR_IN_MEANING = 0.97
"""The least cosine, as the mean over a record's chunks of the best chunk of the other record. Of 381 records of duckkb's own
base, all different, the nearest two have 0.956 with the offline model."""
# Nobody reads more new records of one type than this one by one.
_MANY_IN_MEANING = 200
_CODE = "W_NEAR_DUPLICATE"
_RUN = 3
_LEAST_RUNS = 6
# More new records of one type than this are compared for equal words alone: nobody reads so many.
_MANY = 2_000
_FREQUENT = 50
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "|[^\\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

Runs = frozenset[tuple[str, ...]]


def near_duplicates(tree: Tree, diff: Diff) -> Iterator[Finding]:
    """A W_NEAR_DUPLICATE for each new node that is near another one, which it names; of two new ones for the later."""
    added: dict[str, set[int]] = defaultdict(set)
    for change in diff.changes:
        if change.op == "insert" and change.kind == "node":
            added[change.type].add(change.id)
    for kind in tree.ontology:
        if isinstance(kind, NodeType) and kind.name in added:
            yield from _of_type(tree, kind, added[kind.name])


def _of_type(tree: Tree, kind: RecordType, added: set[int]) -> Iterator[Finding]:
    known = _Known()
    rows = [row for row in tree.rows(kind) if row.record.id in added]
    for row in rows:
        if runs := runs_of(kind, row.record.fields):
            known.add(row, runs, by_runs=len(rows) <= _MANY)
    if not known.rows:
        return
    for row in tree.rows(kind):
        if runs := runs_of(kind, row.record.fields):
            known.compare(row, runs, is_new=row.record.id in added)
    for number, (share, other) in sorted(known.nearest.items()):
        who = _named(other)
        said = f"its texts say what {who} says" if share == 1 else f"{int(share * 100)} % of its texts stand in {who}"
        yield at(known.rows[number], _CODE, said)


def _named(row: StoredRow) -> str:
    return f"{row.record.type} {identity_text(row.record.identity)} ({row.path}:{row.line_no})"


@dataclass
class _Known:
    """The new records by their runs of words, and for each the nearest other that was met."""

    rows: list[StoredRow] = field(default_factory=list)
    runs: list[Runs] = field(default_factory=list)
    holders: dict[tuple[str, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    equal: dict[Runs, list[int]] = field(default_factory=lambda: defaultdict(list))
    nearest: dict[int, tuple[float, StoredRow]] = field(default_factory=dict)

    def add(self, row: StoredRow, runs: Runs, *, by_runs: bool) -> None:
        number = len(self.rows)
        self.rows.append(row)
        self.runs.append(runs)
        self.equal[runs].append(number)
        for run in runs if by_runs else ():
            self.holders[run].append(number)

    def compare(self, row: StoredRow, runs: Runs, *, is_new: bool) -> None:
        """Note the row where it is the nearest so far; a new one only for those that come after it."""
        for number in {*self.equal.get(runs, ()), *self._candidates(runs)}:
            other = self.rows[number]
            if other.position == row.position or (is_new and row.position > other.position):
                continue
            share = len(runs & self.runs[number]) / len(runs | self.runs[number])
            if share >= NEAR and share > self.nearest.get(number, (0.0, row))[0]:
                self.nearest[number] = share, row

    def _candidates(self, runs: Runs) -> Iterator[int]:
        """Those that have enough of the runs that are not frequent."""
        common = self.holders.keys() & runs
        if len(common) < NEAR * len(runs):
            return
        counts: Counter[int] = Counter()
        for run in common:
            if len(holders := self.holders[run]) <= _FREQUENT:
                counts.update(holders)
        yield from counts


def runs_of(kind: RecordType, fields: Mapping[str, Any]) -> Runs:
    """The runs of three words in the searched texts of a record (all its texts where no field is searched); empty where
    there are too few to tell."""
    named = [item.name for item in (*kind.full_text, *kind.vectors) if not item.given and item.name != EVERY]
    names = dict.fromkeys(named or [name for name in fields if name not in kind.identity_fields])
    found: set[tuple[str, ...]] = set()
    for name in names:
        value = fields.get(name)
        if isinstance(value, str):
            words = _WORD.findall(value.casefold())
            found.update(zip(*(words[shift:] for shift in range(_RUN)), strict=False))
    return frozenset(found) if len(found) >= _LEAST_RUNS else frozenset()


def near_by_vector(base: Base, diff: Diff) -> Iterator[Finding]:
    """A W_NEAR_DUPLICATE for each new node that is near one in the base, of types whose texts have vectors; those that have
    the finding already, and records without vectors, are passed over."""
    told = {(one.type, one.identity) for one in diff.findings if one.code == _CODE}
    for kind in base.ontology.nodes.values():
        if not kind.has_text_vectors:
            continue
        added = [one for one in diff.changes if one.op == "insert" and one.type == kind.name]
        numbers = {one.id for one in added}
        for change in added[:_MANY_IN_MEANING]:
            if (change.type, change.identity) not in told:
                yield from _near(base, kind, change, numbers)


def _near(base: Base, kind: RecordType, change: RecordChange, added: set[int]) -> Iterator[Finding]:
    found = _nearest(base, kind, change.id)
    row = base.tree.by_id(kind, change.id)
    if found is None or found[1] < NEAR_IN_MEANING or row is None:
        return
    other, cosine = found
    if other.record.id not in added or other.position < row.position:  # of two new records the later one is told
        said = f"it means what {_named(other)} means (cosine {cosine:.3f})"
        yield at(row, _CODE, said)


def _nearest(base: Base, kind: RecordType, record_id: int) -> tuple[StoredRow, float] | None:
    """The record nearest to all chunks of another one, with the mean cosine; None where a vector is missing."""
    names = {item.name for item in kind.vectors}
    entries = base.rows(kind)[record_id].entries
    vectors = [entry.vector for entry in entries if entry.field in names or EVERY in names]
    sums: dict[int, float] = {}
    for vector in vectors:
        if vector is None:
            return None
        for hit in base.lanes(kind).vectors.ask(vector, 10):
            sums[hit.id] = sums.get(hit.id, 0.0) + hit.score
    sums.pop(record_id, None)
    if not sums:
        return None
    best = max(sums, key=lambda number: (sums[number], -number))
    row = base.tree.by_id(kind, best)
    return (row, sums[best] / len(vectors)) if row is not None else None
