"""Several processes at once: no count is lost, and no reader sees two generations of files mixed."""

import os
import subprocess
import sys
from pathlib import Path

import duckkb
from duckkb.storage import commit_protocol

SOURCES = str(Path(duckkb.__file__).parents[1])
WRITERS, ROUNDS, READERS = 4, 10, 2
PARTS = ["data/nodes/note/20260101/part_000.jsonl", "data/edges/cites/20260101/part_000.jsonl"]

COUNT = """
import sys
from pathlib import Path
from duckkb.storage import base_lock as lock
root, rounds = Path(sys.argv[1]), int(sys.argv[2])
for _ in range(rounds):
    with lock.exclusive(root, 60):
        count = int((root / "counter").read_text())
        with (root / "counter").open("w") as file:
            file.flush()
            file.write(str(count + 1))
"""

# Every part holds the same number; the second grows to show that sizes may differ.
WRITE = """
import hashlib, sys
from pathlib import Path
from duckkb.storage import commit_protocol as protocol
root, rounds, parts = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
for _ in range(rounds):
    with protocol.lock_for_writing(root, 60):
        found = {path: (root / path).read_bytes() for path in parts}
        number = int(found[parts[0]].split()[0]) + 1
        protocol.commit(root, [
            protocol.FileChange(path, hashlib.sha256(data).hexdigest(), b"%d\\n" % number + b"x" * (number % 7 * 1000))
            for path, data in found.items()
        ])
"""
WRITE_AND_SAY = WRITE + "    print(number, flush=True)\n"
READ = """
import sys
from pathlib import Path
from duckkb.storage import commit_protocol as protocol
root, last, parts = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
number, before = -1, -1
while number < last:
    with protocol.lock_for_reading(root, 60) as read_only:
        found = [(root / path).read_bytes() for path in parts]
    assert not read_only
    assert found[0] == found[1], "two generations"
    number = int(found[0].split()[0])
    assert number >= before, "went back"
    before = number
"""


def start(program: str, root: Path, *arguments: object) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"PYTHONPATH": SOURCES}
    return subprocess.Popen([sys.executable, "-c", program, str(root), *map(str, arguments)], env=environment)


def test_dk_17_no_increment_under_the_exclusive_lock_is_lost(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    writers = [start(COUNT, tmp_path, ROUNDS) for _ in range(WRITERS)]
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    assert (tmp_path / "counter").read_text() == str(WRITERS * ROUNDS)


def test_dk_17_readers_never_see_two_generations_mixed(tmp_path: Path) -> None:
    first = [commit_protocol.FileChange(path, None, b"0\n") for path in PARTS]
    commit_protocol.commit(tmp_path, first)
    writers = [start(WRITE, tmp_path, ROUNDS, *PARTS) for _ in range(WRITERS)]
    readers = [start(READ, tmp_path, WRITERS * ROUNDS, *PARTS) for _ in range(READERS)]
    assert [process.wait() for process in writers + readers] == [0] * (WRITERS + READERS)


def test_dk_15_writers_killed_at_any_moment_lose_no_acknowledged_write(tmp_path: Path) -> None:
    commit_protocol.commit(tmp_path, [commit_protocol.FileChange(path, None, b"0\n") for path in PARTS])
    acknowledged = 0
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITE_AND_SAY, str(tmp_path), "100000", *PARTS],
            env=os.environ | {"PYTHONPATH": SOURCES},
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        for _ in range(3):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        rest = writer.communicate()[0].split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        with commit_protocol.lock_for_reading(tmp_path, 10):
            found = [(tmp_path / path).read_bytes() for path in PARTS]
        assert found[0] == found[1]
        assert int(found[0].split()[0]) in (acknowledged, acknowledged + 1)
