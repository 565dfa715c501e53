"""The differences of two configurations: types with their fields, search and identity, policies, and settings."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckkb.ontology.source import Document, pointer
from duckkb.review.diff.model import OntologyChange

_KINDS = {"nodes": "node", "edges": "edge", "collections": "collection", "policies": "policy"}
_APART = ("search", "schema", "fields", "intents", "embedding", "fusion")
"""Keys of a type or policy that are compared key by key."""

Said = tuple[str, str]
"""A part of the configuration as JSON, and its file."""


def ontology_changes(old: Sequence[Document], new: Sequence[Document]) -> tuple[OntologyChange, ...]:
    """Return the changes from one configuration to another, by subject: settings first, then types and policies.

    An added or removed type is one change, with its whole declaration. Questions are left out: they shape no record.
    """
    if old == new:
        return ()
    before, after = dict(_iter_parts(old)), dict(_iter_parts(new))
    before, after = _select_parts(before, after), _select_parts(after, before)
    names = sorted({**before, **after}, key=lambda name: (not name.startswith("setting "), name))
    pairs = [(name, _extract_text(before.get(name)), _extract_text(after.get(name))) for name in names]
    return tuple(
        OntologyChange(name, old_text, new_text, (after.get(name) or before[name])[1])
        for name, old_text, new_text in pairs
        if old_text != new_text
    )


def _extract_text(statement: Said | None) -> str | None:
    return statement[0] if statement is not None else None


def _select_parts(side: Mapping[str, Said], other_side: Mapping[str, Said]) -> dict[str, Said]:
    """Drop the pieces of types that the other side lacks, and the whole declaration of types that it has."""
    statements = {}
    for name, statement in side.items():
        kind, owner, *piece_names = name.split(" ", 2)
        is_common = kind == "setting" or f"{kind} {owner}" in other_side
        if kind == "setting" or is_common == bool(piece_names):
            statements[name] = statement
    return statements


def _iter_parts(documents: Sequence[Document]) -> Iterator[tuple[str, Said]]:
    for document in documents:
        for key, value in document.value.items():
            if key in _KINDS and isinstance(value, Mapping):
                for name, declaration in value.items():
                    yield f"{_KINDS[key]} {name}", (_to_json(declaration), document.path)
                    for piece_name, content in _iter_pieces(declaration):
                        yield f"{_KINDS[key]} {name} {piece_name}", (_to_json(content), document.path)
            elif key != "questions":
                for piece_name, content in _iter_settings(key, value):
                    yield f"setting {piece_name}", (_to_json(content), document.path)


def _iter_pieces(declaration: Any) -> Iterator[tuple[str, Any]]:
    """Yield the pieces of a type or policy: `field /title`, `search full_text`, `identity`."""
    for key, value in declaration.items() if isinstance(declaration, Mapping) else ():
        if key not in _APART or not isinstance(value, Mapping):
            yield key, value
            continue
        for name, content in value.items():
            if key == "schema" and name == "properties" and isinstance(content, Mapping):
                yield from ((f"field {pointer(field)}", rule) for field, rule in content.items())
            else:
                yield f"{key} {name}", content


def _iter_settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _iter_settings(f"{name}.{key}", inside)
    else:
        yield name, value


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
