"""Stand-ins: folders of the user's own for published bases without a clone here."""

from hashlib import blake2b
from pathlib import Path

from duckkb.config.environment import plain_around
from duckkb.config.load import CONFIG
from duckkb.errors import Unavailable
from duckkb.truth import state

_FOLDER = "published"
_MARK = "# This folder represents a published base (duckkb --backend).\n"


def stand_in(backend: str) -> Path:
    """Return the stand-in for an address.

    Raises `errors.Unavailable` (E_IO) where the state folder cannot be written.
    """
    folder = plain_around(None).state_home / _FOLDER / blake2b(backend.encode(), digest_size=12).hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_stand_in(folder):
            state.write_atomic(folder / CONFIG, _MARK.encode())
    except (OSError, Unavailable) as error:
        raise Unavailable(
            f"{folder} cannot be made: {getattr(error, 'strerror', None) or error}",
            code="E_IO",
            suggestion="name another folder with XDG_STATE_HOME",
        ) from error
    return folder


def is_stand_in(root: Path) -> bool:
    """Return whether a folder is a stand-in."""
    try:
        return (root / CONFIG).read_text("utf-8") == _MARK
    except (OSError, ValueError):
        return False
