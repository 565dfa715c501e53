"""Rules for single values of the configuration. A rule words its own refusal and its own description."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from duckkb.ontology.names import did_you_mean
from duckkb.queries import Mode

LANGUAGES = (
    "none", "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
)  # fmt: skip
MODES: tuple[Mode, ...] = ("similar", "match", "hybrid", "where")
CARDINALITIES = ("1:1", "1:N", "N:1", "N:N")
GRANULARITIES = ("field", "record")
REVIEWS = ("required",)

# The forms of keys that the large providers and forges give out, a private key, a JSON web token.
_SECRET = re.compile(
    r"^sk-\S{6,}$|\bsk-(?=[\w-]{0,99}[0-9])[\w-]{12,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bxox[abposr]-[\w-]{10,}|\bBearer\s+\S{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
# A web token's first part is matched as one run: a search from every `eyJ` of a long run would be quadratic.
_WEB_TOKEN = re.compile(r"(?<![\w-])([\w-]{11,}+)\.(?=eyJ[\w-]{8})")
_HEADER = re.compile(r"\beyJ[\w-]{8}")
_LONGEST_SHOWN = 60


def looks_secret(text: str) -> bool:
    """Return whether a text has the form of a key or token that a provider issues."""
    if _SECRET.search(text):
        return True
    return ".eyJ" in text and any(_HEADER.search(match[1]) for match in _WEB_TOKEN.finditer(text))


def show_value(value: Any) -> str:
    """Return a value as messages show it: short, on one line, and masked where it looks like a secret."""
    match value:
        case None:
            return "nothing"
        case str():
            # A text can be a whole file; only its beginning is looked at.
            text = value[: 4 * _LONGEST_SHOWN]
            is_secret = looks_secret(text)
            return (
                "a text that looks like a secret"
                if is_secret
                else _cut(json.dumps(text, ensure_ascii=not text.isprintable()))
            )
        case bool() | float():
            return json.dumps(value)
        case int():
            return _cut(str(value)) if abs(value) < 10**_LONGEST_SHOWN else "a huge integer"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


class Rule(Protocol):
    """A rule for one value. Its text describes the range, as in `100 to 50000`."""

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value, None where it is valid."""
        ...


class Whole(Struct, frozen=True):
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"

    def problem(self, value: Any) -> str | None:
        if type(value) is int and self.low <= value <= self.high:
            return None
        return f"must be a whole number from {self.low} to {self.high}, is {show_value(value)}{_explain_quotes(value)}"


class Number(Struct, frozen=True):
    """A finite number from `low` to `high`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def problem(self, value: Any) -> str | None:
        if type(value) in (int, float) and math.isfinite(value) and self.low <= value <= self.high:
            return None
        return f"must be a number from {self.low:g} to {self.high:g}, is {show_value(value)}{_explain_quotes(value)}"


class Choice(Struct, frozen=True):
    """One of several words."""

    options: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.options)

    def problem(self, value: Any) -> str | None:
        if isinstance(value, str) and value in self.options:
            return None
        hint = did_you_mean(value, self.options) if isinstance(value, str) else ""
        return f"must be one of {self}, is {show_value(value)}" + (f"; {hint}" if hint else "")


class Flag(Struct, frozen=True):
    """True or false."""

    def __str__(self) -> str:
        return "true, false"

    def problem(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else f"must be true or false, is {show_value(value)}"


class Text(Struct, frozen=True):
    """A text on one line, not empty."""

    longest: int = 200

    def __str__(self) -> str:
        return "text"

    def problem(self, value: Any) -> str | None:
        if isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= self.longest:
            return None
        return f"must be a text on one line, of at most {self.longest} characters, is {show_value(value)}"


class Url(Struct, frozen=True):
    """An http or https address without user, query or fragment, where a key could hide."""

    def __str__(self) -> str:
        return "http or https address"

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, str) or not value.isprintable() or " " in value or len(value) > 2_000:
            return "must be an http or https address"
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(value)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            return "must be an http or https address"
        if "@" in parts.netloc or "?" in value or "#" in value:
            return "must have no user, query or fragment; a key comes from the environment, named by `api_key_env`"
        return None


class VariableName(Struct, frozen=True):
    """The name of an environment variable. An invalid value is never shown: it may be the key itself."""

    def __str__(self) -> str:
        return "name of an environment variable"

    def problem(self, value: Any) -> str | None:
        if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", value):
            return None
        return "must be the name of an environment variable, not the key itself"


class Names(Struct, frozen=True):
    """A mapping of names to any values."""

    def __str__(self) -> str:
        return "mapping"

    def problem(self, value: Any) -> str | None:
        return None if isinstance(value, Mapping) else f"must be a mapping, is {show_value(value)}"


def _explain_quotes(value: Any) -> str:
    is_number = isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value)
    return "; write it without quotes" if is_number else ""


CHUNK_SIZE = Whole(100, 50_000)
LANGUAGE = Choice(LANGUAGES)
WEIGHT = Number(0.01, 100)
FUSION: Mapping[str, Rule] = {
    "method": Choice(("rrf", "minmax")),
    "k": Whole(1, 10_000),
    "weight": Number(0, 1),
    "gate": Number(0, 1),
}
EXPANSION: Mapping[str, Rule] = {
    "method": Choice(("none", "feedback")),
    "weight": Number(0, 1),
    "hits": Whole(1, 20),
}
