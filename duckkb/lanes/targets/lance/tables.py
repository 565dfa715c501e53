"""Filters that LanceDB answers: comparisons of fields with constants, joined by AND."""

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

    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        now = self._target.now
        state = now.kind(kind)
        tests = simple.tests(condition, columns_of(kind, state.said)) if state else ()
        fact_columns = facts(kind)
        comparisons = [_format_comparison(test, fact_columns) for test in tests]
        if not comparisons or None in comparisons:
            return None
        rows = now.rows(kind, "record", " AND ".join(map(str, comparisons)), ["id"])
        return IdSet.from_ids(rows["id"].to_pylist())


def _format_comparison(test: simple.Test, fact_columns: dict[str, tuple[str, str]]) -> str | None:
    """Format a comparison for LanceDB; None if the field is not a column there, or has another kind."""
    column, values = ("id", "integer") if test.column.name == ID else fact_columns.get(test.column.name, ("", ""))
    if values != test.column.kind:
        return None
    constants = [float(constant) if values == "number" else constant for constant in test.constants]
    if test.operator == "in":
        return f"{column} IN ({', '.join(map(literal, constants))})"
    return f"{column} {_OPERATORS[test.operator]} {literal(constants[0])}"
