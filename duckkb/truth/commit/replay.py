"""Carry a sealed journal out (`forward`) or back (`backward`). Both can be stopped anywhere and begun again.

Each yields the name of every step just before it takes it, so that a caller can watch, or stop the process, in between.
A target is where the journal found it (old), where it leads (new), or neither: somebody else changed it (third).

    target   forward                        backward
    old      put the new content there      leave
    new      leave                          put the old content there
    third    stop; on request rescue, put   rescue the file, put the old content there
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from duckkb import errors
from duckkb.truth import state
from duckkb.truth.commit.journal import (
    DRAFT,
    SEALED,
    UNDO,
    Entry,
    Journal,
    digest,
    load,
    parents_of,
    read_image,
    read_target,
    staged_file,
)
from duckkb.values import dataclass, field

Standing = Literal["old", "new", "third"]

# A folder with fewer parts (data, data/nodes, ontology/collections) belongs to the layout and stays when it is empty.
_LEAST_PRUNED_PARTS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """One stage that is being carried out or back. `rescued` collects the copies of third-state files as they are made."""

    root: Path
    stage: Path
    journal: Journal
    durable: bool = True
    rescue: bool = False
    rescued: list[str] = field(default_factory=list)


def run(steps: Iterator[str], on_step: Callable[[str], None]) -> None:
    """Take every step, telling `on_step` its name before."""
    for name in steps:
        on_step(name)


def forward(work: Work) -> Iterator[str]:
    """Put every target where the journal leads, then retire it. Raises `errors.StateError` (`E_RECOVER`), OSError."""
    entries = work.journal.entries
    yield "make the seal durable"
    _sync(work, [work.stage, work.stage.parent])
    for index, entry in enumerate(entries):
        yield f"{'delete' if entry.new is None else 'replace'} {entry.path}"
        _advance(work, index, entry)
    gone = [entry.path for entry in entries if entry.new is None]
    for folder in _emptied_by(gone):
        yield f"prune {folder}"
        _remove_if_empty(work.root / folder)
    yield from _retire(work, SEALED)


def backward(work: Work) -> Iterator[str]:
    """Put every target back where the journal found it, then retire it. Third-state files are rescued first.

    Raises `errors.StateError` (`E_RECOVER`) where the old content is damaged, and OSError.
    """
    if (work.stage / SEALED).exists():
        yield "turn back"  # from here on, recovery carries the journal back too
        (work.stage / SEALED).replace(work.stage / UNDO)
        _sync(work, [work.stage])
    for entry in reversed(work.journal.entries):
        yield f"restore {entry.path}"
        _restore(work, entry)
    for folder in reversed(work.journal.folders):
        yield f"prune {folder}"
        _remove_if_empty(work.root / folder)
    yield from _retire(work, UNDO)


def discard(root: Path, stage: Path) -> Iterator[str]:
    """Remove a stage that was never sealed, and the folders that were made for it."""
    draft = load(stage, DRAFT)
    folders = draft.folders if draft else ()
    for folder in reversed(folders):
        yield f"prune {folder}"
        _remove_if_empty(root / folder)
    # Before the stage goes, which alone says what else there is to remove: a power cut may bring a folder back.
    for parent in sorted({(root / folder).parent for folder in folders}):
        if parent.is_dir():
            state.fsync_folder(parent)
    yield from _clear(stage)


def standing(root: Path, entry: Entry) -> Standing:
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
    strangers = [entry for entry in journal.entries if standing(root, entry) == "third"]
    if strangers:
        raise third_state([entry.path for entry in strangers])


def third_state(paths: list[str]) -> errors.StateError:
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


def _advance(work: Work, index: int, entry: Entry) -> None:
    now = standing(work.root, entry)
    if now == "new":
        return
    if now == "third":
        if not work.rescue:
            raise third_state([entry.path])
        _rescue(work, entry)
    if entry.new is None:
        (work.root / entry.path).unlink(missing_ok=True)
        return
    staged = staged_file(work.stage, index)
    if not staged.exists() or digest(staged.read_bytes()) != entry.new:
        _stage_again(work, staged, entry, "new")
    _put(work, staged, entry)


def _restore(work: Work, entry: Entry) -> None:
    found = read_target(work.root, entry.path)
    present = None if found is None else digest(found[0])
    if present == entry.old:
        return
    if present not in (entry.new, None):
        _rescue(work, entry)
    if entry.old is None:
        (work.root / entry.path).unlink(missing_ok=True)
        return
    staged = work.stage / "restored"
    _stage_again(work, staged, entry, "old")
    _put(work, staged, entry)


def _stage_again(work: Work, staged: Path, entry: Entry, side: Literal["old", "new"]) -> None:
    data = read_image(work.stage, work.journal, entry, side)
    staged.unlink(missing_ok=True)
    state.write_new(staged, data, mode=entry.mode, durable=work.durable)


def _put(work: Work, staged: Path, entry: Entry) -> None:
    target = work.root / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.replace(target)


def _rescue(work: Work, entry: Entry) -> None:
    """Copy a third-state file out of the way. The name holds its hash, so that a second try overwrites nothing else."""
    found = read_target(work.root, entry.path)
    if found is None:
        return
    state.ensure(work.root)
    home = state.rescued_path(work.root) / work.journal.id
    copy = home / f"{entry.path}.{digest(found[0])[:12]}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    state.write_new(copy, found[0], durable=work.durable)
    state.fsync_folder(copy.parent)
    work.rescued.append(copy.relative_to(work.root).as_posix())


def _retire(work: Work, name: str) -> Iterator[str]:
    yield "make the targets durable"
    _sync(work, _folders_touched(work))
    yield "retire the journal"
    (work.stage / name).unlink(missing_ok=True)
    _sync(work, [work.stage])
    yield from _clear(work.stage)


def _folders_touched(work: Work) -> list[Path]:
    """Every folder that still exists above a target: replacing, making and pruning changed names in some of them."""
    names = {parent for entry in work.journal.entries for parent in parents_of(entry.path)}
    return [work.root / name for name in sorted(names) if (work.root / name).is_dir()]


def _sync(work: Work, folders: list[Path]) -> None:
    if work.durable:
        for folder in folders:
            if folder.is_dir():
                state.fsync_folder(folder)


def _emptied_by(deleted: list[str]) -> list[str]:
    """Folders above deleted files that may be empty now, deepest first."""
    names = {parent for path in deleted for parent in parents_of(path) if parent.count("/") + 1 >= _LEAST_PRUNED_PARTS}
    return sorted(names, key=lambda name: (-name.count("/"), name))


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty, or gone already
        folder.rmdir()


def _clear(stage: Path) -> Iterator[str]:
    """Remove a stage file by file, the draft last: until then it tells which folders were made."""
    if not stage.exists():
        return
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == DRAFT, path.name)):
        yield f"remove {path.name}"
        if state.is_folder(path):
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    yield "remove the stage"
    with contextlib.suppress(FileNotFoundError):
        stage.rmdir()
