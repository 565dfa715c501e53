"""`duckkb serve --warm`: what it answers is what a command by itself prints, and where anything is not as it should be, the command
runs by itself. That every command of the doors is answered alike is `pytest --warm tests/doors`."""

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from duckkb import warm_client
from duckkb.warm_client import ANSWER, BEGUN, OTHER, make_frame
from tests.conftest import NOTES, Ran, make_base, run_in
from tests.harness.forks import COMMAND, Forked, Forks, forks, possible, weakened
from tests.harness.waiting import HANG_S
from tests.harness.warmth import Warmth

pytestmark = pytest.mark.skipif(not possible() or not hasattr(socket, "SO_PEERCRED"), reason="needs Linux and forks")

FIND = ("find", "Note", "fox", "-m")
NOBODY = 65_534
TEXTS = [{"id": f"n{number}", "title": f"fox {number}", "text": "a fox 内存", "size": number} for number in range(30)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("warm") / "kb", NOTES)
    assert run_in(root, ["put", "Note"], stdin="".join(json.dumps(one) + "\n" for one in TEXTS)).code == 0
    assert run_in(root, FIND).code == 0
    return root


@pytest.fixture
def warmth() -> Iterator[Warmth]:
    found = Warmth()
    yield found
    found.close()


def ask(warmth: Warmth, root: Path, args: Sequence[str] = FIND, *, how: str = "", **env: str) -> Ran:
    """A command that may ask a warm process: by itself it prints the same."""
    return run_in(root, args, env={**warmth.env, "DUCKKB_DAEMON": how, **env})


def refusal(warmth: Warmth, root: Path, **env: str) -> str:
    """Why no warm process answers, once it is seen that the command runs all the same."""
    assert ask(warmth, root, **env) == ask(warmth, root, how="off", **env)
    refused = ask(warmth, root, ("--json", *FIND), how="require", **env)
    assert (refused.code, refused.out, refused.error["code"]) == (1, "", "E_WARM")
    return str(refused.error["error"])


def started(warmth: Warmth, root: Path, by: Forks | None = None) -> Forked:
    process = warmth.start(by or forks(), root, {**os.environ, "PYTHONUTF8": "1"})
    assert ask(warmth, root, how="require") == ask(warmth, root, how="off")
    return process


@pytest.fixture(autouse=True, scope="module")
def terminals_say_their_width() -> Iterator[None]:
    """And not the environment, in which whoever runs tests side by side says one."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("COLUMNS", "LINES"):
            environment.delenv(name, raising=False)
        yield


def ended(process: Forked) -> int:
    return process.wait(HANG_S)


@pytest.mark.long
def test_a_killed_one_costs_nothing_and_another_takes_its_place(warmth: Warmth, base: Path) -> None:
    process = started(warmth, base)
    process.kill()
    ended(process)
    assert warmth.socket(base).exists()  # what it left behind is no obstacle
    refusal(warmth, base)
    started(warmth, base)


def test_a_stopped_one_keeps_no_command_waiting(warmth: Warmth, base: Path) -> None:
    process = started(warmth, base)
    process.send(signal.SIGSTOP)
    assert ask(warmth, base).code == 0
    process.send(signal.SIGCONT)
    assert ask(warmth, base, how="require").code == 0


def test_a_stopped_one_holds_no_pipe_of_who_asked(warmth: Warmth, base: Path) -> None:
    """Whoever reads the output to its end is not kept waiting by what the stopped process has not taken."""
    process = started(warmth, base)
    process.send(signal.SIGSTOP)
    try:
        env = {**os.environ, **warmth.env, "PYTHONUTF8": "1"}
        asked = [sys.executable, "-m", "duckkb", *FIND]
        done = subprocess.run(asked, cwd=base, env=env, capture_output=True, check=True, timeout=HANG_S)
        assert done.stdout.decode() == ask(warmth, base, how="off").out
    finally:
        process.send(signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize(
    "env",
    [{"LANG": "tlh"}, {"DUCKKB_AGENT": "1"}, {"GIT_DIR": "/nowhere"}, {"OPENAI_API_KEY": "secret"}, {"COLUMNS": "31"}],
)
def test_another_environment_is_not_answered(warmth: Warmth, base: Path, env: Mapping[str, str]) -> None:
    started(warmth, base)
    assert "another" in refusal(warmth, base, **env)


def test_another_base_is_not_answered(warmth: Warmth, base: Path, tmp_path: Path) -> None:
    started(warmth, base)
    other = make_base(tmp_path / "kb", NOTES)
    assert run_in(other, ["put", "Note", '{"id": "other", "text": "fox"}']).code == 0
    assert [one["id"] for one in ask(warmth, other).lines] == ["other"]
    warmth.socket(other).symlink_to(warmth.socket(base))
    refusal(warmth, other)


@pytest.mark.long
@pytest.mark.parametrize("file", ["caller.py", "ontology/presets/memory.yaml"])
def test_another_duckkb_is_not_answered_and_a_changed_one_ends(
    warmth: Warmth, base: Path, tmp_path: Path, file: str
) -> None:
    with Forks(weakened(tmp_path, {})) as copy:
        process = warmth.start(copy, base, {**os.environ, "PYTHONUTF8": "1"})
        assert "another" in refusal(warmth, base)
        with (tmp_path / "duckkb" / file).open("a") as changed:
            changed.write("# changed\n")
        assert ended(process) == 0
    assert not warmth.socket(base).exists()


@pytest.mark.long
def test_it_ends_with_its_base(warmth: Warmth, tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    process = warmth.start(forks(), root, dict(os.environ))
    shutil.rmtree(root)
    assert ended(process) == 0


@pytest.mark.long
def test_it_ends_where_nobody_asks(warmth: Warmth, base: Path) -> None:
    assert ended(warmth.start(forks(), base, dict(os.environ), "--idle", "0.1")) == 0


def test_commands_that_write_or_read_stdin_are_not_asked(warmth: Warmth, base: Path) -> None:
    started(warmth, base)
    env = {**warmth.env, "DUCKKB_DAEMON": "require"}
    assert run_in(base, ["put", "Note", '{"id": "n1", "text": "a fox"}'], env=env).code == 0
    asked = run_in(base, ["search", "-"], stdin="fox", env=env)
    assert "it reads stdin" in asked.err and asked.code == 1
    alone = [run_in(base, ["search", "-"], stdin="fox", env={**env, "DUCKKB_DAEMON": how}) for how in ("", "off")]
    assert alone[0] == alone[1] and "no document collection" in alone[0].err


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_another_user_is_not_answered(warmth: Warmth, base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither where somebody asks who may reach the socket, nor by a socket of somebody else."""
    started(warmth, base)
    place, said = warmth.socket(base), b"\0".join([b"7", *warm_client.identity(str(base)), *map(os.fsencode, FIND)])
    program = (
        "import socket, sys; line = socket.socket(socket.AF_UNIX); line.connect(sys.argv[1]);"
        f"socket.send_fds(line, [{make_frame(BEGUN, said)!r}], [0, 1, 2]); print(line.recv(99))"
    )
    for path in (place, *list(place.parents)[:2]):
        path.chmod(0o777)
    as_nobody = ["setpriv", "--reuid", str(NOBODY), "--clear-groups"]
    done = subprocess.run(
        [*as_nobody, "/usr/bin/env", "python3", "-c", program, place], capture_output=True, text=True, check=False
    )
    refused = ("ConnectionResetError", "BrokenPipeError")
    assert done.stdout == "b''\n" or any(one in done.stderr for one in refused), done
    assert "not this user's alone" in refusal(warmth, base)
    for path in (place, *list(place.parents)[:2]):
        path.chmod(0o600 if path == place else 0o700)
    assert ask(warmth, base, how="require").code == 0
    os.chown(place, NOBODY, -1)
    assert "not this user's alone" in refusal(warmth, base)


@contextmanager
def listening(warmth: Warmth, root: Path, say: Callable[[socket.socket], None]) -> Iterator[None]:
    """Something of this user that listens in the warm process's place."""
    place = warmth.socket(root)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        place.chmod(0o600)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line:
                    line.recv(1 << 20)
                    say(line)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


PRINTED = b"\x00\x01" + (3).to_bytes(8, "little") + b"hi\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "said",
    [
        b"",
        BEGUN,
        make_frame(BEGUN),
        make_frame(OTHER, b"no"),
        make_frame(BEGUN) + make_frame(OTHER, b"no"),
        make_frame(ANSWER, PRINTED),
        make_frame(BEGUN) + make_frame(BEGUN) + make_frame(ANSWER, PRINTED),
        make_frame(BEGUN) + make_frame(ANSWER),
        *(make_frame(BEGUN) + make_frame(ANSWER, PRINTED)[:size] for size in (1, 8, 9, 12, 20)),
        make_frame(BEGUN) + make_frame(ANSWER, PRINTED) + b"more",
        make_frame(BEGUN) + make_frame(ANSWER, PRINTED[:-1]),
        make_frame(BEGUN) + make_frame(ANSWER, b"\x00\x03" + PRINTED[2:]),
        make_frame(BEGUN) + ANSWER + b"\xff" * 8 + PRINTED,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_a_torn_or_strange_answer_is_none(warmth: Warmth, base: Path, said: bytes) -> None:
    with listening(warmth, base, lambda line: line.sendall(said)):
        refusal(warmth, base)


def test_a_whole_answer_is_printed_in_its_order(warmth: Warmth, base: Path) -> None:
    with listening(
        warmth, base, lambda line: line.sendall(make_frame(BEGUN) + make_frame(ANSWER, b"\x07" + PRINTED[1:]))
    ):
        assert ask(warmth, base) == Ran(7, "hi\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_who_waits_as_it_ends_a_command(warmth: Warmth, base: Path, tmp_path: Path, number: int) -> None:
    came, released = threading.Event(), threading.Event()

    def hang(line: socket.socket) -> None:
        line.sendall(make_frame(BEGUN))
        came.set()
        released.wait(HANG_S)

    files = [tmp_path / name for name in ("in", "out", "err")]
    files[0].touch()
    with listening(warmth, base, hang):
        env = {**os.environ, **warmth.env, "PYTHONUTF8": "1"}
        asking = subprocess.Popen(
            [sys.executable, "-m", "duckkb", *FIND], cwd=base, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert came.wait(HANG_S)
        asking.send_signal(number)
        out, err = asking.communicate(timeout=HANG_S)
        released.set()
    assert (asking.returncode, out) == (128 + number, b"")
    assert err.startswith(b"duckkb: interrupted\n")


def test_a_reader_who_leaves_is_no_failure(warmth: Warmth, base: Path) -> None:
    started(warmth, base)
    env = {**os.environ, **warmth.env, "PYTHONUTF8": "1", "DUCKKB_DAEMON": "require"}
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "duckkb", *FIND]
    done = subprocess.run(
        command, cwd=base, env=env, stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file
        both = [
            subprocess.run(
                command, cwd=base, env={**env, "DUCKKB_DAEMON": how}, stdout=full, stderr=subprocess.PIPE, check=False
            )
            for how in ("require", "off")
        ]
    assert both[0].returncode == both[1].returncode == 1
    assert both[0].stderr == both[1].stderr
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    ended = subprocess.run(closed, cwd=base, env=env, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b""), "as without a warm process"


def test_a_terminal_is_seen(warmth: Warmth, base: Path, tmp_path: Path) -> None:
    """Its width, and that what a terminal would obey is shown instead."""
    assert (
        run_in(base, ["put", "Person", '{"country": "x", "number": 1, "name": "\\u001b[31m%s"}' % ("long " * 40)]).code
        == 0
    )
    started(warmth, base)
    seen = {}
    for how in ("require", "off"):
        leader, follower = os.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("4H", 20, 120, 0, 0))
        env = {**os.environ, **warmth.env, "PYTHONUTF8": "1", "DUCKKB_DAEMON": how}
        files = (os.devnull, os.ttyname(follower), tmp_path / how)
        process = forks().start(COMMAND, ["list", "Person", "--format", "table"], cwd=base, env=env, files=files)
        assert ended(process) == 0, (tmp_path / how).read_text()
        seen[how] = os.read(leader, 1 << 16), (tmp_path / how).read_bytes()
        os.close(leader)
        os.close(follower)
    assert seen["require"] == seen["off"]
    assert 90 < max(map(len, seen["off"][0].decode().splitlines())) <= 120 and b"\x1b" not in seen["off"][0]


@pytest.mark.long
def test_two_starts_make_one_and_stop_ends_it(warmth: Warmth, base: Path) -> None:
    env = {**os.environ, **warmth.env, "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "duckkb", "serve", "--warm"]
    both = [
        subprocess.Popen(command, cwd=base, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    said = [process.communicate(timeout=HANG_S) for process in both]
    told = [json.loads(out) for out, err in said if not err]
    assert len(told) == 2, said
    assert told[0]["pid"] == told[1]["pid"] and told[0]["socket"] == str(warmth.socket(base))
    assert ask(warmth, base, how="require") == ask(warmth, base, how="off")
    assert os.stat(f"/proc/{told[0]['pid']}/cwd").st_ino == os.stat("/").st_ino  # noqa: PTH116
    assert os.getsid(told[0]["pid"]) == told[0]["pid"]
    held = {os.readlink(f"/proc/{told[0]['pid']}/fd/{number}") for number in (0, 1, 2)}  # noqa: PTH115
    assert not any("pipe" in one for one in held)
    assert run_in(base, ["serve", "stop", "--warm"], env=warmth.env).line == told[0]
    again = run_in(base, ["serve", "stop", "--warm", "--json"], env=warmth.env)
    assert (again.code, again.error["code"]) == (1, "E_WARM")
    assert not warmth.socket(base).exists()


def test_no_socket_lies_in_the_base(base: Path) -> None:
    refused = run_in(base, ["serve", "--warm", "--json"], env={"XDG_RUNTIME_DIR": str(base)})
    assert (refused.code, refused.error["code"]) == (1, "E_WARM")
    assert not (base / "duckkb").exists()


@pytest.mark.long
def test_the_first_embedded_question_starts_one_where_this_machine_wants_it(warmth: Warmth, tmp_path: Path) -> None:
    """A setting of the machine; there is none in a base."""
    root = make_base(
        tmp_path / "kb",
        NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[text], vectors: [text]"),
    )
    env = {**warmth.env, "XDG_STATE_HOME": str(tmp_path / "state")}
    assert run_in(root, ["put", "Note", '{"id": "a", "text": "fox"}'], env=env).code == 0
    for settings, wanted in (("{}", False), ('{"daemon": "auto"}', True)):
        (tmp_path / "state" / "duckkb").mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / "duckkb" / "settings.json").write_text(settings)
        cold = run_in(root, ["find", "Note", "an animal"], env=env)
        assert cold.code == 0
        deadline = time.monotonic() + (60 if wanted else 1)
        while not warmth.socket(root).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert warmth.socket(root).exists() == wanted
    assert run_in(root, ["find", "Note", "an animal"], env={**env, "DUCKKB_DAEMON": "require"}) == cold
    assert run_in(root, ["serve", "stop", "--warm"], env=env).code == 0


@pytest.mark.long
def test_the_benchmark_asks_both_ways_and_ends_what_it_started(tmp_path: Path) -> None:
    """Its ratios are for a quiet machine; that both answers are the same it sees by itself."""
    bench, out = Path(__file__).parents[2] / "bench/warm.py", tmp_path / "warm.json"
    asked = [sys.executable, str(bench), "--repeats", "1", "--records", "30", "--out", str(out)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    assert set(json.loads(out.read_text("utf-8"))["medians"]) == {"find, embedded", "find -m", "get"}
