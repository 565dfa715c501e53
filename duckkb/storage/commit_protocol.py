"""The commit protocol: several files change together or not at all, at whatever point a process dies.

    stage     new files, and the images of old and new, under .duckkb/txn/ID/         a crash here: discarded
    seal      the journal gets its name                                               <- the commit point
    carry out replace each target that is still old; puts first, deletes last         a crash here: finished by recover()
    retire    the journal goes, then the stage

Callers of everything that writes hold the exclusive lock; `lock_for_reading` and `lock_for_writing` take it and
recover first.
"""

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb import atomic_write
from duckkb.storage import base_lock, clone_state
from duckkb.storage import journal as journals
from duckkb.storage.journal import (
    DRAFT,
    IMAGES,
    SEALED,
    UNDO,
    Journal,
    JournalEntry,
    Observer,
    Work,
    is_pending,
    sync_folders,
)
from duckkb.types import errors

__all__ = [
    "FileChange",
    "Recovery",
    "abort",
    "commit",
    "forward",
    "is_pending",
    "lock_for_reading",
    "lock_for_writing",
    "recover",
    "show",
]

_UNSEEN = "An interrupted write cannot be looked at"


class FileChange(Struct, frozen=True):
    """A file to change: its path from the root with `/`, the SHA-256 (hex) of its present content or None if it is
    absent, and its new content, or None to delete it.
    """

    path: str
    old: str | None
    data: bytes | None


class Recovery(Struct, frozen=True):
    """The outcome of recovering an interrupted write, and its targets. `rescued`: copies of files that stood in
    the way.
    """

    action: Literal["none", "discarded", "finished", "aborted"]
    files: tuple[str, ...] = ()
    rescued: tuple[str, ...] = ()


class _Target(Struct, frozen=True):
    """A change that has an effect, with the present content of its file."""

    change: FileChange
    before: bytes | None
    mode: int | None

    def entry(self) -> JournalEntry:
        data = self.change.data
        new = None if data is None else journals.digest(data)
        sizes = len(self.before or b""), len(data or b"")
        return JournalEntry(self.change.path, self.change.old, new, *sizes, self.mode)


def _ignore_step(step: str) -> None:
    return


@contextmanager
def lock_for_reading(root: Path, timeout: float) -> Iterator[bool]:
    """Hold the lock shared; recover an interrupted write first. Yields whether the base is read-only.

    Raises as `lock.hold_shared` and `recover` do; waits at most `timeout` seconds for each lock.
    """
    while True:
        with base_lock.hold_shared(root, timeout) as read_only:
            if read_only or not is_pending(root):
                yield read_only
                return
        with base_lock.exclusive(root, timeout):
            recover(root)


@contextmanager
def lock_for_writing(root: Path, timeout: float) -> Iterator[Recovery]:
    """Hold the lock exclusively after recovery; yield what was recovered. Raises as `lock.exclusive` and `recover`
    do.

    A write that is interrupted (Ctrl-C, SIGTERM) also ends here: a sealed write is finished, any other discarded.
    """
    with base_lock.exclusive(root, timeout):
        recovery = recover(root)
        try:
            yield recovery
        except KeyboardInterrupt:
            recover(root)
            raise


def commit(root: Path, changes: Iterable[FileChange], *, on_step: Observer = _ignore_step) -> dict[str, os.stat_result]:
    """Make all changes or none; return the status of each written file, as it was when staged.

    A change to content that is there already writes nothing. `on_step` gets the name of each step before it is taken.

    Raises, with every file as it was: `errors.UsageError` (`E_PATH`), `errors.Conflict` (`E_STALE`) if a file
    is not at `old`, `errors.StateError` (`E_SYMLINK`, `E_NOT_REGULAR`), `errors.Unavailable` (`E_IO`). Raises
    after the commit point, with `details["committed"]` true and the journal kept: `errors.Unavailable`
    (`E_IO`), `errors.StateError` (`E_RECOVER`).
    """
    change_list = _check_paths(list(changes))
    try:
        targets, facts = _compare(root, change_list)
        if not targets:
            return facts
        work = _plan_work(root, targets, on_step)
    except OSError as error:
        raise _build_io_error(error) from error
    facts |= _seal(work, targets)
    _carry_out(work)
    return facts


def recover(root: Path, *, on_step: Observer = _ignore_step) -> Recovery:
    """Finish a sealed write, discard an unsealed one. Cheap if there is none.

    Raises `errors.StateError` (`E_RECOVER`) if a target is neither old nor new: everything is kept until
    `forward` or `abort`. Raises `errors.Unavailable` (`E_IO`) if the disk fails; the next call continues.
    """
    recovery = Recovery("none")
    clone_state.sweep(root)
    with _translate_io_errors("An interrupted write cannot be recovered"):
        for stage in journals.stages(root):
            recovery = _recover_stage(root, stage, on_step)
    return recovery


def show(root: Path) -> dict[str, Any]:
    """Return the interrupted write as plain values: `state` (`none`, `staged`, `sealed`, `undo`), `id`, and per
    file its path, change (`put`, `delete`) and standing (`old`, `new`, `third`). Raises `errors.Unavailable` if
    it cannot be read.
    """
    stage_and_journal = _stage_to_decide(root)
    if stage_and_journal is None:
        leftovers = journals.stages(root)
        return {"state": "staged" if leftovers else "none", "id": leftovers[0].name if leftovers else "", "files": []}
    stage, journal = stage_and_journal
    with _translate_io_errors(_UNSEEN):
        standings = [journals.find_standing(root, entry) for entry in journal.entries]
    files = [
        {"path": entry.path, "change": "delete" if entry.new is None else "put", "standing": standing}
        for entry, standing in zip(journal.entries, standings, strict=True)
    ]
    return {"state": "undo" if (stage / UNDO).exists() else "sealed", "id": journal.id, "files": files}


def forward(root: Path, *, on_step: Observer = _ignore_step) -> Recovery:
    """Finish a sealed write even if a target is in the third state; a copy of that file goes to
    `.duckkb/rescued/`.

    Raises `errors.StateError` (`E_RECOVER`) if the write is being undone already, otherwise as `recover` does.
    """
    return _finish_or_abort(root, on_step, "finished")


def abort(root: Path, *, on_step: Observer = _ignore_step) -> Recovery:
    """Undo a sealed write: every target gets its old content back; a file in a third state is copied to
    `.duckkb/rescued/` first. Raises as `recover` does."""
    return _finish_or_abort(root, on_step, "aborted")


def _finish_or_abort(root: Path, on_step: Observer, action: Literal["finished", "aborted"]) -> Recovery:
    stage_and_journal = _stage_to_decide(root)
    if stage_and_journal is None:
        return recover(root, on_step=on_step)
    stage, journal = stage_and_journal
    is_forward = action == "finished"
    if is_forward and (stage / UNDO).exists():
        message, remedy = "This write is being undone.", "`duckkb recover --abort` ends it."
        raise errors.StateError(message, code="E_RECOVER", suggestion=remedy)
    work = Work(root, stage, journal, on_step, rescue=True)
    with _translate_io_errors(f"The interrupted write cannot be {'finished' if is_forward else 'undone'}"):
        (journals.forward if is_forward else journals.backward)(work)
    return _build_recovery(action, work)


def _check_paths(changes: list[FileChange]) -> list[FileChange]:
    paths = [change.path for change in changes]
    parents = {parent for path in paths for parent in journals.parents_of(path)}
    findings = [
        errors.Finding("E_PATH", "Not a path inside data/ or ontology/ that duckkb may write.", path=path)
        for path in paths
        if not journals.is_target(path)
    ]
    findings += [
        errors.Finding("E_PATH", "Named twice, or both a file and a folder.", path=path)
        for path in sorted(
            path
            for path, times in Counter(paths).items()
            if journals.is_target(path) and (times > 1 or path in parents)
        )
    ]
    if findings:
        raise errors.UsageError("A write names paths that it may not.", code="E_PATH", findings=findings)
    return changes


def _compare(root: Path, changes: list[FileChange]) -> tuple[list[_Target], dict[str, os.stat_result]]:
    """Return the targets to change, puts first, and the status of files that already hold their new content."""
    targets: list[_Target] = []
    facts: dict[str, os.stat_result] = {}
    stale: list[str] = []
    for change in changes:
        current_file = journals.read_target(root, change.path)
        before = None if current_file is None else current_file[0]
        if (None if before is None else journals.digest(before)) != change.old:
            stale.append(change.path)
        elif before != change.data:
            mode = stat.S_IMODE(current_file[1].st_mode) & 0o777 if current_file else None
            targets.append(_Target(change, before, mode))
        elif current_file is not None:
            facts[change.path] = current_file[1]
    if stale:
        raise _build_stale_error(stale)
    targets.sort(key=lambda target: target.change.data is None)
    return targets, facts


def _build_stale_error(paths: list[str]) -> errors.Conflict:
    return errors.Conflict(
        "A file changed since it was read; nothing was written.",
        code="E_STALE",
        suggestion="Read it again and repeat the change.",
        findings=[
            errors.Finding("E_STALE", "Not the content that the write was made for.", path=path) for path in paths
        ],
    )


def _plan_work(root: Path, targets: list[_Target], on_step: Observer) -> Work:
    clone_state.ensure(root)
    identifier = os.urandom(8).hex()
    parents = {p for t in targets if t.change.data is not None for p in journals.parents_of(t.change.path)}
    new_folders = tuple(sorted(parent for parent in parents if not (root / parent).exists()))
    journal = Journal(identifier, tuple(target.entry() for target in targets), new_folders)
    return Work(root, clone_state.folder_of(root) / clone_state.TXN / identifier, journal, on_step)


def _seal(work: Work, targets: list[_Target]) -> dict[str, os.stat_result]:
    """Stage and seal, or leave everything unchanged; return the status of the staged files."""
    try:
        facts = _stage(work, targets)
        work.on_step("seal")
        (work.stage / DRAFT).replace(work.stage / SEALED)
    except BaseException as error:
        if (work.stage / SEALED).exists():  # interrupted right after the commit point: recovery will finish it
            raise
        with contextlib.suppress(OSError):
            journals.discard(work.root, work.stage, _ignore_step)
        if isinstance(error, OSError):
            raise _build_io_error(error) from error
        raise
    return facts


def _stage(work: Work, targets: list[_Target]) -> dict[str, os.stat_result]:
    stage, facts = work.stage, {}
    work.on_step("make the stage")
    stage.parent.mkdir(exist_ok=True)
    if not clone_state.is_folder(stage.parent):
        raise OSError(errno.ENOTDIR, f"{clone_state.FOLDER}/txn is not a regular folder")
    stage.mkdir()
    for index, target in enumerate(targets):
        path, data = target.change.path, target.change.data
        if data is not None:
            work.on_step(f"stage {path}")
            facts[path] = atomic_write.write_new(journals.locate_staged_file(stage, index), data, mode=target.mode)
    work.on_step("stage the images")
    images = (image or b"" for staged_target in targets for image in (staged_target.before, staged_target.change.data))
    atomic_write.write_new(stage / IMAGES, images)
    work.on_step("draft the journal")
    atomic_write.write_new(stage / DRAFT, journals.dump(work.journal))
    _make_durable(work)
    work.on_step("compare again")
    _refuse_other_device(work)
    _compare(work.root, [target.change for target in targets])
    return facts


def _make_durable(work: Work) -> None:
    """Make the stage durable, and create the folders of new parts."""
    stage = work.stage
    work.on_step("make the stage durable")
    # Up to the root: a process that made a folder on the way may have died before its name was durable.
    sync_folders([stage, *list(stage.parents)[:3]])
    for folder in work.journal.folders:
        work.on_step(f"make {folder}")
        (work.root / folder).mkdir(exist_ok=True)
    sync_folders(sorted({(work.root / folder).parent for folder in work.journal.folders}))


def _refuse_other_device(work: Work) -> None:
    """Fail before the commit point if a rename cannot work: other device, other mount, or no rights.

    The kernel checks the mounts before it looks for the file, so renaming a missing file tells them apart and
    changes nothing.
    """
    for folder in sorted({(work.root / entry.path).parent for entry in work.journal.entries}):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{folder.relative_to(work.root)} cannot be written")
        with contextlib.suppress(FileNotFoundError):
            (work.stage / "no such file").rename(folder / "no such file")


def _carry_out(work: Work) -> None:
    """Finish a sealed write. A failure may be temporary (a full disk that was emptied), so it is retried once."""
    try:
        try:
            journals.forward(work)
        except OSError as error:
            if not (work.stage / SEALED).exists():  # all is in place; the next recovery removes what is left
                return
            if error.errno == errno.EIO:  # after a failed fsync the next one succeeds without having synced
                raise
            journals.forward(replace(work, on_step=_ignore_step))
    except OSError as error:
        raise _note_commit(
            clone_state.refusal("The write is committed, but not all files are in place", error)
        ) from error
    except errors.StateError as error:
        raise _note_commit(error) from error


def _note_commit(error: errors.DuckkbError) -> errors.DuckkbError:
    error.details = {**error.details, "committed": True}
    if error.code != "E_RECOVER":
        error.code = "E_IO"
        error.suggestion = "Mend the disk, then `duckkb recover`, or any command: it finishes the write."
    return error


def _build_io_error(error: OSError) -> errors.Unavailable:
    return errors.Unavailable(
        f"The write failed before it was committed, and nothing was changed: {error.strerror or error}.",
        code="E_IO",
        suggestion=f"{clone_state.remedy_of(error, 'mend permissions')} .duckkb/ and data/ must be on one file system.",
    )


def _recover_stage(root: Path, stage: Path, on_step: Observer) -> Recovery:
    if (undo := journals.load(stage, UNDO)) is not None:
        work = Work(root, stage, undo, on_step, rescue=True)
        journals.backward(work)
        return _build_recovery("aborted", work)
    if (journal := journals.load(stage, SEALED)) is not None:
        journals.stop_at_third(root, journal)
        work = Work(root, stage, journal, on_step)
        journals.forward(work)
        return _build_recovery("finished", work)
    journals.discard(root, stage, on_step)
    return Recovery("discarded")


def _build_recovery(action: Literal["finished", "aborted"], work: Work) -> Recovery:
    return Recovery(action, tuple(entry.path for entry in work.journal.entries), tuple(work.rescued))


@contextmanager
def _translate_io_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise clone_state.refusal(f"{what}; it is kept", error) from error


def _stage_to_decide(root: Path) -> tuple[Path, Journal] | None:
    with _translate_io_errors(_UNSEEN):
        for stage in journals.stages(root):
            journal = journals.load(stage, SEALED) or journals.load(stage, UNDO)
            if journal is not None:
                return stage, journal
    return None
