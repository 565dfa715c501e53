"""What a files takes for its own files: bytes that were written, whoever touched them since."""

import os
import random
from pathlib import Path

import pytest

from duckkb.lanes.files import LaneFiles

MEGABYTE = 1 << 20


def sealed(folder: Path, data: bytes) -> tuple[LaneFiles, Path]:
    files = LaneFiles(folder / "c", "store", "material")
    with files.locked(alone=True), files.begun() as generation:
        path = files.place(generation) / "data"
        path.write_bytes(data)
        files.seal(1, generation, {"files": ["data"]})
    return files, path


@pytest.mark.parametrize("size", [10, MEGABYTE, 3 * MEGABYTE])
@pytest.mark.parametrize("is_hidden", [False, True], ids=["", "with its time put back"])
def test_a_byte_that_somebody_changed_is_seen_in_files_of_any_size(tmp_path: Path, size: int, is_hidden: bool) -> None:
    files, path = sealed(tmp_path, random.Random(size).randbytes(size))
    assert files.read() is not None
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[size // 3] ^= 1
    path.write_bytes(data)
    if is_hidden:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.read() is None


@pytest.mark.parametrize("size", [0, 10, 3 * MEGABYTE])
def test_a_file_that_was_touched_or_grew_is_still_the_same(tmp_path: Path, size: int) -> None:
    files, path = sealed(tmp_path, random.Random(size).randbytes(size))
    path.write_bytes(path.read_bytes())
    assert files.read() is not None
    with path.open("ab") as file:
        file.write(b"of a process that died")
    assert files.read() is not None


@pytest.mark.parametrize("sizes", [(10, 20), (10, 2 * MEGABYTE), (2 * MEGABYTE, 2 * MEGABYTE + 10), (5, 5), (20, 10)])
def test_a_file_may_grow_or_be_written_anew_from_one_revision_to_the_next(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    files, path = sealed(tmp_path, bytes(sizes[0]))
    meta = files.read()
    assert meta is not None
    grown = bytes(sizes[0]) + b"x" * (sizes[1] - sizes[0]) if sizes[0] > MEGABYTE else b"y" * sizes[1]
    path.write_bytes(grown)
    files.seal(2, meta.generation, {"files": ["data"]}, meta)
    found = files.read()
    assert found is not None and found.revision == 2


def test_what_could_not_be_finished_is_gone(tmp_path: Path) -> None:
    files, _ = sealed(tmp_path, b"data")
    before = sorted((tmp_path / "c").iterdir())
    with pytest.raises(OSError, match="full"), files.begun() as generation:
        (files.place(generation) / "half").write_bytes(b"x")
        raise OSError("full")
    assert sorted((tmp_path / "c").iterdir()) == before
