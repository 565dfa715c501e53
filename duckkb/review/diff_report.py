"""A difference as JSON for programs, as docs/diff.schema.json defines it.

The HTML page of a difference: records are drawn as they are scrolled to, with filters and search.

Pages of a difference: the entries from a cursor on that fit into a budget of bytes.

Entries are the findings, then the changes. A cursor is the number of entries shown so far, with a mark of the
last one. A different mark means that the difference has changed: continuing in it would skip or repeat entries.

Counts the records of each type that two versions add, delete, change or rename, without their contents.

Lines that are certainly canonical are matched by `__id` without making records of them; a table with other
lines is compared as for every other form."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.review.diff_model import (
    OPS,
    WORDS,
    Counts,
    Diff,
    DiffOptions,
    FieldChange,
    Label,
    Numbers,
    OntologyChange,
    RecordChange,
    RecordPlace,
    Versions,
)
from duckkb.review.record_changes import Leaf, Types, alike, compare, group_parts_by_table, leaves
from duckkb.review.report_formats import judge_findings, list_group_objects, size, summarize_groups
from duckkb.review.report_markup import KINDS, convert_finding, cut, document, dumps, safe
from duckkb.storage.line import Limits, are_compact
from duckkb.storage.part import pause_collector
from duckkb.types.errors import Conflict, Finding, UsageError
from duckkb.types.invisible_characters import visible

_WORDS = 200
_Entry = TypeVar("_Entry", Finding, RecordChange)
_Made = TypeVar("_Made")


class EntryPage:
    """A page that counts the entries shown.

    Raises `errors.UsageError` for an invalid cursor, `errors.Conflict` (E_STALE) for a cursor of another difference.
    """

    def __init__(self, diff: Diff, options: DiffOptions) -> None:
        self._entries: tuple[Finding | RecordChange, ...] = (*diff.findings, *diff.changes)
        self._diff, self._options = diff, options
        self.start = self.told = self._start(options.after)
        # The continuation is always shown: its own words and quotes, and the command.
        self._left = options.budget - size(options.again("--after 9999999999-ffffffff")) - _WORDS
        self._fitted, self._is_full = 0, False

    @property
    def is_first(self) -> bool:
        return not self.start

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._diff.findings[self.told :]

    @property
    def changes(self) -> tuple[RecordChange, ...]:
        return self._diff.changes[max(0, self.told - len(self._diff.findings)) :]

    @property
    def left(self) -> int:
        """The number of entries that are not shown."""
        return len(self._entries) - self.told

    @property
    def next(self) -> str:
        """The command that shows the next entries; empty where there are none."""
        return self._options.again(f"--after {self._format_cursor(self.told)}") if self.left else ""

    @property
    def next_object(self) -> dict[str, Any] | None:
        """The next command as plain data."""
        if not self.left:
            return None
        return {"after": self._format_cursor(self.told), "left": self.left, "command": self.next}

    def spend(self, text: str) -> str:
        """Subtract a text that is always shown from the budget, and return it."""
        self._left -= size(text)
        return text

    def tell_findings(self) -> tuple[Finding, ...]:
        """Return the remaining findings, for a form that shows them together."""
        findings = self.findings
        self.told += len(findings)
        return findings

    def fit(
        self,
        entries: Iterable[_Entry],
        make: Callable[[_Entry], _Made],
        measure: Callable[[_Made], int] = lambda piece: size(str(piece)),
    ) -> Iterator[_Made]:
        """Yield what `make` returns for the entries that fit into the budget, at least one."""
        for entry in entries:
            piece = make(entry)
            self._left -= measure(piece)
            self._is_full = self._is_full or (self._left < 0 and self._fitted > 0)
            if self._is_full:
                return
            self._fitted += 1
            self.told += 1
            yield piece

    def _start(self, after: str) -> int:
        number = re.fullmatch("([1-9][0-9]{0,9})-[0-9a-f]{8}", after)
        if after and number is None:
            raise UsageError(
                f"--after {after} is not a cursor", suggestion="take the command that the page before ends with"
            )
        count = int(number[1]) if number else 0
        if count > len(self._entries) or (count and self._format_cursor(count) != after):
            raise Conflict(
                "the difference changed since this cursor was printed",
                suggestion="begin again without --after",
            )
        return count

    def _format_cursor(self, count: int) -> str:
        entry = self._entries[count - 1]
        if isinstance(entry, Finding):
            last: tuple[str, ...] = (entry.code, entry.place, entry.field, entry.type, entry.identity)
        else:
            last = (
                entry.op,
                entry.type,
                str(entry.id),
                *(place.etag if place else "" for place in (entry.before, entry.after)),
            )
        digest = hashlib.sha256("\0".join((str(len(self._entries)), *last)).encode("utf-8", "replace")).hexdigest()
        return f"{count}-{digest[:8]}"


VERSION = 1


def iter_json(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield one object on one line, with as many findings and changes as fit; `next` says how to continue."""
    counts = summary(diff)
    errors, warnings = (counts["summary"][name] for name in ("errors", "warnings"))
    outcome = judge_findings(errors, warnings, fail_on=options.fail_on, is_judged=diff.is_judged)
    page = EntryPage(diff, options)
    head = page.spend(dumps({"version": counts.pop("version"), "outcome": outcome, **counts}))[1:-1]
    first = {
        "ontology": [_describe_ontology_change(item) for item in diff.ontology],
        "groups": list_group_objects(diff.findings),
    }
    body = page.spend(dumps(first if page.is_first else {"ontology": [], "groups": []}))[1:-1]
    findings = ",".join(page.fit(page.findings, lambda item: dumps(_to_finding_object(item))))
    changes = ",".join(page.fit(page.changes, change_text)) if page.told >= len(diff.findings) else ""
    tail = dumps({"truncated": bool(page.left), "next": page.next_object})[1:-1]
    yield f'{{{head},"changes":[{changes}],{body},"findings":[{findings}],{tail}}}'


def iter_lines(diff: Diff, options: DiffOptions) -> Iterator[str]:
    """Yield one object a line: its `entry` is `ontology`, `finding` or `change`.

    Where more is to come, the last one is `next`, with the command that continues.
    """
    page = EntryPage(diff, options)
    for item in diff.ontology if page.is_first else ():
        yield page.spend(dumps({"entry": "ontology", **_describe_ontology_change(item)}))
    yield from page.fit(page.findings, lambda item: dumps({"entry": "finding", **_to_finding_object(item)}))
    if page.told >= len(diff.findings):
        yield from page.fit(page.changes, lambda change: f'{{"entry":"change",{change_text(change)[1:]}')
    if page.left:
        yield dumps({"entry": "next", **(page.next_object or {})})


def summary(diff: Diff) -> dict[str, Any]:
    """Return the part before the changes: the versions, and all counts."""
    numbers = diff.numbers
    return {
        "version": VERSION,
        "base": diff.base.as_object,
        "head": diff.head.as_object,
        "prefix": diff.prefix,
        "summary": numbers.totals
        | {"parts": diff.parts, "respelled": diff.respelled, "moved": len(diff.moves), "ontology": len(diff.ontology)}
        | {"errors": diff.errors, "warnings": len(diff.findings) - diff.errors},
        "types": {name: dict(count) for name, count in numbers.counts.items()},
    }


def change_text(change: RecordChange) -> str:
    """Return a change as JSON text. Values are copied from the lines, so that no number is rewritten."""
    head: dict[str, Any] = {"kind": change.kind, "type": change.type, "table": change.table, "id": change.id}
    head |= {"op": change.op, "identity": change.identity}
    head |= {"was": change.was} if change.was is not None else {}
    display = ",".join(f"{dumps(name)}:{source}" for name, source in change.shown.items())
    fields = ",".join(map(_format_field, change.fields))
    places = {"before": _place(change.before), "after": _place(change.after)}
    return f'{dumps(head)[:-1]},"display":{{{display}}},"fields":[{fields}],{dumps(places)[1:]}'


def _format_field(field: FieldChange) -> str:
    return f'{{"name":{dumps(field.name)}{_format_sides(field.before, field.after)}{_format_leaves(field)}}}'


def _format_sides(before: str | None, after: str | None) -> str:
    return "".join(f',"{side}":{text}' for side, text in (("before", before), ("after", after)) if text is not None)


def _format_leaves(field: FieldChange) -> str:
    """Return each value that differs by its JSON pointer, where both sides have an object or a list."""
    changed_leaves = [leaf for leaf in leaves(field.name, field.before, field.after) if len(leaf.keys) > 1]
    text = ",".join(
        f'{{"path":{dumps(leaf.pointer)}{_format_sides(leaf.before, leaf.after)}}}' for leaf in changed_leaves
    )
    return f',"inside":[{text}]' if text else ""


def _place(place: RecordPlace | None) -> dict[str, Any] | None:
    return {"path": place.path, "line": place.line_no, "etag": place.etag} if place is not None else None


def _describe_ontology_change(change: OntologyChange) -> dict[str, Any]:
    sides = (("before", change.before), ("after", change.after))
    return {"what": change.what, **{side: text for side, text in sides if text is not None}, "path": change.path}


def _to_finding_object(finding: Finding) -> dict[str, Any]:
    description = {
        "code": finding.code,
        "severity": "error" if finding.is_error else "warning",
        "message": finding.message,
    }
    more = {"path": finding.path, "line": finding.line, "field": finding.field, "type": finding.type}
    more |= {"identity": finding.identity, "remedy": finding.remedy}
    return description | {name: value for name, value in more.items() if value}


_LONGEST_NAME = 120
_SCRIPT = Path(__file__).parent / "diff_page.js"


def render(diff: Diff, options: DiffOptions, judged: tuple[str, Sequence[str]] = ("", ())) -> Iterator[str]:
    """Yield the page in pieces.

    `judged` is a headline for the whole, and the effect of the change on search, in lines.
    """
    title = f"Knowledge: {_format_label(diff.base)} → {_format_label(diff.head)}"
    yield from document(title, _render_data(diff.rooted, options, judged), _SCRIPT)


def _render_data(diff: Diff, options: DiffOptions, judgement: tuple[str, Sequence[str]]) -> Iterator[str]:
    page = EntryPage(diff, options)
    page.tell_findings()
    headline, impact = judgement
    texts = {"headline": visible(headline), "impact": [visible(line) for line in impact]}
    yield f'{{"summary":{safe(_summarize_diff(diff, options) | texts)},"changes":['
    comma = ""
    for piece in page.fit(page.changes, lambda change: safe(_change(change, options))):
        yield comma + piece
        comma = ","
    remaining_counts = Counter(change.type for change in page.changes)
    yield f'],"left":{safe(dict(remaining_counts))},"next":{safe(visible(page.next))}}}'


def _format_label(label: Label) -> str:
    return visible(label.shown).replace("\n", " ")


def _summarize_diff(diff: Diff, options: DiffOptions) -> dict[str, Any]:
    links = options.links
    return {
        "commits": [links.commit(is_old=True), links.commit(is_old=False)] if links else ["", ""],
        "base": _format_label(diff.base),
        "head": _format_label(diff.head),
        "words": WORDS,
        "ops": diff.numbers.totals,
        "types": {name: sum(count.values()) for name, count in diff.counts.items()},
        "respelled": diff.respelled,
        "findings": [
            convert_finding(item)
            for item in sorted(summarize_groups(diff.findings), key=lambda item: not item.is_error)
        ],
        "ontology": [[visible(item.what), _build_row(Leaf((), item.before, item.after))[2]] for item in diff.ontology],
    }


def _change(change: RecordChange, options: DiffOptions) -> dict[str, Any]:
    entry = {"op": change.op, "type": change.type, "id": visible(change.identity)}
    entry |= {"was": visible(change.was)} if change.was is not None else {}
    shown_fields = [
        field for field in change.fields if not field.name.startswith("__") or change.op in ("update", "rename")
    ]
    return entry | {
        "shown": [_to_plain_text(source) for source in change.shown.values()],
        "places": [_place_records(change.before), _place_records(change.after)],
        "links": [
            options.links.line(place.path, place.line_no, is_old=is_old) if options.links and place else ""
            for place, is_old in ((change.before, True), (change.after, False))
        ],
        "fields": [
            _build_row(leaf) for field in shown_fields for leaf in leaves(field.name, field.before, field.after)
        ],
    }


def _place_records(place: RecordPlace | None) -> str:
    return visible(f"{place.path}:{place.line_no}") if place is not None else ""


def _to_plain_text(source: str) -> str:
    """Return a value as readable text, cut to the room of a heading."""
    value = json.loads(source)
    return visible(cut(value if isinstance(value, str) else source, _LONGEST_NAME))


def _build_row(leaf: Leaf) -> tuple[str, int, list[tuple[int, str]]]:
    """Return a value that differs: its path, its sides (1 the old, 2 the new, 3 both), and the runs of both."""
    sides = (leaf.before is not None) + 2 * (leaf.after is not None)
    return visible(leaf.pointer[1:]), sides, [(KINDS[kind], visible(text)) for kind, text in leaf.runs()]


_Records = dict[bytes, tuple[tuple[bytes, ...], bytes]]
"""The source text of identities, and the line, by the source text of the `__id`."""

_SCALAR = rb'"(?:[^"\\]|\\.)*"|-?[0-9]+'
_TAIL = b'Z"}'


def numbers(versions: Versions, types: Types, limits: Limits) -> Numbers:
    """Return the numbers that `compare` would give; its findings are those of lines and files alone."""
    totals = Numbers(findings=len(versions.findings))
    with pause_collector():
        for key, paths in group_parts_by_table(versions, types):
            kinds = types.find_types(key) if key else None
            table_numbers = _count_table(versions, paths, kinds, limits) if kinds else None
            totals += (
                table_numbers or compare(replace(versions, findings=(), paths=tuple(paths)), types, limits).numbers
            )
    return totals


def _count_table(
    versions: Versions, paths: list[str], kinds: tuple[RecordType, RecordType], limits: Limits
) -> Numbers | None:
    """Return the numbers of one table; None where a line has to be parsed."""
    if not versions.renamed.keys().isdisjoint(paths):
        return None
    same_lines = alike(versions.old, versions.new, paths)
    old = _read_records(versions.old, paths, same_lines, kinds[0])
    new = _read_records(versions.new, paths, same_lines, kinds[1], limits)
    if old is None or new is None:
        return None
    removed_ids, come = old.keys() - new.keys(), new.keys() - old.keys()
    if removed_ids and come and {old[number][0] for number in removed_ids} & {new[number][0] for number in come}:
        return None  # a record got another __id
    count = Counter(insert=len(come), delete=len(removed_ids))
    pairs = [(old[number], new[number]) for number in old.keys() & new.keys()]
    changed_pairs = [
        (before, after) for before, after in pairs if before[1] != after[1]
    ]  # the others moved to another part
    count.update("update" if before[0] == after[0] else "rename" for before, after in changed_pairs)
    counts: Counts = {kinds[1].name: {op: count[op] for op in OPS}} if count.total() else {}
    return Numbers(counts, len(paths), moved=len(pairs) - len(changed_pairs))


def _read_records(
    side: Mapping[str, bytes],
    paths: Iterable[str],
    same_lines: frozenset[bytes],
    kind: RecordType,
    limits: Limits | None = None,
) -> _Records | None:
    """Return the identities of the records that one version alone has, by `__id`; None where a line has another
    form.

    With `limits`, lines are checked from end to end. The older version is not checked, since nobody can repair
    it any more.
    """
    head = re.compile(
        rb'\{"__id":([1-9][0-9]{0,15})'
        + b"".join(
            b",%b:(%b)" % (re.escape(json.dumps(name, ensure_ascii=False).encode()), _SCALAR)
            for name in kind.identity_fields
        )
        + b","
    ).match
    records: _Records = {}
    total = 0
    for path in paths:
        raw = side.get(path)
        if raw is None:
            continue
        *lines, tail = raw.split(b"\n")
        differing_lines = [line for line in lines if line not in same_lines] if same_lines else lines
        heads = [(match.groups(), line) for line in differing_lines if (match := head(line)) and line.endswith(_TAIL)]
        if (
            tail
            or not raw
            or len(heads) < len(differing_lines)
            or not (limits is None or are_compact(differing_lines, limits))
        ):
            return None
        records.update((groups[0], (groups[1:], line)) for groups, line in heads)
        total += len(differing_lines)
    return records if len(records) == total else None
