"""Makes the places (`places`) of a cache file that was read whole: where each row's payload lies in which page."""

from contextlib import suppress
from pathlib import Path

import numpy as np

from duckkb.indexing import places
from duckkb.indexing.cache_files import Damaged
from duckkb.indexing.cache_format import Segment, fixed, flat
from duckkb.indexing.parquet_pages import Page, column_pages
from duckkb.values import dataclass

_DATA_PAGE, _PLAIN_ENCODING = 0, 0
_LEVELS = {"tokens": 1, "vector": 2}
"""Lists of levels before the values of a page: whether a value is there, and where a list begins."""


@dataclass(frozen=True)
class _Extents:
    """Of each row, in the order of the file: bytes of the payload, bytes before it (a text's length), and how many values
    Parquet counts it as."""

    lengths: np.ndarray
    ahead: int
    values: np.ndarray


def keep_places(data: bytes, segment: Segment, file_hash: str, state_home: Path) -> None:
    """Make and store them. Does nothing for a file with rows that were left out, of another kind, or written otherwise than
    duckkb writes: that one is always read whole."""
    table = segment.table
    if segment.left_out or len(segment.index) != table.num_rows or not table.num_rows:
        return
    with suppress(_Otherwise, Damaged, ValueError, OSError):
        found = list(column_pages(data, segment.payload_column))
        if sum(rows for _, rows, _ in found) != table.num_rows:
            raise _Otherwise
        pages = [(page, codec) for codec, _, pages in found for page in pages]
        page_of, at, lengths = _located(segment, data, pages)
        names = table["fingerprint"].combine_chunks().dictionary_encode()
        keys, contents, sums = (fixed(table[name]) for name in ("key", "content_hash", "checksum"))
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        columns = [b"".join(column[row] for row in order.tolist()) for column in (keys, contents, sums)]
        columns.append(names.indices.to_numpy().astype("<u2")[order].tobytes())
        columns += [numbers[order].astype("<u4").tobytes() for numbers in (page_of, at, lengths)]
        listed = [(page.at, page.packed, page.size, codec) for page, codec in pages]
        places.store(state_home, file_hash, segment.kind, columns, (listed, names.dictionary.to_pylist()))


class _Otherwise(Exception):
    """The file is laid out in a way that is not ours."""


def _located(segment: Segment, data: bytes, pages: list[tuple[Page, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row, in the order of the file: its page, the place of its payload in the page, and the payload's length."""
    extents = _extents(segment)
    value_ends = np.cumsum(extents.values)
    page_ends = np.cumsum([page.values for page, _ in pages])
    if not len(pages) or page_ends[-1] != value_ends[-1]:
        raise _Otherwise
    page_of = np.searchsorted(page_ends, value_ends)  # the first page that ends with the row, or behind it
    first_page = np.searchsorted(page_ends, value_ends - extents.values, side="right")
    if (page_of != first_page).any():
        raise _Otherwise
    sizes = extents.lengths + extents.ahead
    starts = np.cumsum(sizes) - sizes
    first_rows = np.searchsorted(page_of, np.arange(len(pages)))
    body = np.array([_body(segment, data, page, codec) for page, codec in pages])
    held = np.add.reduceat(sizes, first_rows)
    if (body + held != np.array([page.size for page, _ in pages])).any():
        raise _Otherwise
    return page_of, body[page_of] + starts - starts[first_rows[page_of]] + extents.ahead, extents.lengths


def _extents(segment: Segment) -> _Extents:
    column = segment.table[segment.payload_column].combine_chunks()
    if segment.kind == "vector":
        _, offsets = flat(column)
        counts = np.diff(offsets).astype(np.int64)
        return _Extents(4 * counts, 0, counts)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return _Extents(np.diff(offsets).astype(np.int64), 4, np.ones(len(column), np.int64))


def _body(segment: Segment, data: bytes, page: Page, codec: int) -> int:
    """Where the values of a page begin, behind its levels."""
    if page.kind != _DATA_PAGE or page.encoding != _PLAIN_ENCODING:
        raise _Otherwise
    unpacked = places.unpack(data[page.at : page.at + page.packed], page.size, codec)
    at = 0
    for _ in range(_LEVELS[segment.kind]):
        at += 4 + int.from_bytes(unpacked[at : at + 4], "little")
    return at
