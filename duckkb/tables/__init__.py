"""Search over tables of a PostgreSQL with pgvector, of any schema, without a knowledge base.

    from duckkb import tables
    with tables.connect("postgresql://reader@127.0.0.1/shop") as db:
        for row in db.query("waterproof boots", "products", text_column="title", filter={"price": {"$lt": 100}}):
            print(row["title"], row["embedding_score"])

Nothing is ever written there. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.app.vector_tables import VectorTables, connect, embed

_HOMES = {"VectorTables": "app.vector_tables", "connect": "app.vector_tables", "embed": "app.vector_tables"}
__all__ = ["VectorTables", "connect", "embed"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'duckkb.tables' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"duckkb.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
