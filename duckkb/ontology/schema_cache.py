"""Schemas that were found sound before, by a hash of everything that the finding depends on. The checks need a library
that takes 20 ms to load; a schema that passed them once passes them again.

`config` keeps the hashes in the user's state folder: from a clone they could wave a schema through that nobody checked.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from duckkb.installed import version_of

_known: set[str] = set()
_fresh: set[str] = set()


def recall(names: Iterable[str]) -> None:
    """Take in what an earlier process found sound."""
    _known.update(names)


def fresh() -> set[str]:
    """What this process found sound beyond that, since it was last asked."""
    names = set(_fresh)
    _fresh.clear()
    return names


def is_known(schema: Mapping[str, Any]) -> bool:
    return _name(schema) in _known


def note(schema: Mapping[str, Any]) -> None:
    """Remember that every check of this schema found nothing."""
    name = _name(schema)
    if name not in _known:
        _known.add(name)
        _fresh.add(name)


def _name(schema: Mapping[str, Any]) -> str:
    text = json.dumps(schema, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake2b(f"{_hash_rules()}\0{text}".encode(), digest_size=16).hexdigest()


@cache
def _hash_rules() -> str:
    """Names the checks: our own, as they are written down, and the library's."""
    here = Path(__file__).parent
    source_code = b"".join((here / name).read_bytes() for name in ("schema.py", "kinds.py", "names.py", "rules.py"))
    return f"{blake2b(source_code, digest_size=16).hexdigest()} {version_of('jsonschema-rs', 'jsonschema_rs')}"
