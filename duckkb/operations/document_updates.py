"""The action update: fetch folders, read them again, and make what a search needs.

The action watch: update document collections whenever their files change."""

import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.documents.document import find_inner_path, folder_exclusion, is_document, place_path
from duckkb.engine import boot, index_jobs
from duckkb.engine.base import Base
from duckkb.engine.index_jobs import Built
from duckkb.engine.index_status import glance
from duckkb.engine.text_vectors import count_missing_vectors, fill_each
from duckkb.ontology.model import DocumentSource, NodeType
from duckkb.operations import code_graph
from duckkb.operations.document_collections import documents_of, list_left_out, source_of
from duckkb.operations.document_lookup import list_refused
from duckkb.review.report_markup import many
from duckkb.storage import base_lock, git_process
from duckkb.storage.document_parts import GITIGNORE
from duckkb.types.errors import DuckkbError, Finding, Refused, Unavailable
from duckkb.types.queries import Notice

_COMMAND_SECONDS = 600
_STATE = "documents/"
_FEW, _FEW_TEXTS = 20, 500
"""The numbers of changed files, and of texts without vectors, up to which an update begins no job."""
_EMBED_SECONDS = 3_600


class Updated(Struct, frozen=True):
    """The result of an update, by collection.

    It has name, documents, and the numbers added, changed and removed since the last update; omitted files and
    folders by reason; embedded texts, of how many (None: unknown), and texts that wait for a vector. `refused`
    are files that could not be read completely and are no documents, missing folders, and what could not be
    fetched."""

    collections: tuple[dict[str, Any], ...]
    embedded: int
    texts: int | None
    pending: int
    notices: tuple[Notice, ...]
    refused: tuple[Finding, ...] = ()


def update(base: Base, names: Sequence[str] = (), *, pull: bool = False) -> Updated:
    """Fetch, read and index document collections, all or those named.

    With `pull`, first runs `git pull --ff-only` in folders that are git work trees; commands of collections run
    once trusted. A failure does not keep the others from being fetched. Raises `errors.NotFound`.
    """
    kinds = documents_of(base, names)
    notices: list[Notice] = []
    fetch_findings = [*(_pull(base, kinds, notices) if pull else ()), *_run_commands(base, kinds, notices)]
    if pull or base.ontology.update_commands:  # else the base was opened or refreshed just now
        boot.refresh(base)
    result = take_collections_in(base, kinds, notices)
    return replace(result, refused=(*fetch_findings, *result.refused))


def take_collections_in(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Updated:
    """Update collections from files as they are now; `notices` are reported with the result."""
    lines = tuple(_compare_collection(base, kind, notices) for kind in kinds)
    is_small = all(line["unchanged"] and line["added"] + line["changed"] <= _FEW for line in lines)
    built = (_update_lanes(base) if is_small else None) or index_jobs.refresh(base, wait=True)
    unread = [
        Finding(
            "E_EXTRACT",
            f"could not be read completely ({', '.join(warnings)}), so it is no record",
            place_path(source_of(item.kind), item.path),
        )
        for item, warnings in list_refused(base, kinds)
    ]
    names = {kind.name for kind in kinds}
    missing = [item for item in base.tree.not_served if item.code == "E_SOURCE_MISSING" and item.type in names]
    return Updated(lines, built.embedded, built.total, built.pending, (*notices, *built.notices), (*missing, *unread))


@boot.retry_if_stale
def _update_lanes(base: Base) -> Built | None:
    """Apply a change of few files to the lanes, with missing vectors.

    Returns None where many vectors are missing: a job computes these, since that reads all records.
    """
    kinds = [kind for kind in base.ontology if kind.has_text_vectors and base.fingerprint(kind) is not None]
    if count_missing_vectors(base, kinds) > _FEW_TEXTS:
        return None
    new_keys = set[bytes]()
    why = fill_each(base, kinds, time.monotonic() + _EMBED_SECONDS, new_keys)
    for kind in base.ontology:
        if kind.full_text:
            base.lanes(kind).words.complete()
    pending_count = count_missing_vectors(base, kinds)
    notices = (
        (Notice("W_PENDING", f"{pending_count} texts have no vector yet{why}", "duckkb index build"),)
        if pending_count
        else ()
    )
    return Built(
        pending=pending_count,
        embedded=len(new_keys),
        changed=len(new_keys) + pending_count,
        total=glance(base).texts,
        notices=notices,
    )


def _pull(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Pull each work tree once, and yield failures. Folders without a remote become a notice."""
    seen_trees: set[Path] = set()
    without: dict[str, list[str]] = {"no git work tree": [], "without an upstream branch": []}
    for kind in kinds:
        folder = base.root / source_of(kind).path
        checkout = git_process.find_repository(folder) if folder.is_dir() else None
        named = f"{kind.name} ({source_of(kind).path})"
        if checkout is None:
            without["no git work tree"].append(named)
        elif checkout.work_tree not in seen_trees:
            seen_trees.add(checkout.work_tree)
            if git_process.text(folder, ["rev-parse", "--quiet", "--verify", "@{upstream}"]):
                yield from _run(kind, folder, ["git", "pull", "--ff-only", "--quiet"], "git pull")
            else:
                without["without an upstream branch"].append(named)
    message = "; ".join(f"{', '.join(named)}: {why}" for why, named in without.items() if named)
    if message:
        remedy = "clone a repository there, or in it: git branch --set-upstream-to=origin/BRANCH"
        notices.append(Notice("W_UPDATE", f"nothing was pulled in {message}", remedy))


def _run_commands(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Run the commands of collections by the shell, in their folders, and yield failures."""
    commands_by_name = base.ontology.update_commands
    target_kinds = [kind for kind in kinds if kind.name in commands_by_name]
    if target_kinds and not code_graph.trusts_commands(base):
        message = (
            f"{', '.join(kind.name for kind in target_kinds)}: the update command did not run, since it is not trusted"
        )
        notices.append(Notice("W_UPDATE", message, "`duckkb trust --show`, then `duckkb trust`"))
        return
    for kind in target_kinds:
        yield from _run(kind, base.root / source_of(kind).path, commands_by_name[kind.name], "the update command")


def _run(kind: NodeType, folder: Path, command: str | list[str], label: str) -> Iterator[Finding]:
    """Run a command in a collection's folder, and yield its failure, if any."""
    command_text = command if isinstance(command, str) else shlex.join(command)
    remedy = f"run it by hand: cd {shlex.quote(str(folder))} && {command_text}"
    try:
        code_graph.run(command, folder, f"{kind.name}: {label}", _COMMAND_SECONDS, remedy)
    except Refused as problem:
        yield Finding(problem.code, problem.message, source_of(kind).path, remedy=problem.suggestion, type=kind.name)


def _compare_collection(base: Base, kind: NodeType, notices: list[Notice]) -> dict[str, Any]:
    """Compare a collection with its last update; add a notice where new files could not be read well."""
    now = {
        find_inner_path(source_of(kind), part.path) or part.path: part.digest[:16]
        for part in base.tree.parts_of(kind)
        if part.rows
    }
    name = f"{_STATE}{kind.name}"
    before = base.notes.note(name)
    before = before if isinstance(before, dict) else {}
    unseen = [finding.path for finding in base.tree.not_served if finding.type == kind.name]
    unseen_digests = {
        path: digest for path, digest in before.items() if _is_below(place_path(source_of(kind), path), unseen)
    }
    base.notes.keep(name, {**unseen_digests, **now})
    new_paths = now.keys() - before.keys()
    changed_paths = {path for path, digest in before.items() if now.get(path, digest) != digest}
    touched_paths = new_paths | changed_paths
    if len(touched_paths) > _FEW:
        records = (record for record in base.tree.records(kind) if record.identity[0] in touched_paths)
    else:
        records = (row.record for path in touched_paths if (row := base.tree.get(kind, (path,))) is not None)
    if warning_count := sum("warnings" in record.fields for record in records):
        notices.append(
            Notice(
                "W_DOCUMENT",
                f"{kind.name}: {many(warning_count, 'file')} read with warnings",
                f"duckkb ls {kind.name} --long",
            )
        )
    return {
        "name": kind.name,
        "documents": len(now),
        "added": len(new_paths),
        "changed": len(changed_paths),
        "removed": len(before.keys() - now.keys() - unseen_digests.keys()),
        "unchanged": len(now) - len(new_paths) - len(changed_paths),
        "left_out": dict(sorted(Counter(why for _, why in list_left_out(base, kind)).items())),
    }


def _is_below(path: str, unseen: Sequence[str]) -> bool:
    """Return whether a document could not be looked at, or lies in a folder that could not."""
    return any(place in (".", path) or path.startswith(f"{place}/") for place in unseen)


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
        with base_lock.hold_watch(self._root, timeout):
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
