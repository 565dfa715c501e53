"""The local model in the user's cache folder: converted once, checked at every load.

`models/<hash of the weights>/` holds the tokenizer, whole and as a table of its pieces, a graph for each mode,
and a manifest for each mode that is written last. Files are written beside their place and then renamed, and
equal weights give equal files; so two processes may convert at once.
Files that do not match their manifest are made again. The weights stay where their package put them, mapped and
not copied. All of them are hashed whenever their size or time has changed.

The tokenizer of multilingual-e5-small for few words: a SentencePiece model of only the pieces in them.

SentencePiece makes a trie of all 250,000 pieces whenever it loads them, which takes longer than everything else
before a first answer. How a text is cut depends on the pieces that are parts of it, and on the lowest score of
all (which scores unknown characters): a model of these cuts it in the same way.
They are looked up in a table that is made once: the sorted CRCs of the pieces, with their numbers. A piece that
shares the CRC of a part without being one does no harm."""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from duckkb import atomic_write
from duckkb.llm.providers.e5_weights import Weights, parse_weights

if TYPE_CHECKING:
    from duckkb.llm.providers.onnx_graph import Mode

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


_FORMAT = 3  # of the files here; a new number makes them again
_TOKENIZER, _PIECES = "tokens.model", "tokens.pieces"


class Converted(Struct, frozen=True):
    """The files to run the model: its weights, the table of the tokenizer's pieces (`e5_pieces`), and the graph
    for its library.
    """

    weights: Weights
    pieces: bytes
    graph: bytes
    folder: Path
    digest: str

    def tokenizer(self) -> bytes:
        """Return the whole tokenizer for its library; make it again where its file is gone."""
        try:
            data = (self.folder / _TOKENIZER).read_bytes()
        except OSError:
            data = b""
        return data if hashlib.sha256(data).hexdigest() == self.digest else _build_tokenizer_model(self.weights)


def open_model(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> Converted:
    """Load the model in one of its modes from the weights at `source`; convert them first where needed.

    Raises `ImportError` without the packages, `ValueError` for weights whose hash is not `sha256`, and
    `OSError` where the weights cannot be read or the cache cannot be written.
    """
    if not source.is_file():
        raise ValueError(f"{source} is missing")
    data, stamp = np.memmap(source, np.uint8, "r"), _read_times(source)
    folder, names = cache_home / "models" / sha256[:12], (_TOKENIZER, _PIECES, f"{mode}.onnx")
    manifest = _read_manifest(folder / f"{mode}.json")
    entries = {} if manifest is None else _verify_files(folder, names, manifest["files"])
    if manifest is None or manifest["stamp"] != stamp or manifest["files"] != entries:
        if hashlib.sha256(data.data).hexdigest() != sha256:
            raise ValueError(f"{source} is not the file that this version of duckkb knows")
        entries = entries or _convert_weights(parse_weights(data), folder, names, mode)
        note = json.dumps({"format": _FORMAT, "stamp": stamp, "files": entries}).encode()
        atomic_write.replace_file(folder / f"{mode}.json", note, mode=0o600, durable=False)
    pieces, graph = ((folder / name).read_bytes() for name in names[1:])
    return Converted(parse_weights(data), pieces, graph, folder, str(entries[_TOKENIZER][0]))


def stamp(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> tuple[object, ...] | None:
    """Return a value that changes whenever a file of such a model changes; None where one is missing."""
    folder = cache_home / "models" / sha256[:12]
    try:
        stats = [
            path.stat()
            for path in (source, *(folder / name for name in (_TOKENIZER, _PIECES, f"{mode}.onnx", f"{mode}.json")))
        ]
    except OSError:
        return None
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats)


def _read_times(path: Path) -> list[int]:
    """Return the size and the modification time."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a manifest; None where this version cannot use it: the files are derived, so they are made again."""
    try:
        manifest = json.loads(path.read_bytes())
        usable = manifest["format"] == _FORMAT and isinstance(manifest["files"], dict) and "stamp" in manifest
        return manifest if usable else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _verify_files(folder: Path, names: tuple[str, ...], known_entries: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return hash, size and time of the converted files by name; empty where one is missing or damaged.

    A file with the known size and time is not read.
    """
    entries = {}
    for name in names:
        try:
            digest, *times = known_entries[name]
            if (
                times != _read_times(folder / name)
                and digest != hashlib.sha256((folder / name).read_bytes()).hexdigest()
            ):
                return {}
            entries[name] = [digest, *_read_times(folder / name)]
        except (FileNotFoundError, KeyError, ValueError, TypeError):
            return {}
    return entries


def _convert_weights(weights: Weights, folder: Path, names: tuple[str, ...], mode: "Mode") -> dict[str, list[Any]]:
    from duckkb.llm.providers.onnx_graph import encoder_graph

    specifications = _build_tokenizer_model(weights, with_pieces=False)
    contents = (_build_tokenizer_model(weights), table(weights, specifications), encoder_graph(weights, mode))
    folder.mkdir(parents=True, exist_ok=True)
    entries = {}
    for name, content in zip(names, contents, strict=True):
        atomic_write.replace_file(folder / name, content, mode=0o600, durable=False)
        entries[name] = [hashlib.sha256(content).hexdigest(), *_read_times(folder / name)]
    return entries


def _build_tokenizer_model(weights: Weights, *, with_pieces: bool = True) -> bytes:
    """Build a SentencePiece unigram model. It folds nothing: the weights lack the compiled table, so we fold."""
    schema: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made by protobuf at run time, without types
    kinds, vocabulary = schema.ModelProto.SentencePiece, weights.vocabulary
    marks = dict.fromkeys((vocabulary.begin, vocabulary.end, vocabulary.padding), kinds.CONTROL)
    marks[vocabulary.unknown] = kinds.UNKNOWN
    model = schema.ModelProto()
    for place, (piece, score) in enumerate(weights.unigrams() if with_pieces else ()):
        model.pieces.add(piece=piece, score=score, type=marks.get(place, kinds.NORMAL))
    model.trainer_spec.model_type = schema.TrainerSpec.UNIGRAM
    model.trainer_spec.unk_id = vocabulary.unknown
    model.trainer_spec.bos_id = vocabulary.begin
    model.trainer_spec.eos_id = vocabulary.end
    model.trainer_spec.pad_id = vocabulary.padding
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    return bytes(model.SerializeToString())
