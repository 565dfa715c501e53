"""Samples the commits of a long history: few enough to read each, and the same ones tomorrow."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision, Signature
from duckkb.truth.git.run import output, repository_of


class Sample(Struct, frozen=True):
    """A commit of a history: `number` counts the commits that touched the requested places, 1 being the oldest."""

    number: int
    by: Signature


class History(Struct, frozen=True):
    """The `samples`, oldest first, of `total` commits; `is_shallow`: older commits are not available."""

    samples: tuple[Sample, ...] = ()
    total: int = 0
    is_shallow: bool = False


def sample_history(root: Path, at: Revision, places: Sequence[str], most: int) -> History:
    """Sample at most `most` commits (2 or more) up to `at` that touched some places, on the line of first parents:
    the oldest, every second, fourth, eighth ... after it, and the newest. As the history grows, a commit that
    was left out stays so, and cached results for the others remain useful.
    """
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
