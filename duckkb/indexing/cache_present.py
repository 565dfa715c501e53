"""The cache files of a base: which there are, what was read of them, and what of that may be used."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckkb.errors import Finding
from duckkb.indexing.cache_files import KINDS, CacheFile, Damaged, Kind, digest, local_files, team_files
from duckkb.indexing.cache_reader import FEW, Reader
from duckkb.indexing.loaded import Loaded
from duckkb.indexing.places import Misplaced
from duckkb.indexing.sample import Trust

_FORGED = "rows of it did not agree with what was recomputed, so none of it is used"
_WHO = "find out who changed it, then `duckkb index build`"


class Present:
    """Files are looked at from both ends when they are listed. Rows of a file whose places are known are read singly, where
    they are few or lie in it as they are; else the file is read whole, once, and kept in memory (`loaded`)."""

    def __init__(self, root: Path, trust: Trust, reader: Reader, files: Sequence[CacheFile], local: bool) -> None:
        self._root, self._trust, self._reader, self._local = root, trust, reader, local
        self.findings: list[Finding] = []
        self.broken: list[CacheFile] = []
        """Local files that cannot be used, for `salvage`."""
        self.dropped = 0
        """Files that were given up after rows of them may have been handed out."""
        self._stamps: dict[str, tuple[int, ...]] = {}
        self.files = [file for file in files if self._is_sound(file)]
        self.loaded: dict[Kind, dict[CacheFile, Loaded | None]] = {kind: {} for kind in KINDS}

    def of(self, kind: Kind) -> list[CacheFile]:
        """The files that may have rows of a kind."""
        return [file for file in self.files if file.kind in (None, kind)]

    def segments(self, kind: Kind) -> list[Loaded]:
        """What each of them holds of the kind, where that can be read."""
        return [loaded for file in self.of(kind) if (loaded := self.whole(file, kind))]

    def whole(self, file: CacheFile, kind: Kind) -> Loaded | None:
        """What a file holds of a kind, kept; None where it cannot be read."""
        known = self.loaded[kind]
        if file not in known:
            known[file] = self.load(file, kind)
        return known[file]

    def load(self, file: CacheFile, kind: Kind) -> Loaded | None:
        """As `whole`, read anew and not kept."""
        try:
            name, segment = self._reader.whole(file, kind)
        except FileNotFoundError:  # another process has merged it since
            return None
        except Damaged as problem:
            self._give_up(file, str(problem), problem.remedy)
            return None
        for reason, count in sorted(segment.left_out.items()):
            self.findings.append(file.finding(f"{count} rows were left out: {reason}", "duckkb index build"))
        if self._trust.knows(name, kind):
            return Loaded(file, name, segment, True)
        if self._trust.distrusts(name):
            self._give_up(file, _FORGED, _WHO, "W_CACHE_UNTRUSTED")
            return None
        return Loaded(file, name, segment, False, self._trust.vouched(name, kind, segment.index))

    def payloads(self, kind: Kind, found: list[Any], keys: Sequence[bytes]) -> list[Any]:
        """`found`, with the payloads of the keys that it has None for and whose rows may be used."""
        packed = len(keys) <= FEW
        return self._filled(kind, found, keys, lambda file, some: self._reader.some(file, kind, some, packed=packed))

    def sized(self, kind: Kind, found: list[Any], keys: Sequence[bytes]) -> list[Any]:
        """As `payloads`, for who asks only whether there are some, and how long: what stands for them may be a range."""
        return self._filled(kind, found, keys, lambda file, some: self._reader.sized(file, kind, some))

    def may_use(self, file: CacheFile, kind: Kind, keys: Collection[bytes]) -> bool:
        """Whether a file surely has no row of these keys that must be verified first."""
        if file not in self.loaded[kind]:
            with suppress(Misplaced, FileNotFoundError):
                return self._reader.may_use(file, kind, list(keys))
        return False

    def drop(self, forged: Loaded) -> None:
        """Use nothing of the file any more, neither now nor when it is opened again."""
        self._trust.distrust(forged.hash)
        self.dropped += 1
        self._give_up(forged.file, _FORGED, _WHO, "W_CACHE_UNTRUSTED")
        self.forget([forged.file])

    def forget(self, gone: Collection[CacheFile]) -> None:
        """Go on without these files."""
        self.files = [kept for kept in self.files if kept not in gone]
        for known in self.loaded.values():
            for file in gone:
                known.pop(file, None)

    def add(self, written: CacheFile) -> None:
        """Take in a file that was written here just now."""
        self._stamps[written.path] = written.stamp
        self.files = [written, *(kept for kept in self.files if kept != written)]

    def look_again(self) -> str:
        """Take in the files that others wrote since they were listed; returns what `stamp` was before that."""
        stamp = self.stamp()
        self._trust.look_again()
        for file in self._listed(local=True):
            if self._stamps.get(file.path) == file.stamp or not self._is_sound(file):
                continue
            self.files = [*(kept for kept in self.files if kept.path != file.path), file]
            for known in self.loaded.values():
                known.pop(file, None)
        return stamp

    def stamp(self, *, local: bool = True) -> str:
        """Names the files that lie here now, or the team's alone; the same only while none of them changes."""
        return digest("\n".join(f"{file.path} {file.stamp}" for file in self._listed(local)).encode())

    def _listed(self, local: bool) -> list[CacheFile]:
        return [*(local_files(self._root) if local and self._local else []), *team_files(self._root)]

    def _is_sound(self, file: CacheFile) -> bool:
        self._stamps[file.path] = file.stamp
        try:
            file.sniff()
        except FileNotFoundError:
            return False
        except Damaged as problem:
            self._give_up(file, str(problem), problem.remedy)
            return False
        return True

    def _give_up(self, file: CacheFile, message: str, remedy: str, code: str = "W_CACHE") -> None:
        found = file.finding(message, remedy, code)
        if found not in self.findings:  # each kind of row is looked at by itself
            self.findings.append(found)
        if file.is_local:
            self.broken.append(file)

    def _filled(self, kind: Kind, found: list[Any], keys: Sequence[bytes], look: "_Look") -> list[Any]:
        for file in self.of(kind):
            places = [at for at, payload in enumerate(found) if payload is None]
            if not places:
                break
            wanted = [keys[at] for at in places]
            for at, payload in zip(places, self._usable(file, kind, wanted, look), strict=True):
                found[at] = payload
        return found

    def _usable(self, file: CacheFile, kind: Kind, keys: Sequence[bytes], look: "_Look") -> list[Any]:
        """What a file has for each key whose row may be used, else None."""
        if file not in self.loaded[kind]:
            with suppress(Misplaced, FileNotFoundError):
                return look(file, keys)
        loaded = self.whole(file, kind)
        usable = [key for key in keys if key in loaded.usable] if loaded else []
        stored = iter(loaded.segment.payloads(usable) if loaded else ())
        return [next(stored) if loaded and key in loaded.usable else None for key in keys]


_Look = Callable[[CacheFile, Sequence[bytes]], list[Any]]
