"""Write: tokens and vectors first, then under the lock recover, sync, draft, check, render, commit and mirror.

The guards of a write: what must hold of a changeset and of the base before anything is rendered."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.engine import boot, integrity
from duckkb.engine.base import Base, Proposal
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.index_status import carry, recall_counts
from duckkb.engine.integrity import BaseView, WriteView, name_record, refuse_mass_deletion, schema
from duckkb.engine.meaning import ChosenFields, choose_fields, unsearchable_after, with_fields
from duckkb.engine.text_vectors import batches, embed
from duckkb.engine.write_draft import Apply, Draft, Given, Request, Supersede, Upsert, draft, plain_request, same_fields
from duckkb.ontology.model import RecordType
from duckkb.storage import (
    bundle,
    clone_state,
    commit_protocol,
    git_changes,
    git_facts,
    git_process,
    layout,
    render,
    repository,
)
from duckkb.storage.line import etag
from duckkb.storage.render import RenderedPart
from duckkb.types.codes import CODES
from duckkb.types.errors import Conflict, Finding, InvalidRecord, Refused, Unavailable, shell_word
from duckkb.types.queries import Notice, Receipt
from duckkb.types.records import Change, Changeset, Record, component_value, identity_text


def refuse_unready(base: Base) -> None:
    """Raise where the base is unreadable, incomplete, or in the middle of a merge or another operation."""
    git_changes.refuse_begun_merge(base.whole.root)
    refuse_unreadable(base.tree)
    git_facts.refuse_sparse_paths(base.whole.root, base.concerns)
    under_way = repository.operation_in_progress(base.whole.root)
    if under_way:
        raise Refused(
            f"a {under_way} is in progress; a write would mix with it",
            code="E_MERGE_IN_PROGRESS",
            suggestion=f"`duckkb resolve` and finish it, or `git {under_way} --abort`, then repeat",
        )


def check(base: Base, changeset: Changeset, *, allow_shrink: bool, check_schema: bool) -> None:
    """Raise for everything that a changeset would break.

    Raises `errors.InvalidRecord` where records do not fit their types, else `errors.Refused`. Without
    `check_schema`, the records have been validated before."""
    rules = [rule for rule in integrity.BEFORE_WRITE if check_schema or rule.find is not schema]
    problems = integrity.findings(WriteView(view(base), changeset, base.holders), rules)
    findings = tuple(name_record(one) for one in problems if one.is_error)
    if findings:
        first, one = findings[0], len(findings) == 1
        where = f"{first.field}: " if first.field.startswith("/") else ""
        family = InvalidRecord if all(finding.code == "E_SCHEMA" for finding in findings) else Refused
        raise family(
            where + first.message if one else f"{len(findings)} problems; nothing was written",
            code=first.code if len({finding.code for finding in findings}) == 1 else "E_REFUSED",
            suggestion=first.remedy,
            findings=findings,
            exit_code=1,
        )
    if not allow_shrink:
        deletions = Counter(one.old.type for one in changeset.changes if one.new is None and one.old is not None)
        totals = {name: base.tree.count(_find_type(base, name)) for name in deletions}
        refuse_mass_deletion({name: (count, totals[name]) for name, count in deletions.items()}, base.settings.shrink)


def view(base: Base) -> BaseView:
    """Return the base as integrity rules see it."""
    return BaseView(base.tree, base.validator, base.lengths)


def refuse_documents(kinds: Iterable[RecordType]) -> None:
    """Raise `errors.Refused` (E_DOCUMENT) for types whose records are files: changing the files changes the
    records."""
    for kind in kinds:
        if kind.source is not None:
            message = f"the records of {kind.name} are the files of {kind.source.path}; nothing was written"
            raise Refused(message, code="E_DOCUMENT", suggestion="edit, add or delete the file itself")


def refuse_existing_type(base: Base, name: str) -> None:
    """Raise `errors.Conflict` (E_EXISTS) where a type has the name of a new collection.

    The declarations of the files and of this machine are read anew, not taken from when the base was opened;
    the caller's lock keeps them unchanged."""
    from duckkb.ontology.ontology_files import path_of

    holder = base.wiring.preview({}).find(name)
    if holder is not None or (base.root / path_of(name)).exists():
        alias = f" as {holder.name}" if holder and holder.name != name else ""
        place = f" ({holder.source.path})" if holder and holder.source else ""
        raise Conflict(f"{name} exists already{alias}{place}", "E_EXISTS", f"duckkb col show {name}")


def refuse_agents(base: Base, changeset: Changeset) -> None:
    """Raise `errors.Refused` (E_REVIEW) where an agent directly writes what the ontology wants reviewed."""
    if not base.wiring.env.agent or base.wiring.proposal is not None:
        return
    findings = []
    for change in changeset.changes:
        kind = _find_type(base, change.record.type)
        changed_fields = sorted(_diff_fields(change) & kind.reviewed_fields)
        if kind.review or changed_fields:
            subject = kind.name if kind.review else f"{kind.name} {', '.join(changed_fields)}"
            message, remedy = (
                f"changes of {subject} are reviewed before they count",
                "put `propose` in front of the verb: `duckkb propose put ...`",
            )
            name = identity_text(change.record.identity)
            findings.append(Finding("E_REVIEW", message, remedy=remedy, type=kind.name, identity=name))
    if findings:
        raise Refused(
            f"{findings[0].message}, and DUCKKB_AGENT marks an agent; nothing was written",
            code="E_REVIEW",
            suggestion="put `propose` in front of the verb: `duckkb propose put ...` makes a branch to review",
            findings=findings,
        )


def refuse_agent_of(base: Base, kind: RecordType) -> None:
    """Raise as `refuse_agents` does, for a change to all records of a type."""
    if base.wiring.env.agent and (kind.review or kind.reviewed_fields):
        raise Refused(
            f"changes of {kind.name} need a review, and DUCKKB_AGENT marks an agent",
            code="E_REVIEW",
            suggestion="ask a person to do this, or propose changes of single records with `duckkb propose`",
        )


def _diff_fields(change: Change) -> set[str]:
    """Return the fields whose value a change adds, removes or replaces."""
    old, new = (record.fields if record is not None else {} for record in (change.old, change.new))
    return {name for name in {**old, **new} if not same_fields(old.get(name), new.get(name))}


def _find_type(base: Base, name: str) -> RecordType:
    kind = base.ontology.find(name)
    assert kind is not None, "a changeset names types of the ontology"
    return kind


_NEAR = 0.75
_MOST_NAMED = 5
_MANY_VECTORS = 100
"""Vectors of one write from which on the missing team's cache is always reported."""
_LOOKED_AT = 32  # records
_SHOWN_REPLACED = 3
_LONGEST = 1_000  # characters of a command
_SLAB = 4_096
"""Records whose entries are made, and held, together."""


class WriteOptions(Struct, frozen=True):
    """The options of a write; see `KnowledgeBase.put`.

    `dry_run` writes nothing and fills the receipt's patch; `embed` computes vectors before the lock is taken."""

    merge: bool = False
    if_match: str | None = None
    dry_run: bool = False
    embed: bool = True
    allow_shrink: bool = False


def write(base: Base, request: Request, options: WriteOptions) -> Receipt:
    """Apply a request, all or nothing.

    Raises `errors.StateError` and its children where a guard stops it, `errors.Unavailable` for lock and disk;
    then files and memory are unchanged."""
    refuse_documents(_collect_types(base, request))
    if not isinstance(request, Upsert):
        for kind in _collect_types(base, request):
            base.refuse_loss(kind)
    field_choice = choose_fields(base, request)
    search_request = with_fields(request, field_choice)
    notices = (
        _fill_caches(base, search_request)
        if options.embed and not options.dry_run and base.wiring.proposal is None
        else ()
    )
    with writable(base):
        if field_choice is not None and field_choice.change.old is not None and base.tree.count(field_choice.kind):
            field_choice = None  # another process wrote the definition first
        if field_choice is not None and field_choice.change.old is None:
            refuse_existing_type(base, field_choice.kind.name)
        write_draft = draft(plain_request(base.tree, request), base.tree, base.wiring.clock.now())
        _check(base, request, write_draft, options)
        refuse_agents(base, write_draft.changeset)
        parts = render.render(base.tree, write_draft.changeset, _choose_writer(base), write_draft.places)
        notices += field_notices(base, request, write_draft) + (
            (field_choice.notice,) if field_choice and parts else ()
        )
        if options.dry_run:
            return _build_receipt(
                base, write_draft, parts, notices, field_choice, patch=patch_of(base, parts, field_choice)
            )
        counts_before = recall_counts(base.whole) if base.wiring.at is None else None
        commit(base, parts, field_choice)
        if counts_before:
            carry(base.whole, counts_before, write_draft.changeset)
    notices += unsearchable_after(base, request) if field_choice is None else ()
    return _build_receipt(base, write_draft, parts, notices, field_choice)


def _collect_types(base: Base, request: Request) -> Iterable[RecordType]:
    if isinstance(request, Apply):
        kinds = (base.ontology.find(change.record.type) for change in request.changeset.changes)
        return [kind for kind in kinds if kind is not None]
    return [upsert.kind for upsert in request.upserts] if isinstance(request, Supersede) else [request.kind]


@contextmanager
def writable(base: Base) -> Iterator[None]:
    """Hold the exclusive lock over a base that is recovered, in step with the files, readable and not in a merge."""
    boot.refuse_tracked_state(base.whole.root)
    if base.wiring.proposal is not None:
        boot.refuse_unreadable(base.tree, base.whole.root)
        yield
        return
    boot.refuse_past(base)
    with commit_protocol.lock_for_writing(base.whole.root, base.wiring.lock_timeout):
        boot.sync(base)
        refuse_unready(base)
        yield


def commit(base: Base, parts: Sequence[RenderedPart], chosen: ChosenFields | None = None) -> None:
    """Replace files all or nothing, with the definition of `chosen` fields, then update memory.

    The caller holds the exclusive lock."""
    if not parts:
        return
    if base.wiring.proposal is not None:
        _propose(base, base.wiring.proposal, parts)
        return
    changes = [commit_protocol.FileChange(part.path, part.before, part.data) for part in parts]
    changes += [chosen.change] if chosen is not None else []
    root, format_data = base.whole.root, render.format_change(base.whole.root)
    if format_data is not None:
        changes.append(commit_protocol.FileChange(layout.FORMAT_PATH, None, format_data))
    with mark_last_part_removal(base, changes):
        facts = commit_protocol.commit(root, changes)
    new_parts = {part.path: part.build_part(facts[part.path]) if part.data is not None else None for part in parts}
    base.take_in(new_parts)


def _propose(base: Base, proposal: Proposal, parts: Sequence[RenderedPart]) -> None:
    from duckkb.engine import boot

    files: dict[str, bytes | None] = {part.path: part.data for part in parts}
    proposal.keep(
        files if boot.has(base.wiring, layout.FORMAT_PATH) else {**files, layout.FORMAT_PATH: layout.format_bytes()}
    )


@contextmanager
def mark_last_part_removal(base: Base, changes: Sequence[commit_protocol.FileChange]) -> Iterator[None]:
    """Wrap a commit: where it removes the last part, the next start must not report a missing `data/`."""
    removed_paths = {change.path for change in changes if change.data is None}
    has_additions = any(change.data for change in changes if layout.parse_part(change.path))
    root, stored_parts = base.whole.root, base.whole.tree.stored_parts
    last = bool(stored_parts) and removed_paths.issuperset(stored_parts) and not has_additions
    if last:
        clone_state.remember_emptying(root, repository.head_commit(root))
    try:
        yield
    except BaseException:
        if last and any((root / path).exists() for path in removed_paths):
            clone_state.forget_emptying(root)
        raise
    if has_additions:
        clone_state.forget_emptying(root)


def patch_of(base: Base, parts: Iterable[RenderedPart], chosen: ChosenFields | None = None) -> str:
    """Return the unified diff of these parts, and of the definition with `chosen` fields, as git would show it."""
    files = [(part.path, part.before, part.data) for part in parts]
    files += [(chosen.change.path, chosen.change.old, chosen.change.data)] if chosen is not None and files else []
    return bundle.format_patch(
        (path, _read_bytes(base, path) if old is not None else None, data) for path, old, data in files
    )


def _read_bytes(base: Base, path: str) -> bytes:
    if base.wiring.at is None:
        return (base.whole.root / path).read_bytes()
    from duckkb.engine import boot

    return boot.bytes_of(base.wiring, path)


def _fill_caches(base: Base, request: Request) -> tuple[Notice, ...]:
    """Put the vectors of the records to write into the local cache, and their tokens where there are enough.

    A failing model blocks nothing."""
    if not isinstance(request, Upsert) or not (request.kind.vectors or request.kind.full_text):
        return ()
    records = [_build_preview(base, request, entry) for entry in request.given]
    base.builder.make_tokens(request.kind, records)
    missing = dict(base.builder.list_texts_to_embed(request.kind, records))
    offer_notices = _offer(base, request.kind, len(missing))
    try:
        if missing:
            embed(base, request.kind, missing)
    except Unavailable as problem:
        message = f"stored without vectors: {problem.message}"
        return base.filter_notices([Notice("W_PENDING", message, problem.suggestion or "duckkb index build")])
    base.cache.save()
    return base.filter_notices(offer_notices)


def _offer(base: Base, kind: RecordType, count: int) -> tuple[Notice, ...]:
    """Return a notice where a clone begins to compute vectors, or computed many, that the team's cache should
    hold.

    The first records of a base give no notice."""
    if not count or base.cache.team_paths() or base.wiring.place.sealed is not None or not base.tree.count(kind):
        return ()
    if count < _MANY_VECTORS and _has_vectors(base, kind):
        return ()
    if not _should_share_cache(base.whole.root):
        return ()
    code = CODES["W_NO_TEAM_CACHE"]
    vectors = "1 vector was" if count == 1 else f"{count:,} vectors were"
    message = f"{vectors} computed only for this clone: the team's cache is missing"
    return (Notice(code.name, message, code.remedy),)


def _should_share_cache(root: Path) -> bool:
    """Return whether a base is to have a team's cache: git keeps it in LFS, a nightly job builds it, or it was
    committed."""
    checkout = git_process.find_repository(root)
    if checkout is None:
        return False
    if os.path.lexists(checkout.work_tree / layout.INDEX_WORKFLOW):
        return True
    about = repository.attributes(root, f"{layout.INDICES}/x", ("filter",)) or {}
    return about.get("filter") == "lfs" or repository.was_committed(root, layout.INDICES)


def _has_vectors(base: Base, kind: RecordType) -> bool:
    """Return whether some of a type's first stored records have vectors, so that this is not the first write with
    any."""
    texts = base.builder.needs(kind, [row.record for row in islice(base.tree.rows(kind), _LOOKED_AT)]).vectors
    return len(base.cache.list_missing_keys("vector", texts)) < len(texts)


def _build_preview(base: Base, request: Upsert, entry: Given) -> Record:
    """Build the record as it will probably be written; fields that `--merge` keeps come from the present rows."""
    stored_row = base.tree.get(request.kind, entry.identity) if request.merge else None
    fields = {**stored_row.record.fields, **entry.fields} if stored_row else entry.fields
    return Record(request.kind.name, 0, entry.identity, fields, "", "")


def _choose_writer(base: Base) -> render.Writer:
    """Return the writer of this clone and branch, which decides the part."""
    if base.settings.part == "fixed":
        return render.Writer()
    root = base.whole.root
    clone = base.wiring.env.writer or clone_state.clone_id(root)
    proposal = base.wiring.proposal
    return render.Writer(layout.base_number(clone, proposal.branch if proposal else repository.branch(root)))


def _check(base: Base, request: Request, write_draft: Draft, options: WriteOptions) -> None:
    """Check the records against the guards; those merged with stored fields also against their schema.

    Records given whole were validated before the lock was taken."""
    needs_schema_check = not isinstance(request, Upsert) or request.merge
    check(base, write_draft.changeset, allow_shrink=options.allow_shrink, check_schema=needs_schema_check)


def _build_receipt(
    base: Base,
    write_draft: Draft,
    parts: Sequence[RenderedPart],
    notices: tuple[Notice, ...],
    field_choice: ChosenFields | None = None,
    patch: str | None = None,
) -> Receipt:
    changeset = write_draft.changeset
    rows = {(part.kind.name, row.record.identity): row for part in parts for row in part.come}
    record_rows = [
        rows.get((kind.name, identity)) or base.tree.get(kind, identity) for kind, identity in write_draft.asked
    ]
    return Receipt(
        inserted=changeset.count("insert"),
        updated=changeset.count("update") + len(write_draft.replaced),
        unchanged=write_draft.unchanged,
        deleted=changeset.count("delete"),
        files=(*(part.path for part in parts), *((field_choice.change.path,) if field_choice and parts else ())),
        identities=tuple(identity for _, identity in write_draft.asked),
        ids=tuple(row.record.id for row in record_rows if row),
        etags=tuple(etag(row.line) for row in record_rows if row),
        pending=_count_missing_vectors(base, (change.new for change in changeset.changes if change.new), field_choice),
        notices=notices,
        dry_run=patch is not None,
        patch=patch or "",
        changes=changeset.changes if patch is not None else (),
    )


def _count_missing_vectors(base: Base, records: Iterable[Record], field_choice: ChosenFields | None) -> int:
    """Return the number of these records' chunks that have no vector yet; 0 for a narrowed base.

    There, a text may have its vector because another part of the base has the same text."""
    if base.is_narrowed:
        return 0
    by_type: dict[str, list[Record]] = {}
    for record in records:
        by_type.setdefault(record.type, []).append(record)
    count = 0
    for name, some in by_type.items():
        kind = field_choice.kind if field_choice is not None else base.ontology.find(name)
        if kind is not None and kind.vectors:
            count += sum(len(base.builder.list_texts_to_embed(kind, slab)) for slab in batches(some, _SLAB))
    return count


def field_notices(base: Base, request: Request, drafted: Draft) -> tuple[Notice, ...]:
    """Return notices about the given fields that do not keep a record from being stored.

    These are nulls, names close to those of other fields, and values of a new type."""
    if isinstance(request, Upsert):
        field_notes = (*_note_nulls(request), *_note_misspellings(base, request), *_note_strange_types(base, drafted))
        replacements = () if request.merge else _note_replacements(drafted)
        return (*field_notes, *replacements, *_note_dropped_fields(base, request, drafted))
    return tuple(_note_strange_types(base, drafted))


def _note_replacements(write_draft: Draft) -> Iterator[Notice]:
    """Yield a notice for each identity in several lines, of which the last counts."""
    examples = [
        f"{identity_text(later.identity)} ({later.place or 'a later one'} replaces {earlier.place or 'an earlier one'})"
        for earlier, later in write_draft.replaced[:_SHOWN_REPLACED]
    ]
    if examples:
        more = len(write_draft.replaced) - len(examples)
        message = f"{write_draft.asked[0][0].name} {', '.join(examples)}{f' and {more} more' if more else ''}"
        yield Notice("W_REPLACED", message, "remove the wrong lines, or join them with `put --merge`")


def _note_dropped_fields(base: Base, request: Upsert, write_draft: Draft) -> Iterator[Notice]:
    """Yield a notice of what stored records lose: fields that new ones lack, and members of objects that were replaced.

    A field given as null is not lost but deleted.
    """
    nulls = {entry.identity: {name for name, value in entry.fields.items() if value is None} for entry in request.given}
    losses: list[tuple[Record, dict[str, Any], list[str]]] = []
    for old, new in ((change.old, change.new) for change in write_draft.changeset.changes):
        if old is not None and new is not None:
            stored_fields = {name: old.fields[name] for name in old.fields if name not in nulls.get(new.identity, ())}
            restored_fields, lost_names = _restore_members(stored_fields, new.fields)
            losses += [(old, restored_fields, lost_names)] if lost_names else []
    if not losses:
        return
    names, (old, restored_fields, _) = dict.fromkeys(name for *_, names in losses for name in names), losses[0]
    where = identity_text(old.identity) if len(losses) == 1 else _format_count(len(losses))
    reason = "the object was" if request.merge else "the record was"
    message = f"{old.type} {where}: {_format_names([*names])} dropped, as {reason} replaced whole"
    lacking = dict(zip(request.kind.identity_fields, map(component_value, old.identity), strict=True)) | restored_fields
    command = put_command(base, old.type, lacking)
    remedy = f"`{command}` brings {'it' if len(names) == 1 else 'them'} back; " if len(losses) == 1 and command else ""
    rule = "--merge changes each field as a whole" if request.merge else "with --merge only the fields given change"
    yield Notice("W_DROPPED", message, remedy + rule)


def _restore_members(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields to give so that `new` has again what `old` had beside it, and the dotted names of that."""
    fields: dict[str, Any] = {}
    names: list[str] = []
    for name, value in old.items():
        if name not in new:
            fields[name] = value
            names.append(name)
        elif isinstance(value, Mapping) and isinstance(new[name], Mapping):
            members, lost_names = _restore_members(value, new[name])
            fields |= {name: {**new[name], **members}} if lost_names else {}
            names += [f"{name}.{member}" for member in lost_names]
    return fields, names


def put_command(base: Base, type: str, fields: Mapping[str, Any]) -> str:
    """Return the command that puts these fields with --merge, on the branch of a proposal; empty if too long."""
    proposal = base.wiring.proposal
    put = f"propose --branch {shell_word(proposal.branch)} put" if proposal else "put"
    command = f"duckkb {put} {shell_word(type)} {shell_word(json.dumps(fields, ensure_ascii=False))} --merge"
    return command if len(command) <= _LONGEST else ""


def _note_nulls(request: Upsert) -> Iterator[Notice]:
    """Yield notices of null fields: a null field is an absent field; in a merge, null deletes the field."""
    if request.merge:
        return
    names: dict[str, None] = {}
    records = 0
    for entry in request.given:
        if None in entry.fields.values():
            records += 1
            names |= dict.fromkeys(name for name, value in entry.fields.items() if value is None)
    if records:
        where = identity_text(request.given[0].identity) if len(request.given) == 1 else _format_count(records)
        message = f"{request.kind.name} {where}: {_format_names(list(names))} given as null, which is not stored: absent is null"
        yield Notice("W_NULL", message, 'leave out such fields, or give "" for an empty text')


def _note_misspellings(base: Base, request: Upsert) -> Iterator[Notice]:
    """Yield notices of fields that are new to the type and resemble one that the record lacks."""
    kind = request.kind
    declared_names = {*kind.properties, *kind.identity_fields}
    near_names: dict[str, str] = {}
    known_names: set[str] | None = None
    seen_shapes: set[frozenset[str]] = set()
    for entry in request.given:
        if entry.fields.keys() <= declared_names or (shape := frozenset(entry.fields)) in seen_shapes:
            continue  # misspellings among these names were reported already
        seen_shapes.add(shape)
        if known_names is None:
            known_names = declared_names | _collect_stored_fields(base, kind)
        for name in entry.fields:
            if name not in known_names | near_names.keys() and (
                near := _find_near_name(name, known_names - entry.fields.keys())
            ):
                near_names[name] = near
    if not near_names:
        return
    records = [entry.identity for entry in request.given if not near_names.keys().isdisjoint(entry.fields)]
    where = identity_text(records[0]) if len(records) == 1 else _format_count(len(records))
    names = _format_names(list(near_names))
    nears = _format_names(list(dict.fromkeys(near_names.values()))).rpartition(" ")[0]
    message = f"{kind.name} {where}: {names} stored as a new field; did you mean {nears}?"
    command = f"duckkb col show {kind.name}" if kind.is_collection else f"duckkb schema {kind.name}"
    record = "it" if len(records) == 1 else "them"
    yield Notice(
        "W_FIELD", message, f"put {record} again with {nears}, if you meant that; `{command}` names the fields"
    )


def _collect_stored_fields(base: Base, kind: RecordType) -> set[str]:
    """Return the fields that records of a type without a schema have."""
    return set(base.observe_fields(kind).types()) if kind.is_collection else set()


def _find_near_name(name: str, known_names: set[str]) -> str:
    """Return the known field that this name probably misspells; `name2` is no misspelling of `name1`."""
    folded_names = {
        re.sub(r"\d+", "0", candidate.casefold()): candidate
        for candidate in sorted(known_names)
        if abs(len(candidate) - len(name)) < 2
    }
    near = get_close_matches(folded_name := re.sub(r"\d+", "0", name.casefold()), folded_names, 1, _NEAR)
    return (
        folded_names[near[0]]
        if near and (near[0] != folded_name or folded_names[near[0]].casefold() == name.casefold())
        else ""
    )


def _note_strange_types(base: Base, write_draft: Draft) -> Iterator[Notice]:
    """Yield notices of values with a type that is new to their field, in collections without a schema."""
    new: list[Record] = [change.new for change in write_draft.changeset.changes if change.new is not None]
    for name in dict.fromkeys(record.type for record in new):
        kind = base.ontology.nodes.get(name)
        if kind is None or not kind.is_collection:
            continue
        differences = base.observe_fields(kind).strange(record for record in new if record.type == name)
        for (field, word), (before, record) in differences.items():
            message = (
                f"{name} {identity_text(record.identity)}: {field} is {word}, but was {before} so far; stored unchanged"
            )
            yield Notice("W_TYPE", message, f"filters compare {field} only with values of one type")


def _format_count(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"


def _format_names(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more + (" were" if len(names) > 1 else " was")
