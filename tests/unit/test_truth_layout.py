"""Where parts lie, and the number of the format."""

import hashlib
import os
from pathlib import Path

import pytest

from duckkb.storage.layout import (
    FORMAT_PATH,
    base_number,
    format_bytes,
    parse_part,
    part_path,
    read_format,
    read_regular,
    safe_table_name,
)
from duckkb.types.errors import StateError


@pytest.mark.parametrize(
    "path",
    [
        "data/nodes/person/20260101/part_000.jsonl",
        "data/edges/knows/20241231/part_999.jsonl",
        "data/nodes/a/20240229/part_1000.jsonl",
    ],
)
def test_a_path_of_a_part_is_read_and_written_alike(path: str) -> None:
    address = parse_part(path)
    assert address is not None
    assert address.path == path == part_path(address.kind, address.table, address.day, address.number)


@pytest.mark.parametrize(
    "path",
    [
        "data/nodes/person/20260101/part_0007.jsonl",
        "data/nodes/person/20260101/part_07.jsonl",
        "data/nodes/person/20260101/part_007.jsonl.tmp",
        "data/nodes/person/20260101/.part_007.jsonl",
        "data/nodes/person/20260101/part_００7.jsonl",
        "data/nodes/person/20260230/part_007.jsonl",
        "data/nodes/person/2026-01-01/part_007.jsonl",
        "data/nodes/Person/20260101/part_007.jsonl",
        "data/nodes/con/20260101/part_007.jsonl",
        "data/nodes/../20260101/part_007.jsonl",
        "data/other/person/20260101/part_007.jsonl",
        "data/nodes/person/20260101/part_007.jsonl\n",
        "/data/nodes/person/20260101/part_007.jsonl",
    ],
)
def test_any_other_path_is_no_part(path: str) -> None:
    assert parse_part(path) is None


def test_unsafe_names_are_no_tables() -> None:
    assert safe_table_name("person")
    assert not any(map(safe_table_name, ["", "Person", "1a", "a-b", "nul", "com1", "a" * 64, "a/b", "人"]))


def test_a_writers_number_is_the_whole_digest_modulo_a_thousand() -> None:
    digest = hashlib.sha256(b"clone\0feature/x").hexdigest()
    assert base_number("clone", "feature/x") == int(digest, 16) % 1000
    assert base_number("clone", "feature/x") != base_number("clonefeature", "/x")


def test_an_absent_format_is_the_first(tmp_path: Path) -> None:
    assert read_format(tmp_path) == 1
    (tmp_path / "data").mkdir()
    (tmp_path / FORMAT_PATH).write_bytes(format_bytes())
    assert format_bytes() == b'{"format":1}\n'
    assert read_format(tmp_path) == 1


@pytest.mark.parametrize(
    "raw", [b'{"format":2}', b'{"format":0}', b'{"format":true}', b"{}", b"[]", b"", b"\xff", b"[" * 9999]
)
def test_a_newer_or_unreadable_format_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / FORMAT_PATH).write_bytes(raw)
    with pytest.raises(StateError) as caught:
        read_format(tmp_path)
    assert caught.value.code == "E_FORMAT"
    assert caught.value.suggestion


def test_links_folders_and_fifos_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert read_regular(tmp_path / "file")[0] == b"x"
    for name in ("link", "fifo", ".", "absent"):
        with pytest.raises(OSError):
            read_regular(tmp_path / name)
