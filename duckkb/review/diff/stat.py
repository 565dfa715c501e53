"""A difference in numbers: a line a type, or a notice a type in the log of a job on GitHub, behind its findings."""

from collections.abc import Iterator, Mapping

from duckkb.review.diff.model import Diff, DiffOptions, Numbers
from duckkb.review.reports.findings import command, commands
from duckkb.review.reports.markup import many, places

WORDS = {"insert": "added", "update": "changed", "rename": "renamed", "delete": "removed"}


def render(numbers: Numbers) -> Iterator[str]:
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
