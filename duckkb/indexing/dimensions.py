"""How long the vectors of each model are: said by the model, expected, or that of most that are seen."""

from collections import Counter
from collections.abc import Sequence, Sized
from typing import TypeVar

from duckkb.entries import Fingerprint

Vector = TypeVar("Vector", bound=Sized)


class Dimensions:
    """By model; a model that names its dimension is believed."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, model: Fingerprint) -> int:
        """What was expected or seen last; 0 where that is unknown."""
        return self._known.get(str(model), 0)

    def expect(self, model: Fingerprint, dimension: int) -> None:
        """Others do not fit from now on."""
        self._known[str(model)] = dimension

    def fitting(self, model: Fingerprint, vectors: Sequence[Vector | None]) -> list[Vector | None]:
        """The vectors, None for those of another length."""
        dimension = model.dimension
        lengths = Counter(len(vector) for vector in vectors if vector is not None)
        if not dimension and lengths:
            dimension = self._known.setdefault(str(model), lengths.most_common(1)[0][0])
        return [vector if vector is not None and len(vector) == dimension else None for vector in vectors]
