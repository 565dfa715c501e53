"""Where a server listens, and the loop that it runs in."""

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
    """A socket of this machine; port 0 is one that is free. Raises `errors.Unavailable` (E_PORT), `errors.UsageError` for a host
    that others reach as well where no `names` are given under which they do."""
    if not names and not _is_loopback(host):
        message = f"{host} can be reached from other machines: a server there has to know under which names it is asked"
        raise UsageError(message, suggestion="--allowed-host NAME, and a proxy with TLS before it")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # who does not read its answer is not waited for
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SLOWEST_MS)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        message = f"port {port} of {host} cannot be served: {getattr(error, 'strerror', None) or error}"
        raise Unavailable(message, "E_PORT", "end what serves there, or name another --port") from error
    return listener


def url_of(bound: socket.socket) -> str:
    """Where clients find what is served there."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def proxies_of(text: str) -> list[str]:
    """Addresses and networks, with commas between. Raises `errors.UsageError` where one is neither."""
    proxies = [each.strip() for each in text.split(",") if each.strip()]
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            message = f"{proxy} is no address or network of a proxy"
            raise UsageError(message, suggestion="--forwarded-allow-ips 10.0.0.7,10.1.0.0/16") from None
    return proxies


class BehindProxies:
    """An application that learns the client's address from `proxies` alone, and under `PROXIED` in the scope whether a request is from
    one of them: what they tell replaces the address that it came from."""

    def __init__(self, app: ASGIApp, proxies: list[str]) -> None:
        # uvicorn and starlette each have types of their own for the one interface
        self._app: Any = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=proxies)
        self._networks = [ipaddress.ip_network(proxy) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[PROXIED] = self._is_proxy((scope.get("client") or ("",))[0])
            # What is no address, a token that went astray among it, would be written down as one.
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
    """Whether an X-Forwarded-For names addresses alone, each with or without a port."""
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
    """A connection on which no request comes within some seconds is closed, also one on which half of one did."""

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
    """Leaves signals to whoever runs it, and tells when it takes requests."""

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
    """Serve until a signal comes; what is under way then has some seconds to end. `ready` is told when requests are taken. What
    `proxies` say of the address of a client is believed."""
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
