"""Records as values: identities, records, changes and changesets.

An identity is a tuple of components. A component is a string, an int64, or, in an edge's identity, the end of the edge:
a plain scalar where the end's type has a scalar identity, a tuple where it is composite, a `TypedEnd` where the edge
allows several end types and the bare identity would be ambiguous.

Index entries: chunks of fields with their tokens and vectors, and the fingerprints that key them."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.types.errors import shell_word

if TYPE_CHECKING:
    import numpy as np

Scalar = str | int


class TypedEnd(Struct, frozen=True):
    """An edge's end that names its type: `{"type": "Group", "id": "G1"}` in files."""

    type: str
    id: tuple[Scalar, ...]


Component = Scalar | tuple[Scalar, ...] | TypedEnd
Identity = tuple[Component, ...]

ID, CREATED_AT, UPDATED_AT = "__id", "__created_at", "__updated_at"
FROM, TO = "from", "to"


def component_value(component: Component) -> Any:
    """Return a component as it is in JSON: a scalar, an array, or `{"id", "type"}`."""
    match component:
        case TypedEnd(type=name, id=parts):
            return {"type": name, "id": component_value(parts)}
        case tuple():
            return component[0] if len(component) == 1 else list(component)
        case _:
            return component


def component_of(value: Any) -> Component:
    """Parse a component from JSON, the inverse of `component_value`; raises ValueError."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a string or an integer")
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, (list, tuple)) and value and all(type(part) in (str, int) for part in value):
        return tuple(value) if len(value) > 1 else value[0]
    if isinstance(value, Mapping) and set(value) == {"type", "id"} and isinstance(value["type"], str):
        inner = component_of(value["id"])
        if not isinstance(inner, TypedEnd):
            return TypedEnd(value["type"], inner if isinstance(inner, tuple) else (inner,))
    raise ValueError(f"{value!r} is not an identity: give a string, an integer or a list of them")


def identity_value(identity: Identity) -> Any:
    """Return an identity as the API has it: the plain scalar where it has one component, else a tuple."""
    return component_value(identity[0]) if len(identity) == 1 else tuple(map(component_value, identity))


def identity_text(identity: Identity) -> str:
    """Return an identity as the CLI reads and writes it: the scalar itself, or a JSON array on one line."""
    if len(identity) == 1 and isinstance(identity[0], (str, int)):
        return str(identity[0])
    parts = [component_value(component) for component in identity]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def record_arguments(type: str, identity: Identity) -> str:
    """Return the arguments that name a record in a shell: `duckkb get ARGUMENTS` prints it."""
    return f"{shell_word(type)} {shell_word(identity_text(identity))}"


def component_key(component: Component) -> tuple[Any, ...]:
    """Return a sort key: integers numerically and before strings, strings by code point (UTF-8 byte order)."""
    match component:
        case int():
            return (0, component)
        case str():
            return (1, component)
        case TypedEnd(type=name, id=parts):
            return (3, name, tuple(map(component_key, parts)))
        case _:
            return (2, tuple(map(component_key, component)))


def identity_key(identity: Identity) -> tuple[Any, ...]:
    """Return a sort key that compares identities component by component.

    Every list of records and every tie in duckkb uses it.
    """
    if len(identity) == 1 and type(identity[0]) is str:  # the usual case, perhaps millions of times
        return ((1, identity[0]),)
    return tuple(map(component_key, identity))


class Record(Struct, frozen=True):
    """A node or an edge.

    `fields` holds the business fields, with the identity (an edge's `from` and `to` too), without top-level
    nulls, `__id` and the times. Times are canonical text, `YYYY-MM-DDTHH:MM:SS.ffffffZ`.
    """

    type: str
    id: int
    identity: Identity
    fields: Mapping[str, Any]
    created_at: str
    updated_at: str


class Change(Struct, frozen=True):
    """A step of a changeset: insert (`old` is None), delete (`new` is None) or update. Swapping both inverts it."""

    old: Record | None
    new: Record | None

    @property
    def op(self) -> str:
        return "insert" if self.old is None else "delete" if self.new is None else "update"

    @property
    def record(self) -> Record:
        record = self.new or self.old
        assert record is not None, "a change has a side"
        return record

    def inverse(self) -> "Change":
        return Change(self.new, self.old)


class Changeset(Struct, frozen=True):
    """Changes in the order in which they apply; at most one per record."""

    changes: tuple[Change, ...] = ()

    def __len__(self) -> int:
        return len(self.changes)

    def inverse(self) -> "Changeset":
        return Changeset(tuple(change.inverse() for change in reversed(self.changes)))

    def count(self, op: str) -> int:
        return sum(change.op == op for change in self.changes)


FORM, VALUE = "|", " | "
"""The separators in a sequence of tokens: between a token and its written form, and between values."""


class Fingerprint(Struct, frozen=True):
    """The exact name of a tokenizer, chunker or model: equal fingerprints mean equal output.

    `digest` covers everything that shapes the output (weights' hash, mode, prefix rule, dictionary version).
    `dimension` is the length of a vector, 0 where there is none.
    """

    name: str
    digest: str
    dimension: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.dimension}/{self.digest}" if self.dimension else f"{self.name}/{self.digest}"


class Tokens(Struct, frozen=True):
    """A text's tokens, each list joined by single spaces.

    `words` feeds ranking: lower-cased Latin words (not stemmed; the index stems), whole identifiers and their
    parts, and Chinese words as jieba's search mode cuts them. `sequence` keeps the order of the text for
    phrases and prefixes: Latin words and parts of identifiers as written, and Chinese text with each character
    a token.

    Where a base asks for all forms of words (`global.word_forms`), tokens have no accents; in the sequence
    `cafe|café` is a word written with accents. Values after ` | ` stand for themselves: the parts of a name
    such as `getUserName`.
    """

    words: str
    sequence: str


class Chunk(Struct, frozen=True):
    """A piece of a text: `text == whole[start:start + len(text)]`.

    The chunks of a text cover it. In a document, each chunk begins with the end of the one before.
    """

    seq: int
    start: int
    text: str


class IndexEntry(Struct, frozen=True):
    """A chunk of a field of a record, with its tokens and its vector.

    `tokens` is None where the field is not searched lexically. `vector_key` is None where the field has no
    vectors. `vector` is None while it is pending, else float32 of the model's dimension with unit length.
    `meaning` is the text that is embedded: the content, and in a document the headings above it too.
    """

    field: str
    seq: int
    content: str
    tokens: Tokens | None = None
    vector_key: bytes | None = None
    vector: "np.ndarray | None" = None
    meaning: str = ""


class Cut(Struct, frozen=True):
    """A text as far as a model reads it in one go: `text` is the whole or its beginning.

    `original` and `tokens` count the whole and `text`, with everything that the model adds. `limit` is the most
    tokens that the model reads. Where the model does not tell, it is None, nothing is cut, and the counts are
    estimates.
    """

    text: str
    original: int
    tokens: int
    limit: int | None = None

    @property
    def is_truncated(self) -> bool:
        return self.tokens < self.original
