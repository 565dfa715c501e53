"""Repair: drops damaged derived state and makes it again.

It never touches truth, the team's cache or a sealed write.

Cleanup of the user's cache folder: unneeded files go, and of tokens and vectors those unused for longest.

Nothing else is removed: neither the store of an existing base, nor files that are not duckkb's, whatever folder
the user has named.

fmt, dedupe and compact: writes that repair files and change no record."""

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

from msgspec import Struct

from duckkb import atomic_write
from duckkb.documents.extraction import surplus
from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import boot, refuse_tracked_state, refuse_unreadable
from duckkb.engine.index_status import list_indexed_types, make_tokens
from duckkb.engine.text_vectors import count_missing_vectors
from duckkb.engine.write import commit, patch_of, writable
from duckkb.index.cache_database import CacheStore
from duckkb.index.embedding_cache import SearchCache
from duckkb.llm import LOCAL_FOLDER
from duckkb.storage import base_lock, clone_state, commit_protocol, git_changes, git_process, journal, render
from duckkb.storage.render import RenderedPart
from duckkb.storage.tree import Tree
from duckkb.store import cache_dirs
from duckkb.store.cache_dirs import Place, Unusable
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import DuckkbError, Refused, StateError, Unavailable
from duckkb.types.queries import Notice, Receipt
from duckkb.types.records import Change, Changeset
from duckkb.types.settings import Environment

_ASKED = "dropped, as was asked for"
_OLD_FOLDERS = ("cache", "snapshot")
_OLD = "left by an earlier version, and read by none"
UNSEALED = "an interrupted write that was never sealed"


class Need(Struct, frozen=True):
    """A thing to repair: its path, relative to the base where it lies inside, and what is wrong with it."""

    path: str
    what: str


class RepairOptions(Struct, frozen=True):
    """The options of a repair: `everything` drops all derived state of this base, sound or not; `timeout` is in
    seconds.
    """

    everything: bool = False
    check_only: bool = False
    timeout: float = 0.0


class Repaired(Struct, frozen=True):
    """The result of a repair.

    It has what was wrong, the rows of a damaged cache that were kept, the token rows made anew, the chunks
    whose vector is pending, and the reason where nothing was made anew.
    """

    needs: tuple[Need, ...]
    kept: int = 0
    tokens: int = 0
    pending: int = 0
    reason: str = ""
    notices: tuple[Notice, ...] = ()


def repair(place: Place, options: RepairOptions, wire: Callable[[], Wiring]) -> Repaired:
    """Drop damaged derived state, keep its good rows, and make the tokens again. Sound state is not touched.

    Missing vectors are left to searches and `index build`.

    Raises `errors.Unavailable` (E_LOCKED) while another process writes, `errors.StateError` (E_RECOVER,
    E_TRACKED_STATE).
    """
    root = Path(place.root)
    refuse_tracked_state(root)
    with base_lock.hold_lock_shared(root, options.timeout):
        _refuse_sealed_write(root)
        needs = _collect_needs(place, options.everything)
        notices = _collect_team_notices(place)
    if options.check_only or not needs:
        return Repaired(needs, notices=notices)
    with base_lock.exclusive(root, options.timeout):
        _refuse_sealed_write(root)
        try:
            # Another process may have mended some of it since, or spoilt more.
            kept_rows = _apply_repairs(place, _collect_needs(place, options.everything))
        except OSError as error:
            raise clone_state.refusal("Not all could be repaired; repeat it", error) from error
    cache = str(CacheStore(place.shared).path)
    if not any(need.path == cache for need in needs):
        return Repaired(needs, notices=notices)
    try:
        tokens, pending = _rebuild(boot(wire()), options.everything)
    except DuckkbError as problem:
        return Repaired(needs, kept_rows, reason=problem.message, notices=notices)
    return Repaired(needs, kept_rows, tokens, pending, notices=notices)


def state_needs(place: Place) -> list[Need]:
    """Return what is left over or misplaced in `.duckkb/` and in the store, except rows of the cache.

    Changes nothing.
    """
    return list(_state_needs(place))


def _collect_needs(place: Place, everything: bool) -> tuple[Need, ...]:
    needs, cache = [*_state_needs(place)], CacheStore(place.shared)
    if everything and place.own.is_dir():
        needs.append(Need(str(place.own), _ASKED))
    if (problem := cache.problem()) is not None:
        needs.append(Need(str(cache.path), problem))
    elif everything and cache.is_there:
        needs.append(Need(str(cache.path), f"what it has of this base: {_ASKED}"))
    cache.close()
    return tuple(sorted(needs, key=lambda need: need.path))


def _state_needs(place: Place) -> Iterator[Need]:
    if (damage := BaseStore(place).problem()) is not None:
        yield Need(str(place.own), f"the store is damaged: {damage}")
    root = Path(place.root)
    folder = clone_state.folder_of(root)
    if not clone_state.is_folder(folder):
        return
    ignore = folder / ".gitignore"
    if not os.path.lexists(ignore) or (ignore.is_file() and not ignore.is_symlink() and not ignore.stat().st_size):
        yield Need(f"{clone_state.FOLDER}/.gitignore", "missing or empty, so git would see local state")
    for stage in journal.stages(root):
        yield Need(f"{clone_state.FOLDER}/txn/{stage.name}", UNSEALED)
    for path in _find_temporaries(root):
        yield Need(path.relative_to(root).as_posix(), "half written by a process that was interrupted")
    for name in _OLD_FOLDERS:
        if os.path.lexists(folder / name):
            yield Need(f"{clone_state.FOLDER}/{name}", _OLD)


def _find_temporaries(root: Path) -> list[Path]:
    """Return the leftover temporary files, which are written beside their place and renamed.

    Nobody needs them: either the exclusive lock is held, or the rows they were for are made again when they are
    missed.
    """
    folder = clone_state.folder_of(root)
    candidates = folder.glob(atomic_write.DRAFTS) if clone_state.is_folder(folder) else ()
    return sorted(path for path in candidates if path.is_file() and not path.is_symlink())


def _refuse_sealed_write(root: Path) -> None:
    if journal.list_sealed_stages(root):
        raise StateError(
            "a committed write is not finished; recover it first", code="E_RECOVER", suggestion="duckkb recover"
        )


def _apply_repairs(place: Place, needs: Sequence[Need]) -> int:
    """Carry out the repairs; return the number of cache rows that were kept.

    Each step can be stopped and repeated.
    """
    root, cache = Path(place.root), CacheStore(place.shared)
    commit_protocol.recover(root)  # nothing is sealed, so this discards the journal
    for path in _find_temporaries(root):
        path.unlink(missing_ok=True)
    for path in (clone_state.folder_of(root) / name for name in _OLD_FOLDERS):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            cache_dirs.remove(path)
    if any(need.path == str(place.own) for need in needs):
        cache_dirs.remove(place.own)
    kept_rows = cache.repair() if any(need.path == str(cache.path) for need in needs) else 0
    cache.close()
    return kept_rows


def _rebuild(base: Base, everything: bool) -> tuple[int, int]:
    """Make the missing tokens; return the token rows made and the chunks without a vector.

    With `everything`, no row of this base counts as present; other bases keep theirs.
    """
    with contextlib.closing(base):
        if everything:
            base.cache.store.forget(base.live_keys())
        token_count = sum(make_tokens(base, kind) for kind in list_indexed_types(base))
        return token_count, count_missing_vectors(base, list_indexed_types(base))


def _collect_team_notices(place: Place) -> tuple[Notice, ...]:
    """Return notices of faults in the team's cache, with the command that may write there.

    The team's cache lies in the folder of truth, so a repair does not write it.
    """
    cache = SearchCache.open(Path(place.root))
    cache.team_numbers()
    findings = cache.findings
    cache.close()
    return tuple(Notice(finding.code, f"{finding.place}: {finding.message}", finding.remedy) for finding in findings)


_MODEL = re.compile(r"[0-9a-f]{12}")
_LEAST = 1 << 20
"""Bytes to free that make rewriting a file worthwhile."""
_SHARE = 0.1
_TEXTS = 0.25
"""Share of the limit that the texts of files may take."""


class Removed(Struct, frozen=True):
    """A thing to remove, why, and its bytes on disk; for rows and unused pages of a file an estimate until it is
    done.
    """

    path: str
    what: str
    bytes: int


class StoreOf(Struct, frozen=True):
    """The store of one base: the base's path, bytes on disk, and whether the base is gone."""

    base: str | None
    bytes: int
    gone: bool


class Cleaned(Struct, frozen=True):
    """The result of a cleanup: what was removed, and what stays.

    `bytes` is the size of the folder `home` afterwards, or the present size where nothing is changed. `bases`
    are those whose stores stay, largest first. `reason` says why a part could not be done.
    """

    home: str
    limit: int
    bytes: int
    freed: int
    removed: tuple[Removed, ...]
    bases: tuple[StoreOf, ...]
    dry_run: bool
    reason: str = ""


def cleanup(
    env: Environment, *, dry_run: bool = False, now: bool = False, used: Collection[str] | None = None
) -> Cleaned:
    """Clean the user's cache folder, or with `dry_run` list what would be removed.

    With `now`, bases that have been gone for less than a week count too. Where `used` gives fingerprints of
    models, vectors of any other model are removed.
    Safe while other processes work: they keep the files that they have open. Raises `errors.Unavailable` (E_IO)
    where the folder of that name is not the user's own.
    """
    home = env.cache_home.expanduser()
    try:
        _refuse_foreign(home)
    except (Unusable, OSError) as problem:
        message, remedy = f"The cache folder cannot be cleaned: {problem}.", "remove that, or set DUCKKB_CACHE_HOME"
        raise Unavailable(message, code="E_IO", suggestion=remedy) from problem
    before, left_over = _measure_folders(home), [*_find_orphan_stores(home, now=now), *_find_unused_models(home)]
    if not dry_run:
        for removal in left_over:
            cache_dirs.remove(Path(removal.path))
    texts = surplus(home / cache_dirs.SHARED / cache_dirs.DOCUMENTS, int(_TEXTS * env.cache_limit))
    for path, _ in () if dry_run else texts:
        path.unlink(missing_ok=True)
    cache = CacheStore(home / cache_dirs.SHARED)
    most = cache_dirs.room(home, env.cache_limit, sum(entry.bytes for entry in left_over) if dry_run else 0)
    unused_models = (
        {}
        if used is None
        else {model: rows for model, rows in cache.count_rows_by_model().items() if model not in used}
    )
    in_cache = [
        *_report_unused_vectors(cache, unused_models),
        *_find_cache_surplus(cache, most, sum(sum(rows.values()) for rows in unused_models.values())),
    ]
    reason = "" if dry_run or not in_cache else _shrink_cache(cache, most, unused_models)
    cache.close()
    removals = (*left_over, *in_cache, *_report_texts(home, texts))
    after = before if dry_run else _measure_folders(home)
    freed_bytes = sum(entry.bytes for entry in removals) if dry_run else before - after
    removed_paths = {removal.path for removal in left_over}
    stores = [entry for entry in cache_dirs.iter_kept_folders(home) if str(entry.folder) not in removed_paths]
    bases = [StoreOf(entry.root, cache_dirs.size(entry.folder), not entry.is_alive) for entry in stores]
    bases.sort(key=lambda entry: (-entry.bytes, entry.base or ""))
    return Cleaned(str(home), env.cache_limit, after, max(0, freed_bytes), removals, tuple(bases), dry_run, reason)


def _refuse_foreign(home: Path) -> None:
    for folder in (home / cache_dirs.BASES, home / cache_dirs.SHARED):
        if os.path.lexists(folder):
            cache_dirs.refuse_foreign(folder)


def _measure_folders(home: Path) -> int:
    return sum(cache_dirs.size(home / name) for name in (cache_dirs.BASES, cache_dirs.SHARED, cache_dirs.MODELS))


def _find_orphan_stores(home: Path, *, now: bool) -> Iterator[Removed]:
    for store in cache_dirs.iter_kept_folders(home):
        if store.is_left_over(0) if now else store.is_left_over():
            reason = f"the base {store.root} was deleted or replaced" if store.root else "of deleted bases"
            yield Removed(str(store.folder), reason, cache_dirs.size(store.folder))


def _find_unused_models(home: Path) -> Iterator[Removed]:
    """Yield the models that this version does not use; another version can make them again from the installed
    weights.
    """
    folder = home / cache_dirs.MODELS
    if folder.is_symlink() or not folder.is_dir():  # a link means that the user stores them elsewhere
        return
    for model in sorted(folder.iterdir()):
        if _MODEL.fullmatch(model.name) and model.name != LOCAL_FOLDER and not model.is_symlink():
            yield Removed(str(model), "a model that this version does not use", cache_dirs.size(model))


def _report_texts(home: Path, texts: list[tuple[Path, int]]) -> Iterator[Removed]:
    if texts:
        reason = f"the texts of {len(texts)} files that were not used for longest"
        yield Removed(str(home / cache_dirs.SHARED / cache_dirs.DOCUMENTS), reason, sum(size for _, size in texts))


def _report_unused_vectors(cache: CacheStore, unused_models: Mapping[str, Mapping[int, int]]) -> Iterator[Removed]:
    for model, rows in sorted(unused_models.items()):
        reason = f"{len(rows):,} vectors of {model}, a model that no base known here uses"
        yield Removed(str(cache.path), reason, sum(rows.values()))


def _find_cache_surplus(cache: CacheStore, most: int, going: int) -> Iterator[Removed]:
    """Yield the tokens and vectors to remove so that the rest takes at most `most` bytes, counting `going` as
    gone.
    """
    rows, unused_bytes = cache.surplus(most + going), cache.unused
    if rows:
        yield Removed(str(cache.path), f"{len(rows)} rows that were not used for longest", sum(rows.values()))
    if unused_bytes >= max(_LEAST, int(_SHARE * cache.size)):
        yield Removed(str(cache.path), "empty pages", unused_bytes)


def _shrink_cache(cache: CacheStore, most: int, unused_models: Mapping[str, Collection[int]]) -> str:
    """Remove the surplus from the cache; return the reason where that is not possible."""
    try:
        cache.let_go([row for rows in unused_models.values() for row in rows])
        cache.let_go(cache.surplus(most))
        cache.database.shrink()
    except Unusable as problem:
        return f"{cache.path} is used by another process, or cannot be written ({problem}); repeat it"
    return ""


def fmt(base: Base, *, check: bool = False) -> Receipt:
    """Rewrite every part that is not canonical, sorted and complete; raises `errors.Unreadable` where one cannot
    be read.
    """
    if check:
        refuse_unreadable(base.tree)
        return Receipt(files=tuple(part.path for part in render.fmt_parts(base.tree)))
    return _mend_parts(base, lambda: render.fmt_parts(base.tree))


def dedupe(base: Base, *, reassign: bool = False, dry_run: bool = False) -> Receipt:
    """Merge the lines of each duplicated record into one, at the place of its first line.

    With `reassign`, the later of two records that share an id gets a free id.
    """

    def mend_parts() -> list[RenderedPart]:
        changes = _merge_duplicates(base.tree) + (_reassign_ids(base.tree) if reassign else [])
        return render.render(base.tree, Changeset(tuple(changes)), render.Writer())

    return _mend_parts(base, mend_parts, dry_run)


def compact(base: Base, older_than: int, dry_run: bool) -> Receipt:
    """Join the small parts of days at least `older_than` days back.

    Raises `errors.Refused` where an unmerged branch has changed one of them: its records would have to be
    searched for elsewhere.
    """

    def join_parts() -> list[RenderedPart]:
        today = date.fromisoformat(base.wiring.clock.now()[:10])
        days = timedelta(days=min(older_than, today.toordinal()) - 1)  # dates begin at the year 1
        parts = render.compact_parts(base.tree, (today - days).isoformat().replace("-", ""), render.Writer())
        if parts and git_process.find_repository(base.root) is not None:
            _refuse_branch_changes(git_changes.find_changes_on_branches(base.root, [part.path for part in parts]))
        return parts

    return _mend_parts(base, join_parts, dry_run)


def _mend_parts(base: Base, mend: Callable[[], list[RenderedPart]], dry_run: bool = False) -> Receipt:
    """Write the parts that `mend` renders, under the exclusive lock."""
    with writable(base):
        parts = mend()
        patch = patch_of(base, parts) if dry_run else ""
        if not dry_run:
            commit(base, parts)
    return Receipt(files=tuple(part.path for part in parts), dry_run=dry_run, patch=patch)


def _refuse_branch_changes(conflicts: Sequence[tuple[str, str]]) -> None:
    if conflicts:
        path, branch = conflicts[0]
        more = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise Refused(
            f"{branch.removeprefix('refs/').removeprefix('heads/')} has changed {path}{more}",
            suggestion="merge that branch first, or delete it",
        )


def _merge_duplicates(tree: Tree) -> list[Change]:
    """Return a change for each record that stands in several lines.

    Rendering such a record leaves one line: the merged record, as it was read.
    """
    rows = (tree.get(kind, identity) for kind in tree.ontology for identity in tree.duplicates(kind))
    return [Change(row.record, row.record) for row in rows if row is not None]


def _reassign_ids(tree: Tree) -> list[Change]:
    """Return a change for each record whose id another record has.

    In memory the later of the two has a free id already; writing the record keeps that id.
    """
    changes = []
    for kind in tree.ontology:
        duplicates = tree.duplicates(kind)
        for rows in tree.id_clashes(kind).values():
            later_rows = (
                tree.get(kind, row.record.identity) for row in rows[1:] if row.record.identity not in duplicates
            )
            changes += [Change(row.record, row.record) for row in later_rows if row is not None]
    return changes
