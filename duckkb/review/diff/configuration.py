"""What two configurations say otherwise: types with their fields, search and identity, policies, and settings."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckkb.ontology.source import Document, pointer
from duckkb.review.diff.model import OntologyChange

_KINDS = {"nodes": "node", "edges": "edge", "collections": "collection", "policies": "policy"}
_APART = ("search", "schema", "fields", "intents", "embedding", "fusion")
"""What of a type or policy is told key by key."""

Said = tuple[str, str]
"""What a part of the configuration says, as JSON, and the file in which it stands."""


def ontology_changes(old: Sequence[Document], new: Sequence[Document]) -> tuple[OntologyChange, ...]:
    """The changes from one configuration to another, by what they concern: settings first, then types and policies.

    A type that came or went is one change, with its whole declaration. Questions are left out: they shape no record.
    """
    if old == new:
        return ()
    before, after = dict(_parts(old)), dict(_parts(new))
    before, after = _whole(before, after), _whole(after, before)
    names = sorted({**before, **after}, key=lambda name: (not name.startswith("setting "), name))
    pairs = [(name, _text(before.get(name)), _text(after.get(name))) for name in names]
    return tuple(
        OntologyChange(name, old_text, new_text, (after.get(name) or before[name])[1])
        for name, old_text, new_text in pairs
        if old_text != new_text
    )


def _text(said: Said | None) -> str | None:
    return said[0] if said is not None else None


def _whole(side: Mapping[str, Said], other: Mapping[str, Said]) -> dict[str, Said]:
    """Without the pieces of types that the other side does not have at all, and without the whole of those it has."""
    found = {}
    for name, said in side.items():
        kind, owner, *rest = name.split(" ", 2)
        is_shared = kind == "setting" or f"{kind} {owner}" in other
        if kind == "setting" or is_shared == bool(rest):
            found[name] = said
    return found


def _parts(documents: Sequence[Document]) -> Iterator[tuple[str, Said]]:
    for document in documents:
        for key, value in document.value.items():
            if key in _KINDS and isinstance(value, Mapping):
                for name, declared in value.items():
                    yield f"{_KINDS[key]} {name}", (_json(declared), document.path)
                    for what, said in _declared(declared):
                        yield f"{_KINDS[key]} {name} {what}", (_json(said), document.path)
            elif key != "questions":
                for what, said in _settings(key, value):
                    yield f"setting {what}", (_json(said), document.path)


def _declared(declared: Any) -> Iterator[tuple[str, Any]]:
    """The pieces of a type or policy: `field /title`, `search full_text`, `identity`."""
    for key, value in declared.items() if isinstance(declared, Mapping) else ():
        if key not in _APART or not isinstance(value, Mapping):
            yield key, value
            continue
        for name, said in value.items():
            if key == "schema" and name == "properties" and isinstance(said, Mapping):
                yield from ((f"field {pointer(field)}", rule) for field, rule in said.items())
            else:
                yield f"{key} {name}", said


def _settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _settings(f"{name}.{key}", inside)
    else:
        yield name, value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
