"""A process that has everything imported and forks a child for each job: a real process, started in milliseconds.

Reads jobs as JSON lines on stdin and answers each with one line. A job: `cwd`, `args` of the command line (or `session`,
a function of `session`), `out` (where stdout, stderr and the calls go), `env`, `plan` (see `hooks.Plan`),
`moment` (the clock stands still there), `role` (seeds names that are otherwise drawn), `weak` (see `_weaken`),
`limits` of resources, `dies_over`: whether a file over its limit ends the process.
"""

import importlib
import json
import os
import signal
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.harness.faults.hooks import Hooks, Plan

HEAVY = (
    "duckdb", "tantivy", "pyarrow", "pyarrow.parquet", "numpy", "orjson", "jsonschema", "jsonschema_rs", "rjieba", "yaml",
    "portalocker", "socket", "duckkb.app.wiring", "duckkb.engine.index.plan", "duckkb.review.check.findings",
    "duckkb.lanes.type_lanes", "duckkb.lanes.lexical.lexical", "duckkb.lanes.sql.tables",
    "duckkb.lanes.vectors.vectors", "duckkb.indexing.tokens", "duckkb.indexing.team_files", "duckkb.indexing.cache_format",
    "duckkb.cli.main", "duckkb.cli.verbs.base", "duckkb.cli.verbs.care", "duckkb.cli.verbs.find", "duckkb.cli.lines", "duckkb.cli.verbs.read",
    "duckkb.cli.verbs.write", "duckkb.actions.resolve", "duckkb.truth.commit.protocol", "duckkb.__main__", "tests.harness.faults.session",
    "duckkb.actions.asking", "duckkb.actions.reading", "duckkb.lanes.sql.arrow", "duckkb.lanes.sql.rows",
    "duckkb.llm.providers", "numpy.ma", "pyarrow.dataset", "secrets",
)  # fmt: skip
LONGEST = 120


def main() -> None:
    for name in HEAVY:
        importlib.import_module(name)
    for line in sys.stdin:
        print(_run(json.loads(line)), flush=True)


def _run(job: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        try:
            _live(job)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _live(job: dict[str, Any]) -> None:
    out = Path(job["out"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        target = job.get(name) or str(out / name)
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.dup2(os.open(job.get("stdin") or os.devnull, os.O_RDONLY), 0)
    signal.alarm(LONGEST)  # a command that hangs ends by a signal, which no command may
    os.chdir(job["cwd"])
    os.environ.update(job.get("env", {}))
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
    _end_by(hooks, out / "calls")
    if job.get("session"):
        from tests.harness.faults import session as fault_session

        getattr(fault_session, job["session"])(hooks)
        os._exit(0)
    from duckkb.__main__ import main as command

    sys.argv = ["duckkb", *job["args"]]
    command()


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

    from duckkb.truth.commit import journal, protocol

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
        protocol.commit = in_place
    if what == "no journal":
        journal.load = lambda stage, name: None


if __name__ == "__main__":
    main()
