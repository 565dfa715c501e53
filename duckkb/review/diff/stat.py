"""A difference in numbers: a line a type."""

from collections.abc import Iterator, Mapping

from duckkb.review.diff.model import OPS, Diff, Options
from duckkb.review.width import places

WORDS = {"insert": "added", "update": "changed", "rename": "renamed", "delete": "removed"}


def render(diff: Diff, options: Options) -> Iterator[str]:
    """Counts by type and op, then of all together; a line on findings where there are any."""
    counts = diff.counts
    wide = max(map(places, counts), default=0)
    for name, count in counts.items():
        yield f" {name}{' ' * (wide - places(name))} | {_counted(count)}"
    yield total(diff)


def total(diff: Diff) -> str:
    """`3 records in 2 parts: 1 added, 2 changed; 1 finding`."""
    counts = diff.counts.values()
    all_of = {op: sum(count[op] for count in counts) for op in OPS}
    said = [f"{_number(len(diff.changes), 'record')} in {_number(diff.parts, 'part')}"]
    if diff.changes:
        said[0] += f": {_counted(all_of)}"
    if diff.moves:
        said.append(f"{len(diff.moves)} only moved to another part")
    if diff.ontology:
        said.append(_number(len(diff.ontology), "change") + " of the configuration")
    if diff.respelled:
        said.append(f"{diff.respelled} only written otherwise")
    if diff.findings:
        said.append(_number(len(diff.findings), "finding"))
    return "; ".join(said)


def _counted(count: Mapping[str, int]) -> str:
    return ", ".join(f"{count[op]} {word}" for op, word in WORDS.items() if count[op])


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
