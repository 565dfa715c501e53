"""Which edges touch a node: the ends of one edge type's records, by the value that stands in the file."""

from collections.abc import Iterable, Iterator
from typing import Literal

from duckkb.records import Component, Identity, TypedEnd
from duckkb.values import dataclass

Side = Literal["out", "in"]
Ref = tuple[str, Identity]
"""A node: the name of its type and its identity."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A bare end that exists in several of the allowed types."""

    types: tuple[str, ...]


End = Ref | Ambiguous | None
"""What an end of an edge leads to; None where it dangles."""


def bare_end(identity: Identity) -> Component:
    """A node's identity as a bare end of an edge: the scalar, or a tuple where it has several components."""
    scalars = tuple(part for part in identity if isinstance(part, (str, int)))
    return scalars[0] if len(scalars) == 1 else scalars


def end_identity(component: Component) -> Identity:
    """The node's identity that an end names."""
    match component:
        case TypedEnd(id=parts):
            return parts
        case tuple():
            return component
        case _:
            return (component,)


class EdgeEnds:
    """The edges of one type by either end."""

    def __init__(self, edges: Iterable[Identity]) -> None:
        self._at: dict[tuple[Side, Component], set[Identity]] = {}
        self.change(edges, ())

    def change(self, appeared: Iterable[Identity], vanished: Iterable[Identity]) -> None:
        for identity in vanished:
            for key in _keys(identity):
                edges = self._at[key]
                edges.discard(identity)
                if not edges:
                    del self._at[key]
        for identity in appeared:
            for key in _keys(identity):
                self._at.setdefault(key, set()).add(identity)

    def at(self, side: Side, component: Component) -> set[Identity]:
        """Identities of the edges that leave (`out`) or reach (`in`) this end as it is written."""
        return self._at.get((side, component), set())


def _keys(identity: Identity) -> Iterator[tuple[Side, Component]]:
    yield "out", identity[0]
    yield "in", identity[1]
