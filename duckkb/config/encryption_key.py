"""Sealing of derived state with a key from the environment. Imported only while such a key is set."""

import atexit
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from msgspec.structs import replace

from duckkb.store.sealed_files import SealedHome, find_memory_folder
from duckkb.types.errors import StateError
from duckkb.types.queries import Notice
from duckkb.types.settings import SEAL_KEY, SEAL_KEY_FILE, Environment

_opened: dict[Path, SealedHome] = {}
_told: list[str] = []
_lock = Lock()
_MOST_BYTES = 4096


def seal_environment(env: Environment, given: Mapping[str, str]) -> Environment:
    """Return the environment with a cache folder in memory in place of the user's, begun once per process.

    Temporary files go there too, and no core file is written. Raises as `environment.read_environment`.
    """
    with _lock:
        disk = env.cache_home
        if disk not in _opened:
            key = _read_key(given)
            runtime = given.get("XDG_RUNTIME_DIR")
            memory = find_memory_folder([Path("/dev/shm"), *([Path(runtime)] if runtime else [])])
            _opened[disk] = SealedHome(disk, memory, key, _told)
            _keep_off_disk(_opened[disk])
        return replace(env, cache_home=_opened[disk].home)


def take_notices() -> tuple[Notice, ...]:
    """Return the notices on sealing, each once."""
    messages = [*_told]
    _told.clear()
    return tuple(Notice("W_SEALED", message) for message in messages)


def end() -> None:
    """Seal what changed, and drop from memory what no other process uses; a failure becomes a notice."""
    with _lock:
        homes = [*_opened.values()]
        _opened.clear()
        tempfile.tempdir = None
        _told.extend(filter(None, (home.end() for home in homes)))


atexit.register(end)


def _read_key(variables: Mapping[str, str]) -> str:
    """Return the key; raises `StateError` (E_KEY)."""
    text, file = variables.get(SEAL_KEY, "").strip(), variables.get(SEAL_KEY_FILE, "").strip()
    if text and file:
        raise StateError(f"both {SEAL_KEY} and {SEAL_KEY_FILE} are set", "E_KEY", f"unset {SEAL_KEY}")
    if file:
        text = _read(Path(file))
    if not text:
        raise StateError(
            f"{SEAL_KEY_FILE if file else SEAL_KEY} is set, but contains no key", "E_KEY", "openssl rand -hex 32"
        )
    return text


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise StateError(f"{SEAL_KEY_FILE} names no file", "E_KEY", f"ls -l {path}")
        if os.name != "nt" and status.st_mode & stat.S_IRWXO:
            raise StateError(f"others can read the key in {path}", "E_KEY", f"chmod 600 {path}")
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StateError(f"the key cannot be read in {path}: {why}", "E_KEY", f"ls -l {path}") from None


def _keep_off_disk(home: SealedHome) -> None:
    tempfile.tempdir = str(home.temporary)
    os.environ["TMPDIR"] = os.environ["SQLITE_TMPDIR"] = tempfile.tempdir  # for git, and for a base's commands
    if os.name != "nt":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
