"""strace: real processes killed, or failing, at a call of the kernel; and what the kernel was asked, to hold hooks against."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
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
_CLONES = ("clone", "clone3")
_CLONED = re.compile(r"(\d+)\s+(<\.\.\. )?clone3?\b(.*)")
_NUMBER = re.compile(r"= (\d+)$")
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)")
_OPEN_FILE = re.compile(r"\d+<([^>]*)>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")


@dataclass(frozen=True)
class Call:
    """One call that changes a file below the root: `number` counts the calls of that name in its thread, from 1, as strace
    counts them for each thread by itself: a fault at a number meets every thread that comes so far."""

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
    files are counted, and fail; the log of them names no process.

    What the user keeps for all bases is empty unless the write says otherwise: other bases there would be looked through,
    and each case would make more calls than the one before."""
    log = folder / "strace.log"
    inject = ["-e", f"inject={fault}"] if fault else []
    names = ",".join(f"?{name}" for name in (*_KINDS, *(_LOOKS if only else _CLONES)))
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
    with tempfile.TemporaryDirectory() as home:
        env["DUCKKB_CACHE_HOME"] = dict(write.env).get("DUCKKB_CACHE_HOME", home)
        done = subprocess.run(
            [*traced, *args], cwd=folder / "kb", env=env, input=write.stdin.encode(), capture_output=True, check=False
        )
    calls = _calls(log.read_text("utf-8", "replace"), str(folder))
    log.unlink()
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode()), calls


def _calls(text: str, root: str) -> list[Call]:
    """Of every thread of the first process; no other process changes a file here. Of a log of some files alone, which does
    not say who began which thread, whoever asks holds a whole one against that."""
    threads = _threads(text)
    found = []
    numbers: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        match = _LINE.match(line)
        if not match or match[2] in _CLONES:
            continue
        thread, name, rest = match.groups()
        numbers[thread, name] += 1
        path = _path(name, rest)
        kind = _KINDS.get(name) or _LOOKS[name]
        if path.startswith(root + "/") and (kind != "create" or _WRITES.search(rest)):
            assert not threads or thread in threads, line
            found.append(Call(name, numbers[thread, name], kind, path[len(root) + 1 :]))
    return found


def _threads(text: str) -> set[str]:
    """Those of the first process; none where the log does not say who began which."""
    if not re.search(rf"^\d+ +(?:{'|'.join(_CLONES)})\(", text, re.MULTILINE):
        return set()
    found = {text.split(maxsplit=1)[0]}
    begins: dict[str, bool] = {}
    for line in text.splitlines():
        if match := _CLONED.match(line):
            thread, resumed, rest = match.groups()
            begins[thread] = begins.get(thread, False) if resumed else "CLONE_THREAD" in rest
            made = _NUMBER.search(rest)
            if made and begins[thread] and thread in found:
                found.add(made[1])
    return found


def _path(name: str, rest: str) -> str:
    """The file that is changed; of two, the one that comes to be."""
    if name in ("write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fchmod", *_LOOKS):
        found = _OPEN_FILE.match(rest)
        return found[1] if found else ""
    quoted = _QUOTED.findall(rest)
    path: str = quoted[-1] if quoted else ""
    return path if path.startswith("/") else os.path.normpath(f"{(_OPEN_FILE.findall(rest) or [''])[-1]}/{path}")
