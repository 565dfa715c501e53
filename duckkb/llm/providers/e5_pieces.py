"""The tokenizer of multilingual-e5-small for few words: a SentencePiece model of only the pieces in them.

SentencePiece makes a trie of all 250,000 pieces whenever it loads them, which takes longer than everything else
before a first answer. How a text is cut depends on the pieces that are parts of it, and on the lowest score of
all (which scores unknown characters): a model of these cuts it in the same way.
They are looked up in a table that is made once: the sorted CRCs of the pieces, with their numbers. A piece that
shares the CRC of a part without being one does no harm.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from duckkb.llm.providers.e5_weights import Weights

_SPACE = "▁"  # what stands for a space in a piece
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # of the enumeration ModelProto.SentencePiece.Type
_HEAD = struct.Struct("<II")  # characters of the longest piece, and bytes of the specifications


def table(weights: Weights, specifications: bytes) -> bytes:
    """Return the data for `cut_by_few`: the table, and a serialised ModelProto without pieces."""
    pieces = [piece for piece, _ in weights.unigrams()]
    checks = np.array([zlib.crc32(piece.encode()) for piece in pieces], "<u4")
    order = np.argsort(checks, kind="stable").astype("<u4")
    longest = max(map(len, pieces))
    body: bytes = checks[order].tobytes() + order.tobytes()
    return _HEAD.pack(longest, len(specifications)) + specifications + body


def cut_by_few(weights: Weights, found: bytes, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of texts that are already folded."""
    from sentencepiece import SentencePieceProcessor

    model, numbers = _build_small_model(weights, found, texts)
    return [[numbers[token] for token in tokens] for tokens in SentencePieceProcessor(model_proto=model).encode(texts)]


def _build_small_model(weights: Weights, piece_table: bytes, texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """Return a serialised ModelProto that cuts these texts as the whole vocabulary does.

    The list has the number of each of its pieces in the whole vocabulary.
    """
    longest, size = _HEAD.unpack_from(piece_table)
    count = weights.vocabulary.count
    start = _HEAD.size + size
    checks = np.frombuffer(piece_table, "<u4", count, start)
    order = np.frombuffer(piece_table, "<u4", count, start + 4 * count)
    parts = {zlib.crc32(part.encode()) for text in texts for part in _iter_parts(text, longest)}
    part_checks = np.fromiter(parts, np.uint32, len(parts))
    first, last = (np.searchsorted(checks, part_checks, side) for side in ("left", "right"))
    marks = _classify_marks(weights)
    numbers = [*marks, int(weights.scores().argmin())]
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        numbers += order[low:high].tolist()
    numbers = list(dict.fromkeys(numbers))
    pieces = zip(weights.pieces(numbers), weights.scores()[numbers].tolist(), strict=True)
    model = [
        _encode_piece(text, score, marks.get(number, _NORMAL))
        for number, (text, score) in zip(numbers, pieces, strict=True)
    ]
    return b"".join(model) + piece_table[_HEAD.size : start], numbers


def _classify_marks(weights: Weights) -> dict[int, int]:
    """Return the type of each piece that stands for no text, by its number."""
    vocabulary = weights.vocabulary
    kinds = dict.fromkeys((vocabulary.begin, vocabulary.padding, vocabulary.end), _CONTROL)
    return dict(sorted({**kinds, vocabulary.unknown: _UNKNOWN}.items()))


def _iter_parts(text: str, longest: int) -> Iterator[str]:
    """Yield all substrings that may be a piece, normalised: a space before the text and single spaces inside."""
    spaced_text = _SPACE + _SPACE.join(word for word in text.split(" ") if word)
    for start in range(len(spaced_text)):
        for end in range(start + 1, min(start + longest, len(spaced_text)) + 1):
            yield spaced_text[start:end]


def _encode_piece(text: bytes, score: float, kind: int) -> bytes:
    """Encode field 1 of a ModelProto: text, score and type (https://protobuf.dev/programming-guides/encoding).

    A text is shorter than 100 bytes, so that each length is one byte.
    """
    body = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(body)]) + body
