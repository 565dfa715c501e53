"""A worker as its server sees it: a process, and the channels at which it answers."""

import socket
import subprocess
import sys
import threading
from contextlib import suppress
from time import monotonic

from msgspec import Struct

from duckkb import installed
from duckkb.llm.call_pool import CallCounts
from duckkb.serving.pool import frames

SIDE_BY_SIDE = 2
"""Requests that one worker answers side by side: while one waits for a model, another is answered."""
CHANNELS = 8
"""Channels of a worker, with those for long requests that wait for the process of SQL."""
LAST_ANSWERS_S = 10.0
"""Seconds for which a worker that is to end continues with requests under way."""
PROGRAM: tuple[str, ...] = ("-P", "-m", "duckkb.serving.pool.worker")
SILENT_S = 60.0
"""Seconds without a sign of life after which a worker hangs, and is killed; it sends one each second."""
_OLD_S = 10.0


class Worker:
    """A process that was started for a base. Raises OSError where none can be."""

    def __init__(self, start: frames.Start) -> None:
        if why := installed.describe_replacement():
            raise OSError(why)
        pairs = [socket.socketpair() for _ in range(1 + CHANNELS)]
        theirs = [str(pair[1].fileno()) for pair in pairs]
        try:
            # It inherits only these sockets and stderr; the server handles an interrupt from the keyboard.
            self._process = subprocess.Popen(
                [sys.executable, *PROGRAM, *theirs],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[pair[1].fileno() for pair in pairs],
                start_new_session=True,
            )
        except OSError:
            for local_end, _ in pairs:
                local_end.close()
            raise
        finally:
            for _, remote_end in pairs:
                remote_end.close()
        self._control = pairs[0][0]
        self.channels = [Channel(self, place, local_end) for place, (local_end, _) in enumerate(pairs[1:])]
        self._saying = threading.Lock()
        self.pid, self.is_usable, self.was_ready = self._process.pid, False, False
        self.calls: list[CallCounts] = []
        self._since = monotonic()
        self._killed_later: threading.Timer | None = None
        with suppress(OSError):  # `is_ready` detects a process that has ended
            frames.send(self._control, frames.pack_frame(start))

    @property
    def busy(self) -> int:
        """The number of requests that it works on."""
        return sum(channel.is_busy for channel in self.channels)

    @property
    def is_old(self) -> bool:
        """Return whether the process has run for some seconds."""
        return monotonic() - self._since > _OLD_S

    def is_ready(self) -> bool:
        """Wait until the worker has opened the base; return whether it did.

        That may take minutes, during which the worker reports that it lives.
        """
        self._control.settimeout(SILENT_S)
        try:
            while frames.receive(self._control) is None:
                pass
        except TimeoutError:
            self.kill()
            return False
        except (EOFError, OSError):
            return False
        threading.Thread(target=self._listen, daemon=True).start()
        return True

    def _listen(self) -> None:
        try:
            while True:
                self.calls = frames.receive(self._control)
        except TimeoutError:
            self.kill()
        except (EOFError, OSError):
            return

    def end(self) -> None:
        """Ask the worker to end after the requests under way, within some seconds; do not wait."""
        if self._killed_later is None:
            self._killed_later = threading.Timer(LAST_ANSWERS_S + 1, self.kill)
            self._killed_later.daemon = True
            self._killed_later.start()
            self.tell(LAST_ANSWERS_S)

    def tell(self, what: object) -> None:
        """Send the worker a message; whether it has ended is detected elsewhere."""
        with suppress(OSError), self._saying:
            frames.send(self._control, frames.pack_frame(what))

    def kill(self) -> None:
        """Kill the worker at once."""
        self._process.kill()

    def wait(self) -> int:
        """Wait until the worker ends; return its exit code, or minus the number of the signal."""
        code = self._process.wait()
        self._control.close()
        if self._killed_later is not None:
            self._killed_later.cancel()
        return code


class Channel(Struct, eq=False):
    """A socket at which a worker answers one request at a time; `asked` is the number of the last one."""

    worker: Worker
    place: int
    socket: socket.socket
    is_busy: bool = False
    asked: int = 0

    def stop(self, number: int) -> None:
        """Ask the worker to stop a request for which nobody waits, if it still works on it."""
        self.worker.tell(frames.Stop(self.place, number))
