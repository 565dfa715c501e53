"""mcp: the base behind the Model Context Protocol."""

from typing import TYPE_CHECKING, Any, cast

import click

from duckkb.cli import options, out, stop
from duckkb.cli.options import chosen, lock_timeout
from duckkb.cli.slips import Group
from duckkb.cli.verb import verb

if TYPE_CHECKING:
    from duckkb.actions.folder import OpenOptions


@verb("mcp", cls=Group, invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve over HTTP on this machine instead of stdin and stdout.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8181, show_default=True, help="With --http; 0 is one that is free."
)
@click.option("--daemon", is_flag=True, help="With --http: in the background, until `mcp stop`.")
@click.option(
    "--max-sessions", type=click.IntRange(min=1), default=100, show_default=True, help="How many sessions at once."
)
@click.option(
    "--session-idle",
    type=options.Seconds(1, 86_400),
    default=1800,
    show_default=True,
    metavar="SECONDS",
    help="End a session after so long without a request.",
)
@click.option("--in-background", is_flag=True, hidden=True)
@click.pass_context
def mcp_command(ctx: click.Context, /, *, http: bool, daemon: bool, **given: Any) -> None:
    """Serve this base to agents over the Model Context Protocol: stdin and stdout, or HTTP. Needs the extra `serve`.

    \b
    duckkb --kb ~/notes mcp                  # what a client starts by itself
    duckkb --kb ~/notes mcp --http --daemon  # http://127.0.0.1:8181/mcp, with a bearer token
    duckkb --kb ~/notes mcp stop

    Ctrl-C, SIGTERM and, without --http, the end of stdin end it with exit code 0. What the ontology has reviewed becomes a
    proposal. Over HTTP every request needs a token (`duckkb tenant`); `token` says where the server's own one is found. A client
    that wants a session opens it at /mcp?session=1.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not http and (daemon or given["in_background"]):
        raise click.UsageError("--daemon is for --http; without it the client starts the server")
    from duckkb.serving.mcp import commands

    if not http:
        with stop.expected():
            commands.serve_stdio(chosen().get("kb"), _chosen())
    elif daemon:
        limits = ("--max-sessions", given["max_sessions"], "--session-idle", given["session_idle"])
        lenient = ["--lenient"] if chosen().get("lenient") else []
        command = ["mcp", "--http", "--in-background", "--port", given["port"], *limits, *lenient]
        out.emit(
            commands.start(chosen().get("kb"), [str(word) for word in (*command, "--lock-timeout", lock_timeout())])
        )
    else:
        listening = commands.Listening(
            given["port"], given["max_sessions"], given["session_idle"], given["in_background"]
        )
        with stop.expected():
            commands.serve_http(chosen().get("kb"), _chosen(), listening, _tell)


@verb("stop", group=cast("click.Group", mcp_command))
def mcp_stop_command() -> None:
    """End the server of this base that runs in the background, and no other process; prints its `pid` and `url`."""
    from duckkb.serving.mcp import commands

    out.emit(commands.stop(chosen().get("kb")))


def _chosen() -> "OpenOptions":
    from duckkb.actions.folder import OpenOptions

    return OpenOptions(bool(chosen().get("lenient")), lock_timeout())


def _tell(found: dict[str, Any]) -> None:
    out.emit(found)
