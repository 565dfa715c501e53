"""Pages of a difference: the entries from a cursor on that fit into a budget of bytes.

Entries are the findings, then the changes. A cursor is the number of entries shown so far, with a mark of the
last one. A different mark means that the difference has changed: continuing in it would skip or repeat entries.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from duckkb.errors import Conflict, Finding, UsageError
from duckkb.review.diff.model import Diff, DiffOptions, RecordChange
from duckkb.review.reports.budget import size

_WORDS = 200
_Entry = TypeVar("_Entry", Finding, RecordChange)
_Made = TypeVar("_Made")


class EntryPage:
    """A page that counts the entries shown.

    Raises `errors.UsageError` for an invalid cursor, `errors.Conflict` (E_STALE) for a cursor of another difference.
    """

    def __init__(self, diff: Diff, options: DiffOptions) -> None:
        self._entries: tuple[Finding | RecordChange, ...] = (*diff.findings, *diff.changes)
        self._diff, self._options = diff, options
        self.start = self.told = self._start(options.after)
        # The continuation is always shown: its own words and quotes, and the command.
        self._left = options.budget - size(options.again("--after 9999999999-ffffffff")) - _WORDS
        self._fitted, self._is_full = 0, False

    @property
    def is_first(self) -> bool:
        return not self.start

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._diff.findings[self.told :]

    @property
    def changes(self) -> tuple[RecordChange, ...]:
        return self._diff.changes[max(0, self.told - len(self._diff.findings)) :]

    @property
    def left(self) -> int:
        """The number of entries that are not shown."""
        return len(self._entries) - self.told

    @property
    def next(self) -> str:
        """The command that shows the next entries; empty where there are none."""
        return self._options.again(f"--after {self._format_cursor(self.told)}") if self.left else ""

    @property
    def next_object(self) -> dict[str, Any] | None:
        """The next command as plain data."""
        if not self.left:
            return None
        return {"after": self._format_cursor(self.told), "left": self.left, "command": self.next}

    def spend(self, text: str) -> str:
        """Subtract a text that is always shown from the budget, and return it."""
        self._left -= size(text)
        return text

    def tell_findings(self) -> tuple[Finding, ...]:
        """Return the remaining findings, for a form that shows them together."""
        findings = self.findings
        self.told += len(findings)
        return findings

    def fit(
        self,
        entries: Iterable[_Entry],
        make: Callable[[_Entry], _Made],
        measure: Callable[[_Made], int] = lambda piece: size(str(piece)),
    ) -> Iterator[_Made]:
        """Yield what `make` returns for the entries that fit into the budget, at least one."""
        for entry in entries:
            piece = make(entry)
            self._left -= measure(piece)
            self._is_full = self._is_full or (self._left < 0 and self._fitted > 0)
            if self._is_full:
                return
            self._fitted += 1
            self.told += 1
            yield piece

    def _start(self, after: str) -> int:
        number = re.fullmatch("([1-9][0-9]{0,9})-[0-9a-f]{8}", after)
        if after and number is None:
            raise UsageError(
                f"--after {after} is not a cursor", suggestion="take the command that the page before ends with"
            )
        count = int(number[1]) if number else 0
        if count > len(self._entries) or (count and self._format_cursor(count) != after):
            raise Conflict(
                "the difference changed since this cursor was printed",
                suggestion="begin again without --after",
            )
        return count

    def _format_cursor(self, count: int) -> str:
        entry = self._entries[count - 1]
        if isinstance(entry, Finding):
            last: tuple[str, ...] = (entry.code, entry.place, entry.field, entry.type, entry.identity)
        else:
            last = (
                entry.op,
                entry.type,
                str(entry.id),
                *(place.etag if place else "" for place in (entry.before, entry.after)),
            )
        digest = hashlib.sha256("\0".join((str(len(self._entries)), *last)).encode("utf-8", "replace")).hexdigest()
        return f"{count}-{digest[:8]}"
