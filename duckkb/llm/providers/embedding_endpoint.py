"""Embeddings from an endpoint with OpenAI's protocol, through the `openai` client.

The client waits and retries (429, 408, 409, 5xx, time-outs, lost connections): `max_retries` times, longer each
time or as long as Retry-After says. Every answer is checked before use, and errors repeat nothing of a server
but one line on what is wrong with a request.

The common part of all endpoints asked through the `openai` client: the client, the key, and what errors may
repeat.

The client is imported when the first of them is made."""

import base64
import hashlib
import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from duckkb.llm.embedder_contract import estimate_window_tokens, halves, unit_mean
from duckkb.types.errors import Unavailable
from duckkb.types.records import Cut, Fingerprint
from duckkb.types.settings import EmbeddingSettings

if TYPE_CHECKING:
    import numpy as np
    from openai import APIStatusError, OpenAI

EXPLAINED = frozenset({400, 404, 413, 422})
"""Statuses whose message concerns the request and not the key."""
_MESSAGE_CHARACTERS = 200
_KEY_PIECE = 6  # characters of a key that a message may not repeat
_CONNECT_S = 10.0


def open_client(base_url: str, key: str | None, seconds: float, most_bytes: int, max_retries: int = 0) -> "OpenAI":
    """Return a client with limits of bytes and seconds.

    The openai client insists on a key; the HTTP client below it decides what is sent.
    """
    from openai import OpenAI, Timeout

    from duckkb.llm.providers.guarded_http import GuardedClient

    return OpenAI(
        api_key=key or "none",
        base_url=base_url,
        max_retries=max_retries,
        timeout=Timeout(seconds, connect=min(seconds, _CONNECT_S)),
        http_client=GuardedClient(key, seconds, most_bytes),
    )


def is_sendable(key: str | None) -> bool:
    """Return whether a header can carry the key."""
    return not key or (key.isascii() and key.isprintable())


def explanation(body: object, key: str | None) -> str:
    """Return one line of a server's own message, without control characters, or any piece of the key."""
    message = next((body[name] for name in ("message", "detail") if name in body), "") if isinstance(body, dict) else ""
    line = "".join(character if character.isprintable() else " " for character in str(message))
    if key and _has_key_piece(line, key):
        return ""
    return f": {line[:_MESSAGE_CHARACTERS]}" if line.strip() else ""


def _has_key_piece(text: str, key: str) -> bool:
    """Return whether a text has a piece of the key, as it is, backwards or in another case."""
    size, folded_text = min(_KEY_PIECE, len(key)), text.casefold()
    pieces = {key[at : at + size].casefold() for at in range(len(key) - size + 1)}
    return any(piece in folded_text or piece[::-1] in folded_text for piece in pieces)


_SHORTEST = 128  # characters; every model takes texts of this length, so a refusal means something else
_TOO_LONG = {400, 413, 422}  # what endpoints answer to a text over their limit
_SLACK_BYTES = 1 << 20
_NUMBER_BYTES = 32  # of one number as JSON text, generously
_MOST_DIMENSIONS = 8192


class OpenAIEndpoint:
    """An embedder at an endpoint.

    `settings.base_url` must be set, and its creator has checked that the host is trusted.
    No prefixes are added, so `symmetric` changes the fingerprint alone. The dimension is the configured one,
    else that of the first vector seen; a vector of another is an error. Safe to share between threads. Every
    fault is an `errors.Unavailable` with code `E_MODEL`; none contains the key.
    """

    def __init__(self, settings: EmbeddingSettings, key: str | None) -> None:
        self._settings = settings
        self._key = key.strip() if key else None
        self._dimension = settings.dimensions
        self._client: OpenAI | None = None
        self._making = threading.Lock()

    @property
    def host(self) -> str:
        """The host and port, for messages."""
        address = urlsplit(self._settings.base_url or "")
        return f"{address.hostname}:{address.port}" if address.port else str(address.hostname)

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of model, address, dimensions and use, known without a request."""
        settings = self._settings
        address = (settings.base_url or "").rstrip("/")
        parts = json.dumps([address, settings.model, settings.dimensions, settings.symmetric])
        return Fingerprint(settings.model, hashlib.sha256(parts.encode()).hexdigest()[:16], settings.dimensions or 0)

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        return self._embed(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate the tokens by characters."""
        return [estimate_window_tokens(text) for text in texts]

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        """Return the texts whole: the protocol tells neither a model's limit nor its tokens."""
        return [Cut(text, count, count) for text, count in zip(texts, self.count_tokens(texts), strict=True)]

    def _embed(self, texts: Sequence[str]) -> "np.ndarray":
        import numpy as np

        size = self._settings.batch_size
        # Endpoints refuse the empty text, but an embedder has a vector for everything.
        inputs = [text if text.strip() else " " for text in texts]
        batches = [self._embed_batch(inputs[start : start + size]) for start in range(0, len(inputs), size)]
        return np.concatenate(batches) if batches else np.empty((0, self._dimension or 0), np.float32)

    def _embed_batch(self, texts: list[str]) -> "np.ndarray":
        """Embed texts, one vector each. A batch that is refused for its length is halved, then its texts are."""
        import numpy as np
        from openai import APIStatusError

        try:
            return self._ask(texts)
        except APIStatusError as error:
            if error.status_code not in _TOO_LONG or (len(texts) == 1 and len(texts[0]) < 2 * _SHORTEST):
                raise self._convert_status_error(error) from None
        if len(texts) > 1:
            middle = len(texts) // 2
            return np.concatenate([self._embed_batch(texts[:middle]), self._embed_batch(texts[middle:])])
        parts = halves(texts[0])
        vectors = self._embed_batch([part if part.strip() else " " for part in parts])
        return unit_mean(vectors, [len(part) for part in parts])[None].astype(np.float32)

    def _ask(self, texts: list[str]) -> "np.ndarray":
        """Send one request. `APIStatusError` passes, since asking for less may help."""
        from openai import APIConnectionError, APITimeoutError, omit

        from duckkb.llm.providers.json_endpoint import AnswerRefused

        settings = self._settings
        try:
            answer = self._get_client().embeddings.with_raw_response.create(
                input=texts, model=settings.model, dimensions=settings.dimensions or omit, encoding_format="float"
            )
            vectors = read_answer(answer.content, len(texts), self._dimension)
        except APITimeoutError:
            raise self._make_fault(f"did not answer in {settings.timeout_s:g} s") from None
        except APIConnectionError as error:
            if isinstance(error.__cause__, AnswerRefused):  # openai 2 wraps it, openai 3 lets it pass
                raise self._make_fault(str(error.__cause__)) from None
            problem = "could not be reached, or broke off"
            raise self._make_fault(problem, "check embedding.base_url and the network") from error
        except AnswerRefused as error:
            raise self._make_fault(str(error)) from None
        except BadAnswer as error:
            raise self._make_fault(f"gave an answer that cannot be used: {error}") from error
        self._dimension = vectors.shape[1]
        return vectors

    def _get_client(self) -> "OpenAI":
        with self._making:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _make_client(self) -> "OpenAI":
        settings = self._settings
        if not is_sendable(self._key):
            raise self._make_fault("cannot be sent this key, which has characters that a header does not carry")
        most_bytes = _SLACK_BYTES + settings.batch_size * (settings.dimensions or _MOST_DIMENSIONS) * _NUMBER_BYTES
        return open_client(settings.base_url or "", self._key, settings.timeout_s, most_bytes, settings.max_retries)

    def _convert_status_error(self, error: "APIStatusError") -> Unavailable:
        status, variable = error.status_code, self._settings.api_key_env
        if status in (401, 403):
            remedy = (
                f"set {variable} to a valid key" if variable else "name the key's variable in embedding.api_key_env"
            )
            return self._make_fault(f"refused the key (HTTP {status})", remedy)
        if status == 429:
            return self._make_fault("asks to be asked less often (HTTP 429)", "wait, or lower embedding.batch_size")
        if 300 <= status < 400:
            return self._make_fault(f"points elsewhere (HTTP {status})", "set embedding.base_url to the final address")
        if status in EXPLAINED:
            server_message = explanation(error.body, self._key)
            return self._make_fault(
                f"refused the request (HTTP {status}){server_message}", "check embedding_model and embedding.*"
            )
        return self._make_fault(f"failed (HTTP {status})", "try again later")

    def _make_fault(self, problem: str, suggestion: str = "check embedding.base_url, or search with -m") -> Unavailable:
        message = f"The embedding endpoint {self.host} {problem}."
        return Unavailable(message, code="E_MODEL", suggestion=suggestion)


class BadAnswer(Exception):
    """An answer that does not hold the requested vectors; the text says what is wrong and quotes nothing."""


def read_answer(content: bytes, count: int, dimension: int | None) -> "np.ndarray":
    """Return an answer's vectors in the order of the texts: float32 of shape (count, dimension), rows of unit
    length.

    Raises `BadAnswer` unless there are `count` of them, of one dimension (`dimension` where it is given), each
    finite and not zero. Numbers may come as a JSON array or as base64 of little-endian float32.
    """
    import numpy as np

    rows = _sort_rows(_parse_rows(content), count)
    vectors = [_parse_vector(row) for row in rows]
    expected_dimension = dimension or len(vectors[0])
    wrong_dimension = next((len(vector) for vector in vectors if len(vector) != expected_dimension), None)
    if wrong_dimension is not None:
        raise BadAnswer(f"a vector of dimension {wrong_dimension} where {expected_dimension} was expected")
    matrix = np.stack(vectors)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below, not as a warning
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise BadAnswer("numbers that are not finite")
    if not norms.all():
        raise BadAnswer("a vector of zeros")
    unit: np.ndarray = (matrix / norms).astype(np.float32)
    return unit


def _parse_rows(content: bytes) -> list[dict[str, Any]]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise BadAnswer("not JSON") from None
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadAnswer("no list of embeddings")
    return rows


def _sort_rows(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Sort the rows by `index`; keep their order where none has an index."""
    if len(rows) != count:
        raise BadAnswer(f"{len(rows)} vectors for {count} texts")
    places = [row.get("index") for row in rows]
    if all(place is None for place in places):
        return rows
    by_place = {place: row for place, row in zip(places, rows, strict=True) if isinstance(place, int)}
    if by_place.keys() != set(range(count)):
        raise BadAnswer("vectors whose indices do not fit the texts")
    return [by_place[place] for place in range(count)]


def _parse_vector(row: dict[str, Any]) -> "np.ndarray":
    import numpy as np

    numbers = row.get("embedding")
    try:
        if isinstance(numbers, str):
            vector = np.frombuffer(base64.b64decode(numbers, validate=True), "<f4").astype(np.float64)
        else:
            vector = np.asarray(numbers, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise BadAnswer("an embedding that is not a list of numbers") from None
    if vector.ndim != 1 or not vector.size:
        raise BadAnswer("an embedding that is not a list of numbers")
    return vector
