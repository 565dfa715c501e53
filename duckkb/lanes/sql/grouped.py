"""The ids of records by the values of one column: what conditions that ask again and again are answered from."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from duckkb.id_set import IdSet

if TYPE_CHECKING:
    import pyarrow as pa

_REPEATED = 16  # rows for each value, on the average, from which on it pays
_LEAST = 2_000  # rows below which a comparison of all costs nothing
_SAMPLE = 1_000  # the first rows, which tell without cost that values hardly repeat


class Grouped:
    """Ids that lie together by value, rising within each."""

    def __init__(self, ids: "NDArray[np.int64]", codes: "NDArray[np.int32]", values: Iterable[Hashable]) -> None:
        order = np.lexsort((ids, codes))
        self._ids = ids[order]
        self._codes = {value: code for code, value in enumerate(values)}
        self._starts = np.searchsorted(codes[order], np.arange(len(self._codes) + 1))

    @classmethod
    def of(cls, ids: "NDArray[np.int64]", column: "pa.ChunkedArray") -> "Grouped | None":
        """None where the values hardly repeat, or the rows are few."""
        if len(ids) < _LEAST or len(column.slice(0, _SAMPLE).unique()) * 2 > _SAMPLE:
            return None
        coded = column.combine_chunks().dictionary_encode()
        if len(coded.dictionary) * _REPEATED > len(ids):
            return None
        codes: NDArray[np.int32] = coded.indices.fill_null(-1).to_numpy()
        return cls(ids, codes, coded.dictionary.to_pylist())

    def among(self, values: Iterable[Hashable]) -> IdSet:
        """The ids of the records that have one of the values."""
        codes = [self._codes[value] for value in dict.fromkeys(values) if value in self._codes]
        pieces = [self._ids[self._starts[code] : self._starts[code + 1]] for code in codes]
        if len(pieces) == 1:
            return IdSet(pieces[0])
        return IdSet(np.sort(np.concatenate(pieces))) if pieces else IdSet.of(())
