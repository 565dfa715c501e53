"""A difference for people at a terminal: a block a record, with what changed inside its fields.

    changed Note a  data/nodes/note/20261122/part_867.jsonl:3
        title: The quick [-red-]{+brown+} fox
      + size: 3
      - status: draft

Whatever the data holds, it cannot move the cursor, set colours or reorder a line: what is not seen comes as an escape.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.review.diff import stat
from duckkb.review.diff.model import Diff, DiffOptions, FieldChange, OntologyChange, RecordChange
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.diff.words import Run, around
from duckkb.review.reports.findings import told
from duckkb.review.reports.markup import line
from duckkb.rules.invisible import visible

_OWN = (ID, CREATED_AT, UPDATED_AT)
_REACH = 60
_LONGEST = 400
"""Characters of a text that came or went whole, and around each change of another, without --full."""
_MOST = 20
"""Elements of a list that are told one by one, without --full."""
_MOST_COMPARED = 8_000_000
"""Characters of changed values that are compared word by word, without --full; those below `_SHORT` do not count."""
_SHORT = 200
_COLORS = {"gone": "31", "new": "32", "cut": "2", "head": "1", "error": "31", "warning": "33"}
_MARKS = {"gone": ("[-", "-]"), "new": ("{+", "+}")}


def render(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """The configuration, the records, the findings, then all of it in numbers; a piece a block. What the budget has no
    room for is counted in the last line, with the command that goes on."""
    shown = _Shown(options)
    page = EntryPage(diff, options)
    for one in diff.ontology if page.is_first else ():
        yield page.spend("\n".join(shown.configuration(one)))
    findings = [page.spend(shown.finding(one)) for one in told(page.tell_findings())]
    total = page.spend(stat.total(diff.numbers))
    yield from page.fit(page.changes, lambda change: "\n".join(shown.record(change)))
    yield from findings
    if shown.coarse:
        yield f"{shown.coarse:,} long fields are compared from their first to their last difference alone (--full: by word)"
    yield total
    if page.left:
        yield f"{page.left:,} of these records are not shown yet: {line(page.next)}"


class _Shown:
    def __init__(self, options: DiffOptions) -> None:
        self._full, self._color = options.full, options.color
        self._compared, self.coarse = 0, 0

    def record(self, change: RecordChange) -> Iterator[str]:
        was = f" (was {line(change.was)})" if change.was is not None else ""
        name = f"{stat.WORDS[change.op]} {change.type} {line(change.identity)}{was}"
        yield f"{self._painted(name, 'head')}  {change.place.path}:{change.place.line_no}"
        is_whole = change.op in ("insert", "delete")
        for field in change.fields:
            if not (is_whole and field.name in _OWN) or self._full:
                inside = self._is_compared(field)
                yield from self._leaves(leaves(field.name, field.before, field.after), inside)

    def configuration(self, change: OntologyChange) -> Iterator[str]:
        yield self._painted(f"configuration: {line(change.what)}", "head") + f"  {line(change.path)}"
        yield from self._leaves(leaves("", change.before, change.after))

    def finding(self, finding: Finding) -> str:
        remedy = finding.remedy or (CODES[finding.code].remedy if finding.code in CODES else "")
        said = line(str(replace(finding, remedy=remedy)))
        return self._painted(said, "error" if finding.is_error else "warning")

    def _is_compared(self, field: FieldChange) -> bool:
        """Whether there is room to compare a field by word: nobody reads that of very many long ones."""
        size = len(field.before or "") + len(field.after or "")
        if field.before is None or field.after is None or self._full or size < _SHORT:
            return True
        self._compared += size
        is_coarse = self._compared > _MOST_COMPARED
        self.coarse += is_coarse
        return not is_coarse

    def _leaves(self, found: Iterable[Leaf], inside: bool = True) -> Iterator[str]:
        told, left = 0, 0
        for leaf in found:
            told += leaf.is_element
            if leaf.is_element and told > _MOST and not self._full:
                left += 1
            else:
                yield from self._leaf(leaf, leaf.runs(inside=inside))
        if left:
            yield f"      … {left:,} more elements (--full)"

    def _leaf(self, leaf: Leaf, runs: Sequence[Run]) -> Iterator[str]:
        mark = {"gone": "-", "new": "+", "changed": " "}[leaf.kind]
        name = f"{line(leaf.name)}: " if leaf.name else ""
        whole = leaf.kind != "changed"
        lines = _lines(runs if self._full else _shortened(runs, whole))
        if len(lines) > 1 and name:
            yield self._painted(f"  {mark} {name.rstrip()}", leaf.kind if whole else "")
            yield from (self._row(f"  {mark}     ", runs, whole) for runs in lines)
        else:
            yield from (self._row(f"  {mark} {name}", runs, whole) for runs in lines)

    def _row(self, head: str, runs: Sequence[Run], whole: bool) -> str:
        """What came or went whole is marked at its beginning, other changes where they are."""
        if whole:
            text = head + "".join(_cut(run) if run.kind == "cut" else visible(run.text) for run in runs)
            return self._painted(text, next((run.kind for run in runs if run.kind != "cut"), ""))
        return head + "".join(map(self._run, runs))

    def _run(self, run: Run) -> str:
        if run.kind == "cut":
            return self._painted(_cut(run), "cut")
        text = visible(run.text)
        if run.kind == "same":
            return text
        before, after = ("", "") if self._color else _MARKS[run.kind]
        return before + self._painted(text, run.kind) + after

    def _painted(self, text: str, what: str) -> str:
        return f"\x1b[{_COLORS[what]}m{text}\x1b[m" if self._color and what in _COLORS and text else text


def _shortened(runs: Sequence[Run], whole: bool) -> Sequence[Run]:
    if not whole:
        return around(runs, _REACH)
    found: list[Run] = []
    for run in runs:
        rest = run.text[_LONGEST:]
        found += [run] if len(rest) < _REACH else [Run(run.kind, run.text[:_LONGEST]), Run("cut", rest)]
    return found


def _cut(run: Run) -> str:
    return f" … {len(run.text):,} characters … "


def _lines(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs by line of the text; what is cut out stays one piece."""
    found: list[list[Run]] = [[]]
    for run in runs:
        if run.kind == "cut":
            found[-1].append(run)
            continue
        first, *others = run.text.split("\n")
        found[-1].append(Run(run.kind, first))
        found += [[Run(run.kind, line)] for line in others]
    return [[run for run in line if run.text] for line in found]
