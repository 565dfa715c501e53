"""The one DuckDB instance: in memory, without files, network, extensions or a way to change its settings.

It holds no state of its own: tables are Arrow data that Python keeps, registered when a statement needs them. So it can
be dropped at any time; `generation` tells its users that what they registered is gone.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from duckkb.errors import Unavailable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Result = TypeVar("Result")

# In this order: what loads code first, the file system next, the lock last. DuckDB calls these defence in depth; what
# holds is that only text rendered or accepted by our own walk over the syntax tree is ever executed here.
SETTINGS = (
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
    "max_expression_depth=250",
    "disabled_filesystems='LocalFileSystem'",
    "enable_external_access=false",
    "allowed_configs=[]",
    "lock_configuration=true",
)


class Confined:
    """A connection that opens on first use and is replaced after a fatal error."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.generation = 0

    def parse(self, text: str) -> Any:
        """The syntax tree of SELECT statements as JSON gives it, with `error` set where there is none; nothing runs."""
        with self._guarded() as connection:
            row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
            try:
                return json.loads(row[0] if row else "{}")
            except RecursionError:
                return {"error": True, "error_type": "nesting"}

    def unparse(self, tree: Any) -> str:
        """The SQL text of a syntax tree that `parse` gave."""
        with self._guarded() as connection:
            row = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
            return str(row[0]) if row else ""

    def register(self, name: str, table: "pa.Table") -> None:
        """Make Arrow data visible under a name, in place of what had it."""
        with self._guarded() as connection:
            connection.register(name, table)

    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""
        with self._guarded() as connection:
            connection.execute(statement)

    def read(
        self, statement: str, seconds: float, take: "Callable[[pa.RecordBatchReader, Sequence[str]], Result]"
    ) -> Result:
        """Run a statement in a read-only transaction and hand rows and type names to `take`, within the time limit."""
        with self._guarded(seconds) as connection:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                with _interrupted_after(connection, seconds):
                    connection.execute(statement)
                    types = [str(column[1]) for column in connection.description or ()]
                    return take(_reader(connection), types)
            finally:
                connection.execute("ROLLBACK")

    def drop(self) -> None:
        """Close the instance; the next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self.generation += 1

    @contextmanager
    def _guarded(self, seconds: float | None = None) -> "Iterator[duckdb.DuckDBPyConnection]":
        """The connection, with the failures that are the engine's own as errors of ours."""
        import duckdb

        try:
            yield self._open()
        except (duckdb.FatalException, duckdb.InternalException) as error:
            self.drop()
            raise broken() from error
        except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
            raise over_limit(seconds) from error

    def _open(self) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            import duckdb

            connection = duckdb.connect(":memory:")
            for setting in SETTINGS:
                connection.execute(f"SET GLOBAL {setting}")
            self._connection = connection
        return self._connection


@contextmanager
def _interrupted_after(connection: "duckdb.DuckDBPyConnection", seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a late interrupt must not hit the next statement


def _reader(connection: "duckdb.DuckDBPyConnection") -> "pa.RecordBatchReader":
    rows_per_batch = 2048
    if hasattr(connection, "to_arrow_reader"):
        return connection.to_arrow_reader(rows_per_batch)
    return connection.fetch_record_batch(rows_per_batch)


def over_limit(seconds: float | None) -> Unavailable:
    """The error for a query that took more time or memory than it may."""
    return Unavailable(
        "The query took too much time or memory and was stopped.",
        code="E_LIMIT",
        suggestion="make it narrower",
        details={"seconds": seconds},
    )


def broken() -> Unavailable:
    """The error after the engine failed in itself; its state is derived, so the next call starts a fresh one."""
    return Unavailable(
        "The query engine failed and was restarted; nothing stored is touched.",
        code="E_INTERNAL",
        suggestion="try again; report it if it happens again",
        details={"retryable": True},
    )
