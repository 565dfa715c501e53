"""The SQL of a search: names are quoted, values are bound. Imported on demand, since it needs the driver."""

from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any, LiteralString

from psycopg import Cursor
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from duckkb.tables.asked import NeighbourSearch, SafeNames
from duckkb.tables.catalogue import FoundTable, PgVector, TableColumn
from duckkb.tables.filters import ColumnTest, is_number


class Statement:
    """The statements for one question. An inner one chooses rows, an outer one renders only these."""

    def __init__(self, table: FoundTable, extension: PgVector, checked: SafeNames, asked: NeighbourSearch) -> None:
        self.columns = checked.select or tuple(table.columns)
        self._table, self._text, self._asked, self._schema = table, checked.text, asked, extension.schema
        self._column = table.columns[checked.vector]
        read = dict.fromkeys([*self.columns, *table.key, checked.vector, *([checked.text] if checked.text else [])])
        self._places = {name: f"c{place}" for place, name in enumerate(read)}
        self._values: dict[str, Any] = {"limit": asked.top_k}
        self._conditions = _conditions(checked.tests, table.columns, self._values)

    def exact(self, vector: Sequence[float]) -> tuple[Composed, Mapping[str, Any]]:
        """Return the statement that compares all rows.

        Adding zero to the distance keeps PostgreSQL from using an index. Without a primary key, rows as near as
        the last row are read too, and the outer order chooses among them.
        """
        length = SQL("{}({})").format(quote_names(self._schema, "vector_dims"), self._vector)
        distance = self._build_distance(SQL("{}::{}").format(self._vector, self._type("vector")), self._question)
        more: list[Composable] = []
        if not self._column.dimension:
            # Comparing vectors of unequal length is an error, and PostgreSQL chooses the order of conditions.
            distance = SQL("CASE WHEN {} = %(dimension)s THEN {} END").format(length, distance)
            more.append(SQL("{} = %(dimension)s").format(length))
        keys = [SQL("t.{}").format(quote_names(name)) for name in self._table.key]
        end = SQL("ORDER BY {} LIMIT %(limit)s") if keys else SQL("ORDER BY {} FETCH FIRST %(limit)s ROWS WITH TIES")
        inner = self._inner(SQL("{} + 0").format(distance), more, end.format(SQL(", ").join([SQL("d"), *keys])))
        return self._build_outer(SQL("n.d"), inner), self._bind_values(vector)

    def order_by_index(self, vector: Sequence[float]) -> tuple[Composed, Mapping[str, Any]]:
        """Return the statement that reads rows in the order of the index.

        The index may hold numbers of less precision; the cosine is computed from the full ones.
        """
        question = SQL("{}::{}").format(self._question, self._type(self._column.base))
        inner = self._inner(self._build_distance(self._vector, question), [], SQL("ORDER BY d LIMIT %(limit)s"))
        full_vector = SQL("n.{}::{}").format(SQL(self._places[self._column.name]), self._type("vector"))
        return self._build_outer(self._build_distance(full_vector, self._question), inner), self._bind_values(vector)

    def _inner(self, distance: Composable, more: Sequence[Composable], end: Composable) -> Composed:
        read = [SQL("t.{} AS {}").format(quote_names(name), quote_names(place)) for name, place in self._places.items()]
        where = SQL(" AND ").join([SQL("{} IS NOT NULL").format(self._vector), *more, *self._conditions])
        table = quote_names(self._table.schema, self._table.name)
        return SQL("SELECT {}, {} AS d FROM {} t WHERE {} {}").format(SQL(", ").join(read), distance, table, where, end)

    def _build_outer(self, distance: Composable, inner: Composable) -> Composed:
        text = SQL("n.{}::pg_catalog.text").format(quote_names(self._places[self._text])) if self._text else SQL("NULL")
        column_values = [self._render_column(self._table.columns[name]) for name in self.columns]
        keys = [SQL("n.{}").format(quote_names(self._places[name])) for name in self._table.key]
        order: Sequence[Composable] = keys or [SQL(str(place)) for place in range(3, 3 + len(column_values))]
        return SQL("SELECT 1 - {d}, {}, {} FROM ({}) n WHERE {d} <> 'NaN' ORDER BY 1 DESC, {}").format(
            text, SQL(", ").join(column_values), inner, SQL(", ").join(order), d=distance
        )

    def _render_column(self, column: TableColumn) -> Composed:
        """Render a column as JSON: vectors as numbers, an enum as its label or as the server's text."""
        value = SQL("n.{}").format(quote_names(self._places[column.name]))
        if column.is_vector:
            value = SQL("{}::pg_catalog.float4[]").format(value)
        elif column.labels and not self._asked.parse_enum:
            value = SQL("{}::pg_catalog.text").format(value)
        return SQL("pg_catalog.to_json({})::pg_catalog.text").format(value)

    def _build_distance(self, vector: Composable, question: Composable) -> Composed:
        return SQL("({} OPERATOR({}.<=>) {})").format(vector, quote_names(self._schema), question)

    @property
    def _vector(self) -> Composed:
        return SQL("t.{}").format(quote_names(self._column.name))

    @property
    def _question(self) -> Composed:
        return SQL("%(vector)s::{}").format(self._type("vector"))

    def _type(self, name: str) -> SQL:
        return quote_names(self._schema, name)

    def _bind_values(self, vector: Sequence[float]) -> Mapping[str, Any]:
        literal = "[" + ",".join(map(repr, vector)) + "]"
        return {**self._values, "vector": literal, "dimension": len(vector)}


def other_dimension(
    cursor: Cursor[Any], table: FoundTable, column: TableColumn, extension: PgVector, wanted: int
) -> int:
    """Return the length of a column's vectors where none is as long as `wanted`, else 0.

    Queries the rows only where the column declares no dimension.
    """
    if column.dimension:
        return 0 if column.dimension == wanted else column.dimension
    name, dims = quote_names(column.name), quote_names(extension.schema, "vector_dims")
    which = SQL("SELECT {}({}) FROM {} WHERE {} IS NOT NULL").format(
        dims, name, quote_names(table.schema, table.name), name
    )
    first = cursor.execute(SQL("{} LIMIT 1").format(which)).fetchone()
    if first is None or first[0] == wanted:
        return 0
    same = cursor.execute(SQL("{} AND {}({}) = %s LIMIT 1").format(which, dims, name), (wanted,)).fetchone()
    return 0 if same else int(first[0])


def _conditions(
    tests: Sequence[ColumnTest], columns: Mapping[str, TableColumn], values: dict[str, Any]
) -> list[Composable]:
    """Return each comparison as SQL over the table `t`, and add its values to those bound by name."""
    conditions: list[Composable] = []
    for test in tests:
        column, placeholder = columns[test.column], f"v{len(values)}"
        parts = {
            "name": SQL("t.{}").format(quote_names(test.column)),
            "type": _type(column),
            "value": Placeholder(placeholder),
        }
        if test.sign == "is null":
            conditions.append(SQL("{name} IS NULL").format(**parts))
        elif test.sign == "in":
            values[placeholder] = [_text(value) for value in test.values]
            null = SQL(" OR {name} IS NULL" if test.or_null else "").format(**parts)
            conditions.append(
                SQL("({name} = ANY({value}::pg_catalog.text[]::{type}[]){null})").format(null=null, **parts)
            )
        else:
            values[placeholder] = _text(test.values[0])
            sign: LiteralString = test.sign
            conditions.append(SQL("{name} {sign} {value}::pg_catalog.text::{type}").format(sign=SQL(sign), **parts))
    return conditions


def _type(column: TableColumn) -> Composable:
    """Return the type by which a value is read: the column's without a length, which would cut it.

    Numbers are read with any size and fraction, except for float4, whose numbers have few digits.
    """
    if is_number(column) and column.base != "float4":
        return quote_names("pg_catalog", "numeric")
    return quote_names(column.schema, column.base)


def _text(value: Any) -> str:
    """Return a value as PostgreSQL reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def quote_names(*parts: str) -> SQL:
    """Quote a name for a statement with bound values; percent signs are doubled."""
    return SQL(Identifier(*parts).as_string(None).replace("%", "%%"))
