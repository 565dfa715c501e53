"""Requests refused at the entrance: counted, sampled into a log of their own, and delayed by wrong tokens from
their address.

A right token is never delayed, so nobody is locked out by others behind one proxy. Few answers are delayed at a
time, so that connections are left.
"""

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from duckkb.errors import DuckkbError, Unavailable
from duckkb.serving.lines import say
from duckkb.serving.telemetry.noted import Noted
from duckkb.serving.tenants import BearerTokens, Denial

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
