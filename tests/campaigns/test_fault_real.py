"""Faults that the kernel makes: real processes killed or failing at system calls, a disk that is full, limits, folders that
cannot be written.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.harness.campaign import Campaign
from tests.harness.faults import strace as fault_strace
from tests.harness.faults.bases import NAMED, WRITER, Ground, Write, note
from tests.harness.faults.hooks import CHANGES
from tests.harness.faults.judge import Judge, judge_of
from tests.harness.faults.run import Ended, Files, Zygote, put_back, taken, truth

_TRIES = 6
"""How often a process is killed until it dies where it is to: a call has the number that strace goes by among all of its name,
and how many files a process opens to read them may differ from one run to the next."""
_DRAWN = re.compile(r"(txn/)[0-9a-f]{16}|(\.tmp-)\w+|(\.clone_id\.)\w+|/(\d{8})(?=/|$)")


@pytest.fixture(scope="session")
def strace() -> None:
    reason = fault_strace.missing()
    if reason:
        pytest.skip(f"{reason}; test_crashes.py and test_errnos.py put the same faults in by hooks")


def real(judge: Judge) -> Judge:
    """The same judge for processes with a clock of their own: what is new is what the write would do today."""
    today = {"moment": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    with judge.zygote.case(judge.files) as folder:
        assert judge.write.run(judge.zygote, folder, role=1, **today).code == 0
        new = dataclasses.replace(judge.new, truth=truth(taken(folder)))
    return dataclasses.replace(judge, new=new, masked=True, verdicts={}, job=today)


@pytest.mark.parametrize("name", ["put, several", "delete --cascade", "index build, the first", "fmt"])
def test_the_hooks_meet_every_call_that_the_kernel_sees(
    name: str, campaign: Campaign, strace: None, zygote: Zygote, ground: Ground
) -> None:
    """What is counted as every call is every call: held against a process under strace."""
    if not campaign.full and name != "delete --cascade":
        return
    judge = judge_of(ground, zygote, NAMED[name])
    with zygote.case(judge.files) as folder:
        ended, calls = fault_strace.run(folder, judge.write)
        assert ended.code == 0, ended
        assert real(judge).side(taken(folder)) == "new"
    met = [f"{kind} {_plain(path)}" for kind, path in judge.calls if kind in CHANGES]
    assert [f"{call.kind} {_plain(call.path)}" for call in calls] == met


def _plain(path: str) -> str:
    return _DRAWN.sub(lambda found: next(filter(None, found.groups()[:3]), "/DAY"), path)


@pytest.mark.parametrize(
    "name", ["put, several", "delete --cascade", "rename", "import of edges", "fmt", "dedupe", "index build, a change"]
)
def test_dk_15_a_process_killed_at_a_system_call_ends_all_old_or_all_new(
    name: str, campaign: Campaign, strace: None, zygote: Zygote, ground: Ground
) -> None:
    if not campaign.full and name != "delete --cascade":
        return
    judge = real(judge_of(ground, zygote, NAMED[name]))
    with zygote.case(judge.files) as folder:
        _, calls = fault_strace.run(folder, judge.write)
    rng = campaign.random(f"strace/{name}")
    seal = next(at for at, call in enumerate(calls) if call.path.endswith("/journal"))
    points = {seal, seal + 1, *rng.sample(range(len(calls)), campaign.pick(1, 14))}
    for at in sorted(points):
        for _ in range(_TRIES):
            call = calls[at]
            with zygote.case(judge.files) as folder:
                ended, made = fault_strace.run(folder, judge.write, f"{call.name}:signal=KILL:when={call.number}")
                left = taken(folder)
            judge.verdict(left)
            if ended.code == -9 and len(made) in (at, at + 1):
                break
            with zygote.case(judge.files) as folder:
                _, calls = fault_strace.run(folder, judge.write)
        assert ended.code == -9 and len(made) in (at, at + 1), (call, ended, made[-1:])
        campaign.count("crash points by strace")


@pytest.mark.parametrize("name", ["put, several", "delete --cascade"])
def test_dk_16_a_system_call_that_fails_leaves_all_old_or_says_that_it_is_committed(
    name: str, campaign: Campaign, strace: None, zygote: Zygote, ground: Ground
) -> None:
    if not campaign.full and name != "put, several":
        return
    judge = real(judge_of(ground, zygote, NAMED[name]))
    with zygote.case(judge.files) as folder:
        _, calls = fault_strace.run(folder, judge.write)
    kinds = {
        "write": "ENOSPC",
        "fsync": "EIO",
        "rename": "EXDEV",
        "create": "EACCES",
        "mkdir": "ENOSPC",
        "unlink": "EROFS",
    }
    found = [(call, kinds[call.kind], lasts) for call in calls if call.kind in kinds for lasts in ("", "+")]
    for call, error, lasts in campaign.random(f"errors/{name}").sample(found, campaign.pick(3, 25)):
        with zygote.case(judge.files) as folder:
            fault = f"{call.name}:error={error}:when={call.number}{lasts if call.kind != 'write' else ''}"
            args = ("--json", *judge.write.args)
            ended, _ = fault_strace.run(folder, judge.write, fault, args)
            left = taken(folder)
        committed = ended.code == 1 and ended.error.get("details", {}).get("committed", False)
        assert ended.code in (0, 1), (fault, ended)
        assert "Traceback" not in ended.err, (fault, ended)
        if not committed:
            assert judge.side(left) == ("new" if ended.code == 0 else "old"), (fault, ended)
        assert judge.verdict(left) == ("new" if committed or ended.code == 0 else "old"), (fault, ended)
        campaign.count(f"injected errors by strace: {error}")


LARGE = Write(
    "put, a large one", "full", ("put", "Note", json.dumps(note("a", text="x" * 30_000))), env=tuple(WRITER.items())
)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of that size; skips where none can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(
            "mounting a small disk needs Linux and root; test_dk_16_a_limit_on_files_leaves_all_old_or_all_new stops the same writes by limits"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_dk_16_a_disk_that_fills_up_leaves_all_old_or_all_new(
    campaign: Campaign, zygote: Zygote, ground: Ground, tmp_path: Path
) -> None:
    judge = judge_of(ground, zygote, LARGE)
    sides = []
    for free in campaign.random("disk").sample(range(50), campaign.pick(4, 50)):
        with small_disk(tmp_path / "disk", "1m") as disk:
            folder = disk / "case"
            put_back(folder, judge.files)
            room = os.statvfs(disk)
            filler = max(0, room.f_bavail - free) * room.f_frsize
            (disk / "filler").write_bytes(b"x" * filler)
            ended = zygote.run(folder, ["--json", *LARGE.args], env=WRITER, role=1)
            left = taken(folder)
        (tmp_path / "disk").rmdir()
        assert_told(judge, ended, left)
        sides.append(judge.verdict(left))
        campaign.count("disks that filled up", ended.code == 1)
    assert not campaign.full or {"old", "new"} == set(sides)


def assert_told(judge: Judge, ended: Ended, left: Files) -> None:
    """What was said is so."""
    committed = ended.code == 1 and ended.error.get("details", {}).get("committed", False)
    assert ended.code in (0, 1), ended
    if ended.code == 1:
        assert ended.error["code"] in ("E_IO", "E_UNREADABLE"), ended
        assert ended.error["suggestion"]
    if not committed:
        assert judge.side(left) == ("new" if ended.code == 0 else "old"), ended


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE", "RLIMIT_NOFILE"])
def test_dk_16_a_limit_on_files_leaves_all_old_or_all_new(
    limit: str, campaign: Campaign, zygote: Zygote, ground: Ground
) -> None:
    judge = judge_of(ground, zygote, LARGE)
    steps = range(1_024, 75_000, 1_024) if limit == "RLIMIT_FSIZE" else range(3, 16)
    for most in campaign.random(limit).sample(steps, campaign.pick(4, len(steps))):
        with zygote.case(judge.files) as folder:
            ended = zygote.run(folder, ["--json", *LARGE.args], env=WRITER, role=1, limits={limit: (most, most)})
            left = taken(folder)
        if ended.code == 2:
            assert "config.yaml" in ended.err
            assert judge.side(left) == "old"
        else:
            assert_told(judge, ended, left)
        judge.verdict(left)
        campaign.count(f"writes under {limit}", ended.code != 0)


def test_dk_16_a_signal_for_a_file_that_grows_too_large_is_an_error_like_others(zygote: Zygote, ground: Ground) -> None:
    """In a process of its own, which begins with the signals as they are."""
    resource = pytest.importorskip("resource", reason="no limits here; test_errnos.py has the same calls fail")
    judge = judge_of(ground, zygote, LARGE)
    with zygote.case(judge.files) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "duckkb", "--json", *LARGE.args],
            cwd=folder / "kb",
            env={**os.environ, **WRITER, "XDG_STATE_HOME": str(folder / "state"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )
        assert (done.returncode, json.loads(done.stderr.splitlines()[-1])["code"]) == (1, "E_IO")
        assert truth(taken(folder)) == judge.old.truth


def test_a_receipt_that_cannot_be_printed_is_no_lost_write(zygote: Zygote, ground: Ground) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip(
            "this system has no /dev/full to print to; test_bad_streams.py prints to closed streams, test_signals.py to closed pipes"
        )
    judge = judge_of(ground, zygote, NAMED["put, several"])
    with zygote.case(judge.files) as folder:
        ended = judge.write.run(zygote, folder, stdout="/dev/full", role=1)
        assert ended.code == 1
        assert "No space left" in ended.err
        assert truth(taken(folder)) == judge.new.truth
        assert judge.write.run(zygote, folder).code == 0


BASES = ("with local state", "without local state", "with a stage", "with a sealed write")
READS = (["list", "Note"], ["find", "Note", "alpha"], ["get", "Note", "b"], ["status"], ["check"], ["export", "Note"])
WRITES = (["put", "Note", '{"id":"x"}'], ["delete", "Note", "b"], ["recover"], ["index", "build"], ["fmt"], ["dedupe"])


@pytest.mark.parametrize("kind", BASES)
def test_a_base_that_cannot_be_written_is_read_with_a_notice(kind: str, zygote: Zygote, ground: Ground) -> None:
    """Folders without the right to write, for a process without the power to pass over that."""
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip(
            "root passes over permissions, and only Linux takes that power away; test_errnos.py refuses the same calls"
        )
    judge = judge_of(ground, zygote, NAMED["delete --cascade"])
    with zygote.case(_read_only(judge, kind)) as folder:
        try:
            _assert_read_only(zygote, folder, sealed=kind == BASES[3])
        finally:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755)


@pytest.mark.parametrize("kind", BASES)
def test_a_base_on_a_read_only_disk_is_read_with_a_notice(
    kind: str, zygote: Zygote, ground: Ground, tmp_path: Path
) -> None:
    judge = judge_of(ground, zygote, NAMED["delete --cascade"])
    with small_disk(tmp_path / "disk", "4m") as disk:
        put_back(disk / "case", _read_only(judge, kind))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        _assert_read_only(zygote, disk / "case", sealed=kind == BASES[3])


def _read_only(judge: Judge, kind: str) -> Files:
    """The base, with nothing in it that may be written."""
    files = dict(judge.files)
    changing = [call for call in judge.calls if call[0] in CHANGES]
    seal = next(at for at, (_, path) in enumerate(changing) if path.endswith("/journal"))
    if kind in BASES[2:]:
        with judge.zygote.case(files) as folder:
            judge.write.run(judge.zygote, folder, plan={"at": seal + 4 * (kind == BASES[3]), "action": "die"}, role=1)
            files = taken(folder)
    if kind == BASES[1]:
        files = {path: kept for path, kept in files.items() if not path.startswith("kb/.duckkb")}
    return {path: (mode & ~0o222, data) for path, (mode, data) in files.items()}


def _assert_read_only(zygote: Zygote, folder: Path, *, sealed: bool) -> None:
    before = taken(folder)
    for args in READS:
        ended = zygote.run(folder, ["--json", *args], confined=True)
        if sealed:
            assert (ended.code, ended.error["code"], ended.out) == (1, "E_READ_ONLY", ""), (args, ended)
        else:
            assert (ended.code, bool(ended.out)) == (0, True), (args, ended)
            assert args[0] == "check" or "W_READ_ONLY" in ended.err, (args, ended)
    for args in WRITES:
        ended = zygote.run(folder, ["--json", *args], confined=True)
        assert (ended.code, ended.error["code"]) == (1, "E_READ_ONLY"), (args, ended)
    assert taken(folder) == before
