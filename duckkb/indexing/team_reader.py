"""The team's files of one base: looked at from both ends when they are listed, and taken into the store once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from duckkb.errors import Finding
from duckkb.indexing.cache_rows import Batch
from duckkb.indexing.cache_store import CacheStore, Known
from duckkb.indexing.team_file import Damaged, TeamFile, digest, team_files
from duckkb.store.database import Unusable

_FORGED = "rows of it did not agree with what was recomputed, so none of it is used"
_WHO = "find out who changed it, then `duckkb index build`"


class TeamReader:
    """Which files there are, what is wrong with them, and their numbers in the store."""

    def __init__(self, root: Path, store: CacheStore) -> None:
        self._root, self._store = root, store
        self._sound: list[TeamFile] | None = None
        self._numbers: dict[TeamFile, int] | None = None
        self._findings: list[Finding] = []
        self.imperfect: set[TeamFile] = set()
        """Those with rows that were left out."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """As far as files were looked at."""
        self._listed()
        return tuple(dict.fromkeys(self._findings))

    def look_again(self) -> None:
        """Take the files as they are now."""
        self._sound = self._numbers = None

    def numbers(self) -> dict[TeamFile, int]:
        """The files that can be read, by their numbers in the store, which knows them as present from now on."""
        if self._numbers is None:
            try:
                self._numbers = self._taken_in()
            except Unusable:
                self._store.go_on_in_memory()
                self._numbers = self._taken_in()
            self._store.present = tuple(self._numbers.values())
        return self._numbers

    def drop(self, file: TeamFile) -> None:
        """Use nothing of a file any more, neither now nor when it is opened again."""
        with suppress(OSError, Damaged), file.opened() as opened:
            forged = self._store.hash_of(opened, self._root / file.path)
            try:
                self._store.settle(forged, "forged", None)
            except Unusable:
                self._store.go_on_in_memory()
                self._store.settle(forged, "forged", None)
        self.look_again()
        self.numbers()  # which says what became of it

    def trust(self, file_hash: str) -> None:
        """Have a file that was made here be used without a sample."""
        known = self._store.known(file_hash)
        if known is None or known.state != "read":
            with suppress(Unusable):
                self._store.settle(file_hash, "made", None)

    def _listed(self) -> list[TeamFile]:
        if self._sound is None:
            self._findings, self.imperfect = [], set()
            self._sound = [file for file in team_files(self._root) if self._is_sound(file)]
        return self._sound

    def _is_sound(self, file: TeamFile) -> bool:
        try:
            file.sniff()
        except FileNotFoundError:
            return False
        except Damaged as problem:
            self._findings.append(file.finding(str(problem), problem.remedy))
            return False
        return True

    def _taken_in(self) -> dict[TeamFile, int]:
        found = {}
        for file in self._listed():
            try:
                known = self._known(file)
            except FileNotFoundError:
                continue
            except Damaged as problem:
                self._findings.append(file.finding(str(problem), problem.remedy))
                continue
            if known.state == "forged":
                self._findings.append(file.finding(_FORGED, _WHO, "W_CACHE_UNTRUSTED"))
                continue
            for reason, count in sorted(known.said.items()):
                self._findings.append(file.finding(f"{count} rows were left out: {reason}", "duckkb index build"))
                self.imperfect.add(file)
            found[file] = known.id
        return found

    def _known(self, file: TeamFile) -> Known:
        """What is known of a file, which is read where it has to be. Raises `Damaged`, FileNotFoundError, `Unusable`."""
        with file.opened() as opened:
            name = self._store.hash_of(opened, self._root / file.path)
            file.refuse_misnamed(name)
            known = self._store.known(name)
            if known is None or known.state in ("begun", "made"):
                return self._read(opened, name, is_made_here=known is not None and known.state == "made")
        if known.state == "damaged":
            raise Damaged(*known.said)
        return known

    def _read(self, opened: IO[bytes], name: str, *, is_made_here: bool) -> Known:
        number, left_out = self._store.begin(name), Counter[str]()
        try:
            for batch in self._batches(opened, name, is_made_here=is_made_here):
                left_out += batch.left_out
                self._store.hold(number, batch.kind, batch.rows, vouched=is_made_here)
        except Damaged as problem:
            self._store.settle(name, "damaged", [str(problem), problem.remedy])
            raise
        except OSError as problem:  # no process was to be had, or no memory: perhaps another time
            raise Damaged(f"it cannot be read now ({problem.strerror})") from problem
        return Known(self._store.settle(name, "read", left_out), "read", left_out)

    def _batches(self, opened: IO[bytes], name: str, *, is_made_here: bool) -> Iterator[Batch]:
        """What this machine wrote is no danger to it; anything else is read at arm's length."""
        if not is_made_here:
            from duckkb.indexing.foreign import read

            yield from read(opened, name)
            return
        from duckkb.indexing.cache_format import decode

        opened.seek(0)
        data = opened.read()
        if digest(data) != name:
            raise Damaged("it changed while it was read")
        yield from decode(data)
