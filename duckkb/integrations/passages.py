"""The passages that retrievers return, each with its source."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.documents.document_chunks import TEXT, line_at
from duckkb.review.history import Citation
from duckkb.types.errors import StateError

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.review.history import Origin
    from duckkb.types.queries import FindResult, Hit, Mode


class RetrievedPassage(Struct, frozen=True):
    """A passage: the chunk in which a question found a record, or the whole record where it has no chunk.

    `metadata` always has `uri` (a citation, which `duckkb get` resolves), `type`, `identity` and `score`. A
    chunk adds `field` and `seq`; a base in git adds `path`, `line` (from 1) and `commit`. `degraded` lists what
    the search had to leave out.
    """

    text: str
    score: float
    metadata: dict[str, Any]


class Passages:
    """A source of passages from an open base, or from a path, which is opened at the first question."""

    def __init__(self, base: "KnowledgeBase | Path | str") -> None:
        self._given = base
        self._opened: KnowledgeBase | None = None

    def ask(
        self, question: str, type: str = "all", *, mode: "Mode | None" = None, where: str | None = None, limit: int = 10
    ) -> list[RetrievedPassage]:
        """Return the passages of one type or collection, or of all; best first.

        Raises as `KnowledgeBase.find` does. Degradations are also warned of (UserWarning), since there may be
        no passage that carries them.
        """
        kb = self._base()
        result = kb.find(type, question, mode=mode, where=where, limit=limit)
        messages = [
            f"{notice.message}. {notice.remedy}".strip() for notice in result.notices if notice.code == "W_DEGRADED"
        ]
        for notice in messages:
            warnings.warn(notice, stacklevel=4)
        degradation = {"degraded": messages} if messages else {}
        documents = {name for name in {hit.type for hit in result} if kb.is_of_documents(name)}
        return [
            RetrievedPassage(
                _extract_text(hit),
                hit.score or 0.0,
                _build_metadata(hit, origin, is_document=hit.type in documents) | degradation,
            )
            for hit, origin in zip(result, _find_origins(kb, result), strict=True)
        ]

    def close(self) -> None:
        """Close the base if it was opened here."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _base(self) -> "KnowledgeBase":
        from duckkb import app

        if not isinstance(self._given, str | Path):
            return self._given
        if self._opened is None:
            self._opened = app.open(self._given)
        return self._opened


def _find_origins(kb: "KnowledgeBase", result: "FindResult") -> "Sequence[Origin | None]":
    try:
        return kb.provenance.list_origins(result)
    except StateError as problem:
        if problem.code != "E_GIT":
            raise
        return [None] * len(result)


def _extract_text(hit: "Hit") -> str:
    return hit.chunk.text if hit.chunk else json.dumps(hit.record, ensure_ascii=False, default=str)


def _build_metadata(hit: "Hit", origin: "Origin | None", *, is_document: bool) -> dict[str, Any]:
    chunk = hit.chunk
    citation = Citation(
        hit.type, _format_identity(hit.identity), None, chunk.field if chunk else None, chunk.seq if chunk else 0
    )
    metadata: dict[str, Any] = {
        "uri": origin.uri if origin else str(citation),
        "type": hit.type,
        "identity": hit.identity,
    }
    metadata |= {"score": hit.score} | ({"field": chunk.field, "seq": chunk.seq} if chunk else {})
    if origin is None:
        return metadata
    start = chunk.start if chunk and chunk.field == TEXT else 0
    metadata |= {"path": origin.path, "line": line_at(hit.record, start) if is_document else origin.line_no}
    return metadata | ({"commit": origin.by.commit} if origin.by else {})


def _format_identity(identity: Any) -> str:
    """Return an identity as citations write it."""
    return json.dumps(identity, ensure_ascii=False) if isinstance(identity, tuple) else str(identity)
