"""Tokens of a text where no model tells."""

import math


def estimated_tokens(text: str) -> int:
    """Four characters a token, but one for each from the Chinese, Japanese and Korean blocks on.

    >>> estimated_tokens("abcdefgh"), estimated_tokens("内存")
    (2, 2)
    """
    wide = sum(character >= "\u2e80" for character in text)
    return wide + math.ceil((len(text) - wide) / 4)
