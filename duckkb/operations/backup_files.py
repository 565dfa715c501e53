"""Backups of a base, as one file.

Verification of a backup, and its restoration to a folder."""

import glob
import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from duckkb import atomic_write, config
from duckkb.documents.document import find_inner_file
from duckkb.engine.boot import refuse_tracked_state
from duckkb.operations.lifecycle import OpenOptions, Unopened
from duckkb.operations.maintenance import check
from duckkb.storage import backup, clone_state, path_guard
from duckkb.storage.backup import SUFFIX, Manifest
from duckkb.storage.document_parts import walk
from duckkb.storage.git_process import find_repository, read_text
from duckkb.store.cache_dirs import Place
from duckkb.types.errors import DuckkbError, StateError

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
    with path_guard.draft_file(file_path, root, env, force=force) as file:
        target = Path(os.path.realpath(file_path.parent), file_path.name)
        created_at = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        source = backup.BackupSource(root, folders, documents, target, created_at, lock_timeout, left_out)
        manifest = backup.save(source, file)
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
    if (clone_state.folder_of(root) / clone_state.VECTORS).exists():
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


def verify(path: "str | Path", unopened: Callable[[Path], Unopened]) -> dict[str, Any]:
    """Verify a backup. As `app.verify_backup`."""
    env = config.environment()
    file = path_guard.regular(path, _find_current_root(), env, "a backup")
    with backup.open_archive(file) as read, TemporaryDirectory(prefix="duckkb-verify-") as place:
        backup.rebuild(read, Path(place))
        root = Path(place, read.manifest.base).resolve()
        try:
            with unopened(root).open_base(OpenOptions(lenient=True)) as base:
                report = check(base)
        except DuckkbError as problem:
            raise backup.make_damage_error(f"its base does not load: {problem}") from problem
        finally:
            rmtree(Place.locate(config.read_environment(root).cache_home, root).own, ignore_errors=True)
        counts = {"records": report.records, "errors": report.errors, "warnings": report.warnings}
        return {"file": str(path)} | holds(read.manifest) | counts


def restore(
    path: "str | Path", folder: "str | Path | None" = None, *, force: bool = False, lock_timeout: float = 60.0
) -> dict[str, Any]:
    """Restore a backup. As `app.restore_backup`."""
    env = config.environment()
    target = _place(folder, force) if folder is not None else None
    file = path_guard.regular(path, _find_current_root(), env, "a backup")
    with backup.open_archive(file) as read:
        if target is None:
            if "/" in read.manifest.name or not backup.is_sound(read.manifest.name, ""):
                raise backup.make_damage_error("the name of its folder is not valid")
            target = _place(read.manifest.name, force)
        aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):{STAMP}}")
        if os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}-{os.urandom(4).hex()}")
        with backup.make_folder_beside(target) as new_folder:
            backup.rebuild(read, new_folder)
            has_previous = backup.put_in_place(new_folder, target, aside, target / read.manifest.base, lock_timeout)
        previous = (
            {"before": str(aside), "repair": _repair(aside)} if has_previous else {"before": None, "repair": None}
        )
        return {"folder": str(target), **previous} | holds(read.manifest)


def _repair(aside: Path) -> str | None:
    """Return the command that reconnects a moved repository with linked work trees; None if none is needed.

    It also serves a linked work tree that was itself moved.
    """
    repository = find_repository(aside)
    if repository is None or repository.work_tree != aside:
        return None
    places = sorted(repository.git_dir.glob("worktrees/*/gitdir"))
    trees = [tree for place in places if (tree := (place.parent / read_text(place)).parent).is_dir()]
    is_work_tree = repository.git_dir != repository.common_dir
    return (
        shlex.join(["git", "-C", *map(str, (aside, "worktree", "repair", *trees))]) if trees or is_work_tree else None
    )


def _place(folder: "str | Path", force: bool) -> Path:
    """Return the folder for a restored base; raises `errors.UsageError` (E_PATH)."""
    target = Path(os.path.realpath(path_guard.writable(folder, _find_current_root(), config.environment())))
    if not target.parent.is_dir() or target == target.parent:
        raise path_guard.refusal(folder, "has no folder around it", "make that first, or give another path")
    if os.path.lexists(target) and not target.is_dir():
        raise path_guard.refusal(folder, "is no folder", "give another path")
    if not force and target.is_dir() and any(target.iterdir()):
        raise path_guard.refusal(
            folder, "exists and is not empty", "--force keeps it under another name; or give another"
        )
    return target


def _find_current_root() -> Path:
    """Return the base around the caller, to which a sandbox is limited; the current folder without either."""
    try:
        return config.find_root(Path.cwd(), None, config.environment())
    except StateError:
        if config.environment().sandbox:
            raise
        return Path.cwd()
