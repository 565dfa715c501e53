"""How fast each model was in the last job on this machine, so that the next plan can say how long it will take."""

from dataclasses import asdict
from typing import Any

from duckkb.engine.base import Base
from duckkb.entries import Fingerprint
from duckkb.values import dataclass

NAME = "rates"
_FEWEST = 32
"""Texts from which on a rate says more of the model than of its start."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput of one model; `measured` is UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`."""

    texts_per_s: float
    tokens_per_s: float
    measured: str


def recall(base: Base, model: Fingerprint) -> Rate | None:
    """The model's rate; None where none was measured here."""
    try:
        return Rate(**_read(base)[str(model)])
    except (KeyError, TypeError):
        return None


def remember(base: Base, model: Fingerprint, texts: int, tokens: int, seconds: float) -> None:
    """Write down what was measured, if it was enough to go by."""
    if texts < _FEWEST or seconds <= 0:
        return
    rate = Rate(round(texts / seconds, 2), round(tokens / seconds, 1), base.wiring.clock.now())
    base.notes.keep(NAME, _read(base) | {str(model): asdict(rate)})


def _read(base: Base) -> dict[str, Any]:
    told = base.notes.note(NAME)
    return told if isinstance(told, dict) else {}
