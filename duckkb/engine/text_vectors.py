"""Vectors of texts, made batch by batch and kept in the local cache, for writes, searches and index jobs alike.

It also embeds questions, fills in the vectors that stored chunks lack, and measures the distance of records
from a text. Texts and records are compared chunk by chunk; distances are cosine distances.

A child process that makes the vectors of a first hybrid search, while this process makes the words.

A lane is made on little more than one core, and a large base that was just cloned needs both. The child uses
the records that this process has read, and writes the files of the lane."""

import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from duckkb.engine import boot, rank_fusion
from duckkb.engine.base import Base
from duckkb.llm.call_pool import side_by_side, wait_within
from duckkb.llm.embedder_contract import mean_of
from duckkb.ontology.model import RecordType
from duckkb.ports import Embedder
from duckkb.storage.part import StoredRow
from duckkb.types.errors import Unavailable
from duckkb.types.queries import Notice, Plan
from duckkb.types.records import Record
from duckkb.types.request_context import count_step
from duckkb.types.settings import EmbeddingSettings

if TYPE_CHECKING:
    import numpy as np

Vector: TypeAlias = "np.ndarray | Sequence[float]"

_DECIMALS = 6  # decimals to which the vector lane is exact
SMALL_BATCH = 16
"""Texts that are embedded at once while a caller waits for the answer."""

_LOCAL_BATCH = 64
_REMOTE_WIDTH = 4
_SAVE_ROWS = 512
_SAVE_SECONDS = 5.0

Texts = Mapping[bytes, str]
"""Texts by the keys of their vectors."""


class MadeVectors(Struct, frozen=True):
    """One batch: its texts and their vectors by key, or the problem that kept the model from making them."""

    texts: Texts
    vectors: "Mapping[bytes, np.ndarray]"
    problem: Unavailable | None = None


def batch_size(base: Base, kind: RecordType) -> int:
    """Return the number of texts that the type's model is given at once."""
    settings = kind.settings(base.settings).embedding
    return settings.batch_size if settings.address else _LOCAL_BATCH


def batch_by_length(texts: Texts, size: int) -> "Iterator[Texts]":
    """Yield batches of texts of similar length, shortest first, since a model pads the texts of a batch."""
    sorted_items = sorted(texts.items(), key=lambda item: len(item[1]))
    return (dict(batch) for batch in batches(sorted_items, size))


def stream(base: Base, kind: RecordType, texts: Iterable[Texts]) -> Generator[MadeVectors, None, None]:
    """Yield the vectors of batches of a type's texts as they are made; each is in the cache already.

    The cache is saved now and then, and at the end. A batch that fails is yielded with its problem and does not
    stop the others.
    """
    model = base.embedder(kind)
    saved_at = time.monotonic()
    try:
        for batch in stream_unsaved(base, kind, texts):
            _keep(base, model, batch)
            yield batch
            if base.cache.unsaved >= _SAVE_ROWS or time.monotonic() - saved_at > _SAVE_SECONDS:
                base.cache.save()
                saved_at = time.monotonic()
    finally:
        base.cache.save()


def stream_unsaved(base: Base, kind: RecordType, texts: Iterable[Texts]) -> Iterator[MadeVectors]:
    """Yield vectors as `stream` does, for callers who store them elsewhere than in the cache."""
    model = base.embedder(kind)
    results = side_by_side(texts, lambda batch: model.embed_passages(list(batch.values())), _choose_width(base, kind))
    return (_check_vectors(base, model, batch, vectors) for batch, vectors in results)


def embed(base: Base, kind: RecordType, texts: Texts) -> "dict[bytes, np.ndarray]":
    """Return the vectors of a type's texts by key; raises `errors.Unavailable`, and keeps what was made until
    then.
    """
    vectors: dict[bytes, np.ndarray] = {}
    size = batch_size(base, kind)
    if base.wiring.progress and len(texts) > size:  # the first batch takes a while
        base.wiring.progress("embedding", 0, len(texts))
    with closing(stream(base, kind, batch_by_length(texts, size))) as made_batches:
        for batch in made_batches:
            if batch.problem:
                raise batch.problem
            vectors |= batch.vectors
            if base.wiring.progress:
                base.wiring.progress("embedding", len(vectors), len(texts))
    return vectors


def embed_until(base: Base, kind: RecordType, texts: Texts, until: float) -> "Mapping[bytes, np.ndarray]":
    """Embed one small batch until `until` (monotonic clock), without saving the cache.

    Raises `errors.Unavailable` where the time is over.
    """
    model = base.embedder(kind)
    vectors = wait_within(until - time.monotonic(), lambda: model.embed_passages(list(texts.values())))
    if vectors is None:
        raise Unavailable("the model did not answer in time", code="E_MODEL", suggestion="duckkb index build")
    batch = _check_vectors(base, model, texts, vectors)
    if batch.problem:
        raise batch.problem
    _keep(base, model, batch)
    return batch.vectors


def batches(items: "Sequence[Any]", size: int) -> "Iterable[Sequence[Any]]":
    """Yield consecutive slices of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _check_vectors(base: Base, model: Embedder, texts: Texts, vectors: "np.ndarray | Unavailable") -> MadeVectors:
    """Return what the model gave; a problem where its length differs from the model's stored vectors."""
    problem = vectors if isinstance(vectors, Unavailable) else _check_dimension(base, model, vectors.shape[1])
    if problem or isinstance(vectors, Unavailable):
        return MadeVectors(texts, {}, problem)
    return MadeVectors(texts, dict(zip(texts, vectors, strict=True)))


def _keep(base: Base, model: Embedder, batch: MadeVectors) -> None:
    """Put a batch into the cache."""
    if batch.problem is None:
        rows = {key: (batch.texts[key], vector) for key, vector in batch.vectors.items()}
        base.cache.add_vectors(rows, model.fingerprint)
        base.register()


def _check_dimension(base: Base, model: Embedder, dimension: int) -> Unavailable | None:
    """Return the problem of vectors of this length, where the model's stored ones have another; None if they
    agree.
    """
    known_dimension = base.cache.dimensions.get_dimension(model.fingerprint)
    if known_dimension in (0, dimension):
        return None
    return Unavailable(
        f"the model gives vectors of {dimension} numbers, the stored ones have {known_dimension}",
        code="E_MODEL",
        suggestion="for another model set global.embedding.dimensions, then run `duckkb index build`",
    )


def _choose_width(base: Base, kind: RecordType) -> int:
    """Return the number of batches that are embedded at the same time."""
    settings: EmbeddingSettings = kind.settings(base.settings).embedding
    return settings.concurrency or (_REMOTE_WIDTH if settings.address else 1)


@count_step("embed")
def embed_query(
    base: Base,
    kinds: Sequence[RecordType],
    text: str | None,
    given: "Vector | None",
    chosen: Plan,
) -> "tuple[Mapping[str, Vector], tuple[Notice, ...]]":
    """Return the vectors to search by, by type name, and notices.

    A type whose model cannot be used is left out with a notice (W_DEGRADED). Raises `errors.Unavailable` where
    that leaves a similar search no type at all.
    """
    if given is not None:
        return _prepare_lanes(base, kinds, {kind.name: given for kind in kinds if kind.vectors})
    vectors, failures = _embed_questions(base, kinds, text or "", chosen)
    if failures and not vectors and chosen.mode != "hybrid":
        raise next(iter(failures))
    notices = base.filter_notices(
        _note_missing_types(names if vectors else (), problem) for problem, names in failures.items()
    )
    if not vectors:
        return {}, notices
    ready_vectors, following = _prepare_lanes(base, [kind for kind in kinds if kind.name in vectors], vectors)
    return ready_vectors, (*notices, *following)


def _note_missing_types(names: Sequence[str], problem: Unavailable) -> Notice:
    """Return the notice that the vectors of some types, or (without names) of all, are not in the answer."""
    whose = f" of {', '.join(names)}" if names else ""
    cause = f"embed_{problem.details.get('reason', 'failed')}"
    return Notice("W_DEGRADED", f"answered without vectors{whose}: {problem.message}", problem.suggestion, cause)


def _prepare_lanes(
    base: Base, kinds: Sequence[RecordType], vectors: "Mapping[str, Vector]"
) -> "tuple[Mapping[str, Vector], tuple[Notice, ...]]":
    searched_kinds = [kind for kind in kinds if kind.name in vectors]
    notices = (
        *compute_missing_vectors(base, kinds),
        *_note_other_lengths(base, searched_kinds),
        *note_missing_graphs(base, searched_kinds),
    )
    return vectors, notices


def _embed_questions(
    base: Base, kinds: Sequence[RecordType], text: str, search_plan: Plan
) -> "tuple[dict[str, Vector], dict[Unavailable, list[str]]]":
    """Embed the question once with each type's model; return also the errors of models, with their types."""
    question_text = rank_fusion.drop_exclusions(text) if search_plan.mode == "hybrid" else text
    answers: dict[Embedder, np.ndarray | Unavailable] = {}
    vectors: dict[str, Vector] = {}
    failures: dict[Unavailable, list[str]] = {}
    for kind in kinds:
        if not kind.has_text_vectors:
            continue
        model = base.embedder(kind)
        if model not in answers:
            answers[model] = _embed_question(base, model, question_text or text)
        answer = answers[model]
        if isinstance(answer, Unavailable):
            failures.setdefault(answer, []).append(kind.name)
        else:
            vectors[kind.name] = answer
    return vectors, failures


def _embed_question(base: Base, model: Embedder, text: str) -> "np.ndarray | Unavailable":
    try:
        vector: np.ndarray = model.embed_queries([text])[0]
    except Unavailable as problem:
        return problem
    base.cache.dimensions.expect(model.fingerprint, len(vector))
    return vector


def compute_missing_vectors(base: Base, kinds: Sequence[RecordType]) -> tuple[Notice, ...]:
    """Compute missing vectors for at most `search.embed_wait_s` seconds; notices count those made and left."""
    computed_keys: set[bytes] = set()
    why = fill_each(base, kinds, time.monotonic() + base.settings.embed_wait_s, computed_keys)
    missing_count = _count_missing(base, kinds)
    message = f"{missing_count} {'chunk has' if missing_count == 1 else 'chunks have'} no vector yet{why}"
    pending = (Notice("W_DEGRADED", message, "duckkb index build", "vectors_pending"),) if missing_count else ()
    return base.filter_notices([*_note_computation(computed_keys), *pending])


@boot.retry_if_stale
def count_missing_vectors(base: Base, kinds: Sequence[RecordType]) -> int:
    """Return the number of chunks of these types that have no vector."""
    return _count_missing(base, kinds)


def _count_missing(base: Base, kinds: Sequence[RecordType]) -> int:
    return sum(len(base.lanes(kind).vectors.list_missing_texts()) for kind in kinds if kind.vectors)


def fill_each(base: Base, kinds: Iterable[RecordType], deadline: float, made: set[bytes]) -> str:
    """Call `fill` for each type; return a text on the models that failed.

    Types with other models are not affected.
    """
    problems: dict[str, list[str]] = {}
    failed_models: set[Embedder] = set()
    try:
        for kind in kinds:
            if not kind.has_text_vectors:
                continue
            try:  # a failed model is not asked again; only caches are
                fill(base, kind, -math.inf if base.embedder(kind) in failed_models else deadline, made)
            except Unavailable as problem:
                failed_models.add(base.embedder(kind))
                problems.setdefault(problem.message, []).append(kind.name)
    finally:
        base.cache.save()
    return "".join(f"; {', '.join(names)}: {message}" for message, names in problems.items())


def fill(base: Base, kind: RecordType, deadline: float, made: set[bytes]) -> None:
    """Give the lane the vectors that caches have, then compute the others.

    Raises `errors.Unavailable` without a model.
    """
    for batch in batch_by_length(adopt_cached_vectors(base, kind, deadline), SMALL_BATCH):
        if time.monotonic() > deadline:
            break
        vectors = embed_until(base, kind, batch, deadline)
        made.update(vectors)
        base.lanes(kind).vectors.on_vectors_available(vectors)


def adopt_cached_vectors(base: Base, kind: RecordType, deadline: float) -> Texts:
    """Give the lane the vectors that caches have, and return the texts that have none.

    Vectors that this machine did not make count once a sample of them was recomputed and agrees. Raises
    `errors.Unavailable` where there is no model.
    """
    _discard_other_lengths(base, kind)
    lacking = dict(base.lanes(kind).vectors.list_missing_texts())
    if not lacking:
        return {}
    model = base.embedder(kind)
    base.cache.verify_vectors(lacking, model.embed_passages, lambda: time.monotonic() < deadline)
    missing = base.cache.list_missing_keys("vector", lacking, model.fingerprint)
    base.lanes(kind).vectors.on_vectors_available(lacking.keys() - missing)
    return {key: lacking[key] for key in missing}


def adopt_each(base: Base, kinds: Iterable[RecordType]) -> None:
    """Call `adopt_cached_vectors` for each type with a usable model, for at most `search.embed_wait_s` seconds."""
    deadline = time.monotonic() + base.settings.embed_wait_s
    for kind in kinds:
        if kind.has_text_vectors:
            with suppress(Unavailable):
                adopt_cached_vectors(base, kind, deadline)


def _has_faiss() -> bool:
    try:
        return find_spec("faiss") is not None
    except (ImportError, ValueError):
        return False


def _note_computation(computed_keys: Collection[bytes]) -> tuple[Notice, ...]:
    if not computed_keys:
        return ()
    message = f"{len(computed_keys)} vectors that no cache had were computed for this answer"
    return (Notice("W_COMPUTED", message, "`duckkb index build` on the main branch"),)


def _discard_other_lengths(base: Base, kind: RecordType) -> None:
    """Discard vectors of a model that was exchanged under the same name, recognized by their length."""
    model = base.fingerprint(kind)
    dimension = base.cache.dimensions.get_dimension(model) if model is not None else 0
    if dimension and not kind.given_vectors:
        lane = base.lanes(kind).vectors
        lane.list_missing_texts()  # opens the lane
        if (lane.account() or {"dimension": 0})["dimension"] not in (0, dimension):
            base.lanes(kind).discard()


def _note_other_lengths(base: Base, kinds: Iterable[RecordType]) -> tuple[Notice, ...]:
    """Return notices of records that are left out, because their given vectors have another length than their
    type's.
    """
    notices = []
    for kind in kinds:
        if kind.given_vectors and (count := base.observe_fields(kind).other_lengths()):
            expected_lengths = " and ".join(f"{length} ({name})" for name, length in base.lengths(kind).items())
            message = f"{kind.name} leaves out {count} vectors: their length is not {expected_lengths}"
            notices.append(
                Notice("W_DEGRADED", message, "`duckkb check` names their records: put them again", "vector_lengths")
            )
    return base.filter_notices(notices)


def note_missing_graphs(base: Base, kinds: Iterable[RecordType]) -> tuple[Notice, ...]:
    """Return notices where all vectors are compared, because the graph that the settings ask for is missing."""
    notices = []
    for kind in kinds:
        settings = kind.settings(base.settings).vectors
        if not kind.vectors or settings.ann == "exact" or base.rows(kind).state.folder is None:
            continue
        account = base.lanes(kind).vectors.account()
        if (
            account is not None
            and account["ann"] == "exact"
            and account["rows"]
            and settings.wants_graph(account["rows"])
        ):
            notices.append(_note_exact_search(kind))
    return tuple(notices)


def _note_exact_search(kind: RecordType) -> Notice:
    has_faiss = _has_faiss()
    remedy = "duckkb index refresh" if has_faiss else "pip install 'duckkb[ann]', then `duckkb index refresh`"
    why = "has not been made" if has_faiss else "needs faiss, which is not installed"
    return Notice("W_EXACT", f"{kind.name}: all vectors were compared, as the graph {why}", remedy)


def embed_before(base: Base, kind: RecordType, field: str, text: str) -> None:
    """Embed a text into the cache before it is stored; raises `errors.Unavailable`."""
    texts = _collect_chunks(base, kind, field, text)
    model = base.embedder(kind)
    if not texts:
        model.embed_passages([text])  # raises with the reason why there is no model
    missing = {key: texts[key] for key in base.cache.list_missing_keys("vector", texts, model.fingerprint)}
    if missing:
        embed(base, kind, missing)


def question(base: Base, kind: RecordType, field: str, text: str) -> "np.ndarray":
    """Return the vectors of a question's chunks, float32 of shape (chunks, dimension); raises
    `errors.Unavailable`.
    """
    model = base.embedder(kind)
    vectors = model.embed_queries(list(_collect_chunks(base, kind, field, text).values()) or [text])
    base.cache.dimensions.expect(model.fingerprint, vectors.shape[1])
    return vectors


def nearest(
    base: Base, kind: RecordType, chunks: "np.ndarray", limit: int, allowed: Set[int] | None = None
) -> list[tuple[StoredRow, float]]:
    """Return the `limit` records nearest to a question, out of `allowed` where given, each with its distance, 0 to
    2.

    The question is given as the vectors of its chunks. A distance is the mean over these chunks of the distance
    to the record's best chunk.
    """
    depth = limit if len(chunks) == 1 else base.tree.count(kind)
    chunk_distances: dict[int, list[float]] = defaultdict(list)
    for chunk in chunks:
        for hit in base.lanes(kind).vectors.ask(chunk, depth, allowed):
            chunk_distances[hit.id].append(1.0 - hit.score)
    distances = {
        number: max(0.0, round(sum(some) / len(chunks), _DECIMALS)) for number, some in chunk_distances.items()
    }
    rows = [(row, distance) for number, distance in distances.items() if (row := base.tree.find_by_id(kind, number))]
    return sorted(rows, key=lambda pair: pair[1])[:limit]


def embeddings(base: Base, kind: RecordType, field: str, rows: Sequence[StoredRow]) -> list[list[float] | None]:
    """Return for each record the mean of its chunks' vectors, of unit length; None where one of them is missing."""
    return [_compute_mean(base, kind, field, row) for row in rows]


def _compute_mean(base: Base, kind: RecordType, field: str, row: StoredRow) -> list[float] | None:
    entry_vectors = [entry.vector for entry in base.rows(kind)[row.record.id].entries if entry.field == field]
    vectors = [vector for vector in entry_vectors if vector is not None]
    return mean_of(vectors) if vectors and len(vectors) == len(entry_vectors) else None


def _collect_chunks(base: Base, kind: RecordType, field: str, text: str) -> dict[bytes, str]:
    """Return the chunks of a text by the keys of their vectors; empty where no model names them."""
    return base.builder.needs(kind, [Record(kind.name, 0, ("",), {field: text}, "", "")]).vectors


MANY = 20_000
"""Number of records from which on a child process saves more than it costs."""


@contextmanager
def vectors_made_beside(base: Base, kinds: Sequence[RecordType]) -> Iterator[None]:
    """Make the missing vector lanes of large types in a child while the block runs, and wait for it at the end.

    What the child cannot make is made when it is next asked for.
    """
    target_kinds = (
        [kind for kind in kinds if _has_no_lane(base, kind)] if base.wiring.command and _count_cores() > 1 else []
    )
    child = _fork_child(base, target_kinds) if target_kinds else 0
    try:
        yield
    except BaseException:
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        if child:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _has_no_lane(base: Base, kind: RecordType) -> bool:
    if not kind.vectors or base.tree.count(kind) < MANY or base.rows(kind).state.folder is None:
        return False
    return base.lanes(kind).vectors.account() is None


def _fork_child(base: Base, kinds: Sequence[RecordType]) -> int:
    """Fork a child that makes the lanes, and return its process ID; 0 where none can be started."""
    try:
        child = os.fork()
    except (AttributeError, OSError):
        return 0
    if child:
        return child
    try:  # never return to the caller, which continues in the parent
        for kind in kinds:
            base.lanes(kind).vectors.list_missing_texts()
    finally:
        os._exit(0)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
