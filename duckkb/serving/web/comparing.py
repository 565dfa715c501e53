"""Two versions of a record side by side, field by field; in texts the words that went and came are marked."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape
from msgspec import Struct

from duckkb.review.diff.words import words

_LONGEST = 20_000


class Compared(Struct, frozen=True):
    """A field in both versions: as markup, empty where one has it not."""

    name: str
    old: Markup
    new: Markup
    is_same: bool


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Compared]:
    """The fields of either, those that differ first; fields of duckkb's own are left out."""
    names = [name for name in dict.fromkeys([*old, *new]) if not name.startswith("_")]
    found = [_field(name, old, new) for name in names]
    return sorted(found, key=lambda one: one.is_same)


def version(changes: Sequence[Mapping[str, Any]], number: int) -> dict[str, Any]:
    """A record as the change with this number left it, of all its changes, the newest first (as `log` gives them)."""
    found: dict[str, Any] = {}
    for change in reversed(changes[number:]):
        for name, sides in change["fields"].items():
            if "after" in sides:
                found[name] = sides["after"]
            else:
                found.pop(name, None)
        if change["op"] == "delete":
            found = {}
    return found


def _field(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Compared:
    sides = [_text(side[name]) if name in side else None for side in (old, new)]
    before, after = sides
    if before == after or before is None or after is None:
        plain = [Markup("") if one is None else escape(one) for one in sides]
        return Compared(name, plain[0], plain[1], before == after)
    marked = [Markup(""), Markup("")]
    for kind, text in words(before, after):
        if kind in ("same", "gone", "cut"):
            marked[0] += Markup("<del>%s</del>") % text if kind == "gone" else escape(text)
        if kind in ("same", "new", "cut"):
            marked[1] += Markup("<ins>%s</ins>") % text if kind == "new" else escape(text)
    return Compared(name, marked[0], marked[1], False)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
