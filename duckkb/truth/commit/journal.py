"""What a write leaves on disk while it is under way: the stage, and the journal that seals it.

    .duckkb/txn/ID/0000.new ...   the new files, to be moved onto their targets
                   images         old and new bytes of every target, end to end in the journal's order, absent ones empty:
                                  what `--forward` and `--abort` need
                   draft          the journal before the commit point; it lists the folders made for new files
                   journal        the draft under its sealed name: the write is committed
                   undo           the journal while `--abort` carries it back

A journal is two lines: its body as JSON, and the SHA-256 of that line. One cut anywhere is torn and counts as absent.
"""

import hashlib
import json
import os
import stat
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from duckkb import errors
from duckkb.truth import state
from duckkb.values import dataclass

DRAFT, SEALED, UNDO, IMAGES = "draft", "journal", "undo", "images"
_FORMAT = 1
_HOMES = ("data", "ontology")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One target. Hashes are SHA-256 in hex, None for absent; `mode` is that of the file replaced, None for a new one."""

    path: str
    old: str | None
    new: str | None
    old_size: int = 0
    new_size: int = 0
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Journal:
    """The targets in the order of their replacement, and the folders made for them, parents first."""

    id: str
    entries: tuple[JournalEntry, ...]
    folders: tuple[str, ...] = ()


def stages(root: Path) -> list[Path]:
    """The folders under `.duckkb/txn/`, in order of name; at most one is sealed, as one writer works at a time.

    Raises `errors.Unavailable` (`E_IO`, `E_READ_ONLY`) where they cannot be listed.
    """
    txn = state.folder_of(root) / state.TXN
    if not (state.is_folder(state.folder_of(root)) and state.is_folder(txn)):
        return []
    try:
        return sorted(path for path in txn.iterdir() if state.is_folder(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise state.refusal(f"{state.FOLDER}/txn cannot be listed", error) from error


def pending(root: Path) -> bool:
    """Whether a write is under way or was interrupted: anything under `.duckkb/txn/`."""
    return bool(stages(root))


def sealed_stages(root: Path) -> list[Path]:
    """The stages with a valid journal, sealed or being undone. Raises as `stages` and `load` do."""
    return [stage for stage in stages(root) if load(stage, SEALED) or load(stage, UNDO)]


def staged_file(stage: Path, index: int) -> Path:
    return stage / f"{index:04d}.new"


def dump(journal: Journal) -> bytes:
    body = json.dumps({"format": _FORMAT, **asdict(journal)}, ensure_ascii=False).encode()
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def load(stage: Path, name: str) -> Journal | None:
    """The journal of that name; None where it is absent or torn.

    Raises `errors.StateError` (`E_RECOVER`) where it is whole, but of another version or with targets that duckkb never
    writes, and OSError where it cannot be read now: a journal that nobody has read is not torn.
    """
    try:
        body, digest, rest = (stage / name).read_bytes().split(b"\n")
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    if rest or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    try:
        values = json.loads(body)
        if values.pop("format") != _FORMAT:
            raise ValueError("another format")
        entries = tuple(JournalEntry(**entry) for entry in values.pop("entries"))
        journal = Journal(entries=entries, folders=tuple(values.pop("folders")), **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _foreign(stage, name) from error
    made = (folder for folder in journal.folders if folder not in _HOMES)
    if not all(map(is_target, [*(entry.path for entry in journal.entries), *made])):
        raise _foreign(stage, name)
    return journal


def _foreign(stage: Path, name: str) -> errors.StateError:
    return errors.StateError(
        f"{state.FOLDER}/txn/{stage.name}/{name} was not written by this version of duckkb.",
        code="E_RECOVER",
        suggestion="Finish the write with the version that began it, or move that folder away and check `git status`.",
    )


def is_target(path: str) -> bool:
    """Whether duckkb may write this path: relative, `/` between parts, inside data/ or ontology/, nothing to resolve.

    >>> is_target("data/nodes/note/20260101/part_007.jsonl"), is_target("data/../x"), is_target("config.yaml")
    (True, False, False)
    """
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and not any(ord(c) < 32 or c in '\\:\x7f"' for c in path)
    return plain and len(parts) > 1 and parts[0] in _HOMES


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_target(root: Path, path: str) -> tuple[bytes, os.stat_result] | None:
    """Bytes and facts of a target, None where there is none. No link is followed on the way.

    Raises `errors.StateError`: `E_SYMLINK` for a link, `E_NOT_REGULAR` for anything else that is not a regular file.
    """
    check_parents(root, path)
    try:
        descriptor = os.open(root / path, os.O_RDONLY | state.NO_FOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        if (root / path).is_symlink():
            raise _not_a_file(path, "E_SYMLINK") from None
        if (root / path).is_file() or not os.path.lexists(root / path):
            raise
        raise _not_a_file(path, "E_NOT_REGULAR") from None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise _not_a_file(path, "E_NOT_REGULAR")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(), facts


def check_parents(root: Path, path: str) -> None:
    """Raises `errors.StateError` where a folder above a target is a link or no folder."""
    for parent in parents_of(path):
        if (root / parent).is_symlink():
            raise _not_a_file(parent, "E_SYMLINK")
        if (root / parent).exists() and not (root / parent).is_dir():
            raise _not_a_file(parent, "E_NOT_REGULAR")


def parents_of(path: str) -> list[str]:
    """The folders above a target, topmost first.

    >>> parents_of("data/nodes/note")
    ['data', 'data/nodes']
    """
    return [str(parent) for parent in reversed(PurePosixPath(path).parents)][1:]


def _not_a_file(path: str, code: str) -> errors.StateError:
    what = "a link, and links are not followed" if code == "E_SYMLINK" else "not a regular file, or not a folder"
    finding = errors.Finding(code, f"{path} is {what}.", path=path, remedy="Move it away.")
    return errors.StateError(finding.message, code=code, suggestion=f"Move {path} away.", findings=(finding,))


def read_image(stage: Path, journal: Journal, entry: JournalEntry, side: str) -> bytes:
    """The `old` or `new` bytes of an entry. Raises `errors.StateError` (`E_RECOVER`) where the stage no longer has them."""
    at = sum(e.old_size + e.new_size for e in journal.entries[: journal.entries.index(entry)])
    start, size, wanted = (at, entry.old_size, entry.old)
    if side == "new":
        start, size, wanted = (at + entry.old_size, entry.new_size, entry.new)
    try:
        with (stage / IMAGES).open("rb") as file:
            file.seek(start)
            data = file.read(size)
    except FileNotFoundError:
        data = b""
    if digest(data) != wanted:
        raise errors.StateError(
            f"The {side} content of {entry.path} is damaged in {state.FOLDER}/txn/{journal.id}.",
            code="E_RECOVER",
            suggestion=f"Restore {entry.path} from git, then `duckkb recover --show`.",
        )
    return data
