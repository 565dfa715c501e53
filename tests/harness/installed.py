"""Which packages an installation of duckkb has: python tests/harness/installed.py EXTRA ... prints the tested version of each
that comes as wheels."""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

_CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
_SOURCE_ONLY = {"jieba"}  # pure Python, which its author publishes as source


def plain_name(name: str) -> str:
    """The name of a package as indices compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned_versions() -> dict[str, str]:
    """The versions of constraints.txt by the plain name of each package."""
    lines = _CONSTRAINTS.read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {plain_name(name): version for name, version in pairs}


def packages_with(extras: Iterable[str]) -> set[str]:
    """The plain names of duckkb and all that it needs with these extras, by the metadata of what is installed here."""
    asked, looked_at = [("duckkb", frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while asked:
        name, chosen = asked.pop()
        if (name, chosen) in looked_at:
            continue
        looked_at.add((name, chosen))
        for requirement in map(Requirement, distribution(name).requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in chosen or {""}):
                asked.append((plain_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in looked_at}


if __name__ == "__main__":
    tested = pinned_versions()
    print(*(f"{name}=={tested[name]}" for name in sorted(packages_with(sys.argv[1:]) & tested.keys() - _SOURCE_ONLY)))
