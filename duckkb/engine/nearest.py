"""How far records are from a text. Both are cut into windows, the chunks of a field; distances are cosine distances."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from duckkb.engine.base import Base
from duckkb.llm.windows import mean_of
from duckkb.ontology.model import RecordType
from duckkb.records import Record
from duckkb.truth.tree import StoredRow

if TYPE_CHECKING:
    import numpy as np

_DECIMALS = 6  # to which the vector lane is exact


def embed_before(base: Base, kind: RecordType, field: str, text: str) -> None:
    """Have the vectors of a text in the cache before it is stored; raises `errors.Unavailable`."""
    texts = _windows(base, kind, field, text)
    model = base.embedder(kind)
    if not texts:
        model.embed_passages([text])  # which says why there is no model
    known = base.cache.vectors(list(texts), model.fingerprint)
    missing = {key: window for (key, window), vector in zip(texts.items(), known, strict=True) if vector is None}
    if missing:
        base.embed(kind, missing)


def question(base: Base, kind: RecordType, field: str, text: str) -> "np.ndarray":
    """The vectors of a question's windows, float32 of shape (windows, dimension); raises `errors.Unavailable`."""
    model = base.embedder(kind)
    vectors = model.embed_queries(list(_windows(base, kind, field, text).values()) or [text])
    base.expect(model, vectors.shape[1])
    return vectors


def nearest(base: Base, kind: RecordType, windows: "np.ndarray", limit: int) -> list[tuple[StoredRow, float]]:
    """The `limit` records nearest to a question's windows, each with its distance, 0 to 2: for each window of the question
    that of the record's best one, and the mean of these."""
    depth = limit if len(windows) == 1 else base.tree.count(kind)
    found: dict[int, list[float]] = defaultdict(list)
    for window in windows:
        for hit in base.backend.similar(kind, window, depth):
            found[hit.id].append(1.0 - hit.score)
    distances = {number: max(0.0, round(sum(some) / len(windows), _DECIMALS)) for number, some in found.items()}
    rows = [(row, distance) for number, distance in distances.items() if (row := base.tree.by_id(kind, number))]
    return sorted(rows, key=lambda one: one[1])[:limit]


def embeddings(base: Base, kind: RecordType, field: str, rows: Sequence[StoredRow]) -> list[list[float] | None]:
    """For each record the mean of its windows' vectors, of unit length; None where one of them is missing."""
    return [_embedding(base, kind, field, row) for row in rows]


def _embedding(base: Base, kind: RecordType, field: str, row: StoredRow) -> list[float] | None:
    found = [entry.vector for entry in base.backend.entries(kind, row.record.id) if entry.field == field]
    vectors = [vector for vector in found if vector is not None]
    return mean_of(vectors) if vectors and len(vectors) == len(found) else None


def _windows(base: Base, kind: RecordType, field: str, text: str) -> dict[bytes, str]:
    """The windows of a text by the keys of their vectors; none where there is no model to name them by."""
    return base.builder.wanted(kind, [Record(kind.name, 0, ("",), {field: text}, "", "")])[1]
