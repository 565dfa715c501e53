"""Findings that say the same of many records, told once: what is wrong, how often, and where first."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from duckkb.errors import Finding

_NAMED, _FEW = 5, 3
_NUMBER = re.compile("[0-9]+")
_INDEX = re.compile("/[0-9]+(?=/|$)")


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, ...]]:
    """Findings of one rule about one field of one type together, in the order of their first ones; of those that are about
    no record, those that say the same but for numbers. Three and fewer stay by themselves."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        what = one.type or _NUMBER.sub("0", one.message)
        found.setdefault((one.code, what, _INDEX.sub("/0", one.field)), []).append(one)
    few = ([(one,) for one in some] if len(some) <= _FEW else [tuple(some)] for some in found.values())
    return [group for groups in few for group in groups]


def told(findings: Iterable[Finding], prefix: str = "") -> list[Finding]:
    """A finding a group: the first one, with a word on how many more there are and where the next ones stand; `prefix` is
    set before their paths.

    >>> [one.message for one in told(Finding("E_SCHEMA", "is no text", "a", line, type="T") for line in (1, 2, 3, 4))]
    ['is no text; 3 more like it: a:2, a:3, a:4']
    """
    return [_one(some, prefix) for some in grouped(findings)]


def as_objects(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The groups of more than one for programs, which find each finding among the others."""
    return [
        {
            "code": some[0].code,
            "count": len(some),
            **{name: value for name in ("type", "field", "message") if (value := getattr(some[0], name))},
            "places": [one.place for one in some[:_NAMED]],
        }
        for some in grouped(findings)
        if len(some) > 1
    ]


def _one(some: Sequence[Finding], prefix: str) -> Finding:
    if len(some) == 1:
        return some[0]
    places = [one.rooted(prefix).place if one.path else one.identity for one in some[1 : 1 + _NAMED]]
    dots = ", …" if len(some) > 1 + _NAMED else ""
    return replace(some[0], message=f"{some[0].message}; {len(some) - 1:,} more like it: {', '.join(places)}{dots}")
