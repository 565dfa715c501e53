"""A difference for a terminal: a block a record, with changes marked inside its fields; or numbers by type.

Numbers can also be notices in the log of a job on GitHub.

    changed Note a  data/nodes/note/20261122/part_867.jsonl:3
        title: The quick [-red-]{+brown+} fox
      + size: 3
      - status: draft

Data cannot move the cursor, set colours or reorder a line: invisible characters are escaped.

A difference as a comment on a pull request: numbers, findings, then the records, changed ones first.

All data stands in spans or blocks of code, so that it mentions nobody, links nowhere and injects nothing. What
exceeds the budget is counted by type."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from duckkb.review.diff_model import OPS, WORDS, Diff, DiffOptions, FieldChange, Numbers, OntologyChange, RecordChange
from duckkb.review.diff_report import EntryPage
from duckkb.review.record_changes import Leaf, Run, keep_near_changes, leaves
from duckkb.review.report_formats import (
    ReportSection,
    command,
    commands,
    count_findings,
    fit_sections,
    size,
    summarize_groups,
)
from duckkb.review.report_markup import block, cell, cut, escape_line, finding_line, link_text, many, places, span
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding
from duckkb.types.invisible_characters import visible
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT

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


def render_text(diff: Diff, options: DiffOptions) -> Iterator[str]:
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
        yield f"{page.left:,} of these records are not shown yet: {escape_line(page.next)}"


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
        was = f" (was {escape_line(change.was)})" if change.was is not None else ""
        name = f"{WORDS[change.op]} {change.type} {escape_line(change.identity)}{was}"
        yield f"{self._paint(name, 'head')}  {change.place.path}:{change.place.line_no}"
        is_whole = change.op in ("insert", "delete")
        for field in change.fields:
            if not (is_whole and field.name in _OWN) or self._full:
                yield from self._format_leaves(leaves(field.name, field.before, field.after))

    def configuration(self, change: OntologyChange) -> Iterator[str]:
        yield self._paint(f"configuration: {escape_line(change.what)}", "head") + f"  {escape_line(change.path)}"
        yield from self._format_leaves(leaves("", change.before, change.after))

    def finding(self, finding: Finding) -> str:
        remedy = finding.remedy or (CODES[finding.code].remedy if finding.code in CODES else "")
        text = escape_line(str(replace(finding, remedy=remedy)))
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
        name = f"{escape_line(leaf.name)}: " if leaf.name else ""
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


_INLINE = 60
_WIDTH = 96
_LINES_OF_FIELD = 60
_FIELDS = 30
_BRIEF_FIELDS = 3
_DETAIL = (_LINES_OF_FIELD, 6, 0)
"""Limits of lines for a text of a new or deleted record.

The first limit with which everything fits is used; 0: its first fields alone.
"""
_ROOM = "There is more than a comment has room for: "


def render_markdown(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield the comment, of at most `options.budget` bytes; where something is left out, the last line is the next
    command.
    """
    yield fit(diff, options)[0]


def fit(diff: Diff, options: DiffOptions) -> tuple[str, int]:
    """Return the comment, and the number of records that it leaves out."""
    diff = diff.rooted
    page = EntryPage(diff, options)
    changed_numbers, removed_numbers, added_numbers = (
        [number for number, change in enumerate(diff.changes, 1) if change.op in ops]
        for ops in (("update", "rename"), ("delete",), ("insert",))
    )
    before = len(diff.findings)
    pending_numbers = [
        [number for number in some if before + number > page.start]
        for some in (changed_numbers, removed_numbers, added_numbers)
    ]
    head = [*_build_summary_sections(diff, options)] if page.is_first else []

    def end(shown_counts: Sequence[int]) -> str:
        """Return the last line, which continues at the first record that is not shown.

        A record of another section may then be shown again.
        """
        remaining_numbers = [
            some[count]
            for some, count in zip(pending_numbers, shown_counts[-len(pending_numbers) :], strict=True)
            if count < len(some)
        ]
        page.told = before + (min(remaining_numbers) - 1 if remaining_numbers else len(diff.changes))
        if not remaining_numbers:
            return ""
        return f"\n{_ROOM}{span(page.next if page.told > max(page.start, before) else options.again('--full'))}\n"

    room = size(options.again(f"--after {len(diff.changes) + before}-00000000")) + len(_ROOM) + 20
    start, text = _start(diff, options), ""
    total = before + len(diff.changes)
    for detail in _DETAIL:
        sections = [*head, *_build_record_sections(diff, pending_numbers, options, detail)]
        text = fit_sections(start, sections, options.budget, end, room if any(pending_numbers) else 0).rstrip("\n")
        if page.told == total:
            break
    return text, total - page.told


def _start(diff: Diff, options: DiffOptions) -> str:
    totals = diff.numbers.totals
    phrases = [f"{totals[op]:,} {WORDS[op]}" for op in OPS if totals[op]]
    phrases += [f"{len(diff.ontology):,} in the configuration"] if diff.ontology else []
    phrases += [f"{diff.respelled:,} only written otherwise"] if diff.respelled else []
    finding_counts = count_findings(diff.findings)
    sides = [
        link_text(cut(label.shown, 120), options.links.commit(is_old=is_old) if options.links else "")
        for label, is_old in ((diff.base, True), (diff.head, False))
    ]
    between = f"From {sides[0]} to {sides[1]}"
    tail = f"; **{' and '.join(finding_counts)}**" if finding_counts else ""
    return f"### Knowledge: {', '.join(phrases) or 'no record differs'}\n\n{between}{tail}.\n\n"


def _build_summary_sections(diff: Diff, options: DiffOptions) -> Iterator[ReportSection]:
    """Yield the numbers by type, most changes first; the findings, and the changes of the configuration."""
    counts = sorted(diff.counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    rows = [f"| {cell(name)} | {' | '.join(f'{count[op]:,}' for op in OPS)} |" for name, count in counts]
    head = f"| type | {' | '.join(WORDS[op] for op in OPS)} |\n| --- |{' ---: |' * len(OPS)}"
    yield ReportSection(head, lambda: rows, [name for name, _ in counts], 0.1)
    sorted_findings = sorted(summarize_groups(diff.findings), key=lambda item: not item.is_error)

    def listed(finding: Finding) -> str:
        links = options.links if finding.path and finding.line else None
        return finding_line(finding, links.line(finding.path, finding.line, is_old=False) if links else "")

    yield ReportSection(
        "#### Findings\n", lambda: map(listed, sorted_findings), [item.code for item in sorted_findings], 0.25
    )
    kinds = [change.what.split(" ")[0] for change in diff.ontology]
    yield ReportSection("\n#### Configuration\n", lambda: map(_format_ontology_change, diff.ontology), kinds, 0.1)


def _build_record_sections(
    diff: Diff, numbers: Sequence[Sequence[int]], options: DiffOptions, detail: int
) -> Iterator[ReportSection]:
    """Yield the changed, deleted and new records, by their numbers among all changes."""
    changed_records, removed_records, added_records = (
        [diff.changes[number - 1] for number in some] for some in numbers
    )
    kinds = [[change.type for change in some] for some in (changed_records, removed_records, added_records)]
    yield ReportSection(
        "\n#### Changed\n", lambda: (_format_change(change, options) for change in changed_records), kinds[0], 0.35
    )

    def whole(change: RecordChange) -> str:
        return _format_record(change, options, detail) if detail else _format_brief(change, options)

    yield ReportSection("\n#### Removed\n", lambda: map(whole, removed_records), kinds[1], 0.1)
    fold = f"\n<details>\n<summary>{len(added_records):,} added</summary>\n"
    yield ReportSection(fold, lambda: map(whole, added_records), kinds[2], 0.1, "\n</details>\n")


def _format_ontology_change(change: OntologyChange) -> str:
    sides = [span(cut(side, 200)) if side is not None else "_nothing_" for side in (change.before, change.after)]
    return f"- {span(cut(change.what, 200))}: {' → '.join(sides)}"


def _format_brief(change: RecordChange, options: DiffOptions) -> str:
    """Return a change on one line: its name, and its first fields."""
    shown_fields = _select_fields(change)
    # Short texts say most about a record.
    shown_fields.sort(key=lambda field: not (_pick_value(field).startswith('"') and len(_pick_value(field)) <= _INLINE))
    fields = [
        f"{span(cut(field.name, 60))} {span(cut(_pick_value(field), 80))}" for field in shown_fields[:_BRIEF_FIELDS]
    ]
    fields += [many(len(shown_fields) - _BRIEF_FIELDS, "more field")] if len(shown_fields) > _BRIEF_FIELDS else []
    return f"- {_name(change)} {_format_places(change, options)}{': ' if fields else ''}{', '.join(fields)}"


def _select_fields(change: RecordChange) -> list[FieldChange]:
    """Return the fields that add something to the name before them."""
    return [field for field in change.fields if not field.name.startswith("__") and not _is_identity(change, field)]


def _name(change: RecordChange) -> str:
    """Return type, identity and, where the record has one, its title."""
    was = f" (was {span(cut(change.was, 200))})" if change.was is not None else ""
    name, source = next(iter(change.shown.items()), ("", '""'))
    title = json.loads(source) if source.startswith('"') else source
    if len(title) > _INLINE and name in {field.name for field in change.fields}:
        title = ""  # shown below, with its changes
    return f"{span(change.type)} {span(cut(change.identity, 200))}{was}{f' · {span(cut(title, 120))}' if title else ''}"


def _format_context(change: RecordChange) -> str:
    """Return the unchanged fields beside the title that identify the record."""
    changed_names = {field.name for field in change.fields}
    context_fields = [(name, source) for name, source in [*change.shown.items()][1:] if name not in changed_names]
    return "".join(f" · {span(cut(name, 60))} {span(cut(source, 80))}" for name, source in context_fields)


def _format_places(change: RecordChange, options: DiffOptions) -> str:
    """Return the place of the record, and its former place in another file."""
    sides = [(place, is_old) for place, is_old in ((change.before, True), (change.after, False)) if place is not None]
    if len(sides) == 2 and sides[0][0].path == sides[1][0].path:
        sides = sides[1:]
    return " → ".join(
        link_text(
            f"{place.path}:{place.line_no}",
            options.links.line(place.path, place.line_no, is_old=is_old) if options.links else "",
        )
        for place, is_old in sides
    )


def _is_identity(change: RecordChange, field: FieldChange) -> bool:
    """Return whether a field only repeats the identity before it."""
    if change.kind == "edge" and field.name in ("from", "to"):
        return True
    value = json.loads(_pick_value(field))
    return isinstance(value, str | int) and str(value) == change.identity


def _pick_value(field: FieldChange) -> str:
    return field.after if field.after is not None else field.before or ""


def _format_change(change: RecordChange, options: DiffOptions) -> str:
    """Return what differs in a record; where that would take most of the room, the names of its fields alone."""
    head = f"\n##### {_name(change)}\n\n{_format_places(change, options)}{_format_context(change)}\n"
    whole = "\n".join([head, *_format_fields(change.fields, options, _LINES_OF_FIELD)])
    return whole if size(whole) <= options.budget // 4 else f"{head}\n{_format_brief(change, options)}"


def _format_record(change: RecordChange, options: DiffOptions, longest: int) -> str:
    """Return a new or deleted record, with its texts."""
    head = f"\n##### {_name(change)}\n\n{_format_places(change, options)}\n"
    whole = "\n".join([head, *_format_fields(_select_fields(change), options, longest, is_whole=True)])
    return whole if size(whole) <= options.budget // 4 else f"\n{_format_brief(change, options)}\n"


def _format_fields(
    fields: Iterable[FieldChange], options: DiffOptions, longest: int, *, is_whole: bool = False
) -> Iterator[str]:
    """Yield the fields one below the other, at most `longest` lines of a text.

    With `is_whole` the record is new or deleted, and only its one side is shown.
    """
    every = [item for field in fields for item in _split_values(field)]
    short, long = ([item for item in every if _is_short(item) is should_be_short] for should_be_short in (True, False))
    for some in short[:_FIELDS]:
        yield f"- {span(cut(some[0].name, 200))}: {_format_sides(some[0], is_whole)}"
    for some in long[:_FIELDS]:
        lines = [
            item
            for leaf in some
            for item in _format_lines(leaf.runs() if options.full else keep_near_changes(leaf.runs()))
        ]
        more = len(lines) - longest
        lines = [*lines[:longest], f"  … {many(more, 'more line')}"] if more > 0 else lines
        yield f"- {span(cut(some[0].name, 200))}:\n\n{block(lines, 'diff')}"
    remaining_count = max(0, len(short) - _FIELDS) + max(0, len(long) - _FIELDS)
    if remaining_count:
        yield f"- {many(remaining_count, 'more field')}"


def _format_sides(leaf: Leaf, is_whole: bool) -> str:
    sides = [span(text) if text is not None else "_none_" for text in (leaf.before, leaf.after)]
    return sides[leaf.before is None] if is_whole else " → ".join(sides)


def _split_values(field: FieldChange) -> list[list[Leaf]]:
    """Return the values that differ in a field; of a long list, new and removed elements are joined."""
    whole = Leaf((field.name,), field.before, field.after)
    every = list(leaves(field.name, field.before, field.after))
    if _is_short([whole]) and all(len(leaf.keys) - leaf.is_element == 1 for leaf in every):
        return [[whole]]
    groups: list[list[Leaf]] = []
    for leaf in every:
        if leaf.is_element and groups and groups[-1][-1].is_element and groups[-1][-1].name == leaf.name:
            groups[-1].append(leaf)
        else:
            groups.append([leaf])
    return groups


def _is_short(some: Sequence[Leaf]) -> bool:
    sides = (some[0].before, some[0].after)
    is_one = len(some) == 1 and not some[0].is_element
    return is_one and all(side is None or len(side) <= _INLINE for side in sides)


def _format_lines(runs: Iterable[Run]) -> Iterator[str]:
    marks = {"same": "  ", "gone": "- ", "new": "+ "}
    for kind, text in runs:
        if kind == "cut":
            yield f"  … ({len(text):,} characters alike)"
            continue
        for line in text.removesuffix("\n").split("\n"):
            yield from (marks[kind] + piece for piece in _wrap_line(line))


def _wrap_line(line: str) -> Iterator[str]:
    """Yield pieces of at most `_WIDTH` characters, cut behind a blank where there is one."""
    while len(line) > _WIDTH:
        at = line.rfind(" ", _WIDTH // 2, _WIDTH) + 1 or _WIDTH
        yield line[:at]
        line = line[at:]
    yield line
