"""What duckkb has git change in a repository, when a verb's name says so: merges, the index, local settings.

As in `revisions` git runs hardened: no hook, filter or merge driver of the repository, no editor, no signing program. Other
files than parts are merged as lines, as git does without drivers.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from duckkb.errors import Refused, StateError, Unavailable
from duckkb.truth.git.history import find_repository
from duckkb.truth.git.revisions import FETCH_ALL, Entry, is_partial_clone, process, without_filters
from duckkb.values import dataclass

PARTS = ("data/nodes", "data/edges")
STYLES: tuple[tuple[str, ...], ...] = ((), ("--diff3",), ("--zdiff3",))
"""How git may show what conflicts."""
_ZERO = "0" * 40
_PICKED = re.compile(r"^\(cherry picked from commit ([0-9a-f]{40,64})\)$", re.MULTILINE)
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\.$", re.MULTILINE)
_OWN = {
    "commit.gpgSign": "false",
    "core.fsync": "all",
    "core.symlinks": "true",
    "merge.autoStash": "false",
    "merge.directoryRenames": "false",
    "merge.verifySignatures": "false",
    "rerere.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Index:
    """The index under `data/`: the entries of parts by path, those in conflict by stage (1 base, 2 ours, 3 theirs), the
    paths whose conflict someone has resolved, and what else is in conflict."""

    merged: Mapping[str, Entry]
    unmerged: Mapping[str, Mapping[int, Entry]]
    resolved: frozenset[str]
    others: tuple[str, ...]


def read_index(root: Path) -> Index:
    """What the index holds of parts."""
    prefix = _prefix(root)
    merged: dict[str, Entry] = {}
    unmerged: dict[str, dict[int, Entry]] = {}
    for stage, entry, path in _listed(run(root, ["ls-files", "-s", "-z", "--full-name", "--", *_places(prefix)])):
        if stage:
            unmerged.setdefault(path.removeprefix(prefix), {})[stage] = entry
        else:
            merged[path.removeprefix(prefix)] = entry
    resolved = _listed(run(root, ["ls-files", "--resolve-undo", "-z", "--full-name", "--", *_places(prefix)]))
    all_unmerged = {path for _, _, path in _listed(run(root, ["ls-files", "-u", "-z", "--full-name"]))}
    others = all_unmerged - {prefix + path for path in unmerged}
    return Index(
        merged, unmerged, frozenset(path.removeprefix(prefix) for _, _, path in resolved), tuple(sorted(others))
    )


def put_index(root: Path, entries: Mapping[str, Mapping[int, Entry]]) -> None:
    """Give paths new entries by stage, 0 alone for a path without conflict, none for one that is gone."""
    if not entries:
        return
    prefix = _prefix(root)
    lines = []
    for path, stages in sorted(entries.items()):
        lines.append(f"0 {_ZERO} 0\t{prefix}{path}\0")
        lines += [f"{one.mode} {one.blob} {stage}\t{prefix}{path}\0" for stage, one in sorted(stages.items())]
    # To write its index git compares files as young as the index itself with what it holds, through their filters.
    run(root, ["update-index", "-z", "--index-info"], stdin="".join(lines).encode(), more=without_filters(root))


def refresh(root: Path) -> None:
    """Have the index know the files as they are, so that nothing looks changed that is not."""
    process(root, ["update-index", "-q", "--refresh"], b"", _top(root), without_filters(root))


def store_files(root: Path, paths: Sequence[str]) -> dict[str, Entry]:
    """The files at some paths as blobs of the repository."""
    if not paths:
        return {}
    prefix = _prefix(root)
    names = "".join(f"{prefix}{path}\n" for path in paths).encode()
    told = run(root, ["hash-object", "-w", "--no-filters", "--stdin-paths"], stdin=names).decode().split()
    return {path: Entry("100644", blob) for path, blob in zip(paths, told, strict=True)}


def store_bytes(root: Path, data: bytes) -> str:
    """Bytes as a blob of the repository; its id."""
    return run(root, ["hash-object", "-w", "--no-filters", "--stdin"], stdin=data).decode().strip()


def merge_bases(root: Path, one: str, *others: str) -> list[str]:
    """The best common ancestors of a commit and the merge of others, oldest first; empty where there is none."""
    done = process(root, ["merge-base", "--all", one, *others])
    return done.stdout.decode().split()[::-1] if done.returncode == 0 else []


def parents(root: Path, commit: str) -> list[str]:
    """The parents of a commit that are here, in order; none of a commit that is not here."""
    done = process(root, ["rev-list", "--parents", "-n", "1", "--end-of-options", commit])
    return done.stdout.decode().split()[1:] if done.returncode == 0 else []


def is_root(root: Path, commit: str) -> bool:
    """Whether a commit is here and has no parents, rather than parents that are not here."""
    found = process(root, ["cat-file", "commit", commit])
    return found.returncode == 0 and b"\nparent " not in found.stdout.partition(b"\n\n")[0]


def carried(root: Path, commit: str) -> tuple[str, str] | None:
    """The two commits between which lies the change that a commit says it carries over: a pick (`cherry-pick -x`) or a
    revert; None for another commit, and where the change is not here."""
    told = process(root, ["cat-file", "commit", commit]).stdout.decode(errors="replace").partition("\n\n")[2]
    picked, reverted = _PICKED.findall(told), _REVERTED.findall(told)
    if not picked and len(reverted) != 1:
        return None
    source = picked[-1] if picked else reverted[0]
    before = parents(root, source)
    if len(before) != 1:
        return None
    return (before[0], source) if picked else (source, before[0])


def touched_elsewhere(root: Path, paths: Sequence[str]) -> list[tuple[str, str]]:
    """Of these files those that another branch has changed since it left HEAD's history: path and branch."""
    prefix = _prefix(root)
    wanted = {prefix + path: path for path in paths}
    found = []
    names = run(root, ["for-each-ref", "--format=%(refname)", "--no-merged=HEAD", "refs/heads", "refs/remotes"])
    for name in names.decode().split():
        told = run(
            root,
            ["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", f"HEAD...{name}", "--", *_places(prefix)],
        )
        found += [(wanted[path], name) for each in told.split(b"\0") if (path := os.fsdecode(each)) in wanted]
    return found


def fast_forward(root: Path, commit: str) -> None:
    """Move the branch that is checked out to a commit that lies ahead of it, and the files with it."""
    _merge(root, ["--ff-only", "--end-of-options", commit], {0})


def begin_merge(root: Path, name: str, message: str | None) -> None:
    """Merge as git does and stop before committing: MERGE_HEAD is set, the index holds what conflicts. Raises
    `errors.Refused` where git does not begin."""
    told = ["-m", message] if message is not None else []
    _merge(root, ["--no-ff", "--no-commit", *told, "--end-of-options", name], {0, 1})
    found = find_repository(root)
    if found is None or not (found.git_dir / "MERGE_HEAD").exists():
        raise Refused(f"git did not begin to merge {name}", suggestion="git status")


def conclude(root: Path, message: str | None) -> None:
    """Commit what is merged, with the message that the merge was given, or git's own."""
    told = ["-m", message] if message is not None else ["--no-edit", "--cleanup=strip"]
    done = _change(root, ["commit", "-q", "--no-verify", "--no-gpg-sign", *told])
    if done.returncode:
        raise _failed("commit", done.stderr, "git commit")


def abort_merge(root: Path) -> None:
    """Take files and index back to before the merge."""
    done = _change(root, ["merge", "--abort"])
    if done.returncode:
        raise _failed("merge --abort", done.stderr, "git status")


def merge_lines(
    base: bytes, ours: bytes, theirs: bytes, root: Path, style: Sequence[str] = ("--diff3",)
) -> tuple[bytes, bool]:
    """The merge of three files by lines, and whether it is clean."""
    with tempfile.TemporaryDirectory(prefix="duckkb-merge-") as folder:
        names = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for name, data in zip(names, (ours, base, theirs), strict=True):
            name.write_bytes(data)
        labels = ["-L", "ours", "-L", "base", "-L", "theirs"]
        done = process(root, ["merge-file", "-p", *style, *labels, *map(str, names)])
    if done.returncode == 129 and style:  # an older git does not know it
        return b"", False
    if done.returncode < 0 or done.returncode > 127:
        raise _failed("merge-file", done.stderr, "git status")
    return done.stdout, done.returncode == 0


def settings(root: Path, names: Iterable[str]) -> dict[str, str | None]:
    """The values of settings of this repository alone; None for one that is not set."""
    found: dict[str, str | None] = {}
    for name in names:
        done = process(root, ["config", "--local", "--get", name])
        found[name] = done.stdout.decode().removesuffix("\n") if done.returncode == 0 else None
    return found


def set_setting(root: Path, name: str, value: str | None) -> None:
    """Set a setting of this repository; None takes it away."""
    told = ["--replace-all", name, value] if value is not None else ["--unset-all", name]
    done = process(root, ["config", "--local", *told])
    if done.returncode not in (0, 5):
        raise _failed("config", done.stderr, "git config --local --list")


def run(root: Path, arguments: Sequence[str], *, stdin: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
    """What git prints, run at the top of the work tree; raises `errors.Unavailable` (E_GIT) where it fails. `more` are
    settings for this run."""
    done = process(root, arguments, stdin, _top(root), more or {})
    if done.returncode:
        raise _failed(
            arguments[0],
            done.stderr,
            FETCH_ALL if is_partial_clone(root) else "`git status` and `git fsck` say more",
        )
    return done.stdout


def _merge(root: Path, arguments: Sequence[str], expected: set[int]) -> None:
    done = _change(root, ["merge", "-q", "--no-stat", "--no-gpg-sign", *arguments])
    if done.returncode not in expected:
        raise Refused(f"git refused to merge: {_said(done.stderr) or done.returncode}", suggestion="git status")


def _change(root: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    more = _OWN | without_filters(root) | _without_drivers(root)
    more["core.editor"] = "true"
    return process(root, arguments, b"", _top(root), more)


def _without_drivers(root: Path) -> dict[str, str]:
    """Merging by lines in the place of each merge driver that the repository names."""
    done = process(root, ["config", "-z", "--name-only", "--get-regexp", r"^merge\..*\.driver$"])
    names = [name.decode(errors="surrogateescape") for name in done.stdout.split(b"\0") if name]
    return dict.fromkeys(names, "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B")


def _listed(told: bytes) -> list[tuple[int, Entry, str]]:
    """`MODE BLOB STAGE` TAB path NUL, again and again."""
    found = []
    for line in told.split(b"\0"):
        if line:
            head, _, name = line.partition(b"\t")
            mode, blob, stage = head.decode().split(" ")
            found.append((int(stage), Entry(mode, blob), os.fsdecode(name)))
    return found


def _places(prefix: str) -> list[str]:
    return [prefix + place for place in PARTS]


def _prefix(root: Path) -> str:
    found = find_repository(root)
    if found is None:
        raise StateError(f"{root} lies in no git repository", code="E_GIT", suggestion="git init")
    return found.prefix


def _top(root: Path) -> Path:
    found = find_repository(root)
    return found.work_tree if found else root


def _failed(what: str, stderr: bytes, suggestion: str) -> Unavailable:
    return Unavailable(f"git {what} failed: {_said(stderr)}", code="E_GIT", suggestion=suggestion)


def _said(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return "; ".join(line.removeprefix("error: ").removeprefix("fatal: ") for line in lines[:4])
