"""Turns a filter or a statement into the SQL that runs: parses and reads it, lets the engine write the accepted
tree, and checks the result again before it runs.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from msgspec import Struct

from duckkb.errors import FilterError, Unavailable
from duckkb.lanes.sql.columns import Columns, quote_identifier
from duckkb.lanes.sql.process.engine import Engine, Rejected
from duckkb.lanes.sql.reader.forms import check_forms
from duckkb.lanes.sql.reader.names import Scope
from duckkb.lanes.sql.reader.reading import Tables, TreeReader
from duckkb.lanes.sql.reader.syntax import (
    MAX_FILTER,
    Node,
    Source,
    is_reserved,
    parse_condition,
    parse_statement,
    too_deep,
)
from duckkb.records import ID

_MOST_IN_FILTER, _MOST_IN_STATEMENT = 20_000, 400_000  # expressions, once all is written out


class SqlQuery(Struct, frozen=True):
    """SQL that may run, and the runtime tables that it reads, in lower case."""

    sql: str
    tables: frozenset[str]


def read_condition(
    engine: Engine, table: str, columns: Columns, text: str, now: datetime, run: Callable[[SqlQuery], object]
) -> SqlQuery:
    """Return the query for the ids of the records that satisfy a filter; raises FilterError (`E_FILTER`) for
    anything that is not allowed or does not fit. `now` is the value of now() and current_date. `run` gets only
    possible corrections, never the text itself: only corrections that have run are suggested.
    """

    def question(filter_text: str) -> SqlQuery:
        source = Source(filter_text, is_filter=True)
        tree, condition = parse_condition(engine, source)
        check_forms(source, tree)
        scope = Scope()
        scope.add("", columns)
        query = tree["statements"][0]["node"]
        query["where_clause"] = TreeReader(source, {}, now=now).condition(condition, scope).node
        query["select_list"] = [{"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [ID]}]
        query["from_table"] |= {"table_name": table, "qualified_name": {"path": [table]}}
        return _build_query(engine, source, tree, (table.casefold(),))

    with _add_advice(
        engine, Source(text, is_filter=True), lambda suggested_text: run(question(suggested_text)), lambda: columns
    ):
        return question(text)


def read_tree(engine: Engine, columns: Columns, text: str, now: datetime) -> Node:
    """Return the tree of a filter that would run; raises as `read_condition`, without suggestions."""
    source = Source(text, is_filter=True)
    scope = Scope()
    scope.add("", columns)
    try:
        tree, condition = parse_condition(engine, source)
        check_forms(source, tree)
        return TreeReader(source, {}, now=now).condition(condition, scope).node
    except RecursionError:
        raise too_deep(source) from None


def read_statement(
    engine: Engine, tables: Tables, text: str, now: datetime, run: Callable[[SqlQuery], object]
) -> SqlQuery | None:
    """Return the query of a SELECT over runtime tables, None for SHOW TABLES; raises FilterError (`E_SQL`) if it
    is refused. `run` gets possible corrections.
    """

    def question(statement: str) -> SqlQuery | None:
        source = Source(statement)
        tree = parse_statement(engine, source)
        check_forms(source, tree)
        query = tree["statements"][0]["node"]
        match query.get("from_table"):
            case {"type": "SHOW_REF", "show_type": "SHOW_SPECIAL", "table_name": '"tables"'}:
                return None
            case {"type": "SHOW_REF", "show_type": "SHOW", "schema_name": "", "table_name": name}:
                return question(f"DESCRIBE {quote_identifier(name)}")
        try:
            TreeReader(source, tables, lambda node: _print_node(engine, node), now).query(query)
        except RecursionError:
            raise too_deep(source) from None
        except Rejected as error:
            raise _build_write_error(source, error) from error
        return _build_query(engine, source, tree, tables)

    def columns() -> Columns | None:
        """Return the columns of the first table that the text names."""
        table_names = (name for name in re.findall(r"\w+", text.casefold()) if name in tables)
        return next((table_columns for name in table_names if (table_columns := tables[name]()) is not None), None)

    def ask(suggested_text: str) -> None:
        if (suggested_query := question(suggested_text)) is not None:
            run(suggested_query)

    with _add_advice(engine, Source(text), ask, columns):
        return question(text)


def _build_query(engine: Engine, source: Source, tree: Any, tables: Iterable[str]) -> SqlQuery:
    """Let the engine write an accepted tree; verify that the written text is allowed as well."""
    again_source = Source(source.text)
    again = TreeReader(again_source, dict.fromkeys(tables, lambda: None), again=True)
    try:
        if _count_expressions(tree, {}) > (_MOST_IN_FILTER if source.is_filter else _MOST_IN_STATEMENT):
            raise source.build_refusal("so many repeated parts", "Make the condition simpler.")
        sql = engine.unparse(tree)
        written_tree = engine.parse(sql)
        check_forms(again_source, written_tree)
        again.query(written_tree["statements"][0]["node"])
    except RecursionError:
        raise too_deep(source) from None
    except Rejected as error:
        raise _build_write_error(source, error) from error
    return SqlQuery(sql, frozenset(again.tables))


def _build_write_error(source: Source, error: Rejected) -> FilterError:
    """Return the error for a tree that the engine does not write as a statement."""
    if error.reason == "deep":
        return too_deep(source)
    return source.build_refusal("a construct that cannot be written back", "write it in another way")


def _print_node(engine: Engine, node: Node) -> str:
    """Return an expression as the engine names its column."""
    tree = engine.parse("SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [node]
    return engine.unparse(tree).removeprefix("SELECT ")


def _count_expressions(value: Any, counts: dict[int, int]) -> int:
    """Count the expressions, each as often as it would be written."""
    if id(value) not in counts:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        counts[id(value)] = (isinstance(value, dict) and "class" in value) + sum(
            _count_expressions(member, counts) for member in inner
        )
    return counts[id(value)]


@contextmanager
def _add_advice(
    engine: Engine, source: Source, ask: Callable[[str], object], columns: Callable[[], Columns | None]
) -> Iterator[None]:
    """Add a working suggestion to a refusal, if there is any."""
    try:
        yield
    except FilterError as error:
        table_columns = columns() if len(source.text) <= MAX_FILTER else None
        if table_columns is not None:
            from duckkb.lanes.sql.reader.advice import Slip, advise

            def list_reserved_words(text: str) -> list[str]:
                """Return the field names in a text that are reserved words, such as `order` or `from`."""
                names = {name.casefold() for name in table_columns.names}
                words = dict.fromkeys(re.findall(r'(?<!["\w.])[^\W\d]\w*', text[:MAX_FILTER]))
                return [word for word in words if word.casefold() in names and is_reserved(engine, word)]

            with suppress(Unavailable):  # a correction that takes too long to try is not suggested; the refusal stands
                command = advise(Slip(source, table_columns, ask, list_reserved_words), error)
                if (
                    not command
                    and error.details.get("construct") == "syntax"
                    and (words := list_reserved_words(source.text))
                ):
                    names = ", ".join(map(quote_identifier, words[:5]))
                    command = f"put field names that are words of SQL in double quotes: {names}"
                error.suggestion = command or error.suggestion
        raise
