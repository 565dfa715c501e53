"""Verification of a backup, and its restoration to a folder."""

import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from duckkb import config
from duckkb.actions.backup.create import STAMP, holds
from duckkb.actions.caring import check
from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.errors import DuckkbError, StateError
from duckkb.store.place import Place
from duckkb.truth.backup import archive, rebuild
from duckkb.truth.commit import outside
from duckkb.truth.git.run import find_repository, read_text


def verify(path: "str | Path", unopened: Callable[[Path], Unopened]) -> dict[str, Any]:
    """Verify a backup. As `app.verify_backup`."""
    env = config.environment()
    file = outside.regular(path, _find_current_root(), env, "a backup")
    with archive.open_archive(file) as read, TemporaryDirectory(prefix="duckkb-verify-") as place:
        rebuild.rebuild(read, Path(place))
        root = Path(place, read.manifest.base).resolve()
        try:
            with unopened(root).open_base(OpenOptions(lenient=True)) as base:
                report = check(base)
        except DuckkbError as problem:
            raise archive.make_damage_error(f"its base does not load: {problem}") from problem
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
    file = outside.regular(path, _find_current_root(), env, "a backup")
    with archive.open_archive(file) as read:
        if target is None:
            if "/" in read.manifest.name or not archive.is_sound(read.manifest.name, ""):
                raise archive.make_damage_error("the name of its folder is not valid")
            target = _place(read.manifest.name, force)
        aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):{STAMP}}")
        if os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}-{os.urandom(4).hex()}")
        with rebuild.make_folder_beside(target) as new_folder:
            rebuild.rebuild(read, new_folder)
            has_previous = rebuild.put_in_place(new_folder, target, aside, target / read.manifest.base, lock_timeout)
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
    target = Path(os.path.realpath(outside.writable(folder, _find_current_root(), config.environment())))
    if not target.parent.is_dir() or target == target.parent:
        raise outside.refusal(folder, "has no folder around it", "make that first, or give another path")
    if os.path.lexists(target) and not target.is_dir():
        raise outside.refusal(folder, "is no folder", "give another path")
    if not force and target.is_dir() and any(target.iterdir()):
        raise outside.refusal(folder, "exists and is not empty", "--force keeps it under another name; or give another")
    return target


def _find_current_root() -> Path:
    """Return the base around the caller, to which a sandbox is limited; the current folder without either."""
    try:
        return config.find_root(Path.cwd(), None, config.environment())
    except StateError:
        if config.environment().sandbox:
            raise
        return Path.cwd()
