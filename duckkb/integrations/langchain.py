"""A LangChain retriever over a knowledge base.

    from duckkb.integrations.langchain import LangChainRetriever
    retriever = LangChainRetriever(base="path/to/kb", type="Document", limit=4)
    retriever.invoke("how are ids given")

Needs the extra `langchain`.
"""

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from duckkb.integrations.passages import Passages
from duckkb.types.queries import Mode


class LangChainRetriever(BaseRetriever):
    """A LangChain retriever of passages from records that satisfy `where`.

    It searches one `type` or collection, or all.

    `mode` None means the ontology's. `base` is an open `KnowledgeBase`, or a path, which is opened at the first
    question and has to be closed with `close`.
    """

    base: Any
    type: str = "all"
    mode: Mode | None = None
    where: str | None = None
    limit: int = 10
    _passages: Passages = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        self._passages = Passages(self.base)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        passages = self._passages.ask(query, self.type, mode=self.mode, where=self.where, limit=self.limit)
        return [
            Document(id=passage.metadata["uri"], page_content=passage.text, metadata=passage.metadata)
            for passage in passages
        ]

    def close(self) -> None:
        """Close the base if this retriever opened it."""
        self._passages.close()
