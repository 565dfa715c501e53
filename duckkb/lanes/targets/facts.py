"""Defines which fields filters can use in a target: all but texts that are searched and may be long."""

from duckkb.ontology.model import EVERY, RecordType


def is_fact(kind: RecordType, name: str) -> bool:
    """Return whether filters can use a field in a target."""
    searched_names = {search_field.name for search_field in (*kind.full_text, *kind.vectors)}
    return name in kind.identity_fields or EVERY in searched_names or name not in searched_names
