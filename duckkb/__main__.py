"""`python -m duckkb` and the `duckkb` command."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from duckkb.cli.main import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # JSON lines are UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    # Files are closed and streams flushed: tearing down what the native libraries keep would only cost time, and a
    # thread of theirs that is still alive then must not turn a finished command into a failed one.
    os._exit(code)


if __name__ == "__main__":
    main()
