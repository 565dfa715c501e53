"""How records are called on pages: by an identity that actions take back, and by a title that people know them by."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.ontology.display import TITLES

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


def title_of(record: Mapping[str, Any], identity: str) -> str:
    """What a record is called: a field that says so, else its identity."""
    found = next(
        (record[name] for name in TITLES if isinstance(record.get(name), str) and record[name].strip()), identity
    )
    return found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
