"""Rerankers: an endpoint that scores documents, and a chat model that answers yes or no for each text.

The expander: a chat model writes three lines, words, a paraphrase and a made-up answer."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from duckkb.llm.providers.json_endpoint import JsonEndpoint, number
from duckkb.types.errors import Unavailable
from duckkb.types.queries import Variant, VariantKind
from duckkb.types.records import Fingerprint
from duckkb.types.settings import ExpandSettings, RerankSettings

_JUDGE = 'Judge whether the passage answers the question. Say one word: "yes" or "no".'
_MOST_LIKELY = 20  # tokens with their probabilities, the most that OpenAI's protocol gives
_BLANKS = " \t\n\u2581\u0120"  # with the characters that tokenizers write for a space


class HttpReranker:
    """A reranker (`ports.Reranker`) with the protocol of Jina and Cohere, which llama.cpp and vLLM speak too.

    POST BASE/rerank `{model, query, documents, top_n}` gives `results: [{index, relevance_score}]`, in any order.
    """

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
        results = self._extract_results(
            self._endpoint.post("/rerank", self._build_body(query, [*map(_fill_empty_text, texts)]), seconds)
        )
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise self._endpoint.bad("no list of results")
        return self._sort_scores(results, len(texts))

    def _build_body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self._endpoint.model, "query": query, "documents": texts, "top_n": len(texts)}

    def _extract_results(self, answer: Any) -> Any:
        return answer.get("results") if isinstance(answer, dict) else None

    def _sort_scores(self, results: Sequence[Mapping[str, Any]], count: int) -> list[float]:
        """Return the scores in the order of their indices, each of which must come once."""
        score_by_place: dict[int, float] = {}
        for result in results:
            place, score = result.get("index"), number(result.get(self._score))
            if type(place) is not int or not 0 <= place < count:
                raise self._endpoint.bad("an index that no document has")
            if place in score_by_place:
                raise self._endpoint.bad("an index twice")
            if score is None:
                raise self._endpoint.bad("a score that is not a finite number")
            score_by_place[place] = score
        if len(score_by_place) < count:
            raise self._endpoint.bad(f"{len(score_by_place)} results for {count} documents")
        return [score_by_place[place] for place in range(count)]


class TeiReranker(HttpReranker):
    """A reranker (`ports.Reranker`) with the protocol of text-embeddings-inference, which serves one model.

    POST BASE/rerank `{query, texts, ...}` gives `[{index, score}]`. The server truncates texts that are too
    long for the model.
    """

    at_once = 32
    """Texts that a server accepts in one request by default (--max-client-batch-size)."""
    _score = "score"

    def _build_body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"query": query, "texts": texts, "raw_scores": False, "truncate": True}

    def _extract_results(self, answer: Any) -> Any:
        return answer


class ChatReranker:
    """A reranker (`ports.Reranker`) by a chat model's probability of yes against no, as its first token.

    The score is e^yes / (e^yes + e^no), where each sums its spellings. An endpoint without probabilities is
    refused: its prose would be a guess.
    """

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
        passage = f"Question: {query}\n\nPassage:\n{_fill_empty_text(text)}"
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
            token_entries = [*first["top_logprobs"], first]
            likely = {
                entry["token"]: number(entry["logprob"]) for entry in token_entries if isinstance(entry["token"], str)
            }
        except (LookupError, TypeError):
            raise self._make_logprobs_fault() from None
        return self._calculate_yes_share(likely)

    def _calculate_yes_share(self, likely: Mapping[str, float | None]) -> float:
        """Return the share of yes in the probability of yes and no, from log probabilities."""
        logarithms_by_word: dict[str, list[float]] = {"yes": [], "no": []}
        for token, logarithm in likely.items():
            word = token.strip(_BLANKS).casefold()
            if word in logarithms_by_word:
                if logarithm is None:
                    raise self._endpoint.bad("a probability that is not a finite number")
                logarithms_by_word[word].append(logarithm)
        both = [*logarithms_by_word["yes"], *logarithms_by_word["no"]]
        if not both:
            raise self._endpoint.bad("neither yes nor no is among the likely words")
        highest = max(both)  # subtracted, to avoid underflow and overflow
        yes, no = (sum(math.exp(exponent - highest) for exponent in logarithms_by_word[word]) for word in ("yes", "no"))
        return yes / (yes + no)

    def _make_logprobs_fault(self) -> Unavailable:
        remedy = "use an endpoint that gives logprobs, or global.rerank.method http"
        return self._endpoint.fault("no_logprobs", "gives no logprobs, and prose is not a score", remedy)


def _fill_empty_text(text: str) -> str:
    """Return a substitute for the empty text, which endpoints refuse; other texts unchanged."""
    return text if text.strip() else " "


_TASK = """\
Help a search engine find what answers the user's question. Write exactly three lines and nothing else, in the language of \
the question:
lex: a few words that texts with the answer contain
vec: the question in other words
hyde: one sentence that could stand in such a text"""
_LINE = re.compile(r"\s*(lex|vec|hyde)\s*:\s*(\S.*?)\s*", re.IGNORECASE)
_MOST_TOKENS = 400
_LONGEST = 1_000  # characters of a line


class ChatExpander:
    """An expander (`ports.Expander`) over POST BASE/chat/completions."""

    def __init__(self, settings: ExpandSettings, key: str | None = None, refusal: Unavailable | None = None) -> None:
        self._endpoint = JsonEndpoint("expand", settings, key, refusal)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._endpoint.fingerprint(_TASK)

    def variants(self, question: str, seconds: float) -> tuple[Variant, ...]:
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "system", "content": _TASK}, {"role": "user", "content": question}],
            "max_tokens": _MOST_TOKENS,
            "temperature": 0,
        }
        answer = self._endpoint.post("/chat/completions", body, seconds)
        try:
            content = answer["choices"][0]["message"]["content"]
        except (LookupError, TypeError):
            content = None
        if not isinstance(content, str):
            raise self._endpoint.bad("no message")
        found = tuple(read_variants(content, question))
        if not found:
            raise self._endpoint.bad("no line begins with lex:, vec: or hyde:")
        return found


def read_variants(said: str, question: str) -> Iterator[Variant]:
    r"""Yield the first line of each kind, in the order of the lines.

    Lines are left out that are no variant, are too long, hold control characters or repeat the question.

    >>> [one.kind for one in read_variants("Sure!\nlex: storage memory\nVEC: where is it kept?\nlex: more", "memory?")]
    ['lex', 'vec']
    """
    kinds = set[str]()
    for line in said.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        kind, text = match[1].lower(), match[2]
        is_new = kind not in kinds and text.casefold() != question.strip().casefold()
        if is_new and len(text) <= _LONGEST and text.isprintable():
            kinds.add(kind)
            yield Variant(cast(VariantKind, kind), text)
