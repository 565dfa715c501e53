"""What a commit refuses, what it keeps, and what it leaves where the disk refuses."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import duckkb
from duckkb.storage import commit_protocol
from duckkb.types import errors

SOURCES = str(Path(duckkb.__file__).parents[1])
DAY = "data/nodes/note/20260101"
PART = f"{DAY}/part_000.jsonl"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(path: str, data: bytes | None, old: bytes | None = None) -> commit_protocol.FileChange:
    return commit_protocol.FileChange(path, None if old is None else sha(old), data)


def write(root: Path, path: str, data: bytes = b"old\n") -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
    return root / path


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and ".duckkb" not in p.parts
    }


def folders(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir() and ".duckkb" not in p.parts}


def test_new_changed_and_deleted_files_of_data_and_ontology_change_together(tmp_path: Path) -> None:
    write(tmp_path, PART)
    write(tmp_path, "ontology/collections/旧.yaml")
    facts = commit_protocol.commit(
        tmp_path,
        [
            put("ontology/collections/旧.yaml", None, b"old\n"),
            put(PART, "新\n".encode(), b"old\n"),
            put("ontology/collections/new.yaml", b"policy: x\n"),
            put("data/FORMAT.json", b""),
        ],
    )
    assert tree(tmp_path) == {
        PART: "新\n".encode(),
        "ontology/collections/new.yaml": b"policy: x\n",
        "data/FORMAT.json": b"",
    }
    assert {path: fact.st_size for path, fact in facts.items()} == {
        PART: 4,
        "ontology/collections/new.yaml": 10,
        "data/FORMAT.json": 0,
    }


def test_without_changes_nothing_is_made(tmp_path: Path) -> None:
    assert commit_protocol.commit(tmp_path, []) == {}
    assert list(tmp_path.iterdir()) == []


def test_content_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    before = write(tmp_path, PART).stat()
    facts = commit_protocol.commit(tmp_path, [put(PART, b"old\n", b"old\n"), put("data/absent", None)])
    after = (tmp_path / PART).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [(path, fact.st_ino) for path, fact in facts.items()] == [(PART, before.st_ino)]
    assert not (tmp_path / ".duckkb").exists()


def test_modes_follow_the_umask_and_the_file_replaced(tmp_path: Path) -> None:
    write(tmp_path, PART).chmod(0o600)
    before = os.umask(0o027)
    try:
        commit_protocol.commit(tmp_path, [put(PART, b"new\n", b"old\n"), put(f"{DAY}/part_001.jsonl", b"")])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / PART).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / DAY / "part_001.jsonl").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "path",
    [
        "config.yaml",
        "data",
        "/etc/passwd",
        "data/../config.yaml",
        "data/./x",
        "data//x",
        "data/x/",
        "./data/x",
        "data\\x",
        ".duckkb/lock",
        ".git/config",
        "",
        "data/a\0b",
        "data/a\nb",
        "DATA/x",
    ],
)
def test_paths_outside_data_and_ontology_are_refused_and_all_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        commit_protocol.commit(tmp_path, [put(path, b"x"), put("data/good", b"x"), put("elsewhere/y", b"x")])
    assert caught.value.code == "E_PATH"
    assert [finding.path for finding in caught.value.findings] == [path, "elsewhere/y"]
    assert tree(tmp_path) == {}


def test_a_path_named_twice_or_as_file_and_folder_is_refused(tmp_path: Path) -> None:
    for pair in (("data/x", "data/x"), ("data/x", "data/x/y")):
        with pytest.raises(errors.UsageError):
            commit_protocol.commit(tmp_path, [put(path, b"1") for path in pair])
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("place", ["data", "data/nodes", "data/nodes/note", DAY])
def test_a_link_above_a_target_is_refused_and_nothing_written_through_it(tmp_path: Path, place: str) -> None:
    root, outside = tmp_path / "base", tmp_path / "outside"
    outside.mkdir()
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(outside)
    with pytest.raises(errors.StateError) as caught:
        commit_protocol.commit(root, [put(PART, b"x")])
    assert caught.value.code == "E_SYMLINK"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "code"), [("link", "E_SYMLINK"), ("fifo", "E_NOT_REGULAR"), ("folder", "E_NOT_REGULAR")]
)
def test_a_target_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str, code: str) -> None:
    target = tmp_path / PART
    target.parent.mkdir(parents=True)
    if kind == "link":
        target.symlink_to(tmp_path / "absent")
    elif kind == "fifo":
        os.mkfifo(target)
    else:
        target.mkdir()
    with pytest.raises(errors.StateError) as caught:
        commit_protocol.commit(tmp_path, [put(PART, b"x")])
    assert caught.value.code == code
    assert not (tmp_path / "absent").exists()


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "data/nodes/note")
    with pytest.raises(errors.StateError) as caught:
        commit_protocol.commit(tmp_path, [put(PART, b"x")])
    assert caught.value.code == "E_NOT_REGULAR"


def test_dk_18_files_that_changed_since_they_were_read_are_all_named_and_kept(tmp_path: Path) -> None:
    write(tmp_path, PART, b"edited\n")
    write(tmp_path, f"{DAY}/part_001.jsonl", b"appeared\n")
    before = tree(tmp_path)
    with pytest.raises(errors.Conflict) as caught:
        commit_protocol.commit(
            tmp_path,
            [
                put(PART, b"new\n", b"old\n"),
                put(f"{DAY}/part_001.jsonl", b"new\n"),
                put(f"{DAY}/part_002.jsonl", None, b"gone\n"),
                put(f"{DAY}/part_003.jsonl", b"fine\n"),
            ],
        )
    assert caught.value.code == "E_STALE"
    assert [finding.path[-10:] for finding in caught.value.findings] == ["_000.jsonl", "_001.jsonl", "_002.jsonl"]
    assert tree(tmp_path) == before


def test_dk_18_a_file_that_changes_while_the_write_is_staged_stops_it_before_the_commit_point(tmp_path: Path) -> None:
    write(tmp_path, PART)

    def edit_late(step: str) -> None:
        if step == "compare again":
            write(tmp_path, PART, b"edited\n")

    with pytest.raises(errors.Conflict) as caught:
        commit_protocol.commit(
            tmp_path, [put(PART, b"new\n", b"old\n"), put("data/nodes/x/20260101/p", b"")], on_step=edit_late
        )
    assert caught.value.code == "E_STALE"
    assert tree(tmp_path) == {PART: b"edited\n"}
    assert folders(tmp_path) == {"data", "data/nodes", "data/nodes/note", DAY}
    assert not commit_protocol.is_pending(tmp_path)


def test_a_file_that_changes_after_the_commit_point_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path, PART)

    def edit_late(step: str) -> None:
        if step == f"replace {PART}":
            write(tmp_path, PART, b"edited\n")

    with pytest.raises(errors.StateError) as caught:
        commit_protocol.commit(tmp_path, [put(PART, b"new\n", b"old\n")], on_step=edit_late)
    assert caught.value.code == "E_RECOVER"
    assert caught.value.details["committed"] is True
    assert tree(tmp_path) == {PART: b"edited\n"}
    assert commit_protocol.show(tmp_path)["files"] == [{"path": PART, "change": "put", "standing": "third"}]


def all_steps(tmp_path: Path) -> list[str]:
    names: list[str] = []
    root = tmp_path / "steps"
    write(root, PART)
    commit_protocol.commit(root, CHANGES, on_step=names.append)
    return names


CHANGES = [put(PART, b"new\n", b"old\n"), put("data/nodes/x/20260101/part_000.jsonl", b"x\n")]
NEW = {PART: b"new\n", "data/nodes/x/20260101/part_000.jsonl": b"x\n"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EMFILE])
def test_dk_16_a_disk_that_refuses_at_any_step_leaves_all_old_or_all_new(tmp_path: Path, number: int) -> None:
    names = all_steps(tmp_path)
    for index, name in enumerate(names):
        root = tmp_path / str(index)
        write(root, PART)

        def refuse(step: str, name: str = name) -> None:
            if step == name:
                raise OSError(number, os.strerror(number))

        if index <= names.index("seal"):
            with pytest.raises(errors.Unavailable) as caught:
                commit_protocol.commit(root, CHANGES, on_step=refuse)
            assert caught.value.code == "E_IO"
            assert tree(root) == {PART: b"old\n"}
            assert folders(root) == {"data", "data/nodes", "data/nodes/note", DAY}
            assert not commit_protocol.is_pending(root)
        else:  # committed: a second try finishes it
            assert set(commit_protocol.commit(root, CHANGES, on_step=refuse)) == set(NEW)
            assert tree(root) == NEW


def test_a_disk_that_fails_after_the_commit_point_is_said_and_recovery_finishes(tmp_path: Path) -> None:
    write(tmp_path, PART)

    def fail(step: str) -> None:
        if step == "make the targets durable":
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(errors.Unavailable) as caught:
        commit_protocol.commit(tmp_path, CHANGES, on_step=fail)
    assert caught.value.code == "E_IO"
    assert caught.value.details["committed"] is True
    assert commit_protocol.recover(tmp_path).action == "finished"
    assert tree(tmp_path) == NEW


def test_an_interruption_leaves_all_old_before_the_commit_point_and_a_sealed_write_after(tmp_path: Path) -> None:
    for index, name in enumerate(names := all_steps(tmp_path)):
        root = tmp_path / str(index)
        write(root, PART)

        def interrupt(step: str, name: str = name) -> None:
            if step == name:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            commit_protocol.commit(root, CHANGES, on_step=interrupt)
        commit_protocol.recover(root)
        assert tree(root) == ({PART: b"old\n"} if index <= names.index("seal") else NEW)


def test_deleting_the_last_file_of_a_day_removes_its_folder_but_nobody_elses(tmp_path: Path) -> None:
    write(tmp_path, PART)
    write(tmp_path, "data/nodes/other/20260101/part_000.jsonl")
    write(tmp_path, "data/nodes/other/20260101/theirs.txt")
    commit_protocol.commit(
        tmp_path, [put(PART, None, b"old\n"), put("data/nodes/other/20260101/part_000.jsonl", None, b"old\n")]
    )
    assert folders(tmp_path) == {"data", "data/nodes", "data/nodes/other", "data/nodes/other/20260101"}


def test_a_link_in_the_place_of_local_state_is_never_written_through(tmp_path: Path) -> None:
    root, outside = tmp_path / "base", tmp_path / "outside"
    write(root, PART)
    outside.mkdir()
    (root / ".duckkb").symlink_to(outside)
    with pytest.raises(errors.Unavailable) as caught:
        commit_protocol.commit(root, CHANGES)
    assert caught.value.code == "E_READ_ONLY"
    (root / ".duckkb").unlink()
    (root / ".duckkb").mkdir()
    (root / ".duckkb/txn").symlink_to(outside)
    with pytest.raises(errors.Unavailable) as caught:
        commit_protocol.commit(root, CHANGES)
    assert caught.value.code == "E_IO"
    assert list(outside.iterdir()) == []
    assert tree(root) == {PART: b"old\n"}


ON_OTHER_DISKS = """
set -e
cd "$1"
mkdir -p other/.duckkb/txn other/data/nodes bound/data/nodes elsewhere full
mount -t tmpfs none other/data/nodes
mount --bind elsewhere bound/data/nodes
mount -t tmpfs -o size=64k none full
exec "$2" -c "$3"
"""
PROGRAM = """
from pathlib import Path
from duckkb.types import errors
from duckkb.storage import commit_protocol as protocol
change = protocol.FileChange("data/nodes/note/20260101/part_000.jsonl", None, b"x" * 40_000)
for name in ("other", "bound", "full"):
    root = Path(name)
    try:
        protocol.commit(root, [change])
    except errors.Unavailable as error:
        left = [p.name for p in (root / "data").rglob("*") if p.name != "nodes"]
        print(name, error.code, left, protocol.is_pending(root))
"""


def test_dk_16_another_disk_another_mount_and_a_full_disk_are_refused_before_the_commit_point(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip(
            "mounting needs rights that this account lacks; test_errnos.py meets EXDEV and ENOSPC at the same calls"
        )
    command = ["unshare", "-m", "sh", "-c", ON_OTHER_DISKS, "sh", str(tmp_path), sys.executable, PROGRAM]
    environment = os.environ | {"PYTHONPATH": SOURCES}
    shown = subprocess.run(command, env=environment, capture_output=True, check=False)
    expected = [f"{name} E_IO [] False" for name in ("other", "bound", "full")]
    assert shown.stdout.decode().splitlines() == expected, shown.stderr.decode()
