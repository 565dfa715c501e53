"""The lock between threads and processes, and the small files of local state."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

import duckkb
from duckkb.storage import base_lock, clone_state, commit_protocol
from duckkb.types import errors
from tests.harness.waiting import HANG_S

SOURCES = str(Path(duckkb.__file__).parents[1])


def held_by_a_child(root: Path, mode: str) -> "subprocess.Popen[bytes]":
    """A process that holds the lock until its stdin closes; it has it when this returns."""
    program = (
        "import sys; from pathlib import Path; from duckkb.storage import base_lock as lock\n"
        f"with lock.{mode}(Path(sys.argv[2]), 10): print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, "put", str(root)],
        env=os.environ | {"PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def end(child: "subprocess.Popen[bytes]", *, kill: bool = False) -> None:
    if kill:
        child.kill()
    child.communicate()


def test_a_writer_excludes_everybody_and_is_named(tmp_path: Path) -> None:
    child = held_by_a_child(tmp_path, "exclusive")
    for attempt in (base_lock.exclusive, base_lock.hold_shared):
        with pytest.raises(errors.Unavailable) as caught, attempt(tmp_path, 0.02):
            pass
        assert caught.value.code == "E_LOCKED"
        named = caught.value.details["holder"]
        assert (named["pid"], named["host"], named["command"]) == (child.pid, socket.gethostname(), "-c put")
    assert base_lock.holder(tmp_path) == base_lock.Holder(**named)
    end(child)
    with base_lock.exclusive(tmp_path, 0):
        pass
    assert base_lock.holder(tmp_path) is None


def test_readers_share_and_keep_writers_out(tmp_path: Path) -> None:
    child = held_by_a_child(tmp_path, "hold_shared")
    with base_lock.hold_shared(tmp_path, 0) as read_only:
        assert read_only is False
    with pytest.raises(errors.Unavailable) as caught, base_lock.exclusive(tmp_path, 0.02):
        pass
    assert (caught.value.code, caught.value.details["holder"]) == ("E_LOCKED", None)
    end(child)
    with base_lock.exclusive(tmp_path, 0):
        pass


def test_a_killed_holder_frees_the_lock_and_is_not_named_again(tmp_path: Path) -> None:
    end(held_by_a_child(tmp_path, "exclusive"), kill=True)
    assert base_lock.holder(tmp_path) is None
    child = held_by_a_child(tmp_path, "hold_shared")
    with pytest.raises(errors.Unavailable) as caught, base_lock.exclusive(tmp_path, 0):
        pass
    assert caught.value.details["holder"] is None
    end(child)


def test_a_waiting_writer_gets_the_lock_when_it_is_freed(tmp_path: Path) -> None:
    child = held_by_a_child(tmp_path, "exclusive")
    got = threading.Event()

    def wait() -> None:
        with base_lock.exclusive(tmp_path, 30):
            got.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not got.is_set()
    end(child)
    waiter.join(HANG_S)
    assert got.is_set()


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    total, inside, clashes = 0, 0, 0

    def work() -> None:
        nonlocal total, inside, clashes
        for _ in range(20):
            with base_lock.exclusive(tmp_path, 30):
                inside += 1
                clashes += inside != 1
                total += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (total, clashes) == (120, 0)


def test_an_error_inside_frees_the_lock_and_the_file_stays(tmp_path: Path) -> None:
    for attempt in (base_lock.exclusive, base_lock.hold_shared):
        with pytest.raises(ZeroDivisionError), attempt(tmp_path, 0):
            raise ZeroDivisionError
        with base_lock.exclusive(tmp_path, 0):
            assert json.loads((clone_state.folder_of(tmp_path) / clone_state.LOCK).read_text())["pid"] == os.getpid()
        assert (clone_state.folder_of(tmp_path) / clone_state.LOCK).read_bytes() == b""


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid":1}', b"\xff", b'{"pid":"x","host":"h","command":1,"since":2}']
)
def test_rubbish_in_the_lock_file_stops_nobody(tmp_path: Path, content: bytes) -> None:
    clone_state.ensure(tmp_path)
    (clone_state.folder_of(tmp_path) / clone_state.LOCK).write_bytes(content)
    with base_lock.hold_shared(tmp_path, 0), pytest.raises(errors.Unavailable), base_lock.exclusive(tmp_path, 0):
        pass
    with base_lock.exclusive(tmp_path, 0):
        pass


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_file_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    clone_state.ensure(tmp_path)
    path = clone_state.folder_of(tmp_path) / clone_state.LOCK
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(errors.Unavailable), base_lock.exclusive(tmp_path, 0):
        pass
    assert not (tmp_path / "elsewhere").exists()
    with base_lock.hold_shared(tmp_path, 0) as read_only:
        assert read_only


READ_ONLY = """
import os, sys
from pathlib import Path
os.chdir(sys.argv[1])
from duckkb.types import errors
from duckkb.storage import clone_state as state; from duckkb.storage import base_lock as lock, commit_protocol as protocol
import secrets
os.setgid(65534); os.setuid(65534)
root = Path(".")
for attempt in (lock.hold_shared, protocol.lock_for_reading):
    try:
        with attempt(root, 0) as read_only:
            print("read", read_only)
    except errors.StateError as error:
        print("refused", error.code)
    except errors.Unavailable as error:
        print("unavailable", error.code)
for attempt in (lambda: lock.exclusive(root, 0).__enter__(), lambda: state.clone_id(root)):
    try:
        attempt()
        print("written")
    except errors.Unavailable as error:
        print("unavailable", error.code)
"""


def as_another_account(root: Path) -> list[str]:
    if os.getuid() != 0:
        pytest.skip("only root can become another account; test_fault_real.py opens bases that this one may not write")
    environment = os.environ | {"PYTHONPATH": SOURCES}
    shown = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(root)], env=environment, capture_output=True, check=False
    )
    assert shown.returncode == 0, shown.stderr.decode()
    return shown.stdout.decode().splitlines()


def test_a_base_that_cannot_be_written_is_read_and_says_so(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o755)
    refused = ["unavailable E_READ_ONLY"] * 2
    assert as_another_account(base) == ["read True"] * 2 + refused
    with base_lock.exclusive(base, 0):  # its owner writes: whoever may only read waits for that
        assert as_another_account(base) == ["unavailable E_LOCKED"] * 2 + refused
    assert as_another_account(base) == ["read True"] * 2 + refused


def test_a_sealed_write_in_a_base_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o755)

    def interrupt(step: str) -> None:
        if step == "make the seal durable":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit_protocol.commit(base, [commit_protocol.FileChange("data/x", None, b"x")], on_step=interrupt)
    refused = ["unavailable E_READ_ONLY"] * 2
    assert as_another_account(base) == ["refused E_READ_ONLY"] * 2 + refused
    commit_protocol.recover(base)
    assert as_another_account(base) == ["read True"] * 2 + refused


def test_local_state_ignores_itself_and_is_made_once(tmp_path: Path) -> None:
    folder = clone_state.ensure(tmp_path)
    assert (folder / ".gitignore").read_bytes() == b"*\n"
    (folder / ".gitignore").write_bytes(b"")  # as a crash could leave it
    clone_state.ensure(tmp_path)
    assert (folder / ".gitignore").read_bytes() == b"*\n"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    clone_state.clone_id(tmp_path)
    shown = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, check=True)
    assert shown.stdout == b""


def test_a_clone_has_one_id_for_good_even_when_many_ask_at_once(tmp_path: Path) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(clone_state.clone_id(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) == {clone_state.clone_id(tmp_path)}
    assert str(uuid.UUID(answers[0])) == answers[0]
    assert {path.name for path in clone_state.folder_of(tmp_path).iterdir()} == {".gitignore", "clone_id"}


@pytest.mark.parametrize("content", [b"", b"torn-uu", b"\xff\xfe"])
def test_a_damaged_clone_id_is_made_again(tmp_path: Path, content: bytes) -> None:
    (clone_state.ensure(tmp_path) / "clone_id").write_bytes(content)
    fresh = clone_state.clone_id(tmp_path)
    assert str(uuid.UUID(fresh)) == fresh == clone_state.clone_id(tmp_path)


def test_an_atomic_write_keeps_the_mode_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "合并.json"
    clone_state.write_atomic(path, b"1")
    path.chmod(0o600)
    clone_state.write_atomic(path, "二".encode())
    assert path.read_bytes() == "二".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_an_atomic_write_in_place_of_a_link_makes_a_file_that_only_its_owner_may_write(tmp_path: Path) -> None:
    path, target = tmp_path / "link", tmp_path / "target"
    target.write_bytes(b"as it was")
    path.symlink_to(target)
    clone_state.write_atomic(path, b"1")
    assert not path.is_symlink() and path.read_bytes() == b"1" and target.read_bytes() == b"as it was"
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0


def test_an_atomic_write_that_cannot_be_made_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/inside").touch()
    for path in (tmp_path / "absent/x", tmp_path / "folder"):
        with pytest.raises(errors.Unavailable) as caught:
            clone_state.write_atomic(path, b"1")
        assert caught.value.code == "E_IO"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
