"""A difference in numbers: a line a type."""

from collections.abc import Iterator, Mapping

from duckkb.review.diff.model import OPS, Numbers
from duckkb.review.width import places

WORDS = {"insert": "added", "update": "changed", "rename": "renamed", "delete": "removed"}


def render(numbers: Numbers) -> Iterator[str]:
    """Counts by type and op, then of all together."""
    counts = numbers.counts
    wide = max(map(places, counts), default=0)
    for name, count in counts.items():
        yield f" {name}{' ' * (wide - places(name))} | {_counted(count)}"
    yield total(numbers)


def total(numbers: Numbers) -> str:
    """`3 records in 2 parts: 1 added, 2 changed; 1 finding`."""
    counts = numbers.counts.values()
    all_of: dict[str, int] = {op: sum(count[op] for count in counts) for op in OPS}
    records = sum(all_of.values())
    said = [f"{_number(records, 'record')} in {_number(numbers.parts, 'part')}"]
    if records:
        said[0] += f": {_counted(all_of)}"
    if numbers.moved:
        said.append(f"{numbers.moved} only moved to another part")
    if numbers.ontology:
        said.append(_number(numbers.ontology, "change") + " of the configuration")
    if numbers.respelled:
        said.append(f"{numbers.respelled} only written otherwise")
    if numbers.findings:
        said.append(_number(numbers.findings, "finding"))
    return "; ".join(said)


def _counted(count: Mapping[str, int]) -> str:
    return ", ".join(f"{count[op]} {word}" for op, word in WORDS.items() if count[op])


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
