"""Everything that is published of a base, as plain values that do not depend on how it got there."""

import json
from typing import Any

import psycopg

from duckkb.databases.postgres_connection import Address

_TABLES = {
    "kind": "SELECT name, count, lengths, vectors, said, notes FROM {s}.kind",
    "configuration": "SELECT path, data FROM {s}.configuration",
    "record": """
        SELECT k.name, r.id, r.place, r.etag, r.line, r.source, r.target, r.pending, r.lengths, r.facts::text
        FROM {s}.record r JOIN {s}.kind k ON k.number = r.kind
    """,
    "term": "SELECT k.name, t.field, t.token, t.records FROM {s}.term t JOIN {s}.kind k ON k.number = t.kind",
    "posting": """
        SELECT k.name, t.field, t.token, p.id, p.times, p.length, p.positions
        FROM {s}.posting p JOIN {s}.kind k ON k.number = p.kind JOIN {s}.term t ON t.kind = p.kind AND t.id = p.term
    """,
    "vector": """
        SELECT k.name, v.id, v.field, v.seq, v.at, v.vector::text FROM {s}.vector v JOIN {s}.kind k ON k.number = v.kind
    """,
}


def contents(url: str) -> dict[str, Any]:
    """Rows by table, in one order; what is published (commit, fingerprint) under `target`."""
    return _lance_contents(url) if url.startswith("lance") else _postgres_contents(url)


def _lance_contents(url: str) -> dict[str, Any]:
    from duckkb.databases.lance_tables import Store
    from duckkb.types.database_urls import LanceAddress

    store = Store(LanceAddress.parse(url))
    head = store.head()
    assert head is not None, "something is published"
    found: dict[str, Any] = {"target": (head.watermark.commit, head.watermark.fingerprint), "record": []}
    found["configuration"] = dict(head.configuration)
    for name, state in sorted(head.kinds.items()):
        found[f"kind {name}"] = (state.count, state.lengths, state.vectors, state.said, state.notes)
        for table, (held, version, _) in state.tables.items():
            rows = [sorted(row.items()) for row in store.open_version(held, version).search().to_arrow().to_pylist()]
            if rows:  # a table that lost all of its rows is as one that never was
                found.setdefault(table, []).extend(sorted(((name, row) for row in rows), key=repr))
    return found


def _postgres_contents(url: str) -> dict[str, Any]:
    address = Address.parse(url)
    with psycopg.connect(address.database.url) as connection:
        statement = "SELECT commit, fingerprint, build FROM duckkb.target WHERE source = %s"
        row = connection.execute(statement, [address.source]).fetchone()
        assert row is not None, "something is published"
        found: dict[str, Any] = {"target": row[:2]}
        for name, text in _TABLES.items():
            rows = connection.execute(text.format(s=row[2])).fetchall()
            found[name] = sorted((_plain(row) for row in rows), key=repr)
        return found


def builds(url: str) -> list[str]:
    """The schemas that lie there."""
    with psycopg.connect(Address.parse(url).database.url) as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'duckkb\\_%' ORDER BY 1"
        ).fetchall()
        return [name for (name,) in rows]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(json.loads(value) if isinstance(value, str) and value[:1] == "{" else value for value in row)
