"""The work of `duckkb serve` and `duckkb mcp`.

Their libraries are imported here alone, on demand: they cost more than most commands.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.errors import Refused

if TYPE_CHECKING:
    from duckkb.actions.folder import OpenOptions
    from duckkb.serving.admission import CallLimits
    from duckkb.serving.front import Answerer
    from duckkb.serving.telemetry.measures import Measures
    from duckkb.serving.telemetry.middleware import RequestLog

Log = Literal["off", "requests", "queries"]
_CLOSE_S = 0.4
_SLOTS = 4
LOOPBACK_PROXY = "127.0.0.1,::1"

BasePath = str | Path | None
"""The path of the base, as `app.open` takes it."""


class Listening(Struct, frozen=True):
    """The address of a server, and how it may be reached.

    It has a host and a port (0: a free one), the `names` of other hosts under which it is asked, the limit of
    MCP sessions for each tenant, and how many seconds a session may be idle.
    `route` is the route that is printed; `in_background`: the server is the one that `stop` ends; `opens`: a
    browser of this machine shows its pages; `edits`: these have forms that propose changes of records.
    `root_path` is the path below which a proxy has it; `origins` are those of other sites whose pages may ask.
    `proxies` are trusted for the address of a request, and in the `auth_header` for its tenant: addresses and
    networks with commas between.
    `all_tools`: MCP lists every tool.
    """

    host: str = "127.0.0.1"
    port: int = 8181
    names: tuple[str, ...] = ()
    sessions: int = 100
    idle: float = 1800.0
    route: str = ""
    in_background: bool = False
    opens: bool = False
    edits: bool = False
    root_path: str = ""
    origins: tuple[str, ...] = ()
    proxies: str = LOOPBACK_PROXY
    auth_header: str = ""
    all_tools: bool = False


class Answering(Struct, frozen=True):
    """The processes that answer, and the limits of calls.

    `workers` is the number of processes (0: the server's own). A tenant has at most `concurrency` calls at once
    (0: all slots but one) and `rate` calls a second (0: no limit). At most `waiting` calls wait, and each is
    answered within `timeout` seconds (0: no limit); `longest` limits the seconds of a read (None: the base's
    settings).
    `dedupe`: equal reads that wait are joined. `metrics_open`: /metrics needs no token; `metrics_tenants`: it
    names tenants. `log`: stderr has a line a request, optionally with the questions.
    """

    workers: int = 0
    concurrency: int = 0
    rate: float = 0.0
    waiting: int = 256
    timeout: float = 0.0
    longest: float | None = None
    dedupe: bool = True
    metrics_open: bool = False
    metrics_tenants: bool = False
    log: Log = "off"

    @property
    def limits(self) -> "CallLimits":
        """Return the limits of calls, with as many slots as can be of use."""
        from duckkb.serving.admission import CallLimits
        from duckkb.serving.pool.process import CHANNELS, SIDE_BY_SIDE

        if not self.workers:
            return CallLimits(_SLOTS, self.concurrency, self.waiting, self.rate, self.timeout, self.dedupe)
        slots = SIDE_BY_SIDE * self.workers + 1  # writes have their own process
        long = (CHANNELS - SIDE_BY_SIDE) * self.workers
        return CallLimits(slots, self.concurrency, self.waiting, self.rate, self.timeout, self.dedupe, long)


def serve_stdio(path: BasePath, chosen: "OpenOptions", *, all_tools: bool = False) -> None:
    """Serve one client over stdin and stdout until it leaves or a signal comes.

    Raises `errors.Refused` (E_REFUSED) without the extra `serve`.
    """
    _refuse_without_libraries()
    from duckkb.serving.front import Front
    from duckkb.serving.mcp import stdio
    from duckkb.serving.mcp.server import make

    with _open_answerer(path, chosen) as answerer:
        stdio.serve(make(Front(answerer), notifies=True, all_tools=all_tools))


def serve_http(
    path: BasePath,
    chosen: "OpenOptions",
    listening: Listening,
    answering: Answering,
    tell: Callable[[dict[str, Any]], None],
) -> None:
    """Serve over HTTP until a signal comes.

    `tell` gets the `url` and the place of the `token` once requests are taken, and on request the address to
    `open`, which signs in once. Raises `errors.StateError` (E_NO_KB), `errors.Unavailable` (E_PORT, E_TENANTS,
    E_IO), `errors.Refused` (E_SERVING).
    """
    _refuse_without_libraries()
    from duckkb.actions.folder import find
    from duckkb.serving import preloading
    from duckkb.serving.browser import SIGN_IN_ONCE, show
    from duckkb.serving.daemon import Daemon
    from duckkb.serving.front import Front
    from duckkb.serving.http import listening as sockets
    from duckkb.serving.http.application import application
    from duckkb.serving.http.entrance import Doors
    from duckkb.serving.http.reaching import BelowPath, validate_auth_header, validate_origin, validate_root_path
    from duckkb.serving.mcp.mount import McpMount, SessionLimits
    from duckkb.serving.mcp.server import make
    from duckkb.serving.strangers import Strangers
    from duckkb.serving.telemetry.measures import Measures
    from duckkb.serving.telemetry.middleware import Telemetry
    from duckkb.serving.tenants import BearerTokens
    from duckkb.serving.web import drawing
    from duckkb.serving.web.sessions import Sessions

    root_path, origins = validate_root_path(listening.root_path), tuple(map(validate_origin, listening.origins))
    proxies, auth_header = sockets.proxies_of(listening.proxies), validate_auth_header(listening.auth_header)
    preloading.import_all()
    drawing.load()
    chosen = replace(chosen, is_served=True)
    root, measures = find(path, chosen.backend), Measures(names_tenants=answering.metrics_tenants)
    tokens = BearerTokens(root)
    token, daemon = tokens.prepare(), Daemon.from_root(root)
    descriptor = daemon.hold() if listening.in_background else None
    with (
        sockets.bind(listening.host, listening.port, listening.names) as listener,
        _open_answerer(path, chosen, answering.workers, answering.longest) as answerer,
    ):
        url = sockets.url_of(listener) + root_path + listening.route

        def ready() -> None:
            if descriptor is not None:
                daemon.tell(descriptor, url)
            once = f"{url}{SIGN_IN_ONCE}{sessions.code()}" if listening.opens else ""
            tell({"url": url, "token": token} | ({"open": once} if once else {}))
            if once:
                show(once)

        front = Front(answerer, answering.limits, measures)
        plain, notifying = (make(front, notifies=notifies, all_tools=listening.all_tools) for notifies in (False, True))
        mount = McpMount(plain, notifying, SessionLimits(listening.sessions, listening.idle))
        sessions = Sessions(tokens, Strangers(tokens, measures.count_refusal))
        doors = Doors(listening.names, answering.metrics_open, listening.edits, origins, auth_header)
        app = application(front, sessions, tokens, mount, measures, doors)
        telemetry = Telemetry(app, measures, _log(root, answerer, measures, answering.log))
        sockets.serve(BelowPath(telemetry, root_path), listener, ready, proxies)


def start(path: BasePath, command: list[str], backend: str | None = None) -> dict[str, Any]:
    """Start `serve_http` in the background by this command line; return its `pid` and `url`.

    Raises as `daemon.Daemon.start`.
    """
    _refuse_without_libraries()
    from duckkb.actions.folder import find
    from duckkb.serving.daemon import Daemon

    return Daemon.from_root(find(path, backend)).start(command)


def stop(path: BasePath, backend: str | None = None) -> dict[str, Any]:
    """End the server in the background; return its `pid` and `url`. Raises as `daemon.Daemon.stop`."""
    from duckkb.actions.folder import find
    from duckkb.serving.daemon import Daemon

    return Daemon.from_root(find(path, backend)).stop()


@contextmanager
def _open_answerer(
    path: BasePath, chosen: "OpenOptions", workers: int = 0, longest: float | None = 0
) -> "Iterator[Answerer]":
    """Open what answers: worker processes, or this process; reads take at most `longest` seconds.

    It is closed afterwards unless a call delays that.
    """
    from duckkb.serving import running

    answerer: Answerer
    if workers:
        from duckkb.serving.pool.pool import Pool

        answerer = Pool(path, chosen, workers, longest)
    else:
        from duckkb.serving.daemon import Daemon
        from duckkb.serving.served import Served

        answerer = Served(path, chosen, longest, Daemon.describe)
    try:
        yield answerer
    finally:
        running.finish(answerer.close, _CLOSE_S)


def _log(root: Path, answerer: "Answerer", measures: "Measures", log: Log) -> "RequestLog | None":
    """Register the facts of the base as measures; return the log of requests, if one is wanted."""
    from duckkb.serving import lines
    from duckkb.serving.telemetry.facts import BaseFacts
    from duckkb.serving.telemetry.middleware import RequestLog

    facts = BaseFacts(root, answerer)
    facts.register_measures(measures)
    if log == "off":
        return None
    lines.use_json()
    return RequestLog(log == "queries", facts.commit)


def _refuse_without_libraries() -> None:
    if not all(
        find_spec(name) for name in ("mcp", "uvicorn", "starlette", "prometheus_client", "jinja2", "markdown_it")
    ):
        raise Refused("serving needs the extra `serve`", suggestion="pip install 'duckkb[serve]'")
