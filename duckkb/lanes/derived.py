"""State that is made of the rows of one type: built, then kept up by what changed; in memory, or on disk.

On disk it is opened instead of built, by whichever process asks first, and brought up to date by whoever finds it behind.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from duckkb.lanes.component import Component, Meta, State
from duckkb.ports import Ahead, Rows, Version
from duckkb.queries import Lane


class Derived(ABC):
    """`rows` is read, never changed; `touch` says which of them have changed. Nothing is computed before `_refresh`, which
    every question begins with. With a `version` the state lies in that version's folder."""

    name: ClassVar[str]
    lane: ClassVar[Lane | None]

    def __init__(self, rows: Rows, version: Version | None = None) -> None:
        self._rows = rows
        self._version = version
        self._stale: set[int] = set()
        self._built = False
        self._meta: Meta | None = None

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

    @property
    def is_open(self) -> bool:
        """Whether there is something that may need no more than to be brought up to date."""
        return self._built

    def touch(self, ids: Iterable[int], version: Version | None = None) -> None:
        """Say that these records were added, replaced or dropped, and what the state has to mirror now."""
        if self._version is not None:
            self._version = version
            if version is None:  # from now on in memory
                self._built, self._meta = False, None
        if self._built:
            self._stale.update(ids)

    def refill(self, ids: Iterable[int]) -> None:
        """Say that these records, which are as they were, are to be read again."""
        if self._built:
            self._stale.update(ids)

    def forget(self) -> None:
        """Forget what is built or open."""
        self._built, self._meta = False, None

    def drop(self) -> None:
        """Forget what is built or open, and remove what lies on disk: it is damaged. This process does without."""
        self.forget()
        version, self._version = self._version, None
        if version is not None:
            self.component(version).discard()

    def mirror(self, meta: Meta) -> None:
        """Take what was made and sealed for what is open."""
        self._built, self._meta = True, meta
        self._stale.clear()

    def prepare(self) -> None:
        """Have the state mirror the rows as they are now, before somebody asks; raises `Ahead`."""
        self._refresh()

    def _refresh(self) -> None:
        """Have the state mirror the rows as they are now; raises `Ahead`."""
        if self._version is not None:
            try:
                self._refresh_kept(self._version)
            except (OSError, ValueError):  # a disk that is full or cannot be written: this process does without
                self._version, self._built, self._meta = None, False, None
        if self._version is None and not (self._built and self._suits() and not self._stale):
            self._refresh_here()
        self._stale.clear()

    def _refresh_here(self) -> None:
        was_built, self._built = self._built, False
        if not (was_built and self._suits()) or self._follow(None, frozenset(self._stale)) is None:
            self._build(None)
        self._built = True

    def glance(self) -> bool:
        """Open what lies on disk, if it is as it should be and nothing has to be made; whether it is open."""
        if self._version is None:
            return False
        with suppress(OSError, ValueError, Ahead):
            return self._is_at(self._version) or self._opened(self._version)
        return False

    def _refresh_kept(self, version: Version) -> None:
        if self._is_at(version) or (self._meta is None and self._opened(version)):
            return
        component = self.component(version)
        with component.held(alone=True):
            meta = component.read()
            if not self._is_current(component, meta, version):
                self._bring(component, meta, version)

    def _is_at(self, version: Version) -> bool:
        """Whether what is open needs nothing."""
        is_open = self._built and self._meta is not None and self._meta.revision == version.revision
        return is_open and not self._stale and self._suits()

    def _opened(self, version: Version) -> bool:
        component = self.component(version)
        with component.held(alone=False):
            return self._is_current(component, component.read(), version)

    def _is_current(self, component: Component, meta: Meta | None, version: Version) -> bool:
        """Whether what lies there needs nothing but to be opened, which is done then."""
        if meta is None:
            return False
        if meta.revision > version.revision:
            raise Ahead("Another process changed the base meanwhile.", code="E_STALE", suggestion="repeat the command")
        return (
            meta.revision == version.revision and not self._stale and self._is_open(component, meta) and self._suits()
        )

    def _is_open(self, component: Component, meta: Meta) -> bool:
        if meta != self._meta:
            self._built, self._meta = False, None
            try:
                self._open(component.place(meta.generation), meta.state)
            except (OSError, ValueError, KeyError, TypeError):
                return False
            self._built, self._meta = True, meta
        return True

    def _bring(self, component: Component, meta: Meta | None, version: Version) -> None:
        """Change what lies there, or build it; the lock is held alone."""
        state, generation = None, ""
        changed = version.changed(meta.revision) if meta is not None else None
        if meta is not None and changed is not None and self._is_open(component, meta) and self._suits():
            generation = meta.generation
            self._built, self._meta = False, None
            with suppress(OSError, ValueError):  # damaged in a way that opening it did not show
                state = self._follow(component.place(generation), changed | self._stale)
        if state is None:
            self._built, self._meta = False, None
            with component.begun() as generation:
                state = self._build(component.place(generation))
                self._meta = component.seal(version.revision, generation, state, meta)
        else:
            self._meta = component.seal(version.revision, generation, state, meta)
        self._built = True

    def component(self, version: Version) -> Component:
        """Where it lies on disk."""
        return Component(version.folder / self.name, version.store, f"{version.key(self.lane)} {self._material}")
