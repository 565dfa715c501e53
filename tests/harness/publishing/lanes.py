"""The lanes of `tests.conformance.lane_suite` over a target: every change of the rows is published to it as a delta."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from duckkb.app.retrievers import MemoryRows
from duckkb.id_set import IdSet
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Delta, PublishedRow, Row, SqlLimits, Target, TypeDelta, Watermark
from duckkb.sql.runtime_tables import Tables
from duckkb.storage.line import LineShape, record_line
from duckkb.types.queries import SqlResult
from duckkb.types.settings import Settings
from tests.conformance.lane_suite import ONTOLOGY, TOKENIZER, Held, with_vectors

Connect = Callable[[], Target]


class PublishedHeld(Held):
    """Records of several types in a target. Each question is a reading of its own."""

    def __init__(self, connect: Connect, ontology: Ontology = ONTOLOGY) -> None:
        self._target = connect()
        weakref.finalize(self, self._target.close)
        self._ontology = ontology
        self._rows = {kind.name: MemoryRows() for kind in ontology}
        self._commits = count(1)
        self._mark: Watermark | None = self._target.watermark()
        self._lanes: dict[str, Any] = {}
        self._sql = self._target.sql(Tables(ontology, self.rows))
        self._publish([TypeDelta(kind, []) for kind in ontology], is_whole=True)

    def rows(self, kind: RecordType) -> MemoryRows:
        return self._rows[kind.name]

    def load(self, kind: RecordType, rows: "Iterable[Row] | MemoryRows") -> None:
        self._rows[kind.name] = rows if isinstance(rows, MemoryRows) else MemoryRows(rows)
        held = [TypeDelta(one, [_lined(one, (self.rows(one)[at] for at in self.rows(one)))]) for one in self._ontology]
        self._publish(held, is_whole=True)

    def apply(self, kind: RecordType, upserts: Iterable[Row], gone: Iterable[int]) -> None:
        new, lost = list(upserts), set(gone)
        # what is dropped is dropped first: what is put comes behind it, as the rows have it
        self.rows(kind).change({row.record.id: row for row in new}, lost)
        self._publish([TypeDelta(kind, [_lined(kind, new)], {*lost, *(row.record.id for row in new)})])

    def words(self, kind: RecordType) -> Any:
        return _Asked(self._target, self._lane(kind).words)

    def vectors(self, kind: RecordType) -> Any:
        return _Asked(self._target, self._lane(kind).vectors)

    def where(self, kind: RecordType, condition: str) -> IdSet:
        with self._target.open_publication():
            return self._sql.where(kind, condition)

    def sql(self, statement: str, limits: SqlLimits) -> SqlResult:
        with self._target.open_publication():
            return self._sql.sql(statement, limits)

    def fill(self, kind: RecordType, made: Mapping[bytes, np.ndarray]) -> None:
        rows = self.rows(kind)
        self.apply(kind, [with_vectors(rows[one], made) for one in rows], ())

    def close(self) -> None:
        self._sql.close()
        self._target.close()

    def _lane(self, kind: RecordType) -> Any:
        with self._target.open_publication():
            return self._target.lanes(kind, self.rows(kind), TOKENIZER, Settings())

    def _publish(self, types: Sequence[TypeDelta], *, is_whole: bool = False) -> None:
        mark = Watermark(f"{next(self._commits):040x}", "f")
        delta = Delta(self._mark, mark, self._ontology, Settings(), {}, types, is_whole)
        self._target.publish(delta)
        self._mark = mark
        self._sql = self._target.sql(Tables(self._ontology, self.rows))


class _Asked:
    """A lane whose every question is asked of what is published then."""

    def __init__(self, target: Target, lane: Any) -> None:
        self._target, self._asked = target, lane

    def __getattr__(self, name: str) -> Any:
        def ask(*given: Any) -> Any:
            with self._target.open_publication():
                return getattr(self._asked, name)(*given)

        return ask


def _lined(kind: RecordType, rows: Iterable[Row]) -> list[PublishedRow]:
    shape = LineShape(kind.identity_fields)
    return [PublishedRow(row, record_line(row.record, shape, 64)) for row in rows]


def postgres() -> PublishedHeld:
    """Under a name of its own in one database."""
    from duckkb.databases.postgres_target import PostgresTarget

    return PublishedHeld(lambda: PostgresTarget(f"{_database()}#s{next(_names)}"))


def lance() -> PublishedHeld:
    """In a folder of its own."""
    pytest.importorskip("lancedb", reason="LanceDB is not installed: `make test-lance`")
    from duckkb.databases.lance_target import LanceTarget

    folder = TemporaryDirectory(prefix="duckkb-lance-")
    target = LanceTarget(f"lance:{folder.name}")
    weakref.finalize(target, folder.cleanup)  # a lane may be asked when nobody has its rows any more
    return PublishedHeld(lambda: target)


_names = count(1)


@cache
def _database() -> str:
    from tests.harness.postgres import shared

    return shared().database()
