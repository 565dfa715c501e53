"""The lines of a server on stderr: one line an event, in which no client's text can begin another line."""

import json
import logging
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from duckkb.rules.invisible import visible

Level = Literal["info", "warning", "error"]
_LONGEST = 500
_as_json = False


def use_json() -> None:
    """Print each line of this process as a JSON object from now on."""
    global _as_json
    _as_json = True


def say(text: str) -> None:
    """Print one line on stderr; do nothing where stderr is closed."""
    line = " ".join(visible(text[:_LONGEST], _escape).split())
    if _as_json:
        record("said", "warning", {"message": line})
    else:
        _print(f"duckkb: {line}")


def record(event: str, level: Level, facts: dict[str, Any]) -> None:
    """Print an event as one JSON object; long texts are cut."""
    head = {"ts": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z", "level": level, "event": event}
    short = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in facts.items()}
    _print(json.dumps(head | short))  # in ASCII: no Unicode character can end the line


def _print(line: str) -> None:
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def report_unexpected(what: str, problem: BaseException) -> None:
    """Report an unexpected exception by type and place, never by its text, which may repeat stored data."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    say(f"{what}: E_INTERNAL {type(problem).__name__}{place}")


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None:
            report_unexpected(record.name, problem)
        else:
            say(f"{record.name}: {record.getMessage()}")


def take_over(*names: str) -> None:
    """Print what libraries log under these names, from warnings on, as such lines."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_Lines(logging.WARNING)], False
        logger.setLevel(logging.WARNING)


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
