"""Filters that LanceDB answers: comparisons of fields with constants, all of which must hold."""

from typing import TYPE_CHECKING

from duckkb.id_set import IdSet
from duckkb.lanes.sql import simple
from duckkb.lanes.sql.tables import Tables
from duckkb.lanes.targets.lance.schema import facts, literal
from duckkb.lanes.targets.tables import PublishedTables, columns_of
from duckkb.ontology.model import RecordType
from duckkb.records import ID

if TYPE_CHECKING:
    from duckkb.lanes.targets.lance.target import LanceTarget

_OPERATORS = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


class LanceTables(PublishedTables):
    """Implements `ports.Sql`."""

    def __init__(self, inner: Tables, target: "LanceTarget") -> None:
        super().__init__(inner)
        self._target = target

    def _asked(self, kind: RecordType, condition: str) -> IdSet | None:
        now = self._target.now
        known = now.kind(kind)
        tests = simple.tests(condition, columns_of(kind, known.said)) if known else ()
        kept = facts(kind)
        written = [_written(test, kept) for test in tests]
        if not written or None in written:
            return None
        rows = now.rows(kind, "record", " AND ".join(map(str, written)), ["id"])
        return IdSet.of(rows["id"].to_pylist())


def _written(test: simple.Test, kept: dict[str, tuple[str, str]]) -> str | None:
    """A comparison as LanceDB has it; None where the field is no column there, or one of another kind."""
    column, values = ("id", "integer") if test.column.name == ID else kept.get(test.column.name, ("", ""))
    if values != test.column.kind:
        return None
    constants = [float(one) if values == "number" else one for one in test.constants]
    if test.operator == "in":
        return f"{column} IN ({', '.join(map(literal, constants))})"
    return f"{column} {_OPERATORS[test.operator]} {literal(constants[0])}"
