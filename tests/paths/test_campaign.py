"""Slow campaigns: many processes at once, and real kills at random moments."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import duckkb
from tests.conftest import run_in

WRITER = """
import duckkb, sys
with duckkb.open(sys.argv[1], lock_timeout=600) as kb:
    for number in range(int(sys.argv[3])):
        kb.put('Note', {'id': f'{sys.argv[2]}-{number:03}', 'text': 'x' * 2000})
        print(number, flush=True)
"""


def _start(root: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(root), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_dk_17_twenty_processes_of_twenty_upserts_lose_nothing(notes: Path) -> None:
    running = [_start(notes, f"p{number:02}", 20) for number in range(20)]
    for process in running:
        _, said = process.communicate(timeout=900)
        assert process.returncode == 0, said
    with duckkb.open(notes) as kb:
        expected = [f"p{process:02}-{number:03}" for process in range(20) for number in range(20)]
        assert [record["id"] for record in kb.list("Note", limit=1000)] == expected
        assert kb.check().findings == ()


@pytest.mark.slow
def test_dk_15_every_acknowledged_write_survives_a_kill(notes: Path) -> None:
    """What a killed writer had reported is there; at most one more is; nothing is left over; the base is clean."""
    rng = random.Random(20261121)
    promised: set[str] = set()
    for round_number in range(40):
        process = _start(notes, f"k{round_number:02}", 500)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(rng.randint(1, 5))]
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        numbers = [int(one) for one in (*acknowledged, *rest)]
        promised |= {f"k{round_number:02}-{number:03}" for number in numbers}
        with duckkb.open(notes) as kb:
            stored = {record["id"] for record in kb.list("Note", limit=100_000)}
            assert promised <= stored
            unannounced = stored - promised
            assert len(unannounced) <= 1, unannounced
            promised = stored
            assert kb.check().findings == ()
        assert not list((notes / ".duckkb" / "txn").glob("*")), "nothing is left over"
    assert run_in(notes, ["check"]).code == 0
