"""The process that parses files, one after the other, until its parent closes the pipe or kills it.

Requests come on stdin; answers go to the original stdout. Each is its length in eight bytes, then JSON; a
request is followed by the file in the same form. Nothing else comes in or goes out: from its start this process
opens no connection, starts no program, changes no file, and reads no files but those of its packages.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from duckkb import sandbox
from duckkb.documents.extraction_result import NEEDED, FileText

MOST = 256 * 1024 * 1024
_MODULES = {"pdf": "pdf", "docx": "docx", "html": "html_page"}
_SIZE = 8
_REFUSED = (
    "socket.", "subprocess.", "urllib.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.kill",
    "shutil.", "tempfile.", "winreg.",
)  # fmt: skip
"""Refused events of PEP 578. They restrict Python code, which parses most formats; PDFium opens at most fonts."""
_PACKAGES = ("site-packages", "dist-packages")
"""The names of folders in which installers put packages, some of them as links to a store of their own."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def send(stream: IO[bytes], message: bytes) -> None:
    """Write one message."""
    stream.write(len(message).to_bytes(_SIZE, "big"))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read one message. Raises EOFError if the message is incomplete or has more than `MOST` bytes."""
    head = stream.read(_SIZE)
    size = int.from_bytes(head, "big")
    if len(head) < _SIZE or size > MOST:
        raise EOFError
    message = stream.read(size)
    if len(message) < size:
        raise EOFError
    return message


def main() -> NoReturn:
    """Answer requests until stdin ends or fails; then nobody waits for an answer."""
    answers = sandbox.take_stdout()
    bounds = sandbox.Bounds()
    close()
    try:
        send(answers, b"{}")
        while True:
            request, raw = json.loads(receive(sys.stdin.buffer)), receive(sys.stdin.buffer)
            reader = _load_reader(request["format"])
            # in case the parent, which watches the time, is gone
            bounds.allow(2 * request["seconds"], request["memory"])
            send(answers, json.dumps(_extract_text(reader, raw).plain(), ensure_ascii=False).encode("utf-8", "replace"))
    except MemoryError:
        os._exit(sandbox.OVER_MEMORY)
    finally:
        os._exit(0)


def close() -> None:
    """Forbid this process to open anything but files beside the packages, for reading. This cannot be undone."""
    folders = [folder for folder in {*sys.path, sys.base_prefix, sys.prefix} if folder]
    packages = [str(Path(folder).absolute()) for folder in folders if Path(folder).name in _PACKAGES]
    targets = [os.path.realpath(link) for folder in packages for link in _list_links(folder)]
    homes = tuple(os.path.realpath(folder) + os.sep for folder in [*folders, *filter(os.path.isdir, targets)])
    inside, files = tuple(folder + os.sep for folder in packages), frozenset(filter(os.path.isfile, targets))

    def is_readable(path: str) -> bool:
        # A path in a package folder is readable wherever links in it lead, because installers create such links.
        # A path with `..` is excluded: after a link it means another folder than it says.
        if os.pardir not in Path(path).parts and str(Path(path).absolute()).startswith(inside):
            return True
        real = os.path.realpath(path)
        return real.startswith(homes) or real in files

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int):
                return
            if flags & _WRITING or not is_readable(os.fsdecode(path)):
                raise PermissionError(path)
        elif event.startswith(_REFUSED):
            raise PermissionError(event)

    sys.addaudithook(look)


def _list_links(folder: str) -> list[str]:
    """List the symbolic links directly in a folder; the folder may be missing."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_symlink()]
    return []


def _load_reader(form: str) -> Callable[[bytes], FileText]:
    """Load the reader of a format with its libraries, so that their memory does not count as the file's."""
    for module in NEEDED[form]:
        import_module(module)
    return cast(Callable[[bytes], FileText], import_module(f"duckkb.documents.{_MODULES[form]}").read)


def _extract_text(reader: Callable[[bytes], FileText], raw: bytes) -> FileText:
    try:
        return reader(raw)
    except MemoryError:
        raise
    except Exception:  # libraries raise errors of any kind for malformed files
        return FileText(warnings=("failed",))
