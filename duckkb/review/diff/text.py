"""A difference for people at a terminal: a block a record, with what changed inside its fields; or in numbers, a line a type,
which are notices in the log of a job on GitHub.

    changed Note a  data/nodes/note/20261122/part_867.jsonl:3
        title: The quick [-red-]{+brown+} fox
      + size: 3
      - status: draft

Whatever the data holds, it cannot move the cursor, set colours or reorder a line: what is not seen comes as an escape.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.review.diff.model import WORDS, Diff, DiffOptions, Numbers, OntologyChange, RecordChange
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.diff.words import Run, around
from duckkb.review.reports.budget import size
from duckkb.review.reports.findings import command, commands, told
from duckkb.review.reports.markup import line, many, places
from duckkb.rules.invisible import visible

_OWN = (ID, CREATED_AT, UPDATED_AT)
_REACH = 60
_LONGEST = 400
"""Characters of a text that came or went whole, and around each change of another, without --full."""
_MOST = 20
"""Elements of a list that are told one by one, without --full."""
_SHORT = 200
_A_BYTE = 16
"""Characters that are compared by word for the price of a byte that is told, so that the budget bounds the time too."""
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
    last = page.spend(total(diff.numbers))
    made = page.fit(
        page.changes,
        lambda change: (_compared(change), "\n".join(shown.record(change))),
        lambda one: one[0] // _A_BYTE + size(one[1]),
    )
    yield from (text for _, text in made)
    yield from findings
    yield last
    if page.left:
        yield f"{page.left:,} of these records are not shown yet: {line(page.next)}"


def in_numbers(numbers: Numbers) -> Iterator[str]:
    """Counts by type and op, then of all together."""
    counts = numbers.counts
    wide = max(map(places, counts), default=0)
    for name, count in counts.items():
        yield f" {name}{' ' * (wide - places(name))} | {_counted(count)}"
    yield total(numbers)


def annotations(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """A workflow command a line."""
    yield from commands(diff.findings, diff.prefix)
    for name, count in diff.counts.items():
        yield command("notice", _counted(count), title=name)
    if diff.ontology:
        yield command("notice", "\n".join(change.what for change in diff.ontology), title="configuration")


def total(numbers: Numbers) -> str:
    """`3 records in 2 parts: 1 added, 2 changed; 1 finding`."""
    all_of = numbers.totals
    records = sum(all_of.values())
    said = [f"{many(records, 'record')} in {many(numbers.parts, 'part')}"]
    if records:
        said[0] += f": {_counted(all_of)}"
    if numbers.moved:
        said.append(f"{numbers.moved} only moved to another part")
    if numbers.ontology:
        said.append(many(numbers.ontology, "change") + " of the configuration")
    if numbers.respelled:
        said.append(f"{numbers.respelled} only written otherwise")
    if numbers.findings:
        said.append(many(numbers.findings, "finding"))
    return "; ".join(said)


def _counted(count: Mapping[str, int]) -> str:
    return ", ".join(f"{count[op]:,} {word}" for op, word in WORDS.items() if count[op])


def _compared(change: RecordChange) -> int:
    """The characters of values that both sides have and that are long."""
    both = ((field.before, field.after) for field in change.fields)
    sizes = (len(before) + len(after) for before, after in both if before is not None and after is not None)
    return sum(number for number in sizes if number >= _SHORT)


class _Shown:
    def __init__(self, options: DiffOptions) -> None:
        self._full, self._color = options.full, options.color

    def record(self, change: RecordChange) -> Iterator[str]:
        was = f" (was {line(change.was)})" if change.was is not None else ""
        name = f"{WORDS[change.op]} {change.type} {line(change.identity)}{was}"
        yield f"{self._painted(name, 'head')}  {change.place.path}:{change.place.line_no}"
        is_whole = change.op in ("insert", "delete")
        for field in change.fields:
            if not (is_whole and field.name in _OWN) or self._full:
                yield from self._leaves(leaves(field.name, field.before, field.after))

    def configuration(self, change: OntologyChange) -> Iterator[str]:
        yield self._painted(f"configuration: {line(change.what)}", "head") + f"  {line(change.path)}"
        yield from self._leaves(leaves("", change.before, change.after))

    def finding(self, finding: Finding) -> str:
        remedy = finding.remedy or (CODES[finding.code].remedy if finding.code in CODES else "")
        said = line(str(replace(finding, remedy=remedy)))
        return self._painted(said, "error" if finding.is_error else "warning")

    def _leaves(self, found: Iterable[Leaf]) -> Iterator[str]:
        told, left = 0, 0
        for leaf in found:
            told += leaf.is_element
            if leaf.is_element and told > _MOST and not self._full:
                left += 1
            else:
                yield from self._leaf(leaf)
        if left:
            yield f"      … {left:,} more elements (--full)"

    def _leaf(self, leaf: Leaf) -> Iterator[str]:
        mark = {"gone": "-", "new": "+", "changed": " "}[leaf.kind]
        name = f"{line(leaf.name)}: " if leaf.name else ""
        whole = leaf.kind != "changed"
        runs = leaf.runs()
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
