"""Printing to stdout and stderr: exact into a pipe or a file, harmless on a terminal.

Stored text, file names and server messages may hold anything: terminal sequences, controls that reorder a line,
invisible characters, and commands that a forge reads in a job's log. Text for people has escapes instead; data
on stdout is exact unless stdout is a terminal.

Signals that end a command: it stops cleanly, with exit code 128 + the signal's number.

A signal may come between Python's last check and a read of stdin. The read would then wait for a writer that
may never come, and the signal with it. So the wait is cut into pieces, and Python checks for signals after
each."""

import io
import json
import os
import re
import select
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from duckkb.types.errors import Unavailable, shell_word
from duckkb.types.invisible_characters import visible

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LONGEST = 1_000
_SLOW_S = 2.0
_ENDS = re.compile("[\t\n]")
# GitHub obeys lines of a job's log with `::` at their start, or `##[` anywhere.
_COMMAND = re.compile(r"^(?P<indent>\s*):(?=:)|#(?=#\[)", re.MULTILINE)


def one_line(text: str) -> str:
    r"""Return a text for people on one line, with terminal sequences escaped.

    >>> one_line("a\x1b[31mb\n")
    'a\\u001b[31mb\\u000a'
    """
    return escape_workflow_commands(_ENDS.sub(lambda match: _escape(match[0]), visible(text, _escape)))


def escape_workflow_commands(text: str) -> str:
    r"""Escape lines of a text that are commands to the forge that runs the job.

    >>> escape_workflow_commands("::error file=a::b\nok ##[group]")
    '\\u003a:error file=a::b\nok \\u0023#[group]'
    """
    return _COMMAND.sub(lambda match: (match["indent"] or "") + _escape(match[0][-1]), text)


def has_command(text: str) -> bool:
    """Return whether a line of the text would be a command in a job's log."""
    return _COMMAND.search(text) is not None


def brief(text: str) -> str:
    """Shorten a message that repeats a large value; values may be megabytes."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def result(text: str, end: str = "\n") -> None:
    """Print a result on stdout.

    Raises `errors.Unavailable` (E_IO) where it cannot be written; BrokenPipeError passes.
    """
    _print_text((visible(text, _escape) if sys.stdout.isatty() else text) + end)


def _print_text(text: str, color: bool | None = None) -> None:
    try:
        click.echo(text, nl=False, color=color)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise make_print_error(error) from error


def make_print_error(error: OSError) -> Unavailable:
    """Return the error for a result that cannot be printed."""
    return Unavailable(
        f"cannot write to stdout: {error.strerror or error}; the command itself was carried out",
        code="E_IO",
        suggestion="free space where stdout is written, then run the command again",
    )


def print_drawing(text: str) -> None:
    """Print lines for people on stdout, colours included, whose data is already escaped. Raises as `result`."""
    _print_text(escape_workflow_commands(text) + "\n", color=True)


def comment(text: str) -> None:
    """Print Markdown, a result; escape commands in it where stdout is a job's log. Raises as `result`."""
    result(escape_workflow_commands(text) if into_log() else text)


def into_log() -> bool:
    """Return whether stdout is, or may become, a job's log: in a job, anything but a file."""
    from duckkb import config

    try:
        return config.is_in_workflow() and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return True


def is_on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


_said_in = {"json": False}
_process = {"has counter": False}
_suggested = {"base": ""}


def say_in_json(as_json: bool) -> None:
    """Set whether stderr has JSON objects: {"note": ...}, {"notice", "message", "remedy"}, or an error."""
    _said_in["json"] = as_json


def says_json() -> bool:
    """Return whether stderr has JSON objects."""
    return _said_in["json"]


def name_base(base: str) -> None:
    """Set the base that suggested commands name from now on; empty for none."""
    _suggested["base"] = base


def _add_base(text: str) -> str:
    """Add the base to each command of a text that names none."""
    if not _suggested["base"]:
        return text
    from duckkb.cli.verb_list import BY_NAME

    verbs = "|".join(verb for verb in BY_NAME if verb != "init")
    return re.sub(
        rf"(?<![\w/.-])duckkb (?=(?:{verbs})\b)", lambda _: f"duckkb --kb {shell_word(_suggested['base'])} ", text
    )


def error(
    message: str, code: str, suggestion: str, exit_code: int, more: Mapping[str, Any] = MappingProxyType({})
) -> int:
    """Print the last line on stderr, JSON for programs, words for people; return the exit code."""
    message, suggestion = brief(_add_base(message)), brief(_add_base(suggestion))
    if says_json():
        data({"error": message, "code": code, "suggestion": suggestion, **more})
        return exit_code
    note(f"duckkb: {message}")
    if suggestion:
        note(f"  try: {suggestion}")
    return exit_code


def note(line: str) -> None:
    """Print one line on stderr."""
    line = _add_base(line)
    data({"note": line}) if says_json() else text(one_line(line))


def tell_notice(code: str, message: str, remedy: str = "") -> None:
    """Print a notice of the catalogue on stderr."""
    message, remedy = _add_base(message), _add_base(remedy)
    if says_json():
        data({"notice": code, "message": message, "remedy": remedy})
    else:
        note(f"{code}: {message}" + (f" ({remedy})" if remedy else ""))


def data(value: Mapping[str, Any]) -> None:
    """Print an object as one line of JSON on stderr."""
    text(one_line(json.dumps(value, ensure_ascii=False)))


def text(lines: str) -> None:
    """Print on stderr. Where that fails (a closed pipe, a full disk) print nothing.

    Results are printed all the same, and the exit code tells the rest.
    """
    with suppress(OSError):
        click.echo(lines, err=True)


def progress(label: str, count: int, total: int) -> None:
    """Print a counter that rewrites its own line on a terminal."""
    _process["has counter"] = True
    end = "\n" if count >= total else ""
    with suppress(OSError):
        click.echo(f"\r{label} {count}/{total}{end}", nl=False, err=True)


@contextmanager
def progress_when_slow(line: str) -> Iterator[None]:
    """Say on a terminal what takes longer than two seconds, unless a counter does."""
    if says_json() or not sys.stderr.isatty():
        yield
        return
    import threading

    _process["has counter"] = False
    timer = threading.Timer(_SLOW_S, lambda: None if _process["has counter"] else note(line))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _escape(character: str) -> str:
    """Escape a character as JSON does, so that text on a terminal stays readable to programs."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_AGAIN_S = 0.001
_PIECE_S = 0.5
_CHUNK = 1 << 20
_asked: list[int] = []


def listen() -> None:
    """Turn the first of these signals into a KeyboardInterrupt; a second signal ends the process at once."""
    for number in _list_signals():
        signal.signal(number, _ask)
    sys.unraisablehook = _handle_unraisable


def is_stop_requested() -> bool:
    """Return whether a signal came."""
    return bool(_asked)


def exit_code(code: int) -> int:
    """Return the exit code of a command that would have ended with `code`."""
    return 128 + _asked[0] if _asked else code


@contextmanager
def await_stop() -> Iterator[None]:
    """Let a signal end the block normally, without a failure."""
    try:
        yield
    except BaseException:  # a signal inside a library may come out as any error
        if not _asked:
            raise
    _asked.clear()


def _list_signals() -> list[signal.Signals]:
    """Return the signals to handle, without those ignored from the start, as under nohup or in the background."""
    return [number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN]


def _ask(number: int, _: FrameType | None) -> None:
    _asked.append(number)
    for signal_number in _list_signals():
        signal.signal(signal_number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _handle_unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """Repeat a signal whose KeyboardInterrupt Python dropped where nothing could catch it, as in a finalizer."""
    if not (_asked and problem.exc_type is KeyboardInterrupt):
        sys.__unraisablehook__(problem)
    elif hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _ask_again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _ask_again(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Awaited(io.RawIOBase):
    """A descriptor that is read only once there is something to read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer).cast("B")
        data = self._read_piece(len(target))
        target[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        pieces = []
        while piece := self._read_piece(_CHUNK):
            pieces.append(piece)
        return b"".join(pieces)

    def _read_piece(self, size: int) -> bytes:
        while not select.select([self._descriptor], [], [], _PIECE_S)[0]:
            pass
        return os.read(self._descriptor, size)


def await_input() -> None:
    """Make `sys.stdin` wait in pieces. On Windows only sockets can be awaited so, and nothing changes."""
    if os.name != "nt" and isinstance(sys.stdin, io.TextIOWrapper):
        raw = _Awaited(sys.stdin.fileno())
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), sys.stdin.encoding, sys.stdin.errors)
