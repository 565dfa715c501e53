"""The pool of worker processes: it answers what one process answers, and no death of a process, its own either, costs more than
the requests that this process had."""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import failure
from duckkb.operations.lifecycle import OpenOptions
from duckkb.server import worker_channel, worker_pool
from duckkb.server.dispatcher import Served
from duckkb.server.worker_pool import Pool
from duckkb.storage import base_lock, clone_state
from duckkb.types.errors import DuckkbError, Unavailable
from duckkb.types.request_context import Caller
from tests.conftest import ROOT, commit, make_base
from tests.doors.test_actions import ASKED, FORBIDDEN, REFUSED, WRITES
from tests.doors.test_actions import base as actions_base
from tests.fakes import FrozenClock
from tests.harness.waiting import HANG_S, wait_until

_PAIRS = "SELECT count(*) AS n FROM note a, note b, note c, note d WHERE a.n + b.n + c.n + d.n = 1"
_LONG = _PAIRS.replace(" WHERE", ", note e, note f, note g, note h WHERE")
_PLAIN = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema: {type: object, properties: {id: {type: string}, n: {type: integer}}, required: [id]}
"""
_EVERYBODY = Caller()
Given = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = make_base(tmp_path / "kb", _PLAIN)
    (made / "data/nodes/note").mkdir(parents=True)
    served = Served(made, OpenOptions())
    served.run("put", {"type": "Note", "records": [{"id": f"n{at}", "n": at} for at in range(50)]}, _EVERYBODY)
    served.close()
    commit(made)
    return made


@contextmanager
def pool_of(root: Path, readers: int = 2, chosen: OpenOptions | None = None) -> Iterator[Pool]:
    pool = Pool(root, chosen or OpenOptions(), readers)
    with closing(pool):
        pool.run("types", {}, _EVERYBODY)
        wait_until(lambda: pool.measures()["readers"]["alive"] == readers)
        yield pool


def is_there(pid: int) -> bool:
    """Whether a process is at work: one that ended and was not waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def again(ask: Callable[[], dict[str, Any]], times: int) -> dict[str, Any]:
    """As a client asks that knows what may be asked again: once for each worker that may be ending."""
    for _ in range(times):
        try:
            return ask()
        except Unavailable as problem:
            assert problem.code == "E_WORKER" and problem.details["retryable"]
    return ask()


def said(ask: Callable[[], dict[str, Any]]) -> str:
    """An answer, or everything about the error, as one text."""
    try:
        answer = ask()
    except DuckkbError as problem:
        seen = (type(problem), problem.code, problem.message, problem.suggestion, problem.findings, problem.exit_code)
        return f"{seen} {json.dumps(failure(problem))}"
    if "store" in answer:
        del answer["store"]  # another place, and it grows by what is asked
    return json.dumps(answer)


class TestAnswers:
    """Byte by byte those of one process."""

    @pytest.fixture(scope="class")
    @staticmethod
    def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Pool]]:
        """Two bases at places of one length, alike but for that, with equal clocks."""
        chosen = OpenOptions(clock=FrozenClock())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(ROOT))  # where workers find the clock
            patch.setenv("DUCKKB_WRITER", "test")
            for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
                patch.setenv(name, "2026-01-15T08:00:00Z")
            one = actions_base(tmp_path_factory.mktemp("one") / "kb")
            other = tmp_path_factory.mktemp("two") / "kb"
            shutil.copytree(one, other)
            with closing(Served(one, chosen)) as served, pool_of(other, chosen=chosen) as pool:
                for ask in WRITES:
                    assert said(lambda ask=ask: served.run(ask.action, ask.given, _EVERYBODY)) == said(
                        lambda ask=ask: pool.run(ask.action, ask.given, _EVERYBODY)
                    ), ask
                for root in (one, other):
                    commit(root)
                yield served, pool

    def alike(self, both: tuple[Served, Pool], name: str, given: Any, caller: Caller = _EVERYBODY) -> str:
        one, other = (said(lambda base=base: base.run(name, given, caller)) for base in both)
        places = [str(base._open_base().root) if isinstance(base, Served) else str(base._path) for base in both]
        assert one.replace(places[0], "") == other.replace(places[1], "")
        return one

    @pytest.mark.long
    def test_over_all_actions(self, both: tuple[Served, Pool]) -> None:
        for ask in ASKED:
            for caller in (Caller("t", "viewer"), Caller("t", "editor", frozenset({"Note", "cites"}))):
                self.alike(both, ask.action, ask.given, caller)
        assert {ask.action for ask in (*ASKED, *WRITES)} == set(ACTIONS)
        assert both[0].name == both[1].name == "kb"

    def test_over_errors(self, both: tuple[Served, Pool]) -> None:
        for name in ACTIONS:
            told = self.alike(both, name, {"no such": 1})
            assert "E_ARGUMENT" in told
            self.alike(both, name, {"type": "Nota", "identity": "x", "query": "x", "records": [], "identities": ["x"]})
        for name, given, _ in REFUSED.values():
            assert "E_ARGUMENT" in self.alike(both, name, given)
        for role, name, given in FORBIDDEN:
            assert "E_FORBIDDEN" in self.alike(both, name, given, Caller("t", role))
        deep: Any = []
        for _ in range(5_000):
            deep = [deep]
        for name, given, code in (
            ("put", {"type": "Note", "records": [{"id": 1}, {"no": 1}]}, "E_INVALID"),
            ("put", {"type": "Note", "records": {"id": "n1", "_etag": "another"}}, "E_STALE"),
            ("put", {"type": "Note", "records": [{"id": "a", "tags": deep}]}, "E_ARGUMENT"),
            ("put", {"type": "cites", "records": {"from": "n1", "to": "nobody"}}, "E_"),
            ("delete", {"type": "Note", "identities": ["nobody"]}, "E_NOT_FOUND"),
            ("find", {"type": "Note", "where": "siez > 1"}, "E_FILTER"),
            ("sql", {"statement": "select secret from note"}, "E_SQL"),
            ("nothing", {}, "E_ARGUMENT"),
        ):
            assert code in self.alike(both, name, given)

    def test_of_the_past(self, both: tuple[Served, Pool]) -> None:
        def past(base: Served | Pool, at: str, caller: Caller) -> str:
            def ask() -> dict[str, Any]:
                with base.open_revision(at, caller) as kb:
                    return kb.run("get", {"type": "Note", "identity": "n1"}, caller)

            return said(ask)

        for at, caller, wanted in (
            ("HEAD", _EVERYBODY, '"n1"'),
            ("HEAD~1", _EVERYBODY, "E_NOT_FOUND"),
            ("HEAD", Caller("t", "viewer", frozenset({"Note"})), "E_FORBIDDEN"),
            ("nowhere", _EVERYBODY, "E_REVISION"),
        ):
            told = past(both[0], at, caller)
            assert wanted in told and told.replace("one", "two") == past(both[1], at, caller).replace("one", "two"), at


def test_a_read_after_a_receipt_sees_the_write(root: Path) -> None:
    with pool_of(root) as pool, ThreadPoolExecutor(4) as threads:
        for number in range(40):
            pool.run("put", {"type": "Note", "records": {"id": "n1", "n": number}}, _EVERYBODY)
            asked = [threads.submit(pool.run, "get", {"type": "Note", "identity": "n1"}, _EVERYBODY) for _ in range(4)]
            assert [one.result()["n"] for one in asked] == [number] * 4
        assert set(map(len, pool.pids().values())) == {1, 2}


@pytest.mark.long
def test_a_worker_that_is_killed_costs_its_request_and_is_replaced(root: Path) -> None:
    with pool_of(root) as pool, ThreadPoolExecutor(2) as threads:
        long = threads.submit(pool.run, "sql", {"statement": _LONG, "timeout": 3600}, _EVERYBODY)
        wait_until(lambda: pool.measures()["readers"]["busy"] == 1)
        idle_or_not = pool.pids()["readers"]
        answers = [pool.run("get", {"type": "Note", "identity": "n1"}, _EVERYBODY) for _ in range(5)]
        assert answers == answers[:1] * 5, "one is busy, the other answers"
        for pid in idle_or_not:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable) as caught:
            long.result(HANG_S)
        assert caught.value.code == "E_WORKER" and caught.value.details == {"retryable": True}
        assert again(lambda: pool.run("get", {"type": "Note", "identity": "n1"}, _EVERYBODY), 2) == answers[0]
        wait_until(lambda: pool.measures()["readers"]["alive"] == 2)
        assert not set(pool.pids()["readers"]) & set(idle_or_not)
        assert pool.measures()["readers"] == {"workers": 2, "alive": 2, "busy": 0, "waiting": 0, "restarts": 2}


def _waits_for_lock(pid: int, root: Path) -> bool:
    lock = str(clone_state.folder_of(root).resolve() / clone_state.LOCK)
    return lock in {os.path.realpath(file) for file in Path(f"/proc/{pid}/fd").iterdir()}


def test_a_writer_that_is_killed_says_what_is_not_known_and_stops_no_reader(root: Path) -> None:
    put: Given = {"type": "Note", "records": {"id": "n1", "n": 1000}}
    with pool_of(root) as pool, ThreadPoolExecutor(1) as threads:
        pool.run("put", put | {"dry_run": True}, _EVERYBODY)
        (writer,) = pool.pids()["writer"]
        with base_lock.exclusive(root, 1.0):
            assert not _waits_for_lock(writer, root)
            writing = threads.submit(pool.run, "put", put, _EVERYBODY)
            wait_until(lambda: _waits_for_lock(writer, root))  # busy alone may be one that has not been sent yet
            assert pool.run("get", {"type": "Note", "identity": "n1"}, _EVERYBODY)["n"] == 1
            os.kill(writer, signal.SIGKILL)
            with pytest.raises(Unavailable, match="may have been carried out") as caught:
                writing.result(HANG_S)
            assert caught.value.code == "E_WORKER"
        assert pool.run("put", put, _EVERYBODY)["updated"] == 1
        assert pool.run("get", {"type": "Note", "identity": "n1"}, _EVERYBODY)["n"] == 1000


@pytest.mark.long
def test_where_no_worker_comes_up_it_is_said_until_one_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sys.executable
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with closing(Pool(root, OpenOptions(), 2)) as pool, ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(pool.run, "types", {}, _EVERYBODY) for _ in range(3)]
        for one in asked:
            with pytest.raises(Unavailable, match=r"no worker process starts.*exit code 1") as caught:
                one.result(HANG_S)
            assert caught.value.code == "E_UNAVAILABLE"
        before = pool.measures()["readers"]["restarts"]
        time.sleep(1)
        assert pool.measures()["readers"]["restarts"] - before <= 6, "no loop"
        with pytest.raises(Unavailable):
            pool.run("types", {}, _EVERYBODY)
        monkeypatch.setattr(sys, "executable", real)
        wait_until(lambda: pool.measures()["readers"]["alive"] > 0)
        assert pool.run("types", {}, _EVERYBODY)["types"]


@pytest.mark.long
def test_a_worker_that_hangs_is_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_channel, "SILENT_S", 3.0)
    with pool_of(root, readers=1) as pool, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(pool.run, "sql", {"statement": _LONG, "timeout": 3600}, _EVERYBODY)
        wait_until(
            lambda: pool.measures()["readers"]["busy"] == 1
        )  # one that is idle may be replaced before it is asked
        (pid,) = pool.pids()["readers"]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Unavailable) as caught:
            asked.result(HANG_S)
        assert caught.value.code == "E_WORKER"
        assert pool.run("types", {}, _EVERYBODY)["types"] and pid not in pool.pids()["readers"]


_SLOW = """
import sys, time
from duckkb.server import pool_worker as worker
from duckkb.server.dispatcher import Served
Served.name = property(lambda self: time.sleep(5) or "kb")
worker.main(sys.argv[1:])
"""


@pytest.mark.long
def test_a_worker_that_hangs_before_it_is_ready_is_replaced_and_one_that_opens_for_long_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_channel, "SILENT_S", 3.0)
    monkeypatch.setattr(worker_channel, "PROGRAM", ("-c", "import time; time.sleep(600)"))
    with closing(Pool(root, OpenOptions(), 1)) as pool, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(pool.run, "types", {}, _EVERYBODY)
        wait_until(lambda: pool.measures()["readers"]["restarts"] > 0)
        monkeypatch.setattr(worker_channel, "PROGRAM", ("-c", _SLOW))
        assert asked.result(HANG_S)["types"]


_FRONT = """
import socket, sys, threading, time
from tests.harness.waiting import wait_until
from duckkb.operations.lifecycle import OpenOptions
from duckkb.types.request_context import Caller
from duckkb.server.worker_pool import Pool
listening = socket.create_server(("127.0.0.1", 0))
listening.set_inheritable(True)
pool = Pool(sys.argv[1], OpenOptions(), 2)
pool.run("put", {"type": "Note", "records": {"id": "x"}}, Caller())
long = {"statement": sys.argv[2], "timeout": 3600}
threading.Thread(target=pool.run, args=("sql", long, Caller()), daemon=True).start()
while [one["alive"] for one in pool.measures().values()] != [2, 1] or pool.measures()["readers"]["busy"] != 1:
    time.sleep(0.01)
print(listening.getsockname()[1], *(pid for pids in pool.pids().values() for pid in pids), flush=True)
time.sleep(3600)
"""


def _sockets(pid: int) -> set[str]:
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        if int(descriptor.name) <= 2:
            continue  # stderr is the server's, whatever that is
        with suppress(FileNotFoundError):  # it was closed since the folder was listed
            found.add(str(descriptor.readlink()))
    return {one for one in found if one.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")
@pytest.mark.long
def test_workers_have_nothing_of_a_server_and_end_with_it_however_it_ends(root: Path) -> None:
    front = subprocess.Popen([sys.executable, "-c", _FRONT, str(root), _LONG], stdout=subprocess.PIPE, text=True)
    try:
        assert front.stdout is not None
        port, *pids = map(int, front.stdout.readline().split())
        assert len(pids) == 3
        # Not counted: a worker that starts the process of a statement has a pair of its own with it.
        held = [_sockets(pid) for pid in (front.pid, *pids)]
        assert all(len(one) > worker_channel.CHANNELS for one in held), held
        assert not any(one & other for one, other in itertools.combinations(held, 2)), held
    finally:
        front.kill()
        front.wait()
    wait_until(lambda: not any(map(is_there, pids)))
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody holds it


@pytest.mark.long
def test_closing_lets_what_is_under_way_end_and_takes_nothing_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_channel, "CHANNELS", 2)
    for module in (worker_channel, worker_pool):  # on a busy machine statements take longer
        monkeypatch.setattr(module, "LAST_ANSWERS_S", HANG_S)
    with pool_of(root, readers=1) as pool, ThreadPoolExecutor(4) as threads:
        pids = pool.pids()["readers"]
        asked = range(worker_channel.CHANNELS)
        under_way = [threads.submit(pool.run, "sql", {"statement": _PAIRS}, _EVERYBODY) for _ in asked]
        wait_until(lambda: pool.measures()["readers"]["busy"] == len(under_way))
        waiting = threads.submit(pool.run, "types", {}, _EVERYBODY)
        wait_until(lambda: pool.measures()["readers"]["waiting"] == 1)
        ended = threading.Thread(target=pool.close)
        ended.start()
        assert all(one.result(HANG_S)["rows"] == [{"n": 4}] for one in under_way)
        for ask in (waiting.result, lambda: pool.run("types", {}, _EVERYBODY)):
            with pytest.raises(Unavailable, match="the server is ending"):
                ask()
        for name in ("put", "find"):
            with pytest.raises(Unavailable, match="the server is ending"):
                pool.run(name, {}, _EVERYBODY)
        ended.join(HANG_S)
        assert not any(map(is_there, pids))


@pytest.mark.long
def test_a_signal_to_all_processes_of_a_service_is_the_servers_to_act_on(root: Path) -> None:
    with pool_of(root, readers=1) as pool:
        (pid,) = pool.pids()["readers"]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        assert pool.run("types", {}, _EVERYBODY) and pool.pids()["readers"] == [pid]
