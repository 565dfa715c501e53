"""Formats unified patches in git's form, for `git apply`. Standard library only."""

import difflib
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

Change = tuple[str, bytes | None, bytes | None]
"""A path, and its old and new content (None: no such file)."""

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_ABSENT = "0" * 7
# The lines of context, each a record: the fewest that `git apply` accepts.
_CONTEXT = 1
# git detects binary files by a NUL in so many bytes.
_BINARY_PROBE = 8000


def format_patch(changes: Iterable[Change]) -> str:
    """Return the patch from old to new contents, in the order of paths, as `git diff -U1 --no-renames` shows it.
    For repeated lines git may cut the hunks differently. Bytes that are not UTF-8 show as U+FFFD.
    """
    lines = (line for path, old, new in sorted(changes) for line in _render_file(path, old, new))
    return "".join(line.decode(errors="replace") for line in lines)


def quote_path(path: str) -> str:
    r"""Return a path as git writes it: in quotes, with octal escapes, if it has anything but printable ASCII.

    >>> quote_path("data/笔"), quote_path("data/note")
    ('"data/\\347\\254\\224"', 'data/note')
    """
    body = "".join(_quote_byte(byte) for byte in path.encode(errors="surrogateescape"))
    return path if body == path else f'"{body}"'


def _quote_byte(byte: int) -> str:
    if byte in _ESCAPES:
        return "\\" + _ESCAPES[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def _render_file(path: str, old: bytes | None, new: bytes | None) -> Iterator[bytes]:
    if old == new:
        return
    source, target = quote_path(f"a/{path}"), quote_path(f"b/{path}")
    yield f"diff --git {source} {target}\n".encode()
    mode = " 100644"
    if old is None:
        source, mode = "/dev/null", ""
        yield b"new file mode 100644\n"
    if new is None:
        target, mode = "/dev/null", ""
        yield b"deleted file mode 100644\n"
    yield f"index {_hash_blob(old)}..{_hash_blob(new)}{mode}\n".encode()
    before, after = old or b"", new or b""
    if b"\0" in before[:_BINARY_PROBE] + after[:_BINARY_PROBE]:
        yield f"Binary files {source} and {target} differ\n".encode()
    elif before or after:
        yield f"--- {_end_name(source)}\n+++ {_end_name(target)}\n".encode()
        yield from _iter_hunks(_split_lines(before), _split_lines(after))


def _end_name(name: str) -> str:
    """End a name that has a space with a tab, as git does, so that other programs see where it ends."""
    return f"{name}\t" if " " in name else name


def _hash_blob(data: bytes | None) -> str:
    """Return the start of git's id for the content."""
    if data is None:
        return _ABSENT
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:7]


def _split_lines(data: bytes) -> list[bytes]:
    """Split at LF only and keep it; `bytes.splitlines` would split at CR too."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


def _iter_hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for line in islice(
        difflib.diff_bytes(difflib.unified_diff, old, new, n=_CONTEXT), 2, None
    ):  # two lines name the files
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
