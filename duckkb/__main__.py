"""`python -m duckkb` and the `duckkb` command.

`python -m` looks for every module in the current folder first, which may be a clone with a `json.py` of its own. What
Python itself imports on the way here is out of our hands (use `duckkb`, or `python -P -m duckkb`, in such a folder);
the rest is not looked for there.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path:
    del sys.path[0]

import gc
import os
from contextlib import suppress
from io import TextIOWrapper

from duckkb.cli import stop

_ALLOCATIONS = 200_000
"""How many objects come to be between two looks of Python's collector for those that only point at each other. At its own
number, 700, a command spends a tenth of its time on them, one that opens 10,000 documents a quarter, and finds next to none."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    stop.listen()
    gc.set_threshold(_ALLOCATIONS, 20, 20)
    code = 0
    try:
        _open_closed_streams()
        stop.await_input()
        from duckkb.cli.main import run

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # JSON lines are UTF-8 whatever the locale says
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        code = run(sys.argv[1:])
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a closed pipe or a full disk: `run` has said what there was to say
                stream.flush()
    except BaseException:  # a signal before or after `run`, or while something was imported
        if not stop.asked():
            raise
    # Files are closed and streams flushed: tearing down what the native libraries keep would only cost time, and a
    # thread of theirs that is still alive then must not turn a finished command into a failed one.
    os._exit(stop.exit_code(code))


def _open_closed_streams() -> None:
    """Point streams that the caller closed (`<&-`, `>&-`) to nowhere. Otherwise the next file that is opened would get
    the number of one of them, and what a library prints there would land in it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
