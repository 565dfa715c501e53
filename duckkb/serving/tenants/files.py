"""Where the tenants of a base and its server token are kept: in the user's state folder, beside what this machine trusts, so that
no clone brings them along. A base is known by its real place.

What others could have written or read is refused, as is what cannot be read whole: a token that nobody should have must
not be let in, and a file that is in doubt never means "no tenants".
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb import config
from duckkb.errors import Finding, Unavailable, shell_word
from duckkb.open_files import NO_FOLLOW
from duckkb.serving.tenants.tenant import Tenant, read
from duckkb.truth import state
from duckkb.truth.commit import lock

_FORMAT = 1
_MOST_BYTES = 16_000_000
_OTHERS = 0o077

Facts = tuple[int, ...]


class TenantFiles(Struct, frozen=True):
    """The files of the base in the folder `root`, which is its real place."""

    root: Path
    folder: Path

    @classmethod
    def of(cls, root: Path) -> "TenantFiles":
        place = root.resolve()
        return cls(place, config.around(place).state_home / "tenants")

    @property
    def tenants(self) -> Path:
        """A line that names the base, then one a tenant."""
        return self.folder / f"{self._name}.jsonl"

    @property
    def token(self) -> Path:
        """The server token, which counts while there is no tenant."""
        return self.folder / f"{self._name}.token"

    @property
    def audit(self) -> Path:
        """The newest decisions; older ones have `.1` and so on behind this name."""
        return self.folder / f"{self._name}.audit.jsonl"

    @property
    def refused(self) -> Path:
        """A sample of the requests that were not let in, the newest."""
        return self.folder / f"{self._name}.refused.jsonl"

    @property
    def _name(self) -> str:
        return sha256(os.fsencode(self.root)).hexdigest()[:32]

    @property
    def _head(self) -> dict[str, Any]:
        return {"format": _FORMAT, "base": str(self.root)}

    def read(self) -> dict[str, Tenant]:
        """The tenants by ID; none where no file was made yet. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
        data = self.own(self.tenants)
        if data is None:
            return {}
        lines = data.split(b"\n")
        if lines.pop() != b"":
            raise self._damaged(len(lines) + 1, "the line is torn")
        self._check_head(lines[0] if lines else b"")
        found: dict[str, Tenant] = {}
        for number, line in enumerate(lines[1:], 2):
            try:
                one = read(line)
            except ValueError as problem:
                raise self._damaged(number, str(problem)) from None
            if one.id in found or any(one.sha256 == other.sha256 for other in found.values()):
                raise self._damaged(number, "the tenant stands there twice")
            found[one.id] = one
        return found

    def write(self, tenants: Mapping[str, Tenant]) -> None:
        """Replace them, for who holds the lock. Raises `errors.Unavailable` (E_IO); the old ones are then as they were."""
        lines = [json.dumps(self._head), *(one.line for _, one in sorted(tenants.items()))]
        self._replace(self.tenants, "".join(f"{line}\n" for line in lines).encode())

    def server_token(self) -> str | None:
        """The token, None where none was made yet. Raises as `read`."""
        data = self.own(self.token)
        text = None if data is None else data.decode("ascii", "replace").strip()
        if text is not None and (len(text) != 64 or not set(text) <= set("0123456789abcdef")):
            raise _refused(self.token, "is no token that duckkb made", f"rm {shell_word(str(self.token))}")
        return text

    def make_server_token(self, timeout: float) -> str:
        """The token, made where there is none. Raises as `read` and `locked`."""
        from secrets import token_hex

        with self.locked(timeout):
            known = self.server_token()
            if known is None:
                known = token_hex(32)
                self._replace(self.token, f"{known}\n".encode())
        return known

    @contextmanager
    def locked(self, timeout: float, what: str = "") -> Iterator[None]:
        """Change the tenants and the token alone, or `what` lies beside; wait at most `timeout` seconds. Raises
        `errors.Unavailable` (E_LOCKED, E_TENANTS, E_IO)."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._refuse_folder()
                held.enter_context(lock.beside(self.folder / f"{self._name}{what}", "exclusive", timeout))
            except OSError as error:
                raise self._unusable(error) from error
            for draft in () if what else self.folder.glob(f".{self._name}.*.tmp"):  # of who was killed
                draft.unlink(missing_ok=True)
            yield

    def own(self, path: Path) -> bytes | None:
        """The bytes of a file of the folder that this user alone could write and read; None where there is none. Raises
        `errors.Unavailable` (E_TENANTS, E_IO)."""
        try:
            self._refuse_folder()
            descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path.is_symlink():
                raise _refused(path, "is a link", f"rm {shell_word(str(path))}") from error
            raise self._unusable(error) from error
        try:
            refuse_foreign(path, os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            os.close(descriptor)
        if len(data) > _MOST_BYTES:
            raise _refused(path, "is larger than any that duckkb writes", f"mv {_moved(path)}")
        return data

    def facts(self, path: Path) -> Facts:
        """What changes with a file, empty where there is none. Raises `errors.Unavailable` (E_IO)."""
        try:
            found = path.lstat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(error) from error
        times = (found.st_mtime_ns, found.st_ctime_ns)
        return (*times, found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_uid, found.st_nlink)

    def _refuse_folder(self) -> None:
        """Whoever may write the folder above could lay another one here. Raises FileNotFoundError."""
        above = self.folder.parent.stat()
        if os.name != "nt" and above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
            raise _refused(
                self.folder.parent, "can be written by others", f"chmod go-w {shell_word(str(self.folder.parent))}"
            )
        refuse_foreign(self.folder, self.folder.lstat(), folder=True)

    def _replace(self, path: Path, data: bytes) -> None:
        try:
            state.write_atomic(path, data, mode=0o600)
        except Unavailable as error:
            raise self._unusable(error) from error

    def _check_head(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if found != self._head:
            said = f"line 1 does not say format {_FORMAT} and this base"
            raise self._damaged(1, said)

    def _damaged(self, number: int, said: str) -> Unavailable:
        """A line that is taken away takes its tenant along, and no other; without the first, none is known."""
        path = shell_word(str(self.tenants))
        mending = f"mv {_moved(self.tenants)}" if number == 1 else f"sed -i {number}d {path}"
        lost = "all tenants" if number == 1 else "the tenant of this line"
        finding = Finding("E_TENANTS", said, str(self.tenants), number, remedy=mending)
        return Unavailable(
            f"{finding.place}: {said}; nobody is let in until it is mended",
            "E_TENANTS",
            f"`{mending}`, then `duckkb tenant add` for {lost}",
            findings=(finding,),
        )

    def _unusable(self, error: OSError | Unavailable) -> Unavailable:
        said = f"tenants cannot be kept in {self.folder}: {getattr(error, 'strerror', None) or error}"
        return Unavailable(said, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base")


def refuse_foreign(path: Path, found: os.stat_result, *, folder: bool = False) -> None:
    """Raise `errors.Unavailable` (E_TENANTS) for a link, for what is no plain file (or folder), and for what others own, may
    write or may read."""
    named = shell_word(str(path))
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(found.st_mode):
        raise _refused(path, f"is a link or no {'folder' if folder else 'plain file'}", f"rm {named}")
    if os.name == "nt":
        return
    if found.st_uid != os.geteuid():
        raise _refused(path, "belongs to another user", f"mv {_moved(path)}")
    if found.st_mode & _OTHERS:
        raise _refused(path, "can be written or read by others", f"chmod {'700' if folder else '600'} {named}")
    if not folder and found.st_nlink > 1:
        raise _refused(path, "has another name (a hard link)", f"mv {_moved(path)}")


def _refused(path: Path, said: str, mending: str) -> Unavailable:
    return Unavailable(f"{path} {said}; nobody is let in", "E_TENANTS", f"look who did that, then `{mending}`")


def _moved(path: Path) -> str:
    return f"{shell_word(str(path))} {shell_word(f'{path}.refused')}"
