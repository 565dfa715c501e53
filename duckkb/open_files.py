"""Files that others may have put there or hold at the same time: opening one without being led elsewhere or kept waiting, and locks
that the kernel holds and gives back when their process dies: many readers or one writer."""

import errno
import os
from pathlib import Path
from typing import BinaryIO

if os.name != "nt":
    import fcntl

_TAKEN = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK})
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)


def open_unblocked(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a file to be read, which waits for no FIFO. Raises OSError, for a folder too, and for a link unless `follow`. What else
    is no regular file is for the caller to look at.

    An opener, since `os.fdopen` leaves open what `os.open` opened where it turns out to be a folder.
    """
    flags = _FLAGS | (0 if follow else _NO_LINKS)
    return open(path, "rb", opener=lambda name, asked: os.open(name, asked | flags))


def try_lock(descriptor: int, *, exclusive: bool) -> bool:
    """Take the lock if that needs no waiting; whether it came. Raises OSError where the file system gives none.

    On POSIX this is what portalocker does, without its import, which costs more than all else that a lock needs.
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
    """Give the lock back. Raises OSError."""
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
