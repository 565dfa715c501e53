"""`python -m duckkb` and the `duckkb` command."""

import sys
from io import TextIOWrapper


def main() -> None:
    from duckkb.cli.main import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # JSON lines are UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
