"""Parquet files: their rows as records, a batch at a time."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any

from duckkb.errors import Finding, UsageError
from duckkb.truth.files.line import LineError

_BATCH = 1_000


class ParquetTable:
    """An open Parquet file. Raises `errors.UsageError` (E_ROWS) where it is damaged."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._file = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise make_damage_error(name, error) from error
        self._name, self._damage = name, (pa.ArrowInvalid, OSError)
        self.types = {column.name: _find_type_name(pa.types, column.type) for column in self._file.schema_arrow}

    def records(self) -> Iterator[dict[str, Any] | LineError]:
        """Yield the rows as JSON values, without nulls and NaN."""
        try:
            for batch in self._file.iter_batches(_BATCH):
                for row in batch.to_pylist():
                    yield _record(row)
        except self._damage as error:
            raise make_damage_error(self._name, error) from error


def make_damage_error(name: str, error: Exception) -> UsageError:
    """Return the error for a file that is not a valid table."""
    reason = str(error).partition("\n")[0]
    return UsageError(
        f"{name} cannot be read as Parquet: {reason}", code="E_ROWS", suggestion="give a Parquet file, or CSV or JSON"
    )


def _record(row: dict[str, Any]) -> dict[str, Any] | LineError:
    values: dict[str, Any] = {}
    wrong = []
    for name, value in row.items():
        try:
            plain = _to_plain(value)
        except ValueError as error:
            wrong.append(Finding("E_ROWS", f"{name} holds {error}", field=f"/{name}"))
            continue
        if plain is not None:
            values[name] = plain
    return LineError(wrong) if wrong else values


def _to_plain(value: Any) -> Any:
    """Convert a value to JSON. Raises ValueError for bytes and infinities."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError("an infinite number")
        return None if math.isnan(value) else value
    if isinstance(value, Decimal):
        return _convert_decimal(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    raise ValueError(f"a value without a JSON form ({type(value).__name__})")


def _convert_decimal(value: Decimal) -> int | float | str:
    """Convert a decimal to a number where that is exact, else to text."""
    if value == value.to_integral_value() and abs(value) < 2**63:
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _find_type_name(types: Any, type: Any) -> str:
    tests = {
        "boolean": (types.is_boolean,),
        "integer": (types.is_integer,),
        "number": (types.is_floating, types.is_decimal),
        "date": (types.is_date,),
        "timestamp": (types.is_timestamp,),
        "json": (types.is_nested,),
    }
    return next((name for name, are in tests.items() if any(is_type(type) for is_type in are)), "text")
