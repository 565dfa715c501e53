"""State that mirrors the rows of one type: files at a revision plus the changes since, or the same in memory.

There is one rule, `RowMirror._bring`: what is there follows the rows that changed after its revision; where these are not
known, or too many, or what lies there is of another store or damaged, it is built anew.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

from duckkb.lanes.files import LaneFiles, LaneMeta, State
from duckkb.ports import Ahead, Rows, RowVersion
from duckkb.queries import Lane
from duckkb.records import identity_key


class RowMirror(ABC):
    """`rows` is read, never changed; its `version` says what has changed, and where files may lie. Nothing is computed before
    `_refresh`, which every question begins with.

    For threads that ask side by side: one of them, in its `turn`, brings the state there, and each takes then what it asks,
    which nobody changes any more: what follows is put in its place.
    """

    name: ClassVar[str]
    lane: ClassVar[Lane | None]

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._stale: set[int] = set()
        self._meta: LaneMeta | None = None
        self._has_no_files = False
        self.turn = RLock()

    @property
    @abstractmethod
    def _material(self) -> str:
        """Names what shapes the state beside the rows: formats, libraries, settings."""

    @abstractmethod
    def _build(self, folder: Path | None) -> State:
        """Make the state anew, into an empty folder where one is given."""

    @abstractmethod
    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        """Bring what is open after these records; None where building anew is better."""

    @abstractmethod
    def _open(self, folder: Path, state: State) -> None:
        """Open what `_build` or `_follow` left in a folder; raises OSError or ValueError where it is damaged."""

    def _suits(self) -> bool:
        """Whether what is open has what the next question looks at."""
        return True

    @property
    def rows(self) -> Rows:
        """What it is made of."""
        return self._rows

    def _identity(self, record_id: int) -> Any:
        """What records of one score are ordered by."""
        return identity_key(self._rows.identity(record_id))

    def reread(self, ids: Iterable[int]) -> None:
        """Say that these records, which are as they were, are to be read again."""
        with self.turn:
            if self._meta is not None:
                self._stale.update(ids)

    def forget(self) -> None:
        """Forget what is built or open."""
        with self.turn:
            self._meta = None

    def drop(self) -> None:
        """Forget what is built or open, and remove what lies on disk: it is damaged. This process does without."""
        with self.turn:
            files = self._find_files(self._rows.version)
            self.forget()
            self._has_no_files = True
        if files is not None:
            files.discard()

    def glance(self) -> bool:
        """Open what lies on disk, if it is as it should be and nothing has to be made; whether it is open."""
        with self.turn, suppress(OSError, ValueError, Ahead):
            version = self._rows.version
            files = self._find_files(version)
            return files is not None and (self._is_at(version) or self._opened(files, version))
        return False

    def _refresh(self) -> None:
        """Have the state mirror the rows as they are now; raises `Ahead`."""
        with self.turn:
            self._mirror()

    def _mirror(self) -> None:
        version = self._rows.version
        if self._is_at(version):
            return
        files = self._find_files(version)
        if files is not None:
            try:
                if self._meta is not None or not self._opened(files, version):
                    self._bring(version, files)
                return
            except (OSError, ValueError):  # a disk that is full or cannot be written: this process does without
                self._meta, self._has_no_files = None, True
        self._bring(version, None)

    def _bring(self, version: RowVersion, files: LaneFiles | None) -> None:
        """The one rule: open what another process brought there meanwhile, else follow, else build."""
        with files.locked(alone=True) if files else nullcontext():
            meta = files.read() if files else self._meta
            if files and self._open_if_current(files, meta, version):
                return
            state = self._follow_changes(version, files, meta)
            if state is not None and meta is not None:
                self._meta = self._seal_meta(version, files, meta.generation, state, meta)
            else:
                self._meta = None
                with files.begun() if files else nullcontext("") as generation:
                    state = self._build(files.place(generation) if files else None)
                    self._meta = self._seal_meta(version, files, generation, state, meta)
        self._stale.clear()

    def _follow_changes(self, version: RowVersion, files: LaneFiles | None, meta: LaneMeta | None) -> State | None:
        """What came of following the changes since a revision; None where all has to be made anew."""
        if meta is None or meta.store != version.store or bool(meta.generation) != (files is not None):
            return None
        changed_ids = version.changed(meta.revision)
        if changed_ids is None or not (self._is_open(files, meta) and self._suits()):
            return None
        self._meta = None  # what has followed in part is nothing
        with suppress(OSError, ValueError):  # damaged in a way that opening it did not show
            return self._follow(files.place(meta.generation) if files else None, changed_ids | self._stale)
        return None

    @staticmethod
    def _seal_meta(
        version: RowVersion, files: LaneFiles | None, generation: str, state: State, before: LaneMeta | None
    ) -> LaneMeta:
        if files is None:
            return LaneMeta(version.store, version.revision, "", state, {})
        return files.seal(version.revision, generation, state, before)

    def _is_at(self, version: RowVersion) -> bool:
        """Whether what is open needs nothing."""
        meta = self._meta
        is_open = meta is not None and (meta.store, meta.revision) == (version.store, version.revision)
        return is_open and not self._stale and self._suits()

    def _opened(self, files: LaneFiles, version: RowVersion) -> bool:
        with files.locked(alone=False):
            return self._open_if_current(files, files.read(), version)

    def _open_if_current(self, files: LaneFiles, meta: LaneMeta | None, version: RowVersion) -> bool:
        """Whether what lies there needs nothing but to be opened, which is done then."""
        if meta is None:
            return False
        if meta.revision > version.revision:
            raise Ahead("Another process changed the base meanwhile.", code="E_STALE", suggestion="repeat the command")
        return meta.revision == version.revision and not self._stale and self._is_open(files, meta) and self._suits()

    def _is_open(self, files: LaneFiles | None, meta: LaneMeta) -> bool:
        if files and meta != self._meta:
            self._meta = None
            try:
                self._open(files.place(meta.generation), meta.state)
            except (OSError, ValueError, KeyError, TypeError):
                return False
            self._meta = meta
        return self._meta is not None

    def _find_files(self, version: RowVersion) -> LaneFiles | None:
        """Where it lies on disk; None where it is kept in memory."""
        if version.folder is None or self._has_no_files:
            return None
        return LaneFiles(version.folder / self.name, version.store, f"{version.key(self.lane)} {self._material}")
