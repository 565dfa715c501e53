"""A warm process that forks: each child is a process of its own that needs no start of Python, so that kills are cheap.

It reads one JSON object a line, {"start": MODE, "cwd", "args", "stdin", "out", "err", "ignore"} or {"wait": PID}, and
answers one line, the PID or the exit code (negative: the signal that ended it; RUNNING: it has not ended). Modes: `cli` runs a command line in the
fork, `exec` runs a program, `loop` runs `loop.write`.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from tests.conftest import NOTES, make_base

RUNNING = 1000
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MODULES = (
    "app",
    "lanes.type_lanes",
    "lanes.lexical.lexical",
    "cli.verbs.base",
    "cli.verbs.care",
    "cli.verbs.find",
    "cli.main",
    "cli.verbs.read",
    "cli.verbs.write",
    "indexing.cache_format",
)


def serve() -> None:
    """Answer until stdin ends."""
    _warm()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it,
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # one under nohup this
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            ended, status = os.waitpid(asked["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else RUNNING
        else:
            signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
            answer = os.fork()
            if answer == 0:
                _become(asked)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
        print(answer, flush=True)


def _warm() -> None:
    """What a command would import and load, also at its first write: the fork has it already."""
    from importlib import import_module

    for name in _MODULES:
        import_module(f"duckkb.{name}")
    made = make_base(Path("warm"), NOTES)
    with import_module("duckkb").open(made) as kb:
        kb.put("Note", {"id": "warm", "text": "内存 fox"})


def _become(asked: dict[str, Any]) -> NoReturn:
    for number, path, flags in (
        (0, asked["stdin"] or os.devnull, os.O_RDONLY),
        (1, asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, asked["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        os.dup2(os.open(path, flags, 0o644), number)
    os.chdir(asked["cwd"])
    if asked["start"] != "cli":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
    for number in asked["ignore"]:
        signal.signal(number, signal.SIG_IGN)
    code = 70
    try:
        match asked["start"]:
            case "exec":
                os.execv(asked["args"][0], asked["args"])
            case "cli":
                _command(asked["args"])
            case "loop":
                from tests.harness.crowd.loop import write

                write(Path(asked["cwd"]), *asked["args"])
                code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _command(args: list[str]) -> None:
    """A command line. It gets signals once it has had the time to prepare for them, not while this fork is being set up."""
    import duckkb.cli.main as line
    from duckkb.__main__ import main

    run = line.run

    def heeding(args: list[str]) -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
        return run(args)

    line.run = heeding
    sys.argv = ["duckkb", *args]
    main()
