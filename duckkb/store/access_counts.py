"""Counts how often memories were useful on this machine, in a file of the user's state folder, never in git.

The file holds only hashes, no names and no text. If it is deleted or damaged, counting begins anew.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b, sha256
from pathlib import Path

from duckkb.errors import Unavailable
from duckkb.store.database import Database, Schema, Unusable

_SCHEMA = Schema(1, ("CREATE TABLE access (name BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID",))
_BUSY_S, _FEW = 30.0, 500
_ADD = "INSERT INTO access VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1 RETURNING times"
Name = tuple[str, str]
"""A scope and a key."""


class AccessCounts:
    """The access counts of the base in the folder `root`, kept in the state folder `home`. Concurrent processes
    lose no count.
    """

    def __init__(self, home: Path, root: Path) -> None:
        digest = sha256(os.fsencode(root.resolve())).hexdigest()[:32]
        self._path = home.expanduser() / "memory" / f"{digest}.v{_SCHEMA.version}.sqlite3"

    def add(self, names: Iterable[Name]) -> list[int]:
        """Count one more access for each name, all or none; return the new counts. Raises `errors.Unavailable`
        (E_IO).
        """
        database = Database(self._path, _SCHEMA, busy_s=_BUSY_S)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not database.is_lasting:
                raise Unusable(database.reason)
            with database.begin_write() as connection:
                return [connection.execute(_ADD, (_hash_name(name),)).fetchone()[0] for name in names]
        except (OSError, Unusable) as error:
            message = f"accesses cannot be counted in {self._path.parent}: {error}"
            raise Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base") from error
        finally:
            database.close()

    def read(self, names: Iterable[Name]) -> dict[Name, int] | None:
        """Return the count of each name; None if the file cannot be read."""
        if not self._path.exists():
            return dict.fromkeys(names, 0)
        database = Database(self._path, _SCHEMA, busy_s=_BUSY_S)
        try:
            if not database.is_lasting:
                return None
            digests = {name: _hash_name(name) for name in names}
            few = tuple(digests.values()) if len(digests) <= _FEW else ()
            condition = f" WHERE name IN ({','.join('?' * len(few))})" if few else ""
            counts: dict[bytes, int] = dict(database.read(f"SELECT name, times FROM access{condition}", few))
            return {name: counts.get(digest, 0) for name, digest in digests.items()}
        except Unusable:
            return None
        finally:
            database.close()


def _hash_name(name: Name) -> bytes:
    return blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=16).digest()
