"""A difference as a comment on a pull request: numbers, findings, then the records, the changed ones first.

All data stands in spans or blocks of code, so it mentions nobody, links nowhere and injects nothing. What does not fit
into the budget is counted by type.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from duckkb.review.diff.model import OPS, WORDS, Diff, DiffOptions, FieldChange, OntologyChange, RecordChange
from duckkb.review.diff.page import EntryPage
from duckkb.review.diff.values import Leaf, leaves
from duckkb.review.diff.words import Run, around
from duckkb.review.reports.budget import ReportSection, fitted, size
from duckkb.review.reports.findings import told
from duckkb.review.reports.markup import block, cell, cut, finding_line, many, span

_INLINE = 60
_WIDTH = 96
_LINES_OF_FIELD = 60
_FIELDS = 30
_BRIEF_FIELDS = 3
_ROOM = "There is more than a comment has room for: "


def render(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """The comment, of at most `options.budget` bytes; where not all has room the last line is the command that goes on."""
    diff = diff.rooted
    page = EntryPage(diff, options)
    changed, removed, added = (
        [number for number, change in enumerate(diff.changes, 1) if change.op in ops]
        for ops in (("update", "rename"), ("delete",), ("insert",))
    )
    before = len(diff.findings)
    rest = [[number for number in some if before + number > page.start] for some in (changed, removed, added)]
    sections = [*(_told_once(diff) if page.is_first else ()), *_records(diff, rest, options)]

    def end(shown: Sequence[int]) -> str:
        """The first record that is not shown is where to go on; one of another section may then be told again."""
        left = [some[count] for some, count in zip(rest, shown[-len(rest) :], strict=True) if count < len(some)]
        page.told = before + (min(left) - 1 if left else len(diff.changes))
        if not left:
            return ""
        return f"\n{_ROOM}{span(page.next if page.told > max(page.start, before) else options.again('--full'))}\n"

    room = size(options.again(f"--after {len(diff.changes) + before}-00000000")) + len(_ROOM) + 20
    yield fitted(_start(diff), sections, options.budget, end, room if any(rest) else 0).rstrip("\n")


def _start(diff: Diff) -> str:
    totals = diff.numbers.totals
    said = [f"{totals[op]:,} {WORDS[op]}" for op in OPS if totals[op]]
    said += [f"{len(diff.ontology):,} in the configuration"] if diff.ontology else []
    said += [f"{diff.respelled:,} only written otherwise"] if diff.respelled else []
    errors = sum(finding.is_error for finding in diff.findings)
    warnings = len(diff.findings) - errors
    found = [many(errors, "error")] if errors else []
    found += [many(warnings, "warning")] if warnings else []
    between = f"From {span(cut(diff.base.shown, 120))} to {span(cut(diff.head.shown, 120))}"
    tail = f"; **{' and '.join(found)}**" if found else ""
    return f"### Knowledge: {', '.join(said) or 'no record differs'}\n\n{between}{tail}.\n\n"


def _told_once(diff: Diff) -> Iterator[ReportSection]:
    """Numbers, a row a type, those with the most changes first; findings, and what the configuration says otherwise."""
    counts = sorted(diff.counts.items(), key=lambda one: (-sum(one[1].values()), one[0]))
    rows = [f"| {cell(name)} | {' | '.join(f'{count[op]:,}' for op in OPS)} |" for name, count in counts]
    head = f"| type | {' | '.join(WORDS[op] for op in OPS)} |\n| --- |{' ---: |' * len(OPS)}"
    yield ReportSection(head, lambda: rows, [name for name, _ in counts], 0.1)
    ordered = sorted(told(diff.findings), key=lambda one: not one.is_error)
    yield ReportSection("#### Findings\n", lambda: map(finding_line, ordered), [one.code for one in ordered], 0.25)
    named = [change.what.split(" ")[0] for change in diff.ontology]
    yield ReportSection("\n#### Configuration\n", lambda: map(_configured, diff.ontology), named, 0.1)


def _records(diff: Diff, numbers: Sequence[Sequence[int]], options: DiffOptions) -> Iterator[ReportSection]:
    """Those that changed, went and came, by their numbers among all changes."""
    changed, removed, added = ([diff.changes[number - 1] for number in some] for some in numbers)
    kinds = [[change.type for change in some] for some in (changed, removed, added)]
    yield ReportSection("\n#### Changed\n", lambda: (_changed(change, options) for change in changed), kinds[0], 0.35)
    yield ReportSection("\n#### Removed\n", lambda: map(_brief, removed), kinds[1], 0.1)
    fold = f"\n<details>\n<summary>{len(added):,} added</summary>\n"
    yield ReportSection(fold, lambda: map(_brief, added), kinds[2], 0.1, "\n</details>\n")


def _configured(change: OntologyChange) -> str:
    sides = [span(cut(side, 200)) if side is not None else "_nothing_" for side in (change.before, change.after)]
    return f"- {span(cut(change.what, 200))}: {' → '.join(sides)}"


def _brief(change: RecordChange) -> str:
    """One line: what it is, and its first fields."""
    shown = [one for one in change.fields if not one.name.startswith("__") and not _is_identity(change, one)]
    # Short texts tell most of what a record is.
    shown.sort(key=lambda one: not (_value(one).startswith('"') and len(_value(one)) <= _INLINE))
    fields = [f"{span(cut(one.name, 60))} {span(cut(_value(one), 80))}" for one in shown[:_BRIEF_FIELDS]]
    fields += [many(len(shown) - _BRIEF_FIELDS, "more field")] if len(shown) > _BRIEF_FIELDS else []
    return f"- {_name(change)}{': ' if fields else ''}{', '.join(fields)}"


def _name(change: RecordChange) -> str:
    was = f" (was {span(cut(change.was, 200))})" if change.was is not None else ""
    return f"{span(change.type)} {span(cut(change.identity, 200))}{was}"


def _is_identity(change: RecordChange, field: FieldChange) -> bool:
    """Whether the identity, which stands before it, says as much."""
    if change.kind == "edge" and field.name in ("from", "to"):
        return True
    value = json.loads(_value(field))
    return isinstance(value, str | int) and str(value) == change.identity


def _value(field: FieldChange) -> str:
    return field.after if field.after is not None else field.before or ""


def _changed(change: RecordChange, options: DiffOptions) -> str:
    """What differs in a record; its fields by name alone where one record would take most of the room."""
    places = [place for place in (change.before, change.after) if place is not None]
    if len(places) == 2 and places[0].path == places[1].path:
        places = places[1:]
    where = " → ".join(span(f"{place.path}:{place.line_no}") for place in places)
    head = f"\n##### {_name(change)}\n\n{where}\n"
    whole = "\n".join([head, *_in_full(change, options)])
    return whole if size(whole) <= options.budget // 4 else f"{head}\n{_brief(change)}"


def _in_full(change: RecordChange, options: DiffOptions) -> Iterator[str]:
    every = [one for field in change.fields for one in _values(field)]
    short, long = ([one for one in every if _is_short(one) is wanted] for wanted in (True, False))
    for some in short[:_FIELDS]:
        sides = (span(text) if text is not None else "_none_" for text in (some[0].before, some[0].after))
        yield f"- {span(cut(some[0].name, 200))}: {' → '.join(sides)}"
    for some in long[:_FIELDS]:
        lines = [one for leaf in some for one in _lines(leaf.runs() if options.full else around(leaf.runs()))]
        more = len(lines) - _LINES_OF_FIELD
        lines = [*lines[:_LINES_OF_FIELD], f"  … {many(more, 'more line')}"] if more > 0 else lines
        yield f"- {span(cut(some[0].name, 200))}:\n\n{block(lines, 'diff')}"
    left = max(0, len(short) - _FIELDS) + max(0, len(long) - _FIELDS)
    if left:
        yield f"- {many(left, 'more field')}"


def _values(field: FieldChange) -> list[list[Leaf]]:
    """What differs in a field: each value by itself, of a long list the elements that came and went together."""
    whole = Leaf((field.name,), field.before, field.after)
    every = list(leaves(field.name, field.before, field.after))
    if _is_short([whole]) and all(len(leaf.keys) - leaf.is_element == 1 for leaf in every):
        return [[whole]]
    found: list[list[Leaf]] = []
    for leaf in every:
        if leaf.is_element and found and found[-1][-1].is_element and found[-1][-1].name == leaf.name:
            found[-1].append(leaf)
        else:
            found.append([leaf])
    return found


def _is_short(some: Sequence[Leaf]) -> bool:
    sides = (some[0].before, some[0].after)
    is_one = len(some) == 1 and not some[0].is_element
    return is_one and all(side is None or len(side) <= _INLINE for side in sides)


def _lines(runs: Iterable[Run]) -> Iterator[str]:
    marks = {"same": "  ", "gone": "- ", "new": "+ "}
    for kind, text in runs:
        if kind == "cut":
            yield f"  … ({len(text):,} characters alike)"
            continue
        for line in text.removesuffix("\n").split("\n"):
            yield from (marks[kind] + piece for piece in _wrapped(line))


def _wrapped(line: str) -> Iterator[str]:
    """Pieces of at most `_WIDTH` characters, cut behind a blank where there is one."""
    while len(line) > _WIDTH:
        at = line.rfind(" ", _WIDTH // 2, _WIDTH) + 1 or _WIDTH
        yield line[:at]
        line = line[at:]
    yield line
