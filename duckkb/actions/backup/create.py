"""Backups of a base, as one file."""

import glob
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb import atomic_write, config
from duckkb.documents.source import find_inner_file
from duckkb.engine.boot import refuse_tracked_state
from duckkb.errors import DuckkbError
from duckkb.truth import state
from duckkb.truth.backup import gather
from duckkb.truth.backup.archive import Manifest
from duckkb.truth.backup.gather import SUFFIX
from duckkb.truth.commit import outside
from duckkb.truth.files.document_parts import walk
from duckkb.truth.git.run import find_repository

STAMP = "%Y%m%dT%H%M%SZ"


def create(
    root: Path, path: "str | Path | None" = None, *, force: bool = False, lock_timeout: float = 60.0
) -> dict[str, Any]:
    """Save a base in one file, by default `NAME-TIME.duckkb.zip` in `default_folder`; return a report.

    The file has the history, and the files that the commit does not have, documents included. An existing file
    is overwritten with `force`. The report says what is `left_out`, and why.

    Raises `errors.UsageError` (E_PATH), `errors.Refused` in the middle of a merge, `errors.Conflict` (E_STALE)
    where files change meanwhile, `errors.Unavailable` (E_LOCKED, E_GIT, E_IO), `errors.StateError` (E_RECOVER,
    E_TRACKED_STATE).
    """
    refuse_tracked_state(root)
    env, now = config.read_environment(root), datetime.now(UTC)
    file_path = Path(path or default_folder(root) / f"{root.resolve().name}-{now:{STAMP}}{SUFFIX}")
    folders, documents, left_out = _list_documents(root)
    with outside.draft_file(file_path, root, env, force=force) as file:
        target = Path(os.path.realpath(file_path.parent), file_path.name)
        created_at = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        source = gather.BackupSource(root, folders, documents, target, created_at, lock_timeout, left_out)
        manifest = gather.save(source, file)
    atomic_write.fsync_folder(target.parent)
    return {"file": str(file_path), "bytes": file_path.stat().st_size} | holds(manifest)


def default_folder(root: Path) -> Path:
    """Return the default folder of backups: the current folder, or the parent of the repository when inside it.

    A backup inside the repository (or the base, without one) would be a new file of what it saves. A parent
    that this user cannot write to is not used.
    """
    repository, here = find_repository(root), Path.cwd().resolve()
    top = (repository.work_tree if repository else root).resolve()
    if config.read_environment(root).sandbox or not here.is_relative_to(top) or not os.access(top.parent, os.W_OK):
        return Path()
    return Path(os.path.relpath(top.parent, here))


def find_newest_backup(root: Path) -> Path | None:
    """Return the newest backup of a base in its default folder or in the current folder; None without one."""
    folders = {default_folder(root), Path()}
    backups = [file for folder in folders for file in folder.glob(f"{glob.escape(root.resolve().name)}-*{SUFFIX}")]
    return max(backups, key=lambda file: file.name, default=None)


def _list_documents(root: Path) -> tuple[tuple[Path, ...], tuple[Path, ...], tuple[str, ...]]:
    """Return the folders of document collections, their documents, and what no backup has.

    The last are parts of collections and of this machine's state, in words.
    """
    folders, documents, left_out = list[Path](), list[Path](), list[str]()
    try:
        kinds = [kind for kind in config.load(root, config.read_environment(root)).ontology if kind.kind == "node"]
    except DuckkbError as problem:
        kinds = []
        left_out.append(f"documents that git ignores or that are outside the base: {problem.message}")
    repository = find_repository(root)
    top = repository.work_tree if repository else root.resolve()
    for kind in kinds:
        if kind.source is None:
            continue
        folders.append((root / kind.source.path).resolve())
        for entry in walk(root, replace(kind.source, hidden=True, gitignore=False)):  # rather too much than too little
            if isinstance(entry, tuple):
                documents.append(folders[-1] / (find_inner_file(kind.source, entry[0]) or entry[0]))
            elif entry.is_error:
                left_out.append(f"{entry.path}: {entry.message}")
        if not folders[-1].is_relative_to(top):
            left_out.append(f"{kind.source.path}: the folder of the collection {kind.name}, outside")
        elif kind.source.is_outside:
            left_out.append(
                f"collection {kind.name}: only this machine knows it; `duckkb collection add` adds it again"
            )
    if (state.folder_of(root) / state.VECTORS).exists():
        left_out.append("the base of the vector actions; `duckkb vector set-database` sets it again")
    return tuple(folders), tuple(documents), tuple(left_out)


def holds(manifest: Manifest) -> dict[str, Any]:
    """Summarize a manifest."""
    git = manifest.checkout
    return {
        "base": manifest.base,
        "created": manifest.created,
        "commit": git.commit or None if git else None,
        "branch": git.branch.removeprefix("refs/heads/") or None if git else None,
        "files": len(manifest.files),
        "deleted": len(manifest.deleted),
        "left_out": list(manifest.left_out),
    }
