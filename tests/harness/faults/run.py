"""Running commands that are to die or fail, and holding what they leave against what they should."""

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import oracle
from tests.harness.faults.hooks import DIED
from tests.harness.forks import Forks

MOMENT = "2026-03-01T10:00:00.000000Z"
LATER = "2026-03-02T11:30:00.000000Z"

_RANDOM = re.compile(r"/\.tmp-[^/]*$")

Files = dict[str, tuple[int, bytes | None]]
"""Everything below a folder: path -> (mode, bytes; None for a folder). `kb/` is the base, `state/` what the machine keeps."""


@dataclass(frozen=True)
class Ended:
    """How one run ended: exit code (negative for a signal), output, and the calls it made as [kind, path]."""

    code: int
    out: str
    err: str
    calls: list[list[str]] = field(default_factory=list)
    record: list[dict[str, Any]] = field(default_factory=list)
    failed: int = 0

    @property
    def died(self) -> bool:
        return self.code == DIED or self.code < 0

    @property
    def error(self) -> dict[str, Any]:
        """The JSON error: the last line of stderr."""
        lines = self.err.splitlines()
        found = json.loads(lines[-1]) if lines else {}
        return found if isinstance(found, dict) else {}


class Zygote(Forks):
    """Forks children that run commands; see `child`. One job at a time."""

    def __init__(self) -> None:
        super().__init__(env={"PYTHONHASHSEED": "0"})
        self.ground = Path(tempfile.mkdtemp(prefix="faults-", dir=_fast_ground()))
        self._out = self.ground / "out"
        self._out.mkdir()
        self._count = 0

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.ground, ignore_errors=True)

    @contextmanager
    def case(self, files: Files) -> Iterator[Path]:
        """A fresh folder that holds these files."""
        self._count += 1
        folder = self.ground / f"{self._count}"
        put_back(folder, files)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def run(self, folder: Path, args: Sequence[str], *, stdin: str = "", plan: Mapping[str, Any] | None = None, **job: Any) -> Ended:  # fmt: skip
        """Run a command line in the base of a case, with a fault where there is a plan."""
        given, out, err = (self._out / name for name in ("stdin", "stdout", "stderr"))
        given.write_text(stdin, "utf-8")
        for path in (out, err, self._out / "calls"):
            path.unlink(missing_ok=True)
        if plan is not None:
            job["plan"] = {"root": str(folder), **plan}
        env = {**os.environ, "PYTHONUTF8": "1", "XDG_STATE_HOME": str(folder / "state"), **job.pop("env", {})}
        files = (job.pop("stdin", given), job.pop("stdout", out), err)
        whole = {"args": list(args), "out": str(self._out), "moment": LATER, **job}
        code = self.start("tests.harness.faults.child:live", [whole], cwd=folder / "kb", env=env, files=files).wait()
        said, told = (path.read_text("utf-8") if path.exists() else "" for path in (out, err))
        calls = self._out / "calls"
        seen = json.loads(calls.read_text()) if plan is not None and calls.exists() else {}
        ended = Ended(code, said, told, **seen)
        assert "Traceback" not in told and "E_INTERNAL" not in told and "a bug in duckkb" not in told, (args, told)
        assert code in (0, 1, 2, DIED, *([-signal.SIGXFSZ] if job.get("dies_over") else [])), (args, plan, code, told)
        return ended


def _fast_ground() -> str | None:
    """Memory, where there is some to be used as a folder: nothing here needs a real disk, and fsync is free."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def put_back(folder: Path, files: Files) -> None:
    """Make a folder hold exactly these files, with their modes."""
    folder.mkdir(parents=True)
    for path, (mode, data) in sorted(files.items()):
        target = folder / path
        if data is None:
            target.mkdir()
        else:
            target.write_bytes(data)
        target.chmod(mode)


def taken(folder: Path) -> Files:
    """Everything below a folder, as `put_back` takes it."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        assert stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode), path
        data = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        found[path.relative_to(folder).as_posix()] = (stat.S_IMODE(about.st_mode), data)
    return found


def name_of(files: Files) -> str:
    """One hash for all that the next command can see; who last held the lock does not count, nor a random name."""
    whole = hashlib.sha256()
    for path, (mode, data) in sorted(files.items()):
        if not path.startswith("kb/.git/"):
            content = b"" if data is None or path == "kb/.duckkb/lock" else hashlib.sha256(data).digest()
            whole.update(f"{_RANDOM.sub('/.tmp', path)}\0{mode:o}\0{data is None}\0".encode() + content)
    return whole.hexdigest()


def truth(files: Files) -> dict[str, bytes]:
    """What must be exactly old or exactly new: every file of the base but git's and the local state."""
    return {
        path.removeprefix("kb/"): data
        for path, (_, data) in files.items()
        if data is not None and path.startswith("kb/") and not path.startswith(("kb/.git/", "kb/.duckkb/"))
    }


def left_over(folder: Path) -> list[str]:
    """What may not stay once a command has ended well: see `oracle.leftovers`; also files half made in local state."""
    state = folder / "kb" / ".duckkb"
    stages = [path.relative_to(folder / "kb").as_posix() for path in (state / "txn").glob("*")]
    drafts = [path.relative_to(folder / "kb").as_posix() for path in state.rglob("*") if ".tmp" in path.name]
    return sorted({*oracle.leftovers(folder / "kb"), *stages, *drafts})
