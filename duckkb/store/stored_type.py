"""What the store says of a type and of its parts, beside their lines."""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import asdict, astuple

from duckkb.documents.document import extractor
from duckkb.fast_json import orjson
from duckkb.ontology.model import RecordType
from duckkb.truth.files.line import Limits

_FORMAT = 3


class StoredPart(Struct):
    """A part in the store: its `number` there, the number of its path (`slot`), and what `tree.Part` says of it."""

    number: int
    slot: int
    stamp: tuple[int, ...]
    digest: str
    canonical: bool
    sorted: bool
    count: int


class StoredType(Struct):
    """One type. `store` names these lines and what they became by changes, `key` what shapes them; `revision` rises with
    changes and is never given twice, `logged` counts the bytes that tell of the changes behind `since`. `loose` are the ids of
    records that stand in parts with lines that cannot be read, which are not held: what is derived has them all the same."""

    key: str
    store: str
    revision: int = 0
    since: int = 0
    logged: int = 0
    slots: int = 0
    buckets: int = 0
    parts: dict[str, StoredPart] = {}
    loose: list[int] = []

    def mark_loose(self, ids: Iterable[int]) -> set[int]:
        """Have these be the loose ones: those, and the ones before, may differ now."""
        before, self.loose = self.loose, sorted(ids)
        return {*before, *self.loose}

    def plain(self) -> bytes:
        parts = {path: astuple(part) for path, part in self.parts.items()}
        return orjson.dumps(asdict(self) | {"parts": parts})

    @classmethod
    def of(cls, data: bytes) -> "StoredType | None":
        """The inverse of `plain`; None for what another version of duckkb wrote in another form."""
        try:
            fields = orjson.loads(data)
            parts = {path: StoredPart(*numbers) for path, numbers in fields.pop("parts").items()}
            return cls(**fields, parts=parts)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def name_of(kind: RecordType) -> str:
    return f"{kind.kind}-{kind.table}"


def value_name(kind: RecordType) -> str:
    return f"type/{name_of(kind)}"


def key_of(kind: RecordType, limits: Limits) -> str:
    """Names everything that what a line is read as depends on."""
    shape = (_FORMAT, kind.kind, kind.name, kind.table, kind.identity_fields, kind.generated, limits)
    shaped_by = shape if kind.source is None else (*shape, kind.source, extractor(kind.source.pattern))
    return blake2b(repr(shaped_by).encode(), digest_size=8).hexdigest()
