"""Vectors: a question as one, the stored chunks that still lack one, and how far records are from a text.

Both a text and a record are taken chunk by chunk; distances are cosine distances."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from importlib.util import find_spec
from typing import TYPE_CHECKING

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.embedding import SMALL_BATCH, by_length, embed, embed_until
from duckkb.errors import Unavailable
from duckkb.llm.windows import mean_of
from duckkb.ontology.model import RecordType
from duckkb.ports import Embedder
from duckkb.queries import Notice, Plan
from duckkb.records import Record
from duckkb.search import syntax
from duckkb.truth.files.part import StoredRow
from duckkb.values import dataclass

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray | Sequence[float]

_DECIMALS = 6  # to which the vector lane is exact


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
        return _ready(base, kinds, {kind.name: given for kind in kinds if kind.vectors})
    try:
        vectors = _questions(base, kinds, text or "", chosen)
    except Unavailable as problem:
        if chosen.mode != "hybrid":
            raise
        return Embedded({}, (_degraded(f"answered without vectors: {problem.message}", problem.suggestion),))
    return _ready(base, kinds, vectors)


def _ready(base: Base, kinds: Sequence[RecordType], vectors: "Mapping[str, Vector]") -> Embedded:
    notices = fill_pending(base, kinds)
    return Embedded(vectors, (*notices, *without_graph(base, [kind for kind in kinds if kind.name in vectors])))


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
                base.cache.dimensions.expect(model.fingerprint, len(found[model]))
            vectors[kind.name] = found[model]
    return vectors


def fill_pending(base: Base, kinds: Sequence[RecordType]) -> tuple[Notice, ...]:
    """Compute missing vectors for at most `search.embed_wait_s` seconds; how many that were, and what is left, is told."""
    deadline = time.monotonic() + base.settings.embed_wait_s
    made: set[bytes] = set()
    why = ""
    try:
        for kind in kinds:
            if kind.has_text_vectors:
                _fill(base, kind, deadline, made)
    except Unavailable as problem:
        why = f": {problem.message}"
    finally:
        base.cache.save()
    left = _lacking(base, kinds)
    said = (_degraded(f"{left} chunks have no vector yet{why}", "duckkb index build"),) if left else ()
    return (*_computed(made), *said)


@boot.answered
def count_lacking(base: Base, kinds: Sequence[RecordType]) -> int:
    """How many chunks of these types have no vector."""
    return _lacking(base, kinds)


def _lacking(base: Base, kinds: Sequence[RecordType]) -> int:
    return sum(len(base.lanes(kind).vectors.lacking()) for kind in kinds if kind.vectors)


def _fill(base: Base, kind: RecordType, deadline: float, made: set[bytes]) -> None:
    """Give the lane the vectors that caches have, also one that this machine did not make, once a sample of it has been
    recomputed and agrees; then compute the others. Raises `errors.Unavailable` where there is no model."""
    _discard_other_lengths(base, kind)
    lacking = dict(base.lanes(kind).vectors.lacking())
    if not lacking:
        return
    model = base.embedder(kind)
    base.cache.verify_vectors(lacking, model.embed_passages, lambda: time.monotonic() < deadline)
    missing = base.cache.lacking("vector", lacking, model.fingerprint)
    base.lanes(kind).vectors.arrived(lacking.keys() - missing)
    for batch in by_length({key: lacking[key] for key in missing}, SMALL_BATCH):
        if time.monotonic() > deadline:
            break
        vectors = embed_until(base, kind, batch, deadline)
        made.update(vectors)
        base.lanes(kind).vectors.arrived(vectors)


def _has_faiss() -> bool:
    try:
        return find_spec("faiss") is not None
    except (ImportError, ValueError):
        return False


def _computed(made: Collection[bytes]) -> tuple[Notice, ...]:
    if not made:
        return ()
    said = f"{len(made)} vectors that no cache had were computed for this answer"
    return (Notice("W_COMPUTED", said, "duckkb index build, on the main branch"),)


def _discard_other_lengths(base: Base, kind: RecordType) -> None:
    """Vectors of a model that was exchanged under its name are as good as none."""
    model = base.fingerprint(kind)
    wanted = base.cache.dimensions.of(model) if model is not None else 0
    if wanted and not kind.given_vectors:
        lane = base.lanes(kind).vectors
        lane.lacking()  # which opens it
        if (lane.account() or {"dimension": 0})["dimension"] not in (0, wanted):
            base.lanes(kind).discard()


def without_graph(base: Base, kinds: Iterable[RecordType]) -> tuple[Notice, ...]:
    """Where all vectors are compared though the settings want a graph, because there is none."""
    found = []
    for kind in kinds:
        settings = kind.settings(base.settings).vectors
        if not kind.vectors or settings.ann == "exact" or base.rows(kind).version.folder is None:
            continue
        told = base.lanes(kind).vectors.account()
        if told is not None and told["ann"] == "exact" and told["rows"] and settings.wants_graph(told["rows"]):
            found.append(_exact(kind))
    return tuple(found)


def _exact(kind: RecordType) -> Notice:
    is_installed = _has_faiss()
    remedy = "duckkb index refresh" if is_installed else "pip install 'duckkb[ann]', then `duckkb index refresh`"
    why = "has not been made" if is_installed else "needs faiss, which is not installed"
    return Notice("W_EXACT", f"{kind.name}: all vectors were compared, as the graph {why}", remedy)


def _degraded(message: str, remedy: str) -> Notice:
    return Notice("W_DEGRADED", message, remedy)


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
    return base.builder.needs(kind, [Record(kind.name, 0, ("",), {field: text}, "", "")]).vectors
