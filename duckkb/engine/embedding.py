"""Texts become vectors, batch by batch, and each is kept in the local cache: for writes, searches and index jobs alike."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from duckkb.engine.base import Base
from duckkb.errors import Unavailable
from duckkb.llm.waiting import side_by_side, within
from duckkb.ontology.model import RecordType
from duckkb.ports import Embedder
from duckkb.settings import EmbeddingSettings
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np

SMALL_BATCH = 16
"""Texts that are embedded at once where somebody waits for the answer."""

_LOCAL_BATCH = 64
_REMOTE_WIDTH = 4
_SAVE_ROWS = 512
_SAVE_SECONDS = 5.0

Texts = Mapping[bytes, str]
"""Texts by the keys of their vectors."""


@dataclass(frozen=True, slots=True)
class Made:
    """One batch: its texts and their vectors by key, or the problem that kept the model from making them."""

    texts: Texts
    vectors: "Mapping[bytes, np.ndarray]"
    problem: Unavailable | None = None


def batch_size(base: Base, kind: RecordType) -> int:
    """Texts that the type's model is given at once."""
    settings = kind.settings(base.settings).embedding
    return settings.batch_size if settings.base_url else _LOCAL_BATCH


def by_length(texts: Texts, size: int) -> "Iterator[Texts]":
    """Batches of texts of like length, the shortest first: a model pads what it is given together."""
    ordered = sorted(texts.items(), key=lambda item: len(item[1]))
    return (dict(batch) for batch in batches(ordered, size))


def stream(base: Base, kind: RecordType, texts: Iterable[Texts]) -> Generator[Made, None, None]:
    """Vectors for batches of a type's texts as they are made, each in the cache already; saved now and then, and at the
    end. A batch that fails is given back with its problem and takes no other with it."""
    model = base.embedder(kind)
    saved = time.monotonic()
    try:
        found = side_by_side(texts, lambda batch: model.embed_passages(list(batch.values())), _width(base, kind))
        for batch, vectors in found:
            yield _kept(base, model, batch, vectors)
            if base.cache.unsaved >= _SAVE_ROWS or time.monotonic() - saved > _SAVE_SECONDS:
                base.cache.save()
                saved = time.monotonic()
    finally:
        base.cache.save()


def embed(base: Base, kind: RecordType, texts: Texts) -> "dict[bytes, np.ndarray]":
    """Vectors for texts of a type by their key; raises `errors.Unavailable`, and what was made until then is kept."""
    made: dict[bytes, np.ndarray] = {}
    with closing(stream(base, kind, by_length(texts, batch_size(base, kind)))) as found:
        for batch in found:
            if batch.problem:
                raise batch.problem
            made |= batch.vectors
            if base.wiring.progress:
                base.wiring.progress("embedding", len(made), len(texts))
    return made


def embed_until(base: Base, kind: RecordType, texts: Texts, until: float) -> "Mapping[bytes, np.ndarray]":
    """As `embed`, for one small batch, which is neither saved nor waited for beyond `until` (a time of the monotonic
    clock): then it raises `errors.Unavailable`."""
    model = base.embedder(kind)
    vectors = within(until - time.monotonic(), lambda: model.embed_passages(list(texts.values())))
    if vectors is None:
        raise Unavailable("the model did not answer in time", code="E_MODEL", suggestion="duckkb index build")
    made = _kept(base, model, texts, vectors)
    if made.problem:
        raise made.problem
    return made.vectors


def batches(items: "Sequence[Any]", size: int) -> "Iterable[Sequence[Any]]":
    """Consecutive slices of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _kept(base: Base, model: Embedder, texts: Texts, vectors: "np.ndarray | Unavailable") -> Made:
    """Put vectors into the cache, unless they are not of the length that the model's others have."""
    problem = vectors if isinstance(vectors, Unavailable) else _exchanged(base, model, vectors.shape[1])
    if problem or isinstance(vectors, Unavailable):
        return Made(texts, {}, problem)
    fresh = dict(zip(texts, vectors, strict=True))
    base.cache.add_vectors({key: (texts[key], vector) for key, vector in fresh.items()}, model.fingerprint)
    return Made(texts, fresh)


def _exchanged(base: Base, model: Embedder, dimension: int) -> Unavailable | None:
    """What is wrong with vectors of this length, made just now: the stored ones of the model have another."""
    known = base.cache.dimensions.of(model.fingerprint)
    if known in (0, dimension):
        return None
    return Unavailable(
        f"the model gives vectors of {dimension} numbers, the stored ones have {known}",
        code="E_MODEL",
        suggestion="if another model is meant, set global.embedding.dimensions, then `duckkb index build`",
    )


def _width(base: Base, kind: RecordType) -> int:
    """How many batches are embedded at the same time."""
    settings: EmbeddingSettings = kind.settings(base.settings).embedding
    return settings.concurrency or (_REMOTE_WIDTH if settings.base_url else 1)
