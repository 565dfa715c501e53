"""Converts the rows of an answer to plain JSON values, up to the caps."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult

if TYPE_CHECKING:
    import pyarrow as pa

_PART_BYTES = 4 * 1024 * 1024


def take_rows(batches: "pa.RecordBatchReader", types: Sequence[str], limits: SqlLimits) -> SqlResult:
    """Return rows up to the caps; `truncated` if there was another. Bytes are those of the rows as JSON."""
    names = tuple(batches.schema.names)
    convert = [_PARSED.get(name, plain) for name in types]
    rows: list[tuple[Any, ...]] = []
    size = 0
    for part in chain.from_iterable(map(_split_batch, batches)):
        columns = [map(converter, column.to_pylist()) for converter, column in zip(convert, part.columns, strict=True)]
        for row in zip(*columns, strict=True):
            size += len(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            if len(rows) >= limits.rows or size > limits.bytes:
                return SqlResult(names, tuple(rows), truncated=True)
            rows.append(row)
    return SqlResult(names, tuple(rows))


def _split_batch(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Yield parts of a batch that fit into memory as Python values: few long rows, or many short ones."""
    rows = max(1, batch.num_rows * _PART_BYTES // max(_PART_BYTES, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _parse_json(text: str | None) -> Any:
    """Parse a JSON column's value; the engine returns it as text."""
    try:
        return None if text is None else json.loads(text, parse_float=_parse_finite_float)
    except (ValueError, RecursionError):
        return text


def _parse_json_list(texts: list[str | None] | None) -> Any:
    return None if texts is None else [_parse_json(text) for text in texts]


_PARSED: Mapping[str, Callable[[Any], Any]] = {"JSON": _parse_json, "JSON[]": _parse_json_list}


def _parse_finite_float(text: str) -> float | str:
    """Parse a float; keep its text if it is infinite, because JSON can write 1e999 but not infinity."""
    number = float(text)
    return number if number - number == 0 else text


def plain(value: Any) -> Any:
    """Convert a value to JSON: days and times to ISO text (times in UTC), decimals to numbers if that is exact."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    for kind, convert in _CONVERSIONS.items():
        if isinstance(value, kind):
            return convert(value)
    return _convert_sequence(value) if isinstance(value, (list, tuple)) else str(value)


def _convert_sequence(value: Sequence[Any]) -> Any:
    """Convert a list, a map (Arrow gives it as pairs), or an interval as months, days and nanoseconds."""
    if isinstance(value, tuple):
        names = ("months", "days", "nanoseconds")
        return (
            dict(zip(names, value, strict=True)) if hasattr(value, "nanoseconds") else [plain(part) for part in value]
        )
    if value and all(isinstance(part, tuple) and len(part) == 2 for part in value):
        return {str(key): plain(inner) for key, inner in value}
    return [plain(part) for part in value]


def _convert_decimal(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _format_moment(value: datetime) -> str:
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return moment.isoformat(timespec="microseconds") + "Z"


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    datetime: _format_moment,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: str,
    Decimal: _convert_decimal,
    bytes: bytes.hex,
}
