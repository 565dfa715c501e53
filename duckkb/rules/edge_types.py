"""Suggestions of edge types that a base lacks, from the types that records' edges would join."""

from contextlib import suppress
from typing import Any

from duckkb.records import component_of
from duckkb.truth.files.tree import Tree, end_identity


def suggest_edge_type(tree: Tree, start: Any, end: Any, name: str = "") -> str:
    """Return the command that makes an edge type between the types of two nodes that an edge names.

    Names the edge type `name`, else after its ends. Returns an empty text unless each node exists in exactly
    one type.
    """
    types = [_list_types(tree, value) for value in (start, end)]
    if any(len(names) != 1 for names in types):
        return ""
    from_type, to_type = (names[0] for names in types)
    name = name or f"{from_type}_{to_type}"
    if tree.ontology.find(name) is not None and name not in tree.ontology.nodes:
        return ""
    return f"mkdir -p ontology && echo 'edges: {{{name}: {{from: {from_type}, to: {to_type}}}}}' > ontology/{name}.yaml"


def _list_types(tree: Tree, value: Any) -> list[str]:
    with suppress(ValueError):
        identity = end_identity(component_of(value))
        return [kind.name for kind in tree.ontology.nodes.values() if tree.get(kind, identity) is not None]
    return []
