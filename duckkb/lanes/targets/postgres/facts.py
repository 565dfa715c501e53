"""Returns the fields of a record that filters can use in the database, as JSON."""

from collections.abc import Mapping
from typing import Any

from duckkb.lanes.targets.facts import is_fact
from duckkb.ontology.model import RecordType
from duckkb.records import Record


def facts_of(kind: RecordType, record: Record) -> Mapping[str, Any] | None:
    """Return the facts of a record; None if any holds a NUL, which PostgreSQL's text forbids: DuckDB then filters
    the type.
    """
    facts = {name: value for name, value in record.fields.items() if is_fact(kind, name)}
    return None if _has_nul(facts) else facts


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case Mapping():
            return any(_has_nul(key) or _has_nul(inner) for key, inner in value.items())
        case list() | tuple():
            return any(map(_has_nul, value))
    return False
