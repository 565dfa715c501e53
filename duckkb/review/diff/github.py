"""A difference as annotations of a pull request's job on GitHub: its findings where they are, and a notice a type."""

from collections.abc import Iterator

from duckkb.review.annotations import command, commands
from duckkb.review.diff.model import OPS, Diff, Options
from duckkb.review.diff.stat import WORDS


def render(diff: Diff, options: Options) -> Iterator[str]:
    """A workflow command a line."""
    yield from commands(diff.findings, diff.prefix)
    for name, count in diff.counts.items():
        said = ", ".join(f"{count[op]:,} {WORDS[op]}" for op in OPS if count[op])
        yield command("notice", said, title=name)
    if diff.ontology:
        said = "\n".join(change.what for change in diff.ontology)
        yield command("notice", said, title="configuration")
