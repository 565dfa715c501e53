"""A worker: a process that opens a base and answers its server's requests, until the server ends in any way.

usage: python -m duckkb.server.pool_worker DESCRIPTOR...

The descriptors are sockets. The first says which request to stop, or how many seconds there are for requests
under way when the worker is to end; it closes with the server. Each other socket carries one request at a time.
"""

import os
import signal
import socket
import sys
import threading
from time import monotonic, sleep

from duckkb.llm import call_pool
from duckkb.server import dispatcher, listening, worker_channel
from duckkb.server.dispatcher import Served
from duckkb.server.server_daemon import Daemon
from duckkb.server.server_log import report_unexpected
from duckkb.types.errors import DuckkbError
from duckkb.types.request_context import Deadline, Step, apply_deadline, record_steps

_COUNTS_S = 1.0


def main(descriptors: list[str]) -> None:
    """Answer requests; never returns.

    Threads that still work are abandoned; a write is carried out whole or not at all. Once the server has
    ended, the worker ends at once: nobody waits, and a late write could follow one that another server took.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Signals to all processes of a service are for the server; children of a worker do not ignore them.
        signal.signal(number, lambda *_: None)
    listening.spare_memory()
    control, *channels = (socket.socket(fileno=int(item)) for item in descriptors)
    for item in (control, *channels):
        item.set_inheritable(False)
    start: worker_channel.Start = worker_channel.receive(control)
    answerer = Served(start.path, start.chosen, start.longest, Daemon.describe)
    places = [_Place(item) for item in channels]
    threads = [threading.Thread(target=_answer, args=(answerer, item), daemon=True) for item in places]
    for thread in (
        threading.Thread(target=_get_ready, args=(answerer, control, start.chosen.is_served), daemon=True),
        *threads,
    ):
        thread.start()
    try:
        while isinstance(seconds := worker_channel.receive(control), worker_channel.Stop):
            places[seconds.channel].stop(seconds.number)
        threading.Thread(target=_end_with_the_server, args=(control,), daemon=True).start()
        _finish(answerer, threads, seconds)
    finally:
        os._exit(0)


def _get_ready(answerer: Served, control: socket.socket, should_preload: bool) -> None:
    """Import what answers, open the base and report it.

    A base that does not load answers each request with the reason.
    """
    is_open = threading.Event()
    threading.Thread(target=_tell, args=(control, is_open), daemon=True).start()
    try:
        if should_preload:
            dispatcher.import_all(doors=False)
        _ = answerer.name
    except Exception as problem:
        if not isinstance(problem, DuckkbError):
            report_unexpected("worker", problem)
    is_open.set()


def _tell(control: socket.socket, is_open: threading.Event) -> None:
    """Report each second that the worker lives: nothing more until the base is open, then the counts of model
    calls.
    """
    try:
        while not is_open.is_set():
            worker_channel.send(control, worker_channel.pack_frame(None))
            is_open.wait(_COUNTS_S)
        while True:
            worker_channel.send(control, worker_channel.pack_frame(call_pool.counts()))
            sleep(_COUNTS_S)
    except OSError:
        os._exit(1)  # the server has ended


class _Place:
    """A channel, with the deadline of its present request."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._lock, self._asked, self._stopped, self._deadline = threading.Lock(), 0, 0, Deadline()

    def begin(self) -> Deadline:
        """Return the deadline of the next request."""
        with self._lock:
            self._asked, self._deadline = self._asked + 1, Deadline()
            if self._stopped == self._asked:  # the stop came before the request was read
                self._deadline.cancel()
            return self._deadline

    def stop(self, number: int) -> None:
        """Cancel the deadline of the request with this number, unless it was answered."""
        with self._lock:
            self._stopped = number
            if self._asked == number:
                self._deadline.cancel()


def _answer(answerer: Served, place: _Place) -> None:
    channel = place.channel
    try:
        while True:
            request: worker_channel.Request = worker_channel.receive(channel)
            with apply_deadline(place.begin()):
                reply = _reply(answerer, request)
            worker_channel.send(channel, reply)
    except (EOFError, OSError):
        return
    except Exception as problem:
        report_unexpected("worker", problem)
        os._exit(1)  # so that a waiting server learns that no answer comes


def _reply(answerer: Served, request: worker_channel.Request) -> bytes:
    if not request.is_traced:
        return _perform_request(answerer, request, [])
    with record_steps() as steps:
        return _perform_request(answerer, request, steps)


def _perform_request(answerer: Served, request: worker_channel.Request, steps: list[Step]) -> bytes:
    try:
        if request.message is not None:
            answer = answerer.run_in_proposal(request.name, request.given, request.caller, request.message)
        elif request.commit is None:
            answer = answerer.run(request.name, request.given, request.caller)
        else:
            with answerer.open_revision(request.commit, request.caller) as kb:
                answer = kb.run(request.name, request.given, request.caller)
        return worker_channel.pack_frame(worker_channel.Reply(answer, steps=tuple(steps)))
    except DuckkbError as problem:
        return worker_channel.pack_frame(worker_channel.Reply.from_error(problem))
    except Exception as problem:
        report_unexpected(f"worker {request.name}", problem)
        return worker_channel.pack_frame(worker_channel.Reply())


def _end_with_the_server(control: socket.socket) -> None:
    try:
        worker_channel.receive(control)
    finally:
        os._exit(0)


def _finish(answerer: Served, threads: list[threading.Thread], seconds: float) -> None:
    """Wait for requests under way, and store what was computed, within the given seconds."""
    end = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))
    listening.finish(answerer.close, max(0.1, end - monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])
