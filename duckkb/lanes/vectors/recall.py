"""How much of what is nearest to a question is found: measured on questions that lie near to stored vectors."""

import numpy as np

from duckkb.lanes.vectors.cosine import Floats, Ints

QUESTIONS, DEPTH = 100, 10
_AWAY = 0.5  # length of the step that leads from a vector to a question: 27 degrees
_DECIMALS = 6
_BLOCK = 4096


def questions(unit: Floats) -> Floats:
    """At most `QUESTIONS` of these vectors, each moved by 27 degrees in a direction of its own; equal vectors give equal
    questions."""
    draw = np.random.default_rng(len(unit))
    chosen = np.sort(draw.permutation(len(unit))[:QUESTIONS])
    steps = draw.standard_normal((len(chosen), unit.shape[1]))
    steps *= _AWAY / np.linalg.norm(steps, axis=1, keepdims=True)
    made = unit[chosen] + steps
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    found: Floats = (made / lengths).astype(np.float32)
    return found


class Nearest:
    """The `DEPTH` rows nearest to each question among those that were shown; of equally near ones the first."""

    def __init__(self, asked: Floats) -> None:
        self.asked = asked
        self._scores = np.full((len(asked), DEPTH), -np.inf, np.float32)
        self._rows = np.full((len(asked), DEPTH), -1, np.int64)

    def show(self, unit: Floats, first: int) -> None:
        """Rows of unit length; the first of them has this number. Numbers rise from one call to the next."""
        for start in range(0, len(unit), _BLOCK):
            self._show(unit[start : start + _BLOCK], first + start)

    def _show(self, unit: Floats, first: int) -> None:
        scores = (self.asked @ unit.T).round(_DECIMALS)
        near = np.flatnonzero((scores > self._scores[:, -1:]).any(axis=0))
        if not len(near):
            return
        scores = np.hstack((self._scores, scores[:, near]))
        rows = np.hstack((self._rows, np.broadcast_to(first + near, (len(scores), len(near)))))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
        self._scores = np.take_along_axis(scores, best, axis=1)
        self._rows = np.take_along_axis(rows, best, axis=1)

    @property
    def rows(self) -> list[Ints]:
        """By question, best first."""
        return [found[found >= 0] for found in self._rows]


def recall(found: list[Ints], right: list[Ints]) -> float:
    """The share of what is right that was found, over all questions; 1 where nothing was to be found."""
    hits = sum(len(np.intersect1d(one, other)) for one, other in zip(found, right, strict=True))
    return round(hits / (sum(map(len, right)) or 1), 4) if any(map(len, right)) else 1.0
