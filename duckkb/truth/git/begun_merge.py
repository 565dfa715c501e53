"""Notes in local state that git has begun a merge for duckkb, until git returns. If the process dies in between,
git leaves files half merged, with conflict markers and without MERGE_HEAD. `undo` restores such files to HEAD.
"""

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from duckkb import atomic_write
from duckkb.errors import Refused, StateError
from duckkb.truth import state
from duckkb.truth.git import repository
from duckkb.truth.git.run import disable_filters, output, repository_of, text

_NOTE = "merge"
WHAT = "a merge was interrupted, and its files were left halfway"
REMEDY = "duckkb recover"


class BegunMerge(Struct, frozen=True):
    """The commits to merge, and the files that were changed already (from the top of the work tree)."""

    head: str
    theirs: str
    changed: frozenset[str]


@contextmanager
def note_merge(root: Path, theirs: str) -> Iterator[None]:
    """Keep the note while git merges a commit into HEAD."""
    changed_paths = sorted(_list_changed_files(root))
    fields = {"head": repository.head_commit(root) or "", "theirs": theirs, "changed": changed_paths}
    state.write_atomic(state.ensure(root) / _NOTE, json.dumps(fields).encode())
    try:
        yield
    except Refused:  # git did not begin
        _forget(root)
        raise
    _forget(root)


def read_begun_merge(root: Path) -> BegunMerge | None:
    """Return the interrupted merge. None if git ended it: HEAD has moved, or MERGE_HEAD allows to conclude it."""
    try:
        fields = json.loads((state.folder_of(root) / _NOTE).read_text("utf-8"))
        merge = BegunMerge(fields["head"], fields["theirs"], frozenset(fields["changed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_over = repository.operation_in_progress(root) or repository.head_commit(root) != merge.head
    return None if is_over else merge


def refuse_begun_merge(root: Path) -> None:
    """Raise `errors.Refused` (E_MERGE_IN_PROGRESS) if a merge was interrupted: its files are in no valid state."""
    if read_begun_merge(root) is not None:
        raise Refused(WHAT, code="E_MERGE_IN_PROGRESS", suggestion=REMEDY)


def undo(root: Path) -> tuple[str, ...]:
    """Restore the files of an interrupted merge to HEAD; return them, from the top of the work tree. Content of
    neither commit is copied to `.duckkb/rescued/` first. Raises `errors.StateError` (E_RECOVER) while git's
    index is locked.
    """
    merge = read_begun_merge(root)
    if merge is None:
        _forget(root)
        return ()
    repo = repository_of(root)
    lock = repo.git_dir / "index.lock"
    if lock.exists():
        raise StateError(
            f"{WHAT}; {lock} exists, so git may still be running",
            code="E_RECOVER",
            suggestion=f"once no git runs here: rm {shlex.quote(str(lock))} && {REMEDY}",
        )
    at_head, at_theirs = (_list_blobs(root, commit) for commit in (merge.head, merge.theirs))
    merge_paths = {path for path in {*at_head, *at_theirs} if at_head.get(path) != at_theirs.get(path)}
    paths = sorted((merge_paths & {*_list_changed_files(root), *(merge_paths - at_head.keys())}) - merge.changed)
    from duckkb.truth.git import revisions  # slow to import, and each write calls this module

    contents = revisions.blobs(root, {tree[path] for tree in (at_head, at_theirs) for path in paths if path in tree})
    for path in paths:
        _save_copy(root, repo.work_tree / path, {contents[tree[path]] for tree in (at_head, at_theirs) if path in tree})
    pathspecs = "".join(f"{path}\0" for path in paths if path in at_head)
    removed_paths = [path for path in paths if path not in at_head]
    if pathspecs:
        from_file = ["--pathspec-from-file=-", "--pathspec-file-nul"]
        output(
            root, ["checkout", "-q", "HEAD", *from_file], stdin=os.fsencode(pathspecs), settings=disable_filters(root)
        )
    output(
        root,
        ["update-index", "-z", "--force-remove", "--stdin"],
        stdin=os.fsencode("".join(f"{p}\0" for p in removed_paths)),
    )
    for path in removed_paths:
        (repo.work_tree / path).unlink(missing_ok=True)
    _forget(root)
    return tuple(paths)


def _forget(root: Path) -> None:
    with contextlib.suppress(OSError):
        (state.folder_of(root) / _NOTE).unlink()


def _list_changed_files(root: Path) -> set[str]:
    if not text(root, ["rev-parse", "--verify", "--quiet", "HEAD"]):
        return set()
    # Not `diff-index`, which counts a merely touched file as changed.
    command = ["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "HEAD", "--"]
    raw_names = output(root, command, settings=disable_filters(root))
    return {os.fsdecode(name) for name in raw_names.split(b"\0") if name}


def _list_blobs(root: Path, commit: str) -> Mapping[str, str]:
    """List the blobs of a commit by path from the top of the work tree."""
    lines = output(root, ["ls-tree", "-r", "-z", "--full-tree", commit]).split(b"\0")
    pairs = (line.partition(b"\t") for line in lines if line)
    return {os.fsdecode(name): words.decode().split(" ")[2] for words, _, name in pairs if b" blob " in words}


def _save_copy(root: Path, file: Path, known_contents: set[bytes]) -> None:
    if file.is_symlink() or not file.is_file() or (data := file.read_bytes()) in known_contents:
        return
    folder = state.ensure(root) / state.RESCUED
    folder.mkdir(exist_ok=True)
    number = sum(1 for _ in folder.iterdir())
    atomic_write.write_new(folder / f"merge-{number}-{file.name}", data)
