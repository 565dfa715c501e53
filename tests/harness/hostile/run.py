"""Runs many command lines of duckkb in hostile places, quickly: one forked process for each place.

What runs is `duckkb.cli.main.run`, the whole command line but for the interpreter's start.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.forks import Forks, forks

NODE = '{"id":"new","title":"狐狸","text":"a new fox"}'
LINES: tuple[tuple[str, ...], ...] = (
    ("status", "--json"),
    ("put", "Note", NODE, "--dry-run"),
    ("diff", "main...topic", "--exit-code"),
    ("check", "--since", "topic"),
    ("find", "Note", "fox", "-m", "--provenance"),
    ("list", "Note", "--at", "topic"),
    ("blame", "Note", "a"),
    ("impact", "main...topic"),
    ("index", "build"),
    ("propose", "--branch", "proposed", "put", "Note", NODE),
    ("merge", "topic", "--no-ff"),
    ("export", "Note", "-o", "exported.jsonl", "--force"),
    ("diff", "main~1...topic", "--format", "json"),
    ("diff", "main~1...topic", "--format", "markdown"),
    ("diff", "main~1...topic", "--format", "html"),
    ("diff", "main~1...topic", "--format", "github"),
    ("diff", "main..rival", "--format", "patch"),
    ("diff", "main...other", "--stat"),
    ("merge", "rival"),
    ("resolve", "--list"),
    ("git", "install"),
    ("init", "--github"),
    ("recover",),
    ("init", "inside"),
    ("resolve", "--format", "json"),
    ("resolve", "--newest", "--stage"),
    ("merge", "--abort"),
    ("merge", "other"),
    ("resolve", "--ours", "--stage"),
    ("merge", "--abort"),
    ("apply", "--reverse", "change.patch", "--dry-run"),
    ("apply", "--reverse", "change.patch"),
    ("apply", "change.patch"),
    ("compact", "--older-than", "1"),
    ("diff", "HEAD", "--stat"),
    ("git", "install", "--check"),
    ("git", "uninstall"),
    ("check",),
    ("find", "Note", "fox", "-m", "--explain"),
    ("fmt", "--check"),
    ("doctor", "--json"),
    ("status",),
    ("check", "--json"),
    ("check", "--staged"),
    ("check", "--since", "HEAD~1", "--format", "sarif"),
    ("find", "all", "fox", "--json"),
    ("find", "Note", "-w", "size > 1"),
    ("find", "Note", "fox", "-m", "--at", "rival"),
    ("sql", "SELECT count(*) AS n FROM note"),
    ("get", "Note", "a"),
    ("get", "Note", "a", "--at", "topic"),
    ("get", "duckkb://Note/a@topic#text/0"),
    ("list", "Note", "--json"),
    ("log", "Note", "a"),
    ("blame", "Note", "a", "text"),
    ("why", "Note", "a", "fox", "-m"),
    ("why", "Note", "a", "fox", "-m", "--at", "topic"),
    ("impact", "rival", "--fail-on", "lost=1"),
    ("schema",),
    ("schema", "Note"),
    ("schema", "--sql"),
    ("export", "Note"),
    ("import", "Note", "exported.jsonl", "--dry-run"),
    ("graph", "neighbors", "Note", "a"),
    ("graph", "path", "Note", "a", "Note", "b"),
    ("embed", "fox", "--json"),
    ("delete", "Note", "b", "--cascade", "--dry-run"),
    ("rename", "Note", "a", "z", "--dry-run"),
    ("propose", "--branch", "proposed", "rename", "Note", "a", "z"),
    ("propose", "--base", "topic", "delete", "Note", "b", "--cascade"),
    ("propose", "import", "Note", "exported.jsonl"),
    ("compact", "--older-than", "1", "--dry-run"),
    ("dedupe", "--dry-run"),
    ("recover", "--show"),
    ("index", "status"),
    ("config", "show", "--json"),
    ("trust", "--show"),
    ("trust",),
    ("repair", "--check-only"),
    ("put", "Note", NODE),
    ("put", "Note", NODE.replace("fox", "hare")),
    ("rename", "Note", "new", "newer"),
    ("import", "Note", "exported.jsonl"),
    ("fmt",),
    ("dedupe",),
    ("delete", "Note", "newer"),
    ("put", "Note", '{"id":"a","title":"fax","text":"the quick fox","size":3}'),  # of the same length as before
    ("diff",),
    ("diff", "HEAD~1", "--exit-code"),
    ("diff", "--staged", "--stat"),
    ("apply", "--check", "exported.jsonl"),
    ("repair",),
)
"""Every verb at least once; those that ask git something, or change what it holds, come first."""


def every_line() -> list[tuple[str, ...]]:
    """`LINES` of the verbs that there are, and a bare line for each verb that ends by itself and stands in none."""
    from duckkb.cli.main import VERBS

    names = {verb.name for verb in VERBS} - {"serve", "watch"}
    return [line for line in LINES if line[0] in names] + [
        (name,) for name in sorted(names - {line[0] for line in LINES})
    ]


@dataclass(frozen=True)
class Said:
    """What one command line said."""

    line: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """The JSON error of `--json`, which is the last line of stderr."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found

    @property
    def all(self) -> str:
        return self.out + self.err


SECONDS = 120


class Runner:
    """Has a warm process run command lines: that of the product, or of a weakened copy."""

    def __init__(self, warm: Forks | None = None) -> None:
        self._warm = warm or forks()

    def run(self, cwd: Path, lines: Sequence[Sequence[str]], env: Mapping[str, str] | None = None) -> list[Said]:
        """Run command lines one after the other in `cwd`. Fails where one crashes, hangs, or is a defect."""
        around = {**os.environ, "PYTHONUTF8": "1", **(env or {})}
        with tempfile.TemporaryDirectory() as folder:
            call = "tests.harness.hostile.run:say_all"
            self._warm.output(call, [[list(line) for line in lines], folder], cwd, env=around)
            answers = [json.loads(text) for text in Path(folder, "answers").read_text("utf-8").splitlines()]
        assert len(answers) == len(lines), f"died in {cwd} at {lines[len(answers)]}"
        said = [Said(tuple(line), **answer) for line, answer in zip(lines, answers, strict=True)]
        for one in said:
            assert "E_INTERNAL" not in one.err and "Traceback" not in one.err, one
        return said


def say_all(lines: Sequence[list[str]], folder: str) -> None:
    """In the fork: what each line says goes to a file."""
    signal.alarm(SECONDS)
    for line in lines:
        answer = _said(line, Path(folder))
        with Path(folder, "answers").open("a", encoding="utf-8") as file:
            file.write(json.dumps(answer) + "\n")


def _said(line: list[str], folder: Path) -> dict[str, Any]:
    """Run one command line with its output in files."""
    from duckkb.cli.main import run

    files = [os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
    kept = [os.dup(number) for number in (0, 1, 2)]
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, *files)):
        os.dup2(source, target)
    try:
        code = run(line)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, source in enumerate(kept):
            os.dup2(source, target)
        for number in (*files, *kept, nothing):
            os.close(number)
    out, err = ((folder / name).read_text("utf-8", "replace") for name in ("out", "err"))
    return {"code": code, "out": out, "err": err}
