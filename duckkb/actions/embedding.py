"""The action embed: vectors of texts, each cut where the model stops reading; also vectors that callers give."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct

from duckkb.actions.resolve import regular_file
from duckkb.engine.base import Base
from duckkb.entries import Cut
from duckkb.errors import UsageError
from duckkb.llm.vector_form import from_hex, from_numbers, to_hex
from duckkb.queries import Notice
from duckkb.truth.files.line import Limits, LineError, parse_json

if TYPE_CHECKING:
    import numpy as np

_BOM = b"\xef\xbb\xbf"
_EXAMPLE = 'duckkb embed "some text"'
MOST_DIMENSIONS = 16_384
_WORD = re.compile("[0-9a-fA-F]{8}")
_SUGGESTION = "give a JSON array of numbers, or of 8 hex digits each as `duckkb embed` prints it"
_BATCH_EXAMPLE = 'duckkb embed --batch \'["one", "two"]\''


class Embedding(Struct, frozen=True):
    """Vectors as lists of 8 hex digits a value (float32, big-endian), the model's name, and its tokens.

    The tokens include prefix and marks; they are an estimate for an endpoint. Each truncated text has a notice.
    """

    vectors: tuple[list[str], ...]
    model: str
    tokens: int
    notices: tuple[Notice, ...] = ()


def embed(base: Base, texts: str | Sequence[str], *, passage: bool = False) -> Embedding:
    """Return vectors of texts as hex float32, with the model's name and the tokens used.

    A text over the model's limit is truncated, with a notice. Raises `errors.UsageError`, `errors.Unavailable`.
    """
    inputs = _check_texts([texts] if isinstance(texts, str) else texts, exit_code=2)
    model = base.wiring.embedder
    cuts = model.cut(inputs, passage=passage)
    vectors = (model.embed_passages if passage else model.embed_queries)([cut.text for cut in cuts])
    notices = tuple(_build_notice(number, cut) for number, cut in enumerate(cuts, 1) if cut.is_truncated)
    return Embedding(tuple(to_hex(vectors)), model.fingerprint.name, sum(cut.tokens for cut in cuts), notices)


def embed_input(
    base: Base, text: str | None, file: str | None, *, batch: bool = False, stdin: BinaryIO | None = None
) -> list[str]:
    """Return the texts of an `embed` command line, from an argument, a file or stdin.

    CR LF counts as LF, and trailing line ends are removed. Raises `errors.UsageError`, with exit code 1 for
    wrong content of a file.
    """
    most = base.limits.max_record_bytes
    if file is not None:
        with regular_file(base, Path(file), "a text file").open("rb") as stream:
            data, name, exit_code = stream.read(most + 1), file, 1
    elif text is not None:
        data, name, exit_code = _encode_argument(text), "the argument", 2
    else:
        data, name, exit_code = stdin.read(most + 1) if stdin else b"", "stdin", 2
    whole = decode_input(data, name, most, exit_code).replace("\r\n", "\n").rstrip("\n")
    return _check_texts(_array(base, whole, name, exit_code) if batch else [whole], exit_code)


def _encode_argument(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # the bytes as typed
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode_input(data: bytes, name: str, most: int, exit_code: int) -> str:
    """Decode bytes as text; raises `errors.UsageError` that names the problem."""
    if len(data) > most:
        message = f"{name} has more bytes than limits.max_record_bytes ({most:,})"
        raise UsageError(message, "E_TOO_LARGE", "embed it in parts", exit_code=exit_code)
    if data.startswith(_BOM):
        message = f"{name} starts with a byte order mark"
        raise UsageError(message, "E_BOM", "save it as UTF-8 without one", exit_code=exit_code)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"{name} is not UTF-8 text: byte {error.start + 1} is 0x{data[error.start]:02x}"
        raise UsageError(message, "E_UTF8", "convert it to UTF-8", exit_code=exit_code) from error


def _array(base: Base, text: str, name: str, exit_code: int) -> list[str]:
    """Parse a JSON array of strings."""
    if not text.strip():
        raise UsageError(f"{name} is empty: --batch takes a JSON array", "E_USAGE", _BATCH_EXAMPLE, exit_code=exit_code)
    try:
        value = parse_json(text.encode(), base.limits)
    except LineError as error:
        first = error.findings[0]
        place = f" at {first.field}" if first.field else ""
        message = f"{name} is not a JSON array of strings: {first.message}{place}"
        raise UsageError(message, first.code, _BATCH_EXAMPLE, findings=error.findings, exit_code=exit_code) from error
    if not isinstance(value, list):
        raise UsageError(f"{name} is JSON, but not an array", "E_JSON", _BATCH_EXAMPLE, exit_code=exit_code)
    if not value:
        raise UsageError(f"{name} is an empty array", "E_USAGE", _BATCH_EXAMPLE, exit_code=exit_code)
    return value


def _check_texts(texts: object, exit_code: int) -> list[str]:
    """Return texts that a model accepts; raises `errors.UsageError` that names the first other value."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
        raise UsageError("give one text, or several", suggestion=_EXAMPLE, exit_code=exit_code)
    for number, text in enumerate(texts, 1):
        problem, code = flaw(text)
        if problem:
            place = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
            raise UsageError(f"{place} {problem}", code, _EXAMPLE, exit_code=exit_code)
    return list(texts)


def flaw(text: object) -> tuple[str, str]:
    """Return what is wrong with a text, and its code; two empty strings where nothing is."""
    if not isinstance(text, str):
        return "is not a string", "E_USAGE"
    if not text.strip():
        return "is empty" if not text else "has only white space", "E_USAGE"
    if "\0" in text:
        return f"has a NUL character at {text.index(chr(0)) + 1}", "E_NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "has half of a surrogate pair", "E_SURROGATE"
    return "", ""


def _build_notice(number: int, cut: Cut) -> Notice:
    counts = f"original {cut.original}, truncated {cut.tokens}, limit {cut.limit} tokens"
    return Notice("W_TRUNCATED", f"text {number} was cut: {counts}", "embed it in parts")


def vector_input(base: Base, file: str, *, stdin: BinaryIO | None = None) -> "np.ndarray":
    """Return the vector (float32, 1-d) of a file or of stdin (`-`): a JSON array of numbers or of 8 hex digits.

    Raises `errors.UsageError`.
    """
    most = base.limits.max_record_bytes
    if file == "-":
        return read_vector(stdin.read(most) if stdin else b"")
    with regular_file(base, Path(file), "a file with a vector").open("rb") as stream:
        return read_vector(stream.read(most))


def read_vector(data: bytes) -> "np.ndarray":
    """Parse a vector: float32, 1-d, 1 to 16,384 values, finite and not all zeros; hex is exact.

    Raises `errors.UsageError` that names the first wrong value, counted from 1.
    """
    values = _parse_values(data)
    is_hex = isinstance(values[0], str)
    for place, value in enumerate(values, 1):
        if flaw := _find_flaw(value, is_hex):
            raise _build_refusal(f"value {place} of the vector {flaw}")
    vector = from_hex(values) if is_hex else from_numbers(values)
    finite = abs(vector) < float("inf")  # false for NaN too
    if not finite.all():
        place = int(finite.argmin()) + 1
        flaw = "is not a finite number" if is_hex else "is too large for float32"
        raise _build_refusal(f"value {place} of the vector {flaw}")
    if not vector.any():
        raise _build_refusal("all values of the vector are 0")
    return vector


def _parse_values(data: bytes) -> list[Any]:
    if not data.strip():
        raise _build_refusal("no vector given: the input is empty")
    try:
        values = parse_json(data, Limits())
    except LineError as error:
        first = error.findings[0]
        place = f"value {int(first.field[1:]) + 1}: " if first.field[1:].isdecimal() else ""
        raise _build_refusal(f"the vector cannot be read: {place}{first.message}") from error
    if not isinstance(values, list):
        raise _build_refusal("a vector is a JSON array")
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise _build_refusal(f"a vector has 1 to {MOST_DIMENSIONS:,} values; this one has {len(values):,}")
    return values


def _find_flaw(value: object, is_hex: bool) -> str:
    """Return what is wrong with a value, for vectors of hex or of numbers; empty where nothing is."""
    if isinstance(value, str):
        if not is_hex:
            return "is a string, while the first is a number"
        return "" if _WORD.fullmatch(value) else "is not 8 hex digits"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is neither a number nor 8 hex digits"
    return "is a number, while the first is a string" if is_hex else ""


def _build_refusal(message: str) -> UsageError:
    return UsageError(message, suggestion=_SUGGESTION)
