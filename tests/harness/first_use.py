"""What each process would do anew and every fork has: what is made at the first use, and memory in large pages."""

import ctypes
import os
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path

from duckkb.cli.main import run
from duckkb.ontology import json_schema

_TRIED = """\
global: {embedding_model: none}
nodes:
  Tried:
    table: tried
    identity: tried_key
    schema: {type: object, properties: {tried_key: {type: string}, tried_size: {type: integer}}, required: [tried_key]}
    search: {full_text: [tried_key]}
edges:
  tries: {from: Tried, to: Tried}
"""
_USES = (
    ["put", "Tried", '{"tried_key": "one"}'],
    ["put", "Tried", '{"tried_key": "two", "tried_size": 2}'],
    ["put", "tries", '{"from": "one", "to": "two"}'],
    ["get", "Tried", "one"],
    ["find", "Tried", "-w", "tried_size = 2"],
    ["check"],
)
_LARGE, _COLLAPSE = 1 << 21, 25  # MADV_COLLAPSE


def use_once() -> None:
    """Have what a process makes at its first use: constructors, validators, patterns. A base of types that no test has,
    and nothing that starts a thread or leaves what a test looks for."""
    before = dict(os.environ)
    said = TextIOWrapper(BytesIO())
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
        os.environ.update(XDG_STATE_HOME=folder, XDG_CACHE_HOME=folder, DUCKKB_KB=str(Path(folder, "kb")))
        Path(folder, "kb").mkdir()
        Path(folder, "kb/config.yaml").write_text(_TRIED, "utf-8")
        subprocess.run(["git", "init", "-q", os.environ["DUCKKB_KB"]], check=False)
        for args in _USES:
            assert run(args) == 0, args
    json_schema._known.clear()  # a machine of its own has found no schema sound yet, not even that of an edge without one
    json_schema.fresh()
    os.environ.clear()
    os.environ.update(before)


def in_large_pages() -> None:
    """Have the system keep our memory in pages of 2 MB, where it can (Linux 6.1): what a fork costs is a matter of their number."""
    with suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, _, _, inode, *_ = line.split()
            first, end = (int(at, 16) for at in span.split("-"))
            for at in range(-(-first // _LARGE) * _LARGE, end - _LARGE + 1, _LARGE):
                if rights == "rw-p" and inode == "0":
                    advise(at, _LARGE, _COLLAPSE)
