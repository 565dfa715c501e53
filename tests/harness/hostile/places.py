"""Repositories that try to run a command: each a copy of one honest base, a trap, and how a person would step into it."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.harness.waiting import HANG_S

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "pre-applypatch", "pre-auto-gc", "pre-commit",
    "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "reference-transaction", "sendemail-validate",
)  # fmt: skip


@dataclass(frozen=True)
class Trap:
    """`lay(base, canary)` makes a copy hostile; the canary is a program that leaves a trace. `steps` are git's own
    arguments that run it where nothing is hardened: the proof that the trap works (none: git itself has no such command
    that needs no network or terminal)."""

    name: str
    lay: Callable[[Path, str], Mapping[str, str] | None]
    steps: tuple[tuple[str, ...], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    where: str = "."


def honest_base(root: Path) -> Path:
    """A committed base with notes and edges. Branches: `topic` adds and changes records, `rival` changes one that main
    changes too, `other` a file of lines that main changes; `change.patch` is what topic did."""
    make_base(root, NOTES + QUESTION)
    notes = '{"id":"a","title":"fox","text":"the quick fox","size":3}\n{"id":"b","text":"狐狸"}\n'
    for writer in ("one", "another"):
        old = {"id": writer, "text": "of a past day", "__created_at": PAST, "__updated_at": PAST}
        env = {"DUCKKB_WRITER": writer}
        assert run_in(root, ["import", "Note", "-"], stdin=json.dumps(old), env=env).code == 0
    _has(root, notes, "as it is")
    assert run_in(root, ["put", "cites", '{"from":"a","to":"b"}']).code == 0
    (root / "extra.txt").write_text("at first", "utf-8")
    commit(root, "an edge")
    for branch, records in (
        ("topic", '{"id":"a","size":4}\n{"id":"c","text":"the lazy hare"}\n'),
        ("rival", '{"id":"b","title":"theirs"}\n'),
        ("other", ""),
        ("main", '{"id":"b","title":"ours"}\n'),
    ):
        git(root, "checkout", "-q", *(() if branch == "main" else ("-b",)), branch)
        if branch in ("other", "main"):
            (root / "lines.txt").write_text(branch, "utf-8")
        _has(root, records, branch)
        if branch == "topic":
            patch = run_in(root, ["diff", "HEAD~1..HEAD", "--format", "patch"]).out
        git(root, "checkout", "-q", "main")
    (root / "change.patch").write_text(patch, "utf-8")
    commit(root, "a patch")
    return root


PAST = "2026-01-02T00:00:00.000000Z"
QUESTION = """\
questions:
  - {question: quick fox, type: Note, mode: match, expected: {a: 1}}
"""


def _has(root: Path, records: str, message: str) -> None:
    if records:
        ran = run_in(root, ["put", "Note", "--merge"], stdin=records)
        assert ran.code == 0, ran.err
    commit(root, message)


def canary(folder: Path, name: str) -> tuple[str, Path]:
    """A program outside of every base, and the file that is there once it has run."""
    folder.mkdir(parents=True, exist_ok=True)
    program, trace = folder / f"{name}.sh", folder / f"{name}.ran"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{trace}"\nexit 0\n', "utf-8")
    program.chmod(0o755)
    return str(program), trace


def stepped_into(trap: Trap, base: Path, env: Mapping[str, str]) -> None:
    """Do what a person would do there, with git as it is."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_CONFIG")}
    plain |= {"GIT_TERMINAL_PROMPT": "0", "HOME": str(base.parent), **env}
    for step in trap.steps:
        given = b"protocol=http\nhost=example.org\n\n" if step[0] == "credential" else b""
        subprocess.run(
            ["git", *step],
            cwd=base / trap.where,
            env=plain,
            input=given,
            capture_output=True,
            check=False,
            timeout=HANG_S,
        )


def _set(*pairs: tuple[str, str]) -> Callable[[Path, str], None]:
    """Settings in .git/config; `CANARY` stands for the program."""

    def lay(base: Path, program: str) -> None:
        for key, value in pairs:
            git(base, "config", "--add", *(text.replace("CANARY", program) for text in (key, value)))

    return lay


def _with_attributes(line: str, *pairs: tuple[str, str]) -> Callable[[Path, str], None]:
    def lay(base: Path, program: str) -> None:
        (base / ".gitattributes").write_text(line + "\n", "utf-8")
        (base / "extra.txt").write_text("changed", "utf-8")
        _set(*pairs)(base, program)

    return lay


def _young_files(base: Path, program: str) -> None:
    """Files younger than the index: git looks at what is in them, through their filters, whenever it writes its index."""
    for path in (base / name for name in git(base, "ls-files", "-z").split("\0") if name):
        os.utime(path, (4_000_000_000, 4_000_000_000))
    git(base, "update-index", "-q", "--refresh")
    _set(("filter.evil.clean", "CANARY"), ("filter.evil.process", "CANARY"))(base, program)
    (base / ".git/info").mkdir(exist_ok=True)
    (base / ".git/info/attributes").write_text("* filter=evil\n", "utf-8")


def _hooks(folder: str, setting: bool) -> Callable[[Path, str], None]:
    def lay(base: Path, program: str) -> None:
        (base / folder).mkdir(exist_ok=True)
        for hook in HOOKS:
            shutil.copy2(program, base / folder / hook)
        if setting:
            git(base, "config", "core.hooksPath", str(base / folder))

    return lay


def _included(key: str) -> Callable[[Path, str], None]:
    def lay(base: Path, program: str) -> None:
        (base / "evil.cfg").write_text(f"[core]\n\tfsmonitor = {program}\n", "utf-8")
        git(base, "config", key, str(base / "evil.cfg"))

    return lay


def _worktree_config(base: Path, program: str) -> None:
    git(base, "config", "extensions.worktreeConfig", "true")
    (base / ".git/config.worktree").write_text(f"[core]\n\tfsmonitor = {program}\n", "utf-8")


def _other_work_tree(base: Path, program: str) -> None:
    elsewhere = base.parent / f"{base.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text("global: {embedding_model: none}\n", "utf-8")
    _set(("core.worktree", str(elsewhere)), ("core.fsmonitor", "CANARY"))(base, program)


def _partial(*pairs: tuple[str, str]) -> Callable[[Path, str], None]:
    """A partial clone that lacks HEAD's trees, without data/: what asks for HEAD's records would fetch them."""

    def lay(base: Path, program: str) -> None:
        trees = git(base, "rev-parse", "HEAD^{tree}", "HEAD:data", "HEAD:data/nodes").split()
        _set(
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            *pairs,
        )(base, program)
        for name in trees:
            (base / ".git/objects" / name[:2] / name[2:]).unlink()
        shutil.rmtree(base / "data")

    return lay


def _submodule(base: Path, program: str) -> None:
    make_base(base / "sub", "global: {embedding_model: none}\n")
    commit(base / "sub")
    (base / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = ext::{program}\n', "utf-8")
    head = git(base / "sub", "rev-parse", "HEAD").strip()
    git(base, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    git(base, "commit", "-q", "-m", "a submodule")
    git(base / "sub", "commit", "-q", "--allow-empty", "-m", "further")
    _set(
        ("submodule.sub.url", "ext::CANARY"),
        ("submodule.sub.active", "true"),
        ("submodule.sub.update", "!CANARY"),
        ("submodule.recurse", "true"),
        ("protocol.ext.allow", "always"),
    )(base, program)


def _bare_inside(base: Path, program: str) -> None:
    inside = base / "bare"
    shutil.copytree(base / ".git", inside)
    text = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {base}\n\tfsmonitor = {program}\n"
    (inside / "config").write_text(text, "utf-8")


def _is_bare_itself(base: Path, program: str) -> None:
    """No .git, but what git takes for a bare repository around config.yaml."""
    for name in ("HEAD", "objects", "refs", "index"):
        shutil.move(base / ".git" / name, base / name)
    shutil.rmtree(base / ".git")
    (base / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {base}\n\tfsmonitor = {program}\n",
        "utf-8",
    )


def _pointer(link: bool) -> Callable[[Path, str], None]:
    def lay(base: Path, program: str) -> None:
        _set(("core.fsmonitor", "CANARY"))(base, program)
        outside = base.parent / f"{base.name}-git"
        shutil.move(base / ".git", outside)
        if link:
            (base / ".git").symlink_to(outside)
        else:
            (base / ".git").write_text(f"gitdir: {outside}\n", "utf-8")

    return lay


def _foreign_owner(base: Path, program: str) -> None:
    _set(("core.fsmonitor", "CANARY"))(base, program)
    for path in (base / ".git", *(base / ".git").rglob("*")):
        os.chown(path, 12_345, 12_345, follow_symlinks=False)


def _index_extensions(base: Path, program: str) -> None:
    _set(("core.untrackedCache", "true"), ("core.splitIndex", "true"), ("index.version", "4"))(base, program)
    git(base, "-c", "core.fsmonitor=true", "update-index", "--fsmonitor", "--index-version", "4")
    _set(("core.fsmonitor", "CANARY"))(base, program)


def _alternates(base: Path, program: str) -> None:
    other = base.parent / f"{base.name}-alternate"
    shutil.copytree(base / ".git", other)
    (base / ".git/objects/info/alternates").write_text(str(other / "objects") + "\n", "utf-8")
    _set(("core.alternateRefsCommand", "CANARY"), ("remote.origin.url", str(other)))(base, program)


def _fifos(base: Path, program: str) -> None:
    """Nothing to run, but things to wait for."""
    for name in ("sequencer/todo", "refs/remotes/origin/HEAD"):
        (base / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(base / ".git" / name)
    git(base, "checkout", "-q", "-b", "side")


def _environment(**variables: str) -> Callable[[Path, str], Mapping[str, str]]:
    """Nothing in the repository: the caller's environment is set."""

    def lay(base: Path, program: str) -> Mapping[str, str]:
        return {name: value.replace("CANARY", program).replace("BASE", str(base)) for name, value in variables.items()}

    return lay


def _evil_git_dir(base: Path, program: str) -> Mapping[str, str]:
    other = base.parent / f"{base.name}-set"
    shutil.copytree(base, other)
    _set(("core.fsmonitor", "CANARY"), ("diff.external", "CANARY"))(other, program)
    return {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_CONFIG_GLOBAL": str(other / ".git/config"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        "GIT_TEMPLATE_DIR": str(other),
    }


_STATUS, _COMMIT = ("status",), ("commit", "--allow-empty", "-m", "x")
_CLEAN = ("hash-object", "--path=extra.txt", "extra.txt")
_HISTORY = ("log", "-p", "-1")
_CHANGED = ("diff", "HEAD", "--", "extra.txt")

TRAPS = (
    Trap("fsmonitor", _set(("core.fsmonitor", "CANARY")), (_STATUS,)),
    Trap("hooks path", _hooks("hooks", setting=True), (_COMMIT,)),
    Trap("hooks", _hooks(".git/hooks", setting=False), (_COMMIT,)),
    Trap(
        "filter",
        _with_attributes("* filter=evil", ("filter.evil.clean", "CANARY"), ("filter.evil.smudge", "CANARY")),
        (_CLEAN,),
    ),
    Trap("filter process", _with_attributes("* filter=evil", ("filter.evil.process", "CANARY")), (_CLEAN,)),
    Trap("filter of files younger than the index", _young_files, (_STATUS,)),
    Trap("textconv", _with_attributes("* diff=evil", ("diff.evil.textconv", "CANARY")), (_HISTORY,)),
    Trap("diff command", _with_attributes("* diff=evil", ("diff.evil.command", "CANARY")), (_CHANGED,)),
    Trap("diff.external", _with_attributes("* -text", ("diff.external", "CANARY")), (_CHANGED,)),
    Trap(
        "merge driver",
        _with_attributes("* merge=evil", ("merge.evil.driver", "CANARY"), ("merge.default", "evil")),
        (("merge", "other"),),
    ),
    Trap("pager", _set(("core.pager", "CANARY"), ("pager.status", "true"), ("pager.diff", "CANARY"))),
    Trap(
        "editor",
        _set(("core.editor", "CANARY"), ("sequence.editor", "CANARY")),
        (("commit", "--allow-empty"),),
        env={"TERM": "xterm"},
    ),
    Trap(
        "ssh command",
        _set(("core.sshCommand", "CANARY"), ("remote.origin.url", "ssh://example.org/x")),
        (("ls-remote", "origin"),),
    ),
    Trap(
        "credentials",
        _set(("credential.helper", "!CANARY"), ("core.askPass", "CANARY")),
        (("credential", "fill"),),
    ),
    Trap("signatures", _set(("gpg.program", "CANARY"), ("commit.gpgSign", "true")), (_COMMIT,)),
    Trap("alias", _set(("alias.st", "!CANARY"), ("alias.ls-files", "!CANARY")), (("st",),)),
    Trap("include", _included("include.path"), (_STATUS,)),
    Trap("include if", _included("includeIf.gitdir:**.path"), (_STATUS,)),
    Trap("work tree elsewhere", _other_work_tree, (_STATUS,)),
    Trap("configuration of the work tree", _worktree_config, (_STATUS,)),
    Trap(
        "partial clone over a program",
        _partial(("remote.origin.url", "ext::CANARY"), ("protocol.ext.allow", "always")),
        (("ls-tree", "-r", "HEAD"),),
    ),
    Trap(
        "partial clone with a program at the other end",
        _partial(("remote.origin.url", "BASE/.git"), ("remote.origin.uploadpack", "CANARY")),
        (("ls-tree", "-r", "HEAD"),),
    ),
    Trap(
        "partial clone over ssh",
        _partial(("remote.origin.url", "ssh://example.org/x"), ("core.sshCommand", "CANARY")),
        (("ls-tree", "-r", "HEAD"),),
    ),
    Trap(
        "addresses replaced",
        _set(("url.ext::CANARY .insteadOf", "https://"), ("protocol.ext.allow", "always")),
        (("ls-remote", "https://example.org/x"),),
    ),
    Trap("submodule", _submodule, (("submodule", "update"),)),
    Trap(
        "large files",
        _with_attributes(
            "* filter=lfs",
            ("filter.lfs.process", "CANARY"),
            ("lfs.customtransfer.evil.path", "CANARY"),
            ("lfs.standalonetransferagent", "evil"),
            ("lfs.extension.evil.clean", "CANARY"),
        ),
        (_CLEAN,),
    ),
    Trap("a bare repository inside", _bare_inside, (_STATUS,), where="bare"),
    Trap("a bare repository itself", _is_bare_itself, (_STATUS,)),
    Trap("a .git file that points outside", _pointer(link=False), (_STATUS,)),
    Trap("a .git link that points outside", _pointer(link=True), (_STATUS,)),
    Trap("another user's", _foreign_owner),
    Trap("extensions of the index", _index_extensions, (_STATUS,)),
    Trap("alternates", _alternates),
    Trap(
        "trailers and tools",
        _set(("trailer.see.command", "CANARY"), ("difftool.x.cmd", "CANARY"), ("mergetool.x.cmd", "CANARY")),
        (("interpret-trailers", "--trailer", "see=x", "extra.txt"),),
    ),
    Trap("FIFOs and devices", _fifos),
    Trap(
        "variables that name programs",
        _environment(
            GIT_EXTERNAL_DIFF="CANARY",
            GIT_SSH_COMMAND="CANARY",
            GIT_SSH="CANARY",
            GIT_ASKPASS="CANARY",
            GIT_PAGER="CANARY",
            PAGER="CANARY",
            GIT_EDITOR="CANARY",
            GIT_PROXY_COMMAND="CANARY",
            EDITOR="CANARY",
        ),
        (("diff", "HEAD~", "HEAD"),),
    ),
    Trap(
        "variables that set configuration",
        _environment(
            GIT_CONFIG_COUNT="2",
            GIT_CONFIG_KEY_0="core.fsmonitor",
            GIT_CONFIG_VALUE_0="CANARY",
            GIT_CONFIG_KEY_1="diff.external",
            GIT_CONFIG_VALUE_1="CANARY",
            GIT_CONFIG_PARAMETERS="'core.fsmonitor'='CANARY' 'diff.external'='CANARY'",
        ),
        (_STATUS,),
    ),
    Trap("variables that name another repository", _evil_git_dir, (_STATUS,)),
)


def laid(trap: Trap, honest: Path, folder: Path) -> tuple[Path, Path, Mapping[str, str]]:
    """A copy of the honest base with the trap in it: its folder, the canary's trace, the environment to run in."""
    name = trap.name.replace(" ", "-").replace(".", "")
    base = folder / name
    shutil.copytree(honest, base, symlinks=True)
    shutil.rmtree(base / ".duckkb", ignore_errors=True)
    program, trace = canary(folder / "canaries", name)
    env = trap.lay(base, program) or {}
    for path in (base / ".git/config", base / "config"):
        if path.is_file() and not path.is_symlink() and stat.S_ISREG(path.stat().st_mode):
            path.write_text(path.read_text("utf-8").replace("BASE/", f"{base}/"), "utf-8")
    return base, trace, env
