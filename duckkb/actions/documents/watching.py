"""The action watch: update document collections whenever their files change."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.actions.documents.collections import documents_of, source_of
from duckkb.actions.documents.updating import Updated, take_collections_in
from duckkb.documents.source import folder_exclusion, is_document
from duckkb.engine.base import Base
from duckkb.errors import DuckkbError, Refused, Unavailable
from duckkb.ontology.model import DocumentSource
from duckkb.queries import Notice
from duckkb.truth.commit import lock
from duckkb.truth.files.ignored import GITIGNORE

_LOOK_MS = 1_000
"""Milliseconds between checks for what no event reports: definitions, missing folders, failures."""
_QUIET_MS, _BURST_MS = 200, 2_000
"""In milliseconds: a burst of changes ends after the first without a change; a longer one is applied after the
second."""


class Watch(Struct):
    """A process that watches the named collections, or all."""

    turn: Callable[[], AbstractContextManager[Base]]
    names: Sequence[str]
    tell: Callable[[Updated], None]
    _root: Path = Path()
    _folders: dict[Path, DocumentSource] = {}
    _last: Updated | None = None
    _failed: bool = False

    def run(self) -> None:
        """Update the collections now and at each change, until the process is interrupted.

        A burst of changes is a single update, and an update without news is not reported. Commands of `update`
        do not run, since they change files. Only one process watches a base; another process reports that and
        waits for its end. Later failures of an update become notices, and it is tried again. Raises what the
        first `update` raises, and `errors.Refused` without the extra `documents`.
        """
        try:
            from watchfiles import watch
        except ImportError as error:
            message = "watching folders needs the extra `documents`"
            raise Refused(message, suggestion="pip install 'duckkb[documents]'") from error
        self._update()
        try:
            self._go_on(watch, 0)
        except Unavailable as problem:
            if problem.code != "E_LOCKED":
                raise
            self.tell(_describe_failure(problem))
            self._go_on(watch, math.inf)

    def _go_on(self, watch: Callable[..., Iterator[Any]], timeout: float) -> None:
        with lock.hold_watch(self._root, timeout):
            while True:
                self._follow(watch)

    def _follow(self, watch: Callable[..., Iterator[Any]]) -> None:
        """Update at each change, until the set of watched folders changes."""
        stamp, is_first = self._stamp_folders(), True  # finds changes from before the watch began
        folders = {folder.resolve(): source for folder, source in self._folders.items()}
        places = _list_places(folders)
        for changes in _iter_changes(watch, folders, places):
            if changes or is_first or self._failed or self._stamp_folders() != stamp:
                self._update()
            if self._stamp_folders() != stamp or (changes and _list_places(folders) != places):
                return
            is_first = False

    def _stamp_folders(self) -> tuple[Any, ...]:
        """Return a stamp of what no event reports: definitions, and the folders themselves."""
        return config.stamp(self._root), *((folder, _read_identity(folder)) for folder in self._folders)

    def _update(self) -> None:
        try:
            with self.turn() as base:
                kinds = documents_of(base, self.names)
                self._root, self._folders = (
                    base.root,
                    {base.root / source_of(kind).path: source_of(kind) for kind in kinds},
                )
                result = take_collections_in(base, kinds, [])
        except DuckkbError as problem:
            if self._last is None:
                raise
            self._failed, result = True, _describe_failure(problem)
        else:
            self._failed = False
        self._report_news(result)

    def _report_news(self, result: Updated) -> None:
        """Report a result that has news."""
        is_first, before = self._last is None, self._last.notices if self._last else ()
        unread = (
            Notice(finding.code, f"{finding.place}: {finding.message}", finding.remedy) for finding in result.refused
        )
        lines = [line for line in result.collections if is_first or line["added"] or line["changed"] or line["removed"]]
        self._last = result = replace(result, collections=tuple(lines), notices=(*result.notices, *unread))
        if is_first or lines or result.embedded or result.notices != before:
            self.tell(result)


def _describe_failure(problem: DuckkbError) -> Updated:
    return Updated((), 0, None, 0, (Notice(problem.code, str(problem), problem.suggestion),))


def _list_places(folders: dict[Path, DocumentSource]) -> list[str]:
    """Return the folders that can hold documents; links are not followed."""
    paths = []
    for folder, source in folders.items():
        for place, names, _ in os.walk(folder):
            inner = Path(place).relative_to(folder)
            names[:] = [name for name in names if not folder_exclusion(source, (inner / name).as_posix())]
            paths.append(place)
    return paths


def _iter_changes(
    watch: Callable[..., Iterator[Any]], folders: dict[Path, DocumentSource], places: Sequence[str]
) -> Iterator[Any]:
    """Yield changes in the watched places; an empty set when it is time to check what no event reports.

    Ends where a folder vanishes before it is watched; raises `errors.Unavailable` (E_IO) where folders cannot
    be watched.
    """

    def concerns(_: Any, path: str) -> bool:
        """Return whether a path counts; a folder always does, since its name does not tell what is in it."""
        place = Path(path)
        return any(
            place.name == GITIGNORE
            or is_document(replace(source, pattern=("*",)), place.relative_to(folder).as_posix())
            for folder, source in folders.items()
            if place.is_relative_to(folder)
        )

    timing = {"step": _QUIET_MS, "debounce": _BURST_MS, "rust_timeout": _LOOK_MS, "yield_on_timeout": True}
    try:
        yield from watch(*places, watch_filter=concerns, recursive=False, **timing)
    except FileNotFoundError:
        return
    except (OSError, RuntimeError) as error:
        remedy = "raise fs.inotify.max_user_watches, or set WATCHFILES_FORCE_POLLING=1"
        raise Unavailable(f"folders cannot be watched: {error}", code="E_IO", suggestion=remedy) from error


def _read_identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
