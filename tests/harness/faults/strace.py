"""strace: real processes killed, or failing, at a call of the kernel; and what the kernel was asked, to hold hooks against."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.faults.bases import Write
from tests.harness.faults.run import Ended

_KINDS = {
    "openat": "create", "open": "create", "creat": "create", "write": "write", "pwrite64": "write", "fsync": "fsync",
    "fdatasync": "fsync", "rename": "rename", "renameat": "rename", "renameat2": "rename", "unlink": "unlink",
    "unlinkat": "unlink", "mkdir": "mkdir", "mkdirat": "mkdir", "rmdir": "rmdir", "link": "link", "linkat": "link",
    "symlink": "symlink", "symlinkat": "symlink", "truncate": "truncate", "ftruncate": "truncate", "fchmod": "chmod",
    "chmod": "chmod", "fchmodat": "chmod",
}  # fmt: skip
_LOOKS = {"pread64": "read", "fcntl": "lock"}
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)")
_OPEN_FILE = re.compile(r"\d+<([^>]*)>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")


@dataclass(frozen=True)
class Call:
    """One call that changes a file below the root: `number` counts the calls of that name in its process, from 1."""

    name: str
    number: int
    kind: str
    path: str


def missing() -> str:
    """Why strace cannot be used here; empty where it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "strace may not trace here"


def run(
    folder: Path, write: Write, fault: str = "", command: Sequence[str] = (), only: Sequence[Path] = ()
) -> tuple[Ended, list[Call]]:
    """Run a write as a process of its own under strace, with a fault such as `fsync:error=EIO:when=3`; `only` calls on some
    files are counted, and fail."""
    log = folder / "strace.log"
    inject = ["-e", f"inject={fault}"] if fault else []
    names = ",".join(f"?{name}" for name in (*_KINDS, *(_LOOKS if only else ())))
    paths = [word for path in only for word in ("-P", str(path))]
    traced = ["strace", "-f", "-y", "-s", "0", "-o", str(log), *paths, "-e", f"trace={names}", *inject]
    env = {
        **os.environ,
        **dict(write.env),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    args = [sys.executable, "-m", "duckkb", *(command or write.args)]
    done = subprocess.run(
        [*traced, *args], cwd=folder / "kb", env=env, input=write.stdin.encode(), capture_output=True, check=False
    )
    calls = list(_calls(log.read_text("utf-8", "replace"), str(folder)))
    log.unlink()
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode()), calls


def _calls(text: str, root: str) -> "list[Call]":
    """Of the first process alone: no other one changes a file here."""
    first, found = "", []
    numbers: Counter[str] = Counter()
    for line in text.splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        process, name, rest = match.groups()
        first = first or process
        path = _path(name, rest)
        if process != first:
            assert not path.startswith(root + "/"), line
            continue
        numbers[name] += 1
        kind = _KINDS.get(name) or _LOOKS[name]
        if path.startswith(root + "/") and (kind != "create" or _WRITES.search(rest)):
            found.append(Call(name, numbers[name], kind, path[len(root) + 1 :]))
    return found


def _path(name: str, rest: str) -> str:
    """The file that is changed; of two, the one that comes to be."""
    if name in ("write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fchmod", *_LOOKS):
        found = _OPEN_FILE.match(rest)
        return found[1] if found else ""
    quoted = _QUOTED.findall(rest)
    path: str = quoted[-1] if quoted else ""
    return path if path.startswith("/") else os.path.normpath(f"{(_OPEN_FILE.findall(rest) or [''])[-1]}/{path}")
