"""Sets of record ids as sorted numbers, so that results of filters need no object for each id."""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class IdSet(Set[int]):
    """An immutable `collections.abc.Set` over `array`: int64, ascending, each id once.

    A single id is looked up by bisection; use `holds` to look up many. `texts` are pairs (field, text). It is
    set where the ids are exactly the records that have these texts in these fields.
    """

    __slots__ = ("array", "texts")

    def __init__(self, array: "NDArray[np.int64]", texts: Sequence[tuple[str, str]] = ()) -> None:
        self.array = array
        self.texts = tuple(texts)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> "IdSet":
        """Return the set of these ids; an `IdSet` is returned as it is."""
        import numpy as np

        return ids if isinstance(ids, IdSet) else cls(np.unique(np.fromiter(ids, np.int64)))

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return cls.from_ids(it)

    def holds(self, ids: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Return a mask that tells which of these ids are in the set, in their order."""
        import numpy as np

        if not len(self.array):
            return np.zeros(len(ids), np.bool_)
        at = np.searchsorted(self.array, ids)
        at[at == len(self.array)] = 0
        mask: NDArray[np.bool_] = self.array[at] == ids
        return mask

    def intersection(self, other: "IdSet") -> "IdSet":
        """Return the ids that are in both sets; fast where this set is the smaller."""
        return IdSet(self.array[other.holds(self.array)])

    def difference(self, ids: Iterable[int]) -> "IdSet":
        """Return the set without these ids."""
        removed_ids = IdSet.from_ids(ids)
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
