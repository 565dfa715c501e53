"""Files that others may have put there: opening one without being led elsewhere or kept waiting."""

import os
from pathlib import Path
from typing import BinaryIO

_UNBLOCKED: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NO_FOLLOW: int = _UNBLOCKED | getattr(os, "O_NOFOLLOW", 0)
"""Flags of `os.open` for a file that is read or written as it stands at its path: no link is followed, no FIFO waited for."""


def open_without_blocking(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a file to be read, which waits for no FIFO. Raises OSError, for a folder too, and for a link unless `follow`. What else
    is no regular file is for the caller to look at.

    An opener, since `os.fdopen` leaves open what `os.open` opened where it turns out to be a folder.
    """
    flags = _UNBLOCKED if follow else NO_FOLLOW
    return open(path, "rb", opener=lambda name, open_flags: os.open(name, open_flags | flags))
