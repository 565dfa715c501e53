"""The socket of a server, and the loop in which it runs."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from duckkb.errors import Unavailable, UsageError
from duckkb.serving import running
from duckkb.serving.http.entrance import LOOPBACK, PROXIED
from duckkb.serving.lines import take_over

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

    running.run(until, grace=_LAST_ANSWERS_S + 0.5)
