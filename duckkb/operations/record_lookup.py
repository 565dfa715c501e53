"""The actions get, list, export and schema: records and types as they are."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.config.setting_keys import DEFAULT, KEYS, Key
from duckkb.engine.base import Base
from duckkb.engine.write_draft import find_near_identity, make_not_found_finding, plain_identity
from duckkb.ontology.model import EdgeType, NodeType, Policy, RecordType, SearchField
from duckkb.ontology.names import MODES
from duckkb.operations.name_resolution import GivenIdentity, convert_identity, find_kind, positive, text_or_none
from duckkb.storage import path_guard
from duckkb.storage.line import LineShape, encode, etag
from duckkb.storage.part import StoredRow
from duckkb.types.errors import NotFound
from duckkb.types.queries import Notice, SequenceMeta
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, Identity, Record, identity_key, identity_text


class Page(Struct, Sequence[dict[str, Any]], frozen=True, metaclass=SequenceMeta):
    """Some of `total` records in the order of their identities; `next` continues after them, None at the end."""

    records: tuple[dict[str, Any], ...]
    total: int
    next: str | None
    notices: tuple[Notice, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def line_of(kind: RecordType, row: StoredRow) -> dict[str, Any]:
    """Return a record as get and list print it."""
    record = row.record
    times = {CREATED_AT: record.created_at, UPDATED_AT: record.updated_at}
    return {ID: record.id, **record.fields, **times, "_type": kind.name, "_etag": etag(row.line)}


def field_names(base: Base, type: str) -> tuple[str, ...]:
    """Return the fields of a type: those that its schema declares, then further fields of its records."""
    kind = find_kind(base, type)
    return tuple(dict.fromkeys([*kind.identity_fields, *kind.properties, *base.observe_fields(kind).types()]))


def list_caller_vectors(base: Base, type: str) -> dict[str, tuple[str, ...]]:
    """Return by type (each for "all") the fields that hold given vectors."""
    kinds = list(base.ontology) if type == "all" else [find_kind(base, type)]
    return {kind.name: tuple(kind.given_vectors) for kind in kinds}


def document_types(base: Base, type: str) -> frozenset[str]:
    """Return the names of those of a type (of all for "all") whose records are documents."""
    kinds = list(base.ontology) if type == "all" else [find_kind(base, type)]
    return frozenset(kind.name for kind in kinds if isinstance(kind, NodeType) and kind.source is not None)


def identity_fields(base: Base, type: str) -> dict[str, tuple[str, ...]]:
    """Return by type (each for "all") the fields of its identity."""
    kinds = list(base.ontology) if type == "all" else [find_kind(base, type)]
    return {kind.name: kind.identity_fields for kind in kinds}


def get(base: Base, type: str, identity: GivenIdentity) -> dict[str, Any]:
    """Return a record: its fields with `__id`, times, `_type`, `_etag`. Raises `errors.NotFound`."""
    return line_of(*find_row(base, type, identity))


def find_row(base: Base, type: str, identity: GivenIdentity) -> tuple[RecordType, StoredRow]:
    """Return a type, and its record with this identity; raises `errors.NotFound`, for the revision that is read."""
    kind, stored_identity = parse_identity(base, type, identity)
    row = base.tree.get(kind, stored_identity)
    if row is None:
        missing = make_not_found_finding(kind, stored_identity, base.tree)
        is_past = base.wiring.at is not None and base.wiring.proposal is None  # a proposal has no name yet
        at = f" --at {base.wiring.at.name}" if is_past and base.wiring.at else ""
        error = NotFound(missing.message, suggestion=f"{missing.remedy}{at}")
        if near := find_near_identity(kind, stored_identity, base.tree):
            error.correction = (str(identity), near)
        raise error
    return kind, row


def parse_identity(base: Base, type: str, identity: GivenIdentity) -> tuple[RecordType, Identity]:
    """Return a type, and an identity in the form of its records, whether such a record exists or not."""
    kind = find_kind(base, type)
    return kind, plain_identity(base.tree, kind, convert_identity(base, kind, identity))


def page(
    base: Base, type: str, *, where: str | None = None, after: GivenIdentity | None = None, limit: int = 100
) -> Page:
    """Return the records that satisfy a filter, or all, in the order of their identities, after `after`.

    The page iterates over its records. Raises `errors.NotFound`, `errors.FilterError`.
    """
    limit, condition = positive(limit), text_or_none(where, "a filter")
    kind = find_kind(base, type)
    behind = None if after is None else parse_identity(base, type, after)[1]
    notices: tuple[Notice, ...] = ()
    if condition is None:
        rows, total = base.tree.iter_by_identity(kind, behind), base.tree.count(kind)
    else:
        from duckkb.engine.find import match_filter

        ids, notices = match_filter(base, kind, condition)
        rows, total = base.tree.select_rows(kind, frozenset(ids)), len(ids)
        if behind is not None:
            floor = identity_key(behind)
            rows = (row for row in rows if identity_key(row.record.identity) > floor)
    candidates = list(islice(rows, min(limit, total) + 1))
    page_rows = candidates[:limit]
    more = identity_text(page_rows[-1].record.identity) if len(candidates) > limit else None
    return Page(tuple(line_of(kind, row) for row in page_rows), total, more, notices)


def export(base: Base, type: str) -> Iterator[dict[str, Any]]:
    """Yield every record of a type as `import` takes it: fields and times."""
    kind = find_kind(base, type)
    rows = base.tree.iter_by_identity(kind)  # the rows at the time of the call; only lines are made later
    times = ((row.record, {CREATED_AT: row.record.created_at, UPDATED_AT: row.record.updated_at}) for row in rows)
    return ({**record.fields, **both} for record, both in times)


def export_file(base: Base, type: str, path: str | Path, *, force: bool = False) -> int:
    """Write `export` to a file; returns the number of records. Raises `errors.UsageError` (E_PATH)."""
    shape = LineShape(find_kind(base, type).identity_fields)
    lines = (encode(line, shape) + b"\n" for line in export(base, type))
    return path_guard.write(path, lines, base.root, base.wiring.env, force=force)


def describe_types(base: Base, type: str | None) -> list[tuple[RecordType, list[Record]]]:
    """Return a type, or all, each with the records that describe its columns; none where its schema suffices."""
    kinds = list(base.ontology) if type is None else [find_kind(base, type)]
    return [(kind, [row.record for row in base.tree.rows(kind)] if kind.is_collection else []) for kind in kinds]


def types(base: Base) -> Sequence[dict[str, Any]]:
    """Return each type: kind, table, identity, display fields (`display`), search fields and number of records.

    With `source`, the records are the files of that folder.
    """
    return [_describe_type(base, kind) for kind in base.ontology]


def _describe_type(base: Base, kind: RecordType) -> dict[str, Any]:
    line: dict[str, Any] = {"name": kind.name, "kind": kind.kind, "table": kind.table}
    line["identity"] = list(kind.identity_fields)
    if isinstance(kind, EdgeType):
        line |= {"from": list(kind.from_types), "to": list(kind.to_types), "cardinality": kind.cardinality}
    if kind.source is not None:
        line["source"] = kind.source.path
    line["display"] = list(kind.display)
    line["full_text"] = [field.name for field in kind.full_text]
    line["vectors"] = [field.name for field in kind.vectors]
    return line | {"records": base.tree.count(kind)}


_HELD = (
    "chunk_size", "language", "tokenizer", "fold_chinese", "word_forms",
    "embedding.model", "embedding.dimensions", "embedding.symmetric", "fusion.method",
    "fusion.k", "fusion.weight", "fusion.gate", "expansion.method", "expansion.weight", "expansion.hits", "vectors.ann",
    "merge_granularity",
)  # fmt: skip
"""Settings that one type may override, or that say how its texts are read, by their place in `Settings`; none
names a host."""


def settings(base: Base, type: str) -> dict[str, Any]:
    """Return how the records of a type are searched and stored.

    It has the fields by lane, the policy (None without one), and the effective settings, each with its
    `origin`: the `type`, its `policy`, the `configuration`, or `default`.
    """
    kind = find_kind(base, type)
    return {
        "type": kind.name,
        "policy": None if kind.policy is None else _describe_policy(kind.policy),
        "full_text": [_describe_field(field) for field in kind.full_text],
        "vectors": [_describe_field(field) for field in kind.vectors],
        "review": ["*"] if kind.review else sorted(kind.reviewed_fields),
        "settings": [_describe_setting_value(base, kind, key) for key in KEYS if key.attribute in _HELD],
    }


def _describe_setting_value(base: Base, kind: RecordType, key: Key) -> dict[str, Any]:
    value, origins = key.get_value(kind.settings(base.settings)), base.settings.origins
    origin = DEFAULT if origins.get(key.name, DEFAULT) == DEFAULT else "configuration"
    if kind.policy is not None and {key.attribute, key.attribute.partition(".")[0]} & kind.policy.overrides.keys():
        origin = "policy"
    if key.attribute == "merge_granularity" and kind.granularity:
        value, origin = kind.granularity, "type"
    return {"name": key.name, "value": value, "origin": origin, "description": key.meaning}


def _describe_field(field: SearchField) -> dict[str, Any]:
    """Describe a search field.

    `*` stands for fields that every record has. A given vector has `given` and its length.
    """
    if field.given:
        return {"field": field.name, "given": True, "dimension": field.dimension}
    overrides = {"language": field.language, "chunk_size": field.chunk_size, "reach": field.reach}
    return {
        "field": field.name,
        "weight": field.weight,
        **{name: value for name, value in overrides.items() if value is not None},
    }


def _describe_policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "description": policy.description,
        "intents": list(policy.intents or MODES),
        "default_intent": policy.default_intent,
        "refuse": dict(policy.refuse),
    }


def schema(base: Base, type: str) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    kind = find_kind(base, type)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.name, **kind.schema}
