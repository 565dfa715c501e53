"""Fields of records that hold characters which nobody sees."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.ontology.source import pointer
from duckkb.rules.invisible import invisible_in, named

_ESCAPED = re.compile(r"\\u|\\[bf]")
# How what is not seen begins in UTF-8, and escapes.
_BEGINNINGS = (
    b"\\u", b"\\b", b"\\f", b"\xc2", b"\xcd\x8f", b"\xd8\x9c", b"\xe1\x85", b"\xe1\x9e", b"\xe1\xa0", b"\xe2\x80", b"\xe2\x81",
    b"\xe3\x85\xa4", b"\xef\xb8", b"\xef\xbb\xbf", b"\xef\xbe\xa0", b"\xef\xbf", b"\xf3\xa0",
)  # fmt: skip


def may_hold_invisible(line: bytes) -> bool:
    """Whether a line, in canonical form, may hold what nobody sees. Quick: most lines do not."""
    if line.isascii():
        return b"\\" in line and _ESCAPED.search(line.decode()) is not None
    return any(map(line.__contains__, _BEGINNINGS))


def invisible_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a record, as JSON pointers, whose texts hold what nobody sees, each with a sentence on it."""
    for name, value in fields.items():
        if said := _sentence(_count_invisible(value)):
            yield pointer(name), said


def invisible_in_change(name: str, before: str | None, after: str | None) -> tuple[str, str] | None:
    """The same of a field that changed, given as JSON text: what the new side has more of."""
    if after is None or not (_ESCAPED.search(after) or next(invisible_in(after), None)):
        return None
    more = _count_invisible(json.loads(after))
    more.subtract(_count_invisible(json.loads(before)) if before is not None else ())
    said = _sentence(+more)
    return (pointer(name), said) if said else None


def _count_invisible(value: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            # A carriage return ends lines in texts of other systems.
            found.update(character for _, character in invisible_in(one) if character != "\r")
        elif isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return found


def _sentence(found: Counter[str]) -> str:
    if not found:
        return ""
    first = min(found)
    others = found.total() - 1
    return f"holds {named(first)}" + (f", and {others:,} more that nobody sees" if others else "")
