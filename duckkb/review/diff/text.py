"""A difference for a terminal: a block a record, with changes marked inside its fields; or numbers by type.

Numbers can also be notices in the log of a job on GitHub.

    changed Note a  data/nodes/note/20261122/part_867.jsonl:3
        title: The quick [-red-]{+brown+} fox
      + size: 3
      - status: draft

Data cannot move the cursor, set colours or reorder a line: invisible characters are escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.review.diff.model import WORDS, Diff, DiffOptions, Numbers, OntologyChange, RecordChange
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.diff.words import Run, keep_near_changes
from duckkb.review.reports.budget import size
from duckkb.review.reports.findings import command, commands, summarize_groups
from duckkb.review.reports.markup import line, many, places
from duckkb.rules.invisible import visible

_OWN = (ID, CREATED_AT, UPDATED_AT)
_REACH = 60
_LONGEST = 400
"""Characters of a new or removed text, and around each change of another, without --full."""
_MOST = 20
"""Elements of a list that are shown singly, without --full."""
_SHORT = 200
_A_BYTE = 16
"""Characters compared by word for each byte of the budget, so that the budget limits the time too."""
_COLORS = {"gone": "31", "new": "32", "cut": "2", "head": "1", "error": "31", "warning": "33"}
_MARKS = {"gone": ("[-", "-]"), "new": ("{+", "+}")}


def render(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield the configuration, the records, the findings, then the numbers; a piece a block.

    What exceeds the budget is counted in the last line, with the command that continues.
    """
    formatter = _Shown(options)
    page = EntryPage(diff, options)
    for item in diff.ontology if page.is_first else ():
        yield page.spend("\n".join(formatter.configuration(item)))
    findings = [page.spend(formatter.finding(item)) for item in summarize_groups(page.tell_findings())]
    last = page.spend(total(diff.numbers))
    blocks = page.fit(
        page.changes,
        lambda change: (_measure_values(change), "\n".join(formatter.record(change))),
        lambda item: item[0] // _A_BYTE + size(item[1]),
    )
    yield from (text for _, text in blocks)
    yield from findings
    yield last
    if page.left:
        yield f"{page.left:,} of these records are not shown yet: {line(page.next)}"


def iter_count_lines(numbers: Numbers) -> Iterator[str]:
    """Yield counts by type and op, then the totals."""
    counts = numbers.counts
    wide = max(map(places, counts), default=0)
    for name, count in counts.items():
        yield f" {name}{' ' * (wide - places(name))} | {_format_counts(count)}"
    yield total(numbers)


def annotations(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield one workflow command a line."""
    yield from commands(diff.findings, diff.prefix)
    for name, count in diff.counts.items():
        yield command("notice", _format_counts(count), title=name)
    if diff.ontology:
        yield command("notice", "\n".join(change.what for change in diff.ontology), title="configuration")


def total(numbers: Numbers) -> str:
    """Return the totals: `3 records in 2 parts: 1 added, 2 changed; 1 finding`."""
    all_of = numbers.totals
    records = sum(all_of.values())
    phrases = [f"{many(records, 'record')} in {many(numbers.parts, 'part')}"]
    if records:
        phrases[0] += f": {_format_counts(all_of)}"
    if numbers.moved:
        phrases.append(f"{numbers.moved} only moved to another part")
    if numbers.ontology:
        phrases.append(many(numbers.ontology, "change") + " of the configuration")
    if numbers.respelled:
        phrases.append(f"{numbers.respelled} only written otherwise")
    if numbers.findings:
        phrases.append(many(numbers.findings, "finding"))
    return "; ".join(phrases)


def _format_counts(count: Mapping[str, int]) -> str:
    return ", ".join(f"{count[op]:,} {word}" for op, word in WORDS.items() if count[op])


def _measure_values(change: RecordChange) -> int:
    """Return the characters of the long values that both sides have."""
    both = ((field.before, field.after) for field in change.fields)
    sizes = (len(before) + len(after) for before, after in both if before is not None and after is not None)
    return sum(number for number in sizes if number >= _SHORT)


class _Shown:
    def __init__(self, options: DiffOptions) -> None:
        self._full, self._color = options.full, options.color

    def record(self, change: RecordChange) -> Iterator[str]:
        was = f" (was {line(change.was)})" if change.was is not None else ""
        name = f"{WORDS[change.op]} {change.type} {line(change.identity)}{was}"
        yield f"{self._paint(name, 'head')}  {change.place.path}:{change.place.line_no}"
        is_whole = change.op in ("insert", "delete")
        for field in change.fields:
            if not (is_whole and field.name in _OWN) or self._full:
                yield from self._format_leaves(leaves(field.name, field.before, field.after))

    def configuration(self, change: OntologyChange) -> Iterator[str]:
        yield self._paint(f"configuration: {line(change.what)}", "head") + f"  {line(change.path)}"
        yield from self._format_leaves(leaves("", change.before, change.after))

    def finding(self, finding: Finding) -> str:
        remedy = finding.remedy or (CODES[finding.code].remedy if finding.code in CODES else "")
        text = line(str(replace(finding, remedy=remedy)))
        return self._paint(text, "error" if finding.is_error else "warning")

    def _format_leaves(self, changed_leaves: Iterable[Leaf]) -> Iterator[str]:
        element_count, omitted_count = 0, 0
        for leaf in changed_leaves:
            element_count += leaf.is_element
            if leaf.is_element and element_count > _MOST and not self._full:
                omitted_count += 1
            else:
                yield from self._format_leaf(leaf)
        if omitted_count:
            yield f"      … {omitted_count:,} more elements (--full)"

    def _format_leaf(self, leaf: Leaf) -> Iterator[str]:
        mark = {"gone": "-", "new": "+", "changed": " "}[leaf.kind]
        name = f"{line(leaf.name)}: " if leaf.name else ""
        whole = leaf.kind != "changed"
        runs = leaf.runs()
        lines = _split_lines(runs if self._full else _truncate_runs(runs, whole))
        if len(lines) > 1 and name:
            yield self._paint(f"  {mark} {name.rstrip()}", leaf.kind if whole else "")
            yield from (self._row(f"  {mark}     ", runs, whole) for runs in lines)
        else:
            yield from (self._row(f"  {mark} {name}", runs, whole) for runs in lines)

    def _row(self, head: str, runs: Sequence[Run], whole: bool) -> str:
        """Return a line: new and removed values are marked at its beginning, other changes in place."""
        if whole:
            text = head + "".join(_cut(run) if run.kind == "cut" else visible(run.text) for run in runs)
            return self._paint(text, next((run.kind for run in runs if run.kind != "cut"), ""))
        return head + "".join(map(self._run, runs))

    def _run(self, run: Run) -> str:
        if run.kind == "cut":
            return self._paint(_cut(run), "cut")
        text = visible(run.text)
        if run.kind == "same":
            return text
        before, after = ("", "") if self._color else _MARKS[run.kind]
        return before + self._paint(text, run.kind) + after

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{_COLORS[style]}m{text}\x1b[m" if self._color and style in _COLORS and text else text


def _truncate_runs(runs: Sequence[Run], whole: bool) -> Sequence[Run]:
    if not whole:
        return keep_near_changes(runs, _REACH)
    pieces: list[Run] = []
    for run in runs:
        remainder = run.text[_LONGEST:]
        pieces += [run] if len(remainder) < _REACH else [Run(run.kind, run.text[:_LONGEST]), Run("cut", remainder)]
    return pieces


def _cut(run: Run) -> str:
    return f" … {len(run.text):,} characters … "


def _split_lines(runs: Iterable[Run]) -> list[list[Run]]:
    """Split the runs by line of the text; a cut stays one piece."""
    lines: list[list[Run]] = [[]]
    for run in runs:
        if run.kind == "cut":
            lines[-1].append(run)
            continue
        first, *next_lines = run.text.split("\n")
        lines[-1].append(Run(run.kind, first))
        lines += [[Run(run.kind, line)] for line in next_lines]
    return [[run for run in line if run.text] for line in lines]
