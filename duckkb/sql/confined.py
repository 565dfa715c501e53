"""The DuckDB instance in this process: in memory, without files, network, extensions or a way to change its
settings.

The engine's own limit bounds time, but its parser and some functions ignore it. Its own account bounds memory,
but omits some strings. `isolated` bounds both.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from duckkb.id_set import IdSet
from duckkb.ports import SqlLimits
from duckkb.sql.columns import PAST_EXACT
from duckkb.sql.sql_process import Engine, Reason, Rejected, make_engine_error, make_limit_error, unknown_version
from duckkb.types import request_context
from duckkb.types.errors import Unavailable
from duckkb.types.queries import SqlResult

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Result = TypeVar("Result")
Take = Callable[["pa.RecordBatchReader", list[str]], Result]
"""Converts a statement's rows, given the names of its columns' types."""

# In this order: what loads code first, the file system next, the lock last. DuckDB calls these defence in depth; what
# holds is that only text rendered or accepted by our own walk over the syntax tree is ever executed here.
SETTINGS = (
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "allow_community_extensions=false",
    "allow_extensions_metadata_mismatch=false",
    "allow_persistent_secrets=false",
    "allow_unredacted_secrets=false",
    "python_enable_replacements=false",
    "python_scan_all_frames=false",
    "enable_external_file_cache=false",
    "temp_directory=''",
    "max_temp_directory_size='0B'",
    "memory_limit='2GB'",
    "threads=2",
    "max_expression_depth=500",
    "disabled_filesystems='LocalFileSystem'",
    "enable_external_access=false",
    "allowed_configs=['max_execution_time']",
    "lock_configuration=true",
)

MOST_TREE = 16 * 1024**2  # characters of a syntax tree; a statement of 64 KiB without tricks has about a third of it
KNOWN_VERSION = "2."  # 1.5 writes other syntax trees
_ROWS = 2048  # rows that are fetched from the engine at a time
_JSON_MET = re.compile(r"Malformed JSON")
_REASONS: dict[str, Reason] = {
    "Conversion": "value",
    "Out of Range": "value",
    "Invalid Input": "value",
    "Binder": "fit",
    "Catalog": "fit",
    "Parser": "fit",
}
"""Reasons by the beginning of a failure's text. A failure while rows are read comes through Arrow and has only its
text.
"""


MAX_BRACKETS = 300  # nesting: the parser takes quadratic time for unclosed brackets
MAX_WITHS = (
    5  # WITH and PIVOT, each in the brackets of another: where the text is none, each takes 3 to 7 times as long
)
MAX_SIGNS = 100  # signs in a row, as in `- - 1`: they take quadratic time, too
_SKIPPED = frozenset(("comment", "identifier", "string_const"))
_SPACES = re.compile(
    "[\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff]"
)  # the parser treats them as blanks, tokenize does not


def is_too_deep(text: str) -> bool:
    """Return whether the parser would take disproportionately long for a text, even an invalid text.

    Uses the engine's own tokens, so that quotes and comments cannot mislead it; takes time in proportion to the text.
    """
    return any(map(_has_excess_depth, {text, _SPACES.sub(" ", text)}))


def _has_excess_depth(text: str) -> bool:
    import duckdb

    data, tokens = text.encode(), duckdb.tokenize(text)
    ends = [*(start for start, _ in tokens), len(data)][1:]
    has_with, withs, signs = [False], 0, 0  # has_with: for the text outside of brackets, and for each open bracket
    for (start, kind), end in zip(tokens, ends, strict=True):
        word = "" if kind.name in _SKIPPED else data[start:end].decode(errors="replace").strip().upper()
        opening_count, closing_count = (sum(map(word.count, brackets)) for brackets in ("([{", ")]}"))
        signs = signs + 1 if kind.name == "operator" and not opening_count + closing_count else 0
        if word in ("WITH", "PIVOT") and not has_with[-1]:
            has_with[-1] = True
            withs += 1
        has_with += [False] * opening_count
        for _ in range(min(closing_count, len(has_with) - 1)):
            withs -= has_with.pop()
        if len(has_with) - 1 > MAX_BRACKETS or withs > MAX_WITHS or signs > MAX_SIGNS:
            return True
    return False


class Confined(Engine):
    """A connection that opens on first use and is replaced after a fatal error."""

    def __init__(self) -> None:
        super().__init__()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def parse(self, text: str) -> Any:
        try:
            if is_too_deep(text):
                return {"error": True, "error_type": "nesting"}
            tree_json = self._query_text("SELECT json_serialize_sql(?::VARCHAR)", text)
        except Rejected:
            return {"error": True, "error_type": "other"}
        if len(tree_json) > MOST_TREE:
            return {"error": True, "error_type": "size"}
        try:
            return json.loads(tree_json)
        except RecursionError:
            return {"error": True, "error_type": "nesting"}

    def unparse(self, tree: Any) -> str:
        return self._query_text("SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))

    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Ignore the offer (`Engine.offer`): in this process every file is used without copying."""

    def register(self, name: str, data: "pa.Table | Path") -> None:
        from duckkb.sql.arrow_tables import arrow_file

        table = arrow_file(data) if isinstance(data, Path) else data
        with self._guard_connection() as connection:
            connection.register(name, table)

    def define(self, statement: str) -> None:
        with self._guard_connection() as connection:
            connection.execute(statement)

    def ids(self, statement: str, seconds: float) -> IdSet:
        import numpy as np

        pieces = self._read(
            statement, seconds, lambda batches, types: [batch.column(0).to_numpy() for batch in batches]
        )
        return IdSet(np.unique(np.concatenate([np.empty(0, np.int64), *pieces])))

    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        from duckkb.sql.row_table import take_rows

        return self._read(statement, limits.seconds, lambda batches, types: take_rows(batches, types, limits))

    def drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._forget()
            connection.close()

    def _query_text(self, statement: str, argument: str) -> str:
        """Return the single text that a statement of our own gives."""
        with self._guard_connection() as connection:
            # an unread rest of a result would hold the connection
            rows = connection.execute(statement, [argument]).fetchall()
            return str(rows[0][0]) if rows else ""

    def _read(self, statement: str, seconds: float, take: "Take[Result]") -> Result:
        """Run a statement in a read-only transaction within the time limit, and pass its result to `take`."""
        remaining_seconds = self._limit_seconds(seconds)
        with self._guard_connection(seconds) as connection:
            connection.execute(f"SET max_execution_time={max(1, int(remaining_seconds * 1000))}")
            connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                with request_context.current().interrupt_when_cancelled(connection.interrupt):
                    relation = connection.sql(statement)
                    types = [str(kind) for kind in relation.types]
                    with relation.to_arrow_reader(_ROWS) as batches:  # while open, it would occupy the connection
                        return take(batches, types)
            finally:
                self._roll_back(connection)

    def _roll_back(self, connection: "duckdb.DuckDBPyConnection") -> None:
        """Roll back; drop an instance that cannot even do this. The earlier failure explains why."""
        import duckdb

        try:
            connection.execute("ROLLBACK")
            connection.execute("SET max_execution_time=0")
        except duckdb.Error:
            self.drop()

    @contextmanager
    def _guard_connection(self, seconds: float | None = None) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Yield the connection; translate the engine's failures to errors without any of its text."""
        import duckdb
        import pyarrow as pa

        try:
            yield self._open()
        except MemoryError as error:
            raise make_limit_error(seconds) from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._translate_error(error, seconds) from error
        except (OverflowError, RecursionError, ValueError) as error:
            raise Rejected("value") from error  # a value that Python lacks: the year 290000, a row without names

    def _translate_error(self, error: Exception, seconds: float | None) -> Unavailable | Rejected:
        """Translate a failure. Names of columns and functions come from the statement itself and may be repeated."""
        text = str(error)
        match text.partition(" Error")[0]:
            case "FATAL" | "INTERNAL":
                self.drop()
                return make_engine_error()
            case "INTERRUPT" | "Out of Memory":
                return make_limit_error(seconds)
            case _ if _JSON_MET.search(text):
                return Rejected("json")
            case _ if f"'{PAST_EXACT}'" in text:
                return Rejected("exact")
            case "Serialization" if "nesting depth" in text:
                return Rejected("deep")
            case kind:
                if name := re.search(r'Referenced column "([^"]{1,200})" not found', text):
                    return Rejected("column", name[1])
                call = re.search(r"argument types '([a-z_0-9]{1,60}\([A-Z_, ]{1,200}\))'", text)
                return Rejected(_REASONS.get(kind, "other"), call[1] if call else "")

    def _open(self) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            import duckdb

            if not duckdb.__version__.startswith(KNOWN_VERSION):
                raise unknown_version()
            connection = duckdb.connect(":memory:")
            connection.execute("SET enable_progress_bar=false")  # without a script it would draw on stdout
            for setting in SETTINGS:
                connection.execute(f"SET GLOBAL {setting}")
            self._connection = connection
        return self._connection
