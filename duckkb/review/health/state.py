"""Checks of where the base lies and of what is local to this clone: file system, disk, lock, journal, `.duckkb/`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from duckkb.engine.index import repair
from duckkb.errors import Unavailable
from duckkb.review.health.check import Skipped, Surroundings, Verdict, error, ok, warning, worst
from duckkb.review.reports.markup import many
from duckkb.store.place import Place
from duckkb.truth import state
from duckkb.truth.commit import journal, lock, protocol

LEAST_BYTES = 100 * 1024 * 1024
LEAST_INODES = 1_000


def file_system(ground: Surroundings) -> Verdict:
    return worst(judged(ground.root, state.file_system(ground.root)), "a local one, where locks hold")


def judged(root: Path, kind: str) -> Iterator[Verdict]:
    """What is wrong with a base on a file system of this type, and with its folders' places."""
    if state.is_remote(kind):
        said = f"the base lies on {kind}, where a lock may not keep writers on other machines out"
        yield warning(said, "keep the base on a local disk, and share it with git")
    data, own = root / "data", state.folder_of(root)
    if data.is_dir() and own.is_dir() and data.stat().st_dev != own.stat().st_dev:
        said = "data/ and .duckkb/ lie on two file systems, between which no file can be moved in one step"
        yield error(said, "keep both on one file system")


def disk(ground: Surroundings) -> Verdict:
    free = shutil.disk_usage(ground.root).free
    facts = os.statvfs(ground.root) if hasattr(os, "statvfs") else None
    inodes = facts.f_favail if facts and facts.f_files else None  # some file systems do not count them
    return room(free, inodes)


def room(free: int, inodes: int | None) -> Verdict:
    """Judges bytes and inodes that are free; amounts are not said, so that two looks at one state say the same."""
    found = []
    if free < LEAST_BYTES:
        said = f"less than {LEAST_BYTES // 1024 // 1024} MB are free where the base lies"
        found.append(warning(said, "free space on this disk"))
    if inodes is not None and inodes < LEAST_INODES:
        said = f"fewer than {LEAST_INODES:,} files more fit where the base lies"
        found.append(warning(said, "remove files from this disk"))
    return worst(found, "enough room")


def writable(ground: Surroundings) -> Verdict:
    root = ground.root
    folders = [root, state.folder_of(root), state.folder_of(root) / state.TXN]
    folders += sorted(Path(folder) for folder, _, _ in os.walk(root / "data"))
    shut = [folder for folder in folders if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)]
    if not shut:
        return ok("the base can be written")
    named = "the base" if shut[0] == root else shut[0].relative_to(root).as_posix()
    said = f"{named} cannot be written, so the base is read without lock and local caches"
    return warning(said, "chmod -R u+w . , or work in a checkout that you own")


def lock_file(ground: Surroundings) -> Verdict:
    ground.need_state()
    if not os.path.lexists(state.folder_of(ground.root) / state.LOCK):
        return ok("nobody has needed it yet")
    try:
        with lock.glancing(ground.root):
            return ok("free")
    except Unavailable as problem:
        if problem.code != "E_LOCKED":
            return error(problem.message, f"rm -r {state.FOLDER}/lock")
        found = lock.holder(ground.root)
        who = (
            f"{found.command} (process {found.pid} on {found.host})"
            if found
            else "a process that does not say its name"
        )
        return warning(f"held by {who}", "wait until it is done, or end that process; the lock is released with it")


def unfinished(ground: Surroundings) -> Verdict:
    """The journal."""
    ground.need_state()
    try:
        with lock.glancing(ground.root):
            found = protocol.show(ground.root)
    except Unavailable:
        raise Skipped("a writer is at work") from None
    if found["state"] == "none":
        return ok("no interrupted write")
    if found["state"] == "staged":
        return warning("a write was interrupted before it was sealed; nothing of it counts", "duckkb recover")
    third = [file["path"] for file in found["files"] if file["standing"] == "third"]
    if third:
        said = f"an interrupted write cannot be finished: changed since by something else: {', '.join(third[:3])}"
        return error(said, "duckkb recover --show, then `duckkb recover --forward` or `--abort`")
    return error(f"a sealed write over {many(len(found['files']), 'file')} is not finished", "duckkb recover")


def local_state(ground: Surroundings) -> Verdict:
    """Everything in `.duckkb/` that `repair` looks after, but for the rows of the cache."""
    ground.need_state()
    folder = state.folder_of(ground.root)
    if not os.path.lexists(folder):
        return ok("nothing local yet")
    if not state.is_folder(folder):
        return error(f"{state.FOLDER} is a link or a file", f"rm {state.FOLDER}")
    if journal.sealed_stages(ground.root):
        raise Skipped("an interrupted write comes first: duckkb recover")
    ignore = folder / ".gitignore"
    if ignore.is_symlink() or (ignore.exists() and not ignore.is_file()):
        return error(f"{state.FOLDER}/.gitignore is no file of its own", f"rm -r {state.FOLDER}/.gitignore")
    if os.path.lexists(state.folder_of(ground.root) / state.TXN) and not state.is_folder(
        state.folder_of(ground.root) / state.TXN
    ):
        return error(f"{state.FOLDER}/txn is a link or a file, so nothing can be written", f"rm {state.FOLDER}/txn")
    leftovers = [
        need
        for need in repair.state_needs(Place.of(ground.env.cache_home, ground.root))
        if need.what != repair.UNSEALED
    ]
    said = [warning(f"{need.path}: {need.what}", "duckkb repair") for need in leftovers]
    return worst(said, "nothing left over")


def rescued(ground: Surroundings) -> Verdict:
    ground.need_state()
    home = state.folder_of(ground.root) / state.RESCUED
    files = [path for path in home.rglob("*") if path.is_file()] if state.is_folder(home) else []
    if not files:
        return ok("no files were kept aside")
    said = f"`duckkb recover` kept {many(len(files), 'file')} aside in {state.FOLDER}/rescued"
    return warning(said, f"take over what you need, then rm -r {state.FOLDER}/rescued")
