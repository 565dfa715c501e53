"""Names of tables and columns as a caller writes them: which are safe, and what all that is wrong is told as.

A name is taken as it stands, capitals and reserved words too: it is looked up in the catalogue and quoted by the driver."""

import re
from collections.abc import Sequence

from duckkb.errors import FilterError, Finding, UsageError

_PART = r'(?:[^\W\d][\w$]*|"[\w$ .-]+")'
_COLUMN, _TABLE, _PARTS = re.compile(_PART), re.compile(rf"{_PART}(?:\.{_PART})?"), re.compile(_PART)
_MOST_BYTES = 63
"""Of a name; PostgreSQL cuts longer ones, and two would be one."""
_RULE = 'a name is letters, digits, _ and $, or in double quotes also spaces, hyphens and dots: shop."My Table"'


def table_name(text: object) -> tuple[str, str] | None:
    """The schema, empty where none is named, and the table; None for what is no safe name.

    >>> table_name("Items"), table_name('shop."My Table"'), table_name("items; DROP TABLE items")
    (('', 'Items'), ('shop', 'My Table'), None)
    """
    parts = _split_name(text, _TABLE)
    return None if not parts else (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def column_name(text: object) -> str | None:
    """A column; None for what is no safe name, such as a path into JSON.

    >>> column_name("order"), column_name('"a b"'), column_name("meta->>'a'"), column_name("meta.a")
    ('order', 'a b', None, None)
    """
    parts = _split_name(text, _COLUMN)
    return parts[0] if parts else None


def _split_name(text: object, pattern: re.Pattern[str]) -> list[str]:
    if not isinstance(text, str) or len(text) > 4 * _MOST_BYTES or not pattern.fullmatch(text):
        return []
    parts = [part.strip('"') for part in _PARTS.findall(text)]
    return parts if all(len(part.encode()) <= _MOST_BYTES for part in parts) else []


def invalid(what: str, given: object, remedy: str = _RULE) -> Finding:
    """A `table` or a `column` that is unsafe, or that is not there."""
    spelling = repr(given)
    return Finding(
        "E_TABLE", f"invalid {what} {spelling if len(spelling) <= 80 else spelling[:80] + '…'}", remedy=remedy
    )


def refuse(findings: Sequence[Finding]) -> None:
    """Raise `errors.FilterError` (E_FILTER) or `errors.UsageError` with all that is wrong, where anything is."""
    if not findings:
        return
    first, codes = findings[0], {finding.code for finding in findings}
    message = first.message if len(findings) == 1 else f"{len(findings)} problems, first: {first.message}"
    code = next((code for code in ("E_TABLE", "E_FILTER") if code in codes), first.code)
    kind = FilterError if codes == {"E_FILTER"} else UsageError
    raise kind(
        message,
        code=code,
        suggestion=first.remedy or "`duckkb table show --url URL` lists tables and columns",
        findings=tuple(findings),
    )
