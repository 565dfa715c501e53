"""Detects renamed files with git."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from duckkb.truth.git.run import answer, disable_filters


def renames(root: Path, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> dict[str, str]:
    """Return the former path of each renamed file; `old` are the deleted files, `new` the added files, by path. At
    least half of the content must be the same (`git diff -M`). Raises `errors.Unavailable` (E_GIT).
    """
    if not (old and new):
        return {}
    paths = {}
    with TemporaryDirectory(prefix="duckkb-renames-") as folder:
        sides = [Path(folder, name) for name in ("old", "new")]
        for side, files in zip(sides, (old, new), strict=True):
            for number, path in enumerate(sorted(files)):
                place = side / f"{number:07}" / (path.rpartition("/")[2].strip(".") or "-")  # a tree may name `..`
                place.parent.mkdir(parents=True)
                place.write_bytes(files[path])
                paths[os.fsencode(place)] = path
        settings = {**disable_filters(root), "diff.renameLimit": "1000"}
        command = ["diff", "--no-index", "--no-ext-diff", "--name-status", "--diff-filter=R", "-M50%", "-z"]
        result = answer(root, [*command, *map(str, sides)], settings=settings)
    if result.code > 1:
        raise result.failure("diff")
    fields = result.output.split(b"\0")
    return {paths[name]: paths[was] for was, name in zip(fields[1::3], fields[2::3], strict=True)}
