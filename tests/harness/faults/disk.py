"""A disk that forgets: which states a power cut can leave of the calls that a process made.

The kernel sees every call in order. The disk keeps what an fsync has covered; of the rest it may keep all, nothing or a
part, names and data apart. A file's data is covered by an fsync of the file, a name by an fsync of its folder. A rename is
one event, covered with the folder it leads to.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.harness.faults.run import Files

DATA = ("all", "none", "half", "zeros")
NAMES = ("all", "none", "half", "last", "some", "others")


@dataclass
class Event:
    """One change: of names in folders as (folder, name, inode or None), or of a file's bytes at an offset."""

    names: tuple[tuple[int, str, int | None], ...] = ()
    inode: int = 0
    at: int = 0
    data: bytes | None = None
    size: int | None = None
    durable: bool = False


@dataclass
class Disk:
    """What is on disk before the calls: folders as name -> inode, files as bytes, and modes."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    data: dict[int, bytes] = field(default_factory=dict)
    modes: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Files) -> "Disk":
        disk = cls()
        places = {"": 0}
        for number, (path, (mode, data)) in enumerate(sorted(files.items()), 1):
            above, _, name = path.rpartition("/")
            disk.folders[places[above]][name] = number
            disk.modes[number] = mode
            if data is None:
                places[path], disk.folders[number] = number, {}
            else:
                disk.data[number] = data
        return disk

    def copy(self) -> "Disk":
        folders = {number: dict(names) for number, names in self.folders.items()}
        return Disk(folders, dict(self.data), dict(self.modes))

    def find(self, path: str) -> int | None:
        at: int | None = 0
        for name in path.split("/"):
            at = self.folders[at].get(name) if at is not None and at in self.folders else None
        return at

    def apply(self, event: Event, kept: str = "all") -> None:
        for folder, name, inode in event.names:
            names = self.folders.setdefault(folder, {})
            names.pop(name, None)
            if inode is not None:
                names[name] = inode
        if event.size is not None and kept != "none":
            self.data[event.inode] = self.data.get(event.inode, b"")[: event.size].ljust(event.size, b"\0")
        if event.data is not None and kept != "none":
            part = event.data[: len(event.data) // 2] if kept == "half" else event.data
            part = bytes(len(part)) if kept == "zeros" else part
            before = self.data.get(event.inode, b"").ljust(event.at, b"\0")
            self.data[event.inode] = before[: event.at] + part + before[event.at + len(part) :]

    def files(self) -> Files:
        found: Files = {}
        self._walk(0, "", found)
        return found

    def _walk(self, folder: int, path: str, found: Files) -> None:
        for name, inode in sorted(self.folders[folder].items()):
            here = f"{path}/{name}" if path else name
            if inode in self.folders:
                found[here] = (self.modes.get(inode, 0o755), None)
                self._walk(inode, here, found)
            else:
                found[here] = (self.modes.get(inode, 0o644), self.data.get(inode, b""))


class Replay:
    """Turns recorded calls into events, and events into the states that a power cut after any of them can leave."""

    def __init__(self, files: Files, record: Sequence[dict[str, Any]], *, with_fsync: bool = True) -> None:
        self._before = Disk.of(files)
        self._now = self._before.copy()
        self._next = 1_000_000
        self._handles: dict[int, int] = {}
        self._with_fsync = with_fsync
        self.steps: list[Event | int] = []
        """In order: events, and the inodes that are synced."""
        for call in record:
            self._take(call)

    def at_last(self) -> dict[str, bytes | None]:
        """What the kernel holds after the last call, without modes."""
        return {path: data for path, (_, data) in self._now.files().items()}

    def _take(self, call: dict[str, Any]) -> None:
        match call["op"]:
            case "open":
                self._open(call)
            case "write":
                self._event(
                    Event(inode=self._handles[call["handle"]], at=call["at"], data=base64.b64decode(call["data"]))
                )
            case "fsync":
                if self._with_fsync:
                    self.steps.append(self._handles[call["handle"]])
            case "truncate" if "handle" in call:
                self._event(Event(inode=self._handles[call["handle"]], size=call["args"][0]))
            case "mkdir":
                self._next += 1
                self._now.folders[self._next] = self._before.folders[self._next] = {}
                self._before.folders[self._next] = {}
                self._event(Event(names=(self._name(call["path"], self._next),)))
            case "unlink" | "rmdir":
                self._event(Event(names=(self._name(call["path"], None),)))
            case "rename":
                inode = self._now.find(call["path"])
                self._event(Event(names=(self._name(call["path"], None), self._name(call["to"], inode))))
            case "link":
                self._event(Event(names=(self._name(call["to"], self._now.find(call["path"])),)))
            case "symlink":
                raise AssertionError("no link is ever made")

    def _open(self, call: dict[str, Any]) -> None:
        inode = self._now.find(call["path"])
        if inode is None and call["create"]:
            self._next += 1
            inode = self._next
            self._now.data[inode] = b""
            self._event(Event(names=(self._name(call["path"], inode),)))
        assert inode is not None, call
        self._handles[call["handle"]] = inode
        if call["cut"]:
            self._event(Event(inode=inode, size=0))

    def _name(self, path: str, inode: int | None) -> tuple[int, str, int | None]:
        above, _, name = path.rpartition("/")
        folder = self._now.find(above) if above else 0
        assert folder is not None, path
        return folder, name, inode

    def _event(self, event: Event) -> None:
        self._now.apply(event)
        self.steps.append(event)

    def states(self, rng: Random) -> Iterator[tuple[int, str, Files]]:
        """Of a cut after each number of steps: (steps made, what was kept, the files)."""
        for made in range(len(self.steps) + 1):
            events = self._events(made)
            for data in DATA:
                for names in NAMES:
                    yield made, f"data {data}, names {names}", self._state(events, data, names, rng)

    def _events(self, made: int) -> list[Event]:
        """The events so far, those that an fsync has covered marked."""
        events: list[Event] = []
        for step in self.steps[:made]:
            if isinstance(step, Event):
                step.durable = False
                events.append(step)
            else:
                for event in events:
                    covered = event.names[-1][0] if event.names else event.inode
                    event.durable = event.durable or covered == step
        return events

    def _state(self, events: list[Event], data: str, names: str, rng: Random) -> Files:
        disk = self._before.copy()
        pending = [event for event in events if event.names and not event.durable]
        kept = {id(event) for event in _kept(pending, names, rng)}
        for event in events:
            if event.durable:
                disk.apply(event)
            elif event.names:
                if id(event) in kept:
                    disk.apply(event)
            else:
                disk.apply(event, data)
        return disk.files()


def _kept(pending: list[Event], names: str, rng: Random) -> list[Event]:
    match names:
        case "all":
            return pending
        case "none":
            return []
        case "half":
            return pending[: len(pending) // 2]
        case "last":
            return pending[-1:]
        case _:
            return [event for event in pending if rng.random() < 0.5]
