"""Changes a repository through git, when a verb's name says so: merges, the index, local settings. Commits on a
branch that is not checked out through git's plumbing: working tree, index and HEAD stay as they are.

As everywhere git runs hardened: no hook, filter or merge driver of the repository, no editor, no signing
program. Other files than parts are merged as lines, as git does without drivers.

The last line of a commit message on such a branch is a mark: a digest over its maker (a clone's id), the
branch, its parent and its tree. The mark distinguishes such a branch from branches that somebody else has made,
extended, rewritten or amended, even after pushes and fetches.

Notes in local state that git has begun a merge for duckkb, until git returns. If the process dies in between,
git leaves files half merged, with conflict markers and without MERGE_HEAD. `undo` restores such files to HEAD."""

import contextlib
import json
import os
import re
import shlex
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import uniform
from tempfile import TemporaryDirectory

from msgspec import Struct

from duckkb import atomic_write
from duckkb.storage import clone_state, repository
from duckkb.storage.git_process import GitAnswer, answer, disable_filters, output, repository_of, setting_names, text
from duckkb.storage.revisions import Revision, TreeEntry, iter_listed_words, prefix, revision
from duckkb.types.errors import Conflict, Refused, StateError, Unavailable, UsageError, shell_word

_NO_LOCK, _WAIT_S = 255, 30.0
"""The exit code of `git config` if another process holds the file's lock (CONFIG_NO_LOCK in its config.c), and the
seconds to wait.
"""

PARTS = ("data/nodes", "data/edges")
STYLES: tuple[tuple[str, ...], ...] = ((), ("--diff3",), ("--zdiff3",))
"""The styles in which git may show conflicts."""
_ZERO = "0" * 40
_PICKED = re.compile(r"^\(cherry picked from commit ([0-9a-f]{40,64})\)$", re.MULTILINE)
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\.$", re.MULTILINE)
_OWN = {
    "commit.gpgSign": "false",
    "core.editor": "true",
    "core.fsync": "all",
    "core.symlinks": "true",
    "merge.autoStash": "false",
    "merge.directoryRenames": "false",
    "merge.renames": "true",
    "merge.verifySignatures": "false",
    "rerere.enabled": "false",
}
_DURABLE = {"core.fsync": "all"}
_COMMIT = _DURABLE | {"i18n.commitEncoding": "UTF-8"}
_FILE = "100644"
MARK = "Duckkb-Proposal: "


class Index(Struct, frozen=True):
    """The index under `data/`: the entries of parts by path, conflicting entries by stage (1 base, 2 ours, 3
    theirs), the paths whose conflict was resolved, and other conflicting paths.
    """

    merged: Mapping[str, TreeEntry]
    unmerged: Mapping[str, Mapping[int, TreeEntry]]
    resolved: frozenset[str]
    others: tuple[str, ...]


def read_index(root: Path) -> Index:
    """Read the entries of parts from the index."""
    clean_entries: dict[str, TreeEntry] = {}
    conflict_entries: dict[str, dict[int, TreeEntry]] = {}
    places = _list_places(root)
    for mode, blob, stage, path in iter_listed_words(root, output(root, ["ls-files", "-s", "-z", "--", *places])):
        if stage == "0":
            clean_entries[path] = TreeEntry(mode, blob)
        else:
            conflict_entries.setdefault(path, {})[int(stage)] = TreeEntry(mode, blob)
    resolved_entries = iter_listed_words(root, output(root, ["ls-files", "--resolve-undo", "-z", "--", *places]))
    everywhere = output(root, ["ls-files", "-u", "-z"]).split(b"\0")
    other_conflicts = {os.fsdecode(line.partition(b"\t")[2]) for line in everywhere if line} - {
        prefix(root) + path for path in conflict_entries
    }
    return Index(
        clean_entries,
        conflict_entries,
        frozenset(path for *_, path in resolved_entries),
        tuple(sorted(other_conflicts)),
    )


def put_index(root: Path, entries: Mapping[str, Mapping[int, TreeEntry]]) -> None:
    """Set the index entries of paths by stage: only 0 for a path without conflict, none for a deleted path."""
    if not entries:
        return
    folder = prefix(root)
    lines = []
    for path, stages in sorted(entries.items()):
        lines.append(f"0 {_ZERO} 0\t{folder}{path}\0")
        lines += [f"{entry.mode} {entry.blob} {stage}\t{folder}{path}\0" for stage, entry in sorted(stages.items())]
    # When git writes its index, it compares files as young as the index with its entries, through their filters.
    stdin = "".join(lines).encode()
    output(root, ["update-index", "-z", "--index-info"], stdin=stdin, settings=disable_filters(root))


def refresh(root: Path) -> None:
    """Refresh the index's file status, so that unchanged files do not look changed."""
    answer(root, ["update-index", "-q", "--refresh"], settings=disable_filters(root))


def store_files(root: Path, paths: Sequence[str]) -> dict[str, TreeEntry]:
    """Store files as blobs of the repository and return their entries."""
    if not paths:
        return {}
    names = "".join(f"{prefix(root)}{path}\n" for path in paths).encode()
    blobs = output(root, ["hash-object", "-w", "--no-filters", "--stdin-paths"], stdin=names).decode().split()
    return {path: TreeEntry("100644", blob) for path, blob in zip(paths, blobs, strict=True)}


def store_bytes(root: Path, data: bytes) -> str:
    """Store bytes as a blob of the repository and return its id."""
    return output(root, ["hash-object", "-w", "--no-filters", "--stdin"], stdin=data).decode().strip()


def merge_bases(root: Path, one: str, *others: str) -> list[str]:
    """Return the best common ancestors of a commit and the merge of others, oldest first; empty if there is none."""
    result = answer(root, ["merge-base", "--all", one, *others])
    return result.output.decode().split()[::-1] if result.code == 0 else []


def parents(root: Path, commit: str) -> list[str]:
    """Return the available parents of a commit, in order; empty if the commit is not available."""
    result = answer(root, ["rev-list", "--parents", "-n", "1", "--end-of-options", commit])
    return result.output.decode().split()[1:] if result.code == 0 else []


def is_root(root: Path, commit: str) -> bool:
    """Return whether a commit is available and has no parents at all, rather than missing parents."""
    result = answer(root, ["cat-file", "commit", commit])
    return result.code == 0 and b"\nparent " not in result.output.partition(b"\n\n")[0]


def find_carried_change(root: Path, commit: str) -> tuple[str, str] | None:
    """Return the two commits whose difference a commit says it carries over: a pick (`cherry-pick -x`) or a
    revert. Returns None for another commit, and if the change is not available.
    """
    message = answer(root, ["cat-file", "commit", commit]).output.decode(errors="replace").partition("\n\n")[2]
    picks, reverts = _PICKED.findall(message), _REVERTED.findall(message)
    if not picks and len(reverts) != 1:
        return None
    source = picks[-1] if picks else reverts[0]
    before = parents(root, source)
    if len(before) != 1:
        return None
    return (before[0], source) if picks else (source, before[0])


def find_changes_on_branches(root: Path, paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return those of these files that another branch has changed since it left HEAD's history: path and branch."""
    paths_by_place = {prefix(root) + path: path for path in paths}
    matches = []
    names = output(root, ["for-each-ref", "--format=%(refname)", "--no-merged=HEAD", "refs/heads", "refs/remotes"])
    for name in names.decode().split():
        command = ["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", f"HEAD...{name}"]
        raw_names = output(root, [*command, "--", *_list_places(root)])
        matches += [
            (paths_by_place[path], name)
            for each in raw_names.split(b"\0")
            if (path := os.fsdecode(each)) in paths_by_place
        ]
    return matches


def fast_forward(root: Path, commit: str) -> None:
    """Move the checked-out branch and its files to a descendant commit; raises `errors.Refused` if that would
    overwrite uncommitted content, ignored files included.
    """
    _merge(root, ["--ff-only", "--no-overwrite-ignore", "--end-of-options", commit], {0})


def begin_merge(root: Path, name: str, message: str | None) -> None:
    """Merge as git does and stop before committing: MERGE_HEAD is set, the index holds the conflicts. Raises
    `errors.Refused` if git does not begin.
    """
    message_options = ["-m", message] if message is not None else []
    _merge(root, ["--no-ff", "--no-commit", *message_options, "--end-of-options", name], {0, 1})
    if not (repository_of(root).git_dir / "MERGE_HEAD").exists():
        raise Refused(f"git did not begin to merge {name}", suggestion="git status")


def conclude(root: Path, message: str | None) -> None:
    """Commit the merge with the message that it was given, or git's own."""
    message_options = ["-m", message] if message is not None else ["--no-edit", "--cleanup=strip"]
    result = _change(root, ["commit", "-q", "--no-verify", "--no-gpg-sign", *message_options])
    if result.code:
        raise result.failure("commit", "git commit")


def abort_merge(root: Path) -> None:
    """Restore files and index to the state before the merge."""
    result = _change(root, ["merge", "--abort"])
    if result.code:
        raise result.failure("merge --abort", "git status")


def merge_lines(
    base: bytes, ours: bytes, theirs: bytes, root: Path, style: Sequence[str] = ("--diff3",)
) -> tuple[bytes, bool]:
    """Merge three files by lines; return the result and whether it is clean."""
    with TemporaryDirectory(prefix="duckkb-merge-") as folder:
        names = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for name, data in zip(names, (ours, base, theirs), strict=True):
            name.write_bytes(data)
        labels = ["-L", "ours", "-L", "base", "-L", "theirs"]
        result = answer(root, ["merge-file", "-p", *style, *labels, *map(str, names)])
    if result.code == 129 and style:  # an older git does not support the style
        return b"", False
    if result.code < 0 or result.code > 127:
        raise result.failure("merge-file", "git status")
    return result.output, result.code == 0


def settings(root: Path, names: Iterable[str]) -> dict[str, str | None]:
    """Return the values of this repository's own settings; None for a setting that is not set."""
    values: dict[str, str | None] = {}
    for name in names:
        result = answer(root, ["config", "--local", "--get", name])
        values[name] = result.output.decode().removesuffix("\n") if result.code == 0 else None
    return values


def set_setting(root: Path, name: str, value: str | None) -> None:
    """Set a setting of this repository; None removes it. Waits for other processes that change the file, because
    git does not.
    """
    arguments = ["--replace-all", name, value] if value is not None else ["--unset-all", name]
    until, file = time.monotonic() + _WAIT_S, repository_of(root).common_dir / "config"
    result = answer(root, ["config", "--local", *arguments])
    while result.code == _NO_LOCK and os.access(file.parent, os.W_OK) and time.monotonic() < until:
        time.sleep(uniform(0.01, 0.05))
        result = answer(root, ["config", "--local", *arguments])
    if result.code == _NO_LOCK and (lock_path := file.with_name("config.lock")).exists():
        message = (
            f"{lock_path} was there for {_WAIT_S:g} s: another git changes the settings, or one was killed while it did"
        )
        raise Unavailable(message, "E_LOCKED", f"wait for it; where none runs, rm {shell_word(str(lock_path))}")
    if result.code not in (0, 5):
        raise result.failure("config", "git config --local --list")


def _merge(root: Path, arguments: Sequence[str], allowed_codes: set[int]) -> None:
    result = _change(root, ["merge", "-q", "--no-stat", "--no-gpg-sign", *arguments])
    if result.code not in allowed_codes:
        raise Refused(f"git refused to merge: {result.reason}", suggestion="git status")


def _change(root: Path, arguments: Sequence[str]) -> GitAnswer:
    # A merge by lines replaces each merge driver that the repository names.
    by_lines = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"
    drivers = dict.fromkeys(setting_names(root, r"^merge\..*\.driver$"), by_lines)
    return answer(root, arguments, settings=_OWN | disable_filters(root) | drivers)


def _list_places(root: Path) -> list[str]:
    return [prefix(root) + place for place in PARTS]


class Branch(Struct, frozen=True):
    """A branch by its name, and its commit, None if it does not exist yet."""

    name: str
    tip: Revision | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"


def branch(root: Path, name: str) -> Branch:
    """Return a branch that may be written; raises `errors.UsageError` for an invalid name. Raises `errors.Refused`
    for a branch that is checked out, here or in another work tree, or whose name conflicts with another branch.
    """
    if name in ("", "HEAD") or text(root, ["check-ref-format", "--branch", name]) != name:
        raise UsageError(f"{name!r} cannot name a branch", suggestion="leave --branch out, and one is made up")
    ref = f"refs/heads/{name}"
    usage = text(root, ["for-each-ref", "--format=%(worktreepath)%(HEAD)", ref])
    here = text(root, ["symbolic-ref", "--quiet", "HEAD"])
    if usage.strip() or here == ref:
        raise Refused(
            f"branch {name} is checked out, and its files would not follow",
            suggestion="propose on another branch: --branch NAME",
        )
    _refuse_in_the_way(root, name)
    return Branch(name, _find_revision(root, ref))


def _refuse_in_the_way(root: Path, name: str) -> None:
    """Raise if another branch blocks the name. Git stores branches as files and folders: `a` excludes `a/b` and
    the reverse, and without case in file names, `A` is `a`.
    """
    for sibling in text(root, ["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]).splitlines():
        if sibling.startswith(f"{name}/") or name.startswith(f"{sibling}/"):
            message = f"the branch {sibling} exists, so git cannot have a branch {name}"
        elif sibling != name and _fold_name(sibling) == _fold_name(name):
            message = f"the branch {sibling} exists, which differs from {name} only in case"
        else:
            continue
        raise Refused(message, suggestion="propose on another branch: --branch NAME")


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def find_pushed_revision(root: Path, remote: str, name: str) -> Revision | None:
    """Return a branch's revision at a remote as of the last fetch or push; None if there is none."""
    return _find_revision(root, f"refs/remotes/{remote}/{name}")


def _find_revision(root: Path, ref: str) -> Revision | None:
    commit_id = text(root, ["rev-parse", "--quiet", "--verify", "--end-of-options", ref])
    return revision(root, ref) if commit_id else None


def is_made_by(root: Path, writer: str, name: str, tip: Revision) -> bool:
    """Return whether `commit` made the present tip of a branch for this writer."""
    commit_text = text(root, ["log", "-1", "--format=%P%n%B", tip.commit, "--"])
    parent, _, message = commit_text.partition("\n")
    return message.rstrip("\n").rpartition("\n")[2] == MARK + _compute_mark(writer, name, parent, tip.tree)


def _compute_mark(writer: str, name: str, parent: str, tree: str) -> str:
    return sha256("\0".join((writer, name, parent, tree)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def contains(root: Path, newer: Revision, older: Revision) -> bool:
    """Return whether `older` equals `newer` or is an ancestor of it."""
    return answer(root, ["merge-base", "--is-ancestor", older.commit, newer.commit]).code == 0


def commit(
    root: Path, target: Branch, parent: Revision, files: Mapping[str, bytes | None], message: str, writer: str
) -> str:
    """Commit `parent` with these files replaced (None: deleted) on a branch, with the mark of `writer`; return the
    id in hex.

    Raises `errors.Conflict` (E_STALE) if the branch has moved, `errors.Unavailable` (E_GIT) if git fails, for
    example without a committer name.
    """
    inside = prefix(root)
    with TemporaryDirectory(prefix="duckkb-index-") as folder:
        index = Path(folder) / "index"
        output(root, ["read-tree", parent.commit], index=index)
        lines = [_index_line(root, parent, inside + path, data) for path, data in sorted(files.items())]
        output(root, ["update-index", "-z", "--index-info"], stdin=b"".join(lines), index=index)
        tree = output(root, ["write-tree"], index=index, settings=_DURABLE).decode().strip()
    mark = MARK + _compute_mark(writer, target.name, parent.commit, tree)
    message = f"{message.rstrip()}\n\n{mark}\n"
    commit_output = output(
        root, ["commit-tree", "--no-gpg-sign", "-p", parent.commit, tree], stdin=message.encode(), settings=_COMMIT
    )
    new = commit_output.decode().strip()
    old = target.tip.commit if target.tip else "0" * len(new)
    if answer(root, ["update-ref", "-m", "duckkb propose", target.ref, new, old]).code:
        raise Conflict(
            f"branch {target.name} moved meanwhile; nothing was proposed",
            code="E_STALE",
            suggestion="propose it again",
        )
    return new


def _index_line(root: Path, parent: Revision, path: str, data: bytes | None) -> bytes:
    if data is None:
        return b"0 " + b"0" * len(parent.commit) + b"\t" + path.encode() + b"\0"
    blob = output(root, ["hash-object", "-w", "--stdin"], stdin=data, settings=_DURABLE).strip()
    return _FILE.encode() + b" " + blob + b"\t" + path.encode() + b"\0"


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
    clone_state.write_atomic(clone_state.ensure(root) / _NOTE, json.dumps(fields).encode())
    try:
        yield
    except Refused:  # git did not begin
        _forget(root)
        raise
    _forget(root)


def read_begun_merge(root: Path) -> BegunMerge | None:
    """Return the interrupted merge. None if git ended it: HEAD has moved, or MERGE_HEAD allows to conclude it."""
    try:
        fields = json.loads((clone_state.folder_of(root) / _NOTE).read_text("utf-8"))
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
    from duckkb.storage import revisions  # slow to import, and each write calls this module

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
        (clone_state.folder_of(root) / _NOTE).unlink()


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
    folder = clone_state.ensure(root) / clone_state.RESCUED
    folder.mkdir(exist_ok=True)
    number = sum(1 for _ in folder.iterdir())
    atomic_write.write_new(folder / f"merge-{number}-{file.name}", data)
