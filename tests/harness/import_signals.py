"""A command line that gets SIGTERM in the middle of an import that C code asked for.

    python -m tests.harness.import_signals NUMBER COMMAND...

`NUMBER` counts the imports of modules that are not loaded yet; with 0 no signal comes, and stderr ends in a line of JSON: the
numbers and names of those that C code asked for (Python's own `import` statement and importlib itself leave them whole).
"""

import dis
import json
import os
import signal
import sys
from types import FrameType
from typing import Any

from duckkb import __main__

_STATEMENT = dis.opmap["IMPORT_NAME"]
_OF_IMPORTLIB = ("_find_and_load_unlocked", "_handle_fromlist")


def _is_from_c(frame: FrameType) -> bool:
    """Whether the code that runs in the frame is neither an import statement nor importlib's load of a parent."""
    return frame.f_code.co_code[frame.f_lasti] != _STATEMENT and frame.f_code.co_name not in _OF_IMPORTLIB


def run(number: int, args: list[str]) -> None:
    """Run the command line in this process and end it."""
    imported: list[str] = []
    from_c: list[tuple[int, str]] = []
    leave = os._exit

    def watch(event: str, values: tuple[Any, ...]) -> None:
        if event != "import":
            return
        imported.append(values[0])
        if _is_from_c(sys._getframe(1)):
            from_c.append((len(imported), values[0]))
        if len(imported) == number:
            signal.raise_signal(signal.SIGTERM)

    def report(code: int) -> None:
        if number == 0:
            os.write(2, b"\n" + json.dumps(from_c).encode())
        leave(code)

    __main__.os._exit = report  # type: ignore[assignment]
    sys.argv = ["duckkb", *args]
    sys.addaudithook(watch)
    __main__.main()


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
