"""The client of a warm process (`duckkb serve --warm`), which `duckkb` asks before it imports anything.

Any mismatch means that the command runs as if there were no warm process; nothing has been printed by then.
Both sides import this module, so that each can compare what the other says of itself.
"""

import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _socket import socket

SERVED = frozenset(
    ("find", "get", "graph", "list", "ls", "multi-get", "query", "schema", "search", "status", "vsearch", "why")
)
"""Verbs that only read and end by themselves."""
PROTOCOL = b"duckkb warm 2"
HEAD = 8
BEGUN, OTHER, ANSWER = b"B", b"O", b"A"
LARGEST = 1 << 28
_CONNECT_S, _LOOK_S, _LONGEST_S = 0.1, 0.05, 10.0
_CREDENTIALS = 12  # pid, uid and gid, four bytes each
_OTHERWISE = "the warm process speaks otherwise"
_OFF = ("off", "0", "false", "no")
# Variables that a shell and a terminal set for themselves; no answer depends on them.
_APART = frozenset(
    b"_ PWD OLDPWD SHLVL DUCKKB_DAEMON SSH_CLIENT SSH_CONNECTION SSH_TTY TERM_SESSION_ID TMUX TMUX_PANE WINDOWID XDG_SEAT"
    b" XDG_SESSION_CLASS XDG_SESSION_ID XDG_SESSION_TYPE XDG_VTNR".split()
)

_FLAGS = (
    "optimize",
    "utf8_mode",
    "dev_mode",
    "bytes_warning",
    "int_max_str_digits",
    "no_site",
    "no_user_site",
    "warn_default_encoding",
)
"""Start options of Python that affect an answer."""

Answer = tuple[int, list[tuple[int, bytes]]]
"""An exit code, and what to write to which descriptor, in that order."""


class Cold(Exception):
    """The reason why the command has to run in this process."""


def verb(words: list[str]) -> str:
    """Return the first word of a command line that is neither an option nor an option's value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("--kb", "--format") else 1
    return words[at] if at < len(words) else ""


def is_required(words: list[str]) -> bool:
    """Return whether this command must not run without a warm process."""
    return _read_mode() == "require" and verb(words) in SERVED


def answer(words: list[str]) -> Answer:
    """Return the warm process's answer to a command line. Raises `Cold`."""
    if os.name == "nt" or verb(words) not in SERVED:
        raise Cold("no verb that a warm process answers")
    if _read_mode() in _OFF:
        raise Cold("DUCKKB_DAEMON is off")
    try:
        folder = run_folder()
        os.stat(folder)
        root = _find_root(words)
        place = socket_of(root, folder)
        return _ask_process(_check_socket(place, folder), identity(root), words)
    except (OSError, ValueError, ImportError, AttributeError) as error:  # or a system without such sockets
        raise Cold(str(error) or type(error).__name__) from None


def write(pieces: list[tuple[int, bytes]]) -> None:
    """Write what a command printed to stdout (1) and stderr (2). Raises OSError where stdout takes no more."""
    for stream, data in pieces:
        try:
            while data:
                data = data[os.write(stream, data) :]
        except OSError:
            if stream == 1:
                raise


def run_folder() -> str:
    """Return the folder with the sockets of this user's warm processes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return f"{runtime}/duckkb"
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = (os.environ.get("HOME") or os.path.expanduser("~")) + "/.local/state"
    return f"{state}/duckkb/run"


def socket_of(root: str, folder: str) -> str:
    """Return the socket of the base in a folder, given as its real path."""
    from _blake2 import blake2b

    return f"{folder}/{blake2b(os.fsencode(root) + b' %d' % os.geteuid(), digest_size=10).hexdigest()}.sock"


def identity(root: str) -> list[bytes]:
    """Return what client and warm process must have in common.

    These are protocol, installation, Python and its start, base, and environment, of which only a digest is sent.
    """
    from _blake2 import blake2b

    digest = blake2b(digest_size=32)
    for name, value in sorted(os.environb.items()):
        if name not in _APART:
            digest.update(b"%d %d %b%b" % (len(name), len(value), name, value))
    here = os.path.dirname(os.path.abspath(__file__))
    flags = [getattr(sys.flags, name) for name in _FLAGS]
    start_state = f"{sys.version} {flags} {sys._xoptions} {sys.warnoptions}"
    return [
        PROTOCOL,
        *map(os.fsencode, (here, sys.prefix, sys.base_prefix, start_state, root)),
        digest.hexdigest().encode(),
    ]


def make_frame(kind: bytes, body: bytes = b"") -> bytes:
    return kind + len(body).to_bytes(HEAD, "little") + body


def _read_mode() -> str:
    return os.environ.get("DUCKKB_DAEMON", "").strip().lower()


def find_named_base(words: list[str]) -> str | None:
    """Return the folder that a command line or DUCKKB_KB names as the base; None for the nearest base."""
    folder = os.environ.get("DUCKKB_KB") or None
    for at, word in enumerate(words):
        if word == "--":
            break
        if word == "--kb":
            folder = words[at + 1] if at + 1 < len(words) else None
        elif word.startswith("--kb="):
            folder = word[5:]
    return folder


def _find_root(words: list[str]) -> str:
    """Return the folder of the base that a command line seems to mean.

    It only locates a socket; the process that answers determines the base.
    """
    base = find_named_base(words)
    if base:
        return os.path.realpath(os.path.expanduser(base))
    folder = os.path.realpath(os.getcwd())
    while not os.path.lexists(f"{folder}/config.yaml"):
        if folder == "/":
            raise Cold("no base")
        folder = os.path.dirname(folder)
    return folder


def _check_socket(place: str, folder: str) -> str:
    """Return the socket after checking that it and its folder belong to this user alone. Raises `Cold`, OSError."""
    for path, kind in ((folder, stat.S_ISDIR), (place, stat.S_ISSOCK)):
        status = os.lstat(path)
        if not kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise Cold(f"{path} is not this user's alone")
    return place


def _ask_process(place: str, identity_parts: list[bytes], words: list[str]) -> Answer:
    """Send a command line to the warm process and return its answer. Raises `Cold`, OSError."""
    import _socket

    body = b"\0".join([b"%d" % len(identity_parts), *identity_parts, *map(os.fsencode, words)])
    if body.count(b"\0") != len(identity_parts) + len(words):
        raise Cold("a word holds a NUL")
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.settimeout(_LONGEST_S if _read_mode() == "require" else _CONNECT_S)
        line.connect(place)
        credentials = line.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
        pid, uid = (int.from_bytes(credentials[at : at + 4], sys.byteorder) for at in (0, 4))
        if uid != os.geteuid():
            raise Cold("the process that listens is another user's")
        # No descriptor is sent: a stopped process that has not taken it would keep a pipe open behind this command.
        line.sendall(make_frame(BEGUN, body))
        return _parse_answer(_answer(line, pid))
    finally:
        line.close()


def _answer(line: "socket", pid: int) -> bytes:
    """Return the warm process's complete answer, which has to begin in time. Raises `Cold`, OSError."""
    buffer, has_begun, remaining_s = bytearray(), False, _LONGEST_S
    while True:
        try:
            more = line.recv(1 << 20)
        except TimeoutError:
            remaining_s -= _LOOK_S
            if not has_begun or remaining_s < 0 or _is_inactive(pid):
                raise Cold("the warm process does not answer") from None
            continue
        if not more:
            raise Cold("the warm process ended")
        buffer += more
        while len(buffer) > HEAD and len(buffer) > HEAD + (size := int.from_bytes(buffer[1 : 1 + HEAD], "little")):
            kind, body = bytes(buffer[:1]), bytes(buffer[1 + HEAD : 1 + HEAD + size])
            del buffer[: 1 + HEAD + size]
            if kind == OTHER:
                raise Cold(body.decode("utf-8", "replace"))
            if has_begun == (kind == BEGUN) or kind not in (BEGUN, ANSWER) or (kind == ANSWER and (buffer or not body)):
                raise Cold(_OTHERWISE)
            if kind == ANSWER:
                return body
            has_begun = True
            line.settimeout(_LOOK_S)


def _is_inactive(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"], [b"Z"], [b"X"])


def _parse_answer(body: bytes) -> Answer:
    code, at, pieces = body[0], 1, []
    while at < len(body):
        stream, size = body[at], int.from_bytes(body[at + 1 : at + 1 + HEAD], "little")
        at += 1 + HEAD
        piece = body[at : at + size]
        if stream not in (1, 2) or len(piece) != size:
            raise Cold(_OTHERWISE)
        pieces.append((stream, piece))
        at += size
    return code, pieces
