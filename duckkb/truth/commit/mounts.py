"""What kind of file system a folder lies on, as far as the kernel tells. Empty where there is no /proc."""

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_OVER_A_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf", "virtiofs"}
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `path`, `ext4` for one; empty where nobody tells. `mounts` is the text of
    mountinfo."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape") if mounts is None else mounts
    except OSError:
        return ""
    place = path.resolve()
    found, depth = "", -1
    for line in lines.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if len(fields) < 5:
            continue
        point = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4]))
        # Of two mounts on one point the later one hides the earlier.
        if place.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kind, len(point.parts)
    return found


def is_remote(kind: str) -> bool:
    """Whether a file system of this type may be shared with other machines, where a kernel's lock may hold nobody else.

    >>> is_remote("nfs4"), is_remote("fuse.sshfs"), is_remote("fuseblk"), is_remote("ext4")
    (True, True, False, False)
    """
    return kind in _OVER_A_NETWORK or kind == "fuse" or kind.startswith("fuse.")
