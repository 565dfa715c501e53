"""The files of a write in progress (the stage, and the journal that seals it), and how a sealed journal is
completed (`forward`) or undone (`backward`).

    .duckkb/txn/ID/0000.new ...   the new files, to be moved onto their targets
                   images         old and new bytes of every target, end to end in the journal's order, absent ones empty:
                                  what `--forward` and `--abort` need
                   draft          the journal before the commit point; it lists the folders made for new files
                   journal        the draft under its sealed name: the write is committed
                   undo           the journal while `--abort` undoes it

A journal is two lines: its body as JSON, and the SHA-256 of that line. A truncated journal is torn and counts
as absent.

`forward` and `backward` can be interrupted anywhere and repeated. Each reports the name of every step just
before it, so that a caller can watch, or stop the process, in between. A target is as the journal recorded it
(old), as the journal sets it (new), or neither: somebody else changed it (third).

    target   forward                        backward
    old      put the new content there      leave
    new      leave                          put the old content there
    third    stop; on request rescue, put   rescue the file, put the old content there
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Literal

from msgspec import Struct, to_builtins

from duckkb import atomic_write
from duckkb.atomic_write import NO_FOLLOW
from duckkb.storage import clone_state
from duckkb.types import errors

DRAFT, SEALED, UNDO, IMAGES = "draft", "journal", "undo", "images"
_FORMAT = 1
_HOMES = ("data", "ontology")
Standing = Literal["old", "new", "third"]
Observer = Callable[[str], None]
# A folder with fewer parts (data, data/nodes, ontology/collections) belongs to the layout and stays when it is empty.
_LEAST_PRUNED_PARTS = 3


class JournalEntry(Struct, frozen=True):
    """A target. Hashes are SHA-256 in hex, None for absent; `mode` is that of the replaced file, None for a new
    file.
    """

    path: str
    old: str | None
    new: str | None
    old_size: int = 0
    new_size: int = 0
    mode: int | None = None


class Journal(Struct, frozen=True):
    """The targets in the order of their replacement, and the folders made for them, parents first."""

    id: str
    entries: tuple[JournalEntry, ...]
    folders: tuple[str, ...] = ()


def stages(root: Path) -> list[Path]:
    """List the folders under `.duckkb/txn/` by name; at most one is sealed, because there is a single writer.

    Raises `errors.Unavailable` (`E_IO`, `E_READ_ONLY`) if they cannot be listed.
    """
    txn = clone_state.folder_of(root) / clone_state.TXN
    if not (clone_state.is_folder(clone_state.folder_of(root)) and clone_state.is_folder(txn)):
        return []
    try:
        return sorted(path for path in txn.iterdir() if clone_state.is_folder(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise clone_state.refusal(f"{clone_state.FOLDER}/txn cannot be listed", error) from error


def is_pending(root: Path) -> bool:
    """Return whether a write is in progress or was interrupted: anything under `.duckkb/txn/`."""
    return bool(stages(root))


def list_sealed_stages(root: Path) -> list[Path]:
    """List the stages with a valid journal, sealed or being undone. Raises as `stages` and `load` do."""
    return [stage for stage in stages(root) if load(stage, SEALED) or load(stage, UNDO)]


def locate_staged_file(stage: Path, index: int) -> Path:
    return stage / f"{index:04d}.new"


def dump(journal: Journal) -> bytes:
    body = json.dumps({"format": _FORMAT, **to_builtins(journal)}, ensure_ascii=False).encode()
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def load(stage: Path, name: str) -> Journal | None:
    """Read the journal of that name; return None if it is absent or torn.

    Raises `errors.StateError` (`E_RECOVER`) if it is complete but has another version or targets that duckkb
    never writes. Raises OSError if it cannot be read now: an unread journal is not torn.
    """
    try:
        body, digest, tail = (stage / name).read_bytes().split(b"\n")
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    if tail or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    try:
        values = json.loads(body)
        if values.pop("format") != _FORMAT:
            raise ValueError("another format")
        entries = tuple(JournalEntry(**entry) for entry in values.pop("entries"))
        journal = Journal(entries=entries, folders=tuple(values.pop("folders")), **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _build_foreign_error(stage, name) from error
    new_folders = (folder for folder in journal.folders if folder not in _HOMES)
    if not all(map(is_target, [*(entry.path for entry in journal.entries), *new_folders])):
        raise _build_foreign_error(stage, name)
    return journal


def _build_foreign_error(stage: Path, name: str) -> errors.StateError:
    return errors.StateError(
        f"{clone_state.FOLDER}/txn/{stage.name}/{name} was not written by this version of duckkb.",
        code="E_RECOVER",
        suggestion="Finish the write with the version that began it, or move that folder away and check `git status`.",
    )


def is_target(path: str) -> bool:
    """Return whether duckkb may write this path: relative, `/` between parts, inside data/ or ontology/, nothing
    to resolve.

    >>> is_target("data/nodes/note/20260101/part_007.jsonl"), is_target("data/../x"), is_target("config.yaml")
    (True, False, False)
    """
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and not any(ord(c) < 32 or c in '\\:\x7f"' for c in path)
    return plain and len(parts) > 1 and parts[0] in _HOMES


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_target(root: Path, path: str) -> tuple[bytes, os.stat_result] | None:
    """Read the bytes and the status of a target, None if it is missing. Follows no link.

    Raises `errors.StateError`: `E_SYMLINK` for a link, `E_NOT_REGULAR` for anything else that is not a regular file.
    """
    check_parents(root, path)
    try:
        descriptor = os.open(root / path, os.O_RDONLY | NO_FOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        if (root / path).is_symlink():
            raise _build_file_error(path, "E_SYMLINK") from None
        if (root / path).is_file() or not os.path.lexists(root / path):
            raise
        raise _build_file_error(path, "E_NOT_REGULAR") from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise _build_file_error(path, "E_NOT_REGULAR")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(), facts


def check_parents(root: Path, path: str) -> None:
    """Raise `errors.StateError` if a folder above a target is a link or not a folder."""
    for parent in parents_of(path):
        if (root / parent).is_symlink():
            raise _build_file_error(parent, "E_SYMLINK")
        if (root / parent).exists() and not (root / parent).is_dir():
            raise _build_file_error(parent, "E_NOT_REGULAR")


def parents_of(path: str) -> list[str]:
    """Return the folders above a target, topmost first.

    >>> parents_of("data/nodes/note")
    ['data', 'data/nodes']
    """
    return [str(parent) for parent in reversed(PurePosixPath(path).parents)][1:]


def _build_file_error(path: str, code: str) -> errors.StateError:
    description = "a link, and links are not followed" if code == "E_SYMLINK" else "not a regular file, or not a folder"
    finding = errors.Finding(code, f"{path} is {description}.", path=path, remedy="Move it away.")
    return errors.StateError(finding.message, code=code, suggestion=f"Move {path} away.", findings=(finding,))


def read_image(stage: Path, journal: Journal, entry: JournalEntry, side: str) -> bytes:
    """Read the `old` or `new` bytes of an entry. Raises `errors.StateError` (`E_RECOVER`) if the stage lacks them."""
    at = sum(e.old_size + e.new_size for e in journal.entries[: journal.entries.index(entry)])
    start, size, expected_digest = (at, entry.old_size, entry.old)
    if side == "new":
        start, size, expected_digest = (at + entry.old_size, entry.new_size, entry.new)
    try:
        with (stage / IMAGES).open("rb") as file:
            file.seek(start)
            data = file.read(size)
    except FileNotFoundError:
        data = b""
    if digest(data) != expected_digest:
        raise errors.StateError(
            f"The {side} content of {entry.path} is damaged in {clone_state.FOLDER}/txn/{journal.id}.",
            code="E_RECOVER",
            suggestion=f"Restore {entry.path} from git, then `duckkb recover --show`.",
        )
    return data


class Work(Struct, frozen=True):
    """A stage that is being completed or undone. `rescued` collects the copies of third-state files."""

    root: Path
    stage: Path
    journal: Journal
    on_step: Observer
    rescue: bool = False
    rescued: list[str] = []


def forward(work: Work) -> None:
    """Set every target to its new content, then retire the journal. Raises `errors.StateError` (`E_RECOVER`),
    OSError.
    """
    entries = work.journal.entries
    work.on_step("make the seal durable")
    sync_folders([work.stage, work.stage.parent])
    for index, entry in enumerate(entries):
        work.on_step(f"{'delete' if entry.new is None else 'replace'} {entry.path}")
        _bring(work, entry, "new", locate_staged_file(work.stage, index))
    _prune(work.root, _list_parent_folders(entry.path for entry in entries if entry.new is None), work.on_step)
    _retire(work, SEALED)


def backward(work: Work) -> None:
    """Restore every target to its old content, then retire the journal. Third-state files are rescued first.

    Raises `errors.StateError` (`E_RECOVER`) if the old content is damaged, and OSError.
    """
    if (work.stage / SEALED).exists():
        work.on_step("turn back")  # from here on, recovery undoes the journal too
        (work.stage / SEALED).replace(work.stage / UNDO)
        sync_folders([work.stage])
    for entry in reversed(work.journal.entries):
        work.on_step(f"restore {entry.path}")
        _bring(work, entry, "old", work.stage / "restored")
    _prune(work.root, reversed(work.journal.folders), work.on_step)
    _retire(work, UNDO)


def discard(root: Path, stage: Path, on_step: Observer) -> None:
    """Remove an unsealed stage and the folders made for it."""
    draft = load(stage, DRAFT)
    folders = draft.folders if draft else ()
    _prune(root, reversed(folders), on_step)
    # Sync before removing the stage: a power cut may bring a folder back, and only the stage lists the folders.
    sync_folders(sorted({(root / folder).parent for folder in folders}))
    _clear(stage, on_step)


def find_standing(root: Path, entry: JournalEntry) -> Standing:
    """Return the state of a target; a link or a non-regular file is in the third state."""
    try:
        target = read_target(root, entry.path)
    except errors.StateError:
        return "third"
    present = None if target is None else digest(target[0])
    if present == entry.new:
        return "new"
    return "old" if present == entry.old else "third"


def stop_at_third(root: Path, journal: Journal) -> None:
    """Raise `errors.StateError` (`E_RECOVER`) that names every target in the third state."""
    strangers = [entry.path for entry in journal.entries if find_standing(root, entry) == "third"]
    if strangers:
        raise _build_third_state_error(strangers)


def sync_folders(folders: Iterable[Path]) -> None:
    """Make the names in existing folders durable."""
    for folder in folders:
        if folder.is_dir():
            atomic_write.fsync_folder(folder)


def _build_third_state_error(paths: list[str]) -> errors.StateError:
    return errors.StateError(
        "A sealed write cannot be finished: a file is neither what the write found nor what it leads to. "
        "Nothing was removed; the write and both contents are kept.",
        code="E_RECOVER",
        suggestion="`duckkb recover --show`, then `--forward` (finish the write) or `--abort` (undo it); either "
        "keeps a copy of the current file.",
        findings=[
            errors.Finding("E_RECOVER", "Changed by something else since the write was sealed.", path=path)
            for path in paths
        ],
    )


def _bring(work: Work, entry: JournalEntry, side: Literal["old", "new"], staged_path: Path) -> None:
    """Set a target to the content of `side`, which `staged_path` may hold already."""
    target, expected_digest = work.root / entry.path, entry.new if side == "new" else entry.old
    now = find_standing(work.root, entry)
    if now == side:
        return
    if now == "third":
        if not work.rescue:
            raise _build_third_state_error([entry.path])
        _save_copy(work, entry)
    if expected_digest is None:
        target.unlink(missing_ok=True)
        return
    if not staged_path.exists() or digest(staged_path.read_bytes()) != expected_digest:
        data = read_image(work.stage, work.journal, entry, side)
        staged_path.unlink(missing_ok=True)
        atomic_write.write_new(staged_path, data, mode=entry.mode)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged_path.replace(target)


def _save_copy(work: Work, entry: JournalEntry) -> None:
    """Copy a third-state file to the rescue folder. The name holds its hash, so that a retry overwrites no other
    file.
    """
    target = read_target(work.root, entry.path)
    if target is None:
        return
    clone_state.ensure(work.root)
    home = clone_state.folder_of(work.root) / clone_state.RESCUED / work.journal.id
    copy = home / f"{entry.path}.{digest(target[0])[:12]}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    atomic_write.write_new(copy, target[0])
    atomic_write.fsync_folder(copy.parent)
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


def _list_parent_folders(deleted_paths: Iterable[str]) -> list[str]:
    """List the folders above deleted files that may be empty now, deepest first."""
    names = {
        parent for path in deleted_paths for parent in parents_of(path) if parent.count("/") + 1 >= _LEAST_PRUNED_PARTS
    }
    return sorted(names, key=lambda name: (-name.count("/"), name))


def _prune(root: Path, folders: Iterable[str], on_step: Observer) -> None:
    """Remove empty folders."""
    for folder in folders:
        on_step(f"prune {folder}")
        with contextlib.suppress(OSError):  # not empty, or gone already
            (root / folder).rmdir()


def _clear(stage: Path, on_step: Observer) -> None:
    """Remove a stage file by file, the draft last: it lists the folders that were made."""
    if not stage.exists():
        return
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == DRAFT, path.name)):
        on_step(f"remove {path.name}")
        if clone_state.is_folder(path):
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    on_step("remove the stage")
    with contextlib.suppress(FileNotFoundError):
        stage.rmdir()
