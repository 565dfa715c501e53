"""Sets of record ids as sorted numbers: what a filter finds is handed on, and cut, without an object for each id."""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class IdSet(Set[int]):
    """Implements `collections.abc.Set` over `array`: int64, rising, each id once; not to be written to. One id is looked up
    by bisection: to look up many, ask `holds`. Where it holds the records that have certain texts in certain fields, and no
    others, `texts` has those: (field, text)."""

    __slots__ = ("array", "texts")

    def __init__(self, array: "NDArray[np.int64]", texts: Sequence[tuple[str, str]] = ()) -> None:
        self.array = array
        self.texts = tuple(texts)

    @classmethod
    def of(cls, ids: Iterable[int]) -> "IdSet":
        """The set of these ids; itself where it is one already."""
        import numpy as np

        return ids if isinstance(ids, IdSet) else cls(np.unique(np.fromiter(ids, np.int64)))

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return cls.of(it)

    def holds(self, ids: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which of these ids are in the set, in their order."""
        import numpy as np

        if not len(self.array):
            return np.zeros(len(ids), np.bool_)
        at = np.searchsorted(self.array, ids)
        at[at == len(self.array)] = 0
        mask: NDArray[np.bool_] = self.array[at] == ids
        return mask

    def within(self, other: "IdSet") -> "IdSet":
        """The ids that are in the other set too; quick where this one is the smaller."""
        return IdSet(self.array[other.holds(self.array)])

    def without(self, ids: Iterable[int]) -> "IdSet":
        """The set with these ids taken out."""
        removed_ids = IdSet.of(ids)
        return IdSet(self.array[~removed_ids.holds(self.array)])

    def __contains__(self, record_id: object) -> bool:
        if not isinstance(record_id, int):
            return False
        at = int(self.array.searchsorted(record_id))
        return at < len(self.array) and int(self.array[at]) == record_id

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    def __len__(self) -> int:
        return len(self.array)
