"""An embedder whose every fault becomes `errors.Unavailable` (E_MODEL).

So a write keeps its record with the vector pending, and a hybrid search answers by words. Callers bring
embedders of their own, and ours call libraries.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from duckkb.entries import Cut, Fingerprint
from duckkb.errors import DuckkbError, Unavailable
from duckkb.ports import Embedder

if TYPE_CHECKING:
    import numpy as np

Answer = TypeVar("Answer")


class Checked:
    """An embedder (`ports.Embedder`) that checks another one.

    It also refuses a vector of another length than its fingerprint has. A fingerprint without a length is
    checked where vectors are stored.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def fingerprint(self) -> Fingerprint:
        return self._embedder.fingerprint

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed_texts(texts, self._embedder.embed_passages)

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed_texts(texts, self._embedder.embed_queries)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return _call_embedder(lambda: self._embedder.count_tokens(texts))

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        return _call_embedder(lambda: self._embedder.cut(texts, passage=passage))

    def _embed_texts(self, texts: Sequence[str], embed: "Callable[[Sequence[str]], np.ndarray]") -> "np.ndarray":
        import numpy as np

        vectors = _call_embedder(lambda: np.asarray(embed(texts), np.float32))
        dimension = self.fingerprint.dimension or (vectors.shape[1] if vectors.ndim == 2 else 0)
        if vectors.shape != (len(texts), dimension) or not np.isfinite(vectors).all():
            raise Unavailable(
                f"The embedder did not return {len(texts)} rows of {dimension or 'so many'} finite numbers.",
                code="E_MODEL",
            )
        return vectors


def _call_embedder(call: Callable[[], Answer]) -> Answer:
    try:
        return call()
    except DuckkbError:
        raise
    except Exception as error:  # any exception is possible; its text may quote the input
        raise Unavailable(f"The embedder failed ({type(error).__name__}).", code="E_MODEL") from error
