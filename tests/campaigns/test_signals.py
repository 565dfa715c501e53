"""Signals at random moments of real commands, and streams that go away: the exit code tells, and nothing is done by half."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.storage import base_lock
from tests.conftest import NOTES, Run, make_base
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.crowd.workers import Forge, Worker, wait_for_stage
from tests.harness.forks import Forks, weakened
from tests.harness.waiting import HANG_S

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MANY = [{"id": f"n{number:04}", "text": f"fox {number} 内存 " * 3} for number in range(400)]
COMMANDS = {
    "put": ["put", "Note", '{"id": "n0001", "text": "changed"}'],
    "import": ["import", "Note", "import.jsonl"],
    "find": ["find", "Note", "fox 内存", "-l", "50"],
    "index build": ["index", "build"],
    "delete": ["delete", "Note", "n0002", "n0003"],
}


@pytest.fixture(autouse=True)
def alarm_is_an_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A base of 400 notes, and a file to import that changes 200 of them and adds 200 to three parts."""
    root = make_base(tmp_path / "filled", NOTES)
    with duckkb.open(root) as kb:
        kb.put("Note", MANY[:200])
        kb.put("Note", MANY[200:])
        kb.find("Note", "fox", mode="match")
    changed = [record | {"title": "x" * 700} for record in MANY[100:300]]
    added = [{"id": f"new{number}", "text": "y" * 800, "size": number} for number in range(500)]
    (root / "import.jsonl").write_text("".join(json.dumps(one) + "\n" for one in changed + added))
    return root


def _records(root: Path) -> dict[str, object]:
    """Every note by its identity, without times."""
    found = oracle.records(root).values()
    return {record["id"]: {k: v for k, v in record.items() if not k.startswith("__")} for record in found}


def _expected(root: Path, command: str) -> dict[str, object]:
    after = _records(root)
    match command:
        case "put":
            after["n0001"] = {"id": "n0001", "text": "changed"}
        case "import":
            after |= {record["id"]: record for record in map(json.loads, (root / "import.jsonl").open())}
        case "delete":
            del after["n0002"], after["n0003"]
    return after


def _problem(worker: Worker, code: int, number: int) -> str:
    """What a user would complain of in the way a command ended after a signal."""
    if code not in (0, 128 + number):
        return f"exit code {code} after signal {number}: {worker.err}"
    if code == 128 + number and not all(word not in worker.err for word in ("Traceback", "ignored", "defect")):
        return worker.err
    return ""


def _interrupt(workers: Forge, root: Path, command: str, number: int, rng: random.Random) -> str:
    """Run a command, send the signal at some moment, and judge at once: no other command has looked since."""
    old, new, whole = _records(root), _expected(root, command), rng.random() < 0.25
    line = COMMANDS[command]
    worker = workers.whole(root, *line) if whole else workers.worker(root, *line)
    if rng.random() < 0.5:
        time.sleep(rng.random() ** 2 * (0.9 if whole else 0.45))
    else:
        wait_for_stage(worker)
        time.sleep(rng.random() * 0.012)
    worker.send(number)
    code = worker.wait()
    if whole and code in (1, -number) and _records(root) == old and ", in main" not in worker.err:
        return ""  # Python was still on its way to the command: what it says then is its own
    return _judged(worker, code, number, root, old, new)


def _judged(worker: Worker, code: int, number: int, root: Path, old: object, new: object) -> str:
    """What a user would complain of in the end of a command and in what it left behind."""
    found = _records(root)
    if problem := _problem(worker, code, number):
        return problem
    if found not in (old, new) or (code == 0 and found != new):
        return "half of a write is there"
    if left := oracle.leftovers(root):
        return f"left over: {left}"
    return ""


def _reset(root: Path) -> None:
    with duckkb.open(root) as kb:
        gone = [record["id"] for record in kb.list("Note", limit=5000) if record["id"].startswith("new")]
        if gone:
            kb.delete("Note", *gone, allow_shrink=True)
        kb.put("Note", MANY)
        assert kb.check().findings == ()


def test_a_signal_ends_a_command_whole_with_its_exit_code(filled: Path, workers: Forge, campaign: Campaign) -> None:
    rng = campaign.random("signals")
    for round_number in range(campaign.pick(2, 40)):
        for at, command in enumerate(COMMANDS):
            number = ASKING[(round_number + at) % len(ASKING)]
            problem = _interrupt(workers, filled, command, number, rng)
            assert problem == "", (command, signal.Signals(number).name, problem)
            campaign.count("signals to commands")
            if _records(filled) != {record["id"]: record for record in MANY}:
                _reset(filled)


LOADING = {
    "list": ["list", "Note", "-w", "size > 3"],
    "find": ["find", "Note", "fox 内存"],
    "sql": ["sql", "SELECT count(*) FROM Note"],
    "import": ["import", "Note", "import.jsonl", "--dry-run"],
    "check": ["check"],
}
"""Commands that load native libraries, and write nothing."""


def _load(root: Path, number: int, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that gets SIGTERM in the import of that number."""
    call = [sys.executable, "-m", "tests.harness.import_signals", str(number), *LOADING[command]]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        call, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=HANG_S
    )


def test_a_signal_while_native_code_imports_a_module_ends_the_command_with_its_exit_code(
    filled: Path, campaign: Campaign
) -> None:
    rng = campaign.random("imports")
    for command in LOADING if campaign.full else ["list"]:
        imports = json.loads(_load(filled, 0, command).stderr.splitlines()[-1])
        assert imports, command
        for number, module in imports if campaign.full else rng.sample(imports, 6):
            ended = _load(filled, number, command)
            assert ended.returncode == 128 + signal.SIGTERM, (command, module, ended.stderr)
            assert "Traceback" not in ended.stderr, (command, module, ended.stderr)
            campaign.count("signals to imports of native code")


def test_sigxcpu_ends_at_once_and_the_next_command_recovers(filled: Path, workers: Forge, campaign: Campaign) -> None:
    rng = campaign.random("cpu")
    old, new = _records(filled), _expected(filled, "import")
    for _ in range(campaign.pick(2, 15)):
        worker = workers.worker(filled, *COMMANDS["import"])
        time.sleep(0.03 + rng.random() * 0.3)
        worker.send(signal.SIGXCPU)
        assert worker.wait() in (0, -signal.SIGXCPU) and "Traceback" not in worker.err, worker.err
        with duckkb.open(filled, lock_timeout=0):
            assert _records(filled) in (old, new)
            assert oracle.leftovers(filled) == []
        _reset(filled)
        campaign.count("signals to commands")


def test_a_command_under_nohup_goes_on(notes: Path, workers: Forge) -> None:
    fifo = notes / "stdin"
    os.mkfifo(fifo)
    ignored = [signal.SIGHUP, signal.SIGINT]
    worker = workers.worker(notes, "put", "Note", stdin=fifo, ignore=ignored)
    with fifo.open("wb") as given:  # once the other end is open too
        time.sleep(0.2)
        for number in ignored:
            worker.send(number)
        given.write(b'{"id": "a"}\n')
    assert worker.wait() == 0, worker.err
    assert list(_records(notes)) == ["a"]


def test_a_command_that_waits_for_stdin_or_the_lock_heeds_signals(notes: Path, workers: Forge) -> None:
    fifo = notes / "stdin"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    with duckkb.open(notes) as kb:
        for number in ASKING:
            waiting = workers.worker(notes, "put", "Note", "--json", stdin=fifo)
            with base_lock.exclusive(notes, 10):
                locked = workers.worker(notes, "put", "Note", '{"id": "a"}', "--json")
                time.sleep(0.3)
                for worker in (waiting, locked):
                    worker.send(number)
                    assert worker.wait() == 128 + number, worker.err
                    assert json.loads(worker.err.splitlines()[-1])["code"] == "E_INTERRUPTED"
        assert kb.list("Note").total == 0
    os.close(keep)


def _piped(root: Path, *args: str, out: bool) -> tuple[int, bytes, bytes]:
    """Run a command with stdout or stderr a pipe whose reader has gone; what came out of the other."""
    reader, writer = os.pipe()
    os.close(reader)
    gone, kept = ("stdout", "stderr") if out else ("stderr", "stdout")
    streams = {gone: writer, kept: subprocess.PIPE}
    command = [sys.executable, "-m", "duckkb", *args]
    try:
        done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, check=False, timeout=HANG_S, **streams)
    finally:
        os.close(writer)
    return done.returncode, done.stdout or b"", done.stderr or b""


def test_whoever_stops_reading_stdout_is_content(filled: Path, campaign: Campaign) -> None:
    for args in (["list", "Note", "-l", "400"], ["find", "Note", "fox", "-l", "400"], ["put", "Note", '{"id": "p"}']):
        code, _, said = _piped(filled, *args, out=True)
        assert (code, b"Traceback" in said) == (0, False), said
        campaign.count("pipes closed")
    assert "p" in _records(filled)
    lister = subprocess.Popen(
        [sys.executable, "-m", "duckkb", "export", "Note"], cwd=filled, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert lister.stdout is not None and lister.stderr is not None
    assert lister.stdout.readline()
    lister.stdout.close()
    assert lister.wait(HANG_S) == 0
    assert lister.stderr.read() == b""


def test_whoever_stops_reading_stderr_gets_results_and_exit_codes_all_the_same(
    filled: Path, campaign: Campaign
) -> None:
    part = next((filled / "data" / "nodes" / "note").rglob("part_*.jsonl"))
    part.write_bytes(part.read_bytes() + b'{"id":"zz","text":"fox"}\n')  # every command has something to say of it
    cases = (
        (["find", "Note", "fox", "-l", "400"], 0),
        (["put", "Note", '{"id": "q"}'], 0),
        (["get", "Note", "nobody"], 1),
        (["no-such-verb"], 2),
        (["get", "Note", "nobody", "--json"], 1),
        (["find", "Note", "-w", "nonsense((("], 2),
        (["list", "Note", "-l", "1"], 0),
    )
    for args, code in cases[: campaign.pick(4, len(cases))]:
        ended, results, _ = _piped(filled, *args, out=False)
        assert ended == code, args
        assert bool(results) == (code == 0), args
        campaign.count("pipes closed")
    assert "q" in _records(filled) and "zz" in _records(filled)


def test_a_second_signal_ends_at_once(notes: Path, workers: Forge, run: Run) -> None:
    fifo = notes / "stdin"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    worker = workers.worker(notes, "put", "Note", stdin=fifo)
    time.sleep(0.2)
    for _ in range(50):
        worker.send(signal.SIGTERM)
    assert worker.wait() in (143, -signal.SIGTERM)
    os.close(keep)
    assert run("put", "Note", '{"id": "a"}').code == 0


def test_a_session_goes_on_after_an_interrupt(notes: Path, campaign: Campaign) -> None:
    """Ctrl-C in the middle of any call of an open base: the next call answers from what the files say."""
    rng = campaign.random("session")
    with duckkb.open(notes) as kb:
        kb.put("Note", MANY[:100])
        kb.find("Note", "fox", mode="match")
        kb.sql("SELECT count(*) FROM note")
        hits = 0
        for number in range(campaign.pick(30, 400)):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + rng.random() * 0.03)
                kb.put("Note", [{"id": f"s{number}", "text": f"fox s{number}"}, {"id": "n0001", "text": f"v{number}"}])
                kb.find("Note", "fox", mode="match", limit=1000)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            stored = _records(notes)
            assert (stored.get(f"s{number}") is not None) == (stored["n0001"]["text"] == f"v{number}")
            found = {hit.identity for hit in kb.find("Note", "fox", mode="match", limit=2000)}
            assert found == {name for name, record in stored.items() if "fox" in record["text"]}
            assert kb.sql("SELECT count(*) FROM note").rows == ((len(stored),),)
            assert kb.list("Note").total == len(stored)
            assert oracle.leftovers(notes) == []
        campaign.count("interrupts in a session", hits)
        assert hits
        assert kb.check().findings == ()


def _problem_while_waiting(workers: Forge, root: Path, number: int) -> str:
    """What a user would complain of in the way a command ended that a signal found waiting for stdin."""
    fifo = root / "stdin"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    worker = workers.worker(root, "put", "Note", stdin=fifo)
    time.sleep(0.3)
    worker.send(number)
    problem = _problem(worker, worker.wait(), number)
    os.close(keep)
    fifo.unlink()
    return problem


def test_the_judge_of_waiting_commands_is_content_with_ours(filled: Path, workers: Forge) -> None:
    assert _problem_while_waiting(workers, filled, signal.SIGTERM) == ""


SEALED = (
    "    facts |= _seal(work, targets)\n",
    """    facts |= _seal(work, targets)
    import signal, sys
    sys.argv[1:2] == ["import"] and signal.raise_signal(signal.SIGTERM)
""",
)
"""An import gets SIGTERM in the middle of its write, whatever the machine is busy with."""
RECOVERY = ("            recover(root)\n            raise\n", "            raise\n")


def _problem_in_the_middle(place: Path, root: Path, *taken_out: str) -> str:
    """What a user would complain of in what a command leaves behind that a signal met while it wrote."""
    old, new = _records(root), _expected(root, "import")
    with Forks(weakened(place / "copy", {"storage/commit_protocol": SEALED + taken_out})) as warm:
        worker = Forge(place / "workers", warm).worker(root, *COMMANDS["import"])
        return _judged(worker, worker.wait(), signal.SIGTERM, root, old, new)


def test_a_write_that_a_signal_met_in_its_middle_is_there_whole(tmp_path: Path, filled: Path) -> None:
    new = _expected(filled, "import")
    assert _problem_in_the_middle(tmp_path, filled) == ""
    assert _records(filled) == new


def test_a_write_that_recovers_nothing_after_a_signal_is_caught(tmp_path: Path, filled: Path) -> None:
    assert _problem_in_the_middle(tmp_path, filled, *RECOVERY)


@pytest.mark.parametrize(
    "taken_out",
    [
        {"cli/terminal": ("        signal.signal(number, _ask)\n", "        pass\n")},
        {
            "cli/main": ('    suggestion = "run it again', '    raise\n    suggestion = "run it again'),
            "__main__": ("        if not terminal.is_stop_requested():\n            raise\n", "        raise\n"),
        },
    ],
    ids=["handlers", "words"],
)
def test_commands_that_do_not_heed_signals_are_caught(
    tmp_path: Path, filled: Path, taken_out: dict[str, tuple[str, ...]]
) -> None:
    """The control, over copies with one protection taken out each: judged while they wait for stdin."""
    with Forks(weakened(tmp_path / "weak", taken_out)) as warm:
        assert _problem_while_waiting(Forge(tmp_path / "weak-workers", warm), filled, signal.SIGTERM)
