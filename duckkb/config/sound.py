"""What this machine remembers of schemas that it checked (`ontology.sound`), in the user's state folder."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckkb.ontology import sound
from duckkb.settings import Environment

_FILE = "schemas.json"
_FORMAT = 1
_REMEMBERED = 4096


def recall_schemas(env: Environment) -> None:
    """Take in what is remembered; a file that cannot be read costs checking once more."""
    sound.recall(_names(_path(env)))


def remember_schemas(env: Environment) -> None:
    """Remember what was found sound since; where that cannot be written it is checked again another time."""
    found = sound.fresh()
    if not found:
        return
    path = _path(env)
    names = [*(name for name in _names(path) if name not in found), *sorted(found)][-_REMEMBERED:]
    from tempfile import NamedTemporaryFile

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with NamedTemporaryFile(dir=path.parent, prefix=".schemas-", delete=False) as file:
            draft = Path(file.name)
            try:
                file.write(json.dumps({"format": _FORMAT, "sound": names}).encode())
                file.close()
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise


def _path(env: Environment) -> Path:
    return env.state_home.expanduser() / _FILE


def _names(path: Path) -> list[str]:
    try:
        stored: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    names = stored.get("sound") if isinstance(stored, dict) and stored.get("format") == _FORMAT else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
