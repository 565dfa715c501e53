"""The verb serve: the base behind HTTP, and a warm process for the next commands.

The verb mcp: the base behind the Model Context Protocol.

The verb memory: what agents remember, by scope and key.

The verb publish: a commit, to a database that answers in place of a clone."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.core import ParameterSource

from duckkb.cli import options, output, terminal
from duckkb.cli.command import action_verb, base_verb, end, group, parameters, serve_commands, verb
from duckkb.cli.options import lock_timeout, read_backend, read_front_options, wants_json
from duckkb.cli.record_commands import TRIAL_FORMATS, print_receipt
from duckkb.cli.suggestions import Group

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.operations.lifecycle import OpenOptions
    from duckkb.server.serving import Log, Name

_COUNT = click.IntRange(min=0)


sessions = options.several(
    click.option(
        "--max-sessions",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        help="MCP sessions of each tenant at once.",
    ),
    click.option(
        "--session-idle",
        type=options.Seconds(1, 86_400),
        default=1800,
        show_default=True,
        metavar="SECONDS",
        help="End an MCP session after this time without a request.",
    ),
)


listed_tools = click.option(
    "--tools",
    type=click.Choice(["common", "all"]),
    default="common",
    show_default=True,
    help="Tools that MCP lists: the 12 most used, or all. Every tool can be called.",
)


reaching = options.several(
    click.option(
        "--forwarded-allow-ips",
        "proxies",
        default="127.0.0.1,::1",
        show_default=True,
        metavar="ADDRESSES",
        help="Proxies trusted to report the client's address.",
    ),
    click.option(
        "--auth-header",
        default="",
        metavar="NAME",
        help="The header in which these proxies name the tenant; no token is needed then.",
    ),
    click.option(
        "--root-path",
        "prefix",
        default="",
        metavar="PREFIX",
        help="Path of the server behind a proxy: /kb for https://example.org/kb.",
    ),
    click.option(
        "--allow-origin",
        "origins",
        multiple=True,
        metavar="ORIGIN",
        help="Allow pages of this origin to use the HTTP API and MCP (https://app.example.org).",
    ),
)


def add_log_options(default: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Add the options of the request log; `default` is its level without an option."""
    return options.several(
        click.option(
            "--log",
            type=click.Choice(["requests", "queries", "off"]),
            default=default,
            show_default=True,
            help="Log on stderr: requests, requests with their contents, or nothing.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], case_sensitive=False),
            help="Alias for other servers' option: INFO or finer means --log requests, others --log off.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["json"]),
            expose_value=False,
            help="No effect: log lines are always JSON objects.",
        ),
    )


def log_of(given: Mapping[str, Any]) -> "Log":
    """Return the log that the options ask for, with `--log-level` in preference."""
    level = given["log_level"]
    log: Log = given["log"] if level is None else "requests" if level in ("DEBUG", "INFO") else "off"
    return log


@verb("serve", cls=Group, invoke_without_command=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; other than this machine needs --allowed-host.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8181, show_default=True, help="Port; 0 chooses a free one."
)
@click.option(
    "--allowed-host", "names", multiple=True, metavar="NAME", help="A host name that clients may use for the server."
)
@reaching
@click.option(
    "--workers", type=_COUNT, default=0, show_default=True, help="Number of worker processes; 0: this process answers."
)
@click.option(
    "--rate",
    type=options.Seconds(0, 1_000_000),
    default=0,
    metavar="NUMBER",
    help="Calls of a tenant per second; 0: no limit.",
)
@click.option("--concurrency", type=_COUNT, default=0, help="Calls of a tenant at once; 0: all slots but one.")
@click.option(
    "--max-waiting",
    "waiting",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum number of waiting calls.",
)
@click.option(
    "--timeout", type=options.Seconds(0, 86_400), default=0, metavar="SECONDS", help="Time limit of an answer; 0: none."
)
@click.option(
    "--max-seconds",
    "longest",
    type=options.Seconds(0, 86_400),
    default=None,
    metavar="SECONDS",
    help="Largest `timeout` that callers may request for reads; 0: no limit. Default: limits.served_seconds (30).",
)
@click.option(
    "--dedupe",
    type=click.Choice(["join", "off"]),
    default="join",
    show_default=True,
    help="Cache for equal reads of a caller.",
)
@listed_tools
@sessions
@click.option("--metrics-open", is_flag=True, help="/metrics needs no token.")
@click.option("--metrics-tenants", is_flag=True, help="/metrics also counts by tenant, with names.")
@add_log_options("requests")
@click.option(
    "--open", "opens", is_flag=True, help="Open its pages in a browser; `open` is an address that signs in once."
)
@click.option("--edit", "edits", is_flag=True, help="Show forms that propose changes of records.")
@click.option("--daemon", is_flag=True, help="Run in the background, until `serve stop`.")
@click.option("--warm", is_flag=True, help="No HTTP: answer this user's read-only commands, until `serve stop --warm`.")
@click.option(
    "--idle",
    type=options.Seconds(0, 86_400),
    default=1800,
    metavar="SECONDS",
    help="With --warm: end after this time without a command.",
)
@click.option("--in-background", is_flag=True, hidden=True)
@options.backend
@click.pass_context
def serve_command(ctx: click.Context, /, *, daemon: bool, warm: bool, **given: Any) -> None:
    """HTTP needs the extra `serve`. A warm process answers commands faster.

    \b
    duckkb --kb ~/notes serve                        # http://127.0.0.1:8181, with a bearer token
    duckkb --kb ~/notes serve --workers 4 --daemon   # four processes that answer, in the background
    duckkb --kb ~/notes serve --open                 # its pages in a browser: search, read, review
    duckkb --kb ~/notes serve stop
    duckkb --kb ~/notes serve --warm                 # in the background; prints its pid and socket

    POST /query, /search and /actions/NAME, /mcp for agents, GET /health, /ready, /metrics and /openapi.json,
    which describes the API. Every request needs a token (`duckkb tenant`) except /health, /ready and
    /openapi.json; `token` shows where the server's own token is. Ctrl-C and SIGTERM end it with exit code 0,
    after requests in progress, within 10 seconds.

    A warm process has all modules imported and the model loaded. It answers find, get, list, graph, schema,
    status, why, search, vsearch, query, ls and multi-get of the same user, with the same environment, duckkb
    and Python. Output and exit code are the same; all other commands run as usual. DUCKKB_DAEMON=off never uses
    it; "daemon": "auto" in this machine's settings.json starts one with the first embedded question."""
    if ctx.invoked_subcommand is not None:
        return
    if warm:
        _serve_warm(ctx, given["idle"], in_background=given["in_background"])
        return
    from duckkb.server import serving

    if daemon and given["opens"]:
        raise click.UsageError("--open needs a server in the foreground; sign in to a background server with a token")
    if daemon:
        output.emit(serving.start(read_front_options().get("kb"), again(ctx, "--log", "off"), read_backend()))
        return
    listening = serving.Listening(
        given["host"],
        given["port"],
        given["names"],
        given["max_sessions"],
        given["session_idle"],
        in_background=given["in_background"],
        opens=given["opens"],
        edits=given["edits"],
        root_path=given["prefix"],
        origins=given["origins"],
        proxies=given["proxies"],
        auth_header=given["auth_header"],
        all_tools=given["tools"] == "all",
    )
    limit_names = ("workers", "concurrency", "rate", "waiting", "timeout", "longest", "metrics_open", "metrics_tenants")
    limits = {name: given[name] for name in limit_names}
    answering = serving.Answering(**limits, log=log_of(given), dedupe=given["dedupe"] == "join")
    with terminal.await_stop():
        serving.serve_http(read_front_options().get("kb"), read_open_options(), listening, answering, output.emit)


@verb("stop", group=cast("click.Group", serve_command))
@click.option("--warm", is_flag=True, help="The warm process.")
@options.backend
def serve_stop_command(*, warm: bool) -> None:
    """Stop the background server of this base; prints its `pid` and `url`. A base has only one, started by `serve`
    or `mcp`. --warm stops the warm process, and prints its `pid` and `socket`."""
    if warm:
        from duckkb.server import warm_start

        output.emit(warm_start.stop(read_front_options().get("kb")))
        return
    from duckkb.server import serving

    output.emit(serving.stop(read_front_options().get("kb"), read_backend()))


def _serve_warm(ctx: click.Context, idle: float, *, in_background: bool) -> None:
    """Start a warm process, or become one."""
    warm_names = ("warm", "idle", "in_background")
    http_params = [param for param in ctx.command.params if param.expose_value and param.name not in warm_names]
    if option_names := [
        param.opts[0]
        for param in http_params
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]:
        raise click.UsageError(f"--warm serves no HTTP; leave out {', '.join(option_names)}")
    from duckkb.server import warm_start

    if not in_background:
        output.emit(warm_start.start(read_front_options().get("kb"), idle))
        return
    from duckkb.app import wiring
    from duckkb.cli.main import run
    from duckkb.server.warm_process import MEMORY_S, Commands, Patience

    serve_commands()
    commands = Commands(
        lambda words: run(words), terminal.is_stop_requested, lambda: wiring.keep_models(True), warm_start.let_go
    )
    with terminal.await_stop():
        warm_start.serve(read_front_options().get("kb"), commands, Patience(min(idle, MEMORY_S), idle))


def again(ctx: click.Context, *unless_said: str) -> list[str]:
    """Return the command line that starts the same server in the background.

    `unless_said` is an option with its value, added where the caller did not give it: a server that nobody
    watches logs no requests.
    """
    words = [str(ctx.info_name), "--in-background", *(["--lenient"] if read_front_options().get("lenient") else [])]
    words += ["--lock-timeout", str(lock_timeout())]
    words += ["--backend", backend] if (backend := read_backend()) else []
    for param in ctx.command.params:
        name, value = str(param.name), ctx.params.get(str(param.name))
        if name in ctx.params and name != "daemon" and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            for single in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0], *([] if single is True else [str(single)])]
    return words if unless_said[:1] and unless_said[0] in words else [*words, *unless_said]


def read_open_options() -> "OpenOptions":
    """Return the opening options that the options of all verbs describe."""
    from duckkb.operations.lifecycle import OpenOptions

    return OpenOptions(bool(read_front_options().get("lenient")), lock_timeout(), backend=read_backend())


_CLIENTS = (
    "claude-code", "claude-desktop", "codex", "cursor", "gemini", "goose", "openhands", "vscode", "windsurf", "zed",
)  # fmt: skip


@verb("mcp", cls=Group, invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve over HTTP on this machine instead of stdin and stdout.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8181,
    show_default=True,
    help="Port for --http; 0 chooses a free one.",
)
@click.option("--daemon", is_flag=True, help="With --http: run in the background, until `mcp stop`.")
@listed_tools
@sessions
@reaching
@add_log_options("off")
@click.option("--in-background", is_flag=True, hidden=True)
@options.backend
@click.pass_context
def mcp_command(ctx: click.Context, /, *, http: bool, daemon: bool, **given: Any) -> None:
    """Uses the Model Context Protocol. Needs the extra `serve`.

    \b
    duckkb --kb ~/notes mcp                  # clients start this by themselves
    duckkb --kb ~/notes mcp --http --daemon  # http://127.0.0.1:8181/mcp, with a bearer token
    duckkb --kb ~/notes mcp stop

    Ctrl-C, SIGTERM and, without --http, the end of stdin end it with exit code 0. Writes that need a review
    become proposals. Over HTTP every request needs a token (`duckkb tenant`); `token` shows where the server's
    own token is. A client opens a session at /mcp?session=1."""
    if ctx.invoked_subcommand is not None:
        return
    if not http and (daemon or given["in_background"]):
        raise click.UsageError("--daemon needs --http; without --http the client starts the server")
    from duckkb.server import serving

    if not http:
        with terminal.await_stop():
            serving.serve_stdio(read_front_options().get("kb"), read_open_options(), all_tools=given["tools"] == "all")
    elif daemon:
        output.emit(serving.start(read_front_options().get("kb"), again(ctx), read_backend()))
    else:
        listening = serving.Listening(
            port=given["port"],
            sessions=given["max_sessions"],
            idle=given["session_idle"],
            route="/mcp",
            in_background=given["in_background"],
            root_path=given["prefix"],
            origins=given["origins"],
            proxies=given["proxies"],
            auth_header=given["auth_header"],
            all_tools=given["tools"] == "all",
        )
        with terminal.await_stop():
            serving.serve_http(
                read_front_options().get("kb"),
                read_open_options(),
                listening,
                serving.Answering(log=log_of(given)),
                output.emit,
            )


@verb("stop", group=cast("click.Group", mcp_command))
@options.backend
def mcp_stop_command() -> None:
    """Stop the background server of this base; prints its `pid` and `url`."""
    from duckkb.server import serving

    output.emit(serving.stop(read_front_options().get("kb"), read_backend()))


@verb("config", group=cast("click.Group", mcp_command))
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option("--name", default="duckkb", show_default=True, help="Name of this base in the client.")
@click.option("--url", default="", help="Use the server at this URL; by default the client starts one.")
def mcp_config_command(*, client: "Name", name: str, url: str) -> None:
    """Print the configuration that connects an agent to this base; stderr names its file.

    \b
    duckkb --kb ~/notes mcp config claude-code > .mcp.json
    duckkb --kb ~/notes mcp config cursor --url http://127.0.0.1:8181/mcp

    No token is printed. With --url most clients read it from the variable DUCKKB_MCP_TOKEN, and VS Code asks
    for it; for Goose, OpenHands (formerly OpenDevin) and Zed replace TOKEN."""
    from duckkb.operations.lifecycle import find
    from duckkb.server.serving import CLIENTS, configuration

    terminal.result(configuration(client, find(read_front_options().get("kb")), name, url))
    terminal.note(f"put this into {CLIENTS[client].file}")


@group("memory")
def memory_command() -> None:
    """Memories are texts under keys, separate for each scope.

    `duckkb col init memory-ann --policy memory --params '{"scope": "ann"}'` creates a scope.
    """


@base_verb("put", group=memory_command, tells=False, action="memory_put", formats=TRIAL_FORMATS)
@click.argument("key")
@click.argument("text", required=False)
@parameters("scope", "tags", "links", "source", "if_match", "dry_run", "embed")
def put_command(kb: "KnowledgeBase", key: str, text: str | None, **how: Any) -> None:
    """Without TEXT, or with -, the text is read from stdin."""
    memory_text = output.read_argument_or_stdin(text, "give the text as an argument or on stdin").decode(
        "utf-8", "surrogateescape"
    )
    memory_text = memory_text.removesuffix("\n") if text in (None, "-") else memory_text
    print_receipt(kb.memory.put(key, memory_text, **how), kb.notices)


@base_verb("search", group=memory_command, tells=False, action="memory_search")
@click.argument("query")
@parameters("scope")
@options.mode
@parameters("limit")
def search_command(kb: "KnowledgeBase", query: str, **how: Any) -> None:
    """Prints one memory per line with its score, and how often it was `_accessed`."""
    from duckkb.types.queries import Notice

    answer = kb.memory.search(query, **how)
    if not answer["results"]:
        output.raise_no_results(answer, "no results", "use other words")
    output.emit(answer) if wants_json() else output.lines(answer["results"])
    output.tell(Notice(**notice) for notice in answer["notices"])


for _name in ("history", "stats", "mark-accessed"):
    action_verb(f"memory_{_name.replace('-', '_')}", _name, memory_command)


@verb("publish")
@click.option(
    "--to",
    required=True,
    metavar="URL",
    help="postgresql://HOST/DATABASE#NAME, lance:FOLDER or lance+s3://BUCKET/PATH.",
)
@click.option("--ref", default="HEAD", show_default=True, metavar="REF", help="The commit, branch or tag to publish.")
@click.option("--full", is_flag=True, help="Build everything again, and replace what is published.")
@click.option("--rewind", is_flag=True, help="Publish even if a newer commit is published.")
@click.option(
    "--pending",
    type=click.Choice(["refuse", "ok"]),
    default="refuse",
    show_default=True,
    help="Whether to publish texts without a vector.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@click.option(
    "--grant",
    nargs=2,
    metavar="ROLE TYPES",
    help="Publish nothing; let a database role see only these types (A,B; or none).",
)
@click.option("--verify", is_flag=True, help="Change nothing; compare the published data with its commit.")
def publish_command(
    *, to: str, grant: tuple[str, str] | None, verify: bool, pending: Literal["refuse", "ok"], ref: str, **how: bool
) -> None:
    """The target is PostgreSQL with pgvector (extra `postgres`), or Lance tables in a folder or object storage
    (extra `lance`). With --backend URL it answers as a clone at that commit does.

    \b
    duckkb publish --to postgresql://db.example.org/knowledge
    duckkb find Note "how do rivers flow" --backend postgresql://db.example.org/knowledge
    duckkb publish --to lance:/srv/knowledge
    duckkb find Note "how do rivers flow" --backend "lance:/srv/knowledge?at=550ab828"

    Publishing is one transaction: the target always has one whole commit. It sends only the changes since the
    published commit; a new ontology, tokenizer or model rebuilds everything. If two publish at once, one wins
    and the other gets E_BEHIND. Give a password by PGPASSWORD, a service file or ~/.pgpass; keys of an object
    storage by its environment variables (such as AWS_ACCESS_KEY_ID)."""
    from duckkb import app

    if (verify or grant) and (any(how.values()) or (verify and grant)):
        raise click.UsageError(f"{'--verify' if verify else '--grant'} publishes nothing; give it alone")
    if grant:
        role, types = grant
        names = [] if types == "none" else types.split(",")
        output.emit(app.grant_published(read_front_options().get("kb"), to=to, role=role, types=names))
        return
    if verify:
        comparison = app.verify_published(read_front_options().get("kb"), to=to)
        output.emit(comparison)
        if comparison["faults"]:
            terminal.note(f"{len(comparison['faults'])} differences; `duckkb publish --full` rebuilds it")
            end()
        return
    full, rewind, dry_run = (how[name] for name in ("full", "rewind", "dry_run"))
    result = app.publish(
        read_front_options().get("kb"), to=to, ref=ref, full=full, rewind=rewind, pending=pending, dry_run=dry_run
    )
    output.emit(result.line)
    output.tell(result.notices)
