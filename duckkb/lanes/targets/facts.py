"""Which fields of a record filters may ask in a target: not those texts that are searched and may be long."""

from duckkb.ontology.model import EVERY, RecordType


def is_fact(kind: RecordType, name: str) -> bool:
    """Whether a field is one of them."""
    searched_names = {search_field.name for search_field in (*kind.full_text, *kind.vectors)}
    return name in kind.identity_fields or EVERY in searched_names or name not in searched_names
