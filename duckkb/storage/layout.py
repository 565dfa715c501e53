"""The layout of records: `data/nodes/TABLE/YYYYMMDD/part_NNN.jsonl`, `data/edges/LABEL/...`, and the format's
number.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Literal

from msgspec import Struct

from duckkb.atomic_write import open_without_blocking
from duckkb.ontology.names import is_table_name
from duckkb.types.codes import CODES
from duckkb.types.errors import StateError, Unavailable

Kind = Literal["node", "edge"]

FORMAT = 1
DATA = "data"
FORMAT_PATH = "data/FORMAT.json"
FOLDERS: dict[Kind, str] = {"node": "nodes", "edge": "edges"}
ATTRIBUTES = """\
# Parts are text with LF on every system; the cache is binary and never merged line by line.
data/**/*.jsonl text eol=lf
data/FORMAT.json text eol=lf
data/indices/** binary
"""
"""The required lines of .gitattributes."""
INDICES = "data/indices"
"""The team's cache."""
INDEX_WORKFLOW = ".github/workflows/duckkb-index.yml"
"""The workflow that builds the cache at night, at the top of the repository."""
LFS_ATTRIBUTE = "data/indices/** filter=lfs diff=lfs merge=lfs -text"
"""The additional line of .gitattributes if Git LFS stores the cache."""
LFS_BYTES = 50_000_000
"""The file size of which forges warn; they refuse twice that."""

EMPTIED = b"\n"
"""The content that git's driver leaves in a part whose last record a merge, a pick or a rebase removes: it cannot
remove the file. A part that was cut off is empty, or has other blanks.
"""

PART_RECORDS = 1_000
# A forge stops showing the diff of a file at 500 KB.
PART_BYTES = 400_000
# Writers share 1,000 numbers; a part that overflows goes on past them.
BASE_NUMBERS = 1_000

_READ_ATTEMPTS = 5
_ON_THE_WAY = re.compile(r"data/(nodes|edges)(?:/([^/]+)(?:/([0-9]{8})(?:/(.+))?)?)?")
_PART_NAME = r"part_([0-9]{3}|[1-9][0-9]{3,8})\.jsonl"
_PART_FILE = re.compile(_PART_NAME)
_PART = re.compile(r"data/(nodes|edges)/([^/]+)/([0-9]{8})/" + _PART_NAME)


class PartAddress(Struct, frozen=True):
    """The place of a part: the kind and table or label of its records, the UTC day of their creation, and its
    number.
    """

    kind: Kind
    table: str
    day: str
    number: int

    @property
    def path(self) -> str:
        return part_path(self.kind, self.table, self.day, self.number)


def part_path(kind: Kind, table: str, day: str, number: int) -> str:
    """Return the path of a part, relative to the knowledge base.

    >>> part_path("node", "characters", "20260101", 7)
    'data/nodes/characters/20260101/part_007.jsonl'
    """
    return f"{part_folder(kind, table)}/{day}/part_{number:03d}.jsonl"


def part_folder(kind: Kind, table: str) -> str:
    """Return the folder of a table's or label's day folders, relative to the knowledge base."""
    return f"{DATA}/{FOLDERS[kind]}/{table}"


@lru_cache(4096)
def parse_part(path: str) -> PartAddress | None:
    """Parse a part's path, the inverse of `part_path`; None for every other path."""
    match = _PART.fullmatch(path)
    if not match or not safe_table_name(match[2]) or not is_day(match[3]):
        return None
    return PartAddress("node" if match[1] == "nodes" else "edge", match[2], match[3], int(match[4]))


@lru_cache(maxsize=4096)
def is_part(name: str) -> bool:
    """Return whether a file in a day folder has the name of a part."""
    return _PART_FILE.fullmatch(name) is not None


def leads_to_parts(path: str) -> list[tuple[Kind, str]] | None:
    """Return the table, if any, whose parts a path is, or would contain as a folder; None for a path that leads to
    none.

    >>> leads_to_parts("data/nodes"), leads_to_parts("data/nodes/note/20260101"), leads_to_parts("data/indices")
    ([], [('node', 'note')], None)
    """
    if path == DATA:
        return []
    match = _ON_THE_WAY.fullmatch(path)
    if match is None or (match[3] and not is_day(match[3])) or (match[4] and parse_part(path) is None):
        return None
    return [("node" if match[1] == "nodes" else "edge", match[2])] if match[2] else []


@lru_cache(maxsize=4096)
def safe_table_name(name: str) -> bool:
    """Return whether a table or label may be the name of a folder on every system."""
    return is_table_name(name)


@lru_cache(maxsize=4096)
def is_day(name: str) -> bool:
    """Return whether a folder's name is an existing day, `YYYYMMDD`."""
    if not re.fullmatch("[0-9]{8}", name):
        return False
    try:
        date(int(name[:4]), int(name[4:6]), int(name[6:]))
    except ValueError:
        return False
    return True


def is_cut_off(raw: bytes) -> bool:
    """Return whether a part is empty without a statement that it should be."""
    return raw != EMPTIED and not raw.strip()


def base_number(clone_id: str, branch: str) -> int:
    """Return the number of the day's part to which a clone and branch add: two branches rarely open the same file.

    SHA-256 of clone id, NUL and branch, as a big-endian integer modulo 1,000.
    """
    digest = hashlib.sha256(f"{clone_id}\0{branch}".encode()).digest()
    return int.from_bytes(digest, "big") % BASE_NUMBERS


def format_bytes() -> bytes:
    """Return the content of data/FORMAT.json."""
    return b'{"format":%d}\n' % FORMAT


def read_format(root: Path) -> int:
    """Read the number in data/FORMAT.json, 1 if the file is missing. Raises `StateError` (E_FORMAT) for an unknown
    number, `Unavailable` (E_IO) if it cannot be read.
    """
    try:
        if not stat.S_ISDIR((root / DATA).lstat().st_mode):
            return FORMAT  # not a folder of ours; reading the parts will report it
        raw, _ = read_regular(root / FORMAT_PATH)
    except FileNotFoundError:
        return FORMAT
    except OSError as error:
        message, remedy = f"{FORMAT_PATH} cannot be read: {error.strerror}", CODES["E_IO"].remedy
        raise Unavailable(message, code="E_IO", suggestion=remedy) from error
    return check_format(raw)


def check_format(raw: bytes) -> int:
    """Return the number in the content of data/FORMAT.json; raises `StateError` (E_FORMAT) for an unknown number."""
    try:
        number = json.loads(raw)["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        number = None
    if type(number) is not int or not 1 <= number <= FORMAT:
        format_text = "no number that can be read" if number is None else f"format {number!r}"
        raise StateError(
            f"{FORMAT_PATH} names {format_text}; this version knows format {FORMAT}",
            code="E_FORMAT",
            suggestion="Use a newer duckkb, or `git checkout -- data/FORMAT.json`.",
        )
    return FORMAT


Listing = frozenset[tuple[str, int, bool]]
"""The content of a folder: names, inodes, and whether each is a folder, not a link to a folder."""


def list_folder(folder: str | Path) -> tuple[list[os.DirEntry[str]], Listing]:
    """Return the entries of a folder by name, and a listing to compare later; empty if it is missing. Raises
    OSError if it cannot be listed.
    """
    entries = _scan_entries(folder)
    return sorted(entries, key=attrgetter("name")), _summarize_entries(entries)


def is_as_listed(folder: str, known: Listing) -> bool:
    """Return whether a folder still matches a listing; raises as `list_folder` does."""
    return _summarize_entries(_scan_entries(folder)) == known


def _scan_entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scan:
            return list(scan)
    except FileNotFoundError:
        return []


def _summarize_entries(entries: Iterable[os.DirEntry[str]]) -> Listing:
    return frozenset([(entry.name, entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries])


def read_regular(path: Path) -> tuple[bytes, os.stat_result]:
    """Read a regular file with its status; raises OSError for links, FIFOs, devices and folders, and waits for
    none.

    A file that changes while it is read is read again, a few times: bytes and status belong together.
    """
    with open_without_blocking(path) as file:
        after = os.fstat(file.fileno())
        if not stat.S_ISREG(after.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        for _ in range(_READ_ATTEMPTS):
            before = after
            file.seek(0)
            raw = file.read()
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) and len(raw) == after.st_size:
                break
        return raw, after
