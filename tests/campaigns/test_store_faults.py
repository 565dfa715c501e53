"""Faults that the kernel makes in the SQLite files of the store and of the search cache, which no hook in Python meets: they
cost no answer, no record and no later command. Beside them: locks that a disk refuses, a cache folder of another user, and
one that vanishes between two calls.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.store.cache_dirs import Place
from tests.conftest import NOTES, make_base, run_in
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.faults import strace
from tests.harness.faults.bases import Write
from tests.harness.faults.run import Ended

FIND = ("find", "Note", "记录", "-l", "100", "--fields", "id,text")
PUT = ("put", "Note", json.dumps({"id": "put", "text": "新的记录"}))
COUNT = 30
FOLDERS = ("cache/bases", "cache/shared")


@dataclass
class Machine:
    """A base in `kb` and the user's folder `cache` beside it, both in one folder that strace watches."""

    folder: Path
    turns: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "kb"

    @property
    def env(self) -> dict[str, str]:
        return {"DUCKKB_CACHE_HOME": str(self.folder / "cache"), "DUCKKB_WRITER": "campaign"}

    @property
    def files(self) -> list[Path]:
        """What SQLite has open, and its logs."""
        place = Place.locate(self.folder / "cache", self.root)
        bases = (place.own / "store-3.sqlite", place.shared / "search_cache.sqlite")
        return [path.with_name(path.name + end) for path in bases for end in ("", "-wal", "-shm", "-journal")]

    def fill(self) -> None:
        make_base(self.root, NOTES + "snapshot: {min_bytes: 0}\n")
        lines = "".join(json.dumps({"id": f"n{at}", "text": f"第{at}条记录"}) + "\n" for at in range(COUNT))
        assert run_in(self.root, ["import", "Note", "-"], stdin=lines, env=self.env).code == 0

    def begin(self, stale: str) -> None:
        """The store `behind` the files, of which one was changed by hand, or `none`; the record that is put is not there."""
        self.turns += 1
        if stale == "none":
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        else:
            self.judge("before")
        (part,) = (path for path in self.root.glob("data/**/*.jsonl") if b'"n7"' in path.read_bytes())
        lines = [json.loads(line) for line in part.read_text("utf-8").splitlines()]
        changed = [
            {**line, "text": f"{self.turns}改的记录"} if line["id"] == "n7" else line
            for line in lines
            if line["id"] != "put"
        ]
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in changed)
        part.write_text(text, "utf-8")

    def run(self, args: tuple[str, ...], fault: str = "", only: bool = True) -> tuple[Ended, list[strace.Call]]:
        write = Write("store", "", args, env=tuple(self.env.items()))
        return strace.run(self.folder, write, fault, only=self.files if only else ())

    def right(self) -> dict[str, str]:
        """What a find must give: the texts of all records by their ids."""
        return {
            str(record["id"]): str(record["text"]) for record in oracle.records(self.root).values() if "text" in record
        }

    def judge(self, told: object) -> None:
        """The next questions are answered by what stands in the files, and then nothing is damaged."""
        for _ in range(2):
            ran = run_in(self.root, FIND, env=self.env)
            assert ran.code == 0 and texts(ran.out) == self.right(), (told, ran)
        ran = run_in(self.root, ["repair", "--check-only"], env=self.env)
        assert ran.line["needs"] == [], (told, ran)


def texts(out: str) -> dict[str, str]:
    return {line["id"]: line["text"] for line in map(json.loads, out.splitlines())}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    reason = strace.missing()
    if reason:
        pytest.skip(f"{reason}; test_snapshot_faults.py puts faults into the calls that Python makes by hooks")
    made = Machine(tmp_path_factory.mktemp("store"))
    made.fill()
    yield made


CASES = [(args, stale) for args in (FIND, PUT) for stale in ("behind", "none")]
every_case = pytest.mark.parametrize(("args", "stale"), CASES, ids=[f"{args[0]}-{stale}" for args, stale in CASES])


def calls_of(machine: Machine, args: tuple[str, ...], stale: str) -> list[strace.Call]:
    for only in (False, True):  # the first run sees that no other process comes near these files
        machine.begin(stale)
        ended, calls = machine.run(args, only=only)
        assert ended.code == 0, ended
    assert any("store-3" in call.path for call in calls) and any("search_cache" in call.path for call in calls)
    return calls


def is_left_out(campaign: Campaign, args: tuple[str, ...], stale: str) -> bool:
    return not campaign.full and (args, stale) != (PUT, "behind")


@every_case
def test_a_process_killed_at_a_call_on_the_store_costs_no_answer(
    args: tuple[str, ...], stale: str, campaign: Campaign, machine: Machine
) -> None:
    if is_left_out(campaign, args, stale):
        return
    found = [call for call in calls_of(machine, args, stale) if call.kind != "lock"]
    rng = campaign.random(f"store kills/{args[0]}/{stale}")
    for call in rng.sample(found, min(len(found), campaign.pick(2, 25))):
        machine.begin(stale)
        before = machine.right()
        ended, _ = machine.run(args, f"{call.name}:signal=KILL:when={call.number}")
        assert machine.right() in (before, before | {"put": "新的记录"}), call
        assert ended.code == -9 or "put" in machine.right() or args is FIND, (call, ended)
        machine.judge((args[0], stale, call))
        campaign.count("kills at calls on the store's files", ended.code == -9)


ERRORS = {
    "write": ("EIO", "ENOSPC"), "truncate": ("EIO", "ENOSPC"), "fsync": ("EIO",), "read": ("EIO",),
    "create": ("EACCES", "ENOSPC", "EMFILE"), "unlink": ("EROFS", "EACCES"), "lock": ("EINVAL",), "chmod": ("EPERM",),
}  # fmt: skip


@every_case
def test_an_error_at_any_call_on_the_store_costs_no_answer(
    args: tuple[str, ...], stale: str, campaign: Campaign, machine: Machine
) -> None:
    if is_left_out(campaign, args, stale):
        return
    calls = calls_of(machine, args, stale)
    found = [(call, error, lasts) for call in calls for error in ERRORS.get(call.kind, ()) for lasts in ("", "+")]
    rng = campaign.random(f"store errors/{args[0]}/{stale}")
    for call, error, lasts in rng.sample(found, min(len(found), campaign.pick(3, 40))):
        machine.begin(stale)
        before = machine.right()
        ended, _ = machine.run(args, f"{call.name}:error={error}:when={call.number}{lasts}")
        told = (args[0], stale, call, error, lasts, ended)
        assert ended.code == 0 and "Traceback" not in ended.err, told
        if args is FIND:
            assert texts(ended.out) == before == machine.right(), told
        else:
            assert machine.right() == before | {"put": "新的记录"}, told
        machine.judge(told)
        campaign.count(f"errors at calls on the store's files: {error}")


def test_a_disk_that_refuses_locks_costs_no_answer(campaign: Campaign, machine: Machine) -> None:
    """As network disks do whose servers have none."""
    for error in ("ENOLCK", "EINVAL") if campaign.full else ("EINVAL",):
        for args in (FIND, PUT):
            machine.begin("behind")
            ended, _ = machine.run(args, f"fcntl:error={error}")
            assert ended.code == 0, (error, ended)
            if args is FIND:
                assert texts(ended.out) == machine.right(), (error, ended)
            else:
                assert machine.right()["put"] == "新的记录"
            machine.judge(error)
            campaign.count("commands on a disk that refuses locks")


@pytest.mark.parametrize("whose", ["cache/bases", "cache/shared", "cache/bases/*"])
def test_what_another_user_keeps_is_neither_read_nor_touched(whose: str, machine: Machine) -> None:
    """By root, whom no permission keeps from it."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip(
            "only root can give a folder away; test_cleanup.py and test_store_place.py have the process be another user"
        )
    machine.judge("before")
    (folder,) = machine.folder.glob(whose)
    os.chown(folder, 54321, 54321)
    try:
        before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}
        for args in (FIND, PUT):
            ran = run_in(machine.root, args, env=machine.env)
            assert ran.code == 0 and "nothing is kept" in ran.err, ran
        assert texts(run_in(machine.root, FIND, env=machine.env).out) == machine.right()
        assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in before}
    finally:
        os.chown(folder, 0, 0)
    machine.judge("after")


def test_a_cache_folder_that_vanishes_between_two_calls_costs_no_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)

    def answered(kb: Any) -> dict[str, str]:
        return {hit.identity: hit.record["text"] for hit in kb.find("Note", "记录", limit=100)}

    with duckkb.open(machine.root) as kb:
        for step in range(3):
            assert answered(kb) == machine.right()
            shutil.rmtree(machine.folder / "cache")
            if step:
                kb.put("Note", {"id": f"later {step}", "text": f"后来{step}的记录"})
            if step == 2:
                shutil.rmtree(machine.folder / "cache", ignore_errors=True)
                (machine.folder / "cache").write_text("a file in its place", "utf-8")
            assert answered(kb) == machine.right()
    (machine.folder / "cache").unlink()
    machine.judge("after")
