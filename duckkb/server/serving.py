"""The work of `duckkb serve` and `duckkb mcp`.

Their libraries are imported here alone, on demand: they cost more than most commands.

The browser of the user who started the server.

The configurations with which common agents find a server: each has a file and a format of its own."""

import json
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.server.authentication import VARIABLE
from duckkb.server.web.page_request import ROOT
from duckkb.types.errors import Refused, UsageError

if TYPE_CHECKING:
    from duckkb.operations.lifecycle import OpenOptions
    from duckkb.server.admission import CallLimits
    from duckkb.server.dispatcher import Answerer
    from duckkb.server.metrics import Measures
    from duckkb.server.request_telemetry import RequestLog

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
        from duckkb.server.admission import CallLimits
        from duckkb.server.worker_channel import CHANNELS, SIDE_BY_SIDE

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
    from duckkb.server import mcp_transports
    from duckkb.server.dispatcher import Front
    from duckkb.server.mcp_server import make

    with _open_answerer(path, chosen) as answerer:
        mcp_transports.serve(make(Front(answerer), notifies=True, all_tools=all_tools))


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
    from duckkb.operations.lifecycle import find
    from duckkb.server import dispatcher
    from duckkb.server import listening as sockets
    from duckkb.server.application import (
        BelowPath,
        application,
        validate_auth_header,
        validate_origin,
        validate_root_path,
    )
    from duckkb.server.authentication import BearerTokens
    from duckkb.server.dispatcher import Front
    from duckkb.server.http_middleware import Doors
    from duckkb.server.mcp_server import make
    from duckkb.server.mcp_transports import McpMount, SessionLimits
    from duckkb.server.metrics import Measures
    from duckkb.server.request_telemetry import Telemetry
    from duckkb.server.server_daemon import Daemon
    from duckkb.server.server_log import Strangers
    from duckkb.server.web import templates
    from duckkb.server.web.page_request import Sessions

    root_path, origins = validate_root_path(listening.root_path), tuple(map(validate_origin, listening.origins))
    proxies, auth_header = sockets.proxies_of(listening.proxies), validate_auth_header(listening.auth_header)
    dispatcher.import_all()
    templates.load()
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
    from duckkb.operations.lifecycle import find
    from duckkb.server.server_daemon import Daemon

    return Daemon.from_root(find(path, backend)).start(command)


def stop(path: BasePath, backend: str | None = None) -> dict[str, Any]:
    """End the server in the background; return its `pid` and `url`. Raises as `daemon.Daemon.stop`."""
    from duckkb.operations.lifecycle import find
    from duckkb.server.server_daemon import Daemon

    return Daemon.from_root(find(path, backend)).stop()


@contextmanager
def _open_answerer(
    path: BasePath, chosen: "OpenOptions", workers: int = 0, longest: float | None = 0
) -> "Iterator[Answerer]":
    """Open what answers: worker processes, or this process; reads take at most `longest` seconds.

    It is closed afterwards unless a call delays that.
    """
    from duckkb.server import listening as running

    answerer: Answerer
    if workers:
        from duckkb.server.worker_pool import Pool

        answerer = Pool(path, chosen, workers, longest)
    else:
        from duckkb.server.dispatcher import Served
        from duckkb.server.server_daemon import Daemon

        answerer = Served(path, chosen, longest, Daemon.describe)
    try:
        yield answerer
    finally:
        running.finish(answerer.close, _CLOSE_S)


def _log(root: Path, answerer: "Answerer", measures: "Measures", log: Log) -> "RequestLog | None":
    """Register the facts of the base as measures; return the log of requests, if one is wanted."""
    from duckkb.server import server_log
    from duckkb.server.metrics import BaseFacts
    from duckkb.server.request_telemetry import RequestLog

    facts = BaseFacts(root, answerer)
    facts.register_measures(measures)
    if log == "off":
        return None
    server_log.use_json()
    return RequestLog(log == "queries", facts.commit)


def _refuse_without_libraries() -> None:
    if not all(
        find_spec(name) for name in ("mcp", "uvicorn", "starlette", "prometheus_client", "jinja2", "markdown_it")
    ):
        raise Refused("serving needs the extra `serve`", suggestion="pip install 'duckkb[serve]'")


SIGN_IN_ONCE = f"{ROOT}/open?code="


def show(address: str) -> None:
    """Open a page in a graphical browser, if there is one: a text browser would take over the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    is_of_text = isinstance(browser, webbrowser.GenericBrowser) and not isinstance(
        browser, webbrowser.BackgroundBrowser
    )
    if not is_of_text:
        browser.open(address)


Name = Literal[
    "claude-code", "claude-desktop", "codex", "cursor", "gemini", "goose", "openhands", "vscode", "windsurf", "zed"
]
_TOKEN = f"Bearer ${{env:{VARIABLE}}}"


class Client(Struct, frozen=True):
    """The configuration of one agent: its `file`, the `key` of servers there, and the values that it needs.

    `kind` are further values for a server that the agent starts, `url_kind` for a server at a URL. `url` is the
    name of the URL; where it is empty, the agent only knows servers that it starts. `token` is the header with
    a token from elsewhere; `beside` are values beside the servers.
    """

    file: str
    key: str = "mcpServers"
    kind: Mapping[str, Any] = {}
    url: str = "url"
    url_kind: Mapping[str, Any] = {}
    token: str = _TOKEN
    beside: Mapping[str, Any] = {}


_ASKED = {"type": "promptString", "id": "duckkb-token", "description": "Token of duckkb", "password": True}
CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        ".mcp.json in the project", kind={"type": "stdio"}, url_kind={"type": "http"}, token=f"Bearer ${{{VARIABLE}}}"
    ),
    "claude-desktop": Client("claude_desktop_config.json: Settings > Developer > Edit Config", url=""),
    "codex": Client("~/.codex/config.toml", key="mcp_servers"),
    "cursor": Client(".cursor/mcp.json in the project, or ~/.cursor/mcp.json"),
    "gemini": Client(
        ".gemini/settings.json in the project, or ~/.gemini/settings.json", url="httpUrl", token=f"Bearer ${VARIABLE}"
    ),
    "goose": Client("~/.config/goose/config.yaml", key="extensions", url="uri", token="Bearer TOKEN"),
    "openhands": Client(
        "~/.openhands/mcp.json, of what was OpenDevin", url_kind={"transport": "http"}, token="Bearer TOKEN"
    ),
    "vscode": Client(
        ".vscode/mcp.json in the project",
        key="servers",
        kind={"type": "stdio"},
        url_kind={"type": "http"},
        token="Bearer ${input:duckkb-token}",
        beside={"inputs": [_ASKED]},
    ),
    "windsurf": Client("~/.codeium/windsurf/mcp_config.json", url="serverUrl"),
    "zed": Client("settings.json: the command zed: open settings file", key="context_servers", token="Bearer TOKEN"),
}


def configuration(client: Name, root: Path, name: str = "duckkb", url: str = "") -> str:
    """Return the text for the client's file for the base in `root`.

    The client starts a server of its own or, with a `url`, asks the one there. No token is in it; most clients
    read it from the variable DUCKKB_MCP_TOKEN. Raises `errors.UsageError` (E_ARGUMENT).
    """
    profile = CLIENTS[client]
    if url and not profile.url:
        raise UsageError(f"{client} starts servers itself", "E_ARGUMENT", f"duckkb mcp config {client}, without --url")
    if client == "codex":
        return _format_toml(name, {"url": url, "bearer_token_env_var": VARIABLE} if url else _build_command(root))
    if client == "goose":
        return _format_goose(
            name,
            {"type": "streamable_http", profile.url: url, "headers": {"Authorization": profile.token}}
            if url
            else _build_command(root),
        )
    if not url:
        return json.dumps({profile.key: {name: {**profile.kind, **_build_command(root)}}}, indent=2)
    entry = {**profile.url_kind, profile.url: url, "headers": {"Authorization": profile.token}}
    return json.dumps({**profile.beside, profile.key: {name: entry}}, indent=2)


def _format_goose(name: str, values: dict[str, Any]) -> str:
    """Return the configuration as YAML, which includes JSON."""
    if "command" in values:
        values = {"type": "stdio", "cmd": values["command"], "args": values["args"]}
    return (
        "extensions:\n  "
        + f"{json.dumps(name)}: {json.dumps({'enabled': True, 'name': name, **values}, ensure_ascii=False)}"
    )


def _build_command(root: Path) -> dict[str, Any]:
    """Return the command with its full path: graphical programs lack the PATH of a shell."""
    return {"command": sys.executable, "args": ["-P", "-m", "duckkb", "--kb", str(root.resolve()), "mcp"]}


def _format_toml(name: str, values: Mapping[str, Any]) -> str:
    """Return the configuration as TOML, whose strings and lists are written as in JSON."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join((f"[mcp_servers.{json.dumps(name, ensure_ascii=False)}]", *lines))
