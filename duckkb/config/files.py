"""Finds a knowledge base and the YAML files of its configuration; regular files only, no link is followed."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from duckkb.errors import Finding, StateError, UsageError
from duckkb.ontology.source import MAX_BYTES, Document, read_yaml
from duckkb.settings import Environment

CONFIG, FOLDER = "config.yaml", "ontology"
_SUFFIX = ".yaml"
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def find_root(start: Path, explicit: str | None, env: Environment) -> Path:
    """The folder of the knowledge base: the one named (`--kb`), else DUCKKB_KB, else the nearest one at or above
    `start` with a config.yaml. In a sandbox `--kb` may name DUCKKB_KB or a base inside it only. Raises
    `errors.StateError` (E_NO_KB), `errors.UsageError` (E_PATH)."""
    for named, by in ((explicit, "--kb"), (env.kb, "DUCKKB_KB")):
        if named == "":
            raise StateError(f"{by} is empty", "E_NO_KB", "name a folder, or `duckkb init` one")
        if named is not None:
            root = _named(start, named)
            if root is not None and _has_config(root):
                if by == "--kb" and env.sandbox and env.kb is not None:
                    _refuse_outside(root, _named(start, env.kb))
                return root
            raise StateError(
                f"{named} ({by}) is no knowledge base: it has no {CONFIG}", "E_NO_KB", f"duckkb init {named}"
            )
    folder = start.resolve()
    for candidate in (folder, *folder.parents):
        if _has_config(candidate):
            return candidate
    raise StateError(
        f"no knowledge base: no {CONFIG} in {folder} or above it",
        "E_NO_KB",
        "`duckkb init`, or name one with `--kb PATH`",
    )


def read_documents(root: Path, instead: Mapping[str, bytes | None]) -> tuple[Document, ...]:
    """config.yaml, then the files of ontology/ by name, with the bytes given `instead` of some (None: gone). What cannot be
    read is a document with a finding."""
    if not _has_config(root):
        raise StateError(f"{root} has no {CONFIG}", "E_NO_KB", f"duckkb init {root}")
    paths = [CONFIG, *_ontology_paths(root)]
    paths += sorted(path for path in instead if path not in paths)
    found = []
    for path in paths:
        data = instead.get(path)
        if data is not None:
            found.append(read_yaml(data, path))
        elif path not in instead:
            found.append(_read(root, path))
    return tuple(found)


def config_paths(root: Path) -> tuple[str, ...]:
    """The files that make a base's configuration, relative to it: config.yaml, then those of ontology/ by name."""
    return (CONFIG, *_ontology_paths(root))


def _refuse_outside(root: Path, allowed: Path | None) -> None:
    if allowed is None or not root.is_relative_to(allowed):
        raise UsageError(
            f"{root} lies outside the knowledge base that DUCKKB_KB names, and DUCKKB_SANDBOX is set",
            code="E_PATH",
            suggestion="leave --kb out",
        )


def _named(start: Path, name: str) -> Path | None:
    try:
        return (start / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        # No such user, a loop of links, a NUL.
        return None


def _has_config(folder: Path) -> bool:
    """Whether config.yaml stands here in any form; a link or a device is refused later, by name."""
    try:
        (folder / CONFIG).lstat()
    except (OSError, ValueError):
        return False
    return True


def _ontology_paths(root: Path) -> Iterator[str]:
    """Paths relative to the base, in the order of their names. Hidden files are editors' own and passed over."""
    try:
        kind = (root / FOLDER).lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        yield from _walk(root, FOLDER)
    else:
        yield FOLDER


def _walk(root: Path, folder: str) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries)
    except OSError:
        # Reading it as a file will say what is wrong with it.
        yield folder
        return
    for name, is_folder, is_link in found:
        path = f"{folder}/{name}"
        if name.startswith("."):
            continue
        if is_folder:
            yield from _walk(root, path)
        elif is_link or name.lower().endswith((_SUFFIX, ".yml")):
            yield path


def _read(root: Path, path: str) -> Document:
    try:
        with os.fdopen(os.open(root / path, _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _unread(path, "is not a regular file", "replace it by one, or remove it")
            if not path.endswith(_SUFFIX):
                return _unread(path, f"would not be read: files of the ontology end in {_SUFFIX}", "rename it")
            data = file.read(MAX_BYTES + 1)
        if not data.strip() and _was_cut_off(root, path):
            return _unread(path, "was cut off: nothing is in it, and HEAD has it whole", f"git checkout HEAD -- {path}")
        return read_yaml(data, path)
    except OSError as error:
        if (root / path).is_symlink():
            return _unread(path, "is a link, and links are not followed", "replace it by what it points to")
        return _unread(path, f"cannot be read: {error.strerror}", "mend its permissions")


def _was_cut_off(root: Path, path: str) -> bool:
    from duckkb.truth.files import emptied  # which asks git

    return emptied.is_held_at_head(root, path)


def _unread(path: str, message: str, remedy: str) -> Document:
    finding = Finding("E_YAML", message, path, remedy=remedy)
    return Document(path, findings=(finding,), broken=True)
