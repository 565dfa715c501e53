"""A real HTTP server on this machine that reranks and chats as endpoints do, well or badly as a test asks (`FakeEndpoint`)."""

import json
import math
from collections.abc import Mapping
from typing import Any

from duckkb.types.settings import ExpandSettings, RerankSettings
from tests.fake_endpoint import FakeEndpoint
from tests.fakes import WordReranker

SAID = "lex: memory -store\nVec: where is it kept?\nhyde: It is kept in memory."


class FakeModels(FakeEndpoint):
    """Scores are those of `WordReranker`, the last document's first; a chat's yes and no have their probabilities, of which
    the spellings have a part each. Another chat is answered by `said`."""

    said = SAID
    judge = WordReranker()

    def rerank(self, method: str = "http", **changes: Any) -> RerankSettings:
        return RerankSettings(**{"method": method, "model": "judge", "base_url": self.url, **changes})

    def expand(self, **changes: Any) -> ExpandSettings:
        return ExpandSettings(**{"method": "chat", "model": "writer", "base_url": self.url, **changes})

    def answer(self, body: Mapping[str, Any]) -> Any:
        if "texts" in body:
            ranked = enumerate(self.judge.scores(body["query"], body["texts"], 1))
            return sorted(({"index": at, "score": score} for at, score in ranked), key=lambda one: -one["score"])
        if "documents" in body:
            scores = self.judge.scores(body["query"], body["documents"], 1)
            results = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
            return {"model": body["model"], "results": results[::-1]}
        if not body.get("logprobs"):
            return {"choices": [{"index": 0, "message": {"role": "assistant", "content": self.said}}]}
        question, passage = body["messages"][1]["content"].split("\n\nPassage:\n")
        (share,) = self.judge.scores(question.removeprefix("Question: "), [passage], 1)
        return verdict({"Yes": share * 0.75, " yes": share * 0.25, "no": 1 - share, "maybe": 0.5})


def verdict(probabilities: Mapping[str, float]) -> dict[str, Any]:
    """A chat's answer of one token with the logarithms of these probabilities; what has none is left out."""
    listed = [{"token": word, "logprob": math.log(part)} for word, part in probabilities.items() if part > 0]
    content = [{"token": listed[0]["token"], "logprob": listed[0]["logprob"], "top_logprobs": listed}]
    return {"choices": [{"message": {"content": listed[0]["token"]}, "logprobs": {"content": content}}]}


def encoded(answer: object) -> bytes:
    return json.dumps(answer).encode()
