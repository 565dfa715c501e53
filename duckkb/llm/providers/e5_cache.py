"""The local model as the user's cache folder keeps it: converted once, checked at every load.

`models/<hash of the weights>/` holds the tokenizer, whole and as a table of its pieces, a graph for each mode, and a manifest for
each mode that is written last. A file is written beside its place and then renamed, and equal weights give equal files; so two
processes that convert at once do each other no harm. Files that do not match their manifest are made again. The weights stay
where their package put them, mapped and not copied. All of them are hashed whenever their size or time has changed.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from duckkb import atomic_write
from duckkb.llm.providers.e5_pieces import table
from duckkb.llm.providers.e5_weights import Weights, parse_weights

if TYPE_CHECKING:
    from duckkb.llm.providers.onnx_graph import Mode

_FORMAT = 3  # of the files here; another number has them made again
_TOKENIZER, _PIECES = "tokens.model", "tokens.pieces"


class Converted(Struct, frozen=True):
    """Everything to run the model: its weights, the table of the tokenizer's pieces (`e5_pieces`), and the graph as its library
    reads it."""

    weights: Weights
    pieces: bytes
    graph: bytes
    folder: Path
    digest: str

    def tokenizer(self) -> bytes:
        """The whole tokenizer as its library reads it; made again where the file is not there any more."""
        try:
            found = (self.folder / _TOKENIZER).read_bytes()
        except OSError:
            found = b""
        return found if hashlib.sha256(found).hexdigest() == self.digest else _tokenizer_model(self.weights)


def open_model(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> Converted:
    """Load the model in one of its modes from the weights at `source`, after converting them where that is to be done.

    Raises `ImportError` without the packages, `ValueError` for weights whose hash is not `sha256`, and `OSError` where
    the weights cannot be read or the cache cannot be written.
    """
    if not source.is_file():
        raise ValueError(f"{source} is missing")
    data, stamp = np.memmap(source, np.uint8, "r"), _times(source)
    folder, names = cache_home / "models" / sha256[:12], (_TOKENIZER, _PIECES, f"{mode}.onnx")
    manifest = _read_manifest(folder / f"{mode}.json")
    known = {} if manifest is None else _intact(folder, names, manifest["files"])
    if manifest is None or manifest["stamp"] != stamp or manifest["files"] != known:
        if hashlib.sha256(data.data).hexdigest() != sha256:
            raise ValueError(f"{source} is not the file that this version of duckkb knows")
        known = known or _converted(parse_weights(data), folder, names, mode)
        note = json.dumps({"format": _FORMAT, "stamp": stamp, "files": known}).encode()
        atomic_write.replace_file(folder / f"{mode}.json", note, mode=0o600, durable=False)
    pieces, graph = ((folder / name).read_bytes() for name in names[1:])
    return Converted(parse_weights(data), pieces, graph, folder, str(known[_TOKENIZER][0]))


def stamp(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> tuple[object, ...] | None:
    """Differs as soon as a file differs that such a model is loaded from; None where one is missing."""
    folder = cache_home / "models" / sha256[:12]
    try:
        found = [
            path.stat()
            for path in (source, *(folder / name for name in (_TOKENIZER, _PIECES, f"{mode}.onnx", f"{mode}.json")))
        ]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


def _times(path: Path) -> list[int]:
    """Size, and when it was written."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """None where there is none that this version can use: the files are derived, so they are made again."""
    try:
        found = json.loads(path.read_bytes())
        usable = found["format"] == _FORMAT and isinstance(found["files"], dict) and "stamp" in found
        return found if usable else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _intact(folder: Path, names: tuple[str, ...], known: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Hash, size and time of the converted files by name, none at all where one is missing or was damaged. What has the size and
    time that are known of it is not read."""
    found = {}
    for name in names:
        try:
            digest, *times = known[name]
            if times != _times(folder / name) and digest != hashlib.sha256((folder / name).read_bytes()).hexdigest():
                return {}
            found[name] = [digest, *_times(folder / name)]
        except (FileNotFoundError, KeyError, ValueError, TypeError):
            return {}
    return found


def _converted(weights: Weights, folder: Path, names: tuple[str, ...], mode: "Mode") -> dict[str, list[Any]]:
    from duckkb.llm.providers.onnx_graph import encoder_graph

    specifications = _tokenizer_model(weights, with_pieces=False)
    made = (_tokenizer_model(weights), table(weights, specifications), encoder_graph(weights, mode))
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, content in zip(names, made, strict=True):
        atomic_write.replace_file(folder / name, content, mode=0o600, durable=False)
        found[name] = [hashlib.sha256(content).hexdigest(), *_times(folder / name)]
    return found


def _tokenizer_model(weights: Weights, *, with_pieces: bool = True) -> bytes:
    """A SentencePiece unigram model. Folding is done by us, as the original's compiled table is not in the weights."""
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
