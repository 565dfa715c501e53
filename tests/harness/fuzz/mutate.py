"""Inputs that grow from valid ones: small changes to bytes, most of which leave the whole readable."""

import re
from collections.abc import Callable, Sequence
from random import Random

_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LETTERS = re.compile(rb"[a-z]{2,}")
_KEY = re.compile(rb'"[^"\\\n]{1,30}"(?=\s*:)|(?<![^\s{,])[A-Za-z_][\w-]*(?=:)')

ODD_NUMBERS = (
    b"0", b"-0", b"1", b"-1", b"0.0", b"-0.0", b"1.0", b"1e16", b"1e+16", b"1E5", b"1e-7", b"1e-5", b"0.00001", b"1e400",
    b"5e-324", b"1.7976931348623157e308", b"9007199254740991", b"9007199254740992", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"007", b"1.",
    b".5", b"+1", b"0x10", b"1_000", b"NaN", b"Infinity", b"-Infinity", b"9" * 400, b"0." + b"3" * 60,
)  # fmt: skip
ODD_CHARACTERS = (
    "\u2028", "\u2029", "\u0085", "\u007f", "\u0000", "\u0001", "\u001b[31m", "\u200d", "\u200f", "\u202e", "\u2066",
    "\u061c", "\ufeff", "\u00a0", "\u3000", "\u0301", "e\u0301", "\u00e9", "\u0130", "\u00df", "\ufb00", "\u1e9e",
    "\uff11", "\u0661", "\ufffd", "\uffff", "\U0010ffff", "\U0001f9ea", "\U0001f1e8\U0001f1ed", "\U0001f44d\U0001f3fd",
    "\u5185\u5b58", "\u7e41\u9ad4", "\uac00", "\u0e01\u0e33", "\U00020000", "\u05d0", "\u0644\u0627", "\u2019",
)  # fmt: skip
_BROKEN = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\x80")


class Mutator:
    """Changes bytes a little. `tokens` are the pieces of which the language is made; chance comes from `chance` alone.

    >>> Mutator(Random(1), [b'"a"']).mutate(b'{"a":1}') == Mutator(Random(1), [b'"a"']).mutate(b'{"a":1}')
    True
    """

    def __init__(self, chance: Random, tokens: Sequence[bytes]) -> None:
        self._chance = chance
        self._tokens = tokens
        gentle = (self._number, self._character, self._letter, self._swap_keys, self._rename_key, self._case)
        rough = (self._flip, self._splice, self._repeat, self._truncate, self._cut, self._token, self._replace_token)
        self._changes: list[Callable[[bytes, bytes], bytes]] = [*gentle, *gentle, *gentle, *rough, self._broken]

    def mutate(self, data: bytes, other: bytes = b"") -> bytes:
        """From none to four changes; `other` is a second input, to take pieces of."""
        for _ in range(self._chance.choices((0, 1, 2, 3, 4), (2, 10, 6, 2, 1))[0]):
            data = self._chance.choice(self._changes)(data, other or data)
        return data

    def _place(self, data: bytes) -> int:
        return self._chance.randint(0, len(data))

    def _span(self, data: bytes, longest: int = 40) -> tuple[int, int]:
        start = self._place(data)
        return start, min(len(data), start + self._chance.randint(1, longest))

    def _between(self, data: bytes, start: int, end: int, piece: bytes) -> bytes:
        return data[:start] + piece + data[end:]

    def _match(self, pattern: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
        """One of the next few matches behind a place drawn, so that long inputs cost no more than short ones."""
        start = self._place(data)
        return pattern.search(data, start) or pattern.search(data)

    def _number(self, data: bytes, _: bytes) -> bytes:
        found = self._match(_NUMBER, data)
        return self._between(data, *found.span(), self._chance.choice(ODD_NUMBERS)) if found else data

    def _character(self, data: bytes, _: bytes) -> bytes:
        found = self._match(_LETTERS, data)
        if not found:
            return data
        at = self._chance.randrange(*found.span())
        kept = self._chance.random() < 0.5
        return self._between(data, at, at + (not kept), self._chance.choice(ODD_CHARACTERS).encode())

    def _letter(self, data: bytes, _: bytes) -> bytes:
        found = self._match(_LETTERS, data)
        if not found:
            return data
        at = self._chance.randrange(*found.span())
        return self._between(data, at, at + 1, bytes([self._chance.randrange(97, 123)]))

    def _case(self, data: bytes, _: bytes) -> bytes:
        found = self._match(_LETTERS, data)
        return self._between(data, *found.span(), found[0].swapcase()) if found else data

    def _swap_keys(self, data: bytes, _: bytes) -> bytes:
        one, two = self._match(_KEY, data), self._match(_KEY, data)
        if not one or not two or one.start() == two.start():
            return data
        first, second = sorted((one, two), key=lambda found: found.start())
        middle = data[first.end() : second.start()]
        return data[: first.start()] + second[0] + middle + first[0] + data[second.end() :]

    def _rename_key(self, data: bytes, other: bytes) -> bytes:
        one, two = self._match(_KEY, data), self._match(_KEY, other)
        return self._between(data, *one.span(), two[0]) if one and two else data

    def _flip(self, data: bytes, _: bytes) -> bytes:
        if not data:
            return data
        at = self._chance.randrange(len(data))
        return self._between(data, at, at + 1, bytes([data[at] ^ 1 << self._chance.randrange(8)]))

    def _splice(self, data: bytes, other: bytes) -> bytes:
        start, end = self._span(other)
        return self._between(data, *self._span(data), other[start:end])

    def _repeat(self, data: bytes, _: bytes) -> bytes:
        start, end = self._span(data)
        times = self._chance.choice((2, 2, 3, 70))
        return self._between(data, start, end, data[start:end] * times)

    def _truncate(self, data: bytes, _: bytes) -> bytes:
        return data[: self._place(data)]

    def _cut(self, data: bytes, _: bytes) -> bytes:
        return self._between(data, *self._span(data), b"")

    def _token(self, data: bytes, _: bytes) -> bytes:
        at = self._place(data)
        return self._between(data, at, at, self._chance.choice(self._tokens))

    def _replace_token(self, data: bytes, _: bytes) -> bytes:
        """One token of the language for another, so that what was a value stays one."""
        wanted = self._chance.choice(self._tokens)
        at = data.find(wanted, self._place(data)) if wanted else -1
        if at < 0:
            return data
        return self._between(data, at, at + len(wanted), self._chance.choice(self._tokens))

    def _broken(self, data: bytes, _: bytes) -> bytes:
        at = self._place(data)
        return self._between(data, at, at, self._chance.choice(_BROKEN))
