"""The names of records on pages: an identity that actions accept, and a title for people."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.ontology.display import display_names

_LONGEST = 200


def identity_of(record: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return a record's identity as the command line writes it: a scalar, or a JSON array on one line.

    `fields` are the names of the identity fields.

    >>> identity_of({"id": "n1"}, ["id"]), identity_of({"from": "a", "to": "b"}, ["from", "to"])
    ('n1', '["a","b"]')
    """
    parts = [record.get(name) for name in fields]
    if len(parts) == 1 and isinstance(parts[0], str | int):
        return str(parts[0])
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def title_of(record: Mapping[str, Any], identity: str, display: Sequence[str]) -> str:
    """Return the title of a record: its first display field, else its identity, cut to a limited length.

    Comments and the pages of changes use the same title. `display` are the fields that the type declares.

    >>> title_of({"_type": "Rule", "id": "r1", "title": "A", "heading": "B"}, "r1", ["heading"]), title_of({"id": "r1"}, "r1", [])
    ('B', 'r1')
    """
    fields = {name: value for name, value in record.items() if not name.startswith("_")}
    values = (fields[name] for name in display_names(fields, display, identity))
    title = next(
        (label if isinstance(label, str) else json.dumps(label, ensure_ascii=False) for label in values), identity
    )
    return title if len(title) <= _LONGEST else title[:_LONGEST] + "…"
