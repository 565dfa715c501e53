"""Import to an unknown type: a collection of that name is made with its first records, in one write."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.actions.collecting import refuse_unfit, resolve_policy, validate_collection_name
from duckkb.actions.importing.request import ImportRequest
from duckkb.actions.packing import own_file, reject_reserved_name
from duckkb.actions.resolve import kind_to_write
from duckkb.engine.base import Base
from duckkb.engine.guard import refuse_existing_type
from duckkb.engine.meaning import with_vectors
from duckkb.errors import DuckkbError, NotFound
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import is_policy_name
from duckkb.ontology.snapshot import collection_of, define, path_of
from duckkb.records import FROM, TO
from duckkb.rules.edge_types import suggest_edge_type
from duckkb.truth.files.tree import Tree

_POLICY = "knowledge-base"
_NEAR = 0.75
"""The similarity (0 to 1) from which a name counts as a misspelt type."""


class ImportTarget(Struct, frozen=True):
    """The target of an import: a type of a base.

    `definition` is what the write adds to the ontology for it, None for an existing type; `base` has it already.
    """

    base: Base
    kind: RecordType
    definition: bytes | None = None


def import_target(base: Base, request: ImportRequest) -> ImportTarget:
    """Return the type that a request names, or a collection to be made for it.

    Raises `errors.NotFound` (E_UNKNOWN_TYPE) where the name is close to a type's, and for callers who cannot
    make a collection; `errors.UsageError` (E_RESERVED, E_PARAMS).
    """
    try:
        return ImportTarget(base, kind_to_write(base, request.type))
    except NotFound:
        if base.is_narrowed or base.wiring.published or not is_policy_name(str(request.type)):
            raise
    _refuse_slip(base, request)
    if base.wiring.at is not None:
        message = f"no type {request.type!r} is committed, and a proposal makes none: import it here, or make it and commit it first"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=request.command(is_proposal=False))
    name = validate_collection_name(request.type)
    reject_reserved_name(name)
    refuse_existing_type(base, name)
    definition = define(name, resolve_policy(base, _POLICY), {})
    files = {path_of(name): definition}
    refuse_unfit(base, name, files)
    ontology = base.wiring.preview(files)
    tree = Tree(ontology, base.limits, base.tree.parts, base.tree.findings)
    beside = Base(replace(base.wiring, ontology=ontology), tree, base.cache, read_only=base.read_only)
    return ImportTarget(beside, ontology.nodes[name], definition)


def is_made_by_import(base: Base, kind: RecordType) -> bool:
    """Return whether an import would make this removed collection again, apart from its search fields."""
    try:
        data, new = own_file(base, kind), define(kind.name, resolve_policy(base, _POLICY), {})
    except DuckkbError:
        return False
    is_now, is_then = (collection_of(definition, path_of(kind.name))[0] for definition in (data, new))
    if is_now is None or is_then is None:
        return False
    names, current_names = ([field.name for field in of.vectors] for of in (is_then, is_now))
    return data in (new, with_vectors(new, names, current_names))


def refuse_nothing(target: ImportTarget, request: ImportRequest, records: int) -> None:
    """Raise `errors.NotFound` (E_UNKNOWN_TYPE) where files without records would make a collection."""
    if target.definition is not None and not records:
        message = f"no type {request.type!r}, and the input has no record to create a collection from"
        command = f"duckkb col init {request.type} --policy {_POLICY}"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def refuse_edges(target: ImportTarget, records: Sequence[Mapping[str, Any]]) -> None:
    """Raise `errors.NotFound` (E_UNKNOWN_TYPE) where the records of a new collection are edges between records."""
    if target.definition is None or not records or any(not {FROM, TO} <= record.keys() for record in records):
        return
    name, tree = target.kind.name, target.base.tree
    commands = {suggest_edge_type(tree, record[FROM], record[TO], name) for record in records}
    if len(commands) == 1 and (command := commands.pop()):
        message = f"no type {name!r}, and the records join others by `from` and `to`: edges have a type of their own"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def _refuse_slip(base: Base, request: ImportRequest) -> None:
    names = {name.casefold(): kind.name for kind in base.ontology for name in _list_names(kind)}
    if near := get_close_matches(request.type.casefold(), names, 1, _NEAR):
        nearest = names[near[0]]
        command = f"duckkb col init {request.type} --policy {_POLICY}"
        message = f"no type {request.type!r}; did you mean {nearest}? Else make a collection of this name first"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def _list_names(kind: RecordType) -> Iterable[str]:
    return kind.name, kind.table
