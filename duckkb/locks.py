"""Locks that the kernel holds, and releases when their process dies: many readers or a single writer.

On POSIX they use `fcntl`, since `portalocker`, which Windows needs, takes 25 ms to import.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

if os.name != "nt":
    import fcntl

_TAKEN = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


def wait_for_lock(descriptor: int, *, exclusive: bool, deadline: float) -> bool:
    """Lock an open file; return False where the lock did not come before `deadline` (seconds of `time.monotonic`).

    Tries at least once. Raises OSError where the file system gives no lock.
    """
    pause = _FIRST_PAUSE_S
    while not try_lock(descriptor, exclusive=exclusive):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        from random import uniform  # few processes need it

        # Random pauses keep processes that began to wait together from asking together.
        time.sleep(min(remaining, pause * uniform(0.5, 1.0)))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
    return True


def open_and_lock(path: Path, open_file: Callable[[], int], deadline: float) -> int | None:
    """Open a file that its last holder removes, lock it exclusively, return its descriptor; None at `deadline`.

    Calls `open_file`, which opens `path`, again whenever the file was removed meanwhile. Raises what
    `open_file` raises, and OSError.
    """
    while True:
        descriptor = open_file()
        try:
            has_lock = wait_for_lock(descriptor, exclusive=True, deadline=deadline)
            if has_lock and is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not has_lock:
            return None


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this name; False where that cannot be checked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def try_lock(descriptor: int, *, exclusive: bool) -> bool:
    """Lock an open file without waiting, and return whether that worked.

    Raises OSError where the file system gives no lock.
    """
    if os.name == "nt":
        return _try_portable(descriptor, exclusive)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of an open file. Raises OSError."""
    if os.name != "nt":
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    import portalocker

    portalocker.unlock(descriptor)


def _try_portable(descriptor: int, exclusive: bool) -> bool:
    import portalocker

    flags = portalocker.LockFlags.EXCLUSIVE if exclusive else portalocker.LockFlags.SHARED
    try:
        portalocker.lock(descriptor, flags | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.exceptions.AlreadyLocked:
        return False
    except portalocker.exceptions.LockException as error:
        raise OSError(errno.ENOLCK, str(error)) from error
    return True
