"""Write: tokens and vectors first, then under the lock recover, sync, draft, check, render, commit, mirror."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.codes import CODES
from duckkb.engine import boot, guard
from duckkb.engine.base import Base, Proposal
from duckkb.engine.draft import Apply, Draft, Given, Request, Supersede, Upsert, draft, plain_request
from duckkb.engine.index.notes import carry, known_before
from duckkb.engine.meaning import ChosenFields, choose_fields, unsearchable_after, with_fields
from duckkb.engine.vectors import batches, embed
from duckkb.errors import Unavailable, shell_word
from duckkb.ontology.model import RecordType
from duckkb.queries import Notice, Receipt
from duckkb.records import Record, component_value, identity_text
from duckkb.truth import layout, state
from duckkb.truth.commit import protocol
from duckkb.truth.files import render
from duckkb.truth.files.line import etag
from duckkb.truth.files.render import RenderedPart
from duckkb.truth.git import patch, repository, run

_NEAR = 0.75
_MOST_NAMED = 5
_MANY_VECTORS = 100
"""From so many on it is said at every write that nobody else gets them."""
_LOOKED_AT = 32  # records
_SHOWN_REPLACED = 3
_LONGEST = 1_000  # characters of a command
_SLAB = 4_096
"""Records whose entries are made, and held, together."""


class WriteOptions(Struct, frozen=True):
    """How a write is done; see `KnowledgeBase.put`. `dry_run` writes nothing and fills the receipt's patch; `embed` computes
    vectors before the lock is taken."""

    merge: bool = False
    if_match: str | None = None
    dry_run: bool = False
    embed: bool = True
    allow_shrink: bool = False


def write(base: Base, request: Request, options: WriteOptions) -> Receipt:
    """Apply a request, all or nothing. Raises `errors.StateError` and its children where a guard stops it,
    `errors.Unavailable` for lock and disk; then files and memory are as they were."""
    guard.refuse_documents(_kinds(base, request))
    if not isinstance(request, Upsert):
        for kind in _kinds(base, request):
            base.refuse_loss(kind)
    chosen = choose_fields(base, request)
    searched = with_fields(request, chosen)
    notices = _warm(base, searched) if options.embed and not options.dry_run and base.wiring.proposal is None else ()
    with writable(base):
        if chosen is not None and chosen.change.old is not None and base.tree.count(chosen.kind):
            chosen = None  # another process was first
        if chosen is not None and chosen.change.old is None:
            guard.refuse_taken(base, chosen.kind.name)
        drafted = draft(plain_request(base.tree, request), base.tree, base.wiring.clock.now())
        _check(base, request, drafted, options)
        guard.refuse_agents(base, drafted.changeset)
        parts = render.render(base.tree, drafted.changeset, _writer(base), drafted.places)
        notices += field_notices(base, request, drafted) + ((chosen.notice,) if chosen and parts else ())
        if options.dry_run:
            return _receipt(base, drafted, parts, notices, chosen, patch=patch_of(base, parts, chosen))
        known = known_before(base.whole) if base.wiring.at is None else None
        commit(base, parts, chosen)
        if known:
            carry(base.whole, known, drafted.changeset)
    notices += unsearchable_after(base, request) if chosen is None else ()
    return _receipt(base, drafted, parts, notices, chosen)


def _kinds(base: Base, request: Request) -> Iterable[RecordType]:
    if isinstance(request, Apply):
        found = (base.ontology.find(change.record.type) for change in request.changeset.changes)
        return [kind for kind in found if kind is not None]
    return [one.kind for one in request.upserts] if isinstance(request, Supersede) else [request.kind]


@contextmanager
def writable(base: Base) -> Iterator[None]:
    """Hold the exclusive lock over a base that is recovered, in step with the files, readable and not in a merge."""
    boot.refuse_tracked_state(base.whole.root)
    if base.wiring.proposal is not None:
        boot.refuse_unreadable(base.tree, base.whole.root)
        yield
        return
    boot.refuse_past(base)
    with protocol.writing(base.whole.root, base.wiring.lock_timeout):
        boot.sync(base)
        guard.refuse_unready(base)
        yield


def commit(base: Base, parts: Sequence[RenderedPart], chosen: ChosenFields | None = None) -> None:
    """Replace files all or nothing, with them the definition for which fields were chosen, then let memory follow; the caller
    holds the exclusive lock."""
    if not parts:
        return
    if base.wiring.proposal is not None:
        _propose(base, base.wiring.proposal, parts)
        return
    changes = [protocol.FileChange(part.path, part.before, part.data) for part in parts]
    changes += [chosen.change] if chosen is not None else []
    root, known = base.whole.root, render.format_change(base.whole.root)
    if known is not None:
        changes.append(protocol.FileChange(layout.FORMAT_PATH, None, known))
    with emptying(base, changes):
        facts = protocol.commit(root, changes)
    stored = {part.path: part.stored(facts[part.path]) if part.data is not None else None for part in parts}
    base.take_in(stored)


def _propose(base: Base, proposal: Proposal, parts: Sequence[RenderedPart]) -> None:
    from duckkb.engine import at

    files: dict[str, bytes | None] = {part.path: part.data for part in parts}
    proposal.keep(
        files if at.has(base.wiring, layout.FORMAT_PATH) else {**files, layout.FORMAT_PATH: layout.format_bytes()}
    )


@contextmanager
def emptying(base: Base, changes: Sequence[protocol.FileChange]) -> Iterator[None]:
    """Around a commit: where it takes the last part, the next start must not take that for a `data/` that is missing."""
    gone = {change.path for change in changes if change.data is None}
    added = any(change.data for change in changes if layout.parse_part(change.path))
    root, stored = base.whole.root, base.whole.tree.stored_parts
    last = bool(stored) and gone.issuperset(stored) and not added
    if last:
        state.mark_emptied(root, repository.head_commit(root))
    try:
        yield
    except BaseException:
        if last and any((root / path).exists() for path in gone):
            state.unmark_emptied(root)
        raise
    if added:
        state.unmark_emptied(root)


def patch_of(base: Base, parts: Iterable[RenderedPart], chosen: ChosenFields | None = None) -> str:
    """The unified diff that git would show for these parts, and the definition for which fields were chosen."""
    files = [(part.path, part.before, part.data) for part in parts]
    files += [(chosen.change.path, chosen.change.old, chosen.change.data)] if chosen is not None and files else []
    return patch.unified((path, _bytes(base, path) if old is not None else None, data) for path, old, data in files)


def _bytes(base: Base, path: str) -> bytes:
    if base.wiring.at is None:
        return (base.whole.root / path).read_bytes()
    from duckkb.engine import at

    return at.bytes_of(base.wiring, path)


def _warm(base: Base, request: Request) -> tuple[Notice, ...]:
    """Vectors of what is about to be written go into the local cache, and tokens where there are enough to be kept; a
    failing model blocks nothing."""
    if not isinstance(request, Upsert) or not (request.kind.vectors or request.kind.full_text):
        return ()
    records = [_preview(base, request, given) for given in request.given]
    base.builder.make_tokens(request.kind, records)
    missing = dict(base.builder.unembedded(request.kind, records))
    offered = _offer(base, request.kind, len(missing))
    try:
        if missing:
            embed(base, request.kind, missing)
    except Unavailable as problem:
        said = f"stored without vectors: {problem.message}"
        return base.told([Notice("W_PENDING", said, problem.suggestion or "duckkb index build")])
    base.cache.save()
    return base.told(offered)


def _offer(base: Base, kind: RecordType, computed: int) -> tuple[Notice, ...]:
    """Where a clone begins to compute vectors, or computed many, that others expect to get from the team's cache; its first
    records are nobody's to share yet."""
    if not computed or base.cache.team_paths() or base.wiring.place.sealed is not None or not base.tree.count(kind):
        return ()
    if computed < _MANY_VECTORS and _has_vectors(base, kind):
        return ()
    if not _is_shared(base.whole.root):
        return ()
    code = CODES["W_NO_TEAM_CACHE"]
    vectors = "1 vector was" if computed == 1 else f"{computed:,} vectors were"
    said = f"{vectors} computed for this clone alone: the team's cache, which this base is to have, is not there"
    return (Notice(code.name, said, code.remedy),)


def _is_shared(root: Path) -> bool:
    """Whether a base is to have a team's cache: git keeps it in LFS, a nightly job builds it, or it was committed before."""
    found = run.find_repository(root)
    if found is None:
        return False
    if os.path.lexists(found.work_tree / layout.INDEX_WORKFLOW):
        return True
    about = repository.attributes(root, f"{layout.INDICES}/x", ("filter",)) or {}
    return about.get("filter") == "lfs" or repository.was_committed(root, layout.INDICES)


def _has_vectors(base: Base, kind: RecordType) -> bool:
    """Whether some of the first stored records of a type have theirs: this is not the first write that computes some."""
    texts = base.builder.needs(kind, [row.record for row in islice(base.tree.rows(kind), _LOOKED_AT)]).vectors
    return len(base.cache.lacking("vector", texts)) < len(texts)


def _preview(base: Base, request: Upsert, given: Given) -> Record:
    """The record as it will probably be written: what `--merge` leaves alone is taken from the rows as they are now."""
    stored = base.tree.get(request.kind, given.identity) if request.merge else None
    fields = {**stored.record.fields, **given.fields} if stored else given.fields
    return Record(request.kind.name, 0, given.identity, fields, "", "")


def _writer(base: Base) -> render.Writer:
    """Which part this clone and branch write to."""
    if base.settings.part == "fixed":
        return render.Writer()
    root = base.whole.root
    clone = base.wiring.env.writer or state.clone_id(root)
    proposal = base.wiring.proposal
    return render.Writer(layout.base_number(clone, proposal.branch if proposal else repository.branch(root)))


def _check(base: Base, request: Request, drafted: Draft, options: WriteOptions) -> None:
    """Records given whole were held against the schema before the lock; what was merged with stored fields was not."""
    merged = not isinstance(request, Upsert) or request.merge
    guard.check(base, drafted.changeset, allow_shrink=options.allow_shrink, check_schema=merged)


def _receipt(
    base: Base,
    drafted: Draft,
    parts: Sequence[RenderedPart],
    notices: tuple[Notice, ...],
    chosen: ChosenFields | None = None,
    patch: str | None = None,
) -> Receipt:
    changeset = drafted.changeset
    rows = {(part.kind.name, row.record.identity): row for part in parts for row in part.come}
    told = [rows.get((kind.name, identity)) or base.tree.get(kind, identity) for kind, identity in drafted.asked]
    return Receipt(
        inserted=changeset.count("insert"),
        updated=changeset.count("update") + len(drafted.replaced),
        unchanged=drafted.unchanged,
        deleted=changeset.count("delete"),
        files=(*(part.path for part in parts), *((chosen.change.path,) if chosen and parts else ())),
        identities=tuple(identity for _, identity in drafted.asked),
        ids=tuple(row.record.id for row in told if row),
        etags=tuple(etag(row.line) for row in told if row),
        pending=_pending(base, (change.new for change in changeset.changes if change.new), chosen),
        notices=notices,
        dry_run=patch is not None,
        patch=patch or "",
    )


def _pending(base: Base, records: Iterable[Record], chosen: ChosenFields | None) -> int:
    """Chunks of these records that have no vector yet; 0 for who sees a part of the base, as a text has one where it stands in
    another part too."""
    if base.is_narrowed:
        return 0
    by_type: dict[str, list[Record]] = {}
    for record in records:
        by_type.setdefault(record.type, []).append(record)
    count = 0
    for name, some in by_type.items():
        kind = chosen.kind if chosen is not None else base.ontology.find(name)
        if kind is not None and kind.vectors:
            count += sum(len(base.builder.unembedded(kind, slab)) for slab in batches(some, _SLAB))
    return count


def field_notices(base: Base, request: Request, drafted: Draft) -> tuple[Notice, ...]:
    """What the caller must know of the fields that were given, though nothing of it keeps a record from being stored: nulls,
    names that nearly are those of other fields, and values of another type than so far."""
    if isinstance(request, Upsert):
        told = (*_nulls(request), *_misspelt(base, request), *_strange(base, drafted))
        return told if request.merge else (*told, *_replaced(drafted), *_dropped(base, request, drafted))
    return tuple(_strange(base, drafted))


def _replaced(drafted: Draft) -> Iterator[Notice]:
    """One identity in several lines, of which the last counts."""
    shown = [
        f"{identity_text(later.identity)} ({later.place or 'a later one'} replaces {earlier.place or 'an earlier one'})"
        for earlier, later in drafted.replaced[:_SHOWN_REPLACED]
    ]
    if shown:
        more = len(drafted.replaced) - len(shown)
        said = f"{drafted.asked[0][0].name} {', '.join(shown)}{f' and {more} more' if more else ''}"
        yield Notice("W_REPLACED", said, "leave out the lines that are not meant, or join them with `put --merge`")


def _dropped(base: Base, request: Upsert, drafted: Draft) -> Iterator[Notice]:
    """Fields that stored records lose, as they are replaced by ones without; not those that were given as null."""
    nulls = {one.identity: [name for name, value in one.fields.items() if value is None] for one in request.given}
    lost: list[tuple[Record, dict[str, Any]]] = []
    for old, new in ((change.old, change.new) for change in drafted.changeset.changes):
        if old is not None and new is not None:
            kept = {*new.fields, *nulls.get(new.identity, ())}
            lost += (
                [(old, gone)] if (gone := {name: old.fields[name] for name in old.fields if name not in kept}) else []
            )
    if not lost:
        return
    names, (old, gone) = dict.fromkeys(name for _, fields in lost for name in fields), lost[0]
    where = identity_text(old.identity) if len(lost) == 1 else _counted(len(lost))
    said = f"{old.type} {where}: {_listed([*names])} dropped, as the record was replaced whole"
    lacking = dict(zip(request.kind.identity_fields, map(component_value, old.identity), strict=True)) | gone
    proposal = base.wiring.proposal
    put = f"propose --branch {shell_word(proposal.branch)} put" if proposal else "put"
    command = f"duckkb {put} {old.type} {shell_word(json.dumps(lacking, ensure_ascii=False))} --merge"
    remedy = (
        f"`{command}` brings {'it' if len(gone) == 1 else 'them'} back; "
        if len(lost) == 1 and len(command) <= _LONGEST
        else ""
    )
    yield Notice("W_DROPPED", said, f"{remedy}with --merge only the fields given change")


def _nulls(request: Upsert) -> Iterator[Notice]:
    """A field that is null is a field that is absent. Whoever merges says by null that a field is to go."""
    if request.merge:
        return
    names: dict[str, None] = {}
    records = 0
    for given in request.given:
        if None in given.fields.values():
            records += 1
            names |= dict.fromkeys(name for name, value in given.fields.items() if value is None)
    if records:
        where = identity_text(request.given[0].identity) if len(request.given) == 1 else _counted(records)
        said = f"{request.kind.name} {where}: {_listed(list(names))} given as null, which is not stored: absent is null"
        yield Notice("W_NULL", said, 'leave such fields out, or give "" where an empty text is meant')


def _misspelt(base: Base, request: Upsert) -> Iterator[Notice]:
    """Fields that are new to the type, next to one that it has and the record lacks."""
    kind = request.kind
    declared = {*kind.properties, *kind.identity_fields}
    found: dict[str, str] = {}
    known: set[str] | None = None
    seen: set[frozenset[str]] = set()
    for given in request.given:
        if given.fields.keys() <= declared or (shape := frozenset(given.fields)) in seen:
            continue  # what records with these names lack has been found
        seen.add(shape)
        if known is None:
            known = declared | _stored(base, kind)
        for name in given.fields:
            if name not in known | found.keys() and (near := _near(name, known - given.fields.keys())):
                found[name] = near
    if not found:
        return
    records = [given.identity for given in request.given if not found.keys().isdisjoint(given.fields)]
    where = identity_text(records[0]) if len(records) == 1 else _counted(len(records))
    names = _listed(list(found))
    nears = _listed(list(dict.fromkeys(found.values()))).rpartition(" ")[0]
    said = f"{kind.name} {where}: {names} stored, but so far there is no such field; did you mean {nears}?"
    shown = f"duckkb col show {kind.name}" if kind.is_collection else f"duckkb schema {kind.name}"
    record = "it" if len(records) == 1 else "them"
    yield Notice("W_FIELD", said, f"put {record} again with {nears}, if that is meant; `{shown}` names the fields")


def _stored(base: Base, kind: RecordType) -> set[str]:
    """The fields that records of a type without a schema have."""
    return set(base.observed(kind).types()) if kind.is_collection else set()


def _near(name: str, known: set[str]) -> str:
    """The field that this name is a slip of; `name2` is none of `name1`."""
    folded = {
        re.sub(r"\d+", "0", other.casefold()): other for other in sorted(known) if abs(len(other) - len(name)) < 2
    }
    near = get_close_matches(own := re.sub(r"\d+", "0", name.casefold()), folded, 1, _NEAR)
    return folded[near[0]] if near and (near[0] != own or folded[near[0]].casefold() == name.casefold()) else ""


def _strange(base: Base, drafted: Draft) -> Iterator[Notice]:
    """Values of another type than their field has had, in collections, where no schema forbids them."""
    new: list[Record] = [change.new for change in drafted.changeset.changes if change.new is not None]
    for name in dict.fromkeys(record.type for record in new):
        kind = base.ontology.nodes.get(name)
        if kind is None or not kind.is_collection:
            continue
        found = base.observed(kind).strange(record for record in new if record.type == name)
        for (field, word), (before, record) in found.items():
            said = (
                f"{name} {identity_text(record.identity)}: {field} is {word}, so far it was {before}; stored as it is"
            )
            yield Notice("W_TYPE", said, f"filters compare {field} only with values of one type")


def _counted(records: int) -> str:
    return "1 record" if records == 1 else f"{records:,} records"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more + (" were" if len(names) > 1 else " was")
