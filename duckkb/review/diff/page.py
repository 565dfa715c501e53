"""Which entries of a difference are told: from a cursor on, as many as a budget of bytes has room for.

Entries are the findings, then the changes. A cursor is the number of those that were told with a mark of the last of them:
where that is not the same any more the difference is another one, and to go on in it would leave out or repeat something.
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
    """Counts what is told. Raises `errors.UsageError` for what is no cursor, `errors.Conflict` (E_STALE) for one of another
    difference."""

    def __init__(self, diff: Diff, options: DiffOptions) -> None:
        self._entries: tuple[Finding | RecordChange, ...] = (*diff.findings, *diff.changes)
        self._diff, self._options = diff, options
        self.start = self.told = self._start(options.after)
        # What leads on is always told: its own words and quotes, and the command.
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
        """Entries that are not told."""
        return len(self._entries) - self.told

    @property
    def next(self) -> str:
        """The command that tells what comes next; empty where nothing does."""
        return self._options.again(f"--after {self._format_cursor(self.told)}") if self.left else ""

    @property
    def next_object(self) -> dict[str, Any] | None:
        """The same for programs."""
        if not self.left:
            return None
        return {"after": self._format_cursor(self.told), "left": self.left, "command": self.next}

    def spend(self, text: str) -> str:
        """Take what is always told off the budget."""
        self._left -= size(text)
        return text

    def tell_findings(self) -> tuple[Finding, ...]:
        """Those that are left, for a form that tells them together."""
        findings = self.findings
        self.told += len(findings)
        return findings

    def fit(
        self,
        entries: Iterable[_Entry],
        make: Callable[[_Entry], _Made],
        measure: Callable[[_Made], int] = lambda piece: size(str(piece)),
    ) -> Iterator[_Made]:
        """What is made of the entries that there is room for; one at least."""
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
                f"--after {after}: that is no cursor", suggestion="take the command that the page before ends with"
            )
        count = int(number[1]) if number else 0
        if count > len(self._entries) or (count and self._format_cursor(count) != after):
            raise Conflict(
                "the difference is not the one any more that this cursor is of",
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
