"""The files of a base's tenants and its server token, in the user's state folder, beside this machine's trust.

So no clone brings them along. A base is known by its resolved path.

A file that others could have written or read is refused, and so is one that cannot be read whole: a foreign
token must not be accepted, and a doubtful file never means "no tenants".

A tenant of a served base: its role and its types. It stores the SHA-256 of its token, never the token."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb import config
from duckkb.atomic_write import NO_FOLLOW
from duckkb.storage import base_lock, clone_state
from duckkb.types.errors import Finding, Unavailable, shell_word
from duckkb.types.request_context import ROLES, Caller, Role

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # shorter than a token, so that none becomes an ID by mistake
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DAYS = re.compile(r"([0-9]{1,5})d")
_LONGEST_NAME = 200
NEVER = "never"
"""The word for a token that does not expire."""
KEYS = ("tenant", "name", "role", "types", "sha256", "made", "rotated", "disabled", "expires")


class Tenant(Struct, frozen=True):
    """A tenant.

    `types` are the granted types and collections, sorted; an admin has none and may see all. `made` and
    `rotated` are UTC, `YYYY-MM-DDTHH:MM:SSZ`: of its first token and of the present one (empty: still the
    first). From `expires` on, in the same form, the token is refused (empty: never).
    """

    id: str
    role: Role
    sha256: str
    made: str
    types: tuple[str, ...] = ()
    name: str = ""
    rotated: str = ""
    disabled: bool = False
    expires: str = ""

    @property
    def caller(self) -> Caller:
        """The caller of requests with its token."""
        return Caller(self.id, self.role, None if self.role == "admin" else frozenset(self.types))

    @property
    def told(self) -> dict[str, Any]:
        """Return what may be printed of the tenant; `types` null means all."""
        types = None if self.role == "admin" else list(self.types)
        times = {"made": self.made, "rotated": self.rotated or None, "expires": self.expires or None}
        return {
            "tenant": self.id,
            "name": self.name,
            "role": self.role,
            "types": types,
            "disabled": self.disabled,
        } | times

    @property
    def line(self) -> str:
        """Return the tenant as a line of the file, which `read` parses."""
        values = (self.id, self.name, self.role, list(self.types), self.sha256, self.made, self.rotated, self.disabled)
        optional = {"expires": self.expires} if self.expires else {}
        return json.dumps(dict(zip(KEYS, values, strict=False)) | optional)


def read(line: bytes) -> Tenant:
    """Parse a line of the file. Raises ValueError, which says what is wrong and repeats nothing."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(values, dict) or {*values, "expires"} != set(KEYS):
        raise ValueError(f"no object of {', '.join(KEYS)}")
    wrong = next((key for key in values if not _is_valid(key, values)), None)
    if wrong is not None:
        raise ValueError(f"`{wrong}` has a value that duckkb does not write")
    arguments = {"id": values.pop("tenant"), **values, "types": tuple(values["types"])}
    return Tenant(**arguments)


def expiry_of(text: str, now: datetime) -> str:
    """Return when a token expires, as `Tenant.expires`.

    The text is `90d` from now, a date (from its first minute on) or a time, UTC by default. Raises ValueError
    for anything else, and for a time in the past.

    >>> expiry_of("90d", datetime(2026, 1, 1, tzinfo=UTC)), expiry_of("2026-03-01", datetime(2026, 1, 1, tzinfo=UTC))
    ('2026-04-01T00:00:00Z', '2026-03-01T00:00:00Z')
    >>> expiry_of(NEVER, datetime(2026, 1, 1, tzinfo=UTC))
    ''
    """
    if text == NEVER:
        return ""
    try:
        days = _DAYS.fullmatch(text)
        when = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("neither days (90d), nor a date (2027-03-01), nor `never`") from None
    if when <= now:
        raise ValueError("not in the future")
    return stamp(when)


def stamp(when: datetime) -> str:
    """Return a UTC time in the form of these files.

    >>> stamp(datetime(2026, 1, 1, tzinfo=UTC))
    '2026-01-01T00:00:00Z'
    """
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def is_id(text: str) -> bool:
    """Return whether a tenant may have this ID.

    >>> is_id("ann.b-1"), is_id("f" * 64), is_id(""), is_id("a b")
    (True, False, False, False)
    """
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether a tenant may have this display name: one line, or nothing."""
    return len(text) <= _LONGEST_NAME and all(character.isprintable() for character in text)


def _is_valid(key: str, values: Mapping[str, Any]) -> bool:
    value = values[key]
    if key == "types":
        is_list = isinstance(value, list) and all(isinstance(type_name, str) and type_name for type_name in value)
        return is_list and value == sorted(set(value)) and not (value and values["role"] == "admin")
    if key == "disabled":
        return isinstance(value, bool)
    if not isinstance(value, str):
        return False
    if key == "role":
        return value in ROLES
    if key == "rotated" and not value:
        return True
    if key == "name":
        return is_name(value)
    form = {"tenant": _ID, "sha256": _SHA256, "made": _TIME, "rotated": _TIME, "expires": _TIME}[key]
    return form.fullmatch(value) is not None


_FORMAT = 1
_MOST_BYTES = 16_000_000
_OTHERS = 0o077

Facts = tuple[int, ...]


class TenantFiles(Struct, frozen=True):
    """The files of the base in the folder `root`, which is its resolved path."""

    root: Path
    folder: Path

    @classmethod
    def from_root(cls, root: Path) -> "TenantFiles":
        place = root.resolve()
        return cls(place, config.read_environment(place).state_home / "tenants")

    @property
    def tenants(self) -> Path:
        """The file of tenants: a line that names the base, then one line a tenant."""
        return self.folder / f"{self._name}.jsonl"

    @property
    def token(self) -> Path:
        """The file of the server token, which counts while there is no tenant."""
        return self.folder / f"{self._name}.token"

    @property
    def audit(self) -> Path:
        """The file of the newest decisions; older files end in `.1` and so on."""
        return self.folder / f"{self._name}.audit.jsonl"

    @property
    def refused(self) -> Path:
        """The newest file of the sample of refused requests."""
        return self.folder / f"{self._name}.refused.jsonl"

    @property
    def _name(self) -> str:
        return sha256(os.fsencode(self.root)).hexdigest()[:32]

    @property
    def _head(self) -> dict[str, Any]:
        return {"format": _FORMAT, "base": str(self.root)}

    def read(self) -> dict[str, Tenant]:
        """Return the tenants by ID; empty where no file exists yet. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
        data = self.own(self.tenants)
        if data is None:
            return {}
        lines = data.split(b"\n")
        if lines.pop() != b"":
            raise self._build_damage_error(len(lines) + 1, "the line is torn")
        self._check_head(lines[0] if lines else b"")
        tenants: dict[str, Tenant] = {}
        for number, line in enumerate(lines[1:], 2):
            try:
                tenant = read(line)
            except ValueError as problem:
                raise self._build_damage_error(number, str(problem)) from None
            if tenant.id in tenants or any(tenant.sha256 == sibling.sha256 for sibling in tenants.values()):
                raise self._build_damage_error(number, "the tenant appears twice")
            tenants[tenant.id] = tenant
        return tenants

    def write(self, tenants: Mapping[str, Tenant]) -> None:
        """Replace the tenants; the caller holds the lock.

        Raises `errors.Unavailable` (E_IO); then the old ones stay.
        """
        lines = [json.dumps(self._head), *(tenant.line for _, tenant in sorted(tenants.items()))]
        self._replace(self.tenants, "".join(f"{line}\n" for line in lines).encode())

    def server_token(self) -> str | None:
        """Return the server token, None where none exists yet. Raises as `read`."""
        data = self.own(self.token)
        text = None if data is None else data.decode("ascii", "replace").strip()
        if text is not None and (len(text) != 64 or not set(text) <= set("0123456789abcdef")):
            raise _build_refusal(self.token, "is not a token made by duckkb", f"rm {shell_word(str(self.token))}")
        return text

    def make_server_token(self, timeout: float) -> str:
        """Return the server token, created where there is none. Raises as `read` and `hold_lock`."""
        from secrets import token_hex

        with self.hold_lock(timeout):
            token = self.server_token()
            if token is None:
                token = token_hex(32)
                self._replace(self.token, f"{token}\n".encode())
        return token

    @contextmanager
    def hold_lock(self, timeout: float, what: str = "") -> Iterator[None]:
        """Hold the lock for changes of the tenants and the token, or of `what` lies beside them.

        Waits at most `timeout` seconds. Raises `errors.Unavailable` (E_LOCKED, E_TENANTS, E_IO).
        """
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._refuse_folder()
                stack.enter_context(
                    base_lock.hold_lock_beside(self.folder / f"{self._name}{what}", "exclusive", timeout)
                )
            except OSError as error:
                raise self._build_access_error(error) from error
            for draft in () if what else self.folder.glob(f".{self._name}.*.tmp"):  # drafts of killed processes
                draft.unlink(missing_ok=True)
            yield

    def own(self, path: Path) -> bytes | None:
        """Return the bytes of a file that only this user can write and read; None where there is none.

        Raises `errors.Unavailable` (E_TENANTS, E_IO).
        """
        try:
            self._refuse_folder()
            descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path.is_symlink():
                raise _build_refusal(path, "is a link", f"rm {shell_word(str(path))}") from error
            raise self._build_access_error(error) from error
        try:
            refuse_foreign(path, os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise self._build_access_error(error) from error
        finally:
            os.close(descriptor)
        if len(data) > _MOST_BYTES:
            raise _build_refusal(path, "is larger than any file that duckkb writes", f"mv {_format_move(path)}")
        return data

    def facts(self, path: Path) -> Facts:
        """Return what changes with a file, empty where there is none. Raises `errors.Unavailable` (E_IO)."""
        try:
            file_stat = path.lstat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._build_access_error(error) from error
        times = (file_stat.st_mtime_ns, file_stat.st_ctime_ns)
        return (
            *times,
            file_stat.st_dev,
            file_stat.st_ino,
            file_stat.st_size,
            file_stat.st_mode,
            file_stat.st_uid,
            file_stat.st_nlink,
        )

    def _refuse_folder(self) -> None:
        """Raise where others may write the folder above, and so could replace this one; raises FileNotFoundError
        too.
        """
        above = self.folder.parent.stat()
        if os.name != "nt" and above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
            raise _build_refusal(
                self.folder.parent, "can be written by others", f"chmod go-w {shell_word(str(self.folder.parent))}"
            )
        refuse_foreign(self.folder, self.folder.lstat(), folder=True)

    def _replace(self, path: Path, data: bytes) -> None:
        try:
            clone_state.write_atomic(path, data, mode=0o600)
        except Unavailable as error:
            raise self._build_access_error(error) from error

    def _check_head(self, line: bytes) -> None:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if value != self._head:
            message = f"line 1 does not say format {_FORMAT} and this base"
            raise self._build_damage_error(1, message)

    def _build_damage_error(self, number: int, message: str) -> Unavailable:
        """Return the error for a damaged line; deleting the line removes its tenant alone.

        Without the first line, no tenant is known.
        """
        path = shell_word(str(self.tenants))
        mending = f"mv {_format_move(self.tenants)}" if number == 1 else f"sed -i {number}d {path}"
        scope = "all tenants" if number == 1 else "the tenant of this line"
        finding = Finding("E_TENANTS", message, str(self.tenants), number, remedy=mending)
        return Unavailable(
            f"{finding.place}: {message}; every token is refused until this is corrected",
            "E_TENANTS",
            f"`{mending}`, then `duckkb tenant add` for {scope}",
            findings=(finding,),
        )

    def _build_access_error(self, error: OSError | Unavailable) -> Unavailable:
        message = f"tenants cannot be kept in {self.folder}: {getattr(error, 'strerror', None) or error}"
        return Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base")


def refuse_foreign(path: Path, found: os.stat_result, *, folder: bool = False) -> None:
    """Raise `errors.Unavailable` (E_TENANTS) for a file (or folder) that is not this user's alone.

    That is a link, anything but a regular file (or folder), and what others own, may write or may read.
    """
    quoted_path = shell_word(str(path))
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(found.st_mode):
        raise _build_refusal(path, f"is a link or no {'folder' if folder else 'plain file'}", f"rm {quoted_path}")
    if os.name == "nt":
        return
    if found.st_uid != os.geteuid():
        raise _build_refusal(path, "belongs to another user", f"mv {_format_move(path)}")
    if found.st_mode & _OTHERS:
        raise _build_refusal(
            path, "can be written or read by others", f"chmod {'700' if folder else '600'} {quoted_path}"
        )
    if not folder and found.st_nlink > 1:
        raise _build_refusal(path, "has another name (a hard link)", f"mv {_format_move(path)}")


def _build_refusal(path: Path, fault: str, mending: str) -> Unavailable:
    return Unavailable(
        f"{path} {fault}; every token is refused", "E_TENANTS", f"find out who did that, then run `{mending}`"
    )


def _format_move(path: Path) -> str:
    return f"{shell_word(str(path))} {shell_word(f'{path}.refused')}"
