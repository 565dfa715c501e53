"""The expander: a chat model writes three lines, words, a paraphrase and a made-up answer."""

import re
from collections.abc import Iterator
from typing import cast

from duckkb.entries import Fingerprint
from duckkb.errors import Unavailable
from duckkb.llm.providers.json_endpoint import JsonEndpoint
from duckkb.queries import Variant, VariantKind
from duckkb.settings import ExpandSettings

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
