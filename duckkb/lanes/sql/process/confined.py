"""The one DuckDB instance, in this process: in memory, without files, network, extensions or a way to change its settings.

Time is bounded by an interrupt, which some functions of the engine do not heed, and memory by the engine's own account,
which leaves out strings and lists. `isolated` bounds both.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from duckkb.id_set import IdSet
from duckkb.lanes.sql.process.engine import Rejected, Timed, broken, over_limit, unknown_version
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Result = TypeVar("Result")
Take = Callable[["Iterable[pa.RecordBatch]", Sequence[str], Sequence[str]], Result]

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
    "allowed_configs=[]",
    "lock_configuration=true",
)


MOST_TREE = 16 * 1024**2  # characters of a syntax tree; a statement of 64 KiB without tricks has about a third of it
KNOWN_VERSION = "1."  # 2.0 writes other syntax trees


class Confined(Timed):
    """Implements `engine.Engine`: a connection that opens on first use and is replaced after a fatal error."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.generation = 0

    def parse(self, text: str) -> Any:
        """The syntax tree of SELECT statements as JSON gives it, with `error` set where there is none; nothing runs."""
        try:
            with self._guarded() as connection:
                row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
        except Rejected:
            return {"error": True, "error_type": "other"}
        text = row[0] if row else "{}"
        if len(text) > MOST_TREE:
            return {"error": True, "error_type": "size"}
        try:
            return json.loads(text)
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

    def offer(self, files: Callable[[], Sequence[Path]]) -> None:
        """Every file can be attached, without being known before."""

    def attach(self, name: str, file: Path) -> None:
        """As `register`, for the data in an Arrow file, whose last column statements do not see."""
        from duckkb.lanes.sql.arrow import arrow_file

        self.register(name, arrow_file(file))

    def define(self, statement: str) -> None:
        """Run a statement of our own that defines a view."""
        with self._guarded() as connection:
            connection.execute(statement)

    def ids(self, statement: str, seconds: float) -> IdSet:
        """The integers of a statement's one column."""
        import numpy as np

        pieces = [column.to_numpy().astype(np.int64, copy=False) for column in self.columns(statement, seconds)]
        return IdSet(np.unique(np.concatenate(pieces))) if pieces else IdSet.of(())

    def columns(self, statement: str, seconds: float) -> "list[pa.Array]":
        """A statement's one column, in pieces."""
        return self._read(statement, seconds, lambda batches, names, types: [batch.column(0) for batch in batches])

    def rows(self, statement: str, limits: SqlLimits) -> SqlResult:
        """The rows of a statement as plain JSON values, up to the caps."""
        from duckkb.lanes.sql.rows import taken

        return self._read(statement, limits.seconds, lambda batches, names, types: taken(batches, names, types, limits))

    def drop(self) -> None:
        """Close the instance; the next use opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self.generation += 1
            connection.close()

    def _read(self, statement: str, seconds: float, take: "Take[Result]") -> Result:
        """Run a statement in a read-only transaction and hand over what it yields, within the time limit."""
        with self._guarded(seconds) as connection:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                with _interrupted_after(connection, self._left(seconds)):
                    connection.execute(statement)
                    types = [str(column[1]) for column in connection.description or ()]
                    with _arrow_failures_told():
                        reader = _reader(connection)
                        return take(reader, reader.schema.names, types)
            finally:
                self._roll_back(connection)

    def _roll_back(self, connection: "duckdb.DuckDBPyConnection") -> None:
        """An instance that cannot even do this is of no more use; what failed before says why."""
        import duckdb

        try:
            connection.execute("ROLLBACK")
        except duckdb.Error:
            self.drop()

    @contextmanager
    def _guarded(self, seconds: float | None = None) -> "Iterator[duckdb.DuckDBPyConnection]":
        """The connection, with the engine's failures as errors of ours that carry none of its text."""
        import duckdb

        try:
            yield self._open()
        except (duckdb.FatalException, duckdb.InternalException) as error:
            self.drop()
            raise broken() from error
        except (duckdb.InterruptException, duckdb.OutOfMemoryException, MemoryError) as error:
            raise over_limit(seconds) from error
        except duckdb.Error as error:
            raise _rejected(error) from error
        except (OverflowError, RecursionError, ValueError) as error:
            raise Rejected("value") from error  # one that Python does not have: the year 290000, a row without names

    def _open(self) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            import duckdb

            if not duckdb.__version__.startswith(KNOWN_VERSION):
                raise unknown_version()
            connection = duckdb.connect(":memory:")
            connection.execute("SET enable_progress_bar=false")  # it would draw on stdout where Python has no script
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


@contextmanager
def _arrow_failures_told() -> Iterator[None]:
    """A statement that fails while its rows are read does so through Arrow, which knows no more than the engine's text:
    the kind of failure is told by how that text begins."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        kinds = {
            "INTERRUPT": duckdb.InterruptException,
            "Out of Memory": duckdb.OutOfMemoryException,
            "INTERNAL": duckdb.InternalException,
            "FATAL": duckdb.FatalException,
            "Conversion": duckdb.ConversionException,
            "Out of Range": duckdb.OutOfRangeException,
            "Invalid Input": duckdb.InvalidInputException,
        }
        raise kinds.get(str(error).partition(" Error")[0], duckdb.Error)() from error


def _rejected(error: "duckdb.Error") -> Rejected:
    """What is told of a failure. A column's name comes from the statement itself."""
    import duckdb

    name = re.search(r'Referenced column "([^"]{1,200})" not found', str(error))
    if name:
        return Rejected("column", name[1])
    if isinstance(error, (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException)):
        return Rejected("value")
    if isinstance(error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)):
        return Rejected("fit")
    return Rejected("other")
