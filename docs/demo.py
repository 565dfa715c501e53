"""`make demo`: duckkb's main job on the repository's own knowledge base, on a temporary copy so that the clone stays clean."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = ("config.yaml", ".gitattributes", "ontology", "data")
DUCKKB = [sys.executable, "-m", "duckkb"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="duckkb-demo-") as folder:
        kb = Path(folder)
        _copy(kb)
        _say("A knowledge base is a git repository of JSONL files. This one describes duckkb itself.")
        _show(kb, "status")
        _say("Ask it in English, by words and by meaning at once:")
        _show(
            kb,
            "find",
            "concept",
            "how are two ranked lists joined into one",
            "-H",
            "-l",
            "3",
            "--fields",
            "id,_score,_scores,_chunk",
        )
        _say("Ask it in Chinese:")
        _show(
            kb, "find", "concept", "断电时怎样保证数据不丢失", "-H", "-l", "3", "--fields", "id,_score,_scores,_chunk"
        )
        _say("Change one record, and git shows one changed line:")
        _change(kb)
        _run(["git", "--no-pager", "diff", "--stat"], kb)
        _run(["git", "--no-pager", "diff", "--numstat"], kb)
        _say("Nothing else is truth: indices, tokens and vectors follow from the files and can be thrown away.")
    return 0


def _copy(kb: Path) -> None:
    for name in BASE:
        source = ROOT / name
        shutil.copytree(source, kb / name) if source.is_dir() else shutil.copy2(source, kb / name)
    identity = ["-c", "user.name=demo", "-c", "user.email=demo@example.org"]
    _quiet(["git", "init", "-q"], kb)
    _quiet(["git", "add", "."], kb)
    _quiet(["git", *identity, "commit", "-qm", "the knowledge base as it is"], kb)


def _change(kb: Path) -> None:
    change = json.dumps({"id": "reciprocal-rank-fusion", "status": "draft"})
    _show(kb, "put", "concept", change, "--merge")


def _show(kb: Path, *args: str) -> None:
    shown = " ".join(arg if arg.isascii() and " " not in arg and "{" not in arg else f"'{arg}'" for arg in args)
    print(f"$ duckkb {shown}", flush=True)
    done = subprocess.run(
        [*DUCKKB, *args], cwd=kb, env=_environment(), stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    for line in done.stdout.splitlines():
        print("  " + _short(line))
    if done.returncode:
        sys.exit(f"duckkb ended with {done.returncode}")


def _short(line: str) -> str:
    """A hit in one line for eyes; anything else as it is."""
    if not line.startswith("{"):
        return line
    record = json.loads(line)
    if "_score" not in record:
        return line
    ranks = record.get("_scores", {}).get("rank", {})
    chunk = record.get("_chunk", {}).get("text", "").replace("\n", " ")
    return f"{record['_score']:.4f}  {record['id']}  {ranks}  {chunk[:72]}"


def _run(command: list[str], kb: Path) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, cwd=kb, check=True)


def _quiet(command: list[str], kb: Path) -> None:
    subprocess.run(command, cwd=kb, check=True)


def _environment() -> dict[str, str]:
    """The caller's environment without what would point duckkb at another base."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DUCKKB_KB")} | {"PYTHONUTF8": "1"}


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
