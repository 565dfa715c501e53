"""The socket of a server, and the loop in which it runs.

The end of a server: by itself, or soon after a signal, which is no failure and waits for no thread."""

import asyncio
import ctypes
import gc
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from duckkb.server.http_middleware import LOOPBACK, PROXIED
from duckkb.server.server_log import take_over
from duckkb.types.errors import Unavailable, UsageError

_ASKING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_ALLOCATIONS = 5_000
"""New objects between two collections of cyclic garbage.

A request leaves some, and a server, unlike a command (`duckkb.__main__`), does not end soon.
"""
_M_ARENA_MAX, _ARENAS = -8, 2
_left: list[asyncio.AbstractEventLoop] = []


def run(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, grace: float) -> None:
    """Run `serve` until it ends, at most `grace` seconds after a signal, which sets its event.

    A thread that still works then is abandoned: its write is carried out whole or not at all, by the journal.
    """
    spare_memory()
    loop = asyncio.new_event_loop()
    _left.append(loop)  # abandoned tasks are not cancelled, since that would wait for their threads
    loop.run_until_complete(_run_until_signal(serve, grace))


def spare_memory() -> None:
    """Keep the memory of a long-running process level.

    Garbage is collected often, and threads share glibc's arenas, each of which would otherwise keep its peak
    (mallopt(3)).
    """
    gc.set_threshold(_ALLOCATIONS, 10, 10)
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def finish(work: Callable[[], None], seconds: float) -> None:
    """Do a last piece of work, with a limit of seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


async def _run_until_signal(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], grace: float) -> None:
    stop_event, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _ASKING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored signals stay ignored, as under nohup
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop_event.set) and None)
    server_task, waiting = asyncio.ensure_future(serve(stop_event)), asyncio.ensure_future(stop_event.wait())
    await asyncio.wait({server_task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not server_task.done():
        await asyncio.wait({server_task}, timeout=grace)
    waiting.cancel()
    if server_task.done():
        server_task.result()


_FORWARDED = b"x-forwarded-for"
_MOST_CONNECTIONS = 512
_LAST_ANSWERS_S = 9
_HEAD_S = 10.0
_SLOWEST_MS = 30_000


def bind(host: str, port: int, names: tuple[str, ...]) -> socket.socket:
    """Open a socket of this machine; port 0 is a free one.

    Raises `errors.Unavailable` (E_PORT), and `errors.UsageError` for a host that other machines reach while
    `names` are missing.
    """
    if not names and not _is_loopback(host):
        message = f"{host} is reachable from other machines; name the hosts that clients use"
        raise UsageError(message, suggestion="--allowed-host NAME, and a proxy with TLS before it")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # do not wait for a client that does not read its answer
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SLOWEST_MS)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        message = f"cannot listen on port {port} of {host}: {getattr(error, 'strerror', None) or error}"
        raise Unavailable(message, "E_PORT", "stop the other program there, or choose another --port") from error
    return listener


def url_of(bound: socket.socket) -> str:
    """Return the URL for clients of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def proxies_of(text: str) -> list[str]:
    """Split addresses and networks at commas. Raises `errors.UsageError` where one is neither."""
    proxies = [each.strip() for each in text.split(",") if each.strip()]
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            message = f"{proxy} is not an address or network of a proxy"
            raise UsageError(message, suggestion="--forwarded-allow-ips 10.0.0.7,10.1.0.0/16") from None
    return proxies


class BehindProxies:
    """An ASGI middleware that accepts the client's address from `proxies` alone.

    Their headers replace the address of the connection. `PROXIED` in the scope says whether a request comes
    from a proxy.
    """

    def __init__(self, app: ASGIApp, proxies: list[str]) -> None:
        # uvicorn and starlette each have types of their own for the one interface
        self._app: Any = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=proxies)
        self._networks = [ipaddress.ip_network(proxy) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[PROXIED] = self._is_proxy((scope.get("client") or ("",))[0])
            # Anything else, such as a misplaced token, would be logged as an address.
            headers = [(name, value) for name, value in scope["headers"] if name != _FORWARDED or _has_addresses(value)]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)

    def _is_proxy(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self._networks)


def _has_addresses(value: bytes) -> bool:
    """Return whether an X-Forwarded-For names addresses alone, each with or without a port."""
    try:
        for part in value.decode("latin-1").split(","):
            name = part.strip()
            host = name.rpartition(":")[0] if name.count(":") == 1 or "]:" in name else name
            ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


class _Protocol(H11Protocol):
    """A connection that is closed where no complete head of a request comes within some seconds."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def _await_head(self) -> None:
        is_head = self.cycle is None or self.cycle.response_complete
        if is_head and self._late is None:
            self._late = self.loop.call_later(_HEAD_S, self.transport.close)
        elif not is_head and self._late is not None:
            self._late.cancel()
            self._late = None


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller, and reports when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def serve(app: ASGIApp, bound: socket.socket, ready: Callable[[], None], proxies: list[str]) -> None:
    """Serve until a signal comes; requests under way then have some seconds to end.

    `ready` is called when requests are taken. `proxies` are trusted for the addresses of clients.
    """
    take_over("mcp", "anyio", "asyncio", "uvicorn", "sse_starlette")
    config = uvicorn.Config(
        BehindProxies(app, proxies),
        http=_Protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
        lifespan="on",
    )
    server = _Uvicorn(config, ready)

    async def until(stop_event: asyncio.Event) -> None:
        async def stop() -> None:
            await stop_event.wait()
            server.should_exit = True

        stopping = asyncio.ensure_future(stop())
        await server.serve([bound])
        stopping.cancel()

    run(until, grace=_LAST_ANSWERS_S + 0.5)
