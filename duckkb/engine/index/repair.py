"""Repair: derived state that is damaged is dropped and made again. Truth, the team's cache and a sealed write are not ours."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import boot, refuse_tracked_state
from duckkb.engine.vectors import count_lacking
from duckkb.errors import DuckkbError, StateError
from duckkb.indexing import sample
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.cache_files import KINDS, TEMPORARY, local_files
from duckkb.indexing.salvage import Salvage, carry_over, damaged, remove
from duckkb.queries import Notice
from duckkb.store import check
from duckkb.store import place as places
from duckkb.store.place import Place
from duckkb.truth import state
from duckkb.truth.commit import journal, lock, protocol
from duckkb.values import dataclass

_ASKED = "dropped, as was asked for"
_SNAPSHOT = "snapshot"
_OLD = "left by an earlier version, and read by none"
UNSEALED = "an interrupted write that was never sealed"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing to repair: its path, relative to the base where it lies in it, and what is wrong with it."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Options:
    """`everything` drops the whole local cache, sound or not; `timeout` is in seconds."""

    everything: bool = False
    check_only: bool = False
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was wrong, and what was done: rows of damaged segments that were kept, token rows made anew, chunks whose
    vector is pending afterwards, and why nothing was made anew where that is so."""

    needs: tuple[Need, ...]
    kept: int = 0
    tokens: int = 0
    pending: int = 0
    reason: str = ""
    notices: tuple[Notice, ...] = ()


def repair(place: Place, state_home: Path, options: Options, wire: Callable[[], Wiring]) -> Repaired:
    """Drop what is damaged of the derived state, keep of it what is good, and make the tokens again. Where nothing is
    damaged, nothing is touched. Missing vectors are left to searches and `index build`.

    Raises `errors.Unavailable` (E_LOCKED) while another process writes, `errors.StateError` (E_RECOVER, E_TRACKED_STATE).
    """
    root = Path(place.root)
    refuse_tracked_state(root)
    with lock.glancing(root, options.timeout):
        _refuse_sealed(root)
        found = _Found.look(place, state_home, options.everything)
        notices = _team_notices(root, state_home)
    if options.check_only or not found.needs:
        return Repaired(found.needs, notices=notices)
    needs, kept = found.needs, 0
    with lock.exclusive(root, options.timeout):
        _refuse_sealed(root)
        try:
            # Another process may have mended some of it since, or spoilt more.
            found = _Found.look(place, state_home, options.everything)
            kept = _carry_out(place, state_home, found)
        except OSError as error:
            raise state.refusal("Not all could be repaired; repeat it", error) from error
    if not found.segments:
        return Repaired(needs, notices=notices)
    try:
        tokens, pending = _rebuild(boot(wire()))
    except DuckkbError as problem:
        return Repaired(needs, kept, reason=problem.message, notices=notices)
    return Repaired(needs, kept, tokens, pending, notices=notices)


def state_needs(place: Place) -> list[Need]:
    """What is left over or out of place in `.duckkb/` and in the store, but for rows of the cache. Looks only."""
    return list(_state_needs(place))


@dataclass(frozen=True)
class _Found:
    """What a look found: in the state folder, and in the local cache."""

    state: list[Need]
    segments: list[Salvage]

    @classmethod
    def look(cls, place: Place, state_home: Path, everything: bool) -> "_Found":
        root, needs = Path(place.root), [*_state_needs(place)]
        if sample.is_memory_damaged(state_home):
            needs.append(Need(str(sample.memory_path(state_home)), "what this machine remembers of caches is damaged"))
        if everything and place.own.is_dir():
            needs.append(Need(str(place.own), _ASKED))
        if not state.is_folder(state.folder_of(root)) or not state.is_folder(state.cache_path(root)):
            return cls(needs, [])
        if everything:
            return cls(needs, [Salvage(file, _ASKED) for file in local_files(root)])
        return cls(needs, list(damaged(root, sample.Trust(state_home))))

    @property
    def needs(self) -> tuple[Need, ...]:
        rows = [Need(found.file.path, found.reason) for found in self.segments]
        return tuple(sorted([*self.state, *rows], key=lambda need: need.path))


def _state_needs(place: Place) -> Iterator[Need]:
    if (damage := check.problem(place)) is not None:
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
    for path in _temporaries(root):
        yield Need(path.relative_to(root).as_posix(), "half written by a process that was interrupted")
    cache = state.cache_path(root)
    if cache.is_symlink() or (cache.exists() and not cache.is_dir()):
        yield Need(f"{state.FOLDER}/cache", "not a folder of its own")
    if os.path.lexists(folder / _SNAPSHOT):
        yield Need(f"{state.FOLDER}/{_SNAPSHOT}", _OLD)


def _temporaries(root: Path) -> list[Path]:
    """Files that are written beside their place and renamed. Under the exclusive lock, or by rows that are made again
    when they are missed, nobody needs one that is found."""
    places = [(state.folder_of(root), state.TEMPORARY), (state.cache_path(root), TEMPORARY)]
    found = [path for folder, form in places if state.is_folder(folder) for path in folder.glob(form)]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _refuse_sealed(root: Path) -> None:
    if journal.sealed_stages(root):
        raise StateError(
            "a sealed write is not finished; repair never touches it", code="E_RECOVER", suggestion="duckkb recover"
        )


def _carry_out(place: Place, state_home: Path, found: _Found) -> int:
    """Each step can be stopped and begun again; returns the number of rows kept."""
    root = Path(place.root)
    protocol.recover(root)  # nothing is sealed, so this discards
    for path in _temporaries(root):
        path.unlink(missing_ok=True)
    for path in (state.cache_path(root), state.folder_of(root) / _SNAPSHOT):
        if path.is_symlink() or path.is_file():
            path.unlink()
    if state.is_folder(state.folder_of(root) / _SNAPSHOT):
        places.remove(state.folder_of(root) / _SNAPSHOT)
    if any(need.path == str(place.own) for need in found.state):
        places.remove(place.own)
    if sample.is_memory_damaged(state_home):
        sample.memory_path(state_home).unlink(missing_ok=True)
    trust = sample.Trust(state_home)
    for segment in found.segments:
        if segment.rows:
            carry_over(segment, trust)
        else:
            remove(segment.file, trust)
    return sum(len(segment.rows) for segment in found.segments)


def _rebuild(base: Base) -> tuple[int, int]:
    """Make the tokens that are missing now; (token rows made, chunks without a vector)."""
    with contextlib.closing(base):
        kinds = [kind for kind in base.ontology if kind.full_text or kind.vectors]
        made = 0
        for kind in kinds:
            records = list(base.rows(kind).records())
            tokens, _ = base.builder.wanted(kind, records)
            made += sum(found is None for found in base.cache.tokens(list(tokens)))
            base.builder.build(kind, records, "fts")
        return made, count_lacking(base, kinds)


def _team_notices(root: Path, state_home: Path) -> tuple[Notice, ...]:
    """The team's cache is truth's folder: what is wrong with it is said, with the command that may write there."""
    cache = SearchCache.open(root, local=False, state_home=state_home)
    for kind in KINDS:
        cache.loaded(kind)
    return tuple(
        Notice(finding.code, f"{finding.place}: {finding.message}", finding.remedy) for finding in cache.findings
    )
