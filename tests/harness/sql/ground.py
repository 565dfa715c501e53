"""Ground of the campaigns against filters and SQL: two types of records, and canaries that no answer may show.

`doc` is what filters are asked over; `vault` is another type of the same base. The secrets of both are rows that a message
must never quote; those of the vault must not even be reachable from a filter over `doc`.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duckkb.ontology.model import EdgeType, NodeType, Ontology
from duckkb.ports import SqlLimits
from duckkb.sql.confined import Confined
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import Engine
from duckkb.types.errors import DuckkbError
from duckkb.types.queries import SqlResult
from duckkb.types.records import Record
from tests.record_tables import RecordTables

FILE_SECRET = "canary-file-5c1e"
VAULT_SECRET = "canary-vault-9d2b"
ROW_SECRET = "canary-row-7f3a"
ENV_SECRET = "canary-env-41aa"
ENV_NAME = "DUCKKB_TEST_CANARY"
NEVER = (FILE_SECRET, VAULT_SECRET, ENV_SECRET)

NOW = datetime(2024, 5, 3, 12, 0, tzinfo=UTC)
TIME = "2024-05-01T10:00:00.000001Z"

SCHEMA: dict[str, Any] = {
    "properties": {
        "name": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "i": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "d": {"type": "string", "format": "date"},
        "t": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "nums": {"type": "array", "items": {"type": "integer"}},
        "meta": {"type": "object"},
        "m": {"type": "integer"},
        "级别": {"type": "integer"},
    }
}
DOC = NodeType("Doc", "doc", ("name",), SCHEMA)
VAULT = NodeType(
    "Vault", "vault", ("secret",), {"properties": {"secret": {"type": "string"}, "i": {"type": "integer"}}}
)
LINKS = EdgeType("Links", "links", (), {"properties": {"why": {"type": "string"}}})
ONTOLOGY = Ontology({"Doc": DOC, "Vault": VAULT}, {"Links": LINKS})

# `m` holds more than its type says, `free` and `Odd name` are fields that no schema knows.
DOCS: list[dict[str, Any]] = [
    {"name": "alpha", "note": "An update of pythons", "i": 1, "x": 1.5, "b": True, "d": "2024-01-31", "级别": 3,
     "t": "2024-01-31T23:30:00+08:00", "tags": ["a", "b"], "nums": [1, 2], "m": 1,
     "meta": {"k": "a", "n": 1, "deep": {"z": 5, "s": "x"}, "list": ["a", 1], "flag": True}},
    {"name": "内存数据库", "note": "DuckDB内存", "i": 2, "x": -2.0, "b": False, "d": "2024-02-29", "tags": [], "nums": [],
     "t": "2024-02-29T00:00:00Z", "m": "q", "meta": {"k": "张三", "n": 2.5, "list": [], "flag": False}, "free": "hi"},
    {"name": "it's", "note": "", "i": -3, "x": 0.0, "tags": ["b"], "nums": [3], "m": 2.5, "meta": {"k": None, "n": "2"}},
    {"name": "42", "note": "100%_sure", "i": 0, "x": 42.0, "b": True, "d": "1999-12-31", "m": True, "free": "ho",
     "meta": {"k": "true", "deep": {"z": -1, "s": "y"}}},
    {"name": "4.5", "note": " padded ", "x": 2.5, "t": "2024-01-31T15:30:00.000001Z", "meta": {"list": ["b"]}, "m": "5"},
    {"name": "2024-02-29", "note": "True", "i": 10, "d": "2024-03-01", "nums": [1, 1, 5], "m": "2024-02-29"},
    {"name": ROW_SECRET, "note": ROW_SECRET, "i": 7, "x": 7.25, "b": False, "tags": [ROW_SECRET], "m": ROW_SECRET,
     "meta": {"k": ROW_SECRET}, "free": ROW_SECRET},
    {"name": '{"k": 1}', "note": "a\\b\nc", "i": 9007199254740993, "x": -0.5, "b": True, "tags": ["a", "内"], "m": -4},
    {"name": "none"},
    {"name": "Alpha", "note": "ALPHA", "i": 100, "x": 100.0, "d": "2024-01-01", "t": "2024-01-01T00:00:00Z", "m": 100,
     "meta": {"k": "A", "n": -1, "list": [[1], {"a": 1}]}, "Odd name": 1},
]  # fmt: skip


def docs() -> list[Record]:
    """The rows of `doc`; ids count from 1 in their order."""
    return [
        Record("Doc", number, (row["name"],), row, f"2024-05-{number:02}T10:00:00.000001Z", TIME)
        for number, row in enumerate(DOCS, 1)
    ]


class Recording:
    """An engine that keeps the statements it ran."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine or Confined()
        self.ran: list[str] = []

    @property
    def generation(self) -> int:
        return self._engine.generation

    def ids(self, statement: str, seconds: float) -> frozenset[int]:
        self.ran.append(statement)
        return self._engine.ids(statement, seconds)

    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        self.ran.append(statement)
        return self._engine.rows(statement, limits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def tables(engine: Any = None) -> Tables:
    """Both types and an edge, loaded."""
    made = RecordTables(ONTOLOGY, lambda kind: (), lambda kind, record: (1, 2), engine=engine, now=lambda: NOW)
    made.put(DOC, docs())
    vault = [
        Record("Vault", n, (f"{VAULT_SECRET}-{n}",), {"secret": f"{VAULT_SECRET}-{n}", "i": n}, TIME, TIME)
        for n in (1, 2)
    ]
    made.put(VAULT, vault)
    made.put(LINKS, [Record("Links", 9, ("a", "b"), {"from": "a", "to": "b", "why": "x"}, TIME, TIME)])
    return made


@contextmanager
def canaries(folder: Path) -> Iterator[Path]:
    """A secret in a file and one in the environment while the block runs; gives the file. The folder must stay as it is."""
    secret = folder / "secret.csv"
    secret.write_text(f"a\n{FILE_SECRET}\n", "utf-8")
    os.environ[ENV_NAME] = ENV_SECRET
    before, here = seen(folder), Path.cwd()
    os.chdir(folder)
    try:
        yield secret
        assert seen(folder) == before, "something was written"
    finally:
        os.chdir(here)
        os.environ.pop(ENV_NAME, None)


def seen(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def told(error: DuckkbError) -> str:
    """Everything that a caller gets to read of an error."""
    return json.dumps([str(error), error.suggestion, dict(error.details)], ensure_ascii=False, default=str)


def advised(error: DuckkbError) -> str | None:
    """The filter of the command that an error advises; advice repeats what the caller wrote, as nothing else does."""
    words = shlex.split(error.suggestion) if error.suggestion.startswith("duckkb find ") else []
    return words[4] if words[3:4] == ["-w"] and len(words) == 5 else None


_ENGINE_WORDS = re.compile(
    r"LINE \d|(Binder|Parser|Catalog|Conversion|Permission|INTERNAL|FATAL|IO|Out of Memory|Invalid Input|INTERRUPT) Error|\n\s*\^",
)


def faults_of_error(error: DuckkbError, codes: Iterable[str], literals: Iterable[str] = ()) -> list[str]:
    """What is wrong with a refusal: its code, words of the engine, a secret, a constant of the fragment."""
    text = told(error)
    found = [] if error.code in codes else [f"code {error.code}"]
    found += ["the engine's words"] if _ENGINE_WORDS.search(text) else []
    found += [f"tells {secret}" for secret in (*NEVER, ROW_SECRET) if secret in text and not _names(error, secret)]
    said = json.dumps([str(error), dict(error.details)], ensure_ascii=False, default=str)
    said += error.suggestion if advised(error) is None else ""
    return found + [f"quotes {literal!r}" for literal in literals if literal in said and not _names(error, literal)]


def _names(error: DuckkbError, text: str) -> bool:
    """Whether the caller wrote this text as the name of a field, a table or a function: names may be told."""
    details: Mapping[str, Any] = error.details
    named = [str(details.get(key, "")) for key in ("field", "table", "construct")]
    column = re.search(r"a column that does not exist: (.*)\.", error.message)
    return any(text in name for name in [*named, column[1] if column else ""])


# What no filter may say once it is written anew, whatever it said before: this list is the oracle's own.
_NEVER = re.compile(
    r"""\b(vault|secret|read_\w+|getenv|current_setting|getvariable|query|query_table|json_execute_serialized_sql|json_serialize_sql
    |enable_logging|write_log|pragma\w*|duckdb_\w+|copy|attach|install|load|export|call|set|nextval|random|uuid|version|error
    |current_user|current_database|repeat|lpad|rpad|range|generate_series|list_resize|array_resize|printf|format|levenshtein|hex
    |unhex|base64|encode|jaccard|exists|over|unnest|count|sum|max|min|first|string_agg|row_number|union|with|limit|group|order)
    \b(?=\s*[(.]|\s)""",
    re.IGNORECASE | re.VERBOSE,
)


def faults_of_statement(statement: str) -> list[str]:
    """What is wrong with SQL that was run for a filter over `doc`: another head, a word that says more than a condition."""
    bare = re.sub(r"'(?:[^']|'')*'", "''", statement)
    found = [] if bare.startswith("SELECT __id FROM doc WHERE ") else ["another head"]
    bare = bare.replace("DISTINCT FROM", "").replace("TIMESTAMP WITH TIME ZONE", "")  # a sign, and a type
    found += [f"the word {word}" for word in _NEVER.findall(bare.replace('\\"', ""))]
    return found + [
        f"a second {word}" for word in ("SELECT", "FROM", "WHERE") if len(re.findall(rf"\b{word}\b", bare)) != 1
    ]


Where = Callable[[str], frozenset[int]]
