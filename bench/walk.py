"""How far it is from a command to the work: functions of duckkb that one command runs, and the calls between.

usage: python bench/walk.py

Runs `find -H -w` and `put` in this process, on a base of two records, and tells for each how many different functions ran, and
for some functions the calls that led there from the verb's callback, which counts as the first. Lambdas, comprehensions and
bodies of classes and modules do not count. What ARCHITECTURE.md says of its walks is checked with this.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import duckkb
from duckkb.cli.main import run

HOME = Path(duckkb.__file__).parent
CONFIG = """\
nodes:
  Note:
    table: note
    identity: id
    schema: {type: object, properties: {id: {type: string}, title: {type: string}}, required: [id]}
    search: {full_text: [title], vectors: [title]}
"""
GOALS = {
    "index.cosine.multiply_rows": "the product of vectors",
    "sql.sql_process._ask": "the process of DuckDB",
    "os.replace": "the replaced file",
}
_COMMIT = ("storage.journal.", "storage.commit_protocol.", "storage.base_lock.")  # other files are replaced too


class Walk:
    """The functions that were called, and the first way to each of the goals."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.ways: dict[str, list[str]] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and _counts(frame):
            self.functions.add(frame.f_code)
            self._note(_name(frame), frame)
        elif event == "c_call" and arg is os.replace and _name(_own(frame)).startswith(_COMMIT):
            self._note("os.replace", frame)

    def _note(self, goal: str, frame: FrameType) -> None:
        if goal not in GOALS or (goal in self.ways and goal != "os.replace"):  # of files, the last one is a part
            return
        names = [goal] if goal == "os.replace" else []
        at: FrameType | None = frame
        while at is not None and not (names and names[-1].endswith("_command")):
            if _counts(at):
                names.append(_name(at))
            at = at.f_back
        if names[-1].endswith("_command"):
            self.ways[goal] = names[::-1]


def _own(frame: FrameType) -> FrameType:
    """The frame itself, or the one of duckkb that called it."""
    while not _counts(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _name(frame: FrameType) -> str:
    return f"{str(frame.f_globals.get('__name__', '')).removeprefix('duckkb.')}.{frame.f_code.co_name}"


def _counts(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(str(HOME)) and not code.co_name.startswith("<") and bool(code.co_flags & 0x1)


def walked(arguments: Sequence[str]) -> Walk:
    """What one command runs."""
    walk, said = Walk(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        sys.setprofile(walk)
        try:
            code = run(list(arguments))
        finally:
            sys.setprofile(None)
    assert code == 0, said.getvalue()
    return walk


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["DUCKKB_CACHE_HOME"] = f"{scratch}/cache"  # what other runs have left there changes what is run
        root = Path(scratch) / "kb"
        root.mkdir()
        (root / "config.yaml").write_text(CONFIG, "utf-8")
        kb = ["--kb", str(root)]
        for name, title in (("a", "Rivers and seas"), ("b", "Mountains")):
            walked([*kb, "put", "Note", json.dumps({"id": name, "title": title})])
        where = ["find", "Note", "river", "-H", "-w"]
        for arguments in (
            ["put", "Note", json.dumps({"id": "c", "title": "Lakes"})],
            [*where, "title = 'Rivers and seas'"],
            [*where, "title LIKE 'R%'"],
        ):
            walk = walked([*kb, *arguments])
            print(f"{' '.join(arguments)}\n  {len(walk.functions)} functions")
            for goal, way in walk.ways.items():
                print(f"  {len(way)} to {GOALS[goal]}: {' > '.join(way)}")


if __name__ == "__main__":
    main()
