"""CSV and TSV files: a header, then a record per row, read as a stream as often as needed."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import IO

from duckkb.actions.importing.request import ImportRequest
from duckkb.errors import Finding, InvalidRecord, UsageError
from duckkb.truth.files.line import LineError

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
    from duckkb.documents.text import decode_text

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
