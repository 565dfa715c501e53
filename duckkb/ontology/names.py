"""Names: which are safe as folders, SQL tables and types, and which known name a mistyped one means.

Rules for single values of the configuration. A rule words its own refusal and its own description."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2s
from typing import Any, Protocol

from msgspec import Struct

from duckkb.types.queries import Mode

_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WINDOWS = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
_RUNTIME_TABLES = {"search_index", "search_cache"}
_SQL_NAMES = {"main", "temp", "system", "memory", "information_schema"}
_SQL_PREFIXES = ("pg_", "duckdb_", "sqlite_", "pragma_")
_EVERY_TYPE = "all"
_MOST_NAMED = 16
_MOST_COMPARED, _LONGEST_COMPARED = 1_000, 200


def is_table_name(name: str) -> bool:
    """Return whether a table or label can have this name: a safe folder, no runtime table of duckkb, not `all`.

    A safe folder is one on every system.

    >>> is_table_name("person"), is_table_name("con"), is_table_name("Person"), is_table_name("search_index")
    (True, False, False, False)
    """
    is_taken = name in _WINDOWS or name in _RUNTIME_TABLES or name == _EVERY_TYPE
    return bool(_TABLE.fullmatch(name)) and not is_taken


def describe_reservation(name: str) -> str:
    """Return why no new collection, table or label may have a name, as the end of a sentence; empty if it may.

    A base that has such a name already stays readable: `check` reports it.

    >>> describe_reservation("Main"), describe_reservation("notes")
    ("is a name of DuckDB's own, which `sql` may take for that", '')
    """
    plain = name.casefold().replace("-", "_")
    if plain in _WINDOWS:
        return "is a device on Windows, where no file or folder can have this name"
    if plain in _RUNTIME_TABLES:
        return "is a table of duckkb's own, which `sql` reads under this name"
    if plain in _SQL_NAMES or plain.startswith(_SQL_PREFIXES):
        return "is a name of DuckDB's own, which `sql` may take for that"
    return ""


def is_type_name(name: str) -> bool:
    """Return whether a type or policy can have this name: letters of any script, digits and `_`, at most 64, a
    letter first.

    `all` is left out, as commands use it for every type.
    """
    is_word = name.isidentifier() and not name.startswith("_") and len(name) <= 64
    return is_word and unicodedata.is_normalized("NFC", name) and name.casefold() != _EVERY_TYPE


def is_policy_name(name: str) -> bool:
    """Return whether a policy or a collection can have this name: as a type, and with hyphens inside.

    >>> is_policy_name("knowledge-base"), is_policy_name("-kb"), is_policy_name("all")
    (True, False, False)
    """
    return is_type_name(name.replace("-", "_")) and not name.startswith("-")


def is_folder(path: str) -> bool:
    """Return whether a path names a folder below its starting point, in its one canonical spelling.

    >>> is_folder("docs/guide"), is_folder("../docs"), is_folder("docs/")
    (True, False, False)
    """
    return not any(name in ("", ".", "..") or "\\" in name for name in path.split("/")) and "\0" not in path


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it; both are relative to one place (`.`), or absolute.

    >>> is_inside("docs/guide", "docs"), is_inside("docs2", "docs"), is_inside("docs", "."), is_inside("/docs", ".")
    (True, False, True, False)
    """
    return path == folder or path.startswith(f"{folder}/") or (folder == "." and not path.startswith("/"))


def collection_table(name: str) -> str:
    """Return the table of a collection that names none: its name where that is safe, else a short hash of it.

    >>> collection_table("My-Notes"), collection_table("notes")
    ('my_notes', 'notes')
    """
    plain = name.lower().replace("-", "_")
    return plain if is_table_name(plain) else "c_" + blake2s(name.encode(), digest_size=6).hexdigest()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that `word` most likely means, None where none is close. Case does not count.

    >>> nearest("chunksize", ["chunk_size", "tokenizer"])
    'chunk_size'
    """
    names_by_casefold = {name.casefold(): name for name in known}
    if len(names_by_casefold) > _MOST_COMPARED or len(word) > _LONGEST_COMPARED:
        return None  # too long for a typed name, and slow to compare
    from difflib import get_close_matches

    close = get_close_matches(word.casefold(), names_by_casefold, n=1, cutoff=0.6)
    return names_by_casefold[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a remedy that names the nearest known name, empty where none is close."""
    name = nearest(word, known)
    return f"did you mean `{name}`?" if name else ""


def paths_inside(records: Iterable[Mapping[str, Any]], path: str) -> list[str]:
    """Return the dotted paths that the records have below the first name of `path`.

    >>> paths_inside([{"meta": {"lang": "en", "by": {"id": 1}}, "n": 1}], "meta.lnag")
    ['meta.lang', 'meta.by', 'meta.by.id']
    """
    paths: dict[str, None] = {}
    head = path.partition(".")[0]
    open_ones = [(head, record.get(head)) for record in records]
    while open_ones and len(paths) < _MOST_COMPARED:
        below = [
            (f"{at}.{key}", item)
            for at, value in open_ones
            if isinstance(value, Mapping)
            for key, item in value.items()
        ]
        paths |= dict.fromkeys(at for at, _ in below)
        open_ones = below
    return list(paths)


def steps_through_lists(records: Iterable[Mapping[str, Any]], path: str) -> list[str]:
    """Split a dotted path behind each list that it passes in some record; a path without lists stays whole.

    >>> steps_through_lists([{"n": 1}, {"meta": {"by": [{"id": {"no": 1}}]}}], "meta.by.id.no")
    ['meta.by', 'id.no']
    """

    def cut(value: Any, at: str, remaining: Sequence[str]) -> list[str]:
        if isinstance(value, Mapping) and remaining and remaining[0] in value:
            return cut(value[remaining[0]], f"{at}.{remaining[0]}" if at else remaining[0], remaining[1:])
        inner = (
            (cut(item, "", remaining) for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()
        )
        return [at] if not remaining else next(([at, *steps] for steps in inner if steps), [])

    names = path.split(".")
    return next((steps for record in records if len(steps := cut(record, "", names)) > 1), [path])


def paths_to(records: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Return the dotted paths in the records that end with `name`; case does not count.

    >>> paths_to([{"ticket": {"status": "open", "by": {"Status": 1}}, "status": 1}], "status")
    ['ticket.status', 'ticket.by.Status']
    """
    paths: dict[str, None] = {}
    for record in records:
        open_values: list[tuple[str, Mapping[str, Any]]] = [
            (key, value) for key, value in record.items() if isinstance(value, Mapping)
        ]
        for at, inner in open_values:
            paths |= {f"{at}.{key}": None for key in inner if key.casefold() == name.casefold()}
            open_values += [(f"{at}.{key}", value) for key, value in inner.items() if isinstance(value, Mapping)]
    return list(paths)


def suggest_known_names(word: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name: the nearest known one, else the first few known names."""
    names = list(known)
    few = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return did_you_mean(word, names) or (f"known here: {few}" if names else "none is declared")


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
