"""The database's catalogue of a table: columns with their types, the key, and the vector indexes.

Names of tables and columns as a caller writes them: validation, and the findings about invalid names.

A name is taken literally, capitals and reserved words too: it is looked up in the catalogue and quoted by the driver."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.ontology.names import nearest
from duckkb.types.errors import FilterError, Finding, StateError, UsageError

if TYPE_CHECKING:
    from psycopg import Cursor

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


VECTORS = ("vector", "halfvec")
"""The types of pgvector that have a cosine and 16 or 32 bits per number."""
_KINDS = {"r": "table", "v": "view", "m": "materialized view", "p": "partitioned table", "f": "foreign table"}
_MOST_LISTED = 1_000


class PgVector(Struct, frozen=True):
    """The extension pgvector: its schema and its version."""

    schema: str
    version: tuple[int, ...]


class TableColumn(Struct, frozen=True):
    """A column of a table.

    `type` is as people write it. `schema` and `base` name the type behind a domain, and `category` is
    PostgreSQL's letter of that (N numbers, S texts, B booleans, E enums, A arrays). `labels` are those of an
    enum, or of an array's elements. `dimension` is a vector's, 0 where the column declares none.
    """

    name: str
    type: str
    schema: str
    base: str
    category: str
    labels: tuple[str, ...] = ()
    dimension: int = 0
    nullable: bool = True

    @property
    def is_vector(self) -> bool:
        return self.base in VECTORS


class FoundTable(Struct, frozen=True):
    """A table with its columns and primary key (`key`).

    `indexes` has by column the methods (hnsw, ivfflat) of cosine indexes.
    """

    schema: str
    name: str
    kind: str
    columns: Mapping[str, TableColumn]
    key: tuple[str, ...]
    indexes: Mapping[str, tuple[str, ...]]


def pgvector(cursor: "Cursor[Any]") -> PgVector:
    """Return the database's pgvector; raises `errors.StateError` (E_DATABASE) without one."""
    row = cursor.execute(
        "SELECT n.nspname::text, e.extversion FROM pg_catalog.pg_extension e"
        " JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None:
        message = "[database] this database has no pgvector"
        raise StateError(message, "E_DATABASE", "name another database, or `CREATE EXTENSION vector` there")
    return PgVector(row[0], tuple(int(part) for part in row[1].split(".") if part.isdigit()))


def list_tables(cursor: "Cursor[Any]") -> list[dict[str, Any]]:
    """List the readable tables and views with a vector column, by name, at most 1,000.

    Each has `table` as it is to be written, its `kind`, `rows` as the server estimates them (null without an
    estimate), and its `vectors` with their types.
    """
    rows = cursor.execute(
        """
        SELECT n.nspname::text, c.relname::text, CASE WHEN c.relispartition THEN 'partition' ELSE c.relkind::text END,
               pg_catalog.pg_table_is_visible(c.oid), c.reltuples::bigint,
               pg_catalog.json_object_agg(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)::text
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        JOIN pg_catalog.pg_depend d ON d.objid = t.oid AND d.classid = 'pg_catalog.pg_type'::regclass AND d.deptype = 'e'
        JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'vector'
        WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND t.typname = ANY(%s)
          AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
        GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2 LIMIT %s
        """,
        (list(VECTORS), _MOST_LISTED),
    ).fetchall()
    import json

    return [
        {
            "table": _quote_name(name) if visible else f"{_quote_name(schema)}.{_quote_name(name)}",
            "kind": _KINDS.get(kind, kind),
            "rows": rows if rows >= 0 and kind != "v" else None,
            "vectors": json.loads(vectors),
        }
        for schema, name, kind, visible, rows, vectors in rows
    ]


def _quote_name(name: str) -> str:
    return name if table_name(name) == ("", name) else f'"{name}"'


def find_table(cursor: "Cursor[Any]", schema: str, name: str, given: str) -> FoundTable:
    """Return the table of this name; raises `errors.UsageError` (E_TABLE).

    Without a schema it is looked for in the search path.
    """
    table_row = cursor.execute(
        """
        SELECT c.oid, n.nspname::text, c.relname::text, CASE WHEN c.relispartition THEN 'partition' ELSE c.relkind::text END
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = %(name)s::text AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
          AND (n.nspname = %(schema)s::text OR %(schema)s::text = '' AND pg_catalog.pg_table_is_visible(c.oid))
        """,
        {"schema": schema, "name": name},
    ).fetchone()
    if table_row is None:
        names = [row["table"] for row in list_tables(cursor)]
        near = nearest(given, names) or next((candidate for candidate in names if candidate.endswith(f".{name}")), None)
        remedy = f"did you mean `{near}`?" if near else "`duckkb table show --url URL` lists the tables with vectors"
        refuse([invalid("table", given, remedy)])
        raise AssertionError
    oid, schema, name, kind = table_row
    columns, key = _read_columns(cursor, oid), _read_key(cursor, oid)
    return FoundTable(schema, name, _KINDS.get(kind, kind), columns, key, _read_indexes(cursor, oid))


def _read_columns(cursor: "Cursor[Any]", oid: int) -> dict[str, TableColumn]:
    rows = cursor.execute(
        """
        SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), n.nspname::text, b.typname::text,
               b.typcategory::text, l.labels, base.typmod, NOT a.attnotnull
        FROM pg_catalog.pg_attribute a
        CROSS JOIN LATERAL (
          WITH RECURSIVE meant(oid, typmod) AS (
            SELECT a.atttypid, a.atttypmod
            UNION ALL
            SELECT t.typbasetype, t.typtypmod FROM meant m JOIN pg_catalog.pg_type t ON t.oid = m.oid WHERE t.typtype = 'd')
          SELECT m.oid, m.typmod FROM meant m JOIN pg_catalog.pg_type t ON t.oid = m.oid WHERE t.typtype <> 'd') base
        JOIN pg_catalog.pg_type b ON b.oid = base.oid
        JOIN pg_catalog.pg_namespace n ON n.oid = b.typnamespace
        CROSS JOIN LATERAL (
          SELECT pg_catalog.array_agg(e.enumlabel::text ORDER BY e.enumsortorder) AS labels FROM pg_catalog.pg_enum e
          WHERE e.enumtypid = CASE WHEN b.typcategory = 'A' THEN b.typelem ELSE b.oid END) l
        WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
        """,
        (oid,),
    ).fetchall()
    return {
        name: TableColumn(name, type_name, schema, base, category, tuple(labels or ()), max(typmod, 0) if base in VECTORS else 0, nullable)
        for name, type_name, schema, base, category, labels, typmod, nullable in rows
    }  # fmt: skip


def _read_key(cursor: "Cursor[Any]", oid: int) -> tuple[str, ...]:
    rows = cursor.execute(
        """
        SELECT a.attname::text FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
        WHERE i.indrelid = %s AND i.indisprimary ORDER BY pg_catalog.array_position(i.indkey::int2[], a.attnum)
        """,
        (oid,),
    ).fetchall()
    return tuple(name for (name,) in rows)


def _read_indexes(cursor: "Cursor[Any]", oid: int) -> dict[str, tuple[str, ...]]:
    """Return the methods of complete, valid cosine indexes by column."""
    rows: Sequence[tuple[str, str]] = cursor.execute(
        """
        SELECT a.attname::text, m.amname::text FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname IN ('hnsw', 'ivfflat')
        JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0] AND o.opcname LIKE '%%cosine_ops'
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = %s AND i.indisvalid AND i.indisready AND i.indpred IS NULL ORDER BY 1, 2
        """,
        (oid,),
    ).fetchall()
    methods: dict[str, tuple[str, ...]] = {}
    for column, method in rows:
        methods[column] = (*methods.get(column, ()), method)
    return methods
