"""What reading a Parquet file would cost, from its headers alone: a few bytes can claim to be terabytes.

The reader allocates what a page's header names, and repeats a dictionary's value for every row that points to it. So the
footer and every header are looked at here before the reader sees the file. (Its own view of a footer will not do: a torn
one aborts the process.) Both are structs in Thrift's compact protocol: https://github.com/apache/parquet-format
"""

from collections.abc import Iterator
from typing import Any

from duckkb.indexing.cache_files import Damaged
from duckkb.values import dataclass

MOST_GROUPS = 4096
MOST_GROUP_ROWS = 65_536
_MOST_FOOTER_BYTES = 8 * 1024 * 1024
_ROW_BYTES = 40
"""Key, content hash and checksum, which every row has and nothing makes shorter."""
_FREE = 64 * 1024 * 1024
_RATIO = 20
_MOST_NUMBERS = 8192
"""Of one vector."""
_DICTIONARY = 2

Struct = dict[int, Any]
"""Field number -> integer, bytes, struct, or list of these; other values are left out."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: where it lies behind its header, bytes there and after decompression, values in it, and Parquet's numbers
    for its kind and encoding."""

    at: int
    packed: int
    size: int
    values: int
    kind: int
    encoding: int

    @property
    def is_dictionary(self) -> bool:
        """Whether others point into it."""
        return self.kind == _DICTIONARY


def refuse_bombs(data: bytes) -> None:
    """Raise `Damaged` where reading would take more memory or time than the file's size explains, or where its pages are
    not where its footer says."""
    footer = _footer(data)
    groups, rows = _structs(footer, 4), _count(footer, 3)
    if len(groups) > MOST_GROUPS:
        raise Damaged("it has more row groups than a cache")
    budget, flat = _FREE + _RATIO * len(data), 0
    for group in groups:
        many = _count(group, 3)
        for chunk in _structs(group, 1):
            column = chunk.get(3)
            if not isinstance(column, dict) or 1 in chunk:
                raise Damaged("its columns lie in another file")
            pages = list(_pages(data, column))
            _refuse_counts(pages, many, column)
            size = sum(page.size for page in pages)
            repeated = max((page.size for page in pages if page.is_dictionary), default=0)
            budget -= size + repeated * many
            flat += size
        if budget < 0:
            raise Damaged("it would take more memory than its size explains")
    if max(rows, sum(_count(group, 3) for group in groups)) * _ROW_BYTES > flat:
        raise Damaged("it claims rows that it does not hold")


def column_pages(data: bytes, name: str) -> Iterator[tuple[int, int, list[Page]]]:
    """The codec, the number of rows and the pages of one column, row group by row group. Raises `Damaged`."""
    for group in _structs(_footer(data), 4):
        for chunk in _structs(group, 1):
            column = chunk.get(3)
            path = column.get(3) if isinstance(column, dict) else None
            if isinstance(column, dict) and isinstance(path, list) and path[:1] == [name.encode()]:
                yield _count(column, 4), _count(group, 3), list(_pages(data, column))


def _footer(data: bytes) -> Struct:
    size = int.from_bytes(data[-8:-4], "little")
    if size > min(_MOST_FOOTER_BYTES, len(data) - 12):
        raise Damaged("its footer is larger than a cache's")
    return _Compact(data, len(data) - 8 - size, len(data) - 8).struct()[0]


def _structs(found: Struct, number: int) -> list[Struct]:
    items = found.get(number)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Damaged("it is torn or not Parquet")
    return items


def _count(found: Struct, number: int) -> int:
    value = found.get(number)
    if type(value) is not int or value < 0:
        raise Damaged("it is torn or not Parquet")
    return value


def _refuse_counts(pages: list[Page], rows: int, column: Struct) -> None:
    values = sum(page.values for page in pages if not page.is_dictionary)
    path = column.get(3)
    most = rows * (_MOST_NUMBERS if isinstance(path, list) and len(path) > 1 else 1)
    if rows > MOST_GROUP_ROWS or values > most:
        raise Damaged("its pages do not hold what its footer says")


def _pages(data: bytes, column: Struct) -> Iterator[Page]:
    """The pages of one column of one row group, one behind the other."""
    start, dictionary = _count(column, 9), column.get(11, 0)
    if type(dictionary) is int and 0 < dictionary < start:
        start = dictionary
    end = start + _count(column, 7)
    if not 0 < start <= end <= len(data):
        raise Damaged("its pages do not lie where its footer says")
    while start < end:
        header, start = _Compact(data, start, end).struct()
        kind, size, packed = (_count(header, number) for number in (1, 2, 3))
        body: Struct = next((header[number] for number in (5, 7, 8) if isinstance(header.get(number), dict)), {})
        encoding = body.get(2)
        yield Page(start, packed, size, _count(body, 1), kind, encoding if type(encoding) is int else -1)
        start += packed
    if start != end:
        raise Damaged("its pages do not lie where its footer says")


class _Compact:
    """Reads one struct of Thrift's compact protocol; `data[at:end]` is all that it may look at."""

    _DEEPEST = 8

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data, self._at, self._end = data, at, end

    def struct(self, depth: int = 0) -> tuple[Struct, int]:
        """The struct that begins here, and where it ends."""
        found: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            if head & 15 in (1, 2):  # true and false, which take no byte of their own
                continue
            value = self._value(head & 15, depth)
            if value is not None:
                found[number] = value
        return found, self._at

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 4 | 5 | 6:
                return self._signed()
            case 8:
                return self._take(self._unsigned())
            case 9 | 10 if depth < self._DEEPEST:
                return self._list(depth + 1)
            case 12 if depth < self._DEEPEST:
                return self.struct(depth + 1)[0]
            case 1 | 2 | 3:
                self._take(1)
            case 7:
                self._take(8)
            case _:
                raise _torn()
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > self._end - self._at:  # each item takes a byte at least
            raise _torn()
        return [self._value(head & 15, depth) for _ in range(count)]

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self._end - self._at:
            raise _torn()
        self._at += size
        return self._data[self._at - size : self._at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise _torn()

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def _torn() -> Damaged:
    return Damaged("it is torn or not Parquet")
