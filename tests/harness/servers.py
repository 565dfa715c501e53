"""`duckkb serve` as a process of its own, asked by connections that stay open."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.harness.waiting import HANG_S


@dataclass(frozen=True)
class Server:
    """A server that runs: its process, where it listens, what it said first, and the file of what it says on stderr."""

    process: subprocess.Popen[bytes]
    port: int
    told: Mapping[str, Any]
    log: Path

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)

    @property
    def memory_kib(self) -> int:
        """What the process holds of its own."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    route: str,
    token: str = "",
    body: Any = None,
    headers: Mapping[str, str] = {},
) -> tuple[http.client.HTTPResponse, bytes]:
    """An answer, and its body; `body` is bytes, or becomes JSON."""
    given = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    given |= {"authorization": f"Bearer {token}"} if token else {}
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, route, sent, {**given, **headers})
    found = connection.getresponse()
    return found, found.read()


PATIENT = {"DUCKKB_LIMITS_SERVED_SECONDS": f"{HANG_S:.0f}"}
"""The environment of a server that answers also where a busy machine takes longer than a caller of today would wait."""


@contextmanager
def served(root: Path, *args: str, log: Path, program: str = "duckkb", port: int = 0, **env: str) -> Iterator[Server]:
    """A server of a base on a port, or on one that is free; ends by itself, without an unexpected error."""
    command = [sys.executable, "-m", program, "--kb", str(root), *(args or ("serve",)), "--port", str(port)]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env={**os.environ, **PATIENT, **env})
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        told = json.loads(line)
        yield Server(process, urlsplit(told["url"]).port or 0, told, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0, log.read_text()[-2_000:]
        assert "E_INTERNAL" not in log.read_text(), log.read_text()[-2_000:]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
