"""How merged parts come into the files and into git's index. The caller holds the exclusive lock."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from duckkb.review.merging.sides import Contents, Sides
from duckkb.truth.commit import journal, protocol
from duckkb.truth.git import git_changes
from duckkb.truth.git.revisions import TreeEntry


def on_disk(root: Path, path: str) -> bytes | None:
    """A part as it lies there; None where there is none. Raises `errors.StateError` for what is no regular file."""
    found = journal.read_target(root, path)
    return None if found is None else found[0]


def write(root: Path, parts: Mapping[str, bytes | None], before: Mapping[str, bytes | None]) -> None:
    """Replace files, all or none; `before` has what each is known to hold. Raises as `protocol.commit` does."""
    changes = [
        protocol.FileChange(path, None if (old := before[path]) is None else journal.digest(old), data)
        for path, data in sorted(parts.items())
        if data != before[path]
    ]
    if changes:
        protocol.commit(root, changes)


def stage(root: Path, parts: Mapping[str, bytes | None]) -> None:
    """Have the index hold files as they lie there, without conflict."""
    stored = git_changes.store_files(root, [path for path, data in sorted(parts.items()) if data is not None])
    git_changes.put_index(root, {path: {0: stored[path]} if path in stored else {} for path in parts})


def mark(root: Path, paths: Iterable[str], sides: Sides) -> None:
    """Have the index hold the three versions of paths in conflict, as git does."""
    wanted = {}
    for path in paths:
        blobs = {number: tree.get(path) for number, tree in enumerate(sides.trees, 1)}
        wanted[path] = {
            number: TreeEntry("100644", _kept(root, blob, sides.contents)) for number, blob in blobs.items() if blob
        }
    git_changes.put_index(root, wanted)


def _kept(root: Path, blob: str, contents: Contents) -> str:
    """A blob's id in the repository: the merge of several bases was made here and is not in it yet."""
    if not blob.startswith("made-"):
        return blob
    return git_changes.store_bytes(root, contents.of(blob) or b"")
