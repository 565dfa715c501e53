"""The local model as the user's cache folder keeps it: converted once, checked at every load.

`models/<hash of the weights>/` holds the tokenizer, a graph for each mode, and a manifest for each mode that is written
last. A file is written beside its place and then renamed, and equal weights give equal files; so two processes that
convert at once do each other no harm. Files that do not match their manifest are made again. The weights stay where
their package put them, mapped and not copied; they are hashed whenever their size or time has changed.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duckkb.llm.providers import e5_weights
from duckkb.llm.providers.e5_weights import Tensor
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.llm.providers.onnx_graph import Mode

_FORMAT = 1  # of the files here; another number has them made again
_TOKENIZER = "tokens.model"
_EMBEDDINGS = ("emb.word", "emb.pos", "emb.type")


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What a load needs beside the files: their sha256, the weights' size and time, and what was read from the weights."""

    files: Mapping[str, str]
    size: int
    mtime_ns: int
    begin: int
    end: int
    folding: Mapping[int, str]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Converted:
    """Everything to run the model: serialised tokenizer and graph, ids of the marks around a text, folded code points,
    token embeddings as quantised blocks (a row a token) and the float32 vector to add at each position."""

    tokenizer: bytes
    graph: bytes
    begin: int
    end: int
    folding: Mapping[int, str]
    words: np.ndarray
    positions: np.ndarray


def open_model(source: Path, sha256: str, mode: "Mode", cache_home: Path) -> Converted:
    """Load the model in one of its modes from the weights at `source`, after converting them where that is to be done.

    Raises `ImportError` without the packages, `ValueError` for weights whose hash is not `sha256`, and `OSError` where
    the weights cannot be read or the cache cannot be written.
    """
    if not source.is_file():
        raise ValueError(f"{source} is missing")
    stat = source.stat()
    data = e5_weights.map_file(source)
    folder = cache_home / "models" / sha256[:12]
    manifest = _read_manifest(folder, mode)
    files = _intact_files(folder, manifest, mode)
    if manifest and files and (manifest.size, manifest.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
        return _assemble(manifest, files, mode, data)
    if hashlib.sha256(data.data).hexdigest() != sha256:
        raise ValueError(f"{source} is not the file that this version of duckkb knows")
    if manifest and files:
        manifest = replace(manifest, size=stat.st_size, mtime_ns=stat.st_mtime_ns)
    else:
        manifest, files = _convert(data, folder, mode, stat)
    _write(folder / f"{mode}.json", json.dumps(_as_json(manifest)).encode())
    return _assemble(manifest, files, mode, data)


def _read_manifest(folder: Path, mode: "Mode") -> _Manifest | None:
    """None where there is no manifest that this version can use: the files are derived, so they are made again."""
    try:
        raw = json.loads((folder / f"{mode}.json").read_bytes())
        if raw.pop("format") != _FORMAT:
            return None
        folding = {int(code_point): text for code_point, text in raw.pop("folding").items()}
        tensors = {name: Tensor(**place) for name, place in raw.pop("tensors").items()}
        return _Manifest(folding=folding, tensors=tensors, **raw)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _as_json(manifest: _Manifest) -> dict[str, Any]:
    return {"format": _FORMAT, **asdict(manifest)}


def _intact_files(folder: Path, manifest: _Manifest | None, mode: "Mode") -> dict[str, bytes]:
    """The converted files' bytes by name, none at all where one is missing or was damaged."""
    if manifest is None:
        return {}
    files = {}
    for name in (_TOKENIZER, f"{mode}.onnx"):
        try:
            files[name] = (folder / name).read_bytes()
        except FileNotFoundError:
            return {}
        if hashlib.sha256(files[name]).hexdigest() != manifest.files.get(name):
            return {}
    return files


def _convert(data: np.ndarray, folder: Path, mode: "Mode", stat: os.stat_result) -> tuple[_Manifest, dict[str, bytes]]:
    from duckkb.llm.providers.onnx_graph import encoder_graph

    weights = e5_weights.parse_weights(data)
    files = {_TOKENIZER: _tokenizer_model(weights.vocabulary), f"{mode}.onnx": encoder_graph(weights, mode)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write(folder / name, content)
    manifest = _Manifest(
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        begin=weights.vocabulary.begin,
        end=weights.vocabulary.end,
        folding=weights.folding,
        tensors={name: weights.tensors[name] for name in _EMBEDDINGS},
    )
    return manifest, files


def _tokenizer_model(vocabulary: e5_weights.Vocabulary) -> bytes:
    """A SentencePiece unigram model. Folding is done by us, as the original's compiled table is not in the weights."""
    schema: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # made by protobuf at run time, without types
    kinds = schema.ModelProto.SentencePiece
    marks = dict.fromkeys((vocabulary.begin, vocabulary.end, vocabulary.padding), kinds.CONTROL)
    marks[vocabulary.unknown] = kinds.UNKNOWN
    model = schema.ModelProto()
    for place, (piece, score) in enumerate(zip(vocabulary.pieces, vocabulary.scores, strict=True)):
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


def _assemble(manifest: _Manifest, files: Mapping[str, bytes], mode: "Mode", data: np.ndarray) -> Converted:
    words = e5_weights.quantised_blocks(data, manifest.tensors["emb.word"])
    position = e5_weights.float_values(data, manifest.tensors["emb.pos"])
    kind = e5_weights.float_values(data, manifest.tensors["emb.type"])
    hidden = kind.size // 2  # BERT has two types of segments, of which a lone text is the first
    return Converted(
        tokenizer=files[_TOKENIZER],
        graph=files[f"{mode}.onnx"],
        begin=manifest.begin,
        end=manifest.end,
        folding=manifest.folding,
        words=words.reshape(-1, hidden // e5_weights.BLOCK),
        positions=position.reshape(-1, hidden) + kind[:hidden],
    )
