"""The vector lane's preparation: a question as a vector, and the stored chunks that still lack one."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duckkb.engine.base import EMBED_BATCH, Base, batches
from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType
from duckkb.queries import Notice, Plan
from duckkb.search import syntax

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Embedded:
    """A question's vector, None where the lane had to be given up, with what must be said about it."""

    vector: "np.ndarray | Sequence[float] | None"
    notices: tuple[Notice, ...] = ()


def embed_query(
    base: Base,
    kinds: Sequence[RecordType],
    text: str | None,
    given: "np.ndarray | Sequence[float] | None",
    chosen: Plan,
) -> Embedded:
    """The vector to search by. A hybrid search without a usable model goes on lexically and says so (W_DEGRADED);
    a similar search raises `errors.Unavailable`."""
    try:
        vector = given if given is not None else _question(base, text or "", chosen)
    except Unavailable as problem:
        if chosen.mode != "hybrid":
            raise
        return Embedded(None, (_degraded(f"answered without vectors: {problem.message}", problem.suggestion),))
    notices = fill_pending(base, kinds) if given is None else _count_pending(base, kinds)
    return Embedded(vector, notices)


def _question(base: Base, text: str, chosen: Plan) -> "np.ndarray":
    asked = syntax.plain_text(text) if chosen.mode == "hybrid" else text
    found: np.ndarray = base.wiring.embedder.embed_queries([asked or text])[0]
    base.expect(len(found))
    return found


def fill_pending(base: Base, kinds: Sequence[RecordType]) -> tuple[Notice, ...]:
    """Compute missing vectors for at most `search.embed_wait_s` seconds; what is left is counted in a notice."""
    deadline = time.monotonic() + base.settings.embed_wait_s
    try:
        dropped = -1
        while dropped != base.cache.dropped:  # a type may show that the rows given to one before it were forged
            dropped = base.cache.dropped
            for kind in kinds:
                _fill(base, kind, deadline)
    except Unavailable as problem:
        return _count_pending(base, kinds, problem.message)
    finally:
        base.cache.save()
    return _count_pending(base, kinds)


def _fill(base: Base, kind: RecordType, deadline: float) -> None:
    base.ensure(kind, entries=True)
    base.adopt(kind, lambda: time.monotonic() < deadline)
    missing = sorted(base.backend.pending(kind), key=lambda item: len(item[1]))
    for batch in batches(missing, EMBED_BATCH):
        if time.monotonic() > deadline:
            break
        base.backend.fill(kind, base.embed(dict(batch), save=False, until=deadline))


def _count_pending(base: Base, kinds: Sequence[RecordType], failure: str = "") -> tuple[Notice, ...]:
    for kind in kinds:
        base.ensure(kind, entries=True)
    left = sum(len(base.backend.pending(kind)) for kind in kinds)
    if not left:
        return ()
    why = f": {failure}" if failure else ""
    return (_degraded(f"{left} chunks have no vector yet{why}", "duckkb index build"),)


def _degraded(message: str, remedy: str) -> Notice:
    return Notice("W_DEGRADED", message, remedy)
