"""Arrays that grow at their end, in memory or in a file."""

import os
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Column(Protocol):
    """Rows of one shape. `array` has those so far; it stays as it was when more are added."""

    @property
    def array(self) -> NDArray[Any]: ...

    def reserve(self, rows: int) -> None:
        """Make room for so many rows in all."""
        ...

    def append(self, rows: NDArray[Any]) -> None: ...


class Growing:
    """A column in memory with room at its end: adding costs what is added. `shape` is that of one row."""

    def __init__(self, dtype: DTypeLike, shape: tuple[int, ...] = ()) -> None:
        self._buffer: NDArray[Any] = np.empty((0, *shape), dtype)
        self._used = 0

    @property
    def array(self) -> NDArray[Any]:
        return self._buffer[: self._used]

    def reserve(self, rows: int) -> None:
        if rows > len(self._buffer):
            buffer = np.empty((rows, *self._buffer.shape[1:]), self._buffer.dtype)
            buffer[: self._used] = self.array
            self._buffer = buffer

    def append(self, rows: NDArray[Any]) -> None:
        needed = self._used + len(rows)
        if needed > len(self._buffer):
            self.reserve(max(needed, self._used * 3 // 2))
        self._buffer[self._used : needed] = rows
        self._used = needed


class Mapped:
    """A column in a file, mapped into memory. `size` is how many bytes of the file count; what is beyond is overwritten."""

    def __init__(self, path: Path, dtype: DTypeLike, shape: tuple[int, ...] = (), size: int = 0) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._row = self._dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._file: IO[bytes] | None = None
        self._array: NDArray[Any] | None = None
        self.size = size
        if size % self._row:
            raise ValueError(f"{path.name} ends within a row")

    @property
    def array(self) -> NDArray[Any]:
        if self._array is None:
            self.close()
            rows = self.size // self._row
            if rows:
                mapped = np.memmap(self._path, self._dtype, "r", shape=(rows, *self._shape))
                self._array = mapped.view(np.ndarray)
            else:
                self._array = np.empty((0, *self._shape), self._dtype)
        return self._array

    def reserve(self, rows: int) -> None:
        """A file grows as it is written."""

    def append(self, rows: NDArray[Any]) -> None:
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")
            self._file.truncate(self.size)
            self._file.seek(self.size)
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self.size += len(rows) * self._row
        self._array = None

    def close(self) -> None:
        """Write out what was appended."""
        if self._file is not None:
            self._file.close()
            self._file = None
