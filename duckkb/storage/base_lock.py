"""The lock of a knowledge base: many readers or a single writer, enforced by the kernel.

`kill -9` releases it, and the file is never unlinked: a lock on an unlinked file would exclude nobody. If
somebody else unlinks it (`git clean -dffx`), a waiting process starts over with the new file.

A process that waits for the lock meanwhile holds `.duckkb/turn`: readers shared, a writer exclusively. So no
reader gets in while a writer waits, and endlessly overlapping readers cannot starve it; nor can writers starve
a reader.
"""

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from duckkb import locks
from duckkb.atomic_write import NO_FOLLOW
from duckkb.storage import clone_state, journal
from duckkb.types import errors

_HOLDER_BYTES = 4096

Mode = Literal["exclusive", "shared"]


class Holder(Struct, frozen=True):
    """The exclusive holder of the lock. `since` is UTC, `YYYY-MM-DDTHH:MM:SSZ`."""

    pid: int
    host: str
    command: str
    since: str

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid} on {self.host}, since {self.since})"


@contextmanager
def exclusive(root: Path, timeout: float) -> Iterator[None]:
    """Hold the lock exclusively; wait at most `timeout` seconds.

    Raises `errors.Unavailable`: `E_LOCKED` naming the holder, `E_READ_ONLY` or `E_IO` if no lock file can exist.
    """
    descriptor, _ = _acquire_lock_file(root, "exclusive", timeout)
    assert descriptor is not None, "without a lock file there is an error"
    with _release_at_end(descriptor, signed=True):
        yield


@contextmanager
def hold_shared(root: Path, timeout: float) -> Iterator[bool]:
    """Hold the lock shared with other readers; wait at most `timeout` seconds. Yields whether the base is
    read-only.

    A base that cannot be written is read without a lock file, because nobody could make one. Raises
    `errors.Unavailable` with `E_LOCKED`, and `errors.StateError` with `E_READ_ONLY` if such a base has a sealed
    journal that nobody can finish.
    """
    descriptor, read_only = _acquire_lock_file(root, "shared", timeout)
    with _release_at_end(descriptor) if descriptor is not None else contextlib.nullcontext():
        if read_only:
            _refuse_interrupted_write(root)
        yield read_only


@contextmanager
def hold_lock_shared(root: Path, timeout: float = 0.0) -> Iterator[None]:
    """Hold the lock shared if there is a lock file; make no file.

    Raises `errors.Unavailable`: `E_LOCKED` naming the writer, `E_IO` or `E_READ_ONLY` if the lock file is invalid.
    """
    try:
        descriptor = _open_lock(clone_state.folder_of(root) / clone_state.LOCK, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise clone_state.refusal(f"{clone_state.FOLDER}/lock cannot be opened", error) from error
    with _hold_lock(descriptor, "shared", timeout, _build_lock_error):
        yield


@contextmanager
def job(root: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of index jobs, a single job at a time beside readers and writers; wait at most `timeout`
    seconds.

    Raises `errors.Unavailable`: `E_LOCKED` naming the running job, `E_READ_ONLY` or `E_IO` if no file can exist.
    """
    with _hold_lock(_open_to_write(root, clone_state.JOB), "exclusive", timeout, _build_job_error):
        yield


@contextmanager
def hold_lock_beside(path: Path, mode: Mode, timeout: float) -> Iterator[None]:
    """Hold the lock of a user's file by locking `PATH.lock` beside it, which is never removed; wait at most
    `timeout` seconds.

    Raises `errors.Unavailable` (E_LOCKED naming the holder, E_IO), and OSError if no lock file can exist.
    """

    def build_lock_error(holder: Holder | None, wait_s: float) -> errors.Unavailable:
        who = holder or "an unknown process"
        return _build_error(f"{path} is held by {who}; waited {wait_s:g} s.", "Wait for it, then repeat.", holder)

    descriptor = _open_lock(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    with _hold_lock(descriptor, mode, timeout, build_lock_error):
        yield


@contextmanager
def hold_watch(root: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of the only process that watches folders. Raises `errors.Unavailable` as `job` does."""
    with _hold_lock(_open_to_write(root, clone_state.WATCH), "exclusive", timeout, _build_watch_error):
        yield


def holder(root: Path) -> Holder | None:
    """Return the present exclusive holder of the lock, for `status`; None if there is none or it is unknown."""
    return _probe_lock(root, clone_state.LOCK)[1]


def is_held(root: Path) -> bool:
    """Return whether the lock is held exclusively now."""
    return _probe_lock(root, clone_state.LOCK)[0]


def is_job_running(root: Path) -> bool:
    """Return whether an index job runs on this base, here or on another machine that shares the folder."""
    return _probe_lock(root, clone_state.JOB)[0]


def _probe_lock(root: Path, name: str) -> tuple[bool, Holder | None]:
    """Return whether a lock is held exclusively, and the holder if the file names it."""
    try:
        descriptor = _open_lock(clone_state.folder_of(root) / name, os.O_RDONLY)
    except OSError:
        return False, None
    try:
        if _wait(descriptor, "shared", 0.0):
            locks.unlock(descriptor)
            return False, None
        return True, _read_holder(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _release_at_end(descriptor: int, *, signed: bool = False) -> Iterator[None]:
    """Release a lock at the end of the block and close its file; if it is `signed`, the file names this process
    until then.
    """
    try:
        if signed:
            _sign(descriptor)
        yield
    finally:
        try:
            if signed:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
            locks.unlock(descriptor)
        finally:
            os.close(descriptor)


def _acquire_lock_file(root: Path, mode: Mode, timeout: float) -> tuple[int | None, bool]:
    """Return the locked file (None if no lock file can be opened), and whether the base is read-only."""
    deadline = time.monotonic() + timeout
    while True:
        descriptor, read_only = (
            _open_to_read(root) if mode == "shared" else (_open_to_write(root, clone_state.LOCK), False)
        )
        if descriptor is None:
            return None, read_only
        try:
            with _turn(root, mode, deadline) as is_ours:
                if not (is_ours and _wait(descriptor, mode, deadline)):
                    raise _build_lock_error(_read_holder(descriptor), timeout)
            if locks.is_at(descriptor, clone_state.folder_of(root) / clone_state.LOCK):
                return descriptor, read_only
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _turn(root: Path, mode: Mode, deadline: float) -> Iterator[bool]:
    """Hold the turn; yield False if it did not come in time. A process that may not make its file waits without
    it.
    """
    try:
        descriptor = os.open(clone_state.folder_of(root) / clone_state.TURN, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o644)
    except OSError:
        yield True
        return
    try:
        came = _wait(descriptor, mode, deadline)
        try:
            yield came
        finally:
            if came:
                locks.unlock(descriptor)
    finally:
        os.close(descriptor)


def _open_to_write(root: Path, name: str) -> int:
    """Open a lock file for writing; create it if it is missing."""
    path = clone_state.ensure(root) / name
    try:
        return _open_lock(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise clone_state.refusal(f"{clone_state.FOLDER}/{name} cannot be opened", error) from error


def _open_to_read(root: Path) -> tuple[int | None, bool]:
    """Open the lock file if possible; return it and whether the base is read-only.

    Another user's base may be readable with a lock file that only its owner can write: a shared lock on it
    hides the owner's half-finished writes.
    """
    try:
        descriptor = _open_to_write(root, clone_state.LOCK)
        return descriptor, not os.access(clone_state.folder_of(root), os.W_OK)
    except errors.Unavailable:
        if not clone_state.is_folder(clone_state.folder_of(root)):
            return None, True
    try:
        return _open_lock(clone_state.folder_of(root) / clone_state.LOCK, os.O_RDONLY), True
    except OSError as error:
        if error.errno in clone_state.PASSING:  # there may be an unseen writer
            raise clone_state.refusal(f"{clone_state.FOLDER}/lock cannot be opened", error) from error
        return None, True


def _open_lock(path: Path, flags: int, mode: int = 0o644) -> int:
    descriptor = os.open(path, flags | NO_FOLLOW, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return descriptor


@contextmanager
def _hold_lock(
    descriptor: int, mode: Mode, timeout: float, refusal: "Callable[[Holder | None, float], errors.Unavailable]"
) -> Iterator[None]:
    """Lock an open file; if that fails, close it and raise the refusal."""
    try:
        if not _wait(descriptor, mode, time.monotonic() + timeout):
            raise refusal(_read_holder(descriptor), timeout)
    except BaseException:
        os.close(descriptor)
        raise
    with _release_at_end(descriptor, signed=mode == "exclusive"):
        yield


def _wait(descriptor: int, mode: Mode, deadline: float) -> bool:
    """Wait as `locks.wait_for_lock` does. Raises `errors.Unavailable` (E_IO) if the file system supports no locks."""
    try:
        return locks.wait_for_lock(descriptor, exclusive=mode == "exclusive", deadline=deadline)
    except OSError as error:
        raise errors.Unavailable(
            f"The file system gave no lock: {error}.",
            code="E_IO",
            suggestion="Keep the base on a file system with locks.",
        ) from error


def _build_lock_error(holder: Holder | None, timeout: float) -> errors.Unavailable:
    who = holder or "an unknown process, or a reader"
    remedy = "Wait for it, or raise --lock-timeout."
    return _build_error(f"The lock is held by {who}; waited {timeout:g} s.", remedy, holder)


def _build_job_error(holder: Holder | None, timeout: float) -> errors.Unavailable:
    who = holder or "an unknown process"
    remedy = "Let it finish (`duckkb index status` shows how far it is), or wait for it with --wait."
    return _build_error(f"An index job is under way: {who}.", remedy, holder)


def _build_watch_error(holder: Holder | None, timeout: float) -> errors.Unavailable:
    who = holder or "an unknown process"
    return _build_error(f"The folders of this base are watched already: {who}.", "Stop one of the two.", holder)


def _build_error(message: str, remedy: str, holder: Holder | None) -> errors.Unavailable:
    details = {"holder": asdict(holder) if holder else None}
    return errors.Unavailable(message, code="E_LOCKED", suggestion=remedy, details=details)


def _sign(descriptor: int) -> None:
    """Write this process into the lock file. Ignores errors: a full disk must not prevent a deletion."""
    holder = Holder(os.getpid(), _find_host(), _describe_command(), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode()[:_HOLDER_BYTES], 0)


def _find_host() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    from socket import gethostname

    return gethostname()


def _describe_command() -> str:
    """Return the program and its verb; later arguments may hold record content, which others need not see."""
    program = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    verb = "" if len(sys.argv) < 2 else sys.argv[1][:40]
    name = "duckkb" if program == "__main__" else program
    return "".join(char for char in f"{name} {verb}".strip() if char.isprintable())


def _read_holder(descriptor: int) -> Holder | None:
    """Read the holder from the lock file. A killed writer leaves its name behind, so a process that is gone here
    does not count.
    """
    try:
        candidate = Holder(**json.loads(os.pread(descriptor, _HOLDER_BYTES, 0)))
    except (OSError, ValueError, TypeError):
        return None
    return candidate if candidate.host != _find_host() or _is_alive(candidate.pid) else None


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # on Windows, os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError, TypeError):  # another user's process, or not a process number
        pass
    return True


def _refuse_interrupted_write(root: Path) -> None:
    try:
        stages = journal.list_sealed_stages(root)
    except OSError as error:
        raise clone_state.refusal("An interrupted write cannot be looked at", error) from error
    if stages:
        raise errors.StateError(
            "A write was interrupted after it was sealed, and this checkout cannot be written to finish it.",
            code="E_READ_ONLY",
            suggestion="Run `duckkb recover` from an account that may write here.",
        )
