"""Caches the answers of models: scores of texts for a question, and variants of questions. They lie in the user's
search cache, among tokens and vectors and within its size limit. Their keys are made of the model's
fingerprint, the question and the text, never of a path.

Each call opens the file anew, because answers may arrive late in threads of their own. Damaged answers count as
missing.
"""

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import get_args

from duckkb.entries import Fingerprint
from duckkb.indexing.cache_rows import CacheRow, content_hash
from duckkb.indexing.cache_store import CacheStore
from duckkb.queries import Variant, VariantKind
from duckkb.settings import CACHE_LIMIT
from duckkb.store.place import Unusable

_SCORE = struct.Struct("<d")


class AnswerCache:
    """The cached answers of models. All bases of the user share `folder`; `limit` is in bytes, for all derived
    state.
    """

    def __init__(self, folder: Path, limit: int = CACHE_LIMIT) -> None:
        self._folder, self._limit = folder, limit

    def scores(self, model: Fingerprint, question: str, texts: Iterable[str]) -> dict[str, float]:
        """Return the model's score of each text for this question; leave out texts that have no score yet."""
        keys = {_compute_key(model, "score", question, text): text for text in texts}
        scores_by_text = {keys[key]: _score(payload) for key, payload in self._load_payloads(keys)}
        return {text: score for text, score in scores_by_text.items() if score is not None}

    def keep_scores(self, model: Fingerprint, question: str, scores: Mapping[str, float]) -> None:
        """Store scores by text; do nothing if the file cannot be written."""
        rows = [
            (_compute_key(model, "score", question, text), content_hash(text), str(model), _SCORE.pack(score))
            for text, score in scores.items()
        ]
        self._keep(rows)

    def variants(self, model: Fingerprint, question: str) -> tuple[Variant, ...]:
        """Return the variants that the model made of the question; empty if there are none yet."""
        answers = [
            _parse_variants(payload)
            for _, payload in self._load_payloads([_compute_key(model, "variants", question, "")])
        ]
        return answers[0] if answers else ()

    def keep_variants(self, model: Fingerprint, question: str, variants: Sequence[Variant]) -> None:
        """Store variants of a question; do nothing if the file cannot be written."""
        payload = json.dumps([[variant.kind, variant.text] for variant in variants]).encode()
        self._keep([(_compute_key(model, "variants", question, ""), content_hash(question), str(model), payload)])

    def _load_payloads(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        with closing(CacheStore(self._folder, limit=self._limit)) as store:
            if store.is_there:
                yield from ((stored_row.row[0], stored_row.row[3]) for stored_row in store.rows("answer", keys))
                store.flush()

    def _keep(self, rows: Sequence[CacheRow]) -> None:
        if rows:
            with closing(CacheStore(self._folder, limit=self._limit)) as store, suppress(Unusable):
                store.add("answer", rows)
                store.trim()


def _compute_key(model: Fingerprint, answer_kind: str, question: str, text: str) -> bytes:
    """Compute a key of 16 bytes over all parts; the length of each part keeps different parts apart."""
    parts = (str(model), answer_kind, question, text)
    hasher = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.digest()


def _score(payload: bytes) -> float | None:
    if len(payload) != _SCORE.size:
        return None
    score: float = _SCORE.unpack(payload)[0]
    return score if math.isfinite(score) else None


def _parse_variants(payload: bytes) -> tuple[Variant, ...]:
    try:
        variants = tuple(Variant(kind, text) for kind, text in json.loads(payload))
    except (ValueError, TypeError):
        return ()
    return (
        variants
        if all(variant.kind in get_args(VariantKind) and isinstance(variant.text, str) for variant in variants)
        else ()
    )
