"""Tables with vectors in a real PostgreSQL, and what must be found in them by numpy and plain Python."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg

from duckkb.tables import VectorTables, connect
from tests.fakes import HashEmbedder

DIMENSION = 8
MOODS = ("sad", "ok", "happy")
ROWS = 240
COLUMNS = """id int PRIMARY KEY, title text, kind varchar(8), code char(4), small smallint, big bigint, price numeric(12, 3),
  ratio real, share double precision, live boolean, mood shop.mood, moods shop.mood[], day date, at timestamptz, key uuid, raw bytea,
  meta jsonb, "order" int, "Mixed Case" text, embedding vector(8), half halfvec(8)"""


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    """Rows with nulls, negative and large numbers, quotes and vectors that repeat."""
    rng = np.random.default_rng(20261125)
    made = []
    for number in range(count):
        vector = rng.standard_normal(DIMENSION).round(3)
        if number % 40 == 7:
            vector = np.ones(DIMENSION)
        gone = number % 11 == 3
        made.append(
            {
                "id": number,
                "title": None if gone else f'row {number} it\'s "{number % 7}" 防水 %s',
                "kind": ["boot", "shoe", "O'Neil", "a%b", ""][number % 5],
                "code": ["ab", "abcd", "x"][number % 3],
                "small": None if gone else number % 13 - 6,
                "big": number * 10**15 - 10**17,
                "price": None if number % 9 == 2 else f"{number * 1.125:.3f}",
                "ratio": float(np.float32(number / 7)),
                "share": float("nan") if number == 100 else number / 3,
                "live": None if number % 4 == 1 else number % 4 == 0,
                "mood": None if number % 10 == 9 else MOODS[number % 3],
                "moods": [MOODS[number % 3], "happy"],
                "day": f"20{number % 30:02}-0{number % 9 + 1}-11",
                "at": f"2026-01-0{number % 9 + 1}T12:00:00+02:00",
                "key": f"00000000-0000-4000-8000-{number:012}",
                "raw": bytes([number % 256, 255]),
                "meta": json.dumps({"a": {"b": number}}),
                "order": number % 5,
                "Mixed Case": f"M{number % 3}",
                "embedding": None if number % 50 == 49 else np.zeros(DIMENSION) if number % 50 == 48 else vector,
                "half": vector,
            }
        )
    return made


def make_shop(url: str, given: Sequence[Mapping[str, Any]]) -> None:
    """The table shop.items, and what else can be asked: views, a partitioned table, names that are reserved or hostile."""
    names = ", ".join(f'"{name}"' for name in given[0])
    with psycopg.connect(url, autocommit=True) as one:
        one.execute("CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('sad', 'ok', 'happy')")
        one.execute(f"CREATE TABLE shop.items ({COLUMNS})")
        places = ", ".join(["%s"] * len(given[0]))
        with one.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO shop.items ({names}) VALUES ({places})",
                [[_sent(value) for value in row.values()] for row in reversed(given)],
            )
        one.execute(
            """
            CREATE VIEW shop.live_items AS SELECT * FROM shop.items WHERE live;
            CREATE MATERIALIZED VIEW shop.kept AS SELECT id, title, embedding FROM shop.items;
            CREATE TABLE shop.parts (id int, at int, embedding vector(8)) PARTITION BY RANGE (at);
            CREATE TABLE shop.parts_1 PARTITION OF shop.parts FOR VALUES FROM (0) TO (120);
            CREATE TABLE shop.parts_2 PARTITION OF shop.parts FOR VALUES FROM (120) TO (10000);
            INSERT INTO shop.parts SELECT id, id, embedding FROM shop.items;
            CREATE TABLE "select" AS SELECT id AS "from", embedding AS "order" FROM shop.items;
            CREATE TABLE "My Items" ("50%s; --" int, "a""b" text, "x'); DROP TABLE shop.items; --" text, embedding vector(8));
            INSERT INTO "My Items" VALUES (1, 'one', 'two', '[1,1,1,1,1,1,1,1]');
            CREATE TABLE plain (id int, title text);
            CREATE TABLE loose (id int PRIMARY KEY, embedding vector);
            INSERT INTO loose VALUES (1, '[1,0,0]'), (2, '[1,0]'), (3, '[0,1]'), (4, NULL);
            """
        )


def _sent(value: Any) -> Any:
    return str(value.tolist()) if isinstance(value, np.ndarray) else value


@contextmanager
def opened(url: str, **given: Any) -> Iterator[VectorTables]:
    """With a model that has the dimension of the table, and no reranker."""
    given.setdefault("embedder", HashEmbedder(DIMENSION))
    with connect(url, **given) as tables:
        yield tables


def ranked(
    given: Sequence[Mapping[str, Any]], vector: Any, column: str = "embedding", narrow: type = np.float32
) -> list[tuple[int, float]]:
    """Ids and cosines in float64 of the numbers as they are stored, the nearest first and equal ones by id."""
    question = np.asarray(vector, np.float64) / np.linalg.norm(np.asarray(vector, np.float64))
    found = []
    for row in given:
        stored = None if row[column] is None else np.asarray(row[column], narrow).astype(np.float64)
        if stored is not None and np.linalg.norm(stored):
            found.append((row["id"], float(question @ stored / np.linalg.norm(stored))))
    return sorted(found, key=lambda one: (-round(one[1], 9), one[0]))
