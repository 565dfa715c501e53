"""`kb.migrate`: imports from other programs, namely Chroma's collections and OpenClaw's memory.

Actions as tools of a model: the registry says what each takes and does, the caller's rights limit it.

The transcript of an agent as records: what it did, in git, reviewed like any knowledge.

The skill: the page that tells coding agents how to use duckkb."""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import chain, count
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.engine.base import Base
from duckkb.engine.write_draft import same_fields
from duckkb.llm.loop import CallRecord, Harness, Tool
from duckkb.ontology.model import DocumentSource, NodeType
from duckkb.ontology.names import collection_table, describe_reservation, is_policy_name, suggest_known_names
from duckkb.ontology.ontology_files import collection_of, define, path_of
from duckkb.operations import record_writes
from duckkb.operations.action import Action
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.collections import BaseNow, Collections, create, resolve_policy
from duckkb.operations.document_collections import DocumentCollections, documents_of, source_of
from duckkb.operations.name_resolution import check_records, find_kind, grant_path, regular_file
from duckkb.storage import path_guard
from duckkb.storage.document_parts import walk
from duckkb.store.chroma import DOCUMENT, FILE, ChromaCollection, read
from duckkb.types.errors import DuckkbError, Finding, NotFound, StateError, UsageError
from duckkb.types.queries import Notice, Receipt
from duckkb.types.request_context import Caller

MEMORY = ("/MEMORY.md", "/memory.md", "/memory/**/*.md")
"""The files of an OpenClaw workspace that are its memory, as lines of .gitignore; `memory.md` is an older name."""
_OWN = ("id", "content")
_LONGEST_NAME = 48


class MigratedCollection(Struct, frozen=True):
    """The import of one Chroma collection: its name here, and in Chroma (`source`).

    The four numbers add up to its entries; `skipped` entries were left out, or left as they are here.
    """

    collection: str
    source: str
    inserted: int
    updated: int
    unchanged: int
    skipped: int
    notices: tuple[Notice, ...] = ()


class Migrations:
    """The imports `kb.migrate`; a second call adds nothing, and the source is never changed."""

    def __init__(self, base: BaseNow) -> None:
        self._base = base

    def chroma(
        self, file: str | Path, *, names: Sequence[str] = (), update: bool = False, dry_run: bool = False
    ) -> list[MigratedCollection]:
        """Import the collections (with these `names`) of a local Chroma: its `chroma.sqlite3` or folder.

        An entry becomes a record with its id, its document as `content`, and its metadata. Each collection is
        written whole or not at all. Existing records stay; those that differ are changed only with `update`, in
        the fields that Chroma has. Vectors are computed by the base's own model.

        Raises `errors.UsageError` (E_PATH), `errors.StateError` (E_FOREIGN), `errors.NotFound`,
        `errors.InvalidRecord`.
        """
        return [*self.each_of_chroma(file, names, update=update, dry_run=dry_run)]

    def each_of_chroma(
        self, file: str | Path, names: Sequence[str] = (), *, update: bool = False, dry_run: bool = False
    ) -> Iterator[MigratedCollection]:
        """Import as `chroma` does, and yield each collection once it is written; a failure keeps those before it."""
        with self._base() as base:
            place = grant_path(base, file)
            path = regular_file(base, place / FILE if place.is_dir() else place, f"a {FILE}")
        sources, used_tables = read(path), set[str]()
        source_names = [collection.name for collection in sources]
        for name in {*names} - {*source_names}:
            raise NotFound(f"no collection {name!r} in {path}", suggestion=suggest_known_names(name, source_names))
        for source in sources:
            if not names or source.name in names:
                yield self._migrate_collection(source, used_tables, update=update, dry_run=dry_run)

    def openclaw(self, folder: str | Path, *, name: str | None = None) -> dict[str, Any]:
        """Make the memory of an OpenClaw workspace a document collection over its folder.

        The memory is `MEMORY.md` and `memory/**/*.md`.

        Returns its name, folder, number of documents, and whether it was added now; an existing collection
        stays as it is. Raises `errors.StateError` (E_FOREIGN) for a folder without memory.
        """
        with self._base() as base:
            place = grant_path(base, folder).resolve()
            for kind in documents_of(base):
                if (base.root / source_of(kind).path).resolve() == place:
                    documents = len(base.tree.parts_of(kind))
                    return {"name": kind.name, "folder": str(place), "documents": documents, "added": False}
            if not _has_memory(base, place):
                inner = place / "workspace"
                reason = "no file MEMORY.md (or memory.md), and no memory/**/*.md (links are not followed)"
                message = f"{folder} is not an OpenClaw workspace with a memory: {reason}"
                remedy = f"give {inner}" if _has_memory(base, inner) else "give the folder that has these files"
                raise StateError(message, "E_FOREIGN", remedy)
        collection = DocumentCollections(self._base).add(place, name=name, masks=MEMORY)
        return {"name": collection.name, "folder": str(place), "documents": collection.records, "added": True}

    def _migrate_collection(
        self, source: ChromaCollection, used_tables: set[str], *, update: bool, dry_run: bool
    ) -> MigratedCollection:
        with self._base() as base:
            kind, definition = _find_or_define_type(base, source, used_tables)
            known_fields = () if definition else base.observe_fields(kind).types()
            fields = _map_field_names({key for entry in source.entries.values() for key in entry}, known_fields)
            entries = ((id, entry) for id, entry in source.entries.items() if entry)
            records = [{"id": id, **{fields[key]: entry[key] for key in entry}} for id, entry in entries]
            used_tables.add(collection_table(kind.name))
            new, differing = _compare_records(base, kind, records)
            changes = [*new, *(differing if update else ())]
            items = ((f"{source.name} {record['id']}", record_writes.plain(base, record)) for record in changes)
            check_records(base, kind, items, single=False, partial=True)  # before their collection is made
            if definition and not dry_run:
                create(base, kind.name, definition)
        pending = self._put(kind.name, changes, is_new=bool(definition)) if changes and not dry_run else 0
        empty, skip_count = len(source.entries) - len(records), 0 if update else len(differing)
        counts = len(new), len(differing) - skip_count, len(records) - len(new) - len(differing), empty + skip_count
        return MigratedCollection(
            kind.name,
            source.name,
            *counts,
            (*_describe_renames(source, kind, fields), *_describe_leftovers(empty, skip_count, pending)),
        )

    def _put(self, name: str, records: Sequence[Mapping[str, Any]], *, is_new: bool) -> int:
        """Write records and return the number of chunks without vectors.

        On failure, removes a collection that was made for them.
        """
        try:
            with self._base() as base:
                return record_writes.put(base, name, records, merge=True, embed=False).pending
        except BaseException:
            if is_new:
                with suppress(DuckkbError):  # a collection with records stays
                    Collections(self._base).remove(name)
            raise


def _find_or_define_type(base: Base, source: ChromaCollection, used_tables: set[str]) -> tuple[NodeType, bytes]:
    """Return the collection made of a Chroma collection, found by the UUID in its description, or a new one.

    A new collection comes with its definition.
    """
    mark = f"({source.id})"
    for kind in base.ontology.nodes.values():
        if kind.policy is not None and mark in kind.policy.description:
            return kind, b""
    name = _find_free_name(base, source.name, used_tables)
    policy = resolve_policy(base, "knowledge-base")
    policy_source = {**policy.source, "description": f"The collection {source.name} of Chroma {mark}."}
    definition = define(name, replace(policy, source=policy_source), {})
    record_type, findings = collection_of(definition, path_of(name))
    assert record_type is not None, findings
    return record_type, definition


def _compare_records(base: Base, kind: NodeType, records: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the records that are missing here, and those that differ here in some of their fields."""
    new, differing = [], []
    for record in records:
        row = base.tree.get(kind, (record["id"],))
        if row is None:
            new.append(record)
        elif not same_fields({**row.record.fields, **record}, dict(row.record.fields)):
            differing.append(record)
    return new, differing


def _find_free_name(base: Base, name: str, used_tables: set[str]) -> str:
    """Return a free name for a new collection, as near to `name` as possible; `used_tables` are taken."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST_NAME].strip("-_")
    if not is_policy_name(plain) or describe_reservation(plain):
        plain = f"chroma-{plain}".rstrip("-")

    def is_free(candidate: str) -> bool:
        table = collection_table(candidate)
        is_known = base.ontology.find(candidate) or base.ontology.find(table) or table in used_tables
        return not is_known and not (base.root / path_of(candidate)).exists()

    return next(filter(is_free, _iter_numbered_names(plain)))


def _map_field_names(keys: Iterable[str], known_fields: Container[str] = ()) -> dict[str, str]:
    """Map each key of metadata to a field: the key itself where that is a valid and free name.

    Keys in `known_fields` are mapped first.

    >>> _map_field_names(["chroma:document", "id", "loc.line", "Title", "title"])
    {'chroma:document': 'content', 'Title': 'Title', 'id': 'meta_id', 'title': 'title_2', 'loc.line': 'loc_line'}
    """
    safe = {key: re.sub(r"[^\w-]+", "_", key.removeprefix("chroma:")).lstrip("_") or "field" for key in keys}
    names, used_names = {DOCUMENT: "content"}, {*_OWN}
    for key in sorted(safe.keys() - names.keys(), key=lambda key: (safe[key] != key, key not in known_fields, key)):
        plain = f"meta_{safe[key]}" if safe[key].casefold() in _OWN else safe[key]
        names[key] = next(
            candidate for candidate in _iter_numbered_names(plain) if candidate.casefold() not in used_names
        )
        used_names.add(names[key].casefold())
    return names


def _iter_numbered_names(name: str) -> Iterator[str]:
    return chain([name], (f"{name}_{number}" for number in count(2)))


def _describe_renames(source: ChromaCollection, kind: NodeType, fields: Mapping[str, str]) -> Iterator[Notice]:
    if kind.name != source.name:
        yield Notice("W_MIGRATED", f"the collection {source.name!r} of Chroma is called {kind.name} here")
    renames = [f"{key!r} is {field}" for key, field in fields.items() if key not in (field, DOCUMENT)]
    if renames:
        yield Notice("W_MIGRATED", f"{kind.name}: of Chroma's metadata {', '.join(renames)}")


def _describe_leftovers(empty: int, skip_count: int, pending: int) -> Iterator[Notice]:
    if empty:
        yield Notice("W_MIGRATED", f"entries with only a vector, without document and metadata, were left out: {empty}")
    if skip_count:
        message = f"records that differ from their entries in Chroma were left unchanged: {skip_count}"
        yield Notice("W_MIGRATED", message, "--update takes what Chroma has")
    if pending:
        message = (
            f"texts that wait for vectors: {pending}; this base's own model makes them, since Chroma's are not imported"
        )
        yield Notice("W_PENDING", message, "duckkb index refresh")


def _has_memory(base: Base, folder: Path) -> bool:
    return any(not isinstance(entry, Finding) for entry in walk(base.root, DocumentSource(str(folder), MEMORY)))


Ask = Callable[[str, Mapping[str, Any], Caller], dict[str, Any]]
"""A function that takes an action's name, its arguments and a caller, and returns the plain object of the answer."""
READS = ("types", "schema", "find", "get", "neighbors", "path", "sql")
PROPOSE = "propose_put"
_PROPOSED = " Nothing is changed: it becomes a proposal on a branch, which somebody reviews."
_OF_WRITERS = frozenset({"dry_run", "embed"})  # a proposal is a dry run already, and is embedded after its merge
_TIMEOUT_S = 120.0


def toolbox(ask: Ask, propose: Ask, caller: Caller, longest: int) -> tuple[Tool, ...]:
    """Return the tools that a caller may use: `READS`, and `PROPOSE`, which puts records through `propose`.

    Reads may be repeated after an interruption. Results are cut at about `longest` characters.
    """

    def tool(name: str, action: Action, ask: Ask, more: str = "", without: frozenset[str] = frozenset()) -> Tool:
        return Tool(
            name,
            action.description + more,
            _build_parameters(action, without if caller.may("admin") else without | action.privileged),
            lambda args, context: shorten_answer(ask(action.name, args, caller), longest),
            timeout_s=_TIMEOUT_S,
            idempotent=not action.writes,
        )

    reads = [tool(name, ACTIONS[name], ask) for name in READS]
    put = tool(PROPOSE, ACTIONS["put"], propose, _PROPOSED, _OF_WRITERS)
    return (*reads, put) if caller.may(ACTIONS["put"].role) else tuple(reads)


def shorten_answer(answer: dict[str, Any], longest: int) -> dict[str, Any]:
    """Shorten an answer to about `longest` characters of JSON.

    Keeps the first entries of its longest list, or else its beginning as text; a `note` says what was left out.
    """
    text = _to_json(answer)
    if len(text) <= longest:
        return answer
    lists = {name: value for name, value in answer.items() if isinstance(value, list)}
    name = max(lists, key=lambda item: len(_to_json(lists[item])), default="")
    room = longest - len(text) + len(_to_json(lists.get(name, [])))
    entries: list[Any] = []
    for item in lists.get(name, []):
        room -= len(_to_json(item)) + 2
        if room < 0:
            break
        entries.append(item)
    if not entries:
        note = f"cut at {longest} of {len(text)} characters: ask for less"
        return {"beginning": text[:longest], "note": note}
    omitted_count = len(lists[name]) - len(entries)
    return answer | {
        name: entries,
        "note": f"{omitted_count} of {len(lists[name])} {name} left out: narrow the request",
    }


def _build_parameters(action: Action, without: frozenset[str]) -> dict[str, Any]:
    schema = action.input
    return schema | {"properties": {name: rule for name, rule in schema["properties"].items() if name not in without}}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_IDENTITY = ("run", "sequence")
"""The identity of the policy's records."""


def keep_harness(base: Base, type: str, harness: Harness, *, run: str | None = None, dry_run: bool = False) -> Receipt:
    """Store the records of a harness in a collection with the policy `harness`.

    The run is named `run`, by default by the harness's own id.

    Storing it again changes nothing. Raises as `writing.put`, `errors.UsageError` for another type, and
    `errors.StateError` (E_HARNESS) for a harness that waits for approval, was interrupted, or has no calls.
    """
    if find_kind(base, type).identity != _IDENTITY:
        command = "duckkb col init runs --policy harness"
        raise UsageError(f"{type} is not a collection with the policy `harness`", suggestion=command)
    if harness.pending or harness.interrupted:
        raise StateError("this harness is not finished: calls wait, or were interrupted", "E_HARNESS", "resume its run")
    if not harness.records:
        raise StateError("this harness has nothing to store: no tool was called", "E_HARNESS", "keep another")
    name = harness.id if run is None else run
    return record_writes.put(base, type, [_record(name, record) for record in harness.records], dry_run=dry_run)


def _record(run: str, record: CallRecord) -> dict[str, Any]:
    """Return a call as a record; `args` stay text, so that whatever a model wrote can be stored."""
    call = record.call
    outcome = {"result": record.result} if record.result is not None else {"error": record.error}
    return {
        "run": run,
        "sequence": record.sequence,
        "turn": call.turn,
        "call": call.call_id,
        "tool": call.tool,
        "args": call.arguments.encode("utf-8", "replace").decode(),
        "status": record.status,
        **outcome,
        "start": record.start,
        "duration_ms": record.duration_ms,
    }


FOLDER = "~/.claude/skills"


def text() -> str:
    """Return the page, Markdown with front matter."""
    return files("duckkb.operations").joinpath("SKILL.md").read_text("utf-8")


def install(to: str | Path = FOLDER, *, force: bool = False) -> tuple[Path, bool]:
    """Write the page to `to`/duckkb/SKILL.md; return its path, and whether it was written or was there already.

    Raises `errors.UsageError` (E_PATH) where another file is there, unless `force`, or where callers may not write.
    """
    env = config.environment()
    target, data = path_guard.sound(to).expanduser() / "duckkb" / "SKILL.md", text().encode()
    if env.sandbox:
        path_guard.grant_outside_path(target, config.find_root(Path.cwd(), None, env), env)
    path_guard.refuse_protected_path(target, env)
    if target.is_file() and target.read_bytes() == data:
        return target, False
    target.parent.mkdir(parents=True, exist_ok=True)
    path_guard.write(target, [data], target.parent, env, force=force)
    return target, True
