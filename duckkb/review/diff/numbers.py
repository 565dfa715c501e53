"""Two versions of files in numbers alone: how many records of each type came, went, changed or got another name.

Lines that are certainly canonical are matched by `__id` without making records of them; a table that has others is
compared as for every other form.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from duckkb.ontology.model import RecordType
from duckkb.review.diff.compare import Types, alike, compare, of_tables
from duckkb.review.diff.model import OPS, Counts, Numbers, Versions
from duckkb.truth.files.line import Limits, are_compact
from duckkb.truth.files.part import collector_paused

_Records = dict[bytes, tuple[tuple[bytes, ...], bytes]]
"""The source text of identities, and the line, by the source text of the `__id`."""

_SCALAR = rb'"(?:[^"\\]|\\.)*"|-?[0-9]+'
_TAIL = b'Z"}'


def numbers(versions: Versions, types: Types, limits: Limits) -> Numbers:
    """What `compare` would count; its findings are those of lines and files, as nothing else is looked at."""
    found = Numbers(findings=len(versions.findings))
    with collector_paused():
        for key, paths in of_tables(versions, types):
            kinds = types.of(key) if key else None
            counted = _counted(versions, paths, kinds, limits) if kinds else None
            found += counted or compare(replace(versions, findings=(), paths=tuple(paths)), types, limits).numbers
    return found


def _counted(
    versions: Versions, paths: list[str], kinds: tuple[RecordType, RecordType], limits: Limits
) -> Numbers | None:
    """The numbers of one table; None where a line has to be looked at closely."""
    if not versions.renamed.keys().isdisjoint(paths):
        return None
    known = alike(versions.old, versions.new, paths)
    old = _records(versions.old, paths, known, kinds[0])
    new = _records(versions.new, paths, known, kinds[1], limits)
    if old is None or new is None:
        return None
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    if gone and come and {old[number][0] for number in gone} & {new[number][0] for number in come}:
        return None  # a record got another __id
    count = Counter(insert=len(come), delete=len(gone))
    pairs = [(old[number], new[number]) for number in old.keys() & new.keys()]
    changed = [(before, after) for before, after in pairs if before[1] != after[1]]  # the others moved to another part
    count.update("update" if before[0] == after[0] else "rename" for before, after in changed)
    counts: Counts = {kinds[1].name: {op: count[op] for op in OPS}} if count.total() else {}
    return Numbers(counts, len(paths), moved=len(pairs) - len(changed))


def _records(
    side: Mapping[str, bytes],
    paths: Iterable[str],
    known: frozenset[bytes],
    kind: RecordType,
    limits: Limits | None = None,
) -> _Records | None:
    """The identities of the records that one version alone has, by `__id`; None where a line has another form. With
    `limits` it is looked at from end to end: the older version is what it is, and nobody can mend it any more."""
    head = re.compile(
        rb'\{"__id":([1-9][0-9]{0,15})'
        + b"".join(
            b",%b:(%b)" % (re.escape(json.dumps(name, ensure_ascii=False).encode()), _SCALAR)
            for name in kind.identity_fields
        )
        + b","
    ).match
    found: _Records = {}
    total = 0
    for path in paths:
        raw = side.get(path)
        if raw is None:
            continue
        *lines, rest = raw.split(b"\n")
        own = [line for line in lines if line not in known] if known else lines
        heads = [(match.groups(), line) for line in own if (match := head(line)) and line.endswith(_TAIL)]
        if rest or not raw or len(heads) < len(own) or not (limits is None or are_compact(own, limits)):
            return None
        found.update((one[0], (one[1:], line)) for one, line in heads)
        total += len(own)
    return found if len(found) == total else None
