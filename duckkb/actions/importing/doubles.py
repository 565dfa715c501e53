"""Detection of records that an import would store a second time under another id.

Without --id these are stored under ids of their own, with --id under generated ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.actions.importing.field_map import FieldMap, id_of_contents
from duckkb.actions.importing.new_collection import is_made_by_import
from duckkb.engine.base import Base
from duckkb.engine.draft import Given
from duckkb.errors import Conflict, InvalidRecord
from duckkb.ontology.model import RecordType
from duckkb.truth.files.line import LineShape, encode

_MOST_IDS = 20
"""The most ids in a command; deleting this few needs no confirmation (`limits`)."""


def refuse_doubles(base: Base, kind: RecordType, fields: FieldMap, given: Sequence[Given]) -> None:
    """Raise `errors.Conflict` (E_EXISTS) where an import would duplicate stored records.

    That is where every record gets an id generated from its contents, or made of other fields by --id, and all but the
    id is stored already under another; or where a new record with its own id is stored under the generated one.
    Raises `errors.InvalidRecord` (E_IDENTITY) where ids would be generated though a column is evidently the id.
    """
    _refuse_own_ids(base, kind, fields, given)
    _refuse_other_ids(base, kind, fields, given)
    _refuse_evident_key(base, kind, fields, given)


def _refuse_evident_key(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    """Raise `errors.InvalidRecord` (E_IDENTITY) where records would get generated ids though a column is their id.

    A file that was imported with generated ids before goes on with these.
    """
    key = fields.evident_key()
    if not key or any(base.tree.get(kind, record.identity) is not None for record in records):
        return
    message = f"the records have no {kind.identity_fields[0]}, and {key} tells all {len(records):,} of them apart"
    raise InvalidRecord(f"{message}; nothing was written", "E_IDENTITY", fields.command([key]), exit_code=1)


def removal_command(base: Base, kind: RecordType, ids: Sequence[str], count: int) -> str:
    """Return the command that deletes the records with these ids, of `count` that the type has; empty if too long.

    For a collection that the next import makes again as it is, the command deletes the whole collection.
    """
    if len(ids) == count and is_made_by_import(base, kind):
        return f"duckkb col rm {kind.name} --yes"
    return " ".join(["duckkb delete", kind.name, *ids]) if len(ids) <= _MOST_IDS else ""


def _refuse_own_ids(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    new = (
        {str(record.identity[0]) for record in records if base.tree.get(kind, record.identity) is None}
        if fields.made_ids
        else set()
    )
    ids = list(dict.fromkeys(made_id for own_id, made_id in fields.made_ids.items() if own_id in new))
    if not ids:
        return
    (identity,) = kind.identity_fields
    count = (
        f"all {len(records):,} records are"
        if len(ids) == len(records) > 1
        else f"{len(ids):,} of {len(records):,} records are"
    )
    is_intact = all(_has_same_contents(base, kind, made_id) for made_id in ids)  # records edited since are kept
    removal = removal_command(base, kind, ids, base.tree.count(kind)) if is_intact else ""
    plain = "" if removal else fields.command_without_id()
    raise Conflict(
        f"{'the record is' if len(records) == 1 else count} in {kind.name} already, under an {identity} that an import made of "
        "its contents; nothing was written",
        code="E_EXISTS",
        suggestion=plain or fields.command_after(removal, fields.command(dry_run=False, is_proposal=False)),
    )


def _has_same_contents(base: Base, kind: RecordType, made_id: str) -> bool:
    """Return whether the record with an id generated from its contents still has these contents."""
    row = base.tree.get(kind, (made_id,))
    contents = (
        {}
        if row is None
        else {name: value for name, value in row.record.fields.items() if name != kind.identity_fields[0]}
    )
    return str(id_of_contents(contents)) == made_id


def _refuse_other_ids(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    makes_ids = fields.generated_ids == len(records) or fields.makes_ids_of_others
    if not records or not makes_ids or base.tree.count(kind) < len(records):
        return
    if any(base.tree.get(kind, record.identity) is not None for record in records):
        return  # the same import again changes nothing
    (identity,) = kind.identity_fields
    stored_fields: dict[bytes, Mapping[str, Any]] = {
        _encode_content(row.record.fields, identity): row.record.fields for row in base.tree.rows(kind)
    }
    same = [stored_fields.get(_encode_content(record.fields, identity)) for record in records]
    if not all(same):
        return
    keys = [
        name
        for name in records[0].fields
        if name != identity and all(record is not None and record[identity] == record.get(name) for record in same)
    ]
    count = "the record is" if len(records) == 1 else f"all {len(records):,} records are"
    raise Conflict(
        f"{count} in {kind.name} already, under another {identity}; nothing was written",
        code="E_EXISTS",
        suggestion=fields.command(keys[:1]) if keys else fields.key_command() or fields.command(type=f"{kind.name}-2"),
    )


def _encode_content(fields: Mapping[str, Any], identity: str) -> bytes:
    return encode(
        {name: value for name, value in fields.items() if name != identity and value is not None}, LineShape(())
    )
