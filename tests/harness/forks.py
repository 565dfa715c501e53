"""Processes that need no start of Python: a warm process forks for each, and a function of ours runs in the fork.

What a command imports is there already; all else is its own: environment, folder, streams, signals, exit code. Whoever
wants a process asks the warm one by a socket, hands over its streams, and reads from the socket the PID and, once the
process has ended, its exit code. So also `duckkb` in a shell script is a fork, a server is, and so are the processes that
duckkb itself starts, for SQL, for documents and for a team's files. With DUCKKB_TEST_FORK=0 everything starts from nothing, as it does for users.
"""

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NoReturn

import duckkb
from duckkb import config
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.server.dispatcher import LIBRARIES
from duckkb.server.web import templates
from duckkb.types.errors import Unavailable
from tests.harness import one_day
from tests.harness.first_use import in_large_pages, use_once
from tests.harness.waiting import HANG_S

SOURCES = Path(duckkb.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[2]
MODELS = config.environment().cache_home.expanduser() / "models"
"""Where the user's converted models lie: converting one takes seconds."""
COMMAND = "tests.harness.forks:command"
_PYTHON = sys.executable
"""The Python that the warm process is; a test may put another program in its place."""
_LIBRARIES = (
    "anyio._backends._asyncio",
    "duckdb",
    "encodings.utf_8_sig",
    "git",
    "jsonschema_rs",
    "numpy.ma",
    "numpy.typing",
    "pyarrow.parquet",
    "rjieba",
    "tantivy",
    "uuid",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
)
_FLAGS = ("-I", "-P", "-B", "-X", "utf8")
_PROGRAMS = ("duckkb.server.pool_worker", "tests.harness.served_worlds", "tests.harness.mcp.fixtures")
_ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_HEAD = 8
_TURN = threading.Lock()  # of threads that want the first process
_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND
# What `duckkb` is in a script: it hands its streams and all else to the warm process, and ends as the command does.
_CLIENT = """\
import array, json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
asked = {"call": sys.argv[2], "args": sys.argv[3:], "cwd": os.getcwd(), "env": dict(os.environ), "numbers": [0, 1, 2]}
data = json.dumps(asked).encode()
server.sendmsg([len(data).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(data)
answers = server.makefile()
answers.readline()
code = int(answers.readline() or "70")
os._exit(code if code >= 0 else 128 - code)
"""


class Forked:
    """A process that was forked: it is no child of ours, so the warm process tells how it ended."""

    def __init__(self, place: str, asked: Mapping[str, Any], streams: Sequence[int]) -> None:
        data = json.dumps(asked).encode()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(place)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        self._socket.sendmsg([len(data).to_bytes(_HEAD, "big")], rights)
        self._socket.sendall(data)
        self._said, self._turn = b"", threading.Lock()
        self.returncode: int | None = None
        self.pid = int(self._line(HANG_S) or -1)
        assert self.pid > 1, "a signal to it would reach others"

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = HANG_S) -> int:
        """The exit code. Raises `subprocess.TimeoutExpired`."""
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        with contextlib.ExitStack() as stack:
            stack.callback(self._turn.release)
            if self.returncode is None:
                self.returncode = int(self._line(timeout) or 70)
                self._socket.close()
            return self.returncode

    def send(self, number: int) -> None:
        """A signal; none where the process has ended already."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def _line(self, timeout: float | None) -> bytes:
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._said:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wait_for([self._socket], left):  # not `select`, which has no place for a descriptor above 1023
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            if not (more := self._socket.recv(64)):
                return b""
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line


class Forks:
    """The warm process. `sources` is where it imports duckkb from: the product, or a weakened copy of it. `model`: it has the
    offline model and jieba's dictionary too, which take it two seconds. `env` is for the warm process alone."""

    def __init__(self, sources: Path = SOURCES, *, model: bool = False, env: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks")
        self._place = str(Path(self._folder.name, "socket"))
        around = {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}"}
        # a process with threads is no good parent
        around |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **(env or {})}
        program = f"from tests.harness.forks import serve; serve({self._place!r}, {model!r})"
        self._server = subprocess.Popen(
            [_PYTHON, "-P", "-c", program],
            cwd=self._folder.name,
            env={**os.environ, **around},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ready = False
        atexit.register(self.close)

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        call: str,
        args: Sequence[Any],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        files: Sequence[Path | str],
        **more: Any,
    ) -> Forked:
        """A process that calls `module:function` with these arguments; its stdin, stdout and stderr are these files, of
        which the last two are made."""
        for path in files[1:]:
            os.close(os.open(path, _WRITTEN, 0o600))  # they can be looked at from now on
        asked = {"call": call, "args": list(args), "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
        return Forked(self.listening(), asked | {"files": list(map(str, files))} | more, [])

    def listening(self) -> str:
        """The socket by which it can be asked, once it can be."""
        with _TURN:
            if not self._ready:
                assert self._server.stdout is not None
                self._ready = self._server.stdout.readline() == b"ready\n"
                assert self._ready, "the warm process did not start"
        return self._place

    def output(
        self,
        call: str,
        args: Sequence[Any],
        cwd: Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> tuple[int, bytes, bytes]:
        """Exit code (negative: the signal that ended it), stdout and stderr of a process that is waited for."""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            given, out, err = (Path(folder, name) for name in ("in", "out", "err"))
            given.write_bytes(stdin)
            process = self.start(call, args, cwd=cwd, env=env, files=(given, out, err), **more)
            try:
                code = process.wait()
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            return code, out.read_bytes(), err.read_bytes()

    def script(self) -> str:
        """The text of a program for /bin/sh that runs a command line by the warm process."""
        client = Path(self._folder.name, "client.py")
        client.write_text(_CLIENT, "utf-8")
        return f'#!/bin/sh\nexec {_PYTHON} -I -S {client} {self.listening()} {COMMAND} "$@"\n'

    def close(self) -> None:
        """End the warm process; what it has started goes on."""
        if self._server.poll() is None:
            self._server.communicate(timeout=HANG_S)
        self._folder.cleanup()


@cache
def forks() -> Forks:
    """The warm process of this test process."""
    return Forks(model=True)


def possible() -> bool:
    return hasattr(os, "fork") and os.environ.get("DUCKKB_TEST_FORK") != "0"


def _as_call(command: Any, env: Mapping[str, str] | None) -> tuple[str, list[str]] | None:
    """What a fork is to call instead of this command line of Python, with what arguments; None where Python has to start."""
    if not isinstance(command, list | tuple) or not command or command[0] != _PYTHON or not possible():
        return None
    flags, rest = [], list(map(os.fspath, command[1:]))
    while rest and rest[0] in _FLAGS:
        flags.append(rest.pop(0))
    match rest:
        case ["-c", text, *args] if {"-I", "utf8"} <= {*flags}:  # duckkb's own; a test may want to see Python start
            return "tests.harness.forks:program", [text, *args]
        case ["-m", "duckkb", *args] if _is_our_python(env):
            return COMMAND, args
        case ["-m", name, *args] if name in _PROGRAMS and _is_our_python(env):
            return "tests.harness.forks:module", [name, *args]
    return None


def _is_our_python(env: Mapping[str, str] | None) -> bool:
    """Whether an environment lets Python start as it started here."""

    def settings(names: Mapping[str, str]) -> dict[str, str]:
        return {name: names[name] for name in names if name.startswith("PYTHON") and name != "PYTHONUTF8"}

    return env is None or settings(env) == settings(os.environ)


def _starting(place: Callable[[], str]) -> type:
    """`subprocess.Popen`, but that duckkb, and what it starts for itself, are forks; `place` is the socket to ask for them by."""
    real = subprocess.Popen

    class Popen(real):
        _forked: Forked | None = None

        def __del__(self) -> None:
            if self._forked is None:  # a fork is waited for by the warm process, which this one need not remember
                super().__del__()

        def _execute_child(self, args: Any, *more: Any) -> None:
            executable, preexec, _, pass_fds, cwd, env, *_ = more
            call = None if executable or preexec else _as_call(args, env)
            if call is None:
                super()._execute_child(args, *more)
                return
            ends = more[9:15]  # of three pipes: to read, to write
            streams = [end if end >= 0 else number for number, end in enumerate((ends[0], ends[3], ends[5]))]
            asked = {"call": call[0], "args": call[1], "env": dict(os.environ if env is None else env)}
            asked |= {"cwd": str(cwd or Path.cwd()), "numbers": [0, 1, 2, *pass_fds], "own session": more[-2]}
            try:
                self._forked = Forked(place(), asked, [*streams, *pass_fds])
                self.pid, self._child_created = self._forked.pid, True
            finally:
                self._close_pipe_fds(*ends)

        def _internal_poll(self, *args: Any, **options: Any) -> int | None:
            if self._forked is None:
                return super()._internal_poll(*args, **options)
            self.returncode = self._forked.poll()
            return self.returncode

        def _wait(self, timeout: float | None) -> int:
            if self._forked is None:
                return super()._wait(timeout)
            try:
                self.returncode = self._forked.wait(timeout)
            except subprocess.TimeoutExpired:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            return self.returncode

    return Popen


@contextmanager
def warm_children() -> Iterator[None]:
    """In this process: duckkb, and what it starts for itself, are forks, and the offline model is parsed once for all."""
    real = subprocess.Popen
    subprocess.Popen = _starting(lambda: forks().listening())
    restored = _parse_models_once(), _read_dictionary_once()
    try:
        yield
    finally:
        subprocess.Popen = real
        for restore in restored:
            restore()


_parsed: dict[tuple[Any, ...], Any] = {}


def _parse_models_once() -> Callable[[], None]:
    """Have the libraries of the offline model parse equal bytes once; returns what undoes that. What duckkb does around
    them, reading and checking its files, is as ever."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as duckkb has it before it imports it
    try:
        sentencepiece, onnxruntime = import_module("sentencepiece"), import_module("onnxruntime")
    except ImportError:  # without the package there is no model, which duckkb will say
        return lambda: None
    tokenizer, session = sentencepiece.SentencePieceProcessor, onnxruntime.InferenceSession

    def tokenizer_of(*args: Any, model_proto: bytes = b"", **more: Any) -> Any:
        key = ("tokenizer", len(model_proto), hash(model_proto))
        if key not in _parsed:
            _parsed[key] = tokenizer(*args, **more, **({"model_proto": model_proto} if model_proto else {}))
        return _parsed[key]

    def session_of(graph: bytes, options: Any, **more: Any) -> Any:
        options.intra_op_num_threads = 1  # threads do not outlive a fork
        key = ("session", len(graph), hash(graph))
        if key not in _parsed:
            _parsed[key] = session(graph, options, **more)
        return _parsed[key]

    def restore() -> None:
        sentencepiece.SentencePieceProcessor, onnxruntime.InferenceSession = tokenizer, session

    sentencepiece.SentencePieceProcessor, onnxruntime.InferenceSession = tokenizer_of, session_of
    return restore


def _read_dictionary_once() -> Callable[[], None]:
    """Have jieba, by which `doctor` checks what is faster, read its 5 MB of text once; returns what undoes that."""
    try:
        tokenizer = import_module("jieba").Tokenizer
    except ImportError:
        return lambda: None
    read = tokenizer.gen_pfdict

    def words_of(file: Any) -> Any:
        with file:
            key = ("dictionary", str(file.name))
            if key not in _parsed:
                _parsed[key] = read(file)
            return _parsed[key]

    tokenizer.gen_pfdict = staticmethod(words_of)
    return lambda: setattr(tokenizer, "gen_pfdict", staticmethod(read))


# --- the warm process


def serve(place: str, model: bool) -> None:
    """Answer until stdin ends."""
    _warm_up(place, model)
    listener, (woken, wakes) = socket.socket(socket.AF_UNIX), os.pipe()
    listener.bind(place)
    listener.listen(100)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.write(1, b"ready\n")
    callers: dict[int, socket.socket] = {}
    while True:
        ready = select.select([0, listener, woken], [], [])[0]
        if 0 in ready:
            return
        if listener in ready:
            caller, _ = listener.accept()
            if pid := _started(caller):
                callers[pid] = caller
                with contextlib.suppress(OSError):  # who asked may have been killed meanwhile
                    caller.sendall(b"%d\n" % pid)
        if woken in ready:
            os.read(woken, 4096)
        _tell_ended(callers)


def _tell_ended(callers: dict[int, socket.socket]) -> None:
    while callers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with callers.pop(pid) as caller, contextlib.suppress(OSError):  # nobody need be listening any more
            caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _warm_up(place: str, model: bool) -> None:
    modules = (module.name for module in walk_packages(duckkb.__path__, "duckkb."))
    for name in (*modules, *_LIBRARIES, *LIBRARIES):
        if not name.startswith("duckkb.integrations."):  # which import what is dear
            import_module(name)
    use_once()
    templates.load()
    subprocess.Popen = _starting(lambda: place)
    rjieba = import_module("rjieba")
    segmenter = rjieba.Jieba()  # reads a dictionary
    rjieba.Jieba = lambda: segmenter
    if model:
        _parse_models_once()
        _read_dictionary_once()
        with contextlib.suppress(Unavailable):  # which commands will say
            LocalE5(config.environment().cache_home).embed_queries(["warm"])
        with contextlib.suppress(ImportError):
            tokenizer = import_module("jieba").dt
            tokenizer.gen_pfdict(tokenizer.get_dict_file())
    gc.collect()
    gc.freeze()
    in_large_pages()


def _started(caller: socket.socket) -> int:
    """The process that was asked for; 0 where who asked was killed before it had said what it wants."""
    try:
        head, streams, _, _ = socket.recv_fds(caller, _HEAD, 16)
        size, data = int.from_bytes(head, "big"), b""
        while len(data) < size and (more := caller.recv(size - len(data))):
            data += more
    except OSError:
        head, streams, size, data = b"", [], 0, b""
    if not head or len(data) < size:
        for number in streams:
            os.close(number)
        caller.close()
        return 0
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
    pid = os.fork()
    if pid == 0:
        _become(json.loads(data), streams)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
    for number in streams:
        os.close(number)
    return pid


def _become(asked: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if files := asked.get("files"):  # opened here, as a fifo may have nobody at its other end yet
            asked["numbers"], held = [0, 1, 2], [os.open(files[0], os.O_RDONLY)]
            streams = [*held, *(os.open(path, _WRITTEN) for path in files[1:])]
        _take_streams(asked["numbers"], streams)
        if asked.get("own session"):
            os.setsid()
        for number in asked.get("ignore", ()):
            signal.signal(number, signal.SIG_IGN)
        os.environ.clear()
        os.environ.update(asked["env"])
        if one_day.BEGAN in os.environ:
            one_day.SystemClock.now = one_day.now  # type: ignore[method-assign]
        os.chdir(asked["cwd"])
        if not asked["call"].endswith((":command", ":execute")):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
        module, _, name = asked["call"].partition(":")
        getattr(import_module(module), name)(*asked["args"])
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(70)


def _take_streams(numbers: Sequence[int], streams: Sequence[int]) -> None:
    """Have the files open under these numbers and no other. What `sys` knows of its streams is not so any more."""
    above = max([*numbers, *streams, 255]) + 1
    held = [os.dup2(stream, above + at) for at, stream in enumerate(streams)]
    os.closerange(0, above)
    for number, opened in zip(numbers, held, strict=False):
        os.dup2(opened, number)
    os.closerange(above, above + len(held))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, errors = ("w" if number else "r"), ("backslashreplace" if number == 2 else "strict")
        lines = (
            1 if number == 2 else -1
        )  # as Python has it: what is said on stderr is there though the process ends at once
        stream = os.fdopen(number, mode, lines, encoding="utf-8", errors=errors, newline="\n", closefd=False)
        setattr(sys, name, stream)


def command(*args: str) -> None:
    """The command line. It gets signals once it listens for them, not while the fork is set up."""
    from duckkb import __main__

    listen = __main__.terminal.listen

    def unblock() -> None:
        listen()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)

    __main__.terminal.listen = unblock
    sys.argv = ["duckkb", *args]
    __main__.main()


def program(text: str, *args: str) -> None:
    """What `python -c` does."""
    sys.argv = ["-c", *args]
    exec(text, {"__name__": "__main__"})


def module(name: str, *args: str) -> None:
    """What `python -m` does."""
    sys.argv = [name, *args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it has been imported, which is why this is fast
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def execute(*args: str) -> None:
    """A whole process from the very start: Python, imports and all. A signal that comes before it ends it, as one that comes
    while Python starts."""
    for number in _ASKING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
    os.execv(args[0], args)


def weakened(place: Path, changes: Mapping[str, tuple[str, ...]]) -> Path:
    """A copy of the package with a protection taken out: module (`storage/journal`) -> (text, text instead, and so on).
    Returns where to import it from. The text must be there, so that a control that controls nothing is noticed."""
    shutil.copytree(SOURCES / "duckkb", place / "duckkb", ignore=shutil.ignore_patterns("__pycache__"))
    for module, texts in changes.items():
        path = place / "duckkb" / f"{module}.py"
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            text = path.read_text("utf-8")
            assert text.count(old) == 1, f"{path.name} no longer says {old!r}"
            path.write_text(text.replace(old, new), "utf-8")
    return place
