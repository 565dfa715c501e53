"""CSV and TSV files: a header, then a record per row, read as a stream as often as needed.

The types of a text table's columns: inferred from all cells, declared by a schema, or named by the caller.

Parquet files: their rows as records, a batch at a time.

The request of an import, and its command line."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.storage.line import LineError
from duckkb.storage.strict_lines import INT64_MAX, INT64_MIN
from duckkb.types.errors import Finding, InvalidRecord, UsageError, shell_word

TYPES = ("text", "integer", "number", "boolean", "date", "timestamp", "json")
_SPELLINGS = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "str": "text",
    "string": "text",
    "bool": "boolean",
}
_SPELLINGS |= {"datetime": "timestamp"}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][+-]?[0-9]+)?|-?(?:0|[1-9][0-9]*)[eE][+-][0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_EXACT_DIGITS = 15  # digits that every double keeps
_DECLARED = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "array": "json",
    "object": "json",
}
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def parse_type_name(word: str) -> str:
    """Return a type by its name here or in a programming language; other words stay.

    >>> parse_type_name("int"), parse_type_name("Text"), parse_type_name("money")
    ('integer', 'text', 'money')
    """
    return _SPELLINGS.get(word.lower(), word.lower() if word.lower() in TYPES else word)


def type_of_cell(cell: str) -> str:
    """Return the narrowest type that keeps all of a cell's text: `007`, `+5` and `1e5` are text.

    >>> [type_of_cell(cell) for cell in ("12", "1.50", "True", "2026-01-31", "007", "12E4")]
    ['integer', 'number', 'boolean', 'date', 'text', 'text']
    """
    cell = cell.strip()
    if cell.casefold() in ("true", "false"):
        return "boolean"
    if _INTEGER.fullmatch(cell):
        return "integer" if INT64_MIN <= int(cell) <= INT64_MAX else "text"
    if _NUMBER.fullmatch(cell):
        return "number" if _is_exact(cell) else "text"
    with suppress(ValueError):
        if _DATE.fullmatch(cell):
            date.fromisoformat(cell)
            return "date"
        if _TIMESTAMP.fullmatch(cell):
            datetime.fromisoformat(cell)
            return "timestamp"
    return "text"


def _is_exact(cell: str) -> bool:
    value = float(cell)
    digits = re.sub(r"[eE].*|[-.]", "", cell).lstrip("0")
    return math.isfinite(value) and (len(digits) <= _EXACT_DIGITS or repr(value) == cell)


def read_declared_types(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of the fields for which a schema allows a single type."""
    types = {name: rule.get("type") for name, rule in properties.items() if isinstance(rule, Mapping)}
    return {name: _DECLARED[type] for name, type in types.items() if isinstance(type, str) and type in _DECLARED}


class ColumnTypes:
    """The type of each column over all noted rows; a column without values has none."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self._fixed = dict(fixed)
        self._inferred: dict[str, str] = {}

    def note(self, names: Sequence[str], cells: Sequence[str]) -> None:
        """Note the cells of a row."""
        for name, cell in zip(names, cells, strict=False):
            current_type = self._inferred.get(name)
            if current_type == "text" or not cell or cell.isspace():
                continue
            type = "text" if name in self._fixed else type_of_cell(cell)
            if current_type is None or current_type == type:
                self._inferred[name] = type
            else:
                self._inferred[name] = "number" if {current_type, type} == {"integer", "number"} else "text"

    def map_types_by_column(self) -> dict[str, str]:
        """Return the type by column, in the order in which columns had their first values."""
        return self._inferred | {name: self._fixed[name] for name in self._inferred if name in self._fixed}

    def record(self, names: Sequence[str], cells: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Convert a row: return its values without empty cells, and by column what is wrong with a cell."""
        values: dict[str, Any] = {}
        wrong: dict[str, str] = {}
        for name, cell in zip(names, cells, strict=True):
            if not cell or cell.isspace():
                continue
            type = self._fixed.get(name) or self._inferred.get(name, "text")
            try:
                values[name] = cell if type == "text" else _CONVERSIONS[type](cell.strip())
            except (ValueError, RecursionError):
                wrong[name] = f"{cell[:40]!r} is not {'an' if type == 'integer' else 'a'} {type}"
        return values, wrong


def unknown_columns(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the names that no column has."""
    column_names = set(columns)
    return [name for name in names if name not in column_names]


def _parse_boolean(cell: str) -> bool:
    value = _BOOLEANS.get(cell.casefold())
    if value is None:
        raise ValueError(cell)
    return value


def _parse_number(cell: str) -> int | float:
    if _INTEGER.fullmatch(cell):
        return int(cell)
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:
        raise ValueError(cell)
    return value


def _parse_integer(cell: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", cell) or not INT64_MIN <= int(cell) <= INT64_MAX:
        raise ValueError(cell)
    return int(cell)


def _parse_date(cell: str) -> str:
    date.fromisoformat(cell)
    return cell


def _parse_timestamp(cell: str) -> str:
    datetime.fromisoformat(cell)
    return cell


_CONVERSIONS: Mapping[str, Callable[[str], Any]] = {
    "boolean": _parse_boolean,
    "integer": _parse_integer,
    "number": _parse_number,
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "json": json.loads,
}


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


class ImportRequest(Struct, frozen=True):
    """The request of an import.

    `renames` is {target: source}; `id_fields` are joined to the identity; `types` is {field: type} for text
    tables; `records` is the path of the records inside a JSON document; `encoding` is empty for UTF-8 and for
    files with a byte order mark. A request from a proposal is suggested as a proposal, on a new branch.
    """

    type: str
    files: tuple[str, ...]
    renames: Mapping[str, str] = {}
    id_fields: tuple[str, ...] = ()
    types: Mapping[str, str] = {}
    records: str | None = None
    encoding: str = ""
    merge: bool = False
    dry_run: bool = False
    is_proposal: bool = False

    def command(self, **changes: Any) -> str:
        """Return the command line of this request, with changes.

        >>> ImportRequest("faq", ("faq.csv",)).command(id_fields=("id", "lang"))
        'duckkb import faq faq.csv --id id,lang'
        """
        request = replace(self, **changes)
        words = ["duckkb", *(["propose"] if request.is_proposal else []), "import", request.type, *request.files]
        for option, pairs in (("--map", request.renames), ("--type-of", request.types)):
            words += [word for name, value in pairs.items() for word in (option, f"{name}={value}")]
        words += ["--id", ",".join(request.id_fields)] if request.id_fields else []
        words += ["--records", request.records] if request.records is not None else []
        words += ["--encoding", request.encoding] if request.encoding else []
        words += ["--merge"] if request.merge else []
        words += ["--dry-run"] if request.dry_run else []
        return " ".join(map(shell_word, words))


_DELIMITERS = ",;\t|"
_HEAD = 1 << 16  # characters searched for the header's delimiter
_ASCII, _TELLING = 0x7F, 8  # the last ASCII byte, and how many bytes above it identify a code page

Row = tuple[int, list[str]]
"""The line at which a row begins, and its cells."""


class TextTable:
    """An open file as rows under a header. `name` is its name in findings."""

    def __init__(self, name: str, file: IO[bytes], encoding: str, request: ImportRequest, longest: int) -> None:
        self.name, self._file, self._encoding, self._request = name, file, encoding, request
        csv.field_size_limit(max(longest, csv.field_size_limit()))
        self.columns: Sequence[str] = ()
        self.columns = self._read_header()

    def rows(self) -> Iterator[Row | tuple[int, LineError]]:
        """Yield the rows below the header, from the start of the file. Raises `errors.InvalidRecord` (E_UTF8).

        A row that does not fit the header, and an unclosed quote, are errors at their lines; reading stops at
        the latter.
        """
        width = len(self.columns)
        for number, cells in self._read_lines():
            if isinstance(cells, LineError):
                yield number, cells
            elif len(cells) == width or (not any(cells[width:]) and len(cells) > width):
                yield number, cells[:width]
            else:
                message = f"the row has {len(cells):,} cells, the header has {width:,}"
                remedy = "put quotes around cells that contain the delimiter"
                yield number, LineError([Finding("E_ROWS", message, remedy=remedy)])

    def record_parts(self, cells: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Return names and cells of a row without unnamed columns."""
        if "" not in self.columns:
            return self.columns, cells
        pairs = [(name, cell) for name, cell in zip(self.columns, cells, strict=True) if name]
        return [name for name, _ in pairs], [cell for _, cell in pairs]

    def _read_header(self) -> list[str]:
        for _, cells in self._read_lines(header=True):
            if isinstance(cells, LineError):
                raise UsageError(
                    f"{self.name}: {cells.findings[0].message}", code="E_ROWS", suggestion="correct its quotes"
                )
            names = [cell.strip() for cell in cells]
            twice = sorted({name for name in names if name and names.count(name) > 1})
            if twice:
                raise UsageError(
                    f"{self.name}: the header has the column {twice[0]!r} twice",
                    code="E_ROWS",
                    suggestion="rename one of them in the file",
                )
            while names and not names[-1]:
                names.pop()
            return names
        return []

    def _read_lines(self, *, header: bool = False) -> Iterator[tuple[int, list[str] | LineError]]:
        self._file.seek(0)
        text = io.TextIOWrapper(self._file, self._encoding, newline="")
        try:
            reader = csv.reader(text, delimiter=self._detect_delimiter(text), strict=True)
            start = 1
            for number in range(10**15):
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield start, LineError([Finding("E_ROWS", f"the row cannot be read: {error}")])
                    return
                if cells is None:
                    return
                if cells and (header or number):
                    yield start, cells
                start = reader.line_num + 1
        except UnicodeDecodeError as error:
            raise make_decoding_error(self._request, self.name, self._file, self._encoding) from error
        finally:
            text.detach()

    def _detect_delimiter(self, text: io.TextIOWrapper) -> str:
        """Return the delimiter that occurs most in the first line outside quotes; a tab for a file named .tsv."""
        if self.name.lower().endswith((".tsv", ".tab")):
            return "\t"
        head = text.readline(_HEAD)
        text.seek(0)
        return delimiter_of(head) or ","


def delimiter_of(line: str) -> str:
    """Return the delimiter of a line's cells; empty without one.

    >>> delimiter_of('id;"name, first";city')
    ';'
    """
    outside = "".join(line.split('"')[::2])
    best = max(_DELIMITERS, key=outside.count)
    return best if best in outside else ""


def make_decoding_error(request: ImportRequest, name: str, file: IO[bytes], encoding: str) -> InvalidRecord:
    """Return the error for a file that is not text of this encoding.

    It suggests the command with the likely encoding.
    """
    from duckkb.documents.document import decode_text

    file.seek(0)
    where, guess = "", ""
    for number, line in enumerate(file, 1) if encoding.startswith("utf-8") else ():
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            where = f":{number}"
            foreign = sum(byte > _ASCII for byte in line)
            guess = (decode_text(line) or ("", ""))[1] if foreign >= _TELLING else "cp1252"
            break
    encoding_name = "UTF-8" if encoding.startswith("utf-8") else encoding
    again = request.command(encoding=guess or ("latin-1" if encoding != "latin-1" else "utf-8"))
    return InvalidRecord(f"{name}{where} is not {encoding_name}", code="E_UTF8", suggestion=again, exit_code=1)
