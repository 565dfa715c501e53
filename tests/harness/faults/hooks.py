"""Stand-ins for the functions by which Python touches files, for a process that is to die or to fail at one of them.

Installed in a child process only, from outside the product. What they see is compared with what strace sees, so that no
call escapes them.
"""

import base64
import builtins
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANGES = ("create", "write", "fsync", "rename", "unlink", "mkdir", "rmdir", "link", "truncate", "chmod", "symlink")
LOOKS = ("open", "read", "list")
DIED = 137

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass
class Plan:
    """What is to happen at call number `at` (from 0) of those whose kind is in `kinds` and whose path is below `root`.

    `action`: "die" before the call; "tear": write the first half of the data and die; "fail" with `error`. Afterwards
    calls whose kind is in `lasting` go on failing. `keep` records every call with its data. Only calls `under` a path below
    the root count, if it is given.
    """

    root: str
    at: int = -1
    action: str = ""
    error: int = 0
    kinds: tuple[str, ...] = CHANGES
    lasting: tuple[str, ...] = ()
    keep: bool = False
    under: str = ""


@dataclass
class Hooks:
    """The hooks of one process: the calls seen so far as [kind, path below the root], and their record."""

    plan: Plan
    calls: list[list[str]] = field(default_factory=list)
    record: list[dict[str, Any]] = field(default_factory=list)
    armed: bool = True
    failed: int = 0
    farewell: Callable[[], object] = lambda: None
    _seen: int = 0
    _handles: int = 0
    _open: dict[int, tuple[int, str]] = field(default_factory=dict)
    _real: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def install(self) -> "Hooks":
        for name in ("open", "write", "pwrite", "close", "fsync", "fdatasync", "ftruncate", "fchmod", "_exit"):
            self._real[name] = getattr(os, name)
        self._real["io.open"] = io.open
        own = {"open": self._os_open, "write": self._os_write, "pwrite": self._os_pwrite, "close": self._os_close}
        for name, call in own.items():
            setattr(os, name, call)
        io.open = builtins.open = self._io_open
        for name, kind in {"fsync": "fsync", "fdatasync": "fsync", "ftruncate": "truncate", "fchmod": "chmod"}.items():
            setattr(os, name, self._on_number(kind, self._real[name]))
        one = {"unlink": "unlink", "remove": "unlink", "mkdir": "mkdir", "rmdir": "rmdir", "chmod": "chmod"}
        for name, kind in {**one, "truncate": "truncate", "listdir": "list", "scandir": "list"}.items():
            setattr(os, name, self._on_path(kind, getattr(os, name)))
        for name, kind in {"rename": "rename", "replace": "rename", "link": "link", "symlink": "symlink"}.items():
            setattr(os, name, self._on_paths(kind, getattr(os, name)))
        return self

    def meet(self, kind: str, path: str | None, tear: Callable[[], object] | None = None) -> None:
        """A call is about to be made: count it, and do what the plan says. Raises OSError where it is to fail."""
        if path is None or not self.armed:
            return
        self.calls.append([kind, path])
        if kind not in self.plan.kinds or not path.startswith(self.plan.under):
            return
        number, self._seen = self._seen, self._seen + 1
        if self.failed and kind in self.plan.lasting:
            self._fail(path, tear)
        if number == self.plan.at:
            if self.plan.action == "fail":
                self._fail(path, tear)
            if self.plan.action == "tear" and tear:
                tear()
            if self.plan.action in ("die", "tear"):
                self.farewell()
                self._real["_exit"](DIED)

    def _fail(self, path: str, tear: Callable[[], object] | None) -> None:
        self.failed += 1
        if tear:  # a full disk takes a part of what it is given
            tear()
        raise OSError(self.plan.error, os.strerror(self.plan.error), path)

    def below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the root, None where it lies elsewhere."""
        if isinstance(path, int):
            return self._open[path][1] if path in self._open else None
        text = os.fsdecode(path)
        if dir_fd is not None:
            if dir_fd not in self._open:
                return None
            text = f"{self.plan.root}/{self._open[dir_fd][1]}/{text}"
        full = os.path.normpath(Path.cwd() / text)
        return full[len(self.plan.root) + 1 :] if full.startswith(self.plan.root + "/") else None

    def wrote(self, number: int, data: bytes, at: int) -> None:
        if self.plan.keep and self.armed:
            text = base64.b64encode(data).decode()
            self._keep("write", handle=self._open[number][0], data=text, at=at)

    def _keep(self, kind: str, **facts: Any) -> None:
        if self.plan.keep and self.armed:
            self.record.append({"op": kind, **facts})

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        inside = self.below(path, dir_fd)
        self.meet("create" if flags & _WRITING else "open", inside)
        number: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if inside is not None:
            self._handles += 1
            self._open[number] = (self._handles, inside)
            self._keep(
                "open", path=inside, handle=self._handles, create=bool(flags & os.O_CREAT), cut=bool(flags & os.O_TRUNC)
            )
        return number

    def _os_close(self, number: int) -> None:
        self._open.pop(number, None)
        self._real["close"](number)

    def write(self, number: int, data: Any, real: Callable[[Any], Any]) -> int:
        """One write call to an open file; `real` makes it."""
        whole = bytes(data)
        at = os.lseek(number, 0, os.SEEK_CUR) if number in self._open else 0
        half = whole[: len(whole) // 2]
        self.meet("write", self.below(number), lambda: real(half) if half else None)
        count: int = real(whole)
        if number in self._open:
            self.wrote(number, whole[:count], at)
        return count

    def _os_write(self, number: int, data: bytes) -> int:
        return self.write(number, data, lambda part: self._real["write"](number, part))

    def _os_pwrite(self, number: int, data: bytes, at: int) -> int:
        self.meet("write", self.below(number))
        count: int = self._real["pwrite"](number, data, at)
        if number in self._open:
            self.wrote(number, bytes(data)[:count], at)
        return count

    def _io_open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        if self.below(file) is None or not self.armed:
            return self._real["io.open"](file, mode, buffering, *args, **kwargs)
        raw = _raw_file(self)(
            file,
            mode.replace("b", "").replace("t", ""),
            closefd=kwargs.pop("closefd", True),
            opener=kwargs.pop("opener", None) or (lambda path, flags: os.open(path, flags, 0o666)),
        )
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffered = kind(raw, getattr(os.fstat(raw.fileno()), "st_blksize", 0) or io.DEFAULT_BUFFER_SIZE)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **kwargs)

    def _on_number(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(number: int, *args: Any) -> Any:
            self.meet(kind, self.below(number))
            done = real(number, *args)
            if number in self._open:
                self._keep(kind, handle=self._open[number][0], args=list(args))
            return done

        return call

    def _on_path(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            inside = self.below(path, kwargs.get("dir_fd"))
            self.meet(kind, inside)
            done = real(path, *args, **kwargs)
            if inside is not None:
                self._keep(kind, path=inside)
            return done

        return call

    def _on_paths(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **kwargs: Any) -> Any:
            inside = self.below(target)
            self.meet(kind, inside)
            done = real(source, target, **kwargs)
            if inside is not None:
                self._keep(kind, path=self.below(source), to=inside)
            return done

        return call


def _raw_file(hooks: Hooks) -> type[io.FileIO]:
    class Raw(io.FileIO):
        """A file whose reads and writes are met first."""

        def write(self, data: Any, /) -> int:
            return hooks.write(self.fileno(), data, super().write)

        def readinto(self, buffer: Any, /) -> int:
            hooks.meet("read", hooks.below(self.fileno()))
            return super().readinto(buffer)

        def readall(self) -> bytes:
            hooks.meet("read", hooks.below(self.fileno()))
            return super().readall()

        def close(self) -> None:
            if not self.closed and self.closefd:
                hooks._open.pop(self.fileno(), None)
            super().close()

    return Raw
