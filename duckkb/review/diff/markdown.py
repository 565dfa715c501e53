"""A difference as a comment on a pull request: numbers, findings, then the records, changed ones first.

All data stands in spans or blocks of code, so that it mentions nobody, links nowhere and injects nothing. What
exceeds the budget is counted by type.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from duckkb.errors import Finding
from duckkb.review.diff.model import OPS, WORDS, Diff, DiffOptions, FieldChange, OntologyChange, RecordChange
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.diff.words import Run, keep_near_changes
from duckkb.review.reports.budget import ReportSection, fit_sections, size
from duckkb.review.reports.findings import count_findings, summarize_groups
from duckkb.review.reports.markup import block, cell, cut, finding_line, link_text, many, span

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


def render(diff: Diff, options: DiffOptions) -> Iterator[str]:
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
