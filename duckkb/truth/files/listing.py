"""What `data/` was when every part was surely the one that was read: whether it still is, is told at the cost of listing it."""

import os
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR

from duckkb.truth.files.survey import Survey
from duckkb.truth.files.tree import Part
from duckkb.truth.layout import DATA

_Numbers = tuple[int, int, int, int]
_ABSENT: _Numbers = (-1, -1, -1, -1)


class Listing:
    """Each folder with the names in it: of a part its size, mtime, inode and ctime, of anything else whether it is a folder."""

    def __init__(self, folders: Mapping[str, Mapping[str, _Numbers | bool]]) -> None:
        self._folders = folders

    @classmethod
    def of(cls, found: Survey, parts: Mapping[str, Part]) -> "Listing | None":
        """What a survey saw, of which these parts were read. None where names and stamps alone do not tell: where there is
        what does not belong there, or a part was written so shortly before it was read that only its digest tells."""
        if found.findings or len(found.files) != len(parts) or any(part.stamp.is_racy for part in parts.values()):
            return None
        folders: dict[str, dict[str, _Numbers | bool]] = {}
        for path, names in found.folders.items():
            folders[path] = {
                name: _numbers(status) if (status := found.files.get(f"{path}/{name}")) else is_folder
                for name, is_folder in names.items()
            }
        return cls(folders)

    def is_still_so(self, root: Path) -> bool:
        """Whether a survey would see the same again; False where it cannot be told."""
        try:
            return S_ISDIR(os.lstat(root / DATA).st_mode) and all(
                _is_as(root / path, known) for path, known in self._folders.items()
            )
        except OSError:
            return False


def _is_as(folder: Path, known: Mapping[str, _Numbers | bool]) -> bool:
    if os.scandir not in os.supports_fd:
        return _holds(folder, known)
    descriptor = os.open(folder, os.O_RDONLY)  # names below it are found faster than paths
    try:
        return _holds(descriptor, known)
    finally:
        os.close(descriptor)


def _holds(folder: Path | int, known: Mapping[str, _Numbers | bool]) -> bool:
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            numbers = known.get(entry.name, _ABSENT)
            if numbers is True or numbers is False:
                if not (entry.is_dir(follow_symlinks=False) if numbers else entry.is_file(follow_symlinks=False)):
                    return False
            elif _numbers(entry.stat(follow_symlinks=False)) != numbers:
                return False
            count += 1
    return count == len(known)


def _numbers(status: os.stat_result) -> _Numbers:
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
