"""The query language of the lexical lane: words, "phrases", -negation and prefix*. Every text is a valid query."""

import re

from duckkb.queries import LexicalQuery

# An operator counts only at the start of a word, so that text-embedding-3-small and 2024-05 stay whole; and not before a
# single letter, a number or another dash, which are flags and amounts: -H, -1.5, --force.
_MINUS = r'(?<!\S)-(?:"(?P<ruled_out>[^"]*)"|(?P<excluded>(?!(?:[A-Za-z]|[0-9.,]+)(?![^\s"]))[^\s"-][^\s"]*))'
_PIECE = re.compile(
    rf"""{_MINUS}                                     # -"a phrase", -word
      | "(?P<phrase>[^"]*)"                          # "a phrase"
      | (?P<prefix>[^\s"*]+)\*+(?!\S)                # word*
      | (?P<word>[^\s"]+|")                          # anything else; a lone quote is dropped
    """,
    re.VERBOSE,
)
_SIGNS = re.compile(r'"|(?<![^\s"])[-*]+|\*+(?![^\s"])')


def parse(text: str) -> LexicalQuery:
    """Parse a query as people type it; an unbalanced quote and stray operators are plain text.

    >>> parse('ids -"hash ids" trunc*')
    LexicalQuery(text='ids', phrases=(), excluded=('hash ids',), prefixes=('trunc',), every=False, exact=False)
    """
    words: list[str] = []
    phrases: list[str] = []
    exclusions: list[str] = []
    prefixes: list[str] = []
    for piece in _PIECE.finditer(text):
        if piece["phrase"] is not None:
            phrases.append(piece["phrase"])
        elif piece["ruled_out"] is not None or piece["excluded"] is not None:
            exclusions.append(piece["ruled_out"] or piece["excluded"] or "")
        elif piece["prefix"] is not None:
            prefixes.append(piece["prefix"])
        elif piece["word"] not in ('"', "*", "-"):
            words.append(piece["word"])
    return LexicalQuery(" ".join(words), _clean_pieces(phrases), _clean_pieces(exclusions), _clean_pieces(prefixes))


def drop_exclusions(text: str) -> str:
    """Return a query for an embedding model: as typed, without its exclusions.

    >>> drop_exclusions('ids "hash ids" -random trunc -v')
    'ids "hash ids" trunc -v'
    """
    if not parse(text).excluded:
        return text
    pieces = (piece for piece in _PIECE.finditer(text) if piece["ruled_out"] is None and piece["excluded"] is None)
    return " ".join(piece[0] for piece in pieces)


def plain(text: str) -> str:
    """Return a query without the signs of its operators: nothing in it is required, excluded or open.

    >>> plain('ids "hash ids" -random trunc*').split()
    ['ids', 'hash', 'ids', 'random', 'trunc']
    """
    return _SIGNS.sub(" ", text)


def _clean_pieces(pieces: list[str]) -> tuple[str, ...]:
    return tuple(piece.strip() for piece in pieces if piece.strip())
