"""Whether a configuration changed since it was loaded, without reading it again."""

from pathlib import Path

from duckkb.config.files import config_paths

Stamp = tuple[tuple[str, int, int, int, int], ...]


def stamp(root: Path) -> Stamp:
    """Path, size, mtime and ctime in ns and inode of config.yaml and each file of ontology/; two that differ mean a new load."""
    found = []
    for path in config_paths(root):
        try:
            status = (root / path).lstat()
        except OSError:
            continue
        found.append((path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return tuple(found)
