"""Detects whether the installation on disk has changed since this process loaded it."""

import sys
from pathlib import Path

import duckkb

_Stamp = tuple[int, int, int]


def stamps() -> dict[Path, _Stamp | None]:
    """Return inode, size and time of change by path; None where the path is absent.

    The paths are every file of duckkb, as presets are data, the folders of libraries, and Python.
    """
    package_folder = Path(duckkb.__file__).parent
    libraries = [path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    files = (path for path in package_folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    paths = [*files, package_folder, *libraries, Path(sys.executable), Path(sys.prefix, "pyvenv.cfg")]
    return {path: _stamp(path) for path in paths}


def is_changed(before: dict[Path, _Stamp | None]) -> bool:
    """Return whether any of these stamps has changed."""
    return any(_stamp(path) != old_stamp for path, old_stamp in before.items())


def _stamp(path: Path) -> _Stamp | None:
    try:
        file_stat = path.stat()
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns
