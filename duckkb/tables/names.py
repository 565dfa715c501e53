"""Names of tables and columns as a caller writes them: validation, and the findings about invalid names.

A name is taken literally, capitals and reserved words too: it is looked up in the catalogue and quoted by the driver.
"""

import re
from collections.abc import Sequence

from duckkb.errors import FilterError, Finding, UsageError

_PART = r'(?:[^\W\d][\w$]*|"[\w$ .-]+")'
_COLUMN, _TABLE, _PARTS = re.compile(_PART), re.compile(rf"{_PART}(?:\.{_PART})?"), re.compile(_PART)
_MOST_BYTES = 63
"""The most bytes of a name; PostgreSQL truncates longer names, so that two could become the same."""
_RULE = 'a name is letters, digits, _ and $, or in double quotes also spaces, hyphens and dots: shop."My Table"'


def table_name(text: object) -> tuple[str, str] | None:
    """Parse a table's name into schema, empty where none is named, and table; None where it is not safe.

    >>> table_name("Items"), table_name('shop."My Table"'), table_name("items; DROP TABLE items")
    (('', 'Items'), ('shop', 'My Table'), None)
    """
    parts = _split_name(text, _TABLE)
    return None if not parts else (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def column_name(text: object) -> str | None:
    """Parse a column's name; None where it is not safe, such as a path into JSON.

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
    """Return the finding about a `table` or `column` whose name is unsafe or unknown."""
    spelling = repr(given)
    return Finding(
        "E_TABLE", f"invalid {what} {spelling if len(spelling) <= 80 else spelling[:80] + '…'}", remedy=remedy
    )


def refuse(findings: Sequence[Finding]) -> None:
    """Raise `errors.FilterError` (E_FILTER) or `errors.UsageError` with all findings, if there are any."""
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
