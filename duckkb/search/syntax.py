"""The query language of the lexical lane: words, "phrases", -negation and prefix*. Every input is a query; none is an error."""

import re

from duckkb.queries import LexicalQuery

# An operator counts only at the start of a word, so that text-embedding-3-small and 2024-05 stay whole.
_PIECE = re.compile(
    r"""(?P<minus>(?<!\S)-)?"(?P<phrase>[^"]*)"      # "a phrase", -"a phrase"
      | (?<!\S)-(?P<excluded>[^\s"-][^\s"]*)         # -word
      | (?P<prefix>[^\s"*]+)\*+(?!\S)                # word*
      | (?P<word>[^\s"]+|")                          # anything else; a lone quote is dropped
    """,
    re.VERBOSE,
)


def parse(text: str) -> LexicalQuery:
    """Read a query as people type it; an unbalanced quote and stray operators are plain text.

    >>> parse('ids -"hash ids" trunc*')
    LexicalQuery(text='ids', phrases=(), excluded=('hash ids',), prefixes=('trunc',))
    """
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    prefixes: list[str] = []
    for piece in _PIECE.finditer(text):
        if piece["phrase"] is not None:
            (excluded if piece["minus"] else phrases).append(piece["phrase"])
        elif piece["excluded"] is not None:
            excluded.append(piece["excluded"])
        elif piece["prefix"] is not None:
            prefixes.append(piece["prefix"])
        elif piece["word"] not in ('"', "*", "-"):
            words.append(piece["word"])
    return LexicalQuery(" ".join(words), _kept(phrases), _kept(excluded), _kept(prefixes))


def plain_text(text: str) -> str:
    """A query as text for an embedding model: in its own order, without operators and without what it excludes.

    >>> plain_text('ids "hash ids" -random trunc*')
    'ids hash ids trunc'
    """
    query = parse(text)
    if not (query.phrases or query.excluded or query.prefixes):
        return text
    wanted = (
        piece["phrase"] or piece["prefix"] or piece["word"] for piece in _PIECE.finditer(text) if not piece["minus"]
    )
    return " ".join(word for word in wanted if word and word not in ('"', "*", "-"))


def _kept(pieces: list[str]) -> tuple[str, ...]:
    return tuple(piece.strip() for piece in pieces if piece.strip())
