"""Records that are there already under another id: what an import without --id must not add a second time."""

from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.actions.importing.field_map import FieldMap
from duckkb.engine.base import Base
from duckkb.engine.draft import Given
from duckkb.errors import Conflict
from duckkb.ontology.model import RecordType
from duckkb.truth.files.line import LineShape, encode


def refuse_doubles(base: Base, kind: RecordType, fields: FieldMap, given: Sequence[Given]) -> None:
    """Raise `errors.Conflict` (E_EXISTS) where every record got an id made of its contents and is stored already, all but its
    id, under another one."""
    if not given or fields.generated_ids != len(given) or base.tree.count(kind) < len(given):
        return
    if any(base.tree.get(kind, one.identity) is not None for one in given):
        return  # the same import once more, which changes nothing
    (identity,) = kind.identity_fields
    stored: dict[bytes, Mapping[str, Any]] = {
        _content(row.record.fields, identity): row.record.fields for row in base.tree.rows(kind)
    }
    same = [stored.get(_content(one.fields, identity)) for one in given]
    if not all(same):
        return
    keys = [
        name
        for name in given[0].fields
        if name != identity and all(one is not None and one[identity] == one.get(name) for one in same)
    ]
    count = "the record is" if len(given) == 1 else f"all {len(given):,} records are"
    raise Conflict(
        f"{count} in {kind.name} already, under another {identity}; nothing was written",
        code="E_EXISTS",
        suggestion=fields.command(keys[:1])
        if keys
        else fields.key_command() or "name the fields of the identity: --id FIELD",
    )


def _content(fields: Mapping[str, Any], identity: str) -> bytes:
    return encode(
        {name: value for name, value in fields.items() if name != identity and value is not None}, LineShape(())
    )
