"""What a configuration demands of the machine, and whether its user has accepted that.

A configuration is data from a clone. It may name hosts and key variables, but nothing is sent to a host and no key is
read until the user has accepted exactly these values. The acceptance lies outside the clone.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duckkb.errors import Unavailable
from duckkb.settings import Environment, Settings

_FILE = "trust.json"

Demands = dict[str, str]


def demands(settings: Settings) -> Demands:
    """The effective values that need trust, by the name of their setting; empty where there are none."""
    given = {
        "global.embedding.base_url": settings.embedding.base_url,
        "global.embedding.api_key_env": settings.embedding.api_key_env,
    }
    return {name: value for name, value in given.items() if value is not None}


def trust_hash(demanded: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the demands; other settings do not change it."""
    text = json.dumps(demanded, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_trusted(root: Path, settings: Settings, env: Environment) -> bool:
    """Whether this run may follow the demands: there are none, DUCKKB_TRUST names them, or the user accepted them."""
    demanded = demands(settings)
    if not demanded:
        return True
    wanted = trust_hash(demanded)
    return env.trust == wanted or _accepted(env).get(_base(root)) == wanted


def accept(root: Path, settings: Settings, env: Environment) -> str:
    """Remember that the user accepts the demands of this base as they stand; returns their hash.

    Raises `errors.Unavailable` (E_IO) where the user's state folder cannot be written.
    """
    digest = trust_hash(demands(settings))
    accepted = {**_accepted(env), _base(root): digest}
    try:
        _write(env.state_home.expanduser() / _FILE, json.dumps(accepted, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        message = f"what you accept cannot be remembered in {env.state_home / _FILE}: {error.strerror}"
        raise Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base") from error
    return digest


def _base(root: Path) -> str:
    return str(root.resolve())


def _accepted(env: Environment) -> dict[str, Any]:
    """Hashes by base. A file that cannot be read means that nothing was accepted, never that all was."""
    try:
        found = json.loads((env.state_home.expanduser() / _FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(target: Path, text: str) -> None:
    """Replace the file in one step; only the user may read it (mkstemp makes it 0600)."""
    from tempfile import mkstemp

    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = mkstemp(prefix=".trust-", dir=target.parent)
    staged = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(target)
    except OSError:
        staged.unlink(missing_ok=True)
        raise
