"""A server under mixed traffic, kills and pulls: each answer is one that a fresh process would have given at some state between
request and answer, and memory stays level.

The oracle is cheap. Three records of a set always get the same number in one write, so an answer with two numbers is mixed of two
states; numbers only rise, so the last one that was told before a request, and the last that was begun before its answer, are the
bounds of what may be seen. Of two identities exactly one exists at any state. Between the storms whole answers are compared with
those of cold processes.
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from tests.conftest import commit, git, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.waiting import HANG_S

_SETS, _OF_A_SET, _CLIENTS, _WRITERS, _OTHERS = 4, 3, 4, 2, 60
_KEPT_S = 2.0  # a server closes connections that are idle
_MEMORY_GROWTH, _MEMORY_SLACK, _LONG_S = 1.1, 48 << 20, 600
"""The slack is for seconds in which what is needed from then on is still being taken."""
_TYPE = """\
  {name}:
    table: {table}
    identity: id
    schema:
      type: object
      properties: {{id: {{type: string}}, of: {{type: string}}, text: {{type: string}}, version: {{type: integer}}}}
      required: [id]
    search: {{full_text: [text]}}
"""
CONFIG = "global: {embedding_model: none}\nnodes:\n" + "".join(
    _TYPE.format(name=name, table=name.lower()) for name in ("Note", "Task")
)
_PULLED = "pulled"
_SLOW = "SELECT count(*) FROM note a, note b, note c"
_DURING_PULLS = frozenset({"E_UNREADABLE", "E_UNAVAILABLE"})
"""What may be said while git writes files: they are not whole then."""
_AFTER_KILLS = frozenset({"E_WORKER", "E_UNAVAILABLE"})


def members(name: str, version: int) -> list[dict[str, Any]]:
    """The records of a set."""
    return [
        {"id": f"{name}-{letter}", "of": name, "text": f"{name} swims {letter * 3}", "version": version}
        for letter in "abc"
    ]


@dataclass
class Seen:
    """What happened when, for judging answers: numbers told and begun by set, and when kills and pulls were."""

    told: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    kills: list[float] = field(default_factory=list)
    pulls: list[list[float]] = field(default_factory=list)
    answered: dict[str, float] = field(default_factory=dict)
    """When the last read, and the last write, began that was answered: other processes do each."""
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def has_recovered(self) -> bool:
        """Whether a read and a write that began after the last kill were answered."""
        return not self.kills or min(self.answered.get(role, 0.0) for role in ("read", "write")) > self.kills[-1]

    def note_answer(self, role: str, since: float) -> None:
        self.answered[role] = max(self.answered.get(role, 0.0), since)

    def killed(self, since: float) -> bool:
        """Whether something was killed shortly before that or later, or what was killed is not replaced yet."""
        return not self.has_recovered or any(at > since - 3 for at in self.kills[-20:])

    def pulled(self, since: float) -> bool:
        return any(end > since for _, end in self.pulls[-3:])


class Server:
    """`duckkb serve` of a base with two workers, at one port, killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root, self.port, self.restarts = root, 0, -1
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "duckkb", "--kb", str(self.root), "serve", "--workers", "2", "--log", "off"]
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.port = urlsplit(told["url"]).port or 0
        self.token = Path(told["token"]).read_text("ascii").strip()
        self.restarts += 1

    def workers(self) -> list[int]:
        """Processes of the pool."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text("ascii", "replace").rsplit(")", 1)[1].split()[1])
                command = (path.parent / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and b"duckkb.server.pool_worker" in command:
                found.append(int(path.parent.name))
        return found

    def memory(self) -> int:
        """Bytes of all its processes; pages that several have count once."""
        total = 0
        for pid in (self.process.pid, *self.workers()):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        return total

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(HANG_S) == 0


class Client:
    """One connection, made again where it breaks."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def ask(self, name: str, given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The answer, or the code of the error; neither where the connection broke."""
        try:
            if self._connection is None or time.monotonic() - self._used > _KEPT_S:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=HANG_S)
            head = {"authorization": f"Bearer {self._server.token}"}
            self._connection.request("POST", f"/actions/{name}", json.dumps(given), head)
            body: dict[str, Any] = json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection = None
            time.sleep(0.02)
            return None, ""
        self._used = time.monotonic()
        return (None, body["error"]["code"]) if "error" in body else (body, "")


class Traffic:
    """Readers and writers of one server, each in a thread, until they are stopped; `held` pauses the writers."""

    def __init__(self, server: Server, seen: Seen, rng: random.Random) -> None:
        self.server, self.seen, self._rng = server, seen, rng
        self.stop, self._writing = threading.Event(), threading.Lock()
        roles: list[tuple[Callable[[Client, random.Random], None], int]] = [
            (self._read, _CLIENTS),
            (self._write, _WRITERS),
            (self._flip, 1),
        ]
        self._locks = {f"set{at}": threading.Lock() for at in range(_SETS)}
        self._pauses = [threading.Lock() for _ in range(_WRITERS + 1)]
        pauses = iter(self._pauses)
        self.threads = [
            threading.Thread(
                target=self._loop, args=(role, Client(server), None if role == self._read else next(pauses), number)
            )
            for role, count in roles
            for number in range(count)
        ]

    def _loop(self, role: Callable[[Client, random.Random], None], client: Client, pause: Any, number: int) -> None:
        rng = random.Random(f"{self._rng.random()}/{number}")
        try:
            while not self.stop.is_set():
                if pause is None:
                    role(client, rng)
                else:
                    with pause:
                        role(client, rng)
                    time.sleep(rng.uniform(0.05, 0.2))
        except BaseException as problem:
            self.seen.wrong.append(f"{role.__name__}: {problem!r}")
            raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """No write is under way."""
        for one in self._pauses:
            one.acquire()
        try:
            yield
        finally:
            for one in self._pauses:
                one.release()

    def _write(self, client: Client, rng: random.Random) -> None:
        name = f"set{rng.randrange(_SETS)}"
        with self._locks[name]:
            self.seen.begun[name] += 1
            version = self.seen.begun[name]
            self._put(
                client, "put", {"type": "Note", "records": members(name, version)}, lambda: self._tell(name, version)
            )

    def _tell(self, name: str, version: int) -> None:
        self.seen.told[name] = version

    def _flip(self, client: Client, rng: random.Random) -> None:
        for old, new in (("heads", "tails"), ("tails", "heads")):
            self._put(client, "rename", {"type": "Note", "old": old, "new": new}, lambda: None)

    def _put(self, client: Client, name: str, given: Mapping[str, Any], tell: Callable[[], None]) -> None:
        """Once: a write of which nobody knows what became may have been carried out or not."""
        since = time.monotonic()
        answer, code = client.ask(name, given)
        self.seen.counts[f"{name} {'answered' if answer else code or 'cut off'}"] += 1
        if answer is not None:
            self.seen.note_answer("write", since)
            tell()
        elif name == "rename" and code in ("E_NOT_FOUND", "E_EXISTS"):
            pass  # the former one had been carried out, or had not
        else:
            self._excused(f"{name}", code, since)

    def _excused(self, what: str, code: str, since: float) -> None:
        killed, pulled = self.seen.killed(since), self.seen.pulled(since)
        if not (killed and (not code or code in _AFTER_KILLS)) and not (pulled and code in _DURING_PULLS):
            self.seen.wrong.append(f"{what}: {code or 'the connection broke'}, and nothing was killed")

    def _read(self, client: Client, rng: random.Random) -> None:
        name = rng.choice([*self._locks, _PULLED])
        kind = "Task" if name == _PULLED else "Note"
        asked: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], list[Any]]]] = [
            ("find", {"type": kind, "query": name, "mode": "match", "limit": 5}, _versions("results")),
            ("find", {"type": kind, "where": f"of = '{name}'", "mode": "where"}, _versions("results")),
            ("get", {"type": kind, "identity": f"{name}-b"}, lambda one: [one["version"]] * _OF_A_SET),
            ("find", {"type": "Note", "where": "id IN ('heads', 'tails')", "mode": "where"}, _one_side),
        ]
        if rng.random() < 0.02:
            statement = f"SELECT version FROM {kind.lower()} WHERE of = '{name}'"
            asked = [("sql", {"statement": statement}, _versions("rows"))]
        action, given, versions = rng.choice(asked)
        since, least = time.monotonic(), self.seen.told[name]
        answer, code = client.ask(action, given)
        self.seen.counts[f"{action} {'answered' if answer else code or 'cut off'}"] += 1
        if answer is None:
            # git takes a file away before it writes the new one, and a reader may look in between
            if not (kind == "Task" and code == "E_NOT_FOUND" and self.seen.pulled(since)):
                self._excused(f"{action} {given}", code, since)
            return
        self.seen.note_answer("read", since)
        found, most = versions(answer), self.seen.begun[name]
        if versions is _one_side:
            right = found == [1]
        else:
            right = len(found) == _OF_A_SET and len(set(found)) == 1 and least <= found[0] <= most
        if not right and not (kind == "Task" and self.seen.pulled(since)):
            self.seen.wrong.append(f"{action} {given}: {found}, where {least} had been told and {most} begun")


def _versions(key: str) -> Callable[[dict[str, Any]], list[Any]]:
    return lambda answer: [one["version"] for one in answer[key]]


def _one_side(answer: dict[str, Any]) -> list[Any]:
    return [len(answer["results"])]


@dataclass(frozen=True)
class Elsewhere:
    """A clone of the base whose commits are pulled."""

    root: Path
    served: Path
    seen: Seen

    def bring(self) -> None:
        """Commit a new number there, and pull it here."""
        version = self.seen.begun[_PULLED] + 1
        with duckkb.open(self.root) as kb:
            kb.put("Task", members(_PULLED, version))
        commit(self.root, f"version {version}")
        git(self.root, "push", "-q", "origin", "HEAD:main")
        self.seen.begun[_PULLED] = version
        window = [time.monotonic(), float("inf")]
        self.seen.pulls.append(window)
        git(self.served, "pull", "-q", "--ff-only")
        window[1] = time.monotonic() + 0.1
        self.seen.told[_PULLED] = version


def world(folder: Path, seen: Seen) -> Elsewhere:
    """A base, its origin, and another clone."""
    root = make_base(folder / "kb", CONFIG)
    with duckkb.open(root) as kb:
        for at in range(_SETS):
            kb.put("Note", members(f"set{at}", 0))
        kb.put("Note", [{"id": "heads", "text": "a coin"}])
        kb.put("Note", [{"id": f"other{at}", "text": f"words of no set {at}"} for at in range(_OTHERS)])
        kb.put("Task", members(_PULLED, 0))
    commit(root)
    for name in (_PULLED, *(f"set{at}" for at in range(_SETS))):
        seen.told[name] = seen.begun[name] = 0
    git(folder, "clone", "-q", "--bare", str(root), str(folder / "origin.git"))
    git(root, "remote", "add", "origin", str(folder / "origin.git"))
    git(root, "fetch", "-q")
    git(root, "branch", "-q", "--set-upstream-to=origin/main", "main")
    git(folder, "clone", "-q", str(folder / "origin.git"), str(folder / "other"))
    return Elsewhere(folder / "other", root, seen)


def warmed(server: Server) -> None:
    """Each worker has started its process for statements, which takes memory."""
    asked = [threading.Thread(target=Client(server).ask, args=("sql", {"statement": _SLOW})) for _ in range(8)]
    for one in asked:
        one.start()
    for one in asked:
        one.join()


def compared(server: Server, root: Path) -> None:
    """Whole answers are those of cold processes."""
    client = Client(server)
    for action, given, typed in (
        (
            "find",
            {"type": "Note", "query": "swims", "mode": "match", "limit": 20},
            ["find", "Note", "swims", "-m", "-l", "20"],
        ),
        ("list", {"type": "Task"}, ["list", "Task"]),
        ("list", {"type": "Note", "limit": 100}, ["list", "Note", "-l", "100"]),
    ):
        end = time.monotonic() + HANG_S
        answer, code = client.ask(action, given)
        while answer is None and time.monotonic() < end:  # what was killed last is not yet replaced
            assert code in ("", *_AFTER_KILLS), code
            answer, code = client.ask(action, given)
        cold = run_in(root, ["--format", "json", *typed])
        assert answer is not None
        assert answer == json.loads(cold.out), action


def has_killed(seen: Seen) -> bool:
    """Both kinds of kills, without which there is nothing to see."""
    return bool(seen.counts["workers killed"] and seen.counts["servers killed"])


def seconds_of(campaign: Campaign, request: pytest.FixtureRequest) -> float:
    given = request.config.getoption("--serving-seconds")
    return float(given) if given is not None else float(campaign.pick(12, 3600))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks into /proc")
def test_a_server_answers_as_fresh_processes_do_whatever_is_killed(
    tmp_path: Path, campaign: Campaign, request: pytest.FixtureRequest
) -> None:
    """The first half is without kills: there memory has to stay level."""
    seen, rng = Seen(), campaign.random()
    elsewhere, whole = world(tmp_path, seen), seconds_of(campaign, request)
    server = Server(elsewhere.served)
    traffic = Traffic(server, seen, rng)
    memory: list[int] = []
    try:
        warmed(server)
        for thread in traffic.threads:
            thread.start()
        began = time.monotonic()
        due = {"pull": 0.0, "compare": whole / 3, "memory": 0.0, "kill": whole / 2, "server": whole * 5 / 8}
        every = {
            "pull": 1.5,
            "compare": max(2.0, whole / 60),
            "memory": max(0.2, whole / 500),
            "kill": 0.7,
            "server": max(3.0, whole / 40),
        }
        while ((now := time.monotonic() - began) < whole or not has_killed(seen)) and not seen.wrong:
            name = min(due, key=lambda one: due[one])
            if due[name] > now:
                time.sleep(min(0.05, due[name] - now))
                continue
            due[name] = max(due[name] + every[name] * rng.uniform(0.8, 1.2), now)
            match name:
                case "pull":
                    elsewhere.bring()
                case "compare":
                    with traffic.held():
                        compared(server, elsewhere.served)
                case "memory" if now < whole / 2:
                    memory.append(server.memory())
                # A worker that is killed before it comes up, time after time, is no fault that a server can hide.
                case "kill" if (workers := server.workers()) and seen.has_recovered:
                    seen.kills.append(time.monotonic())
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    seen.counts["workers killed"] += 1
                case "server":
                    seen.kills.append(float("inf"))
                    server.kill()
                    server.start()
                    seen.kills[-1] = time.monotonic()
                    seen.counts["servers killed"] += 1
    finally:
        traffic.stop.set()
        for thread in traffic.threads:
            thread.join(HANG_S)
        if sys.exc_info()[0] is not None or seen.wrong:
            server.kill()
    assert seen.wrong[:5] == []
    compared(server, elsewhere.served)
    server.end()
    assert server.workers() == []
    _judge(seen, memory, 0 if whole >= _LONG_S else _MEMORY_SLACK, campaign)


def _judge(seen: Seen, memory: list[int], slack: int, campaign: Campaign) -> None:
    quarter = max(1, len(memory) // 4)
    before, after = median(memory[quarter : 2 * quarter] or memory), median(memory[-quarter:])
    assert after <= before * _MEMORY_GROWTH + slack, (before, after)
    for name, number in seen.counts.items():
        campaign.count(f"serving: {name}", number)
    campaign.count("serving: pulls", len(seen.pulls))
    campaign.count("serving: MB of all processes, before", round(before / 1e6))
    campaign.count("serving: MB of all processes, after", round(after / 1e6))
