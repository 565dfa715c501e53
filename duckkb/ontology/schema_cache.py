"""Hashes of schemas that passed their checks, each over everything that the result depends on.

The checks need a library that takes 20 ms to load; a schema that passed them once passes them again. `config`
stores the hashes in the user's state folder: in a clone they could pass a schema that nobody checked.
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
    """Add the hashes of schemas that an earlier process has checked."""
    _known.update(names)


def fresh() -> set[str]:
    """Return the hashes that this process has added since the last call."""
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
    """Return a hash that names the checks: our own by their source, and the library's."""
    here = Path(__file__).parent
    source_code = b"".join((here / name).read_bytes() for name in ("schema.py", "kinds.py", "names.py", "rules.py"))
    return f"{blake2b(source_code, digest_size=16).hexdigest()} {version_of('jsonschema-rs', 'jsonschema_rs')}"
