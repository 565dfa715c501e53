"""Subscriptions to resources: a subscriber is told when it would read something else than before.

The text that a subscriber would read as its present caller is compared after each write of this server, and
every few seconds, as files change without it. So nobody is told of what it may not read, and no code needs to
know which change touches which resource.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from time import monotonic
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from duckkb.caller import Caller
from duckkb.errors import DuckkbError
from duckkb.serving.front import Asked, Front
from duckkb.serving.lines import report_unexpected
from duckkb.serving.mcp import resources
from duckkb.serving.tenants import Denial

MOST_OF_SESSION, _MOST = 100, 1_000
_PAUSE_S, _LEAST_S, _SHARE = 2.0, 0.05, 10
"""Seconds between two checks for changes.

The pause after a write is at least `_LEAST_S`, and at least `_SHARE` times the duration of the last check.
"""
_SEND_S = 1.0
"""Seconds within which a client must take a notification; one that does not gets no more."""
_GONE = "gone"

_Key = tuple[int, str]


class Subscription(Struct):
    """A subscription of a connection to a resource: the subscriber, and the digest of the last text."""

    connection: Connection
    uri: str
    asked: Asked
    digest: str


class Subscriptions:
    """The subscriptions of one tenant, or of the user at the other end of a pipe; for use in one event loop."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._held: dict[_Key, Subscription] = {}
        self._begun = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, connection: Connection, uri: str, asked: Asked, text: str) -> None:
        """Notify the connection when the resource is no longer this text. Raises MCPError beyond the limits."""
        key, subscription_count = (
            (id(connection), uri),
            sum(1 for connection_id, _ in self._held if connection_id == id(connection)),
        )
        if key not in self._held and (subscription_count >= MOST_OF_SESSION or len(self._held) >= _MOST):
            message = (
                f"a session has at most {MOST_OF_SESSION} subscriptions, a tenant {_MOST:,}; unsubscribe from others"
            )
            raise MCPError(types.INVALID_REQUEST, message)
        if not subscription_count:
            connection.exit_stack.callback(self.forget, connection)
        self._held[key] = Subscription(connection, uri, asked, _digest(text))
        self._begun.set()

    def remove(self, connection: Connection, uri: str) -> None:
        """Remove a subscription; do nothing where there is none."""
        self._held.pop((id(connection), uri), None)

    def forget(self, connection: Connection) -> None:
        """Remove all subscriptions of a connection."""
        for key in [key for key in self._held if key[0] == id(connection)]:
            del self._held[key]

    async def watch(self) -> None:
        """Look for changes, and notify subscribers, until cancelled."""
        while True:
            if not self._held:
                self._begun = anyio.Event()
                await self._begun.wait()
            write_event, began = self._front.written, monotonic()
            subscriptions = [*self._held.values()]
            digests = await anyio.to_thread.run_sync(
                self._compute_digests, subscriptions, abandon_on_cancel=True, limiter=self._thread
            )
            for subscription, digest in zip(subscriptions, digests, strict=True):
                await self._tell(subscription, digest)
            await anyio.sleep(max(_LEAST_S, _SHARE * (monotonic() - began)))
            with anyio.move_on_after(_PAUSE_S):
                await write_event.wait()

    async def _tell(self, subscription: Subscription, digest: str | None) -> None:
        key = (id(subscription.connection), subscription.uri)
        if self._held.get(key) is not subscription or digest == subscription.digest:
            return
        if digest is None:
            del self._held[key]
            return
        subscription.digest = digest
        with anyio.move_on_after(_SEND_S) as sending:
            await subscription.connection.send_resource_updated(subscription.uri)
        if sending.cancelled_caught:
            self.forget(subscription.connection)

    def _compute_digests(self, subscriptions: list[Subscription]) -> list[str | None]:
        """Return the digests of what subscribers would read; None for one who is no longer let in."""
        callers: dict[int, Caller | Denial] = {}
        digests: dict[tuple[Caller, str], str] = {}
        results: list[str | None] = []
        for subscription in subscriptions:
            call = subscription.asked
            caller = callers.setdefault(id(call), call.caller_now()) if id(call) not in callers else callers[id(call)]
            if isinstance(caller, Denial):
                results.append(subscription.digest if caller.status == 503 else None)
                continue
            key = (caller, subscription.uri)
            if key not in digests:
                digests[key] = self._read(subscription, caller)
            results.append(digests[key])
        return results

    def _read(self, subscription: Subscription, caller: Caller) -> str:
        try:
            return _digest(resources.read_current_text(self._front.served, subscription.uri, caller))
        except DuckkbError as problem:  # an unreadable resource may be unchanged
            return _GONE if problem.code in resources.MISSING else subscription.digest
        except Exception as problem:
            report_unexpected("mcp resources/subscribe", problem)
            return subscription.digest


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def lifespan_of(front: Front) -> Any:
    """Return the lifespan of a tenant's server, during which its subscriptions are watched.

    Handlers find them in their context.
    """

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[Subscriptions]:
        async with anyio.create_task_group() as group:
            subscriptions = Subscriptions(front)
            group.start_soon(subscriptions.watch)
            yield subscriptions
            group.cancel_scope.cancel()

    return lifespan
