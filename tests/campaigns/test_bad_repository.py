"""Bad surroundings of truth: a repository that is broken or busy, and local state that a stranger laid out."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base
from tests.harness.bad_inputs.ground import Bad, complaints, invoke, unmended
from tests.harness.campaign import Campaign


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "here" / "kb", NOTES)
    assert invoke(root, ["put", "Note", '{"id":"a","title":"x"}']).code == 0
    commit(root)
    return root


def _pick(root: Path, verb: str) -> None:
    """Leaves git in the middle of `verb`, with a conflict over config.yaml so that data/ stays readable."""
    settings = root / "config.yaml"
    first = settings.read_text("utf-8")
    git(root, "checkout", "-q", "-b", "other")
    settings.write_text("# theirs\n" + first, "utf-8")
    commit(root, "theirs")
    git(root, "checkout", "-q", "main")
    settings.write_text("# ours\n" + first, "utf-8")
    commit(root, "ours")
    subprocess.run(["git", "-C", str(root), verb, "other"], capture_output=True, check=False)
    settings.write_text(first, "utf-8")


BUSY: dict[str, Callable[[Path], object]] = {
    "a merge": partial(_pick, verb="merge"),
    "a rebase": partial(_pick, verb="rebase"),
    "a cherry-pick": partial(_pick, verb="cherry-pick"),
    "a revert": lambda root: (root / ".git/REVERT_HEAD").write_text(git(root, "rev-parse", "HEAD")),
    "am": lambda root: ((root / ".git/rebase-apply").mkdir(), (root / ".git/rebase-apply/applying").touch()),
    "an interactive rebase": lambda root: (root / ".git/rebase-merge").mkdir(),
    "a series of picks": lambda root: (
        (root / ".git/sequencer").mkdir(), (root / ".git/sequencer/todo").write_text("pick 123 x\n")),
}  # fmt: skip


@pytest.mark.parametrize("name", BUSY)
def test_writes_refuse_while_git_is_in_the_middle_of_something(campaign: Campaign, base: Path, name: str) -> None:
    BUSY[name](base)
    assert invoke(base, ["get", "Note", "a"]).code == 0
    wrong = []
    for verb in (["put", "Note", '{"id":"b"}'], ["delete", "Note", "a"], ["fmt"], ["dedupe"], ["index", "build"]):
        wrong += unmended(base, Bad(f"{name}: {verb[0]}", verb, 1, "E_MERGE_IN_PROGRESS"))
    campaign.count("bad inputs tried: surroundings of truth", 5)
    assert not wrong, "\n".join(wrong)


def _shallow(root: Path) -> None:
    commit(root, "another")
    clone = root.parent / "clone"
    git(root.parent, "clone", "-q", "--depth", "1", root.as_uri(), str(clone))
    shutil.rmtree(root / ".git")
    shutil.move(clone / ".git", root / ".git")
    shutil.rmtree(clone)


def _bare(root: Path) -> None:
    git(root, "config", "core.bare", "true")


def _without(name: str, root: Path) -> None:
    target = root / ".git" / name
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)


def _holding(name: str, data: bytes, root: Path) -> None:
    (root / ".git" / name).write_bytes(data)


def _git_file(data: bytes, root: Path) -> None:
    shutil.rmtree(root / ".git")
    (root / ".git").write_bytes(data)


def _fifo(name: str, root: Path) -> None:
    target = root / name
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    os.mkfifo(target)


REPOSITORIES: dict[str, Callable[[Path], object]] = {
    "no .git": lambda root: shutil.rmtree(root / ".git"),
    "a bare one": _bare,
    "a shallow one": _shallow,
    "no HEAD": partial(_without, "HEAD"),
    "no objects": partial(_without, "objects"),
    "no refs": partial(_without, "refs"),
    "no index": partial(_without, "index"),
    "no config": partial(_without, "config"),
    "HEAD of noise": partial(_holding, "HEAD", b"\xff\0\x01noise"),
    "an empty HEAD": partial(_holding, "HEAD", b""),
    "HEAD to nothing": partial(_holding, "HEAD", b"ref: refs/heads/gone\n"),
    "HEAD in a circle": partial(_holding, "HEAD", b"ref: HEAD\n"),
    "HEAD out of the repository": partial(_holding, "HEAD", b"ref: ../../../../etc/passwd\n"),
    "HEAD of a missing commit": partial(_holding, "HEAD", b"0" * 40 + b"\n"),
    "HEAD of an escape": partial(_holding, "HEAD", b"ref: refs/heads/a\x1b[31m\nb\n"),
    "an index of noise": partial(_holding, "index", b"DIRC" + b"\xff" * 100),
    "an empty index": partial(_holding, "index", b""),
    "a config that runs commands": partial(_holding, "config", b"[core]\n\tfsmonitor = touch ../../ran\n\tpager = touch ../../ran\n"),
    "a config of noise": partial(_holding, "config", b"\xff\xfe["),
    "a config that asks for more": partial(_holding, "config", b"[core]\n\trepositoryformatversion = 9\n[extensions]\n\tnew = true\n"),
    ".git that points nowhere": partial(_git_file, b"gitdir: /nowhere/at/all\n"),
    ".git that points at itself": partial(_git_file, b"gitdir: .\n"),
    ".git of noise": partial(_git_file, b"\xff\0noise"),
    "an empty .git": partial(_git_file, b""),
    ".git a FIFO": partial(_fifo, ".git"),
    "HEAD a FIFO": partial(_fifo, ".git/HEAD"),
    "the index a FIFO": partial(_fifo, ".git/index"),
    "packed-refs a FIFO": partial(_fifo, ".git/packed-refs"),
    "a merge head that is a FIFO": partial(_fifo, ".git/MERGE_HEAD"),
    "todo a FIFO": lambda root: ((root / ".git/sequencer").mkdir(), os.mkfifo(root / ".git/sequencer/todo")),
}  # fmt: skip


@pytest.mark.parametrize("turn", range(3))
def test_a_broken_repository_keeps_nobody_from_reading_and_never_runs_anything(
    campaign: Campaign, base: Path, turn: int
) -> None:
    wrong: list[str] = []
    names = sorted(REPOSITORIES)[turn::3]
    for number, name in enumerate(campaign.random(f"{turn}").sample(names, campaign.pick(3, len(names)))):
        root = base.parent / f"{number}" / "kb"
        shutil.copytree(base, root, symlinks=True)
        REPOSITORIES[name](root)
        wrong += _tried(root, name)
        campaign.count("bad inputs tried: surroundings of truth", 5)
    assert not any(base.parent.parent.rglob("ran")), "a command of the configuration ran"
    assert not wrong, "\n".join(wrong)


def _tried(root: Path, name: str) -> list[str]:
    wrong: list[str] = []
    put = ["put", "Note", '{"id":"b"}']
    for verb in (["list", "Note"], ["status"], ["check"], put, [*put, "--dry-run"]):
        ran = invoke(root, verb)
        wrong += [f"{name}: {verb[0]}: {one}\n{ran.err}" for one in complaints(ran, as_json=False, reports=True)]
        is_busy = name == "a merge head that is a FIFO" and "a merge is in progress" in ran.err
        if ran.code and not is_busy:
            wrong.append(f"{name}: {verb[0]}: exit code {ran.code}: {ran.err}")
    return wrong


GONE: dict[str, Callable[[Path], object]] = {
    "data/": lambda root: shutil.rmtree(root / "data"),
    "all of data/": lambda root: (shutil.rmtree(root / "data"), (root / "data").mkdir()),
    "data/nodes": lambda root: shutil.rmtree(root / "data/nodes"),
    "the table": lambda root: shutil.rmtree(root / "data/nodes/note"),
    "the part": lambda root: [part.unlink() for part in (root / "data").rglob("*.jsonl")],
    "data/, and the index too": lambda root: (shutil.rmtree(root / "data"), git(root, "rm", "-rq", "--cached", "data")),
}


@pytest.mark.parametrize("name", GONE)
def test_data_that_is_gone_while_head_has_records_is_never_an_empty_base(
    campaign: Campaign, base: Path, name: str
) -> None:
    GONE[name](base)
    wrong = []
    for verb in (
        ["list", "Note"],
        ["find", "Note", "x"],
        ["put", "Note", '{"id":"b"}'],
        ["fmt"],
        ["sql", "SELECT 1"],
        ["status"],
    ):
        wrong += unmended(base, Bad(f"without {name}: {verb[0]}", verb, 1, "E_DATA_MISSING"))
    campaign.count("bad inputs tried: surroundings of truth", 6)
    assert not wrong, "\n".join(wrong)


def test_records_of_types_that_the_ontology_lost_are_no_missing_data(campaign: Campaign, base: Path) -> None:
    settings = base / "config.yaml"
    settings.write_text(NOTES.replace("table: note", "table: notices"), "utf-8")
    before = {path: path.read_bytes() for path in (base / "data/nodes/note").rglob("*.jsonl")}
    assert invoke(base, ["list", "Note"]).code == 0
    assert "E_UNEXPECTED_FILE" in invoke(base, ["check"]).out
    assert invoke(base, ["put", "Note", '{"id":"new"}']).code == 0
    assert {path: path.read_bytes() for path in before} == before
    campaign.count("bad inputs tried: surroundings of truth")


STATE = (".duckkb", ".duckkb/lock", ".duckkb/txn", ".duckkb/cache", ".duckkb/clone_id", ".duckkb/.gitignore",
         ".duckkb/merge.json", ".duckkb/snapshot")  # fmt: skip


KINDS = ("link", "loop", "FIFO", "folder", "file", "noise")


@pytest.mark.parametrize("path", STATE)
def test_local_state_of_a_stranger_is_never_followed_waited_for_or_believed(
    campaign: Campaign, base: Path, path: str
) -> None:
    """Whatever lies there, reading goes on and a write is either done or refused; nothing outside is touched."""
    wrong = []
    for kind in campaign.random(path).sample(KINDS, campaign.pick(2, len(KINDS))):
        root = base.parent / kind / "kb"
        shutil.copytree(base, root, symlinks=True)
        (root.parent / "outside").mkdir()
        (root.parent / "outside" / "victim").touch()
        _lay(root / path, kind, root.parent / "outside")
        wrong += [f"{kind}: {one}" for one in _met(root)]
        campaign.count("bad inputs tried: surroundings of truth", 5)
    assert not wrong, "\n".join(wrong)


def _lay(target: Path, kind: str, outside: Path) -> None:
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    match kind:
        case "link":
            is_folder = target.name in (".duckkb", "txn", "cache", "snapshot")
            target.symlink_to(outside if is_folder else outside / "victim")
        case "loop":
            target.symlink_to(target.name)
        case "FIFO":
            os.mkfifo(target)
        case "folder":
            target.mkdir()
        case _:
            target.write_bytes(b"" if kind == "file" else os.urandom(4000))


def _met(root: Path) -> list[str]:
    wrong, started, outside = [], time.monotonic(), root.parent / "outside"
    for verb in (["list", "Note"], ["check"], ["put", "Note", '{"id":"b"}'], ["index", "status"], ["find", "Note", "x", "-m"]):  # fmt: skip
        ran = invoke(root, verb)
        wrong += [f"{verb[0]}: {one}\n{ran.err}" for one in complaints(ran, as_json=False, reports=True)]
        if ran.code and verb[0] not in ("put", "index"):
            wrong.append(f"{verb[0]}: exit code {ran.code}: {ran.err}")
    if sorted(path.name for path in outside.rglob("*")) != ["victim"] or (outside / "victim").read_bytes():
        wrong.append("something outside changed")
    if time.monotonic() - started > 60:
        wrong.append("it waited")
    return wrong
