"""Computes the identity of a record, the `__id` that follows from it, and its times."""

import hashlib
import json
import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from duckkb.errors import Finding, InvalidRecord
from duckkb.fast_json import orjson
from duckkb.ontology.model import Generated, RecordType
from duckkb.records import FROM, TO, Identity, component_of, component_value

MAX_ID = 2**53 - 1
# a shared encoder: `json.dumps` with options creates an encoder for each call
_spelled = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_IDENTITY_BYTES = 1024

# Controls, line separators and bidirectional controls could hide or reorder text from a reviewer.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z")


class IdentityError(InvalidRecord):
    """An invalid identity; `findings` names every wrong field."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the record has no usable identity", findings=tuple(findings))


def hash_id(kind: str, table: str, identity: Identity, salt: int = 0) -> int:
    """Return the `__id` of an identity: 53 bits of SHA-256 over `["duckkb/1", kind, table, [components], salt]`,
    never zero.

    `kind` is `node` or `edge`. A salt whose value is zero is skipped.
    """
    return free_id(kind, table, identity, lambda value: False, salt)


def free_id(kind: str, table: str, identity: Identity, taken: Callable[[int], bool], salt: int = 0) -> int:
    """Return the id with the smallest salt, from `salt` on, that is neither zero nor `taken` in the table."""
    while not (value := _digest(kind, table, identity, salt)) or taken(value):
        salt += 1
    return value


def _digest(kind: str, table: str, identity: Identity, salt: int) -> int:
    if len(identity) == 1 and type(identity[0]) is str:  # writes the same bytes in a fifth of the time
        data = orjson.dumps(["duckkb/1", kind, table, identity, salt])
    else:
        parts = ["duckkb/1", kind, table, [component_value(component) for component in identity], salt]
        data = _spelled(parts).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 11


def with_key(fields: dict[str, Any], identity: Sequence[str], generated: Generated | None) -> dict[str, Any]:
    """Add the identity that follows from the fields (`uuid5`) to a record without an identity; otherwise return it
    unchanged.

    >>> from duckkb.ontology.model import Generated
    >>> with_key({"text": "a"}, ["key"], Generated("uuid5", "text", "6ba7b811-9dad-11d1-80b4-00c04fd430c8"))["key"]
    'e1407479-3136-56c0-9908-bb02fb0339e2'
    """
    if generated is None or generated.method != "uuid5" or fields.get(identity[0]) is not None:
        return fields
    text = fields.get(generated.of)
    if not isinstance(text, str) or not text:
        return fields
    namespace = uuid.UUID(generated.namespace) if generated.namespace else uuid.NAMESPACE_OID
    try:
        return fields | {identity[0]: str(uuid.uuid5(namespace, text))}
    except UnicodeEncodeError:  # half of a surrogate pair; reading the line reports it
        return fields


def identity_of(kind: RecordType, fields: Mapping[str, Any]) -> Identity:
    """Return the identity in a record's fields; raises `IdentityError` naming every wrong field."""
    names = kind.identity_fields
    if len(names) == 1 and type(only := fields.get(names[0])) is str and not scalar_problem(only):
        return (only,)
    findings = identity_findings(names, fields, edge=kind.kind == "edge")
    if findings:
        raise IdentityError(findings)
    return tuple(component_of(fields[name]) for name in names)


def identity_findings(names: Sequence[str], fields: Mapping[str, Any], *, edge: bool) -> list[Finding]:
    """Return the problems of the identity fields, a finding (E_IDENTITY) for each wrong field."""
    if len(names) == 1 and type(only := fields.get(names[0])) is str and not scalar_problem(only):
        return []  # the most frequent case among millions
    findings = []
    for name in names:
        problem = _end_problem(fields.get(name)) if edge and name in (FROM, TO) else scalar_problem(fields.get(name))
        if problem:
            findings.append(Finding("E_IDENTITY", f"the identity field {name!r} {problem}", field=f"/{name}"))
    return findings


def _end_problem(value: Any) -> str:
    """Check the end of an edge as `scalar_problem` does; also accept an array of scalars and `{"type", "id"}`."""
    if isinstance(value, Mapping):
        if set(value) != {"type", "id"} or not isinstance(value["type"], str) or isinstance(value["id"], Mapping):
            return 'is an object other than {"type": TYPE, "id": IDENTITY}'
        return scalar_problem(value["type"]) or _end_problem(value["id"])
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(scalar_problem, value)), "") if value else "is an empty array"
    return scalar_problem(value)


def scalar_problem(value: Any) -> str:
    """Return why a value cannot be a component of an identity, as the rest of a sentence; empty if it can.

    A component is an int64 or a string: not empty, NFC, at most 1,024 bytes of UTF-8, without control
    characters, line separators and bidirectional controls.
    """
    if type(value) is int:
        return "" if INT64_MIN <= value <= INT64_MAX else "is an integer past int64"
    if value is None:
        return "is missing"
    if type(value) is not str:
        return f"is {_describe_type(value)}, not a string or an integer"
    if not value:
        return "is empty"
    if value.isascii() and value.isprintable():
        return "" if len(value) <= MAX_IDENTITY_BYTES else _TOO_LONG
    if _UNSEEN.search(value):
        return "contains a control character"
    if not unicodedata.is_normalized("NFC", value):
        return "is not in Unicode's form NFC"
    return "" if len(value.encode()) <= MAX_IDENTITY_BYTES else _TOO_LONG


_TOO_LONG = f"is longer than {MAX_IDENTITY_BYTES:,} bytes"


def _describe_type(value: Any) -> str:
    names = {bool: "a boolean", float: "a number with a fraction or an exponent", list: "an array", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def is_time(value: Any) -> bool:
    """Return whether a value is a canonical time: text of the form `YYYY-MM-DDTHH:MM:SS.ffffffZ` that exists."""
    return type(value) is str and canonical_time(value)


@lru_cache(maxsize=4096)
def canonical_time(text: str) -> bool:
    """Return whether a text is `YYYY-MM-DDTHH:MM:SS.ffffffZ` and an existing time. Cached, because an import has a
    single time.

    >>> canonical_time("2026-02-28T23:59:59.000001Z"), canonical_time("2026-02-30T00:00:00.000000Z")
    (True, False)
    """
    if not _TIME.fullmatch(text):
        return False
    try:
        _parse_moment(text)
    except ValueError:
        return False
    return True


def day_of(created_at: str) -> str:
    """Return the UTC day of a canonical time in the form of a folder's name.

    >>> day_of("2026-01-31T23:59:59.000001Z")
    '20260131'
    """
    return created_at[:4] + created_at[5:7] + created_at[8:10]


def day_start(day: str) -> str:
    """Return the first moment of a day folder's day.

    >>> day_start("20260131")
    '2026-01-31T00:00:00.000000Z'
    """
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00.000000Z"


def next_time(now: str, old: str) -> str:
    """Return the `__updated_at` of a change: `now`, but at least one microsecond after `old`, so that no clock
    goes backwards.

    The last microsecond of the year 9999 stays as it is.

    >>> next_time("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.999999Z")
    '2026-01-01T00:00:01.000000Z'
    """
    try:
        after = _parse_moment(old) + timedelta(microseconds=1)
    except OverflowError:
        return old
    return max(now, after.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))


def _parse_moment(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
