"""Text on its way to stdout and stderr: exactly as it is into a pipe or a file, without effect on a terminal.

Stored text, names of files and what a server said may hold anything, also sequences that a terminal obeys, and controls
that reorder what a person reads. JSON on stdout is left as it is unless stdout is a terminal.
"""

import re
import sys
from contextlib import suppress

import click

from duckkb.errors import Unavailable

_LONGEST = 1_000
_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    r"""A text for people on one line, with what a terminal would obey as an escape.

    >>> one_line("a\x1b[31mb\n")
    'a\\u001b[31mb\\u000a'
    """
    return _LINE.sub(_escape, text)


def brief(text: str) -> str:
    """A message without the bulk of a value that it repeats: what was given may be megabytes."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def result(text: str, end: str = "\n") -> None:
    """Print on stdout, a result. Raises `errors.Unavailable` (E_IO) where it takes no more; BrokenPipeError passes."""
    _out((_TEXT.sub(_escape, text) if sys.stdout.isatty() else text) + end)


def _out(text: str, color: bool | None = None) -> None:
    try:
        click.echo(text, nl=False, color=color)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unavailable(
            f"stdout takes no more output: {error.strerror or error}; the command itself was carried out",
            code="E_IO",
            suggestion="free space where stdout goes, then ask again",
        ) from error


def drawn(text: str) -> None:
    """Print lines on stdout in which data was made harmless already, with colours as they are. Raises as `result`."""
    _out(text + "\n", color=True)


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def note(line: str) -> None:
    """Print one line on stderr."""
    text(one_line(line))


def text(lines: str) -> None:
    """Print on stderr. Where nobody listens (a closed pipe, a full disk) nothing is said: results are printed all the same,
    and the exit code tells the rest."""
    with suppress(OSError):
        click.echo(lines, err=True)


def _escape(found: "re.Match[str]") -> str:
    return f"\\u{ord(found[0]):04x}"
