"""Runs the shell commands of a page as a reader would, with this checkout's `duckkb` and a `jq`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.harness.forks import forks, possible

_JQ = """
import json
import sys
import jq
flags, words = "", sys.argv[1:]
while words and words[0].startswith("-"):
    flags += words.pop(0)
raw = "r" in flags
text = open(words[1], encoding="utf-8").read() if len(words) > 1 else sys.stdin.read()
for value in jq.compile(words[0]).input_text(text, slurp="s" in flags).all():
    between = (",", ":") if "c" in flags else None
    print(value if raw and isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=between))
"""


_SECTION = re.compile(r"<!-- run: begin(.*?)-->(.*?)<!-- run: end -->", re.DOTALL)
_BLOCK = re.compile(r"```(bash|console|python)\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


class Block(NamedTuple):
    """A block of a page: its commands, and what the page says that it prints (`None` where it does not say)."""

    script: str
    printed: str | None


def page_blocks(text: str) -> list[Block]:
    """Return the blocks between `<!-- run: begin -->` and `<!-- run: end -->` of a page.

    Of `console` blocks the lines that begin with `$ ` are commands. What stands in the comment behind `begin` is a block too:
    what the page takes for granted. A `text` block that follows says what is printed.
    """
    blocks = []
    for setup, body in _SECTION.findall(text):
        blocks += [Block(setup, None)] if setup.strip() else []
        blocks += [Block(_as_script(match[1], match[2]), match[3]) for match in _BLOCK.finditer(body)]
    return blocks


def _as_script(language: str, text: str) -> str:
    if language == "console":
        return "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
    return f"{sys.executable} - <<'END_OF_PYTHON'\n{text}END_OF_PYTHON" if language == "python" else text


def run_blocks(scripts: list[str], folder: Path) -> list[str]:
    """Run scripts as one, in order, and return what each printed; fail at the first that fails."""
    script = "\n".join(f"echo '>>> {number}'\n{block}" for number, block in enumerate(scripts))
    done = run_script(script, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r">>> \d+\n(.*?)(?=>>> |\Z)", done.stdout, re.DOTALL)


def run_script(script: str, folder: Path, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script in bash, stopping at the first command that fails; stdin is empty."""
    env = {**os.environ, "PATH": f"{commands(folder)}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"}
    options = {"cwd": folder, "env": env, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=False, timeout=seconds, **options)


def commands(folder: Path) -> Path:
    """A folder for PATH with `duckkb` and `jq`, made in `folder`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "run_jq.py").write_text(_JQ, "utf-8")
    found = {
        name: f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n'
        for name, what in (("duckkb", "-m duckkb"), ("jq", f"{bin_folder / 'run_jq.py'}"))
    }
    if possible():
        found["duckkb"] = forks().script()
    for name, script in found.items():
        (bin_folder / name).write_text(script, "utf-8")
        (bin_folder / name).chmod(0o755)
    return bin_folder
