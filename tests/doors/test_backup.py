"""A base as one file and back, through the real process: what comes back is compared by a walk of our own and by git's own
commands; what is damaged or hostile leaves nothing behind."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import duckkb
from duckkb import app
from duckkb.storage import backup, base_lock, bundle, commit_protocol, git_process
from duckkb.types import errors
from tests.conftest import NOTES, commit, git, make_base, run_in

pytestmark = pytest.mark.usefixtures("one_day")

Seen = dict[str, tuple[str, bytes]]
COLLECTION = "collections:\n  docs:\n    source: {path: docs, pattern: ['**/*.md']}\n    policy: {name: documents}\n"


def walked(top: Path) -> Seen:
    """Every file and link below a folder but git's and duckkb's own: its kind and mode, and its bytes or target."""
    found: Seen = {}
    for place, folders, files in os.walk(top):
        folders[:] = [one for one in folders if one not in (".git", ".duckkb")]
        for name in (*files, *(one for one in folders if Path(place, one).is_symlink())):
            path = Path(place, name)
            if path.is_symlink():
                found[str(path.relative_to(top))] = ("link", os.fsencode(os.readlink(path)))  # noqa: PTH115 (a Path would drop `./`)
            elif name != ".git":
                found[str(path.relative_to(top))] = (f"{stat.S_IMODE(path.stat().st_mode):o}", path.read_bytes())
    return found


def history(top: Path) -> list[str]:
    """What git says of all refs, of stashes, of what is staged and of what is changed."""
    told = [git(top, "for-each-ref", "--format=%(refname) %(objectname) %(symref)"), git(top, "rev-parse", "HEAD")]
    told += [
        git(top, "stash", "list", "--format=%H %gs"),
        git(top, "ls-files", "-s"),
        git(top, "status", "--porcelain"),
    ]
    head = subprocess.run(
        ["git", "-C", str(top), "symbolic-ref", "-q", "HEAD"], capture_output=True, text=True, check=False
    )
    return [*told, head.stdout]


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def fill(base: Path, top: Path) -> None:
    """A base with branches, tags, stashes, and work that is in no commit, of every kind; `top` is that of its repository."""
    (base / "ontology/collections").mkdir(parents=True)
    (base / "ontology/collections/docs.yaml").write_text(COLLECTION, "utf-8")
    (base / ".gitignore").write_text("ignored/\n*.tmp\ndocs/private.md\n", "utf-8")
    for name in ("keep", "change", "both", "gone", "unstaged", "dir/inner"):
        put(base / f"docs/{name}.md", f"# {name}\r\n\nwords\n".encode())
    put(base / "docs/unix.md", b"# Unix\n")
    (base / "link.md").symlink_to("docs/keep.md")
    put(top / "repository.bundle", b"not a bundle, and the user's")
    put(top / ".gitattributes", b"data/**/*.jsonl text eol=lf\n*.md text eol=crlf ident\n")
    assert run_in(base, ["put", "Note", '{"id": "one", "text": "first"}']).code == 0
    commit(top, "first")
    git(top, "branch", "side")
    git(top, "tag", "-a", "v1", "-m", "one")
    for number in ("1", "2"):
        put(base / "docs/change.md", number.encode())
        git(top, "stash", "push", "-q", "-m", f"stash {number}")
    git(top, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(top, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")


def work(base: Path, top: Path) -> None:
    """What no commit has."""
    assert run_in(base, ["put", "Note", '{"id": "two", "text": "second"}']).code == 0
    put(base / "docs/change.md", b"# Changed\n\x00\xff")
    put(base / "docs/both.md", b"# Staged\n")
    git(top, "add", str(base / "docs/both.md"))
    put(base / "docs/both.md", b"# And changed again\n")
    put(base / "docs/staged.md", b"# New\n")
    git(top, "add", str(base / "docs/staged.md"))
    (base / "docs/gone.md").unlink()
    git(top, "rm", "-q", "--cached", str(base / "docs/unstaged.md"))
    (base / "docs/dir/inner.md").unlink()
    (base / "docs/dir").rmdir()
    put(base / "docs/dir", b"a file where a folder was")
    put(base / "docs/new/\u5b89 \u88c5.md", b"# \xe5\xae\x89\n")
    put(base / "docs/private.md", b"# A document that git ignores\n")
    put(Path(os.fsdecode(os.fsencode(base) + b"/docs/b\xff\\d.bin")), b"odd")
    put(base / "docs/b\\xff\\d.bin", b"that name written out")
    put(base / "run.sh", b"#!/bin/sh\n")
    (base / "run.sh").chmod(0o750)
    (base / "docs/keep.md").chmod(0o755)
    (base / "beside").symlink_to(".//docs/")
    put(base / "ignored/x", b"can be made anew")
    put(base / "old.tmp", b"can be made anew")


def repository(tmp: Path, layout: str) -> tuple[Path, Path]:
    """The top of a work tree, and the base in it."""
    top = tmp / "work"
    base = make_base(top / "sub/kb" if layout == "part" else top, NOTES)
    if layout == "part":
        (base / ".git").rename(top / ".git")
        put(top / "other/code.py", b"x = 1\n")
    fill(base, top)
    if layout == "linked":
        git(top, "worktree", "add", "-q", "--detach", str(tmp / "tree"), "side")
        top = base = tmp / "tree"
        git(base, "commit", "-q", "--allow-empty", "-m", "on no branch")
    work(base, top)
    if layout == "part":
        put(top / "other/code.py", b"x = 2\n")
        put(top / "other/untracked", b"of no concern to the base")
    return top, base


def backed_up(base: Path, *words: str) -> tuple[Path, dict[str, Any]]:
    ran = run_in(base, ["backup", "create", *words])
    assert ran.code == 0, ran.err
    return base / ran.line["file"], ran.line


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A base with a commit and a change."""
    base = make_base(tmp_path / "kb", NOTES)
    for name in ("one", "two"):
        assert run_in(base, ["put", "Note", json.dumps({"id": name})]).code == 0
        commit(base) if name == "one" else None
    return base


@pytest.mark.long
@pytest.mark.parametrize("layout", ["top", "part", "linked"])
def test_kx_11_a_backup_brings_back_every_byte_every_ref_and_what_was_staged(tmp_path: Path, layout: str) -> None:
    top, base = repository(tmp_path, layout)
    seen, told = walked(top), history(top)
    inside = f"{base.relative_to(top)}/" if base != top else ""
    file, line = backed_up(base, str(tmp_path / "saved.zip"))
    assert (walked(top), history(top)) == (seen, told), "it reads alone"
    assert line["left_out"] == []
    verified = run_in(tmp_path, ["backup", "verify", str(file)])
    assert verified.code == 0, verified.err
    assert verified.line["records"] > 2 and verified.line["errors"] == 0
    ran = run_in(tmp_path, ["backup", "restore", "saved.zip", "back"])
    assert ran.code == 0, ran.err
    back = tmp_path / "back"
    for name in ("ignored/x", "old.tmp"):
        del seen[inside + name]
    seen.pop("other/untracked", None)
    assert walked(back) == seen
    assert [one.replace("?? other/untracked\n", "") for one in told] == history(back)
    assert git(back, "show", f":{inside}docs/both.md") == "# Staged\n"
    assert git(back, "fsck", "--no-dangling") == ""
    assert [one.name for one in (back / ".git").iterdir() if one.name in ("hooks", "bundle", "worktrees")] == []
    notes = [run_in(folder, ["list", "Note"]).out for folder in (base, back / inside)]
    assert notes[0] == notes[1] and '"two"' in notes[0]
    assert run_in(back / inside, ["ls", "docs"]).out == run_in(base, ["ls", "docs"]).out


@pytest.mark.long
def test_kx_11_a_base_without_git_or_without_a_commit_comes_back(tmp_path: Path) -> None:
    for name in ("plain", "unborn"):
        base = make_base(tmp_path / name, NOTES)
        assert run_in(base, ["put", "Note", '{"id": "one"}']).code == 0
        if name == "plain":
            shutil.rmtree(base / ".git")
            os.mkfifo(base / "pipe")
        file, line = backed_up(base)
        assert [one.partition(":")[0] for one in line["left_out"]] == (["pipe"] if name == "plain" else [])
        (base / "pipe").unlink(missing_ok=True)
        assert file.resolve().parent == tmp_path and line["commit"] is None
        file.rename(base / file.name)
        again, _ = backed_up(base, "again.zip")
        ran = run_in(tmp_path, ["backup", "restore", str(again), f"{name}-back"])
        assert ran.code == 0, ran.err
        seen = walked(base)
        del seen[file.name], seen["again.zip"]
        assert walked(tmp_path / f"{name}-back") == seen, "backups are in no backup"
        assert (tmp_path / f"{name}-back/.git").exists() == (name == "unborn")


def test_kx_11_what_cannot_be_saved_is_said_and_a_merge_is_refused(small: Path, tmp_path: Path) -> None:
    (small / "out").symlink_to("../elsewhere")
    git(small, "init", "-q", "nested")
    put(small / "nested/file", b"of another repository")
    far = tmp_path / "far"
    put(far / "a.md", b"# Far\n")
    assert run_in(small, ["collection", "add", str(far), "--name", "far"]).code == 0
    _, line = backed_up(small, "b.zip")
    said = " ".join(line["left_out"])
    assert len(line["left_out"]) == 3 and all(name in said for name in ("out: ", "nested/: ", str(far)))
    shutil.rmtree(small / "nested")
    git(small, "checkout", "-q", "-b", "side")
    put(small / "a.txt", b"side")
    commit(small)
    git(small, "checkout", "-q", "main")
    put(small / "a.txt", b"main")
    commit(small)
    subprocess.run(["git", "-C", str(small), "merge", "-q", "side"], capture_output=True, check=False)
    ran = run_in(small, ["backup", "create", "c.zip"])
    assert ran.code == 1 and "merge" in ran.err and not list(small.glob("*c.zip*"))


def test_kx_11_what_a_sparse_checkout_keeps_out_is_not_deleted(small: Path, tmp_path: Path) -> None:
    for name in ("in.md", "out/a.md", "out/b.md"):
        put(small / name, b"# Words\n")
    commit(small)
    whole = walked(small)
    git(small, "sparse-checkout", "set", "--no-cone", "/*", "!/out/")
    put(small / "out/b.md", b"# Written nevertheless\n")
    (small / "in.md").unlink()
    file, line = backed_up(small, str(tmp_path / "b.zip"))
    assert (line["deleted"], line["files"]) == (1, 1), line
    assert run_in(tmp_path, ["backup", "restore", str(file), "back"]).code == 0
    del whole["in.md"]
    assert walked(tmp_path / "back") == whole | {"out/b.md": ("644", b"# Written nevertheless\n")}
    assert git(tmp_path / "back", "status", "--porcelain") == " D in.md\n M out/b.md\n"


def test_kx_11_what_no_backup_may_hold_is_left_out_of_it_and_stops_none(small: Path, tmp_path: Path) -> None:
    for name in ("changed", "gone"):
        put(small / f"other/.duckkb/{name}", b"local to another base")
    git(small, "add", "-f", "other")
    git(small, "commit", "-q", "-m", "by mistake")
    put(small / "other/.duckkb/changed", b"meanwhile")
    (small / "other/.duckkb/gone").unlink()
    file, line = backed_up(small, str(tmp_path / "b.zip"))
    assert [one.partition(":")[0] for one in line["left_out"]] == ["other/.duckkb/changed", "other/.duckkb/gone"]
    assert run_in(tmp_path, ["backup", "verify", str(file)]).code == 0


SLOW = """#!/bin/sh
case " $* " in *" read-tree "*|*" update-index "*|*" fsck "*|*" bundle "*) sleep 0.5;; esac
exec {git} "$@"
"""


@pytest.mark.long
def test_kx_11_git_takes_as_long_as_a_large_repository_takes(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin/git", SLOW.format(git=shutil.which("git")).encode())
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git_process, "SECONDS", 0.4)
    with duckkb.open(small) as kb:
        kb.backup(tmp_path / "b.zip")
    app.restore_backup(tmp_path / "b.zip", tmp_path / "back")
    assert walked(tmp_path / "back") == walked(small)


@pytest.mark.parametrize("target", ["kb", "tree"])
def test_kx_11_work_trees_that_are_linked_with_what_was_there_are_named(
    small: Path, tmp_path: Path, target: str
) -> None:
    git(small, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    put(tmp_path / "tree/new.md", b"in no commit")
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    ran = run_in(tmp_path, ["backup", "restore", str(file), target, "--force"])
    before = Path(ran.line["before"])
    assert ran.line["repair"] in ran.err
    subprocess.run(ran.line["repair"], shell=True, check=True, capture_output=True)
    listed = git(before, "worktree", "list", "--porcelain")
    places = {"kb": (before, tmp_path / "tree"), "tree": (small, before)}[target]
    assert [line[9:] for line in listed.splitlines() if line.startswith("worktree ")] == [*map(str, places)]
    assert git(places[1], "status", "--porcelain") == "?? new.md\n"
    again = run_in(tmp_path, ["backup", "restore", str(file), "fresh"])
    assert again.line["repair"] is None and "work trees" not in again.err


def test_kx_11_an_interrupted_write_is_finished_first_and_a_writer_is_waited_for(small: Path, tmp_path: Path) -> None:
    (part,) = (small / "data/nodes/note").rglob("*.jsonl")
    path, old = str(part.relative_to(small)), part.read_bytes()
    new = old.replace(b'"two"', b'"TWO"')

    class Stopped(BaseException):
        pass

    def stop(step: str) -> None:
        if step.startswith("replace"):
            raise Stopped

    with contextlib.suppress(Stopped), base_lock.exclusive(small, 1):
        commit_protocol.commit(
            small, [commit_protocol.FileChange(path, hashlib.sha256(old).hexdigest(), new)], on_step=stop
        )
    assert part.read_bytes() == old and commit_protocol.is_pending(small)
    with base_lock.exclusive(small, 1):
        ran = run_in(small, ["backup", "create", str(tmp_path / "no.zip"), "--lock-timeout", "0", "--json"])
        assert (ran.code, ran.error["code"]) == (1, "E_LOCKED")
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    assert run_in(tmp_path, ["backup", "restore", str(file), "back"]).code == 0
    assert (tmp_path / "back" / path).read_bytes() == new


def test_kx_11_a_flipped_byte_anywhere_fails(small: Path, tmp_path: Path) -> None:
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    whole, chance = file.read_bytes(), random.Random(11)
    with zipfile.ZipFile(file) as read:
        assert read.testzip() is None and read.comment.decode() == hashlib.sha256(whole[:-64]).hexdigest()
    places = [*range(40), *range(len(whole) - 100, len(whole)), *(chance.randrange(len(whole)) for _ in range(200))]
    for at in places:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        file.write_bytes(flipped)
        with pytest.raises(errors.StateError) as raised:
            app.verify_backup(file)
        assert raised.value.code == "E_BACKUP", at
    for length in (0, 10, 64, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        ran = run_in(tmp_path, ["backup", "verify", str(file), "--json"])
        assert (ran.code, ran.error["code"]) == (1, "E_BACKUP")
        assert run_in(tmp_path, ["backup", "restore", str(file), "back"]).code == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b.zip", "kb"]


def test_kx_11_nothing_is_overwritten_without_force_and_the_old_folder_is_kept(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    for words in (
        ["create", str(file)],
        ["restore", str(file), "kb"],
        ["restore", str(file)],
        ["restore", str(file), "b.zip"],
    ):
        before = walked(tmp_path)
        ran = run_in(tmp_path, ["backup", *words, "--json", "--kb", str(small)])
        assert (ran.code, ran.error["code"]) == (2, "E_PATH"), words
        assert walked(tmp_path) == before
    with duckkb.open(small) as kb:
        assert kb.backup(tmp_path / "c.zip")["files"] == 1 and kb.scheduler()["running"] is False
    put(small / "later.md", b"written after the backup")
    old, older = walked(small), history(small)
    ran = run_in(tmp_path, ["backup", "restore", str(file), "--force"])
    assert ran.code == 0, ran.err
    aside = Path(ran.line["before"])
    assert (walked(aside), history(aside)) == (old, older) and aside.name.startswith("kb.before-")
    del old["later.md"]
    assert walked(small) == old
    assert run_in(small, ["put", "Note", '{"id": "three"}']).code == 0
    monkeypatch.setattr(backup, "_swap_names", lambda *_: False)  # as where a system exchanges no names
    again = Path(app.restore_backup(file, small, force=True)["before"])
    assert walked(small) == old and b'"three"' in b"".join(data for _, data in walked(again).values())
    (tmp_path / "empty").mkdir()
    assert run_in(tmp_path, ["backup", "restore", str(file), "empty"]).code == 0
    assert not list(tmp_path.glob("*restoring*"))


Forgery = Callable[[dict[str, Any], dict[str, bytes]], None]


def forged(source: Path, target: Path, change: Forgery, method: int = zipfile.ZIP_STORED) -> Path:
    """A backup with another content and the digest that belongs to it."""
    with zipfile.ZipFile(source) as read:
        entries = {name: read.read(name) for name in read.namelist()}
    manifest = json.loads(entries.pop("manifest.json"))
    change(manifest, entries)
    with zipfile.ZipFile(target, "w", method) as made:
        for name, data in entries.items():
            made.writestr(zipfile.ZipInfo(name), data, method)
        made.writestr("manifest.json", json.dumps(manifest), method)
        made.comment = b"0" * 64
    data = target.read_bytes()[:-64]
    target.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    return target


def holding(path: str, data: bytes = b"evil", mode: int = 0o100644) -> Forgery:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        entries[f"files/{path}"] = data
        digest = hashlib.sha256(data).hexdigest()
        manifest["files"].append({"path": path, "size": len(data), "sha256": digest, "mode": mode})

    return change


def with_bundle(old: bytes, new: bytes) -> Forgery:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        data = entries["repository.bundle"]
        head, pack, rest = data.partition(b"PACK")
        assert old in head
        data = entries["repository.bundle"] = head.replace(old, new) + pack + rest
        manifest["bundle"] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    return change


def with_history(repository: Path, bundle: Path) -> Forgery:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        data = entries["repository.bundle"] = bundle.read_bytes()
        manifest["bundle"] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest["checkout"]["commit"] = git(repository, "rev-parse", "HEAD").strip()

    return change


def both(*changes: Forgery) -> Forgery:
    def all_of_them(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        for change in changes:
            change(manifest, entries)

    return all_of_them


def saying(**values: Any) -> Forgery:
    return lambda manifest, _: manifest.update(values)


def of_checkout(**values: Any) -> Forgery:
    return lambda manifest, _: manifest["checkout"].update(values)


def hostile() -> Iterator[tuple[str, Forgery]]:
    kept = (
        "../x",
        "/nowhere/x",
        "a/../../x",
        "a//b",
        "./a",
        ".git/hooks/post-checkout",
        "d/.GIT/config",
        ".g\u200cit/config",
        "git~1/x",
    )
    for path in (*kept, ".duckkb/txn/1/journal", ".duckkb/lock", ".duckkb/rescued/../lock", "a/.duckkb/emptied"):
        yield path, holding(path)
        yield f"deleted {path}", saying(deleted=[path])
    for to in ("../out", "/etc/passwd", "data/../../out", ".git/hooks"):
        yield f"link {to}", holding("l", to.encode(), 0o120777)
    yield "chain", both(holding("d/up", b"..", 0o120777), holding("e", b"d/up/../out", 0o120777))
    yield "through a link", both(holding("l", b"data", 0o120777), holding("l/x"))
    yield "file below a file", both(holding("f"), holding("f/x"))
    yield "device", holding("dev", b"", 0o020644)
    yield "twice", both(holding("f"), lambda manifest, _: manifest["files"].append(manifest["files"][-1]))
    yield "unnamed", lambda _, entries: entries.update({"files/more": b"x"})
    yield "missing", lambda manifest, _: manifest["files"].append({**manifest["files"][0], "path": "more"})
    yield "other bytes", lambda _, entries: entries.update({next(iter(entries)): b"x"})
    for name in (b"refs/heads/../x", b"refs/../config", b"config", b"worktrees/x/HEAD", b"refs/heads/a.lock"):
        yield name.decode(), with_bundle(b"refs/heads/main", name)
    yield "other HEAD", lambda manifest, _: manifest["checkout"].update(branch="refs/heads/../../x")
    yield "base", saying(base="../elsewhere")
    yield "format", saying(format=2)
    yield "no list", saying(files=7)
    yield "huge manifest", saying(left_out=["x" * (65 << 20)])
    for mode in (1 << 70, -1, 0o1100644):
        yield f"mode {mode}", holding("m", mode=mode)
    yield "long link", holding("l", b"x" * (1 << 20), 0o120777)
    yield "no folder", saying(base="nowhere")
    for text in ("a\0b", "\ud800"):
        yield f"deleted {text!r}", saying(deleted=[text])
        yield f"stash {text!r}", of_checkout(stashes=[["1" * 40, text]])
        yield f"branch {text!r}", of_checkout(branch=f"refs/heads/{text}")
    yield "no such index", of_checkout(index="1" * 40)
    yield "one more key", of_checkout(more=1)


@pytest.mark.long
def test_kx_11_hostile_backups_are_refused_and_nothing_is_written(small: Path, tmp_path: Path) -> None:
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    room = tmp_path / "room/deep"
    room.mkdir(parents=True)
    taken = []
    for name, change in hostile():
        bad = forged(file, tmp_path / "bad.zip", change)
        try:
            app.restore_backup(bad, room / "back")
            taken.append(name)
        except errors.StateError:
            pass
        assert not list(room.iterdir()) and list(room.parent.iterdir()) == [room], name
    assert taken == []
    bomb = forged(file, tmp_path / "bad.zip", holding("zeros", bytes(50 << 20)), zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    ran = run_in(tmp_path, ["backup", "restore", str(bomb), str(room / "back"), "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_BACKUP") and not list(room.iterdir())
    data = (
        file.read_bytes()[:-64]
        .replace(b"PK\x01\x02\x2d", b"PK\x01\x02\xff")
        .replace(b"\x2d\x00\x00\x00", b"\xff\x00\x00\x00")
    )
    newer = tmp_path / "newer.zip"
    newer.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    with pytest.raises(errors.StateError, match="not a usable backup"):
        app.verify_backup(newer)
    for path in (".duckkb/txn/x/journal", "way"):
        git(small, "rm", "-rq", "--cached", "--ignore-unmatch", ".duckkb", "way")
        if path == "way":
            (small / path).symlink_to(room)
        else:
            put(small / path, b"to be carried out")
        git(small, "add", "-f", path)
        git(small, "commit", "-q", "-m", path)
        git(small, "bundle", "create", "-q", str(tmp_path / "bundle"), "--all")
        bad = forged(file, tmp_path / "bad.zip", both(with_history(small, tmp_path / "bundle"), holding("way/x")))
        with pytest.raises(errors.StateError) as raised:
            app.restore_backup(bad, room / "back")
        assert raised.value.code == ("E_SYMLINK" if path == "way" else "E_BACKUP") and not list(room.iterdir())
    good = forged(file, tmp_path / "bad.zip", holding("fine"))
    assert app.restore_backup(good, room / "back")["files"] == 2, "what is refused is refused for what it is"


def test_kx_11_history_that_unfolds_to_more_than_the_disk_holds_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = git(small, "rev-parse", "HEAD:config.yaml").strip()
    kind = "100644 blob"
    for _ in range(8):  # 10 entries each: 10 ** 8 files in a kilobyte
        lines = "".join(f"{kind} {id}\tf{at}\n" for at in range(10))
        id = subprocess.run(
            ["git", "-C", str(small), "mktree"], input=lines, capture_output=True, text=True, check=True
        ).stdout.strip()
        kind = "040000 tree"
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    made = git(small, "commit-tree", "-m", "vast", id).strip()
    git(small, "update-ref", "refs/heads/main", made)
    git(small, "bundle", "create", "-q", str(tmp_path / "bundle"), "--all")
    bad = forged(file, tmp_path / "bad.zip", with_history(small, tmp_path / "bundle"))
    monkeypatch.setattr(bundle, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(errors.Unavailable, match="more room"):
        app.restore_backup(bad, tmp_path / "back")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b.zip", "bad.zip", "bundle", "kb"]


def test_kx_11_no_hook_filter_or_setting_of_the_user_runs(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template/hooks"
    template.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        put(template / name, f"#!/bin/sh\ntouch {tmp_path}/ran\n".encode())
        (template / name).chmod(0o755)
    put(small / ".gitattributes", b"* filter=mine\n")
    commit(small)
    put(tmp_path / "gitconfig", f"[init]\n\ttemplateDir = {template.parent}\n[core]\n\thooksPath = {template}\n"
        f"\tautocrlf = true\n[filter \"mine\"]\n\tsmudge = touch {tmp_path}/ran; cat\n\tclean = touch {tmp_path}/ran; cat\n".encode())  # fmt: skip
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    assert run_in(tmp_path, ["backup", "restore", str(file), "back"]).code == 0
    assert walked(tmp_path / "back") == walked(small)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "back/.git/hooks").exists()


KILLED = """
import os, signal, sys
from duckkb.storage import backup as rebuild
from duckkb import app
at, count = int(sys.argv[1]), 0
def step():
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
def stepping(call):
    def run(*args, **given):
        step()
        told = call(*args, **given)
        step()
        return told
    return run
os.rename = stepping(os.rename)
rebuild._swap_names = stepping(rebuild._swap_names)
rebuild.rebuild = stepping(rebuild.rebuild)
app.restore_backup(sys.argv[2], sys.argv[3], force=True)
"""


@pytest.mark.long
def test_kx_11_kill_9_leaves_the_old_folder_or_the_new_one(small: Path, tmp_path: Path) -> None:
    file, _ = backed_up(small, str(tmp_path / "b.zip"))
    new = walked(small)
    room, ended = tmp_path / "room", []
    chance = random.Random(11)
    for number in range(1, 13):
        target = room / f"{number}/kb"
        for path in ("mine.txt", "sub/mine.txt"):
            put(target / path, b"old")
        old = walked(target)
        if number <= 7:  # before and after each step that matters
            done = subprocess.run([sys.executable, "-c", KILLED, str(number), str(file), str(target)], check=False)
            ended.append(done.returncode)
        else:
            command = [sys.executable, "-m", "duckkb", "backup", "restore", str(file), str(target), "--force"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(chance.uniform(0.1, 0.9))
                process.kill()
        found = walked(target)
        assert found in (old, new), number
        beside = [one for one in target.parent.iterdir() if one != target]
        assert len(beside) <= 1 and all(".restoring-" in one.name or ".before-" in one.name for one in beside)
        assert found == old or walked(beside[0]) == old, "what was there is there"
    assert ended == [-9] * 6 + [0], "each step was met"


def test_kx_11_scheduler_status_says_what_works_in_the_background(small: Path) -> None:
    ran = run_in(small, ["scheduler", "status"])
    assert ran.code == 0, ran.err
    assert (ran.line["running"], ran.line["job"], ran.line["next"], ran.line["locked_by"]) == (False, None, None, None)
    assert run_in(small, ["index", "refresh"]).code == 0
    line = run_in(small, ["scheduler", "status"]).line
    assert (line["job"]["verb"], line["job"]["ended"], line["running"]) == ("refresh", "fresh", False)
    with base_lock.exclusive(small, 1):
        ran = run_in(small, ["scheduler", "status"])
        assert ran.code == 0 and ran.line["locked_by"] and ran.line["missing"] is None
