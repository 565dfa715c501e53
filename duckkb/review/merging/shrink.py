"""How many records a merge takes away, held against the limit that every write is held to."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from duckkb.review.merging.sides import Contents, Tree, tree
from duckkb.rules.records import refuse_mass_deletion
from duckkb.settings import Shrink
from duckkb.truth.merge.merge_rules import Key, RulesByTable
from duckkb.truth.merge.table_merge import table_of

_LINE = re.compile(rb'^\{(?:"__id":([0-9]+)[,}])?', re.MULTILINE)


def refuse_loss(
    ours: Tree, after: Mapping[str, bytes | None], contents: Contents, rules: RulesByTable, limit: Shrink | None
) -> None:
    """Raise `errors.Refused` (E_SHRINK) where too many of our records stand in none of the parts that `after` has by path:
    all those that are not as we have them. None is no limit."""
    if limit is None:
        return
    contents.read(blob for path in after if (blob := ours.get(path)))
    had: defaultdict[Key, list[bytes]] = defaultdict(list)
    for path in after:
        if (key := table_of(path)) is not None:
            had[key] += _records(contents.of(ours.get(path)))
    has = Counter(one for data in after.values() for one in _records(data))
    # A line that a person wrote has no __id until `fmt` gives it one: what is new may be that.
    unnamed = has[b""] + len(has.keys() - {one for some in had.values() for one in some})
    gone = {key: len({*some} - has.keys() - {b""}) + max(0, some.count(b"") - unnamed) for key, some in had.items()}
    many = {key: count for key, count in gone.items() if count > limit.records}
    refuse_mass_deletion(
        {rules.of(key).name: (count, _total(key, ours, contents)) for key, count in many.items()}, limit
    )


def refuse_loss_between(root: Path, head: str, theirs: str, rules: RulesByTable, limit: Shrink | None) -> None:
    """The same of a commit that takes the place of another as it is."""
    contents, ours, new = Contents(root), tree(root, head), tree(root, theirs)
    different = [path for path in {**ours, **new} if ours.get(path) != new.get(path)]
    contents.read(blob for path in different if (blob := new.get(path)))
    refuse_loss(ours, {path: contents.of(new.get(path)) for path in different}, contents, rules, limit)


def _records(data: bytes | None) -> list[bytes]:
    """The records of a part by `__id`, empty where a line has none yet."""
    return [found[1] or b"" for found in _LINE.finditer(data or b"")]


def _total(key: Key, ours: Tree, contents: Contents) -> int:
    paths = [path for path in ours if table_of(path) == key]
    contents.read(ours[path] for path in paths)
    return sum((contents.of(ours[path]) or b"").count(b"\n") for path in paths)
