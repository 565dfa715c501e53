"""The process that runs statements: same answers as in this one, killed at will, fresh after every change, and confined."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.ports import SqlLimits
from duckkb.sql.confined import Confined
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import Isolated
from duckkb.types import request_context
from duckkb.types.errors import DuckkbError, Unavailable
from tests.conftest import ROOT, run_in
from tests.harness.campaign import Campaign
from tests.harness.sql import ground
from tests.harness.sql.attacks import FILTERS, FRIENDLY, STATEMENTS, aimed
from tests.harness.sql.bombs import MEMORY, TIME
from tests.harness.sql.grammar import Honest, Hostile

linux = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(),
    reason="looks at processes through /proc; what they answer is compared here everywhere",
)
VALUES = (
    "SELECT * FROM doc ORDER BY __id",
    "SELECT name, count(*) OVER (), tags, nums, meta, m, __extra FROM doc ORDER BY name",
    "SELECT d, t, __created_at, b, x, i FROM doc ORDER BY __id",
    "SELECT {'a': [1, NULL], 'b': MAP {'k': DATE '2024-01-01'}}, INTERVAL 3 DAY, 1e-320, -0.0, 'nan'::DOUBLE",
    "SELECT 12345678901234567890123456789::HUGEINT, 0.1::DECIMAL(20, 19), chr(0), '🦆', '内存', TIME '12:00:00'",
    "SELECT name AS a, note AS a, i AS b FROM doc ORDER BY ALL",
    "SELECT * FROM links",
    "SELECT 1 WHERE false",
    "SHOW TABLES",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Isolated]:
    made = Isolated()
    yield made
    made.drop()


@pytest.fixture(scope="module")
def both(engine: Isolated) -> tuple[Tables, Tables]:
    return ground.tables(), ground.tables(engine)


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DuckkbError as error:
        return type(error).__name__, error.code, ground.told(error)


def test_statements_answer_alike_in_both_processes(both: tuple[Tables, Tables]) -> None:
    here, there = both
    for statement in (*VALUES, *FRIENDLY, *STATEMENTS.values()):
        assert repr(_outcome(lambda text=statement: here.sql(text, SqlLimits()))) == repr(
            _outcome(lambda text=statement: there.sql(text, SqlLimits()))
        )
    for limits in (SqlLimits(rows=3), SqlLimits(bytes=500), SqlLimits(rows=1, bytes=1)):
        assert here.sql(VALUES[0], limits) == there.sql(VALUES[0], limits)


def test_filters_answer_alike_in_both_processes(
    both: tuple[Tables, Tables], campaign: Campaign, tmp_path: Path
) -> None:
    here, there = both
    count = campaign.pick(60, 1000)
    with ground.canaries(tmp_path) as secret:
        chance = campaign.random("alike")
        honest, hostile = Honest(chance), Hostile(chance, str(secret), ground.ENV_NAME)
        fragments = [aimed(text, str(secret), ground.ENV_NAME) for text in FILTERS.values()]
        fragments += [honest.condition().sql if n % 2 else hostile.fragment() for n in range(count)]
        for fragment in fragments:
            assert _outcome(lambda text=fragment: here.where(ground.DOC, text)) == _outcome(
                lambda text=fragment: there.where(ground.DOC, text)
            ), fragment
    campaign.count("fragments answered alike in two processes", len(fragments))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGBUS])
def test_a_process_that_dies_while_idle_is_replaced_unnoticed(
    engine: Isolated, both: tuple[Tables, Tables], how: int
) -> None:
    _, there = both
    there.sql("SELECT count(*) FROM doc", SqlLimits())
    _child(engine).send_signal(how)
    _child(engine).wait()
    assert there.where(ground.DOC, "i + 0 = 1") == {1}
    assert there.sql("SELECT count(*) FROM doc, vault, links", SqlLimits()).rows == ((20,),)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (signal.SIGKILL, "E_LIMIT"),
        (signal.SIGABRT, "E_LIMIT"),
        (signal.SIGSEGV, "E_INTERNAL"),
        (signal.SIGBUS, "E_INTERNAL"),
        (signal.SIGSTOP, "E_LIMIT"),
    ],
)
def test_a_process_that_dies_or_hangs_at_work_is_told_and_replaced(
    engine: Isolated, both: tuple[Tables, Tables], how: int, code: str
) -> None:
    _, there = both
    there.sql("SELECT count(*) FROM doc", SqlLimits())
    threading.Timer(0.3, _child(engine).send_signal, [how]).start()
    with pytest.raises(Unavailable) as caught:
        there.sql(TIME["endless recursion"], SqlLimits(seconds=1.5))
    assert (caught.value.code, caught.value.exit_code) == (code, 1)
    assert code == "E_LIMIT" or caught.value.details == {"retryable": True}
    assert there.sql("SELECT count(*) FROM doc", SqlLimits()).rows == ((10,),)


UNHEEDED = MEMORY["replaced letters"]  # a function that looks at no limit while it works
UNPARSED = "SELECT " + "position(x -> " * 60 + " in 1)" * 60  # nor does the parser


@pytest.mark.parametrize("statement", [TIME["endless recursion"], UNHEEDED, UNPARSED])
def test_a_statement_whose_caller_has_gone_takes_its_process_along(statement: str) -> None:
    engine, call = Isolated(), request_context.Deadline()
    engine.parse("SELECT 1")
    child = _child(engine)

    def ask() -> None:
        with request_context.apply_deadline(call):
            engine.rows(statement, SqlLimits(seconds=3600))

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask)
        while not call._interrupts:  # nobody would end it yet
            pass
        call.cancel()
        with pytest.raises(Unavailable):
            asked.result()
    assert child.poll() is not None
    engine.drop()


@pytest.mark.parametrize("statement", [TIME["endless recursion"], UNHEEDED, UNPARSED])
def test_two_statements_that_overrun_side_by_side_are_stopped_each(statement: str) -> None:
    engines = Isolated(), Isolated()
    with ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(lambda engine=engine: ground.tables(engine).sql(statement, SqlLimits(seconds=1)))
            for engine in engines
        ]
        for each in asked:
            with pytest.raises(Unavailable) as caught:
                each.result()
            assert caught.value.code == "E_LIMIT"
    for engine in engines:
        assert ground.tables(engine).sql("SELECT count(*) FROM doc", SqlLimits()).rows == ((10,),)
        engine.drop()


def test_an_interrupt_of_the_caller_leaves_no_answer_to_the_wrong_question(both: tuple[Tables, Tables]) -> None:
    _, there = both
    there.sql("SELECT count(*) FROM doc", SqlLimits())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite that runs in the background ignores it
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            there.sql(TIME["endless recursion"], SqlLimits(seconds=20))
    finally:
        signal.signal(signal.SIGINT, before)
    assert there.sql("SELECT 42", SqlLimits()).rows == ((42,),)


@linux
def test_replaced_processes_leave_nothing_open_and_no_zombies(campaign: Campaign) -> None:
    engine = Isolated()
    there, count = ground.tables(engine), campaign.pick(4, 16)
    opened = []
    for number in range(count):
        assert there.sql("SELECT count(*) FROM doc", SqlLimits()).rows == ((10,),)
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
        if number % 2:
            engine.drop()
        else:
            _child(engine).kill()
            _child(engine).wait()
    engine.drop()
    assert max(opened) == opened[0]
    assert engine.generation == count


@linux
def test_the_process_has_no_environment_no_files_and_no_way_to_open_one(engine: Isolated) -> None:
    os.environ[ground.ENV_NAME] = ground.ENV_SECRET
    engine.drop()
    engine.parse("SELECT 1")
    del os.environ[ground.ENV_NAME]
    own = Path(f"/proc/{_child(engine).pid}")
    assert own.joinpath("environ").read_bytes() == b""
    assert own.joinpath("cwd").readlink() == Path("/")
    targets = [str(link.readlink()) for link in own.joinpath("fd").iterdir()]
    strange = [name for name in targets if not name.startswith(("pipe:", "/dev/null", "/proc/"))]
    assert strange == []
    bounds = {line[:26].strip(): line[26:].split()[:2] for line in own.joinpath("limits").read_text().splitlines()}
    assert bounds["Max open files"] == bounds["Max file size"] == bounds["Max core file size"] == ["0", "0"]
    assert bounds["Max address space"][0] != "unlimited"
    assert bounds["Max cpu time"][0] != "unlimited"


PARENT = """
import os, sys, time
from duckkb.sql.sql_process import Isolated
engine = Isolated()
engine.parse("SELECT 1")
print(engine._process.pid, flush=True)
if sys.argv[1] == "busy":
    from duckkb.ports import SqlLimits
    engine.rows(sys.argv[2], SqlLimits(seconds=60))
time.sleep(60)
"""


@linux
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_process_does_not_outlive_a_parent_that_was_killed(state: str) -> None:
    args = [sys.executable, "-c", textwrap.dedent(PARENT), state, TIME["endless recursion"]]
    parent = subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


INVADED = """
import os, sys
from duckkb.sql.sql_process import Isolated
os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
os.environ.update(PYTHONPATH=sys.argv[1], PYTHONSTARTUP=sys.argv[1] + "/json.py", PYTHONHOME=sys.argv[1])
print(Isolated().parse("SELECT 1")["error"])
"""


def test_what_lies_in_the_current_folder_is_not_run(tmp_path: Path) -> None:
    """A clone can hold json.py and duckdb.py, and an environment can name a folder of such files."""
    canary = tmp_path / "ran"
    for name in ("json", "duckdb", "pyarrow", "pandas", "sitecustomize", "usercustomize", "duckkb", "struct", "queue"):
        (tmp_path / f"{name}.py").write_text(f"open({str(canary)!r}, 'a').write({name!r})\n", "utf-8")
    args = [sys.executable, "-c", textwrap.dedent(INVADED), str(tmp_path)]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
    assert not canary.exists(), canary.read_text()


FORKED = """
import os, sys
from duckkb.sql.sql_process import Isolated
engine = Isolated()
engine.parse("SELECT 1")
first, child = engine._process.pid, os.fork()
if child == 0:
    engine.parse("SELECT 2")
    other = engine._process.pid
    engine.drop()
    os._exit(0 if other != first else 1)
_, status = os.waitpid(child, 0)
assert engine.parse("SELECT 3")["error"] is False
assert engine._process.pid == first
engine.drop()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, and no child to share a process with")
def test_a_forked_server_gets_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LIBRARY = """
import sys
import duckkb
for chosen in ({}, {"sql_in_process": True}):
    with duckkb.open(sys.argv[1], **chosen) as kb:
        print(kb.sql("SELECT count(*) FROM note").rows, "duckdb" in sys.modules)
"""


def test_the_library_runs_statements_in_another_process_unless_told_otherwise(notes: Path) -> None:
    args = [sys.executable, "-c", LIBRARY, str(notes)]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "((0,),) False\n((0,),) True\n", done.stderr


def test_a_server_sees_the_base_as_it_is_at_the_call(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "size": 1})
        assert kb.sql("SELECT id, size FROM note").rows == (("a", 1),)
        kb.put("Note", [{"id": "b", "size": 2}, {"id": "a", "size": 3}])
        assert kb.sql("SELECT id, size FROM note ORDER BY id").rows == (("a", 3), ("b", 2))
        with pytest.raises(Unavailable):
            kb.sql(TIME["endless recursion"], timeout=0.2)
        run_in(notes, ["put", "Note", '{"id": "c", "size": 9}'])
        assert [hit.identity for hit in kb.find("Note", where="size + 0 >= 3")] == ["a", "c"]
        kb.delete("Note", "a")
        assert kb.sql("SELECT count(*) FROM note").rows == ((2,),)
        (part,) = (notes / "data" / "nodes" / "note").rglob("*.jsonl")
        part.write_text(part.read_text("utf-8").replace('"size":9', '"size":10'), "utf-8")
        assert [hit.identity for hit in kb.find("Note", where="size = 10")] == ["c"]
        config = notes / "config.yaml"
        config.write_text(config.read_text("utf-8").replace("{id: {type", "{more: {type: string}, id: {type"), "utf-8")
        assert kb.sql("SELECT count(*) FROM note").rows == ((2,),)


def test_threads_take_turns_and_get_their_own_answers(notes: Path, campaign: Campaign) -> None:
    failures: list[object] = []

    def ask(number: int) -> None:
        for turn in range(campaign.pick(5, 40)):
            wanted = number * 1000 + turn
            found = kb.sql(f"SELECT {wanted} FROM note").rows
            if found != ((wanted,),):
                failures.append((wanted, found))

    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a"})
        threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def _child(engine: Isolated) -> "subprocess.Popen[bytes]":
    """The process behind an engine, for what a fault does to it from outside."""
    child = vars(engine)["_process"]
    assert child is not None
    return child


class _Failing:
    """A connection that fails as DuckDB does when it has lost its own state: at a given statement, or while rows are read
    (then through Arrow, as an OSError with the engine's text)."""

    def __init__(self, real: Any, at: str, error: Exception) -> None:
        self._real, self._at, self._error = real, at, error

    def execute(self, statement: str, *given: Any) -> Any:
        if statement.startswith(self._at):
            raise self._error
        return self._real.execute(statement, *given)

    def sql(self, statement: str) -> Any:
        if statement.startswith(self._at):
            raise self._error
        return _Failing(self._real.sql(statement), self._at, self._error)

    def to_arrow_reader(self, *given: Any) -> Any:
        if self._at == "rows":
            raise OSError(str(self._error))
        return self._real.to_arrow_reader(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("kind", ["FatalException", "InternalException"])
@pytest.mark.parametrize("at", ["SELECT json_serialize_sql", "SELECT __id", "SELECT i", "CREATE", "rows"])
def test_an_engine_that_fails_in_itself_is_dropped_and_rebuilt(at: str, kind: str) -> None:
    """No statement is known that makes this DuckDB do so: the failure comes from a connection put in from outside."""
    engine = Confined()
    tables = ground.tables(engine)
    _fail(engine, at, kind)
    with pytest.raises(Unavailable) as caught:
        if at == "SELECT i":
            tables.sql("SELECT i FROM doc", SqlLimits())
        else:
            tables.where(ground.DOC, "i + 0 = 1")
    assert (caught.value.code, caught.value.exit_code, caught.value.details) == ("E_INTERNAL", 1, {"retryable": True})
    assert ground.ROW_SECRET not in ground.told(caught.value)
    assert engine.generation == 1
    assert tables.where(ground.DOC, "i + 0 = 1") == {1}
    assert tables.sql("SELECT count(*) FROM doc, vault", SqlLimits()).rows == ((20,),)


def test_an_engine_that_cannot_roll_back_is_replaced_after_its_answer() -> None:
    engine = Confined()
    tables = ground.tables(engine)
    _fail(engine, "ROLLBACK", "FatalException")
    assert tables.where(ground.DOC, "i + 0 = 1") == {1}
    assert engine.generation == 1
    assert tables.where(ground.DOC, "i + 0 = 2") == {2}


def _fail(engine: Confined, at: str, kind: str) -> None:
    import duckdb

    engine.parse("SELECT 1")
    failure = getattr(duckdb, kind)(f"{kind.removesuffix('Exception').upper()} Error: {ground.ROW_SECRET}")
    vars(engine)["_connection"] = _Failing(vars(engine)["_connection"], at, failure)
