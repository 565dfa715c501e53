"""Reranking of a table's nearest rows by how well their texts answer the question."""

import time
from collections.abc import Sequence

from duckkb.engine.reranking import room_for_texts, score_texts, unit_scores
from duckkb.engine.vectors import batches
from duckkb.errors import Unavailable
from duckkb.llm.waiting import side_by_side
from duckkb.llm.windows import clip_to_tokens
from duckkb.ports import Reranker
from duckkb.settings import RerankSettings
from duckkb.tables.asked import Neighbour


def rerank_rows(
    model: Reranker, wanted: RerankSettings, question: str, rows: Sequence[Neighbour], least: float
) -> list[tuple[Neighbour, float]]:
    """Return rows with their scores from 0 to 1, the best first, ties in their order, without those below `least`.

    A row without text is not shown to the model, and scores 0. Raises `errors.Unavailable` (E_MODEL).
    """
    room, until = room_for_texts(wanted, question), time.monotonic() + wanted.timeout_ms / 1000
    texts = [clip_to_tokens(row.text, room) if row.text and row.text.strip() else None for row in rows]
    different = list(dict.fromkeys(text for text in texts if text is not None))
    scores: dict[str, float] = {}

    def ask(some: Sequence[str]) -> list[float]:
        return score_texts(model, question, some, until - time.monotonic())

    text_batches = list(batches(different, model.at_once or max(1, len(different))))
    for some, outcome in side_by_side(text_batches, ask, wanted.concurrency):
        if isinstance(outcome, Unavailable):
            raise outcome
        scores |= zip(some, outcome, strict=True)
    unit = unit_scores(scores)
    pairs = [(row, 0.0 if text is None else unit[text]) for row, text in zip(rows, texts, strict=True)]
    return sorted((pair for pair in pairs if pair[1] >= least), key=lambda pair: -pair[1])
