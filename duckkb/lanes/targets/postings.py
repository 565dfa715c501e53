"""The postings of a record for a target: the terms of each field of the index, how often and where they occur."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from sys import byteorder

import numpy as np
from numpy.typing import NDArray

from duckkb.lanes.lexical.fields import MARKS, SEQUENCE, WordsField
from duckkb.lanes.lexical.query import terms_of
from duckkb.lanes.lexical.view import round_length
from duckkb.ports import Row

Positions = NDArray[np.int32]


Term = tuple[int, str]
"""The number of an index field and a token. Field 0 has the order of tokens, and the marks of written forms, which
equal no token; from 1 on are the words fields.
"""

Posting = tuple[Term, int, int, bytes | None]
"""A term in a record: how often it occurs, the stored length of the field, and the positions in field 0, with a
free position between two values. A mark has no positions and occurs zero times. A plain tuple, because there
may be hundreds of millions.
"""


def numbers_of(fields: Sequence[WordsField]) -> dict[str, int]:
    """Return the number of each field of the index."""
    return {SEQUENCE: 0, MARKS: 0} | {words.name: number for number, words in enumerate(fields, 1)}


class RecordTerms:
    """The terms of a record. `lengths` counts them by the number of the field."""

    def __init__(self, row: Row, fields: Sequence[WordsField]) -> None:
        terms = terms_of(row, fields)
        self._numbers = numbers_of(fields)
        self._held: Mapping[str, list[list[str]]] = terms
        self.lengths = [sum(map(len, terms[name])) for name in self._numbers if name != MARKS]

    def postings(self) -> Iterator[Posting]:
        for name, number in self._numbers.items():
            length, values = round_length(self.lengths[number]), self._held[name]
            if name == SEQUENCE:
                for token, places in _index_places(values).items():
                    yield (number, token), len(places), length, _pack_positions(places)
            elif name == MARKS:
                for mark in values[0]:
                    yield (number, mark), 0, length, b""
            else:
                for token, times in Counter(token for value in values for token in value).items():
                    yield (number, token), times, length, None


def positions_of(stored: bytes) -> Positions:
    """Decode the positions of a token from a `Posting`."""
    return np.frombuffer(stored, "<i4")


def _pack_positions(places: Sequence[int]) -> bytes:
    positions = array("i", places)
    if byteorder == "big":
        positions.byteswap()
    return positions.tobytes()


def times_in_a_row(places: Sequence[Positions]) -> int:
    """Count how often tokens occur in a row, given the positions of each."""
    starts = places[0]
    for step, next_places in enumerate(places[1:], 1):
        starts = starts[np.isin(starts + step, next_places)]
    return len(starts)


def _index_places(values: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    places_by_token: dict[str, list[int]] = {}
    at = 0
    for value in values:
        for token in value:
            places_by_token.setdefault(token, []).append(at)
            at += 1
        at += 1
    return places_by_token
