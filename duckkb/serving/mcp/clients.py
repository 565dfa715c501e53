"""The configurations with which common agents find a server: each has a file and a format of its own."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from duckkb.errors import UsageError
from duckkb.serving.tenants.authentication import VARIABLE

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
