"""`kb.provenance`: which commits records, their fields and their changes are from."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from duckkb.actions import tracing
from duckkb.engine.base import Base
from duckkb.queries import Hit
from duckkb.review.provenance import citation
from duckkb.review.provenance.citation import Citation
from duckkb.review.provenance.provenance import FieldOrigin, Origin
from duckkb.review.provenance.provenance_log import LogEntry


class Provenance:
    """What git knows of records. Every method raises `errors.StateError` (E_GIT) outside of a repository."""

    def __init__(self, turn: Callable[[], AbstractContextManager[Base]]) -> None:
        self._turn = turn

    def of(self, hits: Sequence[Hit]) -> list[Origin]:
        """For each hit the commit that gave its record's line the form it has, and a citation of it."""
        with self._turn() as base:
            return tracing.origins(base, hits)

    def blame(self, type: str, identity: Any, field: str | None = None) -> list[FieldOrigin]:
        """For each field of a record (or one) the commit that gave it its value. Raises `errors.NotFound`."""
        with self._turn() as base:
            return tracing.blame(base, type, identity, field)

    def log(self, type: str, identity: Any) -> list[LogEntry]:
        """The changes of a record, the newest first, also of one that was deleted. Raises `errors.NotFound`."""
        with self._turn() as base:
            return tracing.log(base, type, identity)

    def cited(self, cited: Citation) -> dict[str, Any]:
        """The record that a citation names, in a base that was opened at its commit; `_chunk` where it names one."""
        with self._turn() as base:
            return tracing.cited(base, cited)


def parse_citation(uri: str) -> Citation:
    """`duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ` as a value; raises `errors.UsageError`."""
    return citation.parse(uri)
