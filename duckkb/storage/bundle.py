"""Writes a repository as a stream (`git bundle`) with the state that a bundle omits, and restores it into an empty
folder.

Only history is restored: no configuration, no hook, no remote. Files are written byte for byte as the commit
has them: no filter and no attribute of the repository or of the user touches them.

Formats unified patches in git's form, for `git apply`. Standard library only."""

import difflib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from shutil import copyfile, disk_usage
from tempfile import TemporaryDirectory

from msgspec import Struct

from duckkb.storage import repository
from duckkb.storage.git_process import disable_filters, output, read_text, repository_of, stream_output, text
from duckkb.storage.revisions import TreeEntry
from duckkb.types.errors import Refused, StateError, Unavailable

_STASH = "refs/stash"
_AUTHOR = {"user.name": "duckkb", "user.email": "duckkb@localhost", "commit.gpgSign": "false"}
_RAW = "* -text -ident -filter !eol !working-tree-encoding\n"
_AS_IT_IS = {"core.symlinks": "true", "core.protectHFS": "true", "core.protectNTFS": "true"}
_NO_LOG = {"core.logAllRefUpdates": "false"}
_LEAST_TAKEN = 4_096
"""The least bytes that any file takes."""


class Checkout(Struct, frozen=True):
    """The checked-out state: the commit (empty before the first) and the branch (`refs/heads/NAME`; empty if HEAD
    is detached). `index` is a commit of the staged files, empty if that is HEAD's tree; `stashes` are commit
    and message, newest first; `symbolic` are refs and their targets; `shallow` the commits at which history
    ends.
    """

    commit: str
    branch: str
    index: str
    stashes: tuple[tuple[str, str], ...]
    symbolic: tuple[tuple[str, str], ...]
    shallow: tuple[str, ...]


def checkout_of(root: Path) -> Checkout:
    """Return the checked-out state. Raises `errors.Refused` during a merge or similar, which no bundle holds, and
    as `run.output` does.
    """
    under_way = repository.operation_in_progress(root)
    if under_way or output(root, ["ls-files", "-u"]):
        message = f"git is in the middle of a {under_way or 'merge'}, which a backup cannot contain"
        raise Refused(message, suggestion="finish or abort it, then repeat the backup")
    commit = repository.head_commit(root) or ""
    ref_lines = text(root, ["for-each-ref", "--format=%(symref) %(refname)"]).splitlines()
    symbolic = tuple((name, of) for of, _, name in (line.partition(" ") for line in ref_lines) if of)
    tip = text(root, ["rev-parse", "--quiet", "--verify", _STASH])
    log = output(root, ["log", "-g", "-z", "--format=%H %gs", _STASH, "--"]) if tip else b""
    lines = [line.partition(" ") for line in os.fsdecode(log).split("\0") if line]
    stashes = tuple((stash_id, message) for stash_id, _, message in lines) or (((tip, "stash"),) if tip else ())
    branch = text(root, ["symbolic-ref", "--quiet", "HEAD"])
    shallow = repository_of(root).common_dir / "shallow"
    ends = tuple(read_text(shallow).split())
    return Checkout(commit, branch, _commit_index(root, commit), stashes, symbolic, ends)


def _commit_index(root: Path, commit: str) -> str:
    """Write the index as a commit that no ref names; return an empty text if it is HEAD's tree."""
    index = repository_of(root).index
    with TemporaryDirectory(prefix="duckkb-index-") as folder:
        copy = Path(folder) / "index"  # git updates the index as it writes
        if index.exists():
            copyfile(index, copy)
        tree = output(root, ["write-tree"], index=copy).decode().strip()
    of_head = ["rev-parse", f"{commit}^{{tree}}"] if commit else ["hash-object", "-t", "tree", "--stdin"]
    if tree == output(root, of_head).decode().strip():
        return ""
    command = ["commit-tree", "--no-gpg-sign", "-m", "what was staged", tree]
    return output(root, command, settings=_AUTHOR).decode().strip()


def has_history(root: Path, checkout: Checkout) -> bool:
    """Return whether a bundle would hold anything."""
    return bool(checkout.commit or text(root, ["for-each-ref", "--count=1"]))


def list_tracked(root: Path, commit: str) -> tuple[dict[str, TreeEntry], set[str], set[str]]:
    """Return the files of a commit by their path from the top of the work tree, all paths of the index, and those
    paths that git was told to keep out of the work tree.
    """
    tree_lines = output(root, ["ls-tree", "-r", "-z", "--full-tree", commit]).split(b"\0") if commit else []
    entries = {}
    for line in filter(None, tree_lines):
        words, _, name = line.partition(b"\t")
        mode, _, blob = words.decode().split(" ")
        entries[os.fsdecode(name)] = TreeEntry(mode, blob)
    index_names = _split_names(output(root, ["ls-files", "-z", "-t"]))
    return entries, {name[2:] for name in index_names}, {name[2:] for name in index_names if name[0] == "S"}


def list_untracked(root: Path, places: list[str], *, ignored: bool = False) -> set[str]:
    """List the files below some places that the index does not have, without ignored files unless `ignored`. A
    folder with a repository of its own is a single name that ends with `/`.
    """
    command = ["ls-files", "-z", "--others", *([] if ignored else ["--exclude-standard"]), "--", *places]
    return _split_names(output(root, command))


def _split_names(data: bytes) -> set[str]:
    return {os.fsdecode(name) for name in data.split(b"\0") if name}


def bundle_history(root: Path, checkout: Checkout) -> Iterator[bytes]:
    """Yield all branches, tags, stashes and staged files as `git bundle` writes them. Raises `errors.Unavailable`
    (E_GIT).
    """
    # Commits without a ref are added as objects. HEADs of other work trees are not refs of this one.
    extra = [
        object_id
        for object_id in (checkout.commit, checkout.index, *(stash for stash, _ in checkout.stashes))
        if object_id
    ]
    return stream_output(root, ["bundle", "create", "-q", "-", "--single-worktree", "--all", *extra])


def _run_git(root: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> bytes:
    """Run git without a time limit and return its whole output."""
    return b"".join(stream_output(root, arguments, settings))


def unbundle(folder: Path, checkout: Checkout, bundle: Iterable[bytes] | None) -> None:
    """Restore a repository into an empty folder from the output of `bundle_history`, with the files of its commit.

    Raises `errors.StateError` (E_BACKUP) for an invalid ref or a different HEAD, `errors.Unavailable` (E_GIT)
    if git rejects the bundle.
    """
    _make_empty(folder, checkout)
    ref_list = os.fsdecode(_unpack_bundle(folder, bundle)) if bundle is not None else ""
    refs = {name: commit for commit, _, name in (line.partition(" ") for line in ref_list.splitlines())}
    strange = sorted(name for name in refs if name != "HEAD" and not name.startswith("refs/"))
    aliases = {name for pair in checkout.symbolic for name in pair}
    if strange or not aliases <= refs.keys() or refs.get("HEAD", "") != checkout.commit:
        message = (
            f"its bundle has the ref {strange[0]}" if strange else "the refs of its bundle differ from its manifest"
        )
        raise StateError(message, code="E_BACKUP")
    ref_commands = [f"create {name}\0{commit}\0" for name, commit in refs.items() if name not in ("HEAD", _STASH)]
    output(folder, ["update-ref", "-z", "--stdin"], stdin=os.fsencode("".join(ref_commands)), settings=_NO_LOG)
    for stash, message in reversed(checkout.stashes):
        output(folder, ["stash", "store", "-q", "-m", message, stash])
    for name, of in checkout.symbolic:
        output(folder, ["symbolic-ref", name, of], settings=_NO_LOG)
    if checkout.branch:
        output(folder, ["check-ref-format", checkout.branch])
        output(folder, ["symbolic-ref", "HEAD", checkout.branch], settings=_NO_LOG)
    elif checkout.commit:
        output(folder, ["update-ref", "--no-deref", "HEAD", checkout.commit], settings=_NO_LOG)
    if checkout.commit:
        _check_out(folder, checkout.commit)


def _unpack_bundle(folder: Path, bundle: Iterable[bytes]) -> bytes:
    """Import the objects of a bundle and return its refs, a commit and a name a line."""
    bundle_path = folder / ".git/bundle"
    with bundle_path.open("xb") as file:
        file.writelines(bundle)
    ref_list = _run_git(folder, "bundle", "unbundle", str(bundle_path))
    bundle_path.unlink()
    return ref_list


def _make_empty(folder: Path, checkout: Checkout) -> None:
    """Create by hand the files that git needs to recognise a repository, because `run` asks git only inside a
    repository.
    """
    for name in (".git/objects", ".git/refs", ".git/info"):
        (folder / name).mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n", "utf-8")
    if len(checkout.commit) > 40:
        (folder / ".git/config").write_text(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n", "utf-8"
        )
    if checkout.shallow:
        (folder / ".git/shallow").write_text("".join(f"{commit_id}\n" for commit_id in checkout.shallow), "utf-8")
    output(folder, ["init", "-q", "--template="])


def _check_out(folder: Path, commit: str) -> None:
    if output(folder, ["rev-parse", "HEAD"]).decode().strip() != commit:
        raise StateError("its branch is at another commit than in its manifest", code="E_BACKUP")
    _run_git(folder, "fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    _refuse_vast(folder, commit)
    attributes = folder / ".git/info/attributes"
    attributes.write_text(_RAW, "utf-8")  # overrides the attributes in the tree
    _run_git(folder, "read-tree", "--reset", "-u", commit, settings=_AS_IT_IS)
    attributes.unlink()


def _refuse_vast(folder: Path, commit: str) -> None:
    """Raise `errors.Unavailable` (E_IO) if the files of a commit need more room than there is: a few bytes of
    history can expand to any number of them.
    """
    free_bytes, tail = disk_usage(folder).free, b""
    for piece in stream_output(folder, ["ls-tree", "-r", "-l", "-z", commit]):
        *lines, tail = (tail + piece).split(b"\0")
        for line in lines:
            size = line.split(maxsplit=4)[3]
            free_bytes -= _LEAST_TAKEN + (int(size) if size.isdigit() else 0)
        if free_bytes < 0:
            raise Unavailable("its files take more room than the disk has", "E_IO", "give a folder on a larger disk")


def stage(folder: Path, checkout: Checkout) -> None:
    """Restore the staged state of the index and refresh it for the present files."""
    # A fresh index: git takes a file for changed if its size in the index differs, whatever a filter makes of it.
    _run_git(folder, "read-tree", checkout.index or checkout.commit)
    with suppress(Unavailable):  # its exit code also reports changed files
        _run_git(folder, "update-index", "-q", "--refresh", settings=_AS_IT_IS | disable_filters(folder))


Change = tuple[str, bytes | None, bytes | None]
"""A path, and its old and new content (None: no such file)."""

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_ABSENT = "0" * 7
# The lines of context, each a record: the fewest that `git apply` accepts.
_CONTEXT = 1
# git detects binary files by a NUL in so many bytes.
_BINARY_PROBE = 8000


def format_patch(changes: Iterable[Change]) -> str:
    """Return the patch from old to new contents, in the order of paths, as `git diff -U1 --no-renames` shows it.
    For repeated lines git may cut the hunks differently. Bytes that are not UTF-8 show as U+FFFD.
    """
    lines = (line for path, old, new in sorted(changes) for line in _render_file(path, old, new))
    return "".join(line.decode(errors="replace") for line in lines)


def quote_path(path: str) -> str:
    r"""Return a path as git writes it: in quotes, with octal escapes, if it has anything but printable ASCII.

    >>> quote_path("data/笔"), quote_path("data/note")
    ('"data/\\347\\254\\224"', 'data/note')
    """
    body = "".join(_quote_byte(byte) for byte in path.encode(errors="surrogateescape"))
    return path if body == path else f'"{body}"'


def _quote_byte(byte: int) -> str:
    if byte in _ESCAPES:
        return "\\" + _ESCAPES[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def _render_file(path: str, old: bytes | None, new: bytes | None) -> Iterator[bytes]:
    if old == new:
        return
    source, target = quote_path(f"a/{path}"), quote_path(f"b/{path}")
    yield f"diff --git {source} {target}\n".encode()
    mode = " 100644"
    if old is None:
        source, mode = "/dev/null", ""
        yield b"new file mode 100644\n"
    if new is None:
        target, mode = "/dev/null", ""
        yield b"deleted file mode 100644\n"
    yield f"index {_hash_blob(old)}..{_hash_blob(new)}{mode}\n".encode()
    before, after = old or b"", new or b""
    if b"\0" in before[:_BINARY_PROBE] + after[:_BINARY_PROBE]:
        yield f"Binary files {source} and {target} differ\n".encode()
    elif before or after:
        yield f"--- {_end_name(source)}\n+++ {_end_name(target)}\n".encode()
        yield from _iter_hunks(_split_lines(before), _split_lines(after))


def _end_name(name: str) -> str:
    """End a name that has a space with a tab, as git does, so that other programs see where it ends."""
    return f"{name}\t" if " " in name else name


def _hash_blob(data: bytes | None) -> str:
    """Return the start of git's id for the content."""
    if data is None:
        return _ABSENT
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:7]


def _split_lines(data: bytes) -> list[bytes]:
    """Split at LF only and keep it; `bytes.splitlines` would split at CR too."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


def _iter_hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for line in islice(
        difflib.diff_bytes(difflib.unified_diff, old, new, n=_CONTEXT), 2, None
    ):  # two lines name the files
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
