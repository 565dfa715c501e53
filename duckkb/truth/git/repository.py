"""Facts about the git around a base that say whether it will keep the files as they are. Asked through `history.run`."""

import os
from collections.abc import Sequence
from pathlib import Path

from duckkb.truth.git import history
from duckkb.values import dataclass

_SETTINGS = r"^core\.(autocrlf|eol|ignorecase|precomposeunicode|bare)$"


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of repository this is. `readable`: git can read it, and the commit that HEAD names is there."""

    readable: bool
    shallow: bool = False
    linked: bool = False


def git_version(root: Path) -> tuple[int, ...] | None:
    """The version of git as numbers; None where there is no git."""
    said = (history.run(root, ["version"]) or b"").decode(errors="replace").split()
    if said[:2] != ["git", "version"] or len(said) < 3:
        return None
    return tuple(int(part) for part in said[2].split(".")[:3] if part.isdecimal())


def has_marker(root: Path) -> bool:
    """Whether `.git` stands in this folder or above it, in whatever state."""
    here = Path(os.path.realpath(root))
    return any(os.path.lexists(folder / ".git") for folder in (here, *here.parents))


def shape(root: Path) -> Shape | None:
    """None without a repository."""
    repository = history.find_repository(root)
    if repository is None:
        return Shape(False) if has_marker(root) else None
    if history.run(root, ["rev-parse", "--git-dir"]) is None:
        return Shape(False)
    commit = history.head_commit(root)
    if commit is not None and history.run(root, ["cat-file", "-e", f"{commit}^{{tree}}"]) is None:
        return Shape(False)
    shallow = (repository.common_dir / "shallow").exists()
    return Shape(True, shallow, repository.git_dir != repository.common_dir)


def settings(root: Path) -> dict[str, str]:
    """The settings of git that change files or their names, by lower-case key; of several values the last counts."""
    listed = history.run(root, ["config", "-z", "--get-regexp", _SETTINGS]) or b""
    pairs = (entry.decode(errors="replace").partition("\n") for entry in listed.split(b"\0") if entry)
    return {key.lower(): value.lower() for key, _, value in pairs}


def attributes(root: Path, path: str, names: Sequence[str] = ("text", "eol", "filter")) -> dict[str, str] | None:
    """What git does to one path of the base, by attribute; None where git does not tell."""
    listed = history.run(root, ["check-attr", "-z", *names, "--", path])
    if not listed:
        return None
    fields = listed.decode(errors="replace").split("\0")
    return dict(zip(fields[1::3], fields[2::3], strict=False))
