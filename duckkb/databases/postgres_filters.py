"""Translates filters to conditions of PostgreSQL: from the tree of the filter reader, only parts with exactly the
same result.

That tree says how values are compared (which casts fail softly, which paths lead into JSON), so this module
need not know the language. Texts are compared by their bytes, as DuckDB does. Parts without a certain
equivalent are left to DuckDB.

Filters that PostgreSQL answers.

Returns the fields of a record that filters can use in the database, as JSON."""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.sql import Composable

from duckkb.databases.published_rows import PublishedTables, columns_of, is_fact
from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.sql import row_table
from duckkb.sql.columns import EXACT, EXTRA, FROM_ID, INT64, TO_ID, Column, Columns, parse_date, parse_timestamp
from duckkb.sql.expressions import constant
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.statement_names import type_name
from duckkb.sql.statement_reader import reads_clock
from duckkb.sql.syntax import Node, arguments_of
from duckkb.types.records import ID, Record

if TYPE_CHECKING:
    from duckkb.databases.postgres_target import PostgresTarget

_OF_TESTS = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_OF_TREES = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CASTS: Mapping[str, str] = {
    "text": 'COLLATE "C"',
    "integer": "::numeric",
    "number": "::float8",
    "boolean": "::boolean",
    "date": 'COLLATE "C"',  # YYYY-MM-DD sorts as days do
}
"""How a JSON value, as text, is compared, by the kind of its column."""
_MOMENT = """(CASE WHEN {value} ~ '[+-](1[6-9]|2[0-3]):[0-5][0-9]$'
THEN (left({value}, -6) || 'Z')::timestamptz - right({value}, 6)::interval ELSE {value}::timestamptz END)"""
"""An RFC 3339 time: PostgreSQL reads no offset of sixteen hours or more. A connection's time zone is UTC."""
_NO_JSON = re.compile(r"(?!true$|false$|null$)[^-\d{\[\"\s]")
"""The beginning of a text that is not a JSON number, list, object or word, and so occurs only in texts."""
_INTEGER = re.compile(r"-?\d{1,18}")


class NoTranslation(Exception):
    """A part of a condition has no certain equivalent in PostgreSQL."""


def translate_tests(kind: RecordType, tests: "tuple[row_table.Test, ...]") -> sql.Composable | None:
    """Translate simple comparisons, all of which must hold; None if the facts do not answer them."""
    try:
        reading = Translation(kind, None)
        return sql.SQL(" AND ").join(map(reading.test, tests)) if tests else None
    except NoTranslation:
        return None


def translate_tree(kind: RecordType, columns: Columns, tree: Node) -> sql.Composable | None:
    """Translate the tree of a condition; None if some part of it has no translation."""
    try:
        return Translation(kind, columns).condition(tree)
    except NoTranslation:
        return None


class Translation:
    """A translation of conditions over the records of a type."""

    def __init__(self, kind: RecordType, columns: Columns | None) -> None:
        self._kind = kind
        self._by_name = {column.sql_name.casefold(): column for column in columns.all} if columns is not None else {}

    def test(self, test: row_table.Test) -> sql.Composable:
        value, kind = self._select_value(test.column), test.column.kind
        constants = [_build_literal(kind, test_constant) for test_constant in test.constants]
        if test.operator == "in":
            return sql.SQL("{} IN ({})").format(value, sql.SQL(", ").join(constants))
        return _build_comparison(value, _OF_TESTS[test.operator], constants[0])

    def condition(self, node: Node) -> sql.Composable:
        """Translate to a condition that is true, false or NULL exactly if DuckDB's is."""
        children = _list_children(node)
        match node["class"], node["type"]:
            case "CONJUNCTION", ("CONJUNCTION_AND" | "CONJUNCTION_OR") as which:
                joint = " AND " if which == "CONJUNCTION_AND" else " OR "
                return sql.SQL("({})").format(sql.SQL(joint).join(map(self.condition, children)))
            case "OPERATOR", "OPERATOR_NOT":
                return sql.SQL("(NOT {})").format(self.condition(children[0]))
            case "OPERATOR", ("OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL") as which:
                null_test = "IS NULL" if which == "OPERATOR_IS_NULL" else "IS NOT NULL"
                return sql.SQL(f"({{}} {null_test})").format(self._select_json(children[0]))
            case "OPERATOR", "COMPARE_IN":
                comparisons = sql.SQL(" OR ").join(
                    self._compare_with_constant(children[0], "=", candidate) for candidate in children[1:]
                )
                return sql.SQL("({})").format(comparisons)
            case "BETWEEN", "COMPARE_BETWEEN":
                lower = self._compare_with_constant(node["input"], ">=", node["lower"])
                return sql.SQL("({} AND {})").format(
                    lower, self._compare_with_constant(node["input"], "<=", node["upper"])
                )
            case "COMPARISON", which if which in _OF_TREES:
                return self._translate_comparison(node["left"], _OF_TREES[which], node["right"])
            case "FUNCTION", _:
                return self._translate_call(node["function_name"], children)
            case "COLUMN_REF", _:
                column = self._find_column(node)
                if column.kind == "boolean":
                    return self._select_value(column)
        raise NoTranslation

    def _translate_comparison(self, left: Node, operator: str, right: Node) -> sql.Composable:
        if left["class"] == "COLUMN_REF" or left["class"] == "FUNCTION":
            return self._compare_with_constant(left, operator, right)
        return self._compare_with_constant(right, _FLIPPED[operator], left)

    def _compare_with_constant(self, value: Node, operator: str, constant: Node) -> sql.Composable:
        """Compare a column, or the value at a path in it, with a constant."""
        if value["class"] == "FUNCTION":
            return self._compare_path(value, operator, constant)
        column = self._find_column(value)
        return _build_comparison(
            self._select_value(column), operator, _build_literal(column.kind, _read_constant(column.kind, constant))
        )

    def _compare_path(self, node: Node, operator: str, constant: Node) -> sql.Composable:
        """Compare a text inside of JSON with a text that no other JSON value looks like."""
        json_value, text = self._select_json(node), _read_constant("text", constant)
        if operator not in ("=", "<>") or not isinstance(text, str) or not _NO_JSON.match(text):
            raise NoTranslation
        as_text = sql.SQL("({} #>> '{{}}')").format(json_value)
        return sql.SQL(
            "(CASE WHEN {0} IS NULL THEN NULL"
            f" WHEN jsonb_typeof({{0}}) = 'string' THEN {{1}} ELSE {'FALSE' if operator == '=' else 'TRUE'} END)"
        ).format(json_value, _build_comparison(as_text, operator, sql.Literal(text)))

    def _translate_call(self, name: str, children: list[Node]) -> sql.Composable:
        """Translate LIKE with a constant pattern, and the membership of a text in a list."""
        if len(children) != 2 or children[0]["class"] != "COLUMN_REF":
            raise NoTranslation
        column, text = self._find_column(children[0]), _read_constant("text", children[1])
        if not isinstance(text, str):
            raise NoTranslation
        if name in ("~~", "!~~") and column.kind == "text":
            operator = "LIKE" if name == "~~" else "NOT LIKE"
            return sql.SQL(f"({{}} {operator} {{}} ESCAPE '')").format(self._select_value(column), sql.Literal(text))
        if name in ("list_contains", "array_contains", "list_has") and column.kind == "text[]":
            return sql.SQL("((facts -> {}) ? {})").format(sql.Literal(column.name), sql.Literal(text))
        raise NoTranslation

    def _select_json(self, node: Node) -> sql.Composable:
        """Select the value of a column, or at a path in it, as JSON; NULL if there is none."""
        if node["class"] == "COLUMN_REF":
            column = self._find_column(node)
            if column.name == EXTRA:
                raise NoTranslation
            self._refuse_unkept(column.name)
            return sql.SQL("(facts -> {})").format(sql.Literal(column.name))
        children = _list_children(node)
        if node.get("function_name") != "json_extract_string" or children[0]["class"] != "COLUMN_REF":
            raise NoTranslation
        path, column = _read_constant("text", children[1]), self._find_column(children[0])
        steps = path.split("/")[1:] if isinstance(path, str) and path.startswith("/") and "~" not in path else []
        if column.name != EXTRA:
            steps = [column.name, *steps]
        if len(steps) < 2 - (column.name == EXTRA) or any(not step or step.isdigit() or step == "-" for step in steps):
            raise NoTranslation
        self._refuse_unkept(steps[0])
        return sql.SQL("NULLIF(facts #> {}, 'null')").format(sql.Literal(steps))

    def _find_column(self, node: Node) -> Column:
        names = node.get("column_names") or []
        column = self._by_name.get(names[0].casefold()) if len(names) == 1 else None
        if column is None:
            raise NoTranslation
        self._refuse_end(column)
        return column

    def _select_value(self, column: Column) -> sql.Composable:
        if column.name == ID:
            return sql.SQL("id::numeric")
        self._refuse_end(column)
        if column.kind == "timestamp":
            self._refuse_unkept(column.name)
            return sql.SQL(_MOMENT).format(value=sql.SQL("(facts ->> {})").format(sql.Literal(column.name)))
        cast = _CASTS.get(column.kind)
        if cast is None:
            raise NoTranslation
        self._refuse_unkept(column.name)
        return sql.SQL(f"((facts ->> {{}}) {cast})").format(sql.Literal(column.name))

    def _refuse_unkept(self, name: str) -> None:
        if name.startswith("__") or not is_fact(self._kind, name):
            raise NoTranslation

    def _refuse_end(self, column: Column) -> None:
        """Raise for the record ids of an edge's ends, which are not facts of the edge."""
        if self._kind.kind == "edge" and column.sql_name in (FROM_ID, TO_ID):
            raise NoTranslation


def _list_children(node: Node) -> list[Node]:
    return arguments_of(node) if "arguments" in node else node.get("children") or []


def _build_comparison(value: sql.Composable, operator: str, constant: sql.Composable) -> sql.Composable:
    return sql.SQL(f"({{}} {operator} {{}})").format(value, constant)


def _read_constant(kind: str, node: Node) -> Any:
    """Return the value of a constant that is compared with a column unchanged, or through a cast with a known
    result.
    """
    if node["class"] == "CAST" and node.get("try_cast") and node["child"]["class"] == "CONSTANT":
        text, read = constant(node["child"]).value, _CAST_TEXTS.get((kind, type_name(node["type_expr"])))
        parsed_value = read(text) if read is not None and isinstance(text, str) else None
        if parsed_value is None:
            raise NoTranslation
        return parsed_value
    if node["class"] != "CONSTANT":
        raise NoTranslation
    value = constant(node).value
    if kind not in _SUITS or not _SUITS[kind](value):
        raise NoTranslation
    return value


def _build_literal(kind: str, value: Any) -> sql.Composable:
    if kind == "number":
        return sql.SQL("{}::float8").format(sql.Literal(repr(float(value))))
    if kind == "timestamp":
        return sql.SQL("{}::timestamptz").format(sql.Literal(value))
    return sql.Literal(value)


def _is_plain_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


_SUITS: Mapping[str, Callable[[Any], bool]] = {
    "text": _is_plain_text,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int and -INT64 < value < INT64,
    "number": lambda value: type(value) in (int, float) and abs(value) < EXACT,
}


def _format_day(text: str) -> str | None:
    day = parse_date(text)
    return day.isoformat() if day else None


def _format_moment(text: str) -> str | None:
    moment = parse_timestamp(text)
    return f"{moment.isoformat()}+00:00" if moment else None


_CAST_TEXTS: Mapping[tuple[str, str], Callable[[str], Any]] = {
    ("date", "DATE"): _format_day,
    ("timestamp", "TIMESTAMP"): _format_moment,
    ("integer", "BIGINT"): lambda text: int(text) if _INTEGER.fullmatch(text) else None,
}
"""By the kind of a column and the type to which a text is cast for it, a parser of the texts with a known result."""


class PostgresTables(PublishedTables):
    """Implements `ports.Sql`."""

    def __init__(self, inner: Tables, target: "PostgresTarget") -> None:
        super().__init__(inner)
        self._target = target

    def _query_target(self, kind: RecordType, condition: str) -> IdSet | None:
        now = self._target.now
        kind_row = now.kind(kind)
        if kind_row is None:
            return None
        predicate = self._translate_condition(kind, columns_of(kind, json.loads(kind_row.said)), condition)
        if predicate is None or now.query(kind, "SELECT 1 FROM {record} WHERE kind = {kind} AND facts IS NULL LIMIT 1"):
            return None
        statement = "SELECT id FROM {record} WHERE kind = {kind} AND ({asked})"
        rows = now.query(kind, statement, asked=predicate)
        return IdSet.from_ids(record_id for (record_id,) in rows)

    def _translate_condition(self, kind: RecordType, columns: Columns, condition: str) -> Composable | None:
        if reads_clock(condition):
            return None
        if tests := row_table.simple_tests(condition, columns):
            return translate_tests(kind, tests)
        return translate_tree(kind, columns, self._inner.tree(kind, columns, condition))


def facts_of(kind: RecordType, record: Record) -> Mapping[str, Any] | None:
    """Return the facts of a record; None if any holds a NUL, which PostgreSQL's text forbids: DuckDB then filters
    the type.
    """
    facts = {name: value for name, value in record.fields.items() if is_fact(kind, name)}
    return None if _has_nul(facts) else facts


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case Mapping():
            return any(_has_nul(key) or _has_nul(inner) for key, inner in value.items())
        case list() | tuple():
            return any(map(_has_nul, value))
    return False
