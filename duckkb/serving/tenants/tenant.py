"""A tenant of a served base: its role and its types. It stores the SHA-256 of its token, never the token."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from duckkb.caller import ROLES, Caller, Role

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
