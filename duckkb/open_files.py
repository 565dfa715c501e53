"""Opening files that others may have placed, without following links or blocking."""

import os
from pathlib import Path
from typing import BinaryIO

_UNBLOCKED: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NO_FOLLOW: int = _UNBLOCKED | getattr(os, "O_NOFOLLOW", 0)
"""Flags of `os.open` that follow no link and wait for no FIFO."""


def open_without_blocking(path: str | Path, *, follow: bool = False) -> BinaryIO:
    """Open a file for reading without waiting for a FIFO.

    Raises OSError for a folder, and for a link unless `follow`.

    The caller checks for other files that are not regular. This is an opener for `open`, since `os.fdopen`
    would leave the descriptor open where it turns out to be a folder.
    """
    flags = _UNBLOCKED if follow else NO_FOLLOW
    return open(path, "rb", opener=lambda name, open_flags: os.open(name, open_flags | flags))
