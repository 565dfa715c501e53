"""The snapshot of truth: what the parts were read as, on disk under `.duckkb/snapshot/`, so that a start parses nothing.

    manifest.json             what there is: by type its files, a revision, and which records changed lately
    node-TABLE/lines-N        canonical lines, appended to; what lies beyond the size in the manifest does not exist
    node-TABLE/sheet-N        where which record lies (`sheet`): a first one, and shorter ones with the parts that changed since

It is never truth. A part counts as unread unless its file is the one that was read (`tree.Stamp`, or its digest where that
cannot tell); a type is left out where records stand twice, a part where lines cannot be read. Nobody can bring a snapshot
along: sheets are used only as the very files that were written here. After a restart of the machine, when the disk may
have lost what was not yet written, all bytes are held against their checksums first.

Whoever changes it holds `.duckkb/snapshot/lock`. Readers need no lock: files are appended to, or replaced and removed,
and what is mapped stays.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from duckkb.ontology.model import Ontology, RecordType
from duckkb.truth import state
from duckkb.truth.commit import lock
from duckkb.truth.files.line import Limits
from duckkb.truth.files.tree import Differences, Part, Stamp, Tree
from duckkb.truth.layout import parse_part, read_regular
from duckkb.truth.snapshot.stored import PartRows
from duckkb.truth.snapshot.stored_files import MANIFEST, TypeFiles, Unusable, check_files, write_type
from duckkb.values import dataclass

__all__ = ["Snapshot", "Unusable", "Version"]

FORMAT = 1
_HELD = 5_000  # records of a type that a tree may hold in memory though they lie in its files
_ATTEMPTS = 5
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Version:
    """Which state of a type's records derived state must mirror: that of `revision` in the files named `store`, which lie
    in `folder`."""

    folder: Path
    store: str
    revision: int
    since: int
    log: tuple[tuple[int, tuple[int, ...]], ...]

    def changed(self, revision: int) -> frozenset[int] | None:
        """Ids of the records that were put or are gone since an earlier revision; None where that is not known any more,
        or there was no such revision, as after a power cut that took it back."""
        if revision != self.since and all(number != revision for number, _ in self.log):
            return None
        return frozenset(record_id for number, ids in self.log if number > revision for record_id in ids)


class Snapshot:
    """The snapshot of one base as this process last read or wrote it."""

    def __init__(self, root: Path, ontology: Ontology, limits: Limits) -> None:
        self._root, self._ontology, self._limits = root, ontology, limits
        self._folder = state.snapshot_path(root)
        self._generation = 0
        self._boot = ""
        self._types: dict[str, TypeFiles] = {}
        self._stamps: dict[str, tuple[int, ...]] = {}

    @classmethod
    def open(cls, root: Path, ontology: Ontology, limits: Limits) -> "Snapshot":
        """What is there and can be used, type by type; an empty one where nothing is. Never raises for what lies there."""
        made = cls(root, ontology, limits)
        made.reopen()
        return made

    def reopen(self) -> None:
        """Look at the files anew. A writer may replace some meanwhile: that is seen, and they are looked for again."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._read()
                return
            except FileNotFoundError:
                if not left:
                    self._read(lenient=True)

    @property
    def is_confirmed(self) -> bool:
        """Whether no power cut came since it was written, as far as that can be told."""
        return self._boot == _boot_id()

    @property
    def is_dropped(self) -> bool:
        """Whether somebody has found it damaged since it was opened, or dropped it for another reason."""
        return not (self._folder / MANIFEST).exists()

    @property
    def holds(self) -> frozenset[str]:
        """Names of the types that it holds."""
        return frozenset(known.kind.name for known in self._types.values())

    def tree(self) -> Tree:
        """The tree as it was when the snapshot was made, of the types that it holds; the others have no parts."""
        parts: dict[str, Part] = {}
        tables = {}
        for known in self._types.values():
            tables[known.kind.name] = known.stored or known.open()
            parts |= self._parts(known)
        return Tree(self._ontology, self._limits, parts, [], tables)

    def relieve(self, tree: Tree, beyond: int = _HELD) -> None:
        """Let the tree, which is as `save` was given it, find in the files what it holds in memory, where those are more
        records than `beyond`."""
        for known in self._types.values():
            kind = known.kind
            if tree.is_stored(kind) and tree.held(kind) <= beyond:
                continue
            parts = self._parts(known)
            if parts.keys() == {part.path for part in tree.parts_of(kind)}:
                tree.lean_on(known.stored or known.open(), parts)

    def _parts(self, known: TypeFiles) -> dict[str, Part]:
        """The parts of a type by path, their rows as they lie in its files."""
        stored = known.stored or known.open()
        parts = {}
        for path, (number, entry) in stored.entries.items():
            stamp = Stamp(*self._stamps.get(path, entry.stamp))
            rows = PartRows(stored, number, entry)
            parts[path] = Part(path, known.kind, stamp, entry.digest, rows, (), entry.canonical, entry.sorted)
        return parts

    def version(self, kind: RecordType) -> Version | None:
        """What derived state of a type has to mirror; None where the snapshot does not hold the type."""
        known = self._types.get(_name(kind))
        if known is None:
            return None
        log = tuple((number, tuple(ids)) for number, ids in known.log)
        return Version(known.folder, known.store, known.revision, known.since, log)

    @contextmanager
    def writing(self, timeout: float) -> Iterator[bool]:
        """Hold the snapshot's lock; True where nobody wrote since this process looked, else it has to look again.

        Raises `errors.Unavailable` where it cannot be had in time or written here.
        """
        self._make_folder(self._folder)
        with lock.holding(self._folder / "lock", timeout):
            yield self._generation == _manifest(self._folder).get("generation", 0)

    def build(self, kind: RecordType, parts: Iterable[Part]) -> None:
        """Make a type's files anew out of its parts as they are read; the caller holds the lock, and ends with `save`.

        Raises OSError, and `Unusable` where records stand twice, which takes all of them in memory.
        """
        name = _name(kind)
        self._types.pop(name, None)
        self._make_folder(self._folder / name)
        self._types[name] = write_type(kind, self._folder / name, _key(kind, self._limits), parts)

    def save(self, tree: Tree, differences: Differences, paths: Iterable[str]) -> None:
        """Write down what the tree has become by taking in the parts at these paths; the caller holds the lock. Types that
        it cannot hold as they are now drop out, those that it can hold and does not yet are written. Raises OSError; what
        was there before is then still there."""
        changed: dict[str, set[str]] = {}
        for path in paths:
            changed.setdefault(_folder_of(path), set()).add(path)
        for name, known in list(self._types.items()):
            if not tree.is_stored(known.kind):
                del self._types[name]
            elif name in changed:
                upserts, gone = differences.get(known.kind.name, ([], []))
                fresh = [part for path in sorted(changed[name]) if (part := tree.parts.get(path)) and not part.findings]
                known.replace(changed[name], fresh, [*(row.record.id for row in upserts), *gone])
            elif (
                not self.is_confirmed
            ):  # what was derived before may be of a later revision, which a power cut took back
                known.advance(())
        for kind in self._missing(tree):
            with contextlib.suppress(Unusable):
                self.build(kind, tree.parts_of(kind))
        self._stamps = {path: stamp for path, stamp, known in self._seen(tree) if stamp != known}
        self._write()

    def _missing(self, tree: Tree) -> list[RecordType]:
        """The types that have records and are not held, but could be."""
        found = []
        for kind in self._ontology:
            if _name(kind) not in self._types and tree.count(kind) and not tree.is_mended(kind):
                found += [] if any(part.findings for part in tree.parts_of(kind)) else [kind]
        return found

    def knows_stamps(self, tree: Tree) -> bool:
        """Whether it vouches for every file that the tree vouches for."""
        return all(
            stamp == self._stamps.get(path, known) or Stamp(*stamp).is_racy for path, stamp, known in self._seen(tree)
        )

    def _seen(self, tree: Tree) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Of each part that it holds: path, the tree's stamp, and the one in its sheet."""
        for known in self._types.values():
            stored = known.stored or known.open()
            for path, (_, entry) in stored.entries.items():
                part = tree.parts.get(path)
                if part is not None:
                    yield path, part.stamp.numbers, tuple(entry.stamp)

    def _clear(self) -> None:
        self._generation = 0
        self._boot = _boot_id()
        self._types = {}
        self._stamps = {}

    def _read(self, *, lenient: bool = False) -> None:
        """Raises FileNotFoundError where a file is gone that the manifest names; if `lenient`, its type is left out."""
        self._clear()
        found = _manifest(self._folder)
        try:
            self._generation, self._boot = int(found["generation"]), str(found["boot"])
            self._stamps = {path: tuple(map(int, stamp)) for path, stamp in found["stamps"].items()}
            for kind in self._ontology:
                plain = found["types"].get(_name(kind))
                if plain is not None and plain.get("key") == _key(kind, self._limits):
                    self._open(kind, plain, lenient, verify=not (self._boot and self.is_confirmed))
        except (KeyError, TypeError, ValueError, AttributeError):
            self._types.clear()

    def _open(self, kind: RecordType, plain: dict[str, Any], lenient: bool, *, verify: bool) -> None:
        folder = self._folder / _name(kind)
        known = TypeFiles.of(kind, folder, plain)
        try:
            if state.is_folder(folder):
                known.open(verify=verify)
                self._types[_name(kind)] = known
        except FileNotFoundError:
            if not lenient:
                raise
        except (OSError, Unusable):  # a link, another's file, no descriptor left: it is made anew, or done without
            return

    def _write(self) -> None:
        self._generation, self._boot = self._generation + 1, _boot_id()
        content = {
            "format": FORMAT,
            "generation": self._generation,
            "boot": self._boot,
            "types": {name: known.plain() for name, known in self._types.items()},
            "stamps": self._stamps,
        }
        draft = self._folder / "manifest.new"
        draft.unlink(missing_ok=True)
        state.write_new(draft, orjson.dumps(content), durable=False)
        draft.replace(self._folder / MANIFEST)
        self._collect()

    def _collect(self) -> None:
        """Remove what nothing names any more, of types that are not held all of it; those who have it open keep it."""
        for folder in self._folder.iterdir():
            if not state.is_folder(folder):
                continue
            known = self._types.get(folder.name)
            if known is None:
                with contextlib.suppress(OSError):
                    _remove(folder)
                continue
            for path in folder.iterdir():
                if path.name.startswith(("lines-", "sheet-")) and path.name not in known.names:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _make_folder(self, folder: Path) -> None:
        state.ensure(self._root)
        folder.mkdir(exist_ok=True)
        if not state.is_folder(folder):
            raise NotADirectoryError(None, "a link, where a folder of our own should be", str(folder))


def problem(root: Path) -> str | None:
    """What is wrong with the snapshot that lies there, where every byte of it is looked at; None: nothing."""
    folder = state.snapshot_path(root)
    if not state.is_folder(folder):
        return None
    found = _manifest(folder)
    try:
        if not found and any(path.name != "lock" for path in folder.iterdir()):
            return "a snapshot that nothing reads"
        for name, plain in found.get("types", {}).items():
            check_files(folder / name, plain)
    except (OSError, Unusable, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the snapshot is damaged: {error}"
    return None


def drop(root: Path) -> None:
    """Remove everything but the lock, which somebody may be waiting for. Raises OSError."""
    folder = state.snapshot_path(root)
    if not state.is_folder(folder):
        return
    _unclose(folder)
    manifest = folder / MANIFEST  # first, so that nothing is opened that is half gone
    for path in [manifest, *(path for path in folder.iterdir() if path.name not in (MANIFEST, "lock"))]:
        if state.is_folder(path):
            _remove(path)
        else:
            path.unlink(missing_ok=True)


def _unclose(folder: Path) -> None:
    """Have the folders be such that their owner can remove what is in them; those that are stay as they are, and no link is
    followed."""
    _open_up(folder)
    for place, names, _ in os.walk(folder):
        for name in names:
            _open_up(Path(place, name))


def _open_up(folder: Path) -> None:
    with contextlib.suppress(OSError):
        mode = folder.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def _remove(folder: Path) -> None:
    from shutil import rmtree  # 10 ms that few starts need

    rmtree(folder)


def _manifest(folder: Path) -> dict[str, Any]:
    """What the manifest says, `{}` where there is none that can be read."""
    if not state.is_folder(folder) or not state.is_folder(folder.parent):
        return {}
    try:
        found = orjson.loads(read_regular(folder / MANIFEST)[0])
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == FORMAT else {}


def _name(kind: RecordType) -> str:
    return f"{kind.kind}-{kind.table}"


def _folder_of(path: str) -> str:
    address = parse_part(path)
    return f"{address.kind}-{address.table}" if address else ""


def _key(kind: RecordType, limits: Limits) -> str:
    """Names everything that what a line is read as depends on."""
    shaped_by = (FORMAT, kind.kind, kind.name, kind.table, kind.identity_fields, kind.generated, limits)
    return blake2b(repr(shaped_by).encode(), digest_size=8).hexdigest()


@cache
def _boot_id() -> str:
    """Differs after each start of the machine; empty where that cannot be told."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
