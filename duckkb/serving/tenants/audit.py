"""The audit log of a base: one line a decision; and a separate sample of requests refused at the entrance.

So strangers cannot push decisions out. Neither has a place for tokens or questions.
"""

import ipaddress
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.errors import Unavailable
from duckkb.open_files import NO_FOLLOW
from duckkb.serving.tenants.files import TenantFiles, refuse_foreign
from duckkb.serving.tenants.tenant import is_id
from duckkb.truth import state

_MOST_BYTES, _OLDER = 8_000_000, 4
_MOST_BYTES_REFUSED, _OLDER_REFUSED = 1_000_000, 1
# Both come from clients, and are too short for a token: anything longer is not written.
_ACTION = re.compile(r"[a-z][a-z0-9_ ./-]{0,39}")
_REQUEST = re.compile(r"[A-Za-z0-9._:-]{1,40}")


class AuditEntry(Struct, frozen=True):
    """An entry of the log.

    It has the ID of a tenant ("server", or empty where unknown), the name of an action or a route, and an
    `outcome`, such as "allowed", or a code; for a request also its ID and the client's address.
    """

    tenant: str
    action: str
    outcome: str
    request_id: str = ""
    address: str = ""

    def line(self, files: TenantFiles) -> dict[str, Any]:
        """Return the entry as it is written; a text of another form becomes "?"."""
        return {
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
            "base": str(files.root),
            "tenant": self.tenant if not self.tenant or is_id(self.tenant) else "?",
            "action": self.action if _ACTION.fullmatch(self.action) else "?",
            "outcome": self.outcome if _REQUEST.fullmatch(self.outcome) else "?",
            "request": self.request_id if not self.request_id or _REQUEST.fullmatch(self.request_id) else "?",
            "address": self.address if not self.address or _is_address(self.address) else "?",
        }


def audit(files: TenantFiles, entry: AuditEntry) -> None:
    """Write a decision to the log.

    Raises `errors.Unavailable` (E_TENANTS, E_IO); the caller should then not go on.
    """
    _write(files, files.audit, entry.line(files), _MOST_BYTES, _OLDER)


def note_refusal(files: TenantFiles, entry: AuditEntry, left_out: int) -> None:
    """Write a refusal to the sample, and how many were left out since the last line. Raises as `audit`."""
    line = entry.line(files) | {"left_out": left_out}
    _write(files, files.refused, line, _MOST_BYTES_REFUSED, _OLDER_REFUSED)


def last(files: TenantFiles, count: int) -> list[dict[str, Any]]:
    """Return the last decisions of a base, the newest last. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
    return _read_last(files, files.audit, _OLDER, count)


def list_refusals(files: TenantFiles, count: int) -> list[dict[str, Any]]:
    """Return the last refusals in the sample, the newest last. Raises as `last`."""
    return _read_last(files, files.refused, _OLDER_REFUSED, count)


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _write(files: TenantFiles, path: Path, line: dict[str, Any], most: int, older: int) -> None:
    try:
        files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = _append(path, f"{json.dumps(line)}\n".encode())
    except OSError as error:
        message = f"the audit log {path} cannot be written: {error.strerror or error}"
        raise Unavailable(message, "E_IO", state.remedy_of(error, "mend permissions")) from error
    if size > most:
        with suppress(Unavailable, OSError):  # the entry is written; the next one retries
            _rotate(files, path, most, older)


def _read_last(files: TenantFiles, path: Path, older: int, count: int) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for line in _iter_newest(files, path, older):
        if len(entries) >= count:
            break
        entries.append(line)
    return entries[::-1]


def _iter_newest(files: TenantFiles, path: Path, older: int) -> Iterator[dict[str, Any]]:
    for file in (_build_path(path, number) for number in range(older + 1)):
        for line in reversed((files.own(file) or b"").splitlines()):
            with suppress(ValueError):  # a line torn by a full disk
                yield json.loads(line)


def _append(path: Path, line: bytes) -> int:
    """Append a line; return the size of the log in bytes.

    Each line is one write, so that processes do not mix lines.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_FOLLOW, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file_stat = os.fstat(descriptor)
        refuse_foreign(path, file_stat)
        file.write(line)
    return file_stat.st_size + len(line)


def _rotate(files: TenantFiles, path: Path, most: int, older: int) -> None:
    with files.hold_lock(5, ".audit"):
        if path.lstat().st_size > most:
            for number in range(older, 0, -1):
                with suppress(FileNotFoundError):
                    _build_path(path, number - 1).replace(_build_path(path, number))


def _build_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path
