"""Repair: drops damaged derived state and makes it again.

It never touches truth, the team's cache or a sealed write.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from duckkb import atomic_write
from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import boot, refuse_tracked_state
from duckkb.engine.index.notes import list_indexed_types, make_tokens
from duckkb.engine.vectors import count_missing_vectors
from duckkb.errors import DuckkbError, StateError
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.cache_store import CacheStore
from duckkb.queries import Notice
from duckkb.store import place as places
from duckkb.store.base_store import BaseStore
from duckkb.store.place import Place
from duckkb.truth import state
from duckkb.truth.commit import journal, lock, protocol

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
    with lock.hold_lock_shared(root, options.timeout):
        _refuse_sealed_write(root)
        needs = _collect_needs(place, options.everything)
        notices = _collect_team_notices(place)
    if options.check_only or not needs:
        return Repaired(needs, notices=notices)
    with lock.exclusive(root, options.timeout):
        _refuse_sealed_write(root)
        try:
            # Another process may have mended some of it since, or spoilt more.
            kept_rows = _apply_repairs(place, _collect_needs(place, options.everything))
        except OSError as error:
            raise state.refusal("Not all could be repaired; repeat it", error) from error
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
    folder = state.folder_of(root)
    if not state.is_folder(folder):
        return
    ignore = folder / ".gitignore"
    if not os.path.lexists(ignore) or (ignore.is_file() and not ignore.is_symlink() and not ignore.stat().st_size):
        yield Need(f"{state.FOLDER}/.gitignore", "missing or empty, so git would see local state")
    for stage in journal.stages(root):
        yield Need(f"{state.FOLDER}/txn/{stage.name}", UNSEALED)
    for path in _find_temporaries(root):
        yield Need(path.relative_to(root).as_posix(), "half written by a process that was interrupted")
    for name in _OLD_FOLDERS:
        if os.path.lexists(folder / name):
            yield Need(f"{state.FOLDER}/{name}", _OLD)


def _find_temporaries(root: Path) -> list[Path]:
    """Return the leftover temporary files, which are written beside their place and renamed.

    Nobody needs them: either the exclusive lock is held, or the rows they were for are made again when they are
    missed.
    """
    folder = state.folder_of(root)
    candidates = folder.glob(atomic_write.DRAFTS) if state.is_folder(folder) else ()
    return sorted(path for path in candidates if path.is_file() and not path.is_symlink())


def _refuse_sealed_write(root: Path) -> None:
    if journal.list_sealed_stages(root):
        raise StateError(
            "a sealed write is not finished; repair never touches it", code="E_RECOVER", suggestion="duckkb recover"
        )


def _apply_repairs(place: Place, needs: Sequence[Need]) -> int:
    """Carry out the repairs; return the number of cache rows that were kept.

    Each step can be stopped and repeated.
    """
    root, cache = Path(place.root), CacheStore(place.shared)
    protocol.recover(root)  # nothing is sealed, so this discards the journal
    for path in _find_temporaries(root):
        path.unlink(missing_ok=True)
    for path in (state.folder_of(root) / name for name in _OLD_FOLDERS):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            places.remove(path)
    if any(need.path == str(place.own) for need in needs):
        places.remove(place.own)
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
