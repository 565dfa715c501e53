"""The actions col and policy: whole collections, and their policies."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_past
from duckkb.engine.write import (
    mark_last_part_removal,
    refuse_agent_of,
    refuse_documents,
    refuse_existing_type,
    writable,
)
from duckkb.ontology.model import EVERY, Ontology, Policy, RecordType, SearchField
from duckkb.ontology.names import MODES, is_policy_name, nearest
from duckkb.ontology.ontology_files import collection_of, define, load, path_of, rename_definition
from duckkb.ontology.presets import find_policy, presets
from duckkb.ontology.yaml_source import read_yaml
from duckkb.operations.collection_archive import (
    digest,
    folder_of,
    own_file,
    pack,
    parts_of,
    refuse_incomplete,
    reject_reserved_name,
    unfit,
    unpack,
)
from duckkb.operations.name_resolution import find_kind, regular_file
from duckkb.storage import commit_protocol, layout, path_guard, render
from duckkb.types.errors import Conflict, Finding, NotFound, OntologyError, Refused, UsageError

DOCUMENTS = "documents"
"""The policy of collections whose records are files."""

BaseNow = Callable[[], AbstractContextManager[Base]]
"""A function that holds a base as its files are now, for one call."""


class Changed(Struct, frozen=True):
    """A changed collection: its name, its records, and the files written or removed.

    For an added folder, also the omissions (`left_out`) with reasons (`documents.left_out`).
    """

    name: str
    records: int
    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


class Collections:
    """The actions `kb.collections` on whole collections. Their records are used as those of any type."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def init(self, name: str, *, policy: str, params: Mapping[str, Any] | None = None) -> Changed:
        """Make a collection: write its policy, with `params` set, to ontology/collections/NAME.yaml.

        Raises `errors.UsageError` (E_POLICY, E_PARAMS), `errors.Conflict` (E_EXISTS).
        """
        with self._base() as base:
            collection_name, chosen_policy = validate_collection_name(name), resolve_policy(base, policy)
            if chosen_policy.name == DOCUMENTS:
                message = f"the policy {DOCUMENTS} is for the files of a folder"
                raise UsageError(
                    message, code="E_POLICY", suggestion=f"duckkb collection add FOLDER --name {collection_name}"
                )
            return create(base, collection_name, define(collection_name, chosen_policy, params or {}))

    def list(self) -> list[dict[str, Any]]:
        """Return name, policy, records and bytes of each collection."""
        with self._base() as base:
            return [_summarize_collection(base, kind) for kind in base.ontology.nodes.values() if kind.is_collection]

    def show(self, name: str) -> dict[str, Any]:
        """Return a collection as in `list`, with its fields as stored, and how they are searched."""
        with self._base() as base:
            return _describe_collection(base, find_collection(base, name))

    def remove(self, name: str, *, confirmed: bool = False) -> Changed:
        """Delete a collection's files and definition.

        Raises `errors.Refused`: E_SHRINK for a collection with records unless `confirmed`, E_EDGES where edges
        touch them.
        """
        with self._base() as base:
            kind = find_collection(base, name)
            with writable(base):
                definition = own_file(base, kind)
                again = "" if confirmed or kind.source else f"duckkb col rm {kind.name} --yes"
                return remove_types(base, [kind], path_of(kind.name), definition, again)

    def rename(self, name: str, new: str) -> Changed:
        """Rename a collection; its records keep ids, identities and times."""
        with self._base() as base:
            kind, new = find_collection(base, name), validate_collection_name(new)
            with writable(base):
                refuse_agent_of(base, kind)
                definition = own_file(base, kind)
                reject_reserved_name(new)
                refuse_existing_type(base, new)
                refuse_referenced_collections(base, kind)
                refuse_incomplete(base, kind)
                new_definition = rename_definition(definition, new)
                target, findings = collection_of(new_definition, path_of(new))
                if target is None:
                    raise unfit(new, findings)
                changes = [commit_protocol.FileChange(path_of(kind.name), digest(definition), None)]
                changes.append(commit_protocol.FileChange(path_of(new), None, new_definition))
                for path, data in parts_of(base, kind).items():
                    new_path = f"{folder_of(target)}/{path.removeprefix(folder_of(kind) + '/')}"
                    if new_path != path:
                        changes += [
                            commit_protocol.FileChange(new_path, None, data),
                            commit_protocol.FileChange(path, digest(data), None),
                        ]
                return commit_ontology(base, new, base.tree.count(kind), changes)

    def snapshot(self, name: str, path: str | Path, *, force: bool = False) -> int:
        """Write a collection to one self-contained file; returns its size in bytes. Raises `errors.UsageError` (E_PATH)."""
        with self._base() as base:
            kind = find_collection(base, name)
            refuse_documents([kind])
            data = pack(base, kind)
            path_guard.write(path, [data], base.root, base.wiring.env, force=force)
            return len(data)

    def restore(self, path: str | Path, *, name: str | None = None) -> Changed:
        """Restore a snapshot, byte for byte, or under another `name`; raises `errors.StateError` (E_SNAPSHOT)."""
        with self._base() as base:
            snapshot_bytes = regular_file(base, path, "a snapshot").read_bytes()
            kind, definition, parts = unpack(
                base, snapshot_bytes, None if name is None else validate_collection_name(name)
            )
            with writable(base):
                refuse_existing_type(base, kind.name)
                if any((base.root / folder_of(kind)).glob("*/part_*.jsonl")):
                    message = f"{folder_of(kind)} already has records of a type that the ontology does not declare"
                    raise Conflict(message, code="E_EXISTS", suggestion="restore under another name: --as NAME")
                return _add_files(base, kind.name, definition, parts)

    def policies(self) -> "Sequence[dict[str, Any]]":
        """Return every policy that `init` takes, with description and place: the base's own first.

        A base's own policy hides the package policy of its name.
        """
        with self._base() as base:
            base_policies = base.ontology.policies
            all_policies = {
                **{name: policy for name, policy in presets().items() if name not in base_policies},
                **base_policies,
            }
            return [_describe_policy(policy) for _, policy in sorted(all_policies.items())]

    def check_policies(self, *files: "str | Path") -> "Sequence[dict[str, Any]]":
        """Return the policies that YAML files declare (without files, the base's own, checked at opening).

        Raises `errors.OntologyError` with all their problems.
        """
        with self._base() as base:
            ontology = _load_declarations(base, files) if files else base.ontology
            return [_describe_policy(policy) for policy in ontology.policies.values()]

    def policy(self, name: str) -> dict[str, Any]:
        """Return a policy as written, with its place."""
        with self._base() as base:
            policy = resolve_policy(base, name)
            return _describe_policy(policy) | {"policy": dict(policy.source)}


def _describe_collection(base: Base, kind: RecordType) -> dict[str, Any]:
    """Describe a collection: its policy, the fields of its records, and how each is searched."""
    assert kind.policy is not None, "a collection carries its policy"
    types = base.observe_fields(kind).types()
    return _summarize_collection(base, kind) | {
        "table": kind.table,
        "identity": list(kind.identity),
        "definition": kind.place,
        "vectors": [_describe_search(field, base.lengths(kind)) for field in kind.vectors],
        "lexical": [_describe_search(field, {}) for field in kind.full_text],
        "intents": list(kind.policy.intents) if kind.policy.intents else list(MODES),
        "default": kind.policy.default_intent,
        "fields": types,
    }


def create(base: Base, name: str, definition: bytes, seen: Base | None = None) -> Changed:
    """Write a definition; only what the caller has `seen` (None: all) can conflict with it.

    Raises `errors.Conflict` (E_EXISTS) where the name is taken, `errors.UsageError` (E_PARAMS) where it clashes
    with another type.
    """
    with writable(seen or base):
        return _add_files(base, name, definition, {})


def _add_files(base: Base, name: str, definition: bytes, parts: Mapping[str, bytes]) -> Changed:
    reject_reserved_name(name)
    refuse_existing_type(base, name)
    changes = [commit_protocol.FileChange(path_of(name), None, definition)]
    changes += [commit_protocol.FileChange(path, None, data) for path, data in parts.items()]
    return commit_ontology(base, name, sum(data.count(b"\n") for data in parts.values()), changes)


def commit_ontology(base: Base, name: str, records: int, changes: Sequence[commit_protocol.FileChange]) -> Changed:
    """Commit changes once the resulting ontology loads.

    Raises `errors.Refused` for a proposal, which has only records.
    """
    refuse_past(base)
    definitions = {change.path: change.data for change in changes if not change.path.startswith("data/")}
    refuse_unfit(base, name, definitions)
    format_bytes = render.format_change(base.root)
    extra = [commit_protocol.FileChange(layout.FORMAT_PATH, None, format_bytes)] if format_bytes is not None else []
    with mark_last_part_removal(base, changes):
        commit_protocol.commit(base.root, [*changes, *extra])
    base.take_in({change.path: None for change in changes if change.path in base.tree.parts and change.data is None})
    return Changed(name, records, tuple(sorted(change.path for change in changes)))


def refuse_unfit(base: Base, name: str, definitions: Mapping[str, bytes | None]) -> None:
    try:
        base.wiring.preview(definitions)
    except OntologyError as problem:
        if all(finding.code == "E_YAML" for finding in problem.findings):
            raise  # an unreadable file says nothing about the collection
        raise unfit(name, problem.findings) from problem


def remove_types(base: Base, kinds: Sequence[RecordType], path: str, definition: bytes, again: str) -> Changed:
    """Delete the records of some types and the file that defines these; the caller holds the exclusive lock.

    Raises `errors.Refused`: E_EDGES where edges of other types touch the records, E_SHRINK where there are any
    and `again` names the command that confirms.
    """
    name, count = kinds[0].name, sum(map(base.tree.count, kinds))
    if count and again:
        message = f"{name} holds {count} record{'s' if count > 1 else ''}"
        raise Refused(message, code="E_SHRINK", suggestion=again)
    changes = [commit_protocol.FileChange(path, digest(definition), None)]
    for kind in kinds:
        refuse_agent_of(base, kind)
        _refuse_edges(base, kind, kinds)
        refuse_referenced_collections(base, kind, kinds)
        changes += [commit_protocol.FileChange(part, digest(data), None) for part, data in parts_of(base, kind).items()]
    return commit_ontology(base, name, count, changes)


def _refuse_edges(base: Base, kind: RecordType, going: Sequence[RecordType]) -> None:
    touching = {
        (edge.name, edge_row.record.id)
        for row in (base.tree.rows(kind) if kind.kind == "node" else ())
        for edge, edge_row, _ in base.tree.edges_at(kind.name, row.record.identity)
        if edge.source is None and edge not in going
    }
    if touching:
        labels = ", ".join(sorted({name for name, _ in touching}))
        raise Refused(
            f"{len(touching)} edges ({labels}) touch records of {kind.name}",
            code="E_EDGES",
            suggestion=f"`duckkb delete {kind.name} IDENTITY --cascade` for each of them",
        )


def refuse_referenced_collections(base: Base, kind: RecordType, going: Sequence[RecordType] = ()) -> None:
    """Refuse to remove a collection that the ontology names as an end of edge types in other files."""
    stored_edges = (edge for edge in base.ontology.edges.values() if edge.source is None and edge not in going)
    naming = [edge for edge in stored_edges if kind.name in (*edge.from_types, *edge.to_types)]
    if naming:
        raise UsageError(
            f"{kind.name} is an end of {', '.join(edge.name for edge in naming)} in the ontology",
            suggestion=f"change {' and '.join(edge.place for edge in naming)} first",
        )


def find_collection(base: Base, name: str) -> RecordType:
    """Return the collection of this name; raises `errors.NotFound` (E_UNKNOWN_TYPE), also for other types."""
    command = "duckkb col list"
    kind = find_kind(base, name, lambda near: command)
    if not kind.is_collection:
        message = f"{kind.name} is a type of the ontology, not a collection"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)
    return kind


def _load_declarations(base: Base, files: Sequence[str | Path]) -> Ontology:
    """Load what YAML files would declare in ontology/."""
    documents = [read_yaml(regular_file(base, Path(path), "a YAML file").read_bytes(), str(path)) for path in files]
    ontology, findings = load(documents)
    if not findings and not ontology.policies:
        findings = [Finding("E_ONTOLOGY", "declares no policy", str(files[0]), remedy="policies: {NAME: {...}}")]
    if findings:
        raise OntologyError(
            "1 problem" if len(findings) == 1 else f"{len(findings)} problems",
            suggestion="edit the lines named; `duckkb policy show knowledge-base` is an example",
            findings=tuple(findings),
        )
    return ontology


def resolve_policy(base: Base, name: str) -> Policy:
    """Return the policy of this name or alias; raises `errors.UsageError` (E_POLICY) that suggests the nearest."""
    policy = find_policy(name, base.ontology.policies)
    if policy is None:
        near = nearest(name, [*base.ontology.policies, *presets()])
        suggestion = f"duckkb policy show {near}" if near else "duckkb policy list"
        raise UsageError(f"no policy {name!r}", code="E_POLICY", suggestion=suggestion)
    return policy


def validate_collection_name(name: str) -> str:
    if not is_policy_name(name):
        raise UsageError(
            f"{name!r} cannot name a collection: use letters, digits, _ and -, a letter first, at most 64, not `all`",
            suggestion="choose another name",
        )
    return name


def _summarize_collection(base: Base, kind: RecordType) -> dict[str, Any]:
    parts = [part for part in base.tree.parts.values() if part.kind.name == kind.name]
    return {
        "name": kind.name,
        "policy": kind.policy.name if kind.policy else None,
        "records": base.tree.count(kind),
        "bytes": sum(part.stamp.size for part in parts),
    }


def _describe_search(field: SearchField, lengths: Mapping[str, int]) -> dict[str, Any]:
    """Describe a search field: `{"field"}`, or `{"fields": "auto"}`.

    A given vector also has its dimension, None before there is any.
    """
    if field.name == EVERY:
        return {"fields": field.reach}
    return {"field": field.name} | (
        {"given": True, "dimension": lengths.get(field.name) or None} if field.given else {}
    )


def _describe_policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "description": policy.description,
        "aliases": list(policy.aliases),
        "params": sorted(policy.params),
        "origin": policy.place,
    }
