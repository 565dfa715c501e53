"""Facts about git, checked against repositories that git itself made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import duckkb
from duckkb.storage import git_facts, git_process, repository
from duckkb.types.errors import StateError, Unavailable

SOURCES = str(Path(duckkb.__file__).parents[1])
PART = "data/nodes/note/20260101/part_007.jsonl"


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, input=stdin, capture_output=True, check=True
    ).stdout.decode()


def write(root: Path, path: str, data: bytes = b"{}\n") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def commit(root: Path, message: str = "change") -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD").strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def test_a_folder_without_git_has_an_answer_to_everything(tmp_path: Path) -> None:
    assert repository.branch(tmp_path) == ""
    assert repository.head_commit(tmp_path) is None
    assert repository.operation_in_progress(tmp_path) is None
    assert repository.head_has_records(tmp_path) is False
    assert repository.tracks_state(tmp_path) is False
    assert repository.is_main_branch(tmp_path) is True


def test_a_repository_without_a_commit_has_a_branch_and_no_records(root: Path) -> None:
    assert repository.branch(root) == "main"
    assert repository.head_commit(root) is None
    assert repository.head_has_records(root) is False


@pytest.mark.parametrize("name", ["topic", "c/&lt;b>\u202e", "主题\u200b", "-x\xad"])
def test_each_branch_that_git_has_is_found_by_its_name(root: Path, name: str) -> None:
    write(root, PART)
    made = commit(root)
    git(root, "update-ref", f"refs/heads/{name}", made)
    assert git_facts.resolve_branch(root, name).commit == made
    for other in (f"{name}\n", f"{name}\0", f"{name} ", "\ud800", ""):
        with pytest.raises(StateError, match="no branch"):
            git_facts.resolve_branch(root, other)


def test_branch_and_commit_follow_the_checkout(root: Path) -> None:
    write(root, PART)
    first = commit(root)
    git(root, "checkout", "-q", "-b", "feature/搜索")
    assert repository.branch(root) == "feature/搜索"
    assert repository.head_commit(root) == first
    git(root, "checkout", "-q", "--detach")
    assert repository.branch(root) == first


def test_packed_refs_and_subfolders_and_linked_worktrees_are_understood(root: Path, tmp_path: Path) -> None:
    write(root, "kb/" + PART)
    first = commit(root)
    git(root, "pack-refs", "--all")
    git(root, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    for base, branch in ((root / "kb", "main"), (tmp_path / "linked" / "kb", "other")):
        assert repository.branch(base) == branch
        assert repository.head_commit(base) == first
        assert repository.head_has_records(base) is True
    assert repository.head_has_records(root) is False  # the records are those of the base in the subfolder
    (tmp_path / "linked/kb/.duckkb").mkdir()
    write(tmp_path / "linked", "kb/.duckkb/lock")
    git(tmp_path / "linked", "add", "-f", "kb/.duckkb/lock")
    assert repository.tracks_state(tmp_path / "linked/kb") is True
    assert repository.tracks_state(root / "kb") is False


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PART, True),
        ("data/edges/cites/20260101/part_1000.jsonl", True),
        ("data/FORMAT.json", False),
        ("data/nodes/note/notes.txt", False),
        ("elsewhere/" + PART, False),
    ],
)
def test_only_part_files_count_as_records_at_head(root: Path, path: str, expected: bool) -> None:
    write(root, path)
    commit(root)
    shutil.rmtree(root / path.split("/")[0])
    assert repository.head_has_records(root) is expected


def test_main_is_main_master_or_what_origin_calls_so(root: Path, tmp_path: Path) -> None:
    write(root, PART)
    commit(root)
    assert repository.is_main_branch(root) is True
    git(root, "checkout", "-q", "-b", "trunk")
    assert repository.is_main_branch(root) is False
    git(tmp_path, "clone", "-q", str(root), "clone")
    assert repository.branch(tmp_path / "clone") == "trunk"
    assert repository.is_main_branch(tmp_path / "clone") is True
    git(tmp_path / "clone", "checkout", "-q", "-b", "topic")
    assert repository.is_main_branch(tmp_path / "clone") is False


def diverge(root: Path) -> None:
    """Two branches that change one line, twice each; main is checked out."""
    write(root, "f", b"base\n")
    commit(root)
    git(root, "checkout", "-q", "-b", "theirs")
    for text in (b"theirs\n", b"theirs too\n"):
        write(root, "f", text)
        commit(root)
    git(root, "checkout", "-q", "main")
    write(root, "f", b"ours\n")
    commit(root)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("merge", "theirs"), "merge"),
        (("rebase", "theirs"), "rebase"),
        (("rebase", "--apply", "theirs"), "rebase"),
        (("cherry-pick", "main..theirs"), "cherry-pick"),
        (("revert", "--no-edit", "theirs~1"), "revert"),
    ],
)
def test_an_operation_in_progress_is_named_until_it_ends(root: Path, command: tuple[str, ...], expected: str) -> None:
    diverge(root)
    assert repository.operation_in_progress(root) is None
    with pytest.raises(subprocess.CalledProcessError):
        git(root, *command)
    assert repository.operation_in_progress(root) == expected
    git(root, expected, "--abort")
    assert repository.operation_in_progress(root) is None


def test_between_two_picks_the_operation_is_still_in_progress(root: Path) -> None:
    diverge(root)
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "cherry-pick", "main..theirs")
    write(root, "f", b"settled\n")
    commit(root)  # what git's own advice leads to, before --continue
    assert not (root / ".git/CHERRY_PICK_HEAD").exists()
    assert repository.operation_in_progress(root) == "cherry-pick"


def test_mail_being_applied_is_named(root: Path) -> None:
    diverge(root)
    mail = git(root, "format-patch", "--stdout", "main~1..theirs").encode()
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "am", stdin=mail)
    assert repository.operation_in_progress(root) == "am"


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("split", [False, True])
def test_tracked_local_state_is_found_in_every_form_of_the_index(root: Path, version: str, split: bool) -> None:
    git(root, "config", "index.version", version)
    write(root, "config.yaml")
    write(root, ".duckkbx/near")
    write(root, "docs/.duckkb/not-ours")
    git(root, "add", "-A", "-f")
    git(root, "update-index", "--split-index" if split else "--no-split-index")
    assert repository.tracks_state(root) is False
    write(root, ".duckkb/txn/0/journal")
    git(root, "add", "-f", ".duckkb")
    assert repository.tracks_state(root) is True
    git(root, "rm", "-q", "-r", "--cached", ".duckkb")
    assert repository.tracks_state(root) is False


def test_a_tracked_link_in_the_place_of_local_state_is_found(root: Path, tmp_path: Path) -> None:
    (root / ".duckkb").symlink_to(tmp_path)
    git(root, "add", "-f", ".duckkb")
    assert repository.tracks_state(root) is True


@pytest.mark.parametrize("damage", ["HEAD", "index", "refs/heads/main", "objects"])
def test_a_damaged_repository_breaks_nothing(root: Path, damage: str) -> None:
    write(root, PART)
    commit(root)
    target = root / ".git" / damage
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.write_bytes(b"\xff\x00 rubbish")
    repository.branch(root)
    repository.head_commit(root)
    repository.operation_in_progress(root)
    repository.tracks_state(root)
    assert repository.head_has_records(root) is (damage == "index")


def hostile(root: Path, canary: Path) -> None:
    """Every setting we know by which a repository can make git run a command."""
    script = root / ".git/canary.sh"
    script.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{canary}'\nexit 1\n")
    script.chmod(0o755)
    hooks = root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        shutil.copy(script, hooks / hook)
    settings = {
        "core.fsmonitor": script,
        "core.hooksPath": hooks,
        "core.sshCommand": script,
        "core.pager": script,
        "core.editor": script,
        "core.gitProxy": script,
        "core.alternateRefsCommand": script,
        "pager.diff": script,
        "pager.ls-tree": script,
        "diff.external": script,
        "diff.x.textconv": script,
        "diff.x.command": script,
        "filter.x.smudge": script,
        "filter.x.clean": script,
        "filter.x.process": script,
        "credential.helper": f"!{script}",
        "alias.ls-files": f"!{script}",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{script} %S",
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
    }
    git(root, "config", "core.repositoryFormatVersion", "1")
    for key, value in settings.items():
        git(root, "config", key, str(value))
    write(root, ".git/info/attributes", b"* diff=x filter=x\n")


def test_a_hostile_repository_runs_no_command(root: Path, tmp_path: Path) -> None:
    write(root, PART)
    write(root, ".duckkb/journal")
    git(root, "add", "-A", "-f")
    commit(root)
    blob = git(root, "rev-parse", f"HEAD:{PART}").strip()
    canary = tmp_path / "canary"
    hostile(root, canary)
    assert repository.head_has_records(root) is True
    assert repository.tracks_state(root) is True
    assert git_process.text(root, ["cat-file", "blob", f"HEAD:{PART}"]) == "{}"
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()  # a partial clone would fetch it
    assert git_process.answer(root, ["cat-file", "blob", f"HEAD:{PART}"]).code
    repository.branch(root)
    repository.is_main_branch(root)
    assert not canary.exists(), canary.read_text()


def test_the_canary_sings_when_git_is_asked_without_care(root: Path, tmp_path: Path) -> None:
    write(root, PART)
    commit(root)
    hostile(root, tmp_path / "canary")
    subprocess.run(["git", "status"], cwd=root, capture_output=True, check=False)
    assert (tmp_path / "canary").exists()


def test_without_the_git_program_files_still_answer(root: Path, tmp_path: Path) -> None:
    write(root, PART)
    write(root, ".duckkb/journal")
    git(root, "add", "-f", ".duckkb", "data")
    first = commit(root)
    program = (
        "import sys; from pathlib import Path; from duckkb.storage import repository as h; r = Path(sys.argv[1]);"
        "print(h.branch(r), h.head_commit(r), h.tracks_state(r), h.head_has_records(r),"
        "h.is_main_branch(r), h.operation_in_progress(r))"
    )
    environment = {"PATH": str(tmp_path), "PYTHONPATH": SOURCES}
    command = [sys.executable, "-c", program, str(root)]
    shown = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode()
    assert shown.split() == ["main", first, "True", "False", "True", "None"]


def test_a_git_folder_that_cannot_be_listed_is_no_folder_without_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a split index may say that truth is left out, or that local state is tracked."""
    write(root, PART)
    git(root, "add", "-A")

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    for asked in (repository.index_versions, repository.tracks_state):
        with pytest.raises(Unavailable, match="cannot be read"):
            asked(root)
