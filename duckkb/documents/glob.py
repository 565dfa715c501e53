"""Matches paths with globs from callers and with lines of .gitignore, in time that grows only with the lengths.

As an ordinary regular expression `*?*?*?*?*?` takes exponential time, and Python blocks all other threads
meanwhile. Here each part between slashes is one expression that never backtracks over a star (`fnmatch`, whose
groups are atomic from Python 3.11 on), and `**` backtracks only to the last `**`:
https://research.swtch.com/glob
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from duckkb.types.errors import UsageError

MOST_CHARACTERS, MOST_CHOICES = 1_000, 1_000
_ANY = None
"""Stands for any number of folders in place of a part."""
_SPECIAL = re.compile(r"[*?\[\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_PIECE = re.compile(r"\\(?P<escaped>.)|\[(?P<not>[!^]?)(?P<set>\]?[^\]]*)\]|.", re.DOTALL)

Parts = tuple[re.Pattern[str] | None, ...]


def parse_glob(pattern: str) -> tuple[Parts, ...]:
    """Parse a glob (`guide/**/*.md`, `{a,b}`) for `matches`. Raises `errors.UsageError` if it is too long or
    expands to too many globs.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise UsageError(f"a glob has at most {MOST_CHARACTERS:,} characters", suggestion="name less at once")
    choices = tuple(islice(_expand_braces(pattern), MOST_CHOICES + 1))
    if len(choices) > MOST_CHOICES:
        message = f"the braces of a glob may expand to at most {MOST_CHOICES:,} patterns"
        raise UsageError(message, suggestion="use * in place of some of them")
    return tuple(_compile_glob(choice) for choice in choices)


def matches(globs: Sequence[Parts], path: str) -> bool:
    """Return whether a glob matches the path or a folder above it."""
    folders = path.split("/")
    return any(_match(parts, folders) for parts in globs)


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yield the pattern once for each choice in braces."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _expand_braces(pattern[: braces.start()] + choice + pattern[braces.end() :])


@lru_cache(256)
def _compile_glob(pattern: str) -> Parts:
    """Compile a glob. A name without a slash matches in any folder; a glob that ends in a slash matches the
    folder's content.
    """
    return (*_compile_own_parts(pattern), *([_compile_part("*")] if pattern.endswith("/") else []), _ANY)


@lru_cache(256)
def _compile_own_parts(pattern: str) -> Parts:
    """Compile a glob that matches only the path itself, not what lies below it."""
    names = pattern.strip("/").split("/")
    parts = [_ANY if name == "**" else _compile_part(name) for name in names]
    if parts[-1] is _ANY:
        parts.append(_compile_part("*"))
    if len(names) == 1 and not pattern.startswith("/"):
        parts.insert(0, _ANY)
    return tuple(parts)


class IgnoreLine(Struct, frozen=True):
    """A line of a .gitignore: its pattern, whether it matches only folders, and whether it keeps (`!`) or
    excludes.
    """

    pattern: str
    is_of_folders: bool
    is_kept: bool


class IgnoreFile:
    """The lines of a .gitignore, or such lines of a definition; the last line that matches a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = [line for line in map(_ignore_line, lines) if line is not None]
        self._names, endings, self._others = set[str](), list[str](), list[str]()
        for line in self._lines:
            last = line.pattern.rpartition("/")[2]
            if not _SPECIAL.search(last):
                self._names.add(last)
            elif last.startswith("*") and not _SPECIAL.search(last[1:]):
                endings.append(last[1:])
            else:
                self._others.append("*" if last == "**" else last)
        self._endings = tuple(endings)

    def leaves_out(self, path: str, is_folder: bool) -> bool | None:
        """Return whether a path, relative to the folder of the file, is excluded; None if no line matches it."""
        folders = path.split("/")
        if not self._can_name(folders[-1]):
            return None  # most of many
        for line in reversed(self._lines):
            if (is_folder or not line.is_of_folders) and _match(_compile_own_parts(line.pattern), folders):
                return not line.is_kept
        return None

    def covers(self, path: str) -> bool:
        """Return whether a file or a folder above it is excluded. Lines that match the file itself take precedence
        over lines that match a folder, so that some files of an excluded folder can be kept.
        """
        verdict, folders = self.leaves_out(path, is_folder=False), path.split("/")
        if verdict is None and any(map(self._can_name, folders[:-1])):
            naming = (line for line in reversed(self._lines) if _match(_compile_glob(f"{line.pattern}/"), folders))
            verdict = next((not line.is_kept for line in naming), None)
        return bool(verdict)

    def _can_name(self, name: str) -> bool:
        """Return whether some line can match a path with this last name; a quick check that rejects most paths."""
        is_near = name in self._names or name.endswith(self._endings)
        return is_near or any(_compile_part(pattern).match(name) for pattern in self._others)


def _ignore_line(line: str) -> IgnoreLine | None:
    """Parse a line; return None for a comment and for a line that matches nothing."""
    line = line.rstrip("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if line.startswith("#"):
        return None
    pattern = line.removeprefix("!")
    if not pattern.strip("/") or len(pattern) > MOST_CHARACTERS:
        return None
    return IgnoreLine(pattern.rstrip("/"), pattern.endswith("/"), line.startswith("!"))


@lru_cache(256)
def _compile_part(name: str) -> re.Pattern[str]:
    """Compile a pattern between two slashes. Unlike git, `fnmatch` has no backslash and only one sign to negate a
    set.
    """
    return re.compile(translate("".join(map(_to_fnmatch, _PIECE.finditer(name)))))


def _to_fnmatch(piece: re.Match[str]) -> str:
    if piece["escaped"] is not None:
        return f"[{piece['escaped']}]"
    if piece["set"]:
        return f"[{'!' if piece['not'] else ''}{piece['set']}]"
    return "[[]" if piece[0] == "[" else "*" if piece[0] == "*" else piece[0]


def _match(parts: Parts, folders: Sequence[str]) -> bool:
    at = place = 0
    again: tuple[int, int] | None = None  # the place after the last `**`, and where it extends to another folder
    while place < len(folders):
        if at < len(parts) and parts[at] is _ANY:
            at += 1
            again = at, place
            if at == len(parts):
                return True
        elif at < len(parts) and (part := parts[at]) is not None and part.match(folders[place]):
            at, place = at + 1, place + 1
        elif again is not None:
            at, place = again[0], again[1] + 1
            again = at, place
        else:
            return False
    return all(piece is _ANY for piece in parts[at:])
