"""The files of one type in a snapshot: lines that are appended to, and sheets that say where each record's line lies.

A sheet is used only where it is the very file that was written here: its size, times and inode are remembered. What a
line has to be is said by its sheet.
"""

import mmap
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from duckkb.ontology.model import RecordType
from duckkb.truth import state
from duckkb.truth.files.canonical import CanonicalRows
from duckkb.truth.files.tree import Part
from duckkb.truth.snapshot.kept import KeptRows, lines_of
from duckkb.truth.snapshot.sheet import Columns, Entry, Sheet
from duckkb.truth.snapshot.stored import Stored
from duckkb.values import dataclass, field

MANIFEST = "manifest.json"
LOGGED = 50_000
"""Ids of changed records that are remembered, for derived state that follows."""
_FEW_ROWS = 4_000  # a last sheet with no more than these is written anew with what comes,
_TIMES = 4  # as is each before it that has at most so many times the rows that are written anyway
_GARBAGE = 1 << 20  # bytes of dead lines that are not worth a new file


class Unusable(Exception):
    """What lies there is no snapshot of ours, or the records cannot be in one."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file as it was left: name, bytes that count, CRC-32 of those, and (mtime ns, inode, ctime ns)."""

    name: str
    size: int
    check: int
    facts: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path, file: IO[bytes], check: int) -> "FileRef":
        file.flush()
        return cls(path.name, file.tell(), check, _facts(os.fstat(file.fileno())))

    def lies_in(self, folder: Path) -> bool:
        """Whether it is there as it was left."""
        status = (folder / self.name).lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size >= self.size and _facts(status) == self.facts

    def mapped(self, folder: Path, *, verify: bool, exact: bool = True) -> "mmap.mmap | bytes":
        """Its bytes. Raises FileNotFoundError, and `Unusable` where it is shorter than it was, not the very file that was
        written (`exact`), or has other bytes (`verify`)."""
        descriptor = os.open(folder / self.name, os.O_RDONLY | state.NO_FOLLOW)
        try:
            status = os.fstat(descriptor)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_size < self.size
                or (exact and _facts(status) != self.facts)
            ):
                raise Unusable(self.name)
            data = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ) if self.size else b""
        finally:
            os.close(descriptor)
        if verify and zlib.crc32(data) != self.check:
            raise Unusable(self.name)
        return data


@dataclass(slots=True)
class SheetRef:
    """A sheet: its file, its rows, and the numbers of its parts that were replaced since."""

    file: FileRef
    count: int
    dead: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TypeFiles:
    """One type. `store` names these files and what they became by changes, `key` what shapes them; `log` has for each
    revision behind `since` the ids that it touched. Up to `roomy` bytes of lines it is not asked how many are dead: that
    takes a pass over all records."""

    kind: RecordType
    folder: Path
    store: str
    key: str
    lines: FileRef
    sheets: list[SheetRef]
    revision: int = 0
    since: int = 0
    log: list[tuple[int, list[int]]] = field(default_factory=list)
    stored: Stored | None = None
    opened: dict[FileRef, Sheet] = field(default_factory=dict)
    roomy: int = 0

    def plain(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "store": self.store,
            "key": self.key,
            "lines": _plain(self.lines),
            "sheets": [[_plain(one.file), one.count, one.dead] for one in self.sheets],
            "revision": self.revision,
            "since": self.since,
            "log": self.log,
            "roomy": self.roomy,
        }

    @classmethod
    def of(cls, kind: RecordType, folder: Path, plain: dict[str, Any]) -> "TypeFiles":
        """The inverse of `plain`; raises KeyError, TypeError or ValueError for what is none."""
        sheets = [SheetRef(_ref(file), int(count), list(map(int, dead))) for file, count, dead in plain["sheets"]]
        log = [(int(revision), list(map(int, ids))) for revision, ids in plain["log"]]
        lines, revision, since = _ref(plain["lines"]), int(plain["revision"]), int(plain["since"])
        roomy = int(plain.get("roomy", 0))
        return cls(
            kind, folder, str(plain["store"]), str(plain["key"]), lines, sheets, revision, since, log, roomy=roomy
        )

    def open(self, *, verify: bool = False) -> Stored:
        """Map the files. Raises FileNotFoundError, `Unusable`."""
        lines = self.lines.mapped(self.folder, verify=verify, exact=False)
        try:
            sheets = [self._sheet(one, verify) for one in self.sheets]
        except (ValueError, TypeError) as error:
            raise Unusable(self.folder.name) from error
        self.opened = dict(zip((one.file for one in self.sheets), sheets, strict=True))
        dead = [one.dead for one in self.sheets]
        self.stored = Stored(self.kind, sheets, lines, dead, lambda: drop_manifest(self.folder.parent))
        return self.stored

    def _sheet(self, ref: SheetRef, verify: bool) -> Sheet:
        known = self.opened.get(ref.file)
        if known is not None and not verify and ref.file.lies_in(self.folder):
            return known
        return Sheet(ref.file.mapped(self.folder, verify=verify), ref.count)

    @property
    def names(self) -> set[str]:
        return {self.lines.name, *(one.file.name for one in self.sheets)}

    def replace(self, changed: set[str], fresh: Iterable[Part], ids: Iterable[int]) -> None:
        """Take `fresh` in the place of the parts at the paths `changed`. Raises OSError."""
        stored, fresh = self.stored or self.open(), list(fresh)
        self.roomy = (
            self.roomy if len(fresh) == len(changed) else 0
        )  # a part that is gone leaves dead lines and adds none
        columns = Columns()
        path = self.folder / self.lines.name
        with path.open("r+b") as file:
            file.truncate(self.lines.size)
            file.seek(self.lines.size)
            check = _add(columns, file, fresh, self.lines.check)
            self.lines = FileRef.of(path, file, check)
        self._lay(stored, changed, columns)
        self.advance(ids)
        self.open()
        self._compact()

    def _lay(self, stored: Stored, changed: set[str], fresh: Columns) -> None:
        """The sheets anew: `fresh` and those at the end that are not much longer become one, the others lose the parts that
        were replaced. So what a change writes follows the change, and there are few sheets."""
        alive: list[list[Entry]] = [[] for _ in self.sheets]
        for name, (number, entry) in stored.entries.items():
            if name not in changed:
                alive[number].append(entry)
        sizes = [sum(entry.count for entry in entries) for entries in alive]
        kept, size = len(self.sheets), len(fresh)
        while kept and sizes[kept - 1] <= max(_FEW_ROWS, _TIMES * size):
            kept -= 1
            size += sizes[kept]
        columns = Columns()
        for number in range(kept, len(self.sheets)):
            for entry in alive[number]:
                columns.copy(stored.sheets[number], entry)
        columns.extend(fresh)
        self.sheets = [self._with_dead(number, stored.sheets[number], alive[number]) for number in range(kept)]
        if columns.entries or not self.sheets:
            self.sheets.append(write_sheet(self.folder, columns))

    def _with_dead(self, number: int, sheet: Sheet, alive: Sequence[Entry]) -> SheetRef:
        known, starts = self.sheets[number], {(entry.path, entry.start) for entry in alive}
        dead = [at for at, entry in enumerate(sheet.entries) if (entry.path, entry.start) not in starts]
        return SheetRef(known.file, known.count, dead)

    def advance(self, ids: Iterable[int]) -> None:
        """Begin a new revision, which these records differ in.

        Its number is never given again, though a power cut may take this revision back and keep what mirrors it.
        """
        self.revision = max(self.revision + 1, time.time_ns())
        self.log.append((self.revision, sorted(set(ids))))
        while sum(len(touched) for _, touched in self.log) > LOGGED:
            self.since = self.log.pop(0)[0]

    def _compact(self) -> None:
        """Write all anew once most lines are dead."""
        if self.lines.size <= self.roomy:
            return
        stored = self.stored or self.open()
        alive = sum(stored.size(path) for path in stored.entries)
        if self.lines.size - alive <= max(_GARBAGE, self.lines.size // 2):
            self.roomy = self.lines.size + max(_GARBAGE, self.lines.size // 16)
            return
        columns = Columns()
        with _new(self.folder, "lines") as (path, file):
            check = 0
            for name in sorted(stored.entries):
                number, entry = stored.entries[name]
                start = len(columns)
                columns.copy(stored.sheets[number], entry)
                for at in range(entry.count):
                    line = stored.line(number, entry.start + at)
                    columns.arrays["offsets"][start + at] = file.tell()
                    check = zlib.crc32(line, check)
                    file.write(line)
            self.lines = FileRef.of(path, file, check)
        self.sheets = [write_sheet(self.folder, columns)]
        self.open()


def check_files(folder: Path, plain: dict[str, Any]) -> None:
    """Look at every byte of the files that a manifest names for one type. Raises OSError, `Unusable`, or KeyError,
    TypeError or ValueError for what is no such account."""
    _ref(plain["lines"]).mapped(folder, verify=True, exact=False)
    for file, _, _ in plain["sheets"]:
        _ref(file).mapped(folder, verify=True)


def drop_manifest(folder: Path) -> None:
    """See to it that nobody opens the snapshot in this folder any more."""
    with suppress(OSError):
        (folder / MANIFEST).unlink()


def write_type(kind: RecordType, folder: Path, key: str, parts: Iterable[Part]) -> TypeFiles:
    """A type's files, made of parts as they come, holding the rows of none. Raises OSError, `Unusable` where records
    share an identity or an id."""
    columns = Columns()
    with _new(folder, "lines") as (path, file):
        check = _add(columns, file, parts, 0)
        lines = FileRef.of(path, file, check)
    if columns.repeats:
        path.unlink()
        raise Unusable(kind.name)
    made = TypeFiles(kind, folder, os.urandom(16).hex(), key, lines, [write_sheet(folder, columns)])
    made.open()
    return made


def write_sheet(folder: Path, columns: Columns) -> SheetRef:
    """A sheet of these rows, in a file of its own. Raises OSError."""
    data = columns.written()
    with _new(folder, "sheet") as (path, file):
        file.write(data)
        return SheetRef(FileRef.of(path, file, zlib.crc32(data)), len(columns))


def _add(columns: Columns, file: IO[bytes], parts: Iterable[Part], check: int) -> int:
    """Append the lines of parts, and say where they are; the CRC-32 that it makes of what `check` was the one of."""
    for part in parts:
        lines = lines_of(part.rows)
        if isinstance(part.rows, (CanonicalRows, KeptRows)):
            columns.add_canonical(part, lines, file.tell(), part.rows.named)
        else:
            columns.add(part, lines, file.tell())
        data = b"".join(lines)
        file.write(data)
        check = zlib.crc32(data, check)
    return check


@contextmanager
def _new(folder: Path, name: str) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file, which goes again where what fills it fails."""
    path = folder / f"{name}-{os.urandom(6).hex()}"
    try:
        with path.open("xb") as file:
            yield path, file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _facts(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def _plain(ref: FileRef) -> list[Any]:
    return [ref.name, ref.size, ref.check, *ref.facts]


def _ref(plain: list[Any]) -> FileRef:
    name, size, check, *facts = plain
    if not isinstance(name, str) or "/" in name or len(facts) != 3:
        raise ValueError(plain)
    return FileRef(name, int(size), int(check), (int(facts[0]), int(facts[1]), int(facts[2])))
