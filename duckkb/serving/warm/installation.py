"""Whether what this process runs is still what lies on the disk."""

import sys
from pathlib import Path

import duckkb

_Stamp = tuple[int, int, int]


def stamps() -> dict[Path, _Stamp | None]:
    """By path, of every file of duckkb, as presets are data, the folders in which libraries lie, and Python: inode, size and time of change; None
    where nothing is there."""
    own = Path(duckkb.__file__).parent
    libraries = [path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    files = (path for path in own.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    paths = [*files, own, *libraries, Path(sys.executable), Path(sys.prefix, "pyvenv.cfg")]
    return {path: _stamp(path) for path in paths}


def is_changed(before: dict[Path, _Stamp | None]) -> bool:
    """Whether any of these is another than it was."""
    return any(_stamp(path) != found for path, found in before.items())


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
