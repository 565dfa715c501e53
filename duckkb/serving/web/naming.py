"""How records are called on pages: by an identity that actions take back, and by a title that people know them by."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.ontology.display import display_names

_LONGEST = 200


def identity_of(record: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The identity as the command line writes it, of a record's fields and the names of those that identify it: a scalar, or a JSON
    array on one line.

    >>> identity_of({"id": "n1"}, ["id"]), identity_of({"from": "a", "to": "b"}, ["from", "to"])
    ('n1', '["a","b"]')
    """
    parts = [record.get(name) for name in fields]
    if len(parts) == 1 and isinstance(parts[0], str | int):
        return str(parts[0])
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def title_of(record: Mapping[str, Any], identity: str, display: Sequence[str]) -> str:
    """What a record is called, as comments and the pages of changes call it: the first field of those by which people know it
    (`display`, where its type says which they are), else its identity.

    >>> title_of({"_type": "Rule", "id": "r1", "title": "A", "heading": "B"}, "r1", ["heading"]), title_of({"id": "r1"}, "r1", [])
    ('B', 'r1')
    """
    fields = {name: value for name, value in record.items() if not name.startswith("_")}
    values = (fields[name] for name in display_names(fields, display, identity))
    title = next(
        (label if isinstance(label, str) else json.dumps(label, ensure_ascii=False) for label in values), identity
    )
    return title if len(title) <= _LONGEST else title[:_LONGEST] + "…"
