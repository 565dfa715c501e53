"""The entry point of `python -m duckkb` and of the `duckkb` command.

`python -m` searches the current folder first for every module, and that folder may be a clone with its own
`json.py`. This module removes the folder from the path, so later imports do not search it. It cannot protect
what Python itself imports before; use `duckkb` or `python -P -m duckkb` in such a folder.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path:
    del sys.path[0]

import gc
import os
from contextlib import suppress
from io import TextIOWrapper
from typing import Any

from duckkb import warm_client
from duckkb.cli import terminal

_ALLOCATIONS = 200_000
"""The number of allocations between two runs of Python's collector of reference cycles. At the default of 700, a
command spends a tenth of its time in it, opening 10,000 documents a quarter, and it finds almost nothing."""


def main() -> None:
    """Run the command line and end the process with its exit code.

    Asks a warm process of the base first, before it imports anything that takes time.
    """
    code = 0
    try:
        terminal.listen()
        _open_closed_streams()
        warm_code = _ask_warm_process(sys.argv[1:])
        code = _run(sys.argv[1:]) if warm_code is None else warm_code
    except BaseException:  # a signal before or after `run`, or while something was imported
        if not terminal.is_stop_requested():
            raise
    _seal()
    # Files are closed and streams are flushed. Tearing down native libraries would only take time, and one of their
    # threads that is still alive must not make a finished command fail.
    os._exit(terminal.exit_code(code))


def _seal() -> None:
    """Seal the derived state while a key is set, and print the notices that were not printed yet."""
    sealing: Any = sys.modules.get("duckkb.config.encryption_key")
    if sealing is not None:
        from duckkb.cli import terminal

        with suppress(OSError):
            sealing.end()
            for notice in sealing.take_notices():
                terminal.tell_notice(notice.code, notice.message, notice.remedy)
            sys.stderr.flush()


def _ask_warm_process(words: list[str]) -> int | None:
    """Have a warm process answer, print its answer, and return the exit code.

    Returns None where the command has to run in this process.
    """
    try:
        code, pieces = warm_client.answer(words)
        warm_client.write(pieces)
    except warm_client.Cold as why:
        if not warm_client.is_required(words):
            return None
        problem: BaseException = why
    except BrokenPipeError:  # the reader closed the pipe
        return 0
    except (KeyboardInterrupt, OSError) as error:
        problem = error
    else:
        return code
    from duckkb.cli import main

    return main.report_unanswered(words, problem)


def _run(words: list[str]) -> int:
    gc.set_threshold(_ALLOCATIONS, 20, 20)
    terminal.await_input()
    from duckkb.cli.main import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # JSON lines are UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    code = run(words)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a closed pipe or a full disk, which `run` has reported
            stream.flush()
    wiring = sys.modules.get("duckkb.app.wiring")
    if wiring is not None and warm_client.verb(words) in warm_client.SERVED and wiring.wants_to_be_warm():
        from duckkb.server.warm_start import start_after_question

        start_after_question(warm_client.find_named_base(words))
    return code


def _open_closed_streams() -> None:
    """Redirect streams that the caller closed (`<&-`, `>&-`) to the null device.

    Otherwise the next file that is opened gets the descriptor of a closed stream, and receives what libraries print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, the closed one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
