"""Signals that ask a command to end: it puts down what it holds, and its exit code is 128 + the signal's number."""

import signal
from types import FrameType

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_asked: list[int] = []


def listen() -> None:
    """From now on the first of these signals is a KeyboardInterrupt, and a second one ends the process at once."""
    for number in _heeded():
        signal.signal(number, _ask)


def asked() -> bool:
    """Whether a signal came."""
    return bool(_asked)


def exit_code(code: int) -> int:
    """How a command ends that would have ended with `code`."""
    return 128 + _asked[0] if _asked else code


def _heeded() -> list[signal.Signals]:
    """Without those that were ignored from the start, as under nohup or in the background."""
    return [number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN]


def _ask(number: int, _: FrameType | None) -> None:
    _asked.append(number)
    for one in _heeded():
        signal.signal(one, signal.SIG_DFL)
    raise KeyboardInterrupt
