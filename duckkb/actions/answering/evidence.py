"""Judgement whether a pack is enough to answer its question, made before any chat model is asked.

    support = coverage + max(lead, 0) / 25

`coverage` is the most that one packed record holds of the question's words, weighed by their rarity in the base
(its share of their idf mass, 0 to 1). `lead` is how much nearer the nearest text is to the question than texts
of this base are to everyday questions of the same script, in standard deviations of those. Cosines of different
models have different ranges, so no fixed number says what is near. Both are measured on the base itself; the
threshold was chosen on judged questions (`bench/ask.py`, docs/ask.md).
"""

import re
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType
from duckkb.search import syntax

if TYPE_CHECKING:
    import numpy as np

    from duckkb.ports import Embedder

ENOUGH = 0.5
ENOUGH_WORDS = 0.4
"""The coverage that suffices where nothing is compared by meaning."""
ENOUGH_LEAD = 3.0
"""The lead that suffices where no packed record is searched by words."""
_PER_LEAD = 25
_NOT_BELOW = 1e-3  # the least deviation: a base of one text would make any lead infinite
_HAN = re.compile(r"[\u3400-\u9fff]")
_ASKING = re.compile(
    r"\b(?:who|whom|whose|what|which|when|where|why|how|much|many|long|often|is|are|was|were|be|been|am|do|does|did|done|can|could|will"
    r"|would|should|shall|may|might|must|has|have|had|there|the|a|an|of|to|in|on|at|by|for|from|with|about|into|as|and|or|if|that|this"
    r"|these|those|it|its|i|me|my|we|us|our|you|your|they|their|them|he|she|his|her|so|than|then|please|tell|say)\b"
    "|为什么|什么|怎么样|怎么|怎样|如何|多少|多久|多长|哪里|哪个|哪些|哪|谁|几|吗|呢|吧|请问|能否|能不能|可以|是否|是不是|有没有|的|了|是|在|会|能|要|把|被|和",
    re.IGNORECASE,
)
"""Question words, which do not count. A small base has few of them, so their rarity would weigh as much as the
subject's."""
_EVERYDAY = (
    "How long does bread have to rise before it is baked?",
    "Which muscles does swimming train?",
    "What does a train ticket to the coast cost?",
    "When do tulips flower?",
    "How is a bicycle tyre mended?",
    "What should I wear to a wedding in winter?",
    "Who painted the ceiling of the chapel?",
    "Why do cats purr at night?",
    "How many players are in a volleyball team?",
    "Which medicine helps against hay fever?",
    "What is the tallest mountain of the continent?",
    "How do I tune a guitar by ear?",
)
_EVERYDAY_HAN = (
    "面包发酵要多长时间？",
    "游泳主要锻炼哪些肌肉？",
    "去海边的火车票多少钱？",
    "郁金香什么时候开花？",
    "自行车轮胎怎么补？",
    "冬天参加婚礼穿什么好？",
    "教堂的天花板是谁画的？",
    "猫晚上为什么打呼噜？",
    "排球队有几名队员？",
    "花粉过敏吃什么药？",
    "这个洲最高的山是哪一座？",
    "吉他怎么凭耳朵调音？",
)


class Support(Struct, frozen=True):
    """How much of a question the base has.

    `coverage` is from 0 to 1, None where nothing is searched by words. `lead` is in standard deviations, None
    where nothing is compared by meaning, or the words were enough.
    """

    coverage: float | None
    lead: float | None = None

    @property
    def is_thin(self) -> bool:
        """Whether the support is too thin to ask a model.

        >>> measures = ((0.5,), (0.39,), (0.4, 1.0), (0.4, 2.5), (None, 2.9), (None, 3.0), (None,))
        >>> [Support(*values).is_thin for values in measures]
        [False, True, True, False, True, False, True]
        """
        if self.coverage is None or self.lead is None:
            return (self.coverage or 0.0) < ENOUGH_WORDS and (self.lead or 0.0) < ENOUGH_LEAD
        return round(self.coverage + max(self.lead, 0.0) / _PER_LEAD, 6) < ENOUGH


@boot.retry_if_stale
def support(
    base: Base, kinds: Sequence[RecordType], question: str, packed: Sequence[tuple[RecordType, int]]
) -> Support:
    """Return the support of a question by the packed records (type and id), and by all texts of these types."""
    plain_question = syntax.plain(syntax.drop_exclusions(question))
    words = syntax.parse(
        _ASKING.sub(" ", plain_question) if _ASKING.sub("", plain_question).strip(" ?？.。!！,，") else plain_question
    )
    shares = [base.lanes(kind).words.coverage(words, id) or 0.0 for kind, id in packed if kind.full_text]
    coverage = round(max(shares), 6) if shares else None
    return Support(coverage, None if coverage is not None and coverage >= ENOUGH else _lead(base, kinds, question))


def _lead(base: Base, kinds: Sequence[RecordType], question: str) -> float | None:
    """Return the greatest lead by any model of these types.

    Returns None without a model, and where a model cannot be used, which the pack reports already.
    """
    models: dict[Embedder, list[RecordType]] = {}
    for kind in kinds:
        if kind.has_text_vectors and len(base.rows(kind)):
            models.setdefault(base.embedder(kind), []).append(kind)
    everyday = _EVERYDAY_HAN if _HAN.search(question) else _EVERYDAY
    leads = []
    for model, asked_kinds in models.items():
        try:
            vectors = model.embed_queries([question, *everyday])
        except Unavailable:
            continue
        nearest = [_find_nearest(base, asked_kinds, item) for item in vectors]
        if None not in nearest:
            leads.append(_measure_deviations([item for item in nearest if item is not None]))
    return max(leads, default=None)


def _find_nearest(base: Base, kinds: Sequence[RecordType], vector: "np.ndarray") -> float | None:
    """Return the cosine of the nearest text."""
    scores = [hit.score for kind in kinds for hit in base.lanes(kind).vectors.ask(vector, 1)]
    return max(scores, default=None)


def _measure_deviations(nearest: Sequence[float]) -> float:
    """Return by how many standard deviations of the others the first number lies above their mean."""
    first, baseline = nearest[0], nearest[1:]
    return round((first - statistics.fmean(baseline)) / max(statistics.stdev(baseline), _NOT_BELOW), 6)
