"""A LlamaIndex retriever over a knowledge base.

    from duckkb.integrations.llamaindex import LlamaIndexRetriever
    retriever = LlamaIndexRetriever("path/to/kb", type="Document", limit=4)
    retriever.retrieve("how are ids given")

Needs the extra `llamaindex`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from duckkb.integrations.passages import Passages
from duckkb.types.queries import Mode

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


class LlamaIndexRetriever(BaseRetriever):
    """A LlamaIndex retriever of passages from records that satisfy `where`.

    It searches one `type` or collection, or all.

    `mode` None means the ontology's. `base` is an open `KnowledgeBase`, or a path, which is opened at the first
    question and has to be closed with `close`.
    """

    def __init__(
        self,
        base: "KnowledgeBase | Path | str",
        type: str = "all",
        *,
        mode: Mode | None = None,
        where: str | None = None,
        limit: int = 10,
    ) -> None:
        super().__init__()
        self._passages, self._type, self._mode, self._where, self._limit = Passages(base), type, mode, where, limit

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        passages = self._passages.ask(question, self._type, mode=self._mode, where=self._where, limit=self._limit)
        return [
            NodeWithScore(
                node=TextNode(id_=passage.metadata["uri"], text=passage.text, metadata=passage.metadata),
                score=passage.score,
            )
            for passage in passages
        ]

    def close(self) -> None:
        """Close the base if this retriever opened it."""
        self._passages.close()
