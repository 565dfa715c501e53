"""What is opened to be read is closed again, also where it turns out to be no file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from duckkb.storage.git_process import read_bytes
from duckkb.storage.layout import read_regular
from duckkb.storage.merge_rules import digest

READERS: dict[str, Callable[[Path], object]] = {
    "a part": lambda folder: read_regular(folder / "config.yaml"),
    "a file of git": lambda folder: read_bytes(folder / "config.yaml"),
    "the rules of a merge": digest,
}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list what a process has open")
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_folder_in_the_place_of_a_file_stays_not_open(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        try:
            read(tmp_path)
        except OSError as error:
            assert isinstance(error, IsADirectoryError)
    assert sorted(Path("/proc/self/fd").iterdir()) == before
