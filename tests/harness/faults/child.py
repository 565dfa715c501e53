"""What a forked child does before a command that is to die or to fail: limits, hooks in the calls to files, a clock that
stands still.

A job: `args` of the command line (or `session`, a function of `session`), `out` (a folder, where the calls are written
down), `plan` (see `hooks.Plan`), `moment` (the clock stands still there), `role` (seeds names that are otherwise drawn),
`weak` (see `_weaken`), `limits` of resources, `dies_over`: whether a file over its limit ends the process.
"""

import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

from tests.harness import forks
from tests.harness.faults.hooks import Hooks, Plan

LONGEST = 120


def live(job: dict[str, Any]) -> None:
    signal.alarm(LONGEST)  # a command that hangs ends by a signal, which no command may
    _stand_still(job)
    if job.get("weak"):
        _weaken(job["weak"])
    for name, values in job.get("limits", {}).items():
        import resource

        resource.setrlimit(getattr(resource, name), tuple(values))
    if job.get("dies_over"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if job.get("confined"):
        _give_up_powers()
    hooks = Hooks(Plan(**job["plan"])).install() if "plan" in job else None
    _end_by(hooks, Path(job["out"]) / "calls")
    if job.get("session"):
        from tests.harness.faults import session

        getattr(session, job["session"])(hooks)
        os._exit(0)
    forks.command(*job["args"])


def _give_up_powers() -> None:
    """Root passes over permissions; without its capabilities it does not. Raises OSError where that cannot be."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if os.geteuid() == 0 and ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError("capset")


def _end_by(hooks: Hooks | None, target: Path) -> None:
    """Have `os._exit`, by which every command ends, write the calls down first."""
    leave = os._exit

    def write_down() -> None:
        if hooks is not None:
            hooks.armed = False
            target.write_text(json.dumps({"calls": hooks.calls, "record": hooks.record, "failed": hooks.failed}))

    def end(code: int) -> None:
        write_down()
        leave(code)

    if hooks is not None:
        hooks.farewell = write_down
    os._exit = end


def _stand_still(job: dict[str, Any]) -> None:
    """Time and chance that a job repeats, so that what two runs wrote can be compared byte for byte."""
    import secrets

    from duckkb.app import wiring

    moment, role, drawn = job["moment"], job.get("role", 0), iter(range(1_000_000))
    wiring.SystemClock.now = lambda self: moment
    secrets.token_hex = lambda count=8: f"{role:x}{next(drawn):0{2 * count - 1}x}"
    uuid.uuid4 = lambda: uuid.UUID(int=7, version=4)


def _weaken(what: str) -> None:
    """Take a protection away: writes in place, a journal that is not read."""

    from duckkb.storage import commit_protocol, journal

    def in_place(root: Path, changes: Any, **_: Any) -> dict[str, os.stat_result]:
        facts = {}
        for change in changes:
            target = root / change.path
            if change.data is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(change.data)
                facts[change.path] = target.stat()
        return facts

    if what == "in place":
        commit_protocol.commit = in_place
    if what == "no journal":
        journal.load = lambda stage, name: None
