"""Runs the shell commands of a page as a reader would, with this checkout's `duckkb` and a `jq`."""

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.forks import forks, possible

_JQ = """
import sys
import jq
flags, words = "", sys.argv[1:]
while words and words[0].startswith("-"):
    flags += words.pop(0)
raw = "r" in flags
text = open(words[1], encoding="utf-8").read() if len(words) > 1 else sys.stdin.read()
for value in jq.compile(words[0]).input_text(text, slurp="s" in flags).all():
    print(value if raw and isinstance(value, str) else __import__("json").dumps(value, ensure_ascii=False))
"""


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
