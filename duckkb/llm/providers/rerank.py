"""Rerankers: an endpoint that scores documents, and a chat model that is asked for one yes or no a text."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.entries import Fingerprint
from duckkb.errors import Unavailable
from duckkb.llm.providers.json_endpoint import JsonEndpoint, number
from duckkb.settings import RerankSettings

_JUDGE = 'Judge whether the passage answers the question. Say one word: "yes" or "no".'
_MOST_LIKELY = 20  # tokens with their probabilities, the most that OpenAI's protocol gives
_BLANKS = " \t\n\u2581\u0120"  # with those that tokenizers write for a space


class HttpReranker:
    """POST BASE/rerank `{model, query, documents, top_n}` gives `results: [{index, relevance_score}]`, in any order: the
    protocol of Jina and Cohere, which llama.cpp and vLLM speak too. Implements `ports.Reranker`."""

    at_once = 0
    _score = "relevance_score"

    def __init__(self, settings: RerankSettings, key: str | None = None, refusal: Unavailable | None = None) -> None:
        self._endpoint = JsonEndpoint("rerank", settings, key, refusal)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._endpoint.fingerprint()

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        if not texts:
            return []
        results = self._results(self._endpoint.post("/rerank", self._body(query, [*map(_sent, texts)]), seconds))
        if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
            raise self._endpoint.bad("no list of results")
        return self._in_order(results, len(texts))

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self._endpoint.model, "query": query, "documents": texts, "top_n": len(texts)}

    def _results(self, answer: Any) -> Any:
        return answer.get("results") if isinstance(answer, dict) else None

    def _in_order(self, results: Sequence[Mapping[str, Any]], wanted: int) -> list[float]:
        """The scores by their indices, each of which stands there once."""
        found: dict[int, float] = {}
        for one in results:
            place, score = one.get("index"), number(one.get(self._score))
            if type(place) is not int or not 0 <= place < wanted:
                raise self._endpoint.bad("an index that no document has")
            if place in found:
                raise self._endpoint.bad("an index twice")
            if score is None:
                raise self._endpoint.bad("a score that is no finite number")
            found[place] = score
        if len(found) < wanted:
            raise self._endpoint.bad(f"{len(found)} results for {wanted} documents")
        return [found[place] for place in range(wanted)]


class TeiReranker(HttpReranker):
    """POST BASE/rerank `{query, texts, ...}` gives `[{index, score}]`: the protocol of text-embeddings-inference, which serves
    the one model that it was started with. It cuts off what is too long for that. Implements `ports.Reranker`."""

    at_once = 32
    """What a server takes in one request unless it was started with another --max-client-batch-size."""
    _score = "score"

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"query": query, "texts": texts, "raw_scores": False, "truncate": True}

    def _results(self, answer: Any) -> Any:
        return answer


class ChatReranker:
    """A chat model's probability of yes against no, as its first token: e^yes / (e^yes + e^no), where each sums its spellings.
    An endpoint that gives no probabilities is refused: its prose would be a guess. Implements `ports.Reranker`."""

    at_once = 1

    def __init__(self, settings: RerankSettings, key: str | None = None, refusal: Unavailable | None = None) -> None:
        self._endpoint = JsonEndpoint("rerank", settings, key, refusal)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._endpoint.fingerprint(_JUDGE)

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        until = time.monotonic() + seconds
        return [self._score(query, text, until - time.monotonic()) for text in texts]

    def _score(self, query: str, text: str, seconds: float) -> float:
        passage = f"Question: {query}\n\nPassage:\n{_sent(text)}"
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "system", "content": _JUDGE}, {"role": "user", "content": passage}],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": _MOST_LIKELY,
        }
        answer = self._endpoint.post("/chat/completions", body, seconds)
        try:
            first = answer["choices"][0]["logprobs"]["content"][0]
            listed = [*first["top_logprobs"], first]
            likely = {one["token"]: number(one["logprob"]) for one in listed if isinstance(one["token"], str)}
        except (LookupError, TypeError):
            raise self._without() from None
        return self._yes(likely)

    def _yes(self, likely: Mapping[str, float | None]) -> float:
        """The part of yes in what speaks for either, by logarithms of probabilities."""
        found: dict[str, list[float]] = {"yes": [], "no": []}
        for token, logarithm in likely.items():
            word = token.strip(_BLANKS).casefold()
            if word in found:
                if logarithm is None:
                    raise self._endpoint.bad("a probability that is no finite number")
                found[word].append(logarithm)
        both = [*found["yes"], *found["no"]]
        if not both:
            raise self._endpoint.bad("neither yes nor no is among the likely words")
        highest = max(both)  # taken off, so that none of them becomes too small or too large
        yes, no = (sum(math.exp(one - highest) for one in found[word]) for word in ("yes", "no"))
        return yes / (yes + no)

    def _without(self) -> Unavailable:
        remedy = "use an endpoint that gives logprobs, or global.rerank.method http"
        return self._endpoint.fault("no_logprobs", "gives no logprobs, and prose is not taken for a score", remedy)


def _sent(text: str) -> str:
    """Endpoints refuse the empty text."""
    return text if text.strip() else " "
