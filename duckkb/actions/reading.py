"""get, list, export, schema: records and types as they stand."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from duckkb.actions.resolve import granted, identity_named, kind_named, positive
from duckkb.engine.base import Base
from duckkb.engine.draft import not_found
from duckkb.engine.ends import plain_identity
from duckkb.errors import NotFound, UsageError
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Identity, Record, identity_text
from duckkb.truth.line import Shape, encode, etag
from duckkb.truth.tree import StoredRow
from duckkb.values import dataclass

_OWN = {"data", "ontology", ".duckkb", ".git", "config.yaml"}


@dataclass(frozen=True, slots=True)
class Page(Sequence[dict[str, Any]]):
    """Some records in the order of their identities; `next` is the identity to go on behind, None at the end."""

    records: tuple[dict[str, Any], ...]
    total: int
    next: str | None

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def line_of(kind: RecordType, row: StoredRow) -> dict[str, Any]:
    """A record as get and list print it."""
    record = row.record
    times = {CREATED_AT: record.created_at, UPDATED_AT: record.updated_at}
    return {ID: record.id, **record.fields, **times, "_type": kind.name, "_etag": etag(row.line)}


def get(base: Base, type_name: str, identity: Any) -> dict[str, Any]:
    kind = kind_named(base, type_name)
    named = plain_identity(base.tree, kind, identity_named(base, kind, identity))
    row = base.tree.get(kind, named)
    if row is None:
        raise no_record(base, kind, named)
    return line_of(kind, row)


def no_record(base: Base, kind: RecordType, named: Identity) -> NotFound:
    """The error for an identity that no record has, in the revision that is read."""
    missing = not_found(kind, named)
    at = f" --at {base.wiring.at.name}" if base.wiring.at is not None else ""
    return NotFound(missing.message, suggestion=f"{missing.remedy}{at}")


def page(base: Base, type_name: str, after: Any, limit: int) -> Page:
    limit = positive(limit)
    kind = kind_named(base, type_name)
    behind = None if after is None else identity_named(base, kind, after)
    total = base.tree.count(kind)
    wanted = list(islice(base.tree.in_order(kind, behind), min(limit, total) + 1))
    shown = wanted[:limit]
    more = identity_text(shown[-1].record.identity) if len(wanted) > limit else None
    return Page(tuple(line_of(kind, row) for row in shown), total, more)


def export(base: Base, type_name: str) -> Iterator[dict[str, Any]]:
    """Lazy in making lines alone: the rows are those of the moment of the call."""
    kind = kind_named(base, type_name)
    rows = base.tree.in_order(kind)
    times = ((row.record, {CREATED_AT: row.record.created_at, UPDATED_AT: row.record.updated_at}) for row in rows)
    return ({**record.fields, **both} for record, both in times)


def export_file(base: Base, type_name: str, named: str | Path, force: bool) -> int:
    """Write the export beside its target and move it into place; raises `errors.UsageError` (E_PATH)."""
    path = granted(base, named)
    _refuse_own_files(base, path)
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise UsageError(f"{path} is not a regular file", code="E_PATH", suggestion="give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path.parent} is not a folder", code="E_PATH", suggestion="make it first, or give another path"
        )
    if path.exists() and not force:
        raise UsageError(f"{path} exists already", code="E_PATH", suggestion="--force overwrites it")
    from secrets import token_hex

    draft = path.with_name(f".{path.name}.{token_hex(6)}")
    shape = Shape(kind_named(base, type_name).identity_fields)
    count = 0
    try:
        with draft.open("xb") as file:  # never through a link that somebody laid there
            for line in export(base, type_name):
                file.write(encode(line, shape) + b"\n")
                count += 1
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _refuse_own_files(base: Base, path: Path) -> None:
    """Not even --force lets an export replace truth, configuration, local state or git's own files."""
    place = path.resolve()
    if not place.is_relative_to(base.root.resolve()):
        return
    first = place.relative_to(base.root.resolve()).parts[:1]
    if any(part.casefold() in _OWN for part in first):
        said = f"{path} is a place that only duckkb or git writes"
        raise UsageError(said, code="E_PATH", suggestion="give a path outside data/, ontology/, .duckkb/ and .git/")


def kinds(base: Base, type_name: str | None) -> list[RecordType]:
    return list(base.ontology) if type_name is None else [kind_named(base, type_name)]


def stored(base: Base, kind: RecordType) -> list[Record]:
    """The records that say what the columns of a type are; none where its schema alone does."""
    return [row.record for row in base.tree.rows(kind)] if kind.is_collection else []


def types(base: Base) -> list[dict[str, Any]]:
    return [_type_line(base, kind) for kind in base.ontology]


def _type_line(base: Base, kind: RecordType) -> dict[str, Any]:
    line: dict[str, Any] = {"name": kind.name, "kind": kind.kind, "table": kind.table}
    line["identity"] = list(kind.identity_fields)
    if isinstance(kind, EdgeType):
        line |= {"from": list(kind.from_types), "to": list(kind.to_types), "cardinality": kind.cardinality}
    line["full_text"] = [one.name for one in kind.full_text]
    line["vectors"] = [one.name for one in kind.vectors]
    return line | {"records": base.tree.count(kind)}


def schema(base: Base, type_name: str) -> dict[str, Any]:
    kind = kind_named(base, type_name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.name, **kind.schema}
