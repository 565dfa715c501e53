"""State that mirrors the rows of a type: in files, or in memory.

`RowMirror._bring` is the only rule: the state follows the rows that differ, whether they are older or newer. It
is rebuilt if they are too many, or if the state has another format or is damaged.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

from duckkb.lanes.files import LaneFiles, LaneMeta, State
from duckkb.lanes.inventory import Inventory
from duckkb.ports import Rows, TypeState
from duckkb.queries import Lane
from duckkb.records import identity_key


class RowMirror(ABC):
    """A state that mirrors `rows`, which it reads and never changes; their `state` says what is mirrored, and
    where files may lie. `_refresh`, with which every query begins, computes it on demand.

    Threads may query concurrently: one of them, in its `turn`, updates the state, and each then takes an
    immutable snapshot. An update replaces the snapshot.
    """

    name: ClassVar[str]
    lane: ClassVar[Lane | None]

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._stale: set[int] = set()
        self._meta: LaneMeta | None = None
        self._contents: Inventory | None = None  # the content list of a state in memory; for files it is on disk
        self._has_no_files = False
        self.turn = RLock()

    @property
    @abstractmethod
    def _material(self) -> str:
        """Return what shapes the state besides the rows: formats, libraries, settings."""

    @abstractmethod
    def _build(self, folder: Path | None) -> State:
        """Build the state anew, into an empty folder if given."""

    @abstractmethod
    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        """Apply the changed records to the open state; return None if rebuilding is better."""

    @abstractmethod
    def _open(self, folder: Path, state: State) -> None:
        """Open the files that `_build` or `_follow` left in a folder; raises OSError or ValueError if they are
        damaged.
        """

    def _suits(self) -> bool:
        """Return whether the open state has what the next query needs."""
        return True

    @property
    def rows(self) -> Rows:
        """Return the mirrored rows."""
        return self._rows

    def _identity(self, record_id: int) -> Any:
        """Return the key that orders records with the same score."""
        return identity_key(self._rows.identity(record_id))

    def reread(self, ids: Iterable[int]) -> None:
        """Mark unchanged records to be read again."""
        with self.turn:
            if self._meta is not None:
                self._stale.update(ids)

    def forget(self) -> None:
        """Forget the open state."""
        with self.turn:
            self._meta = None

    def drop(self) -> None:
        """Forget the open state and remove its damaged files; this process works without them."""
        with self.turn:
            files = self._find_files(self._rows.state)
            self.forget()
            self._has_no_files = True
        if files is not None:
            files.discard()

    def glance(self) -> bool:
        """Open the files if they are current and nothing must be computed; return whether the state is open."""
        with self.turn, suppress(OSError, ValueError):
            rows_state = self._rows.state
            files = self._find_files(rows_state)
            return files is not None and (self._is_at(rows_state) or self._open_under_lock(files, rows_state))
        return False

    def _refresh(self) -> None:
        """Make the state mirror the present rows."""
        with self.turn:
            self._mirror()

    def _mirror(self) -> None:
        rows_state = self._rows.state
        if self._is_at(rows_state):
            return
        files = self._find_files(rows_state)
        if files is not None:
            try:
                if self._meta is not None or not self._open_under_lock(files, rows_state):
                    self._bring(rows_state, files)
                return
            except (OSError, ValueError):  # the disk is full or read-only: work in memory
                self._meta, self._has_no_files = None, True
        self._bring(rows_state, None)

    def _bring(self, rows_state: TypeState, files: LaneFiles | None) -> None:
        """Bring the state to `rows_state`: open files that another process wrote meanwhile, else apply changes,
        else rebuild.
        """
        with files.hold_lock(alone=True) if files else nullcontext():
            meta = files.read() if files else self._meta
            if files and self._open_if_current(files, meta, rows_state):
                return
            before = self._contents if files is None else files.read_contents(meta) if meta else None
            contents = Inventory.from_state(rows_state, before)
            state = self._follow_changes(contents, before, files, meta)
            self._meta = None
            if state is not None and meta is not None:
                self._seal(LaneMeta(rows_state.digest, meta.generation, state), contents, files, meta)
            else:
                with files.create_generation() if files else nullcontext("") as generation:
                    state = self._build(files.place(generation) if files else None)
                    self._seal(LaneMeta(rows_state.digest, generation, state), contents, files, meta)
        self._stale.clear()

    def _follow_changes(
        self, contents: Inventory, before: Inventory | None, files: LaneFiles | None, meta: LaneMeta | None
    ) -> State | None:
        """Apply the rows that differ and return the new state; None if it must be rebuilt."""
        if meta is None or before is None or bool(meta.generation) != (files is not None):
            return None
        if not (self._is_open(files, meta) and self._suits()):
            return None
        self._meta = None  # a partly applied change is invalid
        with suppress(OSError, ValueError):  # damage that opening did not reveal raises here
            changed_ids = contents.difference(before) | self._stale
            return self._follow(files.place(meta.generation) if files else None, changed_ids)
        return None

    def _seal(self, meta: LaneMeta, contents: Inventory, files: LaneFiles | None, before: LaneMeta | None) -> None:
        """Record what is mirrored now, in the files if there are any."""
        self._meta, self._contents = (files.seal(meta, contents, before), None) if files else (meta, contents)

    def _is_at(self, rows_state: TypeState) -> bool:
        """Return whether the open state is current."""
        return self._is_current(self._meta, rows_state) and self._suits()

    def _is_current(self, meta: LaneMeta | None, rows_state: TypeState) -> bool:
        return meta is not None and meta.digest == rows_state.digest and not self._stale

    def _open_under_lock(self, files: LaneFiles, rows_state: TypeState) -> bool:
        with files.hold_lock(alone=False):
            return self._open_if_current(files, files.read(), rows_state)

    def _open_if_current(self, files: LaneFiles, meta: LaneMeta | None, rows_state: TypeState) -> bool:
        """Open the files if they are current; return whether that was done."""
        if meta is None or not self._is_current(meta, rows_state):
            return False
        return self._is_open(files, meta) and self._suits()

    def _is_open(self, files: LaneFiles | None, meta: LaneMeta) -> bool:
        if files and meta != self._meta:
            self._meta = None
            try:
                self._open(files.place(meta.generation), meta.state)
            except (OSError, ValueError, KeyError, TypeError):
                return False
            self._meta = meta
        return self._meta is not None

    def _find_files(self, rows_state: TypeState) -> LaneFiles | None:
        """Return the files on disk; None if the state is kept in memory."""
        if rows_state.folder is None or self._has_no_files:
            return None
        return LaneFiles(rows_state.folder / self.name, f"{rows_state.key(self.lane)} {self._material}")
