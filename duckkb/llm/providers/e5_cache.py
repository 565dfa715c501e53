"""The local model as the user's cache folder keeps it: converted once, checked at every load.

`models/<hash of the weights>/` holds the tokenizer, a graph for each mode, and a manifest for each mode that is written
last. A file is written beside its place and then renamed, and equal weights give equal files; so two processes that
convert at once do each other no harm. Files that do not match their manifest are made again. The weights stay where
their package put them, mapped and not copied; they are hashed whenever their size or time has changed.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duckkb.llm.providers.e5_weights import Weights, parse_weights
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.llm.providers.onnx_graph import Mode

_FORMAT = 2  # of the files here; another number has them made again
_TOKENIZER = "tokens.model"


@dataclass(frozen=True, slots=True)
class Converted:
    """Everything to run the model: its weights, and tokenizer and graph as their libraries read them."""

    weights: Weights
    tokenizer: bytes
    graph: bytes


def open_model(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> Converted:
    """Load the model in one of its modes from the weights at `source`, after converting them where that is to be done.

    Raises `ImportError` without the packages, `ValueError` for weights whose hash is not `sha256`, and `OSError` where
    the weights cannot be read or the cache cannot be written.
    """
    if not source.is_file():
        raise ValueError(f"{source} is missing")
    stat = source.stat()
    data, stamp = np.memmap(source, np.uint8, "r"), [stat.st_size, stat.st_mtime_ns]
    folder, names = cache_home / "models" / sha256[:12], (_TOKENIZER, f"{mode}.onnx")
    manifest = _read_manifest(folder / f"{mode}.json")
    files = _intact_files(folder, names, manifest)
    if not files or manifest.get("stamp") != stamp:
        if hashlib.sha256(data.data).hexdigest() != sha256:
            raise ValueError(f"{source} is not the file that this version of duckkb knows")
        files = files or _converted(parse_weights(data), folder, names, mode)
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        _write(folder / f"{mode}.json", json.dumps({"format": _FORMAT, "stamp": stamp, "files": hashes}).encode())
    return Converted(parse_weights(data), *(files[name] for name in names))


def _read_manifest(path: Path) -> dict[str, Any]:
    """Empty where there is none that this version can use: the files are derived, so they are made again."""
    try:
        found = json.loads(path.read_bytes())
        return found if found["format"] == _FORMAT and isinstance(found["files"], dict) else {}
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _intact_files(folder: Path, names: tuple[str, ...], manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The converted files' bytes by name, none at all where one is missing or was damaged."""
    files = {}
    for name in names if manifest else ():
        try:
            files[name] = (folder / name).read_bytes()
        except FileNotFoundError:
            return {}
        if hashlib.sha256(files[name]).hexdigest() != manifest["files"].get(name):
            return {}
    return files


def _converted(weights: Weights, folder: Path, names: tuple[str, ...], mode: "Mode") -> dict[str, bytes]:
    from duckkb.llm.providers.onnx_graph import encoder_graph

    files = dict(zip(names, (_tokenizer_model(weights), encoder_graph(weights, mode)), strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write(folder / name, content)
    return files


def _tokenizer_model(weights: Weights) -> bytes:
    """A SentencePiece unigram model. Folding is done by us, as the original's compiled table is not in the weights."""
    schema: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made by protobuf at run time, without types
    kinds, vocabulary = schema.ModelProto.SentencePiece, weights.vocabulary
    marks = dict.fromkeys((vocabulary.begin, vocabulary.end, vocabulary.padding), kinds.CONTROL)
    marks[vocabulary.unknown] = kinds.UNKNOWN
    model = schema.ModelProto()
    for place, (piece, score) in enumerate(weights.unigrams()):
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


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that nobody ever reads half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            file.write(content)
            file.close()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
