"""The audit log of a base: one line a decision. It has no place for tokens or questions."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duckkb.errors import Unavailable
from duckkb.serving.tenants.files import TenantFiles, refuse_foreign
from duckkb.serving.tenants.tenant import is_id
from duckkb.truth import state

_MOST_BYTES = 8_000_000
_OLDER = 4
# Both come from clients, and are too short for a token: what does not fit is not written.
_ACTION = re.compile(r"[a-z][a-z0-9_ ./-]{0,39}")
_REQUEST = re.compile(r"[A-Za-z0-9._:-]{1,40}")


def audit(files: TenantFiles, tenant: str, action: str, outcome: str, request_id: str = "") -> None:
    """Write a decision down: whose it is (the ID of a tenant, "server", or empty where nobody knows), the name of an action or a
    route, and `outcome`, such as "allowed", or a code. A text of another form is written as "?". Raises
    `errors.Unavailable` (E_TENANTS, E_IO): who cannot write it down should not go on."""
    line = {
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
        "base": str(files.root),
        "tenant": tenant if not tenant or is_id(tenant) else "?",
        "action": action if _ACTION.fullmatch(action) else "?",
        "outcome": outcome if _REQUEST.fullmatch(outcome) else "?",
        "request": request_id if not request_id or _REQUEST.fullmatch(request_id) else "?",
    }
    try:
        files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = _append(files.audit, f"{json.dumps(line)}\n".encode())
    except OSError as error:
        said = f"the audit log {files.audit} cannot be written: {error.strerror or error}"
        raise Unavailable(said, "E_IO", state.remedy_of(error, "mend permissions")) from error
    if size > _MOST_BYTES:
        with suppress(Unavailable, OSError):  # it is written; the next one tries again
            _rotate(files)


def last(files: TenantFiles, count: int) -> list[dict[str, Any]]:
    """The last decisions of a base, the newest last. Raises `errors.Unavailable` (E_TENANTS, E_IO)."""
    found: list[dict[str, Any]] = []
    for line in _newest_first(files):
        if len(found) >= count:
            break
        found.append(line)
    return found[::-1]


def _newest_first(files: TenantFiles) -> Iterator[dict[str, Any]]:
    for file in (files.audit, *(_older(files.audit, number) for number in range(1, _OLDER + 1))):
        for line in reversed((files.own(file) or b"").splitlines()):
            with suppress(ValueError):  # what a full disk tore
                yield json.loads(line)


def _append(path: Path, line: bytes) -> int:
    """Bytes of the log afterwards. Lines of several processes do not mix: each is one write to the end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | state.NO_FOLLOW, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        found = os.fstat(descriptor)
        refuse_foreign(path, found)
        file.write(line)
    return found.st_size + len(line)


def _rotate(files: TenantFiles) -> None:
    with files.locked(5, ".audit"):
        if files.audit.lstat().st_size > _MOST_BYTES:
            for number in range(_OLDER, 0, -1):
                with suppress(FileNotFoundError):
                    _older(files.audit, number - 1).replace(_older(files.audit, number))


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path
