"""Carry a sealed journal out (`forward`) or back (`backward`). Both can be stopped anywhere and begun again.

Each tells the name of every step just before it takes it, so that a caller can watch, or stop the process, in between.
A target is where the journal found it (old), where it leads (new), or neither: somebody else changed it (third).

    target   forward                        backward
    old      put the new content there      leave
    new      leave                          put the old content there
    third    stop; on request rescue, put   rescue the file, put the old content there
"""

import contextlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from duckkb import errors
from duckkb.truth import state
from duckkb.truth.commit.journal import (
    DRAFT,
    SEALED,
    UNDO,
    Journal,
    JournalEntry,
    digest,
    load,
    parents_of,
    read_image,
    read_target,
    staged_file,
)
from duckkb.values import dataclass, field

Standing = Literal["old", "new", "third"]
Observer = Callable[[str], None]

# A folder with fewer parts (data, data/nodes, ontology/collections) belongs to the layout and stays when it is empty.
_LEAST_PRUNED_PARTS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """One stage that is being carried out or back. `rescued` collects the copies of third-state files as they are made."""

    root: Path
    stage: Path
    journal: Journal
    on_step: Observer
    rescue: bool = False
    rescued: list[str] = field(default_factory=list)


def forward(work: Work) -> None:
    """Put every target where the journal leads, then retire it. Raises `errors.StateError` (`E_RECOVER`), OSError."""
    entries = work.journal.entries
    work.on_step("make the seal durable")
    sync_folders([work.stage, work.stage.parent])
    for index, entry in enumerate(entries):
        work.on_step(f"{'delete' if entry.new is None else 'replace'} {entry.path}")
        _bring(work, entry, "new", staged_file(work.stage, index))
    _prune(work.root, _emptied_by(entry.path for entry in entries if entry.new is None), work.on_step)
    _retire(work, SEALED)


def backward(work: Work) -> None:
    """Put every target back where the journal found it, then retire it. Third-state files are rescued first.

    Raises `errors.StateError` (`E_RECOVER`) where the old content is damaged, and OSError.
    """
    if (work.stage / SEALED).exists():
        work.on_step("turn back")  # from here on, recovery carries the journal back too
        (work.stage / SEALED).replace(work.stage / UNDO)
        sync_folders([work.stage])
    for entry in reversed(work.journal.entries):
        work.on_step(f"restore {entry.path}")
        _bring(work, entry, "old", work.stage / "restored")
    _prune(work.root, reversed(work.journal.folders), work.on_step)
    _retire(work, UNDO)


def discard(root: Path, stage: Path, on_step: Observer) -> None:
    """Remove a stage that was never sealed, and the folders that were made for it."""
    draft = load(stage, DRAFT)
    folders = draft.folders if draft else ()
    _prune(root, reversed(folders), on_step)
    # Before the stage goes, which alone says what else there is to remove: a power cut may bring a folder back.
    sync_folders(sorted({(root / folder).parent for folder in folders}))
    _clear(stage, on_step)


def standing(root: Path, entry: JournalEntry) -> Standing:
    """Where a target stands; one that became a link, or no regular file, is in a third state."""
    try:
        found = read_target(root, entry.path)
    except errors.StateError:
        return "third"
    present = None if found is None else digest(found[0])
    if present == entry.new:
        return "new"
    return "old" if present == entry.old else "third"


def stop_at_third(root: Path, journal: Journal) -> None:
    """Raises `errors.StateError` (`E_RECOVER`) naming every target that is in a third state."""
    strangers = [entry.path for entry in journal.entries if standing(root, entry) == "third"]
    if strangers:
        raise _third_state(strangers)


def sync_folders(folders: Iterable[Path]) -> None:
    """Make the names in folders durable, of those that are there."""
    for folder in folders:
        if folder.is_dir():
            state.fsync_folder(folder)


def _third_state(paths: list[str]) -> errors.StateError:
    return errors.StateError(
        "A sealed write cannot be finished: a file is neither what the write found nor what it leads to. "
        "Nothing was removed; the write and both contents are kept.",
        code="E_RECOVER",
        suggestion="`duckkb recover --show`, then `--forward` (finish the write) or `--abort` (undo it); "
        "either keeps a copy of the file as it is now.",
        findings=[
            errors.Finding("E_RECOVER", "Changed by something else since the write was sealed.", path=path)
            for path in paths
        ],
    )


def _bring(work: Work, entry: JournalEntry, side: Literal["old", "new"], staged: Path) -> None:
    """Have a target hold the content of one side, which `staged` may hold already."""
    target, wanted = work.root / entry.path, entry.new if side == "new" else entry.old
    now = standing(work.root, entry)
    if now == side:
        return
    if now == "third":
        if not work.rescue:
            raise _third_state([entry.path])
        _rescue(work, entry)
    if wanted is None:
        target.unlink(missing_ok=True)
        return
    if not staged.exists() or digest(staged.read_bytes()) != wanted:
        data = read_image(work.stage, work.journal, entry, side)
        staged.unlink(missing_ok=True)
        state.write_new(staged, data, mode=entry.mode)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.replace(target)


def _rescue(work: Work, entry: JournalEntry) -> None:
    """Copy a third-state file out of the way. The name holds its hash, so that a second try overwrites nothing else."""
    found = read_target(work.root, entry.path)
    if found is None:
        return
    state.ensure(work.root)
    home = state.folder_of(work.root) / state.RESCUED / work.journal.id
    copy = home / f"{entry.path}.{digest(found[0])[:12]}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    state.write_new(copy, found[0])
    state.fsync_folder(copy.parent)
    work.rescued.append(copy.relative_to(work.root).as_posix())


def _retire(work: Work, name: str) -> None:
    work.on_step("make the targets durable")
    # Every folder that still exists above a target: replacing, making and pruning changed names in some of them.
    names = {parent for entry in work.journal.entries for parent in parents_of(entry.path)}
    sync_folders(work.root / name for name in sorted(names))
    work.on_step("retire the journal")
    (work.stage / name).unlink(missing_ok=True)
    sync_folders([work.stage])
    _clear(work.stage, work.on_step)


def _emptied_by(deleted: Iterable[str]) -> list[str]:
    """Folders above deleted files that may be empty now, deepest first."""
    names = {parent for path in deleted for parent in parents_of(path) if parent.count("/") + 1 >= _LEAST_PRUNED_PARTS}
    return sorted(names, key=lambda name: (-name.count("/"), name))


def _prune(root: Path, folders: Iterable[str], on_step: Observer) -> None:
    """Remove folders that are empty."""
    for folder in folders:
        on_step(f"prune {folder}")
        with contextlib.suppress(OSError):  # not empty, or gone already
            (root / folder).rmdir()


def _clear(stage: Path, on_step: Observer) -> None:
    """Remove a stage file by file, the draft last: until then it tells which folders were made."""
    if not stage.exists():
        return
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == DRAFT, path.name)):
        on_step(f"remove {path.name}")
        if state.is_folder(path):
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    on_step("remove the stage")
    with contextlib.suppress(FileNotFoundError):
        stage.rmdir()
