"""The environment. No other module of duckkb reads it."""

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from duckkb.config.setting_keys import SETTING_VARIABLES
from duckkb.storage import git_process, repository
from duckkb.types.settings import NOWHERE, SEAL_KEY, SEAL_KEY_FILE, Environment

if TYPE_CHECKING:
    from duckkb.types.queries import Notice

_OFF = {"", "0", "false", "no", "off"}
_MACHINE = "settings.json"
"""Settings of this machine, in the user's state folder:
`{"cache_home": "/a/folder", "cache_limit": "20 GB", "daemon": "auto"}`."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def environment(environ: Mapping[str, str] | None = None) -> Environment:
    """Return what duckkb takes from the environment (`os.environ` by default); empty variables count as absent."""
    variables = os.environ if environ is None else environ
    home = Path(variables.get("HOME") or Path.home())
    cache_home = variables.get("DUCKKB_CACHE_HOME")
    return Environment(
        kb=variables.get("DUCKKB_KB") or None,
        writer=variables.get("DUCKKB_WRITER") or None,
        trust=variables.get("DUCKKB_TRUST") or None,
        backend=variables.get("DUCKKB_BACKEND") or None,
        # An unknown word turns the sandbox on, to be safe.
        sandbox=variables.get("DUCKKB_SANDBOX", "").strip().lower() not in _OFF,
        agent=variables.get("DUCKKB_AGENT", "").strip().lower() not in _OFF,
        daemon=variables.get("DUCKKB_DAEMON", "").strip().lower(),
        cache_home=Path(cache_home) if cache_home else _find_user_folder(variables, "XDG_CACHE_HOME", home / ".cache"),
        state_home=_find_user_folder(variables, "XDG_STATE_HOME", home / ".local" / "state"),
        settings={name: variables[name] for name in SETTING_VARIABLES if variables.get(name)},
    )


def read_environment(root: Path | None, environ: Mapping[str, str] | None = None) -> Environment:
    """Return the environment of a base as `plain_around` does, with an unsealed cache folder while a key is set.

    With DUCKKB_ENCRYPTION_KEY the cache folder is in memory, where the sealed state of the user's folder is
    opened. Raises `errors.StateError` (E_KEY), `errors.Unavailable` (E_KEY, E_IO).
    """
    env, variables = plain_around(root, environ), os.environ if environ is None else environ
    if not variables.get(SEAL_KEY) and not variables.get(SEAL_KEY_FILE):
        return env
    from duckkb.config.encryption_key import seal_environment

    return seal_environment(env, variables)


def plain_around(root: Path | None, environ: Mapping[str, str] | None = None) -> Environment:
    """Return the environment of one base; None for tasks that concern no base.

    State and model cache inside the base count as absent and cannot be written. Otherwise, where the user's
    home is the clone or a folder in it, whoever made the clone could bring along what the user accepted.
    """
    env = environment(environ)
    state_home = apart(root, env.state_home.expanduser())
    machine = _read_machine_settings(state_home)
    machine_home = machine.get("cache_home")
    cache_home, limit = env.cache_home, byte_count(machine.get("cache_limit"))
    if isinstance(machine_home, str) and not (os.environ if environ is None else environ).get("DUCKKB_CACHE_HOME"):
        cache_home = Path(machine_home).expanduser() if Path(machine_home).expanduser().is_absolute() else cache_home
    cache_home = apart(root, cache_home.expanduser())
    daemon = env.daemon or ("auto" if machine.get("daemon") == "auto" else "")
    return replace(
        env, state_home=state_home, cache_home=cache_home, cache_limit=limit or env.cache_limit, daemon=daemon
    )


def byte_count(size: object) -> int | None:
    """Return the bytes that a size names: a number, or text with a unit of 1,024 or a power of that.

    Returns None for what is not a size above zero.

    >>> byte_count("1.5 GB"), byte_count("20M"), byte_count(4096), byte_count("much")
    (1610612736, 20971520, 4096, None)
    """
    match = None if isinstance(size, bool) else _SIZE.fullmatch(str(size).strip())
    count = int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " ")) if match else 0
    return count or None


def _read_machine_settings(state_home: Path) -> dict[str, Any]:
    """Return this machine's settings; empty where there are none, or they cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        settings = json.loads((state_home / _MACHINE).read_bytes())
        return settings if isinstance(settings, dict) else {}
    return {}


def apart(root: Path | None, folder: Path) -> Path:
    """Return the folder, or a place that cannot exist where the folder could have come with the base.

    Inside a git work tree around the base, the folder may be the user's own, as long as git does not track it.
    """
    if root is None:
        return folder
    place, around = folder.resolve(), git_process.find_repository(root)
    if place.is_relative_to(root.resolve()):
        return NOWHERE
    inside = around is not None and place.is_relative_to(around.work_tree)
    return NOWHERE if inside and repository.tracks(root, place) else folder


def note_sealing() -> "tuple[Notice, ...]":
    """Return notices on sealed derived state; none while no key is set."""
    sealing: Any = sys.modules.get("duckkb.config.encryption_key")
    return sealing.take_notices() if sealing is not None else ()


def secret(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the value of a variable that the configuration names as a key; None where it is absent or empty."""
    variables = os.environ if environ is None else environ
    return variables.get(name, "").strip() or None


def wants_color(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a terminal may get colours: NO_COLOR is not set (https://no-color.org), and it is not dumb."""
    variables = os.environ if environ is None else environ
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def is_in_workflow(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether this is a job of GitHub or a similar forge, where lines of the log can be commands."""
    variables = os.environ if environ is None else environ
    return variables.get("GITHUB_ACTIONS", "").lower() == "true"


def forge_page(environ: Mapping[str, str] | None = None) -> str:
    """Return the repository's page in a GitHub job (`https://github.com/team/kb`); empty elsewhere."""
    variables = os.environ if environ is None else environ
    server, repository = variables.get("GITHUB_SERVER_URL", ""), variables.get("GITHUB_REPOSITORY", "")
    is_alike = variables.get("GITEA_ACTIONS") or variables.get("FORGEJO_ACTIONS")  # their pages have other addresses
    is_known = re.fullmatch(r"https?://[\w.:-]+", server) and re.fullmatch(r"[\w.-]+/[\w.-]+", repository)
    return f"{server}/{repository}" if is_known and not is_alike else ""


def _find_user_folder(variables: Mapping[str, str], name: str, default: Path) -> Path:
    """Return duckkb's folder in an XDG base folder; relative paths are ignored, as the standard says."""
    base = Path(variables.get(name) or default)
    return (base if base.is_absolute() else default) / "duckkb"
