"""The common part of all endpoints asked through the `openai` client: the client, the key, and what errors may
repeat.

The client is imported when the first of them is made.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai import OpenAI

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
