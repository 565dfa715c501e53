"""The verb mcp: the base behind the Model Context Protocol."""

from typing import TYPE_CHECKING, Any, cast

import click

from duckkb.cli import options, out, printed, stop
from duckkb.cli.options import read_backend, read_front_options
from duckkb.cli.slips import Group
from duckkb.cli.verb import verb
from duckkb.cli.verbs.serving.serve import (
    add_log_options,
    again,
    listed_tools,
    log_of,
    reaching,
    read_open_options,
    sessions,
)

if TYPE_CHECKING:
    from duckkb.serving.mcp.clients import Name

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
    from duckkb.serving import commands

    if not http:
        with stop.await_stop():
            commands.serve_stdio(read_front_options().get("kb"), read_open_options(), all_tools=given["tools"] == "all")
    elif daemon:
        out.emit(commands.start(read_front_options().get("kb"), again(ctx), read_backend()))
    else:
        listening = commands.Listening(
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
        with stop.await_stop():
            commands.serve_http(
                read_front_options().get("kb"),
                read_open_options(),
                listening,
                commands.Answering(log=log_of(given)),
                out.emit,
            )


@verb("stop", group=cast("click.Group", mcp_command))
@options.backend
def mcp_stop_command() -> None:
    """Stop the background server of this base; prints its `pid` and `url`."""
    from duckkb.serving import commands

    out.emit(commands.stop(read_front_options().get("kb"), read_backend()))


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
    from duckkb.actions.folder import find
    from duckkb.serving.mcp.clients import CLIENTS, configuration

    printed.result(configuration(client, find(read_front_options().get("kb")), name, url))
    printed.note(f"put this into {CLIENTS[client].file}")
