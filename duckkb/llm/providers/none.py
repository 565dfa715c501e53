"""No model: says why at every use, so that searches degrade with a reason instead of an empty lane."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from duckkb.entries import Cut, Fingerprint
from duckkb.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np

_NOTHING = Fingerprint("none", "none")


class NoModel:
    """The embedder of a base that has no model, or may not use the one it names.

    Every use raises `errors.Unavailable` with `reason`, `code` and `suggestion`. Where a model is named but cannot be
    used here, `fingerprint` is that model's, so that the vectors it made elsewhere stay valid.
    """

    def __init__(
        self, reason: str, code: str = "E_MODEL", suggestion: str = "", fingerprint: Fingerprint = _NOTHING
    ) -> None:
        self.reason = reason
        self.code = code
        self.suggestion = suggestion
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        self._refuse()

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        self._refuse()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        self._refuse()

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unavailable(self.reason, code=self.code, suggestion=self.suggestion)
