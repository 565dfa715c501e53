"""The vector lane's preparation: a question as a vector, and the stored chunks that still lack one."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from duckkb.engine.base import Base
from duckkb.engine.index.embedding import SMALL_BATCH, by_length, embed_until
from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType
from duckkb.ports import Embedder
from duckkb.queries import Notice, Plan
from duckkb.search import syntax
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray | Sequence[float]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A question's vector by the name of each type that is asked, as types may have models of their own; none where the
    lane had to be given up; with what must be said about it."""

    vectors: "Mapping[str, Vector]"
    notices: tuple[Notice, ...] = ()


def embed_query(
    base: Base,
    kinds: Sequence[RecordType],
    text: str | None,
    given: "Vector | None",
    chosen: Plan,
) -> Embedded:
    """The vector to search by. A hybrid search without a usable model goes on lexically and says so (W_DEGRADED);
    a similar search raises `errors.Unavailable`."""
    if given is not None:
        return Embedded({kind.name: given for kind in kinds if kind.vectors}, fill_pending(base, kinds))
    try:
        vectors = _questions(base, kinds, text or "", chosen)
    except Unavailable as problem:
        if chosen.mode != "hybrid":
            raise
        return Embedded({}, (_degraded(f"answered without vectors: {problem.message}", problem.suggestion),))
    return Embedded(vectors, fill_pending(base, kinds))


def _questions(base: Base, kinds: Sequence[RecordType], text: str, chosen: Plan) -> "dict[str, Vector]":
    """The question as each type's model sees it; asked once of each model."""
    asked = syntax.wanted(text) if chosen.mode == "hybrid" else text
    found: dict[Embedder, np.ndarray] = {}
    vectors: dict[str, Vector] = {}
    for kind in kinds:
        if kind.has_text_vectors:
            model = base.embedder(kind)
            if model not in found:
                found[model] = model.embed_queries([asked or text])[0]
                base.expect(model, len(found[model]))
            vectors[kind.name] = found[model]
    return vectors


def fill_pending(base: Base, kinds: Sequence[RecordType]) -> tuple[Notice, ...]:
    """Compute missing vectors for at most `search.embed_wait_s` seconds; how many that were, and what is left, is told."""
    deadline = time.monotonic() + base.settings.embed_wait_s
    made: set[bytes] = set()
    try:
        base.until_honest(
            lambda: _fill_all(base, kinds, deadline, made)
        )  # one type may show what another one was given
    except Unavailable as problem:
        return (*_computed(made), *_count_pending(base, kinds, problem.message))
    finally:
        base.cache.save()
    return (*_computed(made), *_count_pending(base, kinds))


def _fill_all(base: Base, kinds: Sequence[RecordType], deadline: float, made: set[bytes]) -> None:
    for kind in kinds:
        if kind.has_text_vectors:
            _fill(base, kind, deadline, made)


def _fill(base: Base, kind: RecordType, deadline: float, made: set[bytes]) -> None:
    base.ensure(kind)
    _refuse_other_lengths(base, kind)
    base.adopt(kind, lambda: time.monotonic() < deadline)
    for batch in by_length(dict(base.backend.pending(kind)), SMALL_BATCH):
        if time.monotonic() > deadline:
            break
        vectors = embed_until(base, kind, batch, deadline)
        made.update(vectors)
        base.backend.fill(kind, vectors)


def _computed(made: Collection[bytes]) -> tuple[Notice, ...]:
    if not made:
        return ()
    said = f"{len(made)} vectors that no cache had were computed for this answer"
    return (Notice("W_COMPUTED", said, "duckkb index build, on the main branch"),)


def _refuse_other_lengths(base: Base, kind: RecordType) -> None:
    """Vectors of a model that was exchanged under its name are as good as none."""
    model = base.fingerprint(kind)
    wanted = base.cache.dimensions.of(model) if model is not None else 0
    if wanted and not kind.given_vectors and base.backend.dimension(kind) not in (0, wanted):
        base.backend.discard(kind)


def _count_pending(base: Base, kinds: Sequence[RecordType], failure: str = "") -> tuple[Notice, ...]:
    for kind in kinds:
        base.ensure(kind)
    left = sum(len(base.backend.pending(kind)) for kind in kinds)
    if not left:
        return ()
    why = f": {failure}" if failure else ""
    return (_degraded(f"{left} chunks have no vector yet{why}", "duckkb index build"),)


def _degraded(message: str, remedy: str) -> Notice:
    return Notice("W_DEGRADED", message, remedy)
