"""Some commits of a long history: few enough to look at each, and the same ones tomorrow."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision, Signature
from duckkb.truth.git.run import output, repository_of


class Sample(Struct, frozen=True):
    """A commit as its history has it: `number` counts from 1, the oldest, those that touched what was asked about."""

    number: int
    by: Signature


class History(Struct, frozen=True):
    """The `samples`, the oldest first, of `total` commits; `is_shallow`: older ones are not here."""

    samples: tuple[Sample, ...] = ()
    total: int = 0
    is_shallow: bool = False


def sample_history(root: Path, at: Revision, places: Sequence[str], most: int) -> History:
    """At most so many commits (2 or more) up to `at` that touched some places, on the line of first parents: the oldest, every
    second, fourth, eighth ... of those behind it, and the newest. As the history grows, one that was left out stays so, and what is
    known of the others is of use."""
    git_paths = revisions.place_paths(repository_of(root), places)
    report = output(root, ["rev-list", "--first-parent", "--reverse", "--end-of-options", at.commit, "--", *git_paths])
    commits = report.decode().split()
    stride = 1
    while len(commits) > most and -(-len(commits) // stride) >= most:
        stride *= 2
    numbers = sorted({*range(0, len(commits), stride), *range(len(commits))[-1:]})
    signatures = revisions.signatures(root, [commits[number] for number in numbers])
    samples = tuple(Sample(number + 1, signatures[commits[number]]) for number in numbers)
    return History(samples, len(commits), bool(revisions.boundary(root)))
