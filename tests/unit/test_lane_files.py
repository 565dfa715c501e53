"""What a lane takes for its own files: bytes that were written, whoever touched them since."""

import random
import shutil
from pathlib import Path

import pytest

from duckkb.store.mirrored_files import LaneFiles, LaneMeta

MEGABYTE = 1 << 20


def sealed(folder: Path, data: bytes) -> tuple[LaneFiles, Path]:
    files = LaneFiles(folder / "c", "material")
    with files.hold_lock(alone=True), files.create_generation() as generation:
        path = files.place(generation) / "data"
        path.write_bytes(data)
        files.seal(LaneMeta("1", generation, {"files": ["data"]}))
    return files, path


@pytest.mark.parametrize("size", [10, MEGABYTE, 3 * MEGABYTE])
def test_a_byte_that_somebody_changed_is_seen_in_files_of_any_size(tmp_path: Path, size: int) -> None:
    files, path = sealed(tmp_path, random.Random(size).randbytes(size))
    assert files.read() is not None
    data = bytearray(path.read_bytes())
    data[size // 3] ^= 1
    path.write_bytes(data)
    assert files.read() is None


def test_what_a_process_that_died_left_at_the_end_of_a_file_is_seen(tmp_path: Path) -> None:
    files, path = sealed(tmp_path, b"data")
    with path.open("ab") as file:
        file.write(b"of a process that died")
    assert files.read() is None


def test_a_folder_that_was_copied_with_its_times_is_the_same(tmp_path: Path) -> None:
    sealed(tmp_path, b"data")
    shutil.copytree(tmp_path / "c", tmp_path / "other" / "c")
    assert LaneFiles(tmp_path / "other" / "c", "material").read() is not None


@pytest.mark.parametrize("sizes", [(10, 20), (10, 2 * MEGABYTE), (2 * MEGABYTE, 2 * MEGABYTE + 10), (5, 5), (20, 10)])
def test_a_file_may_grow_or_be_written_anew_from_one_revision_to_the_next(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    files, path = sealed(tmp_path, bytes(sizes[0]))
    meta = files.read()
    assert meta is not None
    grown = bytes(sizes[0]) + b"x" * (sizes[1] - sizes[0]) if sizes[0] > MEGABYTE else b"y" * sizes[1]
    path.write_bytes(grown)
    files.seal(LaneMeta("2", meta.generation, {"files": ["data"]}), before=meta)
    found = files.read()
    assert found is not None and found.digest == "2"


def test_what_could_not_be_finished_is_gone(tmp_path: Path) -> None:
    files, _ = sealed(tmp_path, b"data")
    before = sorted((tmp_path / "c").iterdir())
    with pytest.raises(OSError, match="full"), files.create_generation() as generation:
        (files.place(generation) / "half").write_bytes(b"x")
        raise OSError("full")
    assert sorted((tmp_path / "c").iterdir()) == before
