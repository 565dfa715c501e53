"""Counts the records of each type that two versions add, delete, change or rename, without their contents.

Lines that are certainly canonical are matched by `__id` without making records of them; a table with other
lines is compared as for every other form.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.review.diff.compare import Types, alike, compare, group_parts_by_table
from duckkb.review.diff.model import OPS, Counts, Numbers, Versions
from duckkb.truth.files.line import Limits, are_compact
from duckkb.truth.files.part import pause_collector

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
