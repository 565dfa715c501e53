"""The lines of a server on stderr: one line an event, in which no client's text can begin another line.

Requests refused at the entrance: counted, sampled into a log of their own, and delayed by wrong tokens from
their address.

A right token is never delayed, so nobody is locked out by others behind one proxy. Few answers are delayed at a
time, so that connections are left."""

import asyncio
import ipaddress
import json
import logging
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from duckkb.server.authentication import BearerTokens, Denial, Noted
from duckkb.types.errors import DuckkbError, Unavailable
from duckkb.types.invisible_characters import visible

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


_FREE = 10
"""Wrong tokens of an address that are answered at once: a mistake, or programs with yesterday's token."""
_FIRST_S, _LONGEST_S, _FORGOTTEN_S = 0.1, 3.0, 600.0
_HELD, _HELD_OF_ONE = 32, 4
_ADDRESSES = 4_096
_LINES, _LINE_S = 60, 1.0
"""Lines that may be written at once, and the seconds after which one more is allowed."""


class _Address(Struct):
    """The state of one address: `wrong` tokens since its last long pause, and answers that are `held` back."""

    wrong: int = 0
    held: int = 0
    seen: float = 0.0


class Strangers:
    """The refused requests of one server, for use in one event loop. `count` gets the code of each refusal."""

    def __init__(
        self,
        tokens: BearerTokens,
        count: Callable[[str], None] = lambda code: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._tokens, self._count, self._clock, self._sleep = tokens, count, clock, sleep
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._held = 0
        self._lines, self._at, self._unwritten = float(_LINES), clock(), 0

    async def refuse(self, denial: Denial, action: str, seen: Noted) -> Unavailable | None:
        """Count a refusal, log it unless there are too many, and delay it where its address sent many wrong
        tokens.

        Returns the error to answer instead where too many wait already (E_BUSY).
        """
        seen.code = denial.code
        self._count(denial.code)
        if self._should_sample():
            left_out, self._unwritten = self._unwritten, 0
            await asyncio.to_thread(self._write, denial, action, seen, left_out)
        return await self._wait(seen.address) if denial.status == 403 else None

    def _should_sample(self) -> bool:
        now = self._clock()
        self._lines, self._at = min(_LINES, self._lines + (now - self._at) / _LINE_S), now
        if self._lines < 1:
            self._unwritten += 1
            return False
        self._lines -= 1
        return True

    def _write(self, denial: Denial, action: str, notes: Noted, left_out: int) -> None:
        try:
            self._tokens.note_refusal(denial, action, notes.request_id, notes.address, left_out)
        except DuckkbError as problem:
            say(f"http: {problem.code} {problem.message}")
        if denial.problem is not None:
            say(f"http: {denial.problem.code} {denial.problem.message}")

    async def _wait(self, address: str) -> Unavailable | None:
        entry, now = self._addresses.setdefault(_find_network(address), _Address()), self._clock()
        entry.wrong = 1 if now - entry.seen > _FORGOTTEN_S else entry.wrong + 1
        entry.seen = now
        self._addresses.move_to_end(_find_network(address))
        if len(self._addresses) > _ADDRESSES:
            self._addresses.popitem(last=False)
        if entry.wrong <= _FREE:
            return None
        seconds = min(_LONGEST_S, _FIRST_S * 2.0 ** min(entry.wrong - _FREE - 1, 10))
        if entry.held >= _HELD_OF_ONE or self._held >= _HELD:
            message = "too many wrong tokens came from this address"
            return Unavailable(message, "E_BUSY", "send the token of `duckkb tenant add`", {"retry_after_s": 3})
        entry.held, self._held = entry.held + 1, self._held + 1
        try:
            await self._sleep(seconds)
        finally:
            entry.held, self._held = entry.held - 1, self._held - 1
        return None


def _find_network(address: str) -> str:
    """Return the part of an address that stands for one party: of IPv6 a network, as each party has many
    addresses.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network(f"{ip}/64", strict=False))
