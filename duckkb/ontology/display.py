"""The fields that represent a record to people: its title first, then a few others."""

from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.records import FROM, TO

TITLES = ("title", "name", "label", "subject", "heading", "question")
"""Names of title fields; the first one that a record has is its title."""
_CONTEXT = 2
_SHORT = 60


def display_names(record: Mapping[str, Any], declared: Sequence[str], identity: str) -> list[str]:
    """Name the fields to show of a record, its title first.

    These are the fields that its type has `declared` (`display`). Without a declaration: a field with the name
    of a title or the first text, and two short values. The `identity` is left out, since it is shown beside
    them.

    >>> display_names({"id": "n1", "size": 3, "text": "A storm.", "name": "Storm"}, (), "n1")
    ['name', 'size', 'text']
    >>> display_names({"id": "q1", "answer": "Here.", "question": "Where?"}, (), "q1")
    ['question', 'answer']
    """
    if declared:
        return [name for name in declared if record.get(name) not in (None, "")]
    candidates = {
        name: value
        for name, value in record.items()
        if not name.startswith("__") and name not in (FROM, TO) and str(value) != identity
    }
    texts = [name for name, value in candidates.items() if isinstance(value, str) and value.strip()]
    title = next((name for name in TITLES if name in texts), texts[0] if texts else None)
    short = [name for name, value in candidates.items() if name != title and _is_short(value)]
    return ([title] if title else []) + short[:_CONTEXT]


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and len(value) <= _SHORT
    return isinstance(value, int | float)
