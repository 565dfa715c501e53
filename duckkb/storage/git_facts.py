"""Finds files of truth that git has and the work tree lacks: outside a sparse checkout, or cut off; and files that
no commit would include: unwatched files, and files removed from tracking.

Lists the branches of a repository, remote branches included, with commits that HEAD does not have.

Finds the commit of each line of a file with `git blame`.

Samples the commits of a long history: few enough to read each, and the same ones tomorrow."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from duckkb.storage import git_process, repository, revisions
from duckkb.storage.git_changes import MARK
from duckkb.storage.git_process import disable_filters, output, repository_of, text
from duckkb.storage.repository import attributes, head_commit
from duckkb.storage.revisions import Revision, Signature
from duckkb.types.errors import Finding, Refused, StateError, Unavailable

_RECORDS = ("data/nodes", "data/edges")
_PLACES = (*_RECORDS, "data/FORMAT.json", "ontology", "config.yaml")
_MANY = 5
_PLAIN: dict[Path, tuple[Path, tuple[int, ...]]] = {}
"""By base the file of git's index, and the stamp of an index that leaves nothing out: each search checks it."""
_SKIPPED, _BRING_BACK = 2, "git update-index --no-skip-worktree {0} && git checkout -- {0}"


def list_absent_files(root: Path, also: Sequence[str] = ()) -> tuple[str, ...]:
    """List the files of truth, of configuration and of the folders `also` that git's index has and this checkout
    leaves out, by path.

    If there are none it reads only a few bytes of the index. An entry says that it is skipped only from version
    3 of the format on, which git writes if an entry needs it (and 4 if that is configured).
    """
    cache_entry = _PLAIN.get(root)
    if cache_entry is not None and cache_entry[1] == _stamp(cache_entry[0]):
        return ()
    repo = git_process.find_repository(root)
    stamp = _stamp(repo.index) if repo is not None else None
    if max(repository.index_versions(root), default=0) <= _SKIPPED:
        if repo is not None and stamp is not None:
            _PLAIN[root] = repo.index, stamp
        return ()
    return tuple(path for tag, path in _list_index(root, also) if tag in "Ss" and not os.path.lexists(root / path))


def is_of_base(path: str) -> bool:
    """Return whether a file is truth or configuration."""
    return path.startswith(_PLACES)


def _stamp(index: Path) -> tuple[int, ...] | None:
    """Return numbers that change with the index files: git never writes into such a file, it replaces it."""
    try:
        file, folder = index.stat(), index.parent.stat()
    except OSError:
        return None
    return file.st_ino, file.st_size, file.st_mtime_ns, folder.st_ino, folder.st_mtime_ns


def refuse_sparse_paths(root: Path, concerns: Callable[[str], bool] = lambda path: True) -> None:
    """Raise `errors.Refused` (E_SPARSE) if a write could meet a left-out file that `concerns` accepts: a record
    would be stored twice.
    """
    paths = tuple(filter(concerns, list_absent_files(root)))
    if paths:
        raise Refused(describe_absent(paths) + "; nothing was written", code="E_SPARSE", suggestion=remedy(root, paths))


def findings(root: Path) -> Iterator[Finding]:
    """Yield findings for files left out of this checkout, unwatched files, and files no longer tracked."""
    yield from _find_lost_files(root)
    left_out = list_absent_files(root)
    for path in left_out:
        yield Finding("E_SPARSE", "git left it out of this checkout", path, remedy=remedy(root, (path,)))
    for tag, path in _list_index(root):
        if path in left_out or tag == "H":
            continue
        bit = "skip-worktree" if tag in "Ss" else "assume-unchanged"
        if tag in "Ss" or tag.islower():
            mend = f"git update-index --no-{bit} {shlex.quote(path)}"
            yield Finding(
                "W_UNWATCHED", f"git does not look at it ({bit}): no commit will have its changes", path, remedy=mend
            )


def _find_lost_files(root: Path) -> Iterator[Finding]:
    """Yield findings for files that exist here and at HEAD but not in the index, as `git rm --cached` leaves them.
    If no records are tracked at all, also for files that git knew before and for ignored files. Otherwise such
    a file may be new after a restore, or ignored on purpose.
    """
    if not repository.is_readable_repository(root) or repository.head_commit(root) is None:
        return
    from duckkb.storage import revisions  # takes a while to import, and every read imports this module

    repo = git_process.repository_of(root)
    if not repo.index.is_file():  # the tracked files are unknown
        return
    places = [repo.prefix + place for place in _PLACES]
    try:
        has_records = (
            git_process.output(root, ["ls-files", "-z", "--", *(repo.prefix + place for place in _RECORDS)]) != b""
        )
        arguments = ["ls-files", "--others", *(["--exclude-standard"] if has_records else []), "-z", "--", *places]
        other_paths = set(os.fsdecode(git_process.output(root, arguments)).split("\0")) - {""}
        if not other_paths:
            return
        filter_options = ["--raw", "--no-abbrev", "--no-renames", "--diff-filter=D", "-z"]
        changes = git_process.output(root, ["diff-index", "--cached", *filter_options, "HEAD", "--", *places])
        if not has_records:
            names = os.fsencode("\n".join(["--", *sorted(other_paths), ""]))
            changes += b"\0" + git_process.output(
                root, ["log", "--format=", *filter_options, "HEAD", "--stdin"], stdin=names
            )
        newest_last = reversed([*revisions.parse_raw_changes(repo, changes.split(b"\0"))])
        former = {change.path: change.old for change in newest_last}
        lines = {path: set(filter(None, raw.splitlines())) for path, raw in revisions.contents(root, former).items()}
    except Unavailable:
        return
    for path in sorted(lines):
        if repo.prefix + path in other_paths and not lines[path].isdisjoint(
            (git_process.read_bytes(root / path) or b"").splitlines()
        ):
            remedy = f"`git add -f {shlex.quote(path)}`, or `rm {shlex.quote(path)}` if it is to go"
            yield Finding("E_UNTRACKED", "git no longer tracks this file: no commit will have it", path, remedy=remedy)


def describe_absent(paths: Sequence[str]) -> str:
    """Describe the files that are left out."""
    many = f"{paths[0]} and {len(paths) - 1} more files are" if len(paths) > 1 else f"{paths[0]} is"
    return f"{many} left out of this checkout"


def remedy(root: Path, paths: Sequence[str]) -> str:
    """Return the command that brings files back into the checkout."""
    if git_process.text(root, ["config", "--type=bool", "core.sparseCheckout"]) == "true":
        return _suggest_checkout(root, paths)
    if len(paths) <= _MANY:
        return _BRING_BACK.format(" ".join(map(shlex.quote, paths)))
    command = f"git ls-files -t -- {' '.join(_PLACES)} | sed -n 's/^S //p'"
    return f"{command} | xargs sh -c '{_BRING_BACK.format(chr(34) + '$@' + chr(34))}' _"


def _suggest_checkout(root: Path, paths: Sequence[str]) -> str:
    """Return the command that adds files to a sparse checkout: their folders in cone mode, else the files, because
    a pattern that excludes a folder is weaker than a pattern that names its content.
    """
    repo = git_process.repository_of(root)
    is_cone = git_process.text(root, ["config", "--type=bool", "core.sparseCheckoutCone"]) != "false"
    begin = f"git -C {shlex.quote(str(repo.work_tree))} sparse-checkout"
    patterns = {path.partition("/")[0] for path in paths} if is_cone else {*paths}
    if len(patterns) > _MANY or (is_cone and not all("/" in path for path in paths)):
        return f"{begin} disable"
    mark = "" if is_cone else "/"
    return f"{begin} add {' '.join(shlex.quote(mark + repo.prefix + pattern) for pattern in sorted(patterns))}"


def _list_index(root: Path, also: Sequence[str] = ()) -> list[tuple[str, str]]:
    """List the base's files in the index, each with git's letter for its state: `S` skipped, lower case if assumed
    unchanged. Empty if git is unavailable.
    """
    if not repository.is_readable_repository(root):
        return []
    try:
        prefix = git_process.repository_of(root).prefix
        answer = git_process.answer(
            root, ["ls-files", "-v", "-z", "--", *(prefix + place for place in (*_PLACES, *also))]
        )
    except Unavailable:
        return []
    names = (os.fsdecode(line) for line in answer.output.split(b"\0") if line)
    return [(name[0], name[2:].removeprefix(prefix)) for name in names]


def cut_off(root: Path, path: str) -> Finding | None:
    """Return a finding for a part without any record. duckkb removes a part with its last record, so the part was
    cut off, which does not count as a deletion of its records. Returns None if a committed merge left it so:
    git's driver cannot remove a file.
    """
    source = _find_source(root, path)
    if source is None:
        return None
    message = "no record is in it: it was cut off" + (f"; {source} has what it held" if source else "")
    remedy = f"`git checkout {source} -- {path}`" if source else "restore it from a copy"
    return Finding("E_EMPTY_PART", message, path, remedy=f"{remedy}, or `rm {path}` if all its records are to go")


def is_held_at_head(root: Path, path: str) -> bool:
    """Return whether a file of the base has content at HEAD."""
    return bool((_read_content(root, "HEAD", path) or "").strip())


def _find_source(root: Path, path: str) -> str | None:
    """Return the revision with the content of a part, empty if unknown; None if a committed merge left the part
    empty.
    """
    at_head = _read_content(root, "HEAD", path)
    if at_head is None or at_head.strip():
        return "" if at_head is None else "HEAD"
    words = git_process.text(
        root, ["log", "-1", "--format=%H %P", "HEAD", "--", git_process.repository_of(root).prefix + path]
    ).split()
    if len(words) != 2:  # a commit with one parent
        return None
    return f"{words[0][:12]}^" if (_read_content(root, words[1], path) or "").strip() else None


def _read_content(root: Path, revision: str, path: str) -> str | None:
    """Return a file at a revision; None if it is missing there or git is unavailable."""
    if not repository.is_readable_repository(root) or repository.head_commit(root) is None:
        return None
    try:
        answer = git_process.answer(
            root, ["cat-file", "blob", f"{revision}:{git_process.repository_of(root).prefix}{path}"]
        )
    except git_process.NoGit:
        return None
    return None if answer.code else answer.output.decode(errors="replace")


_FIELDS = ("refname", "symref", "objectname", "authorname", "committerdate:iso-strict", "contents:subject", "contents")
_FORMAT = "".join(f"%({name})%00" for name in _FIELDS)
_BRANCH_PLACES = ("refs/heads/", "refs/remotes/")
_IMPOSSIBLE = re.compile("[\x00-\x20\x7f\ud800-\udfff]")  # neither git names nor arguments may contain these


class BranchTip(Struct, frozen=True):
    """A branch by its name in git's commands (`topic`, `origin/topic`), and its last commit: the id in hex, the
    author, the time (ISO 8601), its first line, and whether `propose` made it.
    """

    name: str
    commit: str
    author: str
    date: str
    subject: str
    is_proposal: bool


def ahead(root: Path) -> list[BranchTip]:
    """List the branches with commits that HEAD does not have, newest first. Skips remote branches that equal a
    local branch. Raises `errors.StateError` (E_GIT), `errors.Unavailable`.
    """
    if not text(root, ["rev-parse", "--quiet", "--verify", "HEAD"]):
        return []
    report = text(
        root, ["for-each-ref", "--sort=-committerdate", "--no-merged=HEAD", f"--format={_FORMAT}", *_BRANCH_PLACES]
    )
    fields = report.split("\0")
    rows = zip(*(fields[at :: len(_FIELDS)] for at in range(len(_FIELDS))), strict=False)
    entries = [(row[0].lstrip("\n"), *row[1:]) for row in rows if not row[1]]
    here = {commit for name, _, commit, *_ in entries if name.startswith(_BRANCH_PLACES[0])}
    tips = []
    for name, _, commit, author, date, subject, message in entries:
        if name.startswith(_BRANCH_PLACES[0]) or commit not in here:
            is_proposal = message.rstrip("\n").rpartition("\n")[2].startswith(MARK)
            short = name.removeprefix(_BRANCH_PLACES[0]).removeprefix(_BRANCH_PLACES[1])
            tips.append(BranchTip(short, commit, author, date, subject, is_proposal))
    return tips


def is_pushed(root: Path, commit: str) -> bool:
    """Return whether a remote branch has a commit, as far as this clone knows."""
    return bool(
        text(root, ["for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)", "refs/remotes"])
    )


def resolve_branch(root: Path, name: str) -> Revision:
    """Return the commit of the branch with this name; never a tag, a commit or a stash. Raises `errors.StateError`
    (E_REVISION).
    """
    for place in () if _IMPOSSIBLE.search(name) else _BRANCH_PLACES:
        ref = f"{place}{name}"
        if text(root, ["show-ref", "--verify", "--hash", ref]):
            tip = revisions.revision(root, ref)
            commit_id = text(root, ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"])
            return Revision(name if commit_id == tip.commit else ref, tip.commit, tip.tree)
    hint = "`git branch -a` lists the branches"
    raise StateError(f"no branch {name!r} here", code="E_REVISION", suggestion=hint)


_LINE = re.compile(rb"^([0-9a-f]{40,64}) [0-9]+ [0-9]+", re.MULTILINE)  # the text of a line follows a tab
_HALF_ENDS = (b"\n\t\0\n", b"\n\t\0\0\0\n")
"""The last line as git sees it in a UTF-16 or UTF-32 text that ends with a line end."""


def line_commits(root: Path, path: str, commit: str = "") -> list[str | None]:
    """Return for each line of a file below `root` the commit, in hex, that introduced it; None for a line that is
    only in the working tree. Reads the file at `commit` if given, else as it is. Lines end with LF, as in git;
    empty for a file that git does not know.

    Raises `errors.StateError` (E_GIT) without a repository, and for a file that git would pass through a filter
    command; `errors.Unavailable` (E_GIT) if git fails.
    """
    place = revisions.prefix(root) + path
    command = ["blame", "--porcelain", "--no-textconv", *([commit] if commit else []), "--", place]
    filters = disable_filters(root)
    filter_name = (attributes(root, path, ("filter",)) or {}).get("filter", "") if filters and not commit else ""
    if {f"filter.{filter_name}.clean", f"filter.{filter_name}.process"} & filters.keys():
        message = f"{path} goes through the filter {filter_name} of git, a command that duckkb does not run"
        raise StateError(message, code="E_GIT", suggestion=f"`git blame` in {root}, or blame the fields")
    try:
        report = output(root, command, settings=filters)
    except Unavailable:
        head = revisions.head(root) if head_commit(root) else None
        if head and (revisions.entries(root, head, (path,)) or revisions.index_entries(root, (path,))):
            raise
        return []
    commits = [line.decode() if line.strip(b"0") else None for line in _LINE.findall(report)]
    return commits[:-1] if report.endswith(_HALF_ENDS) else commits


class Sample(Struct, frozen=True):
    """A commit of a history: `number` counts the commits that touched the requested places, 1 being the oldest."""

    number: int
    by: Signature


class History(Struct, frozen=True):
    """The `samples`, oldest first, of `total` commits; `is_shallow`: older commits are not available."""

    samples: tuple[Sample, ...] = ()
    total: int = 0
    is_shallow: bool = False


def sample_history(root: Path, at: Revision, places: Sequence[str], most: int) -> History:
    """Sample at most `most` commits (2 or more) up to `at` that touched some places, on the line of first parents:
    the oldest, every second, fourth, eighth ... after it, and the newest. As the history grows, a commit that
    was left out stays so, and cached results for the others remain useful.
    """
    git_paths = revisions.place_paths(repository_of(root), places)
    report = output(root, ["rev-list", "--first-parent", "--reverse", "--end-of-options", at.commit, "--", *git_paths])
    commits = report.decode().split()
    stride = 1
    while len(commits) > most and -(-len(commits) // stride) >= most:
        stride *= 2
    numbers = sorted({*range(0, len(commits), stride), *range(len(commits))[-1:]})
    signatures = revisions.signatures(root, [commits[number] for number in numbers])
    samples = tuple(Sample(number + 1, signatures[commits[number]]) for number in numbers)
    return History(samples, len(commits), bool(revisions.boundary(root)))
