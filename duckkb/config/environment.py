"""Reads the environment. Nothing else in duckkb does."""

import os
from collections.abc import Mapping
from pathlib import Path

from duckkb.settings import Environment

_OFF = {"", "0", "false", "no", "off"}


def environment(environ: Mapping[str, str] | None = None) -> Environment:
    """What duckkb takes from the environment (`os.environ` where none is given); empty variables count as absent."""
    given = os.environ if environ is None else environ
    home = Path(given.get("HOME") or Path.home())
    cache_home = given.get("DUCKKB_CACHE_HOME")
    return Environment(
        kb=given.get("DUCKKB_KB") or None,
        writer=given.get("DUCKKB_WRITER") or None,
        trust=given.get("DUCKKB_TRUST") or None,
        # A word that nobody expected switches the sandbox on: the safe side.
        sandbox=given.get("DUCKKB_SANDBOX", "").strip().lower() not in _OFF,
        cache_home=Path(cache_home) if cache_home else _user_folder(given, "XDG_CACHE_HOME", home / ".cache"),
        state_home=_user_folder(given, "XDG_STATE_HOME", home / ".local" / "state"),
    )


def secret(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The value of one variable that the configuration names as a key; None where it is absent or empty."""
    given = os.environ if environ is None else environ
    return given.get(name, "").strip() or None


def _user_folder(given: Mapping[str, str], name: str, default: Path) -> Path:
    """Our folder in one of the XDG base folders; the standard says to ignore a relative path."""
    base = Path(given.get(name) or default)
    return (base if base.is_absolute() else default) / "duckkb"
