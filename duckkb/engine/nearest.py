"""How far records are from a text. Both are taken chunk by chunk; distances are cosine distances."""

from collections import defaultdict
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from duckkb.engine.base import Base
from duckkb.engine.embedding import embed
from duckkb.llm.windows import mean_of
from duckkb.ontology.model import RecordType
from duckkb.records import Record
from duckkb.truth.files.tree import StoredRow

if TYPE_CHECKING:
    import numpy as np

_DECIMALS = 6  # to which the vector lane is exact


def embed_before(base: Base, kind: RecordType, field: str, text: str) -> None:
    """Have the vectors of a text in the cache before it is stored; raises `errors.Unavailable`."""
    texts = _chunks(base, kind, field, text)
    model = base.embedder(kind)
    if not texts:
        model.embed_passages([text])  # which says why there is no model
    missing = {key: texts[key] for key in base.cache.lacking("vector", texts, model.fingerprint)}
    if missing:
        embed(base, kind, missing)


def question(base: Base, kind: RecordType, field: str, text: str) -> "np.ndarray":
    """The vectors of a question's chunks, float32 of shape (chunks, dimension); raises `errors.Unavailable`."""
    model = base.embedder(kind)
    vectors = model.embed_queries(list(_chunks(base, kind, field, text).values()) or [text])
    base.cache.dimensions.expect(model.fingerprint, vectors.shape[1])
    return vectors


def nearest(
    base: Base, kind: RecordType, chunks: "np.ndarray", limit: int, allowed: Set[int] | None = None
) -> list[tuple[StoredRow, float]]:
    """The `limit` records, out of `allowed` where given, nearest to a question that is given as the vectors of its chunks;
    each with its distance, 0 to 2: for each chunk of the question that of the record's best one, and the mean of these."""
    depth = limit if len(chunks) == 1 else base.tree.count(kind)
    found: dict[int, list[float]] = defaultdict(list)
    for chunk in chunks:
        for hit in base.lanes(kind).vectors.ask(chunk, depth, allowed):
            found[hit.id].append(1.0 - hit.score)
    distances = {number: max(0.0, round(sum(some) / len(chunks), _DECIMALS)) for number, some in found.items()}
    rows = [(row, distance) for number, distance in distances.items() if (row := base.tree.by_id(kind, number))]
    return sorted(rows, key=lambda one: one[1])[:limit]


def embeddings(base: Base, kind: RecordType, field: str, rows: Sequence[StoredRow]) -> list[list[float] | None]:
    """For each record the mean of its chunks' vectors, of unit length; None where one of them is missing."""
    return [_embedding(base, kind, field, row) for row in rows]


def _embedding(base: Base, kind: RecordType, field: str, row: StoredRow) -> list[float] | None:
    found = [entry.vector for entry in base.rows(kind)[row.record.id].entries if entry.field == field]
    vectors = [vector for vector in found if vector is not None]
    return mean_of(vectors) if vectors and len(vectors) == len(found) else None


def _chunks(base: Base, kind: RecordType, field: str, text: str) -> dict[bytes, str]:
    """The chunks of a text by the keys of their vectors; none where there is no model to name them by."""
    return base.builder.wanted(kind, [Record(kind.name, 0, ("",), {field: text}, "", "")])[1]
