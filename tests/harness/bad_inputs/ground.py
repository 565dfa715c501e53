"""Ground of the campaigns with bad inputs: how a command is run, and what no answer may look like.

`complaints` reads an answer as a person or a program would and imports nothing of duckkb.
"""

import io
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import Ran
from tests.harness import oracle

LONGEST_ERROR = 8_000  # characters on stderr for one bad value; what is reported per line may be longer
SECONDS = 60.0
KEY = "sk-Zq8fLw2VtR5nXk0cJm3bPy7d"

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_DEFECT = ("Traceback", "E_INTERNAL", "a bug in duckkb", "Error:", "Exception:", "panicked")


@dataclass(frozen=True)
class Bad:
    """A command line with what must come of it. `error` is the code of the JSON error, empty where it succeeds; `finding`
    one that its findings have; `said` stands in what is told."""

    name: str
    args: Sequence[str]
    code: int
    error: str = ""
    stdin: bytes = b""
    finding: str = ""
    said: str = ""

    def __str__(self) -> str:
        return self.name


def invoke(root: Path, args: Sequence[str], stdin: bytes = b"") -> Ran:
    """One command line in this process, in the folder `root`, with streams of its own."""
    from duckkb.cli.main import run

    with _streams(stdin) as (out, err), chdir(root):
        code = run(args)
        sys.stdout.flush()
        sys.stderr.flush()
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sys.stdout = io.TextIOWrapper(out, "utf-8", errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(err, "utf-8", errors="backslashreplace")
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def complaints(ran: Ran, *, as_json: bool, reports: bool = False, secrets: Sequence[str] = (KEY,)) -> list[str]:
    """What is wrong with an answer, whatever was asked. `reports` is for commands whose result is what they found."""
    found = [f"stderr has {mark!r}" for mark in _DEFECT if mark in ran.err]
    found += ["a secret is printed" for secret in secrets if secret in ran.err or secret in ran.out]
    if ran.code not in (0, 1, 2):
        found.append(f"the exit code is {ran.code}")
    if _CONTROL.search(ran.err):
        found.append("stderr has a control character")
    if ran.code and ran.out and not reports and not (as_json and _is_empty_answer(ran)):
        found.append("stdout has a result and the exit code says that there is none")
    if ran.code and not reports:
        found += _error_complaints(ran, as_json)
    return found


def _is_empty_answer(ran: Ran) -> bool:
    """Whether stdout is the whole answer of a question that nothing met, and stderr says so."""
    try:
        answer, error = json.loads(ran.out), json.loads(ran.err.splitlines()[-1])
    except (IndexError, ValueError):
        return False
    return error.get("code") == "E_NO_RESULTS" and next(iter(answer.values())) == []


def _error_complaints(ran: Ran, as_json: bool) -> list[str]:
    lines = ran.err.splitlines()
    if not as_json:
        said = [line for line in lines if line.startswith("duckkb: ")]
        return [] if len(said) == 1 and len(said[0]) > len("duckkb: ") else ["stderr has no clear line"]
    try:
        error = json.loads(lines[-1])
    except (IndexError, ValueError):
        return ["the last line of stderr is not JSON"]
    if not isinstance(error, dict) or not {"error", "code", "suggestion"} <= error.keys():
        return ["the JSON error lacks a key"]
    return [] if error["error"] and re.fullmatch("E_[A-Z0-9_]+", error["code"]) else ["the JSON error says nothing"]


def answered(case: Bad, ran: Ran) -> list[str]:
    """Where an answer with `--json` differs from what the case expects."""
    found = []
    if ran.code != case.code:
        found.append(f"exit code {ran.code}, not {case.code}")
    if case.code and ran.code:
        error = json.loads(ran.err.splitlines()[-1])
        findings = error.get("details", {}).get("findings", [])
        if error["code"] != case.error:
            found.append(f"{error['code']}, not {case.error}")
        if case.finding and case.finding not in {one["code"] for one in findings}:
            found.append(f"no finding {case.finding}")
    if case.said and case.said not in ran.err + ran.out:
        found.append(f"does not say {case.said!r}")
    return found


def unmended(root: Path, case: Bad) -> list[str]:
    """Try one case that must change nothing: as JSON and as text; everything that is wrong with it."""
    before = everything(root)
    started = time.monotonic()
    as_json = invoke(root, [*case.args, "--json"] if "--" not in case.args else ["--json", *case.args], case.stdin)
    as_text = invoke(root, case.args, case.stdin)
    found = [*complaints(as_json, as_json=True), *complaints(as_text, as_json=False)]
    if not found:
        found += answered(case, as_json)
        found += [f"as text: exit code {as_text.code}"] if as_text.code != case.code else []
    if max(len(as_json.err), len(as_text.err)) > LONGEST_ERROR:
        found.append(f"stderr has {len(as_text.err)} characters")
    if time.monotonic() - started > 2 * SECONDS:
        found.append("it took too long")
    if everything(root) != before:
        found.append("files changed")
    return [f"{case.name}: {one}\n  {as_json.err[-600:]}" for one in found]


def everything(root: Path) -> dict[str, Any]:
    """What a refused command may not touch: all of data/, the configuration, and what lies beside the base."""
    beside = sorted(path.relative_to(root.parent).as_posix() for path in _beside(root))
    own = sorted(path.name for path in root.iterdir() if path.name != ".duckkb")
    settings = root / "config.yaml"
    text = settings.read_bytes() if settings.is_file() else b""
    held = {path.name: path.read_bytes() for path in _beside(root) if path.is_file()}
    return {"data": oracle.digest(root), "beside": beside, "held": held, "own": own, "config": text}


def _beside(root: Path) -> list[Path]:
    """What lies beside the base, where a link of it may lead."""
    return [path for other in root.parent.iterdir() if other != root for path in (other, *other.rglob("*"))]
